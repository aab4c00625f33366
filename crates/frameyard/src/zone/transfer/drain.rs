//! A drain of one CPU's lists, by the mechanism in force.

use super::exchange::{DrainReason, DrainSource};
use super::{Mechanism, bits, clusters, deferred_merge, depot, pagewise};
use crate::platform::{Activity, Platform};
use crate::units::{CpuId, Order, PageCount};
use crate::zone::batch::Batch;
use crate::zone::checks::PageChecks;
use crate::zone::page_check;
use crate::zone::view::{LockedZone, ZoneView};

/// A drain of one CPU's lists. Drops the zone lock, if it holds it, when dropped.
pub(crate) struct Drain<'a, P: Platform> {
    view: ZoneView<'a, P>,
    mechanism: Mechanism,
    cpu: CpuId,
    reason: DrainReason,
    /// Frames given back under the span that is open, if one is.
    pages: Option<u64>,
    locked: Option<LockedZone<'a, P>>,
}

impl<'a, P: Platform> Drain<'a, P> {
    /// The caller holds the lock of the lists of `cpu` while this lives.
    pub(crate) fn begin(view: ZoneView<'a, P>, cpu: CpuId, reason: DrainReason) -> Self {
        Self { view, mechanism: Mechanism::in_force(view.zone), cpu, reason, pages: None, locked: None }
    }

    /// Gives back blocks of a list: `most` of them, or a batch if the mechanism moves whole batches. Returns their number.
    pub(crate) fn give_back(&mut self, source: &mut impl DrainSource, order: Order, most: usize) -> usize {
        if self.mechanism == Mechanism::Depot
            && self.reason != DrainReason::Emptying
            && let Some(list_type) = source.batch_type()
        {
            // The depot may take the zone lock.
            self.end_span();
            let access = depot::ListAccess::open(self.view, self.cpu, (order, list_type));
            let given = access.map_or(0, |access| access.give_back(source));
            if given > 0 {
                return given;
            }
        }
        if self.reason == DrainReason::ArrayFull {
            return 0;
        }
        source.announce();
        self.begin_span();
        if let Mechanism::Pagewise(knobs) = self.mechanism {
            knobs.before_picking(&mut self.locked, self.view, self.cpu);
        }
        let mut batch = Batch::new();
        source.take(most, &mut batch);
        self.free(&batch, order);
        batch.len()
    }

    /// Gives back one block that is on no list.
    pub(crate) fn give_back_entry(&mut self, entry: u32, order: Order) {
        self.begin_span();
        self.free(&Batch::of(&[entry]), order);
    }

    /// Frees a batch, apart from its bad blocks. Its blocks are tagged as blocks of per-CPU lists.
    fn free(&mut self, batch: &Batch, order: Order) {
        if self.view.checks == PageChecks::None { self.free_all(batch, order) } else { self.free_good(batch, order) }
    }

    #[cold]
    #[inline(never)]
    fn free_good(&mut self, batch: &Batch, order: Order) {
        let good = page_check::good_of(self.view, batch, order);
        if !good.is_empty() {
            self.free_all(&good, order);
        }
    }

    #[inline(always)]
    fn free_all(&mut self, batch: &Batch, order: Order) {
        let Self { view, cpu, .. } = *self;
        self.pages = self.pages.map(|pages| pages + ((batch.len() as u64) << order.0));
        let defers = deferred_merge::COMPILED_IN && order == Order::ZERO && self.reason == DrainReason::Overflow;
        match self.mechanism {
            Mechanism::Pagewise(knobs) => knobs.give_back(&mut self.locked, view, cpu, batch, order),
            Mechanism::Clusters(clusters::Knobs::Bulk) if clusters::COMPILED_IN && defers => {
                clusters::give_back(&mut self.locked, view, cpu, batch);
            }
            Mechanism::DeferredMerge | Mechanism::Clusters(_) if defers => {
                if let Some(locked) = view.lock_unless(&mut self.locked, cpu) {
                    deferred_merge::give_back(locked, batch);
                }
            }
            Mechanism::Bits => {
                bits::give_back(&mut self.locked, view, cpu, batch, order);
            }
            _ => pagewise::give_back(&mut self.locked, view, cpu, batch, order),
        }
    }

    fn begin_span(&mut self) {
        if self.pages.is_none() {
            self.view.platform.begin_activity(Activity::Drain);
            self.pages = Some(0);
        }
    }

    /// Drops the zone lock and ends the span.
    fn end_span(&mut self) {
        self.locked = None;
        if let Some(pages) = self.pages.take() {
            self.view.platform.end_activity(Activity::Drain, PageCount(pages));
        }
    }
}

impl<P: Platform> Drop for Drain<'_, P> {
    fn drop(&mut self) {
        self.end_span();
    }
}
