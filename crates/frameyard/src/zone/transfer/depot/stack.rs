//! A lock-free stack of packed batches: one word names its top, the batches' leaders link the rest.
//!
//! The head word is the link of the topmost leader, in as many bits as the map's frames need, and a tag in all others
//! (at least 32). A leader's `next` names the batch below it; nothing else of a batch is touched here.
//!
//! # Protocol
//!
//! *Push* links the last batch of a chain to the old head and exchanges the head, with Release: whoever finds the batch
//! sees all that was packed into its pages. *Pop* reads the head with Acquire, reads the leader's `next`, and exchanges the
//! head for that with the tag one higher. *Detach* exchanges the head for none, with the tag one higher.
//!
//! Between the two reads of a pop the leader may be popped by another, handed out, and written to. The map is always
//! there, so such a read is harmless: its outcome is used only if the head still has the same link and the same tag. It
//! cannot come back to both: a link comes back to the top only after a pop or a detach, and these raise the tag. A tag that
//! comes round again while a thread stands between its reads would defeat this; with 2²¹ frames (8 GiB) that takes 2⁴² pops
//! and detaches, with the most frames that a map can have 2³². Every change of
//! the head is an exchange, so a batch far below the top is still handed over by its own push.
//!
//! A failed exchange means that another thread's has succeeded, so somebody always gets on; nobody waits for anybody.
//!
//! # Counting equations
//!
//! - `pushed − left` = batches on the stack, and those that are counted there while they come or go: a batch is counted
//!   before it is pushed, and until after it has left, so that a reader who sums up free memory misses none.
//! - `collected` and `stolen` are parts of `left`, `overflowed` is a part of `pushed`.

use crate::memmap::MemMap;
use crate::page::Link;
use crate::platform::{Access, LineKind, Platform, SharedLine};
use crate::sync::{AtomicU64, Ordering, all_atomic};
use crate::zone::transfer::depot::DepotStatistics;

/// A stack of full batches of one type. On a line of its own, with its counters.
#[repr(C, align(64))]
#[derive(Default)]
pub(crate) struct BatchStack {
    head: AtomicU64,
    pushed: AtomicU64,
    left: AtomicU64,
    /// Popped by CPUs of other groups than the stack's.
    stolen: AtomicU64,
    /// Brought back to the free lists.
    collected: AtomicU64,
    /// Pushed here because a group's own stack was full.
    overflowed: AtomicU64,
    /// Exchanges that failed because another's succeeded.
    retries: AtomicU64,
}

all_atomic!(BatchStack { head, pushed, left, stolen, collected, overflowed, retries });

#[cfg(not(loom))]
const _: () = assert!(size_of::<BatchStack>() == 64, "a stack is one cache line");

/// What happens to the tag when a batch leaves.
#[cfg(not(any(loom, shuttle)))]
const fn tag_step() -> u64 {
    1
}

/// What happens to the tag when a batch leaves: in a broken model, nothing.
#[cfg(any(loom, shuttle))]
fn tag_step() -> u64 {
    u64::from(!crate::sync::is_weakened(crate::sync::Weakness::ConstantTags))
}

/// The head word, taken apart.
#[derive(Clone, Copy, Debug)]
struct Head {
    word: u64,
    /// How many bits the link has.
    link_bits: u32,
}

impl Head {
    fn top(self) -> Link {
        Link((self.word & ((1 << self.link_bits) - 1)) as u32)
    }

    /// The first half of a pop; `None` where the stack is empty. The leader is not ours yet: see the protocol.
    fn seen<P: Platform>(self, map: MemMap, platform: &P) -> Option<Seen> {
        let leader = self.top();
        Some(Seen { head: self, leader, next: map.page(map.next(leader)?, platform).next() })
    }

    /// The word with another link and the same tag.
    fn with_top(self, top: Link) -> u64 {
        self.word >> self.link_bits << self.link_bits | u64::from(top.0)
    }

    /// The word with another link and the next tag.
    fn left_with(self, top: Link) -> u64 {
        (self.word >> self.link_bits).wrapping_add(tag_step()) << self.link_bits | u64::from(top.0)
    }
}

/// What a pop has seen before its exchange.
#[derive(Clone, Copy)]
struct Seen {
    head: Head,
    leader: Link,
    /// What the leader's page says; of no meaning where the leader has left meanwhile.
    next: Link,
}

/// How many bits name every frame of a map, or none.
fn link_bits(map: MemMap) -> u32 {
    u64::BITS - map.range().count().0.leading_zeros()
}

impl BatchStack {
    /// Batches, a moment ago; with those that are on their way here or from here.
    pub(super) fn batches_racy(&self) -> u64 {
        let left = self.left.load(Ordering::Relaxed);
        self.pushed.load(Ordering::Relaxed).saturating_sub(left)
    }

    /// Whether there was no batch, a moment ago.
    pub(super) fn is_empty_racy(&self, map: MemMap) -> bool {
        // Acquire: pairs with the Release in `pop` and `detach`.
        self.head(map, Ordering::Acquire).top() == Link::NONE
    }

    fn head(&self, map: MemMap, ordering: Ordering) -> Head {
        Head { word: self.head.load(ordering), link_bits: link_bits(map) }
    }

    /// Says that the stack's line is used: its counters, or its head outside of [`push`](Self::push) and [`pop`](Self::pop).
    #[inline(always)]
    pub(super) fn touch<P: Platform>(&self, platform: &P, access: Access) {
        platform.touch_line(SharedLine::of(LineKind::Depot, self), access);
    }

    /// Counts batches that will be pushed.
    pub(super) fn count_coming(&self, batches: u64) {
        self.pushed.fetch_add(batches, Ordering::Relaxed);
    }

    /// Counts batches that came here because another stack was full.
    pub(super) fn count_overflowed(&self, batches: u64) {
        self.overflowed.fetch_add(batches, Ordering::Relaxed);
    }

    /// Counts batches that another group's CPU has popped.
    pub(super) fn count_stolen(&self, batches: u64) {
        self.stolen.fetch_add(batches, Ordering::Relaxed);
    }

    /// Counts batches that were taken here and not counted as gone, and are free now.
    pub(super) fn count_collected(&self, batches: u64) {
        self.collected.fetch_add(batches, Ordering::Relaxed);
        self.left.fetch_add(batches, Ordering::Relaxed);
    }

    /// Counts batches that were popped for an allocation as gone.
    pub(super) fn count_popped(&self, batches: u64) {
        self.left.fetch_add(batches, Ordering::Relaxed);
    }

    /// Pushes a chain of batches that were counted as coming; `first` will be on top.
    pub(super) fn push<P: Platform>(&self, map: MemMap, platform: &P, first: Link, last: Link) {
        let Some(last) = map.next(last) else { return };
        let page = map.page(last, platform);
        self.touch(platform, Access::Read);
        let mut head = self.head(map, Ordering::Relaxed);
        loop {
            page.set_next(head.top());
            self.touch(platform, Access::ReadModifyWrite);
            // Release: pairs with the Acquire in `pop` and `detach`.
            let pushed =
                self.head.compare_exchange_weak(head.word, head.with_top(first), Ordering::Release, Ordering::Relaxed);
            match pushed {
                Ok(_) => return,
                Err(word) => head.word = word,
            }
            self.retries.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes the topmost batch, and does not count it as gone yet.
    pub(super) fn pop<P: Platform>(&self, map: MemMap, platform: &P) -> Option<Link> {
        self.touch(platform, Access::Read);
        // Acquire: pairs with the Release in `push`.
        let mut head = self.head(map, Ordering::Acquire);
        loop {
            let seen = head.seen(map, platform)?;
            self.touch(platform, Access::ReadModifyWrite);
            match self.take(seen) {
                Ok(leader) => return Some(leader),
                Err(found) => head = found,
            }
            self.retries.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The second half of a pop: takes the batch that was seen on top, if it is there still.
    fn take(&self, seen: Seen) -> Result<Link, Head> {
        let Seen { head, leader, next } = seen;
        // Acquire: pairs with the Release in `push`. Release: pairs with the Acquire in `is_empty_racy`. A CPU that finds the
        // stack empty sees that the collector registered before.
        self.head
            .compare_exchange_weak(head.word, head.left_with(next), Ordering::AcqRel, Ordering::Acquire)
            .map(|_| leader)
            .map_err(|word| Head { word, ..head })
    }

    /// Takes all batches, as a chain, and does not count them as gone yet.
    pub(super) fn detach(&self, map: MemMap) -> Link {
        // Acquire, here and below: pairs with the Release in `push`.
        let mut head = self.head(map, Ordering::Acquire);
        while head.top() != Link::NONE {
            let next = head.left_with(Link::NONE);
            // AcqRel: pairs with the Release in `push` and with the Acquire in `is_empty_racy`, as in `take`.
            let detached = self.head.compare_exchange_weak(head.word, next, Ordering::AcqRel, Ordering::Acquire);
            match detached {
                Ok(_) => return head.top(),
                Err(word) => head.word = word,
            }
            self.retries.fetch_add(1, Ordering::Relaxed);
        }
        Link::NONE
    }

    /// The topmost batch, for who walks the stack while nobody uses it.
    pub(super) fn top_at_rest(&self, map: MemMap) -> Link {
        // Acquire: pairs with the Release in `push`.
        self.head(map, Ordering::Acquire).top()
    }

    /// Adds what was counted here.
    pub(super) fn add_to(&self, sum: &mut DepotStatistics) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let collected = read(&self.collected);
        sum.popped += read(&self.left).saturating_sub(collected);
        sum.pushed += read(&self.pushed);
        sum.stolen += read(&self.stolen);
        sum.collected += collected;
        sum.overflowed += read(&self.overflowed);
        sum.retries += read(&self.retries);
        sum.batches += self.batches_racy();
    }
}

#[cfg(all(test, loom))]
mod loom_models;
#[cfg(all(test, not(loom)))]
mod tests;
