//! Suspending every way of crossing but page by page, for whoever must find all free frames of a zone on its lists, merged.
//!
//! # Protocol
//!
//! A zone counts its suspensions, under its lock, and the cuts in progress: frames that were taken off the free lists
//! together, under the lock, and whose pages still look free until their taker has gone through them without the lock.
//! While a zone is suspended nobody begins a cut, and what is freed goes to the free lists and merges. [`Suspension::begin`]
//! waits, for a bounded time, until no cut is in progress. A cut ends without a lock of the zone, so it may be waited for
//! under any.
//!
//! Ways that do not take the zone lock look at the count under the lock of a CPU's lists. One that looked just before the
//! zone was suspended may still act: who needs its frames drains the lists and collects again.

use crate::platform::{Access, LineKind, Platform, SharedLine};
use crate::sync::{AtomicU32, Ordering};
use crate::zone::ZoneView;

/// How often somebody is looked at before he is given up on.
const WAIT_ROUNDS: u32 = if cfg!(loom) { 4 } else { 4096 };

/// Somebody did not finish a cut, or collecting, in time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CutStalled;

/// As long as it lives frames cross the zone's border page by page alone.
pub(crate) struct Suspension<'a, P: Platform> {
    view: ZoneView<'a, P>,
}

impl<'a, P: Platform> Suspension<'a, P> {
    /// Suspends the zone's shortcuts, and waits until no cut is in progress.
    ///
    /// # Errors
    ///
    /// [`CutStalled`] where one is after a bounded wait; the zone is not suspended by this call then.
    pub(crate) fn begin(view: ZoneView<'a, P>) -> Result<Self, CutStalled> {
        let locked = view.lock();
        view.zone.crossing.suspensions.fetch_add(1, Ordering::Relaxed);
        drop(locked);
        let suspension = Self { view };
        wait_until_done(view, &view.zone.crossing.cuts)?;
        Ok(suspension)
    }
}

/// Waits, for a bounded time, until nothing is in progress of what is counted; counts the wait.
///
/// # Errors
///
/// [`CutStalled`] where something is in progress still.
pub(super) fn wait_until_done<P: Platform>(view: ZoneView<'_, P>, in_progress: &AtomicU32) -> Result<(), CutStalled> {
    let counts = &view.zone.crossing.waits;
    for round in 0..WAIT_ROUNDS {
        // Acquire: pairs with the Release in `end_cut`, and where somebody has collected.
        if in_progress.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        if round == 0 {
            counts.waits.fetch_add(1, Ordering::Relaxed);
        }
        counts.rounds.fetch_add(1, Ordering::Relaxed);
        view.platform.relax(round);
    }
    counts.stalls.fetch_add(1, Ordering::Relaxed);
    Err(CutStalled)
}

impl<P: Platform> Drop for Suspension<'_, P> {
    fn drop(&mut self) {
        let _locked = self.view.lock();
        self.view.zone.crossing.suspensions.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<P: Platform> ZoneView<'_, P> {
    /// Whether frames may cross the zone's border page by page alone. Exact under the zone lock.
    pub(crate) fn is_suspended(&self) -> bool {
        let suspensions = &self.zone.crossing.suspensions;
        self.platform.touch_line(SharedLine::of(LineKind::Border, suspensions), Access::Read);
        suspensions.load(Ordering::Relaxed) != 0
    }
}
