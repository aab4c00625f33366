//! Writes page structures during map initialisation, in the way that an [`Initialiser`] names.
//!
//! # Plain stores to atomics
//!
//! [`MapWriter::prepare`] and [`MapWriter::write`] store plain words to memory that all other code accesses as the atomics of a
//! [`Page`]. That is not a data race: the writer has claimed the run, so no other thread accesses its pages. After
//! [`MapWriter::finish`] the writer publishes the run with a Release store, and every later access to the pages follows the
//! Acquire load that read it.
//!
//! # Parts
//!
//! `stores` has the portable ways, `streaming` the machine's fastest: with instructions of `vectors` and `x86_64`, or none (`absent`). In models
//! a page is not plain memory, so all ways use its atomics (`modelled`).

use core::ptr::NonNull;

use crate::memmap::Initialiser;
use crate::page::Page;
use crate::page::content::{COUNTS, IDENTITY, PageTemplate, WORDS};
use crate::platform::MapWrite;

#[cfg(any(not(all(target_arch = "x86_64", target_feature = "sse2")), loom, miri))]
mod absent;
#[cfg(loom)]
mod modelled;
#[cfg(not(loom))]
mod stores;
mod streaming;
#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(any(loom, miri))))]
mod vectors;
#[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
mod x86_64;

#[cfg(any(not(all(target_arch = "x86_64", target_feature = "sse2")), loom, miri))]
use absent::Absent as Vectors;
#[cfg(any(not(target_arch = "x86_64"), loom, miri))]
use absent::{Absent as Zeroes, fence};
#[cfg(loom)]
use modelled as stores;
use streaming::Streaming;
#[cfg(all(target_arch = "x86_64", target_feature = "sse2", not(any(loom, miri))))]
use vectors::Vectors;
#[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
use x86_64::{Zeroes, fence};

/// The bytes of a page structure.
#[cfg(not(loom))]
const PAGE_BYTES: usize = 8 * WORDS;
/// The tag's bit in a mask of words.
const TAG: u8 = 1;
/// The words of kernel-like content, and the tag.
const KERNEL: u8 = TAG | 1 << IDENTITY | 1 << COUNTS;
/// Every word.
const ALL: u8 = u8::MAX;

/// Writes page structures by one initialiser.
///
/// In a kernel, [`Initialiser::Stream`] uses vector registers if the core was compiled with SSE2: call it only where the
/// floating-point state may be used. A core compiled for soft-float uses general registers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MapWriter {
    initialiser: Initialiser,
    streaming: Streaming,
}

impl MapWriter {
    /// A writer for that way. Detects CPU features if it streams.
    pub(crate) fn new(initialiser: Initialiser) -> Self {
        let streaming = match initialiser {
            Initialiser::Stream => Streaming::detected(),
            _ => Streaming::PORTABLE,
        };
        Self { initialiser, streaming }
    }

    /// Prepares a run of pages, which may be written in several parts: the first pass of [`Initialiser::TwoPass`]. Does nothing
    /// in the other ways.
    ///
    /// # Safety
    ///
    /// `first` points to `count` page structures, mapped and writable, that no other thread accesses during the call.
    pub(crate) unsafe fn prepare(&self, first: NonNull<Page>, count: u64) {
        if self.initialiser == Initialiser::TwoPass {
            // SAFETY: the caller's contract.
            unsafe { stores::zero(first, count as usize) }
        }
    }

    /// Writes every page of a part of a prepared run. [`Initialiser::None`] writes nothing: the content must be zero.
    ///
    /// # Safety
    ///
    /// `first` points to `count` page structures, mapped and writable, that no other thread accesses during the call.
    /// The caller publishes them after [`finish`](Self::finish).
    pub(crate) unsafe fn write(&self, first: NonNull<Page>, count: u64, content: PageTemplate) {
        let words = content.in_memory();
        let count = count as usize;
        let few = content.used() & !KERNEL == 0;
        // SAFETY: the caller's contract, in each of the calls. Words left out are zero already.
        unsafe {
            match self.initialiser {
                Initialiser::None => {
                    debug_assert_eq!(content, PageTemplate::ZERO, "initialiser `none` can only leave zeroes");
                }
                Initialiser::TwoPass if content == PageTemplate::ZERO => {
                    stores::set::<false, TAG>(first, count, &words);
                }
                Initialiser::TwoPass if few => stores::set::<false, KERNEL>(first, count, &words),
                Initialiser::MemsetPerPage if content == PageTemplate::ZERO => {
                    stores::set::<true, TAG>(first, count, &words);
                }
                Initialiser::MemsetPerPage if few => stores::set::<true, KERNEL>(first, count, &words),
                Initialiser::MemsetPerPage => stores::set::<true, ALL>(first, count, &words),
                Initialiser::TwoPass | Initialiser::StoresPerPage => stores::set::<false, ALL>(first, count, &words),
                Initialiser::Stream if content == PageTemplate::ZERO => self.streaming.zero(first, count),
                Initialiser::Stream => self.streaming.write(first, count, &words),
            }
        }
    }

    /// The passes over the pages, in order: that of [`prepare`](Self::prepare) and that of [`write`](Self::write).
    pub(crate) fn passes(&self) -> impl Iterator<Item = MapWrite> {
        let (prepare, write) = match self.initialiser {
            Initialiser::None => (None, None),
            Initialiser::TwoPass => (Some(MapWrite::Memset), Some(MapWrite::Cached)),
            Initialiser::MemsetPerPage => (None, Some(MapWrite::MemsetEach)),
            Initialiser::StoresPerPage => (None, Some(MapWrite::Cached)),
            Initialiser::Stream => (None, Some(MapWrite::Streamed)),
        };
        prepare.into_iter().chain(write)
    }

    /// Orders all writes before later stores. Call it before publishing the pages.
    ///
    /// Non-temporal stores and instructions that clear whole lines may otherwise become visible after a later Release store of
    /// the same CPU, which is a plain store on x86.
    pub(crate) fn finish(&self) {
        if self.initialiser == Initialiser::Stream {
            self.streaming.fence();
        }
    }
}
