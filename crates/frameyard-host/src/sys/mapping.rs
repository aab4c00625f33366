//! Ranges of addresses: reserved as a whole, backed piece by piece, unmapped on drop.

use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;

use rustix::io::Errno;
use rustix::mm::{self, MapFlags, ProtFlags};

use super::{check, host_page_size};

/// The memory behind a piece of a [`Mapping`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source<'a> {
    /// Private zeroed memory. The host reserves nothing for it, and shows its zero page until a page is written.
    Anonymous,
    /// Private huge pages of `1 << shift` bytes. The host reserves them from its pool at once.
    Hugetlb { shift: u32 },
    /// A file, shared with every process that maps it.
    Shared { file: BorrowedFd<'a>, offset: u64 },
    /// A file that this process reads: what it writes goes to copies of pages that no other mapping shows. The file need not be writable.
    ReadOnly { file: BorrowedFd<'a>, offset: u64 },
}

/// Advice to the host on how to back a piece.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Advice {
    /// With transparent huge pages.
    HugePages,
    /// With base pages only.
    NoHugePages,
    /// A huge page that lies in the piece only in part becomes base pages (a side effect of `MADV_COLD`).
    Split,
}

/// Whether other mappings show the memory behind a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sharing {
    /// No other mapping does.
    Private,
    /// All mappings of the same file do.
    Shared,
}

/// A part of a [`Mapping`], in bytes from its base. Both fields are multiples of the host's page size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Piece {
    pub(crate) offset: usize,
    pub(crate) len: usize,
}

impl Piece {
    pub(crate) fn end(self) -> usize {
        self.offset + self.len
    }
}

/// A range of addresses of this process, unmapped on drop. Never reads or writes what is mapped there.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
    /// Bytes before and behind the range that are reserved, too, and never accessible.
    guard: usize,
    extent: Extent,
}

/// How much of a [`Mapping`] can be read and written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Extent {
    /// Some pieces, or none.
    Pieces,
    /// Every byte.
    Whole,
}

// SAFETY: the range belongs to the process, not to a thread, and `Mapping` never touches what is mapped.
unsafe impl Send for Mapping {}
// SAFETY: as above. The methods on `&self` are system calls, which the kernel serialises.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Reserves `len` bytes of addresses without memory. The base is `residue` modulo `align`. The host pages before and behind the
    /// range are reserved, too: an access there is a fault, and reaches no other mapping.
    ///
    /// # Panics
    ///
    /// If `align` is no power of two, `residue >= align`, or one of the three is no multiple of the host's page size.
    pub(crate) fn reserve(len: usize, align: usize, residue: usize) -> io::Result<Self> {
        let page = host_page_size();
        assert!(len > 0 && align.is_power_of_two() && residue < align, "a span that can be reserved");
        assert!([len, align, residue].iter().all(|bytes| bytes % page == 0), "whole host pages");
        let total = len.checked_add(align).and_then(|bytes| bytes.checked_add(2 * page)).ok_or(Errno::NOMEM)?;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice disturbs no other.
        let start = unsafe { mm::mmap_anonymous(ptr::null_mut(), total, ProtFlags::empty(), flags) }?;
        let start = start.cast::<u8>();
        // The first address at or above the second page with the wanted residue. `skip < align`, so `len` bytes and a page
        // follow it.
        let skip = residue.wrapping_sub(start as usize + page) & (align - 1);
        // SAFETY: `skip < align`, so the result lies inside the `len + align` bytes between the first and the last page just
        // mapped. The two parts that are unmapped lie inside of what was mapped, too, and no other code has an address of them
        // yet.
        let base = unsafe {
            let base = start.add(page + skip);
            if skip > 0 {
                mm::munmap(start.cast(), skip)?;
            }
            mm::munmap(base.add(len + page).cast(), align - skip)?;
            base
        };
        let base = NonNull::new(base).expect("mmap returned an address");
        Ok(Self { base, len, guard: page, extent: Extent::Pieces })
    }

    /// The first byte of the range.
    #[inline(always)]
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// The length of the range in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The address of a byte of the range.
    ///
    /// # Panics
    ///
    /// If the offset lies outside the range.
    #[inline]
    pub(crate) fn address(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < self.len, "an offset inside the mapping");
        // SAFETY: the offset was just checked to lie inside the range that `self` owns.
        unsafe { self.base.add(offset) }
    }

    /// The whole range.
    pub(crate) fn whole(&self) -> Piece {
        Piece { offset: 0, len: self.len }
    }

    /// Puts memory behind a piece. The exclusive borrow keeps other code from using addresses of it meanwhile.
    pub(crate) fn back(&mut self, piece: Piece, source: Source<'_>) -> io::Result<()> {
        self.replace(piece, source)?;
        if piece == self.whole() {
            self.extent = Extent::Whole;
        }
        Ok(())
    }

    /// Replaces the memory behind a piece of which other code may have addresses.
    ///
    /// Those addresses show the contents of the new source from then on.
    pub(super) fn replace(&self, piece: Piece, source: Source<'_>) -> io::Result<()> {
        let (address, len) = (self.checked(piece), piece.len);
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let private = MapFlags::FIXED | MapFlags::PRIVATE;
        // SAFETY: `checked` keeps the piece inside the range that `self` owns, so no other mapping is replaced.
        unsafe {
            match source {
                Source::Anonymous => mm::mmap_anonymous(address, len, protection, private | MapFlags::NORESERVE)?,
                Source::Hugetlb { shift } => {
                    // The kernel takes the size of the pages in bits 26 to 31 of the flags.
                    let size = MapFlags::from_bits_retain(shift << 26);
                    mm::mmap_anonymous(address, len, protection, private | MapFlags::HUGETLB | size)?
                }
                Source::Shared { file, offset } => {
                    let flags = MapFlags::FIXED | MapFlags::SHARED | MapFlags::NORESERVE;
                    mm::mmap(address, len, protection, flags, file, offset)?
                }
                Source::ReadOnly { file, offset } => {
                    mm::mmap(address, len, protection, private | MapFlags::NORESERVE, file, offset)?
                }
            }
        };
        Ok(())
    }

    /// Advises the host how to back a piece.
    pub(crate) fn advise(&self, piece: Piece, advice: Advice) -> io::Result<()> {
        match advice {
            Advice::HugePages => self.madvise(piece, mm::Advice::LinuxHugepage),
            Advice::Split => self.madvise(piece, mm::Advice::LinuxCold),
            Advice::NoHugePages => match self.madvise(piece, mm::Advice::LinuxNoHugepage) {
                // A kernel without huge pages rejects the advice, but follows it.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
                result => result,
            },
        }
    }

    /// Makes every page of a piece present and writable, without changing its contents.
    pub(crate) fn populate(&self, piece: Piece) -> io::Result<()> {
        populate_pages(self.checked(piece), piece.len)
    }

    /// Returns the memory of a piece to the host. The piece reads as zero until it is written.
    ///
    /// For a shared file this punches a hole, which all mappings of the file show. The caller guarantees that no
    /// thread reads or writes those bytes meanwhile or holds a reference to them.
    pub(crate) fn discard(&self, piece: Piece, sharing: Sharing) -> io::Result<()> {
        let advice = match sharing {
            Sharing::Private => mm::Advice::LinuxDontNeed,
            Sharing::Shared => mm::Advice::LinuxRemove,
        };
        self.madvise(piece, advice)
    }

    /// Restricts the pages of a piece to one node of the host.
    pub(crate) fn bind(&self, piece: Piece, host_node: u32) -> io::Result<()> {
        const WORD: usize = libc::c_ulong::BITS as usize;
        let bit = host_node as usize;
        let mut mask: Vec<libc::c_ulong> = vec![0; bit / WORD + 1];
        mask[bit / WORD] = 1 << (bit % WORD);
        // The kernel ignores the last bit of the length that it is given.
        let bits = mask.len() * WORD + 1;
        let address = self.checked(piece);
        // SAFETY: the piece lies inside our range, and the mask is as long as stated.
        check(unsafe {
            libc::syscall(libc::SYS_mbind, address, piece.len, libc::MPOL_BIND, mask.as_ptr(), bits, 0 as libc::c_uint)
        })
    }

    /// Bytes of a piece that are in memory now.
    pub(crate) fn resident(&self, piece: Piece) -> io::Result<u64> {
        const STEP: usize = 1 << 16;
        let page = host_page_size();
        let mut present = vec![0u8; STEP.min(piece.len / page)];
        let mut pages = 0;
        let mut offset = piece.offset;
        while offset < piece.end() {
            let step = Piece { offset, len: (piece.end() - offset).min(STEP * page) };
            // SAFETY: `present` has a byte for each page of the step, and mincore writes no more than that.
            check(unsafe { libc::mincore(self.checked(step), step.len, present.as_mut_ptr()) })?;
            pages += present[..step.len / page].iter().filter(|byte| **byte & 1 != 0).count();
            offset = step.end();
        }
        Ok((pages * page) as u64)
    }

    /// Splits the host's mappings at both ends of a piece until the result is dropped, so that the kernel accounts for
    /// the piece separately.
    ///
    /// It excludes the piece from core dumps: the kernel keeps mappings apart that differ in this flag.
    pub(crate) fn set_apart(&self, piece: Piece) -> io::Result<SetApart<'_>> {
        self.madvise(piece, mm::Advice::LinuxDontDump)?;
        Ok(SetApart { mapping: self, piece })
    }

    /// The words of a mapping that was backed as a whole.
    ///
    /// # Panics
    ///
    /// If it was not.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        assert!(self.extent == Extent::Whole, "a mapping that is backed as a whole");
        // SAFETY: all of the range is readable and writable, aligned to a page, and lives as long as `self`. Any bits
        // are a valid atomic. All other code that reaches the bytes is required to use atomics too.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().cast(), self.len / 8) }
    }

    fn madvise(&self, piece: Piece, advice: mm::Advice) -> io::Result<()> {
        // SAFETY: the piece lies inside our range. Of the advices in use only `discard`'s change its contents, and the
        // caller of `discard` guarantees that nothing uses them.
        unsafe { mm::madvise(self.checked(piece), piece.len, advice) }?;
        Ok(())
    }

    fn checked(&self, piece: Piece) -> *mut libc::c_void {
        assert!(piece.len > 0 && piece.offset < self.len && piece.len <= self.len - piece.offset, "inside the mapping");
        self.address(piece.offset).as_ptr().cast()
    }
}

/// A second [`Mapping`] value for a piece of a mapping.
///
/// # Safety
///
/// The caller never drops the result and keeps the mapping alive longer.
pub(super) unsafe fn alias_of(mapping: &Mapping, piece: Piece) -> Mapping {
    let base = mapping.checked(piece).cast();
    let base = NonNull::new(base).expect("an address inside a mapping");
    Mapping { base, len: piece.len, guard: 0, extent: Extent::Pieces }
}

/// A piece whose host mappings end where it does. The kernel may merge them with their neighbours after the drop.
#[derive(Debug)]
pub(crate) struct SetApart<'a> {
    mapping: &'a Mapping,
    piece: Piece,
}

impl Drop for SetApart<'_> {
    fn drop(&mut self) {
        // If this fails, core dumps lack the piece.
        let _ = self.mapping.madvise(self.piece, mm::Advice::LinuxDoDump);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is ours with the pages around it, and code that got addresses from it must not use them after the
        // drop.
        let unmapped = unsafe { mm::munmap(self.base.as_ptr().sub(self.guard).cast(), self.len + 2 * self.guard) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}

/// Makes every host page present and writable that contains one of `bytes` bytes from `address` on.
///
/// For memory of which only the address is known. The contents do not change.
pub(crate) fn populate_around(address: NonNull<u8>, bytes: usize) -> io::Result<()> {
    let page = host_page_size();
    let inside = address.addr().get() % page;
    let len = bytes.checked_add(inside).and_then(|len| len.checked_next_multiple_of(page));
    let len = len.ok_or(Errno::NOMEM)?;
    if bytes == 0 {
        return Ok(());
    }
    populate_pages(address.as_ptr().wrapping_sub(inside).cast(), len)
}

/// Populates whole pages at any address.
fn populate_pages(start: *mut libc::c_void, len: usize) -> io::Result<()> {
    loop {
        // SAFETY: populating changes no contents, and fails at addresses without memory.
        match unsafe { mm::madvise(start, len, mm::Advice::LinuxPopulateWrite) } {
            Err(Errno::INTR | Errno::AGAIN) => {}
            result => return Ok(result?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HUGE: usize = 2 << 20;

    fn page() -> usize {
        host_page_size()
    }

    fn backed(len: usize) -> Mapping {
        let mut mapping = Mapping::reserve(len, HUGE, 0).unwrap();
        mapping.back(mapping.whole(), Source::Anonymous).unwrap();
        mapping
    }

    #[test]
    fn a_reservation_begins_at_the_wanted_residue() {
        for residue in [0, page(), HUGE - page()] {
            let mapping = Mapping::reserve(3 * HUGE, HUGE, residue).unwrap();
            assert_eq!(mapping.base().as_ptr() as usize % HUGE, residue);
            assert_eq!(mapping.len(), 3 * HUGE);
        }
    }

    #[test]
    fn memory_is_resident_after_it_was_populated() {
        let mapping = backed(4 * HUGE);
        mapping.advise(mapping.whole(), Advice::NoHugePages).unwrap();
        assert_eq!(mapping.resident(mapping.whole()).unwrap(), 0);
        let part = Piece { offset: HUGE, len: 3 * page() };
        mapping.populate(part).unwrap();
        assert_eq!(mapping.resident(mapping.whole()).unwrap(), 3 * page() as u64);
        assert_eq!(mapping.resident(part).unwrap(), 3 * page() as u64);
    }

    #[test]
    fn discarded_memory_is_not_resident_and_reads_as_zero() {
        let mapping = backed(4 * HUGE);
        mapping.advise(mapping.whole(), Advice::NoHugePages).unwrap();
        let words = mapping.words();
        words.iter().for_each(|word| word.store(7, std::sync::atomic::Ordering::Relaxed));
        mapping.discard(Piece { offset: HUGE, len: 3 * page() }, Sharing::Private).unwrap();
        assert_eq!(mapping.resident(mapping.whole()).unwrap(), (4 * HUGE - 3 * page()) as u64);
        let word = |byte: usize| words[byte / 8].load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!((word(HUGE - 8), word(HUGE), word(HUGE + 3 * page())), (7, 0, 7));
    }

    #[test]
    fn populating_around_bytes_keeps_their_contents() {
        let mapping = backed(4 * HUGE);
        mapping.advise(mapping.whole(), Advice::NoHugePages).unwrap();
        let word = &mapping.words()[HUGE / 8];
        word.store(7, std::sync::atomic::Ordering::Relaxed);
        populate_around(mapping.address(HUGE + page() - 1), 2).unwrap();
        assert_eq!(mapping.resident(mapping.whole()).unwrap(), 2 * page() as u64);
        assert_eq!(word.load(std::sync::atomic::Ordering::Relaxed), 7);
        populate_around(mapping.address(0), 0).unwrap();
        assert_eq!(mapping.resident(mapping.whole()).unwrap(), 2 * page() as u64);
    }

    #[test]
    fn populating_more_bytes_than_addresses_fails() {
        let mapping = backed(HUGE);
        let error = populate_around(mapping.address(1), usize::MAX).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOMEM));
    }

    #[test]
    fn new_memory_is_zero_and_keeps_written_values() {
        let mapping = backed(HUGE);
        let words = mapping.words();
        assert!(words.iter().all(|word| word.load(std::sync::atomic::Ordering::Relaxed) == 0));
        words[HUGE / 8 - 1].store(7, std::sync::atomic::Ordering::Relaxed);
        let last = mapping.address(HUGE - 8).cast::<u64>();
        // SAFETY: the word was just written through the same mapping, and no other thread has its address.
        assert_eq!(unsafe { last.read() }, 7);
    }

    #[test]
    fn dropping_a_mapping_frees_its_addresses() {
        if crate::test_addresses::are_too_few(frameyard::ByteSize(1 << 40)) {
            return;
        }
        // Together more than the 128 TiB of addresses that a process has by default.
        for _ in 0..300 {
            Mapping::reserve(1 << 40, HUGE, 0).unwrap();
        }
    }

    #[test]
    #[should_panic(expected = "backed as a whole")]
    fn a_mapping_with_holes_has_no_words() {
        let mut mapping = Mapping::reserve(2 * HUGE, HUGE, 0).unwrap();
        mapping.back(Piece { offset: 0, len: HUGE }, Source::Anonymous).unwrap();
        mapping.words();
    }

    #[test]
    fn a_piece_can_be_bound_to_the_first_node() {
        let mapping = backed(HUGE);
        match mapping.bind(mapping.whole(), 0) {
            Ok(()) => mapping.populate(mapping.whole()).unwrap(),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS)) => {
                println!("skipped: the host forbids memory policies ({error})");
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn binding_to_a_node_that_does_not_exist_fails() {
        let mapping = backed(HUGE);
        assert!(mapping.bind(mapping.whole(), 1000).is_err());
    }

    #[test]
    #[should_panic(expected = "inside the mapping")]
    fn a_piece_past_the_end_is_refused() {
        let mapping = backed(HUGE);
        let _ = mapping.populate(Piece { offset: HUGE - page(), len: 2 * page() });
    }
}
