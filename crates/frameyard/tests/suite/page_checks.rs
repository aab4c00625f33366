//! Checks of page structures: a bad page is reported, counted and skipped, and without checks everything is as before.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::busy_yard::{FIRST, PAGES, ZONE, geometry};
use crate::fixture::{Fixture, Frames, Moment, STORES, order};
use frameyard::boot::{Initialiser, MapInit, PageChecks, ZoneLimits};
use frameyard::page::{FrameState, MapContent};
use frameyard::platform::{BadPage, LockId, PageProblem};
use frameyard::policy::ZonePolicy;
use frameyard::watermarks::PcpSizing;
use frameyard::{CpuId, Gfp, MemoryTable, NodeId, Order, PageCount, Pfn, PfnRange, YardConfig};

/// Where words lie in a page structure, in bytes.
const TAG: usize = 0;
const NEXT: usize = 8;
const COUNTS: usize = 24;
pub(crate) const OWNER: usize = 32;

fn yard_of(policy: ZonePolicy, checks: PageChecks, lists: u32) -> Fixture {
    let config = YardConfig {
        geometry: geometry(),
        zone_limits: ZoneLimits::NONE,
        pcp_sizing: PcpSizing::Fixed(lists),
        policy,
        checks,
        map_init: MapInit { content: MapContent::Kernel, initialiser: Initialiser::Stream, ..MapInit::default() },
        ..YardConfig::new(&[NodeId(0); 2])
    };
    let memory = [(PfnRange::new(FIRST, PageCount(PAGES)), NodeId(0))];
    Fixture::new(&MemoryTable { memory: &memory, ..MemoryTable::default() }, &config, Frames::Phantom)
}

/// Changes 32 bits of a page structure.
pub(crate) fn overwrite(yard: &Fixture, pfn: Pfn, offset: usize, change: impl FnOnce(u32) -> u32) {
    let map = yard.map.raw();
    let at = (pfn.0 - FIRST.0) as usize * 64 + offset;
    assert!(at + 4 <= map.size.0 as usize);
    // SAFETY: in the map, which the fixture keeps; no other thread uses it.
    unsafe {
        let word = map.base.as_ptr().add(at).cast::<u32>();
        word.write(change(word.read()));
    }
}

/// Allocates single frames.
fn take(yard: &Fixture, count: usize) -> Vec<Pfn> {
    (0..count).map(|_| yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap()).collect()
}

fn give(yard: &Fixture, frames: &[Pfn]) {
    frames.iter().for_each(|pfn| yard.free(*pfn, Order::ZERO).unwrap());
}

/// Asserts that exactly this page was found bad so far, with its block of this order.
pub(crate) fn assert_found(yard: &mut Fixture, bad: BadPage, head: Pfn, order: Order) {
    assert_eq!(yard.watch().bad_pages(), [bad]);
    assert_eq!((yard.stats().bad_pages(), yard.zone(ZONE).last_bad_page()), (order.pages(), Some(bad)));
    let info = yard.stats().frame(head).unwrap();
    assert_eq!((info.state, info.order), (FrameState::Poisoned, order));
    assert_eq!(yard.validate(), Ok(()));
    yard.keep(order.pages());
}

#[test]
fn a_drain_keeps_a_bad_page_out_of_the_zone() {
    let words = [
        (COUNTS, PageProblem::Counts),
        (COUNTS + 4, PageProblem::Counts),
        (OWNER, PageProblem::Words),
        (NEXT, PageProblem::Words),
        (TAG + 1, PageProblem::Tag),
    ];
    for policy in [ZonePolicy::Vanilla, ZonePolicy::ClusterBulk, ZonePolicy::Bits] {
        for (offset, problem) in words {
            let mut yard = yard_of(policy, PageChecks::Transfer, 400);
            yard.watch().expect_damage();
            let frames = take(&yard, 40);
            give(&yard, &frames);
            let pfn = frames[7];
            overwrite(&yard, pfn, offset, |word| word ^ 1);
            yard.drain_all();
            assert_found(&mut yard, BadPage { pfn, problem }, pfn, Order::ZERO);
            let until_none = || yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE | Gfp::NOWARN).ok();
            let taken: Vec<Pfn> = core::iter::from_fn(until_none).collect();
            assert!(!taken.contains(&pfn), "{policy}: the bad page is allocated again");
            give(&yard, &taken);
        }
    }
}

#[test]
fn a_refill_skips_a_bad_page_and_the_request_gets_another() {
    for policy in [ZonePolicy::Vanilla, ZonePolicy::SkipMerge, ZonePolicy::Bits] {
        // One page at a time, so that a refill may find nothing but the bad page.
        for lists in [1, 400] {
            let mut yard = yard_of(policy, PageChecks::Transfer, lists);
            yard.watch().expect_damage();
            let bad = take(&yard, 2);
            give(&yard, &bad);
            yard.drain_all();
            bad.iter().for_each(|pfn| overwrite(&yard, *pfn, OWNER, |_| 7));
            let taken = take(&yard, 64);
            assert!(bad.iter().all(|pfn| !taken.contains(pfn)), "{policy}");
            let mut found: Vec<Pfn> = yard.watch().bad_pages().iter().map(|bad| bad.pfn).collect();
            found.sort();
            let mut expected = bad.clone();
            expected.sort();
            assert_eq!((found, yard.stats().bad_pages()), (expected, PageCount(2)), "{policy}");
            assert_eq!(yard.validate(), Ok(()));
            yard.keep(PageCount(2));
            give(&yard, &taken);
        }
    }
}

#[test]
fn a_packed_batch_with_a_bad_page_does_not_reach_the_zone() {
    let mut yard = yard_of(ZonePolicy::Vanilla, PageChecks::Transfer, 200);
    yard.watch().expect_damage();
    let frames = take(&yard, 200);
    yard.drain_all();
    // The oldest 64 are packed when the array is full.
    give(&yard, &frames);
    overwrite(&yard, frames[7], COUNTS, |word| word + 1);
    assert_eq!(yard.watch().bad_pages(), []);
    yard.drain_all();
    assert_found(&mut yard, BadPage { pfn: frames[7], problem: PageProblem::Counts }, frames[7], Order::ZERO);
}

#[test]
fn a_bad_page_inside_a_block_takes_the_block_out_of_use() {
    for policy in STORES {
        for (offset, problem) in [(TAG, PageProblem::Tag), (OWNER, PageProblem::Words)] {
            let mut yard = yard_of(policy, PageChecks::Transfer, 400);
            yard.watch().expect_damage();
            let block = yard.alloc(order(3), Gfp::HIGHUSER_MOVABLE).unwrap();
            yard.free(block, order(3)).unwrap();
            let pfn = block + PageCount(5);
            overwrite(&yard, pfn, offset, |word| word ^ 1);
            yard.drain_all();
            assert_found(&mut yard, BadPage { pfn, problem }, block, order(3));
        }
    }
}

#[test]
fn with_all_checks_a_bad_page_is_found_when_it_is_freed_and_when_it_is_allocated() {
    for policy in ZonePolicy::ALL {
        for big in [Order::ZERO, order(3), order(5)] {
            // Freed with a reference left.
            let mut yard = yard_of(policy, PageChecks::All, 400);
            yard.watch().expect_damage();
            let block = yard.alloc(big, Gfp::HIGHUSER_MOVABLE).unwrap();
            overwrite(&yard, block, COUNTS, |word| word + 1);
            assert_eq!(yard.free(block, big), Ok(()));
            assert_found(&mut yard, BadPage { pfn: block, problem: PageProblem::Counts }, block, big);
            assert!(yard.free(block, big).is_err(), "it is not allocated any more");

            // Written to while it was free, on a list or in the zone.
            let mut yard = yard_of(policy, PageChecks::All, 400);
            yard.watch().expect_damage();
            let block = yard.alloc(big, Gfp::HIGHUSER_MOVABLE).unwrap();
            yard.free(block, big).unwrap();
            overwrite(&yard, block, OWNER, |_| 9);
            let other = yard.alloc(big, Gfp::HIGHUSER_MOVABLE).unwrap();
            assert_ne!(other, block, "{policy}, {big}");
            assert_found(&mut yard, BadPage { pfn: block, problem: PageProblem::Words }, block, big);
            yard.free(other, big).unwrap();
        }
    }
}

#[test]
fn a_list_of_bad_pages_alone_leaves_the_request_another_page() {
    for policy in STORES {
        let mut yard = yard_of(policy, PageChecks::All, 400);
        yard.watch().expect_damage();
        let first = take(&yard, 1);
        give(&yard, &first);
        let held = yard.zone(ZONE).pcp(CpuId(0)).unwrap().count.0;
        let listed: Vec<Pfn> = (0..held).map(|_| yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap()).collect();
        give(&yard, &listed);
        listed.iter().for_each(|pfn| overwrite(&yard, *pfn, OWNER, |_| 9));
        let other = take(&yard, 1);
        assert!(!listed.contains(&other[0]), "{policy}");
        assert_eq!(yard.stats().bad_pages(), PageCount(held));
        give(&yard, &other);
        yard.keep(PageCount(held));
    }
}

/// All pages but one are bad. A request looks at few of them under the lock of its lists, and ends with the good one.
#[test]
fn a_request_goes_on_until_it_meets_a_good_page() {
    for policy in STORES {
        // Refills fetch one page at a time.
        let mut yard = yard_of(policy, PageChecks::Transfer, 1);
        yard.watch().expect_damage();
        let good = FIRST + PageCount(PAGES / 2);
        let bad = || (0..PAGES).map(|offset| FIRST + PageCount(offset)).filter(|pfn| *pfn != good);
        bad().for_each(|pfn| overwrite(&yard, pfn, OWNER, |_| 9));
        let [in_a_row, longest] = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
        let most = Arc::clone(&longest);
        yard.watch().spy_with(move |moment| match moment {
            Moment::TryLock(LockId::PerCpu(..)) => in_a_row.store(0, Ordering::Relaxed),
            Moment::BadPage => _ = most.fetch_max(in_a_row.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed),
            _ => {}
        });
        assert_eq!(yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE), Ok(good), "{policy}");
        yard.watch().calm();
        // The refills of one hold of the lock, and the page that the request then takes from the zone.
        let longest = longest.load(Ordering::Relaxed);
        assert!((2..=65).contains(&longest), "{policy}: {longest} bad pages between two looks at the lists");
        yard.free(good, Order::ZERO).unwrap();
        let found = yard.stats().bad_pages();
        assert!(found < PageCount(PAGES) && found > PageCount(PAGES / 4), "{policy}: {found}");
        bad().for_each(|pfn| overwrite(&yard, pfn, OWNER, |_| 0));
        yard.keep(found);
    }
}

#[test]
fn checks_of_transfers_find_bad_pages_of_blocks_that_pass_no_list() {
    for policy in STORES {
        let mut yard = yard_of(policy, PageChecks::Transfer, 400);
        yard.watch().expect_damage();
        let block = yard.alloc(order(7), Gfp::HIGHUSER_MOVABLE).unwrap();
        yard.free(block, order(7)).unwrap();
        overwrite(&yard, block, OWNER, |_| 9);
        let other = yard.alloc(order(7), Gfp::HIGHUSER_MOVABLE).unwrap();
        assert_ne!(other, block, "{policy}");
        assert_found(&mut yard, BadPage { pfn: block, problem: PageProblem::Words }, block, order(7));
        yard.free(other, order(7)).unwrap();
    }
}

#[test]
fn without_checks_a_bad_page_is_allocated_as_before() {
    let mut yard = yard_of(ZonePolicy::Bits, PageChecks::None, 400);
    let first = take(&yard, 1);
    give(&yard, &first);
    overwrite(&yard, first[0], OWNER, |_| 9);
    assert_eq!(take(&yard, 1), first);
    assert_eq!((yard.stats().bad_pages(), yard.zone(ZONE).last_bad_page()), (PageCount(0), None));
    overwrite(&yard, first[0], OWNER, |_| 0);
    give(&yard, &first);
    yard.keep(PageCount(0));
}

#[test]
fn another_view_of_the_yard_has_its_checks() {
    let mut yard = yard_of(ZonePolicy::Bits, PageChecks::All, 400);
    yard.watch().expect_damage();
    let pfn = take(&yard, 1)[0];
    overwrite(&yard, pfn, NEXT, |_| 3);
    yard.attach().free(pfn, Order::ZERO).unwrap();
    assert_found(&mut yard, BadPage { pfn, problem: PageProblem::Words }, pfn, Order::ZERO);
}
