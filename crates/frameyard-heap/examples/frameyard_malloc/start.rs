//! Setting up the heap, before `main`.

use std::env;
use std::fmt::Display;

use frameyard_heap::jemalloc::{Budget, BudgetShare, Heap, Settings, install_in};

use crate::{exit, mimalloc};

/// Called by the dynamic linker, after the C library is ready and before the program's own initialisers. The number has it called before
/// the initialiser of mimalloc, whose destructors of threads then run after those of this library.
#[used]
#[unsafe(link_section = ".init_array.00100")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    let settings = match Settings::new(Heap::DEFAULT_MEMORY).from_environment() {
        Ok(settings) => settings,
        Err(error) => return warn(&error),
    };
    let share = match share() {
        Ok(share) => share,
        Err(problem) => return warn(&problem),
    };
    let installed = match chosen() {
        Ok(Chosen::Jemalloc) => install_in(&settings, share).map(drop).map_err(|error| error.to_string()),
        Ok(Chosen::Mimalloc) => mimalloc::install(&settings, share),
        Err(problem) => Err(problem),
    };
    match installed {
        Ok(()) => exit::arrange(),
        Err(problem) => warn(&problem),
    }
}

/// The variable with the name of the heap.
const HEAP: &str = "FRAMEYARD_HEAP";

enum Chosen {
    Jemalloc,
    Mimalloc,
}

/// The heap that the environment names.
fn chosen() -> Result<Chosen, String> {
    let Some(value) = env::var_os(HEAP) else { return Ok(Chosen::Jemalloc) };
    match value.to_str() {
        Some("" | "jemalloc") => Ok(Chosen::Jemalloc),
        Some("mimalloc") => Ok(Chosen::Mimalloc),
        _ => {
            let value: String = value.to_string_lossy().chars().take(64).collect();
            Err(format!("{HEAP}={value:?} is not jemalloc or mimalloc"))
        }
    }
}

/// The variable with the name of a budget that several processes share.
const SHARED: &str = "FRAMEYARD_SHARED";

/// This process's part of the budget that the environment names.
fn share() -> Result<Option<BudgetShare>, String> {
    let Some(value) = env::var_os(SHARED).filter(|value| !value.is_empty()) else { return Ok(None) };
    let name = value.to_string_lossy();
    let share = Budget::open(&name).and_then(Budget::join);
    share.map(Some).map_err(|error| format!("{SHARED}: {error}"))
}

/// Says in one line why there is no yard.
fn warn(error: &dyn Display) {
    exit::write_line(libc::STDERR_FILENO, &format!("frameyard: {error}; the program runs without a yard"));
}
