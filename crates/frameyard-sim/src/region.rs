//! Host memory: regions for memory map, control region and words of state, and addresses for frames.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use frameyard::{ByteSize, RawRegion};

/// Alignment of large regions, so that the host can back them by huge pages.
const ALIGN: usize = 2 << 20;

/// Prefetches the line at an address.
#[inline(always)]
pub(crate) fn prefetch(address: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults and has no observable effect, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance(address));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// A private mapping of zeroes, unmapped on drop.
#[derive(Debug)]
struct Mapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the range belongs to the process, not to a thread; the owner of an address decides which threads use it.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// A mapping of `len` bytes; `None` where the host has no such range or too little memory.
    fn new(len: usize, more_flags: libc::c_int) -> Option<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | more_flags;
        // SAFETY: a new private mapping at an address that the kernel chooses.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if base == libc::MAP_FAILED { None } else { Some(Self { base: NonNull::new(base.cast())?, len }) }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the mapping that `new` made; no reference to it remains.
        let unmapped = unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
        debug_assert_eq!(unmapped, 0, "the own mapping can be unmapped");
    }
}

/// Zeroed memory, backed by huge pages where the host has them. A simulation accesses its whole memory map, so
/// address translation would dominate its run time.
#[derive(Debug)]
pub(crate) struct ZeroedRegion {
    mapping: Mapping,
    /// The offset of the region in the mapping.
    begin: usize,
    len: usize,
}

impl ZeroedRegion {
    /// A region of `size` bytes; `None` where the host has too little memory.
    pub(crate) fn new(size: ByteSize) -> Option<Self> {
        let len = usize::try_from(size.0).ok()?.max(1);
        if len < ALIGN {
            return Some(Self { mapping: Mapping::new(len, 0)?, begin: 0, len });
        }
        let mapping = Mapping::new(len.checked_add(ALIGN)?, 0)?;
        let begin = mapping.base.align_offset(ALIGN);
        let region = Self { mapping, begin, len };
        region.ask_for_large_pages();
        Some(region)
    }

    #[cfg(target_os = "linux")]
    fn ask_for_large_pages(&self) {
        // SAFETY: a part of the own mapping. The advice changes no contents. A host without huge pages returns an
        // error, which costs only speed.
        unsafe { libc::madvise(self.base().as_ptr().cast(), self.len, libc::MADV_HUGEPAGE) };
    }

    #[cfg(not(target_os = "linux"))]
    fn ask_for_large_pages(&self) {}

    fn base(&self) -> NonNull<u8> {
        // SAFETY: `begin` lies inside the mapping.
        unsafe { self.mapping.base.add(self.begin) }
    }

    pub(crate) fn raw(&self) -> RawRegion {
        RawRegion { base: self.base(), size: ByteSize(self.len as u64) }
    }
}

/// Words of state, initially zero.
pub(crate) struct Words {
    region: ZeroedRegion,
    count: usize,
}

impl Words {
    /// `count` words; `None` where the host has too little memory.
    pub(crate) fn new(count: usize) -> Option<Self> {
        let bytes = count.checked_mul(size_of::<u64>())?;
        Some(Self { region: ZeroedRegion::new(ByteSize(bytes as u64))?, count })
    }
}

impl Deref for Words {
    type Target = [u64];

    #[inline(always)]
    fn deref(&self) -> &[u64] {
        // SAFETY: the region holds `count` zeroed words, later written as words, and begins at a page. The borrow of
        // `self` covers it.
        unsafe { std::slice::from_raw_parts(self.region.base().cast().as_ptr(), self.count) }
    }
}

impl DerefMut for Words {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut [u64] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.region.base().cast().as_ptr(), self.count) }
    }
}

/// Addresses with zeroed memory behind them. The host backs only written pages.
#[derive(Debug)]
pub(crate) struct Reservation(Mapping);

impl Reservation {
    /// A reservation of `size` bytes; `None` where the host has no such range.
    pub(crate) fn new(size: ByteSize) -> Option<Self> {
        let len = usize::try_from(size.0).ok()?.max(1);
        Mapping::new(len, libc::MAP_NORESERVE).map(Self)
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        self.0.base
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len
    }

    /// The address at an offset.
    #[inline(always)]
    pub(crate) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < self.len(), "byte {offset} of {}", self.len());
        // SAFETY: inside the mapping.
        unsafe { self.base().add(offset) }
    }

    /// Zeroes a part that no other code uses meanwhile.
    pub(crate) fn zero(&self, offset: usize, len: usize) {
        let all = self.len();
        assert!(offset <= all && len <= all - offset, "{len} bytes at {offset} of {all}");
        // SAFETY: inside the mapping, which is writable.
        unsafe { self.base().add(offset).write_bytes(0, len) }
    }

    /// Copies a part to another that does not overlap it. No other code uses either meanwhile.
    pub(crate) fn copy(&self, from: usize, to: usize, len: usize) {
        let all = self.len();
        for offset in [from, to] {
            assert!(offset <= all && len <= all - offset, "{len} bytes at {offset} of {all}");
        }
        assert!(from.abs_diff(to) >= len, "{len} bytes at {from} and at {to} overlap");
        // SAFETY: both parts lie inside the mapping, which is writable, and do not overlap.
        unsafe { self.base().add(to).copy_from_nonoverlapping(self.base().add(from), len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_zero_and_keep_what_is_written_whatever_their_number() {
        for count in [0, 1, 511, ALIGN / 8 - 1, ALIGN / 8 + 1, 3 * ALIGN / 8] {
            let mut words = Words::new(count).unwrap();
            assert_eq!(words.len(), count);
            assert!(words.iter().all(|word| *word == 0));
            if let Some(last) = words.last_mut() {
                *last = count as u64;
            }
            assert_eq!(words.last().copied(), (count > 0).then_some(count as u64));
        }
    }

    #[test]
    fn large_regions_are_aligned_to_huge_pages() {
        let region = ZeroedRegion::new(ByteSize(ALIGN as u64 + 1)).unwrap();
        assert!(region.raw().base.addr().get().is_multiple_of(ALIGN));
    }
}
