//! [`Failure`]: why a call failed, and its status.

use std::fmt;

use frameyard::boot::{AttachError, BootError};
use frameyard::platform::LockError;
use frameyard::policy::PolicyError;
use frameyard::validate::ValidateError;
use frameyard::{AllocError, FreeError};
use frameyard_host::{HostYardError, MemoryError, SharedFileError};

use crate::status::fy_status;
use crate::status::fy_status::*;

/// Why a call failed.
#[derive(Debug)]
pub(crate) enum Failure {
    Null(&'static str),
    Size {
        name: &'static str,
        size: usize,
        least: usize,
    },
    NewerHeader {
        name: &'static str,
        size: usize,
        known: usize,
    },
    Alloc(AllocError),
    Free(FreeError),
    Host(Box<HostYardError>),
    Policy(PolicyError),
    Validate(Box<ValidateError>),
    /// A status and a message of this crate.
    Other(fy_status, Box<str>),
}

impl Failure {
    /// A failure with a message of its own.
    #[cold]
    pub(crate) fn other(status: fy_status, message: fmt::Arguments<'_>) -> Self {
        Self::Other(status, message.to_string().into_boxed_str())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null(name) => write!(f, "{name} is null"),
            Self::Size { name, size, least } => {
                write!(f, "the size in {name} is {size}: set it to sizeof({name}), at least {least}")
            }
            Self::NewerHeader { name, size, known } => write!(
                f,
                "{name} has {size} bytes, this library knows {known} of them, and others are set: the header is newer than the library"
            ),
            Self::Alloc(error) => error.fmt(f),
            Self::Free(error) => error.fmt(f),
            Self::Host(error) => error.fmt(f),
            Self::Policy(error) => error.fmt(f),
            Self::Validate(error) => error.fmt(f),
            Self::Other(_, message) => f.write_str(message),
        }
    }
}

macro_rules! from_errors {
    ($($error:ty => $make:expr),+ $(,)?) => {$(
        impl From<$error> for Failure {
            #[cold]
            fn from(error: $error) -> Self {
                $make(error)
            }
        }
    )+};
}

from_errors!(
    AllocError => Self::Alloc,
    FreeError => Self::Free,
    PolicyError => Self::Policy,
    HostYardError => |error| Self::Host(Box::new(error)),
    ValidateError => |error| Self::Validate(Box::new(error)),
);

impl Failure {
    /// The status that the call returns.
    pub(crate) fn status(&self) -> fy_status {
        match self {
            Self::Null(_) => FY_NULL_POINTER,
            Self::Size { .. } | Self::NewerHeader { .. } => FY_BAD_SIZE,
            Self::Alloc(error) => alloc_status(error),
            Self::Free(error) => free_status(error),
            Self::Host(error) => host_status(error),
            Self::Policy(error) => policy_status(error),
            Self::Validate(error) => match **error {
                ValidateError::Lock(error) => lock_status(error).0,
                _ => FY_INVALID,
            },
            Self::Other(status, _) => *status,
        }
    }
}

/// The status of a lock's error, and the process that it names, or 0.
pub(crate) fn lock_status(error: LockError) -> (fy_status, u32) {
    match error {
        LockError::LockStuck { holder, .. } => (FY_BUSY, holder),
        LockError::HolderEnded { holder, .. } => (FY_DAMAGED, holder),
        LockError::Corrupt { .. } => (FY_DAMAGED, 0),
        LockError::SectionsNotEnded { .. } => (FY_SYSTEM, 0),
        _ => (FY_DAMAGED, 0),
    }
}

fn alloc_status(error: &AllocError) -> fy_status {
    match error {
        AllocError::OutOfMemory { .. } | AllocError::NoPlace { .. } => FY_OUT_OF_MEMORY,
        AllocError::OrderTooLarge { .. } | AllocError::CountTooLarge { .. } => FY_BAD_ORDER,
        AllocError::BadFlags(_) => FY_BAD_FLAGS,
        AllocError::NoSuchNode(_) => FY_NO_SUCH_NODE,
        AllocError::NoFrameBytes(_) => FY_NO_FRAME_BYTES,
        AllocError::NotOneZone(_) => FY_BAD_FRAME,
        AllocError::InUse { .. } | AllocError::Blocked(_) => FY_IN_USE,
        AllocError::Lock(error) => lock_status(*error).0,
        AllocError::Stalled(_) | AllocError::Taken => FY_BUSY,
        AllocError::NotInitialised(_) => FY_NO_HOST_MEMORY,
        AllocError::Poisoned { .. } => FY_WRITTEN_WHILE_FREE,
        _ => FY_BAD_ARGUMENT,
    }
}

fn free_status(error: &FreeError) -> fy_status {
    use frameyard::alloc::FreeProblem::*;
    match error.problem {
        AlreadyFree(_) => FY_ALREADY_FREE,
        OtherOrder { .. } | InsideBlock { .. } | PartOfBlock { .. } => FY_WRONG_ORDER,
        NotAllocated(_) => FY_NOT_ALLOCATED,
        Lock(error) => lock_status(error).0,
        _ => FY_BAD_FRAME,
    }
}

fn policy_status(error: &PolicyError) -> fy_status {
    match error {
        PolicyError::Lock(error) => lock_status(*error).0,
        PolicyError::NotBuilt(_) => FY_NOT_SUPPORTED,
        _ => FY_BUSY,
    }
}

fn host_status(error: &HostYardError) -> fy_status {
    match error {
        HostYardError::Boot(BootError::PolicyNotBuilt(_)) | HostYardError::Rseq(_) => FY_NOT_SUPPORTED,
        HostYardError::Memory(error) => memory_status(error),
        HostYardError::File(error) => file_status(error),
        HostYardError::Attach(AttachError::OtherSections) => FY_NOT_SUPPORTED,
        HostYardError::Attach(_) => FY_BAD_FILE,
        HostYardError::Lock(error @ LockError::LockStuck { .. }) => lock_status(*error).0,
        HostYardError::Lock(_) => FY_DAMAGED,
        HostYardError::Devices(_) => FY_SYSTEM,
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
