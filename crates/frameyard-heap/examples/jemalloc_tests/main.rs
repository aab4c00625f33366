//! A library for jemalloc's own tests (`cargo xtask jemalloc-tests`): it makes a yard, returns the extent hooks, and checks the yard at exit.

use std::ffi::c_void;
use std::io::Write;
use std::time::Duration;
use std::{env, fs, io, process, ptr, thread};

use frameyard_heap::jemalloc::{ByteSize, Settings, installed, make_hooks};

/// The variable with the path of a file that gets a line of counts.
const COUNTS: &str = "FRAMEYARD_JEMALLOC_TESTS";

/// Makes the yard. Null, and a line on standard error, if that fails.
#[unsafe(no_mangle)]
extern "C" fn frameyard_extent_hooks() -> *const c_void {
    let made = Settings::new(ByteSize::gib(4)).from_environment().map_err(|error| error.to_string());
    match made.and_then(|settings| make_hooks(&settings).map_err(|error| error.to_string())) {
        Ok((_, hooks)) => {
            // SAFETY: the handler never unwinds.
            let _ = unsafe { libc::atexit(check) };
            hooks
        }
        Err(error) => {
            let _ = writeln!(io::stderr(), "frameyard: {error}");
            ptr::null()
        }
    }
}

/// Validates the yard, and says what was allocated. Threads of the test may still be at work.
extern "C" fn check() {
    let Some(heap) = installed() else { return };
    let is_sound = || {
        thread::sleep(Duration::from_millis(1));
        heap.validate().is_ok()
    };
    if !(0..1000).any(|_| is_sound()) {
        let _ = writeln!(io::stderr(), "frameyard: {:?}", heap.validate());
        process::abort();
    }
    let Some(path) = env::var_os(COUNTS) else { return };
    if let Err(error) = fs::write(path, heap.summary().to_string()) {
        let _ = writeln!(io::stderr(), "frameyard: {error}");
        process::abort();
    }
}
