//! The walk without locks. [`pin`](super) describes its protocol.

#[cfg(loom)]
use frameyard::sync::{Weakness, is_weakened};
use frameyard::{PageCount, Pfn, Platform};

use super::ahead::Ahead;
use super::part::Part;
use super::request::PinRequest;
use super::{PageRun, PageSink, Taking, visible_to_all};
use crate::error::Damage;
use crate::inject::Step;
use crate::space::SpaceRef;
use crate::table::{Entry, Level, Table};
use crate::vm::Vm;

/// An entry as a walk without locks read it.
#[derive(Clone, Copy)]
struct SeenEntry<'y> {
    table: Table<'y>,
    level: Level,
    index: usize,
    entry: Entry,
    /// The count of removed tables at the start of the walk.
    table_removals: u64,
}

impl<'y, P: Platform, S: PageSink> Taking<'_, 'y, P, S> {
    /// Takes pages until the fast path fails or there is no more room.
    #[inline]
    pub(super) fn fast(&mut self) {
        let table_removals = self.space.table_removals();
        while self.at < self.end {
            let Some((table, level)) = self.space.lowest_table(self.at) else { return };
            if self.space.vm().may_fail(Step::WalkUnlocked).is_err() {
                return;
            }
            let end = self.end_of_table(level);
            let mut ahead = Ahead::new(table, level, self.at, end);
            while self.at < end {
                let index = level.index(self.at);
                let entry = table.entry(index);
                // A scheduling point for models.
                #[cfg(loom)]
                let _ = self.space.vm().may_fail(Step::WalkUnlocked);
                if entry.is_table(level) {
                    break;
                }
                self.fetch(&mut ahead, index, entry);
                if !self.fast_entry(&SeenEntry { table, level, index, entry, table_removals }) {
                    return;
                }
            }
        }
    }

    /// Takes the pages of an entry; `false` if the fast path cannot take all of them.
    #[inline(always)]
    fn fast_entry(&mut self, seen: &SeenEntry<'y>) -> bool {
        let (entry, level) = (seen.entry, seen.level);
        if !entry.is_present() || !entry.allows(self.request.access()) {
            return false;
        }
        let run = self.run(entry, level);
        if run.pages.0 == 0 {
            return false;
        }
        let vm = *self.space.vm();
        let mut taken = 0;
        while taken < run.pages.0 {
            let rest = PageRun { first: Pfn(run.first.0 + taken), pages: PageCount(run.pages.0 - taken) };
            let Some(part) = vm.part_behind(entry, level, rest) else { return false };
            if !self.fast_part(seen, &vm, &part) {
                return false;
            }
            taken += part.pages;
            self.note(PageRun { first: rest.first, pages: PageCount(part.pages) });
        }
        true
    }

    /// Takes the pages of one head, if they are still mapped there after the references were taken.
    #[inline(always)]
    fn fast_part(&mut self, seen: &SeenEntry<'y>, vm: &Vm<'y, P>, part: &Part<'y, P>) -> bool {
        if !part.try_get(self.request) {
            return false;
        }
        if !self.may_take_fast(part) || !self.space.is_unchanged(seen) {
            give_up(vm, self.request, part);
            return false;
        }
        part.count_pins(self.request);
        true
    }
}

/// Releases the references of a page that turned out to be a different one. Frees it if they were the last.
#[cold]
fn give_up<P: Platform>(vm: &Vm<'_, P>, request: PinRequest, part: &Part<'_, P>) {
    let left = part.references(request.call, part.pages).map(|references| part.page.put_many(references));
    match left {
        Some(Ok(0)) => vm.free_unused(&[part.page.pfn()]),
        Some(Ok(_)) => {}
        _ => _ = vm.damaged(Damage::Frame),
    }
}

impl<'y, P: Platform> SpaceRef<'y, P> {
    /// The lowest table for an address; `None` if an entry cannot lead to one. No lock is held, so the contents may be
    /// anything.
    #[inline(always)]
    fn lowest_table(&self, addr: u64) -> Option<(Table<'y>, Level)> {
        let (mut table, mut level) = (self.root_of_tables().ok()?, Level::ROOT);
        loop {
            let entry = table.entry(level.index(addr));
            if !entry.is_table(level) {
                return Some((table, level));
            }
            level = level.below();
            table = self.try_table(entry.pfn())?;
        }
    }

    /// Whether an entry is unchanged and still in a table of this space. The caller has taken references since.
    #[inline(always)]
    fn is_unchanged(&self, seen: &SeenEntry<'y>) -> bool {
        #[cfg(loom)]
        if is_weakened(Weakness::EntriesNotRechecked) {
            return self.table_removals() == seen.table_removals;
        }
        let entry = seen.table.entry(seen.index);
        visible_to_all();
        entry == seen.entry && self.table_removals() == seen.table_removals
    }
}
