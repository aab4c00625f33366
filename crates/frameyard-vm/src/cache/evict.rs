//! Pages leave their file: clean and unused ones are dropped, and those behind a new end removed.

use frameyard::page::{CountedPage, Counts};
use frameyard::{ByteSize, PageCount, Platform};

use super::error::{DropProblem, FileError};
use super::file::FileRef;
use super::mapped::is_mapped;
use super::page_lock::PageHeld;
use super::tree::Which;
use super::unused::UnusedPages;
use super::{File, RETRIES};
use crate::error::{Damage, VmError};
use crate::inject::Step;
use crate::object_id::ObjectKind;
use crate::page::{Flags, PageKind, object_of};
use crate::vm::Vm;

/// The counts of a page in the tree with one reference of the caller.
pub(super) const UNUSED: Counts = Counts { references: 2, mappings: 0 };

impl<'y, P: Platform> FileRef<'y, P> {
    /// Removes a locked page from the tree if it is clean and only the caller uses it. The page then has no references
    /// and belongs to the caller.
    fn drop_unused(&self, page: CountedPage<'y, P>, held: PageHeld<'y, P>) -> Result<(), DropProblem> {
        self.vm().may_fail(Step::DropPage).map_err(|_| DropProblem::Busy)?;
        let owner = page.owner();
        if owner & Flags::TRUNCATED != 0 {
            return Err(DropProblem::Gone);
        }
        if owner & Flags::DIRTY != 0 {
            return Err(DropProblem::Dirty);
        }
        let mut tree = self.lock().map_err(|_| DropProblem::Busy)?;
        if tree.find(page.index()) != Some(page.pfn()) {
            return Err(DropProblem::Gone);
        }
        if !page.freeze(UNUSED) {
            return Err(DropProblem::Busy);
        }
        if tree.remove(page.index()) != Some(page.pfn()) {
            // The page may still be in the tree: it is lost.
            self.vm().damaged(Damage::File);
        }
        drop(tree);
        page.set_owner_bits(Flags::TRUNCATED);
        drop(held);
        Ok(())
    }
}

impl<P: Platform> File<'_, P> {
    /// Drops all pages that are clean and unused, and returns their number. Drains the LRU batches of all CPUs first.
    ///
    /// Mapped pages and locked pages are left alone. Other pages that cannot be dropped are moved to the end of the
    /// inactive list, where reclaim takes them next. Modelled on the kernel's `invalidate_mapping_pages`.
    pub fn drop_clean(&self) -> PageCount {
        let vm = self.file.vm();
        vm.lru_drain_all();
        let mut unused = UnusedPages::new(vm);
        let (mut dropped, mut from) = (PageCount(0), 0);
        // The end is read once, so that a concurrent extension cannot prolong the loop.
        let end = self.file.pages_of(self.file.size());
        let next = |from| self.file.next_page(from, Which::Any).ok().flatten();
        while let Some((index, used)) = next(from).filter(|(index, _)| *index < end) {
            from = index.saturating_add(1);
            if is_mapped(used.page()) {
                continue;
            }
            let Some(held) = PageHeld::try_lock(vm, used.page()) else { continue };
            if self.file.drop_unused(used.page(), held).is_ok() {
                unused.push(used.page().pfn());
                used.forget();
                dropped += PageCount(1);
            } else {
                vm.lru_deactivate(used.page());
            }
        }
        dropped
    }

    /// Changes the size of the file. A larger size only moves the end.
    ///
    /// A smaller one drops the pages past the new end, dirty or not, from the last to the first, and tells the store.
    /// The end moves with the pages, so concurrent reads and writes find all bytes before it.
    ///
    /// # Errors
    ///
    /// [`FileError`]. The file is consistent then, and repeating the call completes the truncation:
    ///
    /// - [`NotTruncated`](FileError::NotTruncated): a space maps a page past the new end ([`VmError::InUse`]), or the
    ///   wait for a page timed out. The file ends with that page, or at the new end if that page contains it. Nothing
    ///   before the end was touched.
    /// - Other errors: another CPU is changing the size, and nothing has changed; or the store failed, and the file has
    ///   its new end. If the file then grows before the store is told, the old bytes may reappear.
    pub fn truncate(&self, size: ByteSize) -> Result<(), FileError> {
        let file = self.file;
        let _sizing = file.lock_size()?;
        if size.0 > file.size() {
            file.lock()?.set_size(size.0);
            return Ok(());
        }
        let incomplete = |why| FileError::NotTruncated { wanted: size, end: self.size(), why };
        self.drop_pages_behind(size.0).map_err(incomplete)?;
        if !file.is_memory() {
            file.vm().store().truncate(file.key(), size)?;
        }
        self.restore_tail(size.0).map_err(|error| match error {
            FileError::Vm(why) => incomplete(why),
            other => other,
        })
    }

    /// Drops the pages behind an end, from the last to the first, and moves the file's end along. The caller holds the
    /// size lock.
    fn drop_pages_behind(&self, size: u64) -> Result<(), VmError> {
        let (file, shift) = (self.file, self.file.vm().yard().geometry().page_shift());
        let first = file.pages_of(size);
        // Terminates: the end decreases each time, and no page is added behind it.
        let (mut before, mut retries) = (None, 0);
        loop {
            let mut tree = file.lock()?;
            let Some((index, pfn)) = tree.last().filter(|(index, _)| *index >= first) else {
                tree.set_size(size);
                return Ok(());
            };
            let end = tree.size().min((index << shift).saturating_add(1 << shift));
            tree.set_size(end);
            // A page dropped earlier may be back, but not after it was removed here.
            if before.is_some_and(|before| index >= before) {
                return Err(file.vm().damaged(Damage::File));
            }
            let used = file.use_page(&tree, index, pfn)?;
            drop(tree);
            let Some(page) = file.lock_page(used)? else {
                retries += 1;
                if retries > RETRIES {
                    return Err(VmError::Stalled);
                }
                continue;
            };
            file.truncate_page(&page, index << shift)?;
            before = Some(index);
        }
    }

    /// Fills the last page behind the new end from the store, if it is in memory.
    fn restore_tail(&self, size: u64) -> Result<(), FileError> {
        let file = self.file;
        let geometry = file.vm().yard().geometry();
        let (index, from) = (size >> geometry.page_shift(), (size % geometry.page_size().0) as usize);
        if from == 0 {
            return Ok(());
        }
        let Some(used) = file.lookup(index)? else { return Ok(()) };
        let Some(mut page) = file.lock_page(used)? else { return Ok(()) };
        if page.is(Flags::UPTODATE) {
            let filled = page.bytes().with(|bytes| file.fill_bytes(index, from, &mut bytes[from..]))?;
            if filled.is_err() && !page.is(Flags::DIRTY) {
                // A page that is not up to date is filled completely on the next access.
                page.page().clear_owner_bits(Flags::UPTODATE);
            }
            filled?;
        }
        Ok(())
    }
}

impl<'y, P: Platform> Vm<'y, P> {
    /// The file of a page, with the caller as a user.
    pub(super) fn file_of(&self, page: CountedPage<'y, P>) -> Option<FileRef<'y, P>> {
        let owner = page.owner();
        let object = object_of(owner).some()?;
        if PageKind::of_word(owner) != Some(PageKind::Cache) || owner & Flags::TRUNCATED != 0 {
            return None;
        }
        FileRef::new(*self, object).ok().filter(FileRef::try_get_user)
    }

    /// Removes a page from its file for reclaim. The caller has isolated it and holds one reference. On success the
    /// page has no references and belongs to the caller, for [`free_unused`](Self::free_unused).
    ///
    /// # Errors
    ///
    /// [`DropProblem`]. The page is still isolated then.
    pub(crate) fn drop_cache_page(&self, page: CountedPage<'y, P>) -> Result<(), DropProblem> {
        self.may_fail(Step::Visit).map_err(|_| DropProblem::Busy)?;
        let file = self.file_of(page).ok_or(DropProblem::Gone)?;
        let dropped = match PageHeld::try_lock(*self, page) {
            Some(held) => file.drop_unused(page, held),
            None => Err(DropProblem::Busy),
        };
        file.put_user();
        dropped
    }
}

impl<P: Platform> FileRef<'_, P> {
    /// Removes all pages from a file without users and deletes it.
    pub(super) fn delete(&self) {
        let mut unused = UnusedPages::new(self.vm());
        // Ends: no page enters the tree of a file without users.
        loop {
            // Without the lock, and if the tree is damaged, the file and its pages are lost.
            let Ok(mut tree) = self.lock() else { return };
            while !unused.is_full() {
                let Some((index, pfn)) = tree.next(0, Which::Any) else { break };
                let page =
                    self.vm().try_page(pfn).filter(|page| PageKind::of_word(page.owner()) == Some(PageKind::Cache));
                let (Some(page), true) = (page, tree.remove(index) == Some(pfn)) else {
                    self.vm().damaged(Damage::File);
                    return;
                };
                page.set_owner_bits(Flags::TRUNCATED);
                if page.put() == Ok(0) {
                    unused.push(pfn);
                }
            }
            let (is_empty, goes_on) = (tree.is_empty(), unused.is_full());
            drop(tree);
            unused.free();
            if is_empty {
                break;
            }
            if !goes_on {
                // No page is left, and the tree is not empty.
                self.vm().damaged(Damage::File);
                return;
            }
        }
        self.vm().delete_object(ObjectKind::File, self.object());
    }
}
