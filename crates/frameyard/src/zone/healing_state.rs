//! The state of [`healing`](super::healing): of a zone, and of each pageblock.

use super::exclusive::add_exclusive;
use crate::sync::{AtomicU32, AtomicU64, Ordering, all_atomic};

/// Times count frees, in units of this number: 2^31 of these are a turn of the clock.
pub(super) const TICK: u64 = 64;
/// Pageblocks are sorted by their free frames into this number of classes, and the whole ones.
pub(super) const CLASSES: usize = 32;
/// What is known of a pageblock, packed into its word.
#[derive(Clone, Copy)]
pub(super) struct Known {
    /// Free frames in blocks below pageblock order: bits 0 to 31.
    pub(super) free: u32,
    /// When it began to drain or to rest, or a frame in it was freed since: bits 32 to 62.
    pub(super) since: u32,
    /// Whether it rests: bit 63.
    pub(super) rests: bool,
}

impl Known {
    const TIMES: u64 = u32::MAX as u64 >> 1;

    pub(super) fn read(word: &AtomicU64) -> Self {
        let word = word.load(Ordering::Relaxed);
        Self { free: word as u32, since: (word >> 32 & Self::TIMES) as u32, rests: word >> 63 != 0 }
    }

    pub(super) fn write(self, word: &AtomicU64) {
        let Self { free, since, rests } = self;
        word.store(u64::from(free) | u64::from(since) << 32 | u64::from(rests) << 63, Ordering::Relaxed);
    }

    /// Frees since that time.
    pub(super) fn age(self, now: u64) -> u64 {
        (now.wrapping_sub(self.since.into()) & Self::TIMES) * TICK
    }

    /// From now on.
    pub(super) fn at(self, now: u64) -> Self {
        Self { since: (now & Self::TIMES) as u32, ..self }
    }
}

/// The stack of frames that wait for a holder of the zone lock ([`combining`](super::combining)), on a line of its own.
#[repr(C, align(64))]
#[derive(Default)]
pub(super) struct WaitingFrees {
    /// The link to the frame on top: bits 0 to 31. The number of frames: bits 32 to 63.
    pub(super) top: AtomicU64,
}

all_atomic!(WaitingFrees { top });

/// The state of [`healing`](super::healing) in a zone. Changes under the zone lock.
#[derive(Default)]
pub(crate) struct Healing {
    pub(super) waiting: WaitingFrees,
    /// The pageblock at which the next step begins.
    pub(crate) cursor: AtomicU64,
    /// Frames that joined or left the free lists since the last step.
    pub(crate) moved: AtomicU64,
    /// Frees in draining pageblocks, and those to lists of CPUs that the background has counted.
    pub(crate) frees: AtomicU64,
    /// Frees of single movable frames to lists of CPUs, when the background last looked; [`UNKNOWN`] if it has not.
    pub(crate) listed: AtomicU64,
    /// All frees of single frames, in ticks, when the pass in progress began.
    pub(crate) now: AtomicU64,
    /// Frames in use in the zone then.
    pub(crate) used: AtomicU64,
    /// Draining pageblocks.
    pub(crate) draining: AtomicU32,
    /// Pageblocks of this class and above drain.
    pub(crate) class: AtomicU32,
    /// And that many of the class below.
    pub(crate) more: AtomicU32,
    /// Of the pass in progress: free frames in pageblocks that could drain.
    pub(crate) free: AtomicU64,
    /// Of the pass in progress: pageblocks that could drain, by class.
    pub(crate) classes: [AtomicU32; CLASSES],
    /// Pageblocks that began to drain.
    pub(crate) begun: AtomicU64,
    /// Pageblocks that became whole.
    pub(crate) healed: AtomicU64,
    /// Pageblocks that stopped draining because a request needed their frames.
    pub(crate) given_up: AtomicU64,
    /// Pageblocks that rest because of frames that stay in use.
    pub(crate) rested: AtomicU64,
}

all_atomic!(Healing {
    waiting,
    cursor,
    moved,
    frees,
    listed,
    now,
    used,
    draining,
    class,
    more,
    free,
    classes,
    begun,
    healed,
    given_up,
    rested
});

/// The background has not counted frees to lists of CPUs since healing began.
const UNKNOWN: u64 = u64::MAX;

impl Healing {
    /// Counts the frees to lists of CPUs since the last call. `listed` is their number ever.
    pub(super) fn count_listed(&self, listed: u64) {
        let before = self.listed.load(Ordering::Relaxed);
        if before != UNKNOWN {
            add_exclusive(&self.frees, listed.wrapping_sub(before));
        }
        self.listed.store(listed, Ordering::Relaxed);
    }

    /// Healing begins: frees to lists of CPUs count from the next [`count_listed`](Self::count_listed) on.
    pub(super) fn forget_listed(&self) {
        self.listed.store(UNKNOWN, Ordering::Relaxed);
    }

    /// Draining pageblocks, possibly stale.
    pub(crate) fn draining_racy(&self) -> u32 {
        self.draining.load(Ordering::Relaxed)
    }
}
