//! Non-temporal stores of whole pages on x86-64: lines from vector registers, and the CPU's ways to zero.
//!
//! A streaming store writes a whole line without reading it first. Each writer detects the CPU's instructions at run time,
//! once.

use core::arch::asm;
use core::arch::x86_64::{__cpuid, __cpuid_count};
use core::ptr::NonNull;

use super::{ALL, PAGE_BYTES, WORDS, stores};
use crate::page::Page;

#[cfg(target_feature = "sse2")]
mod vectors;

#[cfg(target_feature = "sse2")]
use vectors::Vectors;

/// How whole pages are written. Instructions beside plain stores are used only if detected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Streaming {
    /// Streaming stores from vector registers; if none, plain stores of 8 bytes.
    vectors: Option<Vectors>,
    zeroes: Zeroes,
}

/// The instructions that zero pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Zeroes {
    /// The same stores as any other content.
    Lines,
    /// `rep stosb` where the run has [`LONG_RUN_PAGES`] or more; else [`Self::Lines`].
    RepStore,
    /// `clzero`, which clears a line.
    ClearLine,
}

impl Zeroes {
    /// The ways of this CPU, the preferred one last.
    fn available() -> impl Iterator<Item = Self> {
        let sizes = if __cpuid(0x8000_0000).eax >= 0x8000_0008 { __cpuid(0x8000_0008).ebx } else { 0 };
        let rep_store = (extended_features() & 1 << 9 != 0).then_some(Self::RepStore);
        let clear_line = (sizes & 1 != 0).then_some(Self::ClearLine);
        [Some(Self::Lines), rep_store, clear_line].into_iter().flatten()
    }
}

/// The feature bits of this CPU in register `ebx` of leaf 7; none if it has no such leaf.
fn extended_features() -> u32 {
    if __cpuid(0).eax >= 7 { __cpuid_count(7, 0).ebx } else { 0 }
}

/// The shortest run for which `rep stosb` is fastest: 64 MiB of pages.
///
/// Measured on an AMD EPYC of the Zen 4 family with 32 MiB of L3, zeroes to 1 GiB of memory: in runs of 64 KiB to
/// 16 MiB `rep stosb` writes 31 GB/s, in runs of 32 MiB 67, of 64 MiB 72, and 76 in one run; below, its lines are read
/// before they are written. Streaming stores of zeroes do not depend on the length of a run: 85 to 88 GB/s with 64 or
/// 32 bytes each, 58 with 16; `clzero` 75 to 79. Over 4 GiB in one run all but those of 16 bytes write 74 to 78. So where
/// there is AVX2 nothing is faster than it, at any length; the other ways are for CPUs without. (Few in tests.)
const LONG_RUN_PAGES: usize = if cfg!(test) { 64 } else { (64 << 20) / PAGE_BYTES };

impl Streaming {
    /// The way that works on every CPU.
    pub(super) const PORTABLE: Self = Self { vectors: None, zeroes: Zeroes::Lines };

    /// The fastest way of this CPU.
    pub(super) fn detected() -> Self {
        let vectors = Vectors::available().last();
        let zeroes = if vectors.is_some_and(Vectors::is_wide) { None } else { Zeroes::available().last() };
        Self { vectors, zeroes: zeroes.unwrap_or(Zeroes::Lines) }
    }

    /// All ways of this CPU, for tests.
    #[cfg(test)]
    pub(super) fn available() -> impl Iterator<Item = Self> {
        let each = |vectors| Zeroes::available().map(move |zeroes| Self { vectors, zeroes });
        core::iter::once(None).chain(Vectors::available().map(Some)).flat_map(each)
    }

    /// Writes the same words to every page.
    ///
    /// # Safety
    ///
    /// `first` points to `count` writable pages that no other thread accesses during the call.
    pub(super) unsafe fn write(self, first: NonNull<Page>, count: usize, words: &[u64; WORDS]) {
        // SAFETY: the caller's contract; the CPU has these registers, because only detected ones are chosen.
        unsafe {
            match self.vectors {
                None => stores::set::<ALL>(first, count, words),
                Some(vectors) => vectors.write(first, count, words),
            }
        }
    }

    /// Zeroes every page.
    ///
    /// # Safety
    ///
    /// As for [`write`](Self::write).
    pub(super) unsafe fn zero(self, first: NonNull<Page>, count: usize) {
        // SAFETY: the caller's contract; the CPU has what `zeroes` names, because only detected instructions are chosen.
        unsafe {
            match self.zeroes {
                Zeroes::ClearLine => clear_lines(first, count),
                Zeroes::RepStore if count >= LONG_RUN_PAGES => rep_store(first, count),
                _ if self.vectors.is_none() => stores::zero(first, count),
                _ => self.write(first, count, &[0; WORDS]),
            }
        }
    }

    /// The fence that streaming stores and `clzero` need before what they wrote is published.
    #[expect(clippy::unused_self, reason = "the same interface as where there is nothing to order")]
    pub(super) fn fence(self) {
        // SAFETY: every x86-64 CPU has the instruction; it changes neither memory nor registers. It is taken to
        // use memory, so the compiler moves no access across it.
        unsafe { asm!("sfence", options(nostack, preserves_flags)) }
    }
}

/// A program compiled without vector registers has none to store from.
#[cfg(not(target_feature = "sse2"))]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Vectors {}

#[cfg(not(target_feature = "sse2"))]
impl Vectors {
    fn available() -> impl Iterator<Item = Self> {
        core::iter::empty()
    }

    fn is_wide(self) -> bool {
        match self {}
    }

    unsafe fn write(self, _: NonNull<Page>, _: usize, _: &[u64; WORDS]) {
        match self {}
    }
}

/// # Safety
///
/// As for [`Streaming::write`], on a CPU with `clzero`.
unsafe fn clear_lines(first: NonNull<Page>, count: usize) {
    for at in 0..count {
        // SAFETY: the page is one of the caller's, and one line.
        unsafe { asm!("clzero", in("rax") first.add(at).as_ptr(), options(nostack, preserves_flags)) }
    }
}

/// # Safety
///
/// As for [`Streaming::write`].
unsafe fn rep_store(first: NonNull<Page>, count: usize) {
    // SAFETY: the caller's pages, upwards: the direction flag is clear at the beginning of assembly.
    unsafe {
        asm!(
            "rep stosb",
            inout("rdi") first.as_ptr() => _,
            inout("rcx") count * PAGE_BYTES => _,
            in("al") 0_u8,
            options(nostack, preserves_flags)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn detection_agrees_with_the_standard_library() {
        let has = |vectors| Vectors::available().any(|found| found == vectors);
        assert_eq!(has(Vectors::Avx2), std::arch::is_x86_feature_detected!("avx2"));
        assert_eq!(has(Vectors::Avx512), std::arch::is_x86_feature_detected!("avx512f"));
        let rep_store = Zeroes::available().any(|found| found == Zeroes::RepStore);
        assert_eq!(rep_store, std::arch::is_x86_feature_detected!("ermsb"));
    }

    #[test]
    fn the_widest_detected_stores_are_chosen() {
        assert_eq!(Streaming::detected().vectors, Vectors::available().max_by_key(|vectors| *vectors as u8));
    }
}
