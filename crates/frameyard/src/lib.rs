// Links of the README, which come first so that they replace its own links to docs.rs.
//! [`MemoryTable`]: MemoryTable
//! [`Memblock`]: #reexport.memblock
//! [`YardConfig`]: YardConfig
//! [`Layout`]: Layout
//! [`Platform`]: Platform
//! [`Yard`]: Yard
//! [`AllocRequest`]: AllocRequest
//! [`Frames`]: Frames
//! [`Pfn`]: Pfn
//! [`PfnRange`]: PfnRange
//! [`Order`]: Order
//! [`PageCount`]: PageCount
//! [`Gfp`]: Gfp
//! [`AllocError`]: AllocError
//! [`FreeError`]: FreeError
#![cfg_attr(feature = "counting", doc = "[`counting`]: counting")]
//!
#![doc = include_str!("../README.md")]
//!
//! # Waiting
//!
//! The fast paths never wait: they run a restartable sequence or try one lock. Other calls wait for locks, whose
//! holders never sleep. What else a call waits for, and for how long, depends on its flags; see the table in
//! [`alloc`](alloc#waiting).
//!
//! # Chapters
//!
//! | module | for |
//! |---|---|
//! | [`alloc`] | requests for frames, and their errors |
//! | [`views`] | a yard by subject: zones, devices, compaction, statistics, initialisation |
//! | [`boot`] | creating, attaching to and initialising a yard |
//! | [`memblock`] | the early map of physical memory and reservations |
//! | [`platform`] | what a yard needs from its environment |
//! | [`watermarks`] | reserves, watermarks and sizes of per-CPU lists |
//! | [`policy`] | how batches move between per-CPU lists and zones |
//! | [`page`] | page structures, their states and reference counts |
//! | [`owners`] | blocks that can be moved or reclaimed |
//! | [`compaction`], [`contig`] | making large blocks, and taking a chosen range |
//! | [`devices`] | page maps of device memory |
//! | [`huge_pages`] | pools of huge pages whose page maps take little memory |
//! | [`reporting`] | giving free memory back to the host |
//! | [`stats`], [`locks`], [`validate`] | counters, lock use, and the validator that recounts everything |
//! | `counting` | a platform that counts touched cache lines (feature `counting`) |
//! | [`units`], [`sync`], [`job`] | the building blocks of the other modules |
#![cfg_attr(not(any(test, loom, shuttle)), no_std)]

// Places in the memory map are computed from frame numbers, of 64 bits. With narrower pointers they would wrap, and a free of
// one frame could free another.
#[cfg(any(target_pointer_width = "16", target_pointer_width = "32"))]
compile_error!("frameyard needs a target with 64-bit pointers");

pub mod alloc;
pub mod boot;
pub mod compaction;
mod control;
#[cfg(feature = "counting")]
pub mod counting;
pub mod devices;
mod fast;
mod gfp;
mod huge_pool;
pub mod job;
mod lists;
pub mod locks;
#[cfg(all(test, loom))]
mod loom_models;
mod memmap;
pub mod owners;
pub mod page;
mod placement;
pub mod platform;
mod request;
#[cfg(all(test, shuttle))]
mod shuttle_tests;
mod store;
pub mod sync;
mod transfer;
mod yard;
mod zone;

pub use boot::{CleanRegions, DefragMode, Layout, MemoryTable, YardConfig};
#[cfg(loom)]
#[doc(hidden)]
pub use control::ModelledRegion;
pub use frameyard_memblock as memblock;
pub use frameyard_units as units;
pub use frameyard_units::{
    Block, ByteSize, CpuId, Geometry, MigrateType, NodeId, Order, PageCount, Pfn, PfnRange, ZoneId,
};
pub use gfp::Gfp;
pub use platform::Platform;
pub use request::{AllocRequest, Frames, Wanted};
pub use yard::{AllocError, FreeError, RawRegion, Yard};

// The chapters of the interface: what they say is in other modules.

pub mod contig {
    //! Contiguous ranges that the free lists do not offer as one block: how they are taken, and why one cannot be.
    //!
    //! There are two kinds of requests. One names a *range* and takes exactly these frames; if the caller names owners,
    //! they move what is in the way. The other asks for a *count* of frames that is not a power of two, or that exceeds
    //! the maximum order, and the yard looks for a place. The kernel's names are `alloc_contig_range`,
    //! `alloc_contig_pages` and `cma_alloc`.
    //!
    //! First the pageblocks of the range are isolated: nothing is allocated from them, and frames freed there stay
    //! there. Then the request works in rounds. Each round drains the per-CPU lists and asks owners to move their
    //! counted blocks out of the range. When all frames are free, one acquisition of the zone lock takes them all.
    //! Whatever the outcome, the pageblocks get their migration types back. The errors of this module name a block that
    //! is in the way, and say why it cannot be moved.

    pub use crate::request::{CmaReleaseError, OnlineError};
    pub use crate::yard::{BlockedBy, Blocker};
}

pub mod huge_pages {
    //! Pools of huge pages (2 MiB and 1 GiB) in ordinary memory, whose page structures take almost no memory.
    //!
    //! [`Yard::huge_pages`](crate::Yard::huge_pages) reserves blocks for a pool, hands pages out and takes them back.
    //! Of the 8 map pages of a 2 MiB page, or the 4096 of a 1 GiB page, only the one with the head keeps its memory.
    //! The memory behind the page structures of the tails goes back to the host (the kernel's hugetlbfs with HVO,
    //! `hugetlb_free_vmemmap`).
    //!
    //! A pool suits memory that stays in use as whole huge pages for a long time, such as guest memory or database
    //! buffers. The reserved memory serves no other request until the pool shrinks.

    pub use crate::huge_pool::{HugePageError, HugePageSize, HugePoolStatistics};
    pub use crate::request::{HugePage, Reserved};
}

pub mod policy {
    //! Transfer policies: how frames move between the per-CPU lists and their zone.
    //!
    //! An empty per-CPU list is refilled with a batch of frames, and a list that is too long drains one. A
    //! [`ZonePolicy`] says how such a batch moves between the list and the zone: page by page under the zone lock, in
    //! clusters, or as bits of pageblocks without the lock. The policy is part of the configuration
    //! ([`YardConfig::policy`](crate::YardConfig::policy)), and [`Yard::set_policy`](crate::Yard::set_policy) changes
    //! it while the yard is in use, as long as both policies keep free frames on free lists. Every policy serves the
    //! same requests. They differ in how often they take the zone lock, how many frames they hold back, and in which
    //! order they hand frames out.

    pub use crate::yard::PolicyError;
    pub use crate::zone::ZonePolicy;
}

pub mod reporting {
    //! Free-page reporting: giving the memory behind free frames back to the host.
    //!
    //! [`Yard::report_free_pages`](crate::Yard::report_free_pages) takes large free blocks off the free lists, a few at
    //! a time, hands them to [`MemoryBacking::return_frames`](crate::platform::MemoryBacking::return_frames), and puts them
    //! back with a mark in their tags, so that they are not reported again. Allocating a block clears its mark.
    //! Modelled on the kernel's `page_reporting_process`.

    pub use crate::request::{ReportError, ReportOutcome};
}

pub mod stats {
    //! Statistics of zones, per-CPU lists, locks, policies and compaction.
    //!
    //! Counters are always on. They cost plain stores, either per CPU or under a lock that is held anyway. Reading them
    //! takes no lock, so each value is recent, but the values of one snapshot need not agree with each other while
    //! other CPUs allocate. When nothing is in flight, [`Yard::validate`](crate::Yard::validate) checks the equations
    //! between them.

    pub use crate::placement::Stock;
    pub use crate::request::CompactStatistics;
    pub use crate::store::{CounterInfo, CounterKind, CounterScope, MechanismCounts};
    pub use crate::yard::{FrameInfo, PcpStatistics, ZoneStatistics};
    pub use crate::zone::{CompactEvent, ZoneLockTelemetry};
    pub use crate::zone::{RegionCounts, RegionStatistics};
}

pub mod validate {
    //! The validator: what [`Yard::validate`](crate::Yard::validate) checks, and the error that names the first violation.
    //!
    //! Each structure of a yard has counting equations, stated above its definition. For example, a zone's managed
    //! frames are those on its free lists, on per-CPU lists, in the policies' stores, and allocated. The validator
    //! recounts every list and every initialised page and compares. No operation may be in flight meanwhile.

    pub use crate::yard::{ListKind, ValidateError};
}

pub mod views {
    //! Views: the operations of a yard, grouped by subject.
    //!
    //! [`Yard`](crate::Yard) itself allocates and frees. Everything else is behind a view: `yard.zone(id)`,
    //! `yard.devices()`, `yard.huge_pages()`, `yard.compaction()`, `yard.stats()`, `yard.init()`, `yard.counted()`,
    //! `yard.lists()`, `yard.cma()`, `yard.at_once()`. A view is a copyable borrow of the yard, so making one costs nothing. The
    //! documentation of each view says which locks its methods take.

    pub use crate::yard::{
        CmaAreas, CountedBlocks, YardAtOnce, YardCompaction, YardDevices, YardHugePages, YardInit, YardLists,
        YardStats, YardZone,
    };
}

pub mod watermarks {
    //! Watermarks and list sizes: the thresholds that a yard derives from the sizes of its zones.
    //!
    //! A zone has four watermarks (min, low, high, promo). A request must leave the zone above the watermark that its
    //! flags choose; below low, background reclaim starts. [`size_zones`] computes them as the kernel's
    //! `setup_per_zone_wmarks` does, with `min_free_kbytes` and `lowmem_reserve_ratio` as options. [`PcpSizing`]
    //! computes `batch` and `high` of the per-CPU lists (`zone_batchsize`, `zone_highsize`). The functions are pure: a
    //! tool can compute the thresholds of a machine without creating a yard.

    pub use crate::zone::{
        HighFraction, HugePageMinimum, MovableMinimum, PcpSizes, PcpSizing, PcpSizingError, PcpZone, WatermarkLevel,
        WatermarkOptions, WatermarkOptionsError, Watermarks, ZoneSizing, default_min_free_kbytes, free_buffer_pages,
        recommended_min_free_kbytes, set_lowmem_reserves, set_watermarks, size_zones, stat_threshold,
    };
}

/// The samples of the documents.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../docs/guide/3-kernels.md")]
    struct Kernels;
}
