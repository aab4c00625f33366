//! The equations of the depot: each stack has as many batches or huge blocks as it counts, each batch below pageblock order is full, each
//! block is as on a per-CPU list.

use super::BatchStack;
use super::huge::Mobility;
use super::links::HugeBatch;
use crate::page::Link;
use crate::platform::Platform;
use crate::units::{Order, Pfn};
use crate::zone::batch::{Batch, batch_len, packed};
use crate::zone::transfer::validate::{Found, Unsound, compare};
use crate::zone::view::ZoneView;

/// Follows every stack and marks the pages of its frames, so that a frame that is listed twice shows. For a yard at rest.
pub(in crate::zone::transfer) fn validate<P: Platform>(
    view: ZoneView<'_, P>,
    found: &mut Found,
) -> Result<(), Unsound> {
    let mut batches = 0;
    // Other CPUs may pop and recycle batches meanwhile, and counters may be damaged.
    let most = view.map.places();
    for (order, stack) in view.depot().stacks() {
        let expected = stack.held_racy().min(most);
        let (mut position, mut head) = (0, stack.top_at_rest(view.page_links()));
        while head != Link::NONE && position <= expected {
            let mut batch = Batch::new();
            let first = view.map.linked(head).unwrap_or_default();
            let next =
                packed::read_checked(view.map, head, &mut batch, |pfn| view.page_of(pfn)).ok_or(broken(first))?;
            position += 1;
            batches += 1;
            if batch.len() != batch_len(order) {
                return Err(broken(first));
            }
            for entry in batch.iter() {
                mark(view, (*entry, order), first, found)?;
            }
            let is_last = next == Link::NONE;
            if is_last != (position == expected) {
                return Err(Unsound::Count { what: "batches on a stack", kept: expected, found: position });
            }
            head = next;
        }
    }
    compare("batches in the depot", view.depot().batches_racy(), batches)?;
    let blocks = Mobility::ALL.into_iter().try_fold(0, |sum, mobility| {
        let stacks = view.depot().huge_stacks_of(mobility);
        stacks.map(|stack| validate_huge(view, stack, found)).try_fold(sum, |sum, blocks| Ok(sum + blocks?))
    })?;
    compare("huge blocks in the depot", view.depot().huge_blocks_racy(), blocks)
}

/// As [`validate`], for a stack of huge blocks. Returns their number.
fn validate_huge<P: Platform>(view: ZoneView<'_, P>, stack: &BatchStack, found: &mut Found) -> Result<u64, Unsound> {
    let (links, order) = (view.huge_links(), view.geometry.pageblock_order());
    let expected = stack.held_racy();
    let (mut blocks, mut head) = (0, stack.top_at_rest(links));
    while head != Link::NONE && blocks < expected {
        let mut batch = HugeBatch::new();
        let below = links.unpack(head, |place| batch.push(place));
        let first = view.map.pfn(batch.first().copied().unwrap_or_default());
        for entry in batch.iter() {
            mark(view, (*entry, order), first, found)?;
        }
        blocks += batch.len() as u64;
        head = below.ok_or(broken(first))?;
    }
    if head != Link::NONE {
        blocks += 1;
    }
    compare("huge blocks on a stack", expected, blocks).map(|()| blocks)
}

/// Marks an entry of a stack and counts it.
fn mark<P: Platform>(
    view: ZoneView<'_, P>,
    (entry, order): (u32, Order),
    head: Pfn,
    found: &mut Found,
) -> Result<(), Unsound> {
    let (order, blocks) = view.mark_listed(view.map.pfn(entry), order).ok_or(broken(head))?;
    found.listed[order.index()] += blocks;
    Ok(())
}

fn broken(at: Pfn) -> Unsound {
    Unsound::Broken { what: "stack of the depot", at }
}
