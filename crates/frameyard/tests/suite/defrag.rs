//! The mode that keeps whole pageblocks in stock: what the background makes, and what requests no longer do.

use crate::fixture::words::{read, validated_with};
use crate::fixture::{Fixture, Frames};
use crate::mover::Mover;
use frameyard::boot::ZoneLimits;
use frameyard::stats::{CompactEvent, Stock};
use frameyard::units::ZoneKind;
use frameyard::validate::ValidateError;
use frameyard::{
    DefragMode, Gfp, MemoryTable, MigrateType, NodeId, Order, PageCount, Pfn, PfnRange, YardConfig, ZoneId,
};

const NODE: NodeId = NodeId(0);
const ZONE: ZoneId = ZoneId::new(NODE, ZoneKind::Normal);
const MOVABLE: Gfp = Gfp::HIGHUSER_MOVABLE;
const HUGE: Order = Order(9);

/// A yard of 64 pageblocks in one zone.
fn yard(defrag_mode: DefragMode) -> Fixture {
    let memory = [(PfnRange::new(Pfn(0x8000), PageCount(1 << 15)), NODE)];
    let config = YardConfig { zone_limits: ZoneLimits::NONE, defrag_mode, ..YardConfig::new(&[NODE]) };
    Fixture::new(&MemoryTable { memory: &memory, ..MemoryTable::default() }, &config, Frames::Phantom)
}

/// Fills memory with movable frames and frees every third of them, so that no pageblock is free.
fn scatter(yard: &Fixture, mover: &Mover<'_>) {
    let mut slots = Vec::new();
    while let Ok(pfn) = yard.alloc(Order::ZERO, MOVABLE | Gfp::NOWARN) {
        slots.push((pfn, mover.own(pfn, Order::ZERO)));
    }
    slots.iter().filter(|(pfn, _)| pfn.0.is_multiple_of(3)).for_each(|(_, slot)| mover.free(*slot));
    yard.drain_all();
}

/// Runs background steps until there is nothing to do.
fn work_in_background(yard: &Fixture, mover: &Mover<'_>) {
    let mut steps = 0;
    while yard.compaction().background(NODE, &mover.owners()).is_some() {
        steps += 1;
        assert!(steps < 1000, "the background compactor never rests");
    }
    yard.validate().unwrap();
}

fn stock(yard: &Fixture) -> Stock {
    yard.zone(ZONE).stock().expect("the yard keeps a stock")
}

#[test]
fn the_background_refills_the_stock_of_whole_pageblocks() {
    let yard = yard(DefragMode::On);
    let mover = Mover::new(&yard);
    scatter(&yard, &mover);
    let before = stock(&yard);
    assert!(before.free < before.low && before.high.0 == 3 << HUGE.0, "{before:?}");
    assert!(yard.alloc(HUGE, MOVABLE | Gfp::NOWARN).is_err());
    for _ in 0..3 {
        work_in_background(&yard, &mover);
        assert!(stock(&yard).free >= before.high, "{:?}", stock(&yard));
        // It stops there.
        let moved = yard.zone(ZONE).compaction().count(CompactEvent::Migrated);
        work_in_background(&yard, &mover);
        assert_eq!(yard.zone(ZONE).compaction().count(CompactEvent::Migrated), moved);
        let blocks: Vec<Pfn> = (0..3).map(|_| yard.alloc(HUGE, MOVABLE).expect("of the stock")).collect();
        assert!(blocks.iter().all(|pfn| yard.free(*pfn, HUGE).is_ok()));
        yard.drain_all();
    }
    let counted = |event| yard.zone(ZONE).compaction().count(event);
    assert_eq!(counted(CompactEvent::DaemonMigrated), counted(CompactEvent::Migrated), "no request moved anything");
    mover.check_all();
    mover.free_all();
}

#[test]
fn the_validator_compares_the_work_of_the_background_with_all_work() {
    let yard = yard(DefragMode::On);
    let mover = Mover::new(&yard);
    scatter(&yard, &mover);
    work_in_background(&yard, &mover);
    let counted = |event| yard.zone(ZONE).compaction().count(event);
    let moved = counted(CompactEvent::Migrated);
    assert!(moved > 0);
    // Its own count is the one after those of the scanners.
    let control = yard.control.raw();
    let before = [CompactEvent::DaemonMigrateScanned, CompactEvent::DaemonFreeScanned].map(counted);
    let places: Vec<u64> = (2..control.size.0 / 8)
        .filter(|at| [at - 2, at - 1, *at].map(|place| read(control, place)) == [before[0], before[1], moved])
        .collect();
    let [place] = places[..] else { panic!("one place has the counts: {places:?}") };
    let found = validated_with(&yard, control, place, moved + 1);
    assert!(
        matches!(found, ValidateError::Part { zone: ZONE, part, whole, .. } if (part, whole) == (moved + 1, moved)),
        "{found}"
    );
    mover.free_all();
}

#[test]
fn the_mode_changes_at_run_time() {
    let yard = yard(DefragMode::Off);
    let mover = Mover::new(&yard);
    scatter(&yard, &mover);
    assert_eq!((yard.defrag_mode(), yard.zone(ZONE).stock()), (DefragMode::Off, None));
    yard.set_defrag_mode(DefragMode::On);
    assert_eq!((yard.defrag_mode(), yard.zone(ZoneId(77)).stock()), (DefragMode::On, None));
    work_in_background(&yard, &mover);
    assert!(stock(&yard).free >= stock(&yard).high);
    yard.set_defrag_mode(DefragMode::Off);
    assert_eq!(yard.zone(ZONE).stock(), None);
    mover.free_all();
}

/// Takes unmovable frames with owners at hand. Returns how many of these requests split a pageblock of another type that was not whole.
fn unmovable_requests(defrag_mode: DefragMode) -> u64 {
    let yard = yard(defrag_mode);
    let mover = Mover::new(&yard);
    scatter(&yard, &mover);
    let take = || yard.request(Order::ZERO, Gfp::KERNEL).owners(&mover.owners()).frame().expect("a frame");
    let taken: Vec<Pfn> = (0..600).map(|_| take()).collect();
    let statistics = yard.zone(ZONE);
    let (fallbacks, whole) = (
        statistics.fallbacks(MigrateType::Unmovable, MigrateType::Movable),
        statistics.conversions(MigrateType::Unmovable, MigrateType::Movable),
    );
    taken.into_iter().for_each(|pfn| yard.free(pfn, Order::ZERO).unwrap());
    yard.validate().unwrap();
    mover.check_all();
    mover.free_all();
    fallbacks - whole
}

#[test]
fn a_request_that_may_wait_compacts_before_types_mix() {
    assert!(unmovable_requests(DefragMode::Off) > 0);
    assert_eq!(unmovable_requests(DefragMode::On), 0);
}

#[test]
fn pageblocks_with_a_block_that_stays_are_left_alone() {
    let yard = yard(DefragMode::On);
    let mover = Mover::new(&yard);
    scatter(&yard, &mover);
    // One frame of each pageblock but the last four.
    let mut kept = Vec::new();
    for block in 0..60 {
        let frame = PfnRange::new(Pfn(0x8000 + (block << HUGE.0)), PageCount(3));
        kept.extend(
            (frame.start.0..frame.end.0)
                .map(Pfn)
                .filter_map(|pfn| yard.request(PfnRange::new(pfn, PageCount(1)), Gfp::KERNEL).range().ok()),
        );
    }
    assert!(kept.len() >= 60, "each pageblock has a free frame there: {}", kept.len());
    work_in_background(&yard, &mover);
    let moved = yard.zone(ZONE).compaction().count(CompactEvent::Migrated);
    assert!((1..=4 << HUGE.0).contains(&moved), "{moved} frames moved, and only four pageblocks can become whole");
    kept.into_iter().for_each(|range| yard.free_range(range).unwrap());
    mover.check_all();
    mover.free_all();
}
