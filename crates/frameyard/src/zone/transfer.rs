//! The border between per-CPU lists and the zone: what a batch of blocks does to cross it, by [`ZonePolicy`].
//!
//! A refill asks [`fetch`] for blocks, a drain hands its blocks to a [`Drain`]. Both are called with the lock of a
//! CPU's lists held, and read the policy under it. So once the policy was changed and every CPU's lists were locked once,
//! nothing crosses in the old way any more; that is how [`Yard::set_policy`](crate::Yard::set_policy) changes it.
//!
//! Each way of crossing has a file of its own: [`pages`] goes to the free lists page by page, [`prefetching`] prefetches
//! what that will look at, [`single`] does without what makes it fast; [`deferred_merge`] frees without merging; [`detach`] and
//! [`splice`] move [`clusters`] of pages in one step; [`cpu_owned`] goes by way of pageblocks that CPUs own; [`depot`] keeps
//! full batches on lock-free stacks, to which lists have a way of their own, past [`fetch`] and [`Drain`]. [`counts`]
//! is what is counted here.

use super::{BlockRequest, LockedZone, ZonePolicy, ZoneView};
use crate::platform::{Activity, Platform};
use crate::sync::{AtomicU32, AtomicU64, all_atomic};
use crate::units::{CpuId, Order, PageCount};
use crate::zone::pcp::packed::BATCH;

mod clusters;
mod counts;
pub(crate) mod cpu_owned;
mod deferred_merge;
pub(crate) mod depot;
mod detach;
mod pages;
mod prefetching;
mod quiescence;
mod single;
mod splice;

#[cfg(all(test, any(loom, shuttle)))]
pub(crate) use clusters::HELD_RECORD;
pub(crate) use clusters::{ClusterId, ClusterState, ClusterTable, RecordState, clusters_for, words_for_clusters};
pub(crate) use counts::TransferCounters;
pub use counts::{ClusterDrains, TransferStatistics, ZoneLockTelemetry};
pub(crate) use deferred_merge::merge_later;
pub(crate) use quiescence::{Quiescence, TransferStalled};

/// What is in progress at the border of a zone, but for cuts: each is in the [`TransferCounters`] of its CPU.
#[derive(Default)]
pub(crate) struct TransferState {
    /// How many [`Quiescence`]s there are; changed under the zone lock.
    quiescences: AtomicU32,
    depot: depot::DepotState,
    /// How many pageblocks CPUs own; changed under the zone lock.
    owned_pageblocks: AtomicU32,
    pub(crate) clusters: ClusterState,
    pub(crate) waits: WaitCounts,
}

all_atomic!(TransferState { quiescences, depot, owned_pageblocks, clusters, waits });

/// What is counted of waiting for what is in progress; all else is counted in a [`TransferCounters`].
#[derive(Default)]
pub(crate) struct WaitCounts {
    /// Times somebody waited.
    pub(crate) waits: AtomicU64,
    /// Looks that they took.
    pub(crate) rounds: AtomicU64,
    /// Those that gave up.
    pub(crate) stalls: AtomicU64,
}

all_atomic!(WaitCounts { waits, rounds, stalls });

/// Up to one batch of blocks of one order on their way, by their places in the map.
pub(crate) struct Batch {
    pub(crate) entries: [u32; BATCH],
    pub(crate) len: usize,
}

impl Batch {
    pub(crate) fn none() -> Self {
        Self { entries: [0; BATCH], len: 0 }
    }

    pub(crate) fn one(entry: u32) -> Self {
        let mut picked = Self::none();
        picked.push(entry);
        picked
    }

    #[inline(always)]
    pub(crate) fn push(&mut self, entry: u32) {
        self.entries[self.len] = entry;
        self.len += 1;
    }

    #[inline(always)]
    pub(crate) fn entries(&self) -> &[u32] {
        &self.entries[..self.len]
    }
}

/// How many blocks a refill asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    /// A batch.
    pub(crate) wanted: usize,
    /// How many the list may get before it is at its limit.
    pub(crate) room: usize,
}

/// Fetches up to `wanted` blocks for a CPU's list and gives them to `deliver` a batch at a time, tagged as blocks of
/// per-CPU lists, in the order in which they are to be handed out. How many there were.
///
/// Fewer than `wanted` where the zone has no more, or the policy fetches less at once; more where whole clusters are moved,
/// up to half the room (the kernel's `nr_pcp_alloc` lets refills grow, too). The caller holds the lock of the
/// lists of `cpu`.
pub(crate) fn fetch<P: Platform>(
    view: ZoneView<'_, P>,
    request: BlockRequest,
    cpu: CpuId,
    Ask { wanted, room }: Ask,
    deliver: impl FnMut(&Batch),
) -> usize {
    view.platform.begin_activity(Activity::Refill);
    let got = match view.zone.policy() {
        ZonePolicy::Prefetch => prefetching::fetch(view, request, cpu, wanted, deliver),
        ZonePolicy::PrefetchBeforeLock => {
            prefetching::ahead_of_lock(view, request, wanted);
            pages::fetch(view, request, cpu, wanted, deliver)
        }
        ZonePolicy::LockPerPage => single::fetch(view, request, cpu, wanted, deliver),
        ZonePolicy::Cluster | ZonePolicy::ClusterBulk if request.order == Order::ZERO => {
            let most = if view.zone.policy() == ZonePolicy::ClusterBulk { room / 2 } else { wanted };
            detach::fetch(view, request, cpu, detach::Amount { wanted, most }, deliver)
        }
        ZonePolicy::OwnedBlocks => cpu_owned::fetch(view, request, cpu, wanted, deliver),
        _ => pages::fetch(view, request, cpu, wanted, deliver),
    };
    view.platform.end_activity(Activity::Refill, PageCount((got as u64) << request.order.0));
    got
}

/// Why blocks leave a CPU's lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DrainReason {
    /// A list is over its limit.
    Overflow,
    /// The lists are emptied: the blocks are wanted on the free lists, merged.
    Emptying,
}

/// Blocks of one CPU's lists on their way to the zone. What it holds of the zone it gives up when dropped.
pub(crate) struct Drain<'a, P: Platform> {
    view: ZoneView<'a, P>,
    policy: ZonePolicy,
    cpu: CpuId,
    why: DrainReason,
    /// How many frames were given back.
    pages: u64,
    locked: Option<LockedZone<'a, P>>,
}

impl<'a, P: Platform> Drain<'a, P> {
    /// The caller holds the lock of the lists of `cpu` as long as this lives. Made before the blocks are taken off the
    /// lists: some do that under the zone lock.
    pub(crate) fn new(view: ZoneView<'a, P>, cpu: CpuId, why: DrainReason) -> Self {
        view.platform.begin_activity(Activity::Drain);
        let policy = view.zone.policy();
        let locked = (policy == ZonePolicy::Vanilla416).then(|| view.lock_for(cpu));
        Self { view, policy, cpu, why, pages: 0, locked }
    }

    /// Gives blocks back. They are tagged as blocks of per-CPU lists.
    pub(crate) fn give(&mut self, picked: &Batch, order: Order) {
        self.pages += (picked.len as u64) << order.0;
        if self.view.has_cpu_owned_racy() {
            return cpu_owned::give_back(&mut self.locked, self.view, (self.cpu, self.why), picked, order);
        }
        let unmerged = order == Order::ZERO && self.why == DrainReason::Overflow;
        match self.policy {
            ZonePolicy::Vanilla416 => single::give_back(&mut self.locked, self.view, self.cpu, picked, order),
            ZonePolicy::LockPerPage => {
                // Held where owners had a part in what went before.
                self.locked = None;
                single::give_back_each(self.view, self.cpu, picked, order);
            }
            ZonePolicy::SkipMerge | ZonePolicy::Cluster if unmerged => self.give_unmerged(picked),
            ZonePolicy::ClusterBulk if unmerged => self.give_whole(picked),
            _ => pages::give_back(&mut self.locked, self.view, self.cpu, picked, order),
        }
    }
}

impl<P: Platform> Drain<'_, P> {
    fn give_unmerged(&mut self, picked: &Batch) {
        let Self { view, cpu, .. } = *self;
        deferred_merge::give_back(self.locked.get_or_insert_with(|| view.lock_for(cpu)), picked);
    }

    /// Gives blocks back as one cluster, or page by page where they cannot be one.
    fn give_whole(&mut self, picked: &Batch) {
        self.locked = None;
        if let Some(entering) = splice::prepare(self.view, self.cpu, picked) {
            let mut locked = self.view.lock_for(self.cpu);
            if locked.enter(picked, &entering) {
                self.locked = Some(locked);
                return;
            }
            drop(locked);
            splice::abandon(self.view, self.cpu, picked, &entering);
        }
        self.give_unmerged(picked);
    }
}

impl<P: Platform> Drop for Drain<'_, P> {
    fn drop(&mut self) {
        self.locked = None;
        self.view.platform.end_activity(Activity::Drain, PageCount(self.pages));
    }
}

/// Brings what is kept between the lists of CPUs and the free lists back to the free lists, merged.
///
/// # Errors
///
/// [`TransferStalled`] where somebody else has some of it in his hands after a bounded wait.
pub(crate) fn collect<P: Platform>(view: ZoneView<'_, P>) -> Result<(), TransferStalled> {
    view.platform.begin_activity(Activity::Collect);
    deferred_merge::collect(view);
    cpu_owned::collect(view);
    let collected = depot::collect(view);
    view.platform.end_activity(Activity::Collect, PageCount(0));
    collected
}
