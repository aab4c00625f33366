//! Accessed bits of pages of spaces: test and clear.
//!
//! After the kernel's `folio_referenced`. Processors set the bit, here faults and accesses do. The test clears it, so
//! the next test covers the time since this one.
//!
//! # Protocol
//!
//! The caller has isolated the page, as for a [migration](crate::anonymous), so it is not moved, split or tested by
//! another CPU. It may be accessed, unmapped, or torn down with its space meanwhile. The test does, in this order and
//! without waiting:
//!
//! 1. *Visit* the space. A dead space is being torn down, and the page with it.
//! 2. Try to take the map lock for reading. Tables then stay, and unmaps come before or after.
//! 3. Walk to the entry. An entry without the accessed bit ends the test.
//! 4. Try to take the table's lock, read the entry again, and write it without its accessed bit.
//!
//! If step 2 or 4 fails, the page counts as used: the lock holder likely uses it, and nothing was cleared.
//!
//! # Races
//!
//! - **Accesses and faults** set accessed and dirty bits only under the table's lock, so step 4 never undoes a bit that
//!   it has not seen. A CPU that finds the bit set takes no lock: it accessed the page before the bit was cleared, and
//!   this test reports that access.
//! - **Unmap** holds the map lock for writing: it comes before step 2, and the entry is empty or another page's, or
//!   after. The caller's reference delays freeing the page until the caller returns it.
//! - **Exit** waits for the visit, or comes before it.
//! - **Migrations** of other pages change other entries, under the same locks.

use frameyard::page::CountedPage;
use frameyard::{Order, Platform};

use crate::page::{PageKind, object_of};
use crate::space::SpaceRef;
use crate::table::{ENTRIES, Entry, Level, Spot};
use crate::vm::Vm;

/// The result of a test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    /// Used since the last test. The bits are cleared.
    Used,
    /// Not used since the last test.
    Unused,
    /// Another CPU holds a lock of its entries. Nothing has changed.
    Busy,
    /// Unmapped.
    Unmapped,
}

impl<'y, P: Platform> Vm<'y, P> {
    /// Tests whether a page of a space was used since the last test, and clears its accessed bits. The caller has
    /// isolated the page.
    ///
    /// Does not wait. Cost: two exchanges each on the space's users and its map lock, and a walk; for a used page the
    /// lock of its table (a try). A huge page mapped by small entries costs a scan of a whole table.
    pub(crate) fn take_use(&self, page: CountedPage<'y, P>) -> Use {
        let word = page.owner();
        let object = object_of(word).some().filter(|_| PageKind::of_word(word) == Some(PageKind::Anonymous));
        let visit = object.and_then(|object| SpaceRef::new(*self, object).ok()?.visit());
        let Some(visit) = visit else { return Use::Unmapped };
        match visit.map_lock().try_read() {
            Some(_reading) => visit.take_use(page),
            None => Use::Busy,
        }
    }
}

impl<'y, P: Platform> SpaceRef<'y, P> {
    /// Like [`Vm::take_use`]. The caller has a visit and holds the map lock for reading.
    pub(crate) fn take_use(&self, page: CountedPage<'y, P>) -> Use {
        let Ok(spot) = self.walk(page.index()) else { return Use::Unmapped };
        match (page.tag().order(), spot.level) {
            (Order::ZERO, Level::SMALL) | (_, Level::HUGE) => self.take_use_at(page, spot, spot.index..spot.index + 1),
            // A huge page mapped by small entries: its mapping was split while it was pinned.
            (_, Level::SMALL) => self.take_use_at(page, spot, 0..ENTRIES),
            _ => Use::Unmapped,
        }
    }

    fn take_use_at(&self, page: CountedPage<'y, P>, spot: Spot<'y>, entries: core::ops::Range<usize>) -> Use {
        let maps = |entry: &Entry| entry.is_present() && !entry.is_device() && entry.head() == page.pfn();
        let mut mapping = entries.clone().map(|index| spot.table.entry(index)).filter(maps).peekable();
        if mapping.peek().is_none() {
            return Use::Unmapped;
        }
        if !mapping.any(Entry::is_accessed) {
            return Use::Unused;
        }
        let Some(table) = self.try_lock_table(spot.table) else { return Use::Busy };
        for index in entries {
            let entry = table.entry(index);
            if maps(&entry) && entry.is_accessed() {
                table.set(index, entry.unused());
            }
        }
        Use::Used
    }
}

#[cfg(test)]
mod tests;
