//! The slow path of a request with owners: compaction and reclaim when no block is free.

use crate::boot::HeaderWord;
use crate::compaction::{CompactEffort, CompactResult};
use crate::gfp::Gfp;
use crate::owners::{Owners, ReclaimRequest};
use crate::placement::DefragMode;
use crate::platform::Platform;
use crate::sync::Ordering;
use crate::units::{MigrateType, NodeId, Order, PageCount, Pfn, ZoneId, ZoneKind};
use crate::yard::{AllocError, Yard, YardStats};
use crate::zone::{COSTLY_ORDER, CompactEvent};

/// The minimum number of frames that a request asks reclaim for (`SWAP_CLUSTER_MAX`).
const CLUSTER: u64 = 32;
/// The maximum number of reclaim rounds of a request, while they free frames (`MAX_RECLAIM_RETRIES`).
const ROUNDS: u32 = 16;
/// The same for a large order (`should_compact_retry`, which limits it to 4). While other CPUs take the freed frames,
/// more rounds cost less than requests that fail after some.
const COSTLY_ROUNDS: u32 = 10;
/// The same for a request that waits for a whole pageblock so that types do not mix.
const APART_ROUNDS: u32 = 2;

/// A request that found no block.
#[derive(Clone, Copy)]
struct FailedRequest<'a> {
    node: NodeId,
    order: Order,
    gfp: Gfp,
    owners: &'a Owners<'a>,
    /// The order of the block that compaction makes for it: a pageblock, if types would mix otherwise.
    made: Order,
}

impl<P: Platform> Yard<P> {
    /// Allocates a block with `alloc`, which takes flags. A request that fails and may wait ([`Gfp::DIRECT_RECLAIM`])
    /// compacts and reclaims memory. After the kernel's `__alloc_pages_slowpath`:
    ///
    /// 1. The first attempts leave pageblocks of other types alone ([`Gfp::NOFRAGMENT`]). An unmovable request shares
    ///    one before reclaim runs for it, a movable one after reclaim failed. With [`DefragMode::On`] an unmovable request also
    ///    compacts and reclaims first.
    /// 2. A request for more than one frame compacts without waiting.
    /// 3. It reclaims, and compacts again, a bounded number of times and while reclaim frees frames. [`Gfp::NORETRY`]
    ///    limits this to one round.
    /// 4. It compacts whole zones, and drains the per-CPU lists.
    ///
    /// A large block, of more than the maximum order, is made by moving blocks out of a place for it instead of 1 to 4.
    ///
    /// Cost where a block is free: that of `alloc`. The caller must not hold a lock that an owner takes.
    #[inline]
    pub(crate) fn alloc_with(
        &self,
        order: Order,
        gfp: Gfp,
        owners: &Owners<'_>,
        alloc: impl FnOnce(Gfp) -> Result<Pfn, AllocError>,
    ) -> Result<Pfn, AllocError> {
        match alloc(unmixed(gfp)) {
            Err(AllocError::OutOfMemory { node, .. }) => {
                self.alloc_slow_path(FailedRequest { node, order, gfp, owners, made: order })
            }
            found => found,
        }
    }

    #[cold]
    #[inline(never)]
    fn alloc_slow_path(&self, failed: FailedRequest<'_>) -> Result<Pfn, AllocError> {
        let FailedRequest { node, order, gfp, .. } = failed;
        let found = match gfp.contains(Gfp::DIRECT_RECLAIM) {
            false => None,
            true if order > self.geometry.max_order() => self.make_large(failed),
            true => self.compact_and_reclaim(failed),
        };
        found.unwrap_or_else(|| {
            if !gfp.contains(Gfp::NOWARN) {
                self.tables.count(HeaderWord::Failures);
            }
            Err(self.out_of_memory(order, gfp, node))
        })
    }

    /// Compacts and reclaims for a request that may wait; `None` where no block was found.
    fn compact_and_reclaim(&self, failed: FailedRequest<'_>) -> Option<Result<Pfn, AllocError>> {
        let (failed, keeps_apart) = self.kept_apart(failed);
        let FailedRequest { made: order, gfp, owners, .. } = failed;
        let costly = order > COSTLY_ORDER;
        let (effort, rounds) = match (gfp.contains(Gfp::NORETRY), costly) {
            (true, _) => (CompactEffort::Async, 1),
            (false, true) if keeps_apart => (CompactEffort::Sync, APART_ROUNDS),
            (false, true) => (CompactEffort::Sync, COSTLY_ROUNDS),
            (false, false) => (CompactEffort::Sync, ROUNDS),
        };
        if !keeps_apart && let Some(found) = self.mix_types(failed) {
            return Some(found);
        }
        if order.0 > 0 {
            let (found, result) = self.compact_directly(failed, CompactEffort::Async);
            let hopeless = matches!(result, CompactResult::Skipped | CompactResult::Deferred | CompactResult::Stalled);
            if found.is_some() || (hopeless && costly && !keeps_apart && gfp.contains(Gfp::NORETRY)) {
                return found;
            }
        }
        for _ in 0..if owners.reclaimer().is_some() { rounds } else { 0 } {
            let freed = self.reclaim_for(failed);
            let found = self.attempt(failed, unmixed(gfp));
            if found.is_some() {
                return found;
            }
            if order.0 > 0
                && let (Some(found), _) = self.compact_directly(failed, effort)
            {
                return Some(found);
            }
            if freed.0 == 0 {
                break;
            }
        }
        self.attempt(failed, at_first(gfp)).or_else(|| self.last_resort(failed))
    }

    /// As [`compact_and_reclaim`](Self::compact_and_reclaim), for a large block: drains, then has owners move blocks out of a place for
    /// it. Reclaims where zones have too little free memory.
    fn make_large(&self, failed: FailedRequest<'_>) -> Option<Result<Pfn, AllocError>> {
        let FailedRequest { node, order, gfp, owners, .. } = failed;
        let rounds = if owners.reclaimer().is_some() && !gfp.contains(Gfp::NORETRY) { COSTLY_ROUNDS } else { 0 };
        let mut found = self.attempt(failed, gfp | Gfp::NOWARN);
        for round in 0..=rounds {
            found = found.or_else(|| self.move_for_large(node, order, gfp, owners));
            if found.is_some() || round == rounds || self.reclaim_for(failed).0 == 0 {
                break;
            }
            found = self.attempt(failed, at_first(gfp));
        }
        found
    }

    /// The request as it goes through compaction and reclaim, and whether these keep types apart for it: with [`DefragMode::On`], a
    /// request that would mix types waits for a whole pageblock first.
    fn kept_apart<'a>(&self, failed: FailedRequest<'a>) -> (FailedRequest<'a>, bool) {
        let pageblock = self.geometry.pageblock_order();
        let would_mix = failed.order < pageblock && failed.gfp.migrate_type() != Some(MigrateType::Movable);
        if would_mix && self.defrag_mode() == DefragMode::On {
            (FailedRequest { made: pageblock, ..failed }, true)
        } else {
            (failed, false)
        }
    }

    /// Lets a request that reclaim cannot help without mixing types in a pageblock mix them: what is reclaimed and moved is
    /// movable, and so are the pageblocks that gain from it. The background compactor hears that a whole one is wanted.
    fn mix_types(&self, failed: FailedRequest<'_>) -> Option<Result<Pfn, AllocError>> {
        let FailedRequest { node, order, gfp, .. } = failed;
        let pageblock = self.geometry.pageblock_order();
        if order >= pageblock || gfp.migrate_type() == Some(MigrateType::Movable) {
            return None;
        }
        self.wake_compaction(self.zones_for(node, gfp), pageblock, gfp.highest_zone());
        self.attempt(failed, at_first(gfp))
    }
}

impl<P: Platform> Yard<P> {
    /// Looks for a block again; `None` where there still is none.
    fn attempt(&self, failed: FailedRequest<'_>, gfp: Gfp) -> Option<Result<Pfn, AllocError>> {
        match self.alloc_good(failed.order, || self.alloc_slow(failed.node, self.cpu(), failed.order, gfp, None)) {
            Err(AllocError::OutOfMemory { .. }) => None,
            found => Some(found),
        }
    }

    /// Compacts the zones that could serve a request, and looks again (`__alloc_pages_direct_compact`).
    fn compact_directly(
        &self,
        failed: FailedRequest<'_>,
        effort: CompactEffort,
    ) -> (Option<Result<Pfn, AllocError>>, CompactResult) {
        let FailedRequest { node, gfp, owners, made, .. } = failed;
        let zones = || self.zones_for(node, gfp);
        // A whole pageblock is made of movable ones.
        let made_of = if made > failed.order { gfp.without(Gfp::RECLAIMABLE) | Gfp::MOVABLE } else { gfp };
        let (result, zone) = self.compact_for_allocation(zones(), made, made_of, effort, owners);
        if matches!(result, CompactResult::Skipped | CompactResult::Deferred | CompactResult::Stalled) {
            return (None, result);
        }
        let found = self.attempt(failed, unmixed(gfp));
        let count = |event| {
            if let Some(first) = zones().next() {
                self.tables.zones[first.index()].compaction.count(event, 1);
            }
        };
        count(CompactEvent::Stall);
        count(if found.is_some() { CompactEvent::Success } else { CompactEvent::Fail });
        if let Some(zone) = zone.filter(|_| found.is_some()) {
            self.tables.zones[zone.index()].compaction.order_was_allocated(made);
        }
        (found, result)
    }

    /// Reclaims: enough frames to compact for the order of the request (`compact_gap`).
    fn reclaim_for(&self, failed: FailedRequest<'_>) -> PageCount {
        let FailedRequest { node, made: order, gfp, owners, .. } = failed;
        let gap = match order {
            Order::ZERO => 1,
            order if order > self.geometry.max_order() => order.pages().0,
            order => 2 * order.pages().0,
        };
        let request =
            ReclaimRequest { node, highest_zone: gfp.highest_zone(), order, wanted: PageCount(gap.max(CLUSTER)) };
        let Some(reclaimer) = owners.reclaimer() else { return PageCount(0) };
        let highest = ZoneId::new(node, request.highest_zone);
        self.tables.zones[highest.index()].placement.reclaimed.fetch_add(1, Ordering::Relaxed);
        reclaimer.reclaim(request)
    }

    /// One more compaction, thorough for small orders and with [`DefragMode::On`], then an attempt that drains the per-CPU lists and uses
    /// the reserves. Does nothing for [`Gfp::NORETRY`].
    fn last_resort(&self, failed: FailedRequest<'_>) -> Option<Result<Pfn, AllocError>> {
        if failed.gfp.contains(Gfp::NORETRY) {
            return None;
        }
        let is_thorough = failed.order <= COSTLY_ORDER || self.defrag_mode() == DefragMode::On;
        let effort = if is_thorough { CompactEffort::Full } else { CompactEffort::Sync };
        let failed = FailedRequest { made: failed.order, ..failed };
        if failed.order.0 > 0
            && let (Some(found), _) = self.compact_directly(failed, effort)
        {
            return Some(found);
        }
        self.attempt(failed, failed.gfp | Gfp::NOWARN)
    }

    /// The zones that may serve a request, nearest first.
    pub(crate) fn zones_for(&self, node: NodeId, gfp: Gfp) -> impl Iterator<Item = ZoneId> {
        let highest = gfp.highest_zone();
        let this_node = gfp.contains(Gfp::THISNODE);
        self.tables.zonelist(node).filter(move |zone| zone.kind() <= highest && (!this_node || zone.node() == node))
    }
}

/// The flags of an attempt that is not the last: nothing is drained for it, and its failure is no failure yet.
#[inline(always)]
const fn at_first(gfp: Gfp) -> Gfp {
    gfp.union(Gfp::NOWARN).union(Gfp::NORETRY)
}

/// The flags of an attempt after which there is something else to try than mixing types in a pageblock.
#[inline(always)]
const fn unmixed(gfp: Gfp) -> Gfp {
    if gfp.contains(Gfp::DIRECT_RECLAIM) { at_first(gfp).union(Gfp::NOFRAGMENT) } else { at_first(gfp) }
}

impl<'y, P: Platform> YardStats<'y, P> {
    /// How often a request whose highest zone is of that kind had to reclaim memory itself (the kernel's
    /// `allocstall_*`).
    pub fn reclaim_stalls(self, highest: ZoneKind) -> u64 {
        let yard = self.yard;
        let zones = (0..yard.nodes()).map(|node| ZoneId::new(NodeId(node), highest));
        zones
            .map(|zone| yard.tables.zones[zone.index()].placement.reclaimed.load(Ordering::Relaxed))
            .fold(0, u64::wrapping_add)
    }
}
