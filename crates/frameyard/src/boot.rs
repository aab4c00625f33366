//! Boot: planning, creating, attaching to and initialising a yard.
//!
//! # From memory to a yard
//!
//! 1. A [`MemorySource`] lists the memory, the reserved ranges and the contiguous memory areas: a [`MemoryTable`], or a
//!    filled [`Memblock`](crate::memblock::Memblock).
//! 2. [`Layout::plan`] divides the memory into sections, zones and tables, and computes the sizes of the memory map and
//!    the control region. It needs no memory.
//! 3. The caller provides both regions. [`Yard::create`](crate::Yard::create) writes the control region, and
//!    initialises the map as [`MapInit`] says: all of it ([`InitMode::Eager`]), the part that early boot needs
//!    ([`InitMode::Deferred`]), or none ([`InitMode::Lazy`]).
//! 4. Deferred memory is initialised in parallel by [`YardInit::finish`](crate::views::YardInit::finish), by idle
//!    workers ([`YardInit::next_section`](crate::views::YardInit::next_section)), or by an allocation that would
//!    otherwise fail or take another type's blocks.
//! 5. Other processes call [`Yard::attach`](crate::Yard::attach) on the same regions.
//!
//! # Publication
//!
//! `init` writes the header's magic word last, with Release. `attach` reads it first, with Acquire. A view that finds
//! it sees the whole yard; any other gets an error.

use core::fmt;

use crate::gfp::Gfp;
pub use crate::memmap::Initialiser;
use crate::units::{CpuId, Geometry, NodeId, PageCount, PfnRange, PhysAddr, ZoneKind};
use crate::zone::{PcpSizing, WatermarkOptions, ZonePolicy};

mod attach;
mod bring_up;
mod cache_groups;
mod claims;
mod clusters;
mod error;
mod init;
mod layout;
mod map_init;
mod memblock_source;
mod movable;
mod tables;
mod tuning;

pub(crate) use attach::attach;
pub(crate) use bring_up::{BringUp, Grain, Growth};
#[cfg(all(test, loom))]
pub(crate) use claims::Claims;
pub use error::{AttachError, BootError, InitError};
pub(crate) use init::init;
pub use layout::Layout;
pub use map_init::{InitJobs, InitMode, JobGranularity, MapInit, PcpReset};
pub(crate) use tables::{SectionEntry, Tables, YardEvent};

/// How many nodes a yard can have. (Fewer in models, whose threads have small stacks.)
pub(crate) const MAX_NODES: usize = if cfg!(loom) { 2 } else { 64 };

/// A yard's memory. Ranges come in ascending order. Ranges of memory do not overlap; reserved ones may.
///
/// The yard reads a source several times, and it should give the same answers. A source that differs between planning
/// and creation makes the creation fail ([`BootError::LayoutMismatch`]), or makes a yard of the memory listed last. A
/// source that changes while a yard is planned may make [`Layout::plan`] panic.
pub trait MemorySource {
    /// Calls `visit` with each range of memory and its node.
    fn for_each_memory(&self, visit: &mut dyn FnMut(PfnRange, NodeId));

    /// Calls `visit` with each range that the allocator must not use.
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
        for (range, node) in self.memory {
            visit(*range, *node);
        }
    }

    fn for_each_reserved(&self, visit: &mut dyn FnMut(PfnRange)) {
        for range in self.reserved {
            visit(*range);
        }
    }

    fn for_each_cma(&self, visit: &mut dyn FnMut(PfnRange)) {
        for range in self.cma {
            visit(*range);
        }
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
    /// Yes: a frame that was written to while it was free goes out of use, and an error names it.
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
    /// When and how the memory map is initialised.
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
