//! The processes that have a memory file attached, and whether they are alive.
//!
//! # Life of a process
//!
//! An attached process holds an open-file-description lock on one byte of the memory file, far behind its end. The
//! kernel releases the lock when the process ends in any way, and neither before nor later. So a process has ended if
//! its byte is not locked. Every other answer, an error too, means that it may be alive. The question needs no
//! descriptor, no /proc and no process number, and has the same answer in every container.
//!
//! | alternative | why not |
//! |---|---|
//! | `/proc/PID/stat` | needs a descriptor; other users and PID namespaces may be hidden; a number is reused |
//! | a pidfd | cannot be stored in shared memory |
//! | `fcntl` locks of the process (`F_SETLK`) | end when the process closes any descriptor of the file |
//! | a robust futex | its word lies in shared memory, where a faulty process may overwrite it |
//!
//! A forked child closes the locked file ([`OwnFile`]), so it keeps no lock of its parent's. It has no place of its own
//! and reports no process as ended.
//!
//! # Identities
//!
//! A process is a slot of the table and a generation, which counts the processes that had the slot. The byte follows
//! from both, so the table is only needed to choose a generation: the kernel alone says which processes live. The process number
//! is stored for messages.
//!
//! A process that attaches looks for a slot whose last process has ended, and locks the byte of the next generation.
//! Of two processes that try the same byte, one gets it. The exchange of the table's word fails if a third process has
//! used and left that generation meanwhile.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::sys::own_file::OwnFile;

/// The number of slots, and so of processes that a file can have at once.
pub(super) const SLOTS: usize = 1 << SLOT_BITS;
const SLOT_BITS: u32 = 10;
/// The locked bytes start here.
const FIRST_BYTE: i64 = 1 << 62;

/// A process that has a memory file attached: the process number in the high half, generation and slot in the low half.
/// Never 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Process(pub(crate) u64);

impl Process {
    /// The process number, as the process itself sees it.
    pub(crate) fn id(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// The byte that is locked while the process lives.
    fn byte(self) -> i64 {
        FIRST_BYTE + i64::from(self.0 as u32)
    }

    /// The last process in a slot, whose word is `last`, and this process as the next one.
    fn in_slot(last: u64, slot: usize) -> (Self, Self) {
        let [before, next] = [last as u32 >> SLOT_BITS, (last as u32 >> SLOT_BITS) + 1];
        let of =
            |generation: u32| u64::from(std::process::id()) << 32 | u64::from(generation << SLOT_BITS) | slot as u64;
        // The lowest generation is 1, so that no process is 0.
        (Self(of(before)), Self(of(if next >> (32 - SLOT_BITS) == 0 { next } else { 1 })))
    }
}

/// This process's place among those that have a memory file attached. Dropping it leaves the place.
#[derive(Debug)]
pub(crate) struct Attachment {
    file: OwnFile,
    this: Process,
}

impl Attachment {
    /// Takes a place. `table` has a word for each slot. `None` if all slots have living processes.
    pub(super) fn new(file: impl AsFd, table: &[AtomicU64]) -> io::Result<Option<Self>> {
        let file = OwnFile::open(file)?;
        for (slot, word) in table.iter().enumerate().take(SLOTS) {
            let last = word.load(Ordering::Relaxed);
            let (before, this) = Process::in_slot(last, slot);
            if (last != 0 && file.is_byte_locked(before.byte())?) || !file.lock_byte(this.byte())? {
                continue;
            }
            if word.compare_exchange(last, this.0, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return Ok(Some(Self { file, this }));
            }
            file.unlock_byte(this.byte())?;
        }
        Ok(None)
    }

    /// The process that took the place.
    pub(crate) fn process(&self) -> Process {
        self.this
    }

    /// Whether the caller runs in the process that took the place, not in a forked child.
    pub(crate) fn is_own(&self) -> bool {
        self.file.is_own()
    }

    /// Whether a process has certainly ended, or has left its place.
    pub(crate) fn has_ended(&self, process: Process) -> bool {
        // A file does not see its own locks.
        process.0 as u32 != self.this.0 as u32 && matches!(self.file.is_byte_locked(process.byte()), Ok(false))
    }
}

#[cfg(test)]
mod tests;
