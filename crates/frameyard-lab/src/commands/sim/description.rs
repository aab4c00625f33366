//! The simulated machine that a command is about.

use std::fs;

use frameyard_sim::{Machine, MachineError};

use crate::Failure;

/// A simulated machine, and the text that describes it.
pub(super) struct Description {
    /// The machine.
    pub(super) machine: Machine,
    /// Its description, with comments.
    pub(super) text: String,
}

impl Description {
    /// A built-in machine, or one that a file describes.
    ///
    /// # Errors
    ///
    /// [`Failure::Input`] where there is neither, or the file describes none.
    pub(super) fn find(name: &str) -> Result<Self, Failure> {
        if let Some(text) = Machine::built_in_text(name) {
            return Ok(Self { machine: text.parse().map_err(Failure::input)?, text: text.to_owned() });
        }
        let text = fs::read_to_string(name).map_err(|error| {
            Failure::input(format!("{}; and no file: {error}", MachineError::Unknown(name.to_owned())))
        })?;
        let machine = text.parse().map_err(|error| Failure::input(format!("{name}: {error}")))?;
        Ok(Self { machine, text })
    }
}
