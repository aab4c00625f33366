//! The page cache: files, whose pages are found by number in a tree, filled from a store, and dropped or moved at any time.
//!
//! A [`File`] is a handle to an object in frames of the yard; any process that shares the yard opens the same file by its
//! [`FileId`]. A file lives as long as it has users, which are its handles, and for a moment whoever moves or drops one of
//! its pages. Parts: the object ([`file`]), its tree ([`tree`]), how pages come in ([`bring`]) and ahead of their use
//! ([`readahead`]), are read and written ([`transfer`]), written back ([`writeback`]), leave ([`evict`]) and move
//! ([`migrate`]).
//!
//! # Protocol
//!
//! - **The file's lock** (spinning) guards the tree, the counts of pages, and changes of the size. A page in the tree has
//!   one reference for that. Nothing is allocated while it is held.
//! - **A page's lock** ([`Flags::LOCKED`](crate::page::Flags::LOCKED), taken before the file's, waited for a bounded time)
//!   guards its bytes, whether they are up to date, and its place: only who has it takes the page out of the tree, or puts
//!   another frame in its place. A thread has one page's lock at a time, and a reference to that page.
//! - **The size's lock** (bounded wait, before a page's) is held by who cuts the file and by who writes behind its end.
//!
//! *Lookup versus drop*: a lookup gets its reference under the file's lock. Who drops a page freezes its count, under the
//! same lock, at exactly the tree's reference and his own; so either the lookup came first and the page stays, or it finds
//! nothing. A page in the tree is never seen frozen.
//!
//! *Two who miss the same page*: the page goes into the tree locked and empty, and is filled there. The loser finds it, and
//! waits for its lock. So what was written meanwhile is never overwritten by an older fill. Who locks a page that is not up
//! to date (its filler panicked) fills it.
//!
//! *Migrate versus read and write*: bytes are touched under the page's lock alone. Who moves the page has that lock, copies,
//! then freezes the count at the tree's and the isolator's references under the file's lock, and puts the new frame in the
//! same slot. Who waits for the page's lock has a reference: the freeze fails, and the page stays. The old frame is nobody's.
//!
//! *Truncate versus everything*: nothing behind the file's end is put into the tree, but by who has the size's lock. Who
//! cuts the file takes its last page each time: locks it (so reads, writes and writing back of it have ended), moves the
//! end before it and takes it out in one hold of the file's lock, and marks it
//! [`TRUNCATED`](crate::page::Flags::TRUNCATED): who waited for its lock sees that and looks again. Who reads or writes
//! looks at the size again once he has the page. Where a page cannot be had in time, the file ends with it. Bytes of a page
//! behind the end of the file are always those of the store, but between a cut that failed and the one that ends it.
//!
//! *Death of a file*: the last user takes all pages out. Nobody else has a user then, so nobody has a page's lock; who has
//! isolated a page has a reference, and frees it when he puts it back. Who finds a page by number gets a user first, and
//! fails where there is none any more.

use core::fmt;

use frameyard::sync::Ordering;
use frameyard::{ByteSize, PageCount, Platform};

use crate::error::VmError;
use crate::object_id::{ObjectId, ObjectKind};
use crate::root::HeaderWord;
use crate::vm::Vm;

mod bring;
mod error;
mod evict;
mod file;
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
use file::{FileRef, FileWord};
use readahead::Stream;

/// How long who needs what another has locked looks again, before giving up: rounds of [`Platform::relax`].
const WAIT_ROUNDS: u32 = if cfg!(loom) { 3 } else { 1 << 15 };

/// The name of a file, the same in every process; never another file's while there are fewer than 2²⁴ in between.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FileId(u64);

impl FileId {
    const OBJECT_BITS: u32 = 40;
    const SERIALS: u64 = 1 << (u64::BITS - Self::OBJECT_BITS);

    fn new(object: ObjectId, serial: u64) -> Self {
        Self(object.bits() | ((serial % Self::SERIALS) << Self::OBJECT_BITS))
    }

    const fn object(self) -> ObjectId {
        ObjectId::from_bits(self.0 & ((1 << Self::OBJECT_BITS) - 1))
    }

    /// The name as a number, to tell another process.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The name that [`bits`](Self::bits) gave.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

impl fmt::Display for FileId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "file {:#x}", self.0)
    }
}

/// A handle to a file of the page cache, with a state of readahead of its own. Any number of threads may use it.
///
/// The file goes away, with all its pages, when its last handle is dropped; dirty pages are not written back then
/// ([`sync`](Self::sync) does that).
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

    /// What the store knows the file by.
    #[must_use]
    pub fn key(&self) -> u64 {
        self.file.key()
    }

    /// How large the file is, a moment ago.
    #[must_use]
    pub fn size(&self) -> ByteSize {
        ByteSize(self.file.size())
    }

    /// How many of its pages are in memory, a moment ago.
    #[must_use]
    pub fn pages(&self) -> PageCount {
        PageCount(self.file.word(FileWord::Pages).load(Ordering::Relaxed))
    }

    /// How many of those have to be written back, a moment ago.
    #[must_use]
    pub fn dirty_pages(&self) -> PageCount {
        PageCount(self.file.word(FileWord::DirtyPages).load(Ordering::Relaxed))
    }
}

impl<'y, P: Platform> Vm<'y, P> {
    /// Makes a file of the size, none of whose pages is in memory. `key` is what the store knows it by; two files with the
    /// same key know nothing of each other.
    ///
    /// # Errors
    ///
    /// No memory for the object.
    pub fn create_file(&self, key: u64, size: ByteSize) -> Result<File<'y, P>, VmError> {
        let id = self.new_object(ObjectKind::File)?;
        let serial = self.root().next(HeaderWord::Files);
        let file = FileRef::new(*self, id);
        file.begin(key, size, serial);
        Ok(File { file, stream: Stream::default() })
    }

    /// A further handle to a file, in this process or another; `None` where it is gone.
    #[must_use]
    pub fn file(&self, id: FileId) -> Option<File<'y, P>> {
        let object = id.object();
        // Anybody can make up a number.
        let known = self.stable_objects(ObjectKind::File).any(|file| file == object);
        let file = FileRef::new(*self, object.some().filter(|_| known)?);
        if !file.try_get_user() {
            return None;
        }
        let handle = File { file, stream: Stream::default() };
        (handle.id() == id).then_some(handle)
    }

    /// How many pages of files are in memory, a moment ago. Looks at every file.
    #[must_use]
    pub fn cached_pages(&self) -> PageCount {
        let of = |id| FileRef::new(*self, id).word(FileWord::Pages).load(Ordering::Relaxed);
        PageCount(self.stable_objects(ObjectKind::File).map(of).sum())
    }
}
