//! Splitting of huge mappings into 512 small ones, and of their block into single pages if it has no other users.
//!
//! After the kernel's `__split_huge_pmd` and `split_huge_page`. The page table was deposited when the huge page was
//! mapped, so a split never fails for lack of memory. The caller holds the map lock for writing.
//!
//! The block is split into single pages if its only users are its mapping and the splitting CPU. Otherwise (it is
//! pinned, for example) it stays whole: each small entry is marked as a part and counts as one mapping. The last part
//! or the last other user frees the whole block. A later migration splits such a block first, once the other users are
//! gone.

use frameyard::owners::Ownership;
use frameyard::page::{CountedPage, Counts};
#[cfg(loom)]
use frameyard::sync::{Weakness, is_weakened};
use frameyard::{Order, PageCount, Pfn, Platform};

use crate::counters::VmCounter;
use crate::error::{Damage, VmError};
use crate::inject::Step;
use crate::page::{Flags, PageKind, object_of, owner_word};
use crate::space::SpaceRef;
use crate::table::{ENTRIES, Entry, HUGE, Level, Table, TableUse, table_index};

/// Flags that the single pages inherit from the block. (The entries keep their accessed bits.)
const KEPT: u64 = Flags::ACTIVE | Flags::REFERENCED;

/// The state of a block after its mapping was split.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Split {
    /// Single pages with one mapping each.
    Pages,
    /// One block, with a mapping for each page of it.
    Block,
}

/// Whether a broken model skips the mark on huge entries during the split.
fn is_unmarked() -> bool {
    #[cfg(loom)]
    return is_weakened(Weakness::SplitUnmarked);
    #[cfg(not(loom))]
    false
}

/// Whether a broken model changes the entries of parts after their pages have users.
fn is_late() -> bool {
    #[cfg(loom)]
    return is_weakened(Weakness::PartsChangedLate);
    #[cfg(not(loom))]
    false
}

impl<'y, P: Platform> SpaceRef<'y, P> {
    /// Splits the huge mapping of an entry of level 1; returns the new table of small entries. `addr` is the first
    /// address of the entry.
    ///
    /// # Errors
    ///
    /// The entry or its table is damaged, or a lock was not released. The page may be lost.
    pub(crate) fn split_huge(
        &self,
        (table, level, index): (Table<'y>, Level, usize),
        addr: u64,
    ) -> Result<Table<'y>, VmError> {
        let vm = self.vm();
        let entry = table.entry(index);
        let head = self.anonymous_page(entry.pfn()).filter(|page| level == Level::HUGE && self.is_huge(*page));
        let head = head.ok_or_else(|| vm.damaged(Damage::Entry))?;
        // Mark before the block changes: an unlocked pin of it then finds a changed entry and releases its references.
        if !is_unmarked() {
            self.lock_table(table)?.set(index, entry.moving());
        }
        let split = self.split_block(head, addr);
        let locked = self.lock_table(table)?;
        let small = locked.withdraw(self)?;
        let filled = self.lock_table(small)?;
        // The table was deposited for any huge mapping of its parent.
        filled.page.set_index(table_index(Level::SMALL, addr));
        for part in 0..ENTRIES {
            let own = entry.split(part as u64);
            filled.set(part, if split == Split::Pages { own } else { own.of_block() });
        }
        filled.change_use(|_| TableUse { used: ENTRIES as u32, anonymous: ENTRIES as u32 });
        drop(filled);
        locked.set(index, Entry::table(small.pfn));
        locked.change_use(|at| at.less(0, 1));
        drop(locked);
        if split == Split::Pages {
            // Each page has a reference for a batch.
            (0..HUGE.pages().0).for_each(|part| vm.lru_add(vm.page(head.pfn() + PageCount(part))));
        }
        vm.count(VmCounter::ThpSplitPmd, 1);
        Ok(small)
    }

    /// Whether a block is a huge page of the yard, whatever its tag says.
    fn is_huge(&self, head: CountedPage<'y, P>) -> bool {
        let last = head.pfn() + PageCount(HUGE.pages().0 - 1);
        head.tag().order() == HUGE && self.vm().try_page(last).is_some()
    }

    /// The page of an anonymous block that an entry of this space names; `None` for any other frame.
    #[inline(always)]
    pub(crate) fn anonymous_page(&self, pfn: Pfn) -> Option<CountedPage<'y, P>> {
        if self.vm().trusts_frames() {
            return Some(self.vm().page(pfn));
        }
        self.vm().try_page(pfn).filter(|page| {
            let word = page.owner();
            page.is_counted()
                && PageKind::of_word(word) == Some(PageKind::Anonymous)
                && object_of(word) == self.object()
        })
    }

    fn split_block(&self, page: CountedPage<'y, P>, addr: u64) -> Split {
        const EXPECTED: Counts = Counts { references: 2, mappings: 1 };
        let vm = self.vm();
        page.get();
        // It may still be in a batch of this or another CPU.
        let drained = || {
            vm.lru_drain_all();
            vm.lru_isolate(page)
        };
        let isolated = vm.may_fail(Step::SplitHuge).is_ok() && (vm.lru_isolate(page) || drained());
        if isolated && page.freeze(EXPECTED) {
            if !self.make_single(page, addr) {
                vm.damaged(Damage::Frame);
                return Split::Block;
            }
            vm.count(VmCounter::ThpSplitPage, 1);
            return Split::Pages;
        }
        if isolated {
            vm.lru_put_back(page);
        }
        // One mapping and its reference already exist.
        (1..ENTRIES).for_each(|_| page.map());
        vm.put_page(page);
        vm.count(VmCounter::ThpSplitPageFailed, 1);
        Split::Block
    }

    /// Splits a block into single pages that small entries of `table` map, if its only users are those entries and the
    /// caller, which has isolated it. Returns whether it was split. Frees frames without an entry. The first page stays
    /// isolated with the caller's reference. The caller holds the map lock, at least for reading.
    ///
    /// Bytes are accessed only under the table's lock, so there are no accesses meanwhile. All pages keep their frames.
    pub(crate) fn split_parts(&self, head: CountedPage<'y, P>, table: Table<'y>) -> bool {
        let (vm, addr) = (self.vm(), head.index());
        if vm.may_fail(Step::SplitHuge).is_err() || !self.is_huge(head) {
            return false;
        }
        let Ok(locked) = self.lock_table(table) else { return false };
        let part = |index: usize| Some(locked.entry(index)).filter(|part| part.is_part() && part.head() == head.pfn());
        let mapped: [Option<Entry>; ENTRIES] = core::array::from_fn(part);
        let mappings = mapped.iter().flatten().count() as u32;
        if mappings == 0 || !head.freeze(Counts { references: mappings + 1, mappings }) {
            return false;
        }
        // Change the entries before the pages have users: an unlocked pin of a page then sees that it is no longer a
        // part.
        let change_entries = || {
            let parts = mapped.iter().enumerate();
            parts.for_each(|(index, part)| part.iter().for_each(|entry| locked.set(index, entry.single())));
        };
        if !is_late() {
            change_entries();
        }
        let kept = head.owner() & KEPT;
        // SAFETY: this thread froze the counts.
        if unsafe { vm.yard().counted().split(head.pfn(), HUGE) }.is_err() {
            // The block is lost.
            vm.damaged(Damage::Frame);
            return false;
        }
        for (index, part) in mapped.iter().enumerate() {
            let pfn = head.pfn() + PageCount(index as u64);
            if part.is_none() && index > 0 {
                // SAFETY: the split has frozen the frames of the block for this CPU.
                let freed = unsafe { vm.yard().counted().free(pfn, Order::ZERO) };
                vm.expect(freed, Damage::Frame);
                continue;
            }
            let mappings = u32::from(part.is_some());
            // One reference is for a batch, or for the first page the isolator's.
            let counts = Counts { references: mappings + 1, mappings };
            let isolated = if index == 0 { Flags::ISOLATED } else { 0 };
            let owner = owner_word(PageKind::Anonymous, self.object(), kept | isolated);
            let index = addr.wrapping_add((index as u64) << Level::SMALL.shift());
            vm.unfreeze_as(vm.page(pfn), Ownership { counts, owner, index });
        }
        if is_late() {
            change_entries();
        }
        drop(locked);
        let rest = mapped.iter().enumerate().skip(1).filter(|(_, part)| part.is_some());
        rest.for_each(|(index, _)| vm.lru_add(vm.page(head.pfn() + PageCount(index as u64))));
        vm.count(VmCounter::ThpSplitPage, 1);
        true
    }

    /// Makes single pages of a block under exclusive access, each with a mapping and a reference for a batch. `false` if the
    /// yard refuses, because the block's state is damaged.
    fn make_single(&self, head: CountedPage<'y, P>, addr: u64) -> bool {
        let yard = self.vm().yard();
        let owner = owner_word(PageKind::Anonymous, self.object(), head.owner() & KEPT);
        // SAFETY: the caller froze the counts.
        if unsafe { yard.counted().split(head.pfn(), HUGE) }.is_err() {
            return false;
        }
        let counts = Counts { references: 2, mappings: 1 };
        for part in 0..HUGE.pages().0 {
            let index = addr + (part << Level::SMALL.shift());
            self.vm().unfreeze_as(self.vm().page(head.pfn() + PageCount(part)), Ownership { counts, owner, index });
        }
        true
    }
}

#[cfg(test)]
mod tests;
