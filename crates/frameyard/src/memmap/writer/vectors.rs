//! Streaming stores from vector registers.
//!
//! The stores are assembly: the compiler's own stores need an address register each, which doubles the instructions.

use core::arch::asm;
use core::arch::x86_64::{__m128i, __m256i, __m512i};
use core::ptr::NonNull;

use crate::memmap::writer::x86_64::{cpuid, extended_features};
use crate::memmap::writer::{PAGE_BYTES, WORDS};
use crate::page::Page;

/// The registers that pages are stored from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Vectors {
    /// Four stores of 16 bytes per page.
    Sse2,
    /// Two of 32 bytes.
    Avx2,
    /// One of 64 bytes.
    Avx512,
}

/// The parts of the vector state that AVX needs: the registers' low and middle parts.
const AVX_STATE: u64 = 0b110;
/// Those that AVX-512 needs: these, the mask registers, the high parts, and the upper sixteen registers.
const AVX512_STATE: u64 = 0b1110_0110;

impl Vectors {
    /// Those of this CPU that the operating system saves, the widest last.
    pub(super) fn available() -> impl Iterator<Item = Self> {
        let (state, extended) = (saved_state(), extended_features());
        let has = |needed: u64, bit: u32| state & needed == needed && extended & 1 << bit != 0;
        let (avx2, avx512) = (has(AVX_STATE, 5), has(AVX512_STATE, 16));
        [Some(Self::Sse2), avx2.then_some(Self::Avx2), avx512.then_some(Self::Avx512)].into_iter().flatten()
    }

    /// Whether no other instruction zeroes pages faster.
    pub(super) fn is_wide(self) -> bool {
        self != Self::Sse2
    }

    /// Writes the same words to every page.
    ///
    /// # Safety
    ///
    /// `first` points to `count` writable pages that no other thread accesses during the call. The CPU has these registers.
    pub(super) unsafe fn write(self, first: NonNull<Page>, count: usize, words: &[u64; WORDS]) {
        // SAFETY: the caller's contract.
        unsafe {
            match self {
                Self::Sse2 => write_sse2(first.cast(), count, words),
                Self::Avx2 => write_avx2(first.cast(), count, words),
                Self::Avx512 => write_avx512(first.cast(), count, words),
            }
        }
    }
}

/// The parts of the vector state that the operating system saves (`XCR0`); none if unknown.
fn saved_state() -> u64 {
    const OSXSAVE_AND_AVX: u32 = 0b11 << 27;
    if cpuid(1).ecx & OSXSAVE_AND_AVX != OSXSAVE_AND_AVX {
        return 0;
    }
    let (low, high): (u32, u32);
    // SAFETY: with OSXSAVE set the instruction exists and register 0 may be read.
    unsafe {
        asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high, options(nomem, nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// Declares a function that writes pages from `$count` registers of a class: `$stores` with the page at `page + at`.
///
/// A loop iteration writes 16 pages. So a page costs 1.2 instructions with stores of 64 bytes, 2.2 with 32, and 4.2 with 16.
macro_rules! page_writer {
    ($name:ident, $feature:literal, $class:ident, [$($part:ident),+]: [$vector:ty; $count:literal], $($store:literal),+) => {
        /// # Safety
        ///
        /// As for [`Vectors::write`].
        #[target_feature(enable = $feature)]
        unsafe fn $name(first: NonNull<u8>, count: usize, words: &[u64; WORDS]) {
            // SAFETY: any bits are a vector, and the sizes are equal.
            let [$($part),+]: [$vector; $count] = unsafe { core::mem::transmute(*words) };
            let mut page = first.as_ptr();
            page_writer!(@loop page, count / 16, 16, "0,64,128,192,256,320,384,448,512,576,640,704,768,832,896,960",
                $class, [$($part),+], $($store),+);
            page_writer!(@loop page, count % 16, 1, "0", $class, [$($part),+], $($store),+);
        }
    };
    (@loop $page:ident, $times:expr, $pages:literal, $offsets:literal, $class:ident, [$($part:ident),+], $($store:literal),+) => {
        for _ in 0..$times {
            // SAFETY: the next of the caller's pages, aligned to 64 bytes.
            unsafe {
                asm!(concat!(".irp at, ", $offsets), $($store,)+ ".endr", page = in(reg) $page, $($part = in($class) $part,)+
                    options(nostack, preserves_flags));
                $page = $page.add($pages * PAGE_BYTES);
            }
        }
    };
}

page_writer!(
    write_sse2, "sse2", xmm_reg, [a, b, c, d]: [__m128i; 4],
    "movntdq [{page} + \\at], {a}", "movntdq [{page} + \\at + 16], {b}",
    "movntdq [{page} + \\at + 32], {c}", "movntdq [{page} + \\at + 48], {d}"
);
page_writer!(
    write_avx2, "avx2", ymm_reg, [a, b]: [__m256i; 2],
    "vmovntdq [{page} + \\at], {a}", "vmovntdq [{page} + \\at + 32], {b}"
);
page_writer!(write_avx512, "avx512f", zmm_reg, [line]: [__m512i; 1], "vmovntdq [{page} + \\at], {line}");
