//! When page structures are checked, and how second frees are found.

use crate::units::named;

/// When the yard checks that the page structures of free blocks hold what those of free blocks must hold.
///
/// A bad page means that some code still uses the frame, or has written to the memory map. Its block is reported
/// ([`Platform::note_bad_page`](crate::Platform::note_bad_page)), counted
/// ([`ZoneStatistics::bad_pages`](crate::stats::ZoneStatistics::bad_pages)) and never allocated again, and the request goes on with
/// another block. After the kernel's `check_new_pages` and `free_page_is_bad`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum PageChecks {
    /// Never. Costs nothing.
    #[default]
    None = 0,
    /// When blocks move between a per-CPU list and its zone, at each refill and drain, and when an allocation takes a slow path, as
    /// for a block that has no list. As in older kernels without `CONFIG_DEBUG_VM` (`check_pcp_refill`, `bulkfree_pcp_prepare`,
    /// `check_new_pages`). Reads the cache line of each frame that moves. Fast paths cost nothing.
    Transfer = 1,
    /// Also at each allocation and each free, except of ranges. As in the kernel with `CONFIG_DEBUG_VM` or poisoning. All calls take
    /// slow paths, and read the cache line of each frame of the block.
    All = 2,
}

named!(PageChecks: None => "none", Transfer => "transfer", All => "all");

/// How a free finds out that its block is not allocated any more.
///
/// Each choice refuses a second free that comes after the first one. They differ in what becomes of two that race.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum DoubleFreeCheck {
    /// By a compare-exchange on the block's byte in the allocation map: one of two racing frees wins, the other one fails and has changed
    /// nothing.
    #[default]
    Exact = 0,
    /// By a load and a store. Two frees of a block that both load the byte before either stores succeed both, and the block is on lists
    /// twice. An allocation from a list therefore checks that the byte is zero. If it takes the block's second entry while the block is
    /// allocated, it keeps the block out of use and notes the damage ([`Platform::note_corrupt`](crate::Platform::note_corrupt)).
    ///
    /// Not noticed: a second entry that merged into a larger block, one that is taken while the block is free, and two allocations of
    /// both entries at once. The block then has two owners. For programs that free in one place, such as a buffer pool.
    ///
    /// Saves the locked operation of [`Yard::free`](crate::Yard::free) for memory in the largest run of the memory map. All other
    /// calls, and other runs, exchange as above.
    Sequential = 1,
}

named!(DoubleFreeCheck: Exact => "exact", Sequential => "sequential");

impl DoubleFreeCheck {
    /// From a word of shared memory, which may be anything.
    pub(crate) fn from_bits(bits: u64) -> Self {
        Self::ALL.get(bits as usize).copied().unwrap_or(Self::Exact)
    }
}

impl PageChecks {
    /// From a word of shared memory, which may be anything.
    pub(crate) fn from_bits(bits: u64) -> Self {
        Self::ALL.get(bits as usize).copied().unwrap_or(Self::All)
    }
}
