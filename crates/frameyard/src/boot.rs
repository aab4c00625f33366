//! Boot: creating a yard from a list of memory ranges.
//!
//! [`Yard::from_memblock`](crate::Yard::from_memblock) does all of it with the early memory map. Its steps:
//!
//! 1. [`Layout::plan`] computes the sizes of the map and the control region. It allocates nothing.
//! 2. The caller provides both regions, zeroed.
//! 3. `init` writes them. It uses no heap.
//!
//! `init` writes the header's magic word last, with Release, and `attach` reads it first, with Acquire. So a process
//! that finds the magic word sees the whole yard. A process that does not find it gets [`AttachError::NoYard`].

use core::fmt;

use crate::gfp::Gfp;
pub use crate::memmap::Initialiser;
pub use crate::placement::DefragMode;
use crate::units::{CpuId, Geometry, NodeId, PageCount, PfnRange, PhysAddr, ZoneKind};
pub use crate::zone::{CleanRegions, PageChecks};
use crate::zone::{PcpSizing, WatermarkOptions, ZonePolicy};

mod attach;
mod bounds;
mod cache_groups;
mod claims;
mod error;
mod init;
mod initialisation;
mod layout;
mod map_init;
mod memblock_source;
mod movable;
mod runs;
mod tables;
mod tuning;

pub(crate) use crate::zone::SectionEntry;
pub(crate) use attach::attach;
pub use bounds::{DeviceSpace, MachineBounds};
#[cfg(all(test, loom))]
pub(crate) use claims::Claims;
pub use error::{AttachError, BootError, EarlyBootError, InitError};
pub(crate) use init::init;
pub(crate) use initialisation::{Grain, Growth, Initialisation};
pub use layout::Layout;
pub use map_init::{InitJobs, InitMode, JobGranularity, MapInit, PcpReset};
pub(crate) use tables::{HeaderWord, Tables};

/// The maximum number of nodes of a yard. Lower in models, whose threads have small stacks.
pub(crate) const MAX_NODES: usize = if cfg!(loom) { 2 } else { 64 };
/// The maximum number of CPUs of a yard.
const MAX_CPUS: usize = 1 << 16;

/// The source of a yard's memory ranges. It reports ranges in ascending order. Ranges of memory must not overlap;
/// reserved ranges may.
///
/// Planning and creation read the source several times, so it should report the same ranges each time. If they change
/// between planning and creation, creation fails with [`BootError::LayoutMismatch`] or uses the ranges reported last.
/// If they change during planning, [`Layout::plan`] may panic.
pub trait MemorySource {
    /// Calls `visit` with each range of memory and its node.
    fn for_each_memory(&self, visit: &mut dyn FnMut(PfnRange, NodeId));

    /// Calls `visit` with each range that the allocator must not use.
    fn for_each_reserved(&self, visit: &mut dyn FnMut(PfnRange));

    /// Calls `visit` with each contiguous memory area. An area consists of whole maximum-order blocks.
    fn for_each_cma(&self, visit: &mut dyn FnMut(PfnRange)) {
        let _ = visit;
    }
}

/// A [`MemorySource`] made of slices.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryTable<'a> {
    /// Ranges of memory with the node of each, ascending and without overlap.
    pub memory: &'a [(PfnRange, NodeId)],
    /// Ranges that the allocator must not use, ascending and without overlap.
    pub reserved: &'a [PfnRange],
    /// Contiguous memory areas of whole maximum-order blocks, ascending and without overlap.
    pub cma: &'a [PfnRange],
}

impl MemorySource for MemoryTable<'_> {
    fn for_each_memory(&self, visit: &mut dyn FnMut(PfnRange, NodeId)) {
        self.memory.iter().for_each(|(range, node)| visit(*range, *node));
    }

    fn for_each_reserved(&self, visit: &mut dyn FnMut(PfnRange)) {
        self.reserved.iter().copied().for_each(visit);
    }

    fn for_each_cma(&self, visit: &mut dyn FnMut(PfnRange)) {
        self.cma.iter().copied().for_each(visit);
    }
}

/// How much memory the Movable zones get, taken from the top of each node (the kernel's `movablecore`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum MovableMemory {
    /// No Movable zone.
    #[default]
    None,
    /// About this many pages over all nodes.
    Pages(PageCount),
    /// About this percentage of all pages, 0 to 100.
    Percent(u8),
}

/// Where the low zones end. An end of 0 means that the machine has no such zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ZoneLimits {
    /// End of the DMA zone.
    pub dma: PhysAddr,
    /// End of the DMA32 zone.
    pub dma32: PhysAddr,
}

impl ZoneLimits {
    /// 16 MiB and 4 GiB.
    pub const X86_64: Self = Self { dma: PhysAddr(16 << 20), dma32: PhysAddr(4 << 30) };
    /// No low zones: all memory is Normal or Movable.
    pub const NONE: Self = Self { dma: PhysAddr(0), dma32: PhysAddr(0) };
}

impl Default for ZoneLimits {
    fn default() -> Self {
        Self::X86_64
    }
}

/// Whether the yard fills freed frames with a pattern and checks it at the next allocation.
///
/// The platform must map the bytes of frames. Map initialisation fills all free frames with the pattern, so it writes
/// to all free memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Poisoning {
    /// No pattern.
    #[default]
    Off,
    /// Fill and check. If a frame was written to while it was free, its next allocation fails with an error that names
    /// the frame, and the yard never allocates that frame again.
    On,
}

/// The configuration of a yard: everything except its memory.
///
/// Fields may be added: write `YardConfig { geometry, ..YardConfig::new(cpus) }`, never all fields. The same holds for the
/// other structures of options, all of which have a default.
#[derive(Clone, Copy, Debug)]
pub struct YardConfig<'a> {
    /// Page size, section size, pageblock order, maximum order.
    pub geometry: Geometry,
    /// The node of each CPU.
    pub cpus: &'a [NodeId],
    /// Distances between nodes, row by row, with 10 for a node to itself. `None`: 10 within a node and 20 between
    /// nodes.
    pub distances: Option<&'a [u8]>,
    /// The ends of the low zones.
    pub zone_limits: ZoneLimits,
    /// How much memory the Movable zones get.
    pub movable: MovableMemory,
    /// How watermarks and reserves are set.
    pub watermarks: WatermarkOptions,
    /// How per-CPU lists are sized.
    pub pcp_sizing: PcpSizing,
    /// For each CPU, the number of its cache group, from 0. The CPUs of a group share a cache. `None`: groups of
    /// sixteen CPUs of one node.
    pub cache_groups: Option<&'a [u16]>,
    /// How frames are transferred between per-CPU lists and zones.
    pub policy: ZonePolicy,
    /// Whether the yard keeps a stock of whole free pageblocks. [`Yard::set_defrag_mode`](crate::Yard::set_defrag_mode)
    /// changes it.
    pub defrag_mode: DefragMode,
    /// Whether the yard keeps regions of 1 GiB clean. [`Yard::set_clean_regions`](crate::Yard::set_clean_regions) changes it.
    pub clean_regions: CleanRegions,
    /// Whether freed frames are poisoned.
    pub poisoning: Poisoning,
    /// When page structures of free blocks are checked.
    pub checks: PageChecks,
    /// When and how the memory map is initialised.
    pub map_init: MapInit,
    /// The frame numbers where devices may be mapped ([`YardDevices::map`](crate::views::YardDevices::map)), outside
    /// memory or in its holes. The memory map covers them too, in whole sections, and their page structures must be
    /// mapped, readable and zero from the start. `None`: no devices.
    pub device_space: Option<PfnRange>,
}

impl<'a> YardConfig<'a> {
    /// The default configuration for a machine with these CPUs.
    #[must_use]
    pub fn new(cpus: &'a [NodeId]) -> Self {
        Self {
            geometry: Geometry::X86_64,
            cpus,
            distances: None,
            zone_limits: ZoneLimits::default(),
            movable: MovableMemory::None,
            watermarks: WatermarkOptions::default(),
            pcp_sizing: PcpSizing::Scaled,
            cache_groups: None,
            policy: ZonePolicy::default(),
            defrag_mode: DefragMode::Off,
            clean_regions: CleanRegions::Off,
            poisoning: Poisoning::Off,
            checks: PageChecks::None,
            map_init: MapInit::default(),
            device_space: None,
        }
    }
}

/// The number of zones that a request can name as its highest: DMA, DMA32, Normal, Movable.
pub(crate) const ZONE_CHOICES: usize = ZoneKind::Device as usize;

/// The place of a CPU's home lists for a request, in the table of home lists.
#[inline(always)]
pub(crate) fn home_slot(cpu: CpuId, gfp: Gfp) -> usize {
    cpu.index() * ZONE_CHOICES + gfp.highest_zone_number()
}

impl fmt::Display for MovableMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Pages(count) => write!(f, "{count}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}
