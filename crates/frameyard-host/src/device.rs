//! Devices whose bytes are memory: what a `/dev/dax` device is to the kernel.
//!
//! A [`DeviceMemory`] is a file, a file in memory, a real DAX device of the host, or nothing at all, with an alignment
//! that its bytes are mapped with. A platform that is [given](crate::HostPlatform::add_device) it with a range of frames
//! reaches the bytes of those frames there.

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

/// What the size of a device is a multiple of, and its address too: the size of the pages that map it at most
/// (`align` of a DAX device, as `ndctl create-namespace --align` sets it).
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
    /// All of them, ascending.
    pub const ALL: [Self; 3] = [Self::Base, Self::Huge, Self::Gigantic];

    /// In bytes.
    #[must_use]
    pub const fn size(self) -> ByteSize {
        match self {
            Self::Base => ByteSize::kib(4),
            Self::Huge => ByteSize::mib(2),
            Self::Gigantic => ByteSize::gib(1),
        }
    }

    /// The name on the command line, as in `2M`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Base => "4K",
            Self::Huge => "2M",
            Self::Gigantic => "1G",
        }
    }

    /// The order of a page of that size; 0 where a page frame is no smaller.
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

/// A text that names no [`DeviceAlignment`].
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

    /// Reads a [name](DeviceAlignment::name), in capitals or not.
    fn from_str(text: &str) -> Result<Self, ParseAlignmentError> {
        let named = Self::ALL.into_iter().find(|alignment| alignment.name().eq_ignore_ascii_case(text));
        named.ok_or_else(|| ParseAlignmentError(text.to_owned()))
    }
}

/// What stands behind a device.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum DeviceBacking {
    /// A file in memory that has no name; others open it by its [path](DeviceMemory::path).
    #[default]
    Memfd,
    /// A regular file.
    File {
        /// Its name.
        path: PathBuf,
        /// What happens where it is too small.
        growth: FileGrowth,
    },
    /// A DAX device of the host, as in `/dev/dax0.0`.
    Dax {
        /// Its name.
        path: PathBuf,
    },
    /// Nothing: its frames have no bytes. For devices larger than the host.
    Phantom,
}

impl DeviceBacking {
    /// The name of the kind, as in `memfd`.
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

/// Who else may open what is behind a device while it is open.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum DeviceSharing {
    /// Nobody who asks for its lock too.
    #[default]
    Alone,
    /// Others that say the same: the processes of one shared yard.
    Shared,
}

/// How a [`DeviceMemory`] is to be made.
#[derive(Clone, Debug)]
pub struct DeviceMemoryBuilder {
    size: ByteSize,
    alignment: DeviceAlignment,
    backing: DeviceBacking,
    sharing: DeviceSharing,
    huge_pages: HugePages,
}

impl DeviceMemoryBuilder {
    /// What stands behind the device; a file in memory by default.
    #[must_use]
    pub fn backing(mut self, backing: DeviceBacking) -> Self {
        self.backing = backing;
        self
    }

    /// Who else may open the file or device; nobody by default. A file in memory is nobody else's in any case.
    #[must_use]
    pub fn sharing(mut self, sharing: DeviceSharing) -> Self {
        self.sharing = sharing;
        self
    }

    /// Whether transparent huge pages are advised where the device is larger than 4 KiB pages; no advice by default.
    #[must_use]
    pub fn huge_pages(mut self, huge_pages: HugePages) -> Self {
        self.huge_pages = huge_pages;
        self
    }

    /// Opens and maps the device at an address of its own, a multiple of its alignment. Touches none of its bytes.
    ///
    /// # Errors
    ///
    /// [`DeviceMemoryError`] says what is wrong with the size, the file or the device, and what would be right.
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

    /// What is to be mapped; nothing for phantom devices.
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

/// A device with bytes that are mapped for reading and writing, or with none. Unmapped when dropped.
#[derive(Debug)]
pub struct DeviceMemory {
    /// Nothing for phantom devices.
    mapping: Option<Mapping>,
    file: Option<File>,
    size: ByteSize,
    alignment: DeviceAlignment,
    backing: DeviceBacking,
}

impl DeviceMemory {
    /// Begins the description of a device.
    #[must_use]
    pub fn builder(size: ByteSize, alignment: DeviceAlignment) -> DeviceMemoryBuilder {
        let (backing, sharing) = (DeviceBacking::default(), DeviceSharing::default());
        DeviceMemoryBuilder { size, alignment, backing, sharing, huge_pages: HugePages::Default }
    }

    /// The whole of a DAX device of the host, with the alignment that it was made with.
    ///
    /// # Errors
    ///
    /// [`DeviceMemoryError`] where it is none, cannot be opened, or has another alignment than devices have here.
    pub fn dax(path: &Path, sharing: DeviceSharing, host: &HostTopology) -> Result<Self, DeviceMemoryError> {
        let (_, found) = dax::open(path, FileLock::None)?;
        let alignment = found.alignment(path)?;
        let backing = DeviceBacking::Dax { path: path.to_owned() };
        Self::builder(found.size, alignment).backing(backing).sharing(sharing).build(host)
    }

    /// How many bytes there are.
    #[must_use]
    pub fn size(&self) -> ByteSize {
        self.size
    }

    /// How many page frames there are.
    #[must_use]
    pub fn frames(&self, geometry: Geometry) -> PageCount {
        PageCount(self.size.0 >> geometry.page_shift())
    }

    /// What its size and its address are multiples of.
    #[must_use]
    pub fn alignment(&self) -> DeviceAlignment {
        self.alignment
    }

    /// What stands behind it.
    #[must_use]
    pub fn backing(&self) -> &DeviceBacking {
        &self.backing
    }

    /// The file or device that is mapped; `None` for phantom devices.
    #[must_use]
    pub fn file(&self) -> Option<&File> {
        self.file.as_ref()
    }

    /// Where other processes of the same user open what is behind it, while this value lives; `None` for phantom devices.
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

    /// The first byte; `None` for phantom devices. Who reads or writes has to see to it that `self` lives as long.
    #[inline]
    #[must_use]
    pub fn base(&self) -> Option<NonNull<u8>> {
        self.mapping.as_ref().map(Mapping::base)
    }

    /// The byte at `offset`; `None` behind the end and for phantom devices.
    #[inline]
    #[must_use]
    pub fn address(&self, offset: ByteSize) -> Option<NonNull<u8>> {
        if offset >= self.size {
            return None;
        }
        self.mapping.as_ref().map(|mapping| mapping.address(offset.0 as usize))
    }

    /// How many of its bytes are in memory now. Cost: a walk over the host's page tables.
    ///
    /// # Errors
    ///
    /// [`MemoryError::System`] where the kernel does not say, as for DAX devices.
    pub fn resident(&self) -> Result<ByteSize, MemoryError> {
        let Some(mapping) = &self.mapping else { return Ok(ByteSize(0)) };
        let action = "ask which pages of a device are in memory";
        let refused = |source| MemoryError::System { action, size: self.size, source };
        mapping.resident(mapping.whole()).map(ByteSize).map_err(refused)
    }
}

/// Whether a size is a multiple of an alignment.
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
