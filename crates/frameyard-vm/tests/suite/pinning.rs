//! Getting and pinning pages of address spaces: frames, counts, and rejected requests.

use crate::fixture::{HUGE, PAGE, TestSpace, TestVm, anonymous, at, in_small_yard, range};
use frameyard::page::Counts;
use frameyard::{Gfp, Order, PageCount, Pfn};
use frameyard_vm::{
    Dirty, HugeAdvice, MapRequest, MemoryAccess, MemoryRegion, PageRun, PinCall, PinError, PinPath, PinRequest,
    RefHandling, ReleaseProblem, VirtRange,
};

const BATCHED: RefHandling = RefHandling::Batched;

fn huge(range: VirtRange) -> MapRequest {
    anonymous(range).advised(HugeAdvice::Huge)
}

fn touch(space: &TestSpace<'_>, range: VirtRange) {
    for addr in (range.start.0..range.end.0).step_by(PAGE as usize) {
        space.touch(frameyard_vm::VirtAddr(addr), MemoryAccess::Write).unwrap();
    }
}

fn counts(vm: &TestVm<'_>, pfn: Pfn) -> (Counts, u64) {
    // SAFETY: only reads.
    let page = unsafe { vm.yard().counted().page(pfn) }.unwrap();
    (page.counts(), page.pins())
}

fn frames_of(space: &TestSpace<'_>, range: VirtRange) -> Vec<Pfn> {
    let addrs = (range.start.0..range.end.0).step_by(PAGE as usize);
    addrs.map(|addr| space.translate(frameyard_vm::VirtAddr(addr)).unwrap().pfn).collect()
}

fn release(vm: &TestVm<'_>, request: PinRequest, frames: &[Pfn]) {
    match request.call {
        PinCall::Get => vm.put_pages(frames, request.refs).unwrap(),
        PinCall::Pin => vm.unpin_pages(frames, request.refs, Dirty::Keep).unwrap(),
    }
}

fn requests() -> impl Iterator<Item = PinRequest> {
    let paths = [PinPath::FastThenSlow, PinPath::SlowOnly, PinPath::FastOnly];
    let calls = [PinRequest::GET, PinRequest::PIN];
    let refs = [RefHandling::PerPage, BATCHED];
    calls.into_iter().flat_map(move |call| {
        paths.into_iter().flat_map(move |path| refs.into_iter().map(move |refs| call.by(path).counted(refs)))
    })
}

#[test]
fn all_paths_take_equal_frames_and_counts() {
    in_small_yard(|vm| {
        let space = vm.create_space().unwrap();
        // Small pages, huge ones, small ones.
        let all = range(HUGE - 8 * PAGE, 2 * HUGE + 16 * PAGE);
        space.map(huge(all)).unwrap();
        touch(&space, all);
        vm.lru_drain_all();
        let expected = frames_of(&space, all);
        let heads = [expected[0], expected[8], expected[8 + 512], expected[8 + 1024]];
        let before = heads.map(|head| counts(&vm, head));
        for request in requests() {
            let mut frames = vec![Pfn(0); expected.len()];
            assert_eq!(space.take_pages(all.start, request, &mut frames), Ok(PageCount(expected.len() as u64)));
            assert_eq!(frames, expected, "{request:?}");
            for (at, order) in [0, 9, 9, 0].into_iter().enumerate() {
                let (found, pins) = counts(&vm, heads[at]);
                let pages = 1 << order;
                let bias = if order == 0 && request.call == PinCall::Pin { 1024 } else { 1 };
                assert_eq!(found.references - before[at].0.references, pages * bias, "{request:?}");
                assert_eq!(pins, if request.call == PinCall::Pin { u64::from(pages) } else { 0 }, "{request:?}");
            }
            vm.validate().unwrap();
            release(&vm, request, &frames);
            assert_eq!(heads.map(|head| counts(&vm, head)), before, "{request:?}");
        }
    });
}

#[test]
fn merges_adjacent_runs_and_stops_when_full() {
    in_small_yard(|vm| {
        let space = vm.create_space().unwrap();
        let all = range(0, 3 * HUGE);
        space.map(huge(all)).unwrap();
        touch(&space, all);
        let expected = frames_of(&space, all);
        for request in requests() {
            let part = range(PAGE, 3 * HUGE - 2 * PAGE);
            let mut runs = [PageRun::default(); 8];
            let taken = space.take_runs(part, request, &mut runs).unwrap();
            assert_eq!(taken.pages, PageCount(3 * 512 - 2));
            let listed: Vec<_> = runs[..taken.runs].iter().flat_map(|run| run.first.0..run.end().0).map(Pfn).collect();
            assert_eq!(listed, expected[1..3 * 512 - 1]);
            match request.call {
                PinCall::Get => vm.put_runs(&runs[..taken.runs], request.refs).unwrap(),
                PinCall::Pin => vm.unpin_runs(&runs[..taken.runs], request.refs, Dirty::Mark).unwrap(),
            }
            assert_eq!(
                space.take_runs(part, request, &mut []),
                match request.path {
                    PinPath::FastOnly => Err(PinError::NotFast(part.start)),
                    _ => Err(PinError::NoRoom),
                }
            );
        }
        vm.validate().unwrap();
    });
}

#[test]
fn single_run_slot_takes_the_first_run() {
    in_small_yard(|vm| {
        let space = vm.create_space().unwrap();
        space.map(anonymous(range(0, 2 * PAGE)).advised(HugeAdvice::Never)).unwrap();
        // Mapped in reverse order from one per-CPU list: the two are not adjacent in order.
        touch(&space, range(PAGE, PAGE));
        let kept = vm.yard().alloc(frameyard::Order::ZERO, frameyard::Gfp::HIGHUSER_MOVABLE).unwrap();
        touch(&space, range(0, PAGE));
        let mut runs = [PageRun::default(); 1];
        let taken = space.take_runs(range(0, 2 * PAGE), PinRequest::PIN, &mut runs).unwrap();
        assert_eq!((taken.runs, taken.pages), (1, PageCount(1)));
        vm.unpin_runs(&runs, BATCHED, Dirty::Keep).unwrap();
        vm.yard().free(kept, frameyard::Order::ZERO).unwrap();
    });
}

#[test]
fn only_the_slow_path_faults_pages_in() {
    in_small_yard(|vm| {
        let space = vm.create_space().unwrap();
        let all = range(0, 600 * PAGE);
        space.map(anonymous(all).advised(HugeAdvice::Never)).unwrap();
        let mut frames = vec![Pfn(0); 600];
        let fast = PinRequest::PIN.by(PinPath::FastOnly);
        assert_eq!(space.take_pages(all.start, fast, &mut frames), Err(PinError::NotFast(all.start)));
        touch(&space, range(0, 5 * PAGE));
        assert_eq!(space.take_pages(all.start, fast, &mut frames), Ok(PageCount(5)), "the pages that are mapped");
        assert_eq!(space.statistics().resident, PageCount(5), "the fast path mapped a page");
        vm.unpin_pages(&frames[..5], BATCHED, Dirty::Keep).unwrap();
        assert_eq!(space.take_pages(all.start, PinRequest::PIN, &mut frames), Ok(PageCount(600)));
        assert_eq!(frames, frames_of(&space, all));
        space.unmap(all).unwrap();
        vm.unpin_pages(&frames, BATCHED, Dirty::Keep).unwrap();
    });
}

#[test]
fn unmapped_page_ends_the_walk_or_fails_the_first() {
    in_small_yard(|vm| {
        let space = vm.create_space().unwrap();
        space.map(anonymous(range(0, 3 * PAGE))).unwrap();
        let mut frames = [Pfn(0); 8];
        let taken = space.take_pages(at(PAGE), PinRequest::GET, &mut frames);
        assert_eq!(taken, Ok(PageCount(2)), "the pages before the failing one");
        vm.put_pages(&frames[..2], BATCHED).unwrap();
        let refused = space.take_pages(at(3 * PAGE), PinRequest::GET, &mut frames);
        assert_eq!(refused, Err(PinError::Fault(frameyard_vm::FaultError::NotMapped(at(3 * PAGE)))));
        for bad in
            [range(0, 0), range(1, PAGE), VirtRange { start: at(0), end: frameyard_vm::VirtAddr(u64::MAX << 12) }]
        {
            let mut runs = [PageRun::default(); 1];
            assert_eq!(space.take_runs(bad, PinRequest::GET, &mut runs), Err(PinError::BadRange(bad)));
        }
        assert!(matches!(space.take_pages(at(0), PinRequest::GET, &mut []), Err(PinError::BadRange(_))));
    });
}

#[test]
fn rejects_release_of_more_references_than_taken() {
    in_small_yard(|vm| {
        let space = vm.create_space().unwrap();
        let all = range(0, HUGE + 4 * PAGE);
        space.map(huge(all)).unwrap();
        touch(&space, all);
        let mut frames = vec![Pfn(0); 516];
        assert_eq!(space.take_pages(all.start, PinRequest::PIN, &mut frames), Ok(PageCount(516)));
        let state = || [0, 512, 513, 515].map(|at| counts(&vm, frames[at]));
        let before = state();
        // One excess pin of the huge page and of a small one, and a free frame.
        let of_huge = [&frames[..], &frames[5..6]].concat();
        let wrong = vm.yard().alloc(frameyard::Order::ZERO, frameyard::Gfp::KERNEL).unwrap();
        let foreign = [&frames[..514], &[wrong]].concat();
        let error = vm.unpin_pages(&foreign, BATCHED, Dirty::Keep).unwrap_err();
        assert_eq!((error.pfn, error.problem, error.released), (wrong, ReleaseProblem::NoUserPage, PageCount(0)));
        assert_eq!(state(), before);
        let more = [PageRun { first: frames[0], pages: PageCount(512) }; 2];
        let error = vm.unpin_runs(&more, BATCHED, Dirty::Keep).unwrap_err();
        assert_eq!(
            (error.pfn, error.released),
            (frames[0], PageCount(512)),
            "the first run is released, the second fails"
        );
        assert!(matches!(error.problem, ReleaseProblem::Underflow(_)));
        let error = vm.unpin_pages(&of_huge, BATCHED, Dirty::Keep).unwrap_err();
        assert_eq!((error.pfn, error.released), (frames[0], PageCount(0)), "the page has no pins");
        assert_eq!(state()[1..], before[1..]);
        vm.unpin_pages(&frames[512..], BATCHED, Dirty::Keep).unwrap();
        let error = vm.unpin_pages(&frames[512..], BATCHED, Dirty::Keep).unwrap_err();
        assert_eq!((error.pfn, error.released), (frames[512], PageCount(0)));
        vm.lru_drain_all();
        let error = vm.put_pages(&frames[512..513], BATCHED).unwrap_err();
        assert_eq!(error.pfn, frames[512], "the mapping's own reference was put");
        vm.yard().free(wrong, frameyard::Order::ZERO).unwrap();
        vm.validate().unwrap();
    });
}

#[test]
fn unpin_marks_pages_dirty_on_request() {
    in_small_yard(|vm| {
        let space = vm.create_space().unwrap();
        space.map(anonymous(range(0, PAGE))).unwrap();
        let mut frames = [Pfn(0)];
        let is_dirty = |pfn| {
            // SAFETY: only reads.
            unsafe { vm.yard().counted().page(pfn) }.unwrap().owner() & 1 << 11 != 0
        };
        for (dirty, expected) in [(Dirty::Keep, false), (Dirty::Mark, true)] {
            assert_eq!(space.take_pages(at(0), PinRequest::PIN, &mut frames), Ok(PageCount(1)));
            vm.unpin_pages(&frames, BATCHED, dirty).unwrap();
            assert_eq!(is_dirty(frames[0]), expected);
        }
    });
}

#[test]
fn region_pins_and_releases_its_frames() {
    in_small_yard(|vm| {
        let space = vm.create_space().unwrap();
        let all = range(0, 2 * HUGE + 700 * PAGE);
        space.map(huge(all)).unwrap();
        // Every second page from another list, so that few are adjacent.
        touch(&space, range(0, 2 * HUGE));
        for page in (0..700).rev() {
            space.touch(at(2 * HUGE + page * PAGE), MemoryAccess::Write).unwrap();
        }
        let expected = frames_of(&space, all);
        let free = vm.yard().stats().free_pages();
        let region = MemoryRegion::register(&space, all, MemoryAccess::Write).unwrap();
        let listed: Vec<_> = region.runs().flat_map(|run| run.first.0..run.end().0).map(Pfn).collect();
        assert_eq!(listed, expected);
        assert_eq!(region.runs().count() as u64, region.run_count());
        assert!(
            region.runs().zip(region.runs().skip(1)).all(|(run, next)| run.end() != next.first),
            "adjacent runs did not merge"
        );
        assert_eq!(counts(&vm, expected[0]).1, 512);
        space.unmap(range(0, HUGE)).unwrap();
        region.deregister().unwrap();
        assert!(vm.yard().stats().free_pages() > free, "the region's end frees its unmapped pages");
        let again = MemoryRegion::register(&space, range(HUGE, HUGE), MemoryAccess::Read).unwrap();
        assert_eq!((again.run_count(), counts(&vm, expected[512]).1), (1, 512));
        drop(again);
        assert_eq!(counts(&vm, expected[512]).1, 0);
        let refused = MemoryRegion::register(&space, range(HUGE, 2 * HUGE + 800 * PAGE), MemoryAccess::Read);
        assert!(matches!(refused, Err(PinError::Fault(_))), "a page of the range is unmapped");
        assert_eq!(counts(&vm, expected[512]).1, 0, "a page stayed pinned");
    });
}

#[test]
fn list_of_runs_grows_without_a_lock_held() {
    in_small_yard(|vm| {
        let space = vm.create_space().unwrap();
        let all = range(0, 600 * PAGE);
        space.map(anonymous(all).advised(HugeAdvice::Never)).unwrap();
        // Only every second frame is free, so each page that the slow path faults in is a run. The test platform refuses
        // allocations under a lock.
        let hoard: Vec<Pfn> =
            std::iter::from_fn(|| vm.yard().alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE.union(Gfp::NOWARN)).ok())
                .collect();
        let (kept, freed): (Vec<Pfn>, Vec<Pfn>) = hoard.into_iter().partition(|pfn| pfn.0 % 2 == 0);
        freed.into_iter().for_each(|pfn| vm.yard().free(pfn, Order::ZERO).unwrap());
        let region = MemoryRegion::register(&space, all, MemoryAccess::Write).unwrap();
        assert_eq!(region.run_count(), 600, "three frames of the list");
        let listed: Vec<_> = region.runs().map(|run| run.first).collect();
        assert_eq!(listed, frames_of(&space, all));
        region.deregister().unwrap();
        kept.into_iter().for_each(|pfn| vm.yard().free(pfn, Order::ZERO).unwrap());
    });
}
