//! The type of each pageblock: one byte for each `2^pageblock_order` frames, so that no two zones share a byte.
//!
//! The byte is the type plus one; 0 stands for a pageblock without any memory, or whose pages are not initialised. So
//! one load says both whether a frame number may have a page structure that can be looked at, and which list a freed
//! frame belongs to.

use crate::sync::{AtomicU8, Ordering};
use crate::units::{Geometry, MigrateType, Order, PageCount, Pfn};

/// The pageblock types of the whole memory map. Written under the lock of the zone that the block is in; the first time
/// by who brings the block up, whom nobody can meet there.
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

    /// Frames below the first wrap to places far behind the table's end.
    #[inline(always)]
    fn place(&self, pfn: Pfn) -> usize {
        (pfn.0.wrapping_sub(self.first.0) >> self.order.0) as usize
    }

    #[inline(always)]
    fn byte(&self, pfn: Pfn) -> &'a AtomicU8 {
        &self.types[self.place(pfn)]
    }

    /// The type of the pageblock, if it has memory and is of one of the types that have per-CPU lists.
    ///
    /// Any frame number may be asked for.
    #[inline(always)]
    pub(crate) fn ordinary_type(&self, pfn: Pfn) -> Option<MigrateType> {
        // Acquire: pairs with the Release in `publish`.
        let bits = self.types.get(self.place(pfn))?.load(Ordering::Acquire).wrapping_sub(1);
        if usize::from(bits) < MigrateType::PER_CPU { MigrateType::from_bits(bits) } else { None }
    }

    /// Whether the frame lies in a pageblock that has memory. Any frame number may be asked for.
    #[inline(always)]
    pub(crate) fn has_memory(&self, pfn: Pfn) -> bool {
        // Acquire: pairs with the Release in `publish`.
        self.types.get(self.place(pfn)).is_some_and(|byte| byte.load(Ordering::Acquire) != 0)
    }

    /// The type of the pageblock that holds `pfn`. Without the zone lock it may be stale at once.
    #[inline(always)]
    pub(crate) fn get(&self, pfn: Pfn) -> MigrateType {
        let bits = self.byte(pfn).load(Ordering::Relaxed).wrapping_sub(1);
        MigrateType::from_bits(bits).unwrap_or(MigrateType::Unmovable)
    }

    /// Lets everybody look at the pages of a pageblock with memory: Movable, unless it has a type already. Whoever sees
    /// a type sees these pages initialised.
    pub(crate) fn publish(&self, pfn: Pfn) {
        let byte = self.byte(pfn);
        if byte.load(Ordering::Relaxed) == 0 {
            byte.store(MigrateType::Movable as u8 + 1, Ordering::Release);
        }
    }

    /// Sets the type of the pageblock that holds `pfn`.
    pub(crate) fn set(&self, pfn: Pfn, migrate_type: MigrateType) {
        // Release: pairs with the Acquire in `ordinary_type` and `has_memory`. The writer sees the pages initialised,
        // by the zone lock; whoever sees this type instead of the published one must, too.
        self.byte(pfn).store(migrate_type as u8 + 1, Ordering::Release);
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
