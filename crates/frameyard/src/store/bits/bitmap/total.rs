//! The number of free frames, which each CPU counts for itself.
//!
//! A CPU counts in a word of its own, its *part*, and adds the part to the zone's *total* when it exceeds a limit. So
//! the total is nearly right, and CPUs share no cache line in steady state. If a decision depends on what has not been
//! added, the total is made *exact*: all parts are added once, and from then on each CPU adds what it counts at once,
//! until one of them finds that the total has moved far from where it was.
//!
//! # Protocol
//!
//! A CPU first counts, and then looks whether the total is exact. The CPU that makes it exact first notes that, and
//! then adds all parts. These accesses are sequentially consistent, so one of the two adds what was counted.

use crate::sync::{AtomicU64, Ordering, all_atomic, fence_in_models, is_broken};

/// A count with a cache line of its own: what lies beside it seldom changes, and is read with each count.
#[repr(align(64))]
#[derive(Default)]
struct Apart(AtomicU64);

all_atomic!(Apart { 0 });

/// Free frames of a zone, less what CPUs have not added.
#[derive(Default)]
pub(crate) struct Total {
    frames: Apart,
    /// While CPUs add at once what they count, the frames that were free when that began, plus 1; else 0.
    exact: AtomicU64,
}

all_atomic!(Total { frames, exact });

impl Total {
    /// The frames, off by what CPUs have not added. Wraps below zero.
    #[inline(always)]
    pub(crate) fn frames_racy(&self) -> u64 {
        self.frames.0.load(Ordering::Relaxed)
    }

    /// Where the frames are counted, for an announcement of its use.
    pub(crate) fn frames(&self) -> &AtomicU64 {
        &self.frames.0
    }

    /// Adds frames, or with a wrapped number subtracts them. An exact total that is more than `most_drift` from where it became so
    /// ceases to be exact.
    #[inline(always)]
    pub(crate) fn add(&self, frames: u64, most_drift: u64) {
        let now = self.frames.0.fetch_add(frames, Ordering::Relaxed).wrapping_add(frames);
        if let Some(began) = self.exact.load(Ordering::Relaxed).checked_sub(1)
            && now.wrapping_sub(began).cast_signed().unsigned_abs() > most_drift
        {
            self.exact.store(0, Ordering::Relaxed);
        }
    }

    /// Adds to a part; whether the caller has to add the part now: because it `exceeds` what may be left out, or to an exact total.
    #[inline(always)]
    pub(crate) fn count(&self, part: &AtomicU64, what: u64, exceeds: impl FnOnce(u64) -> bool) -> bool {
        // Sequentially consistent: pairs with `make_exact`.
        let is_exact = || self.exact.load(Ordering::SeqCst) != 0;
        let before = is_broken!(ExactnessReadFirst).then(is_exact);
        // Sequentially consistent: pairs with `make_exact`.
        let counted = part.fetch_add(what, Ordering::SeqCst).wrapping_add(what);
        fence_in_models!(CountedUnfenced);
        exceeds(counted) || before.unwrap_or_else(is_exact)
    }

    /// Whether the total is exact.
    pub(crate) fn is_exact(&self) -> bool {
        self.exact.load(Ordering::Relaxed) != 0
    }

    /// Makes the total exact. The caller adds all parts then.
    pub(crate) fn make_exact(&self) {
        // Sequentially consistent: pairs with `count`.
        self.exact.store(self.frames_racy().wrapping_add(1).max(1), Ordering::SeqCst);
        fence_in_models!(CountedUnfenced);
    }
}
