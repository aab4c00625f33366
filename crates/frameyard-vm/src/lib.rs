// Links of the README, which come first so that they replace its own links to docs.rs.
//! [`Vm`]: Vm
//! [`VmConfig`]: VmConfig
//! [`AddressSpace`]: AddressSpace
//! [`MapRequest`]: MapRequest
//! [`File`]: File
//! [`BackingStore`]: BackingStore
//! [`PinnedPage`]: PinnedPage
//! [`MemoryRegion`]: MemoryRegion
//! [`VmError`]: VmError
//! [`MapError`]: MapError
//! [`FaultError`]: FaultError
//!
#![doc = include_str!("../README.md")]
#![cfg_attr(not(any(test, loom)), no_std)]

mod access;
mod address;
mod anonymous;
mod area;
mod block;
mod cache;
mod counters;
mod error;
mod fault;
mod file_id;
mod frame_vec;
mod frames;
mod huge;
mod inject;
mod lock;
#[cfg(all(test, loom))]
mod loom_models;
mod lru;
mod map;
mod object_id;
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
pub use area::{HugeAdvice, MapKind, Protection, Sharing};
pub use cache::{DropProblem, File, FileError};
pub use counters::VmCounter;
pub use error::{Damage, VmError, VmValidateError};
pub use file_id::FileId;
pub use inject::{FaultInjector, Step};
pub use lru::{LruList, LruStatistics};
pub use map::MapRequest;
pub use page::{PAGE_FIELDS, PageField, PageUser};
pub use pin::{
    Dirty, PageRun, PinCall, PinError, PinFlags, PinPath, PinRequest, PinnedPage, RefHandling, ReleaseError,
    ReleaseProblem, TakenRuns,
};
pub use reclaim::ReclaimStep;
pub use region::{MemoryRegion, Runs};
pub use root::{LruPolicy, ThpMode, VmConfig};
pub use space::{
    AddressSpace, ExitOutcome, ExitProblem, ExitStalled, FaultError, MapError, MemoryAccess, SpaceId, SpaceStatistics,
    Unmapped,
};
pub use store::{BackingStore, PatternStore, StoreError};
pub use vm::Vm;
