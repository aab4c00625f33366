//! What owns page frames: address spaces, page cache, lists of used pages, reclaim and migration.
//!
//! All state lies in frames of a yard, in words that are atomics, linked by frame number; [`Vm`] is a view of it. So
//! whoever shares a yard can find the owner of any page, move it, or drop it.
//!
//! # Waiting
//!
//! What is waited for comes from somebody who is at work and holds it: a lock, a page that is being moved, a visit of a
//! space. Spinning locks and the lock of a space's map are held for work that ends by itself. Everything else is waited
//! for a bounded number of rounds of [`Platform::relax`](frameyard::Platform::relax), and then the caller hears of it:
//! [`VmError::Stalled`], [`FaultError::Moving`], [`MapError::Moving`], [`ExitStalled`], [`FileError::NotCut`]. Nothing is
//! lost then, and the same call can be made again.
//!
//! # Processes that are killed
//!
//! A process that shares a yard and is killed outside of calls into this crate (and into the yard) holds nothing but its
//! handles: its spaces and files stay, and others can open them by name. One that is killed inside a call leaves behind
//! what it held, and what happens then is undefined until there is a way to recover for a dead owner. It may hold:
//!
//! - the lock of a map: whoever uses or unmaps addresses of that space waits for ever;
//! - spinning locks, of page tables, of a file, of a kind of small objects, of lists of used pages or a CPU's batch, and
//!   those of the yard: whoever needs them waits for ever;
//! - a page's own lock, or that of a file's size: others hear [`VmError::Stalled`];
//! - an entry that says that its page is being moved: others hear [`FaultError::Moving`], [`MapError::Moving`] and
//!   [`ExitProblem::Moving`];
//! - a visit of a space: its last handle cannot [exit](AddressSpace::exit), and a space that is dropped stays;
//! - pages that are isolated, frozen, or in no place yet, and references: those frames do not come back;
//! - pins and handles that it never gave up.
//!
//! Whoever can, kills tasks between calls, or takes the yard down with all who share it.
#![cfg_attr(not(any(test, loom)), no_std)]

mod access;
mod address;
mod anonymous;
mod area;
mod cache;
mod counters;
mod error;
mod fault;
mod frames;
mod huge;
mod inject;
mod lock;
#[cfg(all(test, loom))]
mod loom_models;
mod lru;
mod objects;
mod owners;
mod page;
mod pin;
mod reclaim;
mod region;
mod root;
mod space;
mod store;
mod table;
#[cfg(test)]
mod test_yard;
mod vm;
mod words;
mod zap;

pub use access::{EntryFlags, Translation};
pub use address::{PageLevel, VirtAddr, VirtRange};
pub use area::{HugeAdvice, MapKind, Protection};
pub use cache::{DropProblem, File, FileError, FileId};
pub use counters::VmCounter;
pub use error::{VmError, VmValidateError};
pub use inject::{FaultInjector, Step};
pub use lru::{LruList, LruStatistics};
pub use pin::{
    Dirty, PageRun, PinCall, PinError, PinFlags, PinPath, PinRequest, PinnedPage, RefHandling, ReleaseError,
    ReleaseProblem, TakenRuns,
};
pub use reclaim::ReclaimStep;
pub use region::{MemoryRegion, Runs};
pub use root::{LruPolicy, ThpMode, VmConfig};
pub use space::{
    AddressSpace, ExitOutcome, ExitProblem, ExitStalled, FaultError, MapError, MapRequest, MemoryAccess, SpaceId,
    SpaceStatistics, Unmapped,
};
pub use store::{BackingStore, PatternStore, StoreError};
pub use vm::Vm;
