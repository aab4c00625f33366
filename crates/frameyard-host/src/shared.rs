//! A memory file: the memory map, the control region and the frames of one yard, shared by several processes.
//!
//! The file starts with a header that states where its parts lie. Each part starts on a 2 MiB boundary:
//!
//! ```text
//! | header | memory map | control region | view words | processes | frames |
//! ```
//!
//! One process [creates](SharedMemoryFile::create) the file, and lets the programs that it executes
//! [inherit](SharedMemoryFile::inherit) it. Each of them [attaches](SharedMemoryFile::from_environment) the file and
//! maps the same parts. The table of processes lists those that have attached it (`process`). The view words coordinate
//! what the processes map in the device part of the memory map (`view`).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::process::Command;

use frameyard::{ByteSize, Geometry, PfnRange, Platform, Yard};

use crate::device_part::DevicePart;
use crate::memory::{
    FrameLayout, HostMemory, HugePages, MemoryError, NodeBinding, NodeFrames, check_host_memory, in_memory,
};
use crate::region::Region;
use crate::sys::descriptor;
use crate::topology::HostTopology;

mod error;
mod header;
mod layout;
pub(crate) mod process;
pub(crate) mod view;
mod view_words;
mod word_store;

pub use error::SharedFileError;
use error::VARIABLE;
pub use header::HeaderError;
use header::{Header, Part};
pub use layout::{SharedFrames, SharedLayout};
use process::Attachment;

/// A memory file with the memory map, the control region and the frames of one yard.
///
/// # Processes
///
/// Each yard that is created in the file or attached to it takes one of 1024 places and locks one byte of the file.
/// When the process ends, the kernel unlocks the byte. Another process is considered dead only if its byte is unlocked,
/// never because it cannot be examined. Taking a place opens `/proc/self/fd`.
///
/// If a process dies while it holds a lock of the yard, the yard is damaged: calls that need the lock fail with
/// [`LockError::OwnerDied`](frameyard::platform::LockError::OwnerDied), and from then on so do all allocations, checks
/// and attaches. The same happens with [`Corrupt`](frameyard::platform::LockError::Corrupt) if a process finds values
/// that no yard writes. If a process is stopped while it holds a lock, calls that need the lock fail with
/// [`LockStuck`](frameyard::platform::LockError::LockStuck) after [a limit](crate::HostYardBuilder::lock_limit).
///
/// A forked child has no place. It may drop the yard, which has no effect on its parent. To use the yard, it attaches
/// the file anew.
#[derive(Debug)]
pub struct SharedMemoryFile {
    file: File,
    header: Header,
    layout: FrameLayout,
}

/// How the size of a memory file is kept from changing under the processes that map it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SizeGuard {
    /// Seals, which no process can lift. Only files of `memfd_create` have them.
    Sealed,
    /// The permissions of a named file.
    Permissions,
}

impl SharedMemoryFile {
    /// Creates a memory file without a name. It is zero except for its header, and takes no memory until it is touched.
    ///
    /// # Errors
    ///
    /// [`SharedFileError::Memory`] if the host has too little memory for it.
    pub fn create(wanted: &SharedLayout<'_>, host: &HostTopology) -> Result<Self, SharedFileError> {
        Self::create_in(in_memory, wanted, host)
    }

    /// Creates a memory file in a file of the given length, which `make` creates.
    pub(crate) fn create_in(
        make: impl FnOnce(u64) -> Result<File, MemoryError>,
        wanted: &SharedLayout<'_>,
        host: &HostTopology,
    ) -> Result<Self, SharedFileError> {
        if wanted.memory_map.0 == 0 || wanted.control.0 == 0 {
            return Err(MemoryError::Nothing.into());
        }
        let layout = FrameLayout::new(wanted.geometry, wanted.ranges, granule(wanted.frames, host))?;
        let frames_len = match wanted.frames {
            SharedFrames::Memory => {
                let binding = if host.nodes().len() > 1 { NodeBinding::Bind } else { NodeBinding::Leave };
                check_host_memory(&layout, binding, host)?;
                layout.file_len()
            }
            SharedFrames::Phantom => 0,
        };
        let header = Header::new(wanted, frames_len, host.page_size())
            .ok_or(MemoryError::AddressSpace { span: ByteSize(u64::MAX) })?;
        let file = make(header.file_len())?;
        let refused = |source| MemoryError::System {
            action: "write the header of a memory file",
            size: ByteSize(header.file_len()),
            source,
        };
        file.write_all_at(&header.to_bytes(), 0).map_err(refused)?;
        Ok(Self { file, header, layout })
    }

    /// Attaches the memory file that the parent process [announced](InheritedFile::announce).
    ///
    /// # Errors
    ///
    /// [`SharedFileError::NotInherited`] if the environment variable is missing, [`SharedFileError::NotADescriptor`] if
    /// it is not a number, and the errors of [`attach`](SharedMemoryFile::attach).
    pub fn from_environment(host: &HostTopology) -> Result<Self, SharedFileError> {
        let value = std::env::var_os(VARIABLE).ok_or(SharedFileError::NotInherited)?;
        let number = value.to_str().and_then(|text| text.parse::<RawFd>().ok()).filter(|fd| *fd >= 0);
        let Some(fd) = number else { return Err(SharedFileError::NotADescriptor(value)) };
        let unusable = |source| SharedFileError::Descriptor { fd: fd.unsigned_abs(), source };
        let file = descriptor::reopen(fd).map_err(unusable)?;
        Self::attach_file(file, SizeGuard::Sealed, host)
    }

    /// Attaches the memory file behind an open descriptor, which it duplicates.
    ///
    /// # Errors
    ///
    /// [`SharedFileError::Descriptor`] if the descriptor cannot be read, [`SharedFileError::Header`] if the file is not
    /// a memory file of this version of the crate and this kind of host.
    pub fn attach(fd: impl AsFd, host: &HostTopology) -> Result<Self, SharedFileError> {
        let number = fd.as_fd().as_raw_fd().unsigned_abs();
        let copy = fd.as_fd().try_clone_to_owned();
        let copy = copy.map_err(|source| SharedFileError::Descriptor { fd: number, source })?;
        Self::attach_file(File::from(copy), SizeGuard::Sealed, host)
    }

    /// Attaches an open memory file.
    pub(crate) fn attach_file(file: File, guard: SizeGuard, host: &HostTopology) -> Result<Self, SharedFileError> {
        let unusable = |source| SharedFileError::Descriptor { fd: file.as_raw_fd().unsigned_abs(), source };
        let header = Header::read(&file).map_err(unusable)??;
        if guard == SizeGuard::Sealed && !descriptor::is_size_sealed(&file) {
            return Err(HeaderError::NotSealed.into());
        }
        header.check_page_size(host.page_size())?;
        let layout = FrameLayout::new(header.geometry, &header.ranges, granule(header.frames, host))?;
        let expected = if header.frames == SharedFrames::Memory { layout.file_len() } else { 0 };
        header.check_frames(expected)?;
        Ok(Self { file, header, layout })
    }

    /// Checks that an open file starts with the header of a memory file.
    pub(crate) fn check_header(file: &File) -> io::Result<Result<(), HeaderError>> {
        Header::read(file).map(|header| header.map(drop))
    }

    /// Lets all programs that this process executes inherit the file, for as long as the result lives.
    ///
    /// # Errors
    ///
    /// The system's error if no descriptor is left.
    pub fn inherit(&self) -> io::Result<InheritedFile> {
        descriptor::inheritable(&self.file).map(|fd| InheritedFile { fd })
    }

    /// The geometry of the yard.
    #[must_use]
    pub fn geometry(&self) -> Geometry {
        self.header.geometry
    }

    /// The frames of the machine, ascending.
    #[must_use]
    pub fn ranges(&self) -> &[NodeFrames] {
        self.layout.ranges()
    }

    /// Whether the file contains the bytes of the frames.
    #[must_use]
    pub fn frames(&self) -> SharedFrames {
        self.header.frames
    }

    /// Maps the memory map.
    ///
    /// # Errors
    ///
    /// [`MemoryError`] if the kernel refuses.
    pub fn map_memory_map(&self, huge_pages: HugePages) -> Result<Region, MemoryError> {
        let part = self.header.memory_map;
        Region::in_file(&self.file, part.offset, ByteSize(part.len), huge_pages)
    }

    /// Maps the control region.
    ///
    /// # Errors
    ///
    /// [`MemoryError`] if the kernel refuses.
    pub fn map_control(&self, huge_pages: HugePages) -> Result<Region, MemoryError> {
        let part = self.header.control;
        Region::in_file(&self.file, part.offset, ByteSize(part.len), huge_pages)
    }

    /// The part of the memory map for devices.
    pub(crate) fn device_part(&self) -> Option<DevicePart> {
        self.header.devices
    }

    /// Where a piece of the memory map starts in the file, with a second handle of the file.
    pub(crate) fn map_file(&self, offset: usize) -> Result<(File, u64), MemoryError> {
        Ok((self.reopened()?, self.header.memory_map.offset + offset as u64))
    }

    /// Maps the words that coordinate views of the part for devices.
    pub(crate) fn map_view_words(&self) -> Result<Region, MemoryError> {
        let words = self.header.view_words;
        Region::in_file(&self.file, words.offset, ByteSize(words.len), HugePages::Default)
    }

    /// The memory map, the control region and the table of processes, for reading ([`Region::observing`]).
    pub(crate) fn observe(&self) -> Result<[Region; 3], MemoryError> {
        let of = |part: Part| Region::observing(&self.file, part.offset, ByteSize(part.len));
        let Header { memory_map, control, processes, .. } = self.header;
        Ok([of(memory_map)?, of(control)?, of(processes)?])
    }

    /// The frames of the machine without their bytes.
    pub(crate) fn phantom_frames(&self) -> HostMemory {
        HostMemory::phantom(self.layout.clone())
    }

    /// Takes a place for this process among those that have the file attached. You need it for a yard in the file that
    /// is not a [`HostYard`](crate::HostYard); a `HostYard` takes its own.
    ///
    /// # Errors
    ///
    /// [`SharedFileError::TooManyProcesses`], [`SharedFileError::Place`] and [`SharedFileError::Memory`].
    pub fn attend(&self) -> Result<SharedPlace, SharedFileError> {
        self.take_place().map(|attachment| SharedPlace { _attachment: attachment })
    }

    /// Takes a place for this process among those that have the file attached.
    pub(crate) fn take_place(&self) -> Result<Attachment, SharedFileError> {
        let part = self.header.processes;
        let table = Region::in_file(&self.file, part.offset, ByteSize(part.len), HugePages::Default)?;
        let place = Attachment::new(&self.file, table).map_err(SharedFileError::Place)?;
        place.ok_or(SharedFileError::TooManyProcesses(process::SLOTS))
    }

    /// Maps the frames, bound to the host's nodes if it has several.
    ///
    /// # Errors
    ///
    /// [`MemoryError`] if the kernel refuses.
    pub fn map_frames(&self, huge_pages: HugePages, host: &HostTopology) -> Result<HostMemory, MemoryError> {
        if self.header.frames == SharedFrames::Phantom {
            return Ok(HostMemory::phantom(self.layout.clone()));
        }
        let file = self.reopened()?;
        HostMemory::in_file(self.layout.clone(), file, self.header.frame_bytes.offset, huge_pages, host)
    }

    /// Whether all memory of a yard consists of frames of the file.
    pub(crate) fn fits<P: Platform>(&self, yard: &Yard<P>) -> bool {
        let is_there =
            |memory: PfnRange| self.ranges().iter().any(|frames| frames.range.intersection(memory) == memory);
        yard.geometry() == self.geometry() && yard.memory_ranges().all(|(memory, _)| is_there(memory))
    }

    /// A second handle of the file, for example to keep it longer than its yard.
    ///
    /// # Errors
    ///
    /// [`MemoryError::System`] if no descriptor is left.
    pub fn try_clone(&self) -> Result<Self, MemoryError> {
        Ok(Self { file: self.reopened()?, header: self.header.clone(), layout: self.layout.clone() })
    }

    /// A second handle of the file.
    pub(crate) fn reopened(&self) -> Result<File, MemoryError> {
        let size = ByteSize(self.header.file_len());
        let action = "duplicate the descriptor of a memory file";
        self.file.try_clone().map_err(|source| MemoryError::System { action, size, source })
    }
}

/// A place of this process among those that have a memory file attached. Dropping it gives the place up.
#[derive(Debug)]
pub struct SharedPlace {
    _attachment: Attachment,
}

impl AsFd for SharedMemoryFile {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The unit to which ranges of frames are rounded out. Phantom frames are not rounded.
fn granule(frames: SharedFrames, host: &HostTopology) -> u64 {
    match frames {
        SharedFrames::Memory => host.page_size().0,
        SharedFrames::Phantom => 1,
    }
}

/// A descriptor of a memory file that executed programs inherit. Dropping it closes the descriptor in this process.
#[derive(Debug)]
pub struct InheritedFile {
    fd: OwnedFd,
}

impl InheritedFile {
    /// Tells the program that `command` will execute where the file is: in an environment variable that
    /// [`SharedMemoryFile::from_environment`] reads.
    pub fn announce(&self, command: &mut Command) {
        command.env(VARIABLE, self.fd.as_raw_fd().to_string());
    }
}

impl AsRawFd for InheritedFile {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

#[cfg(test)]
mod tests;
