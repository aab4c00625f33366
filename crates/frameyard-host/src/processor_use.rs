//! Processor time and page faults of this process.

use std::time::Duration;

use crate::sys;

/// What a process has used so far, all its threads together, those that have ended included.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProcessorUse {
    /// Time in the process itself.
    pub user: Duration,
    /// Time in the host's kernel on its behalf: page faults, system calls.
    pub system: Duration,
    /// Page faults that the kernel served without reading anything.
    pub faults: u64,
}

impl ProcessorUse {
    /// What this process has used until now (`getrusage`). The kernel counts time in ticks or finer, by configuration.
    #[must_use]
    pub fn of_this_process() -> Self {
        sys::usage::of_this_process()
    }

    /// What was used since an earlier look.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            faults: self.faults.saturating_sub(earlier.faults),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::HugePages;
    use crate::region::Region;
    use frameyard::ByteSize;
    use std::num::NonZeroUsize;

    #[test]
    fn touching_fresh_memory_is_counted_as_faults() {
        let before = ProcessorUse::of_this_process();
        let region = Region::zeroed(ByteSize::mib(4), HugePages::Never).unwrap();
        region.prefault(NonZeroUsize::MIN, &mut |_| {}).unwrap();
        let used = ProcessorUse::of_this_process().since(before);
        // Populating may serve several pages in one fault, never more than fit a huge page.
        assert!(used.faults >= 2, "{used:?}");
        assert_eq!(before.since(ProcessorUse::of_this_process()).faults, 0);
    }
}
