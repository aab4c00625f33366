//! Compaction: what it makes of fragmented zones, what it leaves alone, and what it remembers.

use std::sync::atomic::Ordering;

use crate::fixture::random::Random;
use crate::fixture::{Fixture, Frames, STORES, order};
use crate::mover::{Faults, KIND, Mover};
use frameyard::boot::{InitMode, Initialiser, MapInit, Poisoning, ZoneLimits};
use frameyard::compaction::{CompactEffort, CompactRequest, CompactResult};
use frameyard::owners::{Block, FrameOwner, MigrateMode, MigrateProblem, Owners};
use frameyard::page::MapContent;
use frameyard::policy::ZonePolicy;
use frameyard::stats::CompactEvent;
use frameyard::units::ZoneKind;
use frameyard::watermarks::PcpSizing;
use frameyard::{Gfp, MemoryTable, MigrateType, NodeId, Order, PageCount, Pfn, PfnRange, YardConfig, ZoneId};

const ZONE: ZoneId = ZoneId::new(NodeId(0), ZoneKind::Normal);
const MOVABLE: Gfp = Gfp::HIGHUSER_MOVABLE;
const HUGE: Order = Order(9);

/// A yard of one Normal zone whose frames have memory.
fn real(pages: u64, poisoning: Poisoning, content: MapContent) -> Fixture {
    let memory = [(PfnRange::new(Pfn(0x1000), PageCount(pages)), NodeId(0))];
    let cpus = [NodeId(0); 2];
    let map_init = MapInit { content, initialiser: Initialiser::Stream, ..MapInit::default() };
    let config = YardConfig { zone_limits: ZoneLimits::NONE, poisoning, map_init, ..YardConfig::new(&cpus) };
    Fixture::new(&MemoryTable { memory: &memory, ..MemoryTable::default() }, &config, Frames::Real)
}

/// Allocates single frames until there are none left; their slots, by frame.
fn fill(yard: &Fixture, mover: &Mover<'_>) -> Vec<(Pfn, u64)> {
    let mut slots = Vec::new();
    while let Ok(pfn) = yard.alloc(Order::ZERO, MOVABLE | Gfp::NOWARN) {
        slots.push((pfn, mover.own(pfn, Order::ZERO)));
    }
    slots.sort();
    slots
}

/// Keeps every frame that `keep` accepts, and frees the rest.
fn thin_out(yard: &Fixture, mover: &Mover<'_>, slots: &[(Pfn, u64)], keep: impl Fn(u64) -> bool) {
    for (pfn, slot) in slots.iter().filter(|(pfn, _)| !keep(pfn.0)) {
        assert_eq!(mover.place(*slot), *pfn);
        mover.free(*slot);
    }
    yard.drain_all();
}

/// How many blocks of pageblock order are free, counting larger ones as what they would make.
fn free_huge_blocks(yard: &Fixture, zone: ZoneId) -> u64 {
    let max = yard.geometry().max_order();
    (HUGE.0..=max.0)
        .flat_map(|at| {
            MigrateType::ALL.map(|migrate_type| yard.zone(zone).free_blocks(order(at), migrate_type) << (at - HUGE.0))
        })
        .sum()
}

fn checkerboard(pfn: u64) -> bool {
    pfn.is_multiple_of(2)
}

#[test]
fn alternating_frames_compact_to_huge_blocks() {
    // 4 GiB.
    let yard = Fixture::small(2, 1 << 20);
    let mover = Mover::new(&yard);
    let slots = fill(&yard, &mover);
    thin_out(&yard, &mover, &slots, checkerboard);
    let possible = yard.zone(ZONE).statistics().free.0 >> HUGE.0;
    // What the watermark kept back while the zone was filled.
    assert!(free_huge_blocks(&yard, ZONE) * 100 < possible, "hardly a large block to begin with");
    let outcome = yard.compaction().zone(ZONE, CompactRequest::WHOLE_ZONE, &mover.owners());
    assert_eq!(outcome.result, CompactResult::Complete);
    assert_eq!((outcome.pinned, outcome.unmovable), (PageCount(0), PageCount(0)));
    assert!(outcome.failed <= PageCount(32), "the last batch alone finds no room: {outcome:?}");
    assert_eq!(outcome.migrated.0, mover.moves.load(Ordering::Relaxed));
    let made = free_huge_blocks(&yard, ZONE);
    assert!(made * 100 >= possible * 95, "{made} of {possible} blocks");
    yard.validate().expect("the state is valid");
    mover.check_all();
    mover.free_all();
}

#[test]
fn contents_move_with_their_blocks() {
    for (poisoning, content) in
        [(Poisoning::Off, MapContent::Zero), (Poisoning::On, MapContent::Zero), (Poisoning::Off, MapContent::Kernel)]
    {
        let yard = real(1 << 13, poisoning, content);
        let mover = Mover::new(&yard);
        let mut random = Random::new(5);
        let mut slots = Vec::new();
        while let Ok(slot) = mover.alloc(order(random.pick(&[0, 0, 0, 1, 2, 3])), MOVABLE | Gfp::NOWARN) {
            slots.push(slot);
        }
        for slot in slots {
            if random.below(3) > 0 {
                mover.free(slot);
            }
        }
        yard.drain_all();
        let before = free_huge_blocks(&yard, ZONE);
        let outcome = yard.compaction().zone(ZONE, CompactRequest::WHOLE_ZONE, &mover.owners());
        assert!(outcome.migrated.0 > 0);
        assert!(free_huge_blocks(&yard, ZONE) > before + 4, "{outcome:?}");
        yard.validate().expect("the state is valid");
        mover.check_all();
        mover.free_all();
        assert_eq!(yard.stats().poison_hits(), 0);
    }
}

#[test]
fn pinned_frames_stay_and_are_counted() {
    let yard = Fixture::small_under(ZonePolicy::Vanilla, 1, 1 << 13);
    // Frames in ascending order.
    let mover = Mover::new(&yard);
    let slots = fill(&yard, &mover);
    thin_out(&yard, &mover, &slots, |pfn| pfn.is_multiple_of(4));
    let pinned: Vec<_> = slots.iter().filter(|(pfn, _)| pfn.0 % 1024 == 0).collect();
    pinned.iter().for_each(|(_, slot)| mover.pin(*slot));
    // Frames without an owner, between frames with one.
    let strays: Vec<Pfn> = (0..40).map(|_| yard.alloc(Order::ZERO, MOVABLE).unwrap()).collect();
    let outcome = yard.compaction().zone(ZONE, CompactRequest::WHOLE_ZONE, &mover.owners());
    assert_eq!(outcome.result, CompactResult::Complete);
    let scanned_end = 0x1000 + outcome.migrate_scanned.0;
    let met = pinned.iter().filter(|(pfn, _)| pfn.0 < scanned_end / 512 * 512).count() as u64;
    assert!(outcome.pinned.0 >= 1 && outcome.pinned.0 >= met.min(2), "{outcome:?}");
    assert_eq!(outcome.unmovable, PageCount(40), "the strays are at the bottom, where allocation began");
    for (pfn, slot) in pinned {
        assert_eq!(mover.place(*slot), *pfn, "a pinned frame stays");
    }
    let statistics = yard.zone(ZONE).compaction();
    assert_eq!(
        (statistics.count(CompactEvent::Pinned), statistics.count(CompactEvent::Unmovable)),
        (outcome.pinned.0, outcome.unmovable.0)
    );
    assert_eq!(statistics.count(CompactEvent::Migrated), outcome.migrated.0);
    yard.validate().unwrap();
    mover.check_all();
    mover.free_all();
    strays.into_iter().for_each(|pfn| yard.free(pfn, Order::ZERO).unwrap());
}

#[test]
fn without_owners_nothing_moves() {
    let yard = Fixture::small(1, 1 << 12);
    let mover = Mover::new(&yard);
    let slots = fill(&yard, &mover);
    thin_out(&yard, &mover, &slots, checkerboard);
    let outcome = yard.compaction().zone(ZONE, CompactRequest::WHOLE_ZONE, &Owners::NONE);
    assert_eq!((outcome.migrated, outcome.isolated), (PageCount(0), PageCount(0)));
    assert!(outcome.unmovable.0 > 0);
    mover.check_all();
    mover.free_all();
}

#[test]
fn owners_that_refuse_at_random_lose_nothing() {
    for seed in 0..24 {
        let poisoning = if seed % 2 == 0 { Poisoning::Off } else { Poisoning::On };
        let yard = real(1 << 12, poisoning, MapContent::Zero);
        let mover = Mover::new(&yard);
        let slots = fill(&yard, &mover);
        let mut random = Random::new(seed);
        for (_, slot) in slots {
            if random.below(2) == 0 {
                mover.free(slot);
            }
        }
        yard.drain_all();
        mover.fail(Faults { isolate: random.below(600), migrate: random.below(600) }, seed);
        for effort in CompactEffort::ALL {
            yard.compaction().zone(ZONE, CompactRequest::for_order(HUGE, effort), &mover.owners());
            yard.validate().unwrap();
        }
        let outcome = yard.compaction().zone(ZONE, CompactRequest::WHOLE_ZONE, &mover.owners());
        assert_eq!(outcome.result, CompactResult::Complete, "{outcome:?}");
        assert!(mover.refusals.load(Ordering::Relaxed) > 0);
        yard.validate().unwrap();
        mover.check_all();
        mover.free_all();
    }
}

/// An owner that isolates blocks and never moves them.
struct Unwilling(MigrateProblem);

impl FrameOwner for Unwilling {
    fn isolate(&self, _block: Block, _mode: MigrateMode) -> Result<(), MigrateProblem> {
        Ok(())
    }
    fn migrate(&self, _from: Block, _to: Pfn, _mode: MigrateMode) -> Result<(), MigrateProblem> {
        Err(self.0)
    }
    fn put_back(&self, _block: Block) {}
}

#[test]
fn failures_defer_further_attempts() {
    let yard = Fixture::small(1, 1 << 12);
    let mover = Mover::new(&yard);
    let slots = fill(&yard, &mover);
    thin_out(&yard, &mover, &slots, checkerboard);
    let unwilling = Unwilling(MigrateProblem::Failed);
    let owners = Owners::default().with(KIND, &unwilling);
    let attempt = |effort| yard.compaction().zone(ZONE, CompactRequest::for_order(HUGE, effort), &owners).result;
    // Asynchronous failures defer nothing.
    assert_eq!(attempt(CompactEffort::Async), CompactResult::Complete);
    assert_eq!(yard.zone(ZONE).compaction().defer_shift, 0);
    for shift in 1..=8u32 {
        let result = attempt(CompactEffort::Sync);
        assert!(matches!(result, CompactResult::Complete | CompactResult::PartialSkipped), "{result}");
        let shift = shift.min(6);
        let statistics = yard.zone(ZONE).compaction();
        assert_eq!((statistics.defer_shift, statistics.considered), (shift, 0));
        assert_eq!(statistics.order_failed, Some(HUGE));
        for _ in 1..1 << shift {
            assert_eq!(attempt(CompactEffort::Sync), CompactResult::Deferred);
        }
    }
    // Orders below the failed one are not deferred, and thorough attempts never are.
    let lower = CompactRequest::for_order(order(8), CompactEffort::Async);
    assert_ne!(yard.compaction().zone(ZONE, lower, &owners).result, CompactResult::Deferred);
    assert_ne!(attempt(CompactEffort::Full), CompactResult::Deferred);
    let success = yard.compaction().zone(ZONE, CompactRequest::for_order(HUGE, CompactEffort::Full), &mover.owners());
    assert_eq!(success.result, CompactResult::Success);
    assert_eq!(yard.zone(ZONE).compaction().order_failed, Some(order(10)), "order 9 can be made");
    mover.check_all();
    mover.free_all();
}

#[test]
fn positions_and_skip_hints_are_cached() {
    let yard = Fixture::small(1, 1 << 14);
    let mover = Mover::new(&yard);
    let slots = fill(&yard, &mover);
    thin_out(&yard, &mover, &slots, checkerboard);
    let limit = Some(PageCount(2048));
    let request = CompactRequest { limit, ..CompactRequest::for_order(order(10), CompactEffort::Sync) };
    let refusing = Faults { isolate: 1000, migrate: 0 };
    mover.fail(refusing, 1);
    let first = yard.compaction().zone(ZONE, request, &mover.owners());
    assert_eq!(first.result, CompactResult::Unfinished);
    let remembered = yard.zone(ZONE).compaction();
    assert!(remembered.positions_cached && remembered.skipped_pageblocks >= 3, "{remembered:?}");
    let rest = yard.compaction().zone(ZONE, CompactRequest { limit: None, ..request }, &mover.owners());
    assert_eq!(rest.result, CompactResult::PartialSkipped);
    assert!(
        rest.migrate_scanned.0 + first.migrate_scanned.0 <= 1 << 14,
        "the second run began where the first stopped"
    );
    assert!(!yard.zone(ZONE).compaction().positions_cached, "the scanners met");
    mover.fail(Faults::default(), 1);
    // Deferred once; then all pageblocks below are passed by, so nothing is done although it could be.
    assert_eq!(yard.compaction().zone(ZONE, request, &mover.owners()).result, CompactResult::Deferred);
    let skipped = yard.compaction().zone(ZONE, CompactRequest { limit: None, ..request }, &mover.owners());
    assert_eq!(skipped.migrated, PageCount(0), "{skipped:?}");
    let whole = yard.compaction().zone(ZONE, CompactRequest::WHOLE_ZONE, &mover.owners());
    assert!(whole.migrated.0 > 0);
    assert_eq!(yard.zone(ZONE).compaction().skipped_pageblocks, 0);
    mover.check_all();
    mover.free_all();
}

#[test]
fn compaction_waits_for_a_reason_to_run() {
    for policy in STORES {
        let yard = Fixture::small_under(policy, 1, 1 << 13);
        let mover = Mover::new(&yard);
        let sync = |at: u8| {
            yard.compaction().zone(ZONE, CompactRequest::for_order(order(at), CompactEffort::Sync), &mover.owners())
        };
        assert_eq!(sync(9).result, CompactResult::Success, "there is such a block");
        assert_eq!(yard.zone(ZONE).fragmentation_index(HUGE), Some(-1000));
        assert_eq!(yard.zone(ZONE).unusable_index(HUGE), Some(0));
        let slots = fill(&yard, &mover);
        assert_eq!(sync(9).result, CompactResult::Skipped, "no frame is free");
        thin_out(&yard, &mover, &slots, checkerboard);
        assert!(yard.zone(ZONE).fragmentation_index(HUGE).unwrap() > 900);
        assert_eq!(yard.zone(ZONE).unusable_index(HUGE), Some(1000));
        assert_eq!(yard.zone(ZONE).unusable_index(Order::ZERO), Some(0));
        assert_eq!(yard.zone(ZoneId::new(NodeId(0), ZoneKind::Movable)).unusable_index(HUGE), None);
        assert_eq!(sync(9).result, CompactResult::Success);
        assert!(free_huge_blocks(&yard, ZONE) > 0);
        let missing = yard.compaction().zone(ZoneId(77), CompactRequest::WHOLE_ZONE, &mover.owners());
        assert_eq!(missing.result, CompactResult::Skipped, "no such zone");
        assert_eq!(sync(11).result, CompactResult::Skipped, "no such order");
        mover.free_all();
    }
}

#[test]
fn background_compaction_serves_missed_orders() {
    for policy in STORES {
        let yard = Fixture::small_under(policy, 1, 1 << 15);
        let mover = Mover::new(&yard);
        assert!(yard.compaction().background(NodeId(0), &mover.owners()).is_none(), "no request missed a block");
        assert!(yard.compaction().background(NodeId(9), &mover.owners()).is_none(), "no such node");
        let slots = fill(&yard, &mover);
        thin_out(&yard, &mover, &slots, checkerboard);
        assert!(yard.alloc(HUGE, MOVABLE | Gfp::NOWARN).is_err());
        let mut steps = 0;
        while yard.compaction().background(NodeId(0), &mover.owners()).is_some() {
            steps += 1;
            assert!(steps < 1000, "the background compactor never rests");
            yard.validate().unwrap();
        }
        assert!(yard.zone(ZONE).compaction().count(CompactEvent::DaemonWake) > 0);
        assert!(yard.zone(ZONE).compaction().count(CompactEvent::DaemonMigrateScanned) > 0);
        // It goes on until at most 90 % of free memory is in small blocks.
        assert!(yard.zone(ZONE).unusable_index(HUGE).unwrap() < 910, "{:?}", yard.zone(ZONE).unusable_index(HUGE));
        let huge = yard.alloc(HUGE, MOVABLE).expect("a huge block");
        yard.free(huge, HUGE).unwrap();
        mover.check_all();
        mover.free_all();
    }
}

#[test]
fn memory_that_is_not_initialised_is_left_alone() {
    let memory = [(PfnRange::new(Pfn(0x8000), PageCount(4 << 15)), NodeId(0))];
    let cpus = [NodeId(0)];
    let map_init = MapInit { mode: InitMode::Lazy, ..MapInit::default() };
    let config = YardConfig { zone_limits: ZoneLimits::NONE, map_init, ..YardConfig::new(&cpus) };
    let yard = Fixture::new(&MemoryTable { memory: &memory, ..MemoryTable::default() }, &config, Frames::Phantom);
    let mover = Mover::new(&yard);
    let slots: Vec<_> = (0..5000).map(|_| mover.alloc(Order::ZERO, MOVABLE).unwrap()).collect();
    slots.iter().filter(|slot| *slot % 2 == 0).for_each(|slot| mover.free(*slot));
    yard.drain_all();
    let written = yard.watch().pages();
    let outcome = yard.compaction().zone(ZONE, CompactRequest::WHOLE_ZONE, &mover.owners());
    assert!(outcome.migrated.0 > 0, "{outcome:?}");
    assert_eq!(yard.watch().pages(), written, "compaction initialises nothing");
    yard.validate().unwrap();
    mover.check_all();
    mover.free_all();
}

#[test]
fn shared_pageblock_is_compacted_per_zone() {
    let nodes = [
        (PfnRange::new(Pfn(0x1003), PageCount(5_000)), NodeId(0)),
        (PfnRange::new(Pfn(0x1003 + 5_000), PageCount(5_000)), NodeId(1)),
    ];
    let cpus = [NodeId(0), NodeId(1)];
    let reserved = [PfnRange::new(Pfn(0x1801), PageCount(3))];
    let config =
        YardConfig { zone_limits: ZoneLimits::NONE, pcp_sizing: PcpSizing::Fixed(0), ..YardConfig::new(&cpus) };
    let table = MemoryTable { memory: &nodes, reserved: &reserved, ..MemoryTable::default() };
    let yard = Fixture::new(&table, &config, Frames::Real);
    let mover = Mover::new(&yard);
    let slots = fill(&yard, &mover);
    thin_out(&yard, &mover, &slots, checkerboard);
    for node in [NodeId(0), NodeId(1)] {
        let zone = ZoneId::new(node, ZoneKind::Normal);
        let free = yard.zone(zone).statistics().free;
        let outcome = yard.compaction().node(node, &mover.owners());
        assert!(outcome.migrated.0 > 0, "{outcome:?}");
        assert_eq!(yard.zone(zone).statistics().free, free, "as much is free as before");
        assert!(free_huge_blocks(&yard, zone) >= 2);
    }
    yard.validate().unwrap();
    mover.check_all();
    mover.free_all();
}

#[test]
fn events_of_fragmentation_name_the_types() {
    for policy in STORES {
        let yard = Fixture::small_under(policy, 1, 1 << 12);
        let pfn = yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap();
        let events = yard.zone(ZONE);
        assert_eq!(events.fallbacks(MigrateType::Unmovable, MigrateType::Movable), 1);
        assert_eq!(events.fallbacks(MigrateType::Movable, MigrateType::Unmovable), 0);
        let statistics = yard.zone(ZONE).statistics();
        assert_eq!(events.conversions(MigrateType::Unmovable, MigrateType::Movable), statistics.conversions);
        assert_eq!(events.fallbacks(MigrateType::Cma, MigrateType::Isolate), 0);
        yard.free(pfn, Order::ZERO).unwrap();
    }
}

#[test]
fn proactive_compaction() {
    for policy in STORES {
        let yard = Fixture::small_under(policy, 1, 1 << 15);
        let mover = Mover::new(&yard);
        let slots = fill(&yard, &mover);
        thin_out(&yard, &mover, &slots, |pfn| !pfn.is_multiple_of(4));
        let mut steps = 0;
        while let Some(outcome) = yard.compaction().background(NodeId(0), &mover.owners()) {
            let scanned = outcome.migrate_scanned + outcome.free_scanned;
            assert!(scanned.0 <= (64 + 4) << HUGE.0, "a step is bounded: {outcome:?}");
            steps += 1;
            assert!(steps < 1000, "the background compactor never rests");
        }
        let statistics = yard.zone(ZONE).compaction();
        assert_eq!(statistics.count(CompactEvent::DaemonWake), 0, "no request missed a block");
        assert!(statistics.count(CompactEvent::Migrated) > 0 && steps > 0);
        assert!(yard.zone(ZONE).unusable_index(HUGE).unwrap() < 910);
        mover.check_all();
        mover.free_all();
    }
}

#[test]
fn async_compaction_skips_pinned_pageblocks() {
    let yard = Fixture::small(1, 1 << 13);
    let mover = Mover::new(&yard);
    let slots = fill(&yard, &mover);
    thin_out(&yard, &mover, &slots, checkerboard);
    for (_, slot) in slots.iter().filter(|(pfn, _)| pfn.0.is_multiple_of(512)) {
        mover.pin(*slot);
    }
    let run =
        |effort| yard.compaction().zone(ZONE, CompactRequest::for_allocation(HUGE, MOVABLE, effort), &mover.owners());
    let hurried = run(CompactEffort::Async);
    assert_eq!((hurried.migrated, hurried.isolated), (PageCount(0), PageCount(0)), "{hurried:?}");
    assert!(hurried.pinned.0 > 2);
    let thorough = run(CompactEffort::Full);
    assert!(thorough.migrated.0 > 0, "{thorough:?}");
    mover.check_all();
    mover.free_all();
}

#[test]
fn another_view_of_the_yard_compacts_as_well() {
    let yard = real(1 << 12, Poisoning::Off, MapContent::Zero);
    let mover = Mover::new(&yard);
    let slots = fill(&yard, &mover);
    thin_out(&yard, &mover, &slots, checkerboard);
    let view = yard.attach();
    let outcome = view.compaction().zone(ZONE, CompactRequest::WHOLE_ZONE, &mover.owners());
    assert!(outcome.migrated.0 > 0);
    assert_eq!(
        yard.zone(ZONE).compaction().count(CompactEvent::Migrated),
        outcome.migrated.0,
        "counts are the yard's, not the view's"
    );
    view.validate().unwrap();
    mover.check_all();
    mover.free_all();
}

#[test]
fn scarce_memory_is_not_compacted() {
    let yard = Fixture::small(1, 1 << 13);
    let mover = Mover::new(&yard);
    let mut slots: Vec<_> = std::iter::from_fn(|| mover.alloc(order(8), MOVABLE | Gfp::NOWARN).ok()).collect();
    slots.sort_by_key(|slot| mover.place(*slot));
    // Half a huge block each, and no two neighbours.
    slots.iter().step_by(4).take(6).for_each(|slot| mover.free(*slot));
    yard.drain_all();
    let index = yard.zone(ZONE).fragmentation_index(HUGE).unwrap();
    assert!((0..=500).contains(&index), "index {index}");
    let statistics = yard.zone(ZONE).statistics();
    assert!(statistics.free.0 > statistics.watermarks.low.0 + 1024, "there is room to move blocks to");
    let outcome = yard.compaction().zone(ZONE, CompactRequest::for_order(HUGE, CompactEffort::Sync), &mover.owners());
    assert_eq!(outcome.result, CompactResult::Skipped);
    assert_eq!(mover.moves.load(Ordering::Relaxed), 0);
    mover.free_all();
}
