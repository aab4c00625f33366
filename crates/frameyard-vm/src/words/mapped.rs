//! Words and bytes of mapped frames.

use core::ptr::NonNull;
use core::slice;

use frameyard::locks::LockCounters;
use frameyard::platform::{MemoryBacking, Offload};
use frameyard::sync::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use frameyard::{Order, Pfn, PfnRange, Platform, Yard};

use crate::error::VmError;

/// Size of a cache line.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;
/// Bytes that are announced, then written: they stay in the innermost cache meanwhile.
const ANNOUNCED: usize = 4096;

/// Words of a block with state of this crate. Copyable. Valid while the block is allocated, which the holder must ensure:
/// a word of a freed frame belongs to another owner.
#[derive(Clone, Copy)]
pub(crate) struct Words<'y>(&'y [AtomicU64]);

impl<'y> Words<'y> {
    /// The words of a block; `None` if it has no bytes.
    ///
    /// # Safety
    ///
    /// The block is allocated while the words are used, and is accessed only through words.
    #[inline(always)]
    pub(crate) unsafe fn of<P: Platform>(yard: &'y Yard<P>, pfn: Pfn, order: Order) -> Option<Self> {
        let base = mapped_block(yard, pfn, order)?.cast::<AtomicU64>();
        let len = size_of_block(yard, order) / size_of::<AtomicU64>();
        // SAFETY: the block's bytes are mapped while the yard lives (contract of `Yard::create`), aligned to a page, and
        // accessed only as atomics (caller).
        Some(Self(unsafe { NonNull::slice_from_raw_parts(base, len).as_ref() }))
    }

    /// The number of words.
    #[inline(always)]
    pub(crate) fn len(self) -> usize {
        self.0.len()
    }

    /// One of the words.
    ///
    /// # Panics
    ///
    /// If the index is out of range. So do the next three functions.
    #[inline(always)]
    pub(crate) fn at(self, word: usize) -> &'y AtomicU64 {
        &self.0[word]
    }

    /// The lower half of a word that is used only as a lock.
    #[inline(always)]
    pub(crate) fn lock_word(self, word: usize) -> &'y AtomicU32 {
        let word = NonNull::from(self.at(word)).cast::<AtomicU32>();
        // SAFETY: half of an existing word, accessed only through this function.
        unsafe { word.as_ref() }
    }

    /// Four words as the counters of a lock.
    #[inline(always)]
    pub(crate) fn lock_counters(self, word: usize) -> &'y LockCounters {
        const { assert!(size_of::<LockCounters>() == 4 * size_of::<AtomicU64>()) };
        const { assert!(align_of::<LockCounters>() == align_of::<AtomicU64>()) };
        let words = NonNull::from(self.part(word, 4).0);
        // SAFETY: the counters are four atomics in C layout, and four words exist. All values are valid.
        unsafe { words.cast::<LockCounters>().as_ref() }
    }

    /// A range of the words; `None` if it is out of range.
    #[inline(always)]
    pub(crate) fn try_part(self, first: usize, len: usize) -> Option<Self> {
        self.0.get(first..)?.get(..len).map(Self)
    }

    /// A range of the words.
    #[inline(always)]
    pub(crate) fn part(self, first: usize, len: usize) -> Self {
        Self(&self.0[first..][..len])
    }
}

/// The bytes of a block, for a caller with exclusive access.
pub(crate) struct FrameBytes<'a, P: Platform> {
    yard: &'a Yard<P>,
    pfn: Pfn,
    order: Order,
}

impl<'a, P: Platform> FrameBytes<'a, P> {
    /// # Safety
    ///
    /// While the handle is used, the block is allocated and nothing else accesses its bytes. During
    /// [`read`](Self::read) and as the source of [`copy_from`](Self::copy_from), other code may read them.
    #[inline(always)]
    pub(crate) unsafe fn new(yard: &'a Yard<P>, pfn: Pfn, order: Order) -> Self {
        Self { yard, pfn, order }
    }

    #[inline(always)]
    pub(crate) fn pfn(&self) -> Pfn {
        self.pfn
    }

    #[inline(always)]
    fn mapped(&self) -> Result<NonNull<[u8]>, VmError> {
        let base = mapped_block(self.yard, self.pfn, self.order).ok_or(VmError::NoFrameBytes(self.pfn))?;
        Ok(NonNull::slice_from_raw_parts(base, size_of_block(self.yard, self.order)))
    }

    #[inline(always)]
    fn bytes(&self) -> Result<&[u8], VmError> {
        let bytes = self.mapped()?;
        // SAFETY: the block is mapped while the yard lives, and nothing writes to it (contract of `new`).
        Ok(unsafe { bytes.as_ref() })
    }

    #[inline(always)]
    fn bytes_mut(&mut self) -> Result<&mut [u8], VmError> {
        let mut bytes = self.mapped()?;
        // SAFETY: the block is mapped while the yard lives, and nothing else accesses it (contract of `new`).
        Ok(unsafe { bytes.as_mut() })
    }

    /// Zeroes the block. All functions fail if the block has no bytes.
    #[inline]
    pub(crate) fn zero(&mut self) -> Result<(), VmError> {
        if self.yard.platform().backing().zero_frames(PfnRange::new(self.pfn, self.order.pages())) == Offload::Done {
            return Ok(());
        }
        for part in self.bytes_mut()?.chunks_mut(ANNOUNCED) {
            announce_writes(part);
            part.fill(0);
        }
        Ok(())
    }

    /// Copies all bytes of another block of the same order.
    #[inline]
    pub(crate) fn copy_from(&mut self, from: &FrameBytes<'_, P>) -> Result<(), VmError> {
        let frames = PfnRange::new(from.pfn, from.order.pages());
        if self.yard.platform().backing().copy_frames(frames, self.pfn) == Offload::Done {
            return Ok(());
        }
        self.bytes_mut()?.copy_from_slice(from.bytes()?);
        Ok(())
    }

    /// Copies bytes out of the block, from `offset` on.
    ///
    /// # Panics
    ///
    /// If the bytes extend beyond the block. So does [`write`](Self::write).
    #[inline(always)]
    pub(crate) fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), VmError> {
        bytes.copy_from_slice(&self.bytes()?[offset..][..bytes.len()]);
        Ok(())
    }

    /// Copies bytes into the block, from `offset` on.
    #[inline(always)]
    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<(), VmError> {
        self.bytes_mut()?[offset..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    /// Calls `work` with the bytes.
    #[inline]
    pub(crate) fn with<R>(&mut self, work: impl FnOnce(&mut [u8]) -> R) -> Result<R, VmError> {
        self.bytes_mut().map(work)
    }
}

/// The bytes of one frame of a device. Other CPUs and the device may access them at the same time.
pub(crate) struct DeviceBytes<'a, P: Platform> {
    yard: &'a Yard<P>,
    pfn: Pfn,
}

impl<'a, P: Platform> DeviceBytes<'a, P> {
    /// # Safety
    ///
    /// The frame belongs to a device of the yard. Its bytes are accessed only as atomics.
    #[inline(always)]
    pub(crate) unsafe fn new(yard: &'a Yard<P>, pfn: Pfn) -> Self {
        Self { yard, pfn }
    }

    fn bytes(&self) -> Result<&[AtomicU8], VmError> {
        let base = self.yard.platform().frame_bytes(self.pfn).ok_or(VmError::NoFrameBytes(self.pfn))?;
        let len = size_of_block(self.yard, Order::ZERO);
        // SAFETY: the frame is mapped while the yard lives and accessed as atomics (contract of `new`).
        Ok(unsafe { slice::from_raw_parts(base.cast::<AtomicU8>().as_ptr(), len) })
    }

    /// Copies bytes out of the frame, from `offset` on, each atomically.
    ///
    /// # Panics
    ///
    /// If the bytes extend beyond the frame. So does [`write`](Self::write).
    pub(crate) fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), VmError> {
        let from = &self.bytes()?[offset..][..bytes.len()];
        bytes.iter_mut().zip(from).for_each(|(byte, from)| *byte = from.load(Ordering::Relaxed));
        Ok(())
    }

    /// Copies bytes into the frame, from `offset` on, each atomically.
    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<(), VmError> {
        let to = &self.bytes()?[offset..][..bytes.len()];
        bytes.iter().zip(to).for_each(|(byte, to)| to.store(*byte, Ordering::Relaxed));
        Ok(())
    }
}

/// The first byte of a block; `None` unless the whole block is mapped. Number and order may come from shared memory.
#[inline(always)]
fn mapped_block<P: Platform>(yard: &Yard<P>, pfn: Pfn, order: Order) -> Option<NonNull<u8>> {
    let base = yard.platform().frame_bytes(pfn)?;
    if order > Order::ZERO {
        let last = Pfn(pfn.0 + order.pages().0 - 1);
        let distance = size_of_block(yard, order) - size_of_block(yard, Order::ZERO);
        let end = yard.platform().frame_bytes(last)?;
        if end.addr().get().checked_sub(base.addr().get()) != Some(distance) {
            return None;
        }
    }
    Some(base)
}

#[inline(always)]
fn size_of_block<P: Platform>(yard: &Yard<P>, order: Order) -> usize {
    yard.geometry().size_of(order.pages()).0 as usize
}

/// Fetches the lines of bytes that are written next.
///
/// The stores of a fill leave the store buffer in order, and the processor fetches few of their lines at a time. It fetches announced
/// lines side by side, which shortens the faults of mappings that exceed the caches.
#[inline(always)]
fn announce_writes(bytes: &[u8]) {
    // Four lines a step. Without a loop, the same fetches took 100 ns more for a frame.
    #[cfg(target_arch = "x86_64")]
    for lines in bytes.as_chunks::<{ 4 * LINE }>().0 {
        for line in lines.as_chunks::<LINE>().0 {
            use core::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
            // SAFETY: a prefetch never faults and changes nothing that can be observed, whatever the address.
            unsafe { _mm_prefetch::<{ _MM_HINT_ET0 }>(line.as_ptr().cast()) };
        }
    }
}
