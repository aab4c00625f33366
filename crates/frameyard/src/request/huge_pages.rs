//! Pools of huge pages: growing and shrinking a pool, and handing out its pages.

use core::fmt;
use core::mem;
use core::ptr::NonNull;

use crate::gfp::Gfp;
use crate::huge_pool::{HugePageError, HugePageSize, HugePoolStatistics, LockedPool, Numbered, PoolView, give_number};
use crate::owners::Owners;
use crate::page::{CountedPage, Counts, FrameState, MapContent, Page, Tag};
use crate::platform::{HugePageTails, MemoryBacking, Platform};
use crate::request::Frames;
use crate::units::{Block, NodeId, Order, PageCount, Pfn, PfnRange, ZoneId};
use crate::yard::{AllocError, Yard, YardHugePages};
use crate::zone::poison;

/// The outcome of a reservation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reserved {
    /// The pages that were added to the pool.
    pub pages: u64,
    /// Why fewer pages were added than requested; `None` if all were added.
    pub stopped: Option<AllocError>,
}

/// The flags of the memory of a pool: unmovable, as no owner could move a page that is handed out.
const FLAGS: Gfp = Gfp::KERNEL.union(Gfp::COMP).union(Gfp::NOWARN);

/// A handle of a huge page that a pool has handed out. The page returns to the pool when the last handle, mapping and
/// pin is gone.
///
/// A pool does not zero pages, so the bytes are those that the last user left.
pub struct HugePage<'y, P: Platform> {
    yard: &'y Yard<P>,
    pfn: Pfn,
    size: HugePageSize,
}

impl<P: Platform> Yard<P> {
    /// The pool of a size in a zone.
    pub(crate) fn pool(&self, zone: ZoneId, size: HugePageSize) -> PoolView<'_, P> {
        let zone = self.tables.known_zone(zone);
        let pool = &self.tables.zones[zone.index()].huge_pools[size as usize];
        PoolView { pool, zone, size, map: self.map, blocks: self.pageblocks(), platform: &self.platform }
    }

    /// The pool that a pooled head of that size names.
    fn pool_of(&self, pfn: Pfn, size: HugePageSize) -> Result<PoolView<'_, P>, HugePageError> {
        let zone = self.page_of(pfn).map(|page| page.tag().zone()).filter(|_| pfn.is_aligned(size.order()));
        let pool = zone.map(|zone| self.pool(zone, size)).filter(|pool| pool.head(pfn).is_some());
        pool.ok_or(HugePageError::NotPooled { pfn, size })
    }

    /// The head of the pooled page around a frame, and the page's size. Any frame number is allowed.
    #[inline(always)]
    pub(crate) fn pooled_around(&self, pfn: Pfn) -> Option<(Pfn, HugePageSize)> {
        HugePageSize::ALL.into_iter().find_map(|size| {
            let head = pfn.align_down(size.order());
            let tag = self.page_of(head)?.tag();
            tag.is_block(FrameState::Pooled, size.order()).then_some((head, size))
        })
    }

    /// The block that covers a frame of initialised memory; the frame itself with an interior tag if there is none.
    pub(crate) fn covering(&self, pfn: Pfn) -> (Pfn, Tag) {
        self.any_zone_view().covering_block(pfn)
    }

    /// The state that users see of a block with this head and tag. A frame that is free as a bit has no tag of its own, so internally it looks
    /// like one on a per-CPU list.
    pub(crate) fn visible_state(&self, head: Pfn, tag: Tag) -> FrameState {
        let is_bit = || self.tables.store.is_free_bit_racy(self.map.place(head));
        if tag.is_block(FrameState::PerCpu, Order::ZERO) && is_bit() { FrameState::BuddyFree } else { tag.state() }
    }

    /// The tails of a page whose structures lie outside the map page of its head.
    fn released_tails(&self, head: Pfn, size: HugePageSize) -> PfnRange {
        let kept = (self.geometry.page_size().0 / size_of::<Page>() as u64).min(size.order().pages().0);
        PfnRange { start: head + PageCount(kept), end: head + size.order().pages() }
    }

    /// Makes a pooled page of frames that a guard owns. It has no users, and only the caller has it.
    fn make_pooled(&self, frames: Frames<'_, P>, size: HugePageSize) -> Pfn {
        let range = frames.into_raw();
        let head = self.map.page(range.start, &self.platform);
        let first = head.tag();
        let page = CountedPage::new(head, self.map.content().no_users());
        page.set_counts(Counts::default());
        // The head first: its tag covers all blocks from now on.
        head.set_tag(Tag::new(FrameState::Pooled, size.order(), first.migrate_type(), first.zone()));
        self.note_tagged(range.start, size.order());
        for block in range.blocks(self.geometry.max_order()).skip(1) {
            self.map.page(block.pfn, &self.platform).set_tag(Tag::INTERIOR);
        }
        let tails = self.released_tails(range.start, size);
        let returned = match tails.is_empty() {
            true => 0,
            false => self.platform.backing().release_tails(&HugePageTails::new(tails, self.map.memory_of(tails))).0,
        };
        page.set_index(returned);
        range.start
    }

    /// Frees a pooled page that only the caller has and that is on no list.
    ///
    /// # Errors
    ///
    /// [`HugePageError::NoMapMemory`]; the page is as before.
    fn free_pooled(&self, page: CountedPage<'_, P>, size: HugePageSize) -> Result<(), HugePageError> {
        let (head, tag) = (page.pfn(), page.tag());
        let tails = self.released_tails(head, size);
        if !tails.is_empty() {
            let (address, bytes) = self.map.memory_of(tails);
            self.platform.backing().back_map(tails, address, bytes).map_err(|_| HugePageError::NoMapMemory(tails))?;
        }
        page.clear();
        let range = PfnRange::new(head, size.order().pages());
        let blocks = || range.blocks(self.geometry.max_order());
        let tagged = |order| Tag::new(FrameState::PerCpu, order, tag.migrate_type(), tag.zone());
        for Block { pfn, order } in blocks().skip(1) {
            self.map.page(pfn, &self.platform).set_tag(tagged(order));
        }
        // The head last: its tag covers all blocks until then.
        page.set_tag(tagged(blocks().next().map_or(size.order(), |block| block.order)));
        blocks().for_each(|Block { pfn, order }| self.free_block(pfn, order));
        Ok(())
    }

    /// Puts the reference of a handle. The page returns to its pool if it was the last.
    fn put_handle(&self, page: CountedPage<'_, P>) -> Result<(), HugePageError> {
        match page.unmap() {
            Ok(0) => self.take_back(page),
            // An underflow: another process has changed the count. The page is lost.
            _ => Ok(()),
        }
    }

    /// Puts a page without users, which only the caller has, on the list of its pool.
    fn take_back(&self, page: CountedPage<'_, P>) -> Result<(), HugePageError> {
        let tag = page.tag();
        let size = HugePageSize::of_order(tag.order()).ok_or(HugePageError::NotHandedOut(page.pfn()))?;
        self.locked_pool(tag.zone(), size)?.push(page);
        Ok(())
    }

    fn locked_pool(&self, zone: ZoneId, size: HugePageSize) -> Result<LockedPool<'_, P>, HugePageError> {
        self.pool(zone, size).lock().map_err(HugePageError::Lock)
    }
}

impl<'y, P: Platform> YardHugePages<'y, P> {
    /// Adds pages to the pool. They are blocks from the free lists or, for sizes above the maximum order, contiguous
    /// ranges. Memory of the caller's node is preferred.
    ///
    /// `owners` may move or reclaim blocks in use to make room. The call stops at the first page that it cannot get.
    ///
    /// # Errors
    ///
    /// [`HugePageError::KernelContent`], [`HugePageError::Lock`]. Too little free memory is not an error: [`Reserved`]
    /// says how many pages were added and what stopped the call.
    ///
    /// # Cost
    ///
    /// For each page: that of its allocation, one call to [`MemoryBacking::release_tails`](crate::platform::MemoryBacking::release_tails),
    /// and one hold of the pool's lock.
    pub fn reserve(self, size: HugePageSize, pages: u64, owners: &Owners<'_>) -> Result<Reserved, HugePageError> {
        self.reserve_in(size, pages, None, owners)
    }

    /// As [`reserve`](Self::reserve), but with memory of that node only.
    ///
    /// # Errors
    ///
    /// As there; [`HugePageError::NoSuchNode`].
    pub fn reserve_on(
        self,
        node: NodeId,
        size: HugePageSize,
        pages: u64,
        owners: &Owners<'_>,
    ) -> Result<Reserved, HugePageError> {
        self.check_node(node)?;
        self.reserve_in(size, pages, Some(node), owners)
    }

    fn reserve_in(
        self,
        size: HugePageSize,
        pages: u64,
        node: Option<NodeId>,
        owners: &Owners<'_>,
    ) -> Result<Reserved, HugePageError> {
        if self.yard.map.content() != MapContent::Zero {
            return Err(HugePageError::KernelContent);
        }
        let mut reserved = Reserved { pages: 0, stopped: None };
        while reserved.pages < pages {
            match self.new_page(size, node, owners) {
                Ok(frames) => self.add(frames, size)?,
                Err(problem) => {
                    reserved.stopped = Some(problem);
                    break;
                }
            }
            reserved.pages += 1;
        }
        Ok(reserved)
    }

    /// Allocates the frames of a page.
    fn new_page(
        self,
        size: HugePageSize,
        node: Option<NodeId>,
        owners: &Owners<'_>,
    ) -> Result<Frames<'y, P>, AllocError> {
        let request = self.yard.request(size.order(), FLAGS).owners(owners);
        let request = match node {
            Some(node) => request.exact_node(node),
            None => request,
        };
        if size.order() <= self.yard.geometry.max_order() {
            request.guard()
        } else {
            request.aligned(size.order()).guard()
        }
    }

    /// Puts the frames of a page in the pool.
    fn add(self, frames: Frames<'y, P>, size: HugePageSize) -> Result<(), HugePageError> {
        let yard = self.yard;
        let page = yard.pooled_page(yard.make_pooled(frames, size));
        match yard.locked_pool(page.tag().zone(), size) {
            Ok(locked) => {
                locked.add_page(page);
                locked.push(page);
                Ok(())
            }
            Err(error) => yard.free_pooled(page, size).and(Err(error)),
        }
    }

    /// Frees up to `pages` pages that are not handed out; returns how many were freed.
    ///
    /// # Errors
    ///
    /// [`HugePageError::NoMapMemory`] if there is no memory for the page structures of a page: that page and the
    /// remaining ones stay in the pool. [`HugePageError::Lock`].
    ///
    /// # Cost
    ///
    /// For each page: one hold of the pool's lock, one call to
    /// [`MemoryBacking::back_map`](crate::platform::MemoryBacking::back_map), and the frees of its blocks. The page
    /// structures of tails get memory when they are next written, with a host page fault for each map page.
    pub fn shrink(self, size: HugePageSize, pages: u64) -> Result<u64, HugePageError> {
        let mut freed = 0;
        for view in self.yard.populated_zones() {
            while freed < pages {
                let locked = self.yard.locked_pool(view.id, size)?;
                let Some(page) = locked.pop() else { break };
                locked.remove_page(page);
                drop(locked);
                if let Err(problem) = self.yard.free_pooled(page, size) {
                    let locked = self.yard.locked_pool(view.id, size)?;
                    locked.add_page(page);
                    locked.push(page);
                    return Err(problem);
                }
                freed += 1;
            }
        }
        Ok(freed)
    }

    /// Hands out a page, from the caller's node if possible.
    ///
    /// # Errors
    ///
    /// [`HugePageError::Exhausted`], [`HugePageError::Lock`].
    ///
    /// # Cost
    ///
    /// One hold of a pool's lock, and the cache line of the head's page structure.
    pub fn alloc(self, size: HugePageSize) -> Result<HugePage<'y, P>, HugePageError> {
        self.alloc_preferring(self.yard.node_of_cpu(self.yard.cpu()), size)
    }

    /// As [`alloc`](Self::alloc), but from that node or else the nearest one that has such a page.
    ///
    /// # Errors
    ///
    /// As there; [`HugePageError::NoSuchNode`].
    pub fn alloc_preferring(self, node: NodeId, size: HugePageSize) -> Result<HugePage<'y, P>, HugePageError> {
        self.check_node(node)?;
        let yard = self.yard;
        for pool in yard.tables.zonelist(node).map(|zone| yard.pool(zone, size)).filter(|pool| pool.free_racy() > 0) {
            let page = pool.lock().map_err(HugePageError::Lock)?.hand_out();
            if let Some(page) = page {
                return Ok(HugePage { yard, pfn: page.pfn(), size });
            }
        }
        Err(HugePageError::Exhausted(size))
    }

    /// Takes back a page that [`HugePage::into_pfn`] handed out by number. It is free once its other handles, mappings
    /// and pins are gone.
    ///
    /// # Errors
    ///
    /// [`HugePageError::NotPooled`], [`HugePageError::NotHandedOut`]; nothing has changed then. If two threads free the
    /// same page at once, one of them succeeds. [`HugePageError::Lock`].
    ///
    /// # Cost
    ///
    /// Two holds of the pool's lock.
    pub fn free(self, pfn: Pfn, size: HugePageSize) -> Result<(), HugePageError> {
        let page = self.yard.pool_of(pfn, size)?.lock().map_err(HugePageError::Lock)?.claim_number(pfn)?;
        self.yard.put_handle(page)
    }

    /// Turns a page that [`HugePage::into_pfn`] handed out by number back into a handle. The number is no longer valid
    /// afterwards.
    ///
    /// # Errors
    ///
    /// As [`free`](Self::free). Cost: one hold of the pool's lock.
    pub fn handle(self, pfn: Pfn, size: HugePageSize) -> Result<HugePage<'y, P>, HugePageError> {
        let _page = self.yard.pool_of(pfn, size)?.lock().map_err(HugePageError::Lock)?.claim_number(pfn)?;
        Ok(HugePage { yard: self.yard, pfn, size })
    }

    /// Takes back a page whose last reference the caller has put through its [`CountedPage`].
    ///
    /// # Errors
    ///
    /// [`HugePageError::NotPooled`], [`HugePageError::Lock`].
    ///
    /// # Safety
    ///
    /// If a pooled page begins at `pfn`, the caller has put its last reference, and no other code takes it back.
    pub unsafe fn take_back(self, pfn: Pfn) -> Result<(), HugePageError> {
        let size = HugePageSize::Huge;
        let found = self.at(pfn).filter(|(head, _)| *head == pfn);
        found.ok_or(HugePageError::NotPooled { pfn, size })?;
        self.yard.take_back(self.yard.pooled_page(pfn))
    }

    /// The first frame and the size of the pooled page that a frame belongs to. Any frame number is allowed. Unless the
    /// caller has a reference, the page may leave the pool at any time.
    ///
    /// Cost: the page structures of up to two heads.
    #[inline]
    pub fn at(self, pfn: Pfn) -> Option<(Pfn, HugePageSize)> {
        self.yard.pooled_around(pfn)
    }

    /// Statistics of the pages of a size, summed over all zones.
    pub fn statistics(self, size: HugePageSize) -> HugePoolStatistics {
        let mut sum = HugePoolStatistics::default();
        for view in self.yard.populated_zones() {
            let of = self.yard.pool(view.id, size).statistics();
            // Another process may have written anything there.
            sum.pages = sum.pages.wrapping_add(of.pages);
            sum.free = sum.free.wrapping_add(of.free);
            sum.map_returned.0 = sum.map_returned.0.wrapping_add(of.map_returned.0);
        }
        sum
    }

    fn check_node(self, node: NodeId) -> Result<(), HugePageError> {
        if node.0 < self.yard.nodes() { Ok(()) } else { Err(HugePageError::NoSuchNode(node)) }
    }
}

impl<P: Platform> Yard<P> {
    /// The page structure of a pooled head.
    fn pooled_page(&self, head: Pfn) -> CountedPage<'_, P> {
        CountedPage::new(self.map.page(head, &self.platform), self.map.content().no_users())
    }
}

impl<'y, P: Platform> HugePage<'y, P> {
    /// The first frame.
    pub fn pfn(&self) -> Pfn {
        self.pfn
    }

    /// The size.
    pub fn size(&self) -> HugePageSize {
        self.size
    }

    /// All frames.
    pub fn frames(&self) -> PfnRange {
        PfnRange::new(self.pfn, self.size.order().pages())
    }

    /// The users of the page: handles, mappings and pins. Handles count as mappings. Possibly stale.
    pub fn users(&self) -> Counts {
        self.yard.pooled_page(self.pfn).counts()
    }

    /// The address of the bytes, if the platform maps them contiguously. Other handles and mappings access the same
    /// bytes.
    pub fn as_ptr(&self) -> Option<NonNull<u8>> {
        poison::bytes_of(&self.yard.platform, self.yard.geometry, self.frames())
    }

    /// Consumes the handle without giving the page back. [`YardHugePages::free`] gives it back by number, and
    /// [`YardHugePages::handle`] makes a handle of it again.
    ///
    /// A page is handed out by number only once: if that has happened with another of its handles, this handle is just
    /// dropped.
    #[must_use = "the page stays handed out"]
    pub fn into_pfn(self) -> Pfn {
        let pfn = self.pfn;
        match give_number(self.yard.pooled_page(pfn)) {
            Numbered::Now => mem::forget(self),
            Numbered::Before => drop(self),
        }
        pfn
    }
}

impl<P: Platform> Clone for HugePage<'_, P> {
    /// Makes another handle of the same page. Cost: an atomic addition.
    fn clone(&self) -> Self {
        self.yard.pooled_page(self.pfn).map();
        Self { yard: self.yard, pfn: self.pfn, size: self.size }
    }
}

impl<P: Platform> Drop for HugePage<'_, P> {
    fn drop(&mut self) {
        // If another process has damaged the pool, the page is lost. The platform keeps the error of a lock.
        let _ = self.yard.put_handle(self.yard.pooled_page(self.pfn));
    }
}

impl<P: Platform> fmt::Debug for HugePage<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HugePage").field("pfn", &self.pfn).field("size", &self.size).finish_non_exhaustive()
    }
}
