//! Why the page structures of a device cannot be had as asked for.

use std::fmt;
use std::io;
use std::time::Duration;

use frameyard::ByteSize;
use frameyard::devices::DeviceError;

/// Why the host has no memory of the kind that was asked for behind the page structures of a device.
#[derive(Debug)]
#[non_exhaustive]
pub enum DeviceMapProblem {
    /// The system refused one step.
    Host {
        /// What was tried, as in "populate page structures".
        action: &'static str,
        /// For how much.
        size: ByteSize,
        /// What the system says.
        source: io::Error,
    },
    /// The structures begin within a page of the host.
    NotWholePages {
        /// How many bytes they have.
        size: ByteSize,
    },
    /// No device with bytes was given to the platform for the frames that are to hold the structures.
    NoDevice,
    /// Devices of a shared yard cannot hold their own page structures.
    SharedYard,
    /// A process would have more mappings than it may.
    Mappings {
        /// The process.
        process: u32,
        /// How many it may have (`vm.max_map_count`).
        limit: u64,
        /// How many it has.
        used: u64,
        /// How many more there would be.
        needed: u64,
    },
    /// A process that has the yard attached did not change its view of the memory map.
    NoAnswer {
        /// The process.
        process: u32,
        /// How long it was waited for.
        waited: Duration,
    },
    /// A process that has the yard attached could not change its view of the memory map.
    Refused {
        /// The process.
        process: u32,
        /// What the system told it.
        source: io::Error,
    },
    /// A process has been changing the views of all processes for too long.
    Changing {
        /// The process.
        process: u32,
        /// How long it was waited for.
        waited: Duration,
    },
    /// As many views of a shared yard are open as there can be.
    TooManyViews(usize),
    /// The memory file has room for so many devices with shared tails.
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
                write!(f, "page structures of {size} do not begin with a page of the host: map ranges that begin at multiples of 2M")
            }
            Self::NoDevice => f.write_str(
                "no device with bytes holds those frames: give the platform one, or place the page structures in memory",
            ),
            Self::SharedYard => f.write_str(
                "devices of a shared yard cannot hold their own page structures: place them in memory",
            ),
            Self::Mappings { process, limit, used, needed } => write!(
                f,
                "process {process} has {used} mappings and would need {needed} more, and vm.max_map_count is {limit}: set it to {} at least, or take the folded layout, which needs none of them",
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
            Self::TooManyViews(max) => write!(f, "{max} views of the shared yard are open, as many as can be: close one first"),
            Self::TooManyDevices(max) => {
                write!(f, "{max} devices with shared tails are mapped, as many as a shared yard can have: remove one first")
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

/// Why a device is not mapped, or a page of it not split.
#[derive(Debug)]
#[non_exhaustive]
pub enum HostDeviceError {
    /// The yard does not.
    Yard(DeviceError),
    /// The host does not provide the page structures' memory.
    Map {
        /// What the yard says.
        error: DeviceError,
        /// Why.
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
        // Each prints as what it holds, so what comes next is the source of that.
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
