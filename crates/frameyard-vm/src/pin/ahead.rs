//! Prefetch of page structures: heads of huge pages are far apart, and the processor's own prefetchers miss them.
//!
//! Heads are prefetched in groups, so that several cache misses overlap. References are taken by locked operations,
//! between which little overlaps, so a single prefetch before each would gain little.

use frameyard::Platform;

use super::{PageSink, Taking};
use crate::table::{Entry, Level, Table};

/// Heads per group. They are often multiples of 32 KiB apart, and so in one set of the first-level cache, which has
/// eight ways or more.
const GROUP: usize = 8;

/// The progress of the prefetch in a table.
pub(super) struct Ahead<'y> {
    table: Table<'y>,
    /// The first entry without prefetch.
    next: usize,
    /// One past the last wanted entry.
    end: usize,
}

impl<'y> Ahead<'y> {
    /// For a walk of the table's entries from `start` to `end`, not empty.
    #[inline(always)]
    pub(super) fn new(table: Table<'y>, level: Level, start: u64, end: u64) -> Self {
        Self { table, next: level.index(start), end: level.index(end - 1) + 1 }
    }
}

impl<'y, P: Platform, S: PageSink> Taking<'_, 'y, P, S> {
    /// Prefetches the next group when at most one group is left ahead of the walk. Page structures of devices are
    /// adjacent.
    #[inline(always)]
    pub(super) fn fetch(&self, ahead: &mut Ahead<'y>, index: usize, entry: Entry) {
        // Models skip these loads: they are outside the protocol and would multiply the explored orders.
        if cfg!(loom) || ahead.next > index + GROUP || entry.is_device() && !entry.is_pooled() {
            return;
        }
        let end = ahead.end.min(index + 2 * GROUP);
        for at in ahead.next.max(index)..end {
            let entry = ahead.table.entry(at);
            if entry.is_present()
                && (!entry.is_device() || entry.is_pooled())
                && let Some(page) = self.space.vm().try_page(entry.head())
            {
                page.prefetch();
            }
        }
        // Nothing is left to prefetch in this table.
        ahead.next = if end == ahead.end { usize::MAX } else { end };
    }
}
