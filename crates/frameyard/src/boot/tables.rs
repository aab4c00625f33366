//! The tables of the control region: their sizes, their positions, and a view of them.
//!
//! The header comes first, then the tables of the transfer mechanisms, then those that `tables!` declares, in its order.

use core::ptr::NonNull;

use crate::boot::claims::{Claims, words_for};
use crate::boot::{Poisoning, ZONE_CHOICES};
use crate::control::{ControlRegion, TablePlanner, TableSpan};
use crate::devices::{DeviceDirectory, DeviceSection, DeviceTables};
use crate::lists::{CpuLists, LargeLists, PerCpuPages};
use crate::memmap::{MemMap, Numbering, RangeEntry, RunEntry, SectionSlot, range_of, ranges_in, slots_for};
use crate::placement::DefragMode;
use crate::platform::{LockError, LockId, Platform};
use crate::store::{self, TableSizes, published};
use crate::sync::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use crate::units::{CpuId, Geometry, NodeId, PageCount, Pfn, PfnRange, ZoneId, ZoneKind};
use crate::zone::{
    AllocationBytes, AllocationMap, CleanRegions, GROUP, PageChecks, PageblockMap, Patience, Region, SectionEntry,
    SectionTable, TransferCounters, Zone, ZoneTables, ZoneView,
};

/// Words of the header; the rest of it are the spans of the tables that `tables!` declares, two words each.
#[derive(Clone, Copy)]
pub(crate) enum HeaderWord {
    /// Written last: [`MAGIC`] once the yard is complete.
    Magic = 0,
    Version,
    Geometry,
    MapStart,
    MapEnd,
    Nodes,
    Poisoning,
    Bytes,
    /// Blocks taken out of use because their bytes were damaged.
    PoisonHits,
    /// Requests that found no memory, by callers that did not expect it.
    Failures,
    /// Times all per-CPU lists were drained for a request that would have failed.
    Drains,
    /// The content of the memory map's pages, and their initialiser: `MapContent` and `Initialiser`.
    MapInit,
    /// Frame at which owners find their state, plus 1; 0 for none.
    Anchor,
    /// While a change of the policy is in progress: the name of the process that makes it, or 1 in a private yard.
    PolicySwitch,
    /// The frames reserved for devices.
    DeviceStart,
    DeviceEnd,
    /// These five: see [`TableCounts`].
    Cpus,
    Ranges,
    Reserved,
    CmaAreas,
    BatchWords,
    /// How many entries of the table of free memory are in use.
    FreeRanges,
    /// The number of places, and of runs: see [`Numbering`](crate::memmap::Numbering).
    Places,
    Runs,
    /// When page structures are checked: [`PageChecks`].
    Checks,
    /// Whether CPUs use their lists in restartable sequences: [`Platform::has_sequences`].
    Sequences,
    /// How hard the yard keeps pageblocks whole: [`DefragMode`](crate::placement::DefragMode). Read on slow paths.
    DefragMode,
    /// Whether regions are kept clean: [`CleanRegions`]. Zones have a copy.
    CleanRegions,
    /// Whether free frames are bits: 1 or 0. See [`TableCounts`].
    FreeBits,
    FirstSpan,
}

pub(super) const HEADER_WORDS: usize = 96;
const _: () = assert!(HeaderWord::FirstSpan as usize + 2 * TABLES <= HEADER_WORDS, "the header holds all spans");
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"frameyrd");
/// The version of the layout, and the mechanisms that are compiled in: a build that lacks one must not attach.
pub(super) const VERSION: u64 = 33 | (published::COMPILED_IN as u64) << 32;

/// The numbers that table sizes follow from.
#[derive(Clone, Copy, Debug)]
pub(super) struct TableCounts {
    pub(super) geometry: Geometry,
    /// Frames of the map, in whole sections: places.
    pub(super) frames: PageCount,
    /// Runs of present sections.
    pub(super) runs: usize,
    pub(super) nodes: usize,
    pub(super) cpus: usize,
    /// Ranges of memory, split at zone boundaries.
    pub(super) ranges: usize,
    pub(super) reserved: usize,
    pub(super) cma: usize,
    /// Words for what zones have once per batch of their memory.
    pub(super) batch_words: usize,
    /// Whether free frames are bits.
    pub(super) free_bits: bool,
    /// 1 if there is room for devices, else 0.
    pub(super) directories: usize,
}

impl TableCounts {
    const fn sections(&self) -> usize {
        self.frames.0 as usize >> self.geometry.section_pages_shift()
    }

    const fn pageblocks(&self) -> usize {
        self.frames.0 as usize >> self.geometry.pageblock_order().0
    }

    const fn regions(&self) -> usize {
        self.frames.0.div_ceil(self.geometry.largest_order().pages().0) as usize
    }

    pub(super) const fn zones(&self) -> usize {
        self.nodes * ZoneKind::COUNT
    }

    /// The sizes that tables of stores follow from.
    pub(super) const fn store(&self) -> TableSizes {
        let Self { cpus, free_bits, batch_words, .. } = *self;
        TableSizes {
            cpus,
            zones: self.zones(),
            pageblocks: self.pageblocks(),
            pageblock_order: self.geometry.pageblock_order(),
            free_bits,
            batch_words,
        }
    }
}

/// Where all tables lie.
#[derive(Clone, Copy, Debug)]
pub(super) struct TablePlan {
    store: store::Spans,
    pub(super) tables: [TableSpan; TABLES],
    /// Size of the control region.
    pub(super) bytes: usize,
}

/// Declares the tables behind those of stores: their entries, and how many each has.
macro_rules! tables {
    ($counts:ident: $($(#[$doc:meta])* $name:ident: $entry:ty = $count:expr),+ $(,)?) => {
        const TABLES: usize = [$(stringify!($name)),+].len();

        /// All tables of a yard. Copyable; the tables outlive it by the contract of the yard's creation.
        #[derive(Clone, Copy)]
        pub(crate) struct Tables {
            pub(super) header: &'static [AtomicU64],
            /// What the map covers, once the tables are in use: what they say of other frames is then left out.
            pub(super) frames: Option<PfnRange>,
            /// The tables of stores.
            pub(crate) store: store::Tables,
            $($(#[$doc])* pub(crate) $name: &'static [$entry],)+
        }

        impl TableCounts {
            /// The place of each table; `None` if the region does not fit an address space, or links cannot name all
            /// frames.
            pub(super) const fn plan(&self) -> Option<TablePlan> {
                let $counts = self;
                let mut planner = TablePlanner::new();
                if $counts.frames.0 >= u32::MAX as u64 || planner.table::<AtomicU64>(HEADER_WORDS).is_none() {
                    return None;
                }
                let Some(store) = store::plan(&mut planner, &$counts.store()) else { return None };
                let tables = [$(match planner.table::<$entry>($count) {
                    Some(span) => span,
                    None => return None,
                }),+];
                Some(TablePlan { store, tables, bytes: planner.bytes() })
            }
        }

        impl Tables {
            /// # Safety
            ///
            /// As for [`ControlRegion::new`] and [`ControlRegion::table`]: the plan is that of the yard.
            pub(super) unsafe fn carve(base: NonNull<u8>, plan: &TablePlan) -> Option<Self> {
                // SAFETY: passed on to the caller.
                let region = unsafe { ControlRegion::new(base, plan.bytes) };
                let mut spans = plan.tables.into_iter();
                // SAFETY: the plan gives each table a span of its own, and each is carved with one type here.
                unsafe {
                    Some(Self {
                        header: region.table(TableSpan { offset: 0, count: HEADER_WORDS })?,
                        frames: None,
                        store: store::Tables::carve(&region, &plan.store)?,
                        $($name: region.table(spans.next()?)?,)+
                    })
                }
            }
        }
    };
}

// The allocation map is last, because it is the largest: a byte per frame, touched only where frames are allocated.
tables! { counts:
    /// The node of each CPU.
    cpu_nodes: AtomicU16 = counts.cpus,
    /// For each CPU and zone choice: place of the lists it takes from first.
    home_pcps: AtomicU32 = counts.cpus * ZONE_CHOICES,
    distances: AtomicU8 = counts.nodes * counts.nodes,
    /// For each node, `1 + nodes × 4` words: how many zones, then the zones, nearest first.
    zonelists: AtomicU16 = counts.nodes * Tables::zonelist_stride(counts.nodes),
    zones: Zone = counts.zones(),
    sections: AtomicU32 = counts.sections(),
    pageblocks: AtomicU32 = counts.pageblocks(),
    /// Memory, cut at zone boundaries, ascending.
    ranges: RangeEntry = counts.ranges,
    /// The memory that was not reserved when the yard was created, cut as the ranges are. A free range begins where memory
    /// does, or where a reserved range ends. The rest is cut off at creation.
    free: RangeEntry = counts.ranges.saturating_add(counts.reserved),
    /// The contiguous memory areas.
    cma: RangeEntry = counts.cma,
    /// A bit for each maximum-order block; see [`Claims`].
    claims: AtomicU64 = words_for(counts.frames.0 >> counts.geometry.max_order().0) as usize,
    /// A bit for each pageblock, 64 in a word: compaction skips it.
    skip_hints: AtomicU64 = counts.pageblocks().div_ceil(64),
    /// All zones of each CPU; lists of zones without memory are never touched.
    pcps: PerCpuPages = counts.cpus * counts.zones(),
    /// All zones of each CPU: what is counted of its lists.
    transfer_counters: TransferCounters = counts.cpus * counts.zones(),
    /// Which sections lead to device memory.
    device_sections: DeviceSection = counts.directories * counts.sections(),
    device_directories: DeviceDirectory = counts.directories,
    /// Which frames have which places; see [`Numbering`](crate::memmap::Numbering).
    runs: RunEntry = counts.runs,
    /// Where the sections of these lie; see [`OtherRuns`](crate::memmap::OtherRuns).
    section_slots: SectionSlot = slots_for(counts.sections(), counts.runs),
    /// The cache group of each CPU.
    cache_groups: AtomicU16 = counts.cpus,
    /// The free frames in each pageblock; see [`ZoneTables`].
    pageblock_free: AtomicU32 = counts.pageblocks(),
    /// The regions of 1 GiB, by the place of their first frame.
    regions: Region = counts.regions(),
    /// The lists of all zones of each CPU for the larger orders of a yard whose free frames are bits.
    large_lists: LargeLists = if counts.free_bits { counts.cpus * counts.zones() } else { 0 },
    /// A byte for each pageblock; see [`AllocationMap`].
    huge_allocation_map: AtomicU8 = counts.pageblocks(),
    /// A byte for each [`GROUP`] of frames; see [`AllocationMap`].
    large_allocation_map: AtomicU8 = (counts.frames.0 as usize).div_ceil(1 << GROUP.0),
    /// A byte for each frame; see [`AllocationMap`].
    allocation_map: AtomicU8 = counts.frames.0 as usize,
}

impl Tables {
    /// Sets the number of ranges of free memory; `None` if there is no room for them.
    pub(super) fn set_free_ranges(&mut self, count: usize) -> Option<()> {
        self.word(HeaderWord::FreeRanges).store(count as u64, Ordering::Relaxed);
        self.free = self.free.get(..count)?;
        Some(())
    }

    /// The tables of a yard that other processes may share, and damage: what they say lies in these frames from now on, and names
    /// nodes and zones that exist.
    pub(crate) fn keep_within(&mut self, frames: PfnRange) {
        self.frames = Some(frames);
    }

    /// A zone that a word of shared memory names; the first one if there is no such zone.
    #[inline(always)]
    pub(crate) fn known_zone(&self, id: ZoneId) -> ZoneId {
        known_zone(self.zones, id)
    }

    /// Keeps the entry of a table of ranges within the map.
    fn known(&self) -> impl Fn((PfnRange, ZoneId)) -> (PfnRange, ZoneId) + use<> {
        // Copies little: boot has a small stack.
        let Self { frames, zones, .. } = *self;
        move |(range, zone)| match frames {
            Some(frames) => {
                let range = range.intersection(frames);
                (PfnRange { end: range.end.max(range.start), ..range }, known_zone(zones, zone))
            }
            None => (range, zone),
        }
    }

    pub(crate) fn word(&self, word: HeaderWord) -> &'static AtomicU64 {
        &self.header[word as usize]
    }

    /// The value of a word of the header.
    pub(crate) fn read(&self, word: HeaderWord) -> u64 {
        self.word(word).load(Ordering::Relaxed)
    }

    /// Which frames have which places. `None` in tables without runs.
    pub(crate) fn numbering(&self, geometry: Geometry) -> Option<Numbering> {
        let span = PfnRange { start: Pfn(self.read(HeaderWord::MapStart)), end: Pfn(self.read(HeaderWord::MapEnd)) };
        let places = PageCount(self.read(HeaderWord::Places));
        Numbering::new((self.runs, self.section_slots), geometry.section_pages_shift(), places, span)
    }

    /// The frames reserved for devices; empty if there are none.
    pub(crate) fn device_space(&self) -> PfnRange {
        PfnRange { start: Pfn(self.read(HeaderWord::DeviceStart)), end: Pfn(self.read(HeaderWord::DeviceEnd)) }
    }

    pub(crate) fn nodes(&self) -> u16 {
        (self.zones.len() / ZoneKind::COUNT) as u16
    }

    pub(crate) fn cpus(&self) -> u32 {
        self.cpu_nodes.len() as u32
    }

    pub(crate) fn node_of_cpu(&self, cpu: usize) -> NodeId {
        NodeId(self.cpu_nodes[cpu].load(Ordering::Relaxed).min(self.nodes() - 1))
    }

    pub(crate) fn cache_group_of_cpu(&self, cpu: usize) -> u16 {
        self.cache_groups.get(cpu).map_or(0, |group| group.load(Ordering::Relaxed))
    }

    /// The lists of a CPU in a zone; `None` where the yard has no such CPU or zone.
    ///
    /// The table ends with the last CPU, so a CPU beyond the yard's has no entry.
    #[inline(always)]
    pub(crate) fn pcp_of(&self, zone: ZoneId, cpu: CpuId) -> Option<CpuLists<'static>> {
        self.pcp_at(cpu.index() * self.zones.len() + zone.index())
    }

    /// The lists at a place of the table of all.
    #[inline(always)]
    pub(crate) fn pcp_at(&self, place: usize) -> Option<CpuLists<'static>> {
        CpuLists::at(self.pcps, self.large_lists, place)
    }

    /// The lists of all CPUs in a zone.
    pub(crate) fn pcps_of(&self, zone: ZoneId) -> impl Iterator<Item = (CpuId, CpuLists<'static>)> + Clone {
        (0..self.cpus()).map(CpuId).filter_map(move |cpu| Some((cpu, self.pcp_of(zone, cpu)?)))
    }

    pub(crate) fn distance(&self, from: NodeId, to: NodeId) -> u8 {
        let nodes = usize::from(self.nodes());
        self.distances[from.index() * nodes + to.index()].load(Ordering::Relaxed)
    }

    /// How many words of the zonelist table a node has.
    pub(super) const fn zonelist_stride(nodes: usize) -> usize {
        1 + nodes * ZONE_CHOICES
    }

    /// The populated zones in the order in which a request of a node's CPU looks at them.
    pub(crate) fn zonelist(&self, node: NodeId) -> impl Iterator<Item = ZoneId> + use<> {
        let stride = Self::zonelist_stride(usize::from(self.nodes()));
        let list = &self.zonelists[node.index() * stride..][..stride];
        let count = usize::from(list[0].load(Ordering::Relaxed));
        let zones = self.zones.len();
        let known = move |zone: &ZoneId| zone.index() < zones;
        list[1..].iter().take(count).map(|zone| ZoneId(zone.load(Ordering::Relaxed))).filter(known)
    }

    /// The ranges of memory, cut at zone boundaries, ascending.
    pub(crate) fn ranges(&self) -> impl ExactSizeIterator<Item = (PfnRange, ZoneId)> + use<> {
        self.ranges.iter().map(RangeEntry::get).map(self.known())
    }

    /// The contiguous memory areas, ascending.
    pub(crate) fn cma_areas(&self) -> impl ExactSizeIterator<Item = PfnRange> + use<> {
        self.cma.iter().map(RangeEntry::get).map(self.known()).map(|(area, _)| area)
    }

    /// The range of memory that holds a frame, and its zone; `None` in a hole. Binary search.
    pub(crate) fn range_of(&self, pfn: Pfn) -> Option<(PfnRange, ZoneId)> {
        range_of(self.ranges, pfn).map(self.known())
    }

    /// The parts of memory that lie in a range of frames, ascending. Binary search for the first.
    pub(crate) fn ranges_in(&self, frames: PfnRange) -> impl Iterator<Item = (PfnRange, ZoneId)> + use<> {
        ranges_in(self.ranges, frames).map(self.known())
    }

    /// The parts of a range of frames that were not reserved when the yard was created, ascending, cut at zone boundaries.
    pub(crate) fn free_ranges_in(&self, frames: PfnRange) -> impl Iterator<Item = (PfnRange, ZoneId)> + use<> {
        ranges_in(self.free, frames).map(self.known())
    }

    /// The tables of devices.
    #[inline(always)]
    pub(crate) fn devices(&self) -> DeviceTables {
        DeviceTables { sections: self.device_sections, directories: self.device_directories }
    }

    /// The bytes of the allocation map.
    pub(crate) fn allocation_bytes(&self, geometry: Geometry) -> AllocationBytes<'static> {
        AllocationBytes::new([self.allocation_map, self.large_allocation_map, self.huge_allocation_map], geometry)
    }

    /// The tables that the zones share.
    pub(crate) fn zone_tables(&self, map: MemMap, geometry: Geometry) -> ZoneTables {
        let numbering = map.numbering();
        ZoneTables {
            map,
            blocks: PageblockMap::new(self.pageblocks, numbering, geometry),
            sections: SectionTable::new(self.sections, geometry),
            ranges: self.ranges,
            all_counters: (self.transfer_counters, self.zones.len()),
            allocation_map: AllocationMap::new(self.allocation_bytes(geometry), numbering),
            pageblock_free: self.pageblock_free,
            regions: self.regions,
            geometry,
            checks: self.checks(),
            mechanisms: self.store,
        }
    }

    /// A zone with what its operations need.
    #[inline(always)]
    pub(crate) fn zone_view<'a, P>(&self, id: ZoneId, tables: &'a ZoneTables, platform: &'a P) -> ZoneView<'a, P> {
        let id = self.known_zone(id);
        ZoneView { id, zone: &self.zones[id.index()], tables, platform }
    }

    /// The initialisers of the parts of the memory map.
    pub(crate) fn claims(&self, numbering: Numbering, geometry: Geometry) -> Claims {
        Claims::new(self.claims, numbering, geometry.max_order())
    }

    #[inline(always)]
    pub(crate) fn section(&self, at: usize) -> SectionEntry {
        self.sections
            .get(at)
            .map_or(SectionEntry::ABSENT, |entry| SectionEntry::from_bits(entry.load(Ordering::Relaxed)))
    }

    /// Counts an event of the whole yard, off the fast paths.
    pub(crate) fn count(&self, event: HeaderWord) {
        self.word(event).fetch_add(1, Ordering::Relaxed);
    }

    /// Begins a change of the policy. Waits for another change, with a bound; `Ok(None)` after that.
    ///
    /// # Errors
    ///
    /// The process that makes the other change has died, or does not go on.
    pub(crate) fn begin_switch<P: Platform>(&self, platform: &P) -> Result<Option<PolicySwitch>, LockError> {
        let word = self.word(HeaderWord::PolicySwitch);
        let own = platform.process().map_or(1, |process| u64::from(process.get()));
        for round in 0..Patience::Sleeps.rounds() {
            // Acquire: pairs with the Release in `PolicySwitch::drop`; sees the policy as the last change left it.
            let Err(other) = word.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed) else {
                return Ok(Some(PolicySwitch(word)));
            };
            platform.check_holder(LockId::Policy, other as u32, round, &|| word.load(Ordering::Relaxed) == other)?;
            platform.wait(round);
        }
        Ok(None)
    }

    /// Ends a change of the policy whose [`PolicySwitch`] the caller has forgotten.
    pub(crate) fn end_switch(&self) {
        drop(PolicySwitch(self.word(HeaderWord::PolicySwitch)));
    }

    pub(crate) fn defrag_mode(&self) -> DefragMode {
        DefragMode::from_bits(self.read(HeaderWord::DefragMode))
    }

    pub(crate) fn clean_regions(&self) -> CleanRegions {
        CleanRegions::from_bits(self.read(HeaderWord::CleanRegions))
    }

    pub(crate) fn checks(&self) -> PageChecks {
        PageChecks::from_bits(self.read(HeaderWord::Checks))
    }

    pub(crate) fn poisoning(&self) -> Poisoning {
        if self.read(HeaderWord::Poisoning) == 0 { Poisoning::Off } else { Poisoning::On }
    }
}

/// A change of the policy in progress; it ends when this is dropped.
pub(crate) struct PolicySwitch(&'static AtomicU64);

impl Drop for PolicySwitch {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `begin_switch`.
        self.0.store(0, Ordering::Release);
    }
}

/// The zone of that number; the first one if there is no such zone.
#[inline(always)]
fn known_zone(zones: &[Zone], id: ZoneId) -> ZoneId {
    if id.index() < zones.len() { id } else { ZoneId(0) }
}
