//! Bringing a yard up: what memory there is, how large its map and control region are, and their first contents.
//!
//! [`Layout::plan`] needs no memory of its own and says how much a yard would take; the caller provides the
//! map and the control region, which is zeroed; `init` writes them. Nothing is kept on a heap.
//!
//! `init` writes the header's magic word last, with Release. `attach` reads it first, with Acquire: a process that
//! finds it sees the whole yard, one that does not is told that there is none.

use core::fmt;

use crate::gfp::Gfp;
pub use crate::memmap::Initialiser;
use crate::units::{CpuId, Geometry, NodeId, PageCount, PfnRange, PhysAddr, ZoneKind};
use crate::zone::{PcpSizing, WatermarkOptions, ZonePolicy};

mod attach;
mod bounds;
mod bring_up;
mod cache_groups;
mod claims;
mod error;
mod init;
mod layout;
mod map_init;
mod memblock_source;
mod movable;
mod ranges;
mod tables;
mod tuning;

pub(crate) use attach::attach;
pub use bounds::{DeviceSpace, MachineBounds};
pub(crate) use bring_up::{BringUp, Grain, Growth};
#[cfg(all(test, loom))]
pub(crate) use claims::Claims;
pub use error::{AttachError, BootError, InitError};
pub(crate) use init::init;
pub use layout::Layout;
pub use map_init::{InitJobs, InitMode, JobGranularity, MapInit, PcpReset};
pub(crate) use tables::{HeaderWord, SectionEntry, Tables};

/// How many nodes a yard can have. (Fewer in models, whose threads have small stacks.)
pub(crate) const MAX_NODES: usize = if cfg!(loom) { 2 } else { 64 };
/// How many CPUs a yard can have.
const MAX_CPUS: usize = 1 << 16;

/// Where a yard's memory is. Ranges come in ascending order and do not overlap; reserved ones may.
///
/// A source is asked several times, and should say the same each time. Where it says something else when a yard is
/// created than when it was planned, the yard is refused ([`BootError::LayoutMismatch`]) or is one of the memory named
/// last; a source that changes while a yard is planned may make [`Layout::plan`] panic.
pub trait MemorySource {
    /// Calls `visit` with each range of memory and its node.
    fn for_each_memory(&self, visit: &mut dyn FnMut(PfnRange, NodeId));

    /// Calls `visit` with each range that is not to be given to the allocator.
    fn for_each_reserved(&self, visit: &mut dyn FnMut(PfnRange));

    /// Calls `visit` with each contiguous memory area; ends are whole maximum-order blocks.
    fn for_each_cma(&self, visit: &mut dyn FnMut(PfnRange)) {
        let _ = visit;
    }
}

/// A [`MemorySource`] made of slices.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryTable<'a> {
    /// Ranges of memory, ascending, without overlap, and the node of each.
    pub memory: &'a [(PfnRange, NodeId)],
    /// Ranges kept from the allocator, ascending, without overlap.
    pub reserved: &'a [PfnRange],
    /// Contiguous memory areas, ascending, without overlap, of whole maximum-order blocks.
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
pub enum MovableMemory {
    /// No Movable zone.
    #[default]
    None,
    /// About that many pages over all nodes.
    Pages(PageCount),
    /// About that part of all pages, 0 to 100.
    Percent(u8),
}

/// Where the low zones end. 0: the machine has no such zone.
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
    /// All memory is Normal (or Movable).
    pub const NONE: Self = Self { dma: PhysAddr(0), dma32: PhysAddr(0) };
}

impl Default for ZoneLimits {
    fn default() -> Self {
        Self::X86_64
    }
}

/// Whether freed frames are filled with a pattern that is checked when they are allocated again.
///
/// Needs a platform that reaches the frames' bytes, and fills all free memory when the yard is created.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Poisoning {
    /// No.
    #[default]
    Off,
    /// Yes: a frame that was written to while it was free is put aside and named in an error.
    On,
}

/// What a yard is to be like; everything but the memory itself.
#[derive(Clone, Copy, Debug)]
pub struct YardConfig<'a> {
    /// Page size, section size, pageblock order, maximum order.
    pub geometry: Geometry,
    /// The node of each CPU.
    pub cpus: &'a [NodeId],
    /// Distances between nodes, row by row, 10 for a node to itself; absent: 10 and 20.
    pub distances: Option<&'a [u8]>,
    /// Where the low zones end.
    pub zone_limits: ZoneLimits,
    /// How much memory is Movable.
    pub movable: MovableMemory,
    /// How watermarks and reserves are set.
    pub watermarks: WatermarkOptions,
    /// How per-CPU lists are sized.
    pub pcp_sizing: PcpSizing,
    /// For each CPU, the number of the group that it shares a cache with, from 0; absent: CPUs of a node by sixteen. Batches
    /// of free frames stay in their group as long as it has a use for them.
    pub cache_groups: Option<&'a [u16]>,
    /// How frames cross between per-CPU lists and zones.
    pub policy: ZonePolicy,
    /// Whether freed frames are poisoned.
    pub poisoning: Poisoning,
    /// When and how the memory map comes up.
    pub map_init: MapInit,
    /// Frames beside memory (or over holes of it) where devices may be mapped
    /// ([`YardDevices::map`](crate::views::YardDevices::map)). The memory map covers them too, in whole sections; nothing else
    /// changes. Their page structures must be mapped, readable and zero from the start.
    pub device_space: Option<PfnRange>,
}

impl<'a> YardConfig<'a> {
    /// The defaults for a machine with these CPUs.
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
            poisoning: Poisoning::Off,
            map_init: MapInit::default(),
            device_space: None,
        }
    }
}

/// How many zone choices a request can make: DMA, DMA32, Normal, Movable.
pub(crate) const ZONE_CHOICES: usize = ZoneKind::Device as usize;

/// Place of a CPU's home lists for a request in the table of home lists.
#[inline(always)]
pub(crate) fn home_slot(cpu: CpuId, gfp: Gfp) -> usize {
    cpu.index() * ZONE_CHOICES + gfp.highest_zone() as usize
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
