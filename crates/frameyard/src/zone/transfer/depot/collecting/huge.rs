//! Collecting huge blocks: they merge above pageblock order when they return to the free lists.

use super::Collecting;
use crate::page::Link;
use crate::platform::{Access, Platform};
use crate::units::{MigrateType, PageCount};
use crate::zone::fixed_vec::FixedVec;
use crate::zone::transfer::depot::BatchStack;
use crate::zone::transfer::depot::huge::{Mobility, pop_batch, unpack};
use crate::zone::transfer::depot::links::HUGE_BATCH;
use crate::zone::transfer::pagewise::read_ahead;
use crate::zone::view::ZoneView;

/// The blocks that one hold of the zone lock frees.
const BLOCKS: usize = if cfg!(loom) { HUGE_BATCH } else { 8 * HUGE_BATCH };

type Blocks = FixedVec<u32, BLOCKS>;

/// Returns all huge blocks of the depot to the free lists. The caller has registered as a collector.
pub(super) fn collect_all<P: Platform>(view: ZoneView<'_, P>) {
    let links = view.huge_links();
    for stack in view.depot().huge_stacks_from(Mobility::Movable) {
        if stack.is_empty_racy(links) {
            continue;
        }
        stack.touch(view.platform, Access::ReadModifyWrite);
        let mut head = stack.detach(links);
        let mut blocks = Blocks::new();
        // A sound chain has fewer batches than the map has frames.
        let mut left = view.map.places();
        while head != Link::NONE && left > 0 {
            let Some((batch, below)) = unpack(view, head) else { break };
            if blocks.len() + batch.len() > BLOCKS {
                stack.count_collected(free(view, &mut blocks));
            }
            blocks.extend(batch.iter().copied());
            (head, left) = (below, left - 1);
        }
        stack.count_collected(free(view, &mut blocks));
    }
}

/// Returns up to `most` batches of some stacks to the free lists until there is `enough`. Returns their number. Not inlined: its callers
/// go on to collect other batches, and need the stack for these.
#[inline(never)]
pub(super) fn collect_until<P: Platform>(
    view: ZoneView<'_, P>,
    stacks: impl Iterator<Item = &'static BatchStack>,
    most: u64,
    enough: impl Fn() -> bool,
) -> u64 {
    let _collecting = Collecting::begin(view);
    let mut left = most;
    for stack in stacks {
        while left > 0 && !enough() {
            let Some(batch) = pop_batch(view, stack) else { break };
            left -= 1;
            stack.count_collected(free(view, &mut Blocks::of(&batch)));
        }
    }
    most - left
}

/// Frees blocks, each to the lists of the type that its pageblock has now. Returns their number.
fn free<P: Platform>(view: ZoneView<'_, P>, blocks: &mut Blocks) -> u64 {
    let order = view.geometry.pageblock_order();
    // Buddies free one behind the other, so the second finds the first.
    blocks.sort_unstable();
    let all = || blocks.iter().map(|place| (view.map.checked(*place), order));
    if !blocks.is_empty() {
        read_ahead(view, all());
        if let Ok(mut locked) = view.lock() {
            for (block, order) in all() {
                locked.free_by_type(block, order);
            }
            locked.count_moved(PageCount((blocks.len() as u64) << order.0));
        }
    }
    let freed = blocks.len() as u64;
    blocks.clear();
    freed
}

/// The stacks whose blocks may serve a request of that type on free lists: first those of its mobility.
pub(super) fn stacks_for<P: Platform>(
    view: ZoneView<'_, P>,
    migrate_type: MigrateType,
) -> [impl Iterator<Item = &'static BatchStack> + use<P>; 2] {
    let (depot, own) = (view.depot(), Mobility::of(migrate_type));
    [own, own.other()].map(|mobility| depot.huge_stacks_of(mobility))
}
