//! Page structures ahead of a walk: heads of huge pages lie far apart, where nothing else fetches them.
//!
//! They are fetched a group at once, so that the processor waits for several together: references are taken by locked
//! operations, between which little overlaps, and one fetch before each of them saves little.

use frameyard::Platform;

use super::{PageSink, Taking};
use crate::table::{Entry, Level, Table};

/// How many entries' heads are fetched at once. They are often multiples of 32 KiB apart, and so in one set of the first
/// cache, of eight ways or more.
const GROUP: usize = 8;

/// How far page structures have been fetched that the entries of a table lead to.
pub(super) struct Ahead<'y> {
    table: Table<'y>,
    /// The first entry whose head was not fetched.
    next: usize,
    /// Behind the last entry that is wanted.
    end: usize,
}

impl<'y> Ahead<'y> {
    /// For a walk through the entries of a table for addresses from `start` up to `end`, not empty.
    #[inline(always)]
    pub(super) fn new(table: Table<'y>, level: Level, start: u64, end: u64) -> Self {
        Self { table, next: level.index(start), end: level.index(end - 1) + 1 }
    }
}

impl<'y, P: Platform, S: PageSink> Taking<'_, 'y, P, S> {
    /// Fetches the next heads where those of no more than a group are left, seen from the entry where the walk is. Pages of
    /// devices lie in a row.
    #[inline(always)]
    pub(super) fn fetch(&self, ahead: &mut Ahead<'y>, index: usize, entry: Entry) {
        // Loads beside the protocol, of which models would look for all orders.
        if cfg!(loom) || ahead.next > index + GROUP || entry.is_device() {
            return;
        }
        let end = ahead.end.min(index + 2 * GROUP);
        for at in ahead.next.max(index)..end {
            let entry = ahead.table.entry(at);
            if entry.is_present()
                && !entry.is_device()
                && let Some(page) = self.space.vm().try_page(entry.head())
            {
                page.prefetch();
            }
        }
        // Where the table is wanted no further there is nothing to come back for.
        ahead.next = if end == ahead.end { usize::MAX } else { end };
    }
}
