//! Stores: where free frames are kept that are on no per-CPU list. By default they are [`bits`]; the alternative is a
//! buddy allocator's free lists ([`buddy`]).
//!
//! The rest of the allocator uses only this interface. A [policy](crate::zone::policy) decides which store a yard has.
//! For free lists it also decides how batches move between them and the per-CPU lists: page by page
//! ([`buddy::pagewise`]), or in one of the [`published`] ways, which exist for comparison. The policy is read once per
//! refill or drain, and dispatched by a match here or in [`transfer`](crate::transfer).
//!
//! # Interface
//!
//! | operation | called by | does |
//! |---|---|---|
//! | [`fetch`](crate::transfer::fetch) | a refill | gets blocks for an empty per-CPU list |
//! | [`Drain::give_back`](crate::transfer::Drain::give_back), [`give_back_block`] | a drain; a free that bypasses the lists | returns blocks of a list, or one block |
//! | [`collect_all`], [`collect_around`], … | a request that would fail, compaction, isolation, a change of policy | merges what the store keeps elsewhere into the free lists |
//! | [`BlockHooks`](buddy::free_area::BlockHooks) | the free area | tells the store about blocks that join and leave free lists |
//! | [`validate_held`], [`validate_lists`] | the validator | checks the store's equations |
//! | [`MechanismCounts::of`], [`holds_enough`], … | statistics and watermarks | reports counts |
//!
//! # Protocol
//!
//! A CPU calls `fetch` and `Drain` while it holds the lock of a CPU's lists, and reads the policy and the zone's
//! quiescence under it. So once the policy has changed and every CPU's lists have been locked once, no transfer under
//! the old policy is in progress. [`Yard::set_policy`](crate::Yard::set_policy) relies on this.

use crate::control::{ControlRegion, TablePlanner, TableSpan};
use crate::page::Residence;
use crate::platform::{Activity, Platform, Probe};
use crate::store::buddy::compacting::FreeShape;
use crate::sync::{all_atomic, is_broken};
use crate::units::{CpuId, MigrateType, ORDER_SLOTS, Order, PageCount, Pfn, PfnRange};
use crate::zone::effort::Effort;
use crate::zone::mechanisms::{MechanismTypes, Mechanisms};
use crate::zone::policy::ZonePolicy;
use crate::zone::request::BlockRequest;
use crate::zone::state::{HeldFree, Zone};
use crate::zone::view::{LockedZone, ZoneView};

pub(crate) mod batch;
pub(crate) mod bits;
pub(crate) mod buddy;
pub(crate) mod page_check;
pub(crate) mod published;
mod quiescence;
mod statistics;

pub(crate) use bits::{collect_around, collect_at_least, collect_for};
pub(crate) use buddy::pagewise::{give_back_isolated, prefetch_neighbours};
pub(crate) use published::{batch_words, batch_words_bound, merge_range, unmerged_pages_racy};
pub(crate) use quiescence::{Quiescence, TransferStalled};
pub use statistics::{CounterInfo, CounterKind, CounterScope, MechanismCounts};

/// The sizes that mechanisms plan their tables by.
#[derive(Clone, Copy)]
pub(crate) struct TableSizes {
    pub(crate) cpus: usize,
    pub(crate) zones: usize,
    /// Pageblocks of the memory map.
    pub(crate) pageblocks: usize,
    pub(crate) pageblock_order: Order,
    /// Whether free frames are bits.
    pub(crate) free_bits: bool,
    /// Words for what a zone has once per batch of its memory ([`batch_words`]).
    pub(crate) batch_words: usize,
}

/// What stores know of a zone.
#[derive(Default)]
pub(crate) struct State {
    quiescence: quiescence::QuiescenceState,
    published: published::State,
}

all_atomic!(State { quiescence, published });

/// What stores count for one CPU in one zone.
pub(crate) type Counts = published::Counts;

/// Where the tables of stores lie.
pub(crate) type Spans = (TableSpan, bits::Spans);

/// The tables of stores.
#[derive(Clone, Copy)]
pub(crate) struct Tables {
    published: published::Tables,
    bits: bits::Tables,
}

/// Plans the tables; `None` if they do not fit an address space.
pub(crate) const fn plan(planner: &mut TablePlanner, sizes: &TableSizes) -> Option<Spans> {
    match (published::plan(planner, sizes), bits::plan(planner, sizes)) {
        (Some(published), Some(bits)) => Some((published, bits)),
        _ => None,
    }
}

impl Tables {
    /// The tables at spans that [`plan`] made; `None` if a span does not lie in the region.
    ///
    /// # Safety
    ///
    /// As for [`ControlRegion::table`].
    pub(crate) unsafe fn carve(region: &ControlRegion, spans: &Spans) -> Option<Self> {
        let (published, bits) = *spans;
        // SAFETY: passed on to the caller; each span is carved with one type, which is that of its plan.
        unsafe {
            Some(Self {
                published: published::Tables::carve(region, published)?,
                bits: bits::Tables::carve(region, &bits)?,
            })
        }
    }

    /// Prepares the tables of a new yard; `None` if its zones are not those that the tables were planned for.
    pub(crate) fn assign(
        &self,
        zones: &[Zone],
        policy: ZonePolicy,
        batch: &dyn Fn(PageCount) -> PageCount,
    ) -> Option<()> {
        self.published.assign(zones, policy.parts().store, batch)
    }

    /// Whether the tables have the lengths that a yard of that size, with these zones, needs.
    pub(crate) fn fit(&self, zones: &[Zone], sizes: &TableSizes) -> bool {
        self.published.fit(zones) && self.bits.fit(sizes)
    }

    /// The order of the lines of bits, where free frames are bits.
    pub(crate) fn line_of_bits(&self) -> Option<Order> {
        self.bits.line_order()
    }

    /// Whether the frame at a place is free as a bit. Possibly stale.
    pub(crate) fn is_free_bit_racy(&self, place: usize) -> bool {
        self.bits.is_free_racy(place)
    }

    /// Whether all frames of the pageblock around a place are known to be memory of one zone, because they have been free together as bits.
    pub(crate) fn is_of_one_zone(&self, place: usize) -> bool {
        self.bits.is_of_one_zone(place)
    }
}

impl MechanismTypes for Mechanisms {
    type State = State;
    type Counts = Counts;
    type Tables = Tables;
}

/// What a refill asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RefillRequest {
    pub(crate) blocks: BlockRequest,
    /// The CPU for whose list it is. The caller holds the lock of that CPU's lists.
    pub(crate) cpu: CpuId,
    /// How many blocks: a batch.
    pub(crate) wanted: usize,
    /// How many blocks the list may get before it is at its limit.
    pub(crate) room: usize,
}

/// Whether free frames rest as bits. Lists keep no packed batches then: what an array has no room for goes back at once.
#[inline(always)]
pub(crate) fn keeps_bits<P: Platform>(view: ZoneView<'_, P>) -> bool {
    view.keeps_bits()
}

/// Frees a block that the caller owns past the lists, if its pageblock is being emptied; whether it is free then.
#[inline(always)]
pub(crate) fn put_direct<P: Platform>(view: ZoneView<'_, P>, cpu: CpuId, place: usize, order: Order) -> bool {
    view.keeps_bits() && bits::put_direct(view, cpu, place, order)
}

/// The blocks freed past the lists of a CPU, and their frames. Possibly stale.
pub(crate) fn direct_frees_racy<P: Platform>(view: ZoneView<'_, P>, cpu: CpuId) -> [u64; 2] {
    bits::direct_frees_racy(view, cpu)
}

/// Whether the bits serve a request: it is of a type that has per-CPU lists.
pub(crate) fn takes_bits<P: Platform>(view: ZoneView<'_, P>, request: BlockRequest) -> bool {
    request.migrate_type.index() < MigrateType::PER_CPU && bits::gives_blocks(view, request.order)
}

/// Whether [`put_initialised`] may take frames of a range.
pub(crate) fn puts_initialised<P: Platform>(view: ZoneView<'_, P>, range: PfnRange) -> bool {
    bits::puts_initialised(view, range)
}

/// Frees a part of a range of initialised memory that was never free: the first one that needs no zone lock. Returns it. The caller does not
/// hold that lock.
pub(crate) fn put_initialised<P: Platform>(view: ZoneView<'_, P>, range: PfnRange) -> PfnRange {
    bits::put_initialised(view, range)
}

/// Takes a block that is larger than what per-CPU lists have, without the zone lock, if bits have one. It has a tag then.
pub(crate) fn take_large<P: Platform>(view: ZoneView<'_, P>, cpu: CpuId, blocks: BlockRequest) -> Option<Pfn> {
    let listed = blocks.migrate_type.index() < MigrateType::PER_CPU;
    if listed && view.keeps_bits() {
        bits::taking::take_large(view, cpu, blocks.order, blocks.migrate_type)
    } else {
        None
    }
}

/// Frees a block that the caller owns past the per-CPU lists.
pub(crate) fn give_back_block<P: Platform>(view: ZoneView<'_, P>, cpu: CpuId, pfn: Pfn, order: Order) {
    if bits::takes_large(view, order) && bits::put(view, cpu, view.map.place(pfn), order) {
        view.zone.events().count_direct_free(order);
        return;
    }
    let early = is_broken!(TypeReadUnlocked).then(|| view.blocks.get(pfn));
    let Ok(mut locked) = view.lock() else { return };
    match early {
        Some(stale) => locked.free_block_as(pfn, order, stale, Residence::Resident),
        None => locked.free_to_pageblocks(pfn, order, Residence::Resident),
    }
    locked.count_direct_free(order);
}

/// Makes the counts and lists of free frames that no lock guards agree with those frames again, after threads ended between two changes. For a
/// yard at rest.
pub(crate) fn mend<P: Platform>(view: ZoneView<'_, P>) {
    bits::mend(view);
}

/// Returns to the free lists, merged, all that the mechanisms hold.
pub(crate) fn collect_all<P: Platform>(view: ZoneView<'_, P>) {
    view.platform.probe().begin_activity(Activity::Collect);
    published::collect(view);
    bits::collect(view);
    view.platform.probe().end_activity(Activity::Collect, PageCount(0));
}

/// As far as the effort of a request for that order and type allows, returns to the free lists what serves it, until there is `enough`.
/// Waits for no other CPU but for locks.
pub(crate) fn collect_within<P: Platform>(
    view: ZoneView<'_, P>,
    order: Order,
    migrate_type: MigrateType,
    effort: &Effort,
    enough: impl Fn() -> bool,
) {
    view.platform.probe().begin_activity(Activity::Collect);
    bits::collect_for(view, order, migrate_type);
    if order > Order::ZERO {
        published::merge_some(view, order, migrate_type);
        bits::collect_split(view, effort.lines, enough);
    }
    view.platform.probe().end_activity(Activity::Collect, PageCount(0));
}

/// Whether mechanisms hold free blocks that [`collect_all`] would return, or merges that would serve a request of that order. Possibly
/// stale.
pub(crate) fn holds_blocks_racy<P: Platform>(view: ZoneView<'_, P>, order: Order) -> bool {
    view.bits_pages_racy() > PageCount(0) || (order > Order::ZERO && view.has_unmerged_racy())
}

/// Whether the free frames that mechanisms hold, and that count as free, are `enough` for a block of an order, which more frames are, too.
/// Possibly stale.
pub(crate) fn holds_enough<P: Platform>(
    view: ZoneView<'_, P>,
    order: Order,
    enough: impl Fn(HeldFree) -> bool,
) -> bool {
    let largest = view.keeps_bits().then(|| bits::taking::largest_racy(view, order));
    largest.is_some() && view.has_enough_bits(|pages| pages.0 > 0 && enough(HeldFree { pages, largest }))
}

/// The free frames that mechanisms hold and that count as free. Possibly stale. Reads what each CPU counts.
pub(crate) fn held_pages_racy<P: Platform>(view: ZoneView<'_, P>) -> PageCount {
    if view.keeps_bits() { view.bits_pages() } else { PageCount(0) }
}

/// The blocks of an order and a migration type among the free frames that are bits. Possibly stale.
pub(crate) fn blocks_in_bits_racy<P: Platform>(view: ZoneView<'_, P>, order: Order, migrate_type: MigrateType) -> u64 {
    bits::blocks_racy(view, order, Some(migrate_type))
}

/// The sizes of a zone's free blocks with respect to an order, on the free lists and as bits. Reads all bits. Possibly stale.
pub(crate) fn free_shape_racy<P: Platform>(view: ZoneView<'_, P>, order: Order) -> FreeShape {
    view.zone.free_shape_racy(order, view.geometry.max_order(), |order| bits::all_blocks_racy(view, order))
}

/// The frames of free blocks of at least pageblock order that are bits. Reads all bits. Possibly stale.
pub(crate) fn whole_as_bits_racy<P: Platform>(view: ZoneView<'_, P>) -> PageCount {
    let orders = view.geometry.pageblock_order().0..=view.geometry.max_order().0;
    PageCount(orders.map(|order| bits::all_blocks_racy(view, Order(order)) << order).sum())
}

/// The free frames of a zone where they are bits, and the order of the largest block of them. Possibly stale.
pub(crate) fn free_as_bits_racy<P: Platform>(view: ZoneView<'_, P>) -> (PageCount, Option<Order>) {
    if view.keeps_bits() { (view.bits_pages_racy(), bits::largest_racy(view)) } else { Default::default() }
}

/// An equation of a mechanism that does not hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unsound {
    /// A structure does not hold together, or has a block that it should not have.
    Broken {
        /// Which structure.
        what: &'static str,
        /// The block.
        at: Pfn,
    },
    /// A count differs from the recount.
    Count {
        /// What is counted.
        what: &'static str,
        /// The count.
        kept: u64,
        /// The recount.
        found: u64,
    },
}

/// The blocks that mechanisms hold, by order; the walk over all frames must find as many.
pub(crate) struct Found {
    /// Blocks tagged and marked like those on per-CPU lists.
    pub(crate) listed: [u64; ORDER_SLOTS],
}

fn compare(what: &'static str, kept: u64, found: u64) -> Result<(), Unsound> {
    if kept == found { Ok(()) } else { Err(Unsound::Count { what, kept, found }) }
}

/// Checks what the mechanisms hold beside the free lists, and counts it. For a yard at rest.
pub(crate) fn validate_held<P: Platform>(view: ZoneView<'_, P>, found: &mut Found) -> Result<(), Unsound> {
    bits::validate(view, found)
}

/// Checks what the mechanisms keep about the free lists, whose links are sound and which have `unmerged` marked pages.
pub(crate) fn validate_lists<P: Platform>(locked: &LockedZone<'_, P>, unmerged: u64) -> Result<(), Unsound> {
    published::validate(locked, unmerged)
}

/// The counters of each store.
const COUNTERS: [&[CounterInfo]; 4] =
    [quiescence::COUNTERS, published::COUNTERS[0], published::COUNTERS[1], bits::COUNTERS];

impl MechanismCounts {
    /// The number of counters.
    pub const COUNT: usize = statistics::count_all(&COUNTERS);
    /// Descriptions of all counters, in the order of their values.
    pub const INFOS: &'static [CounterInfo] = &statistics::join::<{ Self::COUNT }>(&COUNTERS);

    /// What the mechanisms counted for a CPU in a zone; without a CPU, for the zone and for all that does not come from a CPU's
    /// lists.
    pub(crate) fn of<P: Platform>(view: ZoneView<'_, P>, cpu: Option<CpuId>) -> Self {
        let counts = &cpu.map_or(view.zone.counters(), |cpu| view.counters_of(cpu)).mechanisms;
        let mut values = quiescence::count(view, counts, cpu)
            .into_iter()
            .chain(published::count(view, counts, cpu))
            .chain(bits::count(view, counts, cpu));
        Self(core::array::from_fn(|_| values.next().flatten()))
    }
}
