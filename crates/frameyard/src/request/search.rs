//! The search: a request walks the zonelist until a zone can serve it.
//!
//! The walk (`search_zones`) looks at the caller's list in each zone (`search_zone`). Then it compares the watermark,
//! and refills the list or takes from the free lists (`take_from_zone`). If a zone has nothing else, it initialises
//! deferred memory. Before it gives up, it collects the frames that the transfer policy stores (`search`).

use crate::boot::{HeaderWord, home_slot};
use crate::gfp::Gfp;
use crate::lists::{CpuLists, Group, ListId, LockedPcp, PerCpuPages, Refill};
use crate::page::FrameState;
use crate::placement;
use crate::platform::{Access, LineKind, Platform, Probe, SharedLine};
use crate::store;
use crate::sync::Ordering;
use crate::units::{CpuId, MigrateType, NodeId, Order, PageCount, Pfn, ZoneId, ZoneKind};
use crate::yard::Yard;
use crate::zone::view::ListRules;
use crate::zone::{BlockRequest, CmaUse, Effort, Fallback, HeldFree, Patience, Reserves, WatermarkLevel, ZoneView};

/// Flags that need more than the fast path.
pub(crate) const OFF_FAST_PATH: Gfp = Gfp::ZERO.union(Gfp::THISNODE);

/// How many CPUs' lists a request tries before it takes the zone lock, where free frames are bits.
const LOOKS: u32 = 4;

/// How often a request tries to take the lists of its own CPU in a restartable sequence, with pauses between. A thread that holds
/// them may be stopped: in user space the last pauses give it the CPU. Models try once, so that they also explore requests that
/// find the lists taken.
const SEQUENCE_TRIES: u32 = if cfg!(loom) { 1 } else { 12 };

/// One allocation, its flags taken apart.
#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) order: Order,
    pub(crate) gfp: Gfp,
    pub(crate) migrate_type: MigrateType,
    pub(crate) node: NodeId,
    pub(crate) cpu: CpuId,
    /// The place of the lists that the CPU has looked at first; `None` if it does not begin there.
    pub(crate) home: Option<u32>,
    pub(crate) list: Option<ListId>,
    pub(crate) effort: &'a Effort,
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

impl<P: Platform> Yard<P> {
    /// Takes a block out of a zone. The caller marks it allocated.
    ///
    /// Tries the zones above their low watermark, then down to min. Then collects the frames that the transfer policy
    /// stores, and tries again. Then drains per-CPU lists and gives up high-atomic reserves, if the request may wait,
    /// and tries again.
    pub(crate) fn search(&self, request: Request<'_>) -> Option<Pfn> {
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
                self.choose_home(request, id);
                return Some(pfn);
            }
        }
        None
    }

    /// Makes the lists of the zone that served a request those that its CPU looks at first: where that zone is nearer than the one whose lists
    /// these are now, or where that one is full.
    fn choose_home(&self, request: Request<'_>, served: ZoneId) {
        let Request { cpu, gfp, home: Some(now), .. } = request else { return };
        // A damaged yard has no home.
        let Some(current) = self.tables.pcps.get(now as usize).map(PerCpuPages::zone) else { return };
        if current == served {
            return;
        }
        let is_nearer = || self.zones_for(request.node, gfp).find(|id| [served, current].contains(id)) == Some(served);
        let is_full = || {
            let (view, highest, reserves) = (self.zone_view(current), gfp.highest_zone(), request.no_reserves());
            !self.watermark_ok_racy(view, Order::ZERO, WatermarkLevel::Low, highest, reserves)
        };
        if (is_nearer() || is_full())
            && let Some(home) = self.tables.home_pcps.get(home_slot(cpu, gfp))
        {
            home.store((cpu.index() * self.tables.zones.len() + served.index()) as u32, Ordering::Relaxed);
        }
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

    /// Whether a zone may serve a request. Where only a block large enough is missing, whole pageblocks return to the free lists first.
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
        view.platform
            .probe()
            .touch_line(SharedLine::of(LineKind::ZoneFacts, &view.zone.facts.watermarks), Access::Read);
        view.touch_free_pages(Access::Read);
        let ok_with = |held| view.zone.watermark_ok_with_racy(order, mark, highest, reserves, held);
        ok_with(HeldFree::default()) || store::holds_enough(view, order, ok_with) || {
            let listed = self.huge_listed_racy(view);
            let with_listed = |held: HeldFree| ok_with(HeldFree { pages: held.pages + listed, ..held });
            listed.0 > 0 && (with_listed(HeldFree::default()) || store::holds_enough(view, order, with_listed))
        }
    }

    /// The frames of huge blocks on the CPUs' lists, where policies keep many there; possibly stale.
    fn huge_listed_racy(&self, view: ZoneView<'_, P>) -> PageCount {
        if !store::keeps_bits(view) {
            return PageCount(0);
        }
        self.tables.pcps_of(view.id).map(|(_, pcp)| pcp.held_racy(Group::Huge, self.geometry)).sum()
    }

    /// Brings what is kept between CPUs and zones back to the free lists, in all zones that may serve a request; whether
    /// anything was. For a request that must not wait, as much as its effort allows.
    fn collect_kept(&self, request: Request<'_>) -> bool {
        let mut kept = false;
        for view in self.zones_for(request.node, request.gfp).map(|id| self.zone_view(id)) {
            if store::holds_blocks_racy(view, request.order) {
                kept = true;
                match request.effort.patience {
                    Patience::Sleeps if !store::keeps_bits(view) => store::collect_all(view),
                    _ => {
                        let Request { order, migrate_type, effort, .. } = request;
                        let enough = || view.has_block_for_racy(order, migrate_type);
                        store::collect_within(view, order, migrate_type, effort, enough);
                    }
                }
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
        if store::keeps_bits(view) {
            let wanted = |pcp: CpuLists<'_>| pcp.held_racy(Group::Huge, self.geometry).0 > 0;
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
        let blocks = request.to_block_request(fallback);
        if above_watermark
            && !reserves.high_atomic
            && request.list.is_none()
            && let Some(pfn) = store::take_large(view, request.cpu, blocks)
        {
            return Some(pfn);
        }
        if above_watermark && order.0 > 0 && !view.zone.has_block_of_type_racy(order, migrate_type) {
            // Before blocks of other types are taken.
            collects_for(view, request);
        }
        let own_list = request.list.and_then(|list| Some((list, self.try_lock_lists_from(view, request.cpu)?)));
        let needs_free_lists = request.list.is_some() && own_list.is_none();
        if let Some((list, mut lists)) = own_list
            && let Some(index) = lists.pop_slow(view, list, above_watermark.then_some(Refill { list, request: blocks }))
        {
            drop(lists);
            let pfn = self.map.pfn(index);
            if reserves.high_atomic && self.map.may_begin(index, order) {
                // The free frames of what is kept back are on the free lists.
                store::collect_around(view, pfn);
                if let Ok(mut locked) = view.lock() {
                    locked.reserve_highatomic(pfn, order);
                }
            }
            return Some(pfn);
        }
        if !above_watermark {
            return None;
        }
        if needs_free_lists && store::keeps_bits(view) && !view.has_block_for_racy(order, migrate_type) {
            placement::give_to_free_lists(view, request.cpu, (order, migrate_type));
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

    /// The lists of a CPU in a zone, if their lock is free; where CPUs use their lists in sequences, those of the caller's CPU. Where
    /// free frames are bits, the lists of a neighbouring CPU otherwise: the free lists have little.
    #[cold]
    pub(crate) fn try_lock_lists_from<'y>(&'y self, view: ZoneView<'_, P>, cpu: CpuId) -> Option<LockedPcp<'y, P>> {
        let try_lists = |cpu| self.tables.pcp_of(view.id, cpu)?.try_lock(&self.platform, view.id, cpu);
        if self.platform.has_sequences() {
            // The caller may have moved, or a sequence of its own was interrupted.
            return (0..SEQUENCE_TRIES).find_map(|failed| {
                if failed > 0 {
                    self.platform.spin(failed - 1);
                }
                try_lists(self.platform.current_cpu())
            });
        }
        try_lists(cpu).or_else(|| {
            let looks = if store::keeps_bits(view) { self.cpus.min(LOOKS) } else { 1 };
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
}

/// Collects blocks for a request, as far as its effort allows; whether transfer mechanisms held any.
fn collects_for<P: Platform>(view: ZoneView<'_, P>, request: Request<'_>) -> bool {
    store::collect_for(view, request.order, request.migrate_type)
}
