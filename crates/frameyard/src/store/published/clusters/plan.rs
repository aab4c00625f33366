//! Planned detachments: the head of a list is read before the zone lock is taken, and only compared under it.
//!
//! # Protocol
//!
//! A plan walks from cluster to cluster without the lock: the first page names the record, the record names the last
//! page, the last page links to the first page of the next cluster. All of it may change at any moment, so the walk
//! follows links only into memory that has page structures, and relies on nothing that it read. Under the lock, every
//! read is repeated and must give the same value. If so, the clusters are at the head of the list one after the other,
//! as planned; they are taken off together, and the detachment is in progress like any other. If a value differs,
//! nothing changes, and the caller walks under the lock instead.
//!
//! The repeated reads do not depend on each other, unlike those of a walk, and their cache lines are near: that is what the plan
//! saves under the lock. For the same reason it reads beforehand the zone's words that the detachment changes.

use crate::page::{Link, MECHANISM};
use crate::platform::{Access, Platform};
use crate::store::batch::BATCH;
use crate::store::published::clusters::list::ClusterId;
use crate::store::published::clusters::record::{Record, RecordState};
use crate::sync::is_broken;
use crate::units::{MigrateType, Order, Pfn};
use crate::zone::counters::TransferCounters;
use crate::zone::request::BlockRequest;
use crate::zone::view::{ZoneHold, ZoneView};

/// The most clusters detached in one hold: what a per-CPU list's array has room for.
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
    /// The cluster's first page, its size and its record.
    pub(super) fn parts(&self) -> (Pfn, usize, ClusterId) {
        (self.first, self.pages(), self.id)
    }

    fn pages(&self) -> usize {
        self.record.size()
    }

    /// Reads the cluster whose first page is linked.
    fn read<P: Platform>(view: &ZoneView<'_, P>, link: Link) -> Option<Self> {
        let linked = |link| view.map.linked(link).filter(|pfn| view.blocks.has_memory(*pfn));
        let first = linked(link)?;
        let page = view.page(first);
        let id = page.tag().is_tentative().then(|| ClusterId::named(page.payload(MECHANISM)))??;
        let record = view.record(id);
        let tail = linked(record.tail()).filter(|_| record.state() == RecordState::Listed)?;
        (1..=BATCH).contains(&record.size()).then_some(())?;
        Some(Self { first, id, record, tail })
    }

    /// Whether the first page is still that of the cluster. Under the zone lock.
    #[inline(always)]
    fn still_stands<P: Platform>(&self, view: &ZoneView<'_, P>) -> bool {
        let page = view.page(self.first);
        page.tag().is_tentative() & (page.payload(MECHANISM) == self.id.word()) & (view.record(self.id) == self.record)
    }
}

/// The clusters at the head of a list.
pub(super) struct Plan {
    migrate_type: MigrateType,
    request: BlockRequest,
    clusters: [Option<Planned>; MOST],
    pages: usize,
    skipped: usize,
    /// The page behind them.
    behind: Link,
}

impl Plan {
    /// Plans to detach clusters of at most `most` pages together.
    pub(super) fn make<P: Platform>(view: &ZoneView<'_, P>, request: BlockRequest, most: usize) -> Self {
        let migrate_type = request.migrate_type;
        let behind = view.first_link(Order::ZERO, migrate_type);
        let mut plan = Self { migrate_type, request, clusters: [None; MOST], pages: 0, skipped: 0, behind };
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
        plan.touch_ahead(view);
        plan
    }

    /// Reads the words that the detachment changes and the plan did not read. Left out in models, which it would only enlarge.
    fn touch_ahead<P: Platform>(&self, view: &ZoneView<'_, P>) {
        if cfg!(loom) {
            return;
        }
        view.touch_clusters(&view.zone.mechanisms.published, Access::Read);
        view.zone.mechanisms.published.deferred_merge.skipped_racy();
        view.touch_free_pages(Access::Read);
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

    /// Whether clusters may be detached at all. Exact under the zone lock.
    #[inline(always)]
    fn may_be_carried_out<P: Platform>(&self, view: &ZoneView<'_, P>) -> bool {
        !(view.is_quiesced() || self.request.uses_cma() && view.zone.free_cma_racy().0 > 0)
    }

    /// Whether the list begins as planned. Under the zone lock.
    #[inline(always)]
    fn still_stands<P: Platform>(&self, view: &ZoneView<'_, P>) -> bool {
        let mut link = view.first_link(Order::ZERO, self.migrate_type);
        let mut stands = true;
        for planned in self.clusters() {
            stands &= link == view.map.link(planned.first);
            stands &= planned.still_stands(view);
            link = view.page(planned.tail).next();
        }
        stands & (link == self.behind)
    }

    /// Detaches the clusters under the zone lock if the list begins as planned, and announces the detachment; whether it did.
    /// The caller holds the lock of the CPU's lists.
    pub(super) fn carry_out<P: Platform>(&self, view: &ZoneView<'_, P>, counters: &TransferCounters) -> bool {
        let Ok(mut hold) = ZoneHold::begin(view, counters) else { return false };
        let stands = self.still_stands(view) && self.may_be_carried_out(view);
        if !stands && !is_broken!(PlansNotRechecked) {
            return false;
        }
        for planned in self.clusters() {
            view.set_record(planned.id, Record::HELD);
        }
        let pages = self.pages as u64;
        view.detach_front_locked(hold.proof(), self.migrate_type, self.behind, pages);
        view.touch_free_pages(Access::Write);
        hold.sub_free_pages(pages);
        view.touch_clusters(&view.zone.mechanisms.published, Access::Write);
        view.zone.mechanisms.published.deferred_merge.sub_skipped(self.skipped as u64);
        counters.begin_detachment();
        hold.count_moved(pages);
        true
    }
}
