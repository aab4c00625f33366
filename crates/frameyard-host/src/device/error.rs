//! Errors of devices.

use std::fmt;
use std::io;
use std::path::PathBuf;

use frameyard::{ByteSize, PageCount, PfnRange};

use super::DeviceAlignment;
use crate::memory::MemoryError;

/// Why a [`DeviceMemory`](crate::DeviceMemory) is not available. Nothing stays mapped.
#[derive(Debug)]
#[non_exhaustive]
pub enum DeviceMemoryError {
    /// The size is zero or not a multiple of the alignment.
    Size {
        /// The requested size.
        size: ByteSize,
        /// The alignment.
        alignment: DeviceAlignment,
        /// The largest valid size below it, if there is one.
        below: Option<ByteSize>,
        /// The smallest valid size above it, if there is one.
        above: Option<ByteSize>,
    },
    /// The path is not that of a DAX device.
    NotDax(PathBuf),
    /// The system does not report the size or the alignment of a DAX device.
    DaxUnknown {
        /// The device.
        path: PathBuf,
        /// The error of the attempt to read it.
        source: io::Error,
    },
    /// The requested alignment is not a multiple of the DAX device's own.
    DaxAlignment {
        /// The device.
        path: PathBuf,
        /// Its own alignment.
        own: ByteSize,
        /// The requested alignment; `None` if the device's own was requested.
        asked: Option<DeviceAlignment>,
    },
    /// A DAX device is smaller than the requested size.
    DaxTooSmall {
        /// The device.
        path: PathBuf,
        /// The requested size.
        needed: ByteSize,
        /// The size of the device.
        size: ByteSize,
    },
    /// The device's memory or file is not available.
    Memory(MemoryError),
}

impl fmt::Display for DeviceMemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size { size, alignment, below, above } => {
                write!(f, "a device of {size} is no multiple of its alignment {alignment}: ")?;
                match (below, above) {
                    (Some(below), Some(above)) => write!(f, "the nearest sizes are {below} and {above}"),
                    (Some(size), None) | (None, Some(size)) => write!(f, "the nearest size is {size}"),
                    (None, None) => write!(f, "choose another alignment"),
                }
            }
            Self::NotDax(path) => {
                write!(f, "{}: not a DAX device: expected a character device as /dev/dax0.0", path.display())
            }
            Self::DaxUnknown { path, source } => {
                write!(f, "{}: the system does not state its size and alignment: {source}", path.display())
            }
            Self::DaxAlignment { path, own, asked: Some(asked) } => {
                write!(f, "{}: the device has an alignment of {own}: {asked} is no multiple of it", path.display())
            }
            Self::DaxAlignment { path, own, asked: None } => {
                write!(f, "{}: the device has an alignment of {own}: 4K, 2M or 1G can be used", path.display())
            }
            Self::DaxTooSmall { path, needed, size } => {
                write!(f, "{}: the device has {size}, and {needed} were requested: request less", path.display())
            }
            Self::Memory(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for DeviceMemoryError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::DaxUnknown { source, .. } => Some(source),
            Self::Memory(error) => error.source(),
            _ => None,
        }
    }
}

impl From<MemoryError> for DeviceMemoryError {
    fn from(error: MemoryError) -> Self {
        Self::Memory(error)
    }
}

/// Why a device cannot be added to a platform for a range of frames, or removed from it. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AddDeviceError {
    /// The device does not have as many frames as the range.
    OtherSize {
        /// The range.
        range: PfnRange,
        /// The number of frames that the device has.
        frames: PageCount,
    },
    /// Some frames of the range already have bytes, from memory or from another device.
    Taken {
        /// The range.
        range: PfnRange,
        /// The range of the memory or the device that they belong to.
        by: PfnRange,
    },
    /// No device was added for exactly this range.
    NotThere(PfnRange),
    /// The device is mapped in the yard.
    Mapped {
        /// Its range.
        range: PfnRange,
    },
}

impl fmt::Display for AddDeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherSize { range, frames } => {
                write!(f, "{range} has {} frames, and the device has {}: both must be equal", range.count().0, frames.0)
            }
            Self::Taken { range, by } => write!(f, "{range}: {by} has its bytes already: choose frames beyond it"),
            Self::NotThere(range) => write!(f, "{range}: no device was added for exactly these frames"),
            Self::Mapped { range } => write!(f, "{range} is mapped in the yard: unmap the device first"),
        }
    }
}

impl std::error::Error for AddDeviceError {}
