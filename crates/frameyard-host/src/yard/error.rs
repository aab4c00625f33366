//! Why a yard cannot be made on this host.

use std::fmt;

use frameyard::ByteSize;
use frameyard::boot::{AttachError, BootError};
use frameyard::platform::LockError;
use frameyard::units::GeometryError;

use crate::device::AddDeviceError;
use crate::device_problem::DeviceMapProblem;
use crate::memory::MemoryError;
use crate::platform::RseqUnavailable;
use crate::shared::SharedFileError;
use crate::topology::TopologyError;

/// Why a yard cannot be made on this host.
#[derive(Debug)]
#[non_exhaustive]
pub enum HostYardError {
    /// The requested size is smaller than the smallest yard.
    TooSmall {
        /// The requested size.
        size: ByteSize,
        /// The smallest size that a yard can have.
        least: ByteSize,
    },
    /// A setting of the builder does not apply to the yard, or its source is missing.
    Setting {
        /// The method of [`HostYardBuilder`](crate::HostYardBuilder) that sets it.
        setting: &'static str,
        /// What is wrong with it: the rest of a sentence that begins with the setting.
        why: &'static str,
    },
    /// No yard can have frames of the requested size.
    FrameSize(GeometryError),
    /// The core rejects the memory, the CPUs or the options.
    Boot(BootError),
    /// The memory is not available.
    Memory(MemoryError),
    /// The memory file cannot be created or used.
    File(SharedFileError),
    /// The file contains no complete yard.
    Attach(AttachError),
    /// `rseq` was requested and is not available.
    Rseq(RseqUnavailable),
    /// The region given for the memory map is unsuitable.
    MapRegion(MapRegionProblem),
    /// A device cannot take the frames that it was added for.
    AddDevice(AddDeviceError),
    /// A process that has ended has damaged the yard.
    Lock(LockError),
    /// This process cannot share the memory map of devices with other processes.
    Devices(DeviceMapProblem),
}

/// Why a region cannot be a yard's memory map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum MapRegionProblem {
    /// It is smaller than the map.
    TooSmall {
        /// Its size.
        given: ByteSize,
        /// The size that the map needs.
        needed: ByteSize,
    },
    /// It was written to, and the initialiser relies on zeroes.
    NotZeroed,
    /// Other processes may write to it.
    Shared,
}

impl fmt::Display for MapRegionProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooSmall { given, needed } => {
                write!(f, "the region for the memory map has {given}, and the map needs {needed}")
            }
            Self::NotZeroed => f.write_str(
                "the region for the memory map was written to, and initialiser none relies on zeroes: zero it or choose another initialiser",
            ),
            Self::Shared => {
                f.write_str("the region for the memory map is shared with other processes: give a private one")
            }
        }
    }
}

impl std::error::Error for MapRegionProblem {}

impl fmt::Display for HostYardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooSmall { size: ByteSize(bytes), least } => {
                let bytes = if *bytes == 1 { "1 byte".to_owned() } else { format!("{bytes} bytes") };
                write!(f, "{bytes} of memory is too little for a yard: request at least {least}")
            }
            Self::Setting { setting, why } => write!(f, "the setting `{setting}` {why}"),
            Self::FrameSize(error) => error.fmt(f),
            Self::Boot(error) => error.fmt(f),
            Self::Memory(error) => error.fmt(f),
            Self::File(error) => error.fmt(f),
            Self::Attach(error) => error.fmt(f),
            Self::Rseq(error) => error.fmt(f),
            Self::MapRegion(problem) => problem.fmt(f),
            Self::AddDevice(error) => error.fmt(f),
            Self::Lock(error) => error.fmt(f),
            Self::Devices(problem) => problem.fmt(f),
        }
    }
}

impl std::error::Error for HostYardError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // Each variant prints as the error inside it, so the next in the chain is the source of that error.
        match self {
            Self::TooSmall { .. } | Self::Setting { .. } | Self::Lock(_) => None,
            Self::FrameSize(error) => error.source(),
            Self::Boot(error) => error.source(),
            Self::Memory(error) => error.source(),
            Self::File(error) => error.source(),
            Self::Attach(error) => error.source(),
            Self::Rseq(error) => error.source(),
            Self::MapRegion(problem) => problem.source(),
            Self::AddDevice(error) => error.source(),
            Self::Devices(problem) => problem.source(),
        }
    }
}

macro_rules! from_errors {
    ($($error:ident => $variant:ident),*) => {
        $(impl From<$error> for HostYardError {
            fn from(error: $error) -> Self {
                Self::$variant(error)
            }
        })*
    };
}

from_errors!(GeometryError => FrameSize, BootError => Boot, MemoryError => Memory, SharedFileError => File, AttachError => Attach,
    RseqUnavailable => Rseq, AddDeviceError => AddDevice, DeviceMapProblem => Devices);

impl From<TopologyError> for HostYardError {
    fn from(error: TopologyError) -> Self {
        Self::Memory(error.into())
    }
}
