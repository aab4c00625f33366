//! Why a device cannot be had, or not be given to a platform.

use std::fmt;
use std::io;
use std::path::PathBuf;

use frameyard::{ByteSize, PageCount, PfnRange};

use super::DeviceAlignment;
use crate::memory::MemoryError;

/// Why a [`DeviceMemory`](crate::DeviceMemory) cannot be had. Nothing is left mapped.
#[derive(Debug)]
#[non_exhaustive]
pub enum DeviceMemoryError {
    /// The size is no multiple of the alignment, or zero.
    Size {
        /// The size asked for.
        size: ByteSize,
        /// The alignment.
        alignment: DeviceAlignment,
        /// The largest size below it that would do, if there is one.
        below: Option<ByteSize>,
        /// The smallest size above it that would do, if there is one.
        above: Option<ByteSize>,
    },
    /// What a path names is no DAX device.
    NotDax(PathBuf),
    /// The system does not say how large or how aligned a DAX device is.
    DaxUnknown {
        /// The device.
        path: PathBuf,
        /// What could not be read.
        source: io::Error,
    },
    /// A DAX device was made with an alignment that the one asked for is no multiple of.
    DaxAlignment {
        /// The device.
        path: PathBuf,
        /// Its own alignment.
        own: ByteSize,
        /// The one asked for; `None` where the device's own was.
        asked: Option<DeviceAlignment>,
    },
    /// A DAX device is smaller than asked for.
    DaxTooSmall {
        /// The device.
        path: PathBuf,
        /// What was asked for.
        needed: ByteSize,
        /// What it has.
        size: ByteSize,
    },
    /// Its memory or file cannot be had.
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
                write!(f, "{}: the system does not say its size and alignment: {source}", path.display())
            }
            Self::DaxAlignment { path, own, asked: Some(asked) } => {
                write!(f, "{}: the device has an alignment of {own}: {asked} is no multiple of it", path.display())
            }
            Self::DaxAlignment { path, own, asked: None } => {
                write!(f, "{}: the device has an alignment of {own}: 4K, 2M or 1G can be used", path.display())
            }
            Self::DaxTooSmall { path, needed, size } => {
                write!(f, "{}: the device has {size} and {needed} are asked for: ask for less", path.display())
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

/// Why a device cannot be given to a platform for a range of frames, or not be taken back. Nothing has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AddDeviceError {
    /// The device has more or fewer frames than the range.
    OtherSize {
        /// The range.
        range: PfnRange,
        /// How many frames the device has.
        frames: PageCount,
    },
    /// Frames of the range have bytes already: memory, or another device.
    Taken {
        /// The range.
        range: PfnRange,
        /// The range of memory or of the device that has them.
        by: PfnRange,
    },
    /// No device was given for exactly this range.
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
                write!(f, "{range} has {} frames and the device {}: both must have as many", range.count().0, frames.0)
            }
            Self::Taken { range, by } => write!(f, "{range}: {by} has its bytes already: choose frames beyond it"),
            Self::NotThere(range) => write!(f, "{range}: no device was given for just these frames"),
            Self::Mapped { range } => write!(f, "{range} is mapped in the yard: unmap the device first"),
        }
    }
}

impl std::error::Error for AddDeviceError {}
