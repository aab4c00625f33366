//! Words of frames in a loom model, created on first use because loom's atomics are not plain words.
//!
//! They belong to the operating-system thread that explores the model. Each execution starts by forgetting the words of
//! the previous one. The key of a word is the address that the platform returns for its frame.
//!
//! Loom orders all accesses of a word after its creation. An execution therefore starts by creating all words that
//! earlier executions used.

use std::boxed::Box;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::vec::Vec;

use frameyard::locks::LockCounters;
use frameyard::sync::{AtomicU32, AtomicU64, Ordering};
use frameyard::{Order, Pfn, Platform, Yard};

use crate::error::VmError;

/// All words of a type, by address.
struct Modelled<T> {
    words: BTreeMap<usize, Box<T>>,
    /// Addresses that were ever used.
    used: BTreeSet<usize>,
    /// Addresses whose words are created when an execution starts.
    #[cfg_attr(not(test), expect(dead_code, reason = "only tests restart executions"))]
    known: BTreeSet<usize>,
}

type All<T> = RefCell<Modelled<T>>;

impl<T: Default> Modelled<T> {
    const fn new() -> Self {
        Self { words: BTreeMap::new(), used: BTreeSet::new(), known: BTreeSet::new() }
    }

    #[cfg(test)]
    fn forget(&mut self) {
        self.words.clear();
        self.words.extend(self.known.iter().map(|address| (*address, Box::default())));
    }

    #[cfg(test)]
    fn learn(&mut self) -> usize {
        self.known.clone_from(&self.used);
        self.known.len()
    }
}

std::thread_local! {
    static WORDS: All<AtomicU64> = const { RefCell::new(Modelled::new()) };
    static LOCKS: All<AtomicU32> = const { RefCell::new(Modelled::new()) };
    static COUNTERS: All<LockCounters> = const { RefCell::new(Modelled::new()) };
}

/// Forgets all words, at the start of an execution. No words of the previous one are in use.
#[cfg(test)]
pub(crate) fn forget_all() {
    WORDS.with_borrow_mut(Modelled::forget);
    LOCKS.with_borrow_mut(Modelled::forget);
    COUNTERS.with_borrow_mut(Modelled::forget);
}

/// From now on executions start with all words ever used; returns their number.
#[cfg(test)]
pub(crate) fn learn_all() -> usize {
    WORDS.with_borrow_mut(Modelled::learn)
        + LOCKS.with_borrow_mut(Modelled::learn)
        + COUNTERS.with_borrow_mut(Modelled::learn)
}

fn modelled<T: Default>(all: &'static std::thread::LocalKey<All<T>>, address: usize) -> &'static T {
    let word = all.with_borrow_mut(|all| {
        all.used.insert(address);
        core::ptr::from_ref::<T>(all.words.entry(address).or_default())
    });
    // SAFETY: boxed, and kept until the next execution starts.
    unsafe { &*word }
}

fn in_range(address: usize, bytes: usize) -> Vec<(usize, &'static AtomicU64)> {
    WORDS.with_borrow(|all| {
        let part = all.words.range(address..address + bytes);
        // SAFETY: boxed, and kept until the next execution starts.
        part.map(|(at, word)| (*at, unsafe { &*core::ptr::from_ref::<AtomicU64>(word) })).collect()
    })
}

/// Like the words of mapped frames.
#[derive(Clone, Copy)]
pub(crate) struct Words<'y> {
    address: usize,
    len: usize,
    frames: core::marker::PhantomData<&'y AtomicU64>,
}

fn address_of<P: Platform>(yard: &Yard<P>, pfn: Pfn) -> Option<usize> {
    Some(yard.platform().frame_bytes(pfn)?.addr().get())
}

fn bytes_of<P: Platform>(yard: &Yard<P>, order: Order) -> usize {
    yard.geometry().size_of(order.pages()).0 as usize
}

impl<'y> Words<'y> {
    /// # Safety
    ///
    /// As for mapped frames.
    pub(crate) unsafe fn of<P: Platform>(yard: &'y Yard<P>, pfn: Pfn, order: Order) -> Option<Self> {
        Some(Self {
            address: address_of(yard, pfn)?,
            len: bytes_of(yard, order) / 8,
            frames: core::marker::PhantomData,
        })
    }

    /// Words without a yard.
    #[cfg(test)]
    pub(crate) fn bare(len: usize) -> Self {
        let words = Self { address: 8, len, frames: core::marker::PhantomData };
        (0..len).for_each(|word| _ = words.at(word));
        words
    }

    pub(crate) fn len(self) -> usize {
        self.len
    }

    pub(crate) fn at(self, word: usize) -> &'y AtomicU64 {
        assert!(word < self.len, "word {word} of {}", self.len);
        modelled(&WORDS, self.address + 8 * word)
    }

    pub(crate) fn lock_word(self, word: usize) -> &'y AtomicU32 {
        assert!(word < self.len, "word {word} of {}", self.len);
        modelled(&LOCKS, self.address + 8 * word)
    }

    pub(crate) fn lock_counters(self, word: usize) -> &'y LockCounters {
        assert!(word + 4 <= self.len, "words {word} and 3 more of {}", self.len);
        modelled(&COUNTERS, self.address + 8 * word)
    }

    pub(crate) fn try_part(self, first: usize, len: usize) -> Option<Self> {
        let fits = first <= self.len && len <= self.len - first;
        fits.then_some(Self { address: self.address + 8 * first, len, ..self })
    }

    pub(crate) fn part(self, first: usize, len: usize) -> Self {
        self.try_part(first, len).unwrap_or_else(|| panic!("words {first} and {len} more of {}", self.len))
    }
}

/// Like the bytes of mapped frames. Only words in use are modelled: bytes are read and written at offsets of whole words.
pub(crate) struct FrameBytes<'a, P: Platform> {
    yard: &'a Yard<P>,
    pfn: Pfn,
    order: Order,
}

impl<'a, P: Platform> FrameBytes<'a, P> {
    /// # Safety
    ///
    /// As for mapped frames. A model has no bytes that could be accessed wrongly.
    pub(crate) unsafe fn new(yard: &'a Yard<P>, pfn: Pfn, order: Order) -> Self {
        Self { yard, pfn, order }
    }

    pub(crate) fn pfn(&self) -> Pfn {
        self.pfn
    }

    fn address(&self) -> Result<usize, VmError> {
        address_of(self.yard, self.pfn).ok_or(VmError::NoFrameBytes(self.pfn))
    }

    fn len(&self) -> usize {
        bytes_of(self.yard, self.order)
    }

    pub(crate) fn zero(&mut self) -> Result<(), VmError> {
        for (_, word) in in_range(self.address()?, self.len()) {
            word.store(0, Ordering::Relaxed);
        }
        Ok(())
    }

    pub(crate) fn copy_from(&mut self, from: &FrameBytes<'_, P>) -> Result<(), VmError> {
        let (from_address, to) = (from.address()?, self.address()?);
        self.zero()?;
        for (at, word) in in_range(from_address, from.len()) {
            modelled(&WORDS, to + (at - from_address)).store(word.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        Ok(())
    }

    pub(crate) fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), VmError> {
        let address = self.address()? + offset;
        for (at, chunk) in bytes.chunks_mut(8).enumerate() {
            let word = modelled(&WORDS, address + 8 * at).load(Ordering::Relaxed);
            chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
        }
        Ok(())
    }

    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<(), VmError> {
        let address = self.address()? + offset;
        for (at, chunk) in bytes.chunks(8).enumerate() {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            modelled(&WORDS, address + 8 * at).store(u64::from_le_bytes(word), Ordering::Relaxed);
        }
        Ok(())
    }

    pub(crate) fn with<R>(&mut self, work: impl FnOnce(&mut [u8]) -> R) -> Result<R, VmError> {
        let address = self.address()?;
        let mut bytes = std::vec![0; self.len()];
        for (at, word) in in_range(address, bytes.len()) {
            bytes[at - address..][..8].copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
        }
        let result = work(&mut bytes);
        for (at, chunk) in bytes.chunks_exact(8).enumerate() {
            let word = u64::from_le_bytes(chunk.try_into().expect("eight bytes"));
            // Unused words are zero.
            if word != 0 || in_range(address + 8 * at, 8).len() == 1 {
                modelled(&WORDS, address + 8 * at).store(word, Ordering::Relaxed);
            }
        }
        Ok(result)
    }
}

/// Modelled words are atomic, so those of devices need no type of their own.
pub(crate) struct DeviceBytes<'a, P: Platform>(FrameBytes<'a, P>);

impl<'a, P: Platform> DeviceBytes<'a, P> {
    /// # Safety
    ///
    /// As for mapped frames. A model has no bytes that could be accessed wrongly.
    pub(crate) unsafe fn new(yard: &'a Yard<P>, pfn: Pfn) -> Self {
        Self(FrameBytes { yard, pfn, order: Order::ZERO })
    }

    pub(crate) fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), VmError> {
        self.0.read(offset, bytes)
    }

    pub(crate) fn write(&mut self, offset: usize, bytes: &[u8]) -> Result<(), VmError> {
        self.0.write(offset, bytes)
    }
}
