//! The state of [`healing`](super::healing): of a zone, and of each pageblock.

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

/// The state of [`healing`](super::healing) in a zone. Changes under the zone lock.
#[derive(Default)]
pub(crate) struct Healing {
    /// The pageblock at which the next step begins.
    pub(crate) cursor: AtomicU64,
    /// Frees to the free lists.
    pub(crate) frees: AtomicU64,
    /// Frees of single movable frames to lists of CPUs, when the background last looked.
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
    cursor,
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

impl Healing {
    /// Draining pageblocks, possibly stale.
    pub(crate) fn draining_racy(&self) -> u32 {
        self.draining.load(Ordering::Relaxed)
    }
}
