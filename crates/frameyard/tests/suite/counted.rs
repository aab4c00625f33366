//! Blocks whose owner counts their users: how they become counted, references, freezing, and what is refused.

use crate::fixture::{Fixture, Frames, STORES};
use frameyard::alloc::FreeProblem;
use frameyard::boot::{MapInit, ZoneLimits};
use frameyard::owners::Ownership;
use frameyard::page::{Counts, FrameState, MapContent, PIN_BIAS, ReferenceUnderflow, references_of_pins};
use frameyard::{Gfp, MemoryTable, NodeId, Order, PageCount, Pfn, PfnRange, YardConfig};

const USERS: Counts = Counts { references: 2, mappings: 1 };
const NO_USERS: Counts = Counts { references: 0, mappings: 0 };

fn yards() -> Vec<Fixture> {
    let contents = [MapContent::Zero, MapContent::Kernel];
    let made = contents.into_iter().flat_map(|content| STORES.map(|policy| (content, policy)));
    let yard = |(content, policy)| {
        let memory = [(PfnRange::new(Pfn(0x1000), PageCount(4096)), NodeId(0))];
        let map_init = MapInit { content, ..MapInit::default() };
        let map_init = match content {
            MapContent::Zero => map_init,
            MapContent::Kernel => MapInit { initialiser: frameyard::boot::Initialiser::Stream, ..map_init },
        };
        let config = YardConfig { zone_limits: ZoneLimits::NONE, map_init, policy, ..YardConfig::new(&[NodeId(0)]) };
        Fixture::new(&MemoryTable { memory: &memory, ..MemoryTable::default() }, &config, Frames::Phantom)
    };
    made.map(yard).collect()
}

fn counted(yard: &Fixture, order: Order) -> Pfn {
    let pfn = yard.alloc(order, Gfp::HIGHUSER_MOVABLE).unwrap();
    yard.counted().init_refs(pfn, order, Ownership { counts: USERS, owner: 0xabcd_0009, index: 42 }).unwrap();
    pfn
}

fn page(yard: &Fixture, pfn: Pfn) -> frameyard::page::CountedPage<'_, crate::fixture::TestPlatform> {
    // SAFETY: each test changes the pages of its own blocks alone.
    unsafe { yard.counted().page(pfn) }.expect("the frame has a page")
}

#[test]
fn counted_block_keeps_owner_words_and_clears_them() {
    for yard in yards() {
        for order in [0, 3, 9].map(Order) {
            let pfn = counted(&yard, order);
            let page = page(&yard, pfn);
            assert!(page.is_counted());
            assert_eq!((page.counts(), page.owner(), page.index()), (USERS, 0xabcd_0009, 42));
            page.set_spare(1, 5);
            page.set_next(yard.counted().link(pfn));
            assert_eq!(yard.counted().linked(page.next()), Some(pfn));
            assert_eq!(yard.stats().frame(pfn).unwrap().state, FrameState::Counted);
            yard.validate().unwrap();
            assert_eq!(page.unmap(), Ok(1));
            assert_eq!(page.put(), Ok(0));
            // SAFETY: this thread put the last reference.
            unsafe { yard.counted().free(pfn, order) }.unwrap();
            yard.validate().unwrap();
            yard.drain_all();
            yard.validate().unwrap();
        }
    }
}

#[test]
fn block_with_users_is_not_freed_and_stays_counted() {
    for yard in yards() {
        let pfn = counted(&yard, Order::ZERO);
        let refused = |problem| assert_eq!(problem, FreeProblem::NotAllocated(FrameState::Counted));
        refused(yard.free(pfn, Order::ZERO).unwrap_err().problem);
        // SAFETY: the block has users, so the call is refused.
        refused(unsafe { yard.counted().free(pfn, Order::ZERO) }.unwrap_err().problem);
        // SAFETY: as above.
        refused(unsafe { yard.counted().clear_refs(pfn, Order::ZERO) }.unwrap_err().problem);
        // SAFETY: as above.
        refused(unsafe { yard.counted().free_bulk(&[pfn]) }.unwrap_err().problem);
        assert_eq!(page(&yard, pfn).counts(), USERS);
        assert!(page(&yard, pfn).freeze(USERS));
        // SAFETY: this thread froze the counts.
        unsafe { yard.counted().free_bulk(&[pfn]) }.unwrap();
        // SAFETY: the block is no longer counted, so the call is refused.
        assert!(unsafe { yard.counted().free(pfn, Order::ZERO) }.is_err(), "a second free");
    }
}

#[test]
fn a_free_or_foreign_frame_does_not_become_counted() {
    for yard in yards() {
        let ownership = Ownership { counts: USERS, owner: 1, index: 0 };
        let pfn = yard.alloc(Order(1), Gfp::KERNEL).unwrap();
        assert!(yard.counted().init_refs(pfn, Order::ZERO, ownership).is_err(), "another order");
        assert!(yard.counted().init_refs(pfn + PageCount(1), Order::ZERO, ownership).is_err(), "inside a block");
        yard.free(pfn, Order(1)).unwrap();
        assert!(yard.counted().init_refs(pfn, Order(1), ownership).is_err(), "free");
        assert!(yard.counted().init_refs(Pfn(5), Order::ZERO, ownership).is_err(), "no memory");
        yard.validate().unwrap();
    }
}

#[test]
fn putting_too_many_references_fails() {
    for yard in yards() {
        let pfn = counted(&yard, Order::ZERO);
        let page = page(&yard, pfn);
        assert_eq!(page.unmap(), Ok(1));
        let left = Counts { references: 1, mappings: 0 };
        assert_eq!(page.unmap(), Err(ReferenceUnderflow { pfn, counts: left }));
        assert_eq!(page.put(), Ok(0));
        assert_eq!(page.put(), Err(ReferenceUnderflow { pfn, counts: NO_USERS }));
        assert_eq!(page.counts(), NO_USERS);
        // SAFETY: this thread put the last reference.
        unsafe { yard.counted().free(pfn, Order::ZERO) }.unwrap();
    }
}

#[test]
fn get_fails_on_zero_references() {
    for yard in yards() {
        let pfn = counted(&yard, Order::ZERO);
        let page = page(&yard, pfn);
        assert!(page.try_get());
        assert_eq!(page.counts().references, 3);
        assert!(!page.freeze(USERS), "there is a user more");
        assert_eq!(page.put(), Ok(2));
        assert!(page.freeze(USERS));
        assert!(!page.try_get(), "frozen");
        page.unfreeze(USERS);
        assert!(page.freeze(USERS));
        // SAFETY: this thread froze the counts.
        unsafe { yard.counted().free(pfn, Order::ZERO) }.unwrap();
        assert!(!page.try_get(), "free");
        // Whatever else becomes of the frame: packed batches of per-CPU lists among it.
        let blocks: Vec<Pfn> = (0..600).map(|_| yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap()).collect();
        assert!(blocks.iter().all(|pfn| !self::page(&yard, *pfn).try_get()), "allocated");
        for pfn in &blocks {
            yard.free(*pfn, Order::ZERO).unwrap();
        }
        assert!(blocks.iter().all(|pfn| !self::page(&yard, *pfn).try_get()), "on lists");
        yard.validate().unwrap();
    }
}

#[test]
fn counted_block_splits_into_single_frames() {
    for yard in yards() {
        let pfn = counted(&yard, Order(4));
        // SAFETY: the block has users, so the call is refused.
        assert!(unsafe { yard.counted().split(pfn, Order(4)) }.is_err(), "the block has users");
        assert!(page(&yard, pfn).freeze(USERS));
        // SAFETY: this thread froze the counts.
        unsafe { yard.counted().split(pfn, Order(4)) }.unwrap();
        for frame in (0..16).map(|frame| pfn + PageCount(frame)) {
            assert!(yard.free(frame, Order::ZERO).is_err(), "only the caller has the frame");
            assert!(!page(&yard, frame).try_get() && page(&yard, frame).is_counted());
            page(&yard, frame).unfreeze(USERS);
        }
        yard.validate().unwrap();
        for frame in (0..16).map(|frame| pfn + PageCount(frame)) {
            assert!(page(&yard, frame).freeze(USERS));
            // SAFETY: this thread froze the counts.
            unsafe { yard.counted().free(frame, Order::ZERO) }.unwrap();
        }
    }
}

#[test]
fn bulk_free_reports_first_bad_frame_and_frees_the_rest() {
    for yard in yards() {
        let frames: Vec<Pfn> = (0..200).map(|_| counted(&yard, Order::ZERO)).collect();
        for pfn in frames.iter().filter(|pfn| **pfn != frames[70]) {
            assert!(page(&yard, *pfn).freeze(USERS));
        }
        // SAFETY: this thread froze the counts of each frame but one, which has users and is refused.
        assert_eq!(unsafe { yard.counted().free_bulk(&frames) }.unwrap_err().pfn, frames[70]);
        yard.validate().unwrap();
        assert_eq!(yard.stats().free_pages() + PageCount(1), yard.stats().managed_pages());
        assert!(page(&yard, frames[70]).freeze(USERS));
        // SAFETY: this thread froze the counts.
        unsafe { yard.counted().free_bulk(&frames[70..=70]) }.unwrap();
    }
}

#[test]
fn anchor_is_set_once_for_all_views() {
    let yard = yards().remove(0);
    assert_eq!(yard.counted().anchor(), None);
    // SAFETY: nothing looks for the state of an owner in this yard.
    let set = |from, to| unsafe { yard.counted().set_anchor(from, to) };
    set(None, Some(Pfn(0))).unwrap();
    assert_eq!(yard.attach().counted().anchor(), Some(Pfn(0)));
    assert_eq!(set(None, Some(Pfn(1))), Err(Some(Pfn(0))));
    set(Some(Pfn(0)), None).unwrap();
    assert_eq!(yard.counted().anchor(), None);
}

#[test]
fn pins_use_bias_or_counter_by_order() {
    for yard in yards() {
        for (order, bias) in [(Order::ZERO, PIN_BIAS), (Order(9), 1)] {
            let pfn = counted(&yard, order);
            let page = page(&yard, pfn);
            assert!(!page.maybe_pinned());
            page.get_many(7).unwrap();
            page.try_pin_many(512).unwrap();
            assert_eq!(page.counts(), Counts { references: 2 + 7 + 512 * bias, mappings: 1 });
            assert_eq!((page.pins(), page.maybe_pinned()), (512, true));
            assert_eq!(page.unpin_many(511), Ok(2 + 7 + bias));
            let before = page.counts();
            assert!(page.unpin_many(2).is_err(), "one is left");
            assert!(page.put_many(before.references + 1).is_err());
            assert!(page.put_unmapped(before.references - 1, 1).is_err(), "one has to stay besides the mapping's");
            assert_eq!((page.counts(), page.pins()), (before, 1), "nothing has changed");
            assert_eq!(page.unpin_and_put(1, 7), Ok(2));
            assert_eq!((page.unmap(), page.put()), (Ok(1), Ok(0)));
            assert!(!page.try_get_many(3) && page.counts() == NO_USERS, "a page without users is not written");
            // SAFETY: this thread put the last reference.
            unsafe { yard.counted().free(pfn, order) }.unwrap();
        }
    }
}

#[test]
fn reference_and_pin_overflow_is_refused() {
    for yard in yards() {
        for order in [0, 9].map(Order) {
            let pfn = counted(&yard, order);
            let page = page(&yard, pfn);
            let most = i32::MAX as u32;
            let pins = references_of_pins(order, 1).map(|bias| (most - 2) / bias).unwrap();
            page.try_pin_many(pins).unwrap();
            let before = page.counts();
            for more in [PIN_BIAS, most, u32::MAX] {
                assert!(!page.try_get_many(more));
                let refused = page.get_many(more).unwrap_err();
                assert_eq!((refused.pfn, refused.counts), (pfn, before));
                assert!(page.try_pin_many(more).is_err());
                assert_eq!((page.counts(), page.pins()), (before, u64::from(pins)), "nothing has changed");
            }
            assert_eq!(page.unpin_many(pins), Ok(2));
            assert_eq!((page.unmap(), page.put()), (Ok(1), Ok(0)));
            // SAFETY: this thread put the last reference.
            unsafe { yard.counted().free(pfn, order) }.unwrap();
        }
    }
}
