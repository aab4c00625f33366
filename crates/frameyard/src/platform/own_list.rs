//! A per-CPU list as its own CPU uses it: in restartable sequences, which either run undisturbed on that CPU or have no
//! effect.
//!
//! # Protocol
//!
//! A CPU's lists have two *owner words*, which are 0 while the CPU may use its lists. A sequence checks that it runs on
//! the CPU of the lists and that both words are 0. It ends with one store, which takes effect or does not: to a list's
//! word ([`OwnList::pop`], [`OwnList::push`]), or to the first owner word ([`OwnList::take`]), after which the thread
//! has the lists to itself, wherever it runs. None of this needs an atomic read-modify-write, because no other sequence
//! of that CPU is in progress.
//!
//! Any other thread locks the second owner word, ends all sequences of the CPU
//! ([`Platform::end_sequences`](super::Platform::end_sequences)), and locks the first owner word. Then it has the lists
//! to itself. Any sequence that saw the second word unlocked has ended by then, and the thread either sees what that
//! sequence stored in a list's word, or waits for the first owner word. Later sequences see the second word locked.

use crate::platform::{Access, LineKind, Probe, SharedLine};
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// The owner words while a CPU may use its lists.
const UNUSED: u32 = 0;
/// The first owner word of lists that a thread took in a sequence.
const TAKEN: u32 = 1;

/// A list of a CPU, for a sequence on that CPU. A kernel uses [`pop`](Self::pop) and [`push`](Self::push). A platform
/// that implements them in its own instructions uses [`owners`](Self::owners()) and [`word`](Self::word()).
#[derive(Clone, Copy, Debug)]
pub struct OwnList<'a> {
    pub(crate) owners: &'a [AtomicU32; 2],
    pub(crate) word: &'a AtomicU64,
    pub(crate) entries: &'a [AtomicU32],
}

/// The result of a pop: an entry or nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Popped(u64);

impl Popped {
    /// No entry was taken.
    pub const NOTHING: Self = Self(u64::MAX);

    /// This entry was taken.
    #[must_use]
    #[inline(always)]
    pub const fn new(entry: u32) -> Self {
        Self(entry as u64)
    }

    /// Converts a register that contains the entry, or [`u64::MAX`] for nothing.
    #[must_use]
    #[inline(always)]
    pub const fn from_register(value: u64) -> Self {
        Self(value)
    }

    /// The entry, if there is one.
    #[must_use]
    #[inline(always)]
    pub const fn entry(self) -> Option<u32> {
        if self.0 <= u32::MAX as u64 { Some(self.0 as u32) } else { None }
    }

    /// The entry as a place in the map; for nothing, a place behind the end of every map, so that one comparison checks both.
    #[inline(always)]
    pub(crate) const fn place(self) -> usize {
        self.0 as usize
    }
}

impl<'a> OwnList<'a> {
    /// The offset of the first entry from the list's word, in bytes. Each entry has four bytes.
    pub const ENTRIES: usize = 24;
    /// The most entries of a list.
    pub(crate) const SLOTS: usize = 128;
    /// What a pop adds to the list's word. Bits 0–7 are the number of entries.
    pub const POP: u64 = u64::MAX;
    /// What a push adds to the list's word. Bits 16–63 count frees. If the sum overflows, the push must not happen.
    pub const PUSH: u64 = 1 << 16 | 1;

    /// The owner words of the CPU's lists. A sequence may use the list while both are 0. Their address is a multiple of
    /// 8.
    #[must_use]
    #[inline(always)]
    pub fn owners(&self) -> &'a [AtomicU32; 2] {
        self.owners
    }

    /// The list's word. A pop needs at least one entry. A push needs fewer entries than the limit in bits 8–15.
    #[must_use]
    #[inline(always)]
    pub fn word(&self) -> &'a AtomicU64 {
        self.word
    }

    /// Announces the cache lines that a pop uses ([`Probe::touch_line`]), for platforms that count or simulate them.
    pub fn announce_pop(&self, probe: &impl Probe) {
        self.announce(probe, usize::from(self.len()).saturating_sub(1), Access::Read);
    }

    /// Announces the cache lines that a push uses.
    pub fn announce_push(&self, probe: &impl Probe) {
        self.announce(probe, self.len().into(), Access::Write);
    }

    /// Announces the cache lines that taking all lists uses.
    pub fn announce_take(&self, probe: &impl Probe) {
        probe.touch_line(SharedLine::of(LineKind::PerCpuLists, self.owners), Access::Write);
    }

    fn announce(&self, probe: &impl Probe, at: usize, access: Access) {
        probe.touch_line(SharedLine::of(LineKind::PerCpuLists, self.owners), Access::Read);
        probe.touch_line(SharedLine::of(LineKind::PerCpuLists, self.word), Access::Write);
        if let Some(entry) = self.entries.get(at) {
            probe.touch_line(SharedLine::of(LineKind::PerCpuLists, entry), access);
        }
    }

    fn len(&self) -> u8 {
        self.word.load(Ordering::Relaxed) as u8
    }

    /// Takes the newest entry; nothing if the list is empty or its CPU may not use it now. `step` is called before each
    /// memory access. If it returns `false`, the sequence ends without effect.
    #[inline]
    #[must_use]
    pub fn pop(&self, step: impl FnMut() -> bool) -> Popped {
        self.pop_checked(step).map_or(Popped::NOTHING, Popped::new)
    }

    fn pop_checked(&self, mut step: impl FnMut() -> bool) -> Option<u32> {
        self.check(&mut step)?;
        let word = self.load_word(&mut step)?;
        let last = (word as u8).checked_sub(1)?;
        if !step() {
            return None;
        }
        let entry = self.slot(last)?.load(Ordering::Relaxed);
        if !step() {
            return None;
        }
        self.word.store(word.wrapping_add(Self::POP), Ordering::Relaxed);
        Some(entry)
    }

    /// Adds an entry; returns whether it did. It does not if the list is at its limit or its CPU may not use it now.
    /// `step` is as in [`pop`](Self::pop).
    #[inline]
    #[must_use]
    pub fn push(&self, entry: u32, mut step: impl FnMut() -> bool) -> bool {
        let Some(word) = self.check(&mut step).and_then(|()| self.load_word(&mut step)) else { return false };
        let (len, limit) = (word as u8, (word >> 8) as u8);
        if len >= limit {
            return false;
        }
        let Some(slot) = self.slot(len).filter(|_| step()) else { return false };
        // Harmless if the sequence fails: a slot behind the last entry means nothing.
        slot.store(entry, Ordering::Relaxed);
        match word.checked_add(Self::PUSH).filter(|_| step()) {
            Some(pushed) => self.word.store(pushed, Ordering::Relaxed),
            None => return false,
        }
        true
    }

    /// Takes all lists of the CPU if no thread has them; returns whether it did. `step` is as in [`pop`](Self::pop).
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
        are_unused(self.owners, step)?.then_some(())
    }

    /// The slot of an entry. The remainder is the number itself, unless the list's word is corrupt, and costs less than a comparison.
    fn slot(&self, at: u8) -> Option<&'a AtomicU32> {
        self.entries.get(usize::from(at) % Self::SLOTS)
    }

    fn load_word(&self, step: &mut impl FnMut() -> bool) -> Option<u64> {
        step().then(|| self.word.load(Ordering::Relaxed))
    }
}

/// Whether both owner words are [`UNUSED`]; `None` if a step ends the sequence. Acquire: pairs with the Release in `Platform::unlock`.
#[cfg(any(not(target_arch = "x86_64"), loom, shuttle))]
#[inline(always)]
fn are_unused(owners: &[AtomicU32; 2], step: &mut impl FnMut() -> bool) -> Option<bool> {
    let mut load = |word: &AtomicU32| step().then(|| word.load(Ordering::Acquire));
    // One branch for both.
    Some(load(&owners[0])? | load(&owners[1])? == UNUSED)
}

/// The same in one access, which saves an instruction: a load of two atomics, which the language does not have.
#[cfg(not(any(not(target_arch = "x86_64"), loom, shuttle)))]
#[inline(always)]
fn are_unused(owners: &[AtomicU32; 2], step: &mut impl FnMut() -> bool) -> Option<bool> {
    step().then(|| {
        let both: u64;
        // SAFETY: reads the two words and nothing else. On x86-64 every load is an Acquire load, and the compiler moves no access to
        // memory over this one, which has neither of the options `nomem` and `readonly`.
        unsafe {
            core::arch::asm!("mov {both}, qword ptr [{owners}]", both = lateout(reg) both, owners = in(reg) owners,
                options(nostack, preserves_flags));
        }
        both == u64::from(UNUSED)
    })
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::vec::Vec;

    use super::*;

    const SLOTS: usize = 4;

    /// The lists of a CPU: the owner words, one list, its entries.
    #[derive(Default)]
    struct Lists {
        owners: [AtomicU32; 2],
        word: AtomicU64,
        entries: [AtomicU32; SLOTS],
    }

    impl Lists {
        fn with(entries: &[u32]) -> Self {
            let lists = Self::default();
            lists.word.store((SLOTS as u64) << 8, Ordering::Relaxed);
            entries.iter().for_each(|entry| assert!(lists.list().push(*entry, || true)));
            lists
        }

        fn list(&self) -> OwnList<'_> {
            OwnList { owners: &self.owners, word: &self.word, entries: &self.entries }
        }

        fn held(&self) -> Vec<u32> {
            let len = usize::from(self.word.load(Ordering::Relaxed) as u8);
            self.entries[..len].iter().map(|entry| entry.load(Ordering::Relaxed)).collect()
        }

        fn frees(&self) -> u64 {
            self.word.load(Ordering::Relaxed) >> 16
        }
    }

    /// Runs a sequence that is interrupted at one step by `handler`, a whole sequence of another thread, and then aborted. Each step in
    /// turn, until the sequence comes to its end. Checks after each run that no entry was lost or is there twice.
    fn interrupt_at_every_step(
        sequence: fn(OwnList<'_>, &mut dyn FnMut() -> bool) -> Outcome,
        handler: fn(&Lists) -> Outcome,
    ) {
        for interrupted in 0.. {
            let lists = Lists::with(&[10, 11]);
            let mut outside: Vec<u32> = std::vec![20, 21];
            let (mut step, mut ended) = (0, Outcome::Nothing);
            let outcome = sequence(lists.list(), &mut || {
                let is_interrupted = step == interrupted;
                if is_interrupted {
                    ended = handler(&lists);
                }
                step += 1;
                !is_interrupted
            });
            let was_interrupted = step > interrupted;
            assert!(!was_interrupted || outcome == Outcome::Nothing, "an aborted sequence has no effect");
            for outcome in [outcome, ended] {
                match outcome {
                    Outcome::Popped(entry) => outside.push(entry),
                    Outcome::Pushed(entry) => outside.retain(|other| *other != entry),
                    Outcome::Taken => assert_eq!(lists.owners[0].load(Ordering::Relaxed), TAKEN),
                    Outcome::Nothing => {}
                }
            }
            let mut all = lists.held();
            all.extend(&outside);
            all.sort_unstable();
            assert_eq!(all, [10, 11, 20, 21], "interrupted at step {interrupted}");
            if !was_interrupted {
                assert!(step >= 4 || outcome == Outcome::Taken, "the sequence has steps");
                return;
            }
        }
    }

    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    enum Outcome {
        Popped(u32),
        Pushed(u32),
        Taken,
        Nothing,
    }

    fn pop(list: OwnList<'_>, step: &mut dyn FnMut() -> bool) -> Outcome {
        list.pop(step).entry().map_or(Outcome::Nothing, Outcome::Popped)
    }

    fn push(list: OwnList<'_>, step: &mut dyn FnMut() -> bool) -> Outcome {
        if list.push(20, step) { Outcome::Pushed(20) } else { Outcome::Nothing }
    }

    fn take(list: OwnList<'_>, step: &mut dyn FnMut() -> bool) -> Outcome {
        if list.take(step) { Outcome::Taken } else { Outcome::Nothing }
    }

    #[test]
    fn a_sequence_that_is_interrupted_at_any_step_has_no_effect() {
        let handlers: [fn(&Lists) -> Outcome; 3] = [
            |lists| pop(lists.list(), &mut || true),
            |lists| if lists.list().push(21, || true) { Outcome::Pushed(21) } else { Outcome::Nothing },
            |lists| take(lists.list(), &mut || true),
        ];
        for sequence in [pop, push, take] {
            handlers.iter().for_each(|handler| interrupt_at_every_step(sequence, *handler));
        }
    }

    #[test]
    fn sequences_leave_lists_alone_that_another_thread_has() {
        for owner in 0..2 {
            let lists = Lists::with(&[10]);
            lists.owners[owner].store(1, Ordering::Relaxed);
            assert_eq!(lists.list().pop(|| true), Popped::NOTHING);
            assert!(!lists.list().push(11, || true) && !lists.list().take(|| true));
            assert_eq!(lists.held(), [10]);
        }
    }

    #[test]
    fn pushes_end_at_the_limit_and_where_the_count_would_wrap() {
        let lists = Lists::with(&[1, 2, 3, 4]);
        assert!(!lists.list().push(5, || true));
        assert_eq!(lists.list().pop(|| true), Popped::new(4));
        assert_eq!((lists.held(), lists.frees()), (std::vec![1, 2, 3], 4));
        lists.word.fetch_or(0xffff_ffff_ffff << 16, Ordering::Relaxed);
        assert!(!lists.list().push(5, || true));
        assert_eq!(lists.held(), [1, 2, 3]);
        (0..3).for_each(|_| assert!(lists.list().pop(|| true) != Popped::NOTHING));
        assert_eq!(lists.list().pop(|| true), Popped::NOTHING);
    }
}
