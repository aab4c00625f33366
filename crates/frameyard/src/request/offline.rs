//! Frames that leave the yard and come back: the kernel's `offline_pages` and `online_pages`.
//!
//! # Protocol
//!
//! [`Yard::offline`] takes the range as a contiguous request does, into a [`Frames`](crate::request::Frames) guard, so
//! that it cannot be freed by number. For each block, one hold of the zone lock changes the tag to
//! [`FrameState::Offline`] and subtracts the frames from the zone's counts. [`Yard::online`] likewise changes the tag
//! back and adds the frames in one hold. So if two calls race for the same block, one of them wins, and it sees
//! everything that happened before the block went offline. The winner then frees the block like any other.

use crate::gfp::Gfp;
use crate::owners::Owners;
use crate::page::{FrameState, Tag};
use crate::platform::{LockError, Platform};
use crate::sync::is_broken;
use crate::units::{Order, Pfn, PfnRange, errors};
use crate::yard::{AllocError, Yard};

errors! {
    /// Why frames were not brought back into use.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[non_exhaustive]
    pub enum OnlineError {
        /// No offline block begins at a frame of the range. Holes are interior.
        NotOffline {
            /// The frame.
            pfn: Pfn,
            /// What it is.
            state: FrameState,
        } = "{pfn} is {state}, not offline",
        /// An offline block reaches beyond the end of the range.
        PartOfBlock {
            /// Head of the block.
            head: Pfn,
            /// Its order.
            order: Order,
        } = "the offline block at {head}, {order}, reaches beyond the range",
        /// Another process holds a lock and does not release it, or has damaged the yard.
        Lock(error: LockError) = "{error}",
    }
}

impl<P: Platform> Yard<P> {
    /// Takes a range of frames out of use until [`online`](Self::online) brings them back (`offline_pages`).
    ///
    /// The frames are subtracted from the zone's present and managed counts. Nothing is allocated from them, and
    /// freeing them is refused. First the owners move counted blocks out of the range; with [`Owners::NONE`] all its
    /// frames must be free. Watermarks do not change; [`YardLists::retune`](crate::yard::YardLists::retune) computes
    /// them for the remaining memory.
    ///
    /// # Errors
    ///
    /// As for a [request](Self::request) of the range with owners. [`AllocError::Blocked`] names the block in the
    /// way, and why it stays: for example a hole, a block in use, or one that is offline already. Nothing has changed
    /// then, except that after an [`AllocError::Lock`] a part of the range may be offline.
    ///
    /// # Cost
    ///
    /// That of the request, plus one hold of the zone lock for each block.
    pub fn offline(&self, range: PfnRange, owners: &Owners<'_>) -> Result<(), AllocError> {
        let mut frames = self.request(range, Gfp::HIGHUSER_MOVABLE).owners(owners).guard()?;
        // What has left the guard is not freed with it.
        while let Some(pfn) = frames.first() {
            let tag = self.map.page(pfn, &self.platform).tag().of_block_at(pfn, self.geometry.max_order());
            self.turn(pfn, tag, FrameState::Offline).map_err(AllocError::Lock)?;
            frames.forget_first(tag.order());
        }
        Ok(())
    }

    /// Brings a range of offline frames back into use (`online_pages`). They are free afterwards.
    ///
    /// The range must begin and end at boundaries of the largest aligned blocks of a range that was taken offline.
    ///
    /// # Errors
    ///
    /// [`OnlineError`] names the first block that is not offline or that reaches beyond the range. Nothing has changed
    /// then, unless another thread is bringing back frames of the same range at the same time: blocks that this call
    /// has already brought back stay free.
    ///
    /// # Cost
    ///
    /// One hold of the zone lock for each block, and the free of the block.
    pub fn online(&self, range: PfnRange) -> Result<(), OnlineError> {
        let mut at = range.start;
        while at < range.end {
            at = at + self.offline_block(at, range.end)?.order().pages();
        }
        let mut at = range.start;
        while at < range.end {
            let tag = self.offline_block(at, range.end)?;
            if self.turn(at, tag, FrameState::Allocated).map_err(OnlineError::Lock)? == Turned::No {
                return Err(OnlineError::NotOffline { pfn: at, state: self.tag_at(at).state() });
            }
            self.free_block(at, tag.order());
            at = at + tag.order().pages();
        }
        Ok(())
    }

    /// The tag of the offline block that begins at a frame, if it ends before `end`.
    fn offline_block(&self, head: Pfn, end: Pfn) -> Result<Tag, OnlineError> {
        let tag = self.page_of(head).map_or(Tag::INTERIOR, |_| self.tag_at(head));
        let order = tag.order();
        match tag.state() {
            FrameState::Offline if head + order.pages() <= end => Ok(tag),
            FrameState::Offline => Err(OnlineError::PartOfBlock { head, order }),
            state => Err(OnlineError::NotOffline { pfn: head, state }),
        }
    }

    /// Changes the state of a block to or from offline, and the counts of its zone, unless its tag is another by now.
    fn turn(&self, pfn: Pfn, tag: Tag, state: FrameState) -> Result<Turned, LockError> {
        let mut locked = self.zone_view(self.zone_of_block(pfn)).lock()?;
        let page = self.map.page(pfn, &self.platform);
        if page.tag() != tag && !is_broken!(OnlineNotRechecked) {
            return Ok(Turned::No);
        }
        self.note_tagged(page.pfn(), tag.order());
        page.set_tag(tag.with_state(state));
        match state {
            FrameState::Offline => locked.remove_present(tag.order().pages()),
            _ => locked.add_present(tag.order().pages()),
        }
        Ok(Turned::Yes)
    }
}

/// Whether a block has changed its state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turned {
    Yes,
    No,
}
