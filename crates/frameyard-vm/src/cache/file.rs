//! The object of a file: words, users, and the size lock.

use frameyard::sync::{AtomicU32, AtomicU64, Ordering};
use frameyard::{ByteSize, Platform};

use super::{FileId, WAIT_ROUNDS};
use crate::error::VmError;
use crate::inject::Step;
use crate::object_id::{ObjectId, ObjectKind};
use crate::vm::Vm;
use crate::words::Words;

/// Words of a file.
#[derive(Clone, Copy)]
#[repr(usize)]
pub(super) enum FileWord {
    /// The file lock; see [`Tree`](super::tree::Tree).
    Lock = 0,
    /// Users; 0 for a dead file.
    Users,
    /// Serial number among all files ever created.
    Serial,
    Key,
    /// In bytes. Shrinks under the size lock; grows under the size lock or the file lock; stored under the file lock.
    Size,
    /// 1 while the size lock is held.
    SizeLock,
    /// The root of its tree; 0 without pages.
    Root,
    /// The height of its tree.
    Height,
    /// Pages in its tree.
    Pages,
    /// Dirty pages in its tree.
    DirtyPages,
}

/// A reference to a file's words, for a user of the file or a CPU that becomes one.
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

/// The held size lock. Releases it on drop.
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

    /// Initialises a new object as a file with one user.
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

    /// Acquire: pairs with the Release in `set_size`. A CPU that reads the size sees the pages that made it.
    pub(super) fn size(&self) -> u64 {
        self.word(FileWord::Size).load(Ordering::Acquire)
    }

    pub(super) fn is_alive(&self) -> bool {
        self.word(FileWord::Users).load(Ordering::Relaxed) > 0
    }

    /// Adds a user; `false` for a dead file.
    pub(super) fn try_get_user(&self) -> bool {
        let users = self.word(FileWord::Users);
        let more = |found: u64| found.checked_add(1).filter(|_| found > 0);
        // Acquire: pairs with the Release in `begin`.
        users.fetch_update(Ordering::Acquire, Ordering::Relaxed, more).is_ok()
    }

    /// Removes a user. The last one deletes the file and must hold no lock.
    pub(super) fn put_user(&self) {
        // AcqRel: pairs with `put_user` of the other users, so that the last one deletes the file after their last accesses.
        if self.word(FileWord::Users).fetch_sub(1, Ordering::AcqRel) == 1 {
            self.delete();
        }
    }

    /// The word of the file lock.
    pub(super) fn lock_word(&self) -> &'y AtomicU32 {
        self.words.lock_word(FileWord::Lock as usize)
    }

    /// Takes the size lock, with a bounded wait.
    pub(super) fn lock_size(&self) -> Result<SizeHeld<'y>, VmError> {
        self.vm.may_fail(Step::LockSize)?;
        let word = self.word(FileWord::SizeLock);
        for round in 0..WAIT_ROUNDS {
            // Acquire: pairs with the Release in `SizeHeld::drop`.
            if word.load(Ordering::Relaxed) == 0
                && word.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return Ok(SizeHeld { word });
            }
            self.vm.yard().platform().wait(round);
        }
        Err(VmError::Stalled)
    }
}
