//! Errors of the page structures of devices.

use std::fmt;
use std::io;
use std::time::Duration;

use frameyard::ByteSize;
use frameyard::devices::DeviceError;

/// Why the host cannot provide suitable memory for the page structures of a device.
#[derive(Debug)]
#[non_exhaustive]
pub enum DeviceMapProblem {
    /// The system refused a step.
    Host {
        /// The step, such as "populate page structures".
        action: &'static str,
        /// The size of the memory.
        size: ByteSize,
        /// The system's error.
        source: io::Error,
    },
    /// The page structures do not start on a host page.
    NotWholePages {
        /// Their size.
        size: ByteSize,
    },
    /// The frames that should hold the page structures have no bytes, because no device was added to the platform for
    /// them.
    NoDevice,
    /// In a shared yard a device cannot hold its own page structures.
    SharedYard,
    /// A process would exceed its limit of mappings.
    Mappings {
        /// The process.
        process: u32,
        /// The limit (`vm.max_map_count`).
        limit: u64,
        /// The number of mappings that it has now.
        used: u64,
        /// The number of further mappings that it needs.
        needed: u64,
    },
    /// Another process that uses the yard did not change its view of the memory map in time.
    NoAnswer {
        /// The process.
        process: u32,
        /// The time spent waiting for it.
        waited: Duration,
    },
    /// Another process that uses the yard could not change its view of the memory map.
    Refused {
        /// The process.
        process: u32,
        /// The system's error in that process.
        source: io::Error,
    },
    /// Another process has held the right to change views for too long.
    Changing {
        /// The process.
        process: u32,
        /// The time spent waiting for it.
        waited: Duration,
    },
    /// The shared yard already has the maximum number of views.
    TooManyViews(usize),
    /// The shared yard already has the maximum number of devices with deduplicated tails.
    TooManyDevices(usize),
}

impl DeviceMapProblem {
    pub(crate) fn host(action: &'static str, size: ByteSize, source: io::Error) -> Self {
        Self::Host { action, size, source }
    }
}

impl fmt::Display for DeviceMapProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host { action, size, source } => write!(f, "cannot {action} of {size}: {source}"),
            Self::NotWholePages { size } => {
                write!(f, "page structures of {size} do not start on a host page: map ranges that start at multiples of 2M")
            }
            Self::NoDevice => f.write_str(
                "no device with bytes has those frames: add one to the platform, or place the page structures in memory",
            ),
            Self::SharedYard => f.write_str(
                "devices of a shared yard cannot hold their own page structures: place them in memory",
            ),
            Self::Mappings { process, limit, used, needed } => write!(
                f,
                "process {process} has {used} mappings and needs {needed} more, and vm.max_map_count is {limit}: set it to at least {}, or use the folded layout, which needs none",
                used + needed
            ),
            Self::NoAnswer { process, waited } => write!(
                f,
                "process {process} has the yard attached and did not change its view of the memory map within {} ms: let it run or end it",
                waited.as_millis()
            ),
            Self::Refused { process, source } => {
                write!(f, "process {process} has the yard attached and cannot change its view of the memory map: {source}")
            }
            Self::Changing { process, waited } => write!(
                f,
                "process {process} has been changing the views of the memory map for {} ms: try again, or end it",
                waited.as_millis()
            ),
            Self::TooManyViews(max) => write!(f, "the shared yard has {max} views, the maximum: close one first"),
            Self::TooManyDevices(max) => {
                write!(f, "the shared yard has {max} devices with deduplicated tails, the maximum: remove one first")
            }
        }
    }
}

impl std::error::Error for DeviceMapProblem {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Host { source, .. } | Self::Refused { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// Why a device was not mapped, or a page of it was not split.
#[derive(Debug)]
#[non_exhaustive]
pub enum HostDeviceError {
    /// The yard refused.
    Yard(DeviceError),
    /// The host has no memory for the page structures.
    Map {
        /// The error of the yard.
        error: DeviceError,
        /// The host's reason.
        problem: DeviceMapProblem,
    },
}

impl fmt::Display for HostDeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Yard(error) => error.fmt(f),
            Self::Map { error, problem } => write!(f, "{error}: {problem}"),
        }
    }
}

impl std::error::Error for HostDeviceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // Each variant prints as the error inside it, so the next in the chain is the source of that error.
        match self {
            Self::Yard(_) => None,
            Self::Map { problem, .. } => problem.source(),
        }
    }
}

impl From<DeviceError> for HostDeviceError {
    fn from(error: DeviceError) -> Self {
        Self::Yard(error)
    }
}
