//! [`HostFailure`]: why a call failed that the core knows nothing of, and its status.

use std::fmt;

use crate::shared::{Failure, Fault, boot_status, device_facts, device_status, fy_error, fy_status, lock_status};
use frameyard::boot::{AttachError, BootError};
use frameyard::platform::LockError;
use frameyard_host::{
    AddDeviceError, DeviceMapProblem, DeviceMemoryError, HostDeviceError, HostYardError, MemoryError, SharedFileError,
};

use frameyard_vm::VmValidateError;
use fy_status::*;

/// Why a call failed.
#[derive(Debug)]
pub enum HostFailure {
    /// A reason that both interfaces have.
    Common(Failure),
    /// A yard could not be made.
    Host(Box<HostYardError>),
    /// A device could not be mapped or changed.
    Device(Box<HostDeviceError>),
    /// The bytes of a device are not available.
    DeviceMemory(Box<DeviceMemoryError>),
    /// Bytes were not added to frames, or not taken away.
    AddDevice(AddDeviceError),
    /// An equation of address spaces does not hold.
    Spaces(VmValidateError),
    /// A status and a message of this crate.
    Other(fy_status, Box<str>),
}

impl HostFailure {
    /// A failure with a message of its own.
    #[cold]
    pub(crate) fn other(status: fy_status, message: fmt::Arguments<'_>) -> Self {
        Self::Other(status, message.to_string().into_boxed_str())
    }
}

impl fmt::Display for HostFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Common(failure) => failure.fmt(f),
            Self::Host(error) => error.fmt(f),
            Self::Device(error) => error.fmt(f),
            Self::DeviceMemory(error) => error.fmt(f),
            Self::AddDevice(error) => error.fmt(f),
            Self::Spaces(error) => error.fmt(f),
            Self::Other(_, message) => f.write_str(message),
        }
    }
}

impl From<Failure> for HostFailure {
    #[cold]
    fn from(failure: Failure) -> Self {
        Self::Common(failure)
    }
}

impl From<HostYardError> for HostFailure {
    #[cold]
    fn from(error: HostYardError) -> Self {
        Self::Host(Box::new(error))
    }
}

impl From<HostDeviceError> for HostFailure {
    #[cold]
    fn from(error: HostDeviceError) -> Self {
        Self::Device(Box::new(error))
    }
}

impl From<DeviceMemoryError> for HostFailure {
    #[cold]
    fn from(error: DeviceMemoryError) -> Self {
        Self::DeviceMemory(Box::new(error))
    }
}

impl From<VmValidateError> for HostFailure {
    #[cold]
    fn from(error: VmValidateError) -> Self {
        Self::Spaces(error)
    }
}

impl From<AddDeviceError> for HostFailure {
    #[cold]
    fn from(error: AddDeviceError) -> Self {
        Self::AddDevice(error)
    }
}

impl Fault for HostFailure {
    fn status(&self) -> fy_status {
        match self {
            Self::Common(failure) => failure.status(),
            Self::Host(error) => host_status(error),
            Self::Device(error) => host_device_status(error),
            Self::DeviceMemory(error) => device_memory_status(error),
            Self::AddDevice(error) => add_device_status(error),
            Self::Spaces(VmValidateError::Lock(error)) => lock_status(*error).0,
            Self::Spaces(VmValidateError::Damaged(_)) => FY_DAMAGED,
            Self::Spaces(_) => FY_INVALID,
            Self::Other(status, _) => *status,
        }
    }

    fn tell(&self, facts: &mut fy_error) {
        match self {
            Self::Common(failure) => failure.tell(facts),
            Self::Host(error) => match &**error {
                HostYardError::Lock(error) => facts.process = lock_status(*error).1,
                error => facts.system = system_error(error),
            },
            Self::Device(error) => {
                if let HostDeviceError::Yard(of_yard) | HostDeviceError::Map { error: of_yard, .. } = &**error {
                    device_facts(of_yard, facts);
                }
                facts.system = system_error(&**error);
            }
            Self::DeviceMemory(error) => facts.system = system_error(&**error),
            Self::AddDevice(error) => match error {
                AddDeviceError::Taken { by: range, .. }
                | AddDeviceError::NotThere(range)
                | AddDeviceError::Mapped { range }
                | AddDeviceError::OtherSize { range, .. } => facts.frame = range.start.0,
                _ => {}
            },
            Self::Spaces(VmValidateError::Lock(error)) => facts.process = lock_status(*error).1,
            Self::Spaces(VmValidateError::Frame { pfn, .. }) => facts.frame = pfn.0,
            Self::Spaces(_) | Self::Other(..) => {}
        }
    }
}

/// The number of the operating system's error at the end of a chain of errors, or 0.
fn system_error(error: &(dyn std::error::Error + 'static)) -> i32 {
    std::iter::successors(Some(error), |error| error.source())
        .find_map(|error| error.downcast_ref::<std::io::Error>()?.raw_os_error())
        .unwrap_or(0)
}

fn host_status(error: &HostYardError) -> fy_status {
    match error {
        HostYardError::Boot(error @ BootError::PolicyNotBuilt(_)) => boot_status(error),
        HostYardError::Rseq(_) | HostYardError::Setting { .. } => FY_NOT_SUPPORTED,
        HostYardError::Memory(error) => memory_status(error),
        HostYardError::File(error) => file_status(error),
        HostYardError::Attach(AttachError::OtherSequences) => FY_NOT_SUPPORTED,
        HostYardError::Attach(_) => FY_BAD_FILE,
        HostYardError::Lock(error @ LockError::LockStuck { .. }) => lock_status(*error).0,
        HostYardError::Lock(_) => FY_DAMAGED,
        HostYardError::Devices(_) => FY_SYSTEM,
        _ => FY_BAD_ARGUMENT,
    }
}

fn host_device_status(error: &HostDeviceError) -> fy_status {
    match error {
        HostDeviceError::Yard(error) => device_status(error),
        HostDeviceError::Map { problem, .. } => match problem {
            DeviceMapProblem::NotWholePages { .. } => FY_BAD_ARGUMENT,
            DeviceMapProblem::NoDevice | DeviceMapProblem::SharedYard => FY_NOT_SUPPORTED,
            DeviceMapProblem::TooManyViews(_) | DeviceMapProblem::TooManyDevices(_) => FY_OUT_OF_MEMORY,
            DeviceMapProblem::NoAnswer { .. } | DeviceMapProblem::Changing { .. } => FY_BUSY,
            _ => FY_NO_HOST_MEMORY,
        },
        _ => FY_SYSTEM,
    }
}

fn device_memory_status(error: &DeviceMemoryError) -> fy_status {
    match error {
        DeviceMemoryError::Memory(error) => memory_status(error),
        DeviceMemoryError::DaxUnknown { .. } => FY_SYSTEM,
        _ => FY_BAD_ARGUMENT,
    }
}

fn add_device_status(error: &AddDeviceError) -> fy_status {
    match error {
        AddDeviceError::Taken { .. } | AddDeviceError::NotThere(_) => FY_BAD_FRAME,
        AddDeviceError::Mapped { .. } => FY_IN_USE,
        _ => FY_BAD_ARGUMENT,
    }
}

fn memory_status(error: &MemoryError) -> fy_status {
    use MemoryError::*;
    match error {
        LargerThanHost { .. } | LargerThanHostNode { .. } | NotAvailable { .. } | AddressSpace { .. } | Hugetlb(_) => {
            FY_NO_HOST_MEMORY
        }
        Nothing | EmptyRange(_) | Overlap { .. } | AddressOverflow(_) => FY_BAD_ARGUMENT,
        _ => FY_SYSTEM,
    }
}

fn file_status(error: &SharedFileError) -> fy_status {
    match error {
        SharedFileError::NameInUse(_) => FY_NAME_IN_USE,
        SharedFileError::NoSuchName(_) => FY_NO_SUCH_NAME,
        SharedFileError::Header(_) => FY_BAD_FILE,
        SharedFileError::Memory(error) => memory_status(error),
        SharedFileError::TooManyProcesses(_) => FY_BUSY,
        _ => FY_SYSTEM,
    }
}
