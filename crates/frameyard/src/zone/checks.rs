//! When page structures are checked.

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

impl PageChecks {
    /// From a word of shared memory, which may be anything.
    pub(crate) fn from_bits(bits: u64) -> Self {
        Self::ALL.get(bits as usize).copied().unwrap_or(Self::All)
    }
}
