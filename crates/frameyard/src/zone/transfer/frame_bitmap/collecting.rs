//! Collecting: held frames return to the free lists, a pageblock in each hold of the zone lock.

use super::held::Held;
use crate::platform::Platform;
use crate::units::{MigrateType, Order, PageCount};
use crate::zone::batch::BATCH;
use crate::zone::effort::Effort;
use crate::zone::view::ZoneView;

/// Returns all held frames to the free lists. A drain of another CPU may add some meanwhile.
pub(in crate::zone::transfer) fn collect<P: Platform>(view: ZoneView<'_, P>) {
    collect_until(view, MigrateType::Unmovable, u64::MAX, || false);
}

/// Returns held frames to the free lists until these have a block for a request of that order and type, or its effort is spent;
/// whether there were any. A block of another type serves a request for a single frame if it is a whole pageblock.
#[cold]
pub(in crate::zone::transfer) fn collect_for<P: Platform>(
    view: ZoneView<'_, P>,
    order: Order,
    migrate_type: MigrateType,
    effort: &Effort,
) -> bool {
    if view.zone.mechanisms.frame_bitmap.pages_racy() == PageCount(0) {
        return false;
    }
    let enough = || view.has_block_for_racy(order, migrate_type);
    let batches = effort.merges();
    let frames = collect_until(view, migrate_type, batches.saturating_mul(BATCH as u64), enough);
    effort.count_merges(frames.div_ceil(BATCH as u64));
    true
}

/// Returns held frames, those of the type `first` first, until there are `enough` or at least `most` frames have returned. Returns
/// their number.
fn collect_until<P: Platform>(view: ZoneView<'_, P>, first: MigrateType, most: u64, enough: impl Fn() -> bool) -> u64 {
    let held = Held::of(&view);
    let mut frames = 0;
    // Bounded: other CPUs may add as fast as this one collects.
    let mut left = held.most_pageblocks();
    for step in 0..MigrateType::PER_CPU {
        let list_type = MigrateType::ALL[(first.index() + step) % MigrateType::PER_CPU];
        while left > 0 && frames < most && held.first(list_type).is_some() && !enough() {
            left -= 1;
            let Ok(mut zone) = view.lock() else { return frames };
            if let Some(record) = held.first(list_type) {
                frames += held.release(&mut zone, record);
            }
        }
    }
    frames
}
