//! The integration tests of the crate in one program, one module per subject.

mod address_space;
mod address_space_failures;
mod address_space_model;
mod aged_under_use;
mod bytes_in_use;
mod failures_in_turn;
mod fixture;
mod hostile_process;
mod mapped_files;
mod mapped_under_use;
mod memory_in_use;
mod moved_under_use;
mod page_cache;
mod pinned_devices;
mod pinned_files;
mod pinned_for_long;
mod pinned_under_use;
mod pinning;
mod pinning_model;
mod pooled;
mod protections;
mod space_model;
#[path = "../../src/test_yard.rs"]
mod test_yard;
