//! [`MappedFrames`]: a guard of frames whose bytes are mapped.

use std::fmt;
use std::mem;
use std::ptr::{self, NonNull};
use std::slice;

use frameyard::alloc::Wanted;
use frameyard::{AllocError, ByteSize, Frames, Gfp, PageCount, Pfn, PfnRange, Yard};

use crate::platform::HostPlatform;

/// Keeps [`YardHandle`] from being implemented in other crates.
pub(crate) mod sealed {
    pub trait Sealed {}
}

/// A handle of a yard that a guard can hold: a borrow or an [`Arc`](std::sync::Arc).
///
/// `yard` returns the same yard every time.
pub trait YardHandle: sealed::Sealed {
    #[doc(hidden)]
    fn yard(&self) -> &Yard<HostPlatform>;
}

/// Contiguous frames and their bytes, freed on drop.
///
/// The guard either borrows its yard (`MappedFrames<&HostYard>`, from [`HostYard::frames`](crate::HostYard::frames)) or
/// holds an `Arc` of it (`MappedFrames<Arc<HostYard>>`, from
/// [`HostYard::frames_owned`](crate::HostYard::frames_owned)). The second kind can be sent to any thread and stored in
/// any struct.
///
/// [`into_range`](Self::into_range) turns a guard into frame numbers, which another process of a shared yard can turn
/// into a guard again.
pub struct MappedFrames<Y: YardHandle> {
    yard: Y,
    /// Empty once the guard has given its frames up.
    range: PfnRange,
    first: NonNull<u8>,
}

// SAFETY: the guard has its frames' bytes alone, on whichever thread it is.
unsafe impl<Y: YardHandle + Send> Send for MappedFrames<Y> {}
// SAFETY: a shared guard gives shared access to the bytes only.
unsafe impl<Y: YardHandle + Sync> Sync for MappedFrames<Y> {}

impl<Y: YardHandle> MappedFrames<Y> {
    /// Allocates frames of the yard.
    pub(crate) fn allocate(yard: Y, wanted: Wanted, gfp: Gfp) -> Result<Self, AllocError> {
        let (range, first) = mapped(yard.yard().frames(wanted, gfp)?)?;
        Ok(Self { yard, range, first })
    }

    /// Makes a guard from frames that [`into_range`](Self::into_range) has released, in this process or in another
    /// process of the same yard.
    ///
    /// # Errors
    ///
    /// [`AllocError::NoFrameBytes`] for phantom frames, which are freed.
    ///
    /// # Panics
    ///
    /// If the range is not allocated.
    ///
    /// # Safety
    ///
    /// `into_range` returned the range for a guard of this yard. Since then, nobody has freed the frames or made
    /// another guard from them.
    pub unsafe fn from_range(yard: Y, range: PfnRange) -> Result<Self, AllocError> {
        // SAFETY: as the caller promises.
        let (range, first) = mapped(unsafe { Frames::from_range(yard.yard(), range) })?;
        Ok(Self { yard, range, first })
    }

    /// Releases the frames from the guard without freeing them, so that you can pass their numbers to another process
    /// or store them in shared memory. [`from_range`](Self::from_range) makes a guard from them again;
    /// [`Yard::free_range`] frees them.
    #[must_use = "the frames stay allocated"]
    pub fn into_range(mut self) -> PfnRange {
        let range = self.range;
        self.take().map_or(range, Frames::into_range)
    }

    /// The frames as a guard of the core. Leaves an empty range behind.
    fn take(&mut self) -> Option<Frames<'_, HostPlatform>> {
        let empty = PfnRange::new(self.range.start, PageCount(0));
        let range = mem::replace(&mut self.range, empty);
        // SAFETY: `mapped` has called `into_raw` on a guard of this yard for this range. The empty range that stays
        // behind makes this the only guard rebuilt from it.
        (!range.is_empty()).then(|| unsafe { Frames::from_raw(self.yard.yard(), range) })
    }

    /// Takes over frames of a yard.
    ///
    /// # Panics
    ///
    /// If they belong to another yard.
    pub(crate) fn new(yard: Y, frames: Frames<'_, HostPlatform>) -> Result<Self, AllocError> {
        assert!(ptr::eq(yard.yard(), frames.yard()), "frames of this yard");
        let (range, first) = mapped(frames)?;
        Ok(Self { yard, range, first })
    }

    /// The first frame.
    #[must_use]
    pub fn pfn(&self) -> Pfn {
        self.range.start
    }

    /// All frames.
    #[must_use]
    pub fn range(&self) -> PfnRange {
        self.range
    }

    /// The number of frames.
    #[must_use]
    pub fn count(&self) -> PageCount {
        self.range.count()
    }

    /// The number of bytes.
    #[must_use]
    pub fn size(&self) -> ByteSize {
        self.yard.yard().geometry().size_of(self.count())
    }

    /// The address of the first byte.
    #[must_use]
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.first
    }

    /// The bytes. They contain whatever the last user left there, unless the frames were allocated with [`Gfp::ZERO`].
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `mapped` has checked that the platform maps the frames, which it does as long as the yard lives. The
        // guard is the only owner of the bytes, and a shared borrow of it lets no code write.
        unsafe { slice::from_raw_parts(self.first.as_ptr(), self.size().0 as usize) }
    }

    /// The bytes, for writing.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`. The exclusive borrow of the guard is the only access.
        unsafe { slice::from_raw_parts_mut(self.first.as_ptr(), self.size().0 as usize) }
    }
}

/// Gives a guard up for its range and the address of its bytes. Frees the frames if they have none.
fn mapped(frames: Frames<'_, HostPlatform>) -> Result<(PfnRange, NonNull<u8>), AllocError> {
    let first = frames.as_ptr().ok_or(AllocError::NoFrameBytes(frames.pfn()))?;
    Ok((frames.into_raw(), first))
}

impl<Y: YardHandle> AsRef<[u8]> for MappedFrames<Y> {
    fn as_ref(&self) -> &[u8] {
        self.bytes()
    }
}

impl<Y: YardHandle> AsMut<[u8]> for MappedFrames<Y> {
    fn as_mut(&mut self) -> &mut [u8] {
        self.bytes_mut()
    }
}

impl<Y: YardHandle> Drop for MappedFrames<Y> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl<Y: YardHandle> fmt::Debug for MappedFrames<Y> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MappedFrames({:?})", self.range)
    }
}
