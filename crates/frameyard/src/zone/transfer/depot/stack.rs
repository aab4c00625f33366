//! A lock-free stack of batches: one word names its top, the batches' heads link the rest.
//!
//! The top word holds the link to the topmost head in as many bits as heads need, and a tag in all further bits (at least
//! 32). A head's link names the batch below; no other word of a batch is touched here. [`Links`] says where that link lies: in the
//! head's page structure ([`PageLinks`]), or in the table of pageblocks ([`BlockLinks`](super::links::BlockLinks)).
//!
//! # Protocol
//!
//! *Push* links the last batch of a chain to the old top and exchanges the top word, with Release: a CPU that finds the batch sees
//! all that was packed into its pages or its line of the table. *Pop* reads the top word with Acquire and the head's
//! link; if it takes several batches, it follows the links of the heads below. It exchanges the top word for the link of the last one, with
//! the tag plus one. *Detach* exchanges the top word for none, with the tag plus one.
//!
//! Between the reads of a pop another CPU may pop a batch, allocate its frames and write to them. Map and table are always mapped, so the
//! reads are harmless: what they find counts only if the top word still has the same link and the same tag. Both cannot return:
//! a link returns to the top only after a pop or a detach, and these raise the tag. A tag that wraps around while a thread stands
//! between its reads would defeat this; with 2²¹ frames (8 GiB) that takes 2⁴² pops and detaches, with the most frames that a map
//! can have 2³². Every change of the top word is an exchange, so a pop
//! of a batch acquires its push even if other batches were pushed above it.
//!
//! The stack is lock-free: a failed exchange means that another CPU's has succeeded.
//!
//! # Counting equations
//!
//! - `pushed − left` = batches on the stack (blocks, on stacks of huge blocks, whose batches differ in length), and those counted there
//!   in transit: a batch is counted before it is pushed and until after it has left, so that a sum of free memory misses none.
//! - `collected` and `stolen` are parts of `left`, `overflowed` is a part of `pushed`.

use crate::memmap::MemMap;
use crate::page::Link;
use crate::platform::{Access, LineKind, Platform, SharedLine, copied_views};
use crate::sync::{AtomicU64, Ordering, all_atomic, is_broken};
use crate::zone::transfer::exchange::PackedBatches;

/// Where the links of a stack's batches lie. The methods accept any link: a neighbour may have written it.
pub(super) trait Links: Copy {
    /// The number of bits that name any head, or none.
    fn bits(self) -> u32;

    /// The link of a head to the batch below; `None` if there is no such head.
    fn below(self, head: Link) -> Option<Link>;

    /// Links a head that the caller owns to the batch below.
    fn set_below(self, head: Link, below: Link);
}

/// Links in the heads' page structures, which also hold the batches. A link names a frame.
pub(super) struct PageLinks<'a, P> {
    pub(super) map: MemMap,
    pub(super) platform: &'a P,
}

copied_views!(PageLinks);

impl<P: Platform> Links for PageLinks<'_, P> {
    #[inline(always)]
    fn bits(self) -> u32 {
        u64::BITS - self.map.places().leading_zeros()
    }

    #[inline(always)]
    fn below(self, head: Link) -> Option<Link> {
        Some(self.map.page(self.map.next(head)?, self.platform).next())
    }

    #[inline(always)]
    fn set_below(self, head: Link, below: Link) {
        if let Some(head) = self.map.next(head) {
            self.map.page(head, self.platform).set_next(below);
        }
    }
}

impl PackedBatches {
    pub(super) const EMPTY: Self = Self { first: Link::NONE, last: Link::NONE, batches: 0 };

    /// Appends a batch.
    #[inline(always)]
    pub(super) fn append(&mut self, links: impl Links, head: Link) {
        match self.batches {
            0 => self.first = head,
            _ => links.set_below(self.last, head),
        }
        self.last = head;
        self.batches += 1;
    }
}

/// A stack of batches of one type, with its counters, on a cache line of its own.
#[repr(C, align(64))]
#[derive(Default)]
pub(super) struct BatchStack {
    top: AtomicU64,
    pub(super) pushed: AtomicU64,
    pub(super) left: AtomicU64,
    /// Popped by CPUs with other shelves.
    pub(super) stolen: AtomicU64,
    /// Returned to the free lists.
    pub(super) collected: AtomicU64,
    /// Pushed here because a CPU's own stack was full.
    pub(super) overflowed: AtomicU64,
    /// Failed exchanges.
    pub(super) retries: AtomicU64,
}

all_atomic!(BatchStack { top, pushed, left, stolen, collected, overflowed, retries });

#[cfg(not(loom))]
const _: () = assert!(size_of::<BatchStack>() == 64, "a stack is one cache line");

/// A transfer gives up after this number of failed exchanges one behind the other. CPUs do not reach it; a process that writes to the
/// word all the time does.
const MOST_TRIES: u32 = if cfg!(loom) { 16 } else { 1 << 20 };

/// The top word, taken apart.
#[derive(Clone, Copy, Debug)]
struct Top {
    word: u64,
    /// The number of bits of the link.
    link_bits: u32,
}

impl Top {
    fn link(self) -> Link {
        Link((self.word & ((1 << self.link_bits) - 1)) as u32)
    }

    /// The first half of a pop of up to `most` batches; `None` if the stack is empty. They are not the caller's yet: see the protocol.
    #[inline(always)]
    fn seen(self, links: impl Links, most: usize) -> Option<Seen> {
        let first = self.link();
        let mut seen =
            Seen { top: self, chain: PackedBatches { first, last: first, batches: 1 }, next: links.below(first)? };
        while seen.chain.batches < most
            && let Some(below) = links.below(seen.next)
        {
            seen.chain.last = seen.next;
            seen.chain.batches += 1;
            seen.next = below;
        }
        Some(seen)
    }

    /// The word with another link and the same tag.
    fn with_link(self, link: Link) -> u64 {
        self.word >> self.link_bits << self.link_bits | u64::from(link.0)
    }

    /// The word with another link and the next tag.
    fn left_with(self, link: Link) -> u64 {
        (self.word >> self.link_bits).wrapping_add(u64::from(!is_broken!(ConstantTags))) << self.link_bits
            | u64::from(link.0)
    }
}

/// What a pop has seen before its exchange; meaningless, but for the top word, if a batch has left meanwhile.
#[derive(Clone, Copy)]
struct Seen {
    top: Top,
    chain: PackedBatches,
    /// The link of the last batch.
    next: Link,
}

impl BatchStack {
    /// Batches (blocks, on stacks of huge blocks), with those in transit; possibly stale.
    pub(super) fn held_racy(&self) -> u64 {
        let left = self.left.load(Ordering::Relaxed);
        self.pushed.load(Ordering::Relaxed).saturating_sub(left)
    }

    /// Whether there is no batch; possibly stale.
    #[inline]
    pub(super) fn is_empty_racy(&self, links: impl Links) -> bool {
        // Acquire: pairs with the Release in `BatchStack::take` and `BatchStack::detach`.
        self.top(links, Ordering::Acquire).link() == Link::NONE
    }

    #[inline]
    fn top(&self, links: impl Links, ordering: Ordering) -> Top {
        Top { word: self.top.load(ordering), link_bits: links.bits() }
    }

    /// Announces a use of the stack's line: its counters, or its top word outside of [`push`](Self::push) and [`pop`](Self::pop).
    #[inline(always)]
    pub(super) fn touch<P: Platform>(&self, platform: &P, access: Access) {
        platform.touch_line(SharedLine::of(LineKind::Mechanism, self), access);
    }

    /// Counts batches or huge blocks that are about to be pushed.
    pub(super) fn count_coming(&self, batches: u64) {
        self.pushed.fetch_add(batches, Ordering::Relaxed);
    }

    /// Counts batches or huge blocks that are pushed here because another stack is full.
    pub(super) fn count_overflowed(&self, batches: u64) {
        self.overflowed.fetch_add(batches, Ordering::Relaxed);
    }

    /// Counts batches or huge blocks popped by a CPU with another shelf.
    pub(super) fn count_stolen(&self, batches: u64) {
        self.stolen.fetch_add(batches, Ordering::Relaxed);
    }

    /// Counts batches or huge blocks that a collector took here and has freed now.
    pub(super) fn count_collected(&self, batches: u64) {
        self.collected.fetch_add(batches, Ordering::Relaxed);
        self.left.fetch_add(batches, Ordering::Relaxed);
    }

    /// Counts batches or huge blocks popped for a list.
    pub(super) fn count_popped(&self, batches: u64) {
        self.left.fetch_add(batches, Ordering::Relaxed);
    }

    /// Pushes a chain of batches that were counted as coming, with `first` on top.
    pub(super) fn push<P: Platform>(&self, links: impl Links, platform: &P, first: Link, last: Link) {
        self.touch(platform, Access::Read);
        let mut top = self.top(links, Ordering::Relaxed);
        // The batch is lost if the word changes each time.
        for _ in 0..MOST_TRIES {
            links.set_below(last, top.link());
            self.touch(platform, Access::ReadModifyWrite);
            // Release: pairs with the Acquire in `BatchStack::pop` and `BatchStack::detach`.
            let pushed =
                self.top.compare_exchange_weak(top.word, top.with_link(first), Ordering::Release, Ordering::Relaxed);
            match pushed {
                Ok(_) => return,
                Err(word) => top.word = word,
            }
            self.retries.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes the topmost batch, without counting it as gone.
    pub(super) fn pop<P: Platform>(&self, links: impl Links, platform: &P) -> Option<Link> {
        self.pop_some(links, platform, 1).map(|chain| chain.first)
    }

    /// Takes the topmost batches, up to `most`, with one exchange, without counting them as gone. The link of the last leads nowhere,
    /// unless it is the only one.
    #[inline(always)]
    pub(super) fn pop_some<P: Platform>(&self, links: impl Links, platform: &P, most: usize) -> Option<PackedBatches> {
        self.touch(platform, Access::Read);
        // Acquire: pairs with the Release in `BatchStack::push`.
        let mut top = self.top(links, Ordering::Acquire);
        for _ in 0..MOST_TRIES {
            let seen = top.seen(links, most)?;
            self.touch(platform, Access::ReadModifyWrite);
            match self.take(seen) {
                Ok(chain) => {
                    if chain.batches > 1 {
                        links.set_below(chain.last, Link::NONE);
                    }
                    return Some(chain);
                }
                Err(found) => top = found,
            }
            self.retries.fetch_add(1, Ordering::Relaxed);
        }
        None
    }

    /// The second half of a pop: takes the batches that were seen on top, if they are still there.
    fn take(&self, seen: Seen) -> Result<PackedBatches, Top> {
        let Seen { top, chain, next } = seen;
        // Release: pairs with the Acquire in `BatchStack::is_empty_racy`; a CPU that finds the stack empty sees that this one
        // registered as a collector before. Acquire on failure: pairs with the Release in `BatchStack::push`.
        self.top
            .compare_exchange_weak(top.word, top.left_with(next), Ordering::AcqRel, Ordering::Acquire)
            .map(|_| chain)
            .map_err(|word| Top { word, ..top })
    }

    /// Takes all batches as a chain, without counting them as gone.
    pub(super) fn detach(&self, links: impl Links) -> Link {
        // Acquire: pairs with the Release in `BatchStack::push`.
        let mut top = self.top(links, Ordering::Acquire);
        for _ in 0..MOST_TRIES {
            if top.link() == Link::NONE {
                break;
            }
            let none = top.left_with(Link::NONE);
            // Release: pairs with the Acquire in `BatchStack::is_empty_racy`. Acquire: pairs with the Release in `BatchStack::push`.
            match self.top.compare_exchange_weak(top.word, none, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return top.link(),
                Err(word) => top.word = word,
            }
            self.retries.fetch_add(1, Ordering::Relaxed);
        }
        Link::NONE
    }

    /// The topmost batch, for a walk over a stack that is not in use.
    pub(super) fn top_at_rest(&self, links: impl Links) -> Link {
        // Acquire: pairs with the Release in `BatchStack::push`.
        self.top(links, Ordering::Acquire).link()
    }
}

#[cfg(all(test, loom))]
mod loom_models;
#[cfg(all(test, not(loom)))]
mod tests;
