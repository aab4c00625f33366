//! Host memory: regions for memory map, control region and words of state, and addresses for frames.

use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

use frameyard::{ByteSize, RawRegion};
use memmap2::{MmapOptions, MmapRaw};

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

/// When the host reserves memory for a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Commit {
    /// At once, in its accounting.
    Accounted,
    /// When a page is written.
    WhenWritten,
}

/// The pages that the host backs memory with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum HostPages {
    /// Huge ones, if the host has them. A simulation accesses its whole memory map, so address translation would dominate its run time.
    Huge,
    /// Small ones: the host backs only what is touched.
    Small,
}

/// A private mapping of zeroes, unmapped on drop; `None` if the host has no such range or too little memory.
fn mapping(len: usize, commit: Commit) -> Option<MmapRaw> {
    let mut options = MmapOptions::new();
    options.len(len);
    if commit == Commit::WhenWritten {
        options.no_reserve_swap();
    }
    Some(options.map_anon().ok()?.into())
}

fn base_of(mapping: &MmapRaw) -> NonNull<u8> {
    NonNull::new(mapping.as_mut_ptr()).expect("a mapping has an address")
}

/// Zeroed memory.
#[derive(Debug)]
pub(crate) struct ZeroedRegion {
    mapping: MmapRaw,
    /// The offset of the region in the mapping.
    begin: usize,
    len: usize,
}

impl ZeroedRegion {
    /// A region of `size` bytes; `None` if the host has too little memory.
    pub(crate) fn new(size: ByteSize, pages: HostPages) -> Option<Self> {
        let len = usize::try_from(size.0).ok()?.max(1);
        if len < ALIGN {
            return Some(Self { mapping: mapping(len, Commit::Accounted)?, begin: 0, len });
        }
        let mapping = mapping(len.checked_add(ALIGN)?, Commit::Accounted)?;
        let begin = base_of(&mapping).align_offset(ALIGN);
        // A host without huge pages returns an error, which costs only speed.
        #[cfg(target_os = "linux")]
        let _ = mapping.advise_range(
            match pages {
                HostPages::Huge => memmap2::Advice::HugePage,
                HostPages::Small => memmap2::Advice::NoHugePage,
            },
            begin,
            len,
        );
        #[cfg(not(target_os = "linux"))]
        let _ = pages;
        Some(Self { mapping, begin, len })
    }

    fn base(&self) -> NonNull<u8> {
        // SAFETY: `begin` lies inside the mapping.
        unsafe { base_of(&self.mapping).add(self.begin) }
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
    /// `count` words; `None` if the host has too little memory.
    pub(crate) fn new(count: usize, pages: HostPages) -> Option<Self> {
        let bytes = count.checked_mul(size_of::<u64>())?;
        Some(Self { region: ZeroedRegion::new(ByteSize(bytes as u64), pages)?, count })
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
pub(crate) struct Reservation(MmapRaw);

impl Reservation {
    /// A reservation of `size` bytes; `None` if the host has no such range.
    pub(crate) fn new(size: ByteSize) -> Option<Self> {
        let len = usize::try_from(size.0).ok()?.max(1);
        mapping(len, Commit::WhenWritten).map(Self)
    }

    pub(crate) fn base(&self) -> NonNull<u8> {
        base_of(&self.0)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The address at an offset.
    #[inline(always)]
    pub(crate) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < self.len(), "byte {offset} of {}", self.len());
        // SAFETY: inside the mapping.
        unsafe { self.base().add(offset) }
    }

    /// Zeroes a part that no other code uses during the call.
    pub(crate) fn zero(&self, offset: usize, len: usize) {
        let all = self.len();
        assert!(offset <= all && len <= all - offset, "{len} bytes at {offset} of {all}");
        // SAFETY: inside the mapping, which is writable.
        unsafe { self.base().add(offset).write_bytes(0, len) }
    }

    /// Copies a part to another that does not overlap it. No other code uses either during the call.
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
            let mut words = Words::new(count, HostPages::Huge).unwrap();
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
        let region = ZeroedRegion::new(ByteSize(ALIGN as u64 + 1), HostPages::Huge).unwrap();
        assert!(region.raw().base.addr().get().is_multiple_of(ALIGN));
    }
}
