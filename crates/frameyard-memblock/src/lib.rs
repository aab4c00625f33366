// Links of the README, which come first so that they replace its own links to docs.rs.
//! [`Memblock`]: Memblock
//! [`EarlyRequest`]: EarlyRequest
//! [`NodeChoice`]: NodeChoice
//! [`Region`]: Region
//! [`RegionFlags`]: RegionFlags
//! [`EarlyMemory`]: EarlyMemory
//! [`NothingMapped`]: NothingMapped
//! [`FreeRanges`]: FreeRanges
//! [`PfnRanges`]: PfnRanges
//! [`MemblockError`]: MemblockError
//!
#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), no_std)]

mod allocate;
mod cursor;
mod dump;
mod early_memory;
mod edit;
mod error;
mod growth;
mod lent;
mod limit;
mod map;
mod query;
mod ranges;
mod region;
mod region_array;

#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod test_memory;
#[cfg(test)]
mod tests;

pub use allocate::{EarlyBlock, EarlyRequest, NodeChoice};
pub use cursor::{RangeCursor, RangeWalk};
pub use early_memory::{EarlyMemory, NothingMapped};
pub use error::MemblockError;
pub use lent::{LentList, LentState};
pub use map::{AllocDirection, Memblock, MovableNodes};
pub use ranges::{FreeRanges, PfnRanges};
pub use region::{NodeFilter, Region, RegionFlags, RegionList, RegionNode};
