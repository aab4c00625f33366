//! Page by page: each block is freed by itself, under one hold of the zone lock or one hold each.

use crate::page::FrameState;
use crate::platform::Platform;
use crate::store::RefillRequest;
use crate::store::batch::{BATCH, Batch};
use crate::store::buddy::pagewise::{blocks_of, buddy_at, read_ahead};
use crate::units::{CpuId, Order, PageCount};
use crate::zone::view::{ListRules, LockedZone, ZoneView};

/// Fetches blocks, one hold of the lock each.
pub(super) fn fetch<P: Platform>(
    view: ZoneView<'_, P>,
    RefillRequest { blocks: request, cpu, wanted, .. }: RefillRequest,
    mut deliver: impl FnMut(&Batch),
) -> usize {
    let mut got = 0;
    while got < wanted {
        let mut batch = Batch::new();
        while batch.len() < (wanted - got).min(BATCH) {
            let Some(mut locked) = view.lock_for(cpu) else { break };
            let Some(pfn) = locked.take_block(request) else { break };
            locked.tag_block(pfn, FrameState::PerCpu, request.order, request.migrate_type);
            locked.count_moved(request.order.pages());
            batch.push(view.map.index(pfn));
        }
        if batch.is_empty() {
            break;
        }
        deliver(&batch);
        got += batch.len();
    }
    got
}

/// Frees a batch block by block under one hold of the lock; takes the lock unless it is held already.
pub(super) fn give_back<'a, P: Platform>(
    locked: &mut Option<LockedZone<'a, P>>,
    view: ZoneView<'a, P>,
    cpu: CpuId,
    batch: &Batch,
    order: Order,
) {
    let Some(locked) = view.lock_unless(locked, cpu) else { return };
    locked.count_moved(PageCount((batch.len() as u64) << order.0));
    for entry in batch.iter() {
        locked.free_by_type(view.map.checked(*entry), order);
    }
}

/// Reads the buddies of a batch's blocks, unless the lock is held already or blocks of that order do not merge. If they merge, the next
/// buddies are not read ahead.
pub(super) fn read_buddies_ahead<P: Platform>(
    locked: Option<&LockedZone<'_, P>>,
    view: ZoneView<'_, P>,
    batch: &Batch,
    order: Order,
) {
    if locked.is_none() && order < view.geometry.max_order() {
        for entry in batch.iter() {
            view.page(buddy_at(view, view.map.checked(*entry), order)).tag_ahead();
        }
    }
}

/// Frees a batch, one hold of the lock for each block.
pub(super) fn give_back_each<P: Platform>(view: ZoneView<'_, P>, cpu: CpuId, batch: &Batch, order: Order) {
    read_ahead(view, blocks_of(view, batch, order));
    for entry in batch.iter() {
        let Some(mut locked) = view.lock_for(cpu) else { return };
        locked.count_moved(order.pages());
        locked.free_by_type(view.map.checked(*entry), order);
    }
}
