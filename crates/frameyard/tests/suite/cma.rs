//! Contiguous memory areas: used by movable memory, emptied when they are asked, and given back what they gave out.

use crate::busy_yard::{FIRST, Made, ZONE, at, fill, made};
use crate::fixture::Frames;
use crate::fixture::random::Random;
use crate::movers::{KIND, Movers};
use frameyard::AllocError;
use frameyard::boot::{InitMode, MapInit};
use frameyard::contig::{BlockedBy, CmaReleaseError};
use frameyard::owners::Owners;
use frameyard::page::FrameState;
use frameyard::{Gfp, MigrateType, NodeId, Order, PageCount, Pfn, PfnRange};

/// An area of two maximum-order blocks, and one of one.
const AREAS: [PfnRange; 2] = [
    PfnRange { start: Pfn(FIRST.0 + 1024), end: Pfn(FIRST.0 + 1024 + 512) },
    PfnRange { start: Pfn(FIRST.0 + 2048), end: Pfn(FIRST.0 + 2048 + 256) },
];

#[test]
fn areas_serve_movable_requests_until_taken() {
    for mode in InitMode::ALL {
        let map_init = MapInit { mode, ..MapInit::default() };
        let yard = made(&Made { cma: &AREAS, map_init, ..Made::default() });
        yard.init().finish().unwrap();
        assert!(yard.cma().ranges().eq(AREAS));
        let movers = Movers::new(&yard);
        let owners = Owners::NONE.with(KIND, &movers);
        // Everything is in use, the areas by movable blocks.
        fill(&yard, &movers, &mut Random::new(6), 100);
        assert!(yard.zone(ZONE).statistics().free_cma < PageCount(100), "watermarks keep the rest free");
        let full = yard
            .request(PageCount(300), Gfp::KERNEL)
            .from_area(AREAS[0])
            .aligned(Order(3))
            .owners(&owners)
            .range()
            .unwrap_err();
        assert!(matches!(full, AllocError::Blocked(blocker) if blocker.why == BlockedBy::OutOfMemory), "{full}");
        movers.give_all_back();
        fill(&yard, &movers, &mut Random::new(6), 40);
        let first = yard
            .request(PageCount(300), Gfp::KERNEL)
            .from_area(AREAS[0])
            .aligned(Order(3))
            .owners(&owners)
            .range()
            .unwrap();
        assert_eq!(first, PfnRange::new(AREAS[0].start, PageCount(300)));
        let second = yard
            .request(PageCount(200), Gfp::KERNEL)
            .from_any_area()
            .aligned(Order(6))
            .owners(&owners)
            .range()
            .unwrap();
        assert_eq!(second, AREAS[1].intersection(PfnRange::new(AREAS[1].start, PageCount(200))), "320 + 200 > 512");
        let third = yard
            .request(PageCount(212), Gfp::KERNEL)
            .from_any_area()
            .aligned(Order::ZERO)
            .owners(&owners)
            .range()
            .unwrap();
        assert_eq!(third, PfnRange { start: first.end, end: AREAS[0].end });
        let left = yard
            .request(PageCount(1), Gfp::KERNEL)
            .from_area(AREAS[0])
            .aligned(Order::ZERO)
            .owners(&owners)
            .range()
            .unwrap_err();
        assert!(matches!(left, AllocError::Blocked(blocker) if blocker.why == BlockedBy::Unmovable), "{left}");
        movers.check_all();
        yard.validate().unwrap();
        for range in [first, second, third] {
            yard.cma().release(range).unwrap();
            let twice = yard.cma().release(range).unwrap_err();
            assert!(matches!(twice, CmaReleaseError::NotFromAnArea { pfn, .. } if pfn == range.start), "{twice}");
        }
        yard.validate().unwrap();
        assert_eq!(yard.zone(ZONE).pageblocks(MigrateType::Cma), 12, "areas stay areas");
        movers.give_all_back();
        yard.drain_all();
        assert_eq!(yard.zone(ZONE).statistics().free_cma, PageCount(768));
    }
}

#[test]
fn areas_release_only_their_own_frames() {
    let yard = made(&Made { cma: &AREAS, frames: Frames::Phantom, ..Made::default() });
    let none = Owners::NONE;
    let foreign = AREAS[1].start;
    yard.request(PfnRange::new(foreign, PageCount(1)), Gfp::HIGHUSER_MOVABLE).range().unwrap();
    let refused = yard.cma().release(PfnRange::new(foreign, PageCount(1)));
    assert_eq!(refused, Err(CmaReleaseError::NotFromAnArea { pfn: foreign, state: FrameState::Allocated }));
    yard.free(foreign, Order::ZERO).unwrap();
    for range in [at(0, 1), at(1024, 513), at(1024, 0)] {
        assert_eq!(yard.cma().release(range), Err(CmaReleaseError::NotInAnArea(range)));
    }
    let taken =
        yard.request(PageCount(5), Gfp::KERNEL).from_any_area().aligned(Order::ZERO).owners(&none).range().unwrap();
    assert_eq!(taken, at(1024, 5));
    yard.cma().release(at(1025, 2)).unwrap();
    let part = yard.cma().release(at(1024, 3)).unwrap_err();
    assert!(matches!(part, CmaReleaseError::NotFromAnArea { pfn, .. } if pfn == at(1025, 1).start), "{part}");
    yard.cma().release(at(1024, 1)).unwrap();
    yard.cma().release(at(1027, 2)).unwrap();
    let strange = at(0, 256);
    assert_eq!(
        yard.request(PageCount(5), Gfp::KERNEL).from_area(strange).aligned(Order::ZERO).owners(&none).range(),
        Err(AllocError::NoSuchArea(strange))
    );
    let (count, align) = (PageCount(513), Order::ZERO);
    assert_eq!(
        yard.request(count, Gfp::KERNEL).from_any_area().aligned(align).owners(&none).range(),
        Err(AllocError::NoPlace { count, align })
    );
    let zone = yard.zone(ZONE).statistics();
    assert_eq!((zone.cma_served, zone.cma_failed), (1, 2));
    // Other requests pass areas over.
    let blocked = yard.request(at(1000, 30), Gfp::KERNEL).owners(&none).range().unwrap_err();
    assert!(matches!(blocked, AllocError::Blocked(blocker) if blocker.why == BlockedBy::Area), "{blocked}");
    let behind =
        yard.request(PageCount(1025), Gfp::KERNEL).aligned(Order::ZERO).node(NodeId(0)).owners(&none).range().unwrap();
    assert_eq!(behind.start, AREAS[1].end);
    yard.free_range(behind).unwrap();
}
