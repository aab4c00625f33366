//! The page cache: files whose pages are found by number in a tree, filled from a store, and dropped or moved at any
//! time.
//!
//! A [`File`] is a handle to an object in frames of the yard. Any process that shares the yard can open a file by its
//! [`FileId`]. A file lives while it has users: its handles, the areas that map it, and briefly a migration or a drop of
//! one of its pages.
//!
//! *Shared memory* ([`Vm::create_shared_memory`]) is a file without a store (the kernel's shmem): its pages start zeroed
//! and stay in memory from their first write on.
//!
//! | module | contents |
//! |---|---|
//! | [`file`], [`tree`] | the object, and the tree of its pages |
//! | [`fetch`], [`readahead`] | pages enter the file, on demand and ahead of use |
//! | [`transfer`], [`writeback`] | reads, writes, and write-back |
//! | [`evict`], [`migrate`] | pages leave the file, or move |
//! | [`mapped`] | pages that address spaces map |
//!
//! # Locks
//!
//! - **File lock** (spinning): guards the tree, the page counts and changes of the size. The tree holds one reference
//!   of each page. No allocation happens under this lock.
//! - **Page lock** (a spare word of the page, bounded wait, before the file lock): guards a page's
//!   bytes, its up-to-date flag and its place. Only its holder removes the page from the tree or replaces its frame. A
//!   thread holds at most one page lock, together with a reference of that page.
//! - **Size lock** (bounded wait, before a page lock): held by a truncation, and by a write past the end.
//!
//! # Mapped pages
//!
//! Each page-table entry that maps a page has a reference and a mapping of its counts. A page gets an entry only under
//! its page lock, while it is in the tree and up to date. Only the space removes the entry. A mapped page therefore
//! stays: reclaim, migration and drops leave it ([`DropProblem::Busy`], `MigrateProblem::Busy`), a truncation ends with
//! it ([`FileError::NotTruncated`]), and a fill that fails leaves it empty.
//!
//! A page with a writable entry is dirty. Write-back leaves a page dirty while it is mapped or pinned, because the
//! mapping or the device may write to it at any time. The kernel write-protects the entries instead (`folio_mkclean`).
//!
//! # Counting equations
//!
//! In a quiet yard, for each page of a file:
//!
//! - references = 1 of the tree + mappings + references that pins and gets took ([`taken`](page_lock::taken)).
//! - mappings = the page-table entries of all spaces that map it.
//!
//! # Races
//!
//! - **Mapping against drop.** Both hold the page lock. Either the entry exists and the freeze of the counts fails, or
//!   the fault finds the page [`TRUNCATED`](crate::page::Flags::TRUNCATED) and retries.
//! - **Lookup against drop.** A lookup takes its reference under the file lock. A drop freezes the count under the same
//!   lock, at exactly two references: the tree's and its own. Either the lookup came first and the page stays, or the
//!   lookup finds nothing. No lookup sees a frozen page in the tree.
//! - **Two misses of one page.** The page enters the tree locked and empty, and is filled there. The second CPU finds
//!   it and waits for its lock, so an older fill never overwrites a later write. A CPU that locks a page that is not up
//!   to date (its filler panicked) fills it.
//! - **Migration against access.** Bytes are accessed only under the page lock. A migration holds that lock, copies,
//!   freezes the count under the file lock at the tree's and its own reference, and puts the new frame in the slot. A
//!   CPU that waits for the page lock has a reference, so the freeze fails and the page stays.
//! - **Truncation.** Only the holder of the size lock adds pages behind the end. A truncation repeatedly takes the last
//!   page: it locks the page (which ends reads, writes and write-back), moves the end before it and removes it in one
//!   hold of the file lock, and marks it [`TRUNCATED`](crate::page::Flags::TRUNCATED). A CPU that waited for its lock
//!   sees the mark and retries. A read or write checks the size again once it has the page. If a page lock times out,
//!   the file ends with that page. Bytes of the last page behind the end are the store's, except between a failed
//!   truncation and its completion.
//! - **End of a file.** The last user removes all pages. There is no other user then, so no page is locked. An isolated
//!   page has a reference of its isolator, which frees the page when it returns it. A CPU that finds a page by number
//!   first becomes a user of the file, which fails for a dead file.

use core::fmt;

use frameyard::sync::Ordering;
use frameyard::{ByteSize, PageCount, Platform};

use crate::error::VmError;
use crate::file_id::FileId;
use crate::object_id::ObjectKind;
use crate::root::HeaderWord;
use crate::vm::Vm;

mod error;
mod evict;
mod fetch;
mod file;
mod mapped;
mod migrate;
mod page_lock;
mod readahead;
#[cfg(test)]
mod tests;
mod transfer;
mod tree;
mod unused;
mod validate;
mod writeback;

pub use error::{DropProblem, FileError};
use file::{Backing, FileRef, FileWord};
pub(crate) use mapped::{MappedPage, NoPage};
pub(crate) use page_lock::{count_taken, is_locked, taken, uncount_taken};
use readahead::Stream;

/// Bound of waits for a lock, in rounds of [`Platform::wait`].
const WAIT_ROUNDS: u32 = if cfg!(loom) { 3 } else { 1 << 15 };

/// Attempts to use a page that other CPUs remove and add meanwhile, before a call gives up.
const RETRIES: u32 = 1 << 12;

/// A handle of a file of the page cache, with its own readahead state. Any number of threads can use it at once.
///
/// Dropping the last handle deletes the file and all its pages. Dirty pages are not written back: call
/// [`sync`](Self::sync) for that.
pub struct File<'y, P: Platform> {
    file: FileRef<'y, P>,
    stream: Stream,
}

impl<P: Platform> fmt::Debug for File<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("id", &self.id()).field("key", &self.key()).finish_non_exhaustive()
    }
}

impl<P: Platform> Drop for File<'_, P> {
    fn drop(&mut self) {
        self.file.put_user();
    }
}

impl<P: Platform> File<'_, P> {
    /// The file's name.
    #[must_use]
    pub fn id(&self) -> FileId {
        self.file.file_id()
    }

    /// The key of the file in the store.
    #[must_use]
    pub fn key(&self) -> u64 {
        self.file.key()
    }

    /// The size; may be stale.
    #[must_use]
    pub fn size(&self) -> ByteSize {
        ByteSize(self.file.size())
    }

    /// Whether this is shared memory, which has no store.
    #[must_use]
    pub fn is_shared_memory(&self) -> bool {
        self.file.is_memory()
    }

    /// The number of pages in memory; may be stale.
    #[must_use]
    pub fn pages(&self) -> PageCount {
        PageCount(self.file.word(FileWord::Pages).load(Ordering::Relaxed))
    }

    /// The number of dirty pages; may be stale.
    #[must_use]
    pub fn dirty_pages(&self) -> PageCount {
        PageCount(self.file.word(FileWord::DirtyPages).load(Ordering::Relaxed))
    }
}

impl<'y, P: Platform> Vm<'y, P> {
    /// Creates a file of that size with no page in memory. `key` identifies the file in the store. Two files with the
    /// same key are independent of each other.
    ///
    /// # Errors
    ///
    /// [`VmError::OutOfMemory`] if there is no frame for the object, and [`VmError::Lock`] or [`VmError::Damaged`].
    pub fn create_file(&self, key: u64, size: ByteSize) -> Result<File<'y, P>, VmError> {
        self.new_file(key, size, Backing::Store)
    }

    /// Creates shared memory of that size: a file without a store, for shared mappings ([`MapKind::File`]).
    ///
    /// Pages start zeroed. Once a page is written, it stays in memory until the file is truncated or its last user is
    /// gone: [`File::sync`] writes nothing. Modelled on the kernel's `shmem_zero_setup`, without swap.
    ///
    /// # Errors
    ///
    /// As [`create_file`](Self::create_file).
    ///
    /// [`MapKind::File`]: crate::MapKind::File
    pub fn create_shared_memory(&self, size: ByteSize) -> Result<File<'y, P>, VmError> {
        self.new_file(0, size, Backing::Memory)
    }

    fn new_file(&self, key: u64, size: ByteSize, backing: Backing) -> Result<File<'y, P>, VmError> {
        self.check_damage()?;
        let id = self.new_object(ObjectKind::File)?;
        let serial = self.root().next(HeaderWord::Files);
        let file = FileRef::new(*self, id)?;
        file.begin(key, size, serial, backing);
        Ok(File { file, stream: Stream::default() })
    }

    /// Another handle to a file, in this process or another; `None` if it is gone.
    #[must_use]
    pub fn file(&self, id: FileId) -> Option<File<'y, P>> {
        let object = id.object();
        // The number may be arbitrary.
        let known = self.stable_objects(ObjectKind::File).any(|file| file == object);
        let file = FileRef::new(*self, object.some().filter(|_| known)?).ok()?;
        if !file.try_get_user() {
            return None;
        }
        let handle = File { file, stream: Stream::default() };
        (handle.id() == id).then_some(handle)
    }

    /// The number of cached pages of all files; may be stale. Visits every file.
    #[must_use]
    pub fn cached_pages(&self) -> PageCount {
        let of = |id| FileRef::new(*self, id).map_or(0, |file| file.word(FileWord::Pages).load(Ordering::Relaxed));
        PageCount(self.stable_objects(ObjectKind::File).map(of).fold(0, u64::wrapping_add))
    }
}
