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

use super::{Initialiser, MapContent};
use crate::page::{PAYLOAD_WORDS, Page};
use crate::units::ZoneId;

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

/// How many 8-byte words a page has.
const WORDS: usize = 2 + PAYLOAD_WORDS;
/// The bytes of a page structure.
const PAGE_BYTES: usize = 8 * WORDS;
/// The word that names zone and section of a page of kernel-like content.
///
/// Both words that are not zero stand in the first half of the line: on an AMD EPYC of the Zen 4 family streaming
/// stores write 56 GB/s of lines whose second half is zero, and 28 GB/s of lines where anything there is not.
const IDENTITY: usize = 2;
/// The word that holds the counts of a page of kernel-like content.
const COUNTS: usize = 3;

/// The eight words of a page before anything begins there; constant over a range of frames.
///
/// Word 0 is the tag, word 1 holds `next` in its low and `prev` in its high half, the others are the payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PageTemplate(pub(crate) [u64; WORDS]);

impl PageTemplate {
    /// An interior page without content of its own.
    pub(crate) const ZERO: Self = Self([0; WORDS]);

    /// What a page of that section holds, with the zone that its frame belongs to; a hole belongs to none.
    ///
    /// The kernel's content is what its `__init_single_page` writes: the links to zone, node and section that it
    /// keeps in the page's flags, and its counts. Both say the same of every free frame, so a template serves a
    /// whole range.
    pub(crate) fn of(content: MapContent, section: u64, zone: Option<ZoneId>) -> Self {
        let mut words = [0; WORDS];
        match content {
            MapContent::Zero => {}
            MapContent::Kernel => {
                debug_assert!(section < 1 << 32, "section {section} has no room in 32 bits");
                words[IDENTITY] = zone.map_or(0, |zone| u64::from(zone.0) + 1) | section << 32;
                words[COUNTS] = u64::from(u32::MAX) << 32;
            }
        }
        Self(words)
    }

    /// The words as they stand in memory, where the two links are words of 4 bytes.
    fn in_memory(self) -> [u64; WORDS] {
        let mut words = self.0;
        if cfg!(target_endian = "big") {
            words[1] = words[1].rotate_left(32);
        }
        words
    }

    /// The words that are not zero, one bit each.
    fn used(self) -> u8 {
        self.0.iter().rev().fold(0, |mask, word| mask << 1 | u8::from(*word != 0))
    }
}

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

    /// By which means it writes.
    pub(crate) fn initialiser(&self) -> Initialiser {
        self.initialiser
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
