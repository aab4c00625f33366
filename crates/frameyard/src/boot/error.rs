//! Why a yard cannot be created, attached to or initialised.

use crate::memblock::MemblockError;
use crate::page::MapContent;
use crate::units::{ByteSize, NodeId, PageCount, PfnRange, errors};
use crate::zone::{WatermarkOptionsError, ZonePolicy};

errors! {
    /// Why a yard cannot be created.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[non_exhaustive]
    pub enum BootError {
        /// There is not a single whole frame of memory.
        NoMemory = "no memory: a yard needs at least one whole frame",
        /// A range of memory has no frame.
        EmptyMemory(range: PfnRange) = "memory range {range} is empty: leave it out",
        /// A range of memory begins before the end of the one before it.
        OverlappingMemory(first: PfnRange, second: PfnRange) =
            "memory ranges {first} and {second} overlap or are not in ascending order",
        /// A reserved range begins before the start of the one before it.
        UnorderedReserved(first: PfnRange, second: PfnRange) =
            "reserved ranges {first} and {second} are not in ascending order",
        /// The transfer mechanism of that policy is not compiled in.
        PolicyNotBuilt(policy: ZonePolicy) = "the policy {policy} is not compiled into this build",
        /// There is no CPU.
        NoCpus = "no CPUs: a yard needs at least one",
        /// More than 2¹⁶ CPUs.
        TooManyCpus(count: usize) = "{count} CPUs: a yard has at most 65536",
        /// More nodes than the tables have room for.
        TooManyNodes(node: NodeId) = "{node}: nodes are numbered from 0 to {}" (super::MAX_NODES - 1),
        /// The distances are not one for each pair of nodes.
        WrongDistances {
            /// How many were given.
            given: usize,
            /// How many there should be.
            expected: usize,
        } = "{given} distances given: {expected} are needed, one for each pair of nodes",
        /// The numbers of cache groups are not one for each CPU.
        WrongCacheGroups {
            /// How many were given.
            given: usize,
            /// How many there should be.
            expected: usize,
        } = "{given} cache groups given: {expected} are needed, one for each CPU",
        /// The number of a cache group is larger than it need be.
        BadCacheGroup {
            /// The number.
            group: usize,
            /// How many CPUs there are.
            cpus: usize,
        } = "cache group {group}: those of {cpus} CPUs are numbered from 0 to {}" (cpus - 1),
        /// More frames than links can name, in sections with memory or room for devices. Holes do not count.
        TooMuchMemory(count: PageCount) =
            "{count} in sections with memory or room for devices: a yard has at most 2^32 - 2 frames, 16 TiB of 4 KiB each",
        /// Map or control region would not fit the address space.
        TooLarge = "the memory map would not fit the address space",
        /// A contiguous memory area is not made of whole maximum-order blocks of one zone's memory, or does not lie behind
        /// the one before it.
        BadCma(range: PfnRange) = "contiguous memory area {range}: must be whole maximum-order blocks of unreserved \
            memory, behind the area before",
        /// The caller's regions are smaller than planned.
        RegionTooSmall {
            /// How large they must be.
            needed: ByteSize,
            /// How large the one at fault is.
            given: ByteSize,
        } = "a region of {given} was given: {needed} are needed",
        /// A region is not aligned to 128 bytes.
        Misaligned = "a region is not aligned to 128 bytes",
        /// The memory is not what the layout was planned for.
        LayoutMismatch = "the memory is not what the layout was planned for",
        /// Poisoning was asked for, but the platform does not reach the frames' bytes.
        NoFrameBytes = "poisoning needs frames with memory behind them",
        /// A percentage above 100.
        BadPercent(percent: u8) = "{percent} percent of movable memory: at most 100",
        /// A watermark option is out of its range.
        Watermarks(problem: WatermarkOptionsError) = "{problem}",
        /// The initialiser writes nothing, but the configuration asks for page content.
        ContentNotWritten(content: MapContent) =
            "initialiser none writes nothing: content {content} needs another, such as stream",
        /// No threads to initialise the memory map, or more than the yard has CPUs.
        BadThreads {
            /// How many were asked for.
            threads: usize,
            /// How many CPUs there are.
            cpus: usize,
        } = "{threads} threads to initialise the memory map: at least 1, at most one for each of {cpus} CPUs",
        /// The alignment of jobs is no power of two, or less than a maximum-order block: a thread that merges free blocks
        /// would read pages that another has not written yet.
        BadAlignment {
            /// What was asked for.
            alignment: PageCount,
            /// The smallest that is possible.
            least: PageCount,
        } = "jobs aligned to {alignment}: must be a power of two, at least a maximum-order block ({least})",
        /// There was no memory for the page structures of these frames.
        MapNotBacked(range: PfnRange) = "no memory for the page structures of {range}",
        /// A worker panicked while it initialised the memory map.
        WorkerPanicked = "a worker panicked while it initialised the memory map",
    }
}

impl BootError {
    /// Whether the error occurred while the map was being initialised, as opposed to an invalid memory table or
    /// configuration.
    #[must_use]
    pub const fn is_at_run_time(&self) -> bool {
        matches!(self, Self::MapNotBacked(_) | Self::WorkerPanicked)
    }
}

errors! {
    /// Why a yard could not be created from the early memory map.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[non_exhaustive]
    pub enum EarlyBootError {
        /// The memory or the configuration does not suit a yard.
        Boot(error: BootError) = "{error}",
        /// There is no room for the memory map or the control region, or it is not mapped.
        Memblock(error: MemblockError) = "no room for the tables of a yard: {error}",
    }
}

impl From<BootError> for EarlyBootError {
    fn from(error: BootError) -> Self {
        Self::Boot(error)
    }
}

impl From<MemblockError> for EarlyBootError {
    fn from(error: MemblockError) -> Self {
        Self::Memblock(error)
    }
}

errors! {
    /// Why a region is no control region of a yard that can be attached to.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[non_exhaustive]
    pub enum AttachError {
        /// The region does not begin with a finished yard's header.
        NoYard = "no yard here: the control region has no finished header",
        /// The header is of another version of the library.
        Version {
            /// The version found.
            found: u64,
        } = "the yard was made by another version (layout {found})",
        /// The header names tables or a geometry that do not fit the region.
        Damaged = "the header of the yard is damaged",
        /// The region is smaller than the yard's control region.
        TooSmall = "the region is smaller than the yard's control region",
        /// The region is not aligned to 128 bytes.
        Misaligned = "the region is not aligned to 128 bytes",
        /// The platform of one view uses per-CPU lists in restartable sequences, and that of the other locks them.
        OtherSequences = "one platform locks the lists of CPUs, the other uses them in sequences",
    }
}

errors! {
    /// Why a part of the memory map could not be initialised. The initialised part is in use; the rest can be tried
    /// again.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[non_exhaustive]
    pub enum InitError {
        /// A worker panicked; its chunk is lost.
        WorkerPanicked = "a worker panicked while it initialised the memory map",
        /// There was no memory for the page structures of these frames.
        MapNotBacked(range: PfnRange) = "no memory for the page structures of {range}",
        /// The range is not made of frames that the memory map covers, or has a section without memory.
        OutsideMap(range: PfnRange) = "{range} has frames that the memory map does not cover",
        /// Some of the range is initialised already, or being initialised: the first such frames.
        AlreadyInitialised(range: PfnRange) = "{range} is initialised already",
        /// Other CPUs claimed this many frames and did not finish within the bound, or a worker panicked and lost them.
        Unfinished(count: PageCount) = "{count} are claimed by other CPUs, which did not finish in time",
        /// Only the view that created a yard knows how to size watermarks and per-CPU lists.
        NotTheCreator = "only the view that created the yard can finish its initialisation",
    }
}
