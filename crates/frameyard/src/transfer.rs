//! Transfer: moving batches of blocks between per-CPU lists and the store, as the policy in force defines.
//!
//! [`fetch`] and [`Drain`] are used with the lock of a CPU's lists held. The policy and the zone's quiescence are read
//! under that lock.

use crate::placement;
use crate::platform::{Activity, Platform, Probe};
use crate::store::batch::Batch;
use crate::store::buddy::pagewise;
use crate::store::{RefillRequest, bits, page_check, published, takes_bits};
use crate::units::{CpuId, MigrateType, Order, PageCount};
use crate::zone::checks::PageChecks;
use crate::zone::policy::{Store, Transfer};
use crate::zone::view::{LockedZone, ZoneView};

/// Fetches blocks for a per-CPU list, tags them as blocks of such lists, and gives them to `deliver` a batch at a time, in the
/// order in which the list should give them out. Returns their number.
///
/// There may be fewer blocks than wanted, if the zone has no more or the mechanism moves less at once, and more, if it moves whole
/// batches or clusters (the kernel's `nr_pcp_alloc` lets refills grow, too).
///
/// The mechanisms' own functions are never inlined: kernels have small stacks, and the buffers of all mechanisms would lie in one frame.
pub(crate) fn fetch<P: Platform>(view: ZoneView<'_, P>, refill: RefillRequest, deliver: impl FnMut(&Batch)) -> usize {
    view.platform.probe().begin_activity(Activity::Refill);
    let got = match view.zone.policy().parts().store {
        Store::Bits if takes_bits(view, refill.blocks) => placement::fetch(view, refill, deliver),
        Store::Buddy(transfer) if published::COMPILED_IN && transfer != Transfer::Batched => {
            published::fetch(view, transfer, refill, deliver)
        }
        _ => pagewise::fetch(view, refill, deliver),
    };
    view.platform.probe().end_activity(Activity::Refill, PageCount((got as u64) << refill.blocks.order.0));
    got
}

/// Whether a mechanism may have blocks ready for an empty list of a CPU, which [`take_ready`] takes without a search.
#[inline(always)]
pub(crate) fn has_ready_racy<P: Platform>(view: ZoneView<'_, P>, cpu: CpuId, of: (Order, MigrateType)) -> bool {
    view.keeps_bits() && view.checks == PageChecks::None && bits::taking::has_ready_racy(view, cpu, of)
}

/// Takes up to a batch of blocks that are ready for a list of a CPU, of which it wants some and has room for more. The caller holds the lock of the CPU's lists.
pub(crate) fn take_ready<P: Platform>(
    view: ZoneView<'_, P>,
    cpu: CpuId,
    of: (Order, MigrateType),
    (wanted, room): (usize, usize),
    batch: &mut Batch,
) {
    if view.checks != PageChecks::None {
        return;
    }
    view.platform.probe().begin_activity(Activity::Refill);
    placement::take_ready(view, cpu, of, (wanted, room), batch);
    view.platform.probe().end_activity(Activity::Refill, PageCount((batch.len() as u64) << of.0.0));
}

/// Why blocks leave a CPU's lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DrainReason {
    /// The lists are over their limit.
    Overflow,
    /// The lists are emptied: their blocks are wanted on the free lists, merged.
    Emptying,
}

/// A drain of one CPU's lists. Drops the zone lock, if it holds it, when dropped.
pub(crate) struct Drain<'a, P: Platform> {
    view: ZoneView<'a, P>,
    store: Store,
    cpu: CpuId,
    reason: DrainReason,
    /// Frames given back under the span that is open, if one is.
    pages: Option<u64>,
    locked: Option<LockedZone<'a, P>>,
}

impl<'a, P: Platform> Drain<'a, P> {
    /// The caller holds the lock of the lists of `cpu` while this lives.
    pub(crate) fn begin(view: ZoneView<'a, P>, cpu: CpuId, reason: DrainReason) -> Self {
        Self { view, store: view.zone.policy().parts().store, cpu, reason, pages: None, locked: None }
    }

    /// Gives back what `take` puts into an empty batch: the oldest blocks of a list. Returns their number.
    pub(crate) fn give_back(&mut self, order: Order, take: impl FnOnce(&mut Batch)) -> usize {
        self.begin_span();
        if let Store::Buddy(transfer) = self.store {
            published::before_picking(transfer, &mut self.locked, self.view, self.cpu);
        }
        let mut batch = Batch::new();
        take(&mut batch);
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
        match self.store {
            Store::Bits => {
                placement::step(view, cpu, batch.len());
                bits::give_back(&mut self.locked, view, cpu, batch, order);
            }
            Store::Buddy(transfer) if published::COMPILED_IN && transfer != Transfer::Batched => {
                let merged = self.reason == DrainReason::Emptying;
                published::give_back((transfer, merged), &mut self.locked, view, cpu, (batch, order));
            }
            Store::Buddy(_) => pagewise::give_back(&mut self.locked, view, cpu, batch, order),
        }
    }

    fn begin_span(&mut self) {
        if self.pages.is_none() {
            self.view.platform.probe().begin_activity(Activity::Drain);
            self.pages = Some(0);
        }
    }

    /// Drops the zone lock and ends the span.
    fn end_span(&mut self) {
        self.locked = None;
        if let Some(pages) = self.pages.take() {
            self.view.platform.probe().end_activity(Activity::Drain, PageCount(pages));
        }
    }
}

impl<P: Platform> Drop for Drain<'_, P> {
    fn drop(&mut self) {
        self.end_span();
    }
}
