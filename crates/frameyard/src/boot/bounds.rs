//! Upper bounds for the sizes of a yard's map and control region, computed at compile time.

use crate::boot::tables::TableCounts;
use crate::boot::{MAX_CPUS, MAX_NODES};
use crate::page::Page;
use crate::store::batch_words_bound;
use crate::units::{ByteSize, Geometry, PageCount};
use crate::zone::PcpSizing;

/// The largest machine that a memory map and a control region of fixed size have to serve.
///
/// For kernels that reserve both regions statically. [`Layout::plan`](super::Layout::plan) never needs more for a machine
/// within these bounds.
///
/// ```
/// use frameyard::boot::{DeviceSpace, MachineBounds};
/// use frameyard::{ByteSize, Geometry};
///
/// const BOUNDS: MachineBounds = MachineBounds {
///     nodes: 1,
///     cpus: 4,
///     ..MachineBounds::of_memory(Geometry::X86_64, ByteSize::gib(1))
/// };
/// const CONTROL: ByteSize = BOUNDS.control_bytes();
/// const { assert!(CONTROL.0 < ByteSize::mib(2).0) };
/// const { assert!(BOUNDS.map_bytes().0 <= ByteSize::mib(18).0) };
/// ```
#[derive(Clone, Copy, Debug)]
pub struct MachineBounds {
    /// Sizes of pages, sections and blocks.
    pub geometry: Geometry,
    /// Frames from the first to the last, including room for devices, but not holes of a section or more.
    pub frames: PageCount,
    /// Runs of memory or of room for devices: the parts between holes of a section or more.
    pub runs: usize,
    /// Nodes.
    pub nodes: usize,
    /// CPUs.
    pub cpus: usize,
    /// Ranges of memory.
    pub memory_ranges: usize,
    /// Reserved ranges.
    pub reserved_ranges: usize,
    /// Contiguous memory areas.
    pub cma_areas: usize,
    /// How per-CPU lists are sized.
    pub pcp_sizing: PcpSizing,
    /// Whether there is room for devices.
    pub devices: DeviceSpace,
}

/// Whether a machine has room for devices before, behind or between its memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceSpace {
    /// No room for devices.
    None,
    /// Room for devices.
    Some,
}

impl MachineBounds {
    /// Bounds for one node with one CPU, 16 ranges of memory without holes of a section or more, 64 reserved ranges, no
    /// areas and no devices.
    #[must_use]
    pub const fn of_memory(geometry: Geometry, memory: ByteSize) -> Self {
        Self {
            geometry,
            frames: geometry.pages_in(memory),
            runs: 1,
            nodes: 1,
            cpus: 1,
            memory_ranges: 16,
            reserved_ranges: 64,
            cma_areas: 0,
            pcp_sizing: PcpSizing::Scaled,
            devices: DeviceSpace::None,
        }
    }

    /// Frames of the map: whole sections, of which each run may touch one at either end.
    const fn map_frames(&self) -> PageCount {
        let section = self.geometry.section_pages().0;
        PageCount((self.frames.0.div_ceil(section) + 2 * self.runs as u64 - 1) * section)
    }

    /// The most bytes that the memory map takes.
    #[must_use]
    pub const fn map_bytes(&self) -> ByteSize {
        ByteSize(self.map_frames().0 * size_of::<Page>() as u64)
    }

    /// The most bytes that the control region takes.
    ///
    /// # Panics
    ///
    /// If no yard can be so large: more than 64 nodes, more than 65536 CPUs, or 2³² frames.
    #[must_use]
    pub const fn control_bytes(&self) -> ByteSize {
        assert!(self.nodes >= 1 && self.nodes <= MAX_NODES, "a yard has 1 to 64 nodes");
        assert!(self.runs >= 1, "a yard has memory");
        assert!(self.cpus >= 1 && self.cpus <= MAX_CPUS, "a yard has 1 to 65536 CPUs");
        let counts = TableCounts {
            geometry: self.geometry,
            frames: self.map_frames(),
            runs: self.runs,
            nodes: self.nodes,
            cpus: self.cpus,
            // The limits of Dma and Dma32 each split one range, and the start of Movable one on each node.
            ranges: self.memory_ranges + 2 + self.nodes,
            reserved: self.reserved_ranges,
            cma: self.cma_areas,
            batch_words: batch_words_bound(self.pcp_sizing, self.geometry, self.frames, self.nodes),
            free_bits: true,
            directories: matches!(self.devices, DeviceSpace::Some) as usize,
        };
        match counts.plan() {
            Some(plan) => ByteSize(plan.bytes as u64),
            None => panic!("a yard has fewer than 2^32 frames"),
        }
    }
}
