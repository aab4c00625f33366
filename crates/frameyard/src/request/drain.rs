//! Draining: moving the frames of per-CPU lists back to their zones.
//!
//! Any CPU may drain any list. The drain waits for the list's lock, whose holder waits only for locks later in the lock
//! order.

use crate::lists::{CpuLists, LockedPcp, lock_each};
use crate::platform::Platform;
use crate::store;
use crate::sync::is_broken;
use crate::units::{CpuId, PfnRange, ZoneId, ZoneKind};
use crate::yard::{Yard, YardLists, YardZone};
use crate::zone::{Patience, PcpSizing, WatermarkOptions, ZoneView};

impl<P: Platform> Yard<P> {
    /// Drains all lists.
    pub fn drain_all(&self) {
        self.populated_zones().for_each(|view| self.zone(view.id).drain());
    }

    /// The zones with memory.
    pub(crate) fn populated_zones(&self) -> impl Iterator<Item = ZoneView<'_, P>> {
        (0..self.tables.zones.len()).filter_map(|zone| self.zone(ZoneId(zone as u16)).populated())
    }
}

impl<'y, P: Platform> YardZone<'y, P> {
    /// The zone with what its operations need; `None` where it has no memory.
    pub(crate) fn populated(self) -> Option<ZoneView<'y, P>> {
        let zone = self.yard.tables.zones.get(self.id.index())?;
        let has_memory = self.id.kind() != ZoneKind::Device && !zone.span().is_empty();
        has_memory.then(|| self.yard.zone_view(self.id))
    }

    /// The lists of a CPU; `None` where the zone has no memory or the CPU does not exist.
    pub(crate) fn lists_of(self, cpu: CpuId) -> Option<CpuLists<'static>> {
        self.yard.tables.pcp_of(self.id, cpu).filter(|_| self.populated().is_some())
    }

    /// Drains the lists of one CPU in one zone. Does nothing if there is no such CPU or zone.
    pub fn drain_cpu(self, cpu: CpuId) {
        let Some((pcp, view)) = self.lists_of(cpu).zip(self.populated()) else { return };
        // A list that looks empty needs no lock: what arrives later is not this drain's.
        if !pcp.is_empty_racy() {
            pcp.lock(&self.yard.platform).into_iter().for_each(|mut lists| lists.drain(view));
        }
    }

    /// Drains the lists of all CPUs in one zone, and the frames that the transfer policy stores between those lists and
    /// the free lists.
    pub fn drain(self) {
        self.drain_with(Patience::Sleeps);
    }

    /// As [`drain`](Self::drain), with that patience for transfers in progress and for held locks. A caller that must not wait leaves
    /// lists alone whose lock is held, and drains at most as many lists as it would wait rounds.
    pub(crate) fn drain_with(self, patience: Patience) {
        let Some(view) = self.populated() else { return };
        // Where batches move without the zone lock, one may be in transit from lists that look empty: taking their lock ends that.
        let moves_on = || store::keeps_bits(view) && !is_broken!(EmptyListsNotLocked);
        self.with_lists(patience, |pcp| !pcp.is_empty_racy() || moves_on(), |mut lists| lists.drain(view));
        // Bits are where free frames rest.
        if !store::keeps_bits(view) {
            store::collect_all(view);
        }
    }

    /// Drains the lists of all CPUs, and returns the free frames of a range that rest elsewhere to the free lists.
    pub(crate) fn drain_for(self, range: PfnRange, patience: Patience) {
        self.drain_with(patience);
        self.collect_bits(range);
    }

    /// Returns the frames of a range that are free as bits to the free lists.
    pub(crate) fn collect_bits(self, range: PfnRange) {
        if let Some(view) = self.populated().filter(|view| store::keeps_bits(*view)) {
            self.yard.pageblocks().starts_in(range).for_each(|at| store::collect_around(view, at));
        }
    }
}

impl<'y, P: Platform> YardZone<'y, P> {
    /// Runs `work` on the lists of all CPUs in the zone, each locked in turn, as far as they are `wanted`. A caller that must not wait
    /// leaves lists alone whose lock is held, and looks at a bounded number; where CPUs use their lists in restartable sequences,
    /// it gets its own CPU's only.
    pub(crate) fn with_lists(
        self,
        patience: Patience,
        mut wanted: impl FnMut(CpuLists<'_>) -> bool,
        work: impl FnMut(LockedPcp<'y, P>),
    ) {
        let platform = &self.yard.platform;
        let all = self.yard.tables.pcps_of(self.id);
        match patience {
            Patience::Sleeps => lock_each(all.map(|(_, pcp)| pcp), platform, wanted, work),
            Patience::Spins => {
                let some = all.filter(|(_, pcp)| wanted(*pcp)).take(patience.rounds() as usize);
                some.filter_map(|(cpu, pcp)| pcp.try_lock(platform, self.id, cpu)).for_each(work);
            }
        }
    }
}

impl<'y, P: Platform> YardLists<'y, P> {
    /// Drains the lists of one CPU in all zones.
    pub fn drain_cpu(self, cpu: CpuId) {
        self.yard.populated_zones().for_each(|view| self.yard.zone(view.id).drain_cpu(cpu));
    }

    /// Changes the sizes of all per-CPU lists. Other CPUs may allocate meanwhile: a list above its new limit shrinks as
    /// it is used.
    pub fn resize(self, sizing: PcpSizing) {
        self.yard.tables.size_pcps(&self.yard.platform, self.yard.geometry, sizing);
    }

    /// Sets watermarks, reserves and per-CPU list sizes. Other CPUs may allocate meanwhile.
    ///
    /// # Errors
    ///
    /// [`BootError::Watermarks`](crate::boot::BootError::Watermarks) if an option is out of range; nothing has changed
    /// then.
    pub fn retune(self, watermarks: &WatermarkOptions, sizing: PcpSizing) -> Result<(), crate::boot::BootError> {
        self.yard.tables.tune(&self.yard.platform, self.yard.geometry, watermarks, sizing)
    }
}
