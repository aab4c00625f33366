//! Published ways to move batches between per-CPU lists and free lists. They exist for comparison. All of them work on
//! the [buddy store](crate::store::buddy), and use [`pagewise`] for everything that they do not change.
//!
//! | module | policies |
//! |---|---|
//! | [`one_by_one`]: each block is freed by itself | `vanilla-4.16`, `vanilla-4.17`, `lock-per-page` |
//! | [`prefetching`]: refills prefetch pages of the free lists | `prefetch`, `prefetch-before-lock` |
//! | [`deferred_merge`]: no merging on free | `skip-merge` |
//! | [`clusters`]: neighbours on a free list move together | `cluster`, `cluster-bulk` |
//!
//! A build without the feature `published` has none of them, and refuses their policies as well as `big-pcp`.

use crate::control::{ControlRegion, TablePlanner, TableSpan};
use crate::memmap::MapPlace;
use crate::page::{Link, Residence, Tag};
use crate::platform::Platform;
use crate::store::batch::Batch;
use crate::store::buddy::free_area::BlockHooks;
use crate::store::buddy::pagewise;
use crate::store::statistics::CounterInfo;
use crate::store::{RefillRequest, TableSizes, Unsound, compare};
use crate::sync::all_atomic;
use crate::units::{CpuId, MigrateType, Order, PageCount, Pfn, PfnRange};
use crate::zone::block_list::Place;
use crate::zone::effort::FEW_PAGEBLOCKS;
use crate::zone::policy::{Store, Transfer};
use crate::zone::state::Zone;
use crate::zone::view::{LockedZone, ZoneView};

mod clusters;
mod deferred_merge;
mod one_by_one;
mod prefetching;

pub(crate) use clusters::{batch_words, batch_words_bound};

/// Whether they are compiled in.
pub(crate) const COMPILED_IN: bool = cfg!(feature = "published");

/// Their state in one zone: one cache line, as one hold of the lock uses all of it.
#[repr(C, align(64))]
#[derive(Default)]
pub(in crate::store) struct State {
    clusters: clusters::State,
    deferred_merge: deferred_merge::State,
}

all_atomic!(State { clusters, deferred_merge });

#[cfg(not(loom))]
const _: () = assert!(size_of::<State>() <= 64, "one cache line");

/// What they count for one CPU in one zone.
#[derive(Default)]
pub(crate) struct Counts {
    deferred_merge: deferred_merge::Counts,
    clusters: clusters::Counts,
}

all_atomic!(Counts { deferred_merge, clusters });

/// The counters of each.
pub(in crate::store) const COUNTERS: [&[CounterInfo]; 2] = [deferred_merge::COUNTERS, clusters::COUNTERS];

/// The values of [`COUNTERS`].
pub(in crate::store) fn count<P: Platform>(
    view: ZoneView<'_, P>,
    counts: &Counts,
    cpu: Option<CpuId>,
) -> impl Iterator<Item = Option<u64>> {
    deferred_merge::count(view, counts, cpu).into_iter().chain(clusters::count(view, counts, cpu))
}

/// Whether that is a counter of a store with such transfers.
#[cfg(all(test, loom))]
pub(crate) fn counts(store: Store, name: &str) -> bool {
    let groups = merging(store) == deferred_merge::Merging::Grouped;
    let defers = groups || merging(store) == deferred_merge::Merging::Deferred;
    let has = |counters: &[CounterInfo]| counters.iter().any(|info| info.name == name);
    defers && has(deferred_merge::COUNTERS) || groups && has(clusters::COUNTERS)
}

/// Their tables.
#[derive(Clone, Copy)]
pub(in crate::store) struct Tables {
    clusters: clusters::Table,
}

/// Plans the tables; `None` if they do not fit an address space.
pub(in crate::store) const fn plan(planner: &mut TablePlanner, sizes: &TableSizes) -> Option<TableSpan> {
    clusters::plan(planner, sizes)
}

impl Tables {
    /// # Safety
    ///
    /// As for [`ControlRegion::table`]: the span is that of [`plan`].
    pub(in crate::store) unsafe fn carve(region: &ControlRegion, span: TableSpan) -> Option<Self> {
        // SAFETY: passed on to the caller.
        unsafe { Some(Self { clusters: region.table(span)? }) }
    }

    /// Prepares the tables of a new yard; `None` if its zones are not those that the tables were planned for.
    pub(in crate::store) fn assign(
        self,
        zones: &[Zone],
        store: Store,
        batch: &dyn Fn(PageCount) -> PageCount,
    ) -> Option<()> {
        clusters::assign(self.clusters, zones, merging(store), batch)
    }

    pub(in crate::store) fn fit(self, zones: &[Zone]) -> bool {
        clusters::fits(self.clusters, zones)
    }
}

/// What becomes of single pages that a drain frees.
fn merging(store: Store) -> deferred_merge::Merging {
    match store {
        Store::Buddy(Transfer::DeferredMerge) => deferred_merge::Merging::Deferred,
        Store::Buddy(Transfer::Clusters | Transfer::ClusterBatches) => deferred_merge::Merging::Grouped,
        _ => deferred_merge::Merging::AtOnce,
    }
}

/// Fetches blocks for a refill; returns their number.
#[inline(never)]
pub(crate) fn fetch<P: Platform>(
    view: ZoneView<'_, P>,
    transfer: Transfer,
    refill: RefillRequest,
    deliver: impl FnMut(&Batch),
) -> usize {
    match transfer {
        Transfer::PrefetchNext => prefetching::fetch(view, refill, deliver),
        Transfer::PrefetchBeforeLock => {
            prefetching::ahead_of_lock(view, refill);
            pagewise::fetch(view, refill, deliver)
        }
        Transfer::LockPerPage => one_by_one::fetch(view, refill, deliver),
        Transfer::Clusters | Transfer::ClusterBatches if refill.blocks.order == Order::ZERO => {
            clusters::fetch(view, refill, transfer == Transfer::ClusterBatches, deliver)
        }
        _ => pagewise::fetch(view, refill, deliver),
    }
}

/// Takes the zone lock if a drain picks its blocks under it.
pub(crate) fn before_picking<'a, P: Platform>(
    transfer: Transfer,
    locked: &mut Option<LockedZone<'a, P>>,
    view: ZoneView<'a, P>,
    cpu: CpuId,
) {
    if COMPILED_IN && transfer == Transfer::PickUnderLock {
        _ = view.lock_unless(locked, cpu);
    }
}

/// Frees a batch of a drain, whose frames are wanted `merged` or not.
pub(crate) fn give_back<'a, P: Platform>(
    (transfer, merged): (Transfer, bool),
    locked: &mut Option<LockedZone<'a, P>>,
    view: ZoneView<'a, P>,
    cpu: CpuId,
    (batch, order): (&Batch, Order),
) {
    let defers = order == Order::ZERO && !merged;
    match transfer {
        Transfer::LockPerPage => {
            *locked = None;
            one_by_one::give_back_each(view, cpu, batch, order);
        }
        Transfer::PickUnderLock => one_by_one::give_back(locked, view, cpu, batch, order),
        Transfer::FirstBuddies => {
            one_by_one::read_buddies_ahead(locked.as_ref(), view, batch, order);
            one_by_one::give_back(locked, view, cpu, batch, order);
        }
        Transfer::ClusterBatches if defers => clusters::give_back(locked, view, cpu, batch),
        Transfer::DeferredMerge | Transfer::Clusters if defers => {
            if let Some(locked) = view.lock_unless(locked, cpu) {
                deferred_merge::give_back(locked, batch);
            }
        }
        _ => pagewise::give_back(locked, view, cpu, batch, order),
    }
}

/// Merges what was not merged on free, and lets pages join clusters, or ends those there are, as the policy has it.
pub(in crate::store) fn collect<P: Platform>(view: ZoneView<'_, P>) {
    if COMPILED_IN {
        clusters::collect(view, merging(view.zone.policy().parts().store));
    }
}

/// Merges the deferred merges of a range, as far as buddies are free; the number of merges.
pub(crate) fn merge_range<P: Platform>(view: ZoneView<'_, P>, frames: PfnRange) -> u64 {
    if view.has_unmerged_racy() { deferred_merge::merge_range(view, frames) } else { 0 }
}

/// Merges deferred merges of a few pageblocks, until there is a block of that order and type.
pub(in crate::store) fn merge_some<P: Platform>(view: ZoneView<'_, P>, order: Order, migrate_type: MigrateType) {
    deferred_merge::merge_some(view, FEW_PAGEBLOCKS, || view.zone.has_block_of_type_racy(order, migrate_type));
}

/// Free frames whose merge is deferred. Possibly stale.
pub(crate) fn unmerged_pages_racy(zone: &Zone) -> PageCount {
    PageCount(zone.mechanisms.published.deferred_merge.skipped_racy())
}

impl<P: Platform> BlockHooks for LockedZone<'_, P> {
    #[inline(always)]
    fn block_added(&mut self, block: MapPlace, tag: Tag, neighbour: Link, end: Place) {
        self.note_tagged(block.index() as usize, tag.order());
        if tag.order() == Order::ZERO
            && tag.residence() == Residence::Resident
            && self.zone.mechanisms.published.clusters.is_joining()
        {
            clusters::join(self, self.map.pfn(block), tag, self.map.linked(neighbour), end);
        }
    }

    #[inline(always)]
    fn block_removed(&mut self, block: MapPlace, tag: Tag, prev: Link) {
        if COMPILED_IN && tag.has_marks() {
            leave_list(self, block, tag, prev);
        }
    }

    #[inline(always)]
    fn block_relinked(&mut self, pfn: Pfn, tag: Tag) {
        if COMPILED_IN && tag.is_merge_skipped() {
            // Its buddy may still be free.
            deferred_merge::mark_skipped(self, pfn);
        }
    }

    #[inline(always)]
    fn only_looks_free(&self, pfn: Pfn, tag: Tag) -> bool {
        self.may_be_in_transit(tag) && !clusters::is_in_listed_cluster(self, pfn)
    }

    #[inline(always)]
    fn may_be_in_transit(&self, tag: Tag) -> bool {
        COMPILED_IN && tag.is_tentative()
    }
}

#[cold]
#[inline(never)]
fn leave_list<P: Platform>(locked: &mut LockedZone<'_, P>, block: MapPlace, tag: Tag, prev: Link) {
    if tag.is_merge_skipped() {
        locked.sub_skipped(1);
    }
    if tag.is_tentative() {
        clusters::leave(locked, locked.map.pfn(block), tag, prev);
    }
}

/// Checks what they keep about the free lists, whose links are sound and which have `unmerged` marked pages.
pub(in crate::store) fn validate<P: Platform>(locked: &LockedZone<'_, P>, unmerged: u64) -> Result<(), Unsound> {
    compare("pages that skipped merging", unmerged_pages_racy(locked.zone).0, unmerged)?;
    clusters::validate(locked)
}
