//! Planned cuts: what stands at the head of a list is read before the zone lock is taken, and only compared under it.
//!
//! # Protocol
//!
//! A plan goes from cluster to cluster without the lock: the first page names the record, that the last page, and that links
//! to the first page of the next one. All of it may change at any moment, so links are followed into memory that has pages
//! alone, and nothing that was read is believed. Under the lock each of these reads is made again, and all must give the same:
//! then the clusters stand at the head of the list one behind the other, as planned. They are cut off together, and the
//! cut is in progress as any other. Where something differs nothing is changed, and the caller goes another way.
//!
//! The reads under the lock do not wait for each other, as those of a walk do, and what they read is near: that is why it
//! is planned at all. For the same reason the words of the zone that the hold changes are read beforehand.

use super::Piece;
use crate::locks::LockHold;
use crate::page::{CLUSTER, Link};
use crate::platform::{Access, LineKind, LockId, Platform, SharedLine};
use crate::units::{MigrateType, Order, Pfn};
use crate::zone::transfer::TransferCounters;
use crate::zone::transfer::clusters::{ClusterId, Record, RecordState};
use crate::zone::{BlockRequest, CmaUse, ZoneView, sub_exclusive};

/// The most clusters that are cut off in one hold: what the array of a list has room for.
pub(super) const MOST: usize = 2;

/// A cluster on a list.
#[derive(Clone, Copy)]
pub(super) struct Planned {
    first: Pfn,
    id: ClusterId,
    record: Record,
    tail: Pfn,
}

impl Planned {
    pub(super) fn piece(&self) -> Piece {
        Piece::Cluster(self.first, self.pages(), self.id)
    }

    fn pages(&self) -> usize {
        self.record.size()
    }

    /// Reads the cluster whose first page a link names.
    fn read<P: Platform>(view: &ZoneView<'_, P>, link: Link) -> Option<Self> {
        let linked = |link| view.map.linked(link).filter(|pfn| view.blocks.has_memory(*pfn));
        let first = linked(link)?;
        let page = view.page(first);
        let id = page.tag().is_clustered().then(|| ClusterId::named(page.payload(CLUSTER)))??;
        let record = view.record(id);
        let tail = linked(record.tail()).filter(|_| record.state() == RecordState::Listed)?;
        Some(Self { first, id, record, tail })
    }

    /// Whether the first page is that of the cluster still, under the zone lock.
    #[inline(always)]
    fn still_stands<P: Platform>(&self, view: &ZoneView<'_, P>) -> bool {
        let page = view.page(self.first);
        page.tag().is_clustered() & (page.payload(CLUSTER) == self.id.word()) & (view.record(self.id) == self.record)
    }
}

/// The clusters at the head of a list.
pub(super) struct Plan {
    migrate_type: MigrateType,
    cma: CmaUse,
    clusters: [Option<Planned>; MOST],
    pages: usize,
    skipped: usize,
    /// What stands behind them.
    behind: Link,
}

impl Plan {
    /// Plans to cut off clusters of at most so many pages together, for a request.
    pub(super) fn make<P: Platform>(view: &ZoneView<'_, P>, request: BlockRequest, most: usize) -> Self {
        let BlockRequest { migrate_type, cma, .. } = request;
        let behind = first_link(view, migrate_type);
        let mut plan = Self { migrate_type, cma, clusters: [None; MOST], pages: 0, skipped: 0, behind };
        if !plan.may_be_carried_out(view) || matches!(migrate_type, MigrateType::Cma | MigrateType::Isolate) {
            return plan;
        }
        for slot in &mut plan.clusters {
            let Some(planned) = Planned::read(view, plan.behind) else { break };
            if plan.pages + planned.pages() > most {
                break;
            }
            plan.pages += planned.pages();
            plan.skipped += planned.record.skipped();
            plan.behind = view.page(planned.tail).next();
            *slot = Some(planned);
        }
        plan.add_initialised(view);
        plan
    }

    /// Reads what is changed by the cut and was not read for the plan. In models that would only be more to explore.
    fn add_initialised<P: Platform>(&self, view: &ZoneView<'_, P>) {
        if cfg!(loom) {
            return;
        }
        view.touch_clusters(view.zone.clusters(), Access::Read);
        view.zone.clusters().skipped_racy();
        touch_free_pages(view, Access::Read);
        view.zone.free_pages_racy();
        if let Some(pfn) = view.map.linked(self.behind).filter(|pfn| view.blocks.has_memory(*pfn)) {
            view.page(pfn).tag();
        }
    }

    /// The clusters of the plan, first to last.
    pub(super) fn clusters(&self) -> impl Iterator<Item = &Planned> {
        self.clusters.iter().flatten()
    }

    pub(super) fn pages(&self) -> usize {
        self.pages
    }

    /// Whether a cut may be made at all; exact under the zone lock.
    #[inline(always)]
    fn may_be_carried_out<P: Platform>(&self, view: &ZoneView<'_, P>) -> bool {
        // CMA is balanced against ordinary memory block by block.
        let balanced = self.migrate_type == MigrateType::Movable && self.cma == CmaUse::Allowed;
        !(view.is_quiesced() || balanced && view.zone.free_cma_racy().0 > 0)
    }

    /// Whether the list begins as planned, under the zone lock.
    #[inline(always)]
    fn still_stands<P: Platform>(&self, view: &ZoneView<'_, P>) -> bool {
        let mut link = first_link(view, self.migrate_type);
        let mut stands = true;
        for planned in self.clusters() {
            stands &= link == view.map.link(planned.first);
            stands &= planned.still_stands(view);
            link = view.page(planned.tail).next();
        }
        stands & (link == self.behind)
    }

    /// Cuts the clusters off under the zone lock, if they stand as planned, and says so: the cut is in progress then. The
    /// caller holds the lock of the CPU's lists whose row that is.
    pub(super) fn carry_out<P: Platform>(&self, view: &ZoneView<'_, P>, row: &TransferCounters) -> bool {
        let mut holding = Holding::begin(view, row);
        let stands = self.still_stands(view) && self.may_be_carried_out(view);
        if !stands && !is_believed() {
            return false;
        }
        for planned in self.clusters() {
            view.set_record(planned.id, Record::HELD);
        }
        let pages = self.pages as u64;
        view.cut_list_locked(&holding.hold, self.migrate_type, self.behind, pages);
        touch_free_pages(view, Access::Write);
        sub_exclusive(&view.zone.free_pages, pages);
        view.touch_clusters(view.zone.clusters(), Access::Write);
        view.zone.clusters().sub_skipped(self.skipped as u64);
        row.begin_detachment();
        holding.moved = pages;
        true
    }
}

/// What a list of single pages begins with.
#[inline(always)]
fn first_link<P: Platform>(view: &ZoneView<'_, P>, migrate_type: MigrateType) -> Link {
    view.touch_free_list(Order::ZERO, migrate_type, Access::Read);
    view.zone.first_link_racy(Order::ZERO, migrate_type)
}

/// Says that the count of the zone's free pages is used.
#[inline(always)]
fn touch_free_pages<P: Platform>(view: &ZoneView<'_, P>, access: Access) {
    view.platform.touch_line(SharedLine::of(LineKind::ZoneCounters, &view.zone.free_pages), access);
}

/// Whether a plan is carried out without another look.
#[cfg(not(loom))]
const fn is_believed() -> bool {
    false
}

/// Whether a plan is carried out without another look: in a broken model.
#[cfg(loom)]
fn is_believed() -> bool {
    crate::sync::is_weakened(crate::sync::Weakness::PlansNotRechecked)
}

/// The zone lock, held for a step that needs no more than the view; gives it back when dropped.
///
/// A [`LockedZone`](crate::zone::LockedZone) has a view of its own, and sums of what it changed: that is half of such a step.
struct Holding<'v, 'a, P: Platform> {
    view: &'v ZoneView<'a, P>,
    row: &'v TransferCounters,
    moved: u64,
    hold: LockHold,
    _guard: P::Guard,
}

impl<'v, 'a, P: Platform> Holding<'v, 'a, P> {
    #[inline(always)]
    fn begin(view: &'v ZoneView<'a, P>, row: &'v TransferCounters) -> Self {
        let guard = view.platform.guard();
        let hold = row.lock.uses.lock(view.platform, LockId::Zone(view.id), &view.zone.lock.0);
        Self { view, row, moved: 0, hold, _guard: guard }
    }
}

impl<P: Platform> Drop for Holding<'_, '_, P> {
    #[inline(always)]
    fn drop(&mut self) {
        self.view.end_hold(self.row, self.hold, self.moved);
    }
}
