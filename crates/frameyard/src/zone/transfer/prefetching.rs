//! Page by page, with the pages of the free lists prefetched: the next one while this one is taken, or all of them before
//! the lock is.

use super::{Batch, pages};
use crate::page::Link;
use crate::platform::Platform;
use crate::units::{CpuId, Order, PageCount};
use crate::zone::{BlockRequest, LockedZone, ZoneView};

/// Fetches blocks under one hold of the zone lock. When a block was taken, the one behind that which comes next is
/// prefetched: who takes the next one off the list must write to it.
pub(super) fn fetch<P: Platform>(
    view: ZoneView<'_, P>,
    request: BlockRequest,
    cpu: CpuId,
    wanted: usize,
    deliver: impl FnMut(&Batch),
) -> usize {
    let mut last = Link::NONE;
    pages::fetch_locked(view.lock_for(cpu), request, wanted, deliver, |locked| {
        let Some(behind) = behind_next(locked, request).filter(|behind| *behind != last) else { return };
        last = behind;
        if let Some(pfn) = locked.map.linked(behind) {
            locked.page(pfn).prefetch();
        }
    })
}

/// The block behind that which the list will give next.
fn behind_next<P: Platform>(locked: &LockedZone<'_, P>, request: BlockRequest) -> Option<Link> {
    let orders = locked.orders_from(request.order, request.migrate_type);
    if orders == 0 {
        return None;
    }
    let found = Order(request.order.0 + orders.trailing_zeros() as u8);
    let next = locked.first_block(found, request.migrate_type)?;
    Some(locked.page(next).next())
}

/// Prefetches, without the lock, the pages that a refill of so many blocks will write to, smallest blocks first.
///
/// The lists may change at any moment: a link is followed only from a page that still is a free block of that order, and
/// only into memory that has pages. What is found this way may be stale, or of another list; it is only prefetched. And a
/// list that is changed while it is walked may lead round: there are no more steps than blocks are wanted.
pub(super) fn ahead_of_lock<P: Platform>(view: ZoneView<'_, P>, request: BlockRequest, wanted: usize) {
    let mut left = wanted as u64;
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
