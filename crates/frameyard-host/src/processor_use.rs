//! Processor time and page faults of this process.

use std::time::Duration;

use crate::sys;

/// What a process has used so far, summed over all its threads, including those that have ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ProcessorUse {
    /// Time in user mode.
    pub user: Duration,
    /// Time in the host's kernel: page faults and system calls.
    pub system: Duration,
    /// Page faults that the kernel resolved without reading from storage.
    pub faults: u64,
}

impl ProcessorUse {
    /// What this process has used so far (`getrusage`). How precise this is depends on the kernel's configuration.
    #[must_use]
    pub fn of_this_process() -> Self {
        let usage = sys::usage::of_this_process();
        let duration = |seconds: i64, microseconds: i64| {
            Duration::from_secs(seconds.unsigned_abs()) + Duration::from_micros(microseconds.unsigned_abs())
        };
        Self {
            user: duration(usage.ru_utime.tv_sec, usage.ru_utime.tv_usec),
            system: duration(usage.ru_stime.tv_sec, usage.ru_stime.tv_usec),
            faults: usage.ru_minflt.unsigned_abs(),
        }
    }

    /// What has been used since `earlier`.
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
    fn touching_fresh_memory_counts_as_faults() {
        let before = ProcessorUse::of_this_process();
        let region = Region::zeroed(ByteSize::mib(4), HugePages::Never).unwrap();
        region.prefault(NonZeroUsize::MIN, &mut |_| {}).unwrap();
        let used = ProcessorUse::of_this_process().since(before);
        // One fault may populate several pages, but never more than a huge page.
        assert!(used.faults >= 2, "{used:?}");
        assert_eq!(before.since(ProcessorUse::of_this_process()).faults, 0);
    }
}
