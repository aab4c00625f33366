//! Migration of pages for compaction and contiguous ranges.
//!
//! Isolating and returning a page are the same for all kinds of pages. The module of a kind moves its pages.
//!
//! # Protocol
//!
//! An isolator removes the page from its list, which only one CPU can do, sets [`Flags::ISOLATED`], and keeps a
//! reference. Returning the page passes that reference to the batch. After a move the new page has the counts of the
//! old one, including that reference, and neither [`Flags::LRU`] nor [`Flags::ISOLATED`], so it also goes to the batch.

use frameyard::owners::{Block, FrameOwner, MigrateMode, MigrateProblem, Owners, Ownership};
use frameyard::page::{CountedPage, Counts};
use frameyard::{Pfn, Platform};

use crate::counters::VmCounter;
use crate::error::Damage;
use crate::inject::Step;
use crate::page::{Flags, PageKind};
use crate::vm::Vm;
use crate::words::FrameBytes;

#[cfg(test)]
mod tests;

impl<'y, P: Platform> Vm<'y, P> {
    /// The owners that compaction and allocations of this yard can ask to move or release pages: pass this where a call
    /// of the yard takes [`Owners`].
    #[must_use]
    pub fn owners(&self) -> Owners<'_> {
        Owners::NONE.with(PageKind::Anonymous.owner(), self).with(PageKind::Cache.owner(), self).with_reclaimer(self)
    }

    /// Isolates a page of which the caller holds a reference.
    fn isolate_referenced(
        &self,
        page: CountedPage<'y, P>,
        block: Block,
        mode: MigrateMode,
    ) -> Result<(), MigrateProblem> {
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
        // A batch's reference looks like another user's, and its page may be on no list yet.
        if mode == MigrateMode::Sync && (has_other_users(page) || page.owner() & Flags::LRU == 0) {
            self.lru_drain();
            if has_other_users(page) || page.owner() & Flags::LRU == 0 {
                self.lru_drain_all();
            }
        }
        if has_other_users(page) {
            // Transient references belong to isolation, drops and look-ups. Pins are counted separately.
            return Err(if page.maybe_pinned() { MigrateProblem::Pinned } else { MigrateProblem::Busy });
        }
        if is_mapped_file_page(page) {
            return Err(MigrateProblem::Busy);
        }
        if !self.lru_isolate(page) {
            return Err(MigrateProblem::Busy);
        }
        page.set_owner_bits(Flags::ISOLATED);
        Ok(())
    }
}

impl<'y, P: Platform> Vm<'y, P> {
    /// An isolated page; `None` for any other frame number. The number may be arbitrary.
    fn isolated_page(&self, pfn: Pfn) -> Option<CountedPage<'y, P>> {
        let is_isolated = |page: &CountedPage<'y, P>| {
            page.is_counted() && is_movable(page.owner()) && page.owner() & Flags::ISOLATED != 0
        };
        self.try_page(pfn).filter(is_isolated)
    }
}

/// Whether an owner's word is of a movable kind.
const fn is_movable(word: u64) -> bool {
    matches!(PageKind::of_word(word), Some(PageKind::Anonymous | PageKind::Cache))
}

/// Whether a page has references other than those of its mappings, its file and the caller.
fn has_other_users<P: Platform>(page: CountedPage<'_, P>) -> bool {
    let counts = page.counts();
    let of_file = u32::from(PageKind::of_word(page.owner()) == Some(PageKind::Cache));
    counts.references > counts.mappings.saturating_add(of_file).saturating_add(1)
}

/// Whether a space maps a page of a file, which then stays.
fn is_mapped_file_page<P: Platform>(page: CountedPage<'_, P>) -> bool {
    PageKind::of_word(page.owner()) == Some(PageKind::Cache) && page.counts().mappings > 0
}

impl<P: Platform> FrameOwner for Vm<'_, P> {
    /// After the kernel's `isolate_migratepages_block`, for one page. Cost: a reference, and the lock of the page's
    /// shard; with [`MigrateMode::Sync`] also the locks of batches that may contain the page.
    fn isolate(&self, block: Block, mode: MigrateMode) -> Result<(), MigrateProblem> {
        self.may_fail(Step::Isolate).map_err(|_| MigrateProblem::Failed)?;
        let page = self.try_page(block.pfn).ok_or(MigrateProblem::Gone)?;
        // Check without a reference first, so that a frame of another kind does not get a transient one.
        if !page.is_counted() {
            return Err(MigrateProblem::Gone);
        }
        if !is_movable(page.owner()) {
            return Err(MigrateProblem::Unmovable);
        }
        if !page.try_get() {
            return Err(MigrateProblem::Gone);
        }
        let done = self.isolate_referenced(page, block, mode);
        if done.is_err() {
            self.put_page(page);
        }
        done
    }

    /// After the kernel's `migrate_pages`, for one page and one attempt. A huge page mapped by small entries is split
    /// into single pages, with the result [`Busy`](MigrateProblem::Busy): its first page stays isolated.
    fn migrate(&self, from: Block, to: Pfn, mode: MigrateMode) -> Result<(), MigrateProblem> {
        let Some(page) = self.isolated_page(from.pfn) else { return Err(MigrateProblem::Gone) };
        // Any code that names an allocated frame can free it, so `to` becomes counted before its bytes are written. That fails
        // for a frame that is not allocated, or belongs to a guard or another owner.
        let frozen = Ownership { counts: Counts::default(), owner: 0, index: 0 };
        self.yard().counted().init_refs(to, from.order, frozen).map_err(|_| MigrateProblem::Failed)?;
        // SAFETY: `to` is counted and frozen, and only this function has it.
        let bytes = unsafe { FrameBytes::new(self.yard(), to, from.order) };
        let done = match PageKind::of_word(page.owner()) {
            Some(PageKind::Anonymous) => self.migrate_anonymous(from, bytes, mode),
            Some(PageKind::Cache) => self.migrate_cache(from, bytes, mode),
            _ => Err(MigrateProblem::Unmovable),
        };
        if done.is_err() {
            // SAFETY: as above; a migration that fails has not unfrozen it.
            let cleared = unsafe { self.yard().counted().clear_refs(to, from.order) };
            self.expect(cleared, Damage::Frame);
        }
        let counter = if done.is_ok() { VmCounter::PgmigrateSuccess } else { VmCounter::PgmigrateFail };
        self.count(counter, from.order.pages().0);
        if done.is_ok() {
            self.lru_add(self.page(to));
        }
        done
    }

    /// Drops a clean page of a file that is not on an active list.
    fn discard(&self, block: Block) -> Result<(), MigrateProblem> {
        let Some(page) = self.isolated_page(block.pfn) else { return Err(MigrateProblem::Gone) };
        let word = page.owner();
        let in_use = Flags::ACTIVE | Flags::DIRTY;
        if PageKind::of_word(word) != Some(PageKind::Cache) || word & in_use != 0 {
            return Err(MigrateProblem::Failed);
        }
        self.drop_cache_page(page).map_err(|_| MigrateProblem::Busy)?;
        // SAFETY: the page is in no file and frozen, and only this function has it.
        let cleared = unsafe { self.yard().counted().clear_refs(block.pfn, block.order) };
        if cleared.is_err() {
            self.expect(cleared, Damage::Frame);
            return Err(MigrateProblem::Gone);
        }
        Ok(())
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
