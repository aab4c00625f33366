//! The machine that the options of a command line choose.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

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
            None => Self::host(Path::new("/"), args.memory)?,
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

    /// The machine that the program runs on, whose kernel's files are under `root`. A size in place of its memory leaves nothing of the
    /// memory map to be noted.
    fn host(root: &Path, memory: Option<ByteSize>) -> Result<Self, Failure> {
        let HostMachine { machine, memory_source, mut notes } = machine::host(root).map_err(Failure::input)?;
        if memory_source != MemorySource::ResourceMap && memory.is_none() {
            notes.insert(0, memory_source.to_string());
        }
        Ok(Self { machine, notes })
    }

    /// Prints the notes to standard error, a line each. Called when nothing can be refused any more: a refusal is alone.
    pub(crate) fn print_notes(&self) {
        print_notes(&self.notes);
    }
}

/// Prints notes to standard error, a line each, once in the life of the program.
pub(crate) fn print_notes(notes: &[String]) {
    static PRINTED: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let mut printed = PRINTED.lock().unwrap_or_else(PoisonError::into_inner);
    for note in new_notes(notes, &mut printed) {
        anstream::eprintln!("{NOTE}note:{NOTE:#} {note}");
    }
}

/// The notes that are not among the `printed` ones, and now are.
fn new_notes<'n>(notes: &'n [String], printed: &mut Vec<String>) -> Vec<&'n str> {
    let is_new = |note: &&String| {
        let is_new = !printed.contains(note);
        if is_new {
            printed.push((*note).clone());
        }
        is_new
    };
    notes.iter().filter(is_new).map(String::as_str).collect()
}

const NOTE: anstyle::Style = anstyle::AnsiColor::Cyan.on_default().bold();

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn unknown_addresses_are_noted_where_the_memory_map_is_that_of_the_host() {
        let root = std::env::temp_dir().join(format!("frameyard-host-without-map-{}", std::process::id()));
        fs::create_dir_all(root.join("proc")).unwrap();
        fs::write(root.join("proc/meminfo"), "MemTotal:       16384000 kB\n").unwrap();
        fs::write(root.join("proc/iomem"), "00000000-00000000 : System RAM\n").unwrap();
        let notes = |memory| ChosenMachine::host(&root, memory).unwrap().notes;
        let about_memory = |notes: &[String]| notes.iter().filter(|note| note.contains("/proc/iomem")).count();
        assert_eq!(about_memory(&notes(None)), 1);
        assert_eq!(about_memory(&notes(Some(ByteSize::gib(1)))), 0);
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_note_is_printed_once() {
        let notes = ["one", "two", "one"].map(str::to_owned);
        let mut printed = Vec::new();
        assert_eq!(new_notes(&notes[..1], &mut printed), ["one"]);
        assert_eq!(new_notes(&notes, &mut printed), ["two"]);
        assert!(new_notes(&notes, &mut printed).is_empty());
    }
}
