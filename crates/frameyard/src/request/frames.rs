//! [`Frames`]: a guard that owns frames and frees them when it is dropped.

use core::fmt;
use core::mem;
use core::ptr::NonNull;

use crate::page::{FrameState, Tag};
use crate::platform::Platform;
use crate::units::{ByteSize, Order, PageCount, Pfn, PfnRange};
use crate::yard::{AllocError, Yard};
use crate::zone::poison;

/// A request gives up when bad frees take its frames this number of times, before it has them.
pub(crate) const MOST_TRIES: u32 = 1 << 10;

/// Contiguous frames with one owner: the guard frees them when it is dropped.
pub struct Frames<'y, P: Platform> {
    yard: &'y Yard<P>,
    range: PfnRange,
}

impl<P: Platform> Yard<P> {
    /// Makes a guard of the frames that `alloc` returns.
    pub(crate) fn owned(&self, alloc: impl Fn() -> Result<PfnRange, AllocError>) -> Result<Frames<'_, P>, AllocError> {
        // A bad free may take the frames before the guard owns them. Then the request is carried out again.
        for _ in 0..MOST_TRIES {
            if let Some(frames) = self.own(alloc()?) {
                return Ok(frames);
            }
        }
        Err(AllocError::Taken)
    }

    /// Makes a guard that owns allocated frames. From now on [`free`](Self::free) refuses them, so safe code cannot
    /// free them under the guard: each block is claimed by clearing its entry in the allocation map, which one caller
    /// wins.
    ///
    /// `None` where a racing free takes one of the blocks. The blocks before it are freed then. The blocks behind it
    /// stay as they are: their owner is unknown.
    #[inline(always)]
    pub(super) fn own(&self, range: PfnRange) -> Option<Frames<'_, P>> {
        let mut frames = Frames { yard: self, range: PfnRange { end: range.start, ..range } };
        while frames.range.end < range.end {
            frames.range.end = self.own_block(frames.range.end, range.end)?;
        }
        Some(frames)
    }

    /// Makes the allocated block at a frame a guarded one, if it ends before `end`; returns the frame behind it.
    #[inline(always)]
    fn own_block(&self, pfn: Pfn, end: Pfn) -> Option<Pfn> {
        let order = self.allocation_map().entry(pfn)?.order();
        let behind = pfn + order.pages();
        if behind > end {
            return None;
        }
        let Some(entry) = self.allocation_map().clear_allocated(&self.platform, pfn, order) else {
            return self.own_large(pfn, order);
        };
        let tag = Tag::new(FrameState::Owned, order, entry.migrate_type(), self.zone_of_block(pfn));
        self.map.page(pfn, &self.platform).set_tag(tag);
        Some(behind)
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

    /// The number of frames.
    pub fn count(&self) -> PageCount {
        self.range.count()
    }

    /// The size of all frames in bytes.
    pub fn size(&self) -> ByteSize {
        self.yard.geometry().size_of(self.count())
    }

    /// The address of the bytes, if the platform maps them. The guard owns [`size`](Self::size) bytes from there.
    pub fn as_ptr(&self) -> Option<NonNull<u8>> {
        poison::bytes_of(self.yard.platform(), self.yard.geometry(), self.range)
    }

    /// The bytes, if the platform maps them.
    ///
    /// They contain whatever the last owner left there, unless the frames were allocated with [`Gfp::ZERO`](crate::Gfp::ZERO).
    pub fn bytes(&self) -> Option<&[u8]> {
        let size = self.size().0 as usize;
        // SAFETY: by the contract of the yard's creation the platform maps the frames, and their owner owns their
        // bytes; a shared borrow of the guard excludes writes.
        self.as_ptr().map(|first| unsafe { core::slice::from_raw_parts(first.as_ptr().cast_const(), size) })
    }

    /// The bytes, for writing, if the platform maps them.
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        let size = self.size().0 as usize;
        // SAFETY: as in `bytes`; the exclusive borrow of the owner is the only access.
        self.as_ptr().map(|first| unsafe { core::slice::from_raw_parts_mut(first.as_ptr(), size) })
    }

    /// Consumes the guard without freeing the frames. [`Yard::free_range`] frees them.
    #[must_use = "the frames stay allocated"]
    pub fn into_range(self) -> PfnRange {
        self.for_each_block(|pfn, tag| {
            let _ = self.yard.mark_allocated(pfn, tag.order(), tag.migrate_type());
        });
        self.into_raw()
    }

    /// Ends the guard's ownership of all blocks, and calls `leave` with each block and its tag.
    fn for_each_block(&self, mut leave: impl FnMut(Pfn, Tag)) {
        let mut at = self.range.start;
        while at < self.range.end {
            let page = self.yard.map.page(at, &self.yard.platform);
            let tag = page.tag().of_block_at(at, self.yard.geometry.max_order());
            page.set_tag(self.yard.tag_without_owner(at, tag.with_state(FrameState::Allocated)));
            leave(at, tag);
            at = at + tag.order().pages();
        }
    }

    /// The first frame that is left.
    pub(crate) fn first(&self) -> Option<Pfn> {
        (!self.range.is_empty()).then_some(self.range.start)
    }

    /// Gives the first block up without freeing it: it has another owner.
    pub(crate) fn forget_first(&mut self, order: Order) {
        self.range.start = self.range.start + order.pages();
    }

    /// The yard that the frames belong to.
    pub fn yard(&self) -> &'y Yard<P> {
        self.yard
    }

    /// Consumes the guard without freeing its frames. They keep their state, so [`Yard::free`] refuses them; only a
    /// guard rebuilt with [`from_raw`](Self::from_raw) can free them. This is for guard types that do not borrow their
    /// yard.
    #[must_use = "the frames stay allocated"]
    pub fn into_raw(self) -> PfnRange {
        mem::ManuallyDrop::new(self).range
    }

    /// Rebuilds a guard that [`into_raw`](Self::into_raw) consumed.
    ///
    /// # Safety
    ///
    /// `into_raw` of a guard of this yard returned the range, and no other guard was rebuilt from it.
    pub unsafe fn from_raw(yard: &'y Yard<P>, range: PfnRange) -> Self {
        Self { yard, range }
    }

    /// Makes a guard for frames that [`into_range`](Self::into_range) returned.
    ///
    /// # Safety
    ///
    /// The range is allocated, in blocks that do not reach beyond it, and no other code frees it.
    ///
    /// # Panics
    ///
    /// If the range is not allocated like that.
    pub unsafe fn from_range(yard: &'y Yard<P>, range: PfnRange) -> Self {
        yard.own(range).expect("the frames are allocated, and no other code frees them")
    }

    /// Divides the guard into one of the first `count` frames and one of the rest. Either may be empty.
    ///
    /// # Cost
    ///
    /// Reads a page structure for each block before the border. If the border is inside a block, that becomes several
    /// blocks, the largest aligned ones, and the page structure of each one's head is written. Takes no lock.
    ///
    /// # Panics
    ///
    /// If the guard has fewer than `count` frames.
    #[must_use = "the frames of a part that is dropped are freed"]
    pub fn split_at(self, count: PageCount) -> (Self, Self) {
        assert!(count <= self.count(), "a guard of {} was divided after {count}", self.count());
        let (yard, PfnRange { start, end }) = (self.yard, self.into_raw());
        let (cut, mut at) = (start + count, start);
        while at < cut {
            let tag = yard.map.page(at, &yard.platform).tag().of_block_at(at, yard.geometry.max_order());
            let behind = at + tag.order().pages();
            if cut < behind {
                yard.tag_parts([PfnRange { start: cut, end: behind }, PfnRange { start: at, end: cut }], tag);
            }
            at = behind;
        }
        let part = |start, end| Self { yard, range: PfnRange { start, end } };
        (part(start, cut), part(cut, end))
    }

    /// Splits the guard into guards of single frames. Dropping the iterator frees the frames that it has not returned
    /// yet.
    pub fn into_single_frames(self) -> impl Iterator<Item = Frames<'y, P>> {
        let (yard, range) = (self.yard, self.range);
        let mut at = range.start;
        while at < range.end {
            let tag = yard.map.page(at, &yard.platform).tag().of_block_at(at, yard.geometry.max_order());
            let single = Tag::new(FrameState::Owned, Order::ZERO, tag.migrate_type(), tag.zone());
            // The head last: its tag covers the block until then, so every frame stays in some block.
            for offset in (0..tag.order().pages().0).rev() {
                yard.map.page(at + PageCount(offset), &yard.platform).set_tag(single);
            }
            at = at + tag.order().pages();
        }
        let mut guard = self;
        core::iter::from_fn(move || {
            // The closure owns the guard itself, not a copy of its range: the guard frees what is left.
            let rest = &mut guard;
            let first = PfnRange::new(rest.range.start, PageCount(u64::from(!rest.range.is_empty())));
            rest.range.start = first.end;
            (!first.is_empty()).then_some(Frames { yard, range: first })
        })
    }
}

impl<P: Platform> Drop for Frames<'_, P> {
    fn drop(&mut self) {
        self.for_each_block(|pfn, tag| self.yard.free_block(pfn, tag.order()));
    }
}

impl<P: Platform> fmt::Debug for Frames<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Frames({:?})", self.range)
    }
}
