//! When page structures are checked.

use crate::units::named;

/// When the yard checks the page structures of free blocks.
///
/// The words of a free block's page structures have known values. If they differ, some code still uses the frame or has
/// written to the memory map. The block is then reported ([`Platform::note_bad_page`](crate::Platform::note_bad_page)),
/// counted ([`ZoneStatistics::bad_pages`](crate::stats::ZoneStatistics::bad_pages)) and never allocated again, and the
/// request goes on with another block. Modelled on the kernel's `check_new_pages` and `free_page_is_bad`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum PageChecks {
    /// Never. Costs nothing.
    #[default]
    None = 0,
    /// When blocks move between a per-CPU list and its zone, in each refill and drain, and when an allocation takes a
    /// slow path, for example because its order has no list. Older kernels without `CONFIG_DEBUG_VM` do this
    /// (`check_pcp_refill`, `bulkfree_pcp_prepare`, `check_new_pages`). Reads the cache line of each frame that moves.
    /// Costs nothing on the fast paths.
    Transfer = 1,
    /// Also in each allocation and each free, except those of ranges, as in a kernel with `CONFIG_DEBUG_VM` or
    /// poisoning. All calls take slow paths, and read the cache line of each frame of the block.
    All = 2,
}

named!(PageChecks: None => "none", Transfer => "transfer", All => "all");

impl PageChecks {
    /// From a word of shared memory, which may be anything.
    pub(crate) fn from_bits(bits: u64) -> Self {
        Self::ALL.get(bits as usize).copied().unwrap_or(Self::All)
    }
}
