//! Counted blocks: from an allocation to an owner, from one owner to another, and back to the free lists.

use crate::boot::HeaderWord;
use crate::memmap::{Located, MapPlace};
use crate::owners::Ownership;
use crate::page::{CountedPage, Counts, FrameState, Link, Tag};
use crate::platform::Platform;
use crate::request::bulk::BulkFree;
use crate::sync::Ordering;
use crate::units::{Order, PageCount, Pfn};
use crate::yard::{CountedBlocks, FreeError, Yard};

impl<P: Platform> Yard<P> {
    #[inline(always)]
    fn counted_at(&self, frame: impl Located<Name = Pfn>) -> CountedPage<'_, P> {
        CountedPage::new(self.map.page(frame, &self.platform), self.map.content().no_users())
    }

    /// The page of a frame, if it has memory.
    #[inline(always)]
    fn counted_with_memory(&self, frame: (Pfn, MapPlace)) -> Option<CountedPage<'_, P>> {
        self.pageblocks().has_memory_at(frame.1.index() as usize).then(|| self.counted_at(frame))
    }

    /// Takes a counted block without users out of its owner's hands. The caller holds it exclusively.
    #[inline(always)]
    fn leave(&self, pfn: Pfn, order: Order) -> Result<Tag, FreeError> {
        let page = self.unused(pfn, order)?;
        page.clear();
        let tag = page.tag().with_state(FrameState::PerCpu);
        page.set_tag(self.tag_without_owner(pfn, tag));
        Ok(tag)
    }

    /// Claims a counted block without users by its state; only one caller succeeds.
    #[inline(always)]
    fn unused(&self, pfn: Pfn, order: Order) -> Result<CountedPage<'_, P>, FreeError> {
        if let Some(page) = self.map.check(pfn).and_then(|place| self.counted_with_memory((pfn, place))) {
            let tag = page.tag();
            if tag.is_block(FrameState::Counted, order)
                && tag.of_block_at(pfn, self.geometry.max_order()) == tag
                && page.counts() == Counts::default()
                && page.replace_tag(tag, tag.with_state(FrameState::InTransit)).is_ok()
            {
                return Ok(page);
            }
        }
        Err(self.refuse(pfn, order))
    }
}

impl<'y, P: Platform> CountedBlocks<'y, P> {
    /// The link that names a frame.
    ///
    /// # Panics
    ///
    /// With debug assertions, if the frame is outside the memory map.
    #[inline(always)]
    pub fn link(self, pfn: Pfn) -> Link {
        let yard = self.yard;
        debug_assert!(yard.map.range().contains(pfn), "{pfn} is not in the memory map");
        yard.map.link(pfn)
    }

    /// The frame that a link names; `None` for [`FrameLink::NONE`](crate::page::FrameLink::NONE) and for a value that
    /// is not a link of this yard.
    #[inline(always)]
    pub fn linked(self, link: Link) -> Option<Pfn> {
        self.yard.map.linked(link).filter(|pfn| *pfn < self.yard.map.range().end)
    }

    /// The page structure of a frame, for reference counting; `None` if there is none, or if it is not initialised yet.
    /// Any frame number is allowed, whatever block begins there.
    ///
    /// # Safety
    ///
    /// The caller follows the protocol of [`CountedPage`]. Only the owner of a counted block, or a caller that holds it
    /// exclusively, changes words and links. A caller that has neither a reference nor exclusive hold may change counts
    /// only with [`CountedPage::try_get`]. Anything else corrupts the free lists and allocates frames twice.
    #[inline(always)]
    pub unsafe fn page(self, pfn: Pfn) -> Option<CountedPage<'y, P>> {
        self.yard.map.check(pfn).and_then(|place| self.yard.counted_with_memory((pfn, place)))
    }

    /// As [`page`](Self::page), for the frame that a link names; also `None` if [`linked`](Self::linked) returns
    /// `None`.
    ///
    /// # Safety
    ///
    /// As for [`page`](Self::page).
    #[inline(always)]
    pub unsafe fn linked_page(self, link: Link) -> Option<CountedPage<'y, P>> {
        self.yard.map.next(link).and_then(|place| self.yard.counted_with_memory((self.yard.map.pfn(place), place)))
    }

    /// As [`page`](Self::page), but without checking that the frame has a page structure: it must have been allocated
    /// from this yard.
    ///
    /// # Safety
    ///
    /// As for [`page`](Self::page). In addition, the frame has been allocated from this yard at some time.
    #[inline(always)]
    pub unsafe fn allocated_page(self, pfn: Pfn) -> CountedPage<'y, P> {
        let yard = self.yard;
        debug_assert!(yard.pageblocks().has_memory(pfn), "{pfn} has been allocated");
        yard.counted_at(pfn)
    }

    /// As [`linked_page`](Self::linked_page), but without checking that the frame has a page structure: it must have
    /// been allocated from this yard.
    ///
    /// # Safety
    ///
    /// As for [`allocated_page`](Self::allocated_page).
    #[inline(always)]
    pub unsafe fn allocated_linked_page(self, link: Link) -> Option<CountedPage<'y, P>> {
        self.yard.map.next(link).map(|place| self.yard.counted_at((self.yard.map.pfn(place), place)))
    }

    /// Turns an allocated block, which must be the caller's, into a counted one.
    ///
    /// From now on [`Yard::free`] refuses it. If it starts without users, it starts frozen: only the caller has it, and
    /// no other code can get a reference until it is [unfrozen](CountedPage::unfreeze). Cost: its byte in the
    /// allocation map, and the line of its page.
    ///
    /// # Errors
    ///
    /// [`FreeError`] if no such block is allocated there, or if its order is above the yard's maximum;
    /// [split](Yard::split_at) it first. Nothing has changed then.
    #[inline(always)]
    pub fn init_refs(self, pfn: Pfn, order: Order, ownership: Ownership) -> Result<(), FreeError> {
        let yard = self.yard;
        let Some(entry) = yard.allocation_map().clear_allocated(&yard.platform, pfn, order) else {
            return Err(yard.refuse_large(pfn, order));
        };
        let page = yard.counted_at(pfn);
        page.set_index(ownership.index);
        page.set_owner(ownership.owner);
        page.set_counts(ownership.counts);
        // Last: the tag makes it a counted block.
        page.set_tag(Tag::new(FrameState::Counted, order, entry.migrate_type(), yard.zone_of_block(pfn)));
        Ok(())
    }

    /// Turns a counted block without users back into an ordinary allocated one. The caller has it alone, because it put
    /// the last reference or froze the block.
    ///
    /// # Errors
    ///
    /// [`FreeError`] where there is no such counted block, or it has users; nothing has changed then.
    ///
    /// # Safety
    ///
    /// If it is a counted block without users, the caller holds it exclusively: it put the last reference or froze the counts. Another
    /// thread that froze a block still uses its bytes and links.
    #[inline]
    pub unsafe fn clear_refs(self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        let yard = self.yard;
        let tag = yard.leave(pfn, order)?;
        let _ = yard.mark_allocated(pfn, order, tag.migrate_type());
        Ok(())
    }

    /// Frees a counted block without users.
    ///
    /// Cost: that of [`Yard::free`], and a write to the block's page structure.
    ///
    /// # Errors
    ///
    /// [`FreeError`] where there is no such counted block, or it has users; nothing has changed then.
    ///
    /// # Safety
    ///
    /// If it is a counted block without users, the caller holds it exclusively: it put the last reference or froze the counts. Another
    /// thread that froze a block still uses its bytes and links.
    ///
    /// ```compile_fail,E0133
    /// # use frameyard::{FreeError, Order, Pfn, Platform, Yard};
    /// fn free_by_number<P: Platform>(yard: &Yard<P>, frozen: Pfn) -> Result<(), FreeError> {
    ///     yard.counted().free(frozen, Order(0))
    /// }
    /// ```
    #[inline]
    pub unsafe fn free(self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        let yard = self.yard;
        yard.leave(pfn, order)?;
        yard.free_block(pfn, order);
        Ok(())
    }

    /// Frees single counted frames without users. Takes the per-CPU lock once for all frames that go onto one list.
    ///
    /// # Errors
    ///
    /// [`FreeError`] names the first frame that is not a counted block without users. The remaining frames are still
    /// freed.
    ///
    /// # Safety
    ///
    /// The caller exclusively holds all those of the frames that are counted blocks without users: it put the last
    /// reference or froze the counts. Another thread that froze a block still uses its bytes and links.
    pub unsafe fn free_bulk(self, frames: &[Pfn]) -> Result<(), FreeError> {
        let yard = self.yard;
        let mut bulk = BulkFree::new(yard);
        let mut problem = None;
        for pfn in frames.iter().copied() {
            match yard.leave(pfn, Order::ZERO) {
                Ok(_) => bulk.free(yard.map.place(pfn)),
                Err(refused) => _ = problem.get_or_insert(refused),
            }
        }
        problem.map_or(Ok(()), Err)
    }

    /// Splits a counted block that the caller has alone into single frames. Each of them is a counted block, frozen,
    /// and the caller's alone. Their owner words are those of a fresh page.
    ///
    /// # Errors
    ///
    /// [`FreeError`] where there is no such counted block, or it has users; nothing has changed then.
    ///
    /// # Safety
    ///
    /// If it is a counted block without users, the caller holds it exclusively: it put the last reference or froze the counts. Another
    /// thread that froze a block still uses its bytes and links.
    pub unsafe fn split(self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        let yard = self.yard;
        let page = yard.unused(pfn, order)?;
        page.clear();
        let tag = page.tag();
        let single = Tag::new(FrameState::Counted, Order::ZERO, tag.migrate_type(), tag.zone());
        // The head last: its tag covers the block until then, so every frame stays in some block.
        for offset in (0..order.pages().0).rev() {
            let part = yard.counted_at(pfn + PageCount(offset));
            part.set_counts(Counts::default());
            part.set_tag(single);
        }
        Ok(())
    }

    /// The frame at which owners in all processes find their state; `None` while there is none.
    pub fn anchor(self) -> Option<Pfn> {
        // Acquire: pairs with the Release in `set_anchor`.
        self.yard.tables.word(HeaderWord::Anchor).load(Ordering::Acquire).checked_sub(1).map(Pfn)
    }

    /// Replaces the frame at which owners in all processes find their state, if it is still `from`; `None` stands for
    /// no frame.
    ///
    /// # Errors
    ///
    /// The current frame, if it is not `from`; nothing has changed then.
    ///
    /// # Safety
    ///
    /// Code that finds the anchor trusts the frame. Until the anchor is removed, `to` is the head of a counted block that keeps its
    /// users, and its bytes are the state of the owner that its page names.
    pub unsafe fn set_anchor(self, from: Option<Pfn>, to: Option<Pfn>) -> Result<(), Option<Pfn>> {
        let bits = |pfn: Option<Pfn>| pfn.map_or(0, |pfn| pfn.0 + 1);
        let word = self.yard.tables.word(HeaderWord::Anchor);
        // Release: pairs with the Acquire in `anchor`; a reader of the anchor sees what was written there before.
        let changed = word.compare_exchange(bits(from), bits(to), Ordering::AcqRel, Ordering::Acquire);
        changed.map(|_| ()).map_err(|found| found.checked_sub(1).map(Pfn))
    }
}
