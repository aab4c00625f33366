//! The slices of an arena that are in use, and the function through which mimalloc takes and returns them.
//!
//! mimalloc calls [`commit`] before it uses slices of an arena, and again before it returns their memory to the host. One thread has claimed
//! the slices meanwhile. It may commit or return slices that already are what they should be.

use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use frameyard_host::{BudgetShare, ByteSize};

/// `MI_ARENA_SLICE_SIZE`.
pub(crate) const SLICE: usize = 64 << 10;
/// The slices of 2 MiB: one word.
const SLICES_PER_WORD: usize = u32::BITS as usize;

/// What the frames of an arena contain at first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Contents {
    Zeroes,
    Anything,
}

/// Counts of an arena.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ArenaUsage {
    /// The size of the arena, metadata of mimalloc's included.
    pub size: ByteSize,
    /// Memory in use: whole slices of 64 KiB.
    pub in_use: ByteSize,
    /// The largest value of it.
    pub peak: ByteSize,
    /// Ranges of slices that were taken into use.
    pub ranges: u64,
    /// Ranges that the budget has refused.
    pub refused: u64,
    /// Parts of 2 MiB, on a boundary of 2 MiB, with no memory in use: each can be a huge page.
    pub free_pageblocks: u64,
}

/// The slices of an arena.
#[derive(Debug)]
pub(crate) struct Slices {
    start: usize,
    contents: Contents,
    /// A bit for each slice: it is in use. Only the thread that has claimed the slice changes it.
    in_use: Box<[AtomicU32]>,
    count: AtomicU64,
    peak: AtomicU64,
    ranges: AtomicU64,
    refused: AtomicU64,
    share: Option<BudgetShare>,
}

impl Slices {
    pub(crate) fn new(start: usize, size: usize, contents: Contents, share: Option<BudgetShare>) -> Self {
        let in_use = (0..size / (SLICE * SLICES_PER_WORD)).map(|_| AtomicU32::new(0)).collect();
        let zero = || AtomicU64::new(0);
        let (count, peak, ranges, refused) = (zero(), zero(), zero(), zero());
        Self { start, contents, in_use, count, peak, ranges, refused, share }
    }

    pub(crate) fn share(&self) -> Option<&BudgetShare> {
        self.share.as_ref()
    }

    pub(crate) fn usage(&self) -> ArenaUsage {
        let size_of = |slices: u64| ByteSize(slices * SLICE as u64);
        let is_free = |word: &&AtomicU32| word.load(Ordering::Relaxed) == 0;
        ArenaUsage {
            size: size_of((self.in_use.len() * SLICES_PER_WORD) as u64),
            in_use: size_of(self.count.load(Ordering::Relaxed)),
            peak: size_of(self.peak.load(Ordering::Relaxed)),
            ranges: self.ranges.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            free_pageblocks: self.in_use.iter().filter(is_free).count() as u64,
        }
    }

    /// The words of a range of bytes, each with the bits of its slices there.
    fn words(&self, address: usize, size: usize) -> impl Iterator<Item = (&AtomicU32, u32)> {
        let first = (address - self.start) / SLICE;
        let end = (address - self.start + size).div_ceil(SLICE).min(self.in_use.len() * SLICES_PER_WORD);
        let word = |slice: usize| slice / SLICES_PER_WORD;
        (word(first)..end.div_ceil(SLICES_PER_WORD)).map(move |index| {
            let base = index * SLICES_PER_WORD;
            let (low, high) = (first.saturating_sub(base), (end - base).min(SLICES_PER_WORD));
            (&self.in_use[index], (u32::MAX << low) & (u32::MAX >> (SLICES_PER_WORD - high)))
        })
    }

    /// The number of slices of a range that are in use, and of those that are not.
    fn counts(&self, address: usize, size: usize) -> (u64, u64) {
        self.words(address, size).fold((0, 0), |(used, unused), (word, bits)| {
            let in_use = word.load(Ordering::Relaxed) & bits;
            (used + u64::from(in_use.count_ones()), unused + u64::from((bits & !in_use).count_ones()))
        })
    }

    /// Takes a range into use; `None` if the budget refuses it. Whether it contains zeroes.
    fn take(&self, address: usize, size: usize) -> Option<bool> {
        let (used, unused) = self.counts(address, size);
        if self.share.as_ref().is_some_and(|share| !share.charge(ByteSize(unused * SLICE as u64))) {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        self.words(address, size).for_each(|(word, bits)| {
            word.fetch_or(bits, Ordering::Relaxed);
        });
        self.ranges.fetch_add(1, Ordering::Relaxed);
        let count = self.count.fetch_add(unused, Ordering::Relaxed) + unused;
        self.peak.fetch_max(count, Ordering::Relaxed);
        Some(used == 0 && self.contents == Contents::Zeroes)
    }

    /// Returns the memory of a range to the host. `false`, and the range stays in use, if the host refuses: the memory is locked.
    ///
    /// # Safety
    ///
    /// The caller has claimed the slices, whose contents no code needs.
    unsafe fn give_back(&self, address: usize, size: usize) -> bool {
        let (used, _) = self.counts(address, size);
        let start = std::ptr::with_exposed_provenance_mut(address);
        // SAFETY: passed on to the caller. The memory is mapped.
        if unsafe { libc::madvise(start, size, libc::MADV_DONTNEED) } != 0 {
            return false;
        }
        self.words(address, size).for_each(|(word, bits)| {
            word.fetch_and(!bits, Ordering::Relaxed);
        });
        self.count.fetch_sub(used, Ordering::Relaxed);
        if let Some(share) = &self.share {
            share.refund(ByteSize(used * SLICE as u64));
        }
        true
    }
}

/// `mi_commit_fun_t`: takes a range of slices into use, or returns its memory. Whether it did.
///
/// # Safety
///
/// `slices` points to the [`Slices`] of the arena, for ever. The range lies in it, and the calling thread has claimed it. `is_zero` is null
/// or writable.
pub(crate) unsafe extern "C" fn commit(
    commits: bool,
    start: *mut c_void,
    size: usize,
    is_zero: *mut bool,
    slices: *mut c_void,
) -> bool {
    // SAFETY: as the caller says.
    let slices = unsafe { &*slices.cast::<Slices>() };
    if !commits {
        // The program's number: `free` must not change it.
        // SAFETY: the calling thread's own number, and a range that it has claimed.
        unsafe {
            let error = *libc::__errno_location();
            let is_done = slices.give_back(start.expose_provenance(), size);
            *libc::__errno_location() = error;
            return is_done;
        }
    }
    let Some(zeroes) = slices.take(start.addr(), size) else { return false };
    // SAFETY: as the caller says.
    if let Some(is_zero) = unsafe { is_zero.as_mut() } {
        *is_zero = zeroes;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn slices_are_counted_once() {
        let slices = Slices::new(32 * MIB, 8 * MIB, Contents::Zeroes, None);
        assert_eq!(slices.take(32 * MIB, SLICE), Some(true));
        assert_eq!(slices.take(32 * MIB, 3 * MIB), Some(false));
        assert_eq!(slices.take(38 * MIB + 5 * SLICE, 10), Some(true));
        let usage = slices.usage();
        assert_eq!((usage.size, usage.in_use), (ByteSize::mib(8), ByteSize((3 * MIB + SLICE) as u64)));
        assert_eq!((usage.ranges, usage.refused, usage.free_pageblocks), (3, 0, 1));
        assert_eq!(usage.peak, usage.in_use);
    }

    #[test]
    fn a_range_of_unknown_contents_is_not_zero() {
        let slices = Slices::new(0, 4 * MIB, Contents::Anything, None);
        assert_eq!(slices.take(0, MIB), Some(false));
    }

    #[test]
    fn a_budget_is_charged_for_what_is_in_use() {
        let share =
            frameyard_host::Budget::create(&format!("slices-{}", std::process::id()), ByteSize::mib(3)).unwrap();
        // Memory of the host, which is returned below.
        let memory = vec![1_u8; 10 * MIB];
        let start = memory.as_ptr().expose_provenance().next_multiple_of(2 * MIB);
        let slices = Slices::new(start, 8 * MIB, Contents::Zeroes, Some(share));
        assert_eq!(slices.take(start, 2 * MIB), Some(true));
        assert_eq!(slices.take(start + MIB, 3 * MIB), None, "two more are not there");
        assert_eq!(slices.take(start + MIB, 2 * MIB), Some(false));
        // SAFETY: part of the vector, which no code reads.
        assert!(unsafe { slices.give_back(start + 2 * MIB, 6 * MIB) });
        assert_eq!(slices.share().map(|share| share.budget().used()), Some(ByteSize::mib(2)));
        let usage = slices.usage();
        assert_eq!((usage.in_use, usage.peak, usage.refused), (ByteSize::mib(2), ByteSize::mib(3), 1));
    }
}
