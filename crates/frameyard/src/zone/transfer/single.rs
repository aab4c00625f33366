//! Page by page without what makes it fast: picked under the lock, each freed by itself, or with a lock for each.

use super::{Batch, pages};
use crate::page::FrameState;
use crate::platform::Platform;
use crate::units::{CpuId, Order, PageCount};
use crate::zone::pcp::packed::BATCH;
use crate::zone::{BlockRequest, LockedZone, ZoneView};

/// Fetches blocks, each under a hold of its own.
pub(super) fn fetch<P: Platform>(
    view: ZoneView<'_, P>,
    request: BlockRequest,
    cpu: CpuId,
    wanted: usize,
    mut deliver: impl FnMut(&Batch),
) -> usize {
    let mut got = 0;
    while got < wanted {
        let mut picked = Batch::none();
        while picked.len < (wanted - got).min(BATCH) {
            let mut locked = view.lock_for(cpu);
            let Some(pfn) = locked.take_block(request) else { break };
            locked.tag_block(pfn, FrameState::PerCpu, request.order, request.migrate_type);
            locked.count_moved(request.order.pages());
            picked.push(view.map.index(pfn));
        }
        if picked.len == 0 {
            break;
        }
        deliver(&picked);
        got += picked.len;
    }
    got
}

/// Frees picked blocks one by one under one hold, taking the lock where it is not held yet.
pub(super) fn give_back<'a, P: Platform>(
    locked: &mut Option<LockedZone<'a, P>>,
    view: ZoneView<'a, P>,
    cpu: CpuId,
    picked: &Batch,
    order: Order,
) {
    let locked = locked.get_or_insert_with(|| view.lock_for(cpu));
    locked.count_moved(PageCount((picked.len as u64) << order.0));
    for entry in picked.entries() {
        locked.free_by_type(view.map.pfn(*entry), order);
    }
}

/// Frees picked blocks, each under a hold of its own.
pub(super) fn give_back_each<P: Platform>(view: ZoneView<'_, P>, cpu: CpuId, picked: &Batch, order: Order) {
    pages::read_ahead(view, picked, order);
    for entry in picked.entries() {
        let mut locked = view.lock_for(cpu);
        locked.count_moved(order.pages());
        locked.free_by_type(view.map.pfn(*entry), order);
    }
}
