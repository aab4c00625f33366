//! What owns page frames: address spaces, page cache, lists of used pages, reclaim and migration.
//!
//! All state lies in frames of a yard, in words that are atomics, linked by frame number; [`Vm`] is a view of it. So
//! whoever shares a yard can find the owner of any page, move it, or drop it.
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
mod lru;
mod objects;
mod owners;
mod page;
mod reclaim;
mod root;
mod space;
mod store;
mod table;
#[cfg(test)]
mod test_yard;
mod vm;
mod words;
mod zap;

pub use access::{EntryFlags, PinnedPage, Translation};
pub use address::{PageLevel, VirtAddr, VirtRange};
pub use area::{HugeAdvice, MapKind};
pub use cache::{DropProblem, File, FileError, FileId};
pub use counters::VmCounter;
pub use error::{VmError, VmValidateError};
pub use inject::{FaultInjector, Step};
pub use lru::{LruList, LruStatistics};
pub use reclaim::ReclaimStep;
pub use root::{LruPolicy, ThpMode, VmConfig};
pub use space::{
    AddressSpace, ExitOutcome, FaultError, MapError, MapRequest, MemoryAccess, SpaceId, SpaceStatistics, Unmapped,
};
pub use store::{BackingStore, PatternStore, StoreError};
pub use vm::Vm;
