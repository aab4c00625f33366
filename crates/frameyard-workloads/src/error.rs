//! Why a run of a workload failed.

use std::error::Error;
use std::fmt;

/// A failed run, with the error that caused it.
#[derive(Debug)]
pub enum WorkloadError {
    /// The yard or the options cannot serve this workload. The caller can change them.
    Input(Box<dyn Error + Send + Sync>),
    /// The yard, the host or a check failed during the run.
    RunTime(Box<dyn Error + Send + Sync>),
}

impl WorkloadError {
    /// An error of the caller's input.
    pub fn input(reason: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Input(reason.into())
    }

    /// An error during the run.
    pub fn run_time(reason: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::RunTime(reason.into())
    }

    fn reason(&self) -> &(dyn Error + Send + Sync + 'static) {
        match self {
            Self::Input(reason) | Self::RunTime(reason) => &**reason,
        }
    }
}

impl fmt::Display for WorkloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.reason(), f)
    }
}

impl Error for WorkloadError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.reason().source()
    }
}
