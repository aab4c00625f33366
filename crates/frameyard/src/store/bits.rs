//! The store `bits`: from the initialisation of memory on, free frames are bits of their pageblock ([`bitmap`]). The
//! free lists serve what bits cannot: compaction, ranges, and blocks larger than a line where no lines side by side are whole.
//!
//! # Transfers
//!
//! | event | action |
//! |---|---|
//! | a list is empty | take blocks from the line that the CPU has reserved for the type; single frames a word (64 bits) at a time |
//! | the line has nothing that fits | reserve the fullest line that has; if there is none, take whole pageblocks off the free lists |
//! | the type has nothing left | the [placement](crate::placement) decides |
//! | a list overflows | set the bits |
//! | a block larger than a line is requested or freed | take whole lines side by side, or list them as whole |
//! | a block in a pageblock that is being emptied is freed | set its bits instead of putting it on a list |
//! | compaction, isolation, contiguous ranges, a change of the policy | the frames return to the free lists ([`collecting`]) |
//!
//! # Tags
//!
//! A free frame in this store has no tag: by the rule for [untagged frames](crate::zone::untagged) it is free. A block
//! that goes to a list or a caller does not get one either, unless it is larger than a line; its byte in the allocation
//! map has its order. So neither an allocation nor a free touches a page structure.
//!
//! Blocks that were allocated in another way may have tags, which must not outlive them. A line is *clean* while no
//! free frame in it can have a tag: it became bits as a whole, and nothing in it has been on a free list since. When an
//! owner gives up a block in a clean line, it clears the tag, because the page structure is in its cache then. A free
//! into a line that is not clean looks at the page structure.
//!
//! # Counting equations
//!
//! - `total` + what the zone's CPUs have not added to it yet = Σ set bits of the zone's lines + Σ frames of its packed
//!   lines.
//! - `reserved` ≥ the number of lines in the slots of CPUs.

use crate::control::{ControlRegion, TablePlanner, TableSpan};
use crate::memmap::ranges_in;
use crate::platform::{Access, LineKind, Platform, Probe, SharedLine};
use crate::store::TableSizes;
use crate::store::bits::bitmap::{Bits, BitsSpans, Slot, Total, line_order};
use crate::sync::{AtomicU32, AtomicU64, Ordering, all_atomic};
use crate::units::{CpuId, MigrateType, Order};
use crate::zone::checks::PageChecks;
use crate::zone::mechanisms::{PlacementOfCpu, PlacementOfZone};
use crate::zone::view::ZoneView;
use core::ops::Range;

pub(crate) mod bitmap;
mod collecting;
mod counting;
mod giving;
mod statistics;
pub(crate) mod taking;
mod validate;

pub(super) use collecting::{collect, collect_split};
pub(crate) use collecting::{collect_around, collect_at_least, collect_for, collect_line, give_up_whole};
pub(super) use counting::direct_frees_racy;
pub(crate) use giving::{give_back, put, put_direct, put_initialised, puts_initialised};
pub(super) use statistics::{COUNTERS, all_blocks_racy, blocks_racy, count, largest_racy};
pub(super) use validate::{mend, validate};

/// The lines that a CPU has reserved in a zone: for single frames and for larger blocks, of each type.
const SLOTS: usize = 2 * MigrateType::PER_CPU;

/// What a zone counts.
#[repr(C, align(64))]
#[derive(Default)]
pub(crate) struct State {
    total: Total,
    /// The lines that CPUs have reserved.
    reserved: AtomicU32,
    /// The number of the zone's lines (high half) and the first of them, or [`SEVERAL_RUNS`]; 0 before the first look.
    lines: AtomicU64,
    /// Lines taken off the free lists.
    supplied: AtomicU64,
    /// Frames returned to the free lists.
    collected: AtomicU64,
    /// The pageblocks being emptied.
    emptied: AtomicU32,
    pub(crate) placement: PlacementOfZone,
}

all_atomic!(State { total, reserved, lines, supplied, collected, emptied, placement });

/// In [`State::lines`], instead of the first line: they are not one run.
const SEVERAL_RUNS: u32 = u32::MAX;

/// What a CPU has in a zone.
#[repr(C, align(64))]
#[derive(Default)]
pub(crate) struct CpuBits {
    /// The reserved lines.
    lines: [Slot; SLOTS],
    /// Frames freed less frames taken by lists, not yet added to the zone's count. Wraps.
    change: AtomicU64,
    /// Frames (low half) and blocks freed past the lists, not yet added to that count and to `direct_sum`.
    direct: AtomicU64,
    /// How far each of these may be off before it is added; 0 until then.
    limit: AtomicU64,
    pub(crate) placement: PlacementOfCpu,
    /// Frames and blocks freed past the lists.
    direct_sum: [AtomicU64; 2],
}

all_atomic!(CpuBits { lines, change, direct, limit, placement, direct_sum });

/// The tables.
#[derive(Clone, Copy)]
pub(super) struct Tables {
    bits: Bits,
    cpus: &'static [CpuBits],
    zones: &'static [State],
    /// A bit for each line: it is clean.
    clean: &'static [AtomicU64],
    /// A bit for each line that has been free whole: all of its frames are memory of one zone, whatever else lies in its section.
    one_zone: &'static [AtomicU64],
}

/// Where the tables lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spans {
    bits: BitsSpans,
    cpus: TableSpan,
    zones: TableSpan,
    clean: TableSpan,
    one_zone: TableSpan,
    pageblock_order: Order,
}

// All tables are empty in a yard whose free frames are not bits.

const fn pageblocks(sizes: &TableSizes) -> usize {
    if sizes.free_bits { sizes.pageblocks } else { 0 }
}

const fn cpus(sizes: &TableSizes) -> usize {
    if sizes.free_bits { sizes.cpus } else { 0 }
}

const fn zones(sizes: &TableSizes) -> usize {
    if sizes.free_bits { sizes.zones } else { 0 }
}

const fn lines(sizes: &TableSizes) -> usize {
    pageblocks(sizes) << (sizes.pageblock_order.0 - line_order(sizes.pageblock_order).0)
}

/// Plans the tables; `None` if they do not fit an address space.
pub(super) const fn plan(planner: &mut TablePlanner, sizes: &TableSizes) -> Option<Spans> {
    let Some(bits) = Bits::plan(planner, pageblocks(sizes), sizes.pageblock_order) else { return None };
    let Some(cpus) = cpus(sizes).checked_mul(sizes.zones) else { return None };
    let Some(cpus) = planner.table::<CpuBits>(cpus) else { return None };
    let Some(zones) = planner.table::<State>(zones(sizes)) else { return None };
    let words = lines(sizes).div_ceil(u64::BITS as usize);
    match (planner.table::<AtomicU64>(words), planner.table::<AtomicU64>(words)) {
        (Some(clean), Some(one_zone)) => {
            Some(Spans { bits, cpus, zones, clean, one_zone, pageblock_order: sizes.pageblock_order })
        }
        _ => None,
    }
}

impl Tables {
    /// # Safety
    ///
    /// As for [`ControlRegion::table`]: the spans are those that [`plan`] made.
    pub(super) unsafe fn carve(region: &ControlRegion, spans: &Spans) -> Option<Self> {
        // SAFETY: passed on to the caller.
        unsafe {
            let bits = Bits::carve(region, &spans.bits, spans.pageblock_order)?;
            let (cpus, zones) = (region.table(spans.cpus)?, region.table(spans.zones)?);
            let (clean, one_zone) = (region.table(spans.clean)?, region.table(spans.one_zone)?);
            Some(Self { bits, cpus, zones, clean, one_zone })
        }
    }

    /// Whether the tables have the lengths that a yard of that size needs.
    pub(super) fn fit(&self, sizes: &TableSizes) -> bool {
        self.bits.fits(pageblocks(sizes), sizes.pageblock_order)
            && self.cpus.len() == cpus(sizes) * sizes.zones
            && self.zones.len() == zones(sizes)
            && [self.clean, self.one_zone].iter().all(|bits| bits.len() == lines(sizes).div_ceil(u64::BITS as usize))
    }

    /// The order of a line, where free frames are bits.
    pub(super) fn line_order(&self) -> Option<Order> {
        (!self.zones.is_empty()).then(|| self.bits.line_order())
    }

    /// Whether the frame at a place is free as a bit. Possibly stale.
    pub(super) fn is_free_racy(&self, place: usize) -> bool {
        self.bits.is_free_racy(place)
    }

    #[inline(always)]
    fn is_clean(&self, line: usize) -> bool {
        has_bit(self.clean, line)
    }

    fn clear_clean(&self, line: usize) {
        if let Some((word, bit)) = bit_of(self.clean, line).filter(|_| self.is_clean(line)) {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    fn set_clean(&self, line: usize) {
        set_bit(self.clean, line);
    }

    /// Notes that a zone has all frames of a line: they were free together.
    fn note_one_zone(&self, line: usize) {
        set_bit(self.one_zone, line);
    }

    /// Whether all frames of the line around a place are known to be memory of one zone.
    pub(super) fn is_of_one_zone(&self, place: usize) -> bool {
        has_bit(self.one_zone, place >> self.bits.line_order().0)
    }
}

/// The bit of a line in a table of such.
#[inline(always)]
fn bit_of(bits: &[AtomicU64], line: usize) -> Option<(&AtomicU64, u64)> {
    Some((bits.get(line / u64::BITS as usize)?, 1 << (line % u64::BITS as usize)))
}

fn set_bit(bits: &[AtomicU64], line: usize) {
    if let Some((word, bit)) = bit_of(bits, line).filter(|_| !has_bit(bits, line)) {
        word.fetch_or(bit, Ordering::Relaxed);
    }
}

#[inline(always)]
fn has_bit(bits: &[AtomicU64], line: usize) -> bool {
    bit_of(bits, line).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
}

/// The slot of a CPU for blocks of an order and type.
const fn slot(order: Order, list_type: MigrateType) -> usize {
    2 * list_type as usize + (order.0 > 0) as usize
}

/// Whether requests take blocks of an order from the bits: no pages are checked of blocks that may have to be taken apart.
#[inline(always)]
pub(super) fn gives_blocks<P: Platform>(view: ZoneView<'_, P>, order: Order) -> bool {
    order == Order::ZERO || view.checks == PageChecks::None
}

/// Whether freed blocks of an order become bits: as [`gives_blocks`], and no compaction wants all frames on the free lists.
pub(super) fn takes_blocks<P: Platform>(view: ZoneView<'_, P>, order: Order) -> bool {
    gives_blocks(view, order) && !view.is_quiesced()
}

/// Whether freed blocks of an order become several lines.
pub(super) fn takes_large<P: Platform>(view: ZoneView<'_, P>, order: Order) -> bool {
    view.keeps_bits() && order > view.free_bits().line_order() && takes_blocks(view, order)
}

/// The type that a line is listed as. One of another kind is found to be that when a search finds it.
fn listed_type<P: Platform>(view: ZoneView<'_, P>) -> impl Fn(usize) -> MigrateType {
    move |line| view.type_of_line(line).unwrap_or(MigrateType::Movable)
}

/// Takes a line of a type all of whose frames are free, with all of its frames: one among some lines, from the second argument on and then
/// around.
pub(crate) fn take_whole<P: Platform>(
    view: ZoneView<'_, P>,
    list_type: MigrateType,
    among: (Range<usize>, usize),
) -> Option<usize> {
    view.free_bits().take_whole(view.platform, list_type, among, listed_type(view))
}

impl<'a, P: Platform> ZoneView<'a, P> {
    #[inline(always)]
    pub(crate) fn free_bits(&self) -> &'a Bits {
        &self.tables.mechanisms.bits.bits
    }

    /// Whether free frames are bits in this yard.
    #[inline(always)]
    pub(crate) fn keeps_bits(&self) -> bool {
        !self.tables.mechanisms.bits.zones.is_empty()
    }

    /// What the zone counts; `None` where free frames are not bits.
    #[inline(always)]
    pub(crate) fn bits_of_zone(&self) -> Option<&'a State> {
        self.tables.mechanisms.bits.zones.get(self.id.index())
    }

    #[inline(always)]
    pub(crate) fn bits_of_cpu(&self, cpu: CpuId) -> Option<&'a CpuBits> {
        let zones = self.all_counters.1;
        let table = self.tables.mechanisms.bits.cpus;
        // A CPU that the yard does not know is one of those that it knows.
        table.get(cpu.index() * zones + self.id.index()).or_else(|| table.get(self.id.index()))
    }

    /// The lines that a CPU has reserved for a type.
    pub(crate) fn lines_of_cpu(self, cpu: CpuId, list_type: MigrateType) -> impl Iterator<Item = usize> {
        let slots = self.bits_of_cpu(cpu).map(|cpu| &cpu.lines[slot(Order(0), list_type)..=slot(Order(1), list_type)]);
        slots.into_iter().flatten().filter_map(Slot::line)
    }

    #[inline(always)]
    pub(crate) fn touch_bits<T>(&self, word: &T, access: Access) {
        self.platform.probe().touch_line(SharedLine::of(LineKind::Mechanism, word), access);
    }

    /// The lines that a zone has memory in, run by run. None of them is whole in another zone: the spans of zones may overlap.
    #[inline(always)]
    pub(crate) fn lines(self) -> impl Iterator<Item = Range<usize>> {
        let only = self.only_run();
        let several = only.is_none().then(|| self.runs_of_lines());
        only.into_iter().chain(several.into_iter().flatten())
    }

    fn runs_of_lines(self) -> impl Iterator<Item = Range<usize>> {
        let (order, numbering, mut end) = (self.free_bits().line_order(), self.map.numbering(), 0);
        ranges_in(self.ranges, self.span())
            .filter(move |(_, zone)| *zone == self.id)
            .flat_map(move |(range, _)| numbering.blocks_of(range, order))
            .map(move |lines| {
                // Two ranges may share a line.
                let start = lines.start as usize + usize::from(lines.start + 1 == end);
                end = lines.end;
                start..end as usize
            })
    }

    /// The lines of a zone that has them in one run.
    #[inline(always)]
    fn only_run(&self) -> Option<Range<usize>> {
        let (first, count) = self.known_lines();
        // Within the yard, whatever another process wrote.
        let end = (first as usize + count).min(self.free_bits().lines());
        (first != SEVERAL_RUNS && count > 0).then_some(first as usize..end)
    }

    /// The number of the zone's lines.
    #[inline(always)]
    pub(crate) fn count_lines(&self) -> usize {
        self.known_lines().1
    }

    /// The first of the zone's lines, or [`SEVERAL_RUNS`], and their number.
    #[inline(always)]
    fn known_lines(&self) -> (u32, usize) {
        let Some(State { lines, .. }) = self.bits_of_zone() else { return (SEVERAL_RUNS, 0) };
        let found = match lines.load(Ordering::Relaxed) {
            0 => self.find_lines(lines),
            found => found,
        };
        (found as u32, (found >> u32::BITS) as usize)
    }

    #[cold]
    #[inline(never)]
    fn find_lines(&self, found: &AtomicU64) -> u64 {
        let count = self.runs_of_lines().map(|run| run.len()).sum::<usize>() as u64;
        let first = self.runs_of_lines().next().filter(|run| run.len() as u64 == count);
        let first = first.map_or(SEVERAL_RUNS, |run| run.start as u32);
        found.store(count << u32::BITS | u64::from(first), Ordering::Relaxed);
        count << u32::BITS | u64::from(first)
    }

    /// The ordinary type of a line's pageblock, if all of its memory is this zone's and its frames need no tags.
    pub(crate) fn type_of_line(&self, line: usize) -> Option<MigrateType> {
        let place = line << self.free_bits().line_order().0;
        let (list_type, zone) = self.blocks.lasting_at(place)?;
        (zone == self.id && self.untagged_zone_at(place) == Some(self.id)).then_some(list_type)
    }

    /// Whether the free frames of the line around a place have no tags for certain.
    #[inline(always)]
    fn is_line_clean(&self, place: usize) -> bool {
        let tables = &self.tables.mechanisms.bits;
        tables.is_clean(place >> tables.bits.line_order().0)
    }

    /// Whether a block of that order becomes bits when it is freed, of a line whose free frames have no tags for certain.
    #[inline(always)]
    pub(crate) fn needs_no_tag(&self, place: usize, order: Order) -> bool {
        order <= self.free_bits().line_order() && self.is_line_clean(place)
    }

    /// Marks the pageblock of a line as being emptied: what is freed there becomes bits at once.
    pub(crate) fn begin_emptying(self, line: usize) {
        if self.blocks.begin_emptying_at(line << self.free_bits().line_order().0)
            && let Some(state) = self.bits_of_zone()
        {
            state.emptied.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Ends the emptying of a line's pageblock.
    pub(crate) fn end_emptying(self, line: usize) {
        if self.blocks.end_emptying_at(line << self.free_bits().line_order().0)
            && let Some(state) = self.bits_of_zone()
        {
            state.emptied.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Ends the emptying of all pageblocks.
    fn end_all_emptying(self) {
        if self.bits_of_zone().is_some_and(|state| state.emptied.load(Ordering::Relaxed) > 0) {
            self.lines().flatten().for_each(|line| self.end_emptying(line));
        }
    }

    /// Notes that a block of that order at a place has a tag and goes to the free lists, or that stays when the block is freed.
    #[inline(always)]
    pub(crate) fn note_tagged(&self, place: usize, order: Order) {
        let (tables, shift) = (&self.tables.mechanisms.bits, self.free_bits().line_order().0);
        if self.keeps_bits() {
            // No overflow where another process has written nonsense: no line has such a number.
            let last = place.saturating_add((1 << order.0) - 1);
            (place >> shift..=last >> shift).for_each(|line| tables.clear_clean(line));
        }
    }
}
