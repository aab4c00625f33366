//! Writes page structures when the memory map comes up: one writer for each [`Initialiser`].
//!
//! [`MapWriter::prepare`] and [`MapWriter::write`] store plain words to memory that everybody else reaches as the
//! atomics of a [`Page`]. That is no data race: whoever writes a run has claimed it alone, so nobody reads or writes
//! its pages meanwhile, and everybody who comes later has seen the run published by a `Release` store that the
//! writer made after [`MapWriter::finish`]. The writes happen before that store, and every use of the pages'
//! atomics happens after the `Acquire` load that read it. The bits of a word are the same either way.
//!
//! This module's parts: `stores` has the portable ways; `x86_64` writes whole lines past the caches, and `portable`
//! stands in for it elsewhere. Under the model checker a page is no plain memory: there all writers go through its
//! atomics (`modelled`).

use core::ptr::NonNull;

use super::Initialiser;
use crate::page::Page;
use crate::page::content::{COUNTS, IDENTITY, PageTemplate, WORDS};
use crate::platform::MapWrite;

#[cfg(loom)]
mod modelled;
#[cfg(not(all(target_arch = "x86_64", not(any(loom, miri)))))]
mod portable;
#[cfg(not(loom))]
mod stores;
#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
mod x86_64;

#[cfg(loom)]
use modelled as stores;
#[cfg(not(all(target_arch = "x86_64", not(any(loom, miri)))))]
use portable::Streaming;
#[cfg(all(target_arch = "x86_64", not(any(loom, miri))))]
use x86_64::Streaming;

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
/// In a kernel, [`Initialiser::Stream`] uses vector registers where the core was compiled with SSE2: call it where
/// the floating-point state may be used. A core compiled for soft-float uses general registers alone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MapWriter {
    initialiser: Initialiser,
    streaming: Streaming,
}

impl MapWriter {
    /// A writer by that initialiser; looks at the CPU's features where it streams.
    pub(crate) fn new(initialiser: Initialiser) -> Self {
        let streaming = match initialiser {
            Initialiser::Stream => Streaming::detected(),
            _ => Streaming::PORTABLE,
        };
        Self { initialiser, streaming }
    }

    /// Makes a run of pages ready to be written, in one part or several: the first pass of
    /// [`Initialiser::TwoPass`]. Nothing with any other initialiser.
    ///
    /// # Safety
    ///
    /// `first` points to `count` page structures, mapped and writable, that nobody else reads or writes meanwhile.
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
    /// `first` points to `count` page structures, mapped and writable, that nobody else reads or writes meanwhile.
    /// The caller publishes them after [`finish`](Self::finish).
    pub(crate) unsafe fn write(&self, first: NonNull<Page>, count: u64, content: PageTemplate) {
        let words = content.in_memory();
        let count = count as usize;
        let few = content.used() & !KERNEL == 0;
        // SAFETY: the caller's contract, in each of the calls. Words left out are zero already.
        unsafe {
            match self.initialiser {
                Initialiser::None => debug_assert_eq!(content, PageTemplate::ZERO, "nothing is written but zero"),
                Initialiser::TwoPass if content == PageTemplate::ZERO => stores::set::<TAG>(first, count, &words),
                Initialiser::TwoPass if few => stores::set::<KERNEL>(first, count, &words),
                Initialiser::MemsetPerPage if content == PageTemplate::ZERO => {
                    stores::zero_each_and_set::<TAG>(first, count, &words);
                }
                Initialiser::MemsetPerPage if few => stores::zero_each_and_set::<KERNEL>(first, count, &words),
                Initialiser::MemsetPerPage => stores::zero_each_and_set::<ALL>(first, count, &words),
                Initialiser::TwoPass | Initialiser::StoresPerPage => stores::set::<ALL>(first, count, &words),
                Initialiser::Stream if content == PageTemplate::ZERO => self.streaming.zero(first, count),
                Initialiser::Stream => self.streaming.write(first, count, &words),
            }
        }
    }

    /// How each pass over pages goes to memory, in order: what [`prepare`](Self::prepare) does, and what
    /// [`write`](Self::write) does.
    pub(crate) fn passes(&self) -> impl Iterator<Item = MapWrite> {
        let (prepare, write) = match self.initialiser {
            Initialiser::None => (None, None),
            Initialiser::TwoPass => (Some(MapWrite::Cached), Some(MapWrite::Cached)),
            Initialiser::MemsetPerPage | Initialiser::StoresPerPage => (None, Some(MapWrite::Cached)),
            Initialiser::Stream => (None, Some(MapWrite::Streamed)),
        };
        prepare.into_iter().chain(write)
    }

    /// Orders all that was written before whatever follows. Call it before publishing what was written.
    ///
    /// Streaming stores, and instructions that clear whole lines, may otherwise become visible after a later
    /// `Release` store of the same CPU, which on x86 is a plain one.
    pub(crate) fn finish(&self) {
        if self.initialiser == Initialiser::Stream {
            self.streaming.fence();
        }
    }
}
