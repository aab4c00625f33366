//! A page-frame allocator for big machines: the `no_std`, heap-free core of Frameyard.
//!
//! The memory map has one 64-byte page structure for each page frame; zones keep free frames in the buddy
//! allocator's lists, by order and migration type; per-CPU lists stand in front of the zones' locks. All state
//! is in two memory regions that the caller hands over, so a yard can be shared by processes.
//!
//! Begin with [`Yard`]; bring one up with [`Layout::plan`] and [`Yard::create`].
#![cfg_attr(not(any(test, loom, shuttle)), no_std)]

mod boot;
mod compaction;
mod control;
mod gfp;
mod job;
mod lock;
#[cfg(all(test, loom))]
mod loom_models;
mod memblock;
mod memmap;
mod owner;
mod page;
mod pagemap;
mod platform;
mod report;
#[cfg(all(test, shuttle))]
mod shuttle_tests;
pub mod sync;
mod yard;
mod zone;

pub use boot::{
    AttachError, BootError, Cutting, InitJobs, InitMode, Layout, MapInit, MemorySource, MemoryTable, MovableMemory,
    PcpReset, Poisoning, YardConfig, ZoneLimits,
};
pub use compaction::{CompactCaller, CompactEffort, CompactOutcome, CompactRequest, CompactResult};
#[cfg(loom)]
#[doc(hidden)]
pub use control::ModelledRegion;
pub use frameyard_units as units;
pub use frameyard_units::{
    ByteSize, CpuId, Geometry, GeometryError, MigrateType, NodeId, ORDER_SLOTS, Order, PageCount, ParseSizeError, Pfn,
    PfnRange, PhysAddr, UnknownName, ZoneId, ZoneKind,
};
pub use gfp::Gfp;
pub use job::{JobError, ParallelJob, RunError};
pub use lock::{HistogramCounts, LockCounters, LockHold, LockUse};
pub use memblock::{
    AllocDirection, EarlyBlock, EarlyMemory, EarlyRequest, FreeRanges, Memblock, MemblockError, MovableNodes,
    NodeChoice, NodeFilter, NothingMapped, PfnRanges, Region, RegionFlags, RegionList,
};
pub use memmap::Initialiser;
pub use owner::{Block, FrameOwner, MigrateMode, MigrateProblem, OwnerKind, Owners, ReclaimRequest, Reclaimer};
pub use page::{
    CountedPage, Counts, FrameLink, FrameState, MapContent, PAGE_WORDS, PIN_BIAS, Page, PageWord, ReferenceOverflow,
    ReferenceUnderflow, Tag, references_of_pins,
};
pub use pagemap::{DeviceError, DeviceId, DeviceInfo, DevicePage, DeviceRequest, MapLayout, MapPlacement, Removal};
pub use platform::{
    Access, Contention, Copying, Counted, CountingPlatform, CountingRow, FramesNotReturned, FreeFrames, GetMark,
    InitProgress, LineKind, LockId, LockKind, LocksTaken, MapNotBacked, MapWrite, NodeInit, PageTouches, Platform,
    SharedLine, Span, SpanTouches, SpeculativeGets, StillGetting, WorkerPanicked, Zeroing,
};
pub use report::{
    GlobalStat, KernelFormat, ListMetrics, Metric, MetricHistogram, MetricKind, MetricScope, MetricsRow, MetricsSource,
    NodeStat, NumaEvent, PcpSnapshot, ReportSource, UnknownKernelFormat, VmEvent, ZoneMetrics, ZoneSnapshot, ZoneStat,
    write_buddyinfo, write_metrics, write_pagetypeinfo, write_prometheus, write_vmstat, write_zoneinfo,
};
pub use yard::{
    Adoption, AllocError, BlockedBy, Blocker, CmaReleaseError, CompactStatistics, ContigError, ExtfragEvents,
    FrameInfo, Frames, FreeError, FreeProblem, InitError, ListKind, PcpStatistics, PcpTraffic, PolicyError, RangeError,
    RawRegion, ReportError, ReportOutcome, ValidateError, Yard, ZoneStatistics,
};
pub use zone::{
    ClusterDrains, ClusterStatistics, CpuOwnedStatistics, DepotStatistics, HighFraction, HugePageMinimum,
    MovableMinimum, PcpSizes, PcpSizing, PcpSizingError, PcpZone, TransferStatistics, WatermarkLevel, WatermarkOptions,
    WatermarkOptionsError, Watermarks, ZoneLockTelemetry, ZonePolicy, ZoneSizing, default_min_free_kbytes,
    free_buffer_pages, recommended_min_free_kbytes, set_lowmem_reserves, set_watermarks, size_zones, stat_threshold,
};

/// Runs the examples of the README as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
