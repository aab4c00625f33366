//! Giving: what is freed becomes bits, on the way from an overflowing list or at once.

use super::counting::FREED;
use super::{collect_line, emptying};
use crate::memmap::MapPlace;
use crate::page::Tag;
use crate::platform::Platform;
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

/// Frees a block that the caller owns past the lists, in a pageblock of an ordinary type. `false` as for [`put`].
#[inline(always)]
pub(in crate::zone::transfer) fn put_direct<P: Platform>(
    view: ZoneView<'_, P>,
    cpu: CpuId,
    place: usize,
    order: Order,
    list_type: MigrateType,
) -> bool {
    if !view.is_line_clean(place) && !clear_tag(view, view.map.checked(place as u32)) {
        return false;
    }
    view.count_direct(cpu, order, FREED);
    let freed = view.free_bits().free(view.platform, place, order, list_type);
    settle_put(view, place >> view.free_bits().line_order().0, freed.is_ok());
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

/// Gives back blocks of a list. Those that must go to the free lists take the zone lock.
#[inline(never)]
pub(in crate::zone::transfer) fn give_back<'a, P: Platform>(
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
        mask |= ones << (block & ((1 << shift) - 1));
        count += 1;
    }
    let place = (word << shift) as usize;
    let freed = bits.free_in_word(view.platform, place, mask, list_type);
    settle_put(view, place >> bits.line_order().0, freed.is_ok());
    count
}
