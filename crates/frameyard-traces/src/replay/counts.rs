//! What a yard counts in a replay, in total and by the order of the operation that caused it.

use frameyard::locks::LockUse;
use frameyard::{Platform, Yard};

use crate::snapshot::ORDERS;

/// Counters of a yard, or differences of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct YardCounts {
    /// Use of all zone locks.
    pub lock: LockUse,
    /// Pages that moved under a zone lock.
    pub zone_locked_pages: u64,
    /// Requests served from pageblocks of another type.
    pub extfrag: u64,
}

impl YardCounts {
    /// What a yard has counted so far.
    #[must_use]
    pub fn of<P: Platform>(yard: &Yard<P>) -> Self {
        yard.stats().zones().fold(Self::default(), |sum, zone| Self {
            lock: sum.lock.and(zone.lock),
            zone_locked_pages: sum.zone_locked_pages + zone.pages_moved,
            extfrag: sum.extfrag + zone.fallbacks,
        })
    }

    /// The difference to an earlier reading.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self {
            lock: self.lock.since(before.lock),
            zone_locked_pages: self.zone_locked_pages - before.zone_locked_pages,
            extfrag: self.extfrag - before.extfrag,
        }
    }
}

/// Counts by order.
type Orders = [u64; ORDERS];

/// Pages that moved under a zone lock and acquisitions of zone locks, by the order of the operation that caused them.
///
/// An allocation causes a refill of its CPU's list, or takes its block from the free lists. A free causes a drain, or returns its block.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LockedByOrder {
    /// Pages that moved for allocations.
    pub alloc_pages: [u64; ORDERS],
    /// Pages that moved for frees.
    pub free_pages: [u64; ORDERS],
    /// Lock acquisitions of allocations.
    pub alloc_acquisitions: [u64; ORDERS],
    /// Lock acquisitions of frees.
    pub free_acquisitions: [u64; ORDERS],
}

/// Whether an operation allocates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Cause {
    Alloc,
    Free,
}

impl LockedByOrder {
    /// Adds what an operation of that order changed.
    pub(super) fn add(&mut self, cause: Cause, order: usize, change: &YardCounts) {
        let (pages, acquisitions): (&mut Orders, &mut Orders) = match cause {
            Cause::Alloc => (&mut self.alloc_pages, &mut self.alloc_acquisitions),
            Cause::Free => (&mut self.free_pages, &mut self.free_acquisitions),
        };
        pages[order] += change.zone_locked_pages;
        acquisitions[order] += change.lock.acquisitions;
    }
}
