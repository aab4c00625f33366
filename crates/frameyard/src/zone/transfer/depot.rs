//! Depot: lock-free stacks of full batches between per-CPU lists and a zone. The default mechanism.
//!
//! # Structure
//!
//! A zone has a *shelf* for each CPU, or for a few neighbouring CPUs of a large machine, and a common shelf. A shelf has one stack for
//! each order below pageblock order, up to 8, and migration type ([`stack`]). A stack element is a batch: [`BATCH`] blocks of order 0 to 3,
//! packed into the page structures of its own members ([`packed`]), or one block of order 4 to 8, which have no per-CPU lists. Pushing or
//! popping a batch costs one compare-exchange and touches one page structure, the batch's head. A stack is a cache line, 29 for each shelf,
//! however many frames it has.
//!
//! # Transfers
//!
//! | event | action |
//! |---|---|
//! | a per-CPU list exceeds its limit, or a full array while the list holds [`HELD`] frames | push the older half of its packed batches onto the CPU's stack with one exchange; onto the common stack if that is full; merge eight with each if both are full |
//! | a per-CPU list is empty | pop up to [`FETCHED`] batches with one exchange from the CPU's stack, then the common stack; or one from another CPU's |
//! | a block of order 4 to 8 is allocated or freed | as a batch of one |
//! | all stacks of an order are empty | cut batches of the next larger order on the CPU's shelf or the common one ([`carving`]); on the shelves of other CPUs if the zone has no block |
//! | those of larger orders, too | carve batches from large blocks of the zone, push those that the list does not take |
//! | the free lists have no block of the type, and no whole pageblock of another | merge some batches, within the request's effort |
//! | few whole pageblocks are free | merge batches into the free lists, several per lock hold ([`collecting`]); a stack keeps a few |
//! | in a zone that heals, a CPU's stack of an order from 4 to 8 has a few blocks, and one more is freed | merge them all |
//!
//! In zones that heal, a refill of single movable frames that finds the stacks empty takes frames from chains of pageblocks. While whole
//! pageblocks are few, lists give up their batches to chains ([`chains`](crate::zone::chains)).
//!
//! In steady state no CPU takes the zone lock. Blocks of pageblock order have stacks of their own ([`huge`]), by mobility. Their batches
//! link through a table beside the map ([`links`]), so that no page structure is touched.
//!
//! # Invariants
//!
//! - A block in the depot carries the per-CPU tag, or none if it is a single frame, so the buddy never merges with it. Its type is the
//!   type that its pageblock had when it was freed or carved; the type is read again when it returns to the free lists.
//! - Depot frames count as free in watermarks and statistics.
//! - A CPU moves batches only while it holds its own list lock, and reads policy and quiescence under that lock. Changing either
//!   and then locking every list once therefore waits for all batches in transit; the holders of those locks wait for the zone
//!   lock at most.
//! - While a zone is quiesced ([`quiescence`](super::quiescence)) no batch enters or leaves its depot. An isolator quiesces the
//!   zone first, so a frame of an isolated pageblock gets here only through a transfer that began before.
//!
//! # Collecting
//!
//! [`collect_for`] merges batches for one request until its effort is spent ([`Effort`](crate::zone::Effort)). [`collect`] returns
//! all batches to the free lists before a request that may sleep fails, and before compaction. A collector registers in [`State`]
//! first. A request that may sleep, and finds the depot empty while a collector is registered, waits with a bound before it fails.
//! A request that must not wait fails at once: a collector holds no lock, so it may be the thread that was interrupted.
//!
//! # Frames that a request cannot find
//!
//! Between carving or cutting and pushing, a refill has up to 512 frames that count as depot frames and are on no stack. It holds the lock
//! of its CPU's lists meanwhile. So a request that drains the lists before it fails waits for it by taking that lock, and then finds the
//! batches. A request that does not drain (without `DIRECT_RECLAIM`, or with `NORETRY`) may miss these frames for each CPU that refills
//! a list at that moment, and fail.

use super::exchange::{Delivered, DrainSource, PackedBatches, RefillRequest};
use crate::control::{ControlRegion, TablePlanner, TableSpan};
use crate::page::Link;
use crate::platform::{Access, Activity, Platform};
use crate::sync::{AtomicU16, AtomicU32, AtomicU64, Ordering, all_atomic};
use crate::units::{CpuId, MigrateType, Order, PageCount};
use crate::zone::batch::{BATCH, Batch, SMALL_ORDERS, STACKED_ORDERS, batch_len, batch_pages, packed};
use crate::zone::checks::PageChecks;
use crate::zone::state::HeldFree;
use crate::zone::transfer::table_sizes::TableSizes;
use crate::zone::view::ZoneView;
use links::BatchLine;
use stack::{BatchStack, PageLinks};

mod carving;
mod collecting;
mod huge;
mod links;
#[cfg(all(test, loom))]
mod loom_models;
mod stack;
mod statistics;
mod validate;

pub(super) use collecting::{Collecting, collect, collect_for, collect_in_background};
pub(super) use huge::fetch as fetch_huge;
pub(crate) use huge::{Mobility, huge_batch, huge_blocks_of_lists, pop_huge, push_huge};
pub(super) use statistics::{COUNTERS, count};
pub(super) use validate::validate;

/// The most frames that a list of a CPU holds before full batches move to the depot, unless its limit is lower.
/// Eight batches: enough for a list's own chain to save most refills and drains even the compare-exchange. More frames are as
/// near in the depot, and there for other CPUs too. (Few in models.)
pub(super) const HELD: u64 = if cfg!(loom) { 2 * BATCH as u64 } else { 8 * BATCH as u64 };
/// The least room of lists in zones that heal: for a batch and a part of one.
pub(crate) const LEAST_HEALING: usize = BATCH + BATCH / 4;
/// The most batches that a refill takes at once. (One in models of yards; a model of a stack takes two.)
const FETCHED: usize = if cfg!(loom) { 1 } else { 4 };
/// A CPU's stack is full at this number of frames, in batches of single frames (256 MiB in pages of 4 KiB).
const CPU_BATCHES: u64 = if cfg!(loom) { 2 } else { 1024 };
/// The common stack is full at this number of frames, in batches of single frames (4 GiB in pages of 4 KiB). So what a caller merges that collects all of a depot is bounded.
const COMMON_BATCHES: u64 = if cfg!(loom) { 4 } else { 16 * CPU_BATCHES };
/// In a zone that heals, the CPUs together keep at most one in this number of its frames on a list, and on the stacks of an order and type,
/// unless that is less than one of these needs.
pub(crate) const HEALING_SHARE: u64 = 128;
/// There, a CPU's stack of blocks of order 4 to 8 is full at this number of frames, or at this number of blocks if they have more frames.
const HEALING_FRAMES: u64 = 512;
const HEALING_BLOCKS: u64 = 8;
/// What a stack keeps while few whole pageblocks are free.
const FEW_BATCHES: u64 = if cfg!(loom) { 1 } else { 4 };

/// The full batches of an order that have as many frames as `batches` of single frames.
const fn batches_of(order: Order, batches: u64) -> u64 {
    batches * batch_pages(Order::ZERO) / batch_pages(order)
}

/// The stacks of a CPU, or of a zone, by order and migration type.
#[repr(C, align(64))]
#[derive(Default)]
pub(super) struct DepotShelf {
    stacks: [[BatchStack; MigrateType::PER_CPU]; STACKED_ORDERS],
    /// Stacks of huge blocks, by [`Mobility`].
    huge: [BatchStack; 2],
}

all_atomic!(DepotShelf { stacks, huge });

/// The depot of one zone, what is in progress there.
#[derive(Default)]
pub(super) struct State {
    /// Registered collectors: CPUs that may hold batches.
    collectors: AtomicU32,
}

all_atomic!(State { collectors });

impl State {
    /// Forgets collectors, in a process without the threads that were registered.
    pub(super) fn forget_threads(&self) {
        self.collectors.store(0, Ordering::Relaxed);
    }
}

/// The depots of a yard.
#[derive(Clone, Copy)]
pub(super) struct Tables {
    /// By zone: the common shelf, and behind it those of CPUs if there are several.
    shelves: &'static [DepotShelf],
    /// The shelf of each CPU, without the common one.
    pub(super) shelf_of_cpu: &'static [AtomicU16],
    /// Batches of huge blocks, by the pageblock of their head.
    links: &'static [BatchLine],
}

/// Plans the tables.
pub(super) const fn plan(planner: &mut TablePlanner, sizes: &TableSizes) -> Option<[TableSpan; 3]> {
    let shelves = if sizes.shelves > 1 { sizes.shelves + 1 } else { 1 };
    let cpus = planner.table::<AtomicU16>(sizes.cpus);
    let shelves = planner.table::<DepotShelf>(shelves * sizes.zones);
    match (cpus, shelves, planner.table::<BatchLine>(sizes.pageblocks)) {
        (Some(cpus), Some(shelves), Some(links)) => Some([cpus, shelves, links]),
        _ => None,
    }
}

impl Tables {
    /// # Safety
    ///
    /// As for [`ControlRegion::table`]: the spans are those that [`plan`] made.
    pub(super) unsafe fn carve(region: &ControlRegion, spans: [TableSpan; 3]) -> Option<Self> {
        let [cpus, shelves, links] = spans;
        // SAFETY: passed on to the caller.
        unsafe {
            Some(Self {
                shelf_of_cpu: region.table(cpus)?,
                shelves: region.table(shelves)?,
                links: region.table(links)?,
            })
        }
    }

    /// Whether the tables have the lengths that a yard of that size needs.
    pub(super) fn fit(&self, sizes: &TableSizes) -> bool {
        self.shelf_of_cpu.len() == sizes.cpus
            && self.shelves.len().is_multiple_of(sizes.zones)
            && self.links.len() == sizes.pageblocks
    }
}

/// The depot of one zone: its part of the [`Tables`].
#[derive(Clone, Copy)]
pub(super) struct Depot(Tables);

impl Depot {
    /// The shelf of a CPU; the common one if there is no other.
    fn own_shelf(&self, cpu: CpuId) -> usize {
        let own = self.0.shelf_of_cpu.get(cpu.index()).map_or(0, |shelf| usize::from(shelf.load(Ordering::Relaxed)));
        if 1 + own < self.0.shelves.len() { 1 + own } else { 0 }
    }

    fn stack(&self, shelf: usize, order: Order, list_type: MigrateType) -> Option<&'static BatchStack> {
        self.0.shelves.get(shelf)?.stacks.get(order.index())?.get(list_type.index())
    }

    /// The shelves in the order in which a CPU with the shelf `own` looks for batches: its own, the common one, those of its
    /// neighbours.
    fn shelves_from(&self, own: usize) -> impl Iterator<Item = usize> + use<> {
        let shelves = self.0.shelves.len();
        let others = (1..shelves).map(move |step| 1 + (own + step - 1) % (shelves - 1)).filter(move |at| *at != own);
        [own, 0].into_iter().chain(others)
    }

    /// The stacks of an order and type.
    fn stacks_of(&self, order: Order, list_type: MigrateType) -> impl Iterator<Item = &'static BatchStack> + use<> {
        let depot = *self;
        (0..self.0.shelves.len()).filter_map(move |shelf| depot.stack(shelf, order, list_type))
    }

    /// All stacks of blocks below pageblock order, with their orders. Those of the type `first` first, the largest order before smaller ones: it takes
    /// the fewest merges.
    fn stacks_from(&self, first: MigrateType) -> impl Iterator<Item = (Order, &'static BatchStack)> + use<> {
        let shelves = self.0.shelves;
        let of = move |step| (first.index() + step) % MigrateType::PER_CPU;
        (0..MigrateType::PER_CPU).flat_map(move |step| {
            (0..STACKED_ORDERS).rev().flat_map(move |order| {
                shelves.iter().map(move |shelf| (Order(order as u8), &shelf.stacks[order][of(step)]))
            })
        })
    }

    /// All stacks of blocks below pageblock order, with their orders.
    fn stacks(&self) -> impl Iterator<Item = (Order, &'static BatchStack)> + use<> {
        self.stacks_from(MigrateType::Unmovable)
    }

    /// Batches of blocks below pageblock order in the depot, possibly stale. Reads the cache line of every stack.
    fn batches_racy(&self) -> u64 {
        self.stacks().map(|(_, stack)| stack.held_racy()).fold(0, u64::saturating_add)
    }

    /// What is on the stacks of blocks below pageblock order, possibly stale.
    fn small_held_racy(&self) -> HeldFree {
        let mut held = HeldFree::default();
        for (order, stack) in self.stacks() {
            let batches = stack.held_racy();
            held.pages += PageCount(batches.saturating_mul(batch_pages(order)));
            if batches > 0 {
                held.largest = held.largest.max(Some(order));
            }
        }
        held
    }

    /// A counter of all stacks of blocks below pageblock order together.
    fn sum(&self, counter: fn(&BatchStack) -> &AtomicU64) -> u64 {
        self.stacks().map(|(_, stack)| counter(stack).load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
    }

    /// Batches popped for lists.
    fn popped(&self) -> u64 {
        self.sum(|stack| &stack.left).saturating_sub(self.sum(|stack| &stack.collected))
    }
}

impl<'a, P: Platform> ZoneView<'a, P> {
    pub(super) fn depot(&self) -> Depot {
        let Tables { shelves, shelf_of_cpu, links } = self.mechanisms.depot;
        let (each, zone) = (shelves.len() / self.all_counters.1.max(1), self.id.index());
        Depot(Tables { shelves: shelves.get(zone * each..(zone + 1) * each).unwrap_or_default(), shelf_of_cpu, links })
    }

    fn page_links(&self) -> PageLinks<'a, P> {
        PageLinks { map: self.map, platform: self.platform }
    }

    /// Whether a refill may take a block of that order and type from the depot, or cut one from a larger block there. Possibly stale.
    pub(super) fn has_in_depot_racy(&self, order: Order, migrate_type: MigrateType) -> bool {
        let (depot, links) = (self.depot(), self.page_links());
        let mut orders = (order.0..STACKED_ORDERS as u8).map(Order);
        orders.any(|order| depot.stacks_of(order, migrate_type).any(|stack| !stack.is_empty_racy(links)))
            || self.has_huge_for_racy(order, migrate_type)
    }

    /// Whether the depot holds no batch, possibly stale.
    fn is_depot_empty_racy(&self) -> bool {
        let links = self.page_links();
        self.depot().stacks().all(|(_, stack)| stack.is_empty_racy(links))
            && Mobility::ALL.into_iter().all(|mobility| self.has_no_huge_racy(mobility))
    }

    /// Whether the depot or a collector holds a batch, possibly stale.
    pub(super) fn is_depot_in_use_racy(&self) -> bool {
        // In this order: a CPU that finds a stack empty sees the registration of the collector that emptied it.
        !self.is_depot_empty_racy() || self.zone.mechanisms.depot.collectors.load(Ordering::Relaxed) != 0
    }
}

/// Whether the depot has stacks for blocks of an order without per-CPU lists.
pub(super) fn stacks_blocks<P: Platform>(view: ZoneView<'_, P>, order: Order) -> bool {
    (SMALL_ORDERS..STACKED_ORDERS).contains(&order.index())
        && order < view.geometry.pageblock_order()
        && view.checks == PageChecks::None
}

/// As a list of a CPU that gives up a batch while few whole pageblocks are free: for an entry of a list of single movable frames, in a
/// batch of its own. The caller holds the lock of the lists of `cpu`.
#[cfg(all(test, loom))]
pub(crate) fn give_back_for_model<P: Platform>(view: ZoneView<'_, P>, cpu: CpuId, entry: u32) {
    match ListAccess::open(view, cpu, (Order::ZERO, MigrateType::Movable)) {
        Some(access) if access.is_chained() => {
            let head = packed::pack(view.map, view.platform, &[entry], Link::NONE);
            access.merge(PackedBatches { first: head, last: head, batches: 1 }, access.own_stack, 0);
        }
        _ => super::pagewise::give_back(&mut None, view, cpu, &Batch::of(&[entry]), Order::ZERO),
    }
}

/// The frames for which a list needs room to use the depot.
pub(crate) fn least_room<P: Platform>(view: ZoneView<'_, P>) -> usize {
    if view.zone.heals() { LEAST_HEALING } else { 2 * BATCH }
}

/// What the depot of a zone holds. Possibly stale.
pub(super) fn held_racy<P: Platform>(view: ZoneView<'_, P>) -> HeldFree {
    let (small, huge) = (view.depot().small_held_racy(), view.depot_huge_pages_racy());
    let largest = (huge.0 > 0).then_some(view.geometry.pageblock_order());
    HeldFree { pages: small.pages + huge, largest: small.largest.max(largest) }
}

/// The blocks of an order and type in the depot of a zone. Possibly stale.
pub(super) fn held_blocks_racy<P: Platform>(view: ZoneView<'_, P>, order: Order, migrate_type: MigrateType) -> u64 {
    use MigrateType::{Movable, Unmovable};
    let depot = view.depot();
    let of_stacks = depot.stacks_of(order, migrate_type).map(BatchStack::held_racy).fold(0, u64::saturating_add);
    match migrate_type {
        Movable | Unmovable if order == view.geometry.pageblock_order() => {
            depot.huge_blocks_of_racy(Mobility::of(migrate_type))
        }
        _ => of_stacks.saturating_mul(batch_len(order) as u64),
    }
}

/// The shelves on which a refill looks for batches. Looking at a stack reads a cache line, which other CPUs may have written.
#[derive(Clone, Copy)]
enum Reach {
    /// The CPU's own and the common one: while the zone has free blocks, which cost one lock.
    Near,
    /// Those of other CPUs, too.
    All,
}

impl Reach {
    /// How many of [`Depot::shelves_from`].
    const fn shelves(self) -> usize {
        match self {
            Self::Near => 2,
            Self::All => usize::MAX,
        }
    }
}

/// One stack of the depot as a CPU's list uses it. The caller holds the lock of that list.
pub(super) struct ListAccess<'a, P> {
    view: ZoneView<'a, P>,
    depot: Depot,
    cpu: CpuId,
    order: Order,
    list_type: MigrateType,
    /// The shelf of the CPU.
    own: usize,
    own_stack: &'static BatchStack,
}

impl<'a, P: Platform> ListAccess<'a, P> {
    /// The stack for a list of that order and type; `None` while the zone is quiesced.
    pub(super) fn open(view: ZoneView<'a, P>, cpu: CpuId, (order, list_type): (Order, MigrateType)) -> Option<Self> {
        if view.is_quiesced() {
            return None;
        }
        let depot = view.depot();
        let own = depot.own_shelf(cpu);
        let own_stack = depot.stack(own, order, list_type)?;
        Some(Self { view, depot, cpu, order, list_type, own, own_stack })
    }

    /// Takes full batches of a list if the list has any. Returns the number of blocks.
    pub(super) fn give_back(&self, source: &mut impl DrainSource) -> usize {
        let Some(taken) = source.take_packed() else { return 0 };
        let (platform, blocks) = (self.view.platform, taken.batches * BATCH);
        platform.begin_activity(Activity::Drain);
        self.push(taken);
        platform.end_activity(Activity::Drain, PageCount((blocks as u64) << self.order.0));
        blocks
    }

    /// Takes a freed block of an order without per-CPU lists: a batch of one.
    pub(super) fn give_back_block(&self, index: u32) {
        let platform = self.view.platform;
        platform.begin_activity(Activity::Drain);
        let head = packed::pack(self.view.map, platform, &[index], Link::NONE);
        self.push(PackedBatches { first: head, last: head, batches: 1 });
        platform.end_activity(Activity::Drain, self.order.pages());
    }

    /// Pushes batches on the CPU's stack, or on the common one if that is full. Merges them, and batches of the stack with each, into
    /// the free lists instead if the common stack is full, too, or if the CPU's stack has a few batches while few whole pageblocks
    /// are free. In a zone that heals, a full stack of blocks without per-CPU lists merges with all that it has.
    fn push(&self, taken: PackedBatches) {
        let platform = self.view.platform;
        self.own_stack.touch(platform, Access::Read);
        let in_own = self.own_stack.held_racy();
        if self.most_healing().is_some_and(|most| in_own.saturating_add(1) << self.order.0 > most) {
            return self.merge(taken, self.own_stack, in_own);
        }
        // No stack keeps frames that chains can hold: on a chain they make their pageblock whole.
        let few = if self.is_chained() { 0 } else { FEW_BATCHES };
        if in_own >= few && !self.view.has_whole_pageblocks_racy() {
            return self.merge(taken, self.own_stack, FEW_BATCHES);
        }
        let overflows = self.own != 0 && in_own >= batches_of(self.order, CPU_BATCHES);
        let common = self.depot.stack(0, self.order, self.list_type).unwrap_or(self.own_stack);
        let stack = if overflows { common } else { self.own_stack };
        if (overflows || self.own == 0) && stack.held_racy() >= batches_of(self.order, COMMON_BATCHES) {
            return self.merge(taken, stack, collecting::BATCHES as u64 - 1);
        }
        let batches = taken.batches as u64;
        stack.touch(platform, Access::ReadModifyWrite);
        stack.count_coming(batches);
        stack.count_overflowed(if overflows { batches } else { 0 });
        stack.push(self.view.page_links(), platform, taken.first, taken.last);
    }

    /// The most frames on the CPU's stack, if the zone heals and the blocks have no per-CPU lists: blocks on stacks do not merge. At least
    /// one block.
    fn most_healing(&self) -> Option<u64> {
        if self.order.index() < SMALL_ORDERS || !self.view.zone.heals() {
            return None;
        }
        let share = self.view.zone.managed().0 / HEALING_SHARE / self.depot.0.shelves.len().max(1) as u64;
        Some(share.clamp(self.order.pages().0, HEALING_FRAMES.max(HEALING_BLOCKS << self.order.0)))
    }

    /// Merges batches, and with each up to `most` batches of a stack.
    fn merge(&self, taken: PackedBatches, stack: &BatchStack, most: u64) {
        let mut head = taken.first;
        for _ in 0..taken.batches {
            // Read before the frames are free.
            let next = self.view.map.next(head).map_or(Link::NONE, |place| self.view.page(place).next());
            collecting::merge_with(self.view, (self.cpu, self.order), head, stack, most);
            head = next;
        }
    }

    /// Fetches blocks for the list; returns their number. At least a batch if the zone has as many, and up to [`FETCHED`] if the
    /// list has room.
    #[inline(never)]
    pub(super) fn fetch(&self, refill: RefillRequest<'_>, mut deliver: impl FnMut(Delivered<'_>)) -> usize {
        let Self { view, order, .. } = *self;
        // While few whole pageblocks are free, no list holds what it may not need. Where pages are checked, a list checks a batch.
        let has_plenty = view.has_whole_pageblocks_racy();
        let most = match view.checks {
            PageChecks::None if has_plenty => refill.batches_up_to((FETCHED >> order.0).max(1)),
            _ => 1,
        };
        if let Some((chain, stack)) = self.pop(order, most, Reach::All) {
            stack.count_popped(chain.batches as u64);
            deliver(Delivered::Packed(chain));
            return chain.batches * batch_len(order);
        }
        let migrate_type = refill.blocks.migrate_type;
        if self.is_chained() {
            let mut batch = Batch::new();
            view.take_chained(view.counters_of(self.cpu), (refill.room / 2).clamp(1, BATCH), &mut batch);
            if !batch.is_empty() {
                deliver(Delivered::Blocks(&batch));
                return batch.len();
            }
        }
        let has_block = view.has_block_for_racy(order, migrate_type);
        let reach = if has_block { Reach::Near } else { Reach::All };
        if view.checks == PageChecks::None
            && let Some((of, cut)) = self.pop_larger(reach)
        {
            return carving::cut(view, refill, (self.own_stack, most), (of, cut), deliver);
        }
        if !has_block {
            // Before types mix in a pageblock: batches of other types may be of this type by now, or whole pageblocks.
            collect_for(view, order, migrate_type, refill.effort);
        }
        let frames = match self.most_healing() {
            Some(kept) => kept / 2,
            None if has_plenty => carving::TAKEN,
            None => 0,
        };
        carving::fetch(view, refill, (self.own_stack, most, frames), deliver)
    }

    /// Whether frames of the list move between it and chains of pageblocks.
    fn is_chained(&self) -> bool {
        self.order == Order::ZERO && self.list_type == MigrateType::Movable && self.view.zone.heals()
    }

    /// Pops batches of the smallest order above that of the list for which a shelf in reach has any. Together they have at least the frames
    /// of one batch of the list, if a stack has them.
    fn pop_larger(&self, reach: Reach) -> Option<(Order, (PackedBatches, &'static BatchStack))> {
        let wanted = batch_pages(self.order);
        let mut larger = (self.order.0 + 1..STACKED_ORDERS as u8).map(Order);
        larger.find_map(|of| Some((of, self.pop(of, wanted.div_ceil(batch_pages(of)) as usize, reach)?)))
    }

    /// Pops up to `most` batches of an order together from the CPU's stack or the common one; or one batch from the stack of another CPU,
    /// whose frames on top are most likely in that CPU's cache. They count on the stack still.
    fn pop(&self, order: Order, most: usize, reach: Reach) -> Option<(PackedBatches, &'static BatchStack)> {
        let (links, platform) = (self.view.page_links(), self.view.platform);
        for shelf in self.depot.shelves_from(self.own).take(reach.shelves()) {
            let stack = self.depot.stack(shelf, order, self.list_type)?;
            let steals = shelf != self.own && shelf != 0;
            if let Some(chain) = stack.pop_some(links, platform, if steals { 1 } else { most }) {
                stack.touch(platform, Access::ReadModifyWrite);
                if steals {
                    stack.count_stolen(chain.batches as u64);
                }
                return Some((chain, stack));
            }
        }
        None
    }
}
