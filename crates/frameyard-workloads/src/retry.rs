//! Retrying accesses that fail because of other CPUs at work, or for lack of memory.

use std::error::Error;
use std::thread;

use frameyard_vm::{FaultError, FileError, MapError, VmError};

use crate::report::TaskProblem;

/// Whether the cause of an error passes.
pub(crate) enum Passing {
    /// There is no memory at present.
    Short,
    /// Another CPU is at work on the page, and may finish soon.
    Busy,
    /// The cause is permanent.
    Never,
}

/// An error that may have a passing cause.
pub(crate) trait MayPass: Error + Send + Sync + 'static {
    /// Whether the cause passes.
    fn passing(&self) -> Passing;
}

impl MayPass for VmError {
    fn passing(&self) -> Passing {
        match self {
            Self::OutOfMemory(_) => Passing::Short,
            Self::Stalled => Passing::Busy,
            _ => Passing::Never,
        }
    }
}

impl MayPass for FaultError {
    fn passing(&self) -> Passing {
        match self {
            Self::Moving(_) => Passing::Busy,
            Self::Vm(error) => error.passing(),
            _ => Passing::Never,
        }
    }
}

impl MayPass for MapError {
    fn passing(&self) -> Passing {
        match self {
            Self::Moving(_) => Passing::Busy,
            Self::Vm(error) => error.passing(),
            _ => Passing::Never,
        }
    }
}

impl MayPass for FileError {
    fn passing(&self) -> Passing {
        match self {
            Self::Vm(error) => error.passing(),
            _ => Passing::Never,
        }
    }
}

/// Repeats `access` while other CPUs keep it from finishing, at most `tries` times. `None` if there is no memory.
pub(crate) fn retry<T, E: MayPass>(
    tries: u32,
    mut access: impl FnMut() -> Result<T, E>,
) -> Result<Option<T>, TaskProblem> {
    let mut left = tries;
    loop {
        let error = match access() {
            Ok(value) => return Ok(Some(value)),
            Err(error) => error,
        };
        left -= 1;
        match error.passing() {
            Passing::Short => return Ok(None),
            Passing::Busy if left > 0 => thread::yield_now(),
            _ => return Err(error.into()),
        }
    }
}
