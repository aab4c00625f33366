//! The type of each pageblock: one byte for each `2^pageblock_order` frames, so that no two zones share a byte.

use crate::sync::{AtomicU8, Ordering};
use crate::units::{Geometry, MigrateType, Order, PageCount, Pfn};

/// The pageblock types of the whole memory map. Written under the lock of the zone that the block is in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageblockMap<'a> {
    types: &'a [AtomicU8],
    first: Pfn,
    order: Order,
}

impl<'a> PageblockMap<'a> {
    pub(crate) fn new(types: &'a [AtomicU8], first: Pfn, geometry: Geometry) -> Self {
        Self { types, first, order: geometry.pageblock_order() }
    }

    #[inline(always)]
    fn byte(&self, pfn: Pfn) -> &'a AtomicU8 {
        &self.types[((pfn.0 - self.first.0) >> self.order.0) as usize]
    }

    /// The type of the pageblock that holds `pfn`. Without the zone lock it may be stale at once.
    #[inline(always)]
    pub(crate) fn get(&self, pfn: Pfn) -> MigrateType {
        MigrateType::from_bits(self.byte(pfn).load(Ordering::Relaxed)).unwrap_or(MigrateType::Unmovable)
    }

    /// Sets the type of the pageblock that holds `pfn`.
    pub(crate) fn set(&self, pfn: Pfn, migrate_type: MigrateType) {
        self.byte(pfn).store(migrate_type as u8, Ordering::Relaxed);
    }

    /// Sets the type of every pageblock of a block of at least pageblock order.
    pub(crate) fn set_block(&self, pfn: Pfn, order: Order, migrate_type: MigrateType) {
        let mut at = pfn;
        while at < pfn + order.pages() {
            self.set(at, migrate_type);
            at = at + PageCount(1 << self.order.0);
        }
    }

    /// How many frames a pageblock has.
    pub(crate) fn pages(&self) -> PageCount {
        self.order.pages()
    }

    /// The first frame of the pageblock that holds `pfn`.
    pub(crate) fn start_of(&self, pfn: Pfn) -> Pfn {
        pfn.align_down(self.order)
    }
}
