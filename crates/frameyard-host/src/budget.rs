//! Budgets: a memory limit that several processes share, and what each of them uses of it.
//!
//! # Structure
//!
//! A budget is a small file in `/dev/shm`. It holds the limit and a table with one slot for each process: its identity,
//! what it uses, and the most it has used. No total is stored: a request adds up the slots that have ever been taken. A
//! process that is killed, at whatever point, therefore leaves no count behind except the one in its own slot.
//!
//! # Life of a process
//!
//! A process is identified by its number and its start time. A slot is free if its word is 0. It may be cleared if its
//! process has ended: `/proc/PID/stat` is missing, has another start time, or shows a zombie. The process that clears a
//! slot first writes its own identity there. For this to work, all processes of a budget must see each other in
//! `/proc`, so they must be in one PID namespace. A lock on the file, as a [shared yard](crate::HostYard#shared-yards) uses, would
//! not do: it ends when a program closes all descriptors, which servers do when they start.
//!
//! # Requests
//!
//! `charge` first adds to the slot and then compares the sum. Two concurrent requests that would each fit, but not
//! both, may both be refused. They are never both granted: in the order of the sequentially consistent operations, the
//! later addition precedes a sum that contains both.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::{fmt, io};

use frameyard::ByteSize;
use rustix::fs::{FlockOperation, OFlags, flock};

use crate::memory::HugePages;
use crate::region::Region;

mod process;

use process::Identity;

const DIRECTORY: &str = "/dev/shm";
const PREFIX: &str = "frameyard-budget-";
const MOST_NAME: usize = 64;
const MAGIC: u64 = u64::from_le_bytes(*b"fybudg01");

/// The words of the file: magic number, limit in bytes, the number of slots that have ever been taken, and the slots, a cache line each.
const WORD_MAGIC: usize = 0;
const WORD_LIMIT: usize = 1;
const WORD_TAKEN: usize = 2;
const SLOT_WORDS: usize = 8;
const SLOTS: usize = 1023;
const FILE_BYTES: u64 = ((SLOTS + 1) * SLOT_WORDS * 8) as u64;

/// The words of a slot: the process, bytes in use, and the largest value of that.
const OWNER: usize = 0;
const USED: usize = 1;
const PEAK: usize = 2;

/// No slot.
const NONE: usize = usize::MAX;

/// A limit that several processes share.
#[derive(Debug)]
pub struct Budget {
    path: PathBuf,
    file: File,
    table: Region,
}

/// A process of a budget.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct BudgetProcess {
    /// Its number.
    pub process: u32,
    /// What it uses.
    pub used: ByteSize,
    /// The most it has used so far.
    pub peak: ByteSize,
}

/// Why a budget cannot be created, opened or joined.
#[derive(Debug)]
#[non_exhaustive]
pub enum BudgetError {
    /// The name cannot be that of a file, or is too long.
    Name(String),
    /// The file cannot be used.
    File {
        /// Its path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is not a budget.
    NoBudget(PathBuf),
    /// The budget exists, and has another limit.
    OtherLimit {
        /// The limit of the budget.
        limit: ByteSize,
        /// The requested limit.
        wanted: ByteSize,
    },
    /// All slots of the budget are taken.
    Full,
}

impl fmt::Display for BudgetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => {
                write!(f, "{name:?} is no name of a budget: it has 1 to {MOST_NAME} letters, digits, - and _")
            }
            Self::File { path, source } => write!(f, "no budget in {}: {source}", path.display()),
            Self::NoBudget(path) => write!(f, "{} is no budget", path.display()),
            Self::OtherLimit { limit, wanted } => write!(f, "the budget has a limit of {limit}, not {wanted}"),
            Self::Full => write!(f, "the budget already has {SLOTS} processes"),
        }
    }
}

impl std::error::Error for BudgetError {}

impl Budget {
    /// Opens or creates a budget, and takes a slot for the calling process. If no living process uses the budget,
    /// `limit` becomes its limit; otherwise the limits must be equal.
    ///
    /// # Errors
    ///
    /// [`BudgetError`].
    pub fn create(name: &str, limit: ByteSize) -> Result<BudgetShare, BudgetError> {
        Self::create_and(name, limit, Self::join)
    }

    /// Opens a budget or makes it, and calls `then` before another process can remove it.
    fn create_and<T>(
        name: &str,
        limit: ByteSize,
        then: impl Fn(Self) -> Result<T, BudgetError>,
    ) -> Result<T, BudgetError> {
        let path = path_of(name)?;
        loop {
            let file = open(&path, OpenOptions::new().create(true).truncate(false).mode(0o600))?;
            let locked = Locked::new(&file).map_err(|source| BudgetError::File { path: path.clone(), source })?;
            if locked.is_removed {
                continue;
            }
            if locked.length == 0 {
                file.set_len(FILE_BYTES).map_err(|source| BudgetError::File { path: path.clone(), source })?;
            }
            let budget = Self::map(path.clone(), &file)?;
            let words = budget.table.atomics();
            let magic = words[WORD_MAGIC].load(Ordering::Relaxed);
            if magic != 0 && magic != MAGIC {
                return Err(BudgetError::NoBudget(budget.path));
            }
            if magic == MAGIC && budget.limit() != limit && !budget.processes().is_empty() {
                return Err(BudgetError::OtherLimit { limit: budget.limit(), wanted: limit });
            }
            // A new file, one whose maker was killed before it was ready, or a budget whose processes were all killed.
            words[WORD_LIMIT].store(limit.0, Ordering::Relaxed);
            // Release: pairs with the Acquire in `open`.
            words[WORD_MAGIC].store(MAGIC, Ordering::Release);
            return then(budget);
        }
    }

    /// Opens a budget that another process has created.
    ///
    /// # Errors
    ///
    /// [`BudgetError`].
    pub fn open(name: &str) -> Result<Self, BudgetError> {
        let path = path_of(name)?;
        let file = open(&path, &mut OpenOptions::new())?;
        let budget = Self::map(path, &file)?;
        // Acquire: pairs with the Release in `create`.
        let is_ready = budget.table.atomics()[WORD_MAGIC].load(Ordering::Acquire) == MAGIC;
        if is_ready { Ok(budget) } else { Err(BudgetError::NoBudget(budget.path)) }
    }

    fn map(path: PathBuf, file: &File) -> Result<Self, BudgetError> {
        let refused = |source| BudgetError::File { path: path.clone(), source };
        let own = file.try_clone().map_err(refused)?;
        if own.metadata().map_err(refused)?.len() != FILE_BYTES {
            return Err(BudgetError::NoBudget(path));
        }
        let table = Region::in_file(&own, 0, ByteSize(FILE_BYTES), HugePages::Default);
        let table = table.map_err(|error| refused(io::Error::other(error)))?;
        Ok(Self { path, file: own, table })
    }

    /// What all processes together may use.
    #[must_use]
    pub fn limit(&self) -> ByteSize {
        ByteSize(self.table.atomics()[WORD_LIMIT].load(Ordering::Relaxed))
    }

    /// What all processes together use. A process that has ended counts until somebody notices its end.
    #[must_use]
    pub fn used(&self) -> ByteSize {
        ByteSize(self.taken().map(|slot| self.used_by(slot)).fold(0, u64::saturating_add))
    }

    /// The living processes of the budget.
    #[must_use]
    pub fn processes(&self) -> Vec<BudgetProcess> {
        self.clear_ended();
        let of = |slot| {
            let owner = self.owner(slot);
            let (used, peak) = (ByteSize(self.used_by(slot)), ByteSize(self.word(slot, PEAK).load(Ordering::Relaxed)));
            owner.is_some().then_some(BudgetProcess { process: owner.process(), used, peak })
        };
        self.taken().filter_map(of).collect()
    }

    /// Takes a slot for the calling process. If the process had a slot before it executed another program, that slot is
    /// cleared, so that no process is counted twice.
    ///
    /// # Errors
    ///
    /// [`BudgetError::Full`]; [`BudgetError::File`] if the system does not report when the process started.
    pub fn join(self) -> Result<BudgetShare, BudgetError> {
        let missing = || io::Error::other("no start time in /proc/self/stat");
        let own = Identity::own().ok_or_else(|| BudgetError::File { path: self.path.clone(), source: missing() })?;
        let slot = self.take_slot(own).ok_or(BudgetError::Full)?;
        Ok(BudgetShare { slot: AtomicUsize::new(slot), budget: self })
    }

    /// Removes the file if no process has a slot. Processes that open the budget later make a new one.
    fn remove_if_unused(&self) {
        let Ok(locked) = Locked::new(&self.file) else { return };
        if !locked.is_removed && self.processes().is_empty() {
            // A file that cannot be removed is used again.
            let _ = std::fs::remove_file(&self.path);
        }
    }

    /// A word of a slot.
    fn word(&self, slot: usize, word: usize) -> &AtomicU64 {
        &self.table.atomics()[(slot + 1) * SLOT_WORDS + word]
    }

    fn used_by(&self, slot: usize) -> u64 {
        // SeqCst: pairs with the addition in `charge`. Of two charges at the same time, one sees both.
        self.word(slot, USED).load(Ordering::SeqCst)
    }

    fn owner(&self, slot: usize) -> Identity {
        Identity(self.word(slot, OWNER).load(Ordering::Relaxed))
    }

    /// The slots that have ever been taken.
    fn taken(&self) -> std::ops::Range<usize> {
        // SeqCst: pairs with `take_slot`, as the words in use do.
        0..(self.table.atomics()[WORD_TAKEN].load(Ordering::SeqCst) as usize).min(SLOTS)
    }

    /// Clears the slots of processes that have ended; whether there were any. Allocates nothing.
    fn clear_ended(&self) -> bool {
        let Some(own) = Identity::own() else { return false };
        self.taken().filter(|slot| self.clear_if_ended(*slot, own)).count() > 0
    }

    fn clear_if_ended(&self, slot: usize, own: Identity) -> bool {
        let owner = self.owner(slot);
        if !owner.is_some() || owner == own || !owner.has_ended() {
            return false;
        }
        let (word, order) = (self.word(slot, OWNER), Ordering::Relaxed);
        if word.compare_exchange(owner.0, own.0, order, order).is_err() {
            return false;
        }
        self.clear(slot);
        true
    }

    /// Clears a slot of the calling process.
    fn clear(&self, slot: usize) {
        self.word(slot, USED).store(0, Ordering::Relaxed);
        self.word(slot, PEAK).store(0, Ordering::Relaxed);
        // Release: pairs with the Acquire in `take_slot`.
        self.word(slot, OWNER).store(0, Ordering::Release);
    }

    fn take_slot(&self, own: Identity) -> Option<usize> {
        self.clear_ended();
        // Before the process executed this program, it had another one.
        self.taken().filter(|slot| self.owner(*slot) == own).for_each(|slot| self.clear(slot));
        // Acquire: pairs with the Release in `clear`.
        let take = |slot: &usize| {
            self.word(*slot, OWNER).compare_exchange(0, own.0, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        let slot = (0..SLOTS).find(take)?;
        // SeqCst: pairs with the load in `taken`. A charge that misses the slot precedes all of its charges.
        self.table.atomics()[WORD_TAKEN].fetch_max(slot as u64 + 1, Ordering::SeqCst);
        Some(slot)
    }
}

/// The slot of a process in a budget. Dropping it clears the slot, and removes the budget if no process is left. If a
/// process ends without dropping it, another process clears the slot.
#[derive(Debug)]
pub struct BudgetShare {
    budget: Budget,
    slot: AtomicUsize,
}

impl BudgetShare {
    /// The budget.
    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Charges `size` to the process, and returns whether all processes together stay within the limit. If they would
    /// not, nothing is charged.
    ///
    /// Cost: one cache line for each slot that has ever been taken. Before a request is refused, `/proc` is searched
    /// for processes that have ended. Allocates nothing.
    #[must_use]
    pub fn charge(&self, size: ByteSize) -> bool {
        let slot = self.slot.load(Ordering::Relaxed);
        if slot == NONE {
            return false;
        }
        let more = |used: u64| used.checked_add(size.0);
        // SeqCst: pairs with the load in `used_by`.
        let before = self.budget.word(slot, USED).fetch_update(Ordering::SeqCst, Ordering::Relaxed, more);
        let Ok(before) = before else { return false };
        let fits = || self.budget.used() <= self.budget.limit();
        if fits() || (self.budget.clear_ended() && fits()) {
            self.budget.word(slot, PEAK).fetch_max(before + size.0, Ordering::Relaxed);
            return true;
        }
        self.refund(size);
        false
    }

    /// Takes back a charge. A slot does not record which memory was charged, so when a forked child frees its copy of
    /// the parent's memory, it takes back its own charges, down to 0.
    pub fn refund(&self, size: ByteSize) {
        let slot = self.slot.load(Ordering::Relaxed);
        if slot != NONE {
            let less = |used: u64| Some(used.saturating_sub(size.0));
            let _ = self.budget.word(slot, USED).fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }

    /// To be called in a forked child: takes a slot for it, with nothing charged. If there is no free slot, all charges
    /// of the child are refused.
    ///
    /// Allocates nothing.
    pub fn join_forked(&self) {
        let slot = Identity::own().and_then(|own| self.budget.take_slot(own));
        self.slot.store(slot.unwrap_or(NONE), Ordering::Relaxed);
    }
}

impl Drop for BudgetShare {
    fn drop(&mut self) {
        let slot = *self.slot.get_mut();
        // A forked child that has not joined drops its parent's.
        if slot != NONE && Identity::own().is_some_and(|own| self.budget.owner(slot) == own) {
            self.budget.clear(slot);
        }
        self.budget.remove_if_unused();
    }
}

/// The lock on a file that is held while a budget is made or removed.
struct Locked<'f> {
    file: &'f File,
    length: u64,
    is_removed: bool,
}

impl<'f> Locked<'f> {
    fn new(file: &'f File) -> io::Result<Self> {
        flock(file, FlockOperation::LockExclusive)?;
        let metadata = file.metadata()?;
        Ok(Self { file, length: metadata.len(), is_removed: metadata.nlink() == 0 })
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // A lock that is not released ends with the descriptor.
        let _ = flock(self.file, FlockOperation::Unlock);
    }
}

fn path_of(name: &str) -> Result<PathBuf, BudgetError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if name.is_empty() || name.len() > MOST_NAME || !name.bytes().all(is_plain) {
        return Err(BudgetError::Name(name.chars().take(MOST_NAME).collect()));
    }
    Ok(PathBuf::from(DIRECTORY).join(format!("{PREFIX}{name}")))
}

fn open(path: &PathBuf, options: &mut OpenOptions) -> Result<File, BudgetError> {
    let options = options.read(true).write(true).custom_flags(OFlags::NOFOLLOW.bits() as i32);
    options.open(path).map_err(|source| BudgetError::File { path: path.clone(), source })
}

#[cfg(test)]
mod tests;
