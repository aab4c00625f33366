//! A per-CPU list as its own CPU uses it, in short sections that nothing else on that CPU enters.
//!
//! # Protocol
//!
//! A CPU's lists have two *owner words*, which are 0 while the CPU may use its lists. In a section, the CPU checks that it is the CPU
//! of the lists and that both words are 0, and then ends with one store, which takes effect or does not: of a list's word
//! ([`OwnList::pop`], [`OwnList::push`]), or of the first owner word ([`OwnList::take`]), after which the thread has the lists to itself,
//! wherever it runs. None of these needs a locked operation: no other section of that CPU is in progress.
//!
//! Any other thread locks the second owner word, ends all sections of the CPU
//! ([`Platform::end_sections`](super::Platform::end_sections)), and locks the first owner word. Then it has the lists to itself. A section
//! that saw the second word unlocked has ended by then: the thread sees what it stored in a list's word, or waits for the first
//! owner word. Later sections see the second word locked.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The owner words while a CPU may use its lists.
const UNUSED: u32 = 0;
/// The first owner word of lists that a thread took in a section.
const TAKEN: u32 = 1;

/// A list of a CPU, for a section on that CPU. A kernel uses [`pop`](Self::pop) and [`push`](Self::push). A platform that does the
/// same in instructions of its own uses the addresses.
#[derive(Clone, Copy, Debug)]
pub struct OwnList<'a> {
    pub(crate) owners: &'a [AtomicU32; 2],
    pub(crate) word: &'a AtomicU64,
    pub(crate) entries: &'a [AtomicU32],
}

impl<'a> OwnList<'a> {
    /// The distance of the first entry from the list's word, in bytes. Entries have four bytes each.
    pub const ENTRIES: usize = 24;
    /// What a pop adds to the list's word. Bits 0–7 are the number of entries.
    pub const POP: u64 = u64::MAX;
    /// What a push adds to the list's word. Bits 16–63 count frees. If the sum overflows, the push must not happen.
    pub const PUSH: u64 = 1 << 16 | 1;

    /// The owner words of the CPU's lists. A section may use the list while both are 0. They lie at a multiple of 8 bytes.
    #[must_use]
    #[inline(always)]
    pub fn owners(&self) -> &'a [AtomicU32; 2] {
        self.owners
    }

    /// The list's word. A pop needs at least one entry; a push needs fewer entries than bits 8–15 say.
    #[must_use]
    #[inline(always)]
    pub fn word(&self) -> &'a AtomicU64 {
        self.word
    }

    /// Takes the newest entry; `None` if there is none or the list is not the CPU's. `step` is called before each access to memory;
    /// if it returns false, the section ends without an effect.
    #[inline]
    pub fn pop(&self, mut step: impl FnMut() -> bool) -> Option<u32> {
        self.check(&mut step)?;
        let word = self.load_word(&mut step)?;
        let last = (word as u8).checked_sub(1)?;
        if !step() {
            return None;
        }
        let entry = self.entries.get(usize::from(last))?.load(Ordering::Relaxed);
        if !step() {
            return None;
        }
        self.word.store(word.wrapping_add(Self::POP), Ordering::Relaxed);
        Some(entry)
    }

    /// Adds an entry; whether it did: it does not if the list is at its limit or not the CPU's. `step` as in [`pop`](Self::pop).
    #[inline]
    #[must_use]
    pub fn push(&self, entry: u32, mut step: impl FnMut() -> bool) -> bool {
        let Some(word) = self.check(&mut step).and_then(|()| self.load_word(&mut step)) else { return false };
        let (len, limit) = (word as u8, (word >> 8) as u8);
        let Some(pushed) = word.checked_add(Self::PUSH).filter(|_| len < limit) else { return false };
        let Some(slot) = self.entries.get(usize::from(len)).filter(|_| step()) else { return false };
        slot.store(entry, Ordering::Relaxed);
        if !step() {
            return false;
        }
        self.word.store(pushed, Ordering::Relaxed);
        true
    }

    /// Takes all lists of the CPU, if no thread has them; whether it did. `step` as in [`pop`](Self::pop).
    #[inline]
    #[must_use]
    pub fn take(&self, mut step: impl FnMut() -> bool) -> bool {
        let is_unused = self.check(&mut step).is_some() && step();
        if is_unused {
            self.owners[0].store(TAKEN, Ordering::Relaxed);
        }
        is_unused
    }

    fn check(&self, step: &mut impl FnMut() -> bool) -> Option<()> {
        // Acquire: pairs with the Release in `Platform::unlock`.
        let mut is_unused = |word: &AtomicU32| step() && word.load(Ordering::Acquire) == UNUSED;
        (is_unused(&self.owners[0]) && is_unused(&self.owners[1])).then_some(())
    }

    fn load_word(&self, step: &mut impl FnMut() -> bool) -> Option<u64> {
        step().then(|| self.word.load(Ordering::Relaxed))
    }
}
