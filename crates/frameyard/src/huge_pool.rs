//! Pools of huge pages in ordinary memory, whose page structures take almost no memory (the kernel's hugetlbfs with
//! HVO).
//!
//! A pool takes blocks of 2 MiB or 1 GiB from the free lists and keeps them. While a page is in a pool, only the page
//! structure of its head is used. Those of the tails are zero, as inside any block, and are not written until the page
//! leaves the pool. So the memory behind them can go back to the host
//! ([`MemoryBacking::release_tails`](crate::platform::MemoryBacking::release_tails)), and reads there return zeroes. Of each
//! huge page one map page remains, the one with the head.
//!
//! | page | map pages of 4 KiB | remain |
//! |---|---|---|
//! | 2 MiB | 8 | 1 |
//! | 1 GiB | 4096 | 1 |
//!
//! # States
//!
//! The head's tag is [`FrameState::Pooled`] while the page is in a pool. Its word of counts says more:
//!
//! - no references: the page is free. It is on the pool's list, or in the hands of the one caller that is taking it off
//!   or putting it on;
//! - references: the page is handed out. Each handle ([`HugePage`](crate::huge_pages::HugePage)), mapping and pin is a
//!   reference. The caller that puts the last one puts the page on the pool's list. Handles are counted as mappings, so
//!   releasing pins by number cannot take away their references.
//!
//! The owner's word has [`OwnerKind::HUGE_PAGES`], and a bit while the page is handed out by number. A free by number
//! clears the bit under the pool's lock, so if two frees race, one wins and the other changes nothing.
//!
//! # Locking
//!
//! One lock for each zone and page size guards the list, its counts, and the change of a tag from or to `Pooled`. No other lock is
//! taken while it is held. References are got and put without it, as those of every counted block.
//!
//! # Counting equations
//!
//! Of a pool at rest: `pages` = pooled heads of the zone and size; `free` = those without references = the length of the list;
//! `released` = the sum of their index words.

use crate::memmap::MemMap;
use crate::owners::OwnerKind;
use crate::page::{CountedPage, Counts, FrameState, Link};
use crate::platform::{LockError, LockId, Platform};
use crate::sync::{AtomicU64, Ordering};
use crate::units::{ByteSize, NodeId, Order, PageCount, Pfn, PfnRange, ZoneId, errors, named};
use crate::zone::{HugePool, POOLED_ORDERS, PageblockMap};

/// The sizes of huge pages.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum HugePageSize {
    /// 2^9 frames: 2 MiB of frames of 4 KiB.
    Huge,
    /// 2^18 frames: 1 GiB of frames of 4 KiB.
    Gigantic,
}

named!(HugePageSize: Huge => "huge", Gigantic => "gigantic");

impl HugePageSize {
    /// The frames of a page, as an order.
    #[must_use]
    pub const fn order(self) -> Order {
        POOLED_ORDERS[self as usize]
    }

    /// The size with that order, if there is one.
    #[must_use]
    pub fn of_order(order: Order) -> Option<Self> {
        Self::ALL.into_iter().find(|size| size.order() == order)
    }
}

/// Statistics of one pool or of several. Read without a lock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct HugePoolStatistics {
    /// All pages.
    pub pages: u64,
    /// Those that are not handed out.
    pub free: u64,
    /// Memory behind the page structures of their tails that was given back to the host. If the host had never provided
    /// some of it, less was actually saved.
    pub map_returned: ByteSize,
}

errors! {
    /// Why an operation on a pool of huge pages failed.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[non_exhaustive]
    pub enum HugePageError {
        /// The yard's page structures have kernel-like content: those of tails are not zero.
        KernelContent = "page structures of kernel-like content differ from tail to tail: a pool of huge pages needs a map of zeroes",
        /// No such node.
        NoSuchNode(node: NodeId) = "{node} does not exist",
        /// All pages of this size are handed out.
        Exhausted(size: HugePageSize) = "no {size} page is free in the pool: reserve more, or wait for one",
        /// No page of this size begins at the frame in a pool.
        NotPooled {
            /// The frame.
            pfn: Pfn,
            /// The size.
            size: HugePageSize,
        } = "{pfn} is not the first frame of a {size} page of a pool",
        /// The page is not handed out by number: it is free, or a handle owns it.
        NotHandedOut(pfn: Pfn) = "the page at {pfn} is free in its pool, or a handle owns it",
        /// The host has no memory for the page structures of the tails. The page stays in the pool.
        NoMapMemory(frames: PfnRange) = "no memory for the page structures of {frames}",
        /// Another process holds a lock and does not release it, or has damaged the yard.
        Lock(error: LockError) = "{error}",
    }
}

/// The bit of the owner's word of a page that is handed out by number.
const BY_NUMBER: u64 = 1 << 63;
/// The owner's word of a page that is free, or that handles own.
const POOLED: u64 = OwnerKind::HUGE_PAGES.0 as u64;

/// The users of a page that was just handed out: a handle.
const ONE_HANDLE: Counts = Counts { references: 1, mappings: 1 };

/// A pool with what its operations need.
pub(crate) struct PoolView<'a, P> {
    pub(crate) pool: &'static HugePool,
    pub(crate) zone: ZoneId,
    pub(crate) size: HugePageSize,
    pub(crate) map: MemMap,
    pub(crate) blocks: PageblockMap<'static>,
    pub(crate) platform: &'a P,
}

impl<'a, P: Platform> PoolView<'a, P> {
    pub(crate) fn id(&self) -> LockId {
        LockId::HugePages(self.zone, self.size.order())
    }

    /// Free pages, possibly stale.
    pub(crate) fn free_racy(&self) -> u64 {
        self.pool.free.load(Ordering::Relaxed)
    }

    pub(crate) fn statistics(&self) -> HugePoolStatistics {
        let read = |word: &AtomicU64| word.load(Ordering::Relaxed);
        HugePoolStatistics {
            pages: read(&self.pool.pages),
            free: read(&self.pool.free),
            map_returned: ByteSize(read(&self.pool.released)),
        }
    }

    /// The page structure of a head of this pool. It may leave the pool at once, unless the caller has a reference, the pool's lock,
    /// or the page alone.
    pub(crate) fn head(&self, pfn: Pfn) -> Option<CountedPage<'a, P>> {
        let place = self.map.check(pfn).filter(|_| pfn.is_aligned(self.size.order()) && self.blocks.has_memory(pfn))?;
        // Another process may have written a tag there. The whole page lies in the map, at consecutive places.
        let last = self.size.order().pages().0 - 1;
        if self.map.place(pfn + PageCount(last)) as u64 != u64::from(place) + last {
            return None;
        }
        let page = CountedPage::new(self.map.page((pfn, place), self.platform), self.map.content().no_users());
        let tag = page.tag();
        (tag.is_block(FrameState::Pooled, self.size.order()) && tag.zone() == self.zone).then_some(page)
    }

    /// Takes the pool's lock.
    pub(crate) fn lock(self) -> Result<LockedPool<'a, P>, LockError> {
        let guard = self.platform.guard();
        self.platform.lock(self.id(), &self.pool.lock)?;
        Ok(LockedPool { view: self, _guard: guard })
    }
}

/// A pool whose lock is held until this is dropped.
pub(crate) struct LockedPool<'a, P: Platform> {
    view: PoolView<'a, P>,
    /// Dropped after the unlock in `drop`.
    _guard: P::Guard,
}

impl<P: Platform> Drop for LockedPool<'_, P> {
    fn drop(&mut self) {
        self.view.platform.unlock(self.view.id(), &self.view.pool.lock);
    }
}

impl<'a, P: Platform> LockedPool<'a, P> {
    /// Adds to a count that the lock guards.
    fn add(count: &AtomicU64, amount: u64) {
        count.store(count.load(Ordering::Relaxed).wrapping_add(amount), Ordering::Relaxed);
    }

    /// Counts a new page. The caller has it alone, and pushes it afterwards.
    pub(crate) fn add_page(&self, page: CountedPage<'a, P>) {
        Self::add(&self.view.pool.pages, 1);
        Self::add(&self.view.pool.released, page.index());
    }

    /// Forgets a page that the caller has popped.
    pub(crate) fn remove_page(&self, page: CountedPage<'a, P>) {
        Self::add(&self.view.pool.pages, 1_u64.wrapping_neg());
        Self::add(&self.view.pool.released, page.index().wrapping_neg());
    }

    /// Puts a page on the list. The caller has it alone.
    pub(crate) fn push(&self, page: CountedPage<'a, P>) {
        let pool = self.view.pool;
        page.set_owner(POOLED);
        page.set_next(Link::from_bits(pool.first.load(Ordering::Relaxed)));
        pool.first.store(self.view.map.link(page.pfn()).bits(), Ordering::Relaxed);
        Self::add(&pool.free, 1);
    }

    /// Takes a page off the list. The caller has it alone then.
    pub(crate) fn pop(&self) -> Option<CountedPage<'a, P>> {
        let pool = self.view.pool;
        let first = Link::from_bits(pool.first.load(Ordering::Relaxed));
        if first == Link::NONE {
            return None;
        }
        let page = self.view.map.linked(first).and_then(|pfn| self.free_page(pfn));
        let Some(page) = page else {
            // The rest of the list is lost.
            self.view.platform.note_corrupt(self.view.id());
            pool.first.store(Link::NONE.bits(), Ordering::Relaxed);
            pool.free.store(0, Ordering::Relaxed);
            return None;
        };
        pool.first.store(page.next().bits(), Ordering::Relaxed);
        page.set_next(Link::NONE);
        Self::add(&pool.free, 1_u64.wrapping_neg());
        Some(page)
    }

    fn free_page(&self, pfn: Pfn) -> Option<CountedPage<'a, P>> {
        self.view.head(pfn).filter(|page| page.counts() == Counts::default())
    }

    /// Takes a page off the list and gives it one user.
    pub(crate) fn hand_out(&self) -> Option<CountedPage<'a, P>> {
        self.pop().inspect(|page| page.set_counts(ONE_HANDLE))
    }

    /// The page at a frame, if it is handed out by number. It is not afterwards: the caller has the reference that belonged to the
    /// number.
    pub(crate) fn claim_number(&self, pfn: Pfn) -> Result<CountedPage<'a, P>, HugePageError> {
        let size = self.view.size;
        let page = self.view.head(pfn).ok_or(HugePageError::NotPooled { pfn, size })?;
        match page.clear_owner_bits(BY_NUMBER) & BY_NUMBER {
            0 => Err(HugePageError::NotHandedOut(pfn)),
            _ => Ok(page),
        }
    }

    /// The frames on the list, at most one more than the count says. For the validator.
    pub(crate) fn listed(&self) -> impl Iterator<Item = Result<Pfn, Pfn>> + use<'_, 'a, P> {
        let mut at = Link::from_bits(self.view.pool.first.load(Ordering::Relaxed));
        let mut left = self.view.free_racy().min(self.view.map.places()).saturating_add(1);
        core::iter::from_fn(move || {
            let named = self.view.map.named(at).filter(|_| left > 0)?;
            left -= 1;
            let page = self.view.map.linked(at).and_then(|pfn| self.free_page(pfn));
            at = page.map_or(Link::NONE, |page| page.next());
            Some(page.map(|page| page.pfn()).ok_or(named))
        })
    }
}

/// Since when a page is handed out by number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Numbered {
    /// The caller's reference belongs to the number from now on.
    Now,
    /// Another reference does already.
    Before,
}

/// Hands a page out by number.
pub(crate) fn give_number<P: Platform>(page: CountedPage<'_, P>) -> Numbered {
    if page.set_owner_bits(BY_NUMBER) & BY_NUMBER == 0 { Numbered::Now } else { Numbered::Before }
}

/// Whether the words of a pooled head are as its state allows: its owner's word, and users only while it is off the list.
pub(crate) fn is_sound<P: Platform>(page: CountedPage<'_, P>) -> bool {
    let (owner, counts) = (page.owner(), page.counts());
    let is_known = owner & !BY_NUMBER == POOLED && page.prev() == Link::NONE;
    is_known && counts.references >= counts.mappings && (owner == POOLED || counts.references > 0)
}
