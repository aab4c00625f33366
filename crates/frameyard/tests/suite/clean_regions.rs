//! Regions of 1 GiB that are kept clean: which requests take frames where, and when a region is tainted or clean.

use std::collections::HashSet;
use std::sync::atomic::Ordering;

use crate::fixture::random::Random;
use crate::fixture::words::{read, validated_with};
use crate::fixture::{Fixture, Frames, STORES, run_on};
use crate::mover::Mover;
use frameyard::boot::ZoneLimits;
use frameyard::compaction::CompactRequest;
use frameyard::owners::Owners;
use frameyard::policy::ZonePolicy;
use frameyard::stats::{RegionCounts, RegionStatistics};
use frameyard::units::ZoneKind;
use frameyard::validate::ValidateError;
use frameyard::{
    ByteSize, CleanRegions, Geometry, Gfp, MemoryTable, NodeId, Order, PageCount, Pfn, PfnRange, YardConfig, ZoneId,
};

const NODE: NodeId = NodeId(0);
const ZONE: ZoneId = ZoneId::new(NODE, ZoneKind::Normal);
const SINGLE: Order = Order(0);
const MOVABLE: Gfp = Gfp::HIGHUSER_MOVABLE.union(Gfp::NOWARN);
const UNMOVABLE: Gfp = Gfp::KERNEL.union(Gfp::NOWARN);
const RECLAIMABLE: Gfp = Gfp::KERNEL.union(Gfp::RECLAIMABLE).union(Gfp::NOWARN);
/// Frames of 64 KiB: pageblocks of 2 MiB, a region of 16384 frames.
const PAGEBLOCK: Order = Order(5);
const REGION: Order = Order(14);
/// The middle of the first region.
const HALF: Pfn = Pfn(1 << (REGION.0 - 1));

fn geometry() -> Geometry {
    Geometry::new(ByteSize::kib(64), ByteSize::mib(128), PAGEBLOCK, Order(6)).unwrap()
}

/// Four regions.
fn yard(clean_regions: CleanRegions, policy: ZonePolicy) -> Fixture {
    with_memory(region(1).start, region(4).end, &[], clean_regions, policy)
}

/// Memory between two frames.
fn with_memory(
    start: Pfn,
    end: Pfn,
    reserved: &[PfnRange],
    clean_regions: CleanRegions,
    policy: ZonePolicy,
) -> Fixture {
    run_on(0);
    let memory = [(PfnRange { start, end }, NODE)];
    let config = YardConfig {
        geometry: geometry(),
        zone_limits: ZoneLimits::NONE,
        clean_regions,
        policy,
        ..YardConfig::new(&[NODE])
    };
    let table = MemoryTable { memory: &memory, reserved, ..MemoryTable::default() };
    Fixture::new(&table, &config, Frames::Phantom)
}

fn clean_yard() -> Fixture {
    yard(CleanRegions::On, ZonePolicy::Vanilla)
}

/// Four regions, and half of one before them.
fn yard_with_half_a_region() -> Fixture {
    with_memory(HALF, region(4).end, &[], CleanRegions::On, ZonePolicy::Vanilla)
}

/// The frames of the region of that number.
fn region(number: u64) -> PfnRange {
    PfnRange::new(Pfn(number << REGION.0), REGION.pages())
}

fn regions(yard: &Fixture) -> Vec<RegionStatistics> {
    yard.zone(ZONE).regions().collect()
}

fn tainted(yard: &Fixture) -> usize {
    regions(yard).iter().filter(|region| region.is_tainted()).count()
}

/// The number of a frame's region; 0 has no record.
fn region_of(pfn: Pfn) -> usize {
    (pfn.0 >> REGION.0) as usize
}

/// Allocates single frames until none is left.
fn fill(yard: &Fixture, gfp: Gfp) -> Vec<Pfn> {
    std::iter::from_fn(|| yard.alloc(SINGLE, gfp).ok()).collect()
}

fn free(yard: &Fixture, frames: impl IntoIterator<Item = Pfn>) {
    frames.into_iter().for_each(|pfn| yard.free(pfn, SINGLE).unwrap());
    yard.drain_all();
}

/// Frees what a test fills a fresh yard with and a choice keeps not.
fn fill_but(yard: &Fixture, is_freed: impl Fn(Pfn) -> bool) -> Vec<Pfn> {
    let (freed, kept): (Vec<Pfn>, Vec<Pfn>) = fill(yard, MOVABLE).into_iter().partition(|pfn| is_freed(*pfn));
    free(yard, freed);
    kept
}

#[test]
fn only_whole_regions_have_records() {
    // Half of the first and of the last region is memory, and a frame of the third one is reserved.
    let half = PageCount(HALF.0);
    let reserved = [PfnRange::new(region(2).start + half, PageCount(1))];
    let yard = with_memory(HALF, region(5).start + half, &reserved, CleanRegions::On, ZonePolicy::Vanilla);
    let found = regions(&yard);
    assert_eq!(found.iter().map(|found| found.frames).collect::<Vec<_>>(), [1, 3, 4].map(region));
    for found in found {
        assert_eq!((found.movable, found.free, found.zone), (512, REGION.pages(), ZONE));
        assert!(!found.is_tainted());
    }
    assert_eq!(yard.clean_regions(), CleanRegions::On);
    yard.validate().unwrap();
}

#[test]
fn a_request_that_cannot_move_taints_the_clean_region_with_the_most_free_frames() {
    for most in 1..=4 {
        for gfp in [UNMOVABLE, RECLAIMABLE] {
            let yard = clean_yard();
            let eighths = |pfn: Pfn| if region_of(pfn) == most { 3 } else { 2 };
            let kept = fill_but(&yard, |pfn| (pfn.0 >> PAGEBLOCK.0) % 8 < eighths(pfn));
            let stays = yard.alloc(SINGLE, gfp).unwrap();
            assert_eq!((region_of(stays), tainted(&yard)), (most, 1));
            free(&yard, kept.into_iter().chain([stays]));
        }
    }
}

#[test]
fn movable_requests_convert_no_pageblock_of_which_a_part_is_free() {
    for gfp in [UNMOVABLE, RECLAIMABLE] {
        let yard = clean_yard();
        // One frame stays in each of many pageblocks.
        let frames: Vec<Pfn> = (0..1024).map(|_| yard.alloc(SINGLE, gfp).unwrap()).collect();
        let (stay, freed): (Vec<Pfn>, _) = frames.into_iter().partition(|pfn| pfn.is_aligned(PAGEBLOCK));
        free(&yard, freed);
        let types = |yard: &Fixture| regions(yard).iter().map(|of| (of.unmovable, of.reclaimable)).collect::<Vec<_>>();
        let before = types(&yard);
        let all = fill(&yard, MOVABLE);
        let blocks: HashSet<Pfn> = stay.iter().copied().collect();
        let among_them = all.iter().filter(|pfn| blocks.contains(&pfn.align_down(PAGEBLOCK))).count();
        assert!(stay.len() > 16 && among_them > 16 * stay.len(), "{among_them} of {}", stay.len());
        assert_eq!(types(&yard), before);
        yard.validate().unwrap();
        free(&yard, all.into_iter().chain(stay));
    }
}

#[test]
fn requests_that_cannot_move_stay_in_memory_without_records_while_it_lasts() {
    let yard = yard_with_half_a_region();
    let half = REGION.pages().0 / 2;
    let frames: Vec<Pfn> = (0..half - 512)
        .map(|at| if at % 2 == 0 { UNMOVABLE } else { RECLAIMABLE })
        .map(|gfp| yard.alloc(SINGLE, gfp).unwrap())
        .collect();
    assert!(frames.iter().all(|pfn| region_of(*pfn) == 0));
    assert_eq!(tainted(&yard), 0);
    free(&yard, frames);
}

#[test]
fn movable_requests_take_frames_of_clean_regions_first() {
    let yard = clean_yard();
    let tainting = yard.alloc(SINGLE, UNMOVABLE).unwrap();
    let dirty = region_of(tainting);
    assert_eq!(tainted(&yard), 1);
    let clean: Vec<Pfn> = (0..3 * REGION.pages().0 - 1024).map(|_| yard.alloc(SINGLE, MOVABLE).unwrap()).collect();
    assert!(clean.iter().all(|pfn| region_of(*pfn) != dirty));
    yard.validate().unwrap();
    let rest = fill(&yard, MOVABLE);
    assert!(rest.iter().any(|pfn| region_of(*pfn) == dirty), "the tainted region serves the rest");
    free(&yard, clean.into_iter().chain(rest).chain([tainting]));
}

#[test]
fn requests_that_cannot_move_take_the_last_single_frames_of_tainted_regions() {
    for order in [SINGLE, Order(1)] {
        let yard = clean_yard();
        // No two free frames are neighbours, but for a pair in every pageblock; region 2 has whole pageblocks.
        let pair = |pfn: Pfn| pfn.0 % 32 < 2;
        let kept = fill_but(&yard, |pfn| match region_of(pfn) {
            2 => pfn.0 % 64 < 32,
            _ => pair(pfn) || pfn.0.is_multiple_of(4),
        });
        let first = yard.alloc(order, UNMOVABLE).unwrap();
        assert_eq!((region_of(first), tainted(&yard)), (2, 1), "it has the most free frames");
        // All other free frames of the region, in two types.
        let mut frames = vec![first];
        let free_there = regions(&yard)[1].free.0;
        let requests = free_there / order.pages().0;
        frames.extend(
            (0..requests).map(|at| yard.alloc(order, if at % 3 == 0 { RECLAIMABLE } else { UNMOVABLE }).unwrap()),
        );
        let elsewhere = frames.iter().filter(|pfn| region_of(**pfn) != 2).count();
        assert!(elsewhere <= 64, "{elsewhere}: a batch at most");
        yard.validate().unwrap();
        // Now in the frames that are scattered.
        let more: Vec<Pfn> = (0..400).map(|_| yard.alloc(order, UNMOVABLE).unwrap()).collect();
        assert_eq!(tainted(&yard), 2, "one region serves all of them");
        yard.validate().unwrap();
        frames.iter().chain(&more).for_each(|pfn| yard.free(*pfn, order).unwrap());
        free(&yard, kept);
        assert_eq!(tainted(&yard), 0);
    }
}

#[test]
fn a_region_without_blocks_that_stay_is_clean_again() {
    let yard = clean_yard();
    let frames: Vec<Pfn> = (0..700).map(|_| yard.alloc(SINGLE, UNMOVABLE).unwrap()).collect();
    let high = yard.alloc(PAGEBLOCK, RECLAIMABLE).unwrap();
    assert_eq!(tainted(&yard), 1);
    assert_eq!(yard.zone(ZONE).region_counts(), RegionCounts { tainted: 1, ..RegionCounts::default() });
    let mut frames = frames.into_iter();
    let last = frames.next_back().unwrap();
    free(&yard, frames);
    yard.free(high, PAGEBLOCK).unwrap();
    assert_eq!(tainted(&yard), 1);
    free(&yard, [last]);
    assert_eq!(tainted(&yard), 0);
    assert_eq!(yard.zone(ZONE).region_counts(), RegionCounts { tainted: 1, cleaned: 1, moved: 0 });
    yard.validate().unwrap();
}

#[test]
fn movable_frames_do_not_hide_blocks_that_stay() {
    let yard = clean_yard();
    // A pageblock with one frame that stays and many movable ones.
    let tainting = yard.alloc(SINGLE, UNMOVABLE).unwrap();
    let all = fill(&yard, MOVABLE);
    free(&yard, all.iter().copied());
    let again = fill(&yard, MOVABLE);
    assert_eq!(tainted(&yard), 1);
    let region = regions(&yard)[region_of(tainting) - 1];
    assert!(region.is_tainted(), "{region:?}");
    free(&yard, again.into_iter().chain([tainting]));
}

#[test]
fn atomic_blocks_taint_the_region_that_keeps_frames_for_them() {
    let yard = clean_yard();
    let atomic = Gfp::ATOMIC | Gfp::NOWARN;
    let filling = fill(&yard, MOVABLE);
    let blocks: Vec<Pfn> = (0..2).map(|_| yard.alloc(Order(3), atomic).unwrap()).collect();
    let kept = yard.zone(ZONE).statistics().reserved_highatomic;
    assert!(kept.0 > 0);
    let found: u64 = regions(&yard).iter().map(|region| u64::from(region.high_atomic) << PAGEBLOCK.0).sum();
    assert_eq!((PageCount(found), tainted(&yard)), (kept, 1));
    yard.validate().unwrap();
    blocks.into_iter().for_each(|pfn| yard.free(pfn, Order(3)).unwrap());
    free(&yard, filling);
}

#[test]
fn blocks_that_stay_in_5_percent_of_memory_taint_one_region_of_four() {
    let tainted_under = |policy| {
        let yard = yard(CleanRegions::On, policy);
        let mut random = Random::new(7);
        let mut held: Vec<(Pfn, bool)> = Vec::new();
        for _ in 0..200_000 {
            let free = yard.stats().free_pages().0;
            let share = yard.stats().managed_pages().0 / 5;
            if free > share && random.below(2) == 0 || held.is_empty() {
                let stays = random.below(20) == 0;
                let pfn = yard.alloc(SINGLE, if stays { UNMOVABLE } else { MOVABLE }).unwrap();
                held.push((pfn, stays));
            } else {
                let (pfn, _) = held.swap_remove(random.below(held.len() as u64) as usize);
                yard.free(pfn, SINGLE).unwrap();
            }
            if free < share {
                let (pfn, _) = held.swap_remove(random.below(held.len() as u64) as usize);
                yard.free(pfn, SINGLE).unwrap();
            }
        }
        yard.validate().unwrap();
        let dirty: HashSet<usize> = held.iter().filter(|(_, stays)| *stays).map(|(pfn, _)| region_of(*pfn)).collect();
        free(&yard, held.into_iter().map(|(pfn, _)| pfn));
        dirty.into_iter().filter(|region| *region != 0).count()
    };
    for policy in STORES {
        assert!(tainted_under(policy) <= 1, "{policy}");
    }
}

#[test]
fn the_mode_changes_at_run_time_under_every_policy() {
    for policy in ZonePolicy::ALL {
        let yard = yard(CleanRegions::Off, policy);
        assert!(regions(&yard).is_empty());
        let mut random = Random::new(3);
        let (mut held, mut mode) = (Vec::new(), CleanRegions::Off);
        for round in 0..6 {
            for _ in 0..3000 {
                let order = Order(if random.below(8) == 0 { random.below(7) as u8 } else { 0 });
                let gfp = [MOVABLE, MOVABLE, MOVABLE, UNMOVABLE, RECLAIMABLE][random.below(5) as usize];
                held.extend(yard.alloc(order, gfp).ok().map(|pfn| (pfn, order)));
                if held.len() > 6000 || random.below(3) == 0 {
                    let (pfn, order) = held.swap_remove(random.below(held.len() as u64) as usize);
                    yard.free(pfn, order).unwrap();
                }
            }
            yard.validate().unwrap_or_else(|problem| panic!("{policy}, round {round}: {problem}"));
            mode = if mode == CleanRegions::Off { CleanRegions::On } else { CleanRegions::Off };
            yard.set_clean_regions(mode).unwrap();
            assert_eq!(regions(&yard).len(), if mode == CleanRegions::On { 4 } else { 0 });
            yard.validate().unwrap_or_else(|problem| panic!("{policy}, after round {round}: {problem}"));
        }
        held.into_iter().for_each(|(pfn, order)| yard.free(pfn, order).unwrap());
        yard.set_clean_regions(CleanRegions::On).unwrap();
        // Returns everything to the free lists.
        yard.set_policy(policy).unwrap();
        assert_eq!(tainted(&yard), 0, "{policy}");
    }
}

#[test]
fn a_mode_that_begins_late_sees_frames_that_stay_in_movable_pageblocks() {
    let yard = yard(CleanRegions::Off, ZonePolicy::Vanilla);
    // Too few frames of each pageblock are free for a request to convert it.
    let kept = fill_but(&yard, |pfn| region_of(pfn) == 2 && pfn.0.is_multiple_of(4));
    let stay: Vec<Pfn> = (0..1000).map(|_| yard.alloc(SINGLE, UNMOVABLE).unwrap()).collect();
    assert!(stay.iter().any(|pfn| region_of(*pfn) == 2), "the frames that were kept free are in the first region");
    yard.set_clean_regions(CleanRegions::On).unwrap();
    let found: Vec<bool> = regions(&yard).iter().map(RegionStatistics::is_tainted).collect();
    assert_eq!(found, [1, 2, 3, 4].map(|region| stay.iter().any(|pfn| region_of(*pfn) == region)));
    yard.validate().unwrap();
    free(&yard, kept.into_iter().chain(stay));
    assert_eq!(tainted(&yard), 0);
}

#[test]
fn the_validator_recounts_regions() {
    let yard = clean_yard();
    let frames: Vec<Pfn> = (0..40).map(|_| yard.alloc(SINGLE, UNMOVABLE).unwrap()).collect();
    yard.drain_all();
    let region = regions(&yard).into_iter().find(|region| region.is_tainted()).unwrap();
    let control = yard.control.raw();
    // The record begins with the number of the first frame plus 1, then zone and unmovable pageblocks.
    let words = [region.frames.start.0 + 1, u64::from(ZONE.0) | u64::from(region.unmovable) << 32];
    let place = (1..control.size.0 / 8).find(|at| [at - 1, *at].map(|place| read(control, place)) == words).unwrap();
    let found = validated_with(&yard, control, place, words[1] + (1 << 32));
    let kept = u64::from(region.unmovable) + 1;
    assert!(
        matches!(found, ValidateError::Count { zone: ZONE, kept: of, found, .. } if (of, found) == (kept, kept - 1))
    );
    // Free frames, behind the pageblocks of two more types.
    let place = place + 2;
    let good = read(control, place);
    assert_eq!(good as u32, region.free.0 as u32);
    let found = validated_with(&yard, control, place, good - 1);
    assert!(matches!(found, ValidateError::Count { kept, found, .. } if kept + 1 == found), "{found}");
    free(&yard, frames);
}

/// Fills memory with an owner's frames, and frees those that a choice names.
fn fill_movers(yard: &Fixture, mover: &Mover<'_>, is_freed: impl Fn(Pfn) -> bool) {
    for pfn in fill(yard, MOVABLE) {
        mover.own(pfn, SINGLE);
    }
    mover.slots().into_iter().filter(|slot| is_freed(mover.place(*slot))).for_each(|slot| mover.free(slot));
    yard.drain_all();
}

#[test]
fn a_gibibyte_is_made_in_the_clean_region_with_the_most_free_frames() {
    let yard = clean_yard();
    let mover = Mover::new(&yard);
    // Of each region, that many eighths are in use.
    let used = [8, 4, 3, 1, 2];
    fill_movers(&yard, &mover, |pfn| pfn.0 % 8 >= used[region_of(pfn)]);
    for expected in [3, 4] {
        let before = mover.moves.load(Ordering::Relaxed);
        let page = yard.request(REGION, MOVABLE).owners(&mover.owners()).range().unwrap();
        assert_eq!(region_of(page.start), expected);
        let moved = mover.moves.load(Ordering::Relaxed) - before;
        assert!(moved <= REGION.pages().0 / 2, "{moved}");
        mover.check_all();
    }
    let pages: Vec<Pfn> = [3, 4].map(|region| Pfn(region << REGION.0)).to_vec();
    pages.into_iter().for_each(|page| yard.free(page, REGION).unwrap());
    mover.free_all();
}

#[test]
fn frames_make_way_into_the_clean_region_with_the_fewest_free_frames() {
    let yard = clean_yard();
    let mover = Mover::new(&yard);
    // Of each region, that many eighths are in use. An eighth of a region moves, and an eighth of another is free.
    let used = [8, 6, 7, 1, 5];
    fill_movers(&yard, &mover, |pfn| pfn.0 % 8 >= used[region_of(pfn)]);
    let before: Vec<u64> = regions(&yard).iter().map(|region| region.free.0).collect();
    let page = yard.request(REGION, MOVABLE).owners(&mover.owners()).range().unwrap();
    assert_eq!(region_of(page.start), 3);
    yard.drain_all();
    let after: Vec<u64> = regions(&yard).iter().map(|region| region.free.0).collect();
    let eighth = REGION.pages().0 / 8;
    assert!(before[1] < eighth + 256 && after[1] < 256, "{before:?} {after:?}");
    assert_eq!((after[2], after[3]), (0, before[3]));
    mover.check_all();
    yard.validate().unwrap();
    yard.free(page.start, REGION).unwrap();
    mover.free_all();
}

#[test]
fn compaction_leaves_free_frames_of_tainted_regions_alone_while_clean_regions_have_room() {
    let yard = clean_yard();
    let mover = Mover::new(&yard);
    fill_movers(&yard, &mover, |pfn| {
        pfn.0.is_multiple_of(2) || region_of(pfn) == 4 && (pfn.0 >> PAGEBLOCK.0).is_multiple_of(4)
    });
    let stays = yard.alloc(SINGLE, UNMOVABLE).unwrap();
    assert_eq!(region_of(stays), 4, "it has the most free frames, and is where compaction moves frames");
    let in_region = || mover.slots().into_iter().filter(|slot| region_of(mover.place(*slot)) == 4).count();
    let before = in_region();
    let outcome = yard.compaction().zone(ZONE, CompactRequest::WHOLE_ZONE, &mover.owners());
    assert!(outcome.migrated.0 > 1000 && in_region() <= before, "{before} {} {outcome:?}", in_region());
    mover.check_all();
    yard.validate().unwrap();
    mover.free_all();
    free(&yard, [stays]);
}

#[test]
fn the_background_makes_room_in_tainted_regions() {
    let yard = clean_yard();
    let mover = Mover::new(&yard);
    fill_movers(&yard, &mover, |pfn| pfn.0 % 64 == 0 || region_of(pfn) == 4 && pfn.0 % 64 < 48);
    let mut frames = vec![yard.alloc(SINGLE, UNMOVABLE).unwrap()];
    let dirty = region_of(frames[0]);
    let room = |yard: &Fixture| regions(yard)[dirty - 1].free.0;
    while room(&yard) > 64 {
        frames.push(yard.alloc(SINGLE, UNMOVABLE).unwrap());
    }
    let least = REGION.pages().0 / 16;
    assert!(tainted(&yard) == 1 && room(&yard) < least, "{:?}", regions(&yard));
    // Movable frames elsewhere make place for those that move.
    let elsewhere =
        mover.slots().into_iter().filter(|slot| region_of(mover.place(*slot)) != dirty).take(4 * least as usize);
    elsewhere.for_each(|slot| mover.free(slot));
    yard.drain_all();
    let mut steps = 0;
    while yard.compaction().background(NODE, &mover.owners()).is_some() {
        steps += 1;
        assert!(steps < 2000, "it never rests");
    }
    yard.drain_all();
    let counts = yard.zone(ZONE).region_counts();
    assert!(room(&yard) >= least && counts.moved > 0, "{counts:?} {:?}", regions(&yard));
    frames.extend((0..least).map(|_| yard.alloc(SINGLE, UNMOVABLE).unwrap()));
    assert_eq!(tainted(&yard), 1);
    mover.check_all();
    yard.validate().unwrap();
    free(&yard, frames);
    mover.free_all();
}

#[test]
fn the_background_cleans_a_region_in_which_only_movable_frames_are_left() {
    let yard = clean_yard();
    let mover = Mover::new(&yard);
    fill_movers(&yard, &mover, |pfn| region_of(pfn) == 2 && pfn.0.is_multiple_of(4));
    let frames: Vec<Pfn> = (0..400).map(|_| yard.alloc(SINGLE, UNMOVABLE).unwrap()).collect();
    let before = tainted(&yard);
    assert!(regions(&yard)[1].is_tainted(), "it has the most free frames");
    yard.compaction().background(NODE, &Owners::NONE);
    assert_eq!(tainted(&yard), before);
    free(&yard, frames);
    assert!(tainted(&yard) > 0, "pageblocks have movable frames in use");
    (0..4).for_each(|_| _ = yard.compaction().background(NODE, &Owners::NONE));
    assert_eq!(tainted(&yard), 0);
    yard.validate().unwrap();
    mover.free_all();
}
