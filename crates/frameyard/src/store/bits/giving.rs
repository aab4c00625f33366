//! Giving: freed blocks become bits, either when a per-CPU list overflows or at once.

use crate::memmap::MapPlace;
use crate::page::Tag;
use crate::platform::Platform;
use crate::store::batch::Batch;
use crate::store::bits::bitmap::{Bits, LARGEST_LINE};
use crate::store::bits::{collect_line, listed_type, takes_blocks};
use crate::store::buddy::pagewise;
use crate::sync::fence_in_models;
use crate::units::{CpuId, Order, PageCount, PfnRange};
use crate::zone::checks::PageChecks;
use crate::zone::view::{LockedZone, ZoneView};

/// The frames of a range that are whole lines.
fn whole_lines<P: Platform>(view: ZoneView<'_, P>, range: PfnRange) -> PfnRange {
    let order = view.free_bits().line_order();
    let start = range.start.align_up(order).unwrap_or(range.end).min(range.end);
    PfnRange::new(start, PageCount((range.end - start).0 >> order.0 << order.0))
}

/// Whether [`put_initialised`] may set bits of a range.
pub(crate) fn puts_initialised<P: Platform>(view: ZoneView<'_, P>, range: PfnRange) -> bool {
    view.keeps_bits() && view.checks == PageChecks::None && !whole_lines(view, range).is_empty()
}

/// Sets the bits of the first run of whole lines in a range of memory that no request has had yet, where these lines need not go to the free
/// lists. Returns its frames.
pub(crate) fn put_initialised<P: Platform>(view: ZoneView<'_, P>, range: PfnRange) -> PfnRange {
    if !puts_initialised(view, range) {
        return PfnRange { start: range.end, ..range };
    }
    let (bits, tables, order) = (view.free_bits(), &view.tables.mechanisms.bits, view.free_bits().line_order());
    let whole = whole_lines(view, range);
    let frames = |lines: usize| PageCount((lines as u64) << order.0);
    let lines = || view.map.numbering().blocks_of(whole, order).flatten().map(|line| line as usize);
    let type_of = |line| Some((line, view.type_of_line(line)?));
    lines().for_each(|line| tables.note_one_zone(line));
    let skipped = lines().take_while(|line| type_of(*line).is_none()).count();
    let count = lines().skip(skipped).map_while(type_of).count();
    let put = PfnRange::new(whole.start + frames(skipped), frames(count));
    // Before the bits are set: a count that falls below zero would look like a shortage.
    view.count_bits(CpuId(0), put.count().0);
    for line in lines().skip(skipped).take(count) {
        tables.set_clean(line);
        // A pageblock that was isolated meanwhile has no type: `settle_put` returns its frames to the free lists.
        let freed = bits.free_whole(view.platform, (line, listed_type(view)(line)));
        settle_put(view, line, freed.is_ok());
    }
    put
}

/// Frees a block past the lists, if its pageblock is being emptied. `false` otherwise, and as for [`put`].
#[inline(always)]
pub(crate) fn put_direct<P: Platform>(view: ZoneView<'_, P>, cpu: CpuId, place: usize, order: Order) -> bool {
    let bits = view.free_bits();
    if order >= bits.line_order() || !view.blocks.is_emptying_at(place) || !takes_blocks(view, order) {
        return false;
    }
    if !view.is_line_clean(place) && !clear_tag(view, view.map.checked(place as u32)) {
        return false;
    }
    // Before the bits are set: a count that falls below zero would look like a shortage.
    view.count_direct(cpu, order);
    // Single frames of usual lines get code of their own, in which the orders are constants.
    let freed = match (bits.line_order(), order) {
        (LARGEST_LINE, Order::ZERO) => bits.of_largest_lines().free(view.platform, place, Order::ZERO),
        _ => bits.free(view.platform, place, order),
    };
    settle_put(view, place >> bits.line_order().0, freed.is_ok());
    true
}

/// Sets the bits of a block that the caller owns, or lists the lines that it consists of as whole. `false` if it must go to the free lists:
/// a pageblock of it is isolated or of another kind, or frames need tags there.
#[inline]
pub(crate) fn put<P: Platform>(view: ZoneView<'_, P>, cpu: CpuId, place: usize, order: Order) -> bool {
    let (bits, line_order) = (view.free_bits(), view.free_bits().line_order());
    let first = place >> line_order.0;
    let lines = first..first + (1 << order.0.saturating_sub(line_order.0));
    if lines.clone().any(|line| view.type_of_line(line).is_none()) {
        return false;
    }
    if !view.is_line_clean(place) && !clear_tag(view, view.map.checked(place as u32)) {
        return false;
    }
    // Before the bits are set: a count that falls below zero would look like a shortage.
    view.count_bits(cpu, order.pages().0);
    let freed = if order < line_order {
        bits.free(view.platform, place, order)
    } else {
        lines.clone().for_each(|line| view.tables.mechanisms.bits.set_clean(line));
        bits.free_several_whole(view.platform, lines.clone().map(|line| (line, listed_type(view)(line)))).1
    };
    lines.for_each(|line| settle_put(view, line, freed.is_ok()));
    true
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

/// How many blocks ahead a line of bits is fetched: frames that were freed one by one lie anywhere.
const AHEAD: usize = 8;

/// Gives back blocks of a list. Those that must go to the free lists take the zone lock.
#[inline(never)]
pub(crate) fn give_back<'a, P: Platform>(
    locked: &mut Option<LockedZone<'a, P>>,
    view: ZoneView<'a, P>,
    cpu: CpuId,
    batch: &Batch,
    order: Order,
) {
    if !takes_blocks(view, order) {
        return pagewise::give_back(locked, view, cpu, batch, order);
    }
    let bits = view.free_bits();
    let mut rest = &batch[..];
    let mut put_frames = 0;
    while !rest.is_empty() {
        // Usual lines, and single frames, get code of their own, in which the orders are constants.
        let count = match (bits.line_order(), order) {
            (LARGEST_LINE, Order::ZERO) => put_some(view, &bits.of_largest_lines(), rest, Order::ZERO),
            (LARGEST_LINE, _) => put_some(view, &bits.of_largest_lines(), rest, order),
            _ => put_some(view, bits, rest, order),
        };
        put_frames += (count as u64) << order.0;
        let Some((first, others)) = rest[count..].split_first() else { break };
        rest = others;
        if !put(view, cpu, *first as usize, order)
            && let Some(locked) = view.lock_unless(locked, cpu)
        {
            locked.count_moved(order.pages());
            locked.free_by_type(view.map.checked(*first), order);
        }
    }
    view.count_bits(cpu, put_frames);
}

/// Frees whole lines, up to the first one that needs more than that. Returns their number.
fn put_lines<P: Platform>(view: ZoneView<'_, P>, bits: &Bits, lines: &[u32]) -> usize {
    let number = |place: &u32| *place as usize >> bits.line_order().0;
    let ordinary = lines.iter().map_while(|place| {
        let (list_type, zone) = view.blocks.lasting_at(*place as usize)?;
        (zone == view.id && view.is_line_clean(*place as usize)).then(|| (number(place), list_type))
    });
    let (count, freed) = bits.free_several_whole(view.platform, ordinary);
    for (at, line) in lines[..count].iter().map(number).enumerate() {
        settle_put(view, line, at > 0 || freed.is_ok());
    }
    count
}

/// Sets the bits of blocks, up to the first one that needs more than that. Returns their number.
#[inline(always)]
fn put_some<P: Platform>(view: ZoneView<'_, P>, bits: &Bits, blocks: &[u32], order: Order) -> usize {
    if order >= bits.line_order() {
        return if order == bits.line_order() { put_lines(view, bits, blocks) } else { 0 };
    }
    let mut at = 0;
    while let Some(block) = blocks.get(at) {
        let place = *block as usize;
        let line = place >> bits.line_order().0;
        if let Some(ahead) = blocks.get(at + AHEAD) {
            bits.prefetch(view.platform, *ahead as usize);
        }
        let Some((list_type, zone)) = view.blocks.lasting_at(place) else { break };
        if zone != view.id || !view.tables.mechanisms.bits.is_clean(line) {
            break;
        }
        // As many blocks as a line has, all of one line, are that line.
        let of_line = 1 << (bits.line_order().0 - order.0);
        let is_of_line = |block: &u32| *block as usize >> bits.line_order().0 == line;
        let (count, freed) = if blocks.get(at + of_line - 1).is_some_and(is_of_line)
            && blocks[at..at + of_line].iter().all(is_of_line)
        {
            (of_line, bits.free_whole(view.platform, (line, list_type)))
        } else {
            bits.free_some(view.platform, &blocks[at..], order)
        };
        settle_put(view, line, freed.is_ok());
        at += count;
    }
    at
}
