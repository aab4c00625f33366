//! The examples run to their end and check their own results.

#[path = "../../examples/buffer_pool.rs"]
mod buffer_pool;

#[test]
fn the_buffer_pool_keeps_the_contents_of_its_pages() {
    buffer_pool::main().unwrap();
}
