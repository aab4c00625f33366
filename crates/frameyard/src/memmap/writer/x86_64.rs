//! Non-temporal stores of whole pages on x86-64: lines from vector registers, and the CPU's ways to zero.
//!
//! A streaming store writes a whole line without reading it first. Each writer detects the CPU's instructions at run time,
//! once. The stores are assembly: the compiler's own stores need an address register each, which doubles the instructions.

use core::arch::asm;
use core::arch::x86_64::{__cpuid, __cpuid_count};
#[cfg(target_feature = "sse2")]
use core::arch::x86_64::{__m128i, __m256i, __m512i};
use core::ptr::NonNull;

use super::{ALL, PAGE_BYTES, WORDS, stores};
use crate::page::Page;

/// How whole pages are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Streaming {
    lines: Lines,
    zeroes: Zeroes,
}

/// The instructions that store pages. Each is used only if detected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lines {
    /// Plain stores of 8 bytes: all that a program compiled without vector registers may use.
    Words,
    /// Four streaming stores of 16 bytes.
    #[cfg(target_feature = "sse2")]
    Sse2,
    /// Two of 32 bytes.
    #[cfg(target_feature = "sse2")]
    Avx2,
    /// One of 64 bytes.
    #[cfg(target_feature = "sse2")]
    Avx512,
}

/// The instructions that zero pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Zeroes {
    /// The same stores as any other content.
    Lines,
    /// `clzero`, which clears a line.
    ClearLine,
    /// `rep stosb` where the run has [`LONG_RUN_PAGES`] or more; else [`Self::Lines`].
    RepStore,
}

/// The shortest run for which `rep stosb` is fastest: 64 MiB of pages.
///
/// Measured on an AMD EPYC of the Zen 4 family with 32 MiB of L3, zeroes to 1 GiB of memory: in runs of 64 KiB to
/// 16 MiB `rep stosb` writes 31 GB/s, in runs of 32 MiB 67, of 64 MiB 72, and 76 in one run; below, its lines are read
/// before they are written. Streaming stores of zeroes do not depend on the length of a run: 85 to 88 GB/s with 64 or
/// 32 bytes each, 58 with 16; `clzero` 75 to 79. Over 4 GiB in one run all but those of 16 bytes write 74 to 78. So where
/// there is AVX2 nothing is faster than it, at any length; the other ways are for CPUs without. (Few in tests.)
const LONG_RUN_PAGES: usize = if cfg!(test) { 64 } else { (64 << 20) / PAGE_BYTES };

/// Pages per loop iteration: the number of offsets in `stream_pages`.
///
/// So a page costs 1.2 instructions with stores of 64 bytes, 2.2 with 32, and 4.2 with 16.
#[cfg(target_feature = "sse2")]
const UNROLLED: usize = 16;

impl Streaming {
    /// The way that works on every CPU.
    pub(super) const PORTABLE: Self = Self { lines: Lines::Words, zeroes: Zeroes::Lines };

    /// The fastest way of this CPU.
    pub(super) fn detected() -> Self {
        let features = Features::of_this_cpu();
        let lines = features.lines();
        let zeroes = match lines {
            #[cfg(target_feature = "sse2")]
            Lines::Avx2 | Lines::Avx512 => Zeroes::Lines,
            _ if features.clear_line => Zeroes::ClearLine,
            _ if features.rep_store => Zeroes::RepStore,
            _ => Zeroes::Lines,
        };
        Self { lines, zeroes }
    }

    /// All ways of this CPU, for tests.
    #[cfg(test)]
    pub(super) fn available() -> impl Iterator<Item = Self> {
        let features = Features::of_this_cpu();
        let lines = [
            Some(Lines::Words),
            #[cfg(target_feature = "sse2")]
            Some(Lines::Sse2),
            #[cfg(target_feature = "sse2")]
            features.avx2.then_some(Lines::Avx2),
            #[cfg(target_feature = "sse2")]
            features.avx512.then_some(Lines::Avx512),
        ];
        let zeroes = [
            Some(Zeroes::Lines),
            features.clear_line.then_some(Zeroes::ClearLine),
            features.rep_store.then_some(Zeroes::RepStore),
        ];
        let each = move |lines| zeroes.into_iter().flatten().map(move |zeroes| Self { lines, zeroes });
        lines.into_iter().flatten().flat_map(each)
    }

    /// Writes the same words to every page.
    ///
    /// # Safety
    ///
    /// `first` points to `count` writable pages that no other thread accesses during the call.
    pub(super) unsafe fn write(self, first: NonNull<Page>, count: usize, words: &[u64; WORDS]) {
        // SAFETY: the caller's contract; the CPU has what `lines` names, because only detected instructions are chosen.
        unsafe {
            match self.lines {
                Lines::Words => stores::set::<ALL>(first, count, words),
                #[cfg(target_feature = "sse2")]
                Lines::Sse2 => write_sse2(first.cast(), count, words),
                #[cfg(target_feature = "sse2")]
                Lines::Avx2 => write_avx2(first.cast(), count, words),
                #[cfg(target_feature = "sse2")]
                Lines::Avx512 => write_avx512(first.cast(), count, words),
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
                Zeroes::Lines | Zeroes::RepStore if self.lines == Lines::Words => stores::zero(first, count),
                Zeroes::Lines | Zeroes::RepStore => self.write(first, count, &[0; WORDS]),
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

/// The CPU features that matter here.
#[derive(Clone, Copy, Debug)]
struct Features {
    #[cfg(target_feature = "sse2")]
    avx2: bool,
    #[cfg(target_feature = "sse2")]
    avx512: bool,
    rep_store: bool,
    clear_line: bool,
}

impl Features {
    fn of_this_cpu() -> Self {
        let extended = if __cpuid(0).eax >= 7 { __cpuid_count(7, 0).ebx } else { 0 };
        let sizes = if __cpuid(0x8000_0000).eax >= 0x8000_0008 { __cpuid(0x8000_0008).ebx } else { 0 };
        #[cfg(target_feature = "sse2")]
        let state = vector_state();
        Self {
            #[cfg(target_feature = "sse2")]
            avx2: state & AVX_STATE == AVX_STATE && extended & 1 << 5 != 0,
            #[cfg(target_feature = "sse2")]
            avx512: state & AVX512_STATE == AVX512_STATE && extended & 1 << 16 != 0,
            rep_store: extended & 1 << 9 != 0,
            clear_line: sizes & 1 != 0,
        }
    }

    fn lines(self) -> Lines {
        #[cfg(target_feature = "sse2")]
        match self {
            Self { avx512: true, .. } => Lines::Avx512,
            Self { avx2: true, .. } => Lines::Avx2,
            _ => Lines::Sse2,
        }
        #[cfg(not(target_feature = "sse2"))]
        Lines::Words
    }
}

/// The parts of the vector state that AVX needs: the registers' low and middle parts.
#[cfg(target_feature = "sse2")]
const AVX_STATE: u64 = 0b110;
/// Those that AVX-512 needs: these, the mask registers, the high parts, and the upper sixteen registers.
#[cfg(target_feature = "sse2")]
const AVX512_STATE: u64 = 0b1110_0110;

/// The parts of the vector state that the operating system saves (`XCR0`); none if unknown.
#[cfg(target_feature = "sse2")]
fn vector_state() -> u64 {
    const OSXSAVE_AND_AVX: u32 = 0b11 << 27;
    if __cpuid(1).ecx & OSXSAVE_AND_AVX != OSXSAVE_AND_AVX {
        return 0;
    }
    let (low, high): (u32, u32);
    // SAFETY: with OSXSAVE set the instruction exists and register 0 may be read.
    unsafe {
        asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high, options(nomem, nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// Streams one page from four registers of 16 bytes, two of 32 or one of 64: `$stores` with the page at `page`.
#[cfg(target_feature = "sse2")]
macro_rules! stream_pages {
    ($first:ident, $count:ident, [$($store:literal),+], $class:ident, $($part:ident),+) => {
        let mut page: *mut u8 = $first.as_ptr();
        for _ in 0..$count / UNROLLED {
            // SAFETY: the caller's pages, 16 of them, aligned to 64 bytes.
            unsafe {
                asm!(
                    ".irp at, 0,64,128,192,256,320,384,448,512,576,640,704,768,832,896,960",
                    $($store,)+
                    ".endr",
                    page = in(reg) page, $($part = in($class) $part,)+
                    options(nostack, preserves_flags)
                );
                page = page.add(UNROLLED * PAGE_BYTES);
            }
        }
        for _ in 0..$count % UNROLLED {
            // SAFETY: one of the caller's pages that are left, aligned to 64 bytes.
            unsafe {
                asm!(
                    ".irp at, 0",
                    $($store,)+
                    ".endr",
                    page = in(reg) page, $($part = in($class) $part,)+
                    options(nostack, preserves_flags)
                );
                page = page.add(PAGE_BYTES);
            }
        }
    };
}

/// # Safety
///
/// As for [`Streaming::write`].
#[cfg(target_feature = "sse2")]
#[target_feature(enable = "sse2")]
unsafe fn write_sse2(first: NonNull<u8>, count: usize, words: &[u64; WORDS]) {
    // SAFETY: any bits are a vector, and the sizes are equal.
    let [a, b, c, d]: [__m128i; 4] = unsafe { core::mem::transmute(*words) };
    stream_pages!(
        first,
        count,
        [
            "movntdq [{page} + \\at], {a}",
            "movntdq [{page} + \\at + 16], {b}",
            "movntdq [{page} + \\at + 32], {c}",
            "movntdq [{page} + \\at + 48], {d}"
        ],
        xmm_reg,
        a,
        b,
        c,
        d
    );
}

/// # Safety
///
/// As for [`Streaming::write`], on a CPU with AVX2.
#[cfg(target_feature = "sse2")]
#[target_feature(enable = "avx2")]
unsafe fn write_avx2(first: NonNull<u8>, count: usize, words: &[u64; WORDS]) {
    // SAFETY: any bits are a vector, and the sizes are equal.
    let [a, b]: [__m256i; 2] = unsafe { core::mem::transmute(*words) };
    stream_pages!(first, count, ["vmovntdq [{page} + \\at], {a}", "vmovntdq [{page} + \\at + 32], {b}"], ymm_reg, a, b);
}

/// # Safety
///
/// As for [`Streaming::write`], on a CPU with AVX-512.
#[cfg(target_feature = "sse2")]
#[target_feature(enable = "avx512f")]
unsafe fn write_avx512(first: NonNull<u8>, count: usize, words: &[u64; WORDS]) {
    // SAFETY: any bits are a vector, and the sizes are equal.
    let line: __m512i = unsafe { core::mem::transmute(*words) };
    stream_pages!(first, count, ["vmovntdq [{page} + \\at], {line}"], zmm_reg, line);
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
        let features = Features::of_this_cpu();
        assert_eq!(features.avx2, std::arch::is_x86_feature_detected!("avx2"));
        assert_eq!(features.avx512, std::arch::is_x86_feature_detected!("avx512f"));
        assert_eq!(features.rep_store, std::arch::is_x86_feature_detected!("ermsb"));
    }

    #[test]
    fn what_is_detected_is_the_widest_there_is() {
        let widest = Streaming::available().map(|streaming| streaming.lines).last();
        assert_eq!(Some(Streaming::detected().lines), widest);
    }
}
