//! [`Fault`]: why a call failed. [`Failure`]: the reasons that both interfaces have.

use core::fmt::{self, Write};

use frameyard::boot::BootError;
use frameyard::contig::BlockedBy;
use frameyard::devices::DeviceError;
use frameyard::page::ReferenceUnderflow;
use frameyard::policy::PolicyError;
use frameyard::units::{GeometryError, UnknownName};
use frameyard::validate::ValidateError;
use frameyard::{AllocError, FreeError, Order, Pfn};

use crate::shared::error::fy_error;
use crate::shared::facts::{alloc_facts, device_facts, free_facts, lock_status};
use crate::shared::sized::{self, SizeError};
use crate::shared::status::fy_status;
use crate::shared::status::fy_status::*;
use crate::shared::text_buffer::TextBuffer;

/// Why a call failed: the message, the status, and the facts for the caller's structure.
pub trait Fault: fmt::Display {
    /// The status that the call returns.
    fn status(&self) -> fy_status;

    /// Sets the members of the caller's structure that the fault knows, other than the status and the message.
    fn tell(&self, facts: &mut fy_error);
}

/// Why a call failed. Small, and without a heap: an error of a slow path passes through a few registers.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Failure {
    /// A pointer is null: the name of the argument.
    Null(&'static str),
    /// A structure with a size of its own cannot be read or written.
    Size(SizeError),
    /// The program was compiled with the header of this version, which is incompatible.
    Version(u32),
    /// An allocation failed.
    Alloc(AllocError),
    /// A free failed.
    Free(FreeError),
    /// A yard could not be made.
    Boot(BootError),
    /// Sizes of frames, sections and blocks that do not fit together.
    Geometry(GeometryError),
    /// The policy could not be changed.
    Policy(PolicyError),
    /// Validation failed.
    Validate(ValidateError),
    /// A device could not be mapped, changed or unmapped.
    Device(DeviceError),
    /// A page has fewer references than are released.
    Underflow(ReferenceUnderflow),
    /// Flags that do not exist.
    Flags(u32),
    /// No such node.
    Node(u32),
    /// A number of frames from a frame on that is no range.
    Range(u64, u64),
    /// More frames than an array can have.
    Array(usize),
    /// No policy has the name.
    UnknownPolicy(UnknownName),
    /// No such text.
    NoText(u32),
    /// No frame of the yard.
    NoFrame(Pfn),
    /// The frame has no bytes.
    NoBytes(Pfn),
    /// No frame of the yard has the byte at this address.
    NoFrameAt(usize),
    /// No frame is aligned to this order.
    Align(Order),
    /// An earlier call has failed inside the library.
    Unusable,
    /// A status and what there is to say.
    Other(fy_status, &'static str),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null(name) => write!(f, "{name} is null"),
            Self::Size(error) => error.fmt(f),
            Self::Version(version) => {
                let [_, major, minor, patch] = version.to_be_bytes();
                let own = env!("CARGO_PKG_VERSION");
                write!(f, "the program has the header of version {major}.{minor}.{patch}, the library is {own}")
            }
            Self::Alloc(error) => error.fmt(f),
            Self::Free(error) => error.fmt(f),
            Self::Boot(error) => error.fmt(f),
            Self::Geometry(error) => error.fmt(f),
            Self::Policy(error) => error.fmt(f),
            Self::Validate(error) => error.fmt(f),
            Self::Device(error) => error.fmt(f),
            Self::Underflow(error) => error.fmt(f),
            Self::Flags(bits) => {
                let unknown = bits & !frameyard::Gfp::from_bits_truncate(*bits).bits();
                write!(f, "flags {bits:#x}: {unknown:#x} does not exist, use FY_GFP_*")
            }
            Self::Node(node) => write!(f, "node {node} does not exist"),
            Self::Range(start, count) => write!(f, "{count} frames from {start:#x} are no range of frames"),
            Self::Array(count) => write!(f, "no array has {count} frames"),
            Self::UnknownPolicy(error) => write!(f, "the policy: {error}"),
            Self::NoText(text) => write!(f, "text {text} does not exist: use FY_TEXT_*"),
            Self::NoFrame(pfn) => write!(f, "{pfn} is no frame of the yard"),
            Self::NoBytes(pfn) => write!(f, "{pfn} has no bytes in this process"),
            Self::NoFrameAt(address) => write!(f, "no frame of the yard is at {address:#x}"),
            Self::Align(order) => write!(f, "no frame is aligned to {order}"),
            Self::Unusable => f.write_str("an earlier call failed inside the library: destroy the yard"),
            Self::Other(_, message) => f.write_str(message),
        }
    }
}

macro_rules! from_errors {
    ($($error:ty => $variant:ident),+ $(,)?) => {$(
        impl From<$error> for Failure {
            #[cold]
            fn from(error: $error) -> Self {
                Self::$variant(error)
            }
        }
    )+};
}

from_errors!(
    SizeError => Size,
    AllocError => Alloc,
    FreeError => Free,
    BootError => Boot,
    GeometryError => Geometry,
    PolicyError => Policy,
    ValidateError => Validate,
    DeviceError => Device,
    ReferenceUnderflow => Underflow,
    UnknownName => UnknownPolicy,
);

impl Fault for Failure {
    fn status(&self) -> fy_status {
        match self {
            Self::Null(_) => FY_NULL_POINTER,
            Self::Size(SizeError::Null(_)) => FY_NULL_POINTER,
            Self::Size(_) => FY_BAD_SIZE,
            Self::Version(_) => FY_BAD_VERSION,
            Self::Alloc(error) => alloc_status(error),
            Self::Free(error) => free_status(error),
            Self::Boot(error) => boot_status(error),
            Self::Policy(error) => policy_status(error),
            Self::Validate(ValidateError::Lock(error)) => lock_status(*error).0,
            Self::Validate(_) => FY_INVALID,
            Self::Device(error) => device_status(error),
            Self::Underflow(_) => FY_NOT_COUNTED,
            Self::Flags(_) => FY_BAD_FLAGS,
            Self::Node(_) => FY_NO_SUCH_NODE,
            Self::Range(..) | Self::Array(_) | Self::Geometry(_) | Self::NoText(_) | Self::Align(_) => FY_BAD_ARGUMENT,
            Self::UnknownPolicy(_) => FY_UNKNOWN_POLICY,
            Self::NoFrame(_) | Self::NoFrameAt(_) => FY_BAD_FRAME,
            Self::NoBytes(_) => FY_NO_FRAME_BYTES,
            Self::Unusable => FY_PANICKED,
            Self::Other(status, _) => *status,
        }
    }

    fn tell(&self, facts: &mut fy_error) {
        tell(self, facts);
    }
}

/// The status of an error at boot.
#[must_use]
pub fn boot_status(error: &BootError) -> fy_status {
    match error {
        BootError::PolicyNotBuilt(_) => FY_NOT_SUPPORTED,
        _ => FY_BAD_ARGUMENT,
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
        AllocError::InUse { .. } => FY_IN_USE,
        AllocError::Blocked(blocker) => match blocker.why {
            BlockedBy::Hole | BlockedBy::Device => FY_BAD_FRAME,
            BlockedBy::Busy => FY_BUSY,
            BlockedBy::OutOfMemory => FY_OUT_OF_MEMORY,
            _ => FY_IN_USE,
        },
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
        OrderTooLarge { .. } => FY_BAD_ORDER,
        _ => FY_BAD_FRAME,
    }
}

/// The status of an error of a device.
#[must_use]
pub fn device_status(error: &DeviceError) -> fy_status {
    use DeviceError::*;
    match error {
        Lock(error) => lock_status(*error).0,
        OutsideDeviceSpace { .. } | IsMemory { .. } | NotDevice(_) | NotHead { .. } => FY_BAD_FRAME,
        Overlaps { .. } | InUse { .. } | Mapped { .. } => FY_IN_USE,
        OrderTooLarge { .. } => FY_BAD_ORDER,
        NoSuchNode(_) => FY_NO_SUCH_NODE,
        TooManyDevices(_) => FY_OUT_OF_MEMORY,
        NoMapMemory(_) => FY_NO_HOST_MEMORY,
        NoMapInDevice(_) | ContentNotZero { .. } | BasePages(_) | LayoutCannotSplit(_) => FY_NOT_SUPPORTED,
        WorkerPanicked => FY_SYSTEM,
        NoSuchDevice(_) => FY_NO_SUCH_DEVICE,
        Busy(_) => FY_BUSY,
        NotMapped(_) => FY_NOT_COUNTED,
        _ => FY_BAD_ARGUMENT,
    }
}

fn policy_status(error: &PolicyError) -> fy_status {
    match error {
        PolicyError::Lock(error) => lock_status(*error).0,
        PolicyError::NotBuilt(_) | PolicyError::OtherStore { .. } => FY_NOT_SUPPORTED,
        _ => FY_BUSY,
    }
}

/// Sets the members that a failure knows.
fn tell(failure: &Failure, facts: &mut fy_error) {
    match failure {
        Failure::Alloc(error) => alloc_facts(error, facts),
        Failure::Free(error) => free_facts(error, facts),
        Failure::Policy(PolicyError::Lock(error)) | Failure::Validate(ValidateError::Lock(error)) => {
            facts.process = lock_status(*error).1;
        }
        Failure::Device(error) => device_facts(error, facts),
        Failure::NoFrame(pfn) | Failure::NoBytes(pfn) | Failure::Underflow(ReferenceUnderflow { pfn, .. }) => {
            facts.frame = pfn.0;
        }
        Failure::Node(node) => facts.node = *node,
        _ => {}
    }
}

/// Fills the caller's structure, if there is one, and returns the status.
///
/// # Safety
///
/// `error` is null or points to as many writable bytes as the size there says.
#[cold]
#[inline(never)]
pub unsafe fn report(error: *mut fy_error, fault: &dyn Fault) -> fy_status {
    let status = fault.status();
    if !error.is_null() {
        let mut value = fy_error { status: status as i32, ..fy_error::new() };
        fault.tell(&mut value);
        let mut text = TextBuffer::of(&mut value.message);
        let _ = write!(text, "{fault}");
        text.finish();
        // A structure with an impossible size is left alone: the status of the call is what the caller must know.
        // SAFETY: passed on to the caller.
        let _ = unsafe { sized::write(error, &value) };
    }
    status
}
