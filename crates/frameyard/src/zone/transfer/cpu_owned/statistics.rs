//! Statistics of CPU-owned pageblocks.

use crate::locks::LockUse;
use crate::units::PageCount;

/// The pageblocks that CPUs own in a zone ([`ZonePolicy::OwnedBlocks`](crate::policy::ZonePolicy::OwnedBlocks)), possibly stale.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CpuOwnedStatistics {
    /// Owned pageblocks.
    pub pageblocks: u64,
    /// Free frames in them.
    pub free: PageCount,
    /// Pageblocks that CPUs claimed (`owned_claims`).
    pub claims: u64,
    /// Pageblocks that were whole again and returned to the zone (`owned_returns`).
    pub returns: u64,
    /// Pageblocks given up because their free frames were needed or too many (`owned_given_up`).
    pub given_up: u64,
    /// Frames that per-CPU lists took from them (`owned_pages_taken`).
    pub pages_taken: PageCount,
    /// Frames that the owner's own lists gave back (`owned_pages_freed_local`).
    pub local_pages_freed: PageCount,
    /// Frames that other CPUs gave back (`cross_cpu_frees`).
    pub remote_pages_freed: PageCount,
    /// Pairs of buddies that merged (`owned_merges`).
    pub merges: u64,
    /// Blocks freed past the per-CPU lists.
    pub direct_frees: u64,
    /// Their frames.
    pub direct_pages_freed: PageCount,
    /// How the owners' locks were taken.
    pub lock: LockUse,
}

mod reading {
    use super::CpuOwnedStatistics;
    use crate::sync::{AtomicU64, Ordering};
    use crate::units::{CpuId, PageCount};
    use crate::zone::transfer::cpu_owned::lists::CpuOwnedLists;
    use crate::zone::transfer::cpu_owned::table::CpuOwned;

    fn read(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }

    fn add(sum: &mut CpuOwnedStatistics, lists: &CpuOwnedLists) {
        let counts = &lists.counts;
        sum.pageblocks += lists.pageblocks_racy();
        sum.free += lists.pages_racy();
        sum.claims += read(&counts.claims);
        sum.returns += read(&counts.returns);
        sum.given_up += read(&counts.given_up);
        sum.pages_taken += PageCount(read(&counts.pages_taken));
        sum.local_pages_freed += PageCount(read(&counts.local_pages_freed));
        sum.remote_pages_freed += PageCount(read(&counts.remote_pages_freed));
        sum.merges += read(&counts.merges);
        sum.direct_frees += read(&counts.direct_frees);
        sum.direct_pages_freed += PageCount(read(&counts.direct_pages_freed));
        sum.lock = sum.lock.and(lists.lock_use());
    }

    impl CpuOwned {
        /// The statistics of one CPU in a zone, or of all CPUs.
        pub(in crate::zone::transfer) fn statistics(&self, cpu: Option<CpuId>) -> CpuOwnedStatistics {
            let mut sum = CpuOwnedStatistics::default();
            let cpus = self.cpus().filter(|found| cpu.is_none_or(|cpu| cpu == *found));
            cpus.filter_map(|cpu| self.lists_of(cpu)).for_each(|lists| add(&mut sum, lists));
            sum
        }
    }
}
