//! Instructions of x86-64 that write whole pages.

use core::arch::asm;
use core::arch::x86_64::{__cpuid_count, CpuidResult};
use core::ptr::NonNull;

use crate::memmap::writer::PAGE_BYTES;
use crate::page::Page;

/// The instructions that zero pages, beside stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Zeroes {
    /// `rep stosb`, for runs of [`LONG_RUN_PAGES`] or more.
    RepStore,
    /// `clzero`, which clears a line.
    ClearLine,
}

/// The shortest run for which `rep stosb` is fastest: 64 MiB of pages.
///
/// Measured on an AMD EPYC of the Zen 4 family with 32 MiB of L3, zeroes to 1 GiB of memory: in runs of 64 KiB to
/// 16 MiB `rep stosb` writes 31 GB/s, in runs of 32 MiB 67, of 64 MiB 72, and 76 in one run; below, its lines are read
/// before they are written. Streaming stores of zeroes do not depend on the length of a run: 85 to 88 GB/s with 64 or
/// 32 bytes each, 58 with 16; `clzero` 75 to 79. Over 4 GiB in one run all but those of 16 bytes write 74 to 78. So where
/// there is AVX2 nothing is faster than it, at any length; the other ways are for CPUs without. (Few in tests.)
const LONG_RUN_PAGES: usize = if cfg!(test) { 64 } else { (64 << 20) / PAGE_BYTES };

impl Zeroes {
    /// Those of this CPU, the preferred one last.
    pub(super) fn available() -> impl Iterator<Item = Self> {
        let sizes = if cpuid(0x8000_0000).eax >= 0x8000_0008 { cpuid(0x8000_0008).ebx } else { 0 };
        let rep_store = (extended_features() & 1 << 9 != 0).then_some(Self::RepStore);
        rep_store.into_iter().chain((sizes & 1 != 0).then_some(Self::ClearLine))
    }

    /// The shortest run that the instruction is used for.
    pub(super) fn fewest_pages(self) -> usize {
        if self == Self::RepStore { LONG_RUN_PAGES } else { 0 }
    }

    /// Zeroes every page.
    ///
    /// # Safety
    ///
    /// `first` points to `count` writable pages that no other thread accesses during the call. The CPU has the instruction.
    pub(super) unsafe fn zero(self, first: NonNull<Page>, count: usize) {
        // SAFETY: the caller's contract. The direction flag is clear at the beginning of assembly, so `rep stosb` goes upwards.
        unsafe {
            match self {
                Self::ClearLine => {
                    for at in 0..count {
                        asm!("clzero", in("rax") first.add(at).as_ptr(), options(nostack, preserves_flags));
                    }
                }
                Self::RepStore => asm!(
                    "rep stosb",
                    inout("rdi") first.as_ptr() => _,
                    inout("rcx") count * PAGE_BYTES => _,
                    in("al") 0_u8,
                    options(nostack, preserves_flags)
                ),
            }
        }
    }
}

/// The feature bits of this CPU in register `ebx` of leaf 7; none if it has no such leaf.
pub(super) fn extended_features() -> u32 {
    if cpuid(0).eax >= 7 { cpuid(7).ebx } else { 0 }
}

/// The fence that streaming stores and `clzero` need before what they wrote is published.
pub(super) fn fence() {
    // SAFETY: every x86-64 CPU has the instruction; it changes neither memory nor registers. It is taken to use memory, so the
    // compiler moves no access across it.
    unsafe { asm!("sfence", options(nostack, preserves_flags)) }
}

/// What the processor says of itself under that number.
pub(super) fn cpuid(leaf: u32) -> CpuidResult {
    #[expect(unused_unsafe, reason = "the function is unsafe before Rust 1.94")]
    // SAFETY: every x86-64 processor has the instruction.
    unsafe {
        __cpuid_count(leaf, 0)
    }
}
