//! Giving: what is freed becomes bits, on the way from an overflowing list or at once.

use super::{collect_line, emptying, takes_blocks};
use crate::memmap::MapPlace;
use crate::page::Tag;
use crate::platform::Platform;
use crate::store::bits::{Bits, LARGEST_LINE};
use crate::sync::fence_in_models;
use crate::units::{CpuId, MigrateType, Order};
use crate::zone::batch::Batch;
use crate::zone::checks::PageChecks;
use crate::zone::transfer::pagewise;
use crate::zone::view::{LockedZone, ZoneView};

/// Sets the bits of a block of whole lines that no request has had yet; whether it did. It goes to the free lists otherwise.
pub(in crate::zone::transfer) fn put_initialised<P: Platform>(
    view: ZoneView<'_, P>,
    place: usize,
    order: Order,
) -> bool {
    let line_order = view.free_bits().line_order();
    if order < line_order || !view.keeps_bits() || view.checks != PageChecks::None {
        return false;
    }
    let lines = place >> line_order.0..(place + (1 << order.0)) >> line_order.0;
    lines.clone().for_each(|line| view.tables.mechanisms.bits.note_one_zone(line));
    if lines.clone().any(|line| view.type_of_line(line).is_none()) {
        return false;
    }
    view.count_bits(CpuId(0), order.pages().0);
    for line in lines {
        let Some(list_type) = view.type_of_line(line) else { continue };
        view.tables.mechanisms.bits.set_clean(line);
        _ = view.free_bits().free_whole(view.platform, line, list_type);
    }
    true
}

/// Frees a block past the lists, if its pageblock is being emptied. `false` otherwise, and as for [`put`].
#[inline(always)]
pub(in crate::zone::transfer) fn put_direct<P: Platform>(
    view: ZoneView<'_, P>,
    cpu: CpuId,
    place: usize,
    order: Order,
    list_type: MigrateType,
) -> bool {
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
        (LARGEST_LINE, Order::ZERO) => bits.of_largest_lines().free(view.platform, place, Order::ZERO, list_type),
        _ => bits.free(view.platform, place, order, list_type),
    };
    settle_put(view, place >> bits.line_order().0, freed.is_ok());
    true
}

/// Sets the bits of a block that the caller owns. `false` if it must go to the free lists: its pageblock is isolated or of another kind, or
/// frames need tags there.
#[inline]
pub(in crate::zone::transfer) fn put<P: Platform>(
    view: ZoneView<'_, P>,
    cpu: CpuId,
    place: usize,
    order: Order,
) -> bool {
    let bits = view.free_bits();
    let Some((list_type, zone)) = view.blocks.lasting_at(place) else { return false };
    if zone != view.id || order > bits.line_order() {
        return false;
    }
    if !view.is_line_clean(place) && !clear_tag(view, view.map.checked(place as u32)) {
        return false;
    }
    // Before the bits are set: a count that falls below zero would look like a shortage.
    view.count_bits(cpu, order.pages().0);
    let line = place >> bits.line_order().0;
    let freed = if order == bits.line_order() {
        view.tables.mechanisms.bits.set_clean(line);
        bits.free_whole(view.platform, line, list_type)
    } else {
        bits.free(view.platform, place, order, list_type)
    };
    settle_put(view, line, freed.is_ok());
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
pub(in crate::zone::transfer) fn give_back<'a, P: Platform>(
    locked: &mut Option<LockedZone<'a, P>>,
    view: ZoneView<'a, P>,
    cpu: CpuId,
    batch: &Batch,
    order: Order,
) {
    if !takes_blocks(view, order) {
        return pagewise::give_back(locked, view, cpu, batch, order);
    }
    emptying::step(view, cpu, batch.len() << order.0);
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

/// Sets the bits of blocks, up to the first one that needs more than that. Returns their number.
#[inline(always)]
fn put_some<P: Platform>(view: ZoneView<'_, P>, bits: &Bits, blocks: &[u32], order: Order) -> usize {
    let mut at = 0;
    while let Some(block) = blocks.get(at).filter(|_| order <= bits.line_order()) {
        let place = *block as usize;
        let line = place >> bits.line_order().0;
        if let Some(ahead) = blocks.get(at + AHEAD) {
            bits.prefetch(view.platform, *ahead as usize);
        }
        let Some((list_type, zone)) = view.blocks.lasting_at(place) else { break };
        if zone != view.id || !view.tables.mechanisms.bits.is_clean(line) {
            break;
        }
        let (count, freed) = if order == bits.line_order() {
            (1, bits.free_whole(view.platform, line, list_type))
        } else {
            bits.free_some(view.platform, &blocks[at..], order, list_type)
        };
        settle_put(view, line, freed.is_ok());
        at += count;
    }
    at
}
