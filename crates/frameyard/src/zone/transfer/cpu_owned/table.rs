//! The owners of pageblocks, and each CPU's lists: two tables in the control region.

use super::COMPILED_IN;
use super::lists::CpuOwnedLists;
use crate::control::{ControlRegion, TablePlanner, TableSpan};
use crate::memmap::Numbering;
use crate::platform::{LockId, Platform};
use crate::sync::{AtomicU32, Ordering};
use crate::units::{CpuId, Order, Pfn, PfnRange, ZoneId};
use crate::zone::transfer::table_sizes::TableSizes;
use crate::zone::view::ZoneView;

/// Both tables of a yard.
#[derive(Clone, Copy)]
pub(in crate::zone::transfer) struct Tables {
    /// By pageblock: see [`OwnerWord`].
    owners: &'static [AtomicU32],
    /// One for each CPU and zone, by CPU first.
    lists: &'static [CpuOwnedLists],
}

/// The lengths of the tables; `None` if they do not fit an address space.
const fn lengths(sizes: &TableSizes) -> Option<(usize, usize)> {
    match sizes.cpus.checked_mul(sizes.zones) {
        _ if !COMPILED_IN => Some((0, 0)),
        Some(lists) => Some((sizes.pageblocks, lists)),
        None => None,
    }
}

/// Plans the tables.
pub(in crate::zone::transfer) const fn plan(planner: &mut TablePlanner, sizes: &TableSizes) -> Option<[TableSpan; 2]> {
    let Some((owners, lists)) = lengths(sizes) else { return None };
    match (planner.table::<AtomicU32>(owners), planner.table::<CpuOwnedLists>(lists)) {
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

    /// Whether both tables have the lengths that a yard of that size needs.
    pub(in crate::zone::transfer) fn fit(&self, sizes: &TableSizes) -> bool {
        lengths(sizes) == Some((self.owners.len(), self.lists.len()))
    }
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

/// The tables as one zone uses them.
pub(in crate::zone::transfer) struct CpuOwned {
    tables: Tables,
    zone: ZoneId,
    zones: usize,
    numbering: Numbering,
    order: Order,
}

impl<P: Platform> ZoneView<'_, P> {
    pub(in crate::zone::transfer) fn cpu_owned(&self) -> CpuOwned {
        let tables = self.mechanisms.cpu_owned;
        let (numbering, order) = (self.map.numbering(), self.geometry.pageblock_order());
        CpuOwned { tables, zone: self.id, zones: self.all_counters.1, numbering, order }
    }
}

impl CpuOwned {
    fn place(&self, pfn: Pfn) -> usize {
        self.numbering.place(pfn) >> self.order.0
    }

    /// The owner of the pageblock around `pfn`, a frame of the zone.
    ///
    /// Exact under that owner's lock. A caller that holds a frame of the pageblock may rely on `None`: a pageblock is claimed
    /// only while all of it is free.
    #[inline]
    pub(super) fn owner_racy(&self, pfn: Pfn) -> Option<CpuId> {
        OwnerWord(self.tables.owners.get(self.place(pfn))?.load(Ordering::Relaxed)).owner_in(self.zone)
    }

    /// Records the owner. The caller holds the zone lock, and the lock of the owner before or after.
    pub(super) fn set_owner(&self, pfn: Pfn, owner: Option<CpuId>) {
        let word = owner.map_or(OwnerWord::NONE, |cpu| OwnerWord::new(self.zone, cpu));
        if let Some(owner) = self.tables.owners.get(self.place(pfn)) {
            owner.store(word.0, Ordering::Relaxed);
        }
    }

    /// The lists of a CPU; `None` if there is no such CPU.
    pub(super) fn lists_of(&self, cpu: CpuId) -> Option<&'static CpuOwnedLists> {
        self.tables.lists.get(cpu.index() * self.zones + self.zone.index())
    }

    /// The locks of all CPUs' lists.
    pub(in crate::zone::transfer) fn each_lock(&self, mut visit: impl FnMut(LockId, &AtomicU32)) {
        for cpu in self.cpus() {
            if let Some(lists) = self.lists_of(cpu) {
                visit(LockId::Mechanism(self.zone, cpu), lists.lock_word());
            }
        }
    }

    /// The CPUs with lists.
    pub(super) fn cpus(&self) -> impl ExactSizeIterator<Item = CpuId> + use<> {
        (0..(self.tables.lists.len() / self.zones.max(1)) as u32).map(CpuId)
    }

    /// The first frames of the zone's owned pageblocks in a range, with their owners. Possibly stale.
    pub(super) fn owned_in(&self, range: PfnRange) -> impl Iterator<Item = (Pfn, CpuId)> {
        let pageblocks = self.numbering.blocks_of(range, self.order).flatten();
        pageblocks
            .map(|number| self.numbering.block_start(number, self.order))
            .filter_map(|pfn| Some((pfn, self.owner_racy(pfn)?)))
    }
}
