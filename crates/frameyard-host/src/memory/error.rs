//! Errors of memory for frames and regions.

use std::fmt;
use std::io;
use std::path::PathBuf;

use frameyard::{ByteSize, NodeId, Pfn, PfnRange};

use crate::hugetlb::HugetlbShortage;
use crate::topology::TopologyError;

/// Why memory for frames or for a region is not available. Nothing stays mapped.
#[derive(Debug)]
#[non_exhaustive]
pub enum MemoryError {
    /// The request has no frames, or it is for a region of 0 bytes.
    Nothing,
    /// A range of frames ends at or before its start.
    EmptyRange(PfnRange),
    /// Two ranges of frames overlap.
    Overlap {
        /// The range that starts first.
        first: PfnRange,
        /// The range that starts inside it.
        second: PfnRange,
    },
    /// These frames lie beyond the last 64-bit address.
    AddressOverflow(PfnRange),
    /// The frames need more memory than this process may use.
    LargerThanHost {
        /// The size of the frames.
        needed: ByteSize,
        /// The memory that this process may use.
        usable: ByteSize,
    },
    /// The frames bound to one node of the host need more memory than that node has.
    LargerThanHostNode {
        /// The node of the host.
        host_node: NodeId,
        /// The size of the frames bound to it.
        needed: ByteSize,
        /// The memory of the node.
        memory: ByteSize,
    },
    /// Pre-faulting would need more memory than is available now.
    NotAvailable {
        /// The memory that the frames still need.
        needed: ByteSize,
        /// The memory that can be used now without swapping.
        available: ByteSize,
    },
    /// The process has no free range of addresses that is long enough. Frames need one from the first to the last,
    /// including the holes between them.
    AddressSpace {
        /// The length of the range.
        span: ByteSize,
    },
    /// The host has too few free huge pages, or none of that size.
    Hugetlb(HugetlbShortage),
    /// A file cannot be opened.
    FileOpen {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The path is not that of a regular file.
    NotRegularFile(PathBuf),
    /// Another process or yard has the file locked.
    FileInUse(PathBuf),
    /// The file is smaller than the frames, and it must not grow.
    FileTooSmall {
        /// The file.
        path: PathBuf,
        /// The size of the frames.
        needed: ByteSize,
        /// The size of the file.
        size: ByteSize,
    },
    /// The file system has no room for the frames.
    FileSystemFull {
        /// The file.
        path: PathBuf,
        /// The room that the frames need beyond the blocks that the file already has.
        needed: ByteSize,
        /// The room that is left.
        available: ByteSize,
    },
    /// The system refused a step.
    System {
        /// The step, as in "map anonymous memory".
        action: &'static str,
        /// The size of the memory.
        size: ByteSize,
        /// The system's error.
        source: io::Error,
    },
    /// The host's topology could not be read.
    Topology(TopologyError),
}

impl fmt::Display for MemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("no memory requested: at least one frame or byte is needed"),
            Self::EmptyRange(range) => write!(f, "{range} has no frame: the end must lie after the start"),
            Self::Overlap { first, second } => {
                write!(f, "{first} and {second} overlap: each frame belongs to one range")
            }
            Self::AddressOverflow(range) => write!(f, "{range} has frames beyond the last 64-bit address"),
            Self::LargerThanHost { needed, usable } => write!(
                f,
                "the frames need {needed}, and this process may use {usable} of the host's memory: request less memory or phantom frames"
            ),
            Self::LargerThanHostNode { host_node, needed, memory } => write!(
                f,
                "the frames bound to the host's {host_node} need {needed}, and it has {memory}: request less memory or leave the nodes unbound"
            ),
            Self::NotAvailable { needed, available } => write!(
                f,
                "pre-faulting needs {needed}, and the host has {available} available now: request less memory or leave the frames untouched"
            ),
            Self::AddressSpace { span } => write!(
                f,
                "needs {span} of addresses in one piece, holes included, more than this process has left: request a smaller machine or phantom frames, or raise the limit of addresses (ulimit -v)"
            ),
            Self::Hugetlb(shortage) => shortage.fmt(f),
            Self::FileOpen { path, source } => {
                write!(f, "{}: cannot open the file for frames: {source}", path.display())
            }
            Self::NotRegularFile(path) => {
                write!(f, "{}: not a regular file: name a file, or a path where none exists", path.display())
            }
            Self::FileInUse(path) => {
                write!(f, "{}: in use as memory of another yard: choose another file", path.display())
            }
            Self::FileTooSmall { path, needed, size } => write!(
                f,
                "{}: the file has {size}, and the frames need {needed}: enlarge it or let it grow",
                path.display()
            ),
            Self::FileSystemFull { path, needed, available } => {
                write!(
                    f,
                    "{}: the frames need {needed} more, and the file system has {available} left: request less memory or choose a path on another file system",
                    path.display()
                )
            }
            Self::System { action, size, source } => write!(f, "cannot {action} for {size}: {source}"),
            Self::Topology(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for MemoryError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::FileOpen { source, .. } | Self::System { source, .. } => Some(source),
            Self::Topology(error) => error.source(),
            _ => None,
        }
    }
}

impl From<TopologyError> for MemoryError {
    fn from(error: TopologyError) -> Self {
        Self::Topology(error)
    }
}

/// Why the bytes of a frame cannot be reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FrameBytesError {
    /// The frames are phantom: they have no memory.
    Phantom,
    /// A frame lies in a hole or outside the machine.
    NotPresent(Pfn),
}

impl fmt::Display for FrameBytesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Phantom => f.write_str("the frames are phantom and have no bytes: create the yard on real memory"),
            Self::NotPresent(pfn) => write!(f, "{pfn} is not present: it lies in a hole or outside the machine"),
        }
    }
}

impl std::error::Error for FrameBytesError {}
