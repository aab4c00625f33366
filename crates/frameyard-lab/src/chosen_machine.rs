//! From the machine options of a command line to the machine they mean.

use std::path::Path;

use crate::Failure;
use crate::cli::MachineArgs;
use crate::machine::{self, HostMachine, Machine, MemorySource};

/// The machine that a command is about, and what the user should know of how it came about.
#[derive(Clone, PartialEq, Debug)]
pub struct ChosenMachine {
    /// The machine; it has passed [`Machine::validate`].
    pub machine: Machine,
    /// Where it is not quite what was asked for, a sentence each.
    pub notes: Vec<String>,
}

impl ChosenMachine {
    /// The machine of `--machine` or `--host` (the default), with the geometry options applied, scaled to
    /// `--memory`.
    ///
    /// # Errors
    ///
    /// [`Failure::Input`] for an unknown name, a bad file, a geometry that is none, or a size out of reach.
    pub fn of(args: &MachineArgs) -> Result<Self, Failure> {
        let mut chosen = match &args.machine {
            Some(name) => Self { machine: machine::resolve(name).map_err(Failure::input)?, notes: Vec::new() },
            None => Self::host()?,
        };
        chosen.machine.geometry = args.geometry.apply(chosen.machine.geometry).map_err(Failure::input)?;
        if let Some(memory) = args.memory {
            chosen.machine = chosen.machine.scaled(memory).map_err(Failure::input)?;
        }
        chosen.machine.validate().map_err(Failure::input)?;
        Ok(chosen)
    }

    /// The machine that the program runs on.
    fn host() -> Result<Self, Failure> {
        let HostMachine { machine, memory_source, mut notes } =
            machine::host(Path::new("/")).map_err(Failure::input)?;
        if memory_source != MemorySource::ResourceMap {
            notes.insert(0, memory_source.to_string());
        }
        Ok(Self { machine, notes })
    }

    /// Prints the notes to standard error, a line each.
    pub fn print_notes(&self) {
        print_notes(&self.notes);
    }
}

/// Prints notes to standard error, a line each.
pub(crate) fn print_notes(notes: &[String]) {
    for note in notes {
        anstream::eprintln!("{NOTE}note:{NOTE:#} {note}");
    }
}

const NOTE: anstyle::Style = anstyle::AnsiColor::Cyan.on_default().bold();
