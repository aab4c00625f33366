//! The amount of memory that an unmap or an exit released.

use frameyard::PageCount;

/// Memory released by an unmap or an exit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Unmapped {
    /// Pages of anonymous memory, including those of huge pages.
    pub pages: PageCount,
    /// Huge mappings of anonymous memory.
    pub huge: u64,
    /// Mappings of pages of files. The pages stay in their files.
    pub file: PageCount,
    /// Frames of page tables returned to the yard.
    pub tables: PageCount,
}
