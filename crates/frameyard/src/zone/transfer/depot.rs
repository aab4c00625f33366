//! The depot: full batches of single frames between the CPUs and a zone, on lock-free stacks.
//!
//! A batch is [`BATCH`] frames packed into the pages of its own members ([`packed`]); its leader alone is touched when it
//! moves. A zone has a *shelf* of stacks, one for each migration type that has per-CPU lists, for each group of CPUs that
//! share a cache, and one more shelf for all of them, where a group's stack is full. ([`stack`] says how a stack works.) A
//! batch that is pushed and popped crosses from one CPU's list to another's by one exchange each, whatever its size.
//!
//! # Which way batches go
//!
//! A list that is over its limit pushes full batches on its group's stack ([`Stock::keep`]), and on the zone's where that is
//! full. Only where the free lists have few whole pageblocks are batches merged instead, several under one hold of the zone
//! lock, so that a stack keeps a few. A list that is empty pops from
//! its group's stack, the zone's, another group's ([`Stock::fetch`]); then it cuts a large block of the zone into batches
//! ([`carving`]) and leaves the spare ones on its group's stack. So in the steady state nobody takes the zone lock, and no page
//! is touched under it.
//!
//! Other orders go page by page ([`pages`](super::pages)): theirs is a small part of the traffic, and every block of them
//! that is kept aside is a larger block that cannot merge.
//!
//! # Who may see what, when
//!
//! - Frames in the depot have the tag of frames on per-CPU lists, which nobody looks for or merges with. They are
//!   frames of the type that a pageblock had when they were freed or cut: the type is looked up again when they return to
//!   the free lists.
//! - They count as free, for watermarks and in statistics, and are brought back ([`collect`]) before a request fails,
//!   falls back to another type, or is compacted for.
//! - Whatever moves a batch between a list and a stack does so under the lock of a CPU's lists, and reads policy and
//!   suspension under it. So whoever changes the policy, or suspends the zone, and then locks every CPU's lists once knows
//!   that no batch is on its way; what is in the depot by then, collecting brings back. That is the wait for batches in
//!   transit: as long as the holders of those locks take, who wait for the zone lock at most.
//! - Who collects says so before he takes a batch, and until its frames are on the free lists ([`DepotState`]). Others who
//!   find the depot empty meanwhile wait for him, for a bounded time, before they say that there is nothing.
//! - While a zone is suspended ([`quiescence`](super::suspension)) nothing is kept in its depot or taken from it. An
//!   isolator suspends the zone first, so no frame of an isolated pageblock gets here but by those who looked before, whom
//!   he waits for as above.

use crate::page::Link;
use crate::platform::{Access, Activity, Platform};
use crate::sync::{AtomicU16, AtomicU32, Ordering, all_atomic};
use crate::units::{CpuId, MigrateType, Order, PageCount};
use crate::zone::pcp::packed::{self, BATCH};
use crate::zone::{BlockRequest, ZonePolicy, ZoneView};

use super::Batch;
pub(crate) use stack::BatchStack;

mod carving;
mod collecting;
mod stack;

pub(crate) use collecting::collect;

/// The most frames that the small lists of one CPU hold before full batches of theirs move on, if their own limit is not
/// lower. Eight batches: what it takes for a list's own chain to spare most refills and overflows even the exchange. All
/// more is as close in the depot, and not lost to others there. (Few in models.)
pub(crate) const HELD: u64 = if cfg!(loom) { 2 * BATCH as u64 } else { 8 * BATCH as u64 };
/// A group's own stack holds so many batches (64 MiB in pages of 4 KiB) before it overflows.
const GROUP_BATCHES: u64 = if cfg!(loom) { 2 } else { 256 };
/// How many batches a stack holds where the free lists have few whole pageblocks.
const FEW_BATCHES: u64 = if cfg!(loom) { 1 } else { 4 };

/// The stacks of one group of CPUs, or of a zone, by migration type.
#[repr(C, align(64))]
#[derive(Default)]
pub(crate) struct DepotShelf {
    stacks: [BatchStack; MigrateType::PER_CPU],
}

all_atomic!(DepotShelf { stacks });

/// What is in progress at a zone's depot.
#[derive(Default)]
pub(crate) struct DepotState {
    /// How many collectors may have batches in their hands.
    collectors: AtomicU32,
}

all_atomic!(DepotState { collectors });

/// The depot of one zone.
#[derive(Clone, Copy)]
pub(crate) struct Depot<'a> {
    /// The zone's own shelf, and behind it one for each group of CPUs if there are several groups.
    shelves: &'a [DepotShelf],
    /// The group of each CPU.
    groups: &'a [AtomicU16],
}

/// What a zone's depot holds, and what happened to batches there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DepotStatistics {
    /// Batches in the depot.
    pub batches: u64,
    /// Batches pushed on a stack, from lists and from blocks cut up.
    pub pushed: u64,
    /// Batches popped for lists.
    pub popped: u64,
    /// Those of them that another group's CPU popped.
    pub stolen: u64,
    /// Batches pushed on the zone's common stack because a group's was full.
    pub overflowed: u64,
    /// Batches brought back to the free lists.
    pub collected: u64,
    /// Exchanges that failed because another thread's succeeded, and were made again.
    pub retries: u64,
}

/// How many shelves a zone's depot has for so many groups of CPUs: a single group has the zone's.
pub(crate) const fn shelves_for(groups: usize) -> usize {
    if groups > 1 { groups + 1 } else { 1 }
}

impl<'a> Depot<'a> {
    /// The depot of the zone at that place, in the tables of all shelves and of all CPUs' groups.
    pub(crate) fn new(shelves: &'a [DepotShelf], zones: usize, zone: usize, groups: &'a [AtomicU16]) -> Self {
        let each = shelves.len() / zones.max(1);
        Self { shelves: shelves.get(zone * each..(zone + 1) * each).unwrap_or_default(), groups }
    }

    /// The shelf of a CPU's group; the zone's where that is the only one.
    fn own_shelf(&self, cpu: CpuId) -> usize {
        let group = self.groups.get(cpu.index()).map_or(0, |group| usize::from(group.load(Ordering::Relaxed)));
        if 1 + group < self.shelves.len() { 1 + group } else { 0 }
    }

    fn stack(&self, shelf: usize, list_type: MigrateType) -> Option<&'a BatchStack> {
        self.shelves.get(shelf)?.stacks.get(list_type.index())
    }

    fn stacks(&self) -> impl Iterator<Item = &'a BatchStack> + use<'a> {
        self.shelves.iter().flat_map(|shelf| &shelf.stacks)
    }

    /// Frames in the depot, a moment ago. Looks at the line of every stack.
    pub(crate) fn pages_racy(&self) -> PageCount {
        PageCount(self.stacks().map(BatchStack::batches_racy).sum::<u64>() * BATCH as u64)
    }

    /// Frames of one migration type in the depot, a moment ago.
    pub(crate) fn pages_of_racy(&self, migrate_type: MigrateType) -> PageCount {
        let stacks = self.shelves.iter().filter_map(|shelf| shelf.stacks.get(migrate_type.index()));
        PageCount(stacks.map(BatchStack::batches_racy).sum::<u64>() * BATCH as u64)
    }

    pub(crate) fn statistics(&self) -> DepotStatistics {
        let mut sum = DepotStatistics::default();
        self.stacks().for_each(|stack| stack.add_to(&mut sum));
        sum
    }
}

impl<'a, P: Platform> ZoneView<'a, P> {
    /// Whether there was no batch in the depot, a moment ago.
    pub(crate) fn is_depot_empty_racy(&self) -> bool {
        self.depot.stacks().all(|stack| stack.is_empty_racy(self.map))
    }

    /// Whether the depot held a batch, or somebody had batches of it in his hands, a moment ago.
    pub(crate) fn is_depot_in_use_racy(&self) -> bool {
        // In this order: who finds a stack empty sees who emptied it.
        !self.is_depot_empty_racy() || self.zone.transfer.depot.collectors.load(Ordering::Relaxed) != 0
    }

    /// Calls `visit` for each batch of the depot, stack by stack: with the number of batches that the stack should have,
    /// how many there were before this one, the batch's leader, its entries, and the next leader. For a yard at rest.
    pub(crate) fn for_each_kept_batch(&self, mut visit: impl FnMut(KeptBatch<'_>)) {
        for stack in self.depot.stacks() {
            let expected = stack.batches_racy();
            let (mut place, mut leader) = (0, stack.top_at_rest(self.map));
            while leader != Link::NONE && place <= expected {
                let mut entries = [0; BATCH];
                let found = packed::read(self.map, self.platform, leader, &mut entries);
                place += 1;
                visit(KeptBatch {
                    leader,
                    entries: &entries[..found.len],
                    is_last: found.next == Link::NONE,
                    place,
                    expected,
                });
                leader = found.next;
            }
        }
    }
}

/// A batch that was met on a stack.
pub(crate) struct KeptBatch<'e> {
    pub(crate) leader: Link,
    pub(crate) entries: &'e [u32],
    /// Whether none is below it.
    pub(crate) is_last: bool,
    /// Which one it is from the top, from 1.
    pub(crate) place: u64,
    /// How many the stack should have.
    pub(crate) expected: u64,
}

/// A CPU's way into the depot, for one of its lists. The caller holds the lock of those lists as long as it has this.
pub(crate) struct Stock<'a, P> {
    view: ZoneView<'a, P>,
    cpu: CpuId,
    list_type: MigrateType,
    /// The shelf of the CPU's group.
    own: usize,
    own_stack: &'a BatchStack,
}

impl<'a, P: Platform> Stock<'a, P> {
    /// The stock of a list of single frames of a CPU, unless the policy is another or the zone is suspended.
    pub(crate) fn of(view: ZoneView<'a, P>, cpu: CpuId, list_type: MigrateType) -> Option<Self> {
        if view.zone.policy() != ZonePolicy::Depot || view.is_quiesced() {
            return None;
        }
        let own = view.depot.own_shelf(cpu);
        let own_stack = view.depot.stack(own, list_type)?;
        Some(Self { view, cpu, list_type, own, own_stack })
    }

    /// Keeps a full batch: on the group's stack, or on the zone's if that is full; or merges it, and others with it, where the
    /// free lists have few whole pageblocks and the depot more than a few batches.
    pub(crate) fn keep(&self, leader: Link) {
        let platform = self.view.platform;
        platform.begin_activity(Activity::Drain);
        self.keep_in_span(leader);
        platform.end_activity(Activity::Drain, PageCount(BATCH as u64));
    }

    fn keep_in_span(&self, leader: Link) {
        let ZoneView { map, platform, depot, .. } = self.view;
        self.own_stack.touch(platform, Access::Read);
        let in_own = self.own_stack.batches_racy();
        if in_own >= FEW_BATCHES && !self.view.has_whole_pageblocks_racy() {
            return collecting::merge_with(self.view, self.cpu, leader, self.own_stack, FEW_BATCHES);
        }
        let overflows = self.own != 0 && in_own >= GROUP_BATCHES;
        let common = depot.stack(0, self.list_type).unwrap_or(self.own_stack);
        let stack = if overflows { common } else { self.own_stack };
        stack.touch(platform, Access::ReadModifyWrite);
        stack.count_coming(1);
        stack.count_overflowed(u64::from(overflows));
        stack.push(map, platform, leader, leader);
    }

    /// Fetches single frames for the list and gives them to `deliver` a batch at a time, in the order in which they are to
    /// be handed out; how many there were. At least a batch where the zone has as many.
    pub(crate) fn fetch(&self, request: BlockRequest, deliver: impl FnMut(&Batch)) -> usize {
        let platform = self.view.platform;
        platform.begin_activity(Activity::Refill);
        let got = self.fetch_in_span(request, deliver);
        platform.end_activity(Activity::Refill, PageCount(got as u64));
        got
    }

    fn fetch_in_span(&self, request: BlockRequest, mut deliver: impl FnMut(&Batch)) -> usize {
        debug_assert_eq!(request.order, Order::ZERO, "the depot keeps single frames");
        if let Some(leader) = self.pop() {
            let mut picked = Batch::none();
            picked.len = packed::unpack(self.view.map, self.view.platform, leader, &mut picked.entries).len;
            deliver(&picked);
            return picked.len;
        }
        if !self.view.zone.has_block_of_type_racy(Order::ZERO, request.migrate_type) {
            // Rather than mix types in a pageblock: what others of the zone keep may be of this type by now, or whole.
            self.view.collect_for(Order::ZERO, request.migrate_type);
        }
        carving::fetch(self.view, request, self.cpu, self.own_stack, deliver)
    }

    /// Pops a batch: from the group's stack, the zone's, another group's.
    fn pop(&self) -> Option<Link> {
        let ZoneView { map, platform, depot, .. } = self.view;
        let shelves = depot.shelves.len();
        let others = (1..shelves).map(|step| 1 + (self.own + step - 1) % (shelves - 1)).filter(|at| *at != self.own);
        for shelf in [self.own, 0].into_iter().chain(others) {
            let stack = depot.stack(shelf, self.list_type)?;
            if let Some(leader) = stack.pop(map, platform) {
                stack.touch(platform, Access::ReadModifyWrite);
                stack.count_popped(1);
                if shelf != self.own && shelf != 0 {
                    stack.count_stolen(1);
                }
                return Some(leader);
            }
        }
        None
    }
}
