//! Write-back of dirty pages.

use frameyard::{PageCount, Platform};

use super::File;
use super::error::FileError;
use super::file::FileRef;
use super::mapped::is_mapped;
use super::page_lock::{LockedPage, PageUse};
use super::tree::Which;
use crate::counters::VmCounter;
use crate::error::VmError;
use crate::page::Flags;

impl<'y, P: Platform> FileRef<'y, P> {
    /// Marks a locked page dirty.
    pub(super) fn set_dirty(&self, page: &LockedPage<'y, P>) -> Result<(), VmError> {
        // Only the holder of the page lock changes this flag.
        if !page.is(Flags::DIRTY) {
            let mut tree = self.lock()?;
            page.set(Flags::DIRTY);
            tree.tag_dirty(page.page().index());
        }
        Ok(())
    }

    fn set_clean(&self, page: &LockedPage<'y, P>) -> Result<(), VmError> {
        let mut tree = self.lock()?;
        page.page().clear_owner_bits(Flags::DIRTY);
        tree.untag_dirty(page.page().index());
        Ok(())
    }

    /// The first matching page at or above `from`, with a reference for the caller, and its number.
    pub(super) fn next_page(&self, from: u64, which: Which) -> Result<Option<(u64, PageUse<'y, P>)>, VmError> {
        let tree = self.lock()?;
        let Some((index, pfn)) = tree.next(from, which) else { return Ok(None) };
        let used = self.use_page(&tree, index, pfn)?;
        Ok(Some((index, used)))
    }

    /// Writes a locked page back if it is dirty.
    fn write_back(&self, page: &mut LockedPage<'y, P>) -> Result<PageCount, FileError> {
        if !page.is(Flags::DIRTY) {
            return Ok(PageCount(0));
        }
        let (vm, index) = (self.vm(), page.page().index());
        let geometry = vm.yard().geometry();
        let used = self.size().saturating_sub(index << geometry.page_shift()).min(geometry.page_size().0);
        if used == 0 {
            // The truncation that is in progress removes the page.
            return Ok(PageCount(0));
        }
        // Read before the bytes are: while the page is locked, an unmapped and unpinned page gets no mapping and no pin.
        let may_change = is_mapped(page.page()) || page.page().maybe_pinned();
        page.bytes().with(|bytes| vm.store().write_back(self.key(), index, &bytes[..used as usize]))??;
        if !may_change {
            self.set_clean(page)?;
        }
        vm.count(VmCounter::Pgwriteback, 1);
        Ok(PageCount(1))
    }
}

impl<P: Platform> File<'_, P> {
    /// Writes back all pages that are dirty now, and returns how many. Pages that are written during the call may stay
    /// dirty. Mapped and pinned pages stay dirty, because they may be written at any time. For shared memory, which has
    /// no store, this returns 0.
    ///
    /// # Errors
    ///
    /// [`FileError`] of the first page that could not be written. That page and later ones stay dirty.
    pub fn sync(&self) -> Result<PageCount, FileError> {
        let mut written = PageCount(0);
        if self.file.is_memory() {
            return Ok(written);
        }
        let mut from = 0;
        // The end is read once, so that a concurrent extension cannot prolong the loop.
        let end = self.file.pages_of(self.file.size());
        while let Some((index, used)) = self.file.next_page(from, Which::Dirty)? {
            if index >= end {
                break;
            }
            if let Some(mut page) = self.file.lock_page(used)? {
                written += self.file.write_back(&mut page)?;
            }
            from = index.saturating_add(1);
        }
        Ok(written)
    }
}
