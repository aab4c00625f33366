//! Which CPU owns which pageblock, and where each CPU's lists of owned memory are.

use super::lists::CpuOwnedLists;
use crate::sync::{AtomicU32, Ordering};
use crate::units::{CpuId, Geometry, Order, PageCount, Pfn, PfnRange, ZoneId};

/// The tables of owned pageblocks: an owner for each pageblock of the map, and lists for each CPU and zone.
#[derive(Clone, Copy)]
pub(crate) struct CpuOwnedTables<'a> {
    /// By pageblock: see [`OwnerWord`].
    owners: &'a [AtomicU32],
    /// A row of all zones for each CPU.
    lists: &'a [CpuOwnedLists],
    zones: usize,
    first: Pfn,
    order: Order,
}

/// Who owns a pageblock, in a word: in bits 0–16 the CPU plus 1, in bits 17–31 the zone; 0 where nobody does.
///
/// The zone stands there because the spans of zones may overlap: who goes through a span meets others' pageblocks.
#[derive(Clone, Copy, PartialEq, Eq)]
struct OwnerWord(u32);

const ZONE_SHIFT: u32 = 17;

impl OwnerWord {
    const NOBODY: Self = Self(0);

    fn new(zone: ZoneId, cpu: CpuId) -> Self {
        Self(u32::from(zone.0) << ZONE_SHIFT | (cpu.0 + 1))
    }

    /// The owner, if the pageblock is of that zone.
    fn owner_in(self, zone: ZoneId) -> Option<CpuId> {
        let cpu = (self.0 & ((1 << ZONE_SHIFT) - 1)).checked_sub(1)?;
        (self.0 >> ZONE_SHIFT == u32::from(zone.0)).then_some(CpuId(cpu))
    }
}

impl<'a> CpuOwnedTables<'a> {
    pub(crate) fn new(
        owners: &'a [AtomicU32],
        lists: &'a [CpuOwnedLists],
        zones: usize,
        first: Pfn,
        geometry: Geometry,
    ) -> Self {
        Self { owners, lists, zones, first, order: geometry.pageblock_order() }
    }

    fn place(&self, pfn: Pfn) -> usize {
        (pfn.0.wrapping_sub(self.first.0) >> self.order.0) as usize
    }

    /// The owner of the pageblock that holds `pfn`, a frame of that zone.
    ///
    /// Exact for who holds that owner's lock. Who holds a frame of the pageblock may rely on "nobody": a pageblock is
    /// claimed while all of it is free.
    #[inline]
    pub(crate) fn owner_racy(&self, zone: ZoneId, pfn: Pfn) -> Option<CpuId> {
        OwnerWord(self.owners.get(self.place(pfn))?.load(Ordering::Relaxed)).owner_in(zone)
    }

    /// Writes the owner down. For who holds the zone lock, and that of the owner before or after.
    pub(super) fn set_owner(&self, zone: ZoneId, pfn: Pfn, owner: Option<CpuId>) {
        let word = owner.map_or(OwnerWord::NOBODY, |cpu| OwnerWord::new(zone, cpu));
        self.owners[self.place(pfn)].store(word.0, Ordering::Relaxed);
    }

    /// The lists of a CPU in a zone; `None` where there is no such CPU.
    pub(crate) fn lists_of(&self, zone: ZoneId, cpu: CpuId) -> Option<&'a CpuOwnedLists> {
        self.lists.get(cpu.index() * self.zones + zone.index())
    }

    /// How many CPUs have lists.
    pub(crate) fn cpus(&self) -> u32 {
        (self.lists.len() / self.zones.max(1)) as u32
    }

    /// The first frames of a zone's pageblocks in a range that somebody owned a moment ago, and who.
    pub(crate) fn owned_in(&self, zone: ZoneId, range: PfnRange) -> impl Iterator<Item = (Pfn, CpuId)> + use<'a> {
        let tables = *self;
        let (start, step) = (range.start.align_down(self.order), self.order.pages().0);
        let count = range.end.0.saturating_sub(start.0).div_ceil(step);
        (0..count).filter_map(move |at| {
            let pfn = start + PageCount(at * step);
            Some((pfn, tables.owner_racy(zone, pfn)?))
        })
    }
}
