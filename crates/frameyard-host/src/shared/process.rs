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
//!
//! # Damage
//!
//! A process that finds a lock whose holder has died notes the lock and the holder in the two words behind the slots. The
//! note stays: the yard is damaged, for all its processes.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use frameyard::platform::{LockError, LockId};

use crate::region::Region;
use crate::sys::own_file::{self, OwnFile};

/// The number of slots, and so of processes that a file can have at once.
pub(super) const SLOTS: usize = 1 << SLOT_BITS;
const SLOT_BITS: u32 = 10;
/// Words behind those of the slots: the lock whose holder has died, and the holder, [`CORRUPT`] or 0. The holder is written last.
const DAMAGED_LOCK: usize = SLOTS;
const DAMAGED_BY: usize = SLOTS + 1;
/// The number of words of the table.
pub(super) const WORDS: usize = SLOTS + 2;
/// The locked bytes start here.
const FIRST_BYTE: i64 = 1 << 62;

/// A process that has a memory file attached: the process number in the high half, generation and slot in the low half.
/// Never 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Process(pub(crate) u64);

/// In place of a holder: what the lock guards is corrupt. No process is this one.
pub(crate) const CORRUPT: Process = Process(u64::MAX);

impl Process {
    /// The process number, as the process itself sees it.
    pub(crate) fn id(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Generation and slot, never 0: what the words of locks name.
    pub(crate) fn identity(self) -> u32 {
        self.0 as u32
    }

    /// The byte that is locked while the process lives.
    fn byte(self) -> i64 {
        FIRST_BYTE + i64::from(self.identity())
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
    table: Region,
    this: Process,
}

impl Attachment {
    /// Takes a place. `None` if all slots have living processes.
    pub(crate) fn new(file: impl AsFd, table: Region) -> io::Result<Option<Self>> {
        let file = OwnFile::open(file)?;
        for (slot, word) in table.atomics().iter().enumerate().take(SLOTS) {
            let last = word.load(Ordering::Relaxed);
            let (before, this) = Process::in_slot(last, slot);
            if (last != 0 && file.is_byte_locked(before.byte())?) || !file.lock_byte(this.byte())? {
                continue;
            }
            if word.compare_exchange(last, this.0, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return Ok(Some(Self { file, table, this }));
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

    /// The process that the word of a lock names. If its slot has another process by now, its number is 0.
    pub(crate) fn named(&self, identity: u32) -> Process {
        let last = self.table.atomics()[identity as usize % SLOTS].load(Ordering::Relaxed);
        Process(if last as u32 == identity { last } else { u64::from(identity) })
    }

    /// Notes that the yard is damaged: `holder` died holding a lock, or what the lock guards is [`CORRUPT`].
    pub(crate) fn note_damage(&self, lock: LockId, holder: Process) {
        let words = self.table.atomics();
        if words[DAMAGED_BY].load(Ordering::Relaxed) == 0 {
            words[DAMAGED_LOCK].store(lock.to_bits(), Ordering::Relaxed);
            // Release: pairs with the Acquire in `damage`.
            words[DAMAGED_BY].store(holder.0, Ordering::Release);
        }
    }

    /// The damage of the yard, if a process has noted some.
    pub(crate) fn damage(&self) -> Option<LockError> {
        let words = self.table.atomics();
        // Acquire: pairs with the Release in `note_damage`.
        let holder = Process(words[DAMAGED_BY].load(Ordering::Acquire));
        let lock = LockId::from_bits(words[DAMAGED_LOCK].load(Ordering::Relaxed));
        match holder {
            Process(0) => None,
            CORRUPT => Some(LockError::Corrupt { lock }),
            holder => Some(LockError::OwnerDied { lock, holder: holder.id() }),
        }
    }

    /// Whether a process has certainly ended, or has left its place.
    pub(crate) fn has_ended(&self, process: Process) -> bool {
        // A file does not see its own locks.
        process.identity() != self.this.identity() && matches!(self.file.is_byte_locked(process.byte()), Ok(false))
    }
}

/// The numbers of the living processes that have taken places in a memory file, ascending. `table` is a mapping of the file's table. Takes
/// no place and no lock.
pub(crate) fn living(file: impl AsFd, table: &Region) -> io::Result<Vec<u32>> {
    let mut living = Vec::new();
    for word in table.atomics().iter().take(SLOTS) {
        let process = Process(word.load(Ordering::Relaxed));
        if process.0 != 0 && own_file::is_byte_locked(&file, process.byte())? {
            living.push(process.id());
        }
    }
    living.sort_unstable();
    Ok(living)
}

#[cfg(test)]
mod tests;
