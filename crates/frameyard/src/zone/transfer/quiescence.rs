//! Suspending every way of crossing but page by page, for whoever must find all free frames of a zone on its lists, merged.
//!
//! # Protocol
//!
//! A zone counts its quiescences, under its lock. A cut is in progress from when frames are taken off the free lists
//! together, under the lock, until their taker has gone through their pages without it: until then they still look free.
//! The taker says so in the row of his CPU ([`TransferCounters`](super::TransferCounters)), before he gives the lock back. While a zone
//! is suspended nobody begins a cut of a list, and what is freed goes to the free lists and merges. So
//! [`Quiescence::begin`], having had the lock, finds every cut in its row; it waits, for a bounded time, until each row was
//! found without one. A cut ends without a lock of the zone, so it may be waited for under any.
//!
//! Ways that do not take the zone lock look at the count under the lock of a CPU's lists. One that looked just before the
//! zone was suspended may still act: who needs its frames drains the lists and collects again.

use super::TransferCounters;
use crate::platform::{Access, LineKind, Platform, SharedLine};
use crate::sync::Ordering;
use crate::zone::ZoneView;

/// How often somebody is looked at before he is given up on.
const WAIT_ROUNDS: u32 = if cfg!(loom) { 4 } else { 4096 };

/// Somebody did not finish a cut, or collecting, in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TransferStalled;

/// As long as it lives frames cross the zone's border page by page alone.
pub(crate) struct Quiescence<'a, P: Platform> {
    view: ZoneView<'a, P>,
}

impl<'a, P: Platform> Quiescence<'a, P> {
    /// Suspends the zone's shortcuts, and waits until no cut is in progress.
    ///
    /// # Errors
    ///
    /// [`TransferStalled`] where one is after a bounded wait; the zone is not suspended by this call then.
    pub(crate) fn begin(view: ZoneView<'a, P>) -> Result<Self, TransferStalled> {
        let locked = view.lock();
        view.zone.transfer.quiescences.fetch_add(1, Ordering::Relaxed);
        drop(locked);
        let suspension = Self { view };
        view.rows_of_cpus().try_for_each(|row| wait_until_done(view, || !row.is_detaching()))?;
        Ok(suspension)
    }
}

/// Waits, for a bounded time, until something is done, as `is_done` says; counts the wait. `is_done` acquires what was done.
///
/// # Errors
///
/// [`TransferStalled`] where it is in progress still.
pub(super) fn wait_until_done<P: Platform>(
    view: ZoneView<'_, P>,
    is_done: impl Fn() -> bool,
) -> Result<(), TransferStalled> {
    let counts = &view.zone.transfer.waits;
    for round in 0..WAIT_ROUNDS {
        if is_done() {
            return Ok(());
        }
        if round == 0 {
            counts.waits.fetch_add(1, Ordering::Relaxed);
        }
        counts.rounds.fetch_add(1, Ordering::Relaxed);
        view.platform.relax(round);
    }
    counts.stalls.fetch_add(1, Ordering::Relaxed);
    Err(TransferStalled)
}

impl<P: Platform> Drop for Quiescence<'_, P> {
    fn drop(&mut self) {
        let _locked = self.view.lock();
        self.view.zone.transfer.quiescences.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<'a, P: Platform> ZoneView<'a, P> {
    /// The rows of this zone that CPUs have.
    fn rows_of_cpus(self) -> impl Iterator<Item = &'a TransferCounters> {
        let (rows, zones) = self.rows;
        rows.iter().skip(self.id.index()).step_by(zones.max(1))
    }

    /// How many cuts are in progress, a moment ago.
    pub(crate) fn detachments_racy(self) -> usize {
        self.rows_of_cpus().filter(|row| row.is_detaching()).count()
    }

    /// Whether frames may cross the zone's border page by page alone. Exact under the zone lock.
    pub(crate) fn is_quiesced(&self) -> bool {
        let quiescences = &self.zone.transfer.quiescences;
        self.platform.touch_line(SharedLine::of(LineKind::Transfer, quiescences), Access::Read);
        quiescences.load(Ordering::Relaxed) != 0
    }
}
