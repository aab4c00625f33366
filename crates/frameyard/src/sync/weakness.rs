//! What is broken on purpose, so that a model that must fail can be seen to fail.
//!
//! The switch belongs to the operating-system thread. Loom and shuttle run all threads of a model on the one that explores
//! it, so models that are explored at the same time do not disturb each other.

use std::cell::Cell;

/// What is wrong with every atomic access. Shuttle knows no orderings: there, those that weaken one change nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Weakness {
    /// Nothing.
    None,
    /// An acquiring load acquires nothing.
    RelaxedLoads,
    /// A releasing store releases nothing.
    RelaxedStores,
    /// A compare-and-exchange is a load, a comparison and a store.
    SplitCompareExchange,
    /// An addition is a load and a store.
    SplitAddition,
    /// A bitwise intersection is a load and a store.
    SplitIntersection,
    /// A bitwise union is a load and a store.
    SplitUnion,
    /// A bitwise union claims to have set all its bits, whoever had set them before.
    UnheardUnion,
    /// A releasing store of so many bytes releases nothing.
    RelaxedStoresOf(usize),
    /// An acquiring load of so many bytes acquires nothing.
    RelaxedLoadsOf(usize),
    /// A bitwise intersection orders nothing.
    RelaxedIntersections,
    /// A store of this value is lost.
    LostStoresOf(u64),
    /// Who has taken the lock of a pageblock's owner does not ask whether it is the owner still.
    OwnerNotAskedAgain,
    /// A compare-and-exchange orders nothing.
    RelaxedExchanges,
    /// Tags that tell apart when a word held the same link stay what they are.
    IdleTags,
    /// Lists that look empty are not locked by who ends what may be in progress at them.
    EmptyListsPassedBy,
    /// Who collects batches does not say so.
    SilentCollectors,
    /// A planned cut is carried out without another look.
    PlansBelieved,
    /// Who takes pages without a lock does not look at their entry again.
    EntriesSeenOnce,
    /// Page tables go, and nothing says so.
    TablesGoSilently,
    /// The entry of a huge page is not marked while its block is split.
    SplitUnmarked,
    /// Pages of a block that is split have users before their entries are changed.
    PartsChangedLate,
    /// References on parts of a split page of a device are got without one on the head.
    PartsGotAlone,
    /// Who has got references on a page of a device does not ask whether it is still the page that he looked for.
    PageNotAskedAgain,
    /// Tails become shared while somebody may be between a look at a count there and an exchange.
    NoGrace,
    /// Nothing orders the mark of who gets references before his look at the count.
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

/// What is wrong now.
#[cfg(loom)]
pub(super) fn weakness() -> Weakness {
    WEAKNESS.get()
}

/// Whether this is what is wrong.
pub fn is_weakened(weakness: Weakness) -> bool {
    WEAKNESS.get() == weakness
}
