//! The machine of a simulation.

use frameyard_sim::Machine;

use crate::Failure;

/// A built-in machine by its name, or the machine that a file describes.
///
/// # Errors
///
/// [`Failure::Input`] where there is no such machine, or it cannot be simulated.
pub(super) fn machine(argument: &str) -> Result<Machine, Failure> {
    machine_and_text(argument).map(|(machine, _)| machine)
}

/// [`machine`], with the text of its description.
///
/// # Errors
///
/// The same.
pub(super) fn machine_and_text(argument: &str) -> Result<(Machine, String), Failure> {
    Machine::resolve(argument).map_err(Failure::input)
}
