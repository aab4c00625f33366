//! Splitting huge mappings: into 512 small ones, and their block into single pages where nobody else uses it.
//!
//! After the kernel's `__split_huge_pmd` and `split_huge_page`. The table of small entries was set aside when the huge page
//! was mapped, so a split never fails for lack of memory. The caller has the map lock for writing.
//!
//! The block is split into single pages if its users are known: its one mapping and who splits it. Else (it is pinned, say)
//! it stays whole: each small entry says that it is a part of it and is one of its mappings, and the last one that goes,
//! or the last other user, frees all of it.

use frameyard::{Adoption, CountedPage, Counts, Order, PageCount, Platform};

use crate::counters::VmCounter;
use crate::page::{PageKind, owner_word};
use crate::space::SpaceRef;
use crate::table::{ENTRIES, Entry, HUGE, Level, Table, TableUse, table_index};

/// What became of a block whose mapping is split.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Split {
    /// Single pages, each with a mapping of its own.
    Pages,
    /// One block, with a mapping for each page of it.
    Block,
}

impl<'y, P: Platform> SpaceRef<'y, P> {
    /// Splits the huge mapping of an entry of level 1; the table of small entries that stands there now. `addr` is the first
    /// address behind the entry.
    pub(crate) fn split_huge(&self, table: Table<'y>, index: usize, addr: u64) -> Table<'y> {
        let vm = self.vm();
        let entry = table.entry(index);
        let split = self.split_block(vm.page(entry.pfn()), addr);
        let locked = self.lock_table(table);
        let small = locked.take_aside(self).expect("a table is set aside for each huge mapping");
        let filled = self.lock_table(small);
        // It was set aside for whichever huge mapping would be split.
        filled.page.set_index(table_index(Level::SMALL, addr));
        for part in 0..ENTRIES {
            let own = entry.split(part as u64);
            filled.set(part, if split == Split::Pages { own } else { own.of_block() });
        }
        filled.change_use(|_| TableUse { used: ENTRIES as u32, anonymous: ENTRIES as u32 });
        drop(filled);
        locked.set(index, Entry::table(small.pfn));
        locked.change_use(|at| TableUse { anonymous: at.anonymous - 1, ..at });
        drop(locked);
        if split == Split::Pages {
            // Each has a reference for a batch.
            (0..HUGE.pages().0).for_each(|part| vm.lru_add(vm.page(entry.pfn() + PageCount(part))));
        }
        vm.count(VmCounter::ThpSplitPmd, 1);
        small
    }

    fn split_block(&self, page: CountedPage<'y, P>, addr: u64) -> Split {
        const EXPECTED: Counts = Counts { references: 2, mappings: 1 };
        let vm = self.vm();
        page.get();
        // It may still be on its way to a list, on this CPU or on another.
        let drained = || {
            vm.lru_drain_all();
            vm.lru_isolate(page)
        };
        let isolated = vm.lru_isolate(page) || drained();
        if isolated && page.freeze(EXPECTED) {
            self.make_single(page, addr);
            vm.count(VmCounter::ThpSplitPage, 1);
            return Split::Pages;
        }
        if isolated {
            vm.lru_put_back(page);
        }
        // One mapping and its reference are there.
        (1..ENTRIES).for_each(|_| page.map());
        vm.put_page(page);
        vm.count(VmCounter::ThpSplitPageFailed, 1);
        Split::Block
    }

    /// Makes single pages of a block that the caller has alone, each with a mapping and a reference for a batch.
    fn make_single(&self, head: CountedPage<'y, P>, addr: u64) {
        let yard = self.vm().yard();
        let split = yard.disown_and_split(head.pfn(), HUGE);
        debug_assert!(split.is_ok(), "who has a block alone can split it: {split:?}");
        let owner = owner_word(PageKind::Anonymous, self.object(), 0);
        let counts = Counts { references: 2, mappings: 1 };
        for part in 0..HUGE.pages().0 {
            let index = addr + (part << Level::SMALL.shift());
            let adopted = yard.adopt(head.pfn() + PageCount(part), Order::ZERO, Adoption { counts, owner, index });
            debug_assert!(adopted.is_ok(), "a frame just split off is allocated: {adopted:?}");
        }
    }
}

#[cfg(test)]
mod tests;
