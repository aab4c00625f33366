//! Collecting: moving frames from the bits to the free lists, one line in each hold of the zone lock.

use crate::memmap::MapBlock;
use crate::page::Tag;
use crate::platform::Platform;
use crate::store::bits::take_whole;
use crate::sync::{Ordering, fence};
use crate::units::{CpuId, MigrateType, Order, Pfn, PfnRange};
use crate::zone::view::ZoneView;

/// Returns all frames to the free lists. A drain of another CPU may add some meanwhile.
pub(in crate::store) fn collect<P: Platform>(view: ZoneView<'_, P>) {
    view.end_all_emptying();
    if view.bits_pages().0 > 0 {
        view.lines().flatten().for_each(|line| collect_line(view, line));
    }
}

/// Returns the frames of a line to the free lists.
#[cold]
pub(crate) fn collect_line<P: Platform>(view: ZoneView<'_, P>, line: usize) {
    let bits = view.free_bits();
    // Sequentially consistent: pairs with `is_still_ordinary_at`.
    fence(Ordering::SeqCst);
    if bits.line_words_racy(line).all(|word| word == 0) {
        return;
    }
    let Ok(mut locked) = view.lock() else { return };
    let first = (line << bits.line_order().0) as u32;
    if view.blocks.zone_at(first as usize) != Some(view.id) {
        return;
    }
    view.note_tagged(first as usize, Order::ZERO);
    // The runs of all words, so that a whole line returns as one block.
    let (mut frames, mut start, mut length) = (0, first, 0);
    let mut free = |start: u32, length: usize| {
        for MapBlock { head, order } in view.blocks_at(start, length, bits.line_order()) {
            for inner in 0..order.pages().0 as u32 {
                view.page(head.part(order, inner)).set_tag(Tag::INTERIOR);
            }
            locked.free_by_type(head, order);
        }
    };
    if bits.unpack(view.platform, line) {
        length = bits.line_order().pages().0 as usize;
        frames = length as u64;
    }
    for at in 0..bits.words_of_line() {
        let mut taken = bits.take_word(view.platform, line, at);
        let word = first + ((at as u32) << bits.word_order().0);
        while taken != 0 {
            let run = word + taken.trailing_zeros();
            let count = (taken >> taken.trailing_zeros()).trailing_ones() as usize;
            taken &= !(u64::MAX >> (u64::BITS as usize - count) << (run - word));
            if start + length as u32 != run {
                free(start, length);
                (start, length) = (run, 0);
            }
            length += count;
            frames += count as u64;
        }
    }
    free(start, length);
    drop(locked);
    view.count_bits(CpuId(0), frames.wrapping_neg());
    if let Some(state) = view.bits_of_zone() {
        state.collected.fetch_add(frames, Ordering::Relaxed);
    }
}

/// Returns the frames of the pageblock around a frame to the free lists.
pub(crate) fn collect_around<P: Platform>(view: ZoneView<'_, P>, pfn: Pfn) {
    let lines = view
        .map
        .numbering()
        .blocks_of(PfnRange::new(view.blocks.start_of(pfn), view.blocks.pages()), view.free_bits().line_order());
    lines.flatten().for_each(|line| collect_line(view, line as usize));
}

/// Returns whole lines of all types to the free lists, where they may become larger blocks; whether there were any.
pub(crate) fn give_up_whole<P: Platform>(view: ZoneView<'_, P>, enough: impl Fn() -> bool) -> bool {
    let (bits, mut any) = (view.free_bits(), false);
    for list_type in MigrateType::ALL.into_iter().take(MigrateType::PER_CPU) {
        let take = || {
            let listed = view.lines().find_map(|lines| {
                let start = lines.start;
                take_whole(view, list_type, (lines, start))
            });
            listed.or_else(|| view.lines().find_map(|lines| bits.take_reserved_whole(view.platform, list_type, lines)))
        };
        while !enough()
            && let Some(line) = take()
        {
            any = true;
            let order = bits.line_order();
            view.note_tagged(line << order.0, Order::ZERO);
            view.count_bits(CpuId(0), order.pages().0.wrapping_neg());
            if let Ok(mut locked) = view.lock() {
                locked.free_by_type(view.map.checked((line << order.0) as u32), order);
            }
        }
    }
    any
}

/// Returns whole lines to the free lists; all other free frames too if blocks of that order are smaller than a line.
pub(crate) fn collect_at_least<P: Platform>(view: ZoneView<'_, P>, order: Order) {
    if order < view.free_bits().line_order() {
        collect(view);
    } else if view.bits_pages_racy().0 > 0 {
        give_up_whole(view, || false);
    }
}

/// Returns the frames of lines of which some may be on the free lists, where they merge, until there are `enough`. Looks at that many lines at
/// most.
pub(in crate::store) fn collect_split<P: Platform>(view: ZoneView<'_, P>, most: usize, enough: impl Fn() -> bool) {
    if view.bits_pages_racy().0 == 0 {
        return;
    }
    let lines = view.lines().flatten().filter(|line| !view.tables.mechanisms.bits.is_clean(*line));
    lines.take(most).take_while(|_| !enough()).for_each(|line| collect_line(view, line));
}

/// Returns what serves a request of that order and type to the free lists; whether a refill or the free lists have something now.
#[cold]
pub(crate) fn collect_for<P: Platform>(view: ZoneView<'_, P>, order: Order, migrate_type: MigrateType) -> bool {
    if view.bits_pages_racy().0 == 0 {
        return false;
    }
    if order <= view.free_bits().line_order() {
        return true;
    }
    give_up_whole(view, || view.zone.has_block_of_type_racy(order, migrate_type))
}
