//! Pages of files that address spaces map: look-ups for faults, users of the file, and dirty pages.
//!
//! A fault gets the page locked and up to date ([`MappedFile::page`]), and maps it before it releases the page lock. The
//! page cannot leave the file or move in between. Bytes of a mapped page are accessed under the page lock, as through
//! handles of the file.

use frameyard::owners::Ownership;
use frameyard::page::CountedPage;
use frameyard::sync::Ordering;
use frameyard::{Pfn, Platform};

use super::File;
use super::error::FileError;
use super::file::{FileRef, FileWord};
use super::page_lock::{LockedPage, PageUse};
use super::readahead::Stream;
use crate::block::NewBlock;
use crate::error::{Damage, VmError};
use crate::file_id::FileId;
use crate::page::{Flags, PageKind, object_of};
use crate::vm::Vm;
use crate::words::FrameBytes;

/// Whether a space maps the page; may be stale unless the caller holds the page lock, which keeps it unmapped.
pub(super) fn is_mapped<P: Platform>(page: CountedPage<'_, P>) -> bool {
    page.counts().mappings > 0
}

/// A file that an area maps. The caller holds the map lock of the area's space, so the area's use keeps the file alive.
pub(crate) struct MappedFile<'y, P: Platform>(FileRef<'y, P>);

/// A locked page of a mapped file, up to date, with a reference.
pub(crate) struct MappedPage<'y, P: Platform> {
    file: FileRef<'y, P>,
    page: LockedPage<'y, P>,
}

/// A page that is not there for a fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoPage {
    /// It is behind the end of the file.
    Behind,
    /// Another CPU has just removed it: retry.
    Removed,
}

impl<'y, P: Platform> MappedFile<'y, P> {
    /// The page with that number: from memory, or from the store with readahead for sequential faults.
    ///
    /// After the kernel's `filemap_fault`. Waits for the page lock, with a bound.
    pub(crate) fn page(&self, index: u64) -> Result<Result<MappedPage<'y, P>, NoPage>, FileError> {
        let file = self.0;
        // Marks of earlier windows continue the readahead, so faults need no history of their own.
        let found = file.page_to_read(index, 1, &Stream::default())?;
        let is_inside = index < file.pages_of(file.size());
        Ok(match found {
            Some(page) if is_inside => {
                file.vm().lru_mark_accessed(page.page());
                Ok(MappedPage { file, page })
            }
            _ if is_inside => Err(NoPage::Removed),
            _ => Err(NoPage::Behind),
        })
    }

    /// Adds the use of a further area, while one exists.
    pub(crate) fn add_user(&self) -> Result<(), VmError> {
        if self.0.try_get_user() { Ok(()) } else { Err(self.0.vm().damaged(Damage::File)) }
    }

    /// Whether long-term pins may write to its pages: to memory, but not to pages that a store writes back (the
    /// kernel's `writable_file_mapping_allowed`).
    pub(crate) fn allows_longterm_writes(&self) -> bool {
        self.0.is_memory()
    }
}

impl<'y, P: Platform> MappedPage<'y, P> {
    /// The page.
    pub(crate) fn page(&self) -> CountedPage<'y, P> {
        self.page.page()
    }

    /// Marks the page dirty, before an entry is made writable or after its bytes have changed.
    pub(crate) fn set_dirty(&self) -> Result<(), VmError> {
        self.file.set_dirty(&self.page)
    }

    /// The bytes, for an access through the mapping.
    pub(crate) fn bytes(&mut self) -> FrameBytes<'_, P> {
        self.page.bytes()
    }

    /// Makes a new block a counted copy of the page.
    pub(crate) fn copied(&mut self, block: NewBlock<'y, P>, ownership: Ownership) -> Result<Pfn, VmError> {
        block.into_copy(&self.page.bytes(), ownership)
    }
}

impl<'y, P: Platform> Vm<'y, P> {
    /// The file of an area.
    pub(crate) fn mapped_file(&self, id: FileId) -> Result<MappedFile<'y, P>, VmError> {
        let file = FileRef::new(*self, id.object())?;
        if !file.is_alive() || file.file_id() != id {
            return Err(self.damaged(Damage::File));
        }
        Ok(MappedFile(file))
    }

    /// The file of a page, for a caller that has a reference of the page or keeps it mapped; `None` unless it is a page
    /// of a file. The file may die meanwhile, unless the caller keeps the page mapped.
    pub(crate) fn mapped_file_of(&self, page: CountedPage<'y, P>) -> Option<MappedFile<'y, P>> {
        let owner = page.owner();
        let object = object_of(owner).some().filter(|_| PageKind::of_word(owner) == Some(PageKind::Cache))?;
        FileRef::new(*self, object).ok().map(MappedFile)
    }

    /// A reference of the page of a file that an entry maps, for a caller that keeps the entry.
    pub(crate) fn get_mapped(&self, pfn: Pfn) -> Result<CountedPage<'y, P>, VmError> {
        let page = self.try_page(pfn).filter(|page| PageKind::of_word(page.owner()) == Some(PageKind::Cache));
        page.filter(CountedPage::try_get).ok_or_else(|| self.damaged(Damage::Entry))
    }

    /// Locks a mapped page for an access to its bytes. Takes over a reference of the caller, which holds the map lock
    /// of the space that maps it. `None` if the page has left its file since: retry.
    pub(crate) fn lock_mapped(&self, page: CountedPage<'y, P>) -> Result<Option<MappedPage<'y, P>>, FileError> {
        let file = self.mapped_file_of(page).ok_or_else(|| self.damaged(Damage::Entry));
        let MappedFile(file) = file.inspect_err(|_| self.put_page(page))?;
        let used = PageUse::of(*self, page, file.lock_id());
        let Some(mut page) = file.lock_page(used)? else { return Ok(None) };
        file.fill(&mut page)?;
        Ok(Some(MappedPage { file, page }))
    }

    /// Marks a page dirty that its caller has written to through a pin. The caller has a reference.
    ///
    /// A page that a request took for writing is dirty already, and stays dirty while it is pinned. The lock is needed
    /// only for a page that was taken for reading.
    pub(crate) fn mark_file_page_dirty(&self, page: CountedPage<'y, P>) -> Result<(), VmError> {
        if page.owner() & Flags::DIRTY != 0 {
            return Ok(());
        }
        let Some(file) = self.file_of(page) else {
            // It has left its file, and nothing writes it back.
            page.set_owner_bits(Flags::DIRTY);
            return Ok(());
        };
        page.get();
        let used = PageUse::of(*self, page, file.lock_id());
        let marked = file.lock_page(used).and_then(|locked| locked.map_or(Ok(()), |locked| file.set_dirty(&locked)));
        file.put_user();
        marked
    }

    /// Adds a user to a file, for an area; `false` if the file is gone.
    pub(crate) fn get_file_user(&self, id: FileId) -> bool {
        // The area ends the use that the handle began.
        self.file(id).map(core::mem::forget::<File<'y, P>>).is_some()
    }

    /// Ends the use of a file by an area. The last user deletes the file.
    pub(crate) fn put_file_user(&self, id: FileId) {
        if let Ok(MappedFile(file)) = self.mapped_file(id) {
            file.put_user();
        }
    }

    /// Whether the file exists. Requires quiescence.
    pub(crate) fn is_file(&self, id: FileId) -> bool {
        let file = FileRef::new(*self, id.object());
        file.is_ok_and(|file| file.word(FileWord::Users).load(Ordering::Relaxed) > 0 && file.file_id() == id)
    }
}
