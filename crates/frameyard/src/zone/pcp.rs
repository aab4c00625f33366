//! Per-CPU lists: frames kept close to the CPU that will use them, in front of the zone lock.
//!
//! Each zone has one [`PerCpuPages`] for each CPU: a list for every pair of migration type and small order, and two for the
//! huge-page order. A list is an array of frame indices used as a stack, so no operation follows a pointer from page to page. Blocks
//! that do not fit the array are packed into batches in their own page structures ([`packed`](super::batch::packed)). Batches move between a list and the
//! zone through the interface of [`transfer`](super::transfer).
//!
//! # Protocol
//!
//! A lock word guards everything in a `PerCpuPages`. Its CPU *tries* to take it: the lock is free except while a preempted thread
//! holds it or another CPU drains the lists. If it is taken, the CPU goes to the zone instead of waiting. A CPU that drains another
//! CPU's lists waits for the lock and holds it while it takes frames out. In the common case only its own CPU writes the lock's
//! cache line. A caller may have moved to another CPU meanwhile: it then uses a list that is not its own, under that list's lock.
//!
//! Reads and writes of words are relaxed: taking the lock acquires what the last holder released. The same pair orders the bytes of
//! a frame: its old owner wrote them before it pushed the frame, and its new owner accesses them after it popped the frame. The zone
//! lock does the same for a frame that passes through the zone. `_racy` readers see any recent value, and two words that need not belong
//! together.
//!
//! # Counting equations
//!
//! - `high − room` of a group = Σ over its lists of (array length + packed blocks) × 2^order; the groups are the small orders and the
//!   huge-page order. `room` is below 0 for a while after `high` was lowered.
//! - Each frame in a list has a [`FrameState::PerCpu`](crate::page::FrameState::PerCpu) tag with the list's order; a single frame may
//!   have none.

use core::fmt;

use crate::platform::{Access, Contention, LineKind, LockError, LockId, Platform, SharedLine};
use crate::sync::{AtomicU32, AtomicU64, Ordering, all_atomic};
use crate::units::{CpuId, Geometry, MigrateType, Order, PageCount, ZoneId};
use crate::zone::batch::BATCH;
use crate::zone::exclusive::add_exclusive;
use crate::zone::policy::ZonePolicy;
use crate::zone::transfer::{ListLimits, list_limits};

mod refill_drain;

pub(crate) use refill_drain::Refill;

/// Orders 0 to 3 (the kernel's `PAGE_ALLOC_COSTLY_ORDER`) have lists. (Order 0 alone in models.)
const SMALL_ORDERS: usize = if cfg!(loom) { 1 } else { 4 };
/// The lists of small orders come first, by order, then type.
const FIRST_HUGE: usize = SMALL_ORDERS * MigrateType::PER_CPU;
/// The number of lists: small orders by type, and the huge-page order, movable or not.
pub(crate) const LISTS: usize = FIRST_HUGE + 2;
/// The entries of a list's array: two batches, so that after one moves in or out there is room either way.
pub(crate) const ARRAY: usize = 2 * BATCH;

/// A list, by a number below [`LISTS`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ListId(u8);

/// Lists that share one limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Group {
    Small = 0,
    Huge = 1,
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
    pub(crate) fn new(order: Order, migrate_type: MigrateType, geometry: Geometry) -> Option<Self> {
        let huge = || Self((FIRST_HUGE + usize::from(migrate_type == MigrateType::Movable)) as u8);
        Self::small(order, migrate_type).or_else(|| (order == geometry.pageblock_order()).then(huge))
    }

    /// The first list of a group.
    pub(crate) fn first(group: Group) -> Self {
        match group {
            Group::Small => Self(0),
            Group::Huge => Self(FIRST_HUGE as u8),
        }
    }

    /// All lists of a group, starting with this one.
    pub(crate) fn group_from(self) -> impl Iterator<Item = Self> {
        let (first, count) = match self.group() {
            Group::Small => (0, FIRST_HUGE),
            Group::Huge => (FIRST_HUGE, LISTS - FIRST_HUGE),
        };
        (0..count).map(move |step| Self((first + (self.0 as usize - first + step) % count) as u8))
    }

    /// All lists.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..LISTS as u8).map(Self)
    }

    #[inline(always)]
    pub(crate) fn group(self) -> Group {
        if (self.0 as usize) < FIRST_HUGE { Group::Small } else { Group::Huge }
    }

    /// The type of the blocks of a list of a small order.
    #[inline(always)]
    pub(crate) fn small_type(self) -> Option<MigrateType> {
        match self.group() {
            Group::Small => MigrateType::from_bits(self.0 % MigrateType::PER_CPU as u8),
            Group::Huge => None,
        }
    }

    /// The order of the list's blocks.
    #[inline(always)]
    pub(crate) fn order(self, geometry: Geometry) -> Order {
        match self.group() {
            Group::Small => Order(self.0 / MigrateType::PER_CPU as u8),
            Group::Huge => geometry.pageblock_order(),
        }
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

/// One list: the newest entries in an array, older ones in a chain of packed batches.
#[repr(C, align(64))]
pub(crate) struct PcpList {
    len: AtomicU32,
    /// Link to the head of the newest packed batch.
    chain: AtomicU32,
    /// Blocks allocated from the list. On the cache line that every allocation writes anyway, with the frees.
    allocations: AtomicU64,
    /// Blocks freed to the list.
    frees: AtomicU64,
    entries: [AtomicU32; ARRAY],
}

all_atomic!(PcpList { len, chain, allocations, frees, entries });

/// The lists of one CPU in one zone.
#[repr(C, align(128))]
#[derive(Default)]
pub(crate) struct PerCpuPages {
    lock: AtomicU32,
    /// The frames that the lists may still take (an `i32`), by [`Group`].
    room: [AtomicU32; 2],
    /// The most frames that the lists hold, by [`Group`].
    high: [AtomicU32; 2],
    /// The frames that one transfer moves.
    batch: AtomicU32,
    zone: AtomicU32,
    cpu: AtomicU32,
    /// `high` and `batch` as the yard sizes its lists, whatever the policy's limits are.
    own_high: [AtomicU32; 2],
    own_batch: AtomicU32,
    pub(crate) counts: PcpCounts,
    lists: [PcpList; LISTS],
}

all_atomic!(PerCpuPages { lock, room, high, batch, zone, cpu, own_high, own_batch, counts, lists });

/// Events on one CPU's lists. Change under their lock, read racily.
#[derive(Default)]
pub(crate) struct PcpCounts {
    /// Batches fetched from the zone.
    pub(crate) refills: AtomicU64,
    /// Batches given back to the zone.
    pub(crate) drains: AtomicU64,
}

all_atomic!(PcpCounts { refills, drains });

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

impl Default for PcpList {
    fn default() -> Self {
        Self {
            len: AtomicU32::new(0),
            chain: AtomicU32::new(0),
            allocations: AtomicU64::new(0),
            frees: AtomicU64::new(0),
            entries: core::array::from_fn(|_| AtomicU32::new(0)),
        }
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

    fn lock_id(&self) -> LockId {
        LockId::PerCpu(self.zone(), self.cpu())
    }

    pub(crate) fn high_racy(&self) -> PageCount {
        PageCount(u64::from(self.high[Group::Small as usize].load(Ordering::Relaxed)))
    }

    pub(crate) fn batch_racy(&self) -> PageCount {
        PageCount(u64::from(self.batch.load(Ordering::Relaxed)))
    }

    /// Frames held by all lists, possibly stale.
    pub(crate) fn pages_racy(&self) -> PageCount {
        PageCount(self.held_racy(Group::Small).0 + self.held_racy(Group::Huge).0)
    }

    /// Frames held by the lists of small orders, possibly stale (the kernel's `count`).
    pub(crate) fn small_pages_racy(&self) -> PageCount {
        self.held_racy(Group::Small)
    }

    /// Frames held by a group of lists, possibly stale; meaningless, but never huge, while the limits change.
    pub(crate) fn held_racy(&self, group: Group) -> PageCount {
        let high = self.high[group as usize].load(Ordering::Relaxed);
        let room = self.room[group as usize].load(Ordering::Relaxed);
        PageCount((high.wrapping_sub(room) as i32).max(0) as u64)
    }

    /// Whether a list holds no block, possibly stale.
    #[inline(always)]
    pub(crate) fn is_list_empty_racy(&self, id: ListId) -> bool {
        let list = &self.lists[id.0 as usize];
        list.len.load(Ordering::Relaxed) == 0 && list.chain.load(Ordering::Relaxed) == 0
    }

    /// Whether there is nothing to drain, possibly stale.
    ///
    /// Both conditions are needed: the count may read 0 while limits change, the lists while a batch is unpacked.
    pub(crate) fn is_empty_racy(&self) -> bool {
        self.pages_racy().0 == 0 && ListId::all().all(|list| self.is_list_empty_racy(list))
    }

    /// What was allocated from all lists and what was freed to them, possibly stale.
    pub(crate) fn flow_racy(&self, geometry: Geometry) -> (Flow, Flow) {
        let (mut out, mut back) = (Flow::default(), Flow::default());
        for id in ListId::all() {
            let list = &self.lists[id.0 as usize];
            out.add(list.allocations.load(Ordering::Relaxed), id.order(geometry));
            back.add(list.frees.load(Ordering::Relaxed), id.order(geometry));
        }
        (out, back)
    }

    /// Takes the lock if it is free. The caller names the zone and CPU, which saves reading them.
    #[inline(always)]
    pub(crate) fn try_lock<'a, P: Platform>(
        &'a self,
        platform: &'a P,
        zone: ZoneId,
        cpu: CpuId,
    ) -> Option<LockedPcp<'a, P>> {
        let guard = platform.guard();
        let id = LockId::PerCpu(zone, cpu);
        match platform.try_lock(id, &self.lock) {
            Contention::Free => Some(LockedPcp { pcp: self, id, platform, _guard: guard }),
            Contention::Contended => None,
        }
    }

    /// Takes the lock, unless the platform gives up; spins until acquired. The holder waits for a mechanism's lock and the zone
    /// lock at most.
    pub(crate) fn lock<'a, P: Platform>(&'a self, platform: &'a P) -> Result<LockedPcp<'a, P>, LockError> {
        let guard = platform.guard();
        let id = self.lock_id();
        platform.lock(id, &self.lock)?;
        Ok(LockedPcp { pcp: self, id, platform, _guard: guard })
    }
}

impl fmt::Debug for PerCpuPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {} held", self.lock_id(), self.pages_racy())
    }
}

/// One CPU's lists, locked; unlocks when dropped.
pub(crate) struct LockedPcp<'a, P: Platform> {
    pcp: &'a PerCpuPages,
    id: LockId,
    platform: &'a P,
    _guard: P::Guard,
}

impl<P: Platform> Drop for LockedPcp<'_, P> {
    #[inline(always)]
    fn drop(&mut self) {
        self.platform.unlock(self.id, &self.pcp.lock);
    }
}

#[inline(always)]
fn add(word: &AtomicU32, amount: u32) {
    word.store(word.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
}

#[inline(always)]
fn sub(word: &AtomicU32, amount: u32) {
    word.store(word.load(Ordering::Relaxed).wrapping_sub(amount), Ordering::Relaxed);
}

impl<'a, P: Platform> LockedPcp<'a, P> {
    #[inline(always)]
    fn list(&self, id: ListId) -> &'a PcpList {
        &self.pcp.lists[id.0 as usize]
    }

    /// The CPU of these lists.
    fn cpu(&self) -> CpuId {
        self.pcp.cpu()
    }

    /// Sets the limits as the yard sizes its lists; in force unless `policy` has limits of its own. Safe at any time: the lists
    /// shrink to a lower limit as they are used.
    pub(crate) fn set_limits(&mut self, policy: ZonePolicy, high: PageCount, huge_high: PageCount, batch: PageCount) {
        for (own, high) in self.pcp.own_high.iter().zip([high, huge_high]) {
            own.store(high.0.min(i32::MAX as u64) as u32, Ordering::Relaxed);
        }
        self.pcp.own_batch.store(batch.0 as u32, Ordering::Relaxed);
        self.adopt_policy(policy);
    }

    /// Applies the limits of the policy, or those that the yard sizes its lists to.
    pub(crate) fn adopt_policy(&mut self, policy: ZonePolicy) {
        let (highs, batch) = match list_limits(policy) {
            Some(ListLimits { high, batch }) => ([high; 2], batch),
            None => (
                [0, 1].map(|group: usize| self.pcp.own_high[group].load(Ordering::Relaxed)),
                self.pcp.own_batch.load(Ordering::Relaxed),
            ),
        };
        for (group, high) in highs.into_iter().enumerate() {
            let old = self.pcp.high[group].load(Ordering::Relaxed);
            self.pcp.high[group].store(high, Ordering::Relaxed);
            add(&self.pcp.room[group], high.wrapping_sub(old));
        }
        self.pcp.batch.store(batch, Ordering::Relaxed);
    }

    /// Counts blocks allocated from a list.
    #[inline(always)]
    pub(crate) fn count_allocations(&mut self, id: ListId, blocks: u64) {
        add_exclusive(&self.list(id).allocations, blocks);
    }

    /// Counts a block freed to a list.
    #[inline(always)]
    pub(crate) fn count_free(&mut self, id: ListId) {
        add_exclusive(&self.list(id).frees, 1);
    }

    /// Announces a use of a word of a list. Uses of the limits are not announced: they are on the cache line of the lock.
    #[inline(always)]
    fn touch<T>(&self, word: &T, access: Access) {
        self.platform.touch_line(SharedLine::of(LineKind::PerCpuLists, word), access);
    }

    /// Takes the newest entry of the array; `None` if it is empty.
    #[inline(always)]
    pub(crate) fn pop(&mut self, id: ListId, order: Order) -> Option<u32> {
        let list = self.list(id);
        self.touch(&list.len, Access::Write);
        let last = list.len.load(Ordering::Relaxed).checked_sub(1)?;
        let entry = &list.entries[last as usize % ARRAY];
        self.touch(entry, Access::Read);
        let index = entry.load(Ordering::Relaxed);
        list.len.store(last, Ordering::Relaxed);
        add(&self.pcp.room[id.group() as usize], order.pages().0 as u32);
        Some(index)
    }

    /// Adds an entry; `false`, with nothing changed, if the limit or the end of the array is reached.
    #[inline(always)]
    #[must_use]
    pub(crate) fn push(&mut self, id: ListId, order: Order, index: u32) -> bool {
        let list = self.list(id);
        self.touch(&list.len, Access::Write);
        let len = list.len.load(Ordering::Relaxed);
        let group = id.group() as usize;
        let room = self.pcp.room[group].load(Ordering::Relaxed).wrapping_sub(order.pages().0 as u32);
        if len as usize >= ARRAY || (room as i32) < 0 {
            return false;
        }
        let entry = &list.entries[len as usize];
        self.touch(entry, Access::Write);
        entry.store(index, Ordering::Relaxed);
        list.len.store(len + 1, Ordering::Relaxed);
        self.pcp.room[group].store(room, Ordering::Relaxed);
        true
    }
}
