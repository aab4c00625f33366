//! A memory file for a yard that several processes use at once.
//!
//! The file holds a header, the memory map, the control region, words about views of devices and the frames, each on a 2 MiB boundary. One
//! process [creates](SharedMemoryFile::create) it, [opens it](SharedMemoryFile::inherit) to the programs it
//! executes, and each of them [attaches](SharedMemoryFile::from_environment) it: the header says all that
//! is needed to map the same parts.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::Arc;

use frameyard::{ByteSize, Geometry, PfnRange};

use crate::device_map::DevicePart;
use crate::memory::{
    FrameLayout, HUGE_ALIGN, HostMemory, HugePages, MemoryError, NodeBinding, NodeFrames, check_host_memory, in_memory,
};
use crate::region::Region;
use crate::sys::descriptor::{self, OnExec};
use crate::sys::window::MapWindow;
use crate::topology::HostTopology;
use crate::yard::HostYardError;

mod board;
mod header;
mod process;
mod view;
mod view_words;

use header::Header;
pub use header::HeaderError;
pub(crate) use view::SharedView;
use view_words::ViewWords;

/// The environment variable that names the memory file's descriptor to an executed program.
const VARIABLE: &str = "FRAMEYARD_MEMORY_FILE";

/// Whether a memory file holds the bytes of its frames.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SharedFrames {
    /// It does.
    Memory,
    /// It does not: nothing is behind the frames.
    Phantom,
}

/// What a memory file is to hold.
#[derive(Clone, Debug)]
pub struct SharedLayout<'a> {
    /// The geometry of the yard.
    pub geometry: Geometry,
    /// The frames of the machine.
    pub ranges: &'a [NodeFrames],
    /// Whether there are bytes behind them.
    pub frames: SharedFrames,
    /// The size of the memory map.
    pub memory_map: ByteSize,
    /// The size of the control region.
    pub control: ByteSize,
    /// The frames that the memory map covers ([`Layout::frames`](frameyard::Layout::frames)).
    pub map_frames: PfnRange,
    /// Those of them that are for devices ([`YardConfig::device_space`](frameyard::YardConfig::device_space)).
    pub device_space: Option<PfnRange>,
}

/// Why a memory file cannot be made or attached.
#[derive(Debug)]
#[non_exhaustive]
pub enum SharedFileError {
    /// The environment names no memory file: the program was not started for it.
    NotInherited,
    /// The environment names something that is no descriptor.
    NotADescriptor(OsString),
    /// The descriptor is not open, or cannot be read.
    Descriptor {
        /// Its number.
        fd: RawFd,
        /// What the system says.
        source: io::Error,
    },
    /// What the file begins with is no header of a memory file.
    Header(HeaderError),
    /// Its memory cannot be had.
    Memory(MemoryError),
}

impl fmt::Display for SharedFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotInherited => write!(f, "{VARIABLE} is not set: this program was not started on a memory file"),
            Self::NotADescriptor(value) => write!(f, "{VARIABLE}={}: not the number of a descriptor", value.display()),
            Self::Descriptor { fd, source } => write!(f, "descriptor {fd}: cannot use it as a memory file: {source}"),
            Self::Header(error) => error.fmt(f),
            Self::Memory(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for SharedFileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Descriptor { source, .. } => Some(source),
            Self::Memory(error) => error.source(),
            _ => None,
        }
    }
}

impl From<MemoryError> for SharedFileError {
    fn from(error: MemoryError) -> Self {
        Self::Memory(error)
    }
}

impl From<HeaderError> for SharedFileError {
    fn from(error: HeaderError) -> Self {
        Self::Header(error)
    }
}

/// A memory file with the memory map, the control region and the frames of one yard.
#[derive(Debug)]
pub struct SharedMemoryFile {
    file: File,
    header: Header,
    layout: FrameLayout,
}

impl SharedMemoryFile {
    /// Makes a new memory file, all zero but its header. Takes no memory for what is not touched.
    ///
    /// # Errors
    ///
    /// [`SharedFileError::Memory`] where the host cannot hold it.
    pub fn create(wanted: &SharedLayout<'_>, host: &HostTopology) -> Result<Self, SharedFileError> {
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
        let file = in_memory(header.file_len())?;
        let refused = |source| MemoryError::System {
            action: "write the header of a memory file",
            size: ByteSize(header.file_len()),
            source,
        };
        file.write_all_at(&header.to_bytes(), 0).map_err(refused)?;
        Ok(Self { file, header, layout })
    }

    /// The memory file that the starter of this program [announced](InheritedFile::announce).
    ///
    /// # Errors
    ///
    /// [`SharedFileError::NotInherited`] where there is none; else as [`attach`](SharedMemoryFile::attach).
    pub fn from_environment(host: &HostTopology) -> Result<Self, SharedFileError> {
        let value = std::env::var_os(VARIABLE).ok_or(SharedFileError::NotInherited)?;
        let number = value.to_str().and_then(|text| text.parse::<RawFd>().ok()).filter(|fd| *fd >= 0);
        let Some(fd) = number else { return Err(SharedFileError::NotADescriptor(value)) };
        Self::attach(fd, host)
    }

    /// The memory file behind an open descriptor, which it duplicates.
    ///
    /// # Errors
    ///
    /// [`SharedFileError::Descriptor`] where the number is not open or cannot be read,
    /// [`SharedFileError::Header`] where it is no memory file of this version or of such a host.
    pub fn attach(fd: RawFd, host: &HostTopology) -> Result<Self, SharedFileError> {
        let unusable = |source| SharedFileError::Descriptor { fd, source };
        let file = File::from(descriptor::duplicate(fd, OnExec::Close).map_err(unusable)?);
        let header = Header::read(&file).map_err(unusable)??;
        if !descriptor::is_size_sealed(&file) {
            return Err(HeaderError::NotSealed.into());
        }
        header.check_page_size(host.page_size())?;
        let layout = FrameLayout::new(header.geometry, &header.ranges, granule(header.frames, host))?;
        let expected = if header.frames == SharedFrames::Memory { layout.file_len() } else { 0 };
        header.check_frames(expected)?;
        Ok(Self { file, header, layout })
    }

    /// Opens the file to all programs that this process executes while the result lives.
    ///
    /// # Errors
    ///
    /// What the system says where no descriptor is left.
    pub fn inherit(&self) -> io::Result<InheritedFile> {
        descriptor::duplicate(self.file.as_raw_fd(), OnExec::Keep).map(|fd| InheritedFile { fd })
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

    /// Whether there are bytes behind the frames.
    #[must_use]
    pub fn frames(&self) -> SharedFrames {
        self.header.frames
    }

    /// Maps the memory map.
    ///
    /// # Errors
    ///
    /// [`MemoryError`] where the kernel refuses.
    pub fn map_memory_map(&self, huge_pages: HugePages) -> Result<Region, MemoryError> {
        let part = self.header.memory_map;
        Region::in_file(&self.file, part.offset, ByteSize(part.len), huge_pages)
    }

    /// Maps the control region.
    ///
    /// # Errors
    ///
    /// [`MemoryError`] where the kernel refuses.
    pub fn map_control(&self, huge_pages: HugePages) -> Result<Region, MemoryError> {
        let part = self.header.control;
        Region::in_file(&self.file, part.offset, ByteSize(part.len), huge_pages)
    }

    /// The part of the memory map that is for devices.
    pub(crate) fn device_part(&self) -> Option<DevicePart> {
        self.header.devices
    }

    /// Joins those that agree on what the memory map shows of devices; the window is on their part of it.
    pub(crate) fn view(&self, window: Arc<MapWindow>, part: DevicePart) -> Result<SharedView, HostYardError> {
        let words = self.header.view_words;
        let words = Region::in_file(&self.file, words.offset, ByteSize(words.len), HugePages::Default)?;
        let refused = |source| MemoryError::System { action: "open a memory file again", size: ByteSize(0), source };
        let file = self.file.try_clone().map_err(refused)?;
        let offset = self.header.memory_map.offset + part.piece.offset as u64;
        Ok(SharedView::attach(window, (file, offset), ViewWords::new(words))?)
    }

    /// Maps the frames, bound to the host's nodes where it has several.
    ///
    /// # Errors
    ///
    /// [`MemoryError`] where the kernel refuses.
    pub fn map_frames(&self, huge_pages: HugePages, host: &HostTopology) -> Result<HostMemory, MemoryError> {
        if self.header.frames == SharedFrames::Phantom {
            return Ok(HostMemory::phantom(self.layout.clone()));
        }
        let size = ByteSize(self.header.file_len());
        let refused = |source| MemoryError::System { action: "open a memory file again", size, source };
        let file = self.file.try_clone().map_err(refused)?;
        HostMemory::in_file(self.layout.clone(), file, self.header.frame_bytes.offset, huge_pages, host)
    }
}

/// A granule of frames: phantom frames are not rounded out.
fn granule(frames: SharedFrames, host: &HostTopology) -> u64 {
    match frames {
        SharedFrames::Memory => host.page_size().0,
        SharedFrames::Phantom => 1,
    }
}

/// A descriptor of a memory file that executed programs inherit; closed here when dropped.
#[derive(Debug)]
pub struct InheritedFile {
    fd: OwnedFd,
}

impl InheritedFile {
    /// Tells the program that `command` executes where it finds the file: in an environment variable that
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

/// Rounds up to where a part of the file may begin.
fn aligned(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(HUGE_ALIGN)
}

#[cfg(test)]
mod tests;
