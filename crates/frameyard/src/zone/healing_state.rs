//! The state of [`healing`](super::healing): of a zone, and of each pageblock.

use super::exclusive::add_exclusive;
use crate::sync::{AtomicU32, AtomicU64, Ordering, all_atomic};
use crate::units::ORDER_SLOTS;

/// Pageblocks are sorted by their free frames into this number of classes, and the whole ones.
pub(super) const CLASSES: usize = 32;

/// After this number of blocks below pageblock order that joined or left the free lists, other than by merging, there is a step.
pub(super) const MOVED: u64 = 16;

/// Times count frees, in units of this part of the frames in use, or of [`LEAST_TICK`].
const TICKS: u64 = 128;
const LEAST_TICK: u64 = 64;

/// The unit of times while that many frames of the zone are in use: a turn of the clock is 128 frees for each of them.
pub(super) fn tick(used: u64) -> u64 {
    (used / TICKS).max(LEAST_TICK)
}

/// What is known of a pageblock, packed into its word. Changes under the zone lock; while the pageblock is open, [`chains`](super::chains)
/// also change it without.
///
/// | bits | meaning |
/// |---|---|
/// | 0–15 | free frames on the free lists, in blocks below pageblock order |
/// | 16–31 | frames on the chain |
/// | 32–46 | the first frame of the chain, counted from that of the pageblock |
/// | 47 | drains |
/// | 48 | of a pageblock that drains: a frame was pushed since a step looked at it; of any other: is open |
/// | 49 | rests |
/// | 50–63 | when it began to drain or to rest, or a frame in it was freed since |
#[derive(Clone, Copy)]
pub(super) struct Known {
    pub(super) free: u32,
    pub(super) chain: u32,
    pub(super) first: u32,
    /// Frames may join its chain.
    pub(super) open: bool,
    /// Frames freed in it join its chain. It is open.
    pub(super) drains: bool,
    /// Known while it drains.
    pub(super) was_pushed: bool,
    pub(super) rests: bool,
    pub(super) since: u32,
}

const COUNT: u64 = 0xffff;
const CHAIN_SHIFT: u32 = 16;
const FIRST: u64 = 0x7fff;
const FIRST_SHIFT: u32 = 32;
const DRAINS: u64 = 1 << 47;
const OPEN_OR_PUSHED: u64 = 1 << 48;
const RESTS: u64 = 1 << 49;
const SINCE_SHIFT: u32 = 50;
const TIMES: u64 = u64::MAX >> SINCE_SHIFT;

const _: () = assert!(1 << (ORDER_SLOTS - 1) <= FIRST + 1, "the frames of the largest pageblock fit the bits");
const _: () = assert!(TICKS * 128 <= TIMES + 1, "a turn of the clock fits the bits");

impl Known {
    #[inline(always)]
    pub(super) const fn of(word: u64) -> Self {
        Self {
            free: (word & COUNT) as u32,
            chain: (word >> CHAIN_SHIFT & COUNT) as u32,
            first: (word >> FIRST_SHIFT & FIRST) as u32,
            open: word & (DRAINS | OPEN_OR_PUSHED) != 0,
            drains: word & DRAINS != 0,
            was_pushed: word & DRAINS != 0 && word & OPEN_OR_PUSHED != 0,
            rests: word & RESTS != 0,
            since: (word >> SINCE_SHIFT) as u32,
        }
    }

    pub(super) const fn bits(self) -> u64 {
        let Self { free, chain, first, open, drains, was_pushed, rests, since } = self;
        free as u64 & COUNT
            | (chain as u64 & COUNT) << CHAIN_SHIFT
            | (first as u64 & FIRST) << FIRST_SHIFT
            | if drains { DRAINS } else { 0 }
            | if (drains && was_pushed) || (!drains && open) { OPEN_OR_PUSHED } else { 0 }
            | if rests { RESTS } else { 0 }
            | (since as u64) << SINCE_SHIFT
    }

    #[inline(always)]
    pub(super) fn read(word: &AtomicU64) -> Self {
        Self::of(word.load(Ordering::Relaxed))
    }

    /// Changes the number of free frames on the free lists, under the zone lock.
    #[inline(always)]
    pub(super) fn count(word: &AtomicU64, change: impl Fn(u32) -> u32) {
        let counted = |found: u64| found & !COUNT | u64::from(change((found & COUNT) as u32)) & COUNT;
        let found = word.load(Ordering::Relaxed);
        if !Self::of(found).open {
            return word.store(counted(found), Ordering::Relaxed);
        }
        let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |found| Some(counted(found)));
    }

    /// Changes a word under the zone lock. Returns what it was.
    pub(super) fn change(word: &AtomicU64, change: impl Fn(Self) -> Self) -> Self {
        // Acquire: pairs with the Release in `change_if`. A thread that finds that a push has closed the pageblock sees it registered.
        let known = Self::of(word.load(Ordering::Acquire));
        if !known.open {
            word.store(change(known).bits(), Ordering::Relaxed);
            return known;
        }
        Self::change_if(word, |_| true, change).unwrap_or(known)
    }

    /// Changes a word if what it says `fits`, with the zone lock or without. Returns what it was.
    pub(super) fn change_if(
        word: &AtomicU64,
        fits: impl Fn(Self) -> bool,
        change: impl Fn(Self) -> Self,
    ) -> Option<Self> {
        let changed = |found| Some(Self::of(found)).filter(|known| fits(*known)).map(|known| change(known).bits());
        // Acquire: pairs with the Release in `push_to_chain` and `push_back`. Release: pairs with the Acquire in `gather`
        // and `change`.
        word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, changed).ok().map(Self::of)
    }

    /// The free frames, on lists and on the chain.
    pub(super) const fn all_free(self) -> u32 {
        self.free + self.chain
    }

    /// Whether a step has nothing to do: no frame is free on its own, and neither draining nor rest may end.
    pub(super) const fn is_at_rest(self) -> bool {
        self.all_free() == 0 && !self.drains && !self.rests
    }

    /// With a frame more on the chain.
    pub(super) const fn pushed(self, frame: u32) -> Self {
        Self { chain: self.chain + 1, first: frame, was_pushed: true, ..self }
    }

    pub(super) const fn without_chain(self) -> Self {
        Self { chain: 0, first: 0, ..self }
    }

    /// No frame may join its chain any more, which was taken.
    pub(super) const fn closed(self) -> Self {
        Self { open: false, drains: false, was_pushed: false, ..self.without_chain() }
    }

    /// The number of ticks since that time.
    pub(super) fn age(self, now: u64) -> u64 {
        now.wrapping_sub(self.since.into()) & TIMES
    }

    /// From now on.
    pub(super) fn at(self, now: u64) -> Self {
        Self { since: (now & TIMES) as u32, was_pushed: false, ..self }
    }
}

/// The frames that left [`chains`](super::chains). On a line of its own: watermark checks read it, and refills write it, without the lock.
#[repr(C, align(64))]
#[derive(Default)]
pub(super) struct TakenFrames {
    pub(super) frames: AtomicU64,
    /// The frames that joined chains as the lists of CPUs overflowed: the free of these was counted before.
    pub(super) merged: AtomicU64,
}

all_atomic!(TakenFrames { frames, merged });

/// The state of [`healing`](super::healing) in a zone. Changes under the zone lock, unless a field says otherwise.
#[derive(Default)]
pub(crate) struct Healing {
    pub(super) taken: TakenFrames,
    /// The pageblock at which the next step begins.
    pub(crate) cursor: AtomicU64,
    /// Small blocks that joined or left the free lists since the last step, and frames that left chains. Some may be missed: refills add
    /// to it without the lock.
    pub(crate) moved: AtomicU64,
    /// Frees to lists of CPUs that the background has counted.
    pub(crate) frees: AtomicU64,
    /// Frees of single movable frames to lists of CPUs, when the background last looked; [`UNKNOWN`] if it has not.
    pub(crate) listed: AtomicU64,
    /// The pageblock at which the next search for chains begins. Written without a lock.
    pub(crate) gathered: AtomicU64,
    /// The pageblock at which the next refill begins to look for frames. Written without a lock.
    pub(crate) filled: AtomicU64,
    /// The time when the pass in progress began: all frees of single frames, in ticks.
    pub(crate) now: AtomicU64,
    /// The frees until then.
    pub(crate) timed: AtomicU64,
    /// Frames in use in the zone then.
    pub(crate) used: AtomicU64,
    /// Draining pageblocks.
    pub(crate) draining: AtomicU32,
    /// The most pageblocks that drain.
    pub(crate) most: AtomicU32,
    /// Pageblocks of this number of classes drain: of those with the most free frames.
    pub(crate) drained: AtomicU32,
    /// And that many of the next class.
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
    taken,
    cursor,
    moved,
    frees,
    listed,
    gathered,
    filled,
    now,
    timed,
    used,
    draining,
    most,
    drained,
    more,
    free,
    classes,
    begun,
    healed,
    given_up,
    rested
});

#[cfg(not(loom))]
const _: () = assert!(size_of::<Healing>() == 320, "the tables behind those of zones stay where they are");

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

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn a_word_keeps_every_part() {
        for bit in 0..64 {
            let word = 1 << bit;
            assert_eq!(Known::of(word).bits(), word, "bit {bit}");
        }
        let largest = 1 << (ORDER_SLOTS - 1);
        let whole = Known { open: true, drains: true, ..Known::of(0) };
        let whole = (0..largest).fold(whole, |known, frame| Known::of(known.pushed(frame).bits()));
        assert_eq!((whole.all_free(), whole.first, whole.drains), (largest, largest - 1, true));
        let closed = Known::of(whole.closed().bits());
        assert_eq!((closed.all_free(), closed.drains, closed.since), (0, false, 0));
    }

    #[test]
    fn changes_of_a_draining_pageblock_keep_its_chain() {
        let word = AtomicU64::new(Known { open: true, drains: true, ..Known::of(0) }.pushed(3).bits());
        Known::count(&word, |free| free.wrapping_add(2));
        let found = Known::change(&word, Known::without_chain);
        assert_eq!((found.free, found.chain, found.first), (2, 1, 3));
        let left = Known::read(&word);
        assert_eq!((left.free, left.chain, left.drains), (2, 0, true));
        assert!(Known::change_if(&word, |known| known.chain > 0, Known::closed).is_none());
        assert!(Known::read(&word).open);
    }

    #[test]
    fn times_turn_with_the_clock() {
        let known = Known::of(0).at(TIMES);
        assert_eq!([TIMES, TIMES + 1, TIMES + 9].map(|now| known.age(now)), [0, 1, 9]);
    }
}
