//! Sets watermarks, reserves and per-CPU list sizes of a yard from the managed pages of its zones.
//!
//! This can be repeated at any time, for example after managed pages have changed: allocations read each value on its
//! own, and the limits of a CPU's lists change under their lock.

use crate::boot::{BootError, Tables};
use crate::lists::{LockedPcp, YardLimits, lock_each};
use crate::platform::Platform;
use crate::sync::{AtomicU64, Ordering};
use crate::units::{Geometry, NodeId, PageCount, ZoneId, ZoneKind};
use crate::zone::{
    PcpSizes, PcpSizing, PcpZone, SharedMinimum, WatermarkOptions, WatermarkOptionsError, Zone, ZoneSizing,
    lowmem_reserve,
};

/// The most huge-page blocks that one CPU keeps of one zone.
const MAX_HUGE_BLOCKS: u64 = 8;
/// The lists of the orders between the small ones and that of a line of bits hold this part of a zone at most, those of all CPUs together.
const LARGE_SHARE: u64 = 128;
/// The most frames that those of one CPU hold.
const MOST_LARGE: PageCount = PageCount(8192);
/// Where free frames are bits, the lists of all CPUs together hold at most this share of a zone in huge blocks.
const HUGE_SHARE: u64 = if cfg!(loom) { 1 } else { 32 };
/// The most huge blocks that those of one CPU hold.
const MOST_HUGE: u64 = if cfg!(loom) { 6 } else { 32 };
/// Fewer are not worth longer lists.
const LEAST_HUGE: u64 = if cfg!(loom) { 4 } else { 8 };

impl Tables {
    /// Sets watermarks, reserves and the limits of all per-CPU lists.
    pub(crate) fn tune<P: Platform>(
        &self,
        platform: &P,
        geometry: Geometry,
        watermarks: &WatermarkOptions,
        sizing: PcpSizing,
    ) -> Result<(), BootError> {
        self.set_watermarks(geometry, watermarks).map_err(BootError::Watermarks)?;
        self.size_pcps(platform, geometry, sizing);
        Ok(())
    }

    /// Sets watermarks and reserves.
    pub(crate) fn set_watermarks(
        &self,
        geometry: Geometry,
        watermarks: &WatermarkOptions,
    ) -> Result<(), WatermarkOptionsError> {
        // One record at a time: those of all zones that a yard can have would take 33 KiB of stack.
        let sizing = |at: usize, zone: &Zone| {
            let id = ZoneId(at as u16);
            // Nothing of a Device zone is managed, so there is nothing to reserve, whatever devices there are.
            let has_memory = id.kind() != ZoneKind::Device;
            let present = if has_memory { zone.facts.present.load(Ordering::Relaxed) } else { 0 };
            ZoneSizing::new(id, PageCount(present), zone.managed())
        };
        let zones = || self.zones.iter().enumerate().map(|(at, zone)| sizing(at, zone));
        let shared = SharedMinimum::of(geometry, watermarks, zones)?;
        let managed = |id: ZoneId| self.zones.get(id.index()).map_or(PageCount(0), Zone::managed);
        for (mut record, zone) in zones().zip(self.zones) {
            record.watermarks = shared.watermarks(&record);
            record.protection = lowmem_reserve(&watermarks.lowmem_reserve_ratio, record.id, managed);
            store(&record, zone);
            zone.facts.boost_factor.store(watermarks.watermark_boost_factor, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Sets `high` and `batch` of all per-CPU lists. A policy with limits of its own keeps them; the new ones apply
    /// when it ends.
    pub(crate) fn size_pcps<P: Platform>(&self, platform: &P, geometry: Geometry, sizing: PcpSizing) {
        let online_cpus = self.cpus();
        for (at, zone) in self.zones.iter().enumerate() {
            let id = ZoneId(at as u16);
            if zone.facts.present.load(Ordering::Relaxed) == 0 || id.kind() == ZoneKind::Device {
                continue;
            }
            let local_cpus = self.cpus_of(id.node());
            let low = zone.watermark(crate::zone::WatermarkLevel::Low);
            let sizes = sizing.sizes(geometry, PcpZone { managed: zone.managed(), low, local_cpus, online_cpus });
            let cpus = if local_cpus == 0 { online_cpus } else { local_cpus };
            let limits = YardLimits {
                high: sizes.high,
                huge_high: match zone.policy() {
                    policy if policy.keeps_bits() => huge_high_of_bits(geometry, sizes, zone.managed(), cpus),
                    _ => huge_high(geometry, sizes),
                },
                large_high: large_high(sizes, zone.managed(), cpus),
                batch: sizes.batch,
            };
            let all = self.pcps_of(id).map(|(_, pcp)| pcp);
            // The policy is read under the lock: a change of policy locks the lists afterwards.
            lock_each(all, platform, |_| true, |mut lists: LockedPcp<'_, P>| lists.set_limits(zone.policy(), limits));
        }
    }

    /// How many CPUs belong to a node.
    pub(crate) fn cpus_of(&self, node: NodeId) -> u32 {
        (0..self.cpus() as usize).filter(|cpu| self.node_of_cpu(*cpu) == node).count() as u32
    }
}

/// What a CPU may hold in blocks of the huge-page order: as much as in small frames, but few blocks, and at
/// least one where it may hold anything. Counted apart, so that huge blocks never push small frames out.
fn huge_high(geometry: Geometry, sizes: PcpSizes) -> PageCount {
    let order = geometry.pageblock_order();
    if sizes.high.0 == 0 {
        return PageCount(0);
    }
    PageCount((sizes.high.0 >> order.0).clamp(1, MAX_HUGE_BLOCKS) << order.0)
}

/// [`huge_high`] where free frames are bits, in zones with enough memory for more: a list gives or takes many at once.
fn huge_high_of_bits(geometry: Geometry, sizes: PcpSizes, managed: PageCount, cpus: u32) -> PageCount {
    let (order, least) = (geometry.pageblock_order(), huge_high(geometry, sizes));
    let blocks = ((managed.0 >> order.0) / HUGE_SHARE / u64::from(cpus.max(1))).min(MOST_HUGE);
    if blocks >= LEAST_HUGE && least.0 > 0 { PageCount(blocks << order.0).max(least) } else { least }
}

/// What a CPU may hold in blocks of the orders between the small ones and that of a line of bits: a small part of the zone.
fn large_high(sizes: PcpSizes, managed: PageCount, cpus: u32) -> PageCount {
    let share = PageCount(managed.0 / LARGE_SHARE / u64::from(cpus.max(1)));
    if sizes.high.0 == 0 { PageCount(0) } else { share.min(MOST_LARGE) }
}

fn store(record: &ZoneSizing, zone: &Zone) {
    let marks = record.watermarks;
    for (slot, mark) in zone.facts.watermarks.iter().zip([marks.min, marks.low, marks.high, marks.promo]) {
        store_new(slot, mark);
    }
    // A racing change of the boost may win; the next balance takes it back.
    store_new(&zone.facts.boost, marks.boost);
    for (slot, protection) in zone.facts.protection.iter().zip(record.protection) {
        store_new(slot, protection);
    }
}

/// Writes a count unless it is there already: refills of all CPUs read these lines.
fn store_new(slot: &AtomicU64, count: PageCount) {
    if slot.load(Ordering::Relaxed) != count.0 {
        slot.store(count.0, Ordering::Relaxed);
    }
}
