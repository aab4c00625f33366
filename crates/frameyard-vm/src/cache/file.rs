//! The object of a file: words, users, and the size lock.

use frameyard::platform::{Contention, LockId};
use frameyard::sync::{AtomicU32, AtomicU64, Ordering};
use frameyard::{ByteSize, Platform};

use super::WAIT_ROUNDS;
use crate::error::VmError;
use crate::file_id::FileId;
use crate::inject::Step;
use crate::object_id::{ObjectId, ObjectKind};
use crate::store::StoreError;
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
    /// The size lock; a lock word that names its holder.
    SizeLock,
    /// The root of its tree; 0 without pages.
    Root,
    /// The height of its tree.
    Height,
    /// Pages in its tree.
    Pages,
    /// Dirty pages in its tree.
    DirtyPages,
    /// [`Backing`].
    Backing,
}

/// Where the contents of a file come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u64)]
pub(super) enum Backing {
    /// The store.
    Store = 0,
    /// Nowhere: zeros.
    Memory = 1,
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
pub(super) struct SizeHeld<'y, P: Platform> {
    platform: &'y P,
    id: LockId,
    word: &'y AtomicU32,
}

impl<P: Platform> Drop for SizeHeld<'_, P> {
    fn drop(&mut self) {
        self.platform.unlock(self.id, self.word);
    }
}

impl<'y, P: Platform> FileRef<'y, P> {
    pub(super) fn new(vm: Vm<'y, P>, id: ObjectId) -> Result<Self, VmError> {
        Ok(Self { vm, id, words: vm.object(ObjectKind::File, id)? })
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
    pub(super) fn begin(&self, key: u64, size: ByteSize, serial: u64, backing: Backing) {
        self.word(FileWord::Key).store(key, Ordering::Relaxed);
        self.word(FileWord::Backing).store(backing as u64, Ordering::Relaxed);
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

    /// Whether it has no store.
    pub(super) fn is_memory(&self) -> bool {
        self.word(FileWord::Backing).load(Ordering::Relaxed) == Backing::Memory as u64
    }

    /// Fills `bytes` with the contents of a page from byte `offset`, from the store or with zeros.
    pub(super) fn fill_bytes(&self, page: u64, offset: usize, bytes: &mut [u8]) -> Result<(), StoreError> {
        if self.is_memory() {
            bytes.fill(0);
            return Ok(());
        }
        self.vm.store().fill(self.key(), page, offset, bytes)
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

    /// What the file lock, the size lock and the locks of pages guard.
    pub(super) fn lock_id(&self) -> LockId {
        LockId::File(self.id.bits() as u32)
    }

    /// The word of the file lock.
    pub(super) fn lock_word(&self) -> &'y AtomicU32 {
        self.words.lock_word(FileWord::Lock as usize)
    }

    /// Whether the size lock is held; may be stale.
    pub(super) fn is_size_locked(&self) -> bool {
        self.words.lock_word(FileWord::SizeLock as usize).load(Ordering::Relaxed) != 0
    }

    /// Takes the size lock, with a bounded wait.
    ///
    /// Without a guard: the holder of the size lock may sleep.
    pub(super) fn lock_size(&self) -> Result<SizeHeld<'y, P>, VmError> {
        self.vm.may_fail(Step::LockSize)?;
        let (platform, id) = (self.vm.yard().platform(), self.lock_id());
        let word = self.words.lock_word(FileWord::SizeLock as usize);
        for round in 0..WAIT_ROUNDS {
            let holder = word.load(Ordering::Relaxed);
            if holder == 0 && platform.try_lock(id, word) == Contention::Free {
                return Ok(SizeHeld { platform, id, word });
            }
            platform.check_holder(id, holder, round, &|| word.load(Ordering::Relaxed) == holder)?;
            platform.wait(round);
        }
        Err(VmError::Stalled)
    }
}
