//! The integration tests of the hosted crate, in one program: one module per subject.

mod checked_yard;
mod counting;
mod dead_process;
mod dead_vm_process;
mod device_map;
mod examples;
mod fork;
mod frame_bytes;
mod frame_size;
mod host_yard;
mod hostile_process;
mod hostile_writes;
mod huge_pages;
mod huge_pool;
mod map_region;
mod own_process;
mod processes;
mod reporting;
mod sequences;
mod shared_device_map;
mod shared_yard;
mod sharing_process;
#[path = "../../src/test_addresses.rs"]
mod test_addresses;
#[path = "../../src/test_huge_pages.rs"]
mod test_huge_pages;
mod threads;
