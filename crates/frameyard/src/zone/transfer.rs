//! Transfer: how batches of blocks move between per-CPU lists and a zone's free lists, and when free blocks merge.
//!
//! The allocator knows this interface; the mechanisms are behind it, one folder each. A *policy* ([`ZonePolicy`]) names a mechanism
//! and its knobs. It is decoded once per refill or drain ([`Mechanism`]) and dispatched by a match in this file.
//!
//! | mechanism | policies |
//! |---|---|
//! | [`pagewise`]: page by page under the zone lock | `vanilla`, `vanilla-4.16`, `vanilla-4.17`, `big-pcp`, `prefetch`, `prefetch-before-lock`, `lock-per-page` |
//! | [`deferred_merge`]: as page-wise, without merging on free | `skip-merge` |
//! | [`clusters`]: neighbours on a free list move together | `cluster`, `cluster-bulk` |
//! | [`depot`]: lock-free stacks of full batches | `depot`, `healing` (default) |
//! | [`bits`]: free frames are bits of their pageblock | `bits` |
//!
//! # Interface
//!
//! | operation | called by | does |
//! |---|---|---|
//! | [`fetch`] | a refill | delivers blocks for an empty per-CPU list |
//! | [`Drain::give_back`], [`give_back_block`] | a drain; a free past the lists | returns blocks of a list, or one block |
//! | [`collect`] | a request that would fail, compaction, isolation, a change of the policy | returns to the free lists, merged, what the mechanism holds |
//! | [`BlockHooks`] | the free area | learns of blocks that join and leave free lists |
//! | [`validate_held`], [`validate_lists`] | the validator | checks the mechanism's equations |
//! | [`MechanismCounts::of`], [`holds_enough`], … | statistics and watermarks | reports counts |
//!
//! # Protocol
//!
//! A CPU calls `fetch` and `Drain` while it holds the lock of a CPU's lists, and reads the policy and the zone's quiescence under
//! it. So after the policy has changed and every CPU's lists were locked once, no transfer of the old policy is in progress; that
//! is how [`Yard::set_policy`](crate::Yard::set_policy) changes it. Lock order: a CPU's lists, the zone; never two of a kind.
//!
//! Mechanisms other than `pagewise` with its default knobs and `depot` can be compiled out by crate features; their policies are
//! then refused.

use super::batch::Batch;
use super::block_list::Place;
use super::effort::{Effort, FEW_PAGEBLOCKS, Patience};
use super::free_area::BlockHooks;
use super::mechanisms::{MechanismTypes, Mechanisms};
use super::policy::ZonePolicy;
use super::request::BlockRequest;
use super::state::{HeldFree, Zone};
use super::view::{LockedZone, ZoneView};
use crate::control::{ControlRegion, TablePlanner, TableSpan};
use crate::memmap::{Located, MapPlace};
use crate::page::{Link, Residence, Tag};
use crate::platform::{Activity, Platform};
use crate::sync::is_broken;
use crate::sync::{AtomicU16, all_atomic};
use crate::units::{CpuId, MigrateType, Order, PageCount, Pfn};
use crate::zone::checks::PageChecks;

mod bits;
mod clusters;
mod deferred_merge;
mod depot;
mod drain;
mod exchange;
mod pagewise;
mod quiescence;
mod statistics;
mod table_sizes;
mod validate;

pub(crate) use clusters::{batch_words, batch_words_bound};
#[cfg(all(test, loom))]
pub(crate) use depot::give_back_for_model;
pub(crate) use depot::{
    HEALING_SHARE, LEAST_HEALING, Mobility, huge_batch, huge_blocks_of_lists, least_room, pop_huge, push_huge,
};
pub(crate) use drain::Drain;
pub(crate) use exchange::{Collect, Collected, Delivered, DrainReason, DrainSource, PackedBatches, RefillRequest};
pub(crate) use pagewise::{ListLimits, give_back_isolated, prefetch_neighbours};
pub(crate) use quiescence::{Quiescence, TransferStalled};
pub use statistics::{CounterInfo, CounterKind, CounterScope, MechanismCounts};
pub(crate) use table_sizes::TableSizes;
pub(crate) use validate::{Found, Unsound};

/// The state of all mechanisms in one zone.
#[derive(Default)]
pub(crate) struct State {
    quiescence: quiescence::QuiescenceState,
    depot: depot::State,
    lists: ListState,
}

all_atomic!(State { quiescence, depot, lists });

/// The state of mechanisms that change what is on the free lists: one cache line, as one hold of the lock uses all of it.
#[repr(C, align(64))]
#[derive(Default)]
struct ListState {
    clusters: clusters::State,
    deferred_merge: deferred_merge::State,
}

all_atomic!(ListState { clusters, deferred_merge });

#[cfg(not(loom))]
const _: () = assert!(size_of::<ListState>() <= 64, "one cache line");

/// What all mechanisms count for one CPU in one zone.
#[derive(Default)]
pub(crate) struct Counts {
    deferred_merge: deferred_merge::Counts,
    clusters: clusters::Counts,
}

all_atomic!(Counts { deferred_merge, clusters });

/// The number of tables that mechanisms have.
pub(crate) const TRANSFER_TABLES: usize = 4;

/// Where the mechanisms' tables lie.
pub(crate) type TransferSpans = ([TableSpan; TRANSFER_TABLES], bits::Spans);

/// The tables of all mechanisms.
#[derive(Clone, Copy)]
pub(crate) struct TransferTables {
    clusters: clusters::Table,
    depot: depot::Tables,
    bits: bits::Tables,
}

/// Plans the tables; `None` if they do not fit an address space.
pub(crate) const fn plan(planner: &mut TablePlanner, sizes: &TableSizes) -> Option<TransferSpans> {
    match (clusters::plan(planner, sizes), depot::plan(planner, sizes), bits::plan(planner, sizes)) {
        (Some(clusters), Some([cpus, shelves, links]), Some(bits)) => Some(([clusters, cpus, shelves, links], bits)),
        _ => None,
    }
}

impl TransferTables {
    /// The tables at spans that [`plan`] made; `None` if a span does not lie in the region.
    ///
    /// # Safety
    ///
    /// As for [`ControlRegion::table`].
    pub(crate) unsafe fn carve(region: &ControlRegion, spans: &TransferSpans) -> Option<Self> {
        let ([clusters, cpus, shelves, links], bits) = *spans;
        // SAFETY: passed on to the caller; each span is carved with one type, which is that of its plan.
        unsafe {
            Some(Self {
                clusters: region.table(clusters)?,
                depot: depot::Tables::carve(region, [cpus, shelves, links])?,
                bits: bits::Tables::carve(region, &bits)?,
            })
        }
    }

    /// Prepares the tables of a new yard; `None` if its zones are not those that the tables were planned for.
    pub(crate) fn assign(
        &self,
        zones: &[Zone],
        mechanism: Mechanism,
        batch: &dyn Fn(PageCount) -> PageCount,
    ) -> Option<()> {
        clusters::assign(self.clusters, zones, mechanism.merging(), batch)
    }

    /// Whether the tables have the lengths that a yard of that size, with these zones, needs.
    pub(crate) fn fit(&self, zones: &[Zone], sizes: &TableSizes) -> bool {
        clusters::fits(self.clusters, zones) && self.depot.fit(sizes) && self.bits.fit(sizes)
    }

    /// The order of the lines of bits, where free frames are bits.
    pub(crate) fn line_of_bits(&self) -> Option<Order> {
        self.bits.line_order()
    }

    /// Whether all frames of the pageblock around a place are known to be memory of one zone, because they have been free together as bits.
    pub(crate) fn is_of_one_zone(&self, place: usize) -> bool {
        self.bits.is_of_one_zone(place)
    }

    /// The shelf of each CPU in a depot.
    pub(crate) fn depot_shelves(&self) -> &'static [AtomicU16] {
        self.depot.shelf_of_cpu
    }
}

impl MechanismTypes for Mechanisms {
    type State = State;
    type Counts = Counts;
    type Tables = TransferTables;
}

/// A mechanism with its knobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mechanism {
    Pagewise(pagewise::Knobs),
    DeferredMerge,
    Clusters(clusters::Knobs),
    Depot,
    Bits,
}

impl Mechanism {
    /// The mechanism and knobs of a policy; `None` if it is not compiled in.
    pub(crate) fn of(policy: ZonePolicy) -> Option<Self> {
        use pagewise::Knobs;
        let (is_compiled_in, mechanism) = match policy {
            ZonePolicy::Vanilla => (true, Self::Pagewise(Knobs::Batched)),
            ZonePolicy::BigPcp => (pagewise::HAS_VARIANTS, Self::Pagewise(Knobs::Batched)),
            ZonePolicy::Vanilla416 => (pagewise::HAS_VARIANTS, Self::Pagewise(Knobs::PickUnderLock)),
            ZonePolicy::Vanilla417 => (pagewise::HAS_VARIANTS, Self::Pagewise(Knobs::FirstBuddies)),
            ZonePolicy::Prefetch => (pagewise::HAS_VARIANTS, Self::Pagewise(Knobs::PrefetchNext)),
            ZonePolicy::PrefetchBeforeLock => (pagewise::HAS_VARIANTS, Self::Pagewise(Knobs::PrefetchBeforeLock)),
            ZonePolicy::LockPerPage => (pagewise::HAS_VARIANTS, Self::Pagewise(Knobs::LockPerPage)),
            ZonePolicy::SkipMerge => (deferred_merge::COMPILED_IN, Self::DeferredMerge),
            ZonePolicy::Cluster => (clusters::COMPILED_IN, Self::Clusters(clusters::Knobs::Single)),
            ZonePolicy::ClusterBulk => (clusters::COMPILED_IN, Self::Clusters(clusters::Knobs::Bulk)),
            ZonePolicy::Depot | ZonePolicy::Healing => (true, Self::Depot),
            ZonePolicy::Bits => (true, Self::Bits),
        };
        is_compiled_in.then_some(mechanism)
    }

    /// Whether that is a counter of this mechanism.
    #[cfg(all(test, loom))]
    pub(crate) fn counts(self, name: &str) -> bool {
        let own: [&[CounterInfo]; 2] = match self {
            Self::Pagewise(_) => [&[], &[]],
            Self::DeferredMerge => [deferred_merge::COUNTERS, &[]],
            Self::Clusters(_) => [deferred_merge::COUNTERS, clusters::COUNTERS],
            Self::Depot => [depot::COUNTERS, &[]],
            Self::Bits => [bits::COUNTERS, &[]],
        };
        own.iter().copied().flatten().any(|info| info.name == name)
    }

    /// How the mechanism treats single pages that a drain frees.
    pub(in crate::zone::transfer) fn merging(self) -> deferred_merge::Merging {
        match self {
            Self::DeferredMerge => deferred_merge::Merging::Deferred,
            Self::Clusters(_) => deferred_merge::Merging::Grouped,
            _ => deferred_merge::Merging::AtOnce,
        }
    }

    /// The mechanism in force in a zone.
    fn in_force(zone: &Zone) -> Self {
        Self::of(zone.policy()).unwrap_or(Self::Pagewise(pagewise::Knobs::Batched))
    }
}

/// The mechanisms that are compiled in, as a set of bits.
pub(crate) const COMPILED_IN: u64 =
    pagewise::HAS_VARIANTS as u64 | (deferred_merge::COMPILED_IN as u64) << 1 | (clusters::COMPILED_IN as u64) << 2;

/// Forgets what threads are doing in a zone, in a process that does not have them.
pub(crate) fn forget_threads<P: Platform>(view: ZoneView<'_, P>) {
    view.zone.mechanisms.depot.forget_threads();
    view.recount_chains();
}

/// The limits that a policy gives the per-CPU lists; `None` if they are as the yard sizes them.
pub(crate) fn list_limits(policy: ZonePolicy) -> Option<ListLimits> {
    (policy == ZonePolicy::BigPcp).then_some(pagewise::BIG_LISTS)
}

/// Fetches blocks for a per-CPU list, tags them as blocks of such lists, and gives them to `deliver` a batch at a time, in the
/// order in which the list should give them out. Returns their number.
///
/// There may be fewer blocks than wanted, if the zone has no more or the mechanism moves less at once, and more, if it moves whole
/// batches or clusters (the kernel's `nr_pcp_alloc` lets refills grow, too).
///
/// The mechanisms' own functions are never inlined: kernels have small stacks, and the buffers of all mechanisms would lie in one frame.
pub(crate) fn fetch<P: Platform>(
    view: ZoneView<'_, P>,
    refill: RefillRequest<'_>,
    mut deliver: impl FnMut(Delivered<'_>),
) -> usize {
    view.platform.begin_activity(Activity::Refill);
    let deliver_blocks = |batch: &Batch| deliver(Delivered::Blocks(batch));
    let got = match Mechanism::in_force(view.zone) {
        Mechanism::Pagewise(knobs) => knobs.fetch(view, refill, deliver_blocks),
        Mechanism::Clusters(knobs) if clusters::COMPILED_IN && refill.blocks.order == Order::ZERO => {
            clusters::fetch(view, refill, knobs, deliver_blocks)
        }
        Mechanism::Bits if takes_bits(view, refill.blocks) => bits::fetch(view, refill, deliver_blocks),
        Mechanism::Depot => {
            match refill
                .batch_type
                .and_then(|list_type| depot::ListAccess::open(view, refill.cpu, (refill.blocks.order, list_type)))
            {
                Some(access) => access.fetch(refill, deliver),
                None if refill.blocks.order == view.geometry.pageblock_order() => {
                    depot::fetch_huge(view, refill, deliver_blocks)
                }
                None => pagewise::fetch(view, refill, deliver_blocks),
            }
        }
        _ => pagewise::fetch(view, refill, deliver_blocks),
    };
    view.platform.end_activity(Activity::Refill, PageCount((got as u64) << refill.blocks.order.0));
    got
}

/// Whether blocks of an order that has no per-CPU lists move through a mechanism: [`fetch`] delivers one, [`give_back_stacked`] takes
/// one. Pages that are checked pass the zone instead.
pub(crate) fn stacks_blocks<P: Platform>(view: ZoneView<'_, P>, order: Order) -> bool {
    match Mechanism::in_force(view.zone) {
        Mechanism::Depot => depot::stacks_blocks(view, order),
        _ => false,
    }
}

/// Whether free frames rest as bits. Lists keep no packed batches then: what an array has no room for goes back at once.
#[inline(always)]
pub(crate) fn keeps_bits<P: Platform>(view: ZoneView<'_, P>) -> bool {
    view.keeps_bits()
}

/// Whether a mechanism may have blocks ready for an empty list of a CPU, which [`take_ready`] takes without a search.
#[inline(always)]
pub(crate) fn has_ready_racy<P: Platform>(view: ZoneView<'_, P>, cpu: CpuId, of: (Order, MigrateType)) -> bool {
    view.keeps_bits() && view.checks == PageChecks::None && bits::has_ready_racy(view, cpu, of)
}

/// Takes up to a batch of blocks that are ready for a list of a CPU. The caller holds the lock of the CPU's lists.
pub(crate) fn take_ready<P: Platform>(
    view: ZoneView<'_, P>,
    cpu: CpuId,
    of: (Order, MigrateType),
    wanted: usize,
    batch: &mut Batch,
) {
    if view.checks != PageChecks::None || view.is_quiesced() {
        return;
    }
    view.platform.begin_activity(Activity::Refill);
    bits::take_ready(view, cpu, of, wanted, batch);
    view.platform.end_activity(Activity::Refill, PageCount((batch.len() as u64) << of.0.0));
}

/// Frees a block that the caller owns past the lists, if its pageblock is being emptied; whether it is free then. It lies in a pageblock of the
/// type `list_type`.
#[inline(always)]
pub(crate) fn put_direct<P: Platform>(
    view: ZoneView<'_, P>,
    cpu: CpuId,
    place: usize,
    order: Order,
    list_type: MigrateType,
) -> bool {
    view.keeps_bits() && bits::put_direct(view, cpu, place, order, list_type)
}

/// The blocks freed past the lists of a CPU, and their frames. Possibly stale.
pub(crate) fn direct_frees_racy<P: Platform>(view: ZoneView<'_, P>, cpu: CpuId) -> [u64; 2] {
    bits::direct_frees_racy(view, cpu)
}

/// Whether the bits serve a request: it is of a type that has per-CPU lists, and no compaction wants all frames on the free lists.
fn takes_bits<P: Platform>(view: ZoneView<'_, P>, request: BlockRequest) -> bool {
    request.migrate_type.index() < MigrateType::PER_CPU && bits::takes_blocks(view, request.order)
}

/// Gives a freed block of an order without per-CPU lists to a mechanism; whether it took it. The caller holds the lock of the lists of
/// `cpu`.
pub(crate) fn give_back_stacked<P: Platform>(
    view: ZoneView<'_, P>,
    cpu: CpuId,
    index: u32,
    of: (Order, MigrateType),
) -> bool {
    let access = stacks_blocks(view, of.0).then(|| depot::ListAccess::open(view, cpu, of)).flatten();
    access.map(|access| access.give_back_block(index)).is_some()
}

/// Gives a block of initialised memory that was never free to a mechanism; whether it took it.
pub(crate) fn put_initialised<P: Platform>(view: ZoneView<'_, P>, pfn: Pfn, order: Order) -> bool {
    bits::put_initialised(view, pfn.place(&view.map).index() as usize, order)
}

/// Whether a list whose array is full, and which holds that many frames, gives up batches though it has room for more.
pub(crate) fn gives_up_batches<P: Platform>(view: ZoneView<'_, P>, held: PageCount) -> bool {
    held.0 >= depot::HELD && Mechanism::in_force(view.zone) == Mechanism::Depot
}

/// Frees a block that the caller owns past the per-CPU lists.
pub(crate) fn give_back_block<P: Platform>(view: ZoneView<'_, P>, cpu: CpuId, pfn: Pfn, order: Order) {
    let found = view.blocks.get(pfn);
    let early = is_broken!(TypeReadUnlocked).then_some(found);
    if order == Order::ZERO
        && found == MigrateType::Draining
        && early.is_none()
        && view.free_to_chain(view.counters_of(cpu), pfn.place(&view.map), || depot::Collecting::begin(view))
    {
        return;
    }
    let Ok(mut locked) = view.lock() else { return };
    match early {
        Some(stale) => locked.free_block_as(pfn, order, stale, Residence::Resident),
        None => locked.free_to_pageblocks(pfn, order, Residence::Resident),
    }
    locked.count_direct_free(order);
}

/// Returns to the free lists, merged, what the mechanisms hold.
///
/// # Errors
///
/// [`TransferStalled`] if another CPU still holds some of it: after a bounded wait, or at once if the caller must not sleep. For
/// [`Collect::All`] only.
pub(crate) fn collect<P: Platform>(view: ZoneView<'_, P>, what: Collect<'_>) -> Result<Collected, TransferStalled> {
    let mut collected = Collected::default();
    match what {
        Collect::All(patience) => return collect_all(view, patience).map(|()| collected),
        Collect::Pageblock(pfn) => {
            view.gather_around(pfn);
            bits::collect_around(view, pfn);
        }
        Collect::Merges(frames) if view.has_unmerged_racy() => {
            collected.merges = deferred_merge::merge_range(view, frames);
        }
        Collect::Merges(_) => {}
        Collect::For(order, migrate_type, effort) => {
            // A refill will take what the bits or the depot have of that order.
            collected.any = bits::collect_for(view, order, migrate_type) || view.has_in_depot_racy(order, migrate_type);
            if !collected.any {
                collected.any = depot::collect_for(view, order, migrate_type, effort);
                let has_block = || view.zone.has_block_of_type_racy(order, migrate_type);
                collected.any |= order > Order::ZERO && view.gather_until(has_block);
            }
        }
        Collect::Within(order, migrate_type, effort) => collect_within(view, order, migrate_type, effort),
        Collect::InBackground => depot::collect_in_background(view),
    }
    Ok(collected)
}

fn collect_all<P: Platform>(view: ZoneView<'_, P>, patience: Patience) -> Result<(), TransferStalled> {
    view.platform.begin_activity(Activity::Collect);
    if deferred_merge::COMPILED_IN {
        clusters::collect(view, Mechanism::in_force(view.zone).merging());
    }
    bits::collect(view);
    view.gather_chains();
    let collected = depot::collect(view, patience);
    view.platform.end_activity(Activity::Collect, PageCount(0));
    collected
}

/// The part of [`collect_all`] that a request does that must not wait.
fn collect_within<P: Platform>(view: ZoneView<'_, P>, order: Order, migrate_type: MigrateType, effort: &Effort) {
    view.platform.begin_activity(Activity::Collect);
    if order > Order::ZERO {
        deferred_merge::merge_some(view, FEW_PAGEBLOCKS, || view.zone.has_block_of_type_racy(order, migrate_type));
    }
    depot::collect_for(view, order, migrate_type, effort);
    bits::collect_for(view, order, migrate_type);
    view.gather_until(|| view.has_block_for_racy(order, migrate_type));
    view.platform.end_activity(Activity::Collect, PageCount(0));
}

/// Whether mechanisms hold free blocks that [`collect`] would return, or merges that would serve a request of that order, or a
/// collector has some in transit. Possibly stale.
pub(crate) fn holds_blocks_racy<P: Platform>(view: ZoneView<'_, P>, order: Order) -> bool {
    view.is_depot_in_use_racy()
        || view.bits_pages_racy() > PageCount(0)
        || view.chained_racy() > PageCount(0)
        || (order > Order::ZERO && view.has_unmerged_racy())
}

/// Whether empty lists have to be locked too by a caller that waits for transfers: batches may move past lists that look empty.
pub(crate) fn moves_past_zone_lock(zone: &Zone) -> bool {
    matches!(Mechanism::in_force(zone), Mechanism::Depot | Mechanism::Bits)
}

/// Whether another CPU's lists are a better place than the free lists for a request that finds its own locked.
pub(crate) fn spares_zone_lock<P: Platform>(view: ZoneView<'_, P>) -> bool {
    Mechanism::in_force(view.zone) == Mechanism::Depot && view.has_whole_pageblocks_racy()
}

/// Whether the lists of CPUs may hold whole batches of huge blocks, so that requests which fail otherwise should have them.
pub(crate) fn keeps_huge_batches(zone: &Zone) -> bool {
    zone.policy().moves_many_huge_blocks()
}

/// Whether whole pageblocks are few, so that a refill should take no more of them than it needs. Possibly stale.
pub(crate) fn is_short_of_pageblocks_racy<P: Platform>(view: ZoneView<'_, P>) -> bool {
    !view.has_whole_pageblocks_racy()
}

/// Whether the free frames that mechanisms hold, and that count as free, are `enough`, which more frames are, too. Possibly stale.
pub(crate) fn holds_enough<P: Platform>(view: ZoneView<'_, P>, enough: impl Fn(HeldFree) -> bool) -> bool {
    if view.keeps_bits() {
        let largest = Some(view.free_bits().line_order());
        return view.has_enough_bits(|pages| pages.0 > 0 && enough(HeldFree { pages, largest }));
    }
    let held = held_on_lists_racy(view);
    held.pages.0 > 0 && enough(held)
}

fn held_on_lists_racy<P: Platform>(view: ZoneView<'_, P>) -> HeldFree {
    let mut held = depot::held_racy(view);
    held.pages += view.chained_racy();
    held
}

/// The free frames that mechanisms hold and that count as free. Possibly stale. Reads what each CPU counts.
pub(crate) fn held_pages_racy<P: Platform>(view: ZoneView<'_, P>) -> PageCount {
    if view.keeps_bits() { view.bits_pages() } else { held_on_lists_racy(view).pages }
}

/// The blocks of an order and a migration type that mechanisms hold and that count as free. Those of pageblock order are sorted into
/// movable ones and the rest, which counts as unmovable. Possibly stale.
pub(crate) fn held_blocks_racy<P: Platform>(view: ZoneView<'_, P>, order: Order, migrate_type: MigrateType) -> u64 {
    let chained = match (order, migrate_type) {
        (Order::ZERO, MigrateType::Movable) => view.chained_racy().0,
        _ => 0,
    };
    chained + bits::blocks_racy(view, order, migrate_type) + depot::held_blocks_racy(view, order, migrate_type)
}

/// Free frames whose merge is deferred. Possibly stale.
pub(crate) fn unmerged_pages_racy(zone: &Zone) -> PageCount {
    PageCount(zone.mechanisms.lists.deferred_merge.skipped_racy())
}

impl<P: Platform> BlockHooks for LockedZone<'_, P> {
    #[inline(always)]
    fn block_added(&mut self, block: MapPlace, tag: Tag, neighbour: Link, end: Place) {
        self.note_tagged(block.index() as usize, tag.order());
        if tag.order() == Order::ZERO
            && tag.residence() == Residence::Resident
            && self.zone.mechanisms.lists.clusters.is_joining()
        {
            clusters::join(self, self.map.pfn(block), tag, self.map.linked(neighbour), end);
        }
    }

    #[inline(always)]
    fn block_removed(&mut self, block: MapPlace, tag: Tag, prev: Link) {
        if deferred_merge::COMPILED_IN && tag.has_marks() {
            leave_list(self, block, tag, prev);
        }
    }

    #[inline(always)]
    fn block_relinked(&mut self, pfn: Pfn, tag: Tag) {
        if deferred_merge::COMPILED_IN && tag.is_merge_skipped() {
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
        clusters::COMPILED_IN && tag.is_tentative()
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

/// Checks what the mechanisms hold beside the free lists, and counts it. For a yard at rest.
pub(crate) fn validate_held<P: Platform>(view: ZoneView<'_, P>, found: &mut Found) -> Result<(), Unsound> {
    depot::validate(view, found)?;
    bits::validate(view, found)
}

/// Checks what the mechanisms keep about the free lists, whose links are sound and which have `unmerged` marked pages.
pub(crate) fn validate_lists<P: Platform>(locked: &LockedZone<'_, P>, unmerged: u64) -> Result<(), Unsound> {
    validate::compare("pages that skipped merging", unmerged_pages_racy(locked.zone).0, unmerged)?;
    clusters::validate(locked)
}

/// The counters of each mechanism.
const COUNTERS: [&[CounterInfo]; 5] =
    [quiescence::COUNTERS, deferred_merge::COUNTERS, clusters::COUNTERS, depot::COUNTERS, bits::COUNTERS];

impl MechanismCounts {
    /// The number of counters.
    pub const COUNT: usize = statistics::count_all(&COUNTERS);
    /// The counters, in the order of their values.
    pub const INFOS: &'static [CounterInfo] = &statistics::join::<{ Self::COUNT }>(&COUNTERS);

    /// What the mechanisms counted for a CPU in a zone; without a CPU, for the zone and for all that does not come from a CPU's
    /// lists.
    pub(crate) fn of<P: Platform>(view: ZoneView<'_, P>, cpu: Option<CpuId>) -> Self {
        let counts = &cpu.map_or(view.zone.counters(), |cpu| view.counters_of(cpu)).mechanisms;
        let mut values = quiescence::count(view, counts, cpu)
            .into_iter()
            .chain(deferred_merge::count(view, counts, cpu))
            .chain(clusters::count(view, counts, cpu))
            .chain(depot::count(view, counts, cpu))
            .chain(bits::count(view, counts, cpu));
        Self(core::array::from_fn(|_| values.next().flatten()))
    }
}
