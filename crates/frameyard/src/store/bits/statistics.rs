//! The counters of the store `bits`.

use crate::platform::Platform;
use crate::store::statistics::{counters, read};
use crate::units::{MigrateType, Order};
use crate::zone::view::ZoneView;

counters! { |view, counts, cpu|
    let of = if cpu.is_none() { view.bits_of_zone() } else { None };
    "bits_pages" Gauge of Zone "Page frames that are free as bits of their pageblock." = { let _ = of; view.bits_pages().0 };
    "bits_supplied" Counter of Zone "Blocks taken off the free lists into the bits." = read(&of.supplied);
    "bits_collected" Counter of Zone "Page frames returned from the bits to the free lists." = read(&of.collected);
}

/// The order of the largest free block that is bits, of any type. Lines that CPUs have reserved are left out. Possibly stale.
pub(in crate::store) fn largest_racy<P: Platform>(view: ZoneView<'_, P>) -> Option<Order> {
    let largest =
        |list_type| view.lines().filter_map(move |lines| view.free_bits().largest_run_racy(list_type, &lines)).max();
    MigrateType::ALL.into_iter().take(MigrateType::PER_CPU).filter_map(largest).max()
}

/// As [`blocks_racy`], of all types; 0 where free frames are not bits.
pub(in crate::store) fn all_blocks_racy<P: Platform>(view: ZoneView<'_, P>, order: Order) -> u64 {
    if view.keeps_bits() { blocks_racy(view, order, None) } else { 0 }
}

/// The aligned free blocks of an order, of one type or of all, as the buddy system would list them: each frame counts in the largest block that it is part
/// of. Those of at least the order of a line are whole lines. Reads all lines. Possibly stale.
pub(in crate::store) fn blocks_racy<P: Platform>(
    view: ZoneView<'_, P>,
    order: Order,
    migrate_type: Option<MigrateType>,
) -> u64 {
    let (bits, most) = (view.free_bits(), view.geometry.max_order());
    if order > most || view.bits_pages().0 == 0 {
        return 0;
    }
    let line_order = bits.line_order();
    let of_type = |line: &usize| {
        let of = view.blocks.lasting_at(*line << line_order.0);
        of.is_some_and(|(of, zone)| zone == view.id && migrate_type.is_none_or(|wanted| of == wanted))
    };
    if order < line_order {
        return view.lines().flatten().filter(of_type).map(|line| bits.blocks_racy(line, order)).sum();
    }
    let is_whole = |line: usize| of_type(&line) && bits.free_frames_racy(line) as u64 == line_order.pages().0;
    // The lines of the block of that order around one.
    let around = |line: usize, order: Order| {
        let count = 1 << (order.0 - line_order.0);
        line / count * count..line / count * count + count
    };
    let is_free = |line, order| around(line, order).all(is_whole);
    let begins = |line: &usize| {
        around(*line, order).start == *line
            && is_free(*line, order)
            && (order == most || !is_free(*line, Order(order.0 + 1)))
    };
    view.lines().flatten().filter(begins).count() as u64
}
