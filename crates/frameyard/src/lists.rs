//! Per-CPU lists: frames kept close to the CPU that will use them, in front of the zone lock.
//!
//! Each zone has one [`PerCpuPages`] for each CPU: a list for every pair of migration type and small order, and two for the
//! huge-page order. Where free frames are bits, there are also lists for the orders between ([`LargeLists`]). A list is an array of frame
//! indices used as a stack, so no operation follows a pointer from page to page. Blocks that do not fit the array are packed into batches in
//! their own page structures ([`packed`](crate::store::batch::packed)). Batches move between a list and the zone through the interface of
//! [`transfer`](crate::transfer).
//!
//! # Protocol
//!
//! A lock word guards everything in a `PerCpuPages`. Its CPU only *tries* to take the lock, which is free except while
//! a preempted thread holds it or another CPU drains the lists. If the lock is taken, the CPU goes to the zone instead
//! of waiting. A CPU that drains another CPU's lists waits for the lock and holds it while it takes frames out. In the
//! common case only its own CPU writes the lock's cache line. A caller may be moved to another CPU in the middle; it
//! then uses a list that is not its CPU's, under that list's lock.
//!
//! Reads and writes of words are relaxed: taking the lock acquires what the last holder released. The same pair orders
//! the bytes of a frame: its old owner wrote them before it pushed the frame, and its new owner accesses them after it
//! popped the frame. The zone lock does the same for a frame that passes through the zone. A `_racy` reader may see any
//! recent value, and the values of two words need not belong together.
//!
//! # Restartable sequences
//!
//! On a platform with restartable sequences, a CPU uses its own lists without atomic read-modify-writes; see
//! [`OwnList`] for the protocol. A thread that has taken the owner words has the lists to itself, as under the lock,
//! and may be moved to another CPU. A yard uses either locks or sequences, for all lists and for its whole life.
//!
//! # Limits
//!
//! The lists of a [`Group`] share one limit of `high` frames. Each list has a part of it, the number of blocks that its
//! array may have, so that a free only compares two numbers in one word. If the part of its list is used up, a free
//! takes room that other lists do not use ([`LockedPcp::share_room`]). The lists are over their limit only when all
//! parts are used up.
//!
//! # Counting equations
//!
//! - frames of a group = Σ over its lists of (array length + packed blocks) × 2^order.
//! - `parts` of a group = Σ over its lists of limit × 2^order.
//! - Σ over the lists of a group of (limit + packed blocks) × 2^order ≤ `high`, or the packed blocks alone if these have more frames.
//!   A list has more than its limit for a while after `high` was lowered, or after a refill of more than was wanted.
//! - blocks allocated from a list = blocks freed to it + `net_in` − (array length + packed blocks).
//! - Each frame in a list has a [`FrameState::PerCpu`](crate::page::FrameState::PerCpu) tag with the list's order; a single frame may
//!   have none.

use core::fmt;
use core::ops::Deref;

use crate::platform::{Access, Contention, LineKind, LockError, LockId, OwnList, Platform, Probe, SharedLine};
use crate::store::batch::{BATCH, SMALL_ORDERS};
use crate::store::bits::bitmap::LARGEST_LINE;
use crate::sync::{AtomicU32, AtomicU64, Ordering, all_atomic, is_broken};
use crate::units::{CpuId, Geometry, MigrateType, Order, PageCount, ZoneId};
use crate::zone::policy::{ListSizes, ZonePolicy};

mod limits;
mod list;
mod refill_drain;

use list::ListWord;
pub(crate) use list::PcpList;
pub(crate) use refill_drain::Refill;

/// The lists of small orders come first, by order, then type.
const FIRST_HUGE: usize = SMALL_ORDERS * MigrateType::PER_CPU;
/// The lists that every yard has: small orders by type, and the huge-page order, movable or not. Further ones are [`LargeLists`].
const FIRST_LARGE: usize = FIRST_HUGE + 2;
/// The orders between the small ones and that of a line of bits.
const LARGE_ORDERS: usize = LARGEST_LINE.0 as usize - SMALL_ORDERS;
/// The number of lists.
const LISTS: usize = FIRST_LARGE + LARGE_ORDERS * MigrateType::PER_CPU;
/// The entries of a list's array: two batches, so that after one moves in or out there is room either way.
pub(crate) const ARRAY: usize = 2 * BATCH;

/// The limit of the lists where they are [`Big`](ListSizes::Big), in frames. Small in models, whose yards are small.
const BIG_HIGH: u32 = if cfg!(loom) { 12 } else { 65532 };
/// The frames that such lists move at once.
const BIG_BATCH: u32 = if cfg!(loom) { 2 } else { 10922 };

/// A list, by a number below [`LISTS`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ListId(u8);

/// Lists that share one limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Group {
    /// The small orders.
    Small = 0,
    /// The huge-page order.
    Huge = 1,
    /// The orders between, where free frames are bits.
    Large = 2,
}

impl Group {
    pub(crate) const ALL: [Self; 3] = [Self::Small, Self::Huge, Self::Large];

    /// The first of its lists, their number, and how many an order has.
    const fn lists(self) -> (usize, usize, usize) {
        match self {
            Self::Small => (0, FIRST_HUGE, MigrateType::PER_CPU),
            Self::Huge => (FIRST_HUGE, FIRST_LARGE - FIRST_HUGE, FIRST_LARGE - FIRST_HUGE),
            Self::Large => (FIRST_LARGE, LISTS - FIRST_LARGE, MigrateType::PER_CPU),
        }
    }

    /// The order of its first list.
    const fn first_order(self, geometry: Geometry) -> Order {
        match self {
            Self::Small => Order::ZERO,
            Self::Huge => geometry.pageblock_order(),
            Self::Large => Order(SMALL_ORDERS as u8),
        }
    }
}

/// The orders that have lists in a yard, beside the small ones.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListOrders {
    huge: Order,
    /// The order of a line of bits, below which all orders have lists; 0 where free frames are not bits.
    line: Order,
}

impl ListOrders {
    pub(crate) fn new(geometry: Geometry, line: Option<Order>) -> Self {
        Self { huge: geometry.pageblock_order(), line: line.unwrap_or(Order::ZERO) }
    }
}

impl ListId {
    /// The list for blocks of one of the small orders; `None` for larger ones.
    #[inline(always)]
    pub(crate) fn small(order: Order, migrate_type: MigrateType) -> Option<Self> {
        if order.index() < SMALL_ORDERS && migrate_type.index() < MigrateType::PER_CPU {
            Some(Self((order.index() * MigrateType::PER_CPU + migrate_type.index()) as u8))
        } else {
            None
        }
    }

    /// The list for blocks of that order and type; `None` if such blocks have none.
    #[inline(always)]
    pub(crate) fn new(order: Order, migrate_type: MigrateType, orders: ListOrders) -> Option<Self> {
        let huge = || Self((FIRST_HUGE + usize::from(migrate_type == MigrateType::Movable)) as u8);
        let other = || {
            if order < orders.line && migrate_type.index() < MigrateType::PER_CPU {
                let at = (order.index() - SMALL_ORDERS) * MigrateType::PER_CPU + migrate_type.index();
                return Some(Self((FIRST_LARGE + at) as u8));
            }
            (order == orders.huge).then(huge)
        };
        if order.index() < SMALL_ORDERS { Self::small(order, migrate_type) } else { other() }
    }

    /// The first list of a group.
    pub(crate) fn first(group: Group) -> Self {
        Self(group.lists().0 as u8)
    }

    /// All lists of a group, starting with this one.
    pub(crate) fn group_from(self) -> impl Iterator<Item = Self> {
        let (first, count, _) = self.group().lists();
        (0..count).map(move |step| Self((first + (self.0 as usize - first + step) % count) as u8))
    }

    #[inline(always)]
    pub(crate) fn group(self) -> Group {
        match self.0 as usize {
            ..FIRST_HUGE => Group::Small,
            FIRST_HUGE..FIRST_LARGE => Group::Huge,
            _ => Group::Large,
        }
    }

    /// The type of the blocks of a list from which blocks of an order below the huge-page order are allocated.
    #[inline(always)]
    pub(crate) fn allocated_type(self) -> Option<MigrateType> {
        let (first, _, types) = match self.group() {
            group @ (Group::Small | Group::Large) => group.lists(),
            Group::Huge => return None,
        };
        MigrateType::from_bits(((self.0 as usize - first) % types) as u8)
    }

    /// The order of the list's blocks.
    #[inline(always)]
    pub(crate) fn order(self, geometry: Geometry) -> Order {
        let group = self.group();
        let (first, _, per_order) = group.lists();
        Order(group.first_order(geometry).0 + ((self.0 as usize - first) / per_order) as u8)
    }
}

/// The type of the per-CPU lists for blocks of a pageblock of that type; `None` if such blocks go to the zone directly.
///
/// CMA and high-atomic blocks go with the movable ones and are sorted when they return to the zone.
#[inline(always)]
pub(crate) fn list_type(block_type: MigrateType) -> Option<MigrateType> {
    match block_type {
        MigrateType::Isolate => None,
        MigrateType::HighAtomic | MigrateType::Cma => Some(MigrateType::Movable),
        ordinary => Some(ordinary),
    }
}

/// The owner word that is the lock of the lists; in sequences, their CPU takes it with a store.
const OWNER: usize = 0;
/// The owner word that another thread locks first, to keep new sequences out.
const CLAIM: usize = 1;

/// The lists of one CPU in one zone.
#[repr(C, align(128))]
#[derive(Default)]
pub(crate) struct PerCpuPages {
    /// [`OWNER`] and [`CLAIM`]; the second is unused where lists are used under their lock.
    owners: [AtomicU32; 2],
    /// The most frames that the lists hold, by [`Group`].
    high: [AtomicU32; 3],
    /// The frames of the parts that lists have of `high`, by [`Group`].
    parts: [AtomicU32; 3],
    /// The frames that one transfer moves.
    batch: AtomicU32,
    zone: AtomicU32,
    cpu: AtomicU32,
    /// `high` and `batch` as the yard sizes its lists, whatever the policy's limits are.
    own_high: [AtomicU32; 3],
    own_batch: AtomicU32,
    pub(crate) counts: PcpCounts,
    lists: [PcpList; FIRST_LARGE],
}

/// The lists of one CPU in one zone that only yards have whose free frames are bits: those of [`Group::Large`].
#[repr(C, align(128))]
#[derive(Default)]
pub(crate) struct LargeLists {
    lists: [PcpList; LISTS - FIRST_LARGE],
}

all_atomic!(LargeLists { lists });

/// The lists of one CPU in one zone, with those that not every yard has.
#[derive(Clone, Copy)]
pub(crate) struct CpuLists<'a> {
    basic: &'a PerCpuPages,
    /// Those of all CPUs and zones.
    large: &'a [LargeLists],
    place: usize,
}

impl Deref for CpuLists<'_> {
    type Target = PerCpuPages;

    #[inline(always)]
    fn deref(&self) -> &PerCpuPages {
        self.basic
    }
}

all_atomic!(PerCpuPages { owners, high, parts, batch, zone, cpu, own_high, own_batch, counts, lists });

/// The limits of a CPU's lists as the yard sizes them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct YardLimits {
    pub(crate) high: PageCount,
    pub(crate) huge_high: PageCount,
    pub(crate) large_high: PageCount,
    pub(crate) batch: PageCount,
}

/// Events on one CPU's lists. Change under their lock, read racily.
#[derive(Default)]
pub(crate) struct PcpCounts {
    /// Batches fetched from the zone.
    pub(crate) refills: AtomicU64,
    /// Batches given back to the zone.
    pub(crate) drains: AtomicU64,
}

all_atomic!(PcpCounts { refills, drains });

/// Frames of a group of lists.
#[derive(Clone, Copy, Default, Debug)]
struct Totals {
    /// In arrays and packed batches.
    held: u64,
    /// In packed batches.
    packed: u64,
    /// The parts of the limit.
    limits: u64,
}

/// Blocks and their frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Flow {
    pub(crate) blocks: u64,
    pub(crate) pages: u64,
}

impl Flow {
    /// Adds blocks of an order.
    pub(crate) fn add(&mut self, blocks: u64, order: Order) {
        self.blocks = self.blocks.wrapping_add(blocks);
        self.pages = self.pages.wrapping_add(blocks << order.0);
    }
}

impl PerCpuPages {
    /// Records the zone and CPU of these lists, once, when the yard is created.
    pub(crate) fn assign(&self, zone: ZoneId, cpu: CpuId) {
        self.zone.store(u32::from(zone.0), Ordering::Relaxed);
        self.cpu.store(cpu.0, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(crate) fn zone(&self) -> ZoneId {
        ZoneId(self.zone.load(Ordering::Relaxed) as u16)
    }

    fn cpu(&self) -> CpuId {
        CpuId(self.cpu.load(Ordering::Relaxed))
    }

    pub(crate) fn lock_id(&self) -> LockId {
        LockId::PerCpu(self.zone(), self.cpu())
    }

    /// The word that keeps new sequences out. A thread that has it ends all sequences before it takes the next one.
    pub(crate) fn claim_word(&self) -> &AtomicU32 {
        &self.owners[CLAIM]
    }

    /// The word of the lists' lock.
    pub(crate) fn owner_word(&self) -> &AtomicU32 {
        &self.owners[OWNER]
    }

    pub(crate) fn high_racy(&self) -> PageCount {
        PageCount(u64::from(self.high[Group::Small as usize].load(Ordering::Relaxed)))
    }

    pub(crate) fn batch_racy(&self) -> PageCount {
        PageCount(u64::from(self.batch.load(Ordering::Relaxed)))
    }
}

impl<'a> CpuLists<'a> {
    /// The lists at a place of the tables of all.
    #[inline(always)]
    pub(crate) fn at(basic: &'a [PerCpuPages], large: &'a [LargeLists], place: usize) -> Option<Self> {
        // Found where one of them is wanted: most requests do without.
        Some(Self { basic: basic.get(place)?, large, place })
    }

    /// The lists of [`Group::Large`].
    #[inline(always)]
    fn large(self) -> &'a [PcpList] {
        self.large.get(self.place).map_or(&[], |large| &large.lists)
    }

    /// A list that the yard has.
    #[inline(always)]
    fn list(self, id: ListId) -> &'a PcpList {
        match (id.0 as usize).checked_sub(FIRST_LARGE) {
            None => &self.basic.lists[id.0 as usize],
            Some(at) => &self.large()[at],
        }
    }

    /// The groups of lists that the yard has.
    pub(crate) fn groups(self) -> impl Iterator<Item = Group> {
        Group::ALL.into_iter().filter(move |group| *group != Group::Large || !self.large().is_empty())
    }

    /// All lists that the yard has.
    fn ids(self) -> impl Iterator<Item = ListId> {
        (0..(FIRST_LARGE + self.large().len()) as u8).map(ListId)
    }

    /// Frames held by all lists, possibly stale.
    pub(crate) fn pages_racy(self, geometry: Geometry) -> PageCount {
        self.groups().map(|group| self.held_racy(group, geometry)).sum()
    }

    /// Frames held by the lists of small orders, possibly stale (the kernel's `count`).
    pub(crate) fn small_pages_racy(self, geometry: Geometry) -> PageCount {
        self.held_racy(Group::Small, geometry)
    }

    /// Frames held by a group of lists, possibly stale.
    pub(crate) fn held_racy(self, group: Group, geometry: Geometry) -> PageCount {
        PageCount(self.totals_racy(group, geometry).held)
    }

    /// The lists of a group, for each order.
    #[inline(always)]
    fn lists_of(self, group: Group, geometry: Geometry) -> impl Iterator<Item = (&'a [PcpList], u8)> {
        let (first, count, per_order) = group.lists();
        let lists = match group {
            Group::Small | Group::Huge => &self.basic.lists[first..first + count],
            Group::Large => self.large(),
        };
        lists.chunks_exact(per_order).zip(group.first_order(geometry).0..)
    }

    /// Frames in packed batches of a group of lists, possibly stale.
    #[inline]
    fn packed_racy(self, group: Group, geometry: Geometry) -> u64 {
        let packed = |lists: &[PcpList]| lists.iter().map(|list| u64::from(list.packed.load(Ordering::Relaxed))).sum();
        self.lists_of(group, geometry).map(|(lists, order)| u64::wrapping_shl(packed(lists), order.into())).sum()
    }

    /// What the lists of a group have, possibly stale.
    #[inline]
    fn totals_racy(self, group: Group, geometry: Geometry) -> Totals {
        let mut totals = Totals::default();
        for (lists, order) in self.lists_of(group, geometry) {
            for list in lists {
                let word = list.word();
                let packed = u64::from(list.packed.load(Ordering::Relaxed));
                totals.held += (word.len().min(ARRAY) as u64 + packed) << order;
                totals.packed += packed << order;
                totals.limits += (word.limit() as u64) << order;
            }
        }
        totals
    }

    /// Whether a list holds no block, possibly stale.
    #[inline(always)]
    pub(crate) fn is_list_empty_racy(self, id: ListId) -> bool {
        self.list(id).is_empty_racy()
    }

    /// Whether there is nothing to drain, possibly stale.
    pub(crate) fn is_empty_racy(self) -> bool {
        self.ids().all(|list| self.is_list_empty_racy(list))
    }

    /// What was allocated from all lists and what was freed to them. Possibly stale.
    pub(crate) fn flow_racy(self, geometry: Geometry) -> (Flow, Flow) {
        let [mut out, mut back] = [Flow::default(); 2];
        for id in self.ids() {
            let (allocations, frees) = self.list(id).flow_racy();
            out.add(allocations, id.order(geometry));
            back.add(frees, id.order(geometry));
        }
        (out, back)
    }

    /// A list as its own CPU uses it.
    #[inline(always)]
    pub(crate) fn own_list(self, id: ListId) -> OwnList<'a> {
        let list = self.list(id);
        OwnList { owners: &self.basic.owners, word: &list.word, entries: &list.entries }
    }

    /// Takes the lock if it is free, and if the caller runs on the CPU where its lists are used in sequences. The caller names the
    /// zone and CPU, which saves reading them.
    #[inline(always)]
    pub(crate) fn try_lock<P: Platform>(self, platform: &'a P, zone: ZoneId, cpu: CpuId) -> Option<LockedPcp<'a, P>> {
        if !platform.has_sequences() {
            return self.try_lock_owner(platform, zone, cpu);
        }
        let guard = platform.guard();
        let is_taken = platform.take_in_sequence(cpu, self.own_list(ListId::first(Group::Small)));
        let id = LockId::PerCpu(zone, cpu);
        if is_taken { Some(LockedPcp { pcp: self, id, platform, is_claimed: false, _guard: guard }) } else { None }
    }

    /// As [`try_lock`](Self::try_lock), on a platform without sequences.
    #[inline(always)]
    pub(crate) fn try_lock_owner<P: Platform>(
        self,
        platform: &'a P,
        zone: ZoneId,
        cpu: CpuId,
    ) -> Option<LockedPcp<'a, P>> {
        let guard = platform.guard();
        let id = LockId::PerCpu(zone, cpu);
        let is_taken = platform.try_lock(id, &self.basic.owners[OWNER]) == Contention::Free;
        if is_taken { Some(LockedPcp { pcp: self, id, platform, is_claimed: false, _guard: guard }) } else { None }
    }

    /// Takes the lock, unless the platform gives up; spins until acquired. The holder waits for the zone lock at most.
    /// Where CPUs use their lists in sequences, this ends those of the lists' CPU.
    pub(crate) fn lock<P: Platform>(self, platform: &'a P) -> Result<LockedPcp<'a, P>, LockError> {
        if !platform.has_sequences() {
            return self.lock_owner(platform, false);
        }
        platform.lock(self.lock_id(), &self.basic.owners[CLAIM])?;
        if is_broken!(SequencesNotEnded) || platform.end_sequences(Some(self.cpu())).is_ok() {
            return self.lock_owner(platform, true);
        }
        platform.unlock(self.lock_id(), &self.basic.owners[CLAIM]);
        Err(LockError::SequencesNotEnded { lock: self.lock_id() })
    }

    /// Takes the first owner word: the last step to have the lists alone.
    fn lock_owner<P: Platform>(self, platform: &'a P, is_claimed: bool) -> Result<LockedPcp<'a, P>, LockError> {
        let guard = platform.guard();
        let id = self.lock_id();
        platform.lock(id, &self.basic.owners[OWNER])?;
        Ok(LockedPcp { pcp: self, id, platform, is_claimed, _guard: guard })
    }
}

/// Runs `work` on lists of several CPUs, each locked in turn, as far as they are `wanted`. Skips those whose lock the platform gives up.
///
/// Where CPUs use their lists in sequences, one call ends the sequences of all CPUs. Until it is its turn, a CPU cannot use its lists.
pub(crate) fn lock_each<'a, P: Platform>(
    all: impl Iterator<Item = CpuLists<'a>> + Clone,
    platform: &'a P,
    mut wanted: impl FnMut(CpuLists<'a>) -> bool,
    mut work: impl FnMut(LockedPcp<'a, P>),
) {
    if !platform.has_sequences() {
        all.filter(|pcp| wanted(*pcp)).filter_map(|pcp| pcp.lock(platform).ok()).for_each(work);
        return;
    }
    // In one order, so that no two callers wait for each other.
    let claimed = all.clone().take_while(|pcp| platform.lock(pcp.lock_id(), &pcp.owners[CLAIM]).is_ok()).count();
    let ended = is_broken!(SequencesNotEnded) || platform.end_sequences(None).is_ok();
    for pcp in all.take(claimed) {
        if ended
            && wanted(pcp)
            && let Ok(lists) = pcp.lock_owner(platform, true)
        {
            work(lists);
        } else {
            platform.unlock(pcp.lock_id(), &pcp.owners[CLAIM]);
        }
    }
}

impl fmt::Debug for PerCpuPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.lock_id())
    }
}

/// One CPU's lists, locked; unlocks when dropped.
pub(crate) struct LockedPcp<'a, P: Platform> {
    pcp: CpuLists<'a>,
    id: LockId,
    platform: &'a P,
    /// Whether the second owner word is locked, too.
    is_claimed: bool,
    _guard: P::Guard,
}

impl<P: Platform> Drop for LockedPcp<'_, P> {
    #[inline(always)]
    fn drop(&mut self) {
        self.platform.unlock(self.id, &self.pcp.owners[OWNER]);
        if self.is_claimed {
            self.platform.unlock(self.id, &self.pcp.owners[CLAIM]);
        }
    }
}

impl<'a, P: Platform> LockedPcp<'a, P> {
    #[inline(always)]
    fn list(&self, id: ListId) -> &'a PcpList {
        self.pcp.list(id)
    }

    /// The CPU of these lists.
    fn cpu(&self) -> CpuId {
        self.pcp.cpu()
    }

    /// Sets the limits as the yard sizes its lists; in force unless `policy` has limits of its own. Safe at any time: the lists
    /// shrink to a lower limit as they are used.
    pub(crate) fn set_limits(&mut self, policy: ZonePolicy, limits: YardLimits) {
        let store = |word: &AtomicU32, pages: PageCount| {
            word.store(pages.0.min(i32::MAX as u64) as u32, Ordering::Relaxed);
        };
        store(&self.pcp.own_high[Group::Small as usize], limits.high);
        store(&self.pcp.own_high[Group::Huge as usize], limits.huge_high);
        store(&self.pcp.own_high[Group::Large as usize], limits.large_high);
        store(&self.pcp.own_batch, limits.batch);
        self.use_policy(policy);
    }

    /// Applies the limits of the policy, or those that the yard sizes its lists to.
    pub(crate) fn use_policy(&mut self, policy: ZonePolicy) {
        let (highs, batch) = match policy.parts().lists {
            ListSizes::Big => ([BIG_HIGH, BIG_HIGH, 0], BIG_BATCH),
            ListSizes::OfYard => {
                let own = self.pcp.own_high.each_ref().map(|word| word.load(Ordering::Relaxed));
                (own, self.pcp.own_batch.load(Ordering::Relaxed))
            }
        };
        for (word, high) in self.pcp.high.iter().zip(highs) {
            word.store(high, Ordering::Relaxed);
        }
        self.pcp.batch.store(batch, Ordering::Relaxed);
        // The next free to a list takes its part of the new limit.
        for id in self.pcp.ids() {
            let list = self.list(id);
            list.set_word(list.word().with_limit(0));
        }
        self.pcp.parts.iter().for_each(|parts| parts.store(0, Ordering::Relaxed));
    }

    /// Announces a use of a word of a list. Uses of the limits are not announced: they are on the cache line of the lock.
    #[inline(always)]
    fn touch<T>(&self, word: &T, access: Access) {
        self.platform.probe().touch_line(SharedLine::of(LineKind::PerCpuLists, word), access);
    }

    /// Takes the newest entry of the array; `None` if it is empty.
    #[inline(always)]
    pub(crate) fn pop(&mut self, id: ListId) -> Option<u32> {
        let list = self.list(id);
        self.touch(&list.word, Access::Write);
        let word = list.word();
        let last = word.len().checked_sub(1)?;
        let entry = &list.entries[last % ARRAY];
        self.touch(entry, Access::Read);
        let index = entry.load(Ordering::Relaxed);
        list.set_word(ListWord(word.0 - 1));
        Some(index)
    }

    /// Adds an entry that was freed; `false`, with nothing changed, if the list is at its limit.
    #[inline(always)]
    #[must_use]
    pub(crate) fn push(&mut self, id: ListId, index: u32) -> bool {
        let list = self.list(id);
        self.touch(&list.word, Access::Write);
        let word = list.word();
        // A count that wraps is for the slow path, too.
        if word.len() >= word.limit() || word.0 > u64::MAX - ListWord::FREE {
            return false;
        }
        // Another process may have written any limit.
        let entry = &list.entries[word.len() % ARRAY];
        self.touch(entry, Access::Write);
        entry.store(index, Ordering::Relaxed);
        list.set_word(ListWord(word.0 + (ListWord::FREE + 1)));
        true
    }
}
