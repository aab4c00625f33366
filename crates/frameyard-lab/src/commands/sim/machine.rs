//! Which simulated machine is meant.

use std::path::Path;

use frameyard_sim::Machine;

use crate::Failure;

/// A built-in machine by its name, or the one that a file describes.
///
/// # Errors
///
/// [`Failure::Input`] where there is neither, or the file is no description.
pub(super) fn machine(argument: &str) -> Result<Machine, Failure> {
    let path = Path::new(argument);
    let is_file = path.extension().is_some() || argument.contains(std::path::MAIN_SEPARATOR);
    if !is_file {
        return Machine::built_in(argument).map_err(Failure::input);
    }
    let failed = |error: &dyn std::error::Error| Failure::input(format!("{argument}: {error}"));
    let text = std::fs::read_to_string(path).map_err(|error| failed(&error))?;
    text.parse::<Machine>().map_err(|error| failed(&error))
}
