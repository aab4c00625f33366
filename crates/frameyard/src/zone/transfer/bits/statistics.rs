//! What the bits count.

use crate::platform::Platform;
use crate::units::{MigrateType, Order};
use crate::zone::transfer::statistics::{counters, read};
use crate::zone::view::ZoneView;

counters! { |view, counts, cpu|
    let of = if cpu.is_none() { view.bits_of_zone() } else { None };
    "bits_pages" Gauge of Zone "Page frames that are free as bits of their pageblock." = { let _ = of; view.bits_pages().0 };
    "bits_supplied" Counter of Zone "Blocks taken off the free lists into the bits." = read(&of.supplied);
    "bits_collected" Counter of Zone "Page frames returned from the bits to the free lists." = read(&of.collected);
}

/// The aligned free blocks of an order and type, as the buddy system would list them: each frame counts in the largest block that it is part
/// of. Those of the order of a line are whole lines. Reads all lines. Possibly stale.
pub(in crate::zone::transfer) fn blocks_racy<P: Platform>(
    view: ZoneView<'_, P>,
    order: Order,
    migrate_type: MigrateType,
) -> u64 {
    let bits = view.free_bits();
    if order > bits.line_order() || view.bits_pages().0 == 0 {
        return 0;
    }
    let of_type = |line: &usize| view.blocks.lasting_at(*line << bits.line_order().0) == Some((migrate_type, view.id));
    view.lines().flatten().filter(of_type).map(|line| bits.blocks_racy(line, order)).sum()
}
