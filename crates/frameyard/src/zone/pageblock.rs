//! The type of each pageblock: one byte for each `2^pageblock_order` frames, so that no two zones share a byte.
//!
//! The low half of the byte is the type plus one; 0 stands for a pageblock without memory, or with uninitialised pages. So one load
//! tells whether a frame number has a readable page structure, and which list a freed frame belongs to. The high half is 0, except
//! in isolated pageblocks: there it is the type plus one to restore.

use crate::memmap::{MapPlace, Numbering};
use crate::platform::{Access, LineKind, Platform, SharedLine};
use crate::sync::{AtomicU8, Ordering};
use crate::units::{Geometry, MigrateType, Order, PageCount, Pfn, PfnRange};

/// The half of the byte that holds the type; the other remembers what an isolated pageblock was.
const TYPE: u8 = 0xf;
const REMEMBERED_SHIFT: u32 = 4;

const _: () = assert!(MigrateType::COUNT < TYPE as usize, "type plus one fits half a byte");

fn type_of(half: u8) -> Option<MigrateType> {
    MigrateType::from_bits((half & TYPE).wrapping_sub(1))
}

/// The pageblock types of the whole memory map. Written under the lock of the pageblock's zone; the first time by the CPU that
/// initialises the pageblock, before any other can access it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageblockMap<'a> {
    types: &'a [AtomicU8],
    numbering: Numbering,
    order: Order,
}

impl<'a> PageblockMap<'a> {
    pub(crate) fn new(types: &'a [AtomicU8], numbering: Numbering, geometry: Geometry) -> Self {
        Self { types, numbering, order: geometry.pageblock_order() }
    }

    /// The index of a frame's byte. Behind the table's end for frames outside the map.
    #[inline(always)]
    fn place(&self, pfn: Pfn) -> usize {
        self.numbering.place(pfn) >> self.order.0
    }

    #[inline(always)]
    fn byte(&self, pfn: Pfn) -> &'a AtomicU8 {
        // As in `MemMap::outside`: a place that a neighbour damaged is the first one.
        self.types.get(self.place(pfn)).unwrap_or(&self.types[0])
    }

    /// The type of the pageblock, if it has memory and is of one of the types that have per-CPU lists.
    ///
    /// Accepts any frame number.
    #[inline(always)]
    pub(crate) fn ordinary_type(&self, pfn: Pfn) -> Option<MigrateType> {
        self.ordinary_type_at(self.numbering.place(pfn))
    }

    /// As [`ordinary_type`](Self::ordinary_type), by the frame's place in the map.
    #[inline(always)]
    pub(crate) fn ordinary_type_at(&self, place: usize) -> Option<MigrateType> {
        // Acquire: pairs with the Release in `publish`.
        let bits = self.types.get(place >> self.order.0)?.load(Ordering::Acquire).wrapping_sub(1);
        if usize::from(bits) < MigrateType::PER_CPU { MigrateType::from_bits(bits) } else { None }
    }

    /// Announces a read of the type of the pageblock of the frame at an index. Other reads, mostly of types that were read just
    /// before, are not announced.
    #[inline(always)]
    pub(crate) fn touch_at<P: Platform>(&self, platform: &P, place: usize) {
        let types = self.types.as_ptr().wrapping_add(place >> self.order.0).cast();
        platform.touch_line(SharedLine { kind: LineKind::PageblockTypes, address: types }, Access::Read);
    }

    /// Whether the frame lies in a pageblock that has memory. Accepts any frame number.
    #[inline(always)]
    pub(crate) fn has_memory(&self, pfn: Pfn) -> bool {
        self.has_memory_at(self.numbering.place(pfn))
    }

    /// As [`has_memory`](Self::has_memory), by the frame's place in the map.
    #[inline(always)]
    pub(crate) fn has_memory_at(&self, place: usize) -> bool {
        // Acquire: pairs with the Release in `publish`.
        self.types.get(place >> self.order.0).is_some_and(|byte| byte.load(Ordering::Acquire) != 0)
    }

    /// The type of the pageblock that holds `pfn`. Without the zone lock it may be stale at once.
    #[inline(always)]
    pub(crate) fn get(&self, pfn: Pfn) -> MigrateType {
        type_of(self.byte(pfn).load(Ordering::Relaxed)).unwrap_or(MigrateType::Unmovable)
    }

    /// As [`get`](Self::get), by the place of a frame.
    #[inline(always)]
    pub(crate) fn get_at(&self, place: MapPlace) -> MigrateType {
        let byte = self.types.get(place.index() as usize >> self.order.0).unwrap_or(&self.types[0]);
        type_of(byte.load(Ordering::Relaxed)).unwrap_or(MigrateType::Unmovable)
    }

    /// The type that the pageblock has, or that is restored when its isolation ends. Without the zone lock it may be stale.
    pub(crate) fn lasting_type(&self, pfn: Pfn) -> MigrateType {
        let byte = self.byte(pfn).load(Ordering::Relaxed);
        type_of(byte >> REMEMBERED_SHIFT).or(type_of(byte)).unwrap_or(MigrateType::Unmovable)
    }

    /// Isolates the pageblock and keeps its type in the byte. Returns the type; `None` if it is isolated already.
    pub(crate) fn isolate(&self, pfn: Pfn) -> Option<MigrateType> {
        let was = self.get(pfn);
        if was == MigrateType::Isolate {
            return None;
        }
        let remembered = (was as u8 + 1) << REMEMBERED_SHIFT;
        // Release: pairs with the Acquire in `has_memory`, as in `set`.
        self.byte(pfn).store(remembered | (MigrateType::Isolate as u8 + 1), Ordering::Release);
        Some(was)
    }

    /// Restores the type of an isolated pageblock. Returns the type; `None` if it is not isolated.
    pub(crate) fn restore(&self, pfn: Pfn) -> Option<MigrateType> {
        if self.get(pfn) != MigrateType::Isolate {
            return None;
        }
        let was = self.lasting_type(pfn);
        // Release: pairs with the Acquire in `has_memory`, as in `set`.
        self.byte(pfn).store(was as u8 + 1, Ordering::Release);
        Some(was)
    }

    /// Publishes the pages of a pageblock with memory: as Movable, unless it has a type already. A CPU that sees a type sees these
    /// pages initialised.
    pub(crate) fn publish(&self, pfn: Pfn) {
        let byte = self.byte(pfn);
        if byte.load(Ordering::Relaxed) == 0 {
            // Release: pairs with the Acquire in `has_memory`.
            byte.store(MigrateType::Movable as u8 + 1, Ordering::Release);
        }
    }

    /// Sets the type of the pageblock that holds `pfn`, which is not isolated.
    pub(crate) fn set(&self, pfn: Pfn, migrate_type: MigrateType) {
        // Release: pairs with the Acquire in `ordinary_type` and `has_memory`. The writer sees the pages initialised
        // by the zone lock; a CPU that sees this type instead of the published one must see them, too.
        self.byte(pfn).store(migrate_type as u8 + 1, Ordering::Release);
    }

    /// Sets the type of every pageblock of a block of at least pageblock order.
    pub(crate) fn set_block(&self, pfn: Pfn, order: Order, migrate_type: MigrateType) {
        self.starts_in(PfnRange::new(pfn, order.pages())).for_each(|pageblock| self.set(pageblock, migrate_type));
    }

    /// The types of the pageblocks that a block lies in.
    pub(crate) fn types_of(&self, pfn: Pfn, order: Order) -> impl Iterator<Item = MigrateType> {
        let count = 1u64 << order.0.saturating_sub(self.order.0);
        (0..count).map(move |at| self.get(pfn + PageCount(at << self.order.0)))
    }

    /// How many frames a pageblock has.
    pub(crate) fn pages(&self) -> PageCount {
        self.order.pages()
    }

    /// The first frames of the pageblocks that a range touches, ascending.
    pub(crate) fn starts_in(&self, range: PfnRange) -> impl Iterator<Item = Pfn> + use<> {
        (self.start_of(range.start).0..range.end.0).step_by(self.pages().0 as usize).map(Pfn)
    }

    /// The numbers of the pageblocks that a range touches, run by run. Holes have none.
    pub(crate) fn numbers_in(&self, range: PfnRange) -> impl Iterator<Item = core::ops::Range<u64>> + use<> {
        self.numbering.blocks_of(range, self.order)
    }

    /// The first frame of a pageblock, by its number.
    pub(crate) fn start_at(&self, number: u64) -> Pfn {
        self.numbering.block_start(number, self.order)
    }

    /// As [`starts_in`](Self::starts_in), run by run, without holes.
    pub(crate) fn present_starts_in(&self, range: PfnRange) -> impl Iterator<Item = Pfn> {
        self.numbers_in(range).flatten().map(|number| self.start_at(number))
    }

    /// The first frame of the pageblock that holds `pfn`.
    pub(crate) fn start_of(&self, pfn: Pfn) -> Pfn {
        pfn.align_down(self.order)
    }
}
