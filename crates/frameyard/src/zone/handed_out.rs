//! What is handed out: one byte for each frame of the map, which decides who frees a block.
//!
//! A block is [`Allocated`](FrameState::Allocated), so that whoever names it can free it, exactly as long as the byte of its
//! head is not zero. The byte is the block's [`Mark`]; every other byte is zero: of frames inside blocks, of free ones, of
//! those that belong to an owner by the state in their tag, and of memory that was never touched.
//!
//! # Protocol
//!
//! - [`HandedOut::give`] marks a block that the caller has alone. It is the last step of handing a block out.
//! - [`HandedOut::take_back`] exchanges the mark for zero. It is the one step by which an allocated block becomes anything
//!   else: freed, adopted, owned by a [`Frames`](crate::Frames), cut up or put aside. Of any number of threads that try it at
//!   once one succeeds, and has the block alone from then on; the others have changed nothing.
//!
//! Between the two nobody inside the yard changes a word of the block's pages. So a free needs this byte alone, 64 of which
//! lie on a line, and not the page: a single frame is allocated from a CPU's list and freed to it again while its page says
//! all the time what the zone has written there. Of the page's tag these say only that the block has left its zone:
//! [`Allocated`](FrameState::Allocated) and [`PerCpu`](FrameState::PerCpu). Which of both it is now says the byte, and so it
//! does for the migration type that the block was allocated as. [`HandedOut::read`] puts tag and byte together; whoever wants
//! to know a frame's state asks there ([`ZoneView::tag_at`](super::ZoneView::tag_at)). Order and zone in the tag are right in
//! either state: lists keep orders apart, and whoever cuts a block up tags its parts before he marks them.
//!
//! # Who may see what, and when
//!
//! - Who frees what he was given sees its mark: he learnt the number from the allocation, which has marked the block before
//!   it returned. Nobody else may take the mark away. So a load that comes before the exchange, to refuse without a write
//!   what cannot be freed, never refuses him.
//! - The mark of the next time comes behind the exchange of this time: whoever frees puts the block on a list under a lock
//!   that whoever allocates it takes later. So an exchange takes away one mark, and each mark is taken away once.
//! - Who frees what he was not given, or frees again what he has freed, may meet the mark of somebody else's block. Then he
//!   takes that block from its owner, which no allocator can tell from a rightful free. Yet he does not damage the lists:
//!   `give` stores with Release and `take_back` acquires, so that he sees all that the allocation has done to the block's
//!   pages, and what is done to them from then on comes behind it. He finds a mark only when the allocation is done with
//!   the block, or takes it back itself before it goes on. Who was to have the block finds it gone: as a free that is
//!   refused, or, where it is to have an owner or to be cut up, by a `take_back` in vain, after which he leaves it alone.
//! - Who only looks reads tag and byte one after the other. While both change he may see any mixture, as he may see
//!   any state that is over when he has read it. A block that nobody is working on shows as what it is.

use crate::page::{FrameState, Tag};
use crate::platform::{Access, LineKind, Platform, SharedLine};
use crate::sync::{AtomicU8, Ordering};
use crate::units::{MigrateType, ORDER_SLOTS, Order, Pfn};

/// Bits 0–4 hold the order plus one.
const ORDER: u8 = 0x1f;
/// Bits 5–7 hold the migration type.
const TYPE_SHIFT: u32 = 5;

const _: () = assert!(ORDER_SLOTS <= ORDER as usize, "order plus one fits the bits");
const _: () = assert!(MigrateType::COUNT <= 1 << (8 - TYPE_SHIFT), "the type fits the bits");

/// What the byte of a block that is handed out says: its order, and the type that it was allocated as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Mark(u8);

impl Mark {
    #[inline(always)]
    const fn new(order: Order, migrate_type: MigrateType) -> Self {
        Self((order.0 + 1) | (migrate_type as u8) << TYPE_SHIFT)
    }

    /// Whether the block is of that order. Any order may be asked for.
    #[inline(always)]
    const fn is_of(self, order: Order) -> bool {
        (self.0 & ORDER) as u32 == order.0 as u32 + 1
    }

    #[inline(always)]
    pub(crate) const fn order(self) -> Order {
        Order((self.0 & ORDER).saturating_sub(1))
    }

    #[inline(always)]
    pub(crate) const fn migrate_type(self) -> MigrateType {
        match MigrateType::from_bits(self.0 >> TYPE_SHIFT) {
            Some(migrate_type) => migrate_type,
            None => MigrateType::Unmovable,
        }
    }

    /// Whether order and type exist.
    pub(crate) fn is_well_formed(self) -> bool {
        self.0 & ORDER != 0 && self == Self::new(self.order(), self.migrate_type())
    }
}

/// The bytes of the whole memory map.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HandedOut<'a> {
    bytes: &'a [AtomicU8],
    first: Pfn,
}

impl<'a> HandedOut<'a> {
    pub(crate) fn new(bytes: &'a [AtomicU8], first: Pfn) -> Self {
        Self { bytes, first }
    }

    /// Frames below the first wrap to places far behind the table's end.
    #[inline(always)]
    fn place(&self, pfn: Pfn) -> usize {
        pfn.0.wrapping_sub(self.first.0) as usize
    }

    /// Hands a block out that the caller has alone; its head is tagged.
    #[inline(always)]
    pub(crate) fn give<P: Platform>(&self, platform: &P, pfn: Pfn, order: Order, migrate_type: MigrateType) {
        self.give_at(platform, self.place(pfn), order, migrate_type);
    }

    /// As [`give`](Self::give), by the place of the block's head in the map.
    #[inline(always)]
    pub(crate) fn give_at<P: Platform>(&self, platform: &P, place: usize, order: Order, migrate_type: MigrateType) {
        let byte = &self.bytes[place];
        platform.touch_line(SharedLine::of(LineKind::AllocationMap, byte), Access::Write);
        // Release: pairs with `take_back`.
        byte.store(Mark::new(order, migrate_type).0, Ordering::Release);
    }

    /// Takes a block back that is handed out with that order; from now on the caller has it alone. `None`, and nothing has
    /// changed, where there is no such block. Any frame number and order may be asked for.
    #[inline(always)]
    pub(crate) fn take_back<P: Platform>(&self, platform: &P, pfn: Pfn, order: Order) -> Option<Mark> {
        self.take_back_at(platform, self.place(pfn), order)
    }

    /// As [`take_back`](Self::take_back), by the place of the block's head in the map.
    #[inline(always)]
    pub(crate) fn take_back_at<P: Platform>(&self, platform: &P, place: usize, order: Order) -> Option<Mark> {
        let byte = self.bytes.get(place)?;
        platform.touch_line(SharedLine::of(LineKind::AllocationMap, byte), Access::ReadModifyWrite);
        let found = byte.load(Ordering::Relaxed);
        if !Mark(found).is_of(order) {
            return None;
        }
        // Acquire: pairs with `give`.
        byte.compare_exchange(found, 0, Ordering::Acquire, Ordering::Relaxed).ok().map(Mark)
    }

    /// The mark of the block that is handed out at a frame, a moment ago. Any frame number may be asked for.
    #[inline(always)]
    pub(crate) fn mark(&self, pfn: Pfn) -> Option<Mark> {
        let found = self.bytes.get(self.place(pfn))?.load(Ordering::Relaxed);
        (found != 0).then_some(Mark(found))
    }

    /// What begins at a frame, by the tag of its page and by its byte.
    #[inline(always)]
    pub(crate) fn read(&self, pfn: Pfn, tag: Tag) -> Tag {
        if !tag.has_left_zone() {
            return tag;
        }
        match self.mark(pfn) {
            Some(mark) => tag.with_state(FrameState::Allocated).with_migrate_type(mark.migrate_type()),
            None => tag.with_state(FrameState::PerCpu),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::platform::plain::Plain;
    use crate::units::ZoneId;

    fn bytes<const N: usize>() -> [AtomicU8; N] {
        core::array::from_fn(|_| AtomicU8::new(0))
    }

    #[test]
    fn a_block_is_taken_back_once_and_by_its_order_alone() {
        let bytes = bytes::<16>();
        let handed = HandedOut::new(&bytes, Pfn(0x100));
        for order in (0..ORDER_SLOTS as u8).map(Order) {
            for migrate_type in MigrateType::ALL {
                handed.give(&Plain, Pfn(0x108), order, migrate_type);
                for other in (0..=u8::MAX).map(Order).filter(|other| *other != order) {
                    assert_eq!(handed.take_back(&Plain, Pfn(0x108), other), None);
                }
                let mark = handed.take_back(&Plain, Pfn(0x108), order).expect("a block that is handed out");
                assert_eq!((mark.order(), mark.migrate_type()), (order, migrate_type));
                assert!(mark.is_well_formed());
                assert_eq!(handed.take_back(&Plain, Pfn(0x108), order), None);
            }
        }
    }

    #[test]
    fn nothing_is_handed_out_outside_the_map() {
        let bytes = bytes::<4>();
        let handed = HandedOut::new(&bytes, Pfn(0x100));
        for pfn in [0, 0xff, 0x104, u64::MAX].map(Pfn) {
            assert_eq!(handed.mark(pfn), None);
            for order in (0..=u8::MAX).map(Order) {
                assert_eq!(handed.take_back(&Plain, pfn, order), None);
            }
        }
    }

    #[test]
    fn the_byte_says_whether_a_block_that_left_its_zone_is_allocated_and_as_what() {
        let bytes = bytes::<1>();
        let handed = HandedOut::new(&bytes, Pfn(0));
        let tag = |state, migrate_type| Tag::new(state, Order(2), migrate_type, ZoneId(2));
        for state in FrameState::ALL {
            let stale = tag(state, MigrateType::Movable);
            let left = matches!(state, FrameState::Allocated | FrameState::PerCpu);
            let free = if left { tag(FrameState::PerCpu, MigrateType::Movable) } else { stale };
            assert_eq!(handed.read(Pfn(0), stale), free);
            handed.give(&Plain, Pfn(0), Order(2), MigrateType::Reclaimable);
            let held = if left { tag(FrameState::Allocated, MigrateType::Reclaimable) } else { stale };
            assert_eq!(handed.read(Pfn(0), stale), held);
            assert!(handed.take_back(&Plain, Pfn(0), Order(2)).is_some());
        }
    }

    #[test]
    fn marks_of_no_order_or_type_are_told_apart() {
        let sound = (0..=u8::MAX).filter(|bits| Mark(*bits).is_well_formed()).count();
        assert_eq!(sound, usize::from(ORDER) * MigrateType::COUNT);
    }
}
