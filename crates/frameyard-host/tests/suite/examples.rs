//! The examples run to their end: they check what they do.

#[path = "../../examples/buffer_pool.rs"]
mod buffer_pool;

#[test]
fn the_buffer_pool_keeps_what_was_written_to_its_pages() {
    buffer_pool::main().unwrap();
}
