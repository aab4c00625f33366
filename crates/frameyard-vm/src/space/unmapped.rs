//! The amount of memory that an unmap or an exit released.

use frameyard::PageCount;

/// How much memory an unmap or an exit released.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Unmapped {
    /// Pages of anonymous memory, including those of huge pages.
    pub pages: PageCount,
    /// Huge mappings of anonymous memory.
    pub huge: u64,
    /// Mappings of file pages. The pages themselves stay in their files.
    pub file: PageCount,
    /// Frames of page tables returned to the yard.
    pub tables: PageCount,
}
