//! The interface for programs: `libframeyard` and `frameyard.h`.
//!
//! It is thin: each function checks its arguments, calls one method of `frameyard-host` or `frameyard-vm`, and turns the result into numbers.

mod create;
mod device_memory;
mod failure;
mod handle;
mod log;
mod pin;
mod space;
mod space_failure;

pub use create::{
    FY_BACKING_ANONYMOUS, FY_BACKING_HUGETLB_1G, FY_BACKING_HUGETLB_2M, FY_BACKING_MEMFD, FY_BACKING_PHANTOM,
    FY_HUGE_PAGES_ADVISE, FY_HUGE_PAGES_DEFAULT, FY_HUGE_PAGES_NEVER, fy_config, fy_yard_create, fy_yard_create_shared,
    fy_yard_destroy, fy_yard_open_shared,
};
pub use device_memory::{
    FY_DEVICE_DAX, FY_DEVICE_FILE, FY_DEVICE_GROWING_FILE, FY_DEVICE_MEMFD, fy_device_add_memory, fy_device_memory,
    fy_device_remove_memory,
};
pub use handle::fy_yard;
pub use log::fy_log_fn;
pub use pin::{
    FY_PIN_DIRTY, FY_PIN_FORCE, FY_PIN_LONGTERM, FY_PIN_PER_PAGE, FY_PIN_READ, FY_PIN_REFERENCE, FY_PIN_WRITE, fy_pin,
    fy_pin_runs, fy_unpin, fy_unpin_runs,
};
pub use space::{
    FY_ACCESS_READ, FY_ACCESS_WRITE, FY_MAP_ANONYMOUS, FY_MAP_DEVICE, fy_mapping, fy_space, fy_space_create,
    fy_space_destroy, fy_space_frame, fy_space_id, fy_space_map, fy_space_open, fy_space_read, fy_space_touch,
    fy_space_unmap, fy_space_write,
};

// The C functions of a yard.
crate::shared::functions!(fy_yard, unsafe(no_mangle));
crate::shared::device_functions!(fy_yard, unsafe(no_mangle));
