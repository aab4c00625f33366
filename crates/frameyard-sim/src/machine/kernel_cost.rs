//! The named costs of a kernel beside its allocator.

use frameyard::units::named;
use frameyard_machines::KernelOverhead;

use crate::account::CostId;

/// A field of [`KernelOverhead`] as a cost of the account. Every machine knows these, before the costs of a workload.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum KernelCost {
    /// Exception entry and exit.
    Exception = 0,
    /// A fault beside the allocator and the owners.
    FaultPath = 1,
    /// Zeroing a page.
    ZeroPage = 2,
    /// Clearing a page-table entry.
    UnmapPage = 3,
    /// A call that maps or unmaps.
    MapCall = 4,
    /// A page under the LRU lock.
    LruPage = 5,
    /// Copying a page.
    CopyPage = 6,
    /// A hold of the zone lock.
    ZoneHold = 7,
    /// Interrupting another CPU to end its restartable sequences, and waiting for its answer.
    Interrupt = 8,
}

named!(KernelCost: Exception => "exception", FaultPath => "fault-path", ZeroPage => "zero-page",
    UnmapPage => "unmap-page", MapCall => "map-call", LruPage => "lru-page",
    CopyPage => "copy-page", ZoneHold => "zone-hold", Interrupt => "interrupt");

impl KernelCost {
    /// The cost in an account.
    #[inline(always)]
    #[must_use]
    pub const fn id(self) -> CostId {
        CostId(self as u16)
    }

    /// The machine's cycles.
    #[inline(always)]
    pub(crate) const fn cycles(self, overhead: &KernelOverhead) -> f64 {
        match self {
            Self::Exception => overhead.exception_cycles,
            Self::FaultPath => overhead.fault_path_cycles,
            Self::ZeroPage => overhead.zero_page_cycles,
            Self::UnmapPage => overhead.unmap_page_cycles,
            Self::MapCall => overhead.map_call_cycles,
            Self::LruPage => overhead.lru_page_cycles,
            Self::CopyPage => overhead.copy_page_cycles,
            Self::ZoneHold => overhead.zone_hold_cycles,
            Self::Interrupt => overhead.interrupt_cycles,
        }
    }
}
