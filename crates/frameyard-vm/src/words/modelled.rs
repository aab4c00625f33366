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

/// All words of a type, by address.
struct Modelled<T> {
    made: BTreeMap<usize, Box<T>>,
    /// Addresses that were ever used.
    asked_for: BTreeSet<usize>,
    /// Addresses whose words are created when an execution starts.
    known: BTreeSet<usize>,
}

type All<T> = RefCell<Modelled<T>>;

impl<T: Default> Modelled<T> {
    const fn new() -> Self {
        Self { made: BTreeMap::new(), asked_for: BTreeSet::new(), known: BTreeSet::new() }
    }

    #[cfg(test)]
    fn forget(&mut self) {
        self.made.clear();
        self.made.extend(self.known.iter().map(|address| (*address, Box::default())));
    }

    #[cfg(test)]
    fn learn(&mut self) -> usize {
        self.known.clone_from(&self.asked_for);
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
    let made = all.with_borrow_mut(|all| {
        all.asked_for.insert(address);
        core::ptr::from_ref::<T>(all.made.entry(address).or_default())
    });
    // SAFETY: boxed, and kept until the next execution starts.
    unsafe { &*made }
}

fn in_range(address: usize, bytes: usize) -> Vec<(usize, &'static AtomicU64)> {
    WORDS.with_borrow(|all| {
        let part = all.made.range(address..address + bytes);
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

    pub(crate) fn part(self, first: usize, len: usize) -> Self {
        assert!(first <= self.len && len <= self.len - first, "words {first} and {len} more of {}", self.len);
        Self { address: self.address + 8 * first, len, ..self }
    }
}

/// # Safety
///
/// As for mapped frames. A model has no bytes that could be accessed wrongly.
pub(crate) unsafe fn zero<P: Platform>(yard: &Yard<P>, pfn: Pfn, order: Order) -> bool {
    let Some(address) = address_of(yard, pfn) else { return false };
    for (_, word) in in_range(address, bytes_of(yard, order)) {
        word.store(0, Ordering::Relaxed);
    }
    true
}

/// # Safety
///
/// As for mapped frames. A model has no bytes that could be accessed wrongly.
pub(crate) unsafe fn copy<P: Platform>(yard: &Yard<P>, from: Pfn, to: Pfn, order: Order) -> bool {
    let Some((from, to)) = address_of(yard, from).zip(address_of(yard, to)) else { return false };
    zero_range(to, bytes_of(yard, order));
    for (at, word) in in_range(from, bytes_of(yard, order)) {
        modelled(&WORDS, to + (at - from)).store(word.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    true
}

fn zero_range(address: usize, bytes: usize) {
    for (_, word) in in_range(address, bytes) {
        word.store(0, Ordering::Relaxed);
    }
}

/// Only whole words are modelled: bytes are read and written eight at a time, at offsets of whole words.
///
/// # Safety
///
/// As for mapped frames. A model has no bytes that could be accessed wrongly.
pub(crate) unsafe fn read_bytes<P: Platform>(yard: &Yard<P>, pfn: Pfn, offset: usize, bytes: &mut [u8]) -> bool {
    let Some(address) = address_of(yard, pfn) else { return false };
    for (at, chunk) in bytes.chunks_mut(8).enumerate() {
        let word = modelled(&WORDS, address + offset + 8 * at).load(Ordering::Relaxed);
        chunk.copy_from_slice(&word.to_le_bytes()[..chunk.len()]);
    }
    true
}

/// As [`read_bytes`].
///
/// # Safety
///
/// As for mapped frames. A model has no bytes that could be accessed wrongly.
pub(crate) unsafe fn write_bytes<P: Platform>(yard: &Yard<P>, pfn: Pfn, offset: usize, bytes: &[u8]) -> bool {
    let Some(address) = address_of(yard, pfn) else { return false };
    for (at, chunk) in bytes.chunks(8).enumerate() {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        modelled(&WORDS, address + offset + 8 * at).store(u64::from_le_bytes(word), Ordering::Relaxed);
    }
    true
}

/// Like [`read_bytes`]: modelled words are atomic.
pub(crate) use self::{read_bytes as read_shared, write_bytes as write_shared};

/// As [`read_bytes`] and [`write_bytes`] of a whole frame.
///
/// # Safety
///
/// As for mapped frames. A model has no bytes that could be accessed wrongly.
pub(crate) unsafe fn with_bytes<P: Platform, R>(
    yard: &Yard<P>,
    pfn: Pfn,
    use_of: impl FnOnce(&mut [u8]) -> R,
) -> Option<R> {
    let address = address_of(yard, pfn)?;
    let mut bytes = std::vec![0; bytes_of(yard, Order::ZERO)];
    for (at, word) in in_range(address, bytes.len()) {
        bytes[at - address..][..8].copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
    }
    let used = use_of(&mut bytes);
    for (at, chunk) in bytes.chunks_exact(8).enumerate() {
        let word = u64::from_le_bytes(chunk.try_into().expect("eight bytes"));
        // Unused words are zero.
        if word != 0 || in_range(address + 8 * at, 8).len() == 1 {
            modelled(&WORDS, address + 8 * at).store(word, Ordering::Relaxed);
        }
    }
    Some(used)
}
