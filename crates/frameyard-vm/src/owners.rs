//! Moving pages: what compaction and contiguous ranges ask of this crate.
//!
//! Isolating is the same for all kinds of pages, and so is putting them back; moving one is up to the module of its kind.
//!
//! # Protocol
//!
//! Who isolates a page takes it off its list, which one alone can do, sets [`Flags::ISOLATED`], and keeps a reference. If
//! it is put back, that reference goes with it to the batch. If it is moved, the new page has the counts that the old one
//! had, that reference included, and neither [`Flags::LRU`] nor [`Flags::ISOLATED`]: so it goes to the batch as well.

use frameyard::owners::{Block, FrameOwner, MigrateMode, MigrateProblem, Owners};
use frameyard::page::CountedPage;
use frameyard::{Pfn, Platform};

use crate::counters::VmCounter;
use crate::inject::Step;
use crate::page::{Flags, PageKind};
use crate::vm::Vm;

#[cfg(test)]
mod tests;

impl<'y, P: Platform> Vm<'y, P> {
    /// What this view can move and give up, for whoever compacts the yard or allocates with owners to ask.
    #[must_use]
    pub fn owners(&self) -> Owners<'_> {
        Owners::NONE.with(PageKind::Anonymous.owner(), self).with(PageKind::Cache.owner(), self).with_reclaimer(self)
    }

    /// Sets a page aside of which the caller has got a reference.
    fn set_aside(&self, page: CountedPage<'y, P>, block: Block, mode: MigrateMode) -> Result<(), MigrateProblem> {
        let tag = page.tag();
        if !page.is_counted() || tag.order() != block.order {
            return Err(MigrateProblem::Gone);
        }
        let word = page.owner();
        if !is_movable(word) {
            return Err(MigrateProblem::Unmovable);
        }
        if word & Flags::TRUNCATED != 0 {
            return Err(MigrateProblem::Gone);
        }
        if word & Flags::ISOLATED != 0 {
            return Err(MigrateProblem::Busy);
        }
        // A batch has a reference as strangers have, and its page may be on no list yet.
        if mode == MigrateMode::Sync && (has_strangers(page) || page.owner() & Flags::LRU == 0) {
            self.lru_drain();
            if has_strangers(page) || page.owner() & Flags::LRU == 0 {
                self.lru_drain_all();
            }
        }
        if has_strangers(page) {
            // Who isolates a page, drops it or looks it up has a reference, too, but not for long. Pins are counted.
            return Err(if is_pinned(page) { MigrateProblem::Pinned } else { MigrateProblem::Busy });
        }
        if !self.lru_isolate(page) {
            return Err(MigrateProblem::Busy);
        }
        page.set_owner_bits(Flags::ISOLATED);
        Ok(())
    }
}

impl<'y, P: Platform> Vm<'y, P> {
    /// A page that somebody has set aside; `None` for all other numbers, which anybody can make up.
    fn isolated_page(&self, pfn: Pfn) -> Option<CountedPage<'y, P>> {
        let is_isolated = |page: &CountedPage<'y, P>| {
            page.is_counted() && is_movable(page.owner()) && page.owner() & Flags::ISOLATED != 0
        };
        self.try_page(pfn).filter(is_isolated)
    }
}

/// Whether a page with that owner's word is of a kind that can be moved.
const fn is_movable(word: u64) -> bool {
    matches!(PageKind::of_word(word), Some(PageKind::Anonymous | PageKind::Cache))
}

impl<P: Platform> Vm<'_, P> {
    /// Whether exactly that block is allocated to somebody who has given it no state of his own yet.
    fn is_allocated(&self, block: Block) -> bool {
        self.yard().is_allocated(block.pfn, block.order)
    }
}

/// Whether a page has references besides those of its mappings, of its file, and the caller's own.
fn has_strangers<P: Platform>(page: CountedPage<'_, P>) -> bool {
    let counts = page.counts();
    let of_file = u32::from(PageKind::of_word(page.owner()) == Some(PageKind::Cache));
    counts.references > counts.mappings.saturating_add(of_file).saturating_add(1)
}

/// Whether a page is kept where it is by pins. Pages of files have none.
fn is_pinned<P: Platform>(page: CountedPage<'_, P>) -> bool {
    PageKind::of_word(page.owner()) == Some(PageKind::Anonymous) && page.maybe_pinned()
}

impl<P: Platform> FrameOwner for Vm<'_, P> {
    /// After the kernel's `isolate_migratepages_block`, as far as it concerns one page. Cost: a reference, and the lock of the
    /// page's shard; with [`MigrateMode::Sync`], the locks of batches where the page may be in one.
    fn isolate(&self, block: Block, mode: MigrateMode) -> Result<(), MigrateProblem> {
        self.may_fail(Step::Isolate).map_err(|_| MigrateProblem::Failed)?;
        let page = self.try_page(block.pfn).ok_or(MigrateProblem::Gone)?;
        // A look without a reference spares whoever has a frame of another kind one that comes and goes.
        if !page.is_counted() {
            return Err(MigrateProblem::Gone);
        }
        if !is_movable(page.owner()) {
            return Err(MigrateProblem::Unmovable);
        }
        if !page.try_get() {
            return Err(MigrateProblem::Gone);
        }
        let done = self.set_aside(page, block, mode);
        if done.is_err() {
            self.put_page(page);
        }
        done
    }

    /// After the kernel's `migrate_pages`, for one page and one attempt. A huge page that is mapped by small entries is split
    /// into single pages, and [`Busy`](MigrateProblem::Busy): the first of them is the one that is still isolated.
    fn migrate(&self, from: Block, to: Pfn, mode: MigrateMode) -> Result<(), MigrateProblem> {
        let Some(page) = self.isolated_page(from.pfn) else { return Err(MigrateProblem::Gone) };
        // Before a byte of it is written: who holds frames as `Frames`, or counts their users, has them for himself.
        if !self.is_allocated(Block { pfn: to, ..from }) {
            return Err(MigrateProblem::Failed);
        }
        let done = match PageKind::of_word(page.owner()) {
            Some(PageKind::Anonymous) => self.migrate_anonymous(from, to, mode),
            Some(PageKind::Cache) => self.migrate_cache(from, to, mode),
            _ => Err(MigrateProblem::Unmovable),
        };
        let counter = if done.is_ok() { VmCounter::PgmigrateSuccess } else { VmCounter::PgmigrateFail };
        self.count(counter, from.order.pages().0);
        if done.is_ok() {
            self.lru_add(self.page(to));
        }
        done
    }

    /// After the kernel's `putback_movable_pages`.
    fn put_back(&self, block: Block) {
        let Some(page) = self.isolated_page(block.pfn) else { return };
        page.clear_owner_bits(Flags::ISOLATED);
        if self.may_fail(Step::PutBack).is_ok() {
            return self.lru_add(page);
        }
        self.lru_put_back(page);
        self.put_page(page);
    }
}
