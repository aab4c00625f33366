//! Address ranges: reserved as a whole, backed piece by piece, given back when dropped or page by page before.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU64;

use super::{check, host_page_size};

/// What stands behind a piece of a [`Mapping`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source<'a> {
    /// Private zeroed memory, without a reservation of the host's memory.
    Anonymous,
    /// Zeroes that can be read and not written, and take no memory however often they are read: private memory of which
    /// the host shows its zero page.
    Zeros,
    /// Private huge pages of `1 << shift` bytes from the host's pool, reserved there at once.
    Hugetlb { shift: u32 },
    /// A file, shared with all that map it.
    Shared { file: BorrowedFd<'a>, offset: u64 },
}

/// What the host is told about the use of a piece.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Advice {
    /// Back it with transparent huge pages.
    HugePages,
    /// Back it with pages of the base size only.
    NoHugePages,
}

/// Who else has what is behind a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sharing {
    /// Nobody.
    Private,
    /// All that map the same file.
    Shared,
}

/// A part of a [`Mapping`], in bytes from its base; both are multiples of the host's page size.
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

/// An address range of this process, unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Mapping {
    base: NonNull<u8>,
    len: usize,
    /// Whether every byte can be read and written.
    extent: Extent,
}

/// How much of a [`Mapping`] has memory behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Extent {
    /// Some pieces, or none.
    Pieces,
    /// All of it, at once.
    Whole,
}

// SAFETY: the range belongs to the process, not to a thread, and `Mapping` never touches what is mapped.
unsafe impl Send for Mapping {}
// SAFETY: as above; the methods on `&self` are system calls that the kernel serialises.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Reserves `len` bytes of addresses that nothing is behind, and that begin at `residue` modulo `align`.
    ///
    /// `align` is a power of two; all three are multiples of the host's page size, and `residue < align`.
    pub(crate) fn reserve(len: usize, align: usize, residue: usize) -> io::Result<Self> {
        let page = host_page_size();
        assert!(len > 0 && align.is_power_of_two() && residue < align, "a span that can be reserved");
        assert!([len, align, residue].iter().all(|bytes| bytes % page == 0), "whole host pages");
        let total = len.checked_add(align).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice disturbs no other.
        let start = unsafe { libc::mmap(ptr::null_mut(), total, libc::PROT_NONE, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = start.cast::<u8>();
        // The first address at or above `start` with the wanted residue; `skip < align`, so `len` bytes follow it.
        let skip = residue.wrapping_sub(start as usize) & (align - 1);
        // SAFETY: `skip < align`, so the result lies inside the `len + align` bytes just mapped.
        let base = unsafe { start.add(skip) };
        let tail = align - skip;
        // SAFETY: both parts lie inside the range just mapped, which nobody else knows of yet.
        unsafe {
            if skip > 0 {
                libc::munmap(start.cast(), skip);
            }
            libc::munmap(base.add(len).cast(), tail);
        }
        Ok(Self { base: NonNull::new(base).expect("mmap returned an address"), len, extent: Extent::Pieces })
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
    pub(crate) fn address(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < self.len, "an offset inside the mapping");
        // SAFETY: the offset was just checked to lie inside the range that `self` owns.
        unsafe { self.base.add(offset) }
    }

    /// The whole range.
    pub(crate) fn whole(&self) -> Piece {
        Piece { offset: 0, len: self.len }
    }

    /// Puts memory behind a piece.
    ///
    /// What the piece held before is gone, so it is called only before addresses are handed out.
    pub(crate) fn back(&mut self, piece: Piece, source: Source<'_>) -> io::Result<()> {
        self.replace(piece, source)?;
        if piece == self.whole() {
            self.extent = Extent::Whole;
        }
        Ok(())
    }

    /// The same, where others may have addresses of the piece: they find there what the source holds from then on.
    pub(super) fn replace(&self, piece: Piece, source: Source<'_>) -> io::Result<()> {
        let address = self.checked(piece);
        let (flags, file, offset) = match source {
            Source::Anonymous | Source::Zeros => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1, 0),
            Source::Hugetlb { shift } => {
                let size = (shift as i32) << libc::MAP_HUGE_SHIFT;
                (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB | size, -1, 0)
            }
            Source::Shared { file, offset } => (libc::MAP_SHARED | libc::MAP_NORESERVE, file.as_raw_fd(), offset),
        };
        let offset = libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
        let protection = match source {
            Source::Zeros => libc::PROT_READ,
            _ => libc::PROT_READ | libc::PROT_WRITE,
        };
        // SAFETY: `checked` holds the piece inside the range that `self` owns, so nothing else is replaced.
        let at = unsafe { libc::mmap(address, piece.len, protection, flags | libc::MAP_FIXED, file, offset) };
        if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Tells the host how a piece will be used.
    pub(crate) fn advise(&self, piece: Piece, advice: Advice) -> io::Result<()> {
        let advice = match advice {
            Advice::HugePages => libc::MADV_HUGEPAGE,
            Advice::NoHugePages => libc::MADV_NOHUGEPAGE,
        };
        // SAFETY: the piece lies inside our range, and neither advice changes what it holds.
        check(unsafe { libc::madvise(self.checked(piece), piece.len, advice) })
    }

    /// Makes every page of a piece present and writable, as if each had been written.
    pub(crate) fn populate(&self, piece: Piece) -> io::Result<()> {
        populate_pages(self.checked(piece), piece.len)
    }

    /// Gives the memory of a piece back to the host; it reads as zeros until it is written to. In a file that is shared, a
    /// hole, for all that map it; in private memory the pages are this process's alone.
    ///
    /// Whoever calls it knows that nobody reads or writes those bytes meanwhile, or has a reference to them.
    pub(crate) fn discard(&self, piece: Piece, sharing: Sharing) -> io::Result<()> {
        let advice = match sharing {
            Sharing::Private => libc::MADV_DONTNEED,
            Sharing::Shared => libc::MADV_REMOVE,
        };
        // SAFETY: the piece lies inside our range, and nobody uses its bytes, as the caller says.
        check(unsafe { libc::madvise(self.checked(piece), piece.len, advice) })
    }

    /// Lets the pages of a piece come from one node of the host alone.
    pub(crate) fn bind(&self, piece: Piece, host_node: u32) -> io::Result<()> {
        const WORD: usize = libc::c_ulong::BITS as usize;
        let bit = host_node as usize;
        let mut mask: Vec<libc::c_ulong> = vec![0; bit / WORD + 1];
        mask[bit / WORD] = 1 << (bit % WORD);
        // The kernel looks at one bit less than it is told of.
        let bits = mask.len() * WORD + 1;
        let address = self.checked(piece);
        // SAFETY: the piece lies inside our range, and the mask is as long as stated.
        check(unsafe {
            libc::syscall(libc::SYS_mbind, address, piece.len, libc::MPOL_BIND, mask.as_ptr(), bits, 0 as libc::c_uint)
        })
    }

    /// How many bytes of a piece are in memory now.
    pub(crate) fn resident(&self, piece: Piece) -> io::Result<u64> {
        const STEP: usize = 1 << 16;
        let page = host_page_size();
        let mut present = vec![0u8; STEP.min(piece.len / page)];
        let mut pages = 0;
        let mut offset = piece.offset;
        while offset < piece.end() {
            let step = Piece { offset, len: (piece.end() - offset).min(STEP * page) };
            // SAFETY: `present` has a byte for each page of the step, which is all that mincore writes.
            check(unsafe { libc::mincore(self.checked(step), step.len, present.as_mut_ptr()) })?;
            pages += present[..step.len / page].iter().filter(|byte| **byte & 1 != 0).count();
            offset = step.end();
        }
        Ok((pages * page) as u64)
    }

    /// Cuts the host's mappings at both ends of a piece until the result is dropped, so that they are accounted for apart.
    ///
    /// Done by leaving the piece out of core dumps meanwhile: mappings that differ in this are not one.
    pub(crate) fn set_apart(&self, piece: Piece) -> io::Result<SetApart<'_>> {
        // SAFETY: the piece lies inside our range, and the advice changes nothing that it holds.
        check(unsafe { libc::madvise(self.checked(piece), piece.len, libc::MADV_DONTDUMP) })?;
        Ok(SetApart { mapping: self, piece })
    }

    /// The words of a mapping that was backed as a whole.
    pub(crate) fn words(&self) -> &[AtomicU64] {
        assert!(self.extent == Extent::Whole, "a mapping that is backed as a whole");
        // SAFETY: all of the range is readable and writable, aligned to a page, and lives as long as `self`; any
        // bits are a valid atomic, and whoever else reaches them is told to use atomics too.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().cast(), self.len / 8) }
    }

    fn checked(&self, piece: Piece) -> *mut libc::c_void {
        assert!(piece.len > 0 && piece.offset < self.len && piece.len <= self.len - piece.offset, "inside the mapping");
        self.address(piece.offset).as_ptr().cast()
    }
}

/// A second value for a piece of a mapping, as if it were one of its own.
///
/// # Safety
///
/// It is never dropped, and the mapping lives longer.
pub(super) unsafe fn extent_of(mapping: &Mapping, piece: Piece) -> Mapping {
    let base = mapping.checked(piece).cast();
    Mapping { base: NonNull::new(base).expect("an address inside a mapping"), len: piece.len, extent: Extent::Pieces }
}

/// A piece whose mappings end where it does; dropped, they may be one with their neighbours again.
#[derive(Debug)]
pub(crate) struct SetApart<'a> {
    mapping: &'a Mapping,
    piece: Piece,
}

impl Drop for SetApart<'_> {
    fn drop(&mut self) {
        // SAFETY: as in `set_apart`. Where it fails the piece is missing in core dumps, no more.
        unsafe { libc::madvise(self.mapping.checked(self.piece), self.piece.len, libc::MADV_DODUMP) };
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is ours, and who borrowed addresses from it is bound not to outlive it.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

/// Makes every page of the host that has one of `bytes` bytes from `address` on present and writable.
///
/// For memory of which only the address is known. Nothing is written, so whatever lies there keeps what it holds.
pub(crate) fn populate_around(address: NonNull<u8>, bytes: usize) -> io::Result<()> {
    let page = host_page_size();
    let inside = address.addr().get() % page;
    let len = bytes.checked_add(inside).and_then(|len| len.checked_next_multiple_of(page));
    let len = len.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
    if bytes == 0 {
        return Ok(());
    }
    populate_pages(address.as_ptr().wrapping_sub(inside).cast(), len)
}

/// Populates whole pages, whoever they belong to.
fn populate_pages(start: *mut libc::c_void, len: usize) -> io::Result<()> {
    loop {
        // SAFETY: populating changes nothing that memory holds, and fails where there is none.
        match check(unsafe { libc::madvise(start, len, libc::MADV_POPULATE_WRITE) }) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN)) => {}
            result => return result,
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
    fn nothing_is_resident_until_it_is_populated() {
        let mapping = backed(4 * HUGE);
        mapping.advise(mapping.whole(), Advice::NoHugePages).unwrap();
        assert_eq!(mapping.resident(mapping.whole()).unwrap(), 0);
        let part = Piece { offset: HUGE, len: 3 * page() };
        mapping.populate(part).unwrap();
        assert_eq!(mapping.resident(mapping.whole()).unwrap(), 3 * page() as u64);
        assert_eq!(mapping.resident(part).unwrap(), 3 * page() as u64);
    }

    #[test]
    fn what_is_given_back_is_not_resident_and_reads_as_zeros() {
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
    fn pages_around_bytes_become_present_and_keep_what_they_hold() {
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
    fn more_bytes_than_there_are_addresses_cannot_become_present() {
        let mapping = backed(HUGE);
        let error = populate_around(mapping.address(1), usize::MAX).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOMEM));
    }

    #[test]
    fn memory_is_zeroed_and_keeps_what_is_written() {
        let mapping = backed(HUGE);
        let words = mapping.words();
        assert!(words.iter().all(|word| word.load(std::sync::atomic::Ordering::Relaxed) == 0));
        words[HUGE / 8 - 1].store(7, std::sync::atomic::Ordering::Relaxed);
        let last = mapping.address(HUGE - 8).cast::<u64>();
        // SAFETY: the word was just written through the same mapping, and no other thread knows of it.
        assert_eq!(unsafe { last.read() }, 7);
    }

    #[test]
    fn a_dropped_mapping_gives_its_addresses_back() {
        // Together more than the 128 TiB of addresses that a process has by default.
        for _ in 0..300 {
            Mapping::reserve(1 << 40, HUGE, 0).unwrap();
        }
    }

    #[test]
    #[should_panic(expected = "backed as a whole")]
    fn a_mapping_with_holes_is_not_handed_out_as_words() {
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
    fn a_piece_beyond_the_end_is_refused() {
        let mapping = backed(HUGE);
        let _ = mapping.populate(Piece { offset: HUGE - page(), len: 2 * page() });
    }
}
