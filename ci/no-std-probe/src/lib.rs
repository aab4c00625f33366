//! Links Frameyard's core into an environment that has no `std`, no heap and no C library.
//!
//! What holds the check up: this crate brings its own panic handler, and the compiler refuses a second
//! one (error E0152), which is what `std` would be, wherever in the dependency graph it is linked; and a
//! final artefact with `alloc` in its graph but no global allocator is refused as well. The job `no-std`
//! builds it, shows both refusals on a planted dependency, and then looks at the symbols that are left.
#![no_std]

use frameyard as _;
use frameyard_formats as _;
use frameyard_memblock as _;
use frameyard_units as _;
use frameyard_vm as _;
#[cfg(any(feature = "plant-std", feature = "plant-alloc"))]
use planted as _;

use frameyard::{ByteSize, Geometry, Order};

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {
        core::hint::spin_loop();
    }
}

/// A little of the core's own code, so that the archive holds some.
#[unsafe(no_mangle)]
pub extern "C" fn probe(page_size: u64, section_size: u64) -> u64 {
    match Geometry::new(ByteSize(page_size), ByteSize(section_size), Order(9), Order(10)) {
        Ok(geometry) => geometry.section_pages().0,
        Err(_) => 0,
    }
}

/// The example kernel: creates its yard and allocates a frame.
#[unsafe(no_mangle)]
pub extern "C" fn kernel() -> u64 {
    match no_std_kernel::init() {
        Ok(_) => no_std_kernel::page_table_frame().map_or(0, |frame| frame.0),
        Err(_) => 0,
    }
}
