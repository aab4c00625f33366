//! Frames of any count: frees of parts of blocks by range, and guards that are divided.

use crate::devices;
use crate::fixture::random::Random;
use crate::fixture::{Fixture, Frames, order};
use frameyard::alloc::FreeProblem;
use frameyard::boot::{Poisoning, ZoneLimits};
use frameyard::devices::{MapLayout, Removal};
use frameyard::owners::Ownership;
use frameyard::page::{Counts, FrameState};
use frameyard::{FreeError, Gfp, MemoryTable, NodeId, Order, PageCount, Pfn, PfnRange, Wanted, YardConfig};

const FIRST: Pfn = Pfn(0x1000);
const PAGES: u64 = 16 << 8;

/// 16 MiB of memory with a hole of one frame and a reserved frame in its last MiB, and a device 1 GiB above.
fn yard_with_gaps() -> Fixture {
    let end = FIRST + PageCount(PAGES);
    let hole = Pfn(end.0 - 0x80);
    let memory =
        [(PfnRange { start: FIRST, end: hole }, NodeId(0)), (PfnRange { start: hole + PageCount(1), end }, NodeId(0))];
    let reserved = [PfnRange::new(Pfn(end.0 - 0x40), PageCount(1))];
    let device_space = Some(PfnRange::new(Pfn(0x40000), PageCount(0x8000)));
    let config = YardConfig { zone_limits: ZoneLimits::NONE, device_space, ..YardConfig::new(&[NodeId(0)]) };
    let table = MemoryTable { memory: &memory, reserved: &reserved, ..MemoryTable::default() };
    Fixture::new(&table, &config, Frames::Phantom)
}

/// Frees a range that has a bad frame: the error names it, and nothing has changed.
fn refused(yard: &Fixture, range: PfnRange) -> FreeError {
    let held: Vec<_> = yard.stats().allocated_blocks().collect();
    let error = yard.free_range(range).expect_err("a frame of the range is not allocated");
    assert!(range.contains(error.pfn), "{error}");
    assert!(yard.stats().allocated_blocks().eq(held), "a refused free divided or freed a block");
    yard.validate().unwrap();
    error
}

#[test]
fn any_frames_of_a_block_are_freed_by_range() {
    let yard = Fixture::small(1, PAGES);
    let free = yard.stats().free_pages();
    for (held, first, count) in [(0, 0, 1), (3, 0, 5), (3, 3, 5), (4, 3, 7), (4, 15, 1), (9, 100, 300), (10, 1, 1022)] {
        let order = order(held);
        let block = yard.alloc(order, Gfp::KERNEL).unwrap();
        let part = PfnRange::new(block + PageCount(first), PageCount(count));
        yard.free_range(part).unwrap();
        yard.drain_all();
        yard.validate().unwrap();
        assert_eq!(free - yard.stats().free_pages(), order.pages() - PageCount(count));
        for end in [part.start, Pfn(part.end.0 - 1)] {
            let problem = refused(&yard, PfnRange::new(end, PageCount(1))).problem;
            assert!(matches!(problem, FreeProblem::AlreadyFree(_)), "{problem:?}");
        }
        for rest in
            [PfnRange { start: block, end: part.start }, PfnRange { start: part.end, end: block + order.pages() }]
        {
            yard.free_range(rest).unwrap();
        }
        yard.drain_all();
        assert_eq!(yard.stats().free_pages(), free);
    }
}

#[test]
fn a_range_over_several_requests_is_freed_at_once() {
    let yard = Fixture::small(1, PAGES);
    let whole = PfnRange::new(FIRST, PageCount(0x400));
    let parts = [0, 0x100, 0x180, 0x1c0, 0x1c7, 0x400].map(|offset| FIRST + PageCount(offset));
    for pair in parts.windows(2) {
        yard.request(PfnRange { start: pair[0], end: pair[1] }, Gfp::KERNEL).range().unwrap();
    }
    let middle = PfnRange { start: FIRST + PageCount(0x81), end: FIRST + PageCount(0x3ff) };
    yard.free_range(middle).unwrap();
    yard.validate().unwrap();
    yard.free_range(PfnRange { start: whole.start, end: middle.start }).unwrap();
    yard.free_range(PfnRange { start: middle.end, end: whole.end }).unwrap();
    yard.free_range(PfnRange::default()).expect("no frame is no error");
}

#[test]
fn a_range_with_a_bad_frame_frees_nothing() {
    let yard = yard_with_gaps();
    let end = FIRST + PageCount(PAGES);
    let device = PfnRange::new(Pfn(0x40000), PageCount(0x8000));
    let mapped = yard.devices().map(devices::request(device, order(9), MapLayout::Full)).unwrap();
    let block = yard.alloc(order(4), Gfp::HIGHUSER_MOVABLE).unwrap();
    let within = |first, count| PfnRange::new(block + PageCount(first), PageCount(count));

    yard.free_range(within(5, 2)).unwrap();
    let error = refused(&yard, within(3, 10));
    assert_eq!(error.pfn, block + PageCount(5), "partly free");
    assert!(matches!(error.problem, FreeProblem::AlreadyFree(_)), "{error}");

    let around =
        yard.request(PfnRange { start: Pfn(end.0 - 0x90), end: Pfn(end.0 - 0x80) }, Gfp::KERNEL).range().unwrap();
    let error = refused(&yard, PfnRange { start: around.start + PageCount(3), end: around.end + PageCount(8) });
    assert_eq!(error, FreeError { pfn: around.end, order: Order::ZERO, problem: FreeProblem::Hole });
    let reserved = refused(&yard, PfnRange::new(Pfn(end.0 - 0x40), PageCount(1)));
    assert_eq!(reserved.problem, FreeProblem::NotAllocated(FrameState::Reserved));
    assert_eq!(refused(&yard, PfnRange::new(end, PageCount(1))).problem, FreeProblem::Hole);
    let of_device = refused(&yard, PfnRange::new(device.start + PageCount(7), PageCount(9)));
    assert_eq!(of_device.problem, FreeProblem::NotAllocated(FrameState::Device));
    let highest = PfnRange { start: Pfn(u64::MAX - 5), end: Pfn(u64::MAX) };
    assert_eq!(refused(&yard, highest).problem, FreeProblem::OutOfRange);

    let guard = yard.frames(order(3), Gfp::KERNEL).unwrap();
    let inside = refused(&yard, PfnRange::new(guard.pfn() + PageCount(3), PageCount(2)));
    let owned = FreeProblem::InsideBlock { head: guard.pfn(), order: order(3), state: FrameState::Owned };
    assert_eq!(inside.problem, owned);
    drop(guard);

    let counted = yard.alloc(order(3), Gfp::KERNEL).unwrap();
    let ownership = Ownership { counts: Counts { references: 1, mappings: 0 }, owner: 9, index: 0 };
    yard.counted().init_refs(counted, order(3), ownership).unwrap();
    let inside = refused(&yard, PfnRange::new(counted + PageCount(1), PageCount(2)));
    assert!(matches!(inside.problem, FreeProblem::InsideBlock { state: FrameState::Counted, .. }), "{inside}");
    // SAFETY: the page is of this test's block, which has no other user.
    assert_eq!(unsafe { yard.counted().page(counted) }.unwrap().put(), Ok(0));
    // SAFETY: this thread put the last reference.
    unsafe { yard.counted().free(counted, order(3)) }.unwrap();

    yard.free_range(around).unwrap();
    yard.free_range(within(0, 5)).unwrap();
    yard.free_range(within(7, 9)).unwrap();
    yard.devices().unmap(mapped, Removal::Refuse).unwrap();
}

#[test]
fn both_parts_of_a_divided_guard_own_their_frames() {
    let yard = Fixture::small(1, PAGES);
    let free = yard.stats().free_pages();
    let wanted =
        [Wanted::Block(order(4)), PageCount(11).into(), PfnRange::new(FIRST + PageCount(3), PageCount(700)).into()];
    for (wanted, cut) in wanted.into_iter().flat_map(|wanted| [0, 1, 3, 8, 11].map(|cut| (wanted, PageCount(cut)))) {
        for keeps_first in [true, false] {
            let guard = yard.frames(wanted, Gfp::KERNEL).unwrap();
            let (range, count) = (guard.range(), guard.count());
            let (first, rest) = guard.split_at(cut);
            assert_eq!((first.range().start, first.range().end), (range.start, range.start + cut));
            assert_eq!((rest.range().start, rest.range().end), (range.start + cut, range.end));
            for frame in [range.start, range.start + cut].into_iter().filter(|frame| range.contains(*frame)) {
                assert!(yard.free(frame, Order::ZERO).is_err(), "a guard owns {frame}");
            }
            let (kept, dropped) = if keeps_first { (first, rest) } else { (rest, first) };
            drop(dropped);
            yard.drain_all();
            yard.validate().unwrap();
            assert_eq!(free - yard.stats().free_pages(), kept.count());
            // Given up, the other part is freed by number, in two parts again.
            let kept = kept.into_range();
            let middle = kept.start + PageCount(kept.count().0 / 2);
            yard.free_range(PfnRange { end: middle, ..kept }).unwrap();
            yard.free_range(PfnRange { start: middle, ..kept }).unwrap();
            yard.drain_all();
            assert_eq!(yard.stats().free_pages(), free, "{count} at {cut}");
        }
    }
}

#[test]
#[should_panic(expected = "a guard of 4 pages was divided after 5 pages")]
fn a_guard_is_not_divided_behind_its_end() {
    let yard = Fixture::small(1, PAGES);
    let _ = yard.frames(order(2), Gfp::KERNEL).unwrap().split_at(PageCount(5));
}

/// Allocates counts and blocks, frees parts of any length by range and by guard; the fixture's drop validates the yard and wants all
/// frames back.
fn mix_counts_and_parts(poisoning: Poisoning, seed: u64) {
    let memory = [(PfnRange::new(Pfn(0x1003), PageCount(PAGES)), NodeId(0))];
    let config = YardConfig { zone_limits: ZoneLimits::NONE, poisoning, ..YardConfig::new(&[NodeId(0)]) };
    let table = MemoryTable { memory: &memory, ..MemoryTable::default() };
    let yard = Fixture::new(&table, &config, Frames::Real);
    let mut random = Random::new(seed);
    let mut held: Vec<PfnRange> = Vec::new();
    let mut guards: Vec<frameyard::Frames<'_, _>> = Vec::new();
    for step in 0..4000 {
        let wanted = match random.below(2) {
            0 => Wanted::Count(PageCount(1 + random.below(200))),
            _ => Wanted::Block(order(random.below(9) as u8)),
        };
        match random.below(8) {
            0..=1 => held.extend(yard.request(wanted, Gfp::KERNEL | Gfp::NOWARN).range()),
            2 => guards.extend(yard.frames(wanted, Gfp::HIGHUSER_MOVABLE | Gfp::NOWARN)),
            3..=5 if !held.is_empty() => {
                let range = held.swap_remove(random.below(held.len() as u64) as usize);
                let first = range.start + PageCount(random.below(range.count().0));
                let part = PfnRange::new(first, PageCount(1 + random.below((range.end - first).0)));
                yard.free_range(part).unwrap();
                let rest = [PfnRange { end: part.start, ..range }, PfnRange { start: part.end, ..range }];
                held.extend(rest.into_iter().filter(|rest| !rest.is_empty()));
            }
            6..=7 if !guards.is_empty() => {
                let guard = guards.swap_remove(random.below(guards.len() as u64) as usize);
                let cut = PageCount(random.below(guard.count().0));
                let (first, rest) = guard.split_at(cut);
                match random.below(3) {
                    0 => held.push(rest.into_range()),
                    1 => guards.push(rest),
                    _ => drop(rest),
                }
                guards.extend((!first.range().is_empty()).then_some(first));
            }
            _ => {}
        }
        if step % 500 == 0 {
            yard.validate().unwrap();
        }
    }
    guards.clear();
    held.into_iter().for_each(|range| yard.free_range(range).unwrap());
}

#[test]
fn counts_and_parts_mix() {
    mix_counts_and_parts(Poisoning::Off, 1);
    mix_counts_and_parts(Poisoning::On, 2);
}
