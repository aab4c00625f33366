//! [`Yard`]: the allocator.
//!
//! A `Yard` is only a view: the addresses of the memory map and of the control region, and tables over them. All state
//! is in those two regions, so any number of processes can have a view of the same yard.
//!
//! [`fast`](crate::fast) allocates and frees on the fast paths, and [`request`](crate::request) handles all other
//! requests. The modules here implement the views that read a yard, change its modes, initialise it and check it.

use core::fmt;
use core::ptr::NonNull;

use crate::boot::{
    self, AttachError, BootError, HeaderWord, Initialisation, Layout, MapInit, MemorySource, PageChecks, Poisoning,
    Tables, YardConfig,
};
use crate::control::TABLE_ALIGN;
use crate::devices::part_order;
use crate::lists::ListOrders;
use crate::memmap::{MapWriter, MemMap, OtherRuns};
use crate::page::{Page, PageRef, Tag};
use crate::platform::Platform;
use crate::sync::{AtomicU32, Ordering};
use crate::units::{ByteSize, CpuId, Geometry, NodeId, Order, PageCount, Pfn, PfnRange, ZoneId};
use crate::zone::{AllocationBytes, AllocationMap, PageblockMap, PcpSizing, WatermarkOptions, ZoneTables, ZoneView};

mod all_locks;
mod blocker;
mod defrag;
mod device;
mod error;
mod from_memblock;
mod init;
mod policy;
mod regions;
mod statistics;
mod telemetry;
mod validate;
mod views;

pub use blocker::{BlockedBy, Blocker};
pub use error::{AllocError, FreeError, FreeProblem, RequestOption, ZoneShortage};
pub use policy::PolicyError;
pub use statistics::{FrameInfo, PcpStatistics, ZoneStatistics};
pub use validate::{ListKind, ValidateError};
pub use views::{
    CmaAreas, CountedBlocks, YardAtOnce, YardCompaction, YardDevices, YardHugePages, YardInit, YardLists, YardStats,
    YardZone,
};

/// A memory region that the caller passes to a yard. The function that takes it states the requirements.
#[derive(Clone, Copy, Debug)]
pub struct RawRegion {
    /// The first byte. Aligned to 128 bytes.
    pub base: NonNull<u8>,
    /// The size.
    pub size: ByteSize,
}

/// A page-frame allocator: the memory map, its zones with their free lists, and the per-CPU lists.
///
/// All methods take `&self`: all threads use the same yard at once.
///
/// | to | call |
/// |---|---|
/// | allocate a block of `2^order` frames, and free it | [`alloc`](Self::alloc), [`free`](Self::free) |
/// | allocate many single frames, and free them | [`alloc_bulk`](Self::alloc_bulk), [`free_bulk`](Self::free_bulk) |
/// | own frames until a guard is dropped | [`frames`](Self::frames) |
/// | ask for any count, certain frames, a node, an alignment, or frames that owners move others out of | [`request`](Self::request) |
/// | free any frames: several blocks, or parts of one | [`free_range`](Self::free_range) |
/// | divide and join allocated blocks | [`split_at`](Self::split_at), [`split`](Self::split), [`join`](Self::join) |
/// | read statistics and look frames up | [`stats`](Self::stats), [`zone`](Self::zone) |
/// | create a yard, or another view of one | [`from_memblock`](Self::from_memblock), [`create`](Self::create), [`attach`](Self::attach) |
/// | take memory in and out of use | [`init`](Self::init), [`online`](Self::online), [`offline`](Self::offline), [`devices`](Self::devices) |
/// | check everything | [`validate`](Self::validate) |
///
/// [`views`](crate::views) lists the other subjects.
pub struct Yard<P: Platform> {
    pub(crate) platform: P,
    pub(crate) map: MemMap,
    pub(crate) tables: Tables,
    zone_tables: ZoneTables,
    pub(crate) geometry: Geometry,
    pub(crate) list_orders: ListOrders,
    pub(crate) cpus: u32,
    pub(crate) poisoning: Poisoning,
    pub(crate) checks: PageChecks,
    map_init: MapInit,
    writer: MapWriter,
    tuning: Option<Tuning>,
    device_space: PfnRange,
    /// The order of a sub-section.
    device_part: Order,
    pub(crate) fast: FastPath,
}

/// How the creator of a yard wants watermarks, reserves and per-CPU lists to be set when the map is complete.
#[derive(Clone, Copy)]
struct Tuning {
    watermarks: WatermarkOptions,
    sizing: PcpSizing,
}

/// The tables in which fast paths look first. In a yard that poisons, or checks each block, they are empty: everything falls off
/// their ends and takes the slow paths, which poison and check.
#[derive(Clone, Copy)]
pub(crate) struct FastPath {
    /// For each CPU and zone choice: the lists to take from.
    pub(crate) homes: &'static [AtomicU32],
    /// Which frames may be freed to which lists.
    pub(crate) blocks: PageblockMap<'static>,
    /// The first frame of the largest run. Its places begin at 0.
    pub(crate) largest_start: Pfn,
    /// The allocation map of the largest run: its end is the test whether a frame is in it.
    pub(crate) largest: AllocationBytes<'static>,
    /// Where the other runs lie.
    pub(crate) other_runs: OtherRuns,
}

impl<P: Platform> Yard<P> {
    /// Creates a yard in two regions, laid out by [`Layout::plan`] from the same memory and configuration.
    ///
    /// [`YardConfig::map_init`] defines which part of the map is initialised now. Unless its initialiser writes every
    /// page structure, the call writes only one per free or reserved block. So a map on fresh memory stays untouched
    /// apart from one host page per maximum-order block. In optimised builds, planning and creating each need less than
    /// 8 KiB of stack besides their results, however large the machine.
    ///
    /// # Errors
    ///
    /// [`BootError`] if a region is too small or misaligned, or if the memory differs from the plan. The contents of
    /// both regions are then undefined, so zero them before another attempt.
    ///
    /// # Safety
    ///
    /// - `control` is zeroed. `map` is zeroed if the initialiser is
    ///   [`Initialiser::None`](crate::boot::Initialiser::None). With any other initialiser, `map` may contain anything,
    ///   except that the part for [`YardConfig::device_space`] outside memory is mapped and zeroed from the start.
    /// - Both regions are writable, used by nothing else, and stay mapped while this yard or another view of it lives.
    ///   The parts of the map for holes inside sections are mapped, too, at the latest when
    ///   [`MemoryBacking::back_map`](crate::platform::MemoryBacking::back_map) returns success for them.
    /// - [`Platform::frame_bytes`] returns where a frame and the rest of its block can be read and written. That memory
    ///   belongs to the owner of the frame.
    pub unsafe fn create(
        memory: &dyn MemorySource,
        config: &YardConfig<'_>,
        layout: &Layout,
        map: RawRegion,
        control: RawRegion,
        platform: P,
    ) -> Result<Self, BootError> {
        for (region, needed) in [(map, layout.map_bytes()), (control, layout.control_bytes())] {
            if region.size < needed {
                return Err(BootError::RegionTooSmall { needed, given: region.size });
            }
            if !region.base.addr().get().is_multiple_of(TABLE_ALIGN) {
                return Err(BootError::Misaligned);
            }
        }
        if config.poisoning == Poisoning::On && platform.frame_bytes(first_frame(memory)).is_none() {
            return Err(BootError::NoFrameBytes);
        }
        let writer = MapWriter::new(config.map_init.initialiser);
        // SAFETY: the region is large enough and aligned (checked), zeroed and ours alone (caller).
        let mut tables = unsafe { layout.carve(control.base) };
        let tables = tables.as_mut().ok_or(BootError::LayoutMismatch)?;
        // SAFETY: just carved; the map is large enough and aligned (checked), zeroed and ours alone (caller).
        let map = unsafe { boot::init(memory, config, layout, tables, map.base.cast::<Page>(), (writer, &platform))? };
        let tuning = Tuning { watermarks: config.watermarks, sizing: config.pcp_sizing };
        Ok(Self::view_of(tables, map, config.geometry, (config.map_init, writer), Some(tuning), platform))
    }

    /// Makes another view of an existing yard, in this process or another one.
    ///
    /// # Errors
    ///
    /// [`AttachError`] if the control region does not contain a finished yard of this version, or if the map is smaller
    /// than the yard's.
    ///
    /// # Safety
    ///
    /// As for [`create`](Self::create), except that the regions are not zeroed but are the map and the control region
    /// of one yard.
    pub unsafe fn attach(map: RawRegion, control: RawRegion, platform: P) -> Result<Self, AttachError> {
        let bytes = usize::try_from(control.size.0).unwrap_or(usize::MAX);
        // SAFETY: passed on to the caller.
        let found = unsafe { boot::attach(control.base, bytes)? };
        if map.size.0 < found.numbering.places() * size_of::<Page>() as u64 {
            return Err(AttachError::TooSmall);
        }
        if (found.tables.word(HeaderWord::Sequences).load(Ordering::Relaxed) != 0) != platform.has_sequences() {
            return Err(AttachError::OtherSequences);
        }
        // SAFETY: the caller says that it is the yard's map; it is large enough.
        let map =
            unsafe { MemMap::new(map.base.cast::<Page>(), found.numbering, found.map_init.content, found.geometry) };
        let writer = MapWriter::new(found.map_init.initialiser);
        Ok(Self::view_of(&found.tables, map, found.geometry, (found.map_init, writer), None, platform))
    }

    // Boot has a small stack: inlined, the yard's temporary copies would lie in the frame below which the map is initialised.
    #[inline(never)]
    fn view_of(
        tables: &Tables,
        map: MemMap,
        geometry: Geometry,
        (map_init, writer): (MapInit, MapWriter),
        tuning: Option<Tuning>,
        platform: P,
    ) -> Self {
        let mut tables = *tables;
        tables.keep_within(map.range());
        let (poisoning, checks) = (tables.poisoning(), tables.checks());
        let (homes, types) = if takes_slow_paths(poisoning, checks) {
            (&[][..], &[][..])
        } else {
            (tables.home_pcps, tables.pageblocks)
        };
        let zone_tables = tables.zone_tables(map, geometry);
        let largest = zone_tables.allocation_map.of_largest_run();
        let fast = FastPath {
            homes,
            blocks: PageblockMap::new(types, map.numbering(), geometry),
            largest_start: map.numbering().largest_run().start,
            largest,
            other_runs: map.numbering().other_runs(),
        };
        let cpus = tables.cpus();
        let list_orders = ListOrders::new(geometry, tables.store.line_of_bits());
        Self {
            platform,
            map,
            tables,
            zone_tables,
            geometry,
            list_orders,
            cpus,
            poisoning,
            checks,
            map_init,
            writer,
            tuning,
            device_space: tables.device_space().intersection(map.range()),
            device_part: part_order(geometry),
            fast,
        }
    }

    /// The platform that the yard runs on.
    pub fn platform(&self) -> &P {
        &self.platform
    }

    /// Page size, section size, pageblock order and maximum order.
    #[inline(always)]
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The number of nodes.
    pub fn nodes(&self) -> u16 {
        self.tables.nodes()
    }

    /// The number of CPUs, each of which has lists of its own.
    pub fn cpus(&self) -> u32 {
        self.cpus
    }

    /// The node of a CPU. A number that is too large is taken modulo the number of CPUs.
    pub fn node_of_cpu(&self, cpu: CpuId) -> NodeId {
        self.tables.node_of_cpu(cpu.index() % self.cpus as usize)
    }

    /// The cache group of a CPU: the CPUs of a group share a cache. A number that is too large is taken modulo the
    /// number of CPUs.
    pub fn cache_group_of_cpu(&self, cpu: CpuId) -> u16 {
        self.tables.cache_group_of_cpu(cpu.index() % self.cpus as usize)
    }

    /// The frames from the first to the last, holes included, rounded to whole sections.
    pub fn frame_range(&self) -> PfnRange {
        self.map.range()
    }

    /// The number of frames that have page structures: those of every section with memory or room for devices.
    pub fn map_frames(&self) -> PageCount {
        PageCount(self.map.places())
    }

    /// The offset of a frame's page structure in the memory map; `None` in a hole. The page structures of neighbouring
    /// sections are contiguous.
    pub fn map_offset(&self, pfn: Pfn) -> Option<ByteSize> {
        let place = self.map.check(pfn)?;
        Some(ByteSize(u64::from(place) * size_of::<Page>() as u64))
    }

    /// The ranges of memory, cut at zone borders, ascending. Reads the yard's tables, so it borrows the yard.
    pub fn memory_ranges(&self) -> impl ExactSizeIterator<Item = (PfnRange, ZoneId)> {
        self.tables.ranges()
    }

    /// The zone that a frame of memory belongs to; `None` in a hole. Binary search in the table of ranges.
    pub fn zone_of(&self, pfn: Pfn) -> Option<ZoneId> {
        self.tables.range_of(pfn).map(|(_, zone)| zone)
    }

    /// The CPU that runs the caller, folded into those that have lists.
    #[inline(always)]
    pub(crate) fn cpu(&self) -> CpuId {
        let cpu = self.platform.current_cpu();
        if cpu.0 < self.cpus { cpu } else { CpuId(cpu.0 % self.cpus) }
    }

    /// The page structure of a frame, if it is in a pageblock that has memory.
    #[inline(always)]
    pub(crate) fn page_of(&self, pfn: Pfn) -> Option<PageRef<'_, P>> {
        self.pageblocks().has_memory(pfn).then(|| self.map.page(pfn, &self.platform))
    }

    /// The tag of a block that loses its owner: none where frames need none ([`ZoneView::needs_no_tag`]).
    #[inline(always)]
    pub(crate) fn tag_without_owner(&self, pfn: Pfn, tag: Tag) -> Tag {
        if self.any_zone_view().needs_no_tag(self.map.place(pfn), tag.order()) { Tag::INTERIOR } else { tag }
    }

    /// Notes that blocks within a block have tags that may stay when they are freed: see [`ZoneView::note_tagged`].
    #[cold]
    pub(crate) fn note_tagged(&self, pfn: Pfn, order: Order) {
        self.any_zone_view().note_tagged(self.map.place(pfn), order);
    }

    /// What begins at a frame of the map whose page is initialised: see [`ZoneView::tag_at`].
    #[inline(always)]
    pub(crate) fn tag_at(&self, pfn: Pfn) -> Tag {
        self.any_zone_view().tag_at(pfn)
    }

    /// A view for look-ups that do not depend on the zone.
    #[inline(always)]
    pub(crate) fn any_zone_view(&self) -> ZoneView<'_, P> {
        self.zone_view(ZoneId(0))
    }

    /// The zone of a block that is allocated, or of the caller's. A binary search where zones meet in its pageblock.
    #[inline(always)]
    pub(crate) fn zone_of_block(&self, pfn: Pfn) -> ZoneId {
        let zone = self.pageblocks().zone_at(self.map.place(pfn));
        zone.or_else(|| self.zone_of(pfn)).unwrap_or(ZoneId(0))
    }

    #[inline(always)]
    pub(crate) fn allocation_map(&self) -> AllocationMap<'static> {
        self.zone_tables.allocation_map
    }

    #[inline(always)]
    pub(crate) fn pageblocks(&self) -> PageblockMap<'static> {
        self.zone_tables.blocks
    }

    /// Initialises parts of the memory map.
    fn initialisation(&self) -> Initialisation<'_, P> {
        Initialisation {
            tables: &self.tables,
            zone_tables: &self.zone_tables,
            poisoning: self.poisoning,
            writer: self.writer,
            platform: &self.platform,
        }
    }

    #[inline(always)]
    pub(crate) fn zone_view(&self, id: ZoneId) -> ZoneView<'_, P> {
        self.tables.zone_view(id, &self.zone_tables, &self.platform)
    }
}

const fn takes_slow_paths(poisoning: Poisoning, checks: PageChecks) -> bool {
    matches!(poisoning, Poisoning::On) || matches!(checks, PageChecks::All)
}

fn first_frame(memory: &dyn MemorySource) -> Pfn {
    let mut first = Pfn(u64::MAX);
    memory.for_each_memory(&mut |range, _| first = first.min(range.start));
    first
}

impl<P: Platform> fmt::Debug for Yard<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Yard")
            .field("frames", &self.map.range())
            .field("nodes", &self.nodes())
            .field("cpus", &self.cpus)
            .finish_non_exhaustive()
    }
}
