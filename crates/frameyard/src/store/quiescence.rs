//! Quiescence: while a zone is quiesced, every transfer moves page by page and merges, and no page looks free that is
//! not.
//!
//! Isolation, contiguous ranges and compaction quiesce a zone (the kernel's `zone_pcp_disable`) because they must find all free
//! frames on the free lists.
//!
//! # Protocol
//!
//! A zone counts its [`Quiescence`] guards under the zone lock. A *detachment* is in progress from when a mechanism takes pages
//! off the free lists together, under the zone lock, until it has cleared them one by one without it; in between they look
//! free. The CPU announces it in its counters before it drops the lock
//! ([`begin_detachment`](crate::zone::counters::TransferCounters::begin_detachment)). A quiesced zone starts no detachment. So
//! [`Quiescence::begin`], which took the lock to raise the count, finds every detachment announced, and waits with a bound until
//! each CPU was seen without one. A detachment ends without the zone lock, so a caller may wait for it under any lock.
//!
//! Mechanisms that do not take the zone lock read the count under the lock of a CPU's lists. One that read it just before may
//! still act: a caller that needs its frames drains the lists and collects again.

use crate::platform::{Access, LineKind, Platform, Probe, SharedLine};
use crate::store::statistics::{counters, read};
use crate::sync::{AtomicU32, AtomicU64, Ordering, all_atomic};
use crate::zone::counters::TransferCounters;
use crate::zone::effort::Patience;
use crate::zone::view::ZoneView;

/// A transfer of another CPU did not finish within the bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TransferStalled;

/// The quiescence of one zone.
#[derive(Default)]
pub(crate) struct QuiescenceState {
    /// The number of [`Quiescence`] guards. Changes under the zone lock.
    guards: AtomicU32,
    /// Waits for transfers of other CPUs.
    waits: AtomicU64,
    /// Looks during these waits.
    rounds: AtomicU64,
    /// Waits that gave up.
    stalls: AtomicU64,
}

all_atomic!(QuiescenceState { guards, waits, rounds, stalls });

counters! { |view, counts, cpu|
    let of = cpu.is_none().then_some(&view.zone.mechanisms.quiescence);
    "cut_waits" Counter of Zone "Waits for detaches in progress." = read(&of.waits);
    "cut_wait_rounds" Counter of Zone "Polls during waits for detaches in progress." = read(&of.rounds);
    "cut_stalls" Counter of Zone "Abandoned waits for detaches in progress." = read(&of.stalls);
}

/// Keeps a zone quiesced until it is dropped.
pub(crate) struct Quiescence<'a, P: Platform> {
    view: ZoneView<'a, P>,
}

impl<'a, P: Platform> Quiescence<'a, P> {
    /// Quiesces the zone and waits until no detachment is in progress.
    ///
    /// # Errors
    ///
    /// [`TransferStalled`] if one is still in progress after a bounded wait. The zone is then not quiesced by this call.
    pub(crate) fn begin(view: ZoneView<'a, P>, patience: Patience) -> Result<Self, TransferStalled> {
        let locked = view.lock().map_err(|_| TransferStalled)?;
        view.zone.mechanisms.quiescence.guards.fetch_add(1, Ordering::Relaxed);
        drop(locked);
        let quiescence = Self { view };
        view.counters_of_cpus().try_for_each(|counters| wait_for(view, patience, counters))?;
        Ok(quiescence)
    }
}

/// Waits, with a bound, until a CPU was seen without a detachment. Counts the wait.
fn wait_for<P: Platform>(
    view: ZoneView<'_, P>,
    patience: Patience,
    counters: &TransferCounters,
) -> Result<(), TransferStalled> {
    let counts = &view.zone.mechanisms.quiescence;
    for round in 0..patience.rounds() {
        if !counters.is_detaching() {
            return Ok(());
        }
        if round == 0 {
            counts.waits.fetch_add(1, Ordering::Relaxed);
        }
        counts.rounds.fetch_add(1, Ordering::Relaxed);
        patience.wait(view.platform, round);
    }
    counts.stalls.fetch_add(1, Ordering::Relaxed);
    Err(TransferStalled)
}

impl<P: Platform> Drop for Quiescence<'_, P> {
    fn drop(&mut self) {
        let _locked = self.view.lock();
        self.view.zone.mechanisms.quiescence.guards.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<'a, P: Platform> ZoneView<'a, P> {
    /// The counters that CPUs have in this zone.
    fn counters_of_cpus(self) -> impl Iterator<Item = &'a TransferCounters> {
        let (counters, zones) = self.all_counters;
        counters.iter().skip(self.id.index()).step_by(zones.max(1))
    }

    /// Detachments in progress, possibly stale.
    pub(super) fn detachments_racy(self) -> usize {
        self.counters_of_cpus().filter(|counters| counters.is_detaching()).count()
    }

    /// Whether the zone is quiesced. Exact under the zone lock.
    pub(crate) fn is_quiesced(&self) -> bool {
        let guards = &self.zone.mechanisms.quiescence.guards;
        self.platform.probe().touch_line(SharedLine::of(LineKind::Transfer, guards), Access::Read);
        guards.load(Ordering::Relaxed) != 0
    }
}
