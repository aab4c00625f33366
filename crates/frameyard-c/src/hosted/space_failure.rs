//! [`SpaceFailure`]: why a call on an address space failed, and its status.

use std::fmt;

use crate::shared::fy_status::*;
use crate::shared::{Failure, Fault, device_status, fy_error, fy_status, lock_status};
use frameyard_vm::{ExitProblem, FaultError, MapError, PinError, ReleaseError, ReleaseProblem, VmError};

/// Why a call on an address space failed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SpaceFailure {
    /// A reason that calls on yards have, too.
    Common(Failure),
    /// A space could not be made.
    Vm(VmError),
    /// A range could not be mapped or unmapped.
    Map(MapError),
    /// An address could not be used.
    Fault(FaultError),
    /// Pages could not be pinned.
    Pin(PinError),
    /// Pages could not be released.
    Release(ReleaseError),
    /// A space could not be destroyed.
    Exit(ExitProblem),
}

impl fmt::Display for SpaceFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Common(failure) => failure.fmt(f),
            Self::Vm(error) => error.fmt(f),
            Self::Map(error) => error.fmt(f),
            Self::Fault(error) => error.fmt(f),
            Self::Pin(error) => error.fmt(f),
            Self::Release(error) => error.fmt(f),
            Self::Exit(problem) => problem.fmt(f),
        }
    }
}

macro_rules! from_errors {
    ($($error:ty => $variant:ident),+ $(,)?) => {$(
        impl From<$error> for SpaceFailure {
            #[cold]
            fn from(error: $error) -> Self {
                Self::$variant(error)
            }
        }
    )+};
}

from_errors!(
    Failure => Common,
    VmError => Vm,
    MapError => Map,
    FaultError => Fault,
    PinError => Pin,
    ReleaseError => Release,
    ExitProblem => Exit,
);

impl Fault for SpaceFailure {
    fn status(&self) -> fy_status {
        match self {
            Self::Common(failure) => failure.status(),
            Self::Vm(error) => vm_status(error),
            Self::Map(error) => map_status(error),
            Self::Fault(error) => fault_status(error),
            Self::Pin(error) => pin_status(error),
            Self::Release(error) => match &error.problem {
                ReleaseProblem::Underflow(_) => FY_NOT_COUNTED,
                ReleaseProblem::Vm(error) => vm_status(error),
                _ => FY_BAD_FRAME,
            },
            Self::Exit(ExitProblem::Vm(error)) => vm_status(error),
            Self::Exit(_) => FY_BUSY,
        }
    }

    fn tell(&self, facts: &mut fy_error) {
        match self {
            Self::Common(failure) => failure.tell(facts),
            Self::Vm(error)
            | Self::Map(MapError::Vm(error))
            | Self::Fault(FaultError::Vm(error))
            | Self::Pin(PinError::Vm(error) | PinError::Fault(FaultError::Vm(error)))
            | Self::Exit(ExitProblem::Vm(error)) => tell_vm(error, facts),
            Self::Pin(PinError::NoPage { pfn, .. } | PinError::NotMoved { pfn, .. }) => facts.frame = pfn.0,
            Self::Release(error) => facts.frame = error.pfn.0,
            _ => {}
        }
    }
}

/// The status of an error that all parts of address spaces share.
fn vm_status(error: &VmError) -> fy_status {
    match error {
        VmError::OutOfMemory(error) => Failure::Alloc(*error).status(),
        VmError::NoFrameBytes(_) => FY_NO_FRAME_BYTES,
        VmError::Free(error) => Failure::Free(*error).status(),
        VmError::Underflow(_) => FY_NOT_COUNTED,
        VmError::Device(error) => device_status(error),
        VmError::NotPooled(_) | VmError::NotThere => FY_BAD_FRAME,
        VmError::BeyondEntries(_) | VmError::BadConfig(_) => FY_NOT_SUPPORTED,
        VmError::InUse(_) => FY_IN_USE,
        VmError::Overflow(_) | VmError::AlreadyThere(_) | VmError::Stalled => FY_BUSY,
        VmError::Lock(error) => lock_status(*error).0,
        VmError::Damaged(_) => FY_DAMAGED,
        _ => FY_SYSTEM,
    }
}

fn tell_vm(error: &VmError, facts: &mut fy_error) {
    match error {
        VmError::OutOfMemory(error) => Failure::Alloc(*error).tell(facts),
        VmError::Free(error) => Failure::Free(*error).tell(facts),
        VmError::Device(error) => Failure::Device(*error).tell(facts),
        VmError::NoFrameBytes(pfn) | VmError::NotPooled(pfn) => facts.frame = pfn.0,
        VmError::Underflow(error) => facts.frame = error.pfn.0,
        VmError::Lock(error) => facts.process = lock_status(*error).1,
        _ => {}
    }
}

fn map_status(error: &MapError) -> fy_status {
    match error {
        MapError::Overlap(_) => FY_IN_USE,
        MapError::NotMapped(_) => FY_BAD_ADDRESS,
        MapError::NoRoom(_) => FY_OUT_OF_MEMORY,
        MapError::Moving(_) => FY_BUSY,
        MapError::Vm(error) => vm_status(error),
        _ => FY_BAD_ARGUMENT,
    }
}

fn fault_status(error: &FaultError) -> fy_status {
    match error {
        FaultError::NotMapped(_) | FaultError::ReadOnly(_) | FaultError::BehindFile(_) => FY_BAD_ADDRESS,
        FaultError::NoFrameBytes(_) => FY_NO_FRAME_BYTES,
        FaultError::Moving(_) => FY_BUSY,
        FaultError::Vm(error) => vm_status(error),
        _ => FY_SYSTEM,
    }
}

fn pin_status(error: &PinError) -> fy_status {
    match error {
        PinError::BadRange(_) | PinError::NoRoom => FY_BAD_ARGUMENT,
        PinError::Fault(error) => fault_status(error),
        PinError::NoPage { .. } => FY_BAD_FRAME,
        PinError::WritableFile(_) => FY_NOT_SUPPORTED,
        PinError::Vm(error) => vm_status(error),
        _ => FY_BUSY,
    }
}
