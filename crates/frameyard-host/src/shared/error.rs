//! Errors of memory files.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::PathBuf;

use super::header::HeaderError;
use crate::memory::MemoryError;

/// The environment variable that tells an executed program the descriptor of the memory file.
pub(super) const VARIABLE: &str = "FRAMEYARD_MEMORY_FILE";

/// Why a memory file cannot be created or attached.
#[derive(Debug)]
#[non_exhaustive]
pub enum SharedFileError {
    /// The environment names no memory file: the program was not started by one that has announced a file.
    NotInherited,
    /// The environment variable does not contain the number of a descriptor.
    NotADescriptor(OsString),
    /// The descriptor is not open, or cannot be read.
    Descriptor {
        /// Its number.
        fd: u32,
        /// The system's error.
        source: io::Error,
    },
    /// The file has no valid header.
    Header(HeaderError),
    /// The memory of the file is not available.
    Memory(MemoryError),
    /// The process cannot take a place among those that have the file attached, because it cannot open the file again
    /// or cannot lock a byte of it.
    Place(io::Error),
    /// The maximum number of processes have the file attached.
    TooManyProcesses(usize),
    /// No process has a yard with this name.
    NoSuchName(PathBuf),
    /// A living process has a yard with this name.
    NameInUse(PathBuf),
    /// The file of a named yard cannot be created, opened or linked.
    Name {
        /// The path of the file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl fmt::Display for SharedFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotInherited => write!(f, "{VARIABLE} is not set: this program was not started on a memory file"),
            Self::NotADescriptor(value) => write!(f, "{VARIABLE}={}: not a descriptor number", value.display()),
            Self::Descriptor { fd, source } => write!(f, "descriptor {fd}: cannot use it as a memory file: {source}"),
            Self::Header(error) => error.fmt(f),
            Self::Memory(error) => error.fmt(f),
            Self::Place(source) => write!(f, "cannot open and lock the memory file as a process of its own: {source}"),
            Self::TooManyProcesses(max) => {
                write!(f, "{max} processes have the memory file attached, the maximum: end one first")
            }
            Self::NoSuchName(path) => {
                write!(f, "{}: no process has a shared yard of this name: create it first", path.display())
            }
            Self::NameInUse(path) => {
                write!(
                    f,
                    "{}: a running process has a shared yard of this name: open it or choose another",
                    path.display()
                )
            }
            Self::Name { path, source } => write!(f, "{}: cannot use it for a shared yard: {source}", path.display()),
        }
    }
}

impl std::error::Error for SharedFileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Descriptor { source, .. } | Self::Place(source) | Self::Name { source, .. } => Some(source),
            Self::Memory(error) => error.source(),
            _ => None,
        }
    }
}

impl From<MemoryError> for SharedFileError {
    fn from(error: MemoryError) -> Self {
        Self::Memory(error)
    }
}

impl From<HeaderError> for SharedFileError {
    fn from(error: HeaderError) -> Self {
        Self::Header(error)
    }
}
