//! Which simulated machine is meant.

use std::path::Path;

use frameyard_sim::{Machine, MachineError};

use crate::Failure;

/// A built-in machine by its name, or the one that a file describes.
///
/// # Errors
///
/// [`Failure::Input`] where there is neither, or the file is no description.
pub(in crate::commands) fn machine(argument: &str) -> Result<Machine, Failure> {
    description(argument).map(|(machine, _)| machine)
}

/// The same with the text that describes it.
///
/// # Errors
///
/// As [`machine`].
pub(super) fn description(argument: &str) -> Result<(Machine, String), Failure> {
    let path = Path::new(argument);
    let is_file = path.extension().is_some() || argument.contains(std::path::MAIN_SEPARATOR);
    let failed = |error: &dyn std::error::Error| Failure::input(format!("{argument}: {error}"));
    let text = if is_file {
        std::fs::read_to_string(path).map_err(|error| failed(&error))?
    } else {
        let unknown = || Failure::input(MachineError::Unknown(argument.to_owned()));
        Machine::built_in_text(argument).ok_or_else(unknown)?.to_owned()
    };
    Ok((text.parse().map_err(|error: MachineError| failed(&error))?, text))
}
