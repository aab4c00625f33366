//! Draining: moving the frames of per-CPU lists back to their zones.
//!
//! Any CPU may drain any list. The drain waits for the list's lock, whose holder waits only for locks later in the lock
//! order.

use super::{Yard, YardLists, YardZone};
use crate::platform::Platform;
use crate::sync::is_broken;
use crate::units::{CpuId, ZoneId, ZoneKind};
use crate::zone::transfer::{self, Collect};
use crate::zone::{PcpSizing, WatermarkOptions};

impl<P: Platform> Yard<P> {
    /// Drains all lists.
    pub fn drain_all(&self) {
        for zone in 0..self.tables.zones.len() {
            self.zone(ZoneId(zone as u16)).drain();
        }
    }

    pub(super) fn is_populated(&self, zone: ZoneId) -> bool {
        let has_memory = zone.kind() != ZoneKind::Device;
        has_memory && self.tables.zones.get(zone.index()).is_some_and(|zone| !zone.span().is_empty())
    }
}

impl<'y, P: Platform> YardZone<'y, P> {
    /// Drains the lists of one CPU in one zone. A CPU or zone that has none is drained already.
    pub fn drain_cpu(self, cpu: CpuId) {
        let Self { yard, id: zone } = self;
        let Some(pcp) = yard.tables.pcp_of(zone, cpu).filter(|_| yard.is_populated(zone)) else { return };
        // A list that looks empty needs no lock: what arrives later is not this drain's.
        if !pcp.is_empty_racy() {
            pcp.lock(&yard.platform).drain(yard.zone_view(zone));
        }
    }

    /// Drains the lists of all CPUs in one zone, and what is kept between them and the free lists.
    pub fn drain(self) {
        let Self { yard, id: zone } = self;
        if !yard.is_populated(zone) {
            return;
        }
        let view = yard.zone_view(zone);
        for pcp in (0..yard.cpus).filter_map(|cpu| yard.tables.pcp_of(zone, CpuId(cpu))) {
            // Where batches move on without the zone lock, one may be on its way from lists that look empty: their lock is
            // what ends that.
            let moves_on = transfer::moves_past_zone_lock(view.zone) && !is_broken!(EmptyListsNotLocked);
            if !pcp.is_empty_racy() || moves_on {
                pcp.lock(&yard.platform).drain(view);
            }
        }
        // A transfer that stalls has at most a few batches in transit, as a CPU that frees has.
        let _ = transfer::collect(view, Collect::All);
    }
}

impl<'y, P: Platform> YardLists<'y, P> {
    /// Drains the lists of one CPU in all zones.
    pub fn drain_cpu(self, cpu: CpuId) {
        let yard = self.yard;
        for zone in 0..yard.tables.zones.len() {
            yard.zone(ZoneId(zone as u16)).drain_cpu(cpu);
        }
    }

    /// Sizes all per-CPU lists. Safe while other CPUs allocate: lists above a new limit shrink as they are used.
    pub fn resize(self, sizing: PcpSizing) {
        self.yard.tables.size_pcps(&self.yard.platform, self.yard.geometry, sizing);
    }

    /// Sets watermarks, reserves and per-CPU list sizes. Safe while other CPUs allocate.
    ///
    /// # Errors
    ///
    /// [`BootError::Watermarks`](crate::boot::BootError::Watermarks) where an option is out of its range; nothing
    /// changes then.
    pub fn retune(self, watermarks: &WatermarkOptions, sizing: PcpSizing) -> Result<(), crate::boot::BootError> {
        self.yard.tables.tune(&self.yard.platform, self.yard.geometry, watermarks, sizing)
    }
}
