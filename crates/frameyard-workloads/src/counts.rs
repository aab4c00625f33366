//! What a yard and its owners have counted, and what of it happened during a run.

use frameyard::locks::LockUse;
use frameyard::stats::{ClusterDrains, CompactStatistics};
use frameyard::{MigrateType, NodeId, Order, Platform, Yard};
use frameyard_vm::{Vm, VmCounter};

/// Counters of all zones, all nodes and all CPUs together, a moment ago.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// The locks of zones.
    pub zone_lock: LockUse,
    /// The locks of the lists of used pages.
    pub lru_lock: LockUse,
    /// Frames that crossed a zone lock.
    pub pages_moved: u64,
    /// Frames handed out.
    pub pages_allocated: u64,
    /// Frames taken back.
    pub pages_freed: u64,
    /// Requests served from blocks of another type.
    pub extfrag_fallbacks: u64,
    /// Those of them that were not for movable frames and took movable ones.
    pub extfrag_into_movable: u64,
    /// Pageblocks that changed their type for it.
    pub extfrag_conversions: u64,
    /// Allocations that compacted for themselves.
    pub compact_stall: u64,
    /// Those of them that got a block.
    pub compact_success: u64,
    /// Those of them that did not.
    pub compact_fail: u64,
    /// Frames that compaction moved.
    pub compact_migrated: u64,
    /// Frames that it could not move.
    pub compact_migrate_failed: u64,
    /// Drains under a policy that lets them enter a zone as one cluster; under others there are none.
    pub drains: Drains,
    /// Whether the times at locks were measured.
    pub locks_are_timed: bool,
    vm: [u64; VmCounter::COUNT],
}

/// Drains of all types together, and how many of them were of movable frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Drains {
    /// Drains of all types.
    pub all: ClusterDrains,
    /// Drains of movable frames.
    pub movable: u64,
}

impl Drains {
    /// The counters of a yard as they stand.
    #[must_use]
    pub fn of<P: Platform>(yard: &Yard<P>) -> Self {
        yard.zones().fold(Self::default(), |sum, zone| {
            let drains = yard.transfer_statistics(zone.id).drains;
            let all = drains.iter().fold(sum.all, |all, drains| all.and(drains));
            Self { all, movable: sum.movable + drains[MigrateType::Movable.index()].drains }
        })
    }

    /// What happened since an earlier look.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let (now, then) = (self.all, earlier.all);
        let all = ClusterDrains {
            drains: now.drains.wrapping_sub(then.drains),
            ideal: now.ideal.wrapping_sub(then.ideal),
            whole: now.whole.wrapping_sub(then.whole),
        };
        Self { all, movable: self.movable.wrapping_sub(earlier.movable) }
    }
}

impl Counts {
    /// The counters as they stand.
    #[must_use]
    pub fn of<P: Platform>(vm: &Vm<'_, P>) -> Self {
        let yard = vm.yard();
        let mut counts = Self {
            drains: Drains::of(yard),
            locks_are_timed: yard.platform().lock_clock_ns().is_some(),
            vm: VmCounter::ALL.map(|counter| vm.counted(counter)),
            ..Self::default()
        };
        for zone in yard.zones() {
            counts.zone_lock = counts.zone_lock.and(zone.lock);
            counts.pages_moved += zone.pages_moved;
            counts.pages_allocated += zone.pages_allocated;
            counts.pages_freed += zone.pages_freed;
            counts.extfrag_fallbacks += zone.fallbacks;
            counts.extfrag_conversions += zone.conversions;
            let events = yard.extfrag_events(zone.id);
            counts.extfrag_into_movable += [MigrateType::Unmovable, MigrateType::Reclaimable]
                .map(|asked| events.fallbacks(asked, MigrateType::Movable))
                .iter()
                .sum::<u64>();
            counts.add_compaction(&yard.compact_statistics(zone.id));
        }
        for node in (0..yard.nodes()).map(NodeId) {
            counts.lru_lock = counts.lru_lock.and(vm.lru_statistics(node).lock);
        }
        counts
    }

    fn add_compaction(&mut self, zone: &CompactStatistics) {
        self.compact_stall += zone.stalls;
        self.compact_success += zone.successes;
        self.compact_fail += zone.failures;
        self.compact_migrated += zone.migrated;
        self.compact_migrate_failed += zone.migrate_failed;
    }

    /// A counter of what owns frames.
    #[must_use]
    pub fn vm(&self, counter: VmCounter) -> u64 {
        self.vm[counter as usize]
    }

    /// Frames that came and went: handed out or taken back, whichever were more. A workload that does both does so with the
    /// same frames.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.pages_allocated.max(self.pages_freed)
    }

    /// What happened since an earlier look.
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
            extfrag_fallbacks: self.extfrag_fallbacks.wrapping_sub(earlier.extfrag_fallbacks),
            extfrag_into_movable: self.extfrag_into_movable.wrapping_sub(earlier.extfrag_into_movable),
            extfrag_conversions: self.extfrag_conversions.wrapping_sub(earlier.extfrag_conversions),
            compact_stall: self.compact_stall.wrapping_sub(earlier.compact_stall),
            compact_success: self.compact_success.wrapping_sub(earlier.compact_success),
            compact_fail: self.compact_fail.wrapping_sub(earlier.compact_fail),
            compact_migrated: self.compact_migrated.wrapping_sub(earlier.compact_migrated),
            compact_migrate_failed: self.compact_migrate_failed.wrapping_sub(earlier.compact_migrate_failed),
            drains: self.drains.since(&earlier.drains),
            locks_are_timed: self.locks_are_timed && earlier.locks_are_timed,
            vm,
        }
    }
}

/// How scattered free memory is, in thousandths: the part of it that is in blocks too small for an order.
///
/// Of all zones together, each by its share of free memory; `None` where nothing is free.
#[must_use]
pub fn unusable_thousandths<P: Platform>(yard: &Yard<P>, order: Order) -> Option<u64> {
    let (mut unusable, mut free) = (0, 0);
    for zone in yard.zones() {
        let Some(index) = yard.unusable_index(zone.id, order) else { continue };
        unusable += index * zone.free.0;
        free += zone.free.0;
    }
    unusable.checked_div(free)
}
