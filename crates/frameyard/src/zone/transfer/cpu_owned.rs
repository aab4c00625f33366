//! CPUs that own whole pageblocks ([`ZonePolicy::OwnedBlocks`](crate::policy::ZonePolicy::OwnedBlocks)): behind the arrays of its
//! lists each CPU has a small buddy allocator for each zone ([`lists`]), which splits and merges under a lock of its own.
//! After the proposal of 2026 for Linux that makes a CPU's lists a buddy allocator of pageblocks.
//!
//! A refill takes, in this order: what is free in the CPU's own pageblocks; a whole pageblock of the type asked for, which
//! becomes the CPU's; smaller blocks of that type, past the owner; and only then blocks of other types, whole pageblocks
//! first, which become the CPU's as well. Contiguous memory areas serve as the last of these do, and are never owned. A
//! pageblock is claimed only as long as the zone stays above its high watermark without it: what is owned is not free to
//! watermarks.
//!
//! A drain sorts its blocks by the owners of their pageblocks, and gives each owner his, whichever CPU drains. A pageblock
//! that is whole again goes back to the zone where its owner keeps one of its type already.
//!
//! # Protocol
//!
//! A table says who owns a pageblock ([`table`]). An entry changes under the zone lock and the lock of the owner who comes
//! or goes. Whole pageblocks alone are claimed, straight off the free lists. So, and this is what all the rest stands on:
//!
//! - Who holds a frame, allocated or on its way, and finds that nobody owns its pageblock, may rely on it until he frees
//!   it: nobody can claim a pageblock that is not all free.
//! - Who holds a frame and finds an owner takes that owner's lock and asks again: the owner may have given the pageblock up
//!   in between. He cannot have been followed by another.
//! - **No frame of an owned pageblock is on a free list of the zone.** Who frees without asking an owner first has the
//!   pageblock given up: compaction ([`give_up`]), and whoever empties the lists of a CPU. So what the zone does to pageblocks
//!   with free blocks in them (stealing, merging, moving to another type) is never done to an owned one. Isolation, and keeping
//!   a pageblock back for atomic requests, have it given up before.
//!
//! Free blocks of owned pageblocks have a state of their own,
//! [`FrameState::CpuOwnedFree`](crate::page::FrameState::CpuOwnedFree). Such a tag is written under the owner's lock, and read
//! there alone to decide anything; who meets it elsewhere, looking at frames by number, sees a block that is neither free nor
//! anybody's, and collects or comes back.
//!
//! [`collect`] gives all owned pageblocks of a zone up, one after the other. It misses those that are claimed meanwhile by who
//! goes on refilling under this policy. After a change of policy nobody does: claims are made under the lock of a CPU's lists,
//! by the policy read there.
//!
//! Which frees go to owners is decided by the table, under every policy; it is empty where nothing was claimed, which
//! the zone's count of owned pageblocks tells with one load. That count is exact for who holds a frame of an owned
//! pageblock: the claim came before he got it.
//!
//! # Locks
//!
//! An owner's lock is taken after that of a CPU's lists (of any CPU) and before the zone lock. No two owners' locks are
//! held together.

use super::{Batch, DrainReason, pages};
use crate::page::FrameState;
use crate::platform::{Access, LineKind, Platform, SharedLine};
use crate::sync::Ordering;
use crate::units::{CpuId, Order, PageCount, Pfn};
use crate::zone::pcp::packed::BATCH;
use crate::zone::{BlockRequest, CmaUse, LockedZone, WatermarkLevel, ZoneView};

mod lists;
mod table;

pub(crate) use lists::{CpuOwnedLists, LockedCpuOwned};
pub(crate) use table::CpuOwnedTables;

/// How many free pageblocks of a type a CPU keeps.
const KEPT_WHOLE: u64 = if cfg!(loom) { 0 } else { 1 };
/// All CPUs together keep at most this part of a zone, as the power of two that divides it.
const HELD_SHIFT: u32 = 3;
/// But each may keep as many pageblocks.
const HELD_PAGEBLOCKS: u64 = 4;

/// The most frames that one CPU keeps on its lists in a zone.
#[derive(Clone, Copy, Debug)]
struct MostHeld(PageCount);

impl MostHeld {
    fn of<P: Platform>(view: ZoneView<'_, P>) -> Self {
        let share = (view.zone.managed().0 >> HELD_SHIFT) / u64::from(view.owned.cpus().max(1));
        Self(PageCount(share.max(HELD_PAGEBLOCKS << view.geometry.pageblock_order().0)))
    }
}

impl<'a, P: Platform> ZoneView<'a, P> {
    /// Locks the lists of a CPU's owned memory; `None` where there is no such CPU.
    pub(crate) fn lock_cpu_owned(self, cpu: CpuId) -> Option<LockedCpuOwned<'a, P>> {
        Some(self.owned.lists_of(self.id, cpu)?.lock(self, cpu))
    }

    /// Whether any pageblock of the zone is owned, a moment ago. Exact for who holds a frame of one.
    pub(crate) fn has_cpu_owned_racy(&self) -> bool {
        self.owned_pageblocks_racy() != 0
    }

    /// How many pageblocks of the zone are owned, a moment ago.
    pub(crate) fn owned_pageblocks_racy(&self) -> u64 {
        let total = &self.zone.transfer.owned_pageblocks;
        self.platform.touch_line(SharedLine::of(LineKind::Transfer, total), Access::Read);
        u64::from(total.load(Ordering::Relaxed))
    }

    /// Who owns the pageblock of a frame that the caller holds; see [`CpuOwnedTables::owner_racy`].
    fn owner_of(&self, pfn: Pfn) -> Option<CpuId> {
        if self.has_cpu_owned_racy() { self.owned.owner_racy(self.id, pfn) } else { None }
    }
}

/// Collects what is picked, and hands it on a batch at a time.
struct Delivery<F> {
    picked: Batch,
    got: usize,
    deliver: F,
}

impl<F: FnMut(&Batch)> Delivery<F> {
    fn room(&self, wanted: usize) -> usize {
        (wanted - self.got).min(BATCH)
    }

    fn hand_on_when(&mut self, wanted: usize) {
        if self.picked.len == self.room(wanted) {
            self.hand_on();
        }
    }

    fn hand_on(&mut self) {
        if self.picked.len > 0 {
            self.got += self.picked.len;
            (self.deliver)(&self.picked);
            self.picked = Batch::none();
        }
    }
}

/// Fetches blocks for a CPU's list: from its own pageblocks as long as it has or can claim some.
pub(super) fn fetch<P: Platform>(
    view: ZoneView<'_, P>,
    request: BlockRequest,
    cpu: CpuId,
    wanted: usize,
    deliver: impl FnMut(&Batch),
) -> usize {
    let BlockRequest { order, migrate_type, .. } = request;
    if order >= view.geometry.pageblock_order() {
        return pages::fetch(view, request, cpu, wanted, deliver);
    }
    let Some(mut owned) = view.lock_cpu_owned(cpu) else {
        return pages::fetch(view, request, cpu, wanted, deliver);
    };
    let mut delivery = Delivery { picked: Batch::none(), got: 0, deliver };
    while delivery.got < wanted {
        let most = delivery.room(wanted);
        owned.take(order, migrate_type, &mut delivery.picked, most);
        if delivery.picked.len == most {
            delivery.hand_on();
            continue;
        }
        let mut locked = view.lock_for(cpu);
        if !claim(&mut owned, &mut locked, request, Source::OwnType) {
            finish_from_zone(&mut owned, locked, request, wanted, &mut delivery);
            break;
        }
    }
    delivery.hand_on();
    delivery.got
}

/// Where a pageblock to claim may come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    /// The lists of the type asked for.
    OwnType,
    /// Those of other types too, as far as the request allows it.
    AnyType,
}

/// Claims a pageblock for the CPU whose lists are locked, if the zone has one to spare.
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

/// The rest of a refill when no pageblock of the right type is to be had: smaller blocks of that type; and where there is
/// none at all, what other types have.
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
        let most = delivery.room(wanted) - delivery.picked.len;
        let picked = &mut delivery.picked;
        let found = locked.take_many(order, migrate_type, most, |locked, pfn| {
            locked.tag_block(pfn, FrameState::PerCpu, order, migrate_type);
            picked.push(locked.map.index(pfn));
        });
        fetched += found;
        delivery.hand_on_when(wanted);
        if found == 0 {
            break;
        }
    }
    if delivery.got + delivery.picked.len == 0 {
        let most = delivery.room(wanted);
        if claim(owned, &mut locked, request, Source::AnyType) {
            owned.take(order, migrate_type, &mut delivery.picked, most);
        } else {
            let picked = &mut delivery.picked;
            fetched += locked.take_blocks(request, most, |locked, pfn| {
                locked.tag_block(pfn, FrameState::PerCpu, order, migrate_type);
                picked.push(locked.map.index(pfn));
            });
        }
    }
    locked.count_moved(PageCount((fetched as u64) << order.0));
}

/// Gives blocks back to the owners of their pageblocks, and the others to the zone.
///
/// Where lists are emptied, the pageblocks are given up instead, and everything goes to the zone.
pub(super) fn give_back<'a, P: Platform>(
    locked: &mut Option<LockedZone<'a, P>>,
    view: ZoneView<'a, P>,
    (cpu, why): (CpuId, DrainReason),
    picked: &Batch,
    order: Order,
) {
    let mut of_zone = Batch::none();
    let mut of_owners = Batch::none();
    for entry in picked.entries() {
        let owned = view.owner_of(view.map.pfn(*entry)).is_some();
        if owned { &mut of_owners } else { &mut of_zone }.push(*entry);
    }
    if of_owners.len > 0 {
        // Owners' locks come before the zone's.
        *locked = None;
    }
    if why == DrainReason::Emptying {
        of_owners.entries().iter().for_each(|entry| give_up(view, view.map.pfn(*entry)));
        of_zone = Batch { entries: picked.entries, len: picked.len };
    } else {
        give_to_owners(view, cpu, of_owners, order, &mut of_zone);
    }
    if of_zone.len > 0 {
        pages::give_back(locked, view, cpu, &of_zone, order);
    }
}

/// Gives each owner his blocks; those whose pageblock was given up meanwhile are added to `of_zone`.
fn give_to_owners<P: Platform>(view: ZoneView<'_, P>, cpu: CpuId, mut left: Batch, order: Order, of_zone: &mut Batch) {
    let most = MostHeld::of(view);
    while let Some(first) = left.entries().first().copied() {
        let mut others = Batch::none();
        let owner = view.owner_of(view.map.pfn(first));
        match owner.and_then(|owner| view.lock_cpu_owned(owner)) {
            None => {
                of_zone.push(first);
                left.entries()[1..].iter().for_each(|entry| others.push(*entry));
            }
            Some(mut owned) => {
                for entry in left.entries() {
                    let pfn = view.map.pfn(*entry);
                    if still_owns(&owned, pfn) { owned.put(pfn, order, cpu) } else { others.push(*entry) }
                }
                owned.shed(most);
            }
        }
        left = others;
    }
}

/// Whether the owner whose lock is held owns the pageblock of a frame. A model may leave the question out.
fn still_owns<P: Platform>(owned: &LockedCpuOwned<'_, P>, pfn: Pfn) -> bool {
    #[cfg(any(loom, shuttle))]
    if crate::sync::is_weakened(crate::sync::Weakness::OwnerNotRechecked) {
        return true;
    }
    owned.owns(pfn)
}

/// Frees a block, past the lists of CPUs, to the owner of its pageblock. Where that is nobody, does nothing and says so:
/// the zone is to have it, and its pageblock stays nobody's until it has.
#[must_use]
pub(crate) fn free_to_owner<P: Platform>(view: ZoneView<'_, P>, cpu: CpuId, pfn: Pfn, order: Order) -> FreedTo {
    let Some(owner) = view.owner_of(pfn) else { return FreedTo::Nobody };
    let Some(mut owned) = view.lock_cpu_owned(owner) else { return FreedTo::Nobody };
    if !still_owns(&owned, pfn) {
        return FreedTo::Nobody;
    }
    owned.put(pfn, order, cpu);
    owned.count_direct_free(order);
    owned.shed(MostHeld::of(view));
    FreedTo::Owner
}

/// What became of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FreedTo {
    /// It is on its owner's lists.
    Owner,
    /// It is the caller's still, and of no owner.
    Nobody,
}

/// Has the owner of a frame's pageblock, if there is one, give it up. For who holds a frame of it, nobody owns it from then
/// on.
pub(crate) fn give_up<P: Platform>(view: ZoneView<'_, P>, pfn: Pfn) {
    if let Some(owner) = view.owner_of(pfn)
        && let Some(mut owned) = view.lock_cpu_owned(owner)
        && still_owns(&owned, pfn)
    {
        owned.give_up(pfn);
    }
}

/// Has all owners of pageblocks of a zone give them up.
pub(crate) fn collect<P: Platform>(view: ZoneView<'_, P>) {
    if view.has_cpu_owned_racy() {
        for (pageblock, _) in view.owned.owned_in(view.id, view.zone.span()) {
            give_up(view, pageblock);
        }
    }
}
