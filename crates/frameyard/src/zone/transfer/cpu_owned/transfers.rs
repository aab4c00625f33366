//! Refills from, drains to, and collections of CPU-owned pageblocks.

use super::COMPILED_IN;
use super::lists::{CpuOwnedLists, LockedCpuOwned, MostHeld};
use crate::page::FrameState;
use crate::platform::{Access, LineKind, Platform, SharedLine};
use crate::sync::{AtomicU32, Ordering, all_atomic};
use crate::units::{CpuId, Order, PageCount, Pfn};
use crate::zone::batch::{BATCH, Batch};
use crate::zone::request::{BlockRequest, CmaUse};
use crate::zone::transfer::exchange::{DrainReason, RefillRequest};
use crate::zone::transfer::statistics::read;
use crate::zone::transfer::{HeldFrames, pagewise};
use crate::zone::view::{LockedZone, ZoneView};
use crate::zone::watermark::WatermarkLevel;

/// CPU-owned pageblocks of one zone.
#[derive(Default)]
pub(in crate::zone::transfer) struct State {
    /// Owned pageblocks. Changes under the zone lock.
    pub(super) pageblocks: AtomicU32,
}

all_atomic!(State { pageblocks });

impl<'a, P: Platform> ZoneView<'a, P> {
    /// The lists of a CPU's owned pageblocks; `None` if there is no such CPU.
    pub(super) fn cpu_owned_lists(self, cpu: CpuId) -> Option<&'static CpuOwnedLists> {
        self.cpu_owned().lists_of(cpu)
    }

    /// Locks the lists of a CPU's owned pageblocks; `None` if there is no such CPU, or the platform gives up.
    pub(super) fn lock_cpu_owned(self, cpu: CpuId) -> Option<LockedCpuOwned<'a, P>> {
        self.cpu_owned_lists(cpu)?.lock(self, cpu)
    }

    /// Whether any pageblock of the zone is owned, possibly stale. Exact for a caller that holds a frame of one.
    pub(in crate::zone::transfer) fn has_cpu_owned_racy(&self) -> bool {
        COMPILED_IN && self.cpu_owned_pageblocks_racy() != 0
    }

    /// Owned pageblocks of the zone, possibly stale.
    pub(super) fn cpu_owned_pageblocks_racy(&self) -> u64 {
        let total = &self.zone.mechanisms.cpu_owned.pageblocks;
        self.platform.touch_line(SharedLine::of(LineKind::Transfer, total), Access::Read);
        u64::from(total.load(Ordering::Relaxed))
    }

    /// The owner of the pageblock of a frame that the caller holds; see
    /// [`CpuOwned::owner_racy`](super::table::CpuOwned::owner_racy).
    fn owner_of(&self, pfn: Pfn) -> Option<CpuId> {
        if self.has_cpu_owned_racy() { self.cpu_owned().owner_racy(pfn) } else { None }
    }
}

/// Collects blocks and delivers them a batch at a time.
struct Delivery<F> {
    batch: Batch,
    got: usize,
    deliver: F,
}

impl<F: FnMut(&Batch)> Delivery<F> {
    fn room(&self, wanted: usize) -> usize {
        (wanted - self.got).min(BATCH)
    }

    fn deliver_if_full(&mut self, wanted: usize) {
        if self.batch.len() == self.room(wanted) {
            self.deliver();
        }
    }

    fn deliver(&mut self) {
        if !self.batch.is_empty() {
            self.got += self.batch.len();
            (self.deliver)(&self.batch);
            self.batch.clear();
        }
    }
}

/// Fetches blocks for a refill: from the CPU's own pageblocks while it has or can claim some.
#[inline(never)]
pub(in crate::zone::transfer) fn fetch<P: Platform>(
    view: ZoneView<'_, P>,
    refill: RefillRequest<'_>,
    deliver: impl FnMut(&Batch),
) -> usize {
    let RefillRequest { blocks: request, cpu, wanted, .. } = refill;
    let BlockRequest { order, migrate_type, .. } = request;
    if order >= view.geometry.pageblock_order() {
        return pagewise::fetch(view, refill, deliver);
    }
    let Some(mut owned) = view.lock_cpu_owned(cpu) else {
        return pagewise::fetch(view, refill, deliver);
    };
    let mut delivery = Delivery { batch: Batch::new(), got: 0, deliver };
    // Each round takes a block or claims a pageblock for the next, unless another process changes the lists.
    for _ in 0..2 * wanted {
        if delivery.got >= wanted {
            break;
        }
        let most = delivery.room(wanted);
        let missing = most - delivery.batch.len();
        owned.take(order, migrate_type, missing, |entry| delivery.batch.push(entry));
        if delivery.batch.len() == most {
            delivery.deliver();
            continue;
        }
        let Some(mut locked) = view.lock_for(cpu) else { break };
        if !claim(&mut owned, &mut locked, request, Source::OwnType) {
            finish_from_zone(&mut owned, locked, request, wanted, &mut delivery);
            break;
        }
    }
    delivery.deliver();
    delivery.got
}

/// Where a pageblock to claim may come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    /// The lists of the requested type.
    OwnType,
    /// The lists of other types too, as far as the request allows it.
    AnyType,
}

/// Claims a pageblock for the CPU whose lists are locked, if the zone can spare one.
fn claim<P: Platform>(
    owned: &mut LockedCpuOwned<'_, P>,
    locked: &mut LockedZone<'_, P>,
    request: BlockRequest,
    source: Source,
) -> bool {
    let order = locked.geometry.pageblock_order();
    let free = locked.free_pages().0.saturating_sub(locked.free_cma().0);
    let kept = locked.zone.watermark(WatermarkLevel::High).0 + locked.zone.boost().0;
    if free <= kept + order.pages().0 {
        return false;
    }
    let found = match source {
        Source::OwnType => locked.take_smallest(order, request.migrate_type),
        Source::AnyType => locked.take_block(BlockRequest { order, cma: CmaUse::Refused, ..request }),
    };
    let Some(pageblock) = found else { return false };
    owned.claim(locked, pageblock, request.migrate_type);
    true
}

/// The rest of a refill when no pageblock of the right type is available: smaller blocks of that type, and if there are none at
/// all, blocks of other types.
fn finish_from_zone<P: Platform, F: FnMut(&Batch)>(
    owned: &mut LockedCpuOwned<'_, P>,
    mut locked: LockedZone<'_, P>,
    request: BlockRequest,
    wanted: usize,
    delivery: &mut Delivery<F>,
) {
    let BlockRequest { order, migrate_type, .. } = request;
    let mut fetched = 0;
    while delivery.got < wanted {
        let most = delivery.room(wanted) - delivery.batch.len();
        let batch = &mut delivery.batch;
        let found = locked.take_many(order, migrate_type, most, |locked, block| {
            locked.tag_block(block, FrameState::PerCpu, order, migrate_type);
            batch.push(block.index());
        });
        fetched += found;
        delivery.deliver_if_full(wanted);
        if found == 0 {
            break;
        }
    }
    if delivery.got + delivery.batch.len() == 0 {
        let most = delivery.room(wanted);
        if claim(owned, &mut locked, request, Source::AnyType) {
            owned.take(order, migrate_type, most, |entry| delivery.batch.push(entry));
        } else {
            let batch = &mut delivery.batch;
            fetched += locked.take_blocks(request, most, |locked, block| {
                locked.tag_block(block, FrameState::PerCpu, order, migrate_type);
                batch.push(block.index());
            });
        }
    }
    locked.count_moved(PageCount((fetched as u64) << order.0));
}

/// Gives blocks back to the owners of their pageblocks; blocks without an owner go to the zone page by page.
///
/// If lists are emptied, the pageblocks are given up instead, and all blocks go to the zone.
pub(in crate::zone::transfer) fn give_back<'a, P: Platform>(
    locked: &mut Option<LockedZone<'a, P>>,
    view: ZoneView<'a, P>,
    (cpu, reason): (CpuId, DrainReason),
    batch: &Batch,
    order: Order,
) {
    let mut of_zone = Batch::new();
    let mut of_owners = Batch::new();
    for entry in batch.iter() {
        let owned = view.owner_of(view.map.pfn(*entry)).is_some();
        if owned { &mut of_owners } else { &mut of_zone }.push(*entry);
    }
    if !of_owners.is_empty() {
        // Owners' locks come before the zone's.
        *locked = None;
    }
    if reason == DrainReason::Emptying {
        of_owners.iter().for_each(|entry| give_up(view, view.map.pfn(*entry)));
        of_zone = *batch;
    } else {
        give_to_owners(view, cpu, of_owners, order, &mut of_zone);
    }
    if !of_zone.is_empty() {
        pagewise::give_back(locked, view, cpu, &of_zone, order);
    }
}

/// Gives each owner its blocks. Blocks whose pageblock was given up meanwhile are added to `of_zone`.
fn give_to_owners<P: Platform>(view: ZoneView<'_, P>, cpu: CpuId, mut left: Batch, order: Order, of_zone: &mut Batch) {
    let most = MostHeld::of(view);
    while let Some(first) = left.first().copied() {
        let mut others = Batch::new();
        let owner = view.owner_of(view.map.pfn(first));
        match owner.and_then(|owner| view.lock_cpu_owned(owner)) {
            None => {
                of_zone.push(first);
                others.extend(left[1..].iter().copied());
            }
            Some(mut owned) => {
                for (at, entry) in left.iter().enumerate() {
                    let pfn = view.map.pfn(*entry);
                    match still_owns(&owned, pfn) {
                        true => owned.put(pfn, order, cpu),
                        // No other owner can have followed.
                        false if at == 0 => of_zone.push(*entry),
                        false => others.push(*entry),
                    }
                }
                owned.shed(most);
            }
        }
        left = others;
    }
}

/// Whether the owner whose lock is held owns the pageblock of a frame. A model may leave the check out.
fn still_owns<P: Platform>(owned: &LockedCpuOwned<'_, P>, pfn: Pfn) -> bool {
    crate::sync::is_broken!(OwnerNotRechecked) || owned.owns(pfn)
}

/// What became of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::zone::transfer) enum FreedTo {
    /// It is on its owner's lists.
    Owner,
    /// It still is the caller's; no CPU owns its pageblock.
    None,
}

/// Frees a block, past the lists of CPUs, to the owner of its pageblock. If there is none, the block stays the caller's, and its
/// pageblock stays without an owner until the caller has freed it.
#[must_use]
pub(in crate::zone::transfer) fn free_to_owner<P: Platform>(
    view: ZoneView<'_, P>,
    cpu: CpuId,
    pfn: Pfn,
    order: Order,
) -> FreedTo {
    let Some(owner) = view.owner_of(pfn) else { return FreedTo::None };
    let Some(mut owned) = view.lock_cpu_owned(owner) else { return FreedTo::None };
    if !still_owns(&owned, pfn) {
        return FreedTo::None;
    }
    owned.put(pfn, order, cpu);
    owned.count_direct_free(order);
    owned.shed(MostHeld::of(view));
    FreedTo::Owner
}

/// Has the owner of a frame's pageblock, if there is one, give it up. For a caller that holds a frame of the pageblock it has no
/// owner from then on.
pub(in crate::zone::transfer) fn give_up<P: Platform>(view: ZoneView<'_, P>, pfn: Pfn) {
    if let Some(owner) = view.owner_of(pfn)
        && let Some(mut owned) = view.lock_cpu_owned(owner)
        && still_owns(&owned, pfn)
    {
        owned.give_up(pfn);
    }
}

/// Whether a CPU owns the pageblock around `pfn`. Exact under the zone lock.
pub(in crate::zone::transfer) fn is_owned<P: Platform>(view: ZoneView<'_, P>, pfn: Pfn) -> bool {
    COMPILED_IN && view.cpu_owned().owner_racy(pfn).is_some()
}

/// Has the owners of up to `most` pageblocks of a zone give them up.
pub(in crate::zone::transfer) fn collect<P: Platform>(view: ZoneView<'_, P>, most: usize) {
    if view.has_cpu_owned_racy() {
        for (pageblock, _) in view.cpu_owned().owned_in(view.span()).take(most) {
            give_up(view, pageblock);
        }
    }
}

/// Free frames of owned pageblocks, and what was freed to them past the per-CPU lists.
pub(in crate::zone::transfer) fn held_racy<P: Platform>(view: ZoneView<'_, P>) -> HeldFrames {
    let mut sum = HeldFrames::default();
    for lists in view.cpu_owned().cpus().filter_map(|cpu| view.cpu_owned_lists(cpu)) {
        sum.pages += lists.pages_racy();
        sum.direct_frees += read(&lists.counts.direct_frees);
        sum.direct_pages_freed += read(&lists.counts.direct_pages_freed);
    }
    sum
}
