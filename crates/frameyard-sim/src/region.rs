//! Zeroed memory for a memory map and a control region.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use frameyard::{ByteSize, RawRegion};

/// How regions are aligned: to a page of the host.
const ALIGN: usize = 4096;

/// Zeroed memory; the host backs what is touched.
#[derive(Debug)]
pub(crate) struct ZeroedRegion {
    base: NonNull<u8>,
    layout: Layout,
}

impl ZeroedRegion {
    /// So many bytes; `None` where there are not as many.
    pub(crate) fn new(size: ByteSize) -> Option<Self> {
        let layout = Layout::from_size_align(usize::try_from(size.0).ok()?.max(1), ALIGN).ok()?;
        // SAFETY: the layout has a size.
        NonNull::new(unsafe { alloc_zeroed(layout) }).map(|base| Self { base, layout })
    }

    pub(crate) fn raw(&self) -> RawRegion {
        RawRegion { base: self.base, size: ByteSize(self.layout.size() as u64) }
    }
}

impl Drop for ZeroedRegion {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `new`.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}

/// Addresses with zeroed memory behind them, of which the host sets nothing aside before it is written.
#[derive(Debug)]
pub(crate) struct Reservation {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the range belongs to the process, not to a thread; whoever has an address of it says who may use it.
unsafe impl Send for Reservation {}
// SAFETY: as above.
unsafe impl Sync for Reservation {}

impl Reservation {
    /// So many bytes; `None` where the host has no such range.
    pub(crate) fn new(size: ByteSize) -> Option<Self> {
        let len = usize::try_from(size.0).ok()?.max(1);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new private mapping at an address that the kernel chooses.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if base == libc::MAP_FAILED { None } else { Some(Self { base: NonNull::new(base.cast())?, len }) }
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// An address so many bytes behind the first.
    #[inline(always)]
    pub(crate) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < self.len, "byte {offset} of {}", self.len);
        // SAFETY: inside the mapping.
        unsafe { self.base.add(offset) }
    }

    /// Zeroes a part that nobody else uses meanwhile.
    pub(crate) fn zero(&self, offset: usize, len: usize) {
        assert!(offset <= self.len && len <= self.len - offset, "{len} bytes at {offset} of {}", self.len);
        // SAFETY: inside the mapping, which can be written.
        unsafe { self.base.add(offset).write_bytes(0, len) }
    }

    /// Copies a part to another that does not overlap it; nobody else uses either meanwhile.
    pub(crate) fn copy(&self, from: usize, to: usize, len: usize) {
        for offset in [from, to] {
            assert!(offset <= self.len && len <= self.len - offset, "{len} bytes at {offset} of {}", self.len);
        }
        assert!(from.abs_diff(to) >= len, "{len} bytes at {from} and at {to} overlap");
        // SAFETY: both inside the mapping, which can be written, and apart.
        unsafe { self.base.add(to).copy_from_nonoverlapping(self.base.add(from), len) }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made, which nobody uses any more.
        let unmapped = unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert_eq!(unmapped, 0, "an own mapping can be unmapped");
    }
}
