//! Setting up the heap, before `main`.

use std::fmt::Display;

use frameyard_jemalloc::{Heap, Settings, install};

use crate::exit;

/// Called by the dynamic linker, after the C library is ready and before the program's own initialisers.
#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    let settings = match Settings::new(Heap::DEFAULT_MEMORY).from_environment() {
        Ok(settings) => settings,
        Err(error) => return warn(&error),
    };
    match install(&settings) {
        Ok(_) => exit::arrange(),
        Err(error) => warn(&error),
    }
}

/// Says in one line why there is no yard.
fn warn(error: &dyn Display) {
    exit::write_line(libc::STDERR_FILENO, &format!("frameyard: {error}; the program runs without a yard"));
}
