//! Refills that prefetch pages of the free lists: the next one while one is taken, or all before the lock is taken.

use crate::page::Link;
use crate::platform::Platform;
use crate::store::RefillRequest;
use crate::store::batch::Batch;
use crate::store::buddy::pagewise::fetch_locked;
use crate::units::{Order, PageCount};
use crate::zone::request::BlockRequest;
use crate::zone::view::{LockedZone, ZoneView};

/// Fetches blocks under one hold of the zone lock. After each block, prefetches the block behind the list's next one: taking
/// the next one writes to it.
pub(super) fn fetch<P: Platform>(view: ZoneView<'_, P>, refill: RefillRequest, deliver: impl FnMut(&Batch)) -> usize {
    let mut last = Link::NONE;
    let Some(locked) = view.lock_for(refill.cpu) else { return 0 };
    fetch_locked(locked, refill.blocks, refill.wanted, deliver, |locked| {
        let Some(behind) = behind_next(locked, refill.blocks).filter(|behind| *behind != last) else { return };
        last = behind;
        if let Some(pfn) = locked.map.linked(behind) {
            locked.page(pfn).prefetch();
        }
    })
}

/// The block behind the one that the list will give next.
fn behind_next<P: Platform>(locked: &LockedZone<'_, P>, request: BlockRequest) -> Option<Link> {
    let found = locked.smallest_order(request.order, request.migrate_type)?;
    let (next, _) = locked.first_block(found, request.migrate_type)?;
    Some(locked.page(next).next())
}

/// Prefetches, without the lock, the pages that the refill will write to, smallest blocks first.
///
/// The lists may change at any moment. The walk follows a link only from a page that is still a free block of that order, and
/// only into memory that has page structures. What it finds may be stale or of another list; it is only prefetched. A list that
/// changes during the walk may form a loop: the walk takes no more steps than blocks are wanted.
pub(super) fn ahead_of_lock<P: Platform>(view: ZoneView<'_, P>, refill: RefillRequest) {
    let request = refill.blocks;
    let mut left = refill.wanted as u64;
    for order in (request.order.0..=view.geometry.max_order().0).map(Order) {
        let mut link = view.zone.first_link_racy(order, request.migrate_type);
        while let Some(block) = view.map.linked(link).filter(|pfn| left > 0 && view.blocks.has_memory(*pfn)) {
            // Reading the link takes the miss of the block's first page.
            let page = view.page(block);
            if !page.tag().is_free_buddy(order, view.id) {
                break;
            }
            link = page.next();
            let pieces = left.min(1 << (order.0 - request.order.0));
            for piece in 1..pieces {
                view.page(block + PageCount(piece << request.order.0)).prefetch();
            }
            left -= pieces;
        }
    }
}
