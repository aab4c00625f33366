//! The machine that the options of a command line choose.

use std::path::Path;

use frameyard::{ByteSize, Order};

use crate::Failure;
use crate::args::MachineArgs;
use crate::machine::{self, HostMachine, Machine, MemorySource};

/// The machine of a command, and notes for the user on how it was made.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct ChosenMachine {
    /// The machine; it has passed [`Machine::validate`].
    pub(crate) machine: Machine,
    /// Where the machine differs from the options, a sentence each.
    pub(crate) notes: Vec<String>,
}

impl ChosenMachine {
    /// The machine of `--machine` or `--host` (the default), with the geometry options applied, scaled to
    /// `--memory`.
    ///
    /// # Errors
    ///
    /// [`Failure::Input`] for an unknown name, a bad file, a bad geometry, or a size out of reach.
    pub(crate) fn of(args: &MachineArgs) -> Result<Self, Failure> {
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

    /// The same; the machine that the program runs on has `memory` unless the command line says otherwise.
    ///
    /// # Errors
    ///
    /// As [`of`](Self::of).
    pub(crate) fn with_memory(args: &MachineArgs, memory: ByteSize) -> Result<Self, Failure> {
        let memory = args.memory.or_else(|| args.machine.is_none().then_some(memory));
        Self::of(&MachineArgs { memory, ..args.clone() })
    }

    /// Refuses pages of another size than that of x86-64 page tables.
    ///
    /// # Errors
    ///
    /// [`Failure::Input`].
    pub(crate) fn check_page_size(&self, command: &str) -> Result<(), Failure> {
        if self.machine.geometry.page_size() == ByteSize::kib(4) {
            return Ok(());
        }
        Err(Failure::input(format!(
            "{command}: page tables are those of x86-64, whose pages have 4K: leave --page-size out"
        )))
    }

    /// Refuses a machine without blocks of an order.
    ///
    /// # Errors
    ///
    /// [`Failure::Input`].
    pub(crate) fn check_order(&self, command: &str, order: Order) -> Result<(), Failure> {
        let max = self.machine.geometry.max_order();
        if order <= max {
            return Ok(());
        }
        Err(Failure::input(format!(
            "{command}: needs blocks of order {}, and those of the machine go up to order {}",
            order.0, max.0
        )))
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
    pub(crate) fn print_notes(&self) {
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
