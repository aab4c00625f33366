//! Giving what per-CPU lists hold back to the zones.
//!
//! Any CPU may drain any list: it waits for the list's lock, whose holder waits for nobody that holds none.

use super::Yard;
use crate::platform::Platform;
use crate::units::{CpuId, ZoneId, ZoneKind};
use crate::zone::transfer::{self, Collect};
use crate::zone::{PcpSizing, WatermarkOptions};

impl<P: Platform> Yard<P> {
    /// Drains the lists of one CPU in one zone. A CPU or zone that has none is drained already.
    pub fn drain(&self, zone: ZoneId, cpu: CpuId) {
        let Some(pcp) = self.tables.pcp_of(zone, cpu).filter(|_| self.is_populated(zone)) else { return };
        // A list that looks empty needs no lock: what arrives later is not this drain's.
        if !pcp.is_empty_racy() {
            pcp.lock(&self.platform).drain(self.zone_view(zone));
        }
    }

    /// Drains the lists of one CPU in all zones.
    pub fn drain_cpu(&self, cpu: CpuId) {
        for zone in 0..self.tables.zones.len() {
            self.drain(ZoneId(zone as u16), cpu);
        }
    }

    /// Drains the lists of all CPUs in one zone, and what is kept between them and the free lists.
    pub fn drain_zone(&self, zone: ZoneId) {
        if !self.is_populated(zone) {
            return;
        }
        let view = self.zone_view(zone);
        for pcp in (0..self.cpus).filter_map(|cpu| self.tables.pcp_of(zone, CpuId(cpu))) {
            // Where batches move on without the zone lock, one may be on its way from lists that look empty: their lock is
            // what ends that.
            let moves_on = transfer::moves_past_zone_lock(view.zone) && !passes_empty_lists_by();
            if !pcp.is_empty_racy() || moves_on {
                pcp.lock(&self.platform).drain(view);
            }
        }
        // Who does not end in time has a few batches in his hands, as a CPU that frees has.
        let _ = transfer::collect(view, Collect::All);
    }

    /// Drains all lists.
    pub fn drain_all(&self) {
        for zone in 0..self.tables.zones.len() {
            self.drain_zone(ZoneId(zone as u16));
        }
    }

    /// Sizes all per-CPU lists anew. Safe while other CPUs allocate: lists above a new limit shrink as they are used.
    pub fn set_pcp_sizing(&self, sizing: PcpSizing) {
        self.tables.size_pcps(&self.platform, self.geometry, sizing);
    }

    /// Sets watermarks, reserves and per-CPU list sizes anew. Safe while other CPUs allocate.
    ///
    /// # Errors
    ///
    /// [`BootError::Watermarks`](crate::boot::BootError::Watermarks) where an option is out of its range; nothing changes then.
    pub fn retune(&self, watermarks: &WatermarkOptions, sizing: PcpSizing) -> Result<(), crate::boot::BootError> {
        self.tables.tune(&self.platform, self.geometry, watermarks, sizing)
    }

    pub(super) fn is_populated(&self, zone: ZoneId) -> bool {
        let has_memory = zone.kind() != ZoneKind::Device;
        has_memory && self.tables.zones.get(zone.index()).is_some_and(|zone| !zone.span().is_empty())
    }
}

/// Whether the locks of lists that look empty are not taken where they should be: in a broken model alone.
#[cfg(not(any(loom, shuttle)))]
pub(super) const fn passes_empty_lists_by() -> bool {
    false
}

/// As above.
#[cfg(any(loom, shuttle))]
pub(super) fn passes_empty_lists_by() -> bool {
    crate::sync::is_weakened(crate::sync::Weakness::EmptyListsPassedBy)
}
