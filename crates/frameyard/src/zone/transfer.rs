//! Transfer: how batches of blocks move between per-CPU lists and a zone's free lists, and when free blocks merge.
//!
//! The allocator knows this interface; the mechanisms are behind it, one folder each. A *policy* ([`ZonePolicy`]) names a mechanism
//! and its knobs. It is decoded once per refill or drain ([`Mechanism`]) and dispatched by a match in this file.
//!
//! | mechanism | policies |
//! |---|---|
//! | [`pagewise`]: page by page under the zone lock | `vanilla`, `vanilla-4.16`, `big-pcp`, `prefetch`, `prefetch-before-lock`, `lock-per-page` |
//! | [`deferred_merge`]: as page-wise, without merging on free | `skip-merge` |
//! | [`clusters`]: neighbours on a free list move together | `cluster`, `cluster-bulk` |
//! | [`cpu_owned`]: CPUs split and merge pageblocks of their own | `owned-blocks` |
//! | [`depot`]: lock-free stacks of full batches | `depot` (default) |
//!
//! # Interface
//!
//! | operation | called by | does |
//! |---|---|---|
//! | [`fetch`] | a refill | delivers blocks for an empty per-CPU list |
//! | [`Drain::give_back`], [`give_back_block`] | a drain; a free past the lists | returns blocks of a list, or one block |
//! | [`collect`] | a request that would fail, compaction, isolation, a change of the policy | returns to the free lists, merged, what the mechanism holds |
//! | [`BlockHooks`] | the free area | learns of blocks that join and leave free lists |
//! | [`validate_held`], [`validate_lists`], [`validate_free_block`] | the validator | checks the mechanism's equations |
//! | [`statistics`], [`held_pages_racy`], … | statistics and watermarks | reports counts |
//!
//! # Protocol
//!
//! A CPU calls `fetch` and `Drain` while it holds the lock of a CPU's lists, and reads the policy and the zone's quiescence under
//! it. So after the policy has changed and every CPU's lists were locked once, no transfer of the old policy is in progress; that
//! is how [`Yard::set_policy`](crate::Yard::set_policy) changes it. Lock order: a CPU's lists, a mechanism's lock, the zone; never
//! two of a kind.
//!
//! Mechanisms other than `pagewise` with its default knobs and `depot` can be compiled out by crate features; their policies are
//! then refused.

use super::batch::Batch;
use super::block_list::Place;
use super::counters::TransferCounters;
use super::free_area::BlockHooks;
use super::mechanisms::{MechanismTypes, Mechanisms};
use super::policy::ZonePolicy;
use super::state::{Reserves, Zone};
use super::view::{LockedZone, ZoneView};
use super::watermark::WatermarkLevel;
use crate::page::{Link, Residence, Tag};
use crate::platform::{Access, Activity, LineKind, Platform, SharedLine};
#[cfg(feature = "policy-deferred-merge")]
use crate::sync::Ordering;
use crate::sync::all_atomic;
use crate::units::{CpuId, MigrateType, Order, PageCount, Pfn, PfnRange, ZoneKind};

mod clusters;
mod cpu_owned;
#[cfg(feature = "policy-deferred-merge")]
mod deferred_merge;
mod depot;
mod exchange;
mod pagewise;
mod quiescence;
mod statistics;
mod table_sizes;
mod tables;
mod validate;

#[cfg(all(test, feature = "policy-clusters", any(loom, shuttle)))]
pub(crate) use clusters::HELD_RECORD;
pub use clusters::{ClusterDrains, ClusterStatistics};
pub use cpu_owned::CpuOwnedStatistics;
pub use depot::DepotStatistics;
pub(crate) use exchange::{DrainReason, DrainSource, RefillRequest};
pub(crate) use pagewise::ListLimits;
pub(crate) use quiescence::{Quiescence, TransferStalled};
pub(crate) use statistics::MechanismStatistics;
pub use statistics::TransferStatistics;
pub(crate) use table_sizes::TableSizes;
pub(crate) use tables::{TransferSpans, TransferTables, batch_words, batch_words_bound, plan};
pub(crate) use validate::{Found, Unsound};

/// The state of all mechanisms in one zone.
#[derive(Default)]
pub(crate) struct State {
    quiescence: quiescence::QuiescenceState,
    depot: depot::State,
    #[cfg(feature = "policy-cpu-owned")]
    cpu_owned: cpu_owned::State,
    lists: ListState,
}

all_atomic!(State {
    quiescence,
    depot,
    #[cfg(feature = "policy-cpu-owned")]
    cpu_owned,
    lists
});

/// The state of mechanisms that change what is on the free lists: one cache line, as one hold of the lock uses all of it.
#[repr(C, align(64))]
#[derive(Default)]
struct ListState {
    #[cfg(feature = "policy-clusters")]
    clusters: clusters::State,
    #[cfg(feature = "policy-deferred-merge")]
    deferred_merge: deferred_merge::State,
}

all_atomic!(ListState {
    #[cfg(feature = "policy-clusters")]
    clusters,
    #[cfg(feature = "policy-deferred-merge")]
    deferred_merge
});

#[cfg(not(loom))]
const _: () = assert!(size_of::<ListState>() <= 64, "one cache line");

/// What all mechanisms count for one CPU in one zone.
#[derive(Default)]
pub(crate) struct Counts {
    #[cfg(feature = "policy-deferred-merge")]
    deferred_merge: deferred_merge::Counts,
    #[cfg(feature = "policy-clusters")]
    clusters: clusters::Counts,
}

all_atomic!(Counts {
    #[cfg(feature = "policy-deferred-merge")]
    deferred_merge,
    #[cfg(feature = "policy-clusters")]
    clusters
});

/// The tables of all mechanisms, as one zone uses them.
#[derive(Clone, Copy)]
pub(crate) struct ZoneTables {
    #[cfg(feature = "policy-clusters")]
    clusters: clusters::Table,
    #[cfg(feature = "policy-cpu-owned")]
    cpu_owned: cpu_owned::CpuOwnedTables,
    depot: depot::Depot,
}

impl MechanismTypes for Mechanisms {
    type State = State;
    type Counts = Counts;
    type Tables = ZoneTables;
}

/// A mechanism with its knobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mechanism {
    Pagewise(pagewise::Knobs),
    #[cfg(feature = "policy-deferred-merge")]
    DeferredMerge,
    #[cfg(feature = "policy-clusters")]
    Clusters(clusters::Knobs),
    #[cfg(feature = "policy-cpu-owned")]
    CpuOwned,
    Depot,
}

impl Mechanism {
    /// The mechanism and knobs of a policy; `None` if it is not compiled in.
    pub(crate) fn of(policy: ZonePolicy) -> Option<Self> {
        match policy {
            ZonePolicy::Vanilla => Some(Self::Pagewise(pagewise::Knobs::Batched)),
            #[cfg(feature = "policy-pagewise-variants")]
            ZonePolicy::BigPcp => Some(Self::Pagewise(pagewise::Knobs::Batched)),
            #[cfg(feature = "policy-pagewise-variants")]
            ZonePolicy::Vanilla416 => Some(Self::Pagewise(pagewise::Knobs::PickUnderLock)),
            #[cfg(feature = "policy-pagewise-variants")]
            ZonePolicy::Prefetch => Some(Self::Pagewise(pagewise::Knobs::PrefetchNext)),
            #[cfg(feature = "policy-pagewise-variants")]
            ZonePolicy::PrefetchBeforeLock => Some(Self::Pagewise(pagewise::Knobs::PrefetchBeforeLock)),
            #[cfg(feature = "policy-pagewise-variants")]
            ZonePolicy::LockPerPage => Some(Self::Pagewise(pagewise::Knobs::LockPerPage)),
            #[cfg(feature = "policy-deferred-merge")]
            ZonePolicy::SkipMerge => Some(Self::DeferredMerge),
            #[cfg(feature = "policy-clusters")]
            ZonePolicy::Cluster => Some(Self::Clusters(clusters::Knobs::Single)),
            #[cfg(feature = "policy-clusters")]
            ZonePolicy::ClusterBulk => Some(Self::Clusters(clusters::Knobs::Bulk)),
            #[cfg(feature = "policy-cpu-owned")]
            ZonePolicy::OwnedBlocks => Some(Self::CpuOwned),
            ZonePolicy::Depot => Some(Self::Depot),
            #[cfg(not(all(
                feature = "policy-pagewise-variants",
                feature = "policy-clusters",
                feature = "policy-cpu-owned"
            )))]
            _ => None,
        }
    }

    /// How the mechanism treats single pages that a drain frees.
    #[cfg(feature = "policy-deferred-merge")]
    pub(in crate::zone::transfer) fn merging(self) -> deferred_merge::Merging {
        match self {
            Self::DeferredMerge => deferred_merge::Merging::Deferred,
            #[cfg(feature = "policy-clusters")]
            Self::Clusters(_) => deferred_merge::Merging::Clustered,
            _ => deferred_merge::Merging::AtOnce,
        }
    }

    /// The mechanism in force in a zone.
    fn in_force(zone: &Zone) -> Self {
        Self::of(zone.policy()).unwrap_or(Self::Pagewise(pagewise::Knobs::Batched))
    }
}

/// The mechanisms that are compiled in, as a set of bits.
pub(crate) const COMPILED_IN: u64 = (cfg!(feature = "policy-pagewise-variants") as u64)
    | (cfg!(feature = "policy-deferred-merge") as u64) << 1
    | (cfg!(feature = "policy-clusters") as u64) << 2
    | (cfg!(feature = "policy-cpu-owned") as u64) << 3;

/// The limits that a policy gives the per-CPU lists; `None` if they are as the yard sizes them.
pub(crate) fn list_limits(policy: ZonePolicy) -> Option<ListLimits> {
    (policy == ZonePolicy::BigPcp).then_some(pagewise::BIG_LISTS)
}

/// Fetches blocks for a per-CPU list, tags them as blocks of such lists, and gives them to `deliver` a batch at a time, in the
/// order in which the list should give them out. Returns their number.
///
/// There may be fewer blocks than wanted, if the zone has no more or the mechanism moves less at once, and more, if it moves whole
/// batches or clusters (the kernel's `nr_pcp_alloc` lets refills grow, too).
pub(crate) fn fetch<P: Platform>(view: ZoneView<'_, P>, refill: RefillRequest, deliver: impl FnMut(&Batch)) -> usize {
    view.platform.begin_activity(Activity::Refill);
    let got = match Mechanism::in_force(view.zone) {
        Mechanism::Pagewise(knobs) => knobs.fetch(view, refill, deliver),
        #[cfg(feature = "policy-deferred-merge")]
        Mechanism::DeferredMerge => pagewise::fetch(view, refill, deliver),
        #[cfg(feature = "policy-clusters")]
        Mechanism::Clusters(knobs) if refill.blocks.order == Order::ZERO => {
            clusters::fetch(view, refill, knobs, deliver)
        }
        #[cfg(feature = "policy-clusters")]
        Mechanism::Clusters(_) => pagewise::fetch(view, refill, deliver),
        #[cfg(feature = "policy-cpu-owned")]
        Mechanism::CpuOwned => cpu_owned::fetch(view, refill, deliver),
        Mechanism::Depot => {
            match refill.batch_type.and_then(|list_type| depot::ListAccess::open(view, refill.cpu, list_type)) {
                Some(access) => access.fetch(refill, deliver),
                None => pagewise::fetch(view, refill, deliver),
            }
        }
    };
    view.platform.end_activity(Activity::Refill, PageCount((got as u64) << refill.blocks.order.0));
    got
}

/// A drain of one CPU's lists. Drops the zone lock, if it holds it, when dropped.
pub(crate) struct Drain<'a, P: Platform> {
    view: ZoneView<'a, P>,
    mechanism: Mechanism,
    cpu: CpuId,
    reason: DrainReason,
    /// Frames given back under the span that is open, if one is.
    pages: Option<u64>,
    locked: Option<LockedZone<'a, P>>,
}

impl<'a, P: Platform> Drain<'a, P> {
    /// The caller holds the lock of the lists of `cpu` while this lives.
    pub(crate) fn begin(view: ZoneView<'a, P>, cpu: CpuId, reason: DrainReason) -> Self {
        Self { view, mechanism: Mechanism::in_force(view.zone), cpu, reason, pages: None, locked: None }
    }

    /// Gives back blocks of a list: `most` of them, or a batch if the mechanism moves whole batches. Returns their number.
    pub(crate) fn give_back(&mut self, source: &mut impl DrainSource, order: Order, most: usize) -> usize {
        if self.mechanism == Mechanism::Depot
            && self.reason != DrainReason::Emptying
            && let Some(list_type) = source.batch_type()
        {
            // The depot may take the zone lock.
            self.end_span();
            let access = depot::ListAccess::open(self.view, self.cpu, list_type);
            let given = access.map_or(0, |access| access.give_back(source, self.reason));
            if given > 0 {
                return given;
            }
        }
        if self.reason == DrainReason::ArrayFull {
            return 0;
        }
        source.announce();
        self.begin_span();
        if let Mechanism::Pagewise(knobs) = self.mechanism {
            knobs.before_picking(&mut self.locked, self.view, self.cpu);
        }
        let batch = source.take(most);
        self.free(&batch, order);
        batch.len()
    }

    /// Gives back one block that is on no list.
    pub(crate) fn give_back_entry(&mut self, entry: u32, order: Order) {
        self.begin_span();
        self.free(&Batch::of(&[entry]), order);
    }

    /// Frees a batch. Its blocks are tagged as blocks of per-CPU lists.
    fn free(&mut self, batch: &Batch, order: Order) {
        let Self { view, cpu, .. } = *self;
        self.pages = self.pages.map(|pages| pages + ((batch.len() as u64) << order.0));
        #[cfg(feature = "policy-cpu-owned")]
        if view.has_cpu_owned_racy() {
            return cpu_owned::give_back(&mut self.locked, view, (cpu, self.reason), batch, order);
        }
        #[cfg(feature = "policy-deferred-merge")]
        let defers = order == Order::ZERO && self.reason == DrainReason::Overflow;
        match self.mechanism {
            Mechanism::Pagewise(knobs) => knobs.give_back(&mut self.locked, view, cpu, batch, order),
            #[cfg(feature = "policy-deferred-merge")]
            Mechanism::DeferredMerge if defers => {
                deferred_merge::give_back(self.locked.get_or_insert_with(|| view.lock_for(cpu)), batch);
            }
            #[cfg(feature = "policy-clusters")]
            Mechanism::Clusters(clusters::Knobs::Single) if defers => {
                deferred_merge::give_back(self.locked.get_or_insert_with(|| view.lock_for(cpu)), batch);
            }
            #[cfg(feature = "policy-clusters")]
            Mechanism::Clusters(clusters::Knobs::Bulk) if defers => {
                clusters::give_back(&mut self.locked, view, cpu, batch);
            }
            _ => pagewise::give_back(&mut self.locked, view, cpu, batch, order),
        }
    }

    fn begin_span(&mut self) {
        if self.pages.is_none() {
            self.view.platform.begin_activity(Activity::Drain);
            self.pages = Some(0);
        }
    }

    /// Drops the zone lock and ends the span.
    fn end_span(&mut self) {
        self.locked = None;
        if let Some(pages) = self.pages.take() {
            self.view.platform.end_activity(Activity::Drain, PageCount(pages));
        }
    }
}

impl<P: Platform> Drop for Drain<'_, P> {
    fn drop(&mut self) {
        self.end_span();
    }
}

/// Frees a block that the caller owns past the per-CPU lists.
pub(crate) fn give_back_block<P: Platform>(view: ZoneView<'_, P>, cpu: CpuId, pfn: Pfn, order: Order) {
    #[cfg(feature = "policy-cpu-owned")]
    if cpu_owned::free_to_owner(view, cpu, pfn, order) == cpu_owned::FreedTo::Owner {
        return;
    }
    let _ = cpu;
    let mut locked = view.lock();
    locked.free_to_pageblocks(pfn, order, Residence::Resident);
    locked.count_direct_free(order);
}

/// What should return to the free lists.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Collect {
    /// Everything.
    All,
    /// What the mechanisms hold of the pageblock of a frame that the caller holds. The pageblock stays without an owner until the
    /// caller frees the frame.
    Pageblock(Pfn),
    /// Deferred merges of a range, as far as buddies are free.
    Merges(PfnRange),
    /// Enough for a request of that order and type, without taking another type's blocks.
    For(Order, MigrateType),
    /// A background step: some batches, if large blocks run low.
    InBackground,
}

/// What came of collecting.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Collected {
    /// Whether the mechanisms held anything that was asked for. Counted for [`Collect::For`] only.
    pub(crate) any: bool,
    /// Merges made. Counted for [`Collect::Merges`] only.
    pub(crate) merges: u64,
}

/// Returns to the free lists, merged, what the mechanisms hold.
///
/// # Errors
///
/// [`TransferStalled`] if another CPU still holds some of it after a bounded wait. For [`Collect::All`] only.
pub(crate) fn collect<P: Platform>(view: ZoneView<'_, P>, what: Collect) -> Result<Collected, TransferStalled> {
    let mut collected = Collected::default();
    match what {
        Collect::All => return collect_all(view).map(|()| collected),
        #[cfg(feature = "policy-cpu-owned")]
        Collect::Pageblock(pfn) => cpu_owned::give_up(view, pfn),
        #[cfg(feature = "policy-deferred-merge")]
        Collect::Merges(frames) if view.has_unmerged_racy() => {
            collected.merges = deferred_merge::merge_range(view, frames);
        }
        #[cfg(not(feature = "policy-cpu-owned"))]
        Collect::Pageblock(_) => {}
        Collect::Merges(_) => {}
        Collect::For(order, migrate_type) => collected.any = depot::collect_for(view, order, migrate_type),
        Collect::InBackground => depot::collect_in_background(view),
    }
    Ok(collected)
}

fn collect_all<P: Platform>(view: ZoneView<'_, P>) -> Result<(), TransferStalled> {
    view.platform.begin_activity(Activity::Collect);
    let mechanism = Mechanism::in_force(view.zone);
    #[cfg(feature = "policy-clusters")]
    clusters::collect(view, mechanism.merging());
    #[cfg(all(feature = "policy-deferred-merge", not(feature = "policy-clusters")))]
    {
        use deferred_merge::Rest;
        let rest = if mechanism == Mechanism::DeferredMerge { Rest::Stays } else { Rest::Unmarked };
        deferred_merge::collect(view, rest, || false);
    }
    let _ = mechanism;
    #[cfg(feature = "policy-cpu-owned")]
    cpu_owned::collect(view);
    let collected = depot::collect(view);
    view.platform.end_activity(Activity::Collect, PageCount(0));
    collected
}

/// Whether mechanisms hold free blocks that [`collect`] would return, or a collector has some in transit. Possibly stale.
pub(crate) fn holds_blocks_racy<P: Platform>(view: ZoneView<'_, P>) -> bool {
    #[cfg(feature = "policy-cpu-owned")]
    if view.has_cpu_owned_racy() {
        return true;
    }
    view.is_depot_in_use_racy()
}

/// Whether a mechanism holds the pageblock around a frame, so that none of it may go to the free lists. Exact under the zone lock.
pub(crate) fn holds_pageblock<P: Platform>(locked: &LockedZone<'_, P>, pfn: Pfn) -> bool {
    #[cfg(feature = "policy-cpu-owned")]
    if cpu_owned::is_owned(**locked, pfn) {
        return true;
    }
    let _ = (locked, pfn);
    false
}

/// Whether empty lists have to be locked too by a caller that waits for transfers: batches may move past lists that look empty.
pub(crate) fn moves_past_zone_lock(zone: &Zone) -> bool {
    Mechanism::in_force(zone) == Mechanism::Depot
}

/// Whether another CPU's lists are a better place than the free lists for a request that finds its own locked.
pub(crate) fn spares_zone_lock<P: Platform>(view: ZoneView<'_, P>) -> bool {
    Mechanism::in_force(view.zone) == Mechanism::Depot && view.has_whole_pageblocks_racy()
}

impl<P: Platform> ZoneView<'_, P> {
    /// Whether the zone would stay above a watermark if a block of `order` were taken (`__zone_watermark_ok`). Frames that mechanisms
    /// hold count as free; they are read only if the free lists are not enough.
    pub(crate) fn watermark_ok_racy(
        &self,
        order: Order,
        mark: WatermarkLevel,
        highest: ZoneKind,
        reserves: Reserves,
    ) -> bool {
        self.platform.touch_line(SharedLine::of(LineKind::ZoneFacts, &self.zone.facts.watermarks), Access::Read);
        self.touch_free_pages(Access::Read);
        self.zone.watermark_ok_with_racy(order, mark, highest, reserves, PageCount(0))
            || self.zone.watermark_ok_with_racy(order, mark, highest, reserves, held_pages_racy(*self))
    }
}

/// Free frames that mechanisms hold and that count as free. Possibly stale.
pub(crate) fn held_pages_racy<P: Platform>(view: ZoneView<'_, P>) -> PageCount {
    view.mechanisms.depot.pages_racy()
}

/// The part of [`held_pages_racy`] of one migration type. Possibly stale.
pub(crate) fn held_pages_of_racy<P: Platform>(view: ZoneView<'_, P>, migrate_type: MigrateType) -> PageCount {
    view.mechanisms.depot.pages_of_racy(migrate_type)
}

/// Free frames whose merge is deferred. Possibly stale.
pub(crate) fn unmerged_pages_racy(zone: &Zone) -> PageCount {
    #[cfg(feature = "policy-deferred-merge")]
    return PageCount(zone.mechanisms.lists.deferred_merge.skipped_racy());
    #[cfg(not(feature = "policy-deferred-merge"))]
    {
        let _ = zone;
        PageCount(0)
    }
}

impl<P: Platform> BlockHooks for LockedZone<'_, P> {
    #[inline(always)]
    fn block_added(&mut self, pfn: Pfn, tag: Tag, neighbour: Link, place: Place) {
        #[cfg(feature = "policy-clusters")]
        if tag.order() == Order::ZERO
            && tag.residence() == Residence::Resident
            && self.zone.mechanisms.lists.clusters.is_joining()
        {
            clusters::join(self, pfn, tag, self.map.linked(neighbour), place);
        }
        let _ = (pfn, tag, neighbour, place);
    }

    #[inline(always)]
    fn block_removed(&mut self, pfn: Pfn, tag: Tag, prev: Link) {
        #[cfg(feature = "policy-deferred-merge")]
        if tag.has_listing() {
            leave_list(self, pfn, tag, prev);
        }
        let _ = (pfn, tag, prev);
    }

    #[inline(always)]
    fn block_relinked(&mut self, pfn: Pfn, tag: Tag) {
        #[cfg(feature = "policy-deferred-merge")]
        if tag.is_merge_skipped() {
            // Its buddy may still be free.
            deferred_merge::mark_skipped(self, pfn);
        }
        let _ = (pfn, tag);
    }

    #[inline(always)]
    fn only_looks_free(&self, pfn: Pfn, tag: Tag) -> bool {
        #[cfg(feature = "policy-clusters")]
        return tag.is_clustered() && !clusters::is_in_listed_cluster(self, pfn);
        #[cfg(not(feature = "policy-clusters"))]
        {
            let _ = (pfn, tag);
            false
        }
    }

    #[inline(always)]
    fn may_be_in_transit(&self, tag: Tag) -> bool {
        cfg!(feature = "policy-clusters") && tag.is_clustered()
    }
}

#[cfg(feature = "policy-deferred-merge")]
#[cold]
#[inline(never)]
fn leave_list<P: Platform>(locked: &mut LockedZone<'_, P>, pfn: Pfn, tag: Tag, prev: Link) {
    if tag.is_merge_skipped() {
        locked.sub_skipped(1);
    }
    #[cfg(feature = "policy-clusters")]
    if tag.is_clustered() {
        clusters::leave(locked, pfn, tag, prev);
    }
    let _ = (pfn, prev);
}

/// Checks what the mechanisms hold beside the free lists, and counts it. For a yard at rest.
pub(crate) fn validate_held<P: Platform>(view: ZoneView<'_, P>, found: &mut Found) -> Result<(), Unsound> {
    depot::validate(view, found)?;
    #[cfg(feature = "policy-cpu-owned")]
    cpu_owned::validate(view, found)?;
    Ok(())
}

/// Checks what the mechanisms keep about the free lists, whose links are sound and which have `unmerged` marked pages.
pub(crate) fn validate_lists<P: Platform>(locked: &LockedZone<'_, P>, unmerged: u64) -> Result<(), Unsound> {
    validate::compare("pages that skipped merging", unmerged_pages_racy(locked.zone).0, unmerged)?;
    #[cfg(feature = "policy-clusters")]
    clusters::validate(locked)?;
    Ok(())
}

/// Checks a block on the zone's free lists.
pub(crate) fn validate_free_block<P: Platform>(view: ZoneView<'_, P>, pfn: Pfn, order: Order) -> Result<(), Unsound> {
    #[cfg(feature = "policy-cpu-owned")]
    cpu_owned::validate_free_block(view, pfn, order)?;
    let _ = (view, pfn, order);
    Ok(())
}

/// What the mechanisms counted for one CPU, or for all that does not come from a CPU's lists.
pub(crate) fn counted(counters: &TransferCounters) -> TransferStatistics {
    let mut sum = TransferStatistics::default();
    let counts = &counters.mechanisms;
    #[cfg(feature = "policy-deferred-merge")]
    {
        sum.skipped_merges = counts.deferred_merge.skipped_merges.load(Ordering::Relaxed);
        sum.later_merges = counts.deferred_merge.later_merges.load(Ordering::Relaxed);
    }
    #[cfg(feature = "policy-clusters")]
    {
        (sum.detachments, sum.detached_pages) = counts.clusters.detached();
        sum.drains = counts.clusters.drains();
    }
    let _ = (counts, &mut sum);
    sum
}

/// The state of the mechanisms in a zone; `counted` is the sum of [`counted`] over all CPUs.
pub(crate) fn statistics<P: Platform>(view: ZoneView<'_, P>, counted: &TransferStatistics) -> MechanismStatistics {
    let state = &view.zone.mechanisms;
    let waits = state.quiescence.waits();
    let mut clusters = ClusterStatistics {
        unmerged: unmerged_pages_racy(view.zone),
        skipped_merges: counted.skipped_merges,
        later_merges: counted.later_merges,
        detachments: counted.detachments,
        detached_pages: counted.detached_pages,
        drains: counted.drains,
        waits: waits[0],
        wait_rounds: waits[1],
        stalls: waits[2],
        ..ClusterStatistics::default()
    };
    #[cfg(feature = "policy-clusters")]
    state.lists.clusters.add_to(&mut clusters);
    let _ = &mut clusters;
    MechanismStatistics {
        clusters,
        cpu_owned: cpu_owned_statistics(view, None),
        depot: view.mechanisms.depot.statistics(),
    }
}

/// The pageblocks that one CPU owns, or all CPUs.
pub(crate) fn cpu_owned_statistics<P: Platform>(view: ZoneView<'_, P>, cpu: Option<CpuId>) -> CpuOwnedStatistics {
    #[cfg(feature = "policy-cpu-owned")]
    return view.mechanisms.cpu_owned.statistics(view.id, cpu);
    #[cfg(not(feature = "policy-cpu-owned"))]
    {
        let _ = (view, cpu);
        CpuOwnedStatistics::default()
    }
}
