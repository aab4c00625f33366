//! Why memory for frames or a region cannot be had.

use std::fmt;
use std::io;
use std::path::PathBuf;

use frameyard::{ByteSize, NodeId, Pfn, PfnRange};

use crate::hugetlb::HugetlbShortage;
use crate::topology::TopologyError;

/// Why memory for frames or a region cannot be had. Nothing is left mapped.
#[derive(Debug)]
#[non_exhaustive]
pub enum MemoryError {
    /// No frames at all were asked for, or a region of no bytes.
    Nothing,
    /// A range of frames ends before or where it begins.
    EmptyRange(PfnRange),
    /// Two ranges of frames overlap.
    Overlap {
        /// The one that begins first.
        first: PfnRange,
        /// The one that begins inside it.
        second: PfnRange,
    },
    /// The bytes of these frames have no 64-bit address.
    AddressOverflow(PfnRange),
    /// The frames are larger than the memory that the host grants.
    LargerThanHost {
        /// What the frames need.
        needed: ByteSize,
        /// What this process may use.
        usable: ByteSize,
    },
    /// The frames bound to one node of the host are larger than that node.
    LargerThanHostNode {
        /// The node of the host.
        host_node: NodeId,
        /// What the frames bound to it need.
        needed: ByteSize,
        /// What the node has.
        memory: ByteSize,
    },
    /// Pre-faulting would need more memory than is free now.
    NotAvailable {
        /// What is not yet in memory.
        needed: ByteSize,
        /// What can be used now without swapping.
        available: ByteSize,
    },
    /// The addresses from the first to the last frame, holes included, are more than the process has left.
    AddressSpace {
        /// The length of the span of addresses.
        span: ByteSize,
    },
    /// The host has too few free huge pages, or none of that size.
    Hugetlb(HugetlbShortage),
    /// A file cannot be opened.
    FileOpen {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// What a path names is no regular file.
    NotRegularFile(PathBuf),
    /// Somebody else has a file locked: its bytes are other frames already.
    FileInUse(PathBuf),
    /// A file that must not grow is smaller than the frames.
    FileTooSmall {
        /// The file.
        path: PathBuf,
        /// What the frames need.
        needed: ByteSize,
        /// What the file has.
        size: ByteSize,
    },
    /// The file system of a file has no room for the frames.
    FileSystemFull {
        /// The file.
        path: PathBuf,
        /// What the frames need beyond what the file already holds.
        needed: ByteSize,
        /// What is left.
        available: ByteSize,
    },
    /// The system refused one step.
    System {
        /// What was tried, as in "map anonymous memory".
        action: &'static str,
        /// For how much.
        size: ByteSize,
        /// What the system says.
        source: io::Error,
    },
    /// The host's topology could not be read.
    Topology(TopologyError),
}

impl fmt::Display for MemoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("no memory asked for: at least one frame or byte is needed"),
            Self::EmptyRange(range) => write!(f, "{range} has no frame: the end must lie behind the start"),
            Self::Overlap { first, second } => {
                write!(f, "{first} and {second} overlap: each frame belongs to one range")
            }
            Self::AddressOverflow(range) => write!(f, "{range} has frames beyond the last 64-bit address"),
            Self::LargerThanHost { needed, usable } => write!(
                f,
                "the frames need {needed} and this process may use {usable} of the host's memory: ask for a smaller memory size or phantom frames"
            ),
            Self::LargerThanHostNode { host_node, needed, memory } => write!(
                f,
                "the frames bound to the host's {host_node} need {needed} and it has {memory}: ask for less memory or leave the nodes unbound"
            ),
            Self::NotAvailable { needed, available } => write!(
                f,
                "pre-faulting needs {needed} and the host has {available} available now: ask for less memory or leave the frames untouched"
            ),
            Self::AddressSpace { span } => write!(
                f,
                "the frames span {span} of addresses, holes included, more than this process has left: ask for a smaller machine or phantom frames"
            ),
            Self::Hugetlb(shortage) => shortage.fmt(f),
            Self::FileOpen { path, source } => {
                write!(f, "{}: cannot open the file for frames: {source}", path.display())
            }
            Self::NotRegularFile(path) => write!(f, "{}: not a regular file", path.display()),
            Self::FileInUse(path) => {
                write!(f, "{}: in use as memory of another yard: each needs a file of its own", path.display())
            }
            Self::FileTooSmall { path, needed, size } => write!(
                f,
                "{}: the file has {size} and the frames need {needed}: enlarge it or let it grow",
                path.display()
            ),
            Self::FileSystemFull { path, needed, available } => {
                write!(f, "{}: the frames need {needed} more and the file system has {available} left", path.display())
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

/// Why the bytes of some frames cannot be reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameBytesError {
    /// The frames are phantom: nothing is behind any of them.
    Phantom,
    /// A frame is in a hole or outside the machine.
    NotPresent(Pfn),
}

impl fmt::Display for FrameBytesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Phantom => f.write_str("the frames are phantom: bring the machine up on real memory to reach bytes"),
            Self::NotPresent(pfn) => write!(f, "{pfn} is not present: it lies in a hole or outside the machine"),
        }
    }
}

impl std::error::Error for FrameBytesError {}
