//! [`Frames`]: frames with an owner, freed when it is dropped.

use core::fmt;
use core::mem;
use core::ptr::NonNull;

use super::{AllocError, RangeError, Yard};
use crate::gfp::Gfp;
use crate::owner::Owners;
use crate::page::FrameState;
use crate::platform::Platform;
use crate::units::{ByteSize, Order, PageCount, Pfn, PfnRange};

/// Contiguous frames that belong to whoever holds this; freed on drop.
pub struct Frames<'y, P: Platform> {
    yard: &'y Yard<P>,
    range: PfnRange,
}

impl<P: Platform> Yard<P> {
    /// Allocates a block that frees itself. See [`alloc`](Self::alloc).
    ///
    /// # Errors
    ///
    /// [`AllocError`]; nothing is allocated then.
    pub fn frames(&self, order: Order, gfp: Gfp) -> Result<Frames<'_, P>, AllocError> {
        let pfn = self.alloc(order, gfp)?;
        Ok(self.own(PfnRange::new(pfn, order.pages())))
    }

    /// Allocates a block that frees itself, with owners to ask where there is none. See
    /// [`alloc_with`](Self::alloc_with).
    ///
    /// # Errors
    ///
    /// [`AllocError`]; nothing is allocated then.
    pub fn frames_with(&self, order: Order, gfp: Gfp, owners: &Owners<'_>) -> Result<Frames<'_, P>, AllocError> {
        let pfn = self.alloc_with(order, gfp, owners)?;
        Ok(self.own(PfnRange::new(pfn, order.pages())))
    }

    /// Allocates so many contiguous frames that free themselves. See [`alloc_exact`](Self::alloc_exact).
    ///
    /// # Errors
    ///
    /// [`AllocError`]; nothing is allocated then.
    pub fn frames_exact(&self, count: PageCount, gfp: Gfp) -> Result<Frames<'_, P>, AllocError> {
        Ok(self.own(self.alloc_exact(count, gfp)?))
    }

    /// Allocates the frames of a range. See [`alloc_range`](Self::alloc_range).
    ///
    /// # Errors
    ///
    /// [`RangeError`]; nothing is allocated then.
    pub fn frames_at(&self, range: PfnRange, gfp: Gfp) -> Result<Frames<'_, P>, RangeError> {
        Ok(self.own(self.alloc_range(range, gfp)?))
    }

    /// Makes an owner of frames that the caller holds. From now on [`free`](Self::free) refuses them, so that safe
    /// code cannot take an owner's bytes away.
    fn own(&self, range: PfnRange) -> Frames<'_, P> {
        self.set_states(range, FrameState::Owned);
        Frames { yard: self, range }
    }

    /// Gives all blocks of a range that the caller holds another state.
    fn set_states(&self, range: PfnRange, state: FrameState) {
        let mut at = range.start;
        while at < range.end {
            let page = self.map.page(at, &self.platform);
            let tag = page.tag();
            page.set_tag(tag.with_state(state));
            at = at + tag.order().pages();
        }
    }
}

impl<'y, P: Platform> Frames<'y, P> {
    /// The first frame.
    pub fn pfn(&self) -> Pfn {
        self.range.start
    }

    /// All frames.
    pub fn range(&self) -> PfnRange {
        self.range
    }

    /// How many frames there are.
    pub fn count(&self) -> PageCount {
        self.range.count()
    }

    /// How many bytes the frames have.
    pub fn size(&self) -> ByteSize {
        self.yard.geometry().size_of(self.count())
    }

    /// Where the bytes are mapped, if frames have memory behind them; [`size`](Self::size) bytes from there are this owner's.
    pub fn as_ptr(&self) -> Option<NonNull<u8>> {
        self.yard.platform().frame_bytes(self.pfn())
    }

    /// The bytes, if the frames have memory behind them.
    ///
    /// What they hold is what the last owner left, unless the frames were allocated with [`Gfp::ZERO`].
    pub fn bytes(&self) -> Option<&[u8]> {
        let size = self.size().0 as usize;
        // SAFETY: by the contract of the yard's creation the platform maps the frames, and whoever holds them
        // owns their bytes; a shared borrow of the owner lets nobody write.
        self.as_ptr().map(|first| unsafe { core::slice::from_raw_parts(first.as_ptr().cast_const(), size) })
    }

    /// The bytes, to write to, if the frames have memory behind them.
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        let size = self.size().0 as usize;
        // SAFETY: as in `bytes`; the exclusive borrow of the owner is the only access.
        self.as_ptr().map(|first| unsafe { core::slice::from_raw_parts_mut(first.as_ptr(), size) })
    }

    /// Gives the frames up without freeing them; free them with [`Yard::free_range`].
    #[must_use = "the frames stay allocated"]
    pub fn into_range(self) -> PfnRange {
        let range = self.range;
        self.yard.set_states(range, FrameState::Allocated);
        mem::forget(self);
        range
    }

    /// Takes frames over that [`into_range`](Self::into_range) gave up.
    ///
    /// # Safety
    ///
    /// The range is allocated, in blocks that begin and end with it, and nobody else will free it.
    pub unsafe fn from_range(yard: &'y Yard<P>, range: PfnRange) -> Self {
        yard.own(range)
    }

    /// Splits the frames into single ones, each with an owner of its own.
    pub fn into_single_frames(self) -> impl Iterator<Item = Frames<'y, P>> {
        let yard = self.yard;
        let range = self.into_range();
        let mut at = range.start;
        while at < range.end {
            let order = yard.map.page(at, &yard.platform).tag().order();
            let split = yard.split(at, order);
            debug_assert!(split.is_ok(), "{split:?}");
            at = at + order.pages();
        }
        SingleFrames { yard, rest: range }
    }
}

/// Single frames that are still to be handed out; those that are not are freed.
struct SingleFrames<'y, P: Platform> {
    yard: &'y Yard<P>,
    rest: PfnRange,
}

impl<'y, P: Platform> Iterator for SingleFrames<'y, P> {
    type Item = Frames<'y, P>;

    fn next(&mut self) -> Option<Frames<'y, P>> {
        if self.rest.is_empty() {
            return None;
        }
        let range = PfnRange::new(self.rest.start, PageCount(1));
        self.rest.start = range.end;
        Some(self.yard.own(range))
    }
}

impl<P: Platform> Drop for SingleFrames<'_, P> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}

impl<P: Platform> Drop for Frames<'_, P> {
    fn drop(&mut self) {
        let yard = self.yard;
        let mut at = self.range.start;
        while at < self.range.end {
            let page = yard.map.page(at, &yard.platform);
            let tag = page.tag();
            page.set_tag(tag.with_state(FrameState::Allocated));
            yard.release(at, tag.order());
            at = at + tag.order().pages();
        }
    }
}

impl<P: Platform> fmt::Debug for Frames<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frames({:?})", self.range)
    }
}
