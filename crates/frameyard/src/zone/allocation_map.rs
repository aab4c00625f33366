//! The allocation map: one byte per frame, which records the blocks that are allocated.
//!
//! While a block is [`Allocated`](FrameState::Allocated), the byte of its first frame has its order and migration type
//! ([`MapEntry`]). All other bytes are zero: those of frames inside blocks, of free frames, of frames whose tag names
//! their owner, and of memory that was never touched.
//!
//! Larger blocks have their bytes in two other tables, with one byte for each [`GROUP`] of frames or for each
//! pageblock. This way their bytes share cache lines; the bytes of their first frames would be far apart. Of the up to
//! three bytes of a frame, at most one is not zero. Large blocks, those above the maximum order, use the byte of their
//! first pageblock, too. Separate functions set and clear it, because the fast paths refuse these orders with the same
//! comparison that refuses any bad order.
//!
//! # Protocol
//!
//! [`AllocationMap::mark_allocated`] stores the byte as the last step of an allocation. [`AllocationMap::clear_allocated`]
//! exchanges it for zero as the first step of a free, and of every other way in which an allocated block changes its state:
//! [`init_refs`](crate::views::CountedBlocks::init_refs), a [`Frames`](crate::Frames) guard, a split. The exchange decides racing frees: one caller wins and owns the block,
//! every other caller gets `None` and has changed nothing.
//!
//! A free needs only this byte, not the page structure: 64 frames share a cache line. While a block is allocated
//! nothing inside the yard writes to its pages. So a single frame can be allocated from a per-CPU list and freed to it
//! again while its tag stays as the zone last wrote it. [`Allocated`](FrameState::Allocated) and
//! [`PerCpu`](FrameState::PerCpu) in a tag both mean that the block has left its zone. The byte tells the two apart,
//! and has the migration type of the allocation; order and zone in the tag are valid in both states.
//! [`AllocationMap::read`] combines tag and byte. A single frame may have no tag ([`untagged`](super::untagged)); even
//! then, a byte that is set marks the head of a block.
//!
//! # Ordering
//!
//! - The rightful owner sees its entry: it learnt the frame number from the allocation, which stored the byte before it
//!   returned. The relaxed load before the exchange therefore never refuses a rightful free.
//! - The next entry of a byte follows the exchange of this one: a free puts the block on a list under a lock that the next
//!   allocation takes later. So each exchange clears exactly one entry.
//! - A caller that clears an entry sees all that the allocation wrote to the block's pages (Release in `mark_allocated`,
//!   Acquire in `clear_allocated`).
//!
//! # Limits
//!
//! A caller that frees a frame it does not own may win against the rightful owner. The allocator cannot detect this.
//! The lists stay intact, and the owner's later free returns an error. A reader without a claim on the block loads tag
//! and byte one after the other, so while both change it may see any mixture.

use core::ops::Deref;

use crate::memmap::Numbering;
use crate::page::{FrameState, Tag};
use crate::platform::{Access, LineKind, Platform, Probe, SharedLine};
use crate::sync::{AtomicU8, Ordering};
use crate::units::{Geometry, MigrateType, ORDER_SLOTS, Order, Pfn};

/// Bits 0–2 hold the migration type plus one.
const TYPE: u8 = 0x7;
/// Bits 3–7 hold the order.
const ORDER_SHIFT: u32 = 3;

const _: () = assert!(ORDER_SLOTS <= 1 << (8 - ORDER_SHIFT), "the order fits the bits");
const _: () = assert!(MigrateType::COUNT <= TYPE as usize, "type plus one fits the bits");

/// The order of the frames that share a byte for blocks of that order and above, below pageblock order.
pub(crate) const GROUP: Order = Order(4);

/// The byte of an allocated block: the order, and the migration type of the allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MapEntry(u8);

impl MapEntry {
    #[inline(always)]
    const fn new(order: Order, migrate_type: MigrateType) -> Self {
        Self(order.0 << ORDER_SHIFT | (migrate_type as u8 + 1))
    }

    /// Whether the block is of that order. Accepts any order.
    #[inline(always)]
    const fn is_of(self, order: Order) -> bool {
        // One comparison of a difference. Orders that do not fit the bits equal none.
        (self.0 as u32).wrapping_sub((order.0 as u32) << ORDER_SHIFT | 1) < TYPE as u32
    }

    #[inline(always)]
    pub(crate) const fn order(self) -> Order {
        Order(self.0 >> ORDER_SHIFT)
    }

    #[inline(always)]
    pub(crate) const fn migrate_type(self) -> MigrateType {
        match MigrateType::from_bits((self.0 & TYPE).wrapping_sub(1)) {
            Some(migrate_type) => migrate_type,
            None => MigrateType::Unmovable,
        }
    }

    /// Whether order and type exist.
    pub(crate) fn is_well_formed(self) -> bool {
        self.0 & TYPE != 0 && self == Self::new(self.order(), self.migrate_type())
    }
}

/// The bytes of the allocation map, by place in the memory map.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AllocationBytes<'a> {
    /// A byte for each frame: the first one of a block of less than a group.
    frames: &'a [AtomicU8],
    /// A byte for each group of frames: the first one of a larger block, below pageblock order.
    groups: &'a [AtomicU8],
    /// A byte for each pageblock: the first one of a larger block.
    pageblocks: &'a [AtomicU8],
    max_order: Order,
    pageblock_order: Order,
    /// That of the largest large block.
    largest_order: Order,
}

/// The bytes of the allocation map, also by frame number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AllocationMap<'a> {
    bytes: AllocationBytes<'a>,
    numbering: Numbering,
}

impl<'a> Deref for AllocationMap<'a> {
    type Target = AllocationBytes<'a>;

    #[inline(always)]
    fn deref(&self) -> &AllocationBytes<'a> {
        &self.bytes
    }
}

impl<'a> AllocationBytes<'a> {
    /// Place 0 begins a section.
    pub(crate) fn new([frames, groups, pageblocks]: [&'a [AtomicU8]; 3], geometry: Geometry) -> Self {
        let (max_order, pageblock_order) = (geometry.max_order(), geometry.pageblock_order());
        Self { frames, groups, pageblocks, max_order, pageblock_order, largest_order: geometry.largest_order() }
    }

    /// The byte of the head of a block of that order; `None` if no such block begins there.
    #[inline(always)]
    fn head(&self, place: usize, order: Order) -> Option<&'a AtomicU8> {
        if order > Order::ZERO {
            if order > self.max_order || place & ((1 << order.0) - 1) != 0 {
                return None;
            }
            if order >= self.pageblock_order {
                return self.pageblocks.get(place >> self.pageblock_order.0);
            }
            if order >= GROUP {
                return self.groups.get(place >> GROUP.0);
            }
        }
        self.frames.get(place)
    }

    /// As [`AllocationMap::mark_allocated`], by the place of the block's head in the map.
    #[inline(always)]
    pub(crate) fn mark_allocated_at<P: Platform>(
        &self,
        platform: &P,
        place: usize,
        order: Order,
        migrate_type: MigrateType,
    ) -> bool {
        let Some(byte) = self.head(place, order) else { return false };
        platform.probe().touch_line(SharedLine::of(LineKind::AllocationMap, byte), Access::Write);
        // Release: pairs with the Acquire in `clear_allocated_at`.
        byte.store(MapEntry::new(order, migrate_type).0, Ordering::Release);
        true
    }

    /// As [`AllocationMap::clear_allocated`], by the place of the block's head in the map.
    #[inline(always)]
    pub(crate) fn clear_allocated_at<P: Platform>(&self, platform: &P, place: usize, order: Order) -> Option<MapEntry> {
        let byte = self.head(place, order)?;
        platform.probe().touch_line(SharedLine::of(LineKind::AllocationMap, byte), Access::ReadModifyWrite);
        let found = byte.load(Ordering::Relaxed);
        if !MapEntry(found).is_of(order) {
            return None;
        }
        // Acquire: pairs with the Release in `mark_allocated_at`.
        byte.compare_exchange(found, 0, Ordering::Acquire, Ordering::Relaxed).ok().map(MapEntry)
    }

    /// The entry of the block allocated at a place, possibly stale. Accepts any place.
    #[inline(always)]
    fn entry_at(&self, place: usize) -> Option<MapEntry> {
        self.frames.get(place)?;
        let orders = [Order::ZERO, GROUP, self.pageblock_order.max(Order(1))];
        let mut entries = orders.into_iter().filter_map(|order| Some(self.head(place, order)?.load(Ordering::Relaxed)));
        entries.find(|found| *found != 0).map(MapEntry)
    }
}

impl<'a> AllocationMap<'a> {
    pub(crate) fn new(bytes: AllocationBytes<'a>, numbering: Numbering) -> Self {
        Self { bytes, numbering }
    }

    /// The bytes of the largest run alone.
    pub(crate) fn of_largest_run(self) -> AllocationBytes<'a> {
        let largest = self.numbering.largest_run().count().0 as usize;
        let frames = self.frames.get(..largest).unwrap_or_default();
        let groups = self.groups.get(..largest >> GROUP.0).unwrap_or_default();
        let pageblocks = self.pageblocks.get(..largest >> self.pageblock_order.0).unwrap_or_default();
        AllocationBytes { frames, groups, pageblocks, ..self.bytes }
    }

    /// The index of a frame's byte; behind the table's end for frames outside the map.
    #[inline(always)]
    fn place(&self, pfn: Pfn) -> usize {
        self.numbering.place(pfn)
    }

    /// Marks a block as allocated. The caller owns the block and has tagged its head. `false` if no block of that order begins
    /// there: a corrupt list says so.
    #[inline(always)]
    pub(crate) fn mark_allocated<P: Platform>(
        &self,
        platform: &P,
        pfn: Pfn,
        order: Order,
        migrate_type: MigrateType,
    ) -> bool {
        self.mark_allocated_at(platform, self.place(pfn), order, migrate_type)
    }

    /// Ends the allocation of a block of that order: the caller owns the block from now on. `None`, and nothing changed, if no
    /// block of that order is allocated there. Accepts any frame number and order.
    #[inline(always)]
    pub(crate) fn clear_allocated<P: Platform>(&self, platform: &P, pfn: Pfn, order: Order) -> Option<MapEntry> {
        self.clear_allocated_at(platform, self.place(pfn), order)
    }

    /// The byte of the head of a large block of that order; `None` if no such block begins there. Its place need not be aligned
    /// alike: a block of several sections may lie behind a hole.
    fn large_head(&self, pfn: Pfn, order: Order) -> Option<&'a AtomicU8> {
        if order <= self.max_order || order > self.largest_order || !pfn.is_aligned(order) {
            return None;
        }
        let place = self.place(pfn);
        self.frames.get(place)?;
        self.pageblocks.get(place >> self.pageblock_order.0)
    }

    /// As [`mark_allocated`](Self::mark_allocated), for a large block.
    pub(crate) fn mark_large<P: Platform>(
        &self,
        platform: &P,
        pfn: Pfn,
        order: Order,
        migrate_type: MigrateType,
    ) -> bool {
        let Some(byte) = self.large_head(pfn, order) else { return false };
        platform.probe().touch_line(SharedLine::of(LineKind::AllocationMap, byte), Access::Write);
        // Release: pairs with the Acquire in `clear_large`.
        byte.store(MapEntry::new(order, migrate_type).0, Ordering::Release);
        true
    }

    /// As [`clear_allocated`](Self::clear_allocated), for a large block.
    pub(crate) fn clear_large<P: Platform>(&self, platform: &P, pfn: Pfn, order: Order) -> Option<MapEntry> {
        let byte = self.large_head(pfn, order)?;
        platform.probe().touch_line(SharedLine::of(LineKind::AllocationMap, byte), Access::ReadModifyWrite);
        let found = byte.load(Ordering::Relaxed);
        if !MapEntry(found).is_of(order) {
            return None;
        }
        // Acquire: pairs with the Release in `mark_large`.
        byte.compare_exchange(found, 0, Ordering::Acquire, Ordering::Relaxed).ok().map(MapEntry)
    }

    /// The entry of the block allocated at a frame, possibly stale. Accepts any frame number.
    #[inline(always)]
    pub(crate) fn entry(&self, pfn: Pfn) -> Option<MapEntry> {
        self.entry_at(self.place(pfn))
    }

    /// The tag of the block that begins at a frame, with `Allocated` and `PerCpu` told apart by the byte.
    #[inline(always)]
    pub(crate) fn read(&self, pfn: Pfn, tag: Tag) -> Tag {
        if !tag.has_left_zone() {
            return tag;
        }
        match self.entry(pfn) {
            Some(entry) => tag.with_state(FrameState::Allocated).with_migrate_type(entry.migrate_type()),
            None => tag.with_state(FrameState::PerCpu),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::platform::plain::Plain;
    use crate::units::{PageCount, PfnRange, ZoneId};

    const MAX: Order = Order(ORDER_SLOTS as u8 - 1);

    fn bytes<const N: usize>() -> [AtomicU8; N] {
        core::array::from_fn(|_| AtomicU8::new(0))
    }

    /// Groups have the same bytes: these tests have one block at a time.
    fn map(bytes: &[AtomicU8], first: Pfn) -> AllocationMap<'_> {
        map_of(bytes, first, MAX)
    }

    fn map_of(bytes: &[AtomicU8], first: Pfn, max_order: Order) -> AllocationMap<'_> {
        let range = PfnRange::new(first, PageCount(bytes.len() as u64));
        let numbering = Numbering::without_holes(range);
        let pageblock_order = Order(max_order.0 + 1);
        let bytes = AllocationBytes {
            frames: bytes,
            groups: bytes,
            pageblocks: &[],
            max_order,
            pageblock_order,
            largest_order: max_order,
        };
        AllocationMap::new(bytes, numbering)
    }

    #[test]
    fn an_entry_is_cleared_once_and_only_by_its_order() {
        let bytes = bytes::<16>();
        let map = map(&bytes, Pfn(0x100));
        for order in (0..ORDER_SLOTS as u8).map(Order) {
            for migrate_type in MigrateType::ALL {
                map.mark_allocated(&Plain, Pfn(0x100), order, migrate_type);
                for other in (0..=u8::MAX).map(Order).filter(|other| *other != order) {
                    assert_eq!(map.clear_allocated(&Plain, Pfn(0x100), other), None);
                }
                let entry = map.clear_allocated(&Plain, Pfn(0x100), order).expect("an allocated block");
                assert_eq!((entry.order(), entry.migrate_type()), (order, migrate_type));
                assert!(entry.is_well_formed());
                assert_eq!(map.clear_allocated(&Plain, Pfn(0x100), order), None);
            }
        }
    }

    #[test]
    fn no_block_begins_at_a_place_that_its_order_does_not_divide() {
        let bytes = bytes::<16>();
        let map = map_of(&bytes, Pfn(0), Order(3));
        for (pfn, order, begins) in [(8, 3, true), (4, 3, false), (4, 2, true), (0, 4, false), (16, 0, false)] {
            let (pfn, order) = (Pfn(pfn), Order(order));
            assert_eq!(map.mark_allocated(&Plain, pfn, order, MigrateType::Movable), begins, "{pfn} {order}");
            assert_eq!(map.entry(pfn).is_some(), begins, "{pfn} {order}");
            assert_eq!(map.clear_allocated(&Plain, pfn, order).is_some(), begins, "{pfn} {order}");
        }
        // A byte that another process wrote frees nothing.
        bytes[4].store(MapEntry::new(Order(3), MigrateType::Movable).0, Ordering::Relaxed);
        assert_eq!(map.clear_allocated(&Plain, Pfn(4), Order(3)), None);
    }

    #[test]
    fn a_pageblock_and_its_first_frame_have_a_byte_each() {
        let (frames, pageblocks) = (bytes::<16>(), bytes::<4>());
        let numbering = Numbering::without_holes(PfnRange::new(Pfn(0x100), PageCount(16)));
        let (max_order, pageblock_order) = (Order(3), Order(2));
        let all = AllocationBytes {
            frames: &frames,
            groups: &[],
            pageblocks: &pageblocks,
            max_order,
            pageblock_order,
            largest_order: max_order,
        };
        let map = AllocationMap::new(all, numbering);
        for (pfn, order) in [(0x100, 1), (0x104, 2), (0x108, 3)].map(|(pfn, order)| (Pfn(pfn), Order(order))) {
            assert!(map.mark_allocated(&Plain, pfn, order, MigrateType::Movable));
            assert_eq!(map.entry(pfn).map(MapEntry::order), Some(order), "{pfn}");
            assert_eq!(map.entry(pfn + PageCount(1)), None, "{pfn}");
            for other in [0, 1, 2, 3].map(Order).into_iter().filter(|other| *other != order) {
                assert_eq!(map.clear_allocated(&Plain, pfn, other), None, "{pfn} {other}");
            }
        }
        let in_use = |bytes: &[AtomicU8]| bytes.iter().filter(|byte| byte.load(Ordering::Relaxed) != 0).count();
        assert_eq!((in_use(&frames), in_use(&pageblocks)), (1, 2));
        assert!(map.clear_allocated(&Plain, Pfn(0x108), Order(3)).is_some());
        assert_eq!(map.entry(Pfn(0x108)), None);
    }

    #[test]
    fn blocks_of_a_group_and_more_share_lines() {
        let [frames, groups, pageblocks] = [bytes::<64>(), bytes::<64>(), bytes::<64>()];
        let numbering = Numbering::without_holes(PfnRange::new(Pfn(0), PageCount(64)));
        let geometry = (Order(6), Order(6));
        let all = AllocationBytes {
            frames: &frames,
            groups: &groups[..4],
            pageblocks: &pageblocks[..1],
            max_order: geometry.0,
            pageblock_order: geometry.1,
            largest_order: geometry.0,
        };
        let map = AllocationMap::new(all, numbering);
        for (pfn, order) in [(0, 3), (16, 4), (32, 5)].map(|(pfn, order)| (Pfn(pfn), Order(order))) {
            assert!(map.mark_allocated(&Plain, pfn, order, MigrateType::Movable));
            assert_eq!(map.entry(pfn).map(MapEntry::order), Some(order), "{pfn}");
        }
        let in_use = |bytes: &[AtomicU8]| bytes.iter().filter(|byte| byte.load(Ordering::Relaxed) != 0).count();
        assert_eq!([&frames, &groups, &pageblocks].map(|bytes| in_use(bytes)), [1, 2, 0]);
        assert_eq!(map.entry(Pfn(48)), None);
        assert_eq!(map.clear_allocated(&Plain, Pfn(16), Order(5)), None);
        assert!(map.clear_allocated(&Plain, Pfn(32), Order(5)).is_some());
        assert_eq!(map.entry(Pfn(32)), None);
    }

    #[test]
    fn frames_outside_the_map_have_no_entry() {
        let bytes = bytes::<4>();
        let map = map(&bytes, Pfn(0x100));
        for pfn in [0, 0xff, 0x104, u64::MAX].map(Pfn) {
            assert_eq!(map.entry(pfn), None);
            for order in (0..=u8::MAX).map(Order) {
                assert_eq!(map.clear_allocated(&Plain, pfn, order), None);
            }
        }
    }

    #[test]
    fn the_byte_tells_allocated_blocks_from_blocks_on_per_cpu_lists() {
        let bytes = bytes::<1>();
        let map = map(&bytes, Pfn(0));
        let tag = |state, migrate_type| Tag::new(state, Order(2), migrate_type, ZoneId(2));
        for state in FrameState::ALL {
            let stale = tag(state, MigrateType::Movable);
            let left = matches!(state, FrameState::Allocated | FrameState::PerCpu);
            let free = if left { tag(FrameState::PerCpu, MigrateType::Movable) } else { stale };
            assert_eq!(map.read(Pfn(0), stale), free);
            map.mark_allocated(&Plain, Pfn(0), Order(2), MigrateType::Reclaimable);
            let held = if left { tag(FrameState::Allocated, MigrateType::Reclaimable) } else { stale };
            assert_eq!(map.read(Pfn(0), stale), held);
            assert!(map.clear_allocated(&Plain, Pfn(0), Order(2)).is_some());
        }
    }

    #[test]
    fn rejects_map_entries_with_unknown_order_or_type() {
        let sound = (0..=u8::MAX).filter(|bits| MapEntry(*bits).is_well_formed()).count();
        assert_eq!(sound, (1 << (8 - ORDER_SHIFT)) * MigrateType::ALL.len());
    }
}
