//! Protections that a model breaks on purpose, to show that it then fails.
//!
//! The switch is local to the operating-system thread. Loom and shuttle run all threads of a model on the thread that explores
//! it, so concurrent explorations do not disturb each other.

use std::cell::Cell;

/// A protection that can be broken. Shuttle ignores orderings, so weakened orderings have no effect there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Weakness {
    /// Nothing.
    None,
    /// Acquire loads are relaxed.
    RelaxedLoads,
    /// Release stores are relaxed.
    RelaxedStores,
    /// A compare-and-exchange is a load, a comparison and a store.
    SplitCompareExchange,
    /// An addition is a load and a store.
    SplitAddition,
    /// A bitwise intersection is a load and a store.
    SplitIntersection,
    /// A bitwise union is a load and a store.
    SplitUnion,
    /// A bitwise union reports that it has set all its bits, even those that were set before.
    UnionReportsAll,
    /// Release stores of words of this size (in bytes) are relaxed.
    RelaxedStoresOf(usize),
    /// Acquire loads of words of this size (in bytes) are relaxed.
    RelaxedLoadsOf(usize),
    /// Bitwise intersections are relaxed.
    RelaxedIntersections,
    /// Bitwise unions are relaxed.
    RelaxedUnions,
    /// Stores of this value are lost.
    LostStoresOf(u64),
    /// A thread that brings a block back into use does not check under the zone lock that it is still offline.
    OnlineNotRechecked,
    /// Compare-and-exchanges are relaxed.
    RelaxedExchanges,
    /// The first weak compare-and-exchange of a thread, and every other one after it, fails without cause. Correct code
    /// passes. Only for loom; under shuttle weak exchanges always fail now and then.
    SpuriousFailures,
    /// The wait for transfers in progress skips the locks of lists that look empty.
    EmptyListsNotLocked,
    /// A thread that takes the lists of a CPU does not end the CPU's restartable sequences.
    SequencesNotEnded,
    /// The words of pageblocks are published with relaxed stores.
    PageblocksPublishedRelaxed,
    /// A fault that maps a page of a file releases the page lock before the mapping counts.
    MappedUnlocked,
    /// There is no fence between a change of a line's state and the look at its bits.
    ListedUnfenced,
    /// There is no fence between a free into a line and the look at its state.
    FreedUnfenced,
    /// A search does not look at a line again after it has removed the note that the line has grown.
    NotedOnce,
    /// A line that was listed as whole is taken without looking at its bits.
    WholeNotChecked,
    /// A request for a run of lines that misses one of them keeps the others.
    RunKept,
    /// A hint that was cleared is not set again if it has become necessary.
    HintsNotRestored,
    /// A summary bit that was cleared is not set again if it has become necessary.
    SummariesNotRestored,
    /// A summary bit is set again without those above it.
    RestoredOnOneLevel,
    /// A line is not looked at again after it was left, or after another thread has changed its list.
    ListedOnce,
    /// A search of a list gives up at a hint that leads nowhere.
    FirstHintAlone,
    /// What was put back after a claim that failed is not listed.
    PutBackUnlisted,
    /// A CPU puts a line into a slot that another thread has filled.
    SlotOverwritten,
    /// A CPU looks whether the total is exact before it counts, not afterwards.
    ExactnessReadFirst,
    /// There is no fence between counting and looking whether the total is exact, nor between making it exact and
    /// adding the parts.
    CountedUnfenced,
    /// A planned cut is executed without checking it again.
    PlansNotRechecked,
    /// A free that bypasses the per-CPU lists reads the type of the pageblock before it takes the zone lock.
    TypeReadUnlocked,
    /// The lock-free pin does not read the page-table entry again.
    EntriesNotRechecked,
    /// Page tables are freed without counting it.
    TablesFreedUncounted,
    /// A walk without locks may see a store by a later owner of a freed page table before the count of removed tables.
    StoresSeenEarly,
    /// The entry of a huge page is not marked while its block is split.
    SplitUnmarked,
    /// Pages of a block that is split get users before their entries change.
    PartsChangedLate,
    /// A reader of a map names its process after it has counted itself.
    ReadersNamedLate,
    /// A thread gets references on parts of a split device page without one on the head.
    PartsGotWithoutHead,
    /// A thread that has got references on a device page does not check that it is still the page it looked up.
    PageNotRechecked,
    /// A thread that has looked up a device enters whichever device has the row by then.
    GenerationNotCompared,
    /// Tails become shared while a thread may be between reading a count there and the exchange.
    NoGracePeriod,
    /// A thread enters its mark in the list of marks without the list's lock.
    MarksEnteredUnlocked,
    /// The mark of a thread that gets references is not ordered before its read of the count.
    MarksUnordered,
}

std::thread_local! {
    static WEAKNESS: Cell<Weakness> = const { Cell::new(Weakness::None) };
}

/// Runs `explore` with weakened atomics.
pub fn weakened<T>(weakness: Weakness, explore: impl FnOnce() -> T) -> T {
    struct Restore(Weakness);
    impl Drop for Restore {
        fn drop(&mut self) {
            WEAKNESS.set(self.0);
        }
    }
    let _restore = Restore(WEAKNESS.replace(weakness));
    explore()
}

/// The weakness in force.
#[cfg(loom)]
pub(crate) fn weakness() -> Weakness {
    WEAKNESS.get()
}

/// Whether this is the weakness in force.
pub fn is_weakened(weakness: Weakness) -> bool {
    WEAKNESS.get() == weakness
}
