//! Replays of real recordings keep account of every page.

use std::num::NonZeroU32;

use frameyard::policy::ZonePolicy;
use frameyard::{CpuId, MigrateType, Order, PageCount, Pfn};
use frameyard_traces::replay::{Detail, FreeMemory, PlanError, ReplayPlan, ReplayResult, SetUp, Start};
use frameyard_traces::snapshot::KernelSnapshot;
use frameyard_traces::{BadLines, GfpFlags, Item, PageEvent, TraceEvent, TracedBlock, import};

const FIXTURES: [(&[u8], [&str; 3]); 2] = [
    (
        include_bytes!("fixtures/rust-build.ftrace.zst"),
        [
            include_str!("fixtures/rust-build.buddyinfo.before"),
            include_str!("fixtures/rust-build.pagetypeinfo.before"),
            include_str!("fixtures/rust-build.zoneinfo.before"),
        ],
    ),
    (
        include_bytes!("fixtures/page-cache.ftrace.zst"),
        [
            include_str!("fixtures/page-cache.buddyinfo.before"),
            include_str!("fixtures/page-cache.pagetypeinfo.before"),
            include_str!("fixtures/page-cache.zoneinfo.before"),
        ],
    ),
];

fn events_of(source: &[u8]) -> Vec<TraceEvent> {
    let mut all = Vec::new();
    let imported = import(source, BadLines::Refuse, &mut |item| {
        if let Item::Events(events) = item {
            all.extend(events);
        }
        Ok(())
    });
    imported.expect("a recording");
    all
}

fn snapshot_of([buddyinfo, pagetypeinfo, zoneinfo]: [&str; 3]) -> KernelSnapshot {
    KernelSnapshot::parse(buddyinfo, Some(pagetypeinfo), zoneinfo).unwrap()
}

fn free_pages(free: FreeMemory) -> u64 {
    let blocks = free.blocks.iter().zip(free.blocks_in_bits).enumerate();
    blocks.map(|(order, (listed, held))| (listed + held) << order).sum::<u64>() + free.per_cpu.0
}

/// Pages that the recording frees.
fn freed_pages(events: &[TraceEvent]) -> u64 {
    let pages = |event: &TraceEvent| match event.what {
        PageEvent::Free(block) => block.order.pages().0,
        _ => 0,
    };
    events.iter().map(pages).sum()
}

fn assert_all_pages_are_accounted_for(events: &[TraceEvent], result: &ReplayResult) {
    assert_eq!((result.failures, result.skipped_frees), (0, 0), "{}", result.policy);
    let [before, after] = [result.samples[0].free, result.end()].map(free_pages);
    assert_eq!(after + result.pages_allocated, before + freed_pages(events), "{}", result.policy);
    let drained = result.drained;
    assert_eq!(drained.per_cpu.0, 0, "{}", result.policy);
    let is_on_free_lists = drained.blocks_in_bits == [0; 11];
    assert!(is_on_free_lists || result.policy.keeps_bits(), "{}: {drained:?}", result.policy);
    assert_eq!(free_pages(drained), after, "{}", result.policy);
    assert!(drained.order9_blocks() >= result.end().order9_blocks(), "{}", result.policy);
}

#[test]
fn every_page_of_a_real_recording_is_accounted_for_under_each_policy() {
    for (text, files) in FIXTURES {
        let (events, snapshot) = (events_of(text), snapshot_of(files));
        let plan = ReplayPlan::new(&events, Some(&snapshot)).unwrap();
        assert_eq!(plan.anomalies().double_frees + plan.anomalies().outside, 0);
        let listed: u64 = snapshot.zones.values().map(|zone| zone.free_pages().0).sum();
        let mut on_lists_of_cpus = None;
        for policy in [ZonePolicy::Vanilla, ZonePolicy::Bits] {
            let result = plan.replay(SetUp { policy, seed: 3, ..SetUp::default() }).unwrap();
            assert_all_pages_are_accounted_for(&events, &result);
            // Pages that the kernel had on lists of CPUs, wherever they are here.
            let others = free_pages(result.samples[0].free) + result.missing_pages.0 - listed;
            assert_eq!(*on_lists_of_cpus.get_or_insert(others), others, "{policy}");
            assert!(others > 0, "{policy}");
        }
    }
}

#[test]
fn a_replay_begins_with_the_free_lists_of_the_snapshot_and_repeats() {
    let (text, files) = FIXTURES[1];
    let snapshot = snapshot_of(files);
    let plan = ReplayPlan::new(&events_of(text), Some(&snapshot)).unwrap();
    let set_up = SetUp { policy: ZonePolicy::Vanilla, start: Start::FreeLists, seed: 3, ..SetUp::default() };
    let first = plan.replay(set_up).unwrap();
    let kernel = |order| snapshot.zones.values().map(|zone| zone.free_blocks(Order(order))).sum::<u64>();
    // Places of zones that are almost free leave little choice.
    for (order, blocks) in first.samples[0].free.blocks.iter().enumerate() {
        let kernel = kernel(order as u8);
        assert!(blocks.abs_diff(kernel) <= 2 + kernel / 100, "order {order}: {blocks} blocks, {kernel} of the kernel");
    }
    let second = plan.replay(set_up).unwrap();
    assert_eq!(ReplayResult { elapsed_ns: first.elapsed_ns, ..second }, first);
}

#[test]
fn threads_keep_the_order_of_each_frame_and_account_for_every_page() {
    for (text, files) in FIXTURES {
        let (events, snapshot) = (events_of(text), snapshot_of(files));
        let plan = ReplayPlan::new(&events, Some(&snapshot)).unwrap();
        for policy in [ZonePolicy::Vanilla, ZonePolicy::Bits] {
            let set_up = SetUp { policy, seed: 3, ..SetUp::default() };
            let alone = plan.replay(set_up).unwrap();
            let result = plan.replay_on_threads(set_up, NonZeroU32::new(4).unwrap()).unwrap();
            assert_eq!((alone.other_orders, result.pages_allocated), (0, alone.pages_allocated));
            assert_all_pages_are_accounted_for(&events, &result);
        }
    }
}

#[test]
fn a_free_on_another_cpu_waits_for_its_allocation() {
    let on = |cpu, event| TraceEvent { cpu: CpuId(cpu), ..event };
    let mut events = Vec::new();
    for round in 0..2000 {
        let pfn = Pfn(0x4000 + round % 7);
        events.push(on(round as u32 % 3, alloc(pfn, Order(0))));
        events.push(on((round as u32 + 1) % 3, free(pfn, Order(0))));
    }
    let plan = ReplayPlan::new(&events, None).unwrap();
    let result = plan.replay_on_threads(SetUp::default(), NonZeroU32::new(3).unwrap()).unwrap();
    assert_eq!((result.pages_allocated, result.failures, result.skipped_frees), (2000, 0, 0));
    assert_eq!(free_pages(result.end()), free_pages(result.samples[0].free));
}

#[test]
fn the_use_of_the_zone_lock_by_order_adds_up() {
    let (text, files) = FIXTURES[1];
    let plan = ReplayPlan::new(&events_of(text), Some(&snapshot_of(files))).unwrap();
    for policy in [ZonePolicy::Vanilla, ZonePolicy::Bits] {
        let (start, detail) = (Start::FreeLists, Detail::ByOrder);
        let result = plan.replay(SetUp { policy, start, detail, ..SetUp::default() }).unwrap();
        let by_order = result.by_order.unwrap();
        let sum = |first: [u64; 11], second: [u64; 11]| first.iter().chain(&second).sum::<u64>();
        assert_eq!(sum(by_order.alloc_pages, by_order.free_pages), result.counts.zone_locked_pages);
        assert_eq!(sum(by_order.alloc_acquisitions, by_order.free_acquisitions), result.counts.lock.acquisitions);
        assert!(by_order.alloc_pages.iter().any(|pages| *pages > 0), "{policy}");
    }
}

fn event(what: PageEvent) -> TraceEvent {
    TraceEvent { time_us: 1, pid: 1, cpu: CpuId(0), what }
}

fn alloc(pfn: Pfn, order: Order) -> TraceEvent {
    let gfp = GfpFlags::parse("GFP_KERNEL");
    event(PageEvent::Alloc { pfn: Some(pfn), order, migrate_type: MigrateType::Unmovable, gfp })
}

fn free(pfn: Pfn, order: Order) -> TraceEvent {
    event(PageEvent::Free(TracedBlock { pfn, order }))
}

#[test]
fn blocks_may_be_freed_in_parts_and_together_in_every_zone() {
    let snapshot = snapshot_of(FIXTURES[0].1);
    let mut events = Vec::new();
    for zone in snapshot.zones.values() {
        let head = Pfn((zone.span.start.0 + 1024).next_multiple_of(1024));
        events.push(alloc(head, Order(3)));
        events.extend((0..8).map(|at| free(head + PageCount(at), Order(0))));
        events.extend((0..4).map(|at| alloc(head + PageCount(at), Order(0))));
        events.push(free(head, Order(2)));
    }
    let plan = ReplayPlan::new(&events, Some(&snapshot)).unwrap();
    let result = plan.replay(SetUp { policy: ZonePolicy::Vanilla, ..SetUp::default() }).unwrap();
    assert_all_pages_are_accounted_for(&events, &result);
    // Of each block of order 3 the frames 0, 2, 4 and 6 are parts of larger blocks when they are freed.
    assert_eq!(result.other_orders, snapshot.zones.len() as u64 * (4 + 1));
}

#[test]
fn frames_outside_the_zones_of_the_snapshot_are_refused() {
    let snapshot = snapshot_of(FIXTURES[0].1);
    let outside = Pfn(1 << 40);
    let error = ReplayPlan::new(&[alloc(outside, Order(0))], Some(&snapshot)).unwrap_err();
    assert_eq!(error, PlanError::WrongSnapshot { outside: 1, of: 1, first: outside });
    assert_eq!(ReplayPlan::new(&[], Some(&snapshot)).unwrap_err(), PlanError::NoOperations);
}
