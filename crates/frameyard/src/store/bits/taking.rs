//! Taking: a refill takes blocks from the line that its CPU has reserved, and reserves another when nothing there fits.
//! A refill that wants at least a line's worth of blocks takes whole lines, unless there are fuller lines that fit.

use crate::page::{FrameState, Tag};
use crate::platform::{Access, Platform};
use crate::store::batch::{BATCH, Batch};
use crate::store::bits::bitmap::{Bits, LARGEST_LINE, Slot};
use crate::store::bits::{State, collect_line, gives_blocks, listed_type, slot};
use crate::sync::Ordering;
use crate::units::{CpuId, MigrateType, Order, PageCount, Pfn};
use crate::zone::fixed_vec::FixedVec;
use crate::zone::request::BlockRequest;
use crate::zone::view::ZoneView;
use core::ops::Range;

/// The lines that one hold of the zone lock supplies, at most.
const SUPPLY: usize = if cfg!(loom) { 1 } else { 32 };

/// How many lines a request looks at that have changed their type, or that other processes write to, before it gives up.
const MOST_LINES: u32 = 1 << 10;

/// A search for a line.
#[derive(Clone, Copy)]
pub(crate) struct Search {
    pub(crate) cpu: CpuId,
    /// The line shall have a free block of this order.
    pub(crate) order: Order,
    pub(crate) list_type: MigrateType,
    /// The line that the CPU has just left, because it has no such block.
    pub(crate) left: Option<usize>,
}

/// Among which lines of a zone a refill searches. What choices there are is up to the [placement](crate::placement).
pub(crate) trait Choice: Copy {
    /// These lines, run by run. Of the first run with a line that serves, the refill takes the fullest one; a run may be a single line.
    fn lines<P: Platform>(self, view: ZoneView<'_, P>, search: Search) -> impl Iterator<Item = Range<usize>>;
}

/// A refill, as far as it takes from the bits.
pub(crate) struct Taking<'v, P: Platform, C> {
    pub(crate) view: ZoneView<'v, P>,
    pub(crate) cpu: CpuId,
    pub(crate) order: Order,
    pub(crate) wanted: usize,
    /// Takes single frames by the word, and has enough with any.
    pub(crate) by_word: bool,
    pub(crate) among: C,
    pub(crate) batch: &'v mut Batch,
}

impl<'v, P: Platform, C: Choice> Taking<'v, P, C> {
    pub(crate) fn new(
        view: ZoneView<'v, P>,
        cpu: CpuId,
        order: Order,
        (wanted, room): (usize, usize),
        (among, batch): (C, &'v mut Batch),
    ) -> Self {
        let word = 1 << view.free_bits().word_order().0;
        // Near the watermarks the zone may not be able to spare a word.
        let by_word = order == Order::ZERO && room >= word && view.may_take_own_racy();
        let wanted = if by_word { 1 } else { wanted };
        Self { view, cpu, order, wanted, by_word, among, batch }
    }

    fn has_enough(&self) -> bool {
        self.batch.len() >= self.wanted.min(BATCH)
    }

    /// Takes what is wanted of a line, as far as it has it. Whether the caller has enough.
    fn take_from(&mut self, line: usize) -> bool {
        // Usual lines get code of their own, in which their order is a constant.
        match self.view.free_bits() {
            bits if bits.line_order() == LARGEST_LINE => self.take_bits(&bits.of_largest_lines(), line),
            bits => self.take_bits(bits, line),
        }
    }

    #[inline(always)]
    fn take_bits(&mut self, bits: &Bits, line: usize) -> bool {
        let (platform, before) = (self.view.platform, self.batch.len());
        if self.by_word {
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
                && let Some(place) = bits.claim(platform, line, self.order)
            {
                self.batch.push(place as u32);
            }
        }
        self.settle_taken(line, before)
    }

    /// Counts what was taken of a line, behind the first blocks of the batch. Whether the caller has enough.
    #[inline(always)]
    fn settle_taken(&mut self, line: usize, before: usize) -> bool {
        let taken = (self.batch.len() - before) as u64;
        if taken > 0 {
            self.view.count_bits(self.cpu, (taken << self.order.0).wrapping_neg());
            if self.view.blocks.lasting_at(line << self.view.free_bits().line_order().0).is_none() {
                self.give_away(before);
            }
        }
        self.has_enough()
    }

    /// Whether it wants at least all blocks of a line.
    fn wants_a_line(&self) -> bool {
        let left = self.wanted.min(BATCH).saturating_sub(self.batch.len());
        left << self.order.0 >= 1 << self.view.free_bits().line_order().0
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

    fn slot(&self, list_type: MigrateType) -> Option<&'v Slot> {
        self.view.bits_of_cpu(self.cpu).map(|cpu| &cpu.lines[slot(self.order, list_type)])
    }

    /// Takes blocks of the line that the CPU has reserved. Whether it has enough then.
    pub(crate) fn take_own(&mut self, list_type: MigrateType) -> bool {
        let line = self.slot(list_type).and_then(Slot::line);
        line.is_some_and(|line| self.take_from(line))
    }

    /// Takes whole lines while the batch has room for one.
    fn take_lines(&mut self, list_type: MigrateType) {
        take_lines(self.view, (self.cpu, self.order, list_type), self.wanted, (self.among, &mut *self.batch));
    }

    /// Reserves further lines, up to that many, and takes blocks of these. Takes whole lines for a batch of that size, unless fuller ones fit.
    pub(crate) fn take_further(&mut self, list_type: MigrateType, most: u32) {
        let (view, of) = (self.view, (self.order, list_type));
        let Some(slot) = self.slot(list_type) else { return };
        for _ in 0..most {
            let wants_a_line = self.wants_a_line();
            let mut change = change_line(view, (self.cpu, slot), of, (self.among, wants_a_line));
            if change.is_none() && wants_a_line {
                let before = self.batch.len();
                self.take_lines(list_type);
                if self.has_enough() {
                    return;
                }
                if self.batch.len() > before {
                    continue;
                }
                // The search for whole lines may have listed one that fits.
                change = change_line(view, (self.cpu, slot), of, (self.among, false));
            }
            let has_enough = match change {
                None => return,
                Some(Change::Kept) => self.take_own(list_type),
                Some(Change::Once(line)) => {
                    let has_enough = self.take_from(line);
                    leave(view, line, list_type);
                    has_enough
                }
            };
            if has_enough {
                return;
            }
        }
    }

    /// Takes blocks of the line that the CPU has reserved, and of lines that it reserves next.
    pub(crate) fn take_listed(&mut self, list_type: MigrateType) {
        if !self.take_own(list_type) {
            self.take_further(list_type, MOST_LINES);
        }
    }

    /// Takes blocks of lines of a type that other CPUs have reserved, or that are listed for another type than the one wanted.
    pub(crate) fn take_reserved(&mut self, list_type: MigrateType) {
        let view = self.view;
        for mut lines in view.lines() {
            while !self.has_enough()
                && let Some(line) = view.free_bits().next_reserved(view.platform, list_type, lines.clone())
            {
                self.take_from(line);
                lines.start = line + 1;
            }
        }
    }
}

/// What came of a change of the line of a slot.
enum Change {
    /// It is that of the slot now, or another thread on the same CPU has put one there.
    Kept,
    /// The CPUs keep as many lines as they may, or the zone is near its watermarks: the caller leaves this one after use.
    Once(usize),
}

/// Leaves the line of a CPU's slot and reserves another one of that type that has a block of that order; not a whole one if the caller wants those.
///
/// Needs no lock: see [`Slot`].
fn change_line<P: Platform>(
    view: ZoneView<'_, P>,
    (cpu, slot): (CpuId, &Slot),
    (order, list_type): (Order, MigrateType),
    (among, wants_whole): (impl Choice, bool),
) -> Option<Change> {
    let State { reserved, .. } = view.bits_of_zone()?;
    view.touch_bits(slot, Access::ReadModifyWrite);
    let last = slot.take();
    if let Some(line) = last {
        leave(view, line, list_type);
    }
    let Some(line) = reserve(view, Search { cpu, order, list_type, left: last }, (among, wants_whole)) else {
        if last.is_some() {
            reserved.fetch_sub(1, Ordering::Relaxed);
        }
        return None;
    };
    // The count changes only when a slot becomes empty or filled: all CPUs read it.
    let has_room = last.is_some() || (reserved.load(Ordering::Relaxed) as usize) < view.count_lines() / 8;
    match (last, has_room && has_plenty_racy(view)) {
        (None, false) => return Some(Change::Once(line)),
        (Some(_), false) => {
            reserved.fetch_sub(1, Ordering::Relaxed);
            return Some(Change::Once(line));
        }
        (None, true) => _ = reserved.fetch_add(1, Ordering::Relaxed),
        (Some(_), true) => {}
    }
    if !slot.put(line) {
        reserved.fetch_sub(1, Ordering::Relaxed);
        leave(view, line, list_type);
    }
    Some(Change::Kept)
}

/// Where among some lines a CPU begins to search. CPUs with neighbouring numbers begin far from each other, however many there are.
pub(crate) fn start_of(cpu: CpuId, lines: &Range<usize>) -> usize {
    // The golden ratio, as a fraction of 2³².
    lines.start + ((lines.len() as u64 * u64::from(cpu.0.wrapping_mul(0x9e37_79b9))) >> 32) as usize
}

/// Reserves a line of a type with a block of that order among some; not a whole one if the caller wants those.
pub(crate) fn reserve<P: Platform>(
    view: ZoneView<'_, P>,
    search: Search,
    (among, wants_whole): (impl Choice, bool),
) -> Option<usize> {
    let (bits, Search { order, list_type, .. }) = (view.free_bits(), search);
    // A refill that wants whole lines looks where such are.
    let place = Search { order: if wants_whole { bits.line_order() } else { order }, ..search };
    for _ in 0..MOST_LINES {
        let line = among.lines(view, place).find_map(|lines| {
            let among = (lines.clone(), start_of(search.cpu, &lines));
            if wants_whole {
                bits.reserve_partly_free(view.platform, (list_type, order), among)
            } else {
                bits.reserve(view.platform, (list_type, order), among, listed_type(view))
            }
        })?;
        if view.type_of_line(line) == Some(list_type) {
            view.end_emptying(line);
            return Some(line);
        }
        leave(view, line, list_type);
    }
    None
}

/// Ends the reservation of a line. If its pageblock has another type now, it is listed as such, or its frames go to the free lists.
pub(crate) fn leave<P: Platform>(view: ZoneView<'_, P>, line: usize, list_type: MigrateType) {
    match view.type_of_line(line) {
        Some(now) => view.free_bits().leave(view.platform, line, now),
        None => {
            view.free_bits().leave(view.platform, line, list_type);
            collect_line(view, line);
        }
    }
}

/// Whether movable requests take frames of contiguous memory areas (CMA) first: these are more than half of what is free, and no other request
/// can use them. As `LockedZone::own_lists`, for frames that are bits: CMA frames are on the free lists.
#[inline(always)]
pub(crate) fn prefers_cma_racy<P: Platform>(view: ZoneView<'_, P>) -> bool {
    let cma = view.zone.free_cma_racy();
    cma.0 > 0 && cma > PageCount((view.zone.free_pages_racy() + view.bits_pages_racy()).0 / 2)
}

/// Whether [`take_ready`](crate::placement::take_ready) may find something. Possibly stale.
#[inline(always)]
pub(crate) fn has_ready_racy<P: Platform>(
    view: ZoneView<'_, P>,
    cpu: CpuId,
    (order, list_type): (Order, MigrateType),
) -> bool {
    order < view.free_bits().line_order()
        && !(list_type == MigrateType::Movable && prefers_cma_racy(view))
        && view.may_take_own_racy()
        && (view.bits_of_cpu(cpu).is_some_and(|cpu| cpu.lines[slot(order, list_type)].line().is_some())
            || has_plenty_racy(view))
}

/// Whether a zone is so far above its watermarks that no request need compare one: it is above them without the lines that CPUs have
/// reserved, of which they take frames without a look at the count, and without another one.
pub(crate) fn has_plenty_racy<P: Platform>(view: ZoneView<'_, P>) -> bool {
    let Some(State { total, reserved, .. }) = view.bits_of_zone() else { return false };
    view.touch_bits(total.frames(), Access::Read);
    let reserved = (u64::from(reserved.load(Ordering::Relaxed)) + 1) << view.free_bits().line_order().0;
    view.bits_pages_racy() >= view.kept() + PageCount(view.most_off() + reserved)
}

/// Takes whole lines of a type, as blocks of an order, until a batch has what is `wanted` or less than a line is missing.
pub(crate) fn take_lines<P: Platform>(
    view: ZoneView<'_, P>,
    (cpu, order, list_type): (CpuId, Order, MigrateType),
    wanted: usize,
    (among, batch): (impl Choice, &mut Batch),
) {
    let (bits, mut taken) = (view.free_bits(), 0);
    let line_order = bits.line_order();
    let mut runs = among.lines(view, Search { cpu, order: line_order, list_type, left: None });
    let room = |batch: &Batch| wanted.min(BATCH).saturating_sub(batch.len()) >> (line_order.0 - order.0);
    while room(batch) > 0
        && let Some(lines) = runs.next()
    {
        let mut next = Some(start_of(cpu, &lines));
        // Bounded, where another process writes to the tables.
        for _ in 0..MOST_LINES {
            let Some(start) = next.take().filter(|_| room(batch) > 0) else { break };
            let most = room(batch);
            let take = |line: usize| {
                (next, taken) = (Some(line + 1), taken + line_order.pages().0);
                match view.type_of_line(line) {
                    Some(now) if now == list_type => {
                        view.end_emptying(line);
                        let heads = 0..1 << (line_order.0 - order.0);
                        heads.for_each(|at: usize| batch.push(((line << line_order.0) + (at << order.0)) as u32));
                    }
                    Some(now) => {
                        taken -= line_order.pages().0;
                        _ = bits.free_whole(view.platform, (line, now));
                        if view.type_of_line(line).is_none() {
                            collect_line(view, line);
                        }
                    }
                    None => give_line_away(view, line),
                }
            };
            bits.take_several_whole(view.platform, list_type, (lines.clone(), start), listed_type(view), (most, take));
        }
    }
    if taken > 0 {
        view.count_bits(cpu, taken.wrapping_neg());
    }
}

/// The order of the largest block that a request for that order may take from the bits: that of a line, unless it wants a larger one and there
/// is one.
pub(crate) fn largest_racy<P: Platform>(view: ZoneView<'_, P>, order: Order) -> Order {
    let (bits, line_order) = (view.free_bits(), view.free_bits().line_order());
    if order <= line_order {
        return line_order;
    }
    let count = order.0 - line_order.0;
    let has = |lines: Range<usize>| {
        let mut types = MigrateType::ALL.into_iter().take(MigrateType::PER_CPU);
        types.any(|list_type| bits.has_whole_run_racy(view.platform, list_type, lines.clone(), count))
    };
    if view.lines().any(has) { order } else { line_order }
}

/// Takes a block that is larger than a line: whole lines of a type side by side. The block has a tag then.
pub(crate) fn take_large<P: Platform>(
    view: ZoneView<'_, P>,
    cpu: CpuId,
    order: Order,
    list_type: MigrateType,
) -> Option<Pfn> {
    let (bits, line_order) = (view.free_bits(), view.free_bits().line_order());
    if order <= line_order || !gives_blocks(view, order) {
        return None;
    }
    let count = order.0 - line_order.0;
    let first = view.lines().find_map(|lines| bits.take_whole_run(view.platform, list_type, lines, count))?;
    let (lines, place) = (first..first + (1 << count), first << line_order.0);
    let head = view.map.checked(place as u32);
    view.count_bits(cpu, order.pages().0.wrapping_neg());
    if !view.map.pfn(head).is_aligned(order) || lines.clone().any(|line| view.type_of_line(line) != Some(list_type)) {
        lines.for_each(|line| give_line_away(view, line));
        return None;
    }
    lines.for_each(|line| view.end_emptying(line));
    view.note_tagged(place, order);
    view.page(head).set_tag(Tag::new(FrameState::Allocated, order, list_type, view.id));
    view.zone.events().count_direct_allocation(order);
    Some(view.map.pfn(head))
}

/// Gives the zone a line that the caller has taken, and that was isolated meanwhile: the isolation looks for it on the free lists.
#[cold]
fn give_line_away<P: Platform>(view: ZoneView<'_, P>, line: usize) {
    let order = view.free_bits().line_order();
    if let Ok(mut locked) = view.lock() {
        locked.free_by_type(view.map.checked((line << order.0) as u32), order);
    }
}

/// Adds a line that the caller has taken to a batch, unless it was isolated meanwhile. Its frames are no longer bits either way.
pub(crate) fn push_line<P: Platform>(view: ZoneView<'_, P>, cpu: CpuId, line: usize, batch: &mut Batch) {
    let order = view.free_bits().line_order();
    view.count_bits(cpu, order.pages().0.wrapping_neg());
    if view.type_of_line(line).is_some() {
        batch.push((line << order.0) as u32);
    } else {
        give_line_away(view, line);
    }
}

/// Takes blocks of a type off the free lists and sets their bits, those of a line or more first; whether there were any.
#[cold]
#[inline(never)]
pub(crate) fn supply<P: Platform>(view: ZoneView<'_, P>, request: BlockRequest, cpu: CpuId) -> bool {
    let line_order = view.free_bits().line_order();
    if !view.zone.has_block_of_type_racy(request.order, request.migrate_type) {
        return false;
    }
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
        if order == line_order {
            view.tables.mechanisms.bits.note_one_zone(place >> line_order.0);
        }
        if view.untagged_zone_at(place) != Some(view.id) || view.blocks.lasting_at(place).is_none() {
            // Where zones meet: back to the free lists.
            locked.free_by_type(view.map.checked(*block), order);
            continue;
        }
        view.count_bits(cpu, order.pages().0);
        if order == line_order {
            view.tables.mechanisms.bits.set_clean(place >> line_order.0);
            _ = view.free_bits().free_whole(view.platform, (place >> line_order.0, request.migrate_type));
        } else {
            _ = view.free_bits().free(view.platform, place, order);
        }
    }
    locked.count_moved(PageCount((blocks.len() as u64) << order.0));
    if let Some(state) = view.bits_of_zone() {
        crate::zone::exclusive::add_exclusive(&state.supplied, blocks.len() as u64);
    }
    !blocks.is_empty()
}
