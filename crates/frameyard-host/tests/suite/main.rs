//! The integration tests of the hosted crate, in one program: one module per subject.

mod checked_yard;
mod counting;
mod dead_neighbour;
mod dead_vm_neighbour;
mod device_map;
mod examples;
mod fork;
mod frame_bytes;
mod frame_size;
mod host_yard;
mod hostile_neighbour;
mod huge_pages;
mod huge_pool;
mod map_region;
mod neighbour;
mod neighbour_process;
mod own_process;
mod processes;
mod reporting;
mod sequences;
mod shared_device_map;
mod shared_yard;
#[path = "../../src/test_addresses.rs"]
mod test_addresses;
#[path = "../../src/test_huge_pages.rs"]
mod test_huge_pages;
mod threads;
