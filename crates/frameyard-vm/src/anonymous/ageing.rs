//! Whether a page of a space was used since it was last looked at: the bit of use of every entry that maps it, and its end.
//!
//! After the kernel's `folio_referenced`. Processors set the bit, here faults and accesses do; who looks clears it, so the
//! next look tells of the time between.
//!
//! # Protocol
//!
//! The caller has isolated the page, as for a [move](crate::anonymous): so it is not moved, split or looked at by another.
//! It may be used, written, unmapped, or go with its space meanwhile. In this order, and never waiting for anybody:
//!
//! 1. *Visit* the space. A dead one is being taken down, and the page with it.
//! 2. Try to get the map lock for reading. So tables stay, and what is unmapped is unmapped before or after.
//! 3. Walk to the entry. One that says that it was not used is left alone: that is the end of the look.
//! 4. Try to get the table's lock, look at the entry again, and write it without its bit of use.
//!
//! Where 2 or 4 finds somebody else, the page counts as used: that is likely what he is about, and nothing was cleared.
//!
//! # Who sees what
//!
//! - **Access and faults** set bits of use, and that a page was written, under the table's lock alone. So 4 never undoes one
//!   that it has not seen. Who finds the bit set, and so takes no lock, used the page before it was cleared: that use is told
//!   by this look.
//! - **Unmapping** holds the map lock for writing: it comes before 2, and the entry is empty or another page's, or after. The
//!   caller's reference keeps the page from being freed until he has put it back.
//! - **Exit** waits for the visit, or comes before it.
//! - **Moves** of other pages change other entries, under the same locks.

use frameyard::page::CountedPage;
use frameyard::{Order, Platform};

use crate::page::{PageKind, object_of};
use crate::space::SpaceRef;
use crate::table::{ENTRIES, Entry, Level, Spot};
use crate::vm::Vm;

/// What a look at the entries of a page has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Use {
    /// It was used since the last look; its entries do not say so any more.
    Used,
    /// Nobody has used it since the last look.
    Unused,
    /// Somebody is at work where its entries are. Nothing has changed.
    Busy,
    /// No entry maps it any more.
    Unmapped,
}

impl<'y, P: Platform> Vm<'y, P> {
    /// Tells whether a page of a space, which the caller has isolated, was used since the last look, and forgets it.
    ///
    /// Waits for nobody. Cost: two exchanges each on the space's users and its map lock, and a walk; for a page that was used
    /// the lock of its table (a try). A huge page that is mapped by small entries costs a look at a whole table.
    pub(crate) fn take_use(&self, page: CountedPage<'y, P>) -> Use {
        let word = page.owner();
        let object = object_of(word).some().filter(|_| PageKind::of_word(word) == Some(PageKind::Anonymous));
        let Some(visit) = object.and_then(|object| SpaceRef::new(*self, object).visit()) else { return Use::Unmapped };
        match visit.map_lock().try_read() {
            Some(_reading) => visit.take_use(page),
            None => Use::Busy,
        }
    }
}

impl<'y, P: Platform> SpaceRef<'y, P> {
    /// As [`Vm::take_use`]. The caller has a visit and the map lock for reading.
    pub(crate) fn take_use(&self, page: CountedPage<'y, P>) -> Use {
        let spot = self.walk(page.index());
        match (page.tag().order(), spot.level) {
            (Order::ZERO, Level::SMALL) | (_, Level::HUGE) => self.take_use_at(page, spot, spot.index..spot.index + 1),
            // Huge, and mapped by small entries: its mapping was split while it was pinned.
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
