//! Names for cache lines of shared state other than page structures.

use crate::units::named;

/// What a line of shared state holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[non_exhaustive]
pub enum LineKind {
    /// A CPU's lists: limits, heads and entries.
    PerCpuLists,
    /// Heads of free lists, and the bits that mark non-empty ones.
    FreeLists,
    /// A zone's counters that change in each hold of its lock.
    ZoneCounters,
    /// Rarely changed facts of a zone: watermarks and policy.
    ZoneFacts,
    /// Transfer state of a zone: quiescence, and cuts in progress.
    Transfer,
    /// The structures of a transfer mechanism, such as the bits of free frames.
    Mechanism,
    /// The allocation map.
    AllocationMap,
    /// Types of pageblocks.
    PageblockTypes,
    /// The readers-writer lock of an address space's map.
    MapLock,
    /// The rest of an address space: areas, counts, recently used page tables.
    SpaceState,
    /// Entries of page tables of the lowest level, or of an unknown level.
    PageTable,
    /// Entries that lead to further page tables, read in a walk.
    PageDirectory,
    /// LRU lists: ends, counts, and per-CPU batches of pages to be added.
    LruLists,
}

named!(LineKind: PerCpuLists => "per-cpu-lists", FreeLists => "free-lists", ZoneCounters => "zone-counters",
    ZoneFacts => "zone-facts", Transfer => "transfer", Mechanism => "mechanism",
    AllocationMap => "allocation-map", PageblockTypes => "pageblock-types",
    MapLock => "map-lock", SpaceState => "space-state", PageTable => "page-tables", PageDirectory => "page-directories",
    LruLists => "lru-lists");

/// A line of shared state: its kind, and an address in it that is never dereferenced.
///
/// Words that share a cache line report addresses in the same line, so a probe can follow how lines move between CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedLine {
    /// What the line holds.
    pub kind: LineKind,
    /// An address in the line.
    pub address: *const u8,
}

impl SharedLine {
    /// The line on which `word` begins.
    #[inline(always)]
    pub fn of<T>(kind: LineKind, word: &T) -> Self {
        Self { kind, address: core::ptr::from_ref(word).cast() }
    }
}
