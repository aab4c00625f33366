//! Single frames without a tag: what each reader of page structures makes of them. Frames that are free as bits
//! leave without one.

use crate::blocks_in_bits::{bits_yard, give, take};
use crate::busy_yard::{FIRST, PAGES, ZONE, geometry};
use crate::fixture::{Fixture, Frames, order, run_on};
use frameyard::alloc::FreeProblem;
use frameyard::boot::{Initialiser, MapInit, PageChecks, Poisoning, ZoneLimits};
use frameyard::compaction::CompactRequest;
use frameyard::contig::BlockedBy;
use frameyard::owners::Owners;
use frameyard::page::{FrameState, MapContent};
use frameyard::policy::ZonePolicy;
use frameyard::validate::ValidateError;
use frameyard::watermarks::PcpSizing;
use frameyard::{
    AllocError, Gfp, MemoryTable, MigrateType, NodeId, Order, PageCount, Pfn, PfnRange, Platform, YardConfig,
};

const MOVABLE: Gfp = Gfp::HIGHUSER_MOVABLE;

/// A yard whose map has kernel-like content, on these ranges of memory.
fn kernel_like(memory: &[(PfnRange, NodeId)], poisoning: Poisoning, checks: PageChecks) -> Fixture {
    let config = YardConfig {
        geometry: geometry(),
        zone_limits: ZoneLimits::NONE,
        pcp_sizing: PcpSizing::Fixed(400),
        policy: ZonePolicy::Bits,
        poisoning,
        checks,
        map_init: MapInit { content: MapContent::Kernel, initialiser: Initialiser::Stream, ..MapInit::default() },
        ..YardConfig::new(&[NodeId(0); 2])
    };
    Fixture::new(&MemoryTable { memory, ..MemoryTable::default() }, &config, Frames::Real)
}

fn whole(poisoning: Poisoning, checks: PageChecks) -> Fixture {
    kernel_like(&[(PfnRange::new(FIRST, PageCount(PAGES)), NodeId(0))], poisoning, checks)
}

fn is_untagged(yard: &Fixture, pfn: Pfn) -> bool {
    yard.page_words(pfn)[0] == 0
}

/// Overwrites a word of a frame's page structure.
fn set_word(yard: &Fixture, pfn: Pfn, word: usize, value: u64) {
    let map = yard.map.raw();
    let at = (pfn.0 - FIRST.0) as usize * 64 + 8 * word;
    assert!(at + 8 <= map.size.0 as usize);
    // SAFETY: in the map, which the fixture keeps; no other thread uses it.
    unsafe { map.base.as_ptr().add(at).cast::<u64>().write(value) };
}

/// Frames that were bits; none has a tag.
fn untagged_frames(yard: &Fixture, gfp: Gfp, count: u64) -> Vec<Pfn> {
    run_on(0);
    let frames = take(yard, gfp, count);
    for pfn in &frames {
        assert!(is_untagged(yard, *pfn), "{pfn} has a tag");
    }
    frames
}

fn assert_state(yard: &Fixture, pfn: Pfn, state: FrameState, migrate_type: MigrateType) {
    let info = yard.stats().frame(pfn).expect("a frame of memory");
    assert_eq!((info.head, info.state, info.order, info.migrate_type), (pfn, state, Order::ZERO, migrate_type));
}

#[test]
fn the_state_of_a_frame_does_not_depend_on_a_tag() {
    let kernel_like = [(Poisoning::Off, PageChecks::None), (Poisoning::On, PageChecks::All)];
    for yard in
        kernel_like.map(|(poisoning, checks)| whole(poisoning, checks)).into_iter().chain([bits_yard(PAGES, 128)])
    {
        let movable = untagged_frames(&yard, MOVABLE, 512);
        let unmovable = untagged_frames(&yard, Gfp::KERNEL, 3);
        movable.iter().for_each(|pfn| assert_state(&yard, *pfn, FrameState::Allocated, MigrateType::Movable));
        unmovable.iter().for_each(|pfn| assert_state(&yard, *pfn, FrameState::Allocated, MigrateType::Unmovable));
        yard.validate().unwrap();
        give(&yard, movable.iter().copied());
        give(&yard, unmovable.iter().copied());
        // On a list.
        unmovable.iter().for_each(|pfn| assert_state(&yard, *pfn, FrameState::PerCpu, MigrateType::Unmovable));
        yard.validate().unwrap();
        yard.drain_all();
        let state = |pfn: &Pfn| yard.stats().frame(*pfn).unwrap().state;
        assert!(movable.iter().all(|pfn| state(pfn) == FrameState::BuddyFree));
    }
}

#[test]
fn frames_keep_tags_in_pageblocks_of_several_zones_and_with_holes() {
    let range = |start: u64, count: u64| PfnRange::new(FIRST + PageCount(start), PageCount(count));
    let pageblock = geometry().pageblock_order();
    let section = geometry().section_pages().0;
    assert_eq!((FIRST.0 % section, PAGES > 3 * section), (0, true));
    // A hole at the end of a pageblock, and two nodes that meet inside another.
    let (hole, border) = (section - 16, 2 * section + 3 * 64 + 32);
    let memory = [
        (range(0, hole), NodeId(0)),
        (range(section, border - section), NodeId(0)),
        (range(border, 3 * section - border), NodeId(1)),
    ];
    let yard = kernel_like(&memory, Poisoning::Off, PageChecks::None);
    run_on(0);
    let frames: Vec<Pfn> = std::iter::from_fn(|| yard.alloc(Order::ZERO, MOVABLE | Gfp::NOWARN).ok()).collect();
    let mixed = [hole, border].map(|at| (FIRST + PageCount(at)).align_down(pageblock));
    let (mut tagged, mut untagged) = (0, 0);
    for pfn in &frames {
        assert_state(&yard, *pfn, FrameState::Allocated, MigrateType::Movable);
        match is_untagged(&yard, *pfn) {
            true => untagged += 1,
            false => tagged += 1,
        }
        assert!(!mixed.contains(&pfn.align_down(pageblock)) || !is_untagged(&yard, *pfn), "{pfn} needs a tag");
    }
    assert!(tagged > 0 && untagged > 10 * tagged, "{tagged} with a tag, {untagged} without");
    yard.validate().unwrap();
    give(&yard, frames.iter().copied());
    let hole = FIRST + PageCount(section - 1);
    assert_eq!(yard.stats().frame(hole).map_or(FrameState::Interior, |info| info.state), FrameState::Interior);
    assert_eq!(yard.free(hole, Order::ZERO).unwrap_err().problem, FreeProblem::Hole);
    yard.validate().unwrap();
}

#[test]
fn bad_frees_of_untagged_frames_are_refused_exactly() {
    let yard = bits_yard(PAGES, 128);
    let frames = untagged_frames(&yard, MOVABLE, 512);
    let problem = |pfn, order| yard.free(pfn, order).unwrap_err().problem;
    let zero = FreeProblem::OtherOrder { allocated: Order::ZERO };
    for pfn in &frames {
        let expected = if pfn.is_aligned(order(1)) { zero } else { FreeProblem::Misaligned };
        assert_eq!(problem(*pfn, order(1)), expected);
    }
    assert!(yard.split(frames[0], order(1)).is_err());
    give(&yard, frames.iter().copied());
    for (pfn, order) in frames.iter().flat_map(|pfn| [(*pfn, Order::ZERO), (*pfn, order(2))]) {
        let problem = problem(pfn, order);
        assert!(matches!(problem, FreeProblem::AlreadyFree(FrameState::BuddyFree | FrameState::PerCpu)), "{problem}");
    }
    let block = yard.alloc(order(4), MOVABLE).unwrap();
    let inside = FreeProblem::InsideBlock { head: block, order: order(4), state: FrameState::Allocated };
    assert_eq!(problem(block + PageCount(5), Order::ZERO), inside);
    yard.free(block, order(4)).unwrap();
    yard.validate().unwrap();
}

#[test]
fn ranges_meet_untagged_frames() {
    let yard = bits_yard(PAGES, 128);
    let frames = untagged_frames(&yard, MOVABLE, 64);
    let pageblock =
        PfnRange::new(frames[0].align_down(geometry().pageblock_order()), geometry().pageblock_order().pages());
    let of = |pfn: Pfn| PfnRange::new(pfn, PageCount(1));
    let used = AllocError::InUse { head: frames[3], order: Order::ZERO, state: FrameState::Allocated };
    assert_eq!(yard.request(of(frames[3]), MOVABLE).range(), Err(used));
    let kernel = untagged_frames(&yard, Gfp::KERNEL, 1)[0];
    for attempt in [
        yard.request(of(kernel), Gfp::KERNEL).owners(&Owners::NONE).range(),
        yard.offline(of(kernel), &Owners::NONE).map(|()| of(kernel)),
    ] {
        let Err(AllocError::Blocked(blocker)) = attempt else { panic!("{attempt:?}") };
        assert_eq!((blocker.pfn, blocker.order, blocker.state), (kernel, Order::ZERO, FrameState::Allocated));
        assert_eq!(blocker.why, BlockedBy::Unmovable);
    }
    give(&yard, frames);
    // All other frames of the pageblock are on lists or bits.
    assert!(pageblock.start <= kernel || pageblock.end > kernel);
    for range in [pageblock, PfnRange::new(pageblock.start, PageCount(3))] {
        give(&yard, take(&yard, MOVABLE, 256));
        assert_eq!(yard.request(range, MOVABLE).range(), Ok(range));
        yard.free_range(range).unwrap();
        give(&yard, take(&yard, MOVABLE, 256));
        assert_eq!(yard.request(range, MOVABLE).owners(&Owners::NONE).range(), Ok(range));
        yard.free_range(range).unwrap();
    }
    give(&yard, [kernel]);
}

#[test]
fn compaction_counts_untagged_frames_in_use_as_unmovable() {
    let yard = bits_yard(PAGES, 128);
    let frames = untagged_frames(&yard, MOVABLE, 20);
    let outcome = yard.compaction().zone(ZONE, CompactRequest::WHOLE_ZONE, &Owners::NONE);
    assert_eq!(outcome.unmovable, PageCount(20));
    give(&yard, frames);
}

#[test]
fn a_pageblock_of_untagged_movable_frames_keeps_its_type() {
    let yard = bits_yard(PAGES, 128);
    run_on(0);
    let mut frames = take(&yard, MOVABLE, yard.stats().managed_pages().0 - 384);
    frames.sort();
    // One frame of eight is free everywhere: no pageblock is worth converting, unless frames in use are overlooked.
    let (freed, held): (Vec<Pfn>, Vec<Pfn>) = frames.iter().partition(|pfn| pfn.is_aligned(order(3)));
    assert!(held.iter().filter(|pfn| is_untagged(&yard, **pfn)).count() * 10 > held.len() * 9);
    give(&yard, freed);
    yard.drain_all();
    while yard.alloc(order(4), MOVABLE | Gfp::NOWARN).is_ok_and(|pfn| yard.split(pfn, order(4)).is_ok()) {}
    let before = yard.zone(ZONE).pageblocks(MigrateType::Unmovable);
    let kernel = yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
    assert_eq!(yard.zone(ZONE).pageblocks(MigrateType::Unmovable), before);
    give(&yard, [kernel]);
    let used = |at: &u64| yard.stats().is_allocated(FIRST + PageCount(*at), Order::ZERO);
    let used: Vec<Pfn> = (0..PAGES).filter(used).map(|at| FIRST + PageCount(at)).collect();
    give(&yard, used);
}

#[test]
fn damaged_untagged_frames_go_out_of_use() {
    // A frame written while it was free, and a page structure with a user.
    for poisoning in [Poisoning::On, Poisoning::Off] {
        let mut yard = whole(poisoning, PageChecks::All);
        yard.watch().expect_damage();
        let frames = untagged_frames(&yard, MOVABLE, 128);
        let pfn = frames[5];
        give(&yard, frames);
        match poisoning {
            // SAFETY: no other thread uses the frame.
            Poisoning::On => unsafe { yard.platform().frame_bytes(pfn).unwrap().write(1) },
            Poisoning::Off => set_word(&yard, pfn, 3, yard.page_words(pfn)[3] + 1),
        }
        let taken: Vec<Pfn> = (0..PAGES).filter_map(|_| yard.alloc(Order::ZERO, MOVABLE).ok()).collect();
        assert!(!taken.contains(&pfn));
        assert_state(&yard, pfn, FrameState::Poisoned, MigrateType::Movable);
        give(&yard, taken);
        assert_eq!(yard.validate(), Ok(()));
        yard.keep(PageCount(1));
    }
}

#[test]
fn tagged_and_untagged_frames_mix() {
    let yard = bits_yard(PAGES, 128);
    let untagged = untagged_frames(&yard, MOVABLE, 192);
    // A block larger than a line comes from the free lists.
    let block = yard.alloc(order(8), MOVABLE).unwrap();
    yard.split(block, order(8)).unwrap();
    let tagged: Vec<Pfn> = (0..256).map(|at| block + PageCount(at)).collect();
    assert!(tagged.iter().all(|pfn| !is_untagged(&yard, *pfn)));
    yard.validate().unwrap();
    for _ in 0..3 {
        give(&yard, untagged.iter().chain(&tagged).copied());
        yard.validate().unwrap();
        give(&yard, take(&yard, MOVABLE, 400));
        yard.validate().unwrap();
        let all = PfnRange::new(FIRST, PageCount(PAGES / 4));
        yard.free_range(yard.request(all, MOVABLE).range().unwrap()).unwrap();
        for pfn in untagged.iter().chain(&tagged) {
            let alone = PfnRange::new(*pfn, PageCount(1));
            assert_eq!(yard.request(alone, MOVABLE).range(), Ok(alone));
        }
    }
    give(&yard, untagged.into_iter().chain(tagged));
}

#[test]
fn the_validator_finds_damaged_untagged_frames() {
    let yard = whole(Poisoning::Off, PageChecks::None);
    yard.watch().expect_damage();
    let held = untagged_frames(&yard, MOVABLE, 3);
    // A word of a frame, what is written there, and what the validator says.
    let cases = [
        (held[0], 4, 7, ValidateError::WordsNotZero(held[0], FrameState::Allocated)),
        (held[1], 0, 1 << 24, ValidateError::BadTag(held[1])),
        (held[2], 0, 1 << 8, ValidateError::Uncovered(held[2])),
    ];
    for (pfn, word, value, expected) in cases {
        let before = yard.page_words(pfn)[word];
        set_word(&yard, pfn, word, value);
        assert_eq!(yard.validate(), Err(expected));
        // A mark is taken away, as those of the validator are.
        set_word(&yard, pfn, word, before);
        yard.validate().unwrap();
    }
    give(&yard, held);
}
