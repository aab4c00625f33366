//! Why a yard cannot be created or attached to.

use core::fmt;

use crate::page::MapContent;
use crate::units::{ByteSize, CpuId, NodeId, PageCount, PfnRange};
use crate::zone::{WatermarkOptionsError, ZonePolicy};

/// Why a yard cannot be created.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BootError {
    /// There is not a single whole frame of memory.
    NoMemory,
    /// A range of memory has no frame.
    EmptyMemory(PfnRange),
    /// A range of memory begins before the end of the one before it.
    OverlappingMemory(PfnRange, PfnRange),
    /// A reserved range begins before the start of the one before it.
    UnorderedReserved(PfnRange, PfnRange),
    /// The transfer mechanism of that policy is not compiled in.
    PolicyNotBuilt(ZonePolicy),
    /// There is no CPU.
    NoCpus,
    /// More than 2¹⁶ CPUs.
    TooManyCpus(usize),
    /// More nodes than the tables have room for.
    TooManyNodes(NodeId),
    /// The distances are not one for each pair of nodes.
    WrongDistances {
        /// How many were given.
        given: usize,
        /// How many there should be.
        expected: usize,
    },
    /// The groups of CPUs that share a cache are not one for each CPU.
    WrongCacheGroups {
        /// How many were given.
        given: usize,
        /// How many there should be.
        expected: usize,
    },
    /// The number of a group of CPUs is larger than it need be.
    BadCacheGroup {
        /// The number.
        group: usize,
        /// How many CPUs there are.
        cpus: usize,
    },
    /// The frames from the first to the last are more than links can name.
    SpanTooLarge(PageCount),
    /// Map or control region would not fit the address space.
    TooLarge,
    /// A contiguous memory area is not made of whole maximum-order blocks of one zone's memory, or does not lie behind
    /// the one before it.
    BadCma(PfnRange),
    /// The regions handed over are smaller than planned.
    RegionTooSmall {
        /// How large they must be.
        needed: ByteSize,
        /// How large the one at fault is.
        given: ByteSize,
    },
    /// A region is not aligned to 128 bytes.
    Misaligned,
    /// The memory is not what the layout was planned for.
    LayoutMismatch,
    /// Poisoning was asked for, but the platform does not reach the frames' bytes.
    NoFrameBytes,
    /// A percentage above 100.
    BadPercent(u8),
    /// A watermark option is out of its range.
    Watermarks(WatermarkOptionsError),
    /// A CPU belongs to a node that has neither memory nor a place in the distances.
    UnknownNode(CpuId, NodeId),
    /// The initialiser writes nothing, but the configuration asks for page content.
    ContentNotWritten(MapContent),
    /// No threads to initialise the memory map, or more than the yard has CPUs.
    BadThreads {
        /// How many were asked for.
        threads: usize,
        /// How many CPUs there are.
        cpus: usize,
    },
    /// The alignment of jobs is no power of two, or less than a maximum-order block: a thread that merges free blocks
    /// would read pages that another has not written yet.
    BadAlignment {
        /// What was asked for.
        alignment: PageCount,
        /// The least that can be.
        least: PageCount,
    },
    /// There was no memory for the page structures of these frames.
    MapNotBacked(PfnRange),
    /// A worker panicked while it initialised the memory map.
    WorkerPanicked,
}

impl BootError {
    /// Whether it happened while the map was initialised, and not because memory or configuration make no yard.
    #[must_use]
    pub const fn is_at_run_time(&self) -> bool {
        matches!(self, Self::MapNotBacked(_) | Self::WorkerPanicked)
    }
}

impl fmt::Display for BootError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoMemory => f.write_str("no memory: a yard needs at least one whole frame"),
            Self::EmptyMemory(range) => write!(f, "memory range {range} is empty: leave it out"),
            Self::OverlappingMemory(first, second) => {
                write!(f, "memory ranges {first} and {second} overlap or are not in ascending order")
            }
            Self::UnorderedReserved(first, second) => {
                write!(f, "reserved ranges {first} and {second} are not in ascending order")
            }
            Self::PolicyNotBuilt(policy) => write!(f, "the policy {policy} is not compiled into this build"),
            Self::NoCpus => f.write_str("no CPUs: a yard needs at least one"),
            Self::TooManyCpus(count) => write!(f, "{count} CPUs: a yard has at most 65536"),
            Self::TooManyNodes(node) => write!(f, "{node}: nodes are numbered from 0 to {}", super::MAX_NODES - 1),
            Self::WrongDistances { given, expected } => {
                write!(f, "{given} distances given: {expected} are needed, one for each pair of nodes")
            }
            Self::WrongCacheGroups { given, expected } => {
                write!(f, "{given} cache groups given: {expected} are needed, one for each CPU")
            }
            Self::BadCacheGroup { group, cpus } => {
                write!(f, "cache group {group}: groups of {cpus} CPUs are numbered from 0 to {}", cpus - 1)
            }
            Self::SpanTooLarge(count) => {
                write!(f, "memory spans {count} from the first to the last frame: at most 2^32 - 2 can be mapped")
            }
            Self::TooLarge => f.write_str("the memory map would not fit the address space"),
            Self::BadCma(range) => {
                write!(
                    f,
                    "contiguous memory area {range}: must be whole maximum-order blocks of unreserved memory, behind the area before"
                )
            }
            Self::RegionTooSmall { needed, given } => write!(f, "a region of {given} was given: {needed} are needed"),
            Self::Misaligned => f.write_str("a region is not aligned to 128 bytes"),
            Self::LayoutMismatch => f.write_str("the memory is not what the layout was planned for"),
            Self::NoFrameBytes => f.write_str("poisoning needs frames with memory behind them"),
            Self::BadPercent(percent) => write!(f, "{percent} percent of movable memory: at most 100"),
            Self::Watermarks(problem) => problem.fmt(f),
            Self::ContentNotWritten(content) => {
                write!(f, "initialiser none writes nothing: content {content} needs another, such as stream")
            }
            Self::BadThreads { threads, cpus } => {
                write!(
                    f,
                    "{threads} threads to initialise the memory map: at least 1, at most one for each of {cpus} CPUs"
                )
            }
            Self::BadAlignment { alignment, least } => {
                write!(
                    f,
                    "jobs aligned to {alignment}: must be a power of two, at least a maximum-order block ({least})"
                )
            }
            Self::MapNotBacked(range) => write!(f, "no memory for the page structures of {range}"),
            Self::WorkerPanicked => f.write_str("a worker panicked while it initialised the memory map"),
            Self::UnknownNode(cpu, node) => write!(f, "{cpu} belongs to {node}, which does not exist"),
        }
    }
}

impl core::error::Error for BootError {}

/// Why a region is no control region of a yard that can be attached to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttachError {
    /// The region does not begin with a finished yard's header.
    NoYard,
    /// The header is of another version of the library.
    Version {
        /// The version found.
        found: u64,
    },
    /// The header names tables or a geometry that do not fit the region.
    Damaged,
    /// The region is smaller than the yard's control region.
    TooSmall,
    /// The region is not aligned to 128 bytes.
    Misaligned,
}

impl fmt::Display for AttachError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoYard => f.write_str("no yard here: the control region has no finished header"),
            Self::Version { found } => write!(f, "the yard was made by another version (layout {found})"),
            Self::Damaged => f.write_str("the header of the yard is damaged"),
            Self::TooSmall => f.write_str("the region is smaller than the yard's control region"),
            Self::Misaligned => f.write_str("the region is not aligned to 128 bytes"),
        }
    }
}

impl core::error::Error for AttachError {}

/// Why a part of the memory map could not be initialised. The initialised part is in use; the rest can be tried again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum InitError {
    /// A worker panicked; its chunk is lost.
    WorkerPanicked,
    /// There was no memory for the page structures of these frames.
    MapNotBacked(PfnRange),
    /// The range is not made of frames that the memory map covers, or has a section without memory.
    OutsideMap(PfnRange),
    /// Some of the range is initialised already, or being initialised: the first such frames.
    AlreadyInitialised(PfnRange),
    /// Other CPUs claimed this many frames and did not finish within the bound, or a worker panicked and lost them.
    Unfinished(PageCount),
    /// Only the view that created a yard knows how to size watermarks and per-CPU lists.
    NotTheCreator,
}

impl fmt::Display for InitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WorkerPanicked => f.write_str("a worker panicked while it initialised the memory map"),
            Self::MapNotBacked(range) => write!(f, "no memory for the page structures of {range}"),
            Self::OutsideMap(range) => write!(f, "{range} has frames that the memory map does not cover"),
            Self::AlreadyInitialised(range) => write!(f, "{range} is initialised already"),
            Self::Unfinished(count) => write!(f, "{count} are claimed by other CPUs, which did not finish in time"),
            Self::NotTheCreator => f.write_str("only the view that created the yard can finish its initialisation"),
        }
    }
}

impl core::error::Error for InitError {}
