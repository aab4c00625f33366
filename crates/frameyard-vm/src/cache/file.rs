//! The object of a file: its words, its users, its locks, and its end.

use frameyard::platform::LockId;
use frameyard::sync::{AtomicU64, Ordering};
use frameyard::{ByteSize, Pfn, Platform};

use super::tree::{Tree, Which};
use super::{FileId, WAIT_ROUNDS};
use crate::error::VmError;
use crate::inject::Step;
use crate::lock::Held;
use crate::objects::{ObjectId, ObjectKind};
use crate::page::Flags;
use crate::vm::Vm;
use crate::words::Words;

/// Words of a file.
#[derive(Clone, Copy)]
#[repr(usize)]
pub(super) enum FileWord {
    /// The file's lock; see [`Tree`].
    Lock = 0,
    /// Users; 0 while it is dead.
    Users,
    /// Tells it from other files at the same place.
    Serial,
    Key,
    /// In bytes. Shrinks under the size's lock, grows under it or the file's; stored under the file's lock.
    Size,
    /// 1 while somebody has the size's lock.
    SizeLock,
    /// The topmost node of its tree; 0 where it has no pages.
    Root,
    /// How many nodes are on the way to a page.
    Height,
    /// Pages in its tree.
    Pages,
    /// Those of them that are dirty.
    DirtyPages,
}

/// A file, for whoever is one of its users, or becomes one.
pub(super) struct FileRef<'y, P: Platform> {
    vm: Vm<'y, P>,
    id: ObjectId,
    words: Words<'y>,
}

impl<P: Platform> Clone for FileRef<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Platform> Copy for FileRef<'_, P> {}

/// How many frames are freed at once.
pub(super) const GATHER: usize = 32;

/// Frames that nobody has a reference to any more, freed many at a time.
pub(super) struct UnusedPages<'y, P: Platform> {
    vm: Vm<'y, P>,
    frames: [Pfn; GATHER],
    len: usize,
}

impl<'y, P: Platform> UnusedPages<'y, P> {
    pub(super) fn new(vm: Vm<'y, P>) -> Self {
        Self { vm, frames: [Pfn(0); GATHER], len: 0 }
    }

    /// Adds a frame. The caller holds no lock, or knows that there is [room](Self::is_full).
    pub(super) fn push(&mut self, pfn: Pfn) {
        if self.is_full() {
            self.free();
        }
        self.frames[self.len] = pfn;
        self.len += 1;
    }

    pub(super) fn is_full(&self) -> bool {
        self.len == GATHER
    }

    pub(super) fn free(&mut self) {
        if self.len > 0 {
            self.vm.free_unused(&self.frames[..self.len]);
            self.len = 0;
        }
    }
}

impl<P: Platform> Drop for UnusedPages<'_, P> {
    fn drop(&mut self) {
        self.free();
    }
}

/// The size's lock, given back when dropped.
pub(super) struct SizeHeld<'y> {
    word: &'y AtomicU64,
}

impl Drop for SizeHeld<'_> {
    fn drop(&mut self) {
        // Release: pairs with the Acquire in `lock_size`.
        self.word.store(0, Ordering::Release);
    }
}

impl<'y, P: Platform> FileRef<'y, P> {
    pub(super) fn new(vm: Vm<'y, P>, id: ObjectId) -> Self {
        Self { vm, id, words: vm.object(ObjectKind::File, id) }
    }

    pub(super) fn vm(&self) -> Vm<'y, P> {
        self.vm
    }

    pub(super) fn object(&self) -> ObjectId {
        self.id
    }

    pub(super) fn word(&self, word: FileWord) -> &'y AtomicU64 {
        self.words.at(word as usize)
    }

    /// Makes a new object a file with one user.
    pub(super) fn begin(&self, key: u64, size: ByteSize, serial: u64) {
        self.word(FileWord::Key).store(key, Ordering::Relaxed);
        self.word(FileWord::Size).store(size.0, Ordering::Relaxed);
        self.word(FileWord::Serial).store(serial, Ordering::Relaxed);
        // Release: pairs with the Acquire in `try_get_user`.
        self.word(FileWord::Users).store(1, Ordering::Release);
    }

    pub(super) fn file_id(&self) -> FileId {
        FileId::new(self.id, self.word(FileWord::Serial).load(Ordering::Relaxed))
    }

    pub(super) fn key(&self) -> u64 {
        self.word(FileWord::Key).load(Ordering::Relaxed)
    }

    /// Acquire: pairs with the Release of [`Tree::set_size`]; who reads the size sees the pages that made it.
    pub(super) fn size(&self) -> u64 {
        self.word(FileWord::Size).load(Ordering::Acquire)
    }

    pub(super) fn is_alive(&self) -> bool {
        self.word(FileWord::Users).load(Ordering::Relaxed) > 0
    }

    /// Becomes a user of a file that has some; `false` where it is dead.
    pub(super) fn try_get_user(&self) -> bool {
        let users = self.word(FileWord::Users);
        let more = |found: u64| found.checked_add(1).filter(|_| found > 0);
        // Acquire: pairs with the Release in `begin`.
        users.fetch_update(Ordering::Acquire, Ordering::Relaxed, more).is_ok()
    }

    /// Is a user no more. The last one deletes the file; he holds no lock.
    pub(super) fn put_user(&self) {
        // Release: what each user did is done before the last one deletes the file. Acquire: pairs with that.
        if self.word(FileWord::Users).fetch_sub(1, Ordering::AcqRel) == 1 {
            self.delete();
        }
    }

    /// Takes the file's lock.
    #[inline]
    pub(super) fn lock(&self) -> Tree<'y, P> {
        let platform = self.vm.yard().platform();
        let id = LockId::File(self.id.bits() as u32);
        let held = Held::lock(platform, id, self.words.lock_word(FileWord::Lock as usize));
        Tree::new(*self, held)
    }

    /// Takes the size's lock, waiting for it so long.
    pub(super) fn lock_size(&self) -> Result<SizeHeld<'y>, VmError> {
        self.vm.may_fail(Step::LockSize)?;
        let word = self.word(FileWord::SizeLock);
        for round in 0..WAIT_ROUNDS {
            // Acquire: pairs with the Release of the last holder.
            if word.load(Ordering::Relaxed) == 0
                && word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return Ok(SizeHeld { word });
            }
            self.vm.yard().platform().relax(round);
        }
        Err(VmError::Stalled)
    }

    /// Takes all pages out of a file that nobody uses any more, and deletes it.
    fn delete(&self) {
        let mut unused = UnusedPages::new(self.vm);
        // Ends: without users, nobody puts pages into the tree.
        loop {
            let mut tree = self.lock();
            while !unused.is_full() {
                let Some((index, pfn)) = tree.next(0, Which::Any) else { break };
                tree.remove(index);
                let page = self.vm.page(pfn);
                page.set_owner_bits(Flags::TRUNCATED);
                if page.put() == Ok(0) {
                    unused.push(pfn);
                }
            }
            let is_empty = tree.is_empty();
            drop(tree);
            unused.free();
            if is_empty {
                break;
            }
        }
        self.vm.delete_object(ObjectKind::File, self.id);
    }
}
