//! Pageblocks that come to hold frames of several types: what puts it off, and what is done about it.

use std::sync::Mutex;

use crate::fixture::{Fixture, Frames, STORES};
use crate::mover::Mover;
use frameyard::boot::ZoneLimits;
use frameyard::owners::{Owners, ReclaimRequest, Reclaimer};
use frameyard::policy::ZonePolicy;
use frameyard::units::ZoneKind;
use frameyard::watermarks::{WatermarkLevel, WatermarkOptions, Watermarks};
use frameyard::{
    AllocError, Gfp, MemoryTable, MigrateType, NodeId, Order, PageCount, Pfn, PfnRange, YardConfig, ZoneId,
};

const NODE: NodeId = NodeId(0);
const ZONE: ZoneId = ZoneId::new(NODE, ZoneKind::Normal);
const MOVABLE: Gfp = Gfp::HIGHUSER_MOVABLE;
const KERNEL: Gfp = Gfp::KERNEL;
const PAGEBLOCK: u64 = 512;

fn yard(policy: ZonePolicy, pages: u64, watermark_boost_factor: u32) -> Fixture {
    let memory = [(PfnRange::new(Pfn(0x8000), PageCount(pages)), NODE)];
    let watermarks = WatermarkOptions { watermark_boost_factor, ..WatermarkOptions::default() };
    let config = YardConfig { zone_limits: ZoneLimits::NONE, watermarks, policy, ..YardConfig::new(&[NODE]) };
    Fixture::new(&MemoryTable { memory: &memory, ..MemoryTable::default() }, &config, Frames::Phantom)
}

/// Fills memory with movable frames and frees three of four, so that no pageblock is free and none is worth converting.
fn scatter(yard: &Fixture, mover: &Mover<'_>) {
    let mut slots = Vec::new();
    while let Ok(pfn) = yard.alloc(Order::ZERO, MOVABLE | Gfp::NOWARN) {
        slots.push((pfn, mover.own(pfn, Order::ZERO)));
    }
    slots.sort();
    slots.iter().filter(|(pfn, _)| pfn.0 % 4 == 0).for_each(|(_, slot)| mover.free(*slot));
    yard.drain_all();
}

fn marks(yard: &Fixture) -> Watermarks {
    yard.zone(ZONE).statistics().watermarks
}

/// Takes unmovable frames, each of which makes the zone's lists fetch more; gives them back at once.
fn mix(yard: &Fixture, frames: usize) {
    let taken: Vec<Pfn> = (0..frames).map(|_| yard.alloc(Order::ZERO, KERNEL).expect("a frame")).collect();
    taken.into_iter().for_each(|pfn| yard.free(pfn, Order::ZERO).unwrap());
}

#[test]
fn mixing_types_boosts_the_watermarks_until_the_boost_is_taken_back() {
    for policy in STORES {
        let yard = yard(policy, 1 << 14, 15_000);
        let mover = Mover::new(&yard);
        scatter(&yard, &mover);
        yard.compaction().announce_reclaimer(NODE);
        assert_eq!(marks(&yard).boost, PageCount(0));
        mix(&yard, 1);
        let raised = marks(&yard);
        let most = (raised.high.0 * 15_000 / 10_000).max(PAGEBLOCK);
        assert!((PAGEBLOCK..=most).contains(&raised.boost.0), "{raised:?}");
        assert_eq!(raised.level(WatermarkLevel::Low), raised.low + raised.boost);
        mix(&yard, 500);
        assert_eq!(marks(&yard).boost, PageCount(most), "it grows up to its part of the high watermark");
        assert_eq!(yard.compaction().take_boosts_back(NODE), PageCount(most));
        assert_eq!((marks(&yard).boost, yard.compaction().take_boosts_back(NODE)), (PageCount(0), PageCount(0)));
        let compacted = yard.compaction().background(NODE, &mover.owners()).expect("the compactor was woken");
        assert!(compacted.migrated.0 > 0, "{compacted:?}");
        assert_eq!(yard.compaction().take_boosts_back(NodeId(7)), PageCount(0), "no such node");
        mover.free_all();
    }
}

#[test]
fn a_boost_makes_no_request_fail() {
    for policy in STORES {
        let yard = yard(policy, 1 << 14, 15_000);
        let mover = Mover::new(&yard);
        scatter(&yard, &mover);
        yard.compaction().announce_reclaimer(NODE);
        mix(&yard, 500);
        let (boost, min) = (marks(&yard).boost, marks(&yard).min);
        let mut taken = Vec::new();
        while let Ok(pfn) = yard.alloc(Order::ZERO, KERNEL | Gfp::NOWARN) {
            taken.push(pfn);
        }
        assert!(boost.0 > 0 && yard.zone(ZONE).statistics().free <= min, "down to the minimum, as ever");
        taken.into_iter().for_each(|pfn| yard.free(pfn, Order::ZERO).unwrap());
        mover.free_all();
    }
}

#[test]
fn there_is_no_boost_without_a_reclaimer_a_factor_or_room() {
    for policy in STORES {
        let unwatched = (yard(policy, 1 << 14, 15_000), false);
        let switched_off = (yard(policy, 1 << 14, 0), true);
        let small = (yard(policy, 3 * PAGEBLOCK, 15_000), true);
        for (yard, announced) in [unwatched, switched_off, small] {
            let mover = Mover::new(&yard);
            scatter(&yard, &mover);
            if announced {
                yard.compaction().announce_reclaimer(NODE);
            }
            mix(&yard, 100);
            assert!(yard.zone(ZONE).statistics().fallbacks > 0);
            assert_eq!(marks(&yard).boost, PageCount(0));
            mover.free_all();
        }
    }
}

#[test]
fn a_request_that_must_not_mix_types_takes_whole_pageblocks_alone() {
    for policy in STORES {
        let yard = yard(policy, 1 << 14, 15_000);
        let gfp = KERNEL | Gfp::NOFRAGMENT | Gfp::NOWARN;
        let first = yard.alloc(Order::ZERO, gfp).expect("of a whole pageblock");
        assert!(yard.zone(ZONE).pageblocks(MigrateType::Unmovable) > 0);
        yard.free(first, Order::ZERO).unwrap();
        yard.drain_all();
        let mover = Mover::new(&yard);
        scatter(&yard, &mover);
        let refused = yard.alloc(Order(3), gfp | Gfp::RECLAIMABLE);
        assert!(matches!(refused, Err(AllocError::OutOfMemory { .. })), "{refused:?}");
        let refused = yard.alloc(Order::ZERO, gfp | Gfp::RECLAIMABLE);
        assert!(matches!(refused, Err(AllocError::OutOfMemory { .. })), "{refused:?}");
        let fallbacks = yard.zone(ZONE).statistics().fallbacks;
        let mixed = yard
            .request(Order::ZERO, KERNEL | Gfp::RECLAIMABLE)
            .owners(&Owners::NONE)
            .frame()
            .expect("a part of a pageblock");
        assert!(yard.zone(ZONE).statistics().fallbacks > fallbacks);
        yard.free(mixed, Order::ZERO).unwrap();
        mover.free_all();
    }
}

/// Gives up as many slots as are wanted, the oldest first.
struct Giver<'m, 'y> {
    mover: &'m Mover<'y>,
    slots: Mutex<Vec<u64>>,
}

impl Reclaimer for Giver<'_, '_> {
    fn reclaim(&self, request: ReclaimRequest) -> PageCount {
        let mut slots = self.slots.lock().unwrap();
        let count = slots.len().min(request.wanted.0 as usize);
        slots.drain(..count).for_each(|slot| self.mover.free(slot));
        PageCount(count as u64)
    }
}

#[test]
fn movable_frames_are_reclaimed_before_they_fill_unmovable_pageblocks() {
    for policy in STORES {
        let yard = yard(policy, 1 << 14, 15_000);
        let mut kept: Vec<Pfn> = (0..3_072).map(|_| yard.alloc(Order::ZERO, KERNEL).expect("a frame")).collect();
        kept.sort();
        // Holes in unmovable pageblocks, too few to make them movable for.
        kept.iter().step_by(3).for_each(|pfn| yard.free(*pfn, Order::ZERO).unwrap());
        let kept: Vec<Pfn> = kept.into_iter().enumerate().filter(|(at, _)| at % 3 != 0).map(|(_, pfn)| pfn).collect();
        yard.drain_all();
        let mover = Mover::new(&yard);
        let mut slots = Vec::new();
        while let Ok(pfn) = yard.alloc(Order::ZERO, MOVABLE | Gfp::NOFRAGMENT | Gfp::NOWARN) {
            slots.push(mover.own(pfn, Order::ZERO));
        }
        let mixed = || yard.zone(ZONE).fallbacks(MigrateType::Movable, MigrateType::Unmovable);
        let (before, left) = (mixed(), yard.zone(ZONE).statistics().free);
        assert!(left > marks(&yard).min, "unmovable frames have room");
        let giver = Giver { mover: &mover, slots: Mutex::new(slots) };
        let owners = mover.owners().with_reclaimer(&giver);
        let more: Vec<Pfn> = (0..2_000)
            .map(|_| yard.request(Order::ZERO, MOVABLE).owners(&owners).frame().expect("reclaimed"))
            .collect();
        assert_eq!(mixed(), before);
        // With nothing left to reclaim, they fill them after all.
        giver.slots.lock().unwrap().clear();
        let mut last = Vec::new();
        while let Ok(pfn) = yard.request(Order::ZERO, MOVABLE | Gfp::NOWARN).owners(&owners).frame() {
            last.push(pfn);
        }
        assert!(mixed() > before);
        more.into_iter().chain(last).chain(kept).for_each(|pfn| yard.free(pfn, Order::ZERO).unwrap());
        mover.free_all();
    }
}
