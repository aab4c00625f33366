//! Migration of file pages.

use frameyard::owners::{Block, MigrateMode, MigrateProblem, Ownership};
use frameyard::page::CountedPage;
use frameyard::{Order, Platform};

use super::evict::UNUSED;
use super::file::FileRef;
use super::page_lock::{PageHeld, init_unlocked};
use crate::error::Damage;
use crate::inject::Step;
use crate::page::Flags;
use crate::vm::Vm;
use crate::words::FrameBytes;

impl<'y, P: Platform> Vm<'y, P> {
    /// Moves an isolated page of a file to the caller's frozen frame `to`. Afterwards `to` belongs to the file, is
    /// on no list, and holds the isolator's reference. The old frame belongs to the caller, as if just allocated.
    ///
    /// # Errors
    ///
    /// [`MigrateProblem`]. Nothing has changed then, except the bytes of `to`.
    pub(crate) fn migrate_cache(
        &self,
        from: Block,
        to: FrameBytes<'y, P>,
        mode: MigrateMode,
    ) -> Result<(), MigrateProblem> {
        if from.order != Order::ZERO {
            return Err(MigrateProblem::Unmovable);
        }
        let page = self.try_page(from.pfn).ok_or(MigrateProblem::Gone)?;
        self.may_fail(Step::Visit).map_err(|_| MigrateProblem::Failed)?;
        let file = self.file_of(page).ok_or(MigrateProblem::Gone)?;
        let moved = file.migrate(page, to, mode);
        // This may be the last user: afterwards the file's pages may be gone, including the moved one.
        file.put_user();
        moved
    }
}

impl<'y, P: Platform> FileRef<'y, P> {
    fn migrate(
        &self,
        page: CountedPage<'y, P>,
        mut bytes: FrameBytes<'y, P>,
        mode: MigrateMode,
    ) -> Result<(), MigrateProblem> {
        let (vm, from, to) = (self.vm(), page.pfn(), bytes.pfn());
        let held = match mode {
            MigrateMode::Async => PageHeld::try_lock(vm, page),
            MigrateMode::Sync => PageHeld::lock(vm, page, self.lock_id()).ok(),
        };
        let mut held = held.ok_or(MigrateProblem::Busy)?;
        if page.owner() & Flags::TRUNCATED != 0 {
            return Err(MigrateProblem::Gone);
        }
        let failed = |_| MigrateProblem::Failed;
        vm.may_fail(Step::Freeze).map_err(failed)?;
        // A page that a space maps, or that is pinned, has more.
        if page.counts() != UNUSED {
            return Err(MigrateProblem::Busy);
        }
        vm.may_fail(Step::Copy).map_err(failed)?;
        bytes.copy_from(&held.bytes(vm.yard())).map_err(failed)?;
        let index = page.index();
        let mut tree = self.lock().map_err(failed)?;
        if tree.find(index) != Some(from) {
            return Err(MigrateProblem::Gone);
        }
        if !page.freeze(UNUSED) {
            return Err(MigrateProblem::Busy);
        }
        // The flags cannot change: the page is frozen.
        let owner = page.owner() & !(Flags::ISOLATED | Flags::LRU);
        if vm.may_fail(Step::Unfreeze).is_err() {
            page.unfreeze(UNUSED);
            return Err(MigrateProblem::Failed);
        }
        init_unlocked(vm.page(to));
        // One reference for the tree, one of the isolator, which adds the page to a list.
        vm.unfreeze_as(vm.page(to), Ownership { counts: UNUSED, owner, index });
        tree.replace(index, to);
        drop(tree);
        held.forget();
        // SAFETY: this thread froze the counts of `from`.
        let cleared = unsafe { vm.yard().counted().clear_refs(from, Order::ZERO) };
        vm.expect(cleared, Damage::Frame);
        Ok(())
    }
}
