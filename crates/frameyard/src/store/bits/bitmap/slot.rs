//! The line that a CPU keeps reserved.

use crate::sync::{AtomicU32, Ordering, all_atomic, is_broken};

/// A line that a CPU keeps, or none.
///
/// Any thread on the CPU may take it out and put another one in, without a lock. The one that takes a line out ends its reservation; one that
/// finds the slot filled meanwhile ends that of the line that it wanted to put in. So a reserved line is in one slot, or in the hands of a
/// thread.
#[derive(Default)]
pub(crate) struct Slot {
    /// The number of the line plus 1; 0: none.
    line: AtomicU32,
}

all_atomic!(Slot { line });

impl Slot {
    /// The line in it.
    #[inline(always)]
    pub(crate) fn line(&self) -> Option<usize> {
        (self.line.load(Ordering::Relaxed) as usize).checked_sub(1)
    }

    /// Takes the line out. The caller leaves it.
    #[inline(always)]
    pub(crate) fn take(&self) -> Option<usize> {
        // An exchange; models have none for words of any value. Acquire: pairs with `put`. The caller sees that the line is reserved.
        (self.line.fetch_and(0, Ordering::Acquire) as usize).checked_sub(1)
    }

    /// Puts a line in that the caller has reserved; whether the slot was empty. Else the caller leaves the line.
    #[inline(always)]
    pub(crate) fn put(&self, line: usize) -> bool {
        if is_broken!(SlotOverwritten) {
            self.line.store(line as u32 + 1, Ordering::Relaxed);
            return true;
        }
        // Release: pairs with `take`.
        self.line.compare_exchange(0, line as u32 + 1, Ordering::Release, Ordering::Relaxed).is_ok()
    }
}
