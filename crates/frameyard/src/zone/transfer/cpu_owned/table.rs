//! The owners of pageblocks, and each CPU's lists: two tables in the control region.

use super::lists::CpuOwnedLists;
use crate::control::{ControlRegion, TablePlanner, TableSpan};
use crate::sync::{AtomicU32, Ordering};
use crate::units::{CpuId, Geometry, Order, PageCount, Pfn, PfnRange, ZoneId};
use crate::zone::transfer::table_sizes::TableSizes;

/// Both tables of a yard.
#[derive(Clone, Copy)]
pub(in crate::zone::transfer) struct Tables {
    /// By pageblock: see [`OwnerWord`].
    owners: &'static [AtomicU32],
    /// One for each CPU and zone, by CPU first.
    lists: &'static [CpuOwnedLists],
}

/// Plans the tables.
pub(in crate::zone::transfer) const fn plan(planner: &mut TablePlanner, sizes: &TableSizes) -> Option<[TableSpan; 2]> {
    let Some(lists) = sizes.cpus.checked_mul(sizes.zones) else { return None };
    match (planner.table::<AtomicU32>(sizes.pageblocks), planner.table::<CpuOwnedLists>(lists)) {
        (Some(owners), Some(lists)) => Some([owners, lists]),
        _ => None,
    }
}

impl Tables {
    /// # Safety
    ///
    /// As for [`ControlRegion::table`]: the spans are those that [`plan`] made.
    pub(in crate::zone::transfer) unsafe fn carve(region: &ControlRegion, spans: [TableSpan; 2]) -> Option<Self> {
        // SAFETY: passed on to the caller.
        unsafe { Some(Self { owners: region.table(spans[0])?, lists: region.table(spans[1])? }) }
    }
}

/// Whether both tables have the lengths that a yard of that size needs.
pub(in crate::zone::transfer) fn fits(tables: &Tables, sizes: &TableSizes) -> bool {
    tables.owners.len() == sizes.pageblocks && tables.lists.len() == sizes.cpus * sizes.zones
}

/// The tables, for a yard of that geometry.
#[derive(Clone, Copy)]
pub(in crate::zone::transfer) struct CpuOwnedTables {
    tables: Tables,
    zones: usize,
    first: Pfn,
    order: Order,
}

/// The owner of a pageblock in a word: the CPU plus 1 in bits 0–16, the zone in bits 17–31; 0 for none.
///
/// The zone is part of it because spans of zones may overlap: a walk over a span meets pageblocks of other zones.
#[derive(Clone, Copy, PartialEq, Eq)]
struct OwnerWord(u32);

const ZONE_SHIFT: u32 = 17;

impl OwnerWord {
    const NONE: Self = Self(0);

    fn new(zone: ZoneId, cpu: CpuId) -> Self {
        Self(u32::from(zone.0) << ZONE_SHIFT | (cpu.0 + 1))
    }

    /// The owner, if the pageblock belongs to that zone.
    fn owner_in(self, zone: ZoneId) -> Option<CpuId> {
        let cpu = (self.0 & ((1 << ZONE_SHIFT) - 1)).checked_sub(1)?;
        (self.0 >> ZONE_SHIFT == u32::from(zone.0)).then_some(CpuId(cpu))
    }
}

impl CpuOwnedTables {
    /// The tables of a yard with that many zones, whose map begins with `first`.
    pub(in crate::zone::transfer) fn new(tables: Tables, zones: usize, first: Pfn, geometry: Geometry) -> Self {
        Self { tables, zones, first, order: geometry.pageblock_order() }
    }

    fn place(&self, pfn: Pfn) -> usize {
        (pfn.0.wrapping_sub(self.first.0) >> self.order.0) as usize
    }

    /// The owner of the pageblock around `pfn`, a frame of that zone.
    ///
    /// Exact under that owner's lock. A caller that holds a frame of the pageblock may rely on `None`: a pageblock is claimed
    /// only while all of it is free.
    #[inline]
    pub(super) fn owner_racy(&self, zone: ZoneId, pfn: Pfn) -> Option<CpuId> {
        OwnerWord(self.tables.owners.get(self.place(pfn))?.load(Ordering::Relaxed)).owner_in(zone)
    }

    /// Records the owner. The caller holds the zone lock, and the lock of the owner before or after.
    pub(super) fn set_owner(&self, zone: ZoneId, pfn: Pfn, owner: Option<CpuId>) {
        let word = owner.map_or(OwnerWord::NONE, |cpu| OwnerWord::new(zone, cpu));
        self.tables.owners[self.place(pfn)].store(word.0, Ordering::Relaxed);
    }

    /// The lists of a CPU in a zone; `None` if there is no such CPU.
    pub(super) fn lists_of(&self, zone: ZoneId, cpu: CpuId) -> Option<&'static CpuOwnedLists> {
        self.tables.lists.get(cpu.index() * self.zones + zone.index())
    }

    /// The number of CPUs with lists.
    pub(super) fn cpus(&self) -> u32 {
        (self.tables.lists.len() / self.zones.max(1)) as u32
    }

    /// The first frames of a zone's owned pageblocks in a range, with their owners. Possibly stale.
    pub(super) fn owned_in(&self, zone: ZoneId, range: PfnRange) -> impl Iterator<Item = (Pfn, CpuId)> + use<> {
        let tables = *self;
        let (start, step) = (range.start.align_down(self.order), self.order.pages().0);
        let count = range.end.0.saturating_sub(start.0).div_ceil(step);
        (0..count).filter_map(move |at| {
            let pfn = start + PageCount(at * step);
            Some((pfn, tables.owner_racy(zone, pfn)?))
        })
    }
}
