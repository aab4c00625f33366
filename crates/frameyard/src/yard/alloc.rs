//! Allocation: the fast path through the caller's per-CPU lists, and the slow path over the zonelist.
//!
//! The fast path takes a frame from the array of its CPU's list in a section, or under the lists' lock (one exchange). It uses three
//! cache lines of the lists, and stores the frame's byte in the allocation map. It compares no watermark: a frame on a
//! per-CPU list has left the zone, so the refill compares them, once per batch. (The kernel compares them on every
//! allocation.)
//!
//! The slow path walks the zonelist (`search_zones`). In each zone it looks at the caller's list (`search_zone`). Then it compares
//! the watermark, and refills the list or takes from the free lists (`take_from_zone`). It initialises deferred memory where a zone
//! has nothing else, and collects frames that the transfer policy stores before it gives up (`search`).

use super::{AllocError, Yard, ZoneShortage};
use crate::boot::{DoubleFreeCheck, HeaderWord, PageChecks, Poisoning, home_slot};
use crate::gfp::Gfp;
use crate::page::FrameState;
use crate::platform::{Access, Activity, LineKind, LockError, LockId, Platform, Popped, SharedLine};
use crate::sync::Ordering;
use crate::units::{CpuId, MigrateType, NodeId, Order, PageCount, Pfn, ZoneId, ZoneKind};
use crate::zone::pcp::{Group, ListId, LockedPcp, PerCpuPages, Refill};
use crate::zone::transfer::{self, Collect};
use crate::zone::{
    BlockRequest, CmaUse, Effort, Fallback, HeldFree, Patience, Reserves, WatermarkLevel, ZoneView, page_check, poison,
};

/// Flags that need more than the fast path.
pub(super) const OFF_FAST_PATH: Gfp = Gfp::ZERO.union(Gfp::THISNODE);

/// How many CPUs' lists a request tries before it takes the zone lock, under policies that spare the lock.
const LOOKS: u32 = 4;

/// How often a request tries to take the lists of its own CPU in a section.
const SECTION_TRIES: u32 = 3;

/// The most blocks with bad pages that a request meets before it gives up.
const MOST_BAD: u32 = 1 << 20;

/// One allocation, its flags taken apart.
#[derive(Clone, Copy)]
struct Request<'a> {
    order: Order,
    gfp: Gfp,
    migrate_type: MigrateType,
    node: NodeId,
    cpu: CpuId,
    list: Option<ListId>,
    effort: &'a Effort,
}

impl Request<'_> {
    fn to_block_request(self, fallback: Fallback) -> BlockRequest {
        let whole_alone = fallback == Fallback::Allowed && self.gfp.contains(Gfp::NOFRAGMENT);
        let fallback = if whole_alone { Fallback::WholePageblocks } else { fallback };
        BlockRequest { order: self.order, migrate_type: self.migrate_type, cma: self.cma(), fallback }
    }

    fn cma(self) -> CmaUse {
        if self.migrate_type == MigrateType::Movable { CmaUse::Allowed } else { CmaUse::Refused }
    }

    /// What the request may use beyond what any request may (the kernel's `gfp_to_alloc_flags`).
    fn reserves(self) -> Reserves {
        let high = self.gfp.contains(Gfp::HIGH);
        let non_block = high && !self.gfp.contains(Gfp::DIRECT_RECLAIM);
        Reserves { min: high, non_block, high_atomic: non_block && self.order.0 > 0, ..self.no_reserves() }
    }

    fn no_reserves(self) -> Reserves {
        Reserves { cma: self.migrate_type == MigrateType::Movable, ..Reserves::default() }
    }

    /// The request while memory is plentiful: movable frames may fill pageblocks of other types then, since no reclaim
    /// would run to keep those free.
    fn above_low(self) -> Self {
        match self.migrate_type {
            MigrateType::Movable => Self { gfp: self.gfp.without(Gfp::NOFRAGMENT), ..self },
            _ => self,
        }
    }

    fn may_drain(self) -> bool {
        self.gfp.contains(Gfp::DIRECT_RECLAIM) && !self.gfp.contains(Gfp::NORETRY)
    }
}

/// Where the compiler moves a branch out of the way.
#[cold]
#[inline]
const fn cold() {}

impl<P: Platform> Yard<P> {
    /// Allocates a block of `2^order` frames, preferably of the node that the caller runs on.
    ///
    /// A block of more than the yard's maximum order, up to [1 GiB](crate::Geometry::largest_order), is the first place in address order
    /// all of whose frames are free. It is one block: [`free`](Self::free) frees it whole, [`split_at`](Self::split_at) divides it.
    ///
    /// After the kernel's `alloc_pages`. Common cost: a section of the caller's CPU ([`Platform::has_sections`]), or its per-CPU lock (a
    /// try), and the frame's byte in the allocation map. A refill takes the zone lock at most once per batch.
    ///
    /// # Errors
    ///
    /// [`AllocError`]; nothing is allocated then.
    #[inline(always)]
    pub fn alloc(&self, order: Order, gfp: Gfp) -> Result<Pfn, AllocError> {
        self.platform.begin_activity(Activity::Alloc);
        // Single frames get code of their own, in which the order is a constant.
        let pfn = if order == Order::ZERO { self.alloc_fast(Order::ZERO, gfp) } else { self.alloc_fast(order, gfp) };
        let pfn = match pfn {
            Some(pfn) => Ok(pfn),
            None => self.alloc_special(order, gfp),
        };
        self.platform.end_activity(Activity::Alloc, PageCount(0));
        pfn
    }

    /// The home lists of a CPU for a request. `None` for a CPU that the yard does not know, and where all requests take slow paths.
    #[inline(always)]
    pub(super) fn home_lists(&self, cpu: CpuId, gfp: Gfp) -> Option<&PerCpuPages> {
        let home = self.fast.homes.get(home_slot(cpu, gfp))?.load(Ordering::Relaxed);
        self.tables.pcps.get(home as usize)
    }

    /// Takes a block from the array of the caller's home list, if there is nothing else to do.
    ///
    /// A CPU that the yard does not know falls off the table's end, and so to the slow path, which folds it in.
    #[inline(always)]
    fn alloc_fast(&self, order: Order, gfp: Gfp) -> Option<Pfn> {
        let migrate_type = gfp.migrate_type()?;
        let list = ListId::new(order, migrate_type, self.geometry)?;
        if gfp.intersects(OFF_FAST_PATH) {
            return None;
        }
        let popped = if let Some(cpu) = self.platform.section_cpu() {
            self.platform.pop_in_section(cpu, self.home_lists(cpu, gfp)?.own_list(list))
        } else {
            let cpu = self.platform.current_cpu();
            let pcp = self.home_lists(cpu, gfp)?;
            Popped::new(pcp.try_lock(&self.platform, pcp.zone(), cpu)?.pop(list)?)
        };
        if !self.mark_near(popped.place(), order, migrate_type) {
            return match order {
                Order::ZERO => self.mark_far_frame(popped, migrate_type),
                _ => self.mark_far(popped, order, migrate_type),
            };
        }
        Some(self.fast.near_start + PageCount(popped.place() as u64))
    }

    /// Marks a block of the near run of memory as allocated. `false` if the place is elsewhere, or no block of that order begins there.
    #[inline(always)]
    fn mark_near(&self, place: usize, order: Order, migrate_type: MigrateType) -> bool {
        self.fast.near.mark_allocated_at(&self.platform, place, order, migrate_type) || {
            cold();
            self.fast.near_sequential.mark_unallocated_at(&self.platform, place, order, migrate_type)
        }
    }

    /// Marks a block as allocated that was popped from one of the caller's lists. `None` if the list is corrupt.
    #[cold]
    #[inline(never)]
    pub(super) fn mark_popped(&self, place: u32, order: Order, migrate_type: MigrateType) -> Option<Pfn> {
        if self.mark_near(place as usize, order, migrate_type) {
            return Some(self.fast.near_start + PageCount(place.into()));
        }
        self.mark_outside(Popped::new(place), order, migrate_type)
    }

    #[cold]
    #[inline(never)]
    fn mark_far(&self, popped: Popped, order: Order, migrate_type: MigrateType) -> Option<Pfn> {
        self.mark_outside(popped, order, migrate_type)
    }

    /// As [`mark_far`](Self::mark_far). A constant order here and in `clear_far_frame` saves 17 instructions per pair.
    #[cold]
    #[inline(never)]
    fn mark_far_frame(&self, popped: Popped, migrate_type: MigrateType) -> Option<Pfn> {
        self.mark_outside(popped, Order::ZERO, migrate_type)
    }

    /// Marks a block as allocated that lies in another run than the near one. `None` if nothing was popped, or if a list of this CPU
    /// has an entry where no block begins.
    #[inline(always)]
    fn mark_outside(&self, popped: Popped, order: Order, migrate_type: MigrateType) -> Option<Pfn> {
        let index = popped.entry()?;
        let pfn = self.far_pfn(index);
        let mark = || self.allocation_map().mark_allocated_at(&self.platform, index as usize, order, migrate_type);
        if pfn.is_some() && mark() { pfn } else { self.note_corrupt_list() }
    }

    /// The frame at a place outside the near run.
    #[inline(always)]
    fn far_pfn(&self, index: u32) -> Option<Pfn> {
        self.fast.far.pfn(index).filter(|pfn| self.map.range().contains(*pfn))
    }

    /// Notes that a list of this CPU has an entry where no block begins.
    #[cold]
    #[inline(never)]
    fn note_corrupt_list(&self) -> Option<Pfn> {
        let cpu = self.cpu();
        self.platform.note_corrupt(LockId::PerCpu(ZoneId::new(self.node_of_cpu(cpu), ZoneKind::Normal), cpu));
        None
    }

    /// Marks a block allocated that the caller has taken off a list. `false` if no block of that order begins there, or, as far as the
    /// yard checks that, a block is allocated there: the list is corrupt.
    #[inline(always)]
    pub(super) fn mark_allocated_at(&self, place: usize, order: Order, migrate_type: MigrateType) -> bool {
        let map = self.allocation_map();
        match self.double_free_check {
            DoubleFreeCheck::Exact => map.mark_allocated_at(&self.platform, place, order, migrate_type),
            DoubleFreeCheck::Sequential => map.mark_unallocated_at(&self.platform, place, order, migrate_type),
        }
    }

    /// Marks a block allocated that the caller has taken off a list.
    ///
    /// # Errors
    ///
    /// The damage of the yard if the list is corrupt: see [`mark_allocated_at`](Self::mark_allocated_at).
    pub(super) fn mark_allocated(&self, pfn: Pfn, order: Order, migrate_type: MigrateType) -> Result<(), LockError> {
        if self.mark_allocated_at(self.map.place(pfn), order, migrate_type) {
            return Ok(());
        }
        let lock = LockId::Zone(self.zone_of(pfn).unwrap_or(ZoneId(0)));
        self.platform.note_corrupt(lock);
        Err(LockError::Corrupt { lock })
    }

    /// As [`alloc`](Self::alloc), preferring a node. Walks the zonelist at once, without a look at the home list.
    pub(super) fn alloc_on(&self, node: NodeId, order: Order, gfp: Gfp) -> Result<Pfn, AllocError> {
        if node.0 >= self.nodes() {
            return Err(AllocError::NoSuchNode(node));
        }
        self.alloc_good(order, || self.alloc_slow(node, self.cpu(), order, gfp))
    }

    /// Pops a block, by its place in the map, from one of the caller's lists. The caller marks it allocated.
    #[inline(always)]
    fn pop_held(&self, pcp: &PerCpuPages, cpu: CpuId, list: ListId) -> Option<u32> {
        if self.platform.has_sections() {
            return self.platform.pop_in_section(cpu, pcp.own_list(list)).entry();
        }
        pcp.try_lock(&self.platform, pcp.zone(), cpu)?.pop(list)
    }

    /// What the fast path leaves: zeroing, poisoning, checks, one node alone, empty arrays.
    #[cold]
    #[inline(never)]
    fn alloc_special(&self, order: Order, gfp: Gfp) -> Result<Pfn, AllocError> {
        let cpu = self.cpu();
        self.alloc_good(order, || {
            if let Some(migrate_type) = gfp.migrate_type()
                && let Some(index) = self.pop_home(cpu, order, migrate_type, gfp)
            {
                return self.finish_allocation(self.map.pfn(index), order, migrate_type, gfp);
            }
            self.alloc_slow(self.tables.node_of_cpu(cpu.index()), cpu, order, gfp)
        })
    }

    /// Takes a block of the caller's home list, packed batches included.
    #[inline(always)]
    fn pop_home(&self, cpu: CpuId, order: Order, migrate_type: MigrateType, gfp: Gfp) -> Option<u32> {
        if gfp.contains(Gfp::THISNODE) {
            return None;
        }
        let list = ListId::new(order, migrate_type, self.geometry)?;
        let home = self.tables.home_pcps.get(home_slot(cpu, gfp))?.load(Ordering::Relaxed);
        let pcp = self.tables.pcps.get(home as usize)?;
        if pcp.is_list_empty_racy(list) {
            return None;
        }
        let view = self.zone_view(pcp.zone());
        self.try_lock_lists_near(view, cpu)?.pop_slow(view, list, None)
    }

    /// Allocates a block on a slow path, and checks it if the yard checks page structures. Blocks with a bad page are out of use
    /// afterwards.
    #[inline(always)]
    pub(super) fn alloc_good<A>(&self, order: Order, alloc: A) -> Result<Pfn, AllocError>
    where
        A: Fn() -> Result<Pfn, AllocError>,
    {
        // A block that does not pass is never allocated again, unless a neighbour undoes that all the time.
        for _ in 0..MOST_BAD {
            let pfn = alloc()?;
            if self.passes_checks(pfn, order) {
                return Ok(pfn);
            }
        }
        Err(AllocError::Taken)
    }

    /// Whether no page of a block that was just allocated is bad, if the yard checks pages. Otherwise the block is out of use now.
    #[inline(always)]
    pub(super) fn passes_checks(&self, pfn: Pfn, order: Order) -> bool {
        self.checks == PageChecks::None || self.is_good_or_retired(pfn, order)
    }

    /// Whether no page of a block that was just allocated is bad. Otherwise the block is out of use now.
    #[inline(never)]
    pub(super) fn is_good_or_retired(&self, pfn: Pfn, order: Order) -> bool {
        let (view, block) = (self.zone_view(self.zone_of_block(pfn)), self.map.checked(self.map.index(pfn)));
        let Some(bad) = page_check::problem_of_block(view, block, order) else { return true };
        if order > self.geometry.max_order() {
            self.retire_parts(pfn, order);
            return false;
        }
        // A bad free may have taken the block meanwhile.
        if self.allocation_map().clear_allocated_at(&self.platform, self.map.place(pfn), order).is_some() {
            page_check::retire(view, block, order, bad);
        }
        false
    }

    #[cold]
    #[inline(never)]
    pub(super) fn alloc_slow(&self, node: NodeId, cpu: CpuId, order: Order, gfp: Gfp) -> Result<Pfn, AllocError> {
        if order > self.geometry.max_order() {
            return self.alloc_large(node, order, gfp);
        }
        let migrate_type = gfp.migrate_type().ok_or(AllocError::BadFlags(gfp))?;
        self.refuse_damaged()?;
        let list = ListId::new(order, migrate_type, self.geometry);
        let effort = Effort::of(gfp);
        let request = Request { order, gfp, migrate_type, node, cpu, list, effort: &effort };
        match self.search(request) {
            Some(pfn) => self.finish_allocation(pfn, order, migrate_type, gfp),
            None => {
                self.platform.lock_error().map_or(Ok(()), |error| Err(AllocError::Lock(error)))?;
                self.wake_compaction(self.zones_for(request.node, request.gfp), order, gfp.highest_zone());
                if !gfp.contains(Gfp::NOWARN) {
                    self.tables.count(HeaderWord::Failures);
                }
                Err(self.out_of_memory(order, gfp, node))
            }
        }
    }

    /// Refuses all requests in a yard that a dead process has damaged, also those that a fast path would serve. Forgets the
    /// error of an earlier call.
    pub(super) fn refuse_damaged(&self) -> Result<(), AllocError> {
        let Some(error @ (LockError::HolderEnded { .. } | LockError::Corrupt { .. })) = self.platform.lock_error()
        else {
            return Ok(());
        };
        self.tables.home_pcps.iter().for_each(|home| home.store(u32::MAX, Ordering::Relaxed));
        Err(AllocError::Lock(error))
    }

    /// The error of a request that found no block, with facts about the zone that it tried first.
    #[cold]
    pub(super) fn out_of_memory(&self, order: Order, gfp: Gfp, node: NodeId) -> AllocError {
        let mut zones = self.zones_for(node, gfp);
        let first = zones.next().unwrap_or(ZoneId::new(node, gfp.highest_zone()));
        let has_memory = |id: &ZoneId| self.tables.zones[id.index()].managed().0 > 0;
        let id = if has_memory(&first) { first } else { zones.find(has_memory).unwrap_or(first) };
        let zone = &self.tables.zones[id.index()];
        let page_shift = self.geometry.page_shift();
        let (free, largest) = (zone.free_pages_racy(), zone.largest_free_order_racy());
        AllocError::OutOfMemory { order, gfp, node, zone: ZoneShortage { id, free, largest, page_shift } }
    }

    /// Takes a block out of a zone. The caller marks it allocated.
    ///
    /// Tries the zones above their low watermark, then down to min. Then collects the frames that the transfer policy
    /// stores, and tries again. Then drains per-CPU lists and gives up high-atomic reserves, if the request may wait,
    /// and tries again.
    fn search(&self, request: Request<'_>) -> Option<Pfn> {
        let down_to_min = || self.search_zones(request, WatermarkLevel::Min, request.reserves());
        self.search_zones(request.above_low(), WatermarkLevel::Low, request.no_reserves())
            .or_else(down_to_min)
            .or_else(|| if self.collect_kept(request) { down_to_min() } else { None })
            .or_else(|| {
                if !request.may_drain() {
                    return None;
                }
                self.tables.count(HeaderWord::Drains);
                self.drain_all();
                self.unreserve_highatomic(request);
                down_to_min()
            })
    }

    /// One walk over the zonelist (`get_page_from_freelist`).
    fn search_zones(&self, request: Request<'_>, mark: WatermarkLevel, reserves: Reserves) -> Option<Pfn> {
        let mut preferred = None;
        for id in self.zones_for(request.node, request.gfp) {
            let first = *preferred.get_or_insert(id);
            if let Some(pfn) = self.search_zone(id, request, mark, reserves) {
                self.count_placement(id, first);
                return Some(pfn);
            }
        }
        None
    }

    /// A block of one zone: the newest in the caller's list, or what the watermark allows.
    ///
    /// A zone below the watermark, with nothing in the caller's list, costs a read of the list and of the zone's counts.
    #[inline(always)]
    fn search_zone(&self, id: ZoneId, request: Request<'_>, mark: WatermarkLevel, reserves: Reserves) -> Option<Pfn> {
        let Request { order, cpu, .. } = request;
        let filled_list = || {
            let (list, pcp) = (request.list?, self.tables.pcp_of(id, cpu)?);
            (!pcp.is_list_empty_racy(list)).then_some((list, pcp))
        };
        if let Some((list, pcp)) = filled_list()
            && let Some(index) = self.pop_held(pcp, cpu, list)
        {
            return Some(self.map.pfn(index));
        }
        let view = self.zone_view(id);
        let above = || self.is_above(view, request, mark, reserves);
        let take = |above: bool, fallback| {
            if !above && filled_list().is_none() {
                return None;
            }
            self.take_from_zone(view, request, reserves, above, fallback)
        };
        if view.zone.deferred.pages_racy().0 == 0 {
            return take(above(), Fallback::Allowed);
        }
        take(above(), Fallback::AfterGrowth).or_else(|| self.grow_and_retry(id, (order, request.effort), above, take))
    }

    /// Whether a zone may serve a request. Where only a block large enough is missing, batches of its depot are merged first.
    fn is_above(&self, view: ZoneView<'_, P>, request: Request<'_>, mark: WatermarkLevel, reserves: Reserves) -> bool {
        let highest = request.gfp.highest_zone();
        let is_above = || self.watermark_ok_racy(view, request.order, mark, highest, reserves);
        is_above() || (request.order.0 > 0 && collects_for(view, request) && is_above())
    }

    /// Whether the zone would stay above a watermark if a block of `order` were taken (`__zone_watermark_ok`). Frames that mechanisms
    /// hold count as free, and so do the huge blocks on lists where policies keep many there. These are read only if the free lists
    /// are not enough.
    fn watermark_ok_racy(
        &self,
        view: ZoneView<'_, P>,
        order: Order,
        mark: WatermarkLevel,
        highest: ZoneKind,
        reserves: Reserves,
    ) -> bool {
        view.platform.touch_line(SharedLine::of(LineKind::ZoneFacts, &view.zone.facts.watermarks), Access::Read);
        view.touch_free_pages(Access::Read);
        let ok_with = |held| view.zone.watermark_ok_with_racy(order, mark, highest, reserves, held);
        ok_with(HeldFree::default()) || {
            let held = transfer::held_racy(view);
            (held.pages.0 > 0 && ok_with(held)) || {
                let listed = self.huge_listed_racy(view);
                listed.0 > 0 && ok_with(HeldFree { pages: held.pages + listed, ..held })
            }
        }
    }

    /// The frames of huge blocks on the CPUs' lists, where policies keep many there; possibly stale.
    fn huge_listed_racy(&self, view: ZoneView<'_, P>) -> PageCount {
        if !transfer::keeps_huge_batches(view.zone) {
            return PageCount(0);
        }
        self.tables.pcps_of(view.id).map(|(_, pcp)| pcp.held_racy(Group::Huge, self.geometry)).sum()
    }

    /// Brings what is kept between CPUs and zones back to the free lists, in all zones that may serve a request; whether
    /// anything was. For a request that must not wait, as much as its effort allows.
    fn collect_kept(&self, request: Request<'_>) -> bool {
        let what = match request.effort.patience {
            Patience::Spins => Collect::Within(request.order, request.migrate_type, request.effort),
            Patience::Sleeps => Collect::All(Patience::Sleeps),
        };
        let mut kept = false;
        for view in self.zones_for(request.node, request.gfp).map(|id| self.zone_view(id)) {
            if transfer::holds_blocks_racy(view, request.order) {
                kept = true;
                // A collection that stalls leaves at most a few batches behind.
                let _ = transfer::collect(view, what);
            }
            // All lists are drained later for a request that may wait for that.
            kept |= !request.may_drain() && self.give_up_huge_lists(view, request.effort.patience);
        }
        kept
    }

    /// Returns the huge blocks of the CPUs' lists to the free lists, where policies keep many there; whether there were any.
    #[cold]
    fn give_up_huge_lists(&self, view: ZoneView<'_, P>, patience: Patience) -> bool {
        let mut any = false;
        if transfer::keeps_huge_batches(view.zone) {
            let wanted = |pcp: &PerCpuPages| pcp.held_racy(Group::Huge, self.geometry).0 > 0;
            self.zone(view.id).with_lists(patience, wanted, |mut lists| {
                lists.drain_huge(view);
                any = true;
            });
        }
        any
    }

    /// Takes a block from a zone: from the caller's lists there, or straight from the free lists.
    ///
    /// Below the watermark only what the caller's lists hold already may be taken.
    fn take_from_zone(
        &self,
        view: ZoneView<'_, P>,
        request: Request<'_>,
        reserves: Reserves,
        above_watermark: bool,
        fallback: Fallback,
    ) -> Option<Pfn> {
        let Request { order, migrate_type, .. } = request;
        if above_watermark && order.0 > 0 && !view.zone.has_block_of_type_racy(order, migrate_type) {
            // Before blocks of other types are taken.
            collects_for(view, request);
        }
        let (blocks, effort) = (request.to_block_request(fallback), request.effort);
        let pop = |mut lists: LockedPcp<'_, P>| match request.list {
            Some(list) => {
                let refill = Refill { list, request: blocks, effort };
                lists.pop_slow(view, list, above_watermark.then_some(refill))
            }
            None => lists.take_stacked(view, blocks, effort),
        };
        if (request.list.is_some() || (above_watermark && transfer::stacks_blocks(view, order)))
            && let Some(index) = self.try_lock_lists_near(view, request.cpu).and_then(pop)
        {
            let pfn = self.map.pfn(index);
            if reserves.high_atomic && self.map.may_begin(index, order) {
                // What is kept back is not owned.
                let _ = transfer::collect(view, Collect::Pageblock(pfn));
                if let Ok(mut locked) = view.lock() {
                    locked.reserve_highatomic(pfn, order);
                }
            }
            return Some(pfn);
        }
        if !above_watermark {
            return None;
        }
        let mut locked = view.lock().ok()?;
        // The high-atomic reserve serves high-order atomic requests first, and requests that cannot wait as a last
        // resort.
        let kept_back = if reserves.high_atomic { locked.take_smallest(order, MigrateType::HighAtomic) } else { None };
        let pfn = kept_back
            .or_else(|| locked.take_block(blocks))
            .or_else(|| if reserves.non_block { locked.take_smallest(order, MigrateType::HighAtomic) } else { None })?;
        locked.tag_block(pfn, FrameState::Allocated, order, migrate_type);
        if reserves.high_atomic {
            locked.reserve_highatomic(pfn, order);
        }
        locked.count_direct_allocation(order);
        Some(pfn)
    }

    /// The lists of a CPU in a zone, if their lock is free; where CPUs use their lists in sections, those of the caller's CPU. Under
    /// policies that spare the zone lock, the lists of a neighbouring CPU otherwise: any list serves, a near one shares a cache.
    #[cold]
    pub(super) fn try_lock_lists_near<'y>(&'y self, view: ZoneView<'_, P>, cpu: CpuId) -> Option<LockedPcp<'y, P>> {
        let try_lists = |cpu| self.tables.pcp_of(view.id, cpu)?.try_lock(&self.platform, view.id, cpu);
        if self.platform.has_sections() {
            // The caller may have moved, or a section of its own was interrupted.
            return (0..SECTION_TRIES).find_map(|_| try_lists(self.platform.current_cpu()));
        }
        try_lists(cpu).or_else(|| {
            let looks = if transfer::spares_zone_lock(view) { self.cpus.min(LOOKS) } else { 1 };
            (1..looks).find_map(|step| try_lists(CpuId((cpu.0 + step) % self.cpus)))
        })
    }

    fn unreserve_highatomic(&self, request: Request<'_>) {
        for id in self.zones_for(request.node, request.gfp) {
            if self.tables.zones[id.index()].reserved_highatomic_racy().0 > 0 {
                let locked = self.zone_view(id).lock();
                locked.into_iter().for_each(|mut locked| _ = locked.unreserve_highatomic(request.migrate_type));
            }
        }
    }

    /// Checks a block for damage, zeroes it if requested, and marks it allocated.
    pub(super) fn finish_allocation(
        &self,
        pfn: Pfn,
        order: Order,
        migrate_type: MigrateType,
        gfp: Gfp,
    ) -> Result<Pfn, AllocError> {
        if self.poisoning == Poisoning::On
            && self.map.may_begin(self.map.index(pfn), order)
            // SAFETY: the block has left its list and is not allocated yet: it is the caller's.
            && let Some(damaged) = unsafe { poison::damaged(&self.platform, self.geometry, pfn, order) }
        {
            self.retire_damaged(pfn);
            return Err(AllocError::Poisoned { pfn: damaged, block: pfn, order });
        }
        // SAFETY: as above.
        let zeroed = !gfp.contains(Gfp::ZERO) || unsafe { poison::zero(&self.platform, self.geometry, pfn, order) };
        self.mark_allocated(pfn, order, migrate_type).map_err(AllocError::Lock)?;
        if zeroed {
            return Ok(pfn);
        }
        self.release(pfn, order);
        Err(AllocError::NoFrameBytes(pfn))
    }
}

/// Collects blocks for a request, as far as its effort allows; whether transfer mechanisms held any.
fn collects_for<P: Platform>(view: ZoneView<'_, P>, request: Request<'_>) -> bool {
    let Request { order, migrate_type, effort, .. } = request;
    transfer::collect(view, Collect::For(order, migrate_type, effort)).is_ok_and(|collected| collected.any)
}
