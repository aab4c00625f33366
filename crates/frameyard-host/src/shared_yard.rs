//! [`SharedYard`]: a yard that processes find by name.

use std::fs::{self, File, TryLockError};
use std::io;
use std::ops::Deref;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use frameyard::{AllocError, ByteSize, Gfp, Order, Yard};
use rustix::fs::{AtFlags, CWD, OFlags, linkat};

use crate::mapped::frames::sealed::Sealed;
use crate::mapped::frames::{MappedFrames, YardHandle};
use crate::memory::{MemoryError, check_space};
use crate::platform::HostPlatform;
use crate::shared::{SharedFileError, SharedMemoryFile, SizeGuard};
use crate::topology::HostTopology;
use crate::yard::HostYard;
use crate::yard::builder::HostYardBuilder;
use crate::yard::error::HostYardError;

/// Where names without a leading slash lie: the host's file system in memory.
pub(crate) const DIRECTORY: &str = "/dev/shm";
/// How often `create` removes a leftover file before it gives up.
const ATTEMPTS: u32 = 8;

/// A yard with a name, in a memory file that several processes use at once. Dereferences to [`HostYard`].
///
/// ```
/// use frameyard_host::{ByteSize, Gfp, Order, SharedYard};
///
/// let name = format!("example-{}", std::process::id());
/// let yard = SharedYard::create(&name, ByteSize::mib(64))?;
/// // Usually in another process:
/// // SAFETY: only this program writes to the file.
/// let other = unsafe { SharedYard::open(&name)? };
/// let block = other.frames(Order(9), Gfp::HIGHUSER_MOVABLE)?;
/// assert_eq!(yard.stats().free_pages().0, 16384 - 512);
/// drop(block);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Names
///
/// A name is the path of a file; without a leading slash, it is a file in `/dev/shm`. The file system must have room
/// for the frames (containers often limit `/dev/shm` to 64 MiB), and it should keep files in memory.
///
/// The file has mode 0600, so processes of the same user and of root can open it. To admit other users, change the mode
/// of [`path`](Self::path). A process that can open the file can also shorten it, and that kills the processes that map
/// it.
///
/// # Life of a name
///
/// Each process holds a shared lock (`flock`) on the file while it uses the yard. However the process ends, the kernel
/// releases the lock.
///
/// | event | effect |
/// |---|---|
/// | `create` | The name appears once the yard is complete. |
/// | `create` with a name that a running process uses | [`SharedFileError::NameInUse`] |
/// | the last process drops its `SharedYard` | The name is removed. |
/// | all processes were killed | The file stays until the next `create` or `open` with that name, which removes it. |
/// | `open` with a removed or leftover name | [`SharedFileError::NoSuchName`] |
///
/// The frames of a killed process stay allocated while the yard is in use. A process that is killed inside the
/// allocator may leave a lock of the yard held. The yard is then damaged for good: calls fail with
/// [`LockError::OwnerDied`](frameyard::platform::LockError::OwnerDied), and so does `open`. If the holder of a lock is
/// only stopped, calls that need the lock fail with [`LockStuck`](frameyard::platform::LockError::LockStuck) after 10
/// seconds, until the process continues.
#[derive(Debug)]
pub struct SharedYard {
    // Fields drop in this order: the memory is unmapped before the name goes.
    yard: HostYard,
    name: SharedYardName,
}

/// The name of a [`SharedYard`] without its yard ([`SharedYard::into_parts`]): an open file with a shared lock on it.
/// When the last process drops its handle, the name is removed.
#[derive(Debug)]
pub struct SharedYardName {
    path: PathBuf,
    file: File,
    /// The process that has the lock. A forked child shares the open file, and changing the lock there would change it
    /// for its parent.
    process: u32,
}

impl SharedYard {
    /// Creates a yard with at least `size` of memory, and with the CPUs and nodes of this host.
    ///
    /// The size is rounded up as by [`HostYard::with_memory`].
    ///
    /// # Errors
    ///
    /// [`HostYardError::File`] with [`SharedFileError::NameInUse`] if a running process has a yard with that name.
    /// Other errors say what is not available.
    pub fn create(name: impl AsRef<Path>, size: ByteSize) -> Result<Self, HostYardError> {
        Self::create_with(name, size, HostYard::builder())
    }

    /// As [`create`](Self::create), with the settings of a builder.
    ///
    /// # Errors
    ///
    /// As [`create`](Self::create), and [`HostYardError::Setting`] for a setting that only applies to private yards.
    pub fn create_with(
        name: impl AsRef<Path>,
        size: ByteSize,
        builder: HostYardBuilder,
    ) -> Result<Self, HostYardError> {
        let host = HostTopology::current()?;
        let path = Path::new(DIRECTORY).join(name);
        let mut handle = None;
        let make = |length| {
            let file = unnamed_file(&path, length)?;
            handle = Some(file.try_clone().map_err(|source| unusable(&path, source))?);
            Ok(file)
        };
        let yard = builder.with_memory_in(make, size, &host)?;
        let file = handle.expect("a yard in a file has created it");
        Ok(Self { yard, name: SharedYardName::link(path, file)? })
    }

    /// Opens a yard that a running process has created.
    ///
    /// # Errors
    ///
    /// [`HostYardError::File`] with [`SharedFileError::NoSuchName`] if no running process has a yard with that name.
    /// Other errors say why it cannot be attached.
    ///
    /// # Safety
    ///
    /// As for [`HostYardBuilder::attach`](crate::HostYardBuilder::attach): while the yard is in use, only yards write
    /// to the file.
    #[expect(unsafe_code, reason = "passes the contract on")]
    pub unsafe fn open(name: impl AsRef<Path>) -> Result<Self, HostYardError> {
        let host = HostTopology::current()?;
        let name = SharedYardName::open(Path::new(DIRECTORY).join(name))?;
        let copy = name.file.try_clone().map_err(|source| unusable(&name.path, source))?;
        let file = SharedMemoryFile::attach_file(copy, SizeGuard::Permissions, &host)?;
        // SAFETY: passed on to the caller.
        let yard = unsafe { HostYard::builder().attach(&file, &host)? };
        Ok(Self { yard, name })
    }

    /// Splits the yard from its name, for a caller that keeps them in different places. Keep the name for as long as
    /// the yard: without it, another process may take the file for a leftover and remove it.
    #[must_use]
    pub fn into_parts(self) -> (HostYard, SharedYardName) {
        (self.yard, self.name)
    }

    /// The path of the memory file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.name.path
    }

    /// As [`HostYard::frames`], with a guard that holds an [`Arc`] of the yard instead of borrowing it.
    ///
    /// # Errors
    ///
    /// As [`HostYard::frames`].
    pub fn frames_owned(self: &Arc<Self>, order: Order, gfp: Gfp) -> Result<MappedFrames<Arc<Self>>, AllocError> {
        MappedFrames::allocate(Arc::clone(self), order, gfp)
    }
}

impl Deref for SharedYard {
    type Target = HostYard;

    #[inline(always)]
    fn deref(&self) -> &HostYard {
        &self.yard
    }
}

impl Sealed for Arc<SharedYard> {}

impl YardHandle for Arc<SharedYard> {
    #[inline]
    fn yard(&self) -> &Yard<HostPlatform> {
        &self.yard
    }
}

impl SharedYardName {
    /// Gives a file without a name its name.
    fn link(path: PathBuf, file: File) -> Result<Self, SharedFileError> {
        let failed = |source: io::Error| SharedFileError::Name { path: path.clone(), source };
        // Taken before the name appears: no process finds the file unlocked.
        file.try_lock_shared().map_err(|error| failed(error.into()))?;
        let anonymous = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        for _ in 0..ATTEMPTS {
            match linkat(CWD, &anonymous, CWD, &path, AtFlags::SYMLINK_FOLLOW).map_err(io::Error::from) {
                Ok(()) => return Ok(Self { path, file, process: std::process::id() }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    let found = match open_file(&path) {
                        Err(SharedFileError::NoSuchName(_)) => continue,
                        found => found?,
                    };
                    if !remove_leftover(&path, &found)? {
                        break;
                    }
                }
                Err(error) => return Err(failed(error)),
            }
        }
        Err(SharedFileError::NameInUse(path))
    }

    /// Opens the file of a name that a running process uses.
    fn open(path: PathBuf) -> Result<Self, SharedFileError> {
        let file = open_file(&path)?;
        if remove_leftover(&path, &file)? {
            return Err(SharedFileError::NoSuchName(path));
        }
        match file.try_lock_shared() {
            Ok(()) if is_at(&path, &file) => Ok(Self { path, file, process: std::process::id() }),
            // The last process has removed the name, or is about to.
            Ok(()) | Err(TryLockError::WouldBlock) => Err(SharedFileError::NoSuchName(path)),
            Err(TryLockError::Error(source)) => Err(SharedFileError::Name { path, source }),
        }
    }
}

impl Drop for SharedYardName {
    fn drop(&mut self) {
        // Succeeds in the last process only. A process that opens the file meanwhile finds the lock taken, or the name
        // gone.
        let is_own = self.process == std::process::id();
        if is_own && self.file.try_lock().is_ok() && is_at(&self.path, &self.file) {
            // If this fails, the next `create` or `open` removes the file.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A file of that length without a name, on the file system of `path`.
fn unnamed_file(path: &Path, length: u64) -> Result<File, MemoryError> {
    let unusable = |source| unusable(path, source);
    let directory = path.parent().unwrap_or(Path::new("/"));
    let flags = OFlags::TMPFILE.bits() as i32;
    let file = File::options().read(true).write(true).mode(0o600).custom_flags(flags).open(directory);
    let file = file.map_err(unusable)?;
    check_space(&file, path, length)?;
    file.set_len(length).map_err(unusable)?;
    Ok(file)
}

fn open_file(path: &Path) -> Result<File, SharedFileError> {
    let nonblocking = OFlags::NONBLOCK.bits() as i32;
    File::options().read(true).write(true).custom_flags(nonblocking).open(path).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => SharedFileError::NoSuchName(path.to_owned()),
        _ => SharedFileError::Name { path: path.to_owned(), source },
    })
}

/// Removes the name of a memory file that no running process uses. `false` if one does.
fn remove_leftover(path: &Path, file: &File) -> Result<bool, SharedFileError> {
    let failed = |source| SharedFileError::Name { path: path.to_owned(), source };
    // A file of another kind is left alone.
    SharedMemoryFile::check_header(file).map_err(failed)??;
    match file.try_lock() {
        Ok(()) => {
            if is_at(path, file) {
                fs::remove_file(path).map_err(failed)?;
            }
            Ok(true)
        }
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(source)) => Err(failed(source)),
    }
}

/// Whether a path names an open file.
fn is_at(path: &Path, file: &File) -> bool {
    let identity = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    let (found, open) = (fs::metadata(path).map(identity), file.metadata().map(identity));
    found.is_ok_and(|found| open.is_ok_and(|open| found == open))
}

fn unusable(path: &Path, source: io::Error) -> MemoryError {
    MemoryError::FileOpen { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests;
