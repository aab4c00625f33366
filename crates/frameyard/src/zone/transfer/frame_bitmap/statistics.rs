//! What the frame bitmap counts.

use crate::zone::transfer::statistics::{counters, read};

counters! { |view, counts, cpu|
    let of = cpu.is_none().then_some(&view.zone.mechanisms.frame_bitmap);
    "bitmap_pages" Gauge of Zone "Page frames that the frame bitmap holds." = of.pages_racy().0;
    "bitmap_added" Counter of Zone "Page frames freed into the frame bitmap." = read(&of.added);
    "bitmap_taken" Counter of Zone "Page frames taken from the frame bitmap by refills." = read(&of.taken);
    "bitmap_merged" Counter of Zone "Groups of page frames that became whole in the frame bitmap." = read(&of.merged);
    "bitmap_collected" Counter of Zone "Page frames returned from the frame bitmap to the free lists." = read(&of.collected);
}
