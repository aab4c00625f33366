//! Names for lines of shared state that are no page structures.

use crate::units::named;

/// What a line of shared state holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum LineKind {
    /// A CPU's lists: their limits, their heads and their entries.
    PerCpuLists,
    /// Heads of free lists, and the bits that say which have blocks.
    FreeLists,
    /// What is counted of a zone, with each time its lock is held.
    ZoneCounters,
    /// What rarely changes about a zone: watermarks and policy.
    ZoneFacts,
    /// The progress words of a zone's transfers: quiescence, collectors, CPU-owned pageblocks.
    Transfer,
    /// The structures of a transfer mechanism: stacks of the depot, cluster records, lists of CPU-owned pageblocks.
    Mechanism,
    /// The allocation map.
    AllocationMap,
    /// The types of pageblocks.
    PageblockTypes,
    /// The word of the readers-writer lock of an address space's map.
    MapLock,
    /// What an address space keeps beside that: its areas, its counts, the tables found lately.
    SpaceState,
    /// Entries of page tables of the lowest level, and of any level where it is not known.
    PageTable,
    /// Entries that lead to further page tables, as who walks down reads them.
    PageDirectory,
    /// Lists of used pages: their ends, what is counted of them, and CPUs' batches of pages on their way there.
    LruLists,
}

named!(LineKind: PerCpuLists => "per-cpu-lists", FreeLists => "free-lists", ZoneCounters => "zone-counters",
    ZoneFacts => "zone-facts", Transfer => "transfer", Mechanism => "mechanism", AllocationMap => "allocation-map",
    PageblockTypes => "pageblock-types", MapLock => "map-lock", SpaceState => "space-state",
    PageTable => "page-tables", PageDirectory => "page-directories",
    LruLists => "lru-lists");

/// A line of shared state: what it holds, and an address in it, which is not dereferenced.
///
/// The address tells lines apart, so that words that lie on one line are one line to whoever looks at how lines move.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedLine {
    /// What it holds.
    pub kind: LineKind,
    /// An address in it.
    pub address: *const u8,
}

impl SharedLine {
    /// The line that a word begins on.
    #[inline(always)]
    pub fn of<T>(kind: LineKind, word: &T) -> Self {
        Self { kind, address: core::ptr::from_ref(word).cast() }
    }
}
