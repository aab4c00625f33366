//! [`AllocRequest`]: options, their combinations, and the text of its errors.

use crate::busy_yard::{FIRST, Made, made};
use crate::fixture::{Fixture, STORES};
use frameyard::alloc::RequestOption;
use frameyard::owners::Owners;
use frameyard::{AllocError, Gfp, NodeId, Order, PageCount, Pfn, PfnRange};

const AREA: PfnRange = PfnRange { start: Pfn(FIRST.0 + 1024), end: Pfn(FIRST.0 + 1024 + 512) };

#[test]
fn options_that_exclude_each_other_are_refused() {
    use RequestOption::{Alignment, Area, Node, Range};
    let yard = made(&Made { cma: &[AREA], ..Made::default() });
    let range = yard.request(PfnRange::new(FIRST, PageCount(4)), Gfp::KERNEL);
    let count = yard.request(PageCount(4), Gfp::KERNEL);
    let block = yard.request(Order(2), Gfp::KERNEL);
    let free = yard.stats().free_pages();
    for (request, one, other) in [
        (range.node(NodeId(0)), Range, Node),
        (range.exact_node(NodeId(0)), Range, Node),
        (range.aligned(Order(2)), Range, Alignment),
        (range.from_any_area(), Range, Area),
        (range.from_area(AREA), Range, Area),
        (count.from_any_area().node(NodeId(0)), Area, Node),
        (block.from_area(AREA).aligned(Order(3)).exact_node(NodeId(0)), Area, Node),
    ] {
        assert_eq!(request.frame(), Err(AllocError::Conflict(one, other)));
        assert_eq!(request.range(), Err(AllocError::Conflict(one, other)));
        assert_eq!(request.guard().unwrap_err(), AllocError::Conflict(one, other));
    }
    assert_eq!(yard.stats().free_pages(), free);
    assert_eq!(
        range.node(NodeId(0)).frame().unwrap_err().to_string(),
        "a request has a range of frames or a node, not both"
    );
}

#[test]
fn a_request_can_be_carried_out_several_times() {
    let yard = Fixture::small(1, 16 << 8);
    let request = yard.request(PageCount(5), Gfp::KERNEL).node(NodeId(0)).owners(&Owners::NONE);
    let (one, other) = (request.range().unwrap(), request.guard().unwrap());
    assert_eq!((one.count(), other.count()), (PageCount(5), PageCount(5)));
    assert!(one.intersection(other.range()).is_empty());
    yard.free_range(one).unwrap();
}

#[test]
fn a_block_of_an_area_is_naturally_aligned() {
    let yard = made(&Made { cma: &[AREA], ..Made::default() });
    let one = yard.request(PageCount(1), Gfp::KERNEL).from_any_area().frame().unwrap();
    let block = yard.request(Order(4), Gfp::KERNEL).from_area(AREA).range().unwrap();
    assert_eq!(one, AREA.start);
    assert_eq!(block, PfnRange::new(AREA.start + PageCount(16), PageCount(16)));
    for range in [PfnRange::new(one, PageCount(1)), block] {
        yard.cma().release(range).unwrap();
    }
}

#[test]
fn orders_beyond_any_memory_are_refused() {
    let yard = Fixture::small(1, 16 << 8);
    let (large, max) = (Order(64), yard.geometry().largest_order());
    let too_large = AllocError::OrderTooLarge { order: large, max };
    assert_eq!(yard.request(large, Gfp::KERNEL).frame(), Err(too_large));
    assert_eq!(yard.request(large, Gfp::KERNEL).aligned(Order(0)).frame(), Err(too_large));
    let (count, align) = (Order(40).pages(), Order(40));
    assert_eq!(yard.request(Order(40), Gfp::KERNEL).aligned(align).frame(), Err(AllocError::NoPlace { count, align }));
}

#[test]
fn zeroing_without_frame_bytes_is_refused() {
    let yard = Fixture::small(1, 16 << 8);
    let pfn = Pfn(yard.memory_ranges().next().expect("memory").0.end.0 - 1);
    let range = PfnRange::new(pfn, PageCount(1));
    let zeroed = yard.request(range, Gfp::KERNEL).zeroed().frame();
    assert_eq!(zeroed, Err(AllocError::NoFrameBytes(pfn)));
    assert!(matches!(yard.request(Order(0), Gfp::KERNEL).zeroed().frame(), Err(AllocError::NoFrameBytes(_))));
}

#[test]
fn out_of_memory_states_the_free_memory_of_the_zone() {
    for policy in STORES {
        let yard = Fixture::small_under(policy, 1, 16 << 8);
        let order = Order(9);
        let mut blocks = Vec::new();
        let problem = loop {
            match yard.alloc(order, Gfp::KERNEL) {
                Ok(pfn) => blocks.push(pfn),
                Err(problem) => break problem,
            }
        };
        let AllocError::OutOfMemory { zone, .. } = problem else { panic!("{problem:?}") };
        let largest = zone.largest.expect("some memory is free");
        let cause = if largest < order { "" } else { ", below the min watermark for order 9" };
        assert_eq!(
            problem.to_string(),
            format!(
                "out of memory: order 9 (2 MiB), GFP_KERNEL, node 0: zone {} has {} free pages, largest free block order {}{cause}",
                zone.id.kind(),
                yard.stats().free_pages().0,
                largest.0
            )
        );
        for pfn in blocks {
            yard.free(pfn, order).unwrap();
        }
    }
}

#[test]
fn bulk_free_reports_the_first_bad_frame_and_frees_the_rest() {
    let yard = Fixture::small(2, 16 << 8);
    let free = yard.stats().free_pages();
    let mut frames = [Pfn(0); 100];
    assert_eq!(yard.alloc_bulk(Gfp::KERNEL, &mut frames), Ok(100));
    yard.free(frames[7], Order::ZERO).unwrap();
    let error = yard.free_bulk(&frames).unwrap_err();
    assert_eq!((error.pfn, error.order), (frames[7], Order::ZERO));
    assert!(yard.free_bulk(&frames[..2]).is_err(), "all frames are free");
    assert_eq!(yard.free_bulk(&[]), Ok(()));
    assert_eq!(yard.stats().free_pages(), free);
    yard.validate().unwrap();
}
