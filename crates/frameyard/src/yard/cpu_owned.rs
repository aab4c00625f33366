//! What a yard can say about the pageblocks that CPUs own.

use super::{Yard, YardZone, ZoneStatistics};
use crate::locks::LockUse;
use crate::platform::Platform;
use crate::sync::{AtomicU64, Ordering};
use crate::units::{CpuId, PageCount, ZoneId};
use crate::zone::transfer::cpu_owned::CpuOwnedLists;

/// The pageblocks that CPUs own in a zone ([`ZonePolicy::OwnedBlocks`](crate::policy::ZonePolicy::OwnedBlocks)), a moment ago.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CpuOwnedStatistics {
    /// Pageblocks that are owned.
    pub pageblocks: u64,
    /// Free frames in them.
    pub free: PageCount,
    /// Pageblocks that became a CPU's (`owned_claims`).
    pub claims: u64,
    /// Pageblocks that were whole again and went back to the zone (`owned_returns`).
    pub returns: u64,
    /// Pageblocks that were given up, because what was free of them was wanted or too much (`owned_given_up`).
    pub given_up: u64,
    /// Frames that per-CPU lists got from them (`owned_pages_taken`).
    pub pages_taken: PageCount,
    /// Frames that came back to them from the lists of the owner itself (`owned_pages_freed_local`).
    pub local_pages_freed: PageCount,
    /// Frames that came back from other CPUs (`cross_cpu_frees`).
    pub remote_pages_freed: PageCount,
    /// Pairs of buddies that merged (`owned_merges`).
    pub merges: u64,
    /// How the owners' locks were taken.
    pub lock: LockUse,
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl CpuOwnedStatistics {
    fn add(&mut self, lists: &CpuOwnedLists) {
        let counts = &lists.counts;
        self.pageblocks += lists.pageblocks_racy();
        self.free += lists.pages_racy();
        self.claims += read(&counts.claims);
        self.returns += read(&counts.returns);
        self.given_up += read(&counts.given_up);
        self.pages_taken += PageCount(read(&counts.pages_taken));
        self.local_pages_freed += PageCount(read(&counts.local_pages_freed));
        self.remote_pages_freed += PageCount(read(&counts.remote_pages_freed));
        self.merges += read(&counts.merges);
        self.lock = self.lock.and(lists.lock_use());
    }
}

impl<P: Platform> Yard<P> {
    /// The lists of owned memory of all CPUs in a zone, by CPU.
    pub(super) fn owned_lists(&self, zone: ZoneId) -> impl Iterator<Item = &'static CpuOwnedLists> + use<P> {
        let owned = self.tables.owned(self.map.range().start, self.geometry);
        let cpus = if self.is_populated(zone) { self.cpus } else { 0 };
        (0..cpus).filter_map(move |cpu| owned.lists_of(zone, CpuId(cpu)))
    }

    /// Adds what is free, and what was freed past per-CPU lists, in owned pageblocks.
    pub(super) fn add_owned_statistics(&self, statistics: &mut ZoneStatistics) {
        for lists in self.owned_lists(statistics.id) {
            statistics.cpu_owned_free += lists.pages_racy();
            statistics.per_cpu += lists.pages_racy();
            statistics.frees += read(&lists.counts.direct_frees);
            statistics.pages_freed += read(&lists.counts.direct_pages_freed);
        }
    }
}

impl<'y, P: Platform> YardZone<'y, P> {
    /// The pageblocks that CPUs own in a zone; nothing where there is no such zone. Looks at a few lines for each CPU.
    pub fn cpu_owned(self) -> CpuOwnedStatistics {
        let Self { yard, id: zone } = self;
        let mut statistics = CpuOwnedStatistics::default();
        yard.owned_lists(zone).for_each(|lists| statistics.add(lists));
        statistics
    }

    /// The pageblocks that one CPU owns in a zone; `None` where the zone has no memory or the CPU does not exist.
    pub fn cpu_owned_of(self, cpu: CpuId) -> Option<CpuOwnedStatistics> {
        let Self { yard, id: zone } = self;
        let lists = yard.owned_lists(zone).nth(cpu.index())?;
        let mut statistics = CpuOwnedStatistics::default();
        statistics.add(lists);
        Some(statistics)
    }
}
