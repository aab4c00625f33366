//! Devices whose bytes are memory, as a `/dev/dax` device is to the kernel.
//!
//! A [`DeviceMemory`] is a file, a memory file, a DAX device of the host, or phantom. Its bytes are mapped at a
//! multiple of its alignment. Once it is [added](crate::HostPlatform::add_device) to a platform for a range of frames,
//! the platform finds the bytes of those frames there.

use std::fmt;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::str::FromStr;

use frameyard::{ByteSize, Geometry, Order, PageCount};

use crate::memory::{self, FileGrowth, FileLock, HUGE_ALIGN, HugePages, MemoryError};
use crate::sys::mapping::{Mapping, Source};
use crate::topology::HostTopology;

mod dax;
mod error;
mod table;

pub use error::{AddDeviceError, DeviceMemoryError};
pub(crate) use table::DeviceTable;

/// The alignment of a device: both its size and its address are multiples of it. It therefore limits the size of the
/// pages that map the device. For a DAX device it is `align`, as `ndctl create-namespace --align` sets it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub enum DeviceAlignment {
    /// 4 KiB.
    Base,
    /// 2 MiB.
    #[default]
    Huge,
    /// 1 GiB.
    Gigantic,
}

impl DeviceAlignment {
    /// All alignments, ascending.
    pub const ALL: [Self; 3] = [Self::Base, Self::Huge, Self::Gigantic];

    /// The alignment in bytes.
    #[must_use]
    pub const fn size(self) -> ByteSize {
        match self {
            Self::Base => ByteSize::kib(4),
            Self::Huge => ByteSize::mib(2),
            Self::Gigantic => ByteSize::gib(1),
        }
    }

    /// The name on the command line, such as `2M`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Base => "4K",
            Self::Huge => "2M",
            Self::Gigantic => "1G",
        }
    }

    /// The order of a page of that size; 0 if a page frame is at least as large.
    #[must_use]
    pub fn order(self, geometry: Geometry) -> Order {
        Order((self.size().0.ilog2() as u8).saturating_sub(geometry.page_shift()))
    }
}

impl fmt::Display for DeviceAlignment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The error for a text that does not name a [`DeviceAlignment`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseAlignmentError(String);

impl fmt::Display for ParseAlignmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no alignment of a device: 4K, 2M or 1G", self.0)
    }
}

impl std::error::Error for ParseAlignmentError {}

impl FromStr for DeviceAlignment {
    type Err = ParseAlignmentError;

    /// Parses a [name](DeviceAlignment::name) in upper or lower case.
    fn from_str(text: &str) -> Result<Self, ParseAlignmentError> {
        let named = Self::ALL.into_iter().find(|alignment| alignment.name().eq_ignore_ascii_case(text));
        named.ok_or_else(|| ParseAlignmentError(text.to_owned()))
    }
}

/// The kind of memory behind a device.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum DeviceBacking {
    /// A memory file without a name. Other processes can open it by its [path](DeviceMemory::path).
    #[default]
    Memfd,
    /// A regular file.
    File {
        /// Its path.
        path: PathBuf,
        /// What to do if it is too small.
        growth: FileGrowth,
    },
    /// A DAX device of the host, such as `/dev/dax0.0`.
    Dax {
        /// Its path.
        path: PathBuf,
    },
    /// No memory, so its frames have no bytes. For simulating devices larger than the host.
    Phantom,
}

impl DeviceBacking {
    /// The name of the kind, such as `memfd`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Memfd => "memfd",
            Self::File { .. } => "file",
            Self::Dax { .. } => "dax",
            Self::Phantom => "phantom",
        }
    }
}

/// Whether other processes may open a device's file while it is open.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum DeviceSharing {
    /// No: their attempt to lock the file fails.
    #[default]
    Alone,
    /// Yes, if they open it as shared too, as the processes of a shared yard do.
    Shared,
}

/// The settings of a new [`DeviceMemory`].
#[derive(Clone, Debug)]
pub struct DeviceMemoryBuilder {
    size: ByteSize,
    alignment: DeviceAlignment,
    backing: DeviceBacking,
    sharing: DeviceSharing,
    huge_pages: HugePages,
}

impl DeviceMemoryBuilder {
    /// The kind of memory; a memory file by default.
    #[must_use]
    pub fn backing(mut self, backing: DeviceBacking) -> Self {
        self.backing = backing;
        self
    }

    /// Whether other processes may open the file or the device; by default they may not. A memory file belongs to this
    /// process alone in either case.
    #[must_use]
    pub fn sharing(mut self, sharing: DeviceSharing) -> Self {
        self.sharing = sharing;
        self
    }

    /// Whether to advise the host to use transparent huge pages, for a device with an alignment above 4 KiB. The
    /// default is no advice.
    #[must_use]
    pub fn huge_pages(mut self, huge_pages: HugePages) -> Self {
        self.huge_pages = huge_pages;
        self
    }

    /// Opens the device and maps it at a multiple of its alignment, without touching its bytes.
    ///
    /// # Errors
    ///
    /// [`DeviceMemoryError`] says what is wrong with the size, the file or the device, and what would work.
    pub fn build(self, host: &HostTopology) -> Result<DeviceMemory, DeviceMemoryError> {
        check_size(self.size, self.alignment)?;
        let Some(file) = self.open(host)? else {
            let Self { size, alignment, backing, .. } = self;
            return Ok(DeviceMemory { mapping: None, file: None, size, alignment, backing });
        };
        let align = self.alignment.size().0.max(HUGE_ALIGN) as usize;
        let no_addresses = || MemoryError::AddressSpace { span: self.size };
        let length = usize::try_from(self.size.0).map_err(|_| no_addresses())?;
        let mut mapping = Mapping::reserve(length, align, 0).map_err(|_| no_addresses())?;
        let refused = |source| MemoryError::System { action: "map a device", size: self.size, source };
        let source = Source::Shared { file: file.as_fd(), offset: 0 };
        mapping.back(mapping.whole(), source).map_err(refused)?;
        if self.alignment > DeviceAlignment::Base && !matches!(self.backing, DeviceBacking::Dax { .. }) {
            self.huge_pages.apply(&mapping, mapping.whole())?;
        }
        let Self { size, alignment, backing, .. } = self;
        Ok(DeviceMemory { mapping: Some(mapping), file: Some(file), size, alignment, backing })
    }

    /// Opens the file to map; `None` for phantom devices.
    fn open(&self, host: &HostTopology) -> Result<Option<File>, DeviceMemoryError> {
        let lock = match self.sharing {
            DeviceSharing::Alone => FileLock::Alone,
            DeviceSharing::Shared => FileLock::Shared,
        };
        match &self.backing {
            DeviceBacking::Memfd => {
                let (needed, usable) = (self.size, host.usable_memory());
                if needed > usable {
                    return Err(MemoryError::LargerThanHost { needed, usable }.into());
                }
                Ok(Some(memory::in_memory(self.size.0)?))
            }
            DeviceBacking::File { path, growth } => Ok(Some(memory::file_with_path(path, *growth, self.size.0, lock)?)),
            DeviceBacking::Dax { path } => {
                let (file, found) = dax::open(path, lock)?;
                found.check(path, self.size, self.alignment)?;
                Ok(Some(file))
            }
            DeviceBacking::Phantom => Ok(None),
        }
    }
}

/// A device, mapped for reading and writing unless it is phantom, and unmapped on drop.
#[derive(Debug)]
pub struct DeviceMemory {
    /// `None` for phantom devices.
    mapping: Option<Mapping>,
    file: Option<File>,
    size: ByteSize,
    alignment: DeviceAlignment,
    backing: DeviceBacking,
}

impl DeviceMemory {
    /// A builder for a device of that size and alignment.
    #[must_use]
    pub fn builder(size: ByteSize, alignment: DeviceAlignment) -> DeviceMemoryBuilder {
        let (backing, sharing) = (DeviceBacking::default(), DeviceSharing::default());
        DeviceMemoryBuilder { size, alignment, backing, sharing, huge_pages: HugePages::Default }
    }

    /// Opens all of a DAX device of the host, with the alignment that it has.
    ///
    /// # Errors
    ///
    /// [`DeviceMemoryError`] if the path is not that of a DAX device, if it cannot be opened, or if its alignment is
    /// not a [`DeviceAlignment`].
    pub fn dax(path: &Path, sharing: DeviceSharing, host: &HostTopology) -> Result<Self, DeviceMemoryError> {
        let (_, found) = dax::open(path, FileLock::None)?;
        let alignment = found.alignment(path)?;
        let backing = DeviceBacking::Dax { path: path.to_owned() };
        Self::builder(found.size, alignment).backing(backing).sharing(sharing).build(host)
    }

    /// The number of bytes.
    #[must_use]
    pub fn size(&self) -> ByteSize {
        self.size
    }

    /// The number of page frames.
    #[must_use]
    pub fn frames(&self, geometry: Geometry) -> PageCount {
        PageCount(self.size.0 >> geometry.page_shift())
    }

    /// The alignment of its size and its address.
    #[must_use]
    pub fn alignment(&self) -> DeviceAlignment {
        self.alignment
    }

    /// The kind of memory.
    #[must_use]
    pub fn backing(&self) -> &DeviceBacking {
        &self.backing
    }

    /// The mapped file or device; `None` for phantom devices.
    #[must_use]
    pub fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }

    /// The path by which other processes of the same user can open the device while this value lives; `None` for
    /// phantom devices.
    #[must_use]
    pub fn path(&self) -> Option<PathBuf> {
        match &self.backing {
            DeviceBacking::File { path, .. } | DeviceBacking::Dax { path } => Some(path.clone()),
            DeviceBacking::Memfd => {
                let fd = self.file.as_ref()?.as_raw_fd();
                Some(PathBuf::from(format!("/proc/{}/fd/{fd}", std::process::id())))
            }
            DeviceBacking::Phantom => None,
        }
    }

    /// The address of the first byte; `None` for phantom devices. Keep `self` alive while you read or write it.
    #[inline]
    #[must_use]
    pub fn base(&self) -> Option<NonNull<u8>> {
        self.mapping.as_ref().map(Mapping::base)
    }

    /// The address of the byte at `offset`; `None` past the end and for phantom devices.
    #[inline]
    #[must_use]
    pub fn address(&self, offset: ByteSize) -> Option<NonNull<u8>> {
        if offset >= self.size {
            return None;
        }
        self.mapping.as_ref().map(|mapping| mapping.address(offset.0 as usize))
    }

    /// The number of bytes resident now. Cost: a walk over the host's page tables.
    ///
    /// # Errors
    ///
    /// [`MemoryError::System`] if the kernel does not report it, as for DAX devices.
    pub fn resident(&self) -> Result<ByteSize, MemoryError> {
        let Some(mapping) = &self.mapping else { return Ok(ByteSize(0)) };
        let action = "find the pages of a device that are in memory";
        let refused = |source| MemoryError::System { action, size: self.size, source };
        mapping.resident(mapping.whole()).map(ByteSize).map_err(refused)
    }
}

/// Checks that a size is a multiple of an alignment.
fn check_size(size: ByteSize, alignment: DeviceAlignment) -> Result<(), DeviceMemoryError> {
    let unit = alignment.size().0;
    if size.0 > 0 && size.0.is_multiple_of(unit) {
        return Ok(());
    }
    let below = ByteSize(size.0 / unit * unit);
    let above = size.0.max(1).checked_next_multiple_of(unit).map(ByteSize);
    Err(DeviceMemoryError::Size { size, alignment, below: (below.0 > 0).then_some(below), above })
}

#[cfg(test)]
mod tests;
