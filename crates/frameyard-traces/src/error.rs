//! What is wrong with a recording.

use std::fmt;
use std::io;

/// Why a recording was not read or written to its end.
#[derive(Debug)]
#[non_exhaustive]
pub enum TraceError {
    /// The source or the output failed.
    Io(io::Error),
    /// A part of a file of this crate's format is damaged.
    Corrupt {
        /// Bytes before it.
        offset: u64,
    },
    /// The zstd compression around a recording is damaged.
    Compression(String),
    /// A line is none of a recording.
    Line {
        /// Its number, from 1.
        number: u64,
        /// What is wrong.
        problem: String,
    },
    /// The file is not what LLFree writes.
    Llfree(&'static str),
    /// An event does not fit the format of an export.
    Export(String),
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Corrupt { offset } => write!(f, "the file is damaged from byte {offset} on"),
            Self::Compression(problem) => write!(f, "the zstd compression is damaged: {problem}"),
            Self::Line { number, problem } => write!(f, "line {number}: {problem}"),
            Self::Llfree(problem) => write!(f, "no trace of LLFree: {problem}"),
            Self::Export(problem) => f.write_str(problem),
        }
    }
}

impl std::error::Error for TraceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for TraceError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}
