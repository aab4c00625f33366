//! The tables of the control region, as one view.

use core::ptr::NonNull;

use super::claims::Claims;
use crate::control::{ControlRegion, TableSpan};
use crate::devices::DeviceTables;
use crate::sync::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use crate::units::{CpuId, Geometry, NodeId, Pfn, PfnRange, ZoneId};
use crate::zone::pcp::PerCpuPages;
use crate::zone::transfer::{TRANSFER_TABLES, TransferTables};
use crate::zone::{AllocationMap, TransferCounters, Zone};

/// Words of the header; the rest of it are table spans, two words each.
#[derive(Clone, Copy)]
pub(super) enum HeaderWord {
    /// Written last: [`MAGIC`] once the yard is complete.
    Magic = 0,
    Version,
    Geometry,
    MapStart,
    MapEnd,
    Nodes,
    Poisoning,
    Bytes,
    /// Frames whose bytes were found damaged.
    PoisonHits,
    /// Requests that found no memory, by callers that did not expect it.
    Failures,
    /// Per-CPU lists drained for a request that would have failed.
    Drains,
    /// The content of the memory map's pages, and their initialiser: `MapContent` and `Initialiser`.
    MapInit,
    /// Frame at which owners find their state, plus 1; 0 for none.
    Anchor,
    /// 1 while a change of the policy is in progress.
    PolicySwitch,
    /// The frames reserved for devices.
    DeviceStart,
    DeviceEnd,
    FirstSpan = 16,
}

pub(super) const HEADER_WORDS: usize = 96;
pub(super) const MAGIC: u64 = u64::from_le_bytes(*b"frameyrd");
/// The version of the layout, and the mechanisms that are compiled in: a build that lacks one must not attach.
pub(super) const VERSION: u64 = 8 | crate::zone::transfer::COMPILED_IN << 32;

/// Which table.
#[derive(Clone, Copy)]
pub(super) enum TableId {
    CpuNodes = 0,
    HomePcps,
    Distances,
    Zonelists,
    Zones,
    Pcps,
    Sections,
    Pageblocks,
    RangeStarts,
    RangeEnds,
    RangeZones,
    FreeStarts,
    FreeEnds,
    CmaStarts,
    CmaEnds,
    Claims,
    SkipHints,
    TransferCounters,
    AllocationMap,
    /// The first of the transfer mechanisms' tables.
    Transfer,
    DeviceSections = TRANSFER_END as isize,
    Devices,
}

/// The first table behind those of the transfer mechanisms.
const TRANSFER_END: usize = 19 + TRANSFER_TABLES;
const _: () = assert!(
    TableId::Transfer as usize + TRANSFER_TABLES == TRANSFER_END,
    "the mechanisms' tables do not overlap others"
);
pub(super) const TABLES: usize = TableId::Devices as usize + 1;
const _: () = assert!(HeaderWord::FirstSpan as usize + 2 * TABLES <= HEADER_WORDS, "the header holds all spans");

/// All tables of a yard. Copyable; the tables outlive it by the contract of the yard's creation.
#[derive(Clone, Copy)]
pub(crate) struct Tables {
    pub(super) header: &'static [AtomicU64],
    pub(super) cpu_nodes: &'static [AtomicU16],
    /// For each CPU and zone choice: place of the lists it takes from first.
    pub(crate) home_pcps: &'static [AtomicU32],
    pub(super) distances: &'static [AtomicU8],
    /// For each node, `1 + nodes × 4` words: how many zones, then the zones, nearest first.
    pub(super) zonelists: &'static [AtomicU16],
    pub(crate) zones: &'static [Zone],
    /// A row of all zones for each CPU; lists of zones without memory are never touched.
    pub(crate) pcps: &'static [PerCpuPages],
    pub(crate) sections: &'static [AtomicU32],
    pub(crate) pageblocks: &'static [AtomicU8],
    pub(super) range_starts: &'static [AtomicU64],
    pub(super) range_ends: &'static [AtomicU64],
    pub(super) range_zones: &'static [AtomicU16],
    /// The memory that was not reserved when the yard was created, cut as the ranges are.
    pub(super) free_starts: &'static [AtomicU64],
    pub(super) free_ends: &'static [AtomicU64],
    /// The contiguous memory areas.
    pub(super) cma_starts: &'static [AtomicU64],
    pub(super) cma_ends: &'static [AtomicU64],
    /// A bit for each maximum-order block; see [`Claims`].
    pub(super) claims: &'static [AtomicU64],
    /// A bit for each pageblock, 64 in a word: compaction passes it by.
    pub(crate) skip_hints: &'static [AtomicU64],
    /// A row of all zones for each CPU: what is counted of its lists.
    pub(super) transfer_counters: &'static [TransferCounters],
    /// A byte for each frame; see [`AllocationMap`].
    pub(super) allocation_map: &'static [AtomicU8],
    /// The tables of the transfer mechanisms.
    pub(crate) transfer: TransferTables,
    /// Device memory: which sections lead there, and the table of devices.
    pub(crate) devices: DeviceTables,
}

/// A section of the memory map: its zone, and whether it has memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SectionEntry(u32);

impl SectionEntry {
    const PRESENT: u32 = 1 << 16;
    const MIXED: u32 = 1 << 17;

    pub(crate) const ABSENT: Self = Self(0);

    pub(crate) const fn of_zone(zone: ZoneId) -> Self {
        Self(Self::PRESENT | zone.0 as u32)
    }

    #[inline(always)]
    pub(crate) const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    pub(crate) const fn bits(self) -> u32 {
        self.0
    }

    /// Whether the section has memory in it, so that its part of the map may be touched.
    #[inline(always)]
    pub(crate) const fn is_present(self) -> bool {
        self.0 & Self::PRESENT != 0
    }

    /// The zone of all its memory; `None` where several zones meet in it.
    #[inline(always)]
    pub(crate) const fn zone(self) -> Option<ZoneId> {
        if self.0 & Self::MIXED == 0 { Some(ZoneId(self.0 as u16)) } else { None }
    }

    /// The node of its memory; of the memory found first where several meet.
    pub(crate) fn node(self) -> Option<NodeId> {
        self.is_present().then(|| ZoneId(self.0 as u16).node())
    }

    /// This section once memory of that zone is added.
    pub(crate) const fn with(self, zone: ZoneId) -> Self {
        if !self.is_present() {
            Self::of_zone(zone)
        } else if self.0 as u16 == zone.0 {
            self
        } else {
            Self(self.0 | Self::MIXED)
        }
    }
}

impl Tables {
    /// # Safety
    ///
    /// As for [`ControlRegion::new`] and [`ControlRegion::table`]: the spans are those of the yard's layout.
    pub(super) unsafe fn carve(base: NonNull<u8>, bytes: usize, spans: &[TableSpan; TABLES]) -> Option<Self> {
        // SAFETY: passed on to the caller.
        let region = unsafe { ControlRegion::new(base, bytes) };
        let span = |id: TableId| spans[id as usize];
        let transfer = core::array::from_fn(|at| spans[TableId::Transfer as usize + at]);
        // SAFETY: the layout gives each table a span of its own, and each is carved with one type here.
        unsafe {
            Some(Self {
                header: region.table(TableSpan { offset: 0, count: HEADER_WORDS })?,
                cpu_nodes: region.table(span(TableId::CpuNodes))?,
                home_pcps: region.table(span(TableId::HomePcps))?,
                distances: region.table(span(TableId::Distances))?,
                zonelists: region.table(span(TableId::Zonelists))?,
                zones: region.table(span(TableId::Zones))?,
                pcps: region.table(span(TableId::Pcps))?,
                sections: region.table(span(TableId::Sections))?,
                pageblocks: region.table(span(TableId::Pageblocks))?,
                range_starts: region.table(span(TableId::RangeStarts))?,
                range_ends: region.table(span(TableId::RangeEnds))?,
                range_zones: region.table(span(TableId::RangeZones))?,
                free_starts: region.table(span(TableId::FreeStarts))?,
                free_ends: region.table(span(TableId::FreeEnds))?,
                cma_starts: region.table(span(TableId::CmaStarts))?,
                cma_ends: region.table(span(TableId::CmaEnds))?,
                claims: region.table(span(TableId::Claims))?,
                skip_hints: region.table(span(TableId::SkipHints))?,
                transfer_counters: region.table(span(TableId::TransferCounters))?,
                allocation_map: region.table(span(TableId::AllocationMap))?,
                transfer: TransferTables::carve(&region, &transfer)?,
                devices: DeviceTables {
                    sections: region.table(span(TableId::DeviceSections))?,
                    directories: region.table(span(TableId::Devices))?,
                },
            })
        }
    }

    /// These tables with that many ranges of free memory, in the header too: the rest of their room stays unused.
    pub(super) fn with_free_ranges(mut self, count: usize) -> Self {
        for id in [TableId::FreeStarts, TableId::FreeEnds] {
            let words = HeaderWord::FirstSpan as usize + 2 * id as usize;
            self.header[words + 1].store(count as u64, Ordering::Relaxed);
        }
        self.free_starts = &self.free_starts[..count];
        self.free_ends = &self.free_ends[..count];
        self
    }

    pub(super) fn word(&self, word: HeaderWord) -> &'static AtomicU64 {
        &self.header[word as usize]
    }

    /// The frames reserved for devices; empty if there are none.
    pub(crate) fn device_space(&self) -> PfnRange {
        let pfn = |word| Pfn(self.word(word).load(Ordering::Relaxed));
        PfnRange { start: pfn(HeaderWord::DeviceStart), end: pfn(HeaderWord::DeviceEnd) }
    }

    pub(crate) fn nodes(&self) -> u16 {
        (self.zones.len() / crate::units::ZoneKind::COUNT) as u16
    }

    pub(crate) fn cpus(&self) -> u32 {
        self.cpu_nodes.len() as u32
    }

    pub(crate) fn node_of_cpu(&self, cpu: usize) -> NodeId {
        NodeId(self.cpu_nodes[cpu].load(Ordering::Relaxed))
    }

    pub(crate) fn cache_group_of_cpu(&self, cpu: usize) -> u16 {
        self.transfer.cache_groups().get(cpu).map_or(0, |group| group.load(Ordering::Relaxed))
    }

    /// The lists of a CPU in a zone; `None` where the yard has no such CPU or zone.
    ///
    /// The table has a row for each CPU, so a CPU beyond the yard's falls off its end.
    #[inline(always)]
    pub(crate) fn pcp_of(&self, zone: ZoneId, cpu: CpuId) -> Option<&'static PerCpuPages> {
        self.pcps.get(cpu.index() * self.zones.len() + zone.index())
    }

    /// What is counted of each CPU's lists in each zone, and how many zones there are.
    #[inline(always)]
    pub(crate) fn transfer_counters(&self) -> (&'static [TransferCounters], usize) {
        (self.transfer_counters, self.zones.len())
    }

    pub(crate) fn distance(&self, from: NodeId, to: NodeId) -> u8 {
        let nodes = usize::from(self.nodes());
        self.distances[from.index() * nodes + to.index()].load(Ordering::Relaxed)
    }

    /// How many words of the zonelist table a node has.
    pub(super) const fn zonelist_stride(nodes: usize) -> usize {
        1 + nodes * super::ZONE_CHOICES
    }

    /// The populated zones in the order in which a request of a node's CPU looks at them.
    pub(crate) fn zonelist(&self, node: NodeId) -> impl Iterator<Item = ZoneId> + use<> {
        let stride = Self::zonelist_stride(usize::from(self.nodes()));
        let list = &self.zonelists[node.index() * stride..][..stride];
        let count = usize::from(list[0].load(Ordering::Relaxed));
        list[1..=count].iter().map(|zone| ZoneId(zone.load(Ordering::Relaxed)))
    }

    /// The ranges of memory, cut at zone borders, ascending.
    pub(crate) fn ranges(&self) -> impl ExactSizeIterator<Item = (PfnRange, ZoneId)> + use<> {
        let tables = *self;
        (0..self.range_starts.len()).map(move |at| tables.range(at))
    }

    fn range(&self, at: usize) -> (PfnRange, ZoneId) {
        let start = Pfn(self.range_starts[at].load(Ordering::Relaxed));
        let end = Pfn(self.range_ends[at].load(Ordering::Relaxed));
        (PfnRange { start, end }, ZoneId(self.range_zones[at].load(Ordering::Relaxed)))
    }

    /// The contiguous memory areas, ascending.
    pub(crate) fn cma_areas(&self) -> impl ExactSizeIterator<Item = PfnRange> + use<> {
        let pfn = |word: &AtomicU64| Pfn(word.load(Ordering::Relaxed));
        let (starts, ends) = (self.cma_starts, self.cma_ends);
        starts.iter().zip(ends).map(move |(start, end)| PfnRange { start: pfn(start), end: pfn(end) })
    }

    /// The range of memory that holds a frame, and its zone; `None` in a hole. Binary search.
    pub(crate) fn range_of(&self, pfn: Pfn) -> Option<(PfnRange, ZoneId)> {
        let after = self.range_starts.partition_point(|start| start.load(Ordering::Relaxed) <= pfn.0);
        let (range, zone) = self.range(after.checked_sub(1)?);
        range.contains(pfn).then_some((range, zone))
    }

    /// The parts of memory that lie in a range of frames, ascending. Binary search for the first.
    pub(crate) fn ranges_in(&self, frames: PfnRange) -> impl Iterator<Item = (PfnRange, ZoneId)> + use<> {
        let tables = *self;
        let first = self.range_ends.partition_point(|end| end.load(Ordering::Relaxed) <= frames.start.0);
        (first..self.range_starts.len())
            .map(move |at| tables.range(at))
            .take_while(move |(range, _)| range.start < frames.end)
            .map(move |(range, zone)| (range.intersection(frames), zone))
    }

    /// The parts of a range of frames that were not reserved when the yard was created, ascending, cut at zone borders.
    pub(crate) fn free_ranges_in(&self, frames: PfnRange) -> impl Iterator<Item = (PfnRange, ZoneId)> + use<> {
        let tables = *self;
        let first = self.free_ends.partition_point(|end| end.load(Ordering::Relaxed) <= frames.start.0);
        (first..self.free_starts.len())
            .map(move |at| tables.free_range(at))
            .take_while(move |range| range.start < frames.end)
            .filter_map(move |range| Some((range.intersection(frames), tables.range_of(range.start)?.1)))
    }

    /// The ranges of memory that was not reserved when the yard was created, as they stand in the table.
    pub(super) fn free_ranges(&self) -> impl Iterator<Item = PfnRange> + use<> {
        let tables = *self;
        (0..self.free_starts.len()).map(move |at| tables.free_range(at))
    }

    fn free_range(&self, at: usize) -> PfnRange {
        let start = Pfn(self.free_starts[at].load(Ordering::Relaxed));
        PfnRange { start, end: Pfn(self.free_ends[at].load(Ordering::Relaxed)) }
    }

    /// The initialisers of the parts of the memory map.
    pub(crate) fn claims(&self, first: Pfn, geometry: Geometry) -> Claims {
        Claims::new(self.claims, first, geometry.max_order())
    }

    /// The allocation map.
    pub(crate) fn allocation_map(&self, first: Pfn) -> AllocationMap<'static> {
        AllocationMap::new(self.allocation_map, first)
    }

    #[inline(always)]
    pub(crate) fn section(&self, at: usize) -> SectionEntry {
        self.sections
            .get(at)
            .map_or(SectionEntry::ABSENT, |entry| SectionEntry::from_bits(entry.load(Ordering::Relaxed)))
    }

    /// Counts an event of the whole yard.
    pub(crate) fn count(&self, event: YardEvent) {
        self.word(event.word()).fetch_add(1, Ordering::Relaxed);
    }

    /// How often an event of the whole yard has happened.
    pub(crate) fn counted(&self, event: YardEvent) -> u64 {
        self.word(event.word()).load(Ordering::Relaxed)
    }

    pub(crate) fn anchor(&self) -> Option<Pfn> {
        // Acquire: pairs with the Release in `set_anchor`.
        self.word(HeaderWord::Anchor).load(Ordering::Acquire).checked_sub(1).map(Pfn)
    }

    pub(crate) fn set_anchor(&self, from: Option<Pfn>, to: Option<Pfn>) -> Result<(), Option<Pfn>> {
        let bits = |pfn: Option<Pfn>| pfn.map_or(0, |pfn| pfn.0 + 1);
        // Release: pairs with the Acquire in `anchor`; a reader of the anchor sees what was written there before.
        self.word(HeaderWord::Anchor)
            .compare_exchange(bits(from), bits(to), Ordering::AcqRel, Ordering::Acquire)
            .map(|_| ())
            .map_err(|found| found.checked_sub(1).map(Pfn))
    }

    /// Begins a change of the policy; `None` while another is in progress.
    pub(crate) fn begin_switch(&self) -> Option<PolicySwitch> {
        let word = self.word(HeaderWord::PolicySwitch);
        // Acquire: pairs with the Release in `PolicySwitch::drop`; sees the policy as the last change left it.
        word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok().then_some(PolicySwitch(word))
    }

    pub(crate) fn poisoning(&self) -> super::Poisoning {
        if self.word(HeaderWord::Poisoning).load(Ordering::Relaxed) == 0 {
            super::Poisoning::Off
        } else {
            super::Poisoning::On
        }
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

/// Events of the whole yard, all off the fast paths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum YardEvent {
    PoisonHit,
    Failure,
    Drain,
}

impl YardEvent {
    fn word(self) -> HeaderWord {
        match self {
            Self::PoisonHit => HeaderWord::PoisonHits,
            Self::Failure => HeaderWord::Failures,
            Self::Drain => HeaderWord::Drains,
        }
    }
}
