//! What a kernel does besides allocating, as cycles of a core.

use serde::Deserialize;

use crate::account::CostId;

/// What is done outside of the allocator and the owners, in cycles of a core.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OutsideCosts {
    /// Exception entry and exit, for a fault: `exception`.
    pub exception_cycles: f64,
    /// Finding the area, charging, setting the entry, reverse mapping, for a fault: `fault-path`.
    pub fault_path_cycles: f64,
    /// Writing zeros to a page, from the core's side: `zero-page`.
    pub zero_page_cycles: f64,
    /// Clearing an entry, and what goes with it: `unmap-page`.
    pub unmap_page_cycles: f64,
    /// A call that maps or unmaps addresses: `map-call`.
    pub map_call_cycles: f64,
    /// Under the zone lock, for a page that is taken off the free lists one by one, or merged: `zone-page`.
    pub zone_page_cycles: f64,
    /// Under the lock of lists of used pages, for a page that is put on them or taken off: `lru-page`.
    pub lru_page_cycles: f64,
    /// Copying a page, from the core's side: `copy-page`.
    pub copy_page_cycles: f64,
}

impl Default for OutsideCosts {
    /// Start values for a kernel with page-table isolation on a Broadwell processor; to be calibrated.
    ///
    /// Entry and exit: published measurements of 4.15 with isolation (about 900 cycles). Zeroing: 4 KiB by `rep stosb` at
    /// about 10 GB/s, as the memory bandwidth of one core is; copying moves twice as much. The rest: profiles of page_fault1.
    fn default() -> Self {
        Self {
            exception_cycles: 900.0,
            fault_path_cycles: 1000.0,
            zero_page_cycles: 1200.0,
            unmap_page_cycles: 500.0,
            map_call_cycles: 2000.0,
            zone_page_cycles: 0.0,
            lru_page_cycles: 0.0,
            copy_page_cycles: 2400.0,
        }
    }
}

/// One of these costs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OutsideCost {
    Exception = 0,
    FaultPath = 1,
    ZeroPage = 2,
    UnmapPage = 3,
    MapCall = 4,
    ZonePage = 5,
    LruPage = 6,
    CopyPage = 7,
}

impl OutsideCost {
    /// In the order of their names.
    pub(crate) const ALL: [Self; OutsideCosts::NAMES.len()] = [
        Self::Exception,
        Self::FaultPath,
        Self::ZeroPage,
        Self::UnmapPage,
        Self::MapCall,
        Self::ZonePage,
        Self::LruPage,
        Self::CopyPage,
    ];

    #[inline(always)]
    pub(crate) const fn id(self) -> CostId {
        CostId(self as u16)
    }
}

impl OutsideCosts {
    /// The names of the costs in an account, in the order of the fields. Every machine knows them, before those that it is told
    /// of.
    pub const NAMES: [&'static str; 8] =
        ["exception", "fault-path", "zero-page", "unmap-page", "map-call", "zone-page", "lru-page", "copy-page"];

    #[inline(always)]
    pub(crate) const fn cycles(&self, cost: OutsideCost) -> f64 {
        match cost {
            OutsideCost::Exception => self.exception_cycles,
            OutsideCost::FaultPath => self.fault_path_cycles,
            OutsideCost::ZeroPage => self.zero_page_cycles,
            OutsideCost::UnmapPage => self.unmap_page_cycles,
            OutsideCost::MapCall => self.map_call_cycles,
            OutsideCost::ZonePage => self.zone_page_cycles,
            OutsideCost::LruPage => self.lru_page_cycles,
            OutsideCost::CopyPage => self.copy_page_cycles,
        }
    }

    pub(crate) fn are_possible(&self) -> bool {
        let Self { exception_cycles, fault_path_cycles, zero_page_cycles, unmap_page_cycles, .. } = *self;
        let Self { map_call_cycles, zone_page_cycles, lru_page_cycles, copy_page_cycles, .. } = *self;
        let of_pages = [fault_path_cycles, zero_page_cycles, unmap_page_cycles, zone_page_cycles, lru_page_cycles];
        let mut all = of_pages.into_iter().chain([exception_cycles, map_call_cycles, copy_page_cycles]);
        all.all(|cycles| cycles.is_finite() && cycles >= 0.0)
    }
}
