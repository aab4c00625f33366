//! Errors of machine descriptions, with their places.

use core::fmt;

use frameyard_units::{ByteSize, CpuId, GeometryError, NodeId, PhysAddr};

use super::{ADDRESS_LIMIT, AddressRange, LOCAL_DISTANCE, MAX_CPUS, MAX_NODES};

/// A line of a file. Prints as `FILE:LINE`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The file as it was named.
    pub file: String,
    /// The line, counted from 1.
    pub line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", OneLine(&self.file), self.line)
    }
}

/// The reason that a machine cannot be read. Every variant is an error of input. It prints as one line, with file and line if
/// known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MachineError {
    /// The argument is neither a built-in machine nor a file.
    Unknown {
        /// The argument.
        name: String,
        /// The most similar built-in name, if one is similar enough.
        nearest: Option<String>,
    },
    /// The file cannot be read.
    Unreadable {
        /// The file as it was named.
        file: String,
        /// The reason.
        reason: String,
    },
    /// A line cannot be read.
    Malformed {
        /// The place.
        place: Place,
        /// The error and the expected form.
        message: String,
    },
    /// The text describes an impossible machine.
    Invalid {
        /// The place; `None` for a machine that was not read from a file.
        place: Option<Place>,
        /// The problem.
        problem: Problem,
    },
    /// The text states no memory.
    NoMemoryMap {
        /// The file as it was named.
        file: String,
        /// The expected lines.
        expected: &'static str,
    },
    /// All addresses of a `/proc/iomem` text are zero, because it was read without privilege.
    HiddenAddresses {
        /// The file as it was named.
        file: String,
    },
}

/// An inconsistency of a machine's figures.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Problem {
    /// There is no CPU.
    NoCpus,
    /// More CPUs than [`MAX_CPUS`].
    TooManyCpus(u64),
    /// There is no node.
    NoNodes,
    /// More nodes than [`MAX_NODES`].
    TooManyNodes(u64),
    /// No node has a whole frame of memory.
    NoMemory,
    /// The range's end is not behind its start.
    EmptyRange(AddressRange),
    /// The range ends behind [`ADDRESS_LIMIT`].
    BeyondAddresses(AddressRange),
    /// Start plus size overflows.
    SizeOverflow {
        /// The start.
        start: PhysAddr,
        /// Its size.
        size: ByteSize,
    },
    /// Two memory ranges overlap.
    Overlap {
        /// The node of the lower range.
        first: NodeId,
        /// The lower range.
        first_range: AddressRange,
        /// The node of the higher range.
        second: NodeId,
        /// The higher range.
        second_range: AddressRange,
    },
    /// Two contiguous memory areas overlap.
    CmaOverlap(AddressRange, AddressRange),
    /// A contiguous memory area does not lie in one memory range.
    CmaOutsideMemory(AddressRange),
    /// A contiguous memory area names a node that the machine does not have.
    CmaUnknownNode {
        /// The node.
        node: NodeId,
        /// The number of nodes.
        nodes: usize,
    },
    /// There is no room for a contiguous memory area that states only a size.
    CmaNoRoom {
        /// Its size.
        size: ByteSize,
        /// The node in the description. `None`: any node.
        node: Option<NodeId>,
    },
    /// A CPU is on a node that the machine does not have.
    UnknownNode {
        /// The CPU.
        cpu: CpuId,
        /// The node in the description.
        node: NodeId,
        /// The number of nodes.
        nodes: usize,
    },
    /// A node lists a CPU that the machine does not have.
    UnknownCpu {
        /// The node.
        node: NodeId,
        /// The CPU in its list.
        cpu: CpuId,
        /// The number of CPUs.
        cpus: usize,
    },
    /// Two nodes list the same CPU.
    CpuInTwoNodes {
        /// The CPU.
        cpu: CpuId,
        /// The node that lists it first.
        first: NodeId,
        /// The node that lists it again.
        second: NodeId,
    },
    /// No node lists the CPU.
    CpuInNoNode(CpuId),
    /// Two CPUs are the same thread of the same core.
    SameThread(CpuId, CpuId),
    /// The table of distances does not have one row and one column for each node.
    DistanceShape {
        /// The row with a wrong number of entries, or the number of rows if that is wrong.
        row: usize,
        /// The number of its entries. 0 if the number of rows is wrong.
        entries: usize,
        /// The number of nodes.
        nodes: usize,
    },
    /// The distance of a node to itself is not [`LOCAL_DISTANCE`].
    SelfDistance(NodeId, u8),
    /// A distance is smaller than [`LOCAL_DISTANCE`].
    ShortDistance(NodeId, NodeId, u8),
    /// A cost or the topology of a simulated machine is impossible. The text is the violated rule.
    Simulation(&'static str),
    /// A zone limit is not a multiple of the page size, or DMA does not end below DMA32.
    ZoneLimits,
    /// The numbers of the geometry are inconsistent.
    Geometry(GeometryError),
    /// The size requested of [`Machine::scaled`](crate::Machine::scaled) is too small for the machine's nodes.
    TooSmall {
        /// The requested size.
        size: ByteSize,
        /// The smallest valid size.
        minimum: ByteSize,
    },
}

impl MachineError {
    /// A problem without a place.
    pub(super) const fn nowhere(problem: Problem) -> Self {
        Self::Invalid { place: None, problem }
    }

    /// Adds a place to an error that has none.
    pub(super) fn at(self, at: Place) -> Self {
        match self {
            Self::Invalid { place: None, problem } => Self::Invalid { place: Some(at), problem },
            other => other,
        }
    }
}

impl From<Problem> for MachineError {
    fn from(problem: Problem) -> Self {
        Self::nowhere(problem)
    }
}

impl fmt::Display for MachineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { name, nearest: Some(nearest) } => {
                write!(f, "unknown machine '{}': did you mean {nearest}? (see `frameyard machines`)", OneLine(name))
            }
            Self::Unknown { name, nearest: None } => write!(
                f,
                "unknown machine '{}': neither a built-in machine (see `frameyard machines`) nor a file",
                OneLine(name)
            ),
            Self::Unreadable { file, reason } => write!(f, "{}: cannot be read: {reason}", OneLine(file)),
            Self::Malformed { place, message } => write!(f, "{place}: {message}"),
            Self::Invalid { place: Some(place), problem } => write!(f, "{place}: {problem}"),
            Self::Invalid { place: None, problem } => write!(f, "{problem}"),
            Self::NoMemoryMap { file, expected } => {
                write!(f, "{}: says nothing about memory: expected {expected}", OneLine(file))
            }
            Self::HiddenAddresses { file } => write!(
                f,
                "{}: all addresses are zero, as without privilege: read it as root (CAP_SYS_ADMIN)",
                OneLine(file)
            ),
        }
    }
}

impl core::error::Error for MachineError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Invalid { problem: Problem::Geometry(error), .. } => Some(error),
            _ => None,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCpus => write!(f, "the machine has no CPU: it needs at least one"),
            Self::TooManyCpus(cpus) => write!(f, "{cpus} CPUs: a machine has at most {MAX_CPUS}"),
            Self::NoNodes => write!(f, "the machine has no node: it needs at least one [[node]]"),
            Self::TooManyNodes(nodes) => write!(f, "{nodes} nodes: a machine has at most {MAX_NODES}"),
            Self::NoMemory => write!(f, "the machine has no memory: a node needs at least a whole page"),
            Self::EmptyRange(range) => {
                write!(f, "the range from {} to {} is empty: its end must be behind its start", range.start, range.end)
            }
            Self::BeyondAddresses(range) => {
                write!(f, "the range from {} to {} must end at or below {ADDRESS_LIMIT}", range.start, range.end)
            }
            Self::SizeOverflow { start, size } => {
                write!(f, "{size} from {start} on overflows: a range must end at or below {ADDRESS_LIMIT}")
            }
            Self::Overlap { first, first_range, second, second_range } => write!(
                f,
                "memory {first_range} of {first} overlaps {second_range} of {second}: ranges must be disjoint"
            ),
            Self::CmaOverlap(first, second) => {
                write!(f, "contiguous areas {first} and {second} overlap: they must be disjoint")
            }
            Self::CmaOutsideMemory(range) => {
                write!(f, "contiguous area {range} must lie in one memory range of one node")
            }
            Self::CmaUnknownNode { node, nodes } => {
                write!(f, "a contiguous area is on {node}, but the machine has {nodes} node(s), counted from 0")
            }
            Self::CmaNoRoom { size, node } => {
                let place = node.map_or("any node".to_owned(), |node| node.to_string());
                write!(
                    f,
                    "no room for a contiguous area of {size} on {place}: it needs unreserved memory of one zone, in whole blocks"
                )
            }
            _ => self.fmt_cpus_and_tables(f),
        }
    }
}

impl Problem {
    fn fmt_cpus_and_tables(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownNode { cpu, node, nodes } => {
                write!(f, "{cpu} is on {node}, but the machine has {nodes} node(s), counted from 0")
            }
            Self::UnknownCpu { node, cpu, cpus } => {
                write!(f, "{node} lists {cpu}, but the machine has {cpus} CPU(s), counted from 0")
            }
            Self::CpuInTwoNodes { cpu, first, second } => {
                write!(f, "{cpu} is in {first} and in {second}: a CPU belongs to one node")
            }
            Self::CpuInNoNode(cpu) => write!(f, "{cpu} is in no node: list it in the cpus of one"),
            Self::SameThread(first, second) => {
                write!(f, "{first} and {second} are the same thread of the same core: each CPU needs one of its own")
            }
            Self::DistanceShape { row, entries, nodes } => write!(
                f,
                "row {row} of the distances has {entries} entries: {nodes} node(s) need {nodes} row(s) of {nodes}"
            ),
            Self::SelfDistance(node, distance) => {
                write!(f, "the distance of {node} to itself is {distance}: it must be {LOCAL_DISTANCE}")
            }
            Self::ShortDistance(from, to, distance) => {
                write!(f, "the distance from {from} to {to} is {distance}: it must be at least {LOCAL_DISTANCE}")
            }
            Self::ZoneLimits => {
                write!(f, "zone limits must be multiples of the page size, and the DMA zone must end below DMA32")
            }
            Self::Simulation(rule) => write!(f, "[simulation]: {rule}"),
            Self::Geometry(error) => write!(f, "{error}"),
            Self::TooSmall { size, minimum } => {
                let size = match size.0 {
                    1 => "1 byte".to_owned(),
                    bytes @ ..1024 => format!("{bytes} bytes"),
                    _ => size.to_string(),
                };
                write!(f, "{size} of memory is too little for this machine: it needs at least {minimum}")
            }
            // `Display::fmt` writes these. The list makes a new variant without a text a compile error.
            Self::NoCpus
            | Self::TooManyCpus(_)
            | Self::NoNodes
            | Self::TooManyNodes(_)
            | Self::NoMemory
            | Self::EmptyRange(_)
            | Self::BeyondAddresses(_)
            | Self::SizeOverflow { .. }
            | Self::Overlap { .. }
            | Self::CmaOverlap(..)
            | Self::CmaUnknownNode { .. }
            | Self::CmaNoRoom { .. }
            | Self::CmaOutsideMemory(_) => Ok(()),
        }
    }
}

/// A user's text on one line: control characters become question marks.
struct OneLine<'a>(&'a str);

impl fmt::Display for OneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in self.0.split_inclusive(char::is_control) {
            match part.strip_suffix(char::is_control) {
                Some(text) => write!(f, "{text}?")?,
                None => f.write_str(part)?,
            }
        }
        Ok(())
    }
}
