//! Blocks whose owner counts their users: from allocation to owner, to another owner, and back to the free lists.

use super::{FreeError, Yard};
use crate::boot::Poisoning;
use crate::owners::Adoption;
use crate::page::{CountedPage, Counts, FrameState, Link, Tag};
use crate::platform::Platform;
use crate::units::{Order, Pfn, ZoneId};
use crate::zone::pcp::{ListId, LockedPcp};

impl<P: Platform> Yard<P> {
    /// The link that names a frame.
    ///
    /// # Panics
    ///
    /// With debug assertions, where the frame is outside the memory map.
    #[inline(always)]
    pub fn link(&self, pfn: Pfn) -> Link {
        debug_assert!(self.map.range().contains(pfn), "{pfn} is not in the memory map");
        self.map.link(pfn)
    }

    /// The frame that a link names; none for [`FrameLink::NONE`](crate::page::FrameLink::NONE), and for what is no link of this yard.
    #[inline(always)]
    pub fn linked(&self, link: Link) -> Option<Pfn> {
        self.map.linked(link).filter(|pfn| *pfn < self.map.range().end)
    }

    /// The page structure of a frame, to count users in; `None` where there is none, or none yet. Any frame may be asked
    /// for, and anything may begin there.
    ///
    /// # Safety
    ///
    /// What the page's methods change is changed only by who may, by the protocol of [`CountedPage`]: words and links by
    /// the owner of a counted block or by who has it alone, counts by [`CountedPage::try_get`] alone unless the caller has
    /// a reference or the block alone. Anything else breaks the free lists, and frames are handed out twice.
    #[inline(always)]
    pub unsafe fn counted_page(&self, pfn: Pfn) -> Option<CountedPage<'_, P>> {
        self.pageblocks().has_memory(pfn).then(|| self.counted(pfn))
    }

    /// As [`counted_page`](Self::counted_page), for a frame that this yard has given out: there is nothing to look up.
    ///
    /// # Safety
    ///
    /// As there; and the frame has been allocated from this yard, at any time.
    #[inline(always)]
    pub unsafe fn allocated_page(&self, pfn: Pfn) -> CountedPage<'_, P> {
        debug_assert!(self.pageblocks().has_memory(pfn), "{pfn} has been allocated");
        self.counted(pfn)
    }

    #[inline(always)]
    fn counted(&self, pfn: Pfn) -> CountedPage<'_, P> {
        CountedPage::new(self.map.page(pfn, &self.platform), self.map.content().no_users())
    }

    /// Makes an allocated block one whose users are counted. The caller has allocated it.
    ///
    /// From now on [`free`](Self::free) refuses it. Cost: its byte in the table of what is handed out, and the line of its
    /// page.
    ///
    /// # Errors
    ///
    /// [`FreeError`] where no such block is allocated there; nothing has changed then.
    #[inline]
    pub fn adopt(&self, pfn: Pfn, order: Order, adoption: Adoption) -> Result<(), FreeError> {
        debug_assert!(adoption.counts.references > 0, "a counted block has a user");
        let Some(entry) = self.allocation_map.clear_allocated(&self.platform, pfn, order) else {
            return Err(self.refuse(pfn, order));
        };
        let page = self.counted(pfn);
        page.set_index(adoption.index);
        page.set_owner(adoption.owner);
        page.set_counts(adoption.counts);
        // Last: a counted block without users could be freed.
        page.set_tag(Tag::new(FrameState::Counted, order, entry.migrate_type(), self.zone_of_block(pfn)));
        Ok(())
    }

    /// Makes a counted block an ordinary allocated one again: the caller has it alone, by the last put or by freezing it.
    ///
    /// # Errors
    ///
    /// [`FreeError`] where there is no such counted block, or it has users; nothing has changed then.
    #[inline]
    pub fn disown(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        let tag = self.leave(pfn, order)?;
        self.allocation_map.mark_allocated(&self.platform, pfn, order, tag.migrate_type());
        Ok(())
    }

    /// Makes a counted block that the caller has alone one that has no owner, and that nobody else can free.
    #[inline(always)]
    fn leave(&self, pfn: Pfn, order: Order) -> Result<Tag, FreeError> {
        let page = self.unused(pfn, order)?;
        page.clear();
        let tag = page.tag().with_state(FrameState::PerCpu);
        page.set_tag(tag);
        Ok(tag)
    }

    /// A counted block without users, claimed by its state: nobody else finds it so.
    #[inline(always)]
    fn unused(&self, pfn: Pfn, order: Order) -> Result<CountedPage<'_, P>, FreeError> {
        if let Some(page) = self.pageblocks().has_memory(pfn).then(|| self.counted(pfn)) {
            let tag = page.tag();
            if tag.is_block(FrameState::Counted, order)
                && page.counts() == Counts::default()
                && page.replace_tag(tag, tag.with_state(FrameState::InTransit))
            {
                return Ok(page);
            }
        }
        Err(self.refuse(pfn, order))
    }

    /// Frees a counted block that has no users any more.
    ///
    /// Cost: that of [`free`](Self::free), and its page's words are written.
    ///
    /// # Errors
    ///
    /// [`FreeError`] where there is no such counted block, or it has users; nothing has changed then.
    #[inline]
    pub fn free_counted(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        self.leave(pfn, order)?;
        self.put_away(pfn, order);
        Ok(())
    }

    /// Frees single counted frames that have no users any more. The per-CPU lock is taken once for all that go on one list.
    ///
    /// # Errors
    ///
    /// [`FreeError`] names the first frame that is no such block; all others were freed.
    pub fn free_counted_bulk(&self, frames: &[Pfn]) -> Result<(), FreeError> {
        let cpu = self.cpu();
        let mut problem = None;
        let mut held: Option<(ZoneId, LockedPcp<'_, P>)> = None;
        for pfn in frames.iter().copied() {
            let tag = match self.leave(pfn, Order::ZERO) {
                Ok(tag) => tag,
                Err(refused) => {
                    problem.get_or_insert(refused);
                    continue;
                }
            };
            let zone = tag.zone();
            let list = self.fast.blocks.ordinary_type(pfn).and_then(|kind| ListId::small(Order::ZERO, kind));
            if held.as_ref().is_none_or(|(of, _)| *of != zone) {
                drop(held.take());
                let pcp = self.tables.pcp_of(zone, cpu).filter(|_| self.poisoning == Poisoning::Off);
                held = pcp.and_then(|pcp| pcp.try_lock(&self.platform, zone, cpu)).map(|lists| (zone, lists));
            }
            let Some(((_, lists), list)) = held.as_mut().zip(list) else {
                drop(held.take());
                self.put_away(pfn, Order::ZERO);
                continue;
            };
            lists.count_free(list);
            if !lists.push(list, Order::ZERO, self.map.index(pfn)) {
                lists.push_slow(self.zone_view(zone), list, self.map.index(pfn));
            }
        }
        problem.map_or(Ok(()), Err)
    }

    /// Splits a counted block that the caller has alone into single frames, each allocated and the caller's.
    ///
    /// # Errors
    ///
    /// [`FreeError`] where there is no such counted block, or it has users; nothing has changed then.
    pub fn disown_and_split(&self, pfn: Pfn, order: Order) -> Result<(), FreeError> {
        let tag = self.leave(pfn, order)?;
        self.hand_out_single(pfn, order, tag.migrate_type());
        Ok(())
    }

    /// The frame that owners have agreed to find their state at; `None` while there is none.
    pub fn anchor(&self) -> Option<Pfn> {
        self.tables.anchor()
    }

    /// Agrees on a frame at which owners find their state, in whichever process; `None` takes it away.
    ///
    /// # Errors
    ///
    /// What stands there, where that is not `from`; nothing has changed then.
    pub fn set_anchor(&self, from: Option<Pfn>, to: Option<Pfn>) -> Result<(), Option<Pfn>> {
        self.tables.set_anchor(from, to)
    }
}
