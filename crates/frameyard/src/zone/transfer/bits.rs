//! Bits: free frames rest as bits of their pageblock ([`store::bits`](crate::store::bits)); the free lists are where whole pageblocks come
//! from and what everything returns to.
//!
//! # Transfers
//!
//! | event | action |
//! |---|---|
//! | a list of order 0 to 3 is empty | take frames of the line that the CPU has reserved for its type: single frames by the word |
//! | a block of order 4 to 8 is wanted | claim it in the CPU's line for larger blocks; no list in between |
//! | the line has nothing that fits | leave it, reserve the fullest that fits; if there is none, take whole pageblocks off the free lists |
//! | the type has nothing left | whole pageblocks of other types, then what `fallback` gives, then lines that other CPUs have reserved |
//! | a list overflows, or a block without a list is freed | set the bits |
//! | a frame of a pageblock that is being emptied is freed | set its bit, instead of putting it on a list ([`emptying`]) |
//! | compaction, isolation, contiguous ranges, a change of the policy | the frames return to the free lists ([`collecting`]) |
//!
//! # Tags
//!
//! A frame here has no tag: the rule for [untagged frames](crate::zone::untagged) says that it is free. A block that leaves for a list or a caller
//! gets none either; its byte in the allocation map has its order. So neither an allocation nor a free touches a page structure.
//!
//! Tags of blocks that came another way must not outlive them. A line is *clean* while no free frame in it can have a tag: it came whole from
//! the free lists, and nothing has been freed to those since. The end of an ownership in a clean line clears the tag, on the page that is at
//! hand then. A free into a line that is not clean looks at the page.
//!
//! # Counting equations
//!
//! - `pages` + Σ `change` over the zone's CPUs = Σ set bits of the zone's lines.
//! - `reserved` ≥ the lines that slots of CPUs name.

use super::exchange::RefillRequest;
use super::pagewise;
use super::table_sizes::TableSizes;
use crate::control::{ControlRegion, TablePlanner, TableSpan};
use crate::memmap::MapPlace;
use crate::page::{FrameState, Tag};
use crate::platform::{Access, LineKind, Platform, SharedLine};
use crate::store::bits::{Bits, BitsSpans, line_order};
use crate::sync::{AtomicU32, AtomicU64, Ordering, all_atomic, fence_in_models};
use crate::units::{CpuId, MigrateType, Order, PageCount};
use crate::zone::batch::{BATCH, Batch, SMALL_ORDERS};
use crate::zone::checks::PageChecks;
use crate::zone::fallback::fallbacks;
use crate::zone::fixed_vec::FixedVec;
use crate::zone::request::{BlockRequest, Fallback};
use crate::zone::view::{LockedZone, ZoneView};
use core::ops::Range;

mod collecting;
mod emptying;
mod statistics;
mod validate;

pub(super) use collecting::{collect, collect_around, collect_for, collect_line};
pub(super) use statistics::{COUNTERS, blocks_racy, count};
pub(super) use validate::validate;

/// The lines that a CPU has reserved in a zone: for single frames and for larger blocks, of each type.
const SLOTS: usize = 2 * MigrateType::PER_CPU;
/// How far a CPU's count may be off before it is added to the zone's.
const CHANGE: u64 = 256;
/// The lines that one hold of the zone lock supplies, at most.
const SUPPLY: usize = if cfg!(loom) { 1 } else { 32 };
/// How many lines a request looks at that have changed their type, or that neighbours write to, before it gives up.
const MOST_LINES: u32 = 1 << 10;

/// What a zone counts.
#[repr(C, align(64))]
#[derive(Default)]
pub(super) struct State {
    /// Free frames, without what CPUs have not added yet.
    pages: AtomicU64,
    /// The lines that CPUs have reserved.
    reserved: AtomicU32,
    /// Lines taken off the free lists.
    supplied: AtomicU64,
    /// Frames returned to the free lists.
    collected: AtomicU64,
    emptying: emptying::State,
}

all_atomic!(State { pages, reserved, supplied, collected, emptying });

/// The orders of blocks below that of a line.
const DIRECT: usize = 9;

/// What a CPU has in a zone.
#[repr(C, align(64))]
#[derive(Default)]
pub(super) struct CpuBits {
    /// The reserved lines by their number plus 1; 0: none. Changes under the lock of the CPU's lists.
    lines: [AtomicU32; SLOTS],
    /// By order, the blocks that the CPU took (low half) and freed past its lists, since they were last added to `direct_sum` and to the
    /// zone's count of frames.
    direct: [AtomicU64; DIRECT],
    /// Frames freed less frames taken by lists, not yet added to the zone's count. Wraps.
    change: AtomicU64,
    /// By order, the blocks taken and freed.
    direct_sum: [[AtomicU64; 2]; DIRECT],
}

all_atomic!(CpuBits { lines, direct, change, direct_sum });

/// A block taken, in [`CpuBits::direct`].
const TAKEN: u64 = 1;
/// A block freed.
const FREED: u64 = 1 << 32;

/// The blocks taken and freed in a word of [`CpuBits::direct`].
#[inline(always)]
const fn parts(word: u64) -> [u64; 2] {
    [word & (FREED - 1), word >> 32]
}

impl CpuBits {
    /// Frames freed less frames taken that are not in the zone's count.
    fn change(&self) -> u64 {
        let direct = self.direct.iter().zip(0..).map(|(word, order)| {
            let [taken, freed] = parts(word.load(Ordering::Relaxed));
            freed.wrapping_sub(taken) << order
        });
        direct.fold(self.change.load(Ordering::Relaxed), u64::wrapping_add)
    }
}

/// The blocks that a CPU took and freed past its lists, with their order. Possibly stale.
pub(super) fn direct_flow_racy<P: Platform>(
    view: ZoneView<'_, P>,
    cpu: CpuId,
) -> impl Iterator<Item = (Order, [u64; 2])> {
    let orders = (0u8..).map(Order);
    view.bits_of_cpu(cpu)
        .into_iter()
        .flat_map(move |cpu| {
            cpu.direct.iter().zip(&cpu.direct_sum).map(|(word, sum)| {
                let [taken, freed] = parts(word.load(Ordering::Relaxed));
                [taken.wrapping_add(sum[0].load(Ordering::Relaxed)), freed.wrapping_add(sum[1].load(Ordering::Relaxed))]
            })
        })
        .zip(orders)
        .map(|(counts, order)| (order, counts))
}

/// The tables.
#[derive(Clone, Copy)]
pub(super) struct Tables {
    bits: Bits,
    cpus: &'static [CpuBits],
    zones: &'static [State],
    /// A bit for each line: it is clean.
    clean: &'static [AtomicU64],
}

/// Where the tables lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spans {
    bits: BitsSpans,
    cpus: TableSpan,
    zones: TableSpan,
    clean: TableSpan,
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
    match planner.table::<AtomicU64>(lines(sizes).div_ceil(u64::BITS as usize)) {
        Some(clean) => Some(Spans { bits, cpus, zones, clean, pageblock_order: sizes.pageblock_order }),
        None => None,
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
            Some(Self { bits, cpus, zones, clean: region.table(spans.clean)? })
        }
    }

    /// Whether the tables have the lengths that a yard of that size needs.
    pub(super) fn fit(&self, sizes: &TableSizes) -> bool {
        self.bits.fits(pageblocks(sizes), sizes.pageblock_order)
            && self.cpus.len() == cpus(sizes) * sizes.zones
            && self.zones.len() == zones(sizes)
            && self.clean.len() == lines(sizes).div_ceil(u64::BITS as usize)
    }

    #[inline(always)]
    fn clean_bit(&self, line: usize) -> Option<(&'static AtomicU64, u64)> {
        Some((self.clean.get(line / u64::BITS as usize)?, 1 << (line % u64::BITS as usize)))
    }

    #[inline(always)]
    fn is_clean(&self, line: usize) -> bool {
        self.clean_bit(line).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }

    fn set_clean(&self, line: usize) {
        if let Some((word, bit)) = self.clean_bit(line) {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    fn clear_clean(&self, line: usize) {
        if let Some((word, bit)) = self.clean_bit(line).filter(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0) {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }
}

/// The slot of a CPU for blocks of an order and type.
const fn slot(order: Order, list_type: MigrateType) -> usize {
    2 * list_type as usize + (order.0 > 0) as usize
}

/// Whether blocks of an order move through the bits one by one, without a list.
pub(super) fn takes_blocks<P: Platform>(view: ZoneView<'_, P>, order: Order) -> bool {
    order.index() >= SMALL_ORDERS && order < view.free_bits().line_order() && view.checks == PageChecks::None
}

impl<'a, P: Platform> ZoneView<'a, P> {
    #[inline(always)]
    pub(super) fn free_bits(&self) -> &'a Bits {
        &self.tables.mechanisms.bits.bits
    }

    /// Whether free frames are bits in this yard.
    #[inline(always)]
    pub(super) fn keeps_bits(&self) -> bool {
        !self.tables.mechanisms.bits.zones.is_empty()
    }

    /// What the zone counts; `None` where free frames are not bits.
    #[inline(always)]
    fn bits_of_zone(&self) -> Option<&'a State> {
        self.tables.mechanisms.bits.zones.get(self.id.index())
    }

    #[inline(always)]
    fn bits_of_cpu(&self, cpu: CpuId) -> Option<&'a CpuBits> {
        let zones = self.all_counters.1;
        let table = self.tables.mechanisms.bits.cpus;
        // A CPU that the yard does not know is one of those that it knows.
        table.get(cpu.index() * zones + self.id.index()).or_else(|| table.get(self.id.index()))
    }

    #[inline(always)]
    fn touch_bits<T>(&self, word: &T, access: Access) {
        self.platform.touch_line(SharedLine::of(LineKind::Mechanism, word), access);
    }

    /// Counts frames that became free, or with a wrapped number were taken.
    #[inline(always)]
    fn count_bits(&self, cpu: CpuId, pages: u64) {
        let (Some(state), Some(of_cpu)) = (self.bits_of_zone(), self.bits_of_cpu(cpu)) else { return };
        self.touch_bits(&of_cpu.change, Access::ReadModifyWrite);
        let change = of_cpu.change.fetch_add(pages, Ordering::Relaxed).wrapping_add(pages);
        if change.wrapping_add(CHANGE) > 2 * CHANGE {
            self.touch_bits(&state.pages, Access::ReadModifyWrite);
            state.pages.fetch_add(of_cpu.change.swap(0, Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Counts a block that was taken or freed without a list: [`TAKEN`] or [`FREED`].
    #[inline(always)]
    fn count_direct(&self, cpu: CpuId, order: Order, what: u64) {
        let at = order.index();
        let Some((of_cpu, word)) = self.bits_of_cpu(cpu).and_then(|cpu| Some((cpu, cpu.direct.get(at)?))) else {
            return;
        };
        self.touch_bits(word, Access::ReadModifyWrite);
        let [taken, freed] = parts(word.fetch_add(what, Ordering::Relaxed).wrapping_add(what));
        if taken.abs_diff(freed) << order.0 > CHANGE || (taken | freed) >> 30 != 0 {
            self.add_direct(of_cpu, order);
        }
    }

    #[cold]
    #[inline(never)]
    fn add_direct(&self, of_cpu: &CpuBits, order: Order) {
        let at = order.index();
        let [taken, freed] = parts(of_cpu.direct[at].swap(0, Ordering::Relaxed));
        of_cpu.direct_sum[at][0].fetch_add(taken, Ordering::Relaxed);
        of_cpu.direct_sum[at][1].fetch_add(freed, Ordering::Relaxed);
        let Some(state) = self.bits_of_zone() else { return };
        self.touch_bits(&state.pages, Access::ReadModifyWrite);
        state.pages.fetch_add(freed.wrapping_sub(taken) << order.0, Ordering::Relaxed);
    }

    /// The free frames of the zone's lines, off by what CPUs have not added yet.
    pub(super) fn bits_pages_racy(&self) -> PageCount {
        let pages = self.bits_of_zone().map_or(0, |state| state.pages.load(Ordering::Relaxed));
        PageCount(pages.cast_signed().max(0).cast_unsigned())
    }

    /// The free frames of the zone's lines: nearly, where there are many, and exactly where there are few.
    pub(super) fn bits_pages_near(&self) -> PageCount {
        let racy = self.bits_pages_racy();
        let most_off = (DIRECT as u64 + 1) * CHANGE * (self.all_counters.0.len() as u64);
        if racy.0 > 4 * most_off { racy } else { self.bits_pages() }
    }

    /// The free frames of the zone's lines. Adds up what all CPUs have counted.
    pub(super) fn bits_pages(&self) -> PageCount {
        let zones = self.all_counters.1;
        let cpus = self.tables.mechanisms.bits.cpus.iter().skip(self.id.index()).step_by(zones.max(1));
        let changes = cpus.map(CpuBits::change).fold(0, u64::wrapping_add);
        let pages = self.bits_of_zone().map_or(0, |state| state.pages.load(Ordering::Relaxed)).wrapping_add(changes);
        PageCount(pages.cast_signed().max(0).cast_unsigned())
    }

    /// The lines that a zone may have frames in, run by run.
    pub(super) fn lines(self) -> impl Iterator<Item = Range<usize>> {
        let order = self.free_bits().line_order();
        self.map.numbering().blocks_of(self.span(), order).map(|lines| lines.start as usize..lines.end as usize)
    }

    /// The ordinary type of a line's pageblock, if all of its memory is this zone's and its frames need no tags.
    fn type_of_line(&self, line: usize) -> Option<MigrateType> {
        let place = line << self.free_bits().line_order().0;
        let (list_type, zone) = self.blocks.lasting_at(place)?;
        (zone == self.id && self.untagged_zone_at(place) == Some(self.id)).then_some(list_type)
    }

    /// Whether the free frames of the line around a place have no tags for certain.
    #[inline(always)]
    pub(crate) fn is_line_clean(&self, place: usize) -> bool {
        let tables = &self.tables.mechanisms.bits;
        tables.is_clean(place >> tables.bits.line_order().0)
    }

    /// Notes that a block of that order at a place has a tag and goes to the free lists, or that stays when the block is freed.
    #[inline(always)]
    pub(crate) fn note_tagged(&self, place: usize, order: Order) {
        let tables = &self.tables.mechanisms.bits;
        if order < tables.bits.line_order() {
            tables.clear_clean(place >> tables.bits.line_order().0);
        }
    }
}

/// A refill, as far as it takes from the bits.
struct Taking<'v, P: Platform> {
    view: ZoneView<'v, P>,
    cpu: CpuId,
    order: Order,
    wanted: usize,
    batch: Batch,
}

impl<P: Platform> Taking<'_, P> {
    fn has_enough(&self) -> bool {
        self.batch.len() >= self.wanted.min(BATCH)
    }

    /// Takes what is wanted of a line, as far as it has it. Whether the caller has enough.
    fn take_from(&mut self, line: usize, list_type: MigrateType) -> bool {
        let (bits, platform, before) = (self.view.free_bits(), self.view.platform, self.batch.len());
        if self.order == Order::ZERO {
            for at in 0..bits.words_of_line() {
                if self.has_enough() || self.batch.len() + (1 << bits.word_order().0) > BATCH && !self.batch.is_empty()
                {
                    break;
                }
                let mut taken = bits.take_word(platform, line, at);
                let first = ((line << bits.line_order().0) + (at << bits.word_order().0)) as u32;
                while taken != 0 {
                    self.batch.push(first + taken.trailing_zeros());
                    taken &= taken - 1;
                }
            }
        } else if self.order <= bits.word_order() {
            let most = self.wanted.min(BATCH) - before;
            bits.claim_many(platform, line, (self.order, most), |place| self.batch.push(place as u32));
        } else {
            while !self.has_enough()
                && let Some(place) = bits.claim(platform, line, self.order, list_type)
            {
                self.batch.push(place as u32);
            }
        }
        let taken = (self.batch.len() - before) as u64;
        if taken > 0 {
            self.view.count_bits(self.cpu, (taken << self.order.0).wrapping_neg());
            if self.view.blocks.lasting_at(line << bits.line_order().0).is_none() {
                self.give_away(before);
            }
        }
        self.has_enough()
    }

    /// Gives the zone what was taken of a pageblock that was isolated meanwhile: the isolation looks for it on the free lists.
    #[cold]
    fn give_away(&mut self, from: usize) {
        let Ok(mut locked) = self.view.lock() else { return };
        while self.batch.len() > from {
            let Some(block) = self.batch.pop() else { break };
            locked.free_by_type(locked.map.checked(block), self.order);
        }
    }

    /// Takes blocks of the line that the CPU has reserved, and of lines that it reserves next.
    fn take_own(&mut self, list_type: MigrateType) {
        let Some(slot) = self.view.bits_of_cpu(self.cpu).map(|cpu| &cpu.lines[slot(self.order, list_type)]) else {
            return;
        };
        self.view.touch_bits(slot, Access::Write);
        for _ in 0..MOST_LINES {
            if let Some(line) = (slot.load(Ordering::Relaxed) as usize).checked_sub(1) {
                if self.take_from(line, list_type) {
                    return;
                }
                slot.store(0, Ordering::Relaxed);
                if let Some(state) = self.view.bits_of_zone() {
                    state.reserved.fetch_sub(1, Ordering::Relaxed);
                }
                self.leave(line, list_type);
            }
            let Some(line) = self.reserve(list_type) else { return };
            if self.may_keep() {
                slot.store(line as u32 + 1, Ordering::Relaxed);
                continue;
            }
            let has_enough = self.take_from(line, list_type);
            self.leave(line, list_type);
            if has_enough {
                return;
            }
        }
    }

    /// Counts a line that the CPU keeps; whether it may. CPUs keep at most an eighth of the zone's lines.
    fn may_keep(&self) -> bool {
        let Some(State { reserved, .. }) = self.view.bits_of_zone() else { return false };
        let all = self.view.lines().map(|lines| lines.len()).sum::<usize>();
        let keeps = (reserved.load(Ordering::Relaxed) as usize) < all / 8;
        if keeps {
            reserved.fetch_add(1, Ordering::Relaxed);
        }
        keeps
    }

    /// Reserves a line of a type with a block of the wanted order.
    fn reserve(&self, list_type: MigrateType) -> Option<usize> {
        let (view, cpus) = (self.view, self.view.all_counters.0.len() / self.view.all_counters.1.max(1));
        for _ in 0..MOST_LINES {
            let line = view.lines().find_map(|lines| {
                let start = lines.start + lines.len() * self.cpu.index() / cpus.max(1);
                view.free_bits().reserve(view.platform, (list_type, self.order), lines, start)
            })?;
            if view.type_of_line(line) == Some(list_type) {
                emptying::end(view, line);
                return Some(line);
            }
            self.leave(line, list_type);
        }
        None
    }

    /// Ends the reservation of a line. If its pageblock has another type now, it is listed as such, or its frames go to the free lists.
    fn leave(&self, line: usize, list_type: MigrateType) {
        match self.view.type_of_line(line) {
            Some(now) => self.view.free_bits().leave(self.view.platform, line, now),
            None => {
                self.view.free_bits().leave(self.view.platform, line, list_type);
                collect_line(self.view, line);
            }
        }
    }

    /// Takes blocks of lines of a type that other CPUs have reserved, or that are listed for another type than the one wanted.
    fn take_reserved(&mut self, list_type: MigrateType) {
        let view = self.view;
        for mut lines in view.lines() {
            while !self.has_enough()
                && let Some(line) = view.free_bits().next_reserved(view.platform, list_type, lines.clone())
            {
                self.take_from(line, list_type);
                lines.start = line + 1;
            }
        }
    }

    /// Makes a whole line of another type one of this type; whether there was one.
    fn convert_whole(&self, list_type: MigrateType) -> bool {
        let view = self.view;
        fallbacks(list_type).into_iter().any(|other| {
            let taken = view.lines().find_map(|lines| {
                let start = lines.end;
                view.free_bits().take_whole(view.platform, other, lines, start)
            });
            let Some(line) = taken else { return false };
            let now = convert(view, line, list_type);
            _ = view.free_bits().free_whole(view.platform, line, now);
            now == list_type
        })
    }
}

/// Gives the pageblock of a whole line, which the caller has, a type. Returns the type that it has afterwards.
fn convert<P: Platform>(view: ZoneView<'_, P>, line: usize, list_type: MigrateType) -> MigrateType {
    let (start, order) =
        (view.map.numbering().block_start(line as u64, view.free_bits().line_order()), view.free_bits().line_order());
    if order == view.geometry.pageblock_order()
        && let Ok(mut locked) = view.lock()
        && view.type_of_line(line).is_some()
    {
        locked.set_types(start, order, list_type);
    }
    view.type_of_line(line).unwrap_or(list_type)
}

/// Whether a CPU has a line from which [`take_ready`] may take. Possibly stale.
#[inline(always)]
pub(super) fn has_ready_racy<P: Platform>(
    view: ZoneView<'_, P>,
    cpu: CpuId,
    (order, list_type): (Order, MigrateType),
) -> bool {
    view.bits_of_cpu(cpu).is_some_and(|cpu| cpu.lines[slot(order, list_type)].load(Ordering::Relaxed) != 0)
}

/// Takes blocks of the line that a CPU has reserved, if it has any.
#[inline]
pub(super) fn take_ready<P: Platform>(
    view: ZoneView<'_, P>,
    cpu: CpuId,
    (order, list_type): (Order, MigrateType),
    wanted: usize,
) -> Batch {
    let wanted = if order == Order::ZERO { 1 } else { wanted };
    let mut taking = Taking { view, cpu, order, wanted, batch: Batch::new() };
    let slot = view.bits_of_cpu(cpu).map(|cpu| &cpu.lines[slot(order, list_type)]);
    if let Some(line) = slot.and_then(|slot| (slot.load(Ordering::Relaxed) as usize).checked_sub(1)) {
        taking.take_from(line, list_type);
    }
    taking.batch
}

/// Fetches blocks for a list, or one block of an order without lists.
pub(super) fn fetch<P: Platform>(
    view: ZoneView<'_, P>,
    refill: RefillRequest<'_>,
    mut deliver: impl FnMut(&Batch),
) -> usize {
    let BlockRequest { order, migrate_type, fallback, .. } = refill.blocks;
    if order >= view.free_bits().line_order() {
        return fetch_whole(view, refill, deliver);
    }
    emptying::step(view);
    let wanted = if order == Order::ZERO { 1 } else { refill.wanted };
    let mut taking = Taking { view, cpu: refill.cpu, order, wanted, batch: Batch::new() };
    taking.take_own(migrate_type);
    if taking.batch.is_empty() && supply(view, refill.blocks, refill.cpu) {
        taking.take_own(migrate_type);
    }
    if taking.batch.is_empty() {
        taking.take_reserved(migrate_type);
    }
    if taking.batch.is_empty() && fallback != Fallback::AfterGrowth && taking.convert_whole(migrate_type) {
        taking.take_own(migrate_type);
    }
    if taking.batch.is_empty() {
        let got = pagewise::fetch(view, RefillRequest { wanted: 1, ..refill }, &mut deliver);
        if got > 0 || fallback != Fallback::Allowed {
            return got;
        }
        for other in fallbacks(migrate_type) {
            taking.wanted = 1;
            taking.take_own(other);
            if taking.batch.is_empty() {
                taking.take_reserved(other);
            }
        }
    }
    if !taking.batch.is_empty() {
        deliver(&taking.batch);
    }
    taking.batch.len()
}

/// Fetches blocks of the order of a line: whole lines, then blocks of the free lists.
fn fetch_whole<P: Platform>(
    view: ZoneView<'_, P>,
    refill: RefillRequest<'_>,
    mut deliver: impl FnMut(&Batch),
) -> usize {
    let BlockRequest { order, migrate_type, .. } = refill.blocks;
    let mut batch = Batch::new();
    if order == view.free_bits().line_order() {
        let cpus = view.all_counters.0.len() / view.all_counters.1.max(1);
        while batch.len() < refill.wanted.min(BATCH) {
            let taken = view.lines().find_map(|lines| {
                let start = lines.start + lines.len() * refill.cpu.index() / cpus.max(1);
                view.free_bits().take_whole(view.platform, migrate_type, lines, start)
            });
            let Some(line) = taken else { break };
            view.count_bits(refill.cpu, order.pages().0.wrapping_neg());
            let head = view.map.checked((line << order.0) as u32);
            view.note_tagged(head.index() as usize, Order::ZERO);
            view.page(head).set_tag(Tag::new(FrameState::PerCpu, order, migrate_type, view.id));
            if view.type_of_line(line).is_none() {
                if let Ok(mut locked) = view.lock() {
                    locked.free_by_type(head, order);
                }
                continue;
            }
            batch.push(head.index());
        }
    }
    if !batch.is_empty() {
        deliver(&batch);
        return batch.len();
    }
    pagewise::fetch(view, refill, deliver)
}

/// Takes blocks of a type off the free lists and sets their bits, those of a line or more first; whether there were any.
#[cold]
fn supply<P: Platform>(view: ZoneView<'_, P>, request: BlockRequest, cpu: CpuId) -> bool {
    let line_order = view.free_bits().line_order();
    let Some(mut locked) = view.lock_for(cpu) else { return false };
    if view.is_quiesced() {
        return false;
    }
    let free = locked.free_pages().0 >> line_order.0;
    let mut blocks: FixedVec<u32, SUPPLY> = FixedVec::new();
    let wanted = (free / 16).clamp(1, SUPPLY as u64) as usize;
    locked.take_many(line_order, request.migrate_type, wanted, |_, block| blocks.push(block.index()));
    let mut order = line_order;
    while blocks.is_empty() && order > request.order {
        order = Order(order.0 - 1);
        locked.take_many(order, request.migrate_type, SUPPLY, |_, block| blocks.push(block.index()));
    }
    for block in blocks.iter() {
        let place = *block as usize;
        view.page(view.map.checked(*block)).set_tag(Tag::INTERIOR);
        if view.untagged_zone_at(place) != Some(view.id) || view.blocks.lasting_at(place).is_none() {
            // Where zones meet: back to the free lists.
            locked.free_by_type(view.map.checked(*block), order);
            continue;
        }
        view.count_bits(cpu, order.pages().0);
        if order == line_order {
            view.tables.mechanisms.bits.set_clean(place >> line_order.0);
            _ = view.free_bits().free_whole(view.platform, place >> line_order.0, request.migrate_type);
        } else {
            _ = view.free_bits().free(view.platform, place, order, request.migrate_type);
        }
    }
    locked.count_moved(PageCount((blocks.len() as u64) << order.0));
    if let Some(state) = view.bits_of_zone() {
        crate::zone::exclusive::add_exclusive(&state.supplied, blocks.len() as u64);
    }
    !blocks.is_empty()
}

/// Claims a block of an order without lists in the line that the CPU has reserved. Returns its place.
///
/// Needs no lock: the one that clears the bits has the block, also where the reservation ends meanwhile. Compares no watermark, as frames of a
/// reserved line are few.
#[inline(always)]
pub(super) fn claim_direct<P: Platform>(
    view: ZoneView<'_, P>,
    cpu: CpuId,
    order: Order,
    list_type: MigrateType,
) -> Option<usize> {
    let line =
        (view.bits_of_cpu(cpu)?.lines[slot(order, list_type)].load(Ordering::Relaxed) as usize).checked_sub(1)?;
    let place = view.free_bits().claim(view.platform, line, order, list_type)?;
    view.count_direct(cpu, order, TAKEN);
    if view.blocks.lasting_at(place).is_some() {
        return Some(place);
    }
    if let Ok(mut locked) = view.lock() {
        locked.free_by_type(view.map.checked(place as u32), order);
    }
    None
}

/// Frees a block that the caller owns past the lists, in a pageblock of an ordinary type. `false` as for [`put`].
#[inline(always)]
pub(super) fn put_direct<P: Platform>(
    view: ZoneView<'_, P>,
    cpu: CpuId,
    place: usize,
    order: Order,
    list_type: MigrateType,
) -> bool {
    if !view.is_line_clean(place) && !clear_tag(view, view.map.checked(place as u32)) {
        return false;
    }
    assert_untagged(view, place, order);
    view.count_direct(cpu, order, FREED);
    let freed = view.free_bits().free(view.platform, place, order, list_type);
    settle_put(view, place >> view.free_bits().line_order().0, freed.is_ok());
    true
}

/// Sets the bits of a block that the caller owns. `false` if it must go to the free lists: its pageblock is isolated or of another kind, or
/// frames need tags there.
#[inline]
pub(super) fn put<P: Platform>(view: ZoneView<'_, P>, cpu: CpuId, place: usize, order: Order) -> bool {
    let bits = view.free_bits();
    let Some((list_type, zone)) = view.blocks.lasting_at(place) else { return false };
    if zone != view.id || order > bits.line_order() {
        return false;
    }
    if !view.is_line_clean(place) && !clear_tag(view, view.map.checked(place as u32)) {
        return false;
    }
    if order < bits.line_order() {
        assert_untagged(view, place, order);
    }
    // Before the bits are set: a count that falls below zero would look like a shortage.
    view.count_bits(cpu, order.pages().0);
    let line = place >> bits.line_order().0;
    let freed = if order == bits.line_order() {
        view.page(view.map.checked(place as u32)).set_tag(Tag::INTERIOR);
        view.tables.mechanisms.bits.set_clean(line);
        bits.free_whole(view.platform, line, list_type)
    } else {
        bits.free(view.platform, place, order, list_type)
    };
    settle_put(view, line, freed.is_ok());
    true
}

/// In a build with debug assertions: a block in a clean line has no tags.
#[inline(always)]
fn assert_untagged<P: Platform>(view: ZoneView<'_, P>, head: usize, order: Order) {
    if cfg!(debug_assertions) {
        let tag_of = |place: usize| view.page(view.map.checked(place as u32)).tag().without_seen();
        let tagged = (head..head + (1 << order.0)).find(|place| !tag_of(*place).is_untagged());
        assert_eq!(tagged.map(tag_of), None, "a frame of a clean line has a tag: place {tagged:?} of {head}, {order}");
    }
}

/// After bits were set: notes damage, and returns the frames of a pageblock that was isolated meanwhile to the free lists.
#[inline(always)]
fn settle_put<P: Platform>(view: ZoneView<'_, P>, line: usize, is_sound: bool) {
    if !is_sound {
        view.note_corrupt();
    }
    fence_in_models!(FreedUnfenced);
    if !view.blocks.is_still_ordinary_at(line << view.free_bits().line_order().0) {
        collect_line(view, line);
    }
}

/// Clears the tag of a block that the caller owns, in a line that may have tags. `false` where frames need tags.
#[cold]
#[inline(never)]
fn clear_tag<P: Platform>(view: ZoneView<'_, P>, head: MapPlace) -> bool {
    if view.untagged_zone_at(head.index() as usize) != Some(view.id) {
        return false;
    }
    let page = view.page(head);
    if !page.tag().is_untagged() {
        page.set_tag(Tag::INTERIOR);
    }
    true
}

/// Gives back blocks of a list. Those that must go to the free lists take the zone lock.
pub(super) fn give_back<'a, P: Platform>(
    locked: &mut Option<LockedZone<'a, P>>,
    view: ZoneView<'a, P>,
    cpu: CpuId,
    batch: &Batch,
    order: Order,
) {
    if view.is_quiesced() {
        return pagewise::give_back(locked, view, cpu, batch, order);
    }
    emptying::step(view);
    let mut rest = &batch[..];
    let mut put_frames = 0;
    while let Some((first, others)) = rest.split_first() {
        let place = *first as usize;
        if order <= view.free_bits().word_order()
            && order < view.free_bits().line_order()
            && view.is_line_clean(place)
            && let Some((list_type, zone)) = view.blocks.lasting_at(place)
            && zone == view.id
        {
            let count = put_neighbours(view, rest, order, list_type);
            put_frames += (count as u64) << order.0;
            rest = &rest[count..];
            continue;
        }
        rest = others;
        if !put(view, cpu, place, order)
            && let Some(locked) = view.lock_unless(locked, cpu)
        {
            locked.count_moved(order.pages());
            locked.free_by_type(view.map.checked(*first), order);
        }
    }
    view.count_bits(cpu, put_frames);
}

/// Sets the bits of the first blocks of a batch that lie in one word of a clean line. Returns their number.
#[inline(always)]
fn put_neighbours<P: Platform>(view: ZoneView<'_, P>, blocks: &[u32], order: Order, list_type: MigrateType) -> usize {
    let bits = view.free_bits();
    let shift = bits.word_order().0;
    let word = blocks[0] >> shift;
    let ones = u64::MAX >> (u64::BITS - (1 << order.0));
    let (mut mask, mut count) = (0u64, 0);
    for block in blocks.iter().take_while(|block| **block >> shift == word) {
        assert_untagged(view, *block as usize, order);
        mask |= ones << (block & ((1 << shift) - 1));
        count += 1;
    }
    let place = (word << shift) as usize;
    let freed = bits.free_in_word(view.platform, place, mask, list_type);
    settle_put(view, place >> bits.line_order().0, freed.is_ok());
    count
}
