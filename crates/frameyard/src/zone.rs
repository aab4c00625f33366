//! Zones: free memory of one kind on one node, behind one lock, with per-CPU lists in front of it.
//!
//! This module has the state of a zone and its locking. The [store](crate::store) decides how free frames are kept, and
//! the [placement](crate::placement) decides which of them serve a request. [`mechanisms`] lets a zone contain the
//! state of both without depending on them. Through [`ListEvents`](view::ListEvents) the free lists tell a placement
//! what happens to them, and through [`ListRules`](view::ListRules) they ask it for decisions.
//!
//! | submodule | holds |
//! |---|---|
//! | [`policy`], [`checks`], [`watermark`], [`pcp_sizing`], [`request`], [`effort`] | values: policies, watermarks, list sizes, requests |
//! | [`exclusive`], [`fixed_vec`] | counters under a lock, a vector in place |
//! | [`section`], [`pageblock`], [`allocation_map`], [`deferred`], [`compact_state`], [`counters`], [`huge_pool`], [`region_state`] | state of pageblocks, frames and the zone |
//! | [`block_list`], [`state`], [`view`], [`untagged`] | lists of blocks, the zone, its lock, and the state of its frames |
//! | [`poison`] | checks of the bytes of free frames |
//!
//! # Lock order
//!
//! The lock of a CPU's lists comes first, then the zone lock. No two locks of one kind are held together. The lock of a
//! pool of huge pages is the last: no other lock is taken while it is held.

pub(crate) mod allocation_map;
pub(crate) mod block_list;
pub(crate) mod checks;
pub(crate) mod compact_state;
pub(crate) mod counters;
pub(crate) mod deferred;
pub(crate) mod effort;
pub(crate) mod exclusive;
pub(crate) mod fixed_vec;
pub(crate) mod huge_pool;
pub(crate) mod mechanisms;
pub(crate) mod pageblock;
pub(crate) mod pcp_sizing;
pub(crate) mod poison;
pub(crate) mod policy;
pub(crate) mod region_state;
pub(crate) mod request;
pub(crate) mod section;
pub(crate) mod state;
pub(crate) mod untagged;
pub(crate) mod view;
pub(crate) mod watermark;

pub(crate) use allocation_map::{AllocationBytes, AllocationMap, GROUP, MapEntry};
pub use checks::PageChecks;
pub use compact_state::CompactEvent;
pub(crate) use compact_state::{COSTLY_ORDER, EMPTINESS_LEVELS, MAX_DEFER_SHIFT};
pub(crate) use counters::TransferCounters;
pub use counters::ZoneLockTelemetry;
pub(crate) use effort::{Effort, Patience};
pub(crate) use huge_pool::{HugePool, POOLED_ORDERS};
pub(crate) use pageblock::PageblockMap;
pub use pcp_sizing::{HighFraction, PcpSizes, PcpSizing, PcpSizingError, PcpZone};
pub use policy::ZonePolicy;
pub(crate) use region_state::Region;
pub use region_state::{CleanRegions, RegionCounts, RegionStatistics};
pub(crate) use request::{BlockRequest, CmaUse, Fallback};
pub(crate) use section::{SectionEntry, SectionTable};
pub(crate) use state::{CmaEvents, HeldFree, Reserves, Zone};
pub(crate) use untagged::covering_block;
pub(crate) use view::{LockedZone, ZoneTables, ZoneView};
pub use watermark::{
    HugePageMinimum, MovableMinimum, WatermarkLevel, WatermarkOptions, WatermarkOptionsError, Watermarks, ZoneSizing,
    default_min_free_kbytes, free_buffer_pages, recommended_min_free_kbytes, set_lowmem_reserves, set_watermarks,
    size_zones, stat_threshold,
};
pub(crate) use watermark::{SharedMinimum, lowmem_reserve};
