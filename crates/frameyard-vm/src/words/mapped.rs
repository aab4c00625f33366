//! Words and bytes of mapped frames.

use core::marker::PhantomData;
use core::ptr::NonNull;

use frameyard::locks::LockCounters;
use frameyard::platform::Offload;
use frameyard::sync::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use frameyard::{ByteSize, Order, Pfn, PfnRange, Platform, Yard};

/// Words of frames with state of this crate. Copyable. Valid while those frames are allocated, which the holder must
/// ensure: a word of a freed frame belongs to another owner.
#[derive(Clone, Copy)]
pub(crate) struct Words<'y> {
    base: NonNull<AtomicU64>,
    len: usize,
    frames: PhantomData<&'y AtomicU64>,
}

// SAFETY: as a shared slice of atomics.
unsafe impl Send for Words<'_> {}
// SAFETY: as a shared slice of atomics.
unsafe impl Sync for Words<'_> {}

impl<'y> Words<'y> {
    /// The words of a block; `None` if it has no bytes.
    ///
    /// # Safety
    ///
    /// The block is allocated while the words are used, and is accessed through words alone.
    #[inline(always)]
    pub(crate) unsafe fn of<P: Platform>(yard: &'y Yard<P>, pfn: Pfn, order: Order) -> Option<Self> {
        let base = yard.platform().frame_bytes(pfn)?.cast::<AtomicU64>();
        let ByteSize(bytes) = yard.geometry().size_of(order.pages());
        Some(Self { base, len: bytes as usize / size_of::<AtomicU64>(), frames: PhantomData })
    }

    /// The number of words.
    #[inline(always)]
    pub(crate) fn len(self) -> usize {
        self.len
    }

    /// One of the words.
    ///
    /// # Panics
    ///
    /// If the index is out of range.
    #[inline(always)]
    pub(crate) fn at(self, word: usize) -> &'y AtomicU64 {
        assert!(word < self.len, "word {word} of {}", self.len);
        // SAFETY: the word is inside the block. Its bytes are mapped while the yard lives (contract of `Yard::create`)
        // and accessed only as atomics while the block has words.
        unsafe { self.base.add(word).as_ref() }
    }

    /// The lower half of a word that is used only as a lock.
    #[inline(always)]
    pub(crate) fn lock_word(self, word: usize) -> &'y AtomicU32 {
        let word = NonNull::from(self.at(word)).cast::<AtomicU32>();
        // SAFETY: half of an existing word, accessed only through this function.
        unsafe { word.as_ref() }
    }

    /// Four words as the counters of a lock.
    ///
    /// # Panics
    ///
    /// If the words are out of range.
    #[inline(always)]
    pub(crate) fn lock_counters(self, word: usize) -> &'y LockCounters {
        const { assert!(size_of::<LockCounters>() == 4 * size_of::<AtomicU64>()) };
        const { assert!(align_of::<LockCounters>() == align_of::<AtomicU64>()) };
        let words = self.part(word, 4);
        // SAFETY: the counters are four atomics in C layout, and four words exist. All values are valid.
        unsafe { words.base.cast::<LockCounters>().as_ref() }
    }

    /// A range of the words.
    ///
    /// # Panics
    ///
    /// If the range is out of bounds.
    #[inline(always)]
    pub(crate) fn part(self, first: usize, len: usize) -> Self {
        assert!(first <= self.len && len <= self.len - first, "words {first} and {len} more of {}", self.len);
        // SAFETY: inside the same block.
        Self { base: unsafe { self.base.add(first) }, len, frames: PhantomData }
    }
}

/// Zeroes the bytes of a block. Returns false if it has none.
///
/// # Safety
///
/// The caller has allocated the block, and nothing else accesses its bytes during the call.
#[inline]
pub(crate) unsafe fn zero<P: Platform>(yard: &Yard<P>, pfn: Pfn, order: Order) -> bool {
    if yard.platform().zero_frames(PfnRange::new(pfn, order.pages())) == Offload::Done {
        return true;
    }
    let Some(base) = yard.platform().frame_bytes(pfn) else { return false };
    // SAFETY: the block's bytes are mapped, and the caller has exclusive access.
    unsafe { base.write_bytes(0, yard.geometry().size_of(order.pages()).0 as usize) };
    true
}

/// Copies the bytes of a block to another. Returns false if one of them has none.
///
/// # Safety
///
/// Both blocks are allocated and distinct. During the call, nothing else writes to either or reads `to`.
#[inline]
pub(crate) unsafe fn copy<P: Platform>(yard: &Yard<P>, from: Pfn, to: Pfn, order: Order) -> bool {
    if yard.platform().copy_frames(PfnRange::new(from, order.pages()), to) == Offload::Done {
        return true;
    }
    let Some((from, to)) = yard.platform().frame_bytes(from).zip(yard.platform().frame_bytes(to)) else {
        return false;
    };
    let bytes = yard.geometry().size_of(order.pages()).0 as usize;
    // SAFETY: both blocks are mapped and distinct, and the caller excludes other accesses.
    unsafe { to.copy_from_nonoverlapping(from, bytes) };
    true
}

/// Copies bytes out of a frame, from `offset` on. Returns false if the frame has none.
///
/// # Safety
///
/// The frame is allocated, and nothing writes to its bytes during the call.
///
/// # Panics
///
/// If the bytes reach beyond the frame. So do the next three functions.
#[inline]
pub(crate) unsafe fn read_bytes<P: Platform>(yard: &Yard<P>, pfn: Pfn, offset: usize, bytes: &mut [u8]) -> bool {
    let page = yard.geometry().page_size().0 as usize;
    assert!(offset <= page && bytes.len() <= page - offset, "the bytes lie in one frame");
    let Some(base) = yard.platform().frame_bytes(pfn) else { return false };
    // SAFETY: inside the frame, which is mapped; nothing writes there (caller), and `bytes` is no frame of the yard.
    unsafe { base.add(offset).copy_to_nonoverlapping(NonNull::from(&mut *bytes).cast(), bytes.len()) };
    true
}

/// Copies bytes into a frame, from `offset` on. Returns false if the frame has none.
///
/// # Safety
///
/// The frame is allocated, and nothing else accesses its bytes during the call.
#[inline]
pub(crate) unsafe fn write_bytes<P: Platform>(yard: &Yard<P>, pfn: Pfn, offset: usize, bytes: &[u8]) -> bool {
    let page = yard.geometry().page_size().0 as usize;
    assert!(offset <= page && bytes.len() <= page - offset, "the bytes lie in one frame");
    let Some(base) = yard.platform().frame_bytes(pfn) else { return false };
    // SAFETY: inside the frame, which is mapped; nothing else accesses it (caller), and `bytes` is no frame of the yard.
    unsafe { base.add(offset).copy_from_nonoverlapping(NonNull::from(bytes).cast(), bytes.len()) };
    true
}

/// The bytes of a frame from `offset` on, as atomics; `None` if it has none.
///
/// # Safety
///
/// The frame belongs to a device, whose bytes are accessed as atomics alone.
unsafe fn shared_bytes<P: Platform>(yard: &Yard<P>, pfn: Pfn, offset: usize, len: usize) -> Option<&[AtomicU8]> {
    let page = yard.geometry().page_size().0 as usize;
    assert!(offset <= page && len <= page - offset, "the bytes lie in one frame");
    let base = yard.platform().frame_bytes(pfn)?;
    // SAFETY: inside the frame, which is mapped as long as the yard lives and accessed as atomics (caller).
    Some(unsafe { core::slice::from_raw_parts(base.add(offset).cast::<AtomicU8>().as_ptr(), len) })
}

/// Copies bytes from a frame of a device, starting at `offset`. Other CPUs may write meanwhile: each byte is one that
/// was there.
///
/// # Safety
///
/// The frame belongs to a device.
pub(crate) unsafe fn read_shared<P: Platform>(yard: &Yard<P>, pfn: Pfn, offset: usize, bytes: &mut [u8]) -> bool {
    // SAFETY: as the caller promises.
    let Some(from) = (unsafe { shared_bytes(yard, pfn, offset, bytes.len()) }) else { return false };
    bytes.iter_mut().zip(from).for_each(|(byte, from)| *byte = from.load(Ordering::Relaxed));
    true
}

/// Copies bytes into a frame of a device, as [`read_shared`].
///
/// # Safety
///
/// The frame belongs to a device.
pub(crate) unsafe fn write_shared<P: Platform>(yard: &Yard<P>, pfn: Pfn, offset: usize, bytes: &[u8]) -> bool {
    // SAFETY: as the caller promises.
    let Some(to) = (unsafe { shared_bytes(yard, pfn, offset, bytes.len()) }) else { return false };
    bytes.iter().zip(to).for_each(|(byte, to)| to.store(*byte, Ordering::Relaxed));
    true
}

/// Calls `use_of` with the bytes of one frame; `None` if it has none.
///
/// # Safety
///
/// The frame is allocated, and nothing else accesses its bytes during the call.
#[inline]
pub(crate) unsafe fn with_bytes<P: Platform, R>(
    yard: &Yard<P>,
    pfn: Pfn,
    use_of: impl FnOnce(&mut [u8]) -> R,
) -> Option<R> {
    let bytes = yard.geometry().page_size().0 as usize;
    let base = NonNull::slice_from_raw_parts(yard.platform().frame_bytes(pfn)?, bytes);
    // SAFETY: the frame is mapped, and nothing else accesses its bytes (caller).
    Some(use_of(unsafe { &mut *base.as_ptr() }))
}
