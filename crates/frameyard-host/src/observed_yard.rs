//! [`ObservedYard`]: a read-only view of a yard that other processes use.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use frameyard::boot::AttachError;
use frameyard::views::{YardStats, YardZone};
use frameyard::{Yard, ZoneId};
use rustix::fs::OFlags;

use crate::mapped::yard::OwnedYard;
use crate::platform::HostPlatform;
use crate::region::Region;
use crate::shared::process::living;
use crate::shared::{SharedFileError, SharedMemoryFile, SizeGuard};
use crate::topology::HostTopology;
use crate::yard::error::HostYardError;
use crate::yard::name;

/// A read-only view of a yard in a memory file, for its statistics.
///
/// The file is opened read-only and its pages are mapped privately, so the kernel keeps whatever this process writes
/// away from the yard. The view does not count as one of the yard's processes, takes no lock on the file, and does not
/// keep the yard's name in use.
///
/// Statistics and the states of frames are as recent as those that the yard's own processes see. Do not call anything of
/// the [`core`](Self::core) that changes a yard: such a call would write to private copies of pages, and from then on
/// those pages no longer follow the yard. Reading a page that the yard has never touched makes the kernel add a page to the file, as with any
/// memory file.
///
/// ```
/// use frameyard_host::{ByteSize, Gfp, HostYard, ObservedYard, Order};
///
/// let name = format!("observed-{}", std::process::id());
/// let yard = HostYard::create_shared(&name, ByteSize::mib(16))?;
/// // Usually in another process:
/// let observed = ObservedYard::open(&name)?;
/// let block = yard.frames(Order(3), Gfp::KERNEL)?;
/// assert_eq!(observed.stats().free_pages(), yard.stats().free_pages());
/// assert_eq!(observed.processes()?, [std::process::id()]);
/// # drop(block);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ObservedYard {
    yard: OwnedYard,
    /// The table of the yard's processes.
    processes: Region,
    file: File,
    path: PathBuf,
}

impl ObservedYard {
    /// Opens the file of a [shared yard](crate::HostYard#shared-yards) by its name, or the memory file of any yard by its path,
    /// such as `/proc/PID/fd/N`.
    ///
    /// # Errors
    ///
    /// [`HostYardError::File`] with [`SharedFileError::NoSuchName`] if there is no such file, and with
    /// [`SharedFileError::Header`] if it is not a memory file of this version. Other errors say why it cannot be
    /// mapped.
    pub fn open(name: impl AsRef<Path>) -> Result<Self, HostYardError> {
        let path = name::path_of(name.as_ref());
        let nonblocking = OFlags::NONBLOCK.bits() as i32;
        let file = File::options().read(true).custom_flags(nonblocking).open(&path);
        let file = file.map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => SharedFileError::NoSuchName(path.clone()),
            _ => SharedFileError::Name { path: path.clone(), source },
        })?;
        let host = HostTopology::current()?;
        let copy = file.try_clone().map_err(|source| SharedFileError::Name { path: path.clone(), source })?;
        let memory = SharedMemoryFile::attach_file(copy, SizeGuard::Permissions, &host)?;
        let [map, control, processes] = memory.observe()?;
        let platform = HostPlatform::new(memory.phantom_frames(), &host);
        // SAFETY: the two parts of one file. The yard checks what it reads there (see `HostYardBuilder::attach`), so a
        // process that writes anything else cannot make it access memory outside the yard. This view has no frames to
        // lose, and what it would write stays in this process.
        #[expect(unsafe_code, reason = "makes a second view of a yard, whose checks suffice without frames")]
        let yard = unsafe { OwnedYard::attach((map, control), None, |_| Ok::<_, HostYardError>(platform))? };
        if !memory.fits(yard.core()) {
            return Err(AttachError::Damaged.into());
        }
        Ok(Self { yard, processes, file, path })
    }

    /// Statistics of the yard and its frames.
    #[inline]
    pub fn stats(&self) -> YardStats<'_, HostPlatform> {
        self.core().stats()
    }

    /// The view of a zone.
    #[inline]
    pub fn zone(&self, id: ZoneId) -> YardZone<'_, HostPlatform> {
        self.core().zone(id)
    }

    /// The yard of the crate `frameyard`, for reading.
    #[inline]
    #[must_use]
    pub fn core(&self) -> &Yard<HostPlatform> {
        self.yard.core()
    }

    /// The path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The device and inode numbers of the file: equal for two paths of one yard.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn file_id(&self) -> io::Result<(u64, u64)> {
        let metadata: fs::Metadata = self.file.metadata()?;
        Ok((metadata.dev(), metadata.ino()))
    }

    /// The process numbers of the living processes that use the yard, ascending, as those processes see them. A process
    /// that has the yard twice appears twice. The list is empty if all processes have ended or left the yard.
    ///
    /// Cost: a system call for each process that has used the yard.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn processes(&self) -> io::Result<Vec<u32>> {
        living(&self.file, &self.processes)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use frameyard::{ByteSize, Gfp, MigrateType, Order};

    use super::*;
    use crate::yard::HostYard;

    fn create(test: &str) -> (String, HostYard) {
        let name = format!("frameyard-observed-{test}-{}", std::process::id());
        let yard = HostYard::create_shared(&name, ByteSize::mib(16)).unwrap();
        (name, yard)
    }

    /// The bytes of the file before the frames.
    fn structures(yard: &HostYard) -> Vec<u8> {
        let file = File::open(yard.path().unwrap()).unwrap();
        let frames = 16 << 20;
        let mut bytes = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap() - frames];
        file.read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }

    #[test]
    fn an_observer_sees_changes_and_makes_none() {
        let (name, yard) = create("changes");
        let observed = ObservedYard::open(&name).unwrap();
        let before = structures(&yard);
        let free = observed.stats().free_pages();
        assert_eq!(free, yard.stats().free_pages());
        let zone = observed.stats().zones().next().unwrap().id;
        assert!(observed.zone(zone).pageblocks(MigrateType::Movable) > 0);
        // Even a change stays on this side.
        let own = ObservedYard::open(&name).unwrap();
        own.core().alloc(Order(0), Gfp::KERNEL).unwrap();
        assert!(own.stats().free_pages() < free);
        assert!(structures(&yard) == before, "the file has changed");
        let block = yard.frames(Order(2), Gfp::KERNEL).unwrap();
        assert_eq!(observed.stats().free_pages(), free - Order(2).pages());
        assert_eq!(observed.stats().frame(block.pfn()).unwrap().head, block.pfn());
        drop(block);
        assert_eq!(observed.stats().free_pages(), free);
        yard.validate().unwrap();
    }

    #[test]
    fn an_observer_is_no_process_of_the_yard_and_notices_when_the_last_one_leaves() {
        let (name, yard) = create("processes");
        let observed = ObservedYard::open(&name).unwrap();
        let this = std::process::id();
        assert_eq!(observed.processes().unwrap(), [this]);
        #[expect(unsafe_code, reason = "the test shares the yard with itself")]
        // SAFETY: only yards write to the file.
        let second = unsafe { HostYard::open_shared(&name) }.unwrap();
        assert_eq!(observed.processes().unwrap(), [this, this]);
        drop(second);
        let path = yard.path().unwrap().to_owned();
        drop(yard);
        assert!(!path.exists(), "the observer keeps no name");
        assert!(observed.processes().unwrap().is_empty());
    }

    #[test]
    fn files_of_no_yard_are_refused() {
        let missing = ObservedYard::open("no-such-yard").unwrap_err();
        assert!(matches!(missing, HostYardError::File(SharedFileError::NoSuchName(_))), "{missing}");
        let other = ObservedYard::open("/proc/self/exe").unwrap_err();
        assert!(matches!(other, HostYardError::File(SharedFileError::Header(_))), "{other}");
    }
}
