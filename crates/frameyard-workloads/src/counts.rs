//! Counters of a yard and its owners, and their changes during a run.

use frameyard::locks::LockUse;
use frameyard::platform::Probe;
use frameyard::stats::{CompactEvent, CompactStatistics};
use frameyard::{MigrateType, NodeId, Order, Platform, Yard};
use frameyard_host::HostPlatform;
use frameyard_vm::{Vm, VmCounter};

/// Counters of all zones, nodes and CPUs together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// The locks of zones.
    pub zone_lock: LockUse,
    /// The locks of LRU lists.
    pub lru_lock: LockUse,
    /// Frames moved under a zone lock.
    pub pages_moved: u64,
    /// Frames allocated.
    pub pages_allocated: u64,
    /// Frames freed.
    pub pages_freed: u64,
    /// Frames on per-CPU lists at that moment; of changes, at their end.
    pub pages_on_lists: u64,
    /// Requests served from pageblocks of another type.
    pub extfrag_fallbacks: u64,
    /// Fallbacks of unmovable and reclaimable requests into movable pageblocks.
    pub extfrag_into_movable: u64,
    /// Pageblocks converted by fallbacks.
    pub extfrag_conversions: u64,
    /// Allocations that ran compaction themselves.
    pub compact_stall: u64,
    /// Direct compactions after which the allocation succeeded.
    pub compact_success: u64,
    /// Direct compactions after which it failed.
    pub compact_fail: u64,
    /// Frames that compaction migrated.
    pub compact_migrated: u64,
    /// Frames that it failed to migrate.
    pub compact_migrate_failed: u64,
    /// Frames whose contents compaction dropped instead.
    pub compact_discarded: u64,
    /// Pages that compaction scanned, with both scanners.
    pub compact_scanned: u64,
    /// The part of them that the background compactor scanned.
    pub compact_daemon_scanned: u64,
    /// The part of the migrated frames that the background compactor migrated.
    pub compact_daemon_migrated: u64,
    /// Drains as one cluster, under the policies that allow it.
    pub drains: Drains,
    /// Whether locks were timed.
    pub locks_are_timed: bool,
    vm: [u64; VmCounter::COUNT],
}

/// Drains under a policy that splices whole batches into a zone, by the names of its counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Drains {
    /// `overflow_drains`: batches that drains took from a list at once.
    pub all: u64,
    /// The part of them that was of movable frames.
    pub movable: u64,
    /// `full_batch_drains`: the part that the published rule takes.
    pub full_batches: u64,
    /// The same by the type of the frames: unmovable, movable, reclaimable.
    pub full_batches_of: [u64; MigrateType::PER_CPU],
    /// `cluster_drains`: the part that was spliced in whole.
    pub spliced: u64,
}

impl Drains {
    /// The present counters of a yard.
    #[must_use]
    pub fn of(yard: &Yard<HostPlatform>) -> Self {
        Self::of_any(yard)
    }

    fn of_any<P: Platform>(yard: &Yard<P>) -> Self {
        let mut sum = Self::default();
        for zone in yard.stats().zones() {
            let counts = yard.zone(zone.id).mechanism_counts();
            let of =
                |family| counts.iter().filter(move |(info, _)| info.family == family).filter_map(|(_, value)| value);
            sum.all += of("overflow_drains").sum::<u64>();
            sum.movable += counts.get("overflow_drains_movable");
            sum.full_batches += of("full_batch_drains").sum::<u64>();
            sum.full_batches_of.iter_mut().zip(of("full_batch_drains")).for_each(|(sum, count)| *sum += count);
            sum.spliced += of("cluster_drains").sum::<u64>();
        }
        sum
    }

    /// The changes since an earlier snapshot.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let of = |at: usize| self.full_batches_of[at].wrapping_sub(earlier.full_batches_of[at]);
        Self {
            all: self.all.wrapping_sub(earlier.all),
            movable: self.movable.wrapping_sub(earlier.movable),
            full_batches: self.full_batches.wrapping_sub(earlier.full_batches),
            full_batches_of: core::array::from_fn(of),
            spliced: self.spliced.wrapping_sub(earlier.spliced),
        }
    }
}

impl Counts {
    /// The present counters.
    #[must_use]
    pub fn of<P: Platform>(vm: &Vm<'_, P>) -> Self {
        let yard = vm.yard();
        let mut counts = Self {
            drains: Drains::of_any(yard),
            locks_are_timed: yard.platform().probe().lock_clock_ns().is_some(),
            vm: VmCounter::ALL.map(|counter| vm.counted(counter)),
            ..Self::default()
        };
        for zone in yard.stats().zones() {
            counts.zone_lock = counts.zone_lock.and(zone.lock);
            counts.pages_moved += zone.pages_moved;
            counts.pages_allocated += zone.pages_allocated;
            counts.pages_freed += zone.pages_freed;
            counts.pages_on_lists += zone.per_cpu.0;
            counts.extfrag_fallbacks += zone.fallbacks;
            counts.extfrag_conversions += zone.conversions;
            counts.extfrag_into_movable += [MigrateType::Unmovable, MigrateType::Reclaimable]
                .map(|asked| yard.zone(zone.id).fallbacks(asked, MigrateType::Movable))
                .iter()
                .sum::<u64>();
            counts.add_compaction(&yard.zone(zone.id).compaction());
        }
        for node in (0..yard.nodes()).map(NodeId) {
            counts.lru_lock = counts.lru_lock.and(vm.lru_statistics(node).lock);
        }
        counts
    }

    fn add_compaction(&mut self, zone: &CompactStatistics) {
        self.compact_stall += zone.count(CompactEvent::Stall);
        self.compact_success += zone.count(CompactEvent::Success);
        self.compact_fail += zone.count(CompactEvent::Fail);
        self.compact_migrated += zone.count(CompactEvent::Migrated);
        self.compact_migrate_failed += zone.count(CompactEvent::MigrateFailed);
        self.compact_discarded += zone.count(CompactEvent::Discarded);
        let both = |migrate, free| zone.count(migrate) + zone.count(free);
        self.compact_scanned += both(CompactEvent::MigrateScanned, CompactEvent::FreeScanned);
        self.compact_daemon_scanned += both(CompactEvent::DaemonMigrateScanned, CompactEvent::DaemonFreeScanned);
        self.compact_daemon_migrated += zone.count(CompactEvent::DaemonMigrated);
    }

    /// A counter of the owners.
    #[must_use]
    pub fn vm(&self, counter: VmCounter) -> u64 {
        self.vm[counter as usize]
    }

    /// How often requests compacted or reclaimed memory for themselves.
    #[must_use]
    pub fn stalls(&self) -> u64 {
        self.compact_stall + self.vm(VmCounter::Allocstall)
    }

    /// Frames allocated or frames freed, whichever is more. A workload that does both does so with the same frames.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.pages_allocated.max(self.pages_freed)
    }

    /// The changes since an earlier snapshot.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let mut vm = self.vm;
        vm.iter_mut().zip(earlier.vm).for_each(|(count, earlier)| *count = count.wrapping_sub(earlier));
        Self {
            zone_lock: self.zone_lock.since(earlier.zone_lock),
            lru_lock: self.lru_lock.since(earlier.lru_lock),
            pages_moved: self.pages_moved.wrapping_sub(earlier.pages_moved),
            pages_allocated: self.pages_allocated.wrapping_sub(earlier.pages_allocated),
            pages_freed: self.pages_freed.wrapping_sub(earlier.pages_freed),
            pages_on_lists: self.pages_on_lists,
            extfrag_fallbacks: self.extfrag_fallbacks.wrapping_sub(earlier.extfrag_fallbacks),
            extfrag_into_movable: self.extfrag_into_movable.wrapping_sub(earlier.extfrag_into_movable),
            extfrag_conversions: self.extfrag_conversions.wrapping_sub(earlier.extfrag_conversions),
            compact_stall: self.compact_stall.wrapping_sub(earlier.compact_stall),
            compact_success: self.compact_success.wrapping_sub(earlier.compact_success),
            compact_fail: self.compact_fail.wrapping_sub(earlier.compact_fail),
            compact_migrated: self.compact_migrated.wrapping_sub(earlier.compact_migrated),
            compact_migrate_failed: self.compact_migrate_failed.wrapping_sub(earlier.compact_migrate_failed),
            compact_discarded: self.compact_discarded.wrapping_sub(earlier.compact_discarded),
            compact_scanned: self.compact_scanned.wrapping_sub(earlier.compact_scanned),
            compact_daemon_scanned: self.compact_daemon_scanned.wrapping_sub(earlier.compact_daemon_scanned),
            compact_daemon_migrated: self.compact_daemon_migrated.wrapping_sub(earlier.compact_daemon_migrated),
            drains: self.drains.since(&earlier.drains),
            locks_are_timed: self.locks_are_timed && earlier.locks_are_timed,
            vm,
        }
    }
}

/// The unusable free space index for an order: thousandths of free memory in smaller blocks.
///
/// Averaged over all zones, weighted by their free memory. `None` if nothing is free.
#[must_use]
pub(crate) fn unusable_thousandths<P: Platform>(yard: &Yard<P>, order: Order) -> Option<u64> {
    let (mut unusable, mut free) = (0, 0);
    for zone in yard.stats().zones() {
        let Some(index) = yard.zone(zone.id).unusable_index(order) else { continue };
        unusable += index * zone.free.0;
        free += zone.free.0;
    }
    unusable.checked_div(free)
}
