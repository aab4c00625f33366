//! Zones: free memory of one kind on one node, behind one lock, with per-CPU lists in front of it.
//!
//! # Layers
//!
//! Each submodule uses only those before it. [`free_area::BlockHooks`] and [`mechanisms`] let the lower layers call and store what
//! `transfer` defines, without a dependency on it.
//!
//! | submodule | holds |
//! |---|---|
//! | [`policy`], [`checks`], [`watermark`], [`pcp_sizing`], [`request`], [`effort`] | values: policies, watermarks, list sizes, requests |
//! | [`exclusive`], [`fixed_vec`], [`batch`] | counters under a lock, batches of blocks, packed batches |
//! | [`section`], [`pageblock`], [`allocation_map`], [`deferred`], [`compact_state`], [`counters`], [`huge_pool`], [`region_state`] | state of pageblocks, frames and the zone |
//! | [`block_list`], [`state`], [`view`], [`untagged`] | lists of blocks, the zone, its lock, and the state of its frames |
//! | [`free_area`], [`buddy`] | free lists; splitting and merging |
//! | [`range`], [`fallback`], [`isolate`], [`highatomic`], [`boost`], [`growth`], [`compacting`], [`defrag`], [`regions`], [`reporting`], [`chains`] | operations on free blocks |
//! | [`poison`], [`page_check`] | checks of the bytes of free frames, and of their page structures |
//! | [`transfer`] | the mechanisms between per-CPU lists and free lists |
//! | [`pcp`] | per-CPU lists |
//!
//! # Lock order
//!
//! The lock of a CPU's lists, then the zone lock. No two locks of a kind are held together.
//! The lock of a pool of huge pages is the last: no other lock is taken while it is held.

pub(crate) mod allocation_map;
pub(crate) mod batch;
mod block_list;
mod boost;
mod buddy;
mod chains;
mod checks;
mod compact_state;
mod compacting;
mod counters;
mod deferred;
pub(crate) mod defrag;
mod effort;
mod exclusive;
mod fallback;
pub(crate) mod fixed_vec;
mod free_area;
mod growth;
mod healing;
mod healing_state;
mod highatomic;
mod huge_pool;
mod isolate;
mod mechanisms;
pub(crate) mod page_check;
mod pageblock;
pub(crate) mod pcp;
mod pcp_sizing;
pub(crate) mod poison;
mod policy;
mod range;
mod region_state;
mod regions;
mod reporting;
mod request;
mod section;
mod state;
pub(crate) mod transfer;
mod untagged;
mod view;
mod watermark;

pub(crate) use allocation_map::{AllocationBytes, AllocationMap, MapEntry};
pub use checks::{DoubleFreeCheck, PageChecks};
pub use compact_state::CompactEvent;
pub(crate) use compact_state::{COSTLY_ORDER, EMPTINESS_LEVELS, MAX_DEFER_SHIFT};
pub(crate) use compacting::FreeShape;
pub(crate) use counters::TransferCounters;
pub use counters::ZoneLockTelemetry;
pub use defrag::{DefragMode, Stock};
pub(crate) use effort::{Effort, Patience};
pub(crate) use huge_pool::{HugePool, POOLED_ORDERS};
pub(crate) use pageblock::PageblockMap;
pub use pcp_sizing::{HighFraction, PcpSizes, PcpSizing, PcpSizingError, PcpZone};
pub use policy::ZonePolicy;
pub(crate) use range::{RangeBlocked, RangeLists, pieces};
pub(crate) use region_state::Region;
pub use region_state::{CleanRegions, RegionCounts, RegionStatistics};
pub(crate) use reporting::Taken;
pub(crate) use request::{BlockRequest, CmaUse, Fallback};
pub(crate) use section::{SectionEntry, SectionTable};
pub(crate) use state::{CmaEvents, HeldFree, Reserves, Zone};
pub use transfer::{CounterInfo, CounterKind, CounterScope, MechanismCounts};
pub(crate) use untagged::covering_block;
pub(crate) use view::{LockedZone, ZoneTables, ZoneView};
pub use watermark::{
    HugePageMinimum, MovableMinimum, WatermarkLevel, WatermarkOptions, WatermarkOptionsError, Watermarks, ZoneSizing,
    default_min_free_kbytes, free_buffer_pages, recommended_min_free_kbytes, set_lowmem_reserves, set_watermarks,
    size_zones, stat_threshold,
};
pub(crate) use watermark::{SharedMinimum, lowmem_reserve};
