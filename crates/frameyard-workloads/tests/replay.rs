//! Copies of a recording on simulated machines: what a replay on one thread finds, contention, and repeatable results.

use std::cell::Cell;
use std::num::NonZeroU32;

use frameyard::policy::ZonePolicy;
use frameyard::{CpuId, MigrateType, Order, PageCount, Pfn};
use frameyard_sim::Machine;
use frameyard_traces::replay::{ReplayPlan, SetUp};
use frameyard_traces::{GfpFlags, PageEvent, TraceEvent, TracedBlock};
use frameyard_workloads::sim::{SimReplay, SimReplayError, SimReplayPlan};

/// The first frame of the recordings.
const FIRST: Pfn = Pfn(0x4000);
/// Frames that a synthetic recording uses.
const FRAMES: u64 = 4096;

fn event(cpu: u32, what: PageEvent) -> TraceEvent {
    TraceEvent { time_us: 1, pid: 1, cpu: CpuId(cpu), what }
}

fn alloc(cpu: u32, pfn: Pfn, order: Order) -> TraceEvent {
    let gfp = GfpFlags::parse("GFP_KERNEL");
    event(cpu, PageEvent::Alloc { pfn: Some(pfn), order, migrate_type: MigrateType::Unmovable, gfp })
}

fn free(cpu: u32, pfn: Pfn, order: Order) -> TraceEvent {
    event(cpu, PageEvent::Free(TracedBlock { pfn, order }))
}

/// Rounds in which one CPU allocates many frames, and that CPU or the next frees them.
fn rounds(cpus: u32, rounds: u32) -> Vec<TraceEvent> {
    let mut events = Vec::new();
    for round in 0..rounds {
        let (cpu, pfns) = (round % cpus, (0..FRAMES / 2).map(|at| FIRST + PageCount(at)));
        let freeing = (round + round / 2) % cpus;
        events.extend(pfns.clone().map(|pfn| alloc(cpu, pfn, Order(0))));
        events.push(alloc(cpu, FIRST + PageCount(FRAMES - 16), Order(4)));
        events.extend(pfns.map(|pfn| free(freeing, pfn, Order(0))));
        events.push(free(freeing, FIRST + PageCount(FRAMES - 16), Order(4)));
    }
    events
}

/// A plan in memory that holds some times the frames of the recording.
fn plan(mut events: Vec<TraceEvent>, times: u64) -> ReplayPlan {
    let last = FIRST + PageCount(FRAMES * times - 1);
    events.insert(0, free(0, last, Order(0)));
    ReplayPlan::new(&events, None).unwrap()
}

fn replay(plan: &ReplayPlan, machine: &str, copies: u32, policy: ZonePolicy, seed: u64) -> SimReplay {
    let machine = Machine::built_in(machine).unwrap();
    let copies = SimReplayPlan::new(plan, &machine, NonZeroU32::new(copies)).unwrap();
    let done = Cell::new(0);
    let replay = copies.replay(SetUp { policy, seed, ..SetUp::default() }, &|more| done.set(done.get() + more));
    let replay = replay.unwrap();
    assert_eq!((done.get(), replay.counts.operations), (copies.operations(), copies.operations()));
    replay
}

#[test]
fn one_copy_allocates_and_fails_as_a_replay_on_one_thread() {
    // Twice the frames that are there, and more than there are.
    for (times, blocks) in [(2, 0), (1, 6)] {
        let mut events = rounds(2, 4);
        let large = (0..blocks).map(|at| alloc(1, FIRST + PageCount(at * 1024 % FRAMES), Order(10)));
        events.extend(large);
        let plan = plan(events, times);
        for policy in [ZonePolicy::Vanilla, ZonePolicy::Bits] {
            let alone = plan.replay(SetUp { policy, seed: 1, ..SetUp::default() }).unwrap();
            let copy = replay(&plan, "desktop-8", 1, policy, 1);
            let counts = (copy.counts.pages_allocated, copy.counts.failures, copy.counts.skipped_frees);
            assert_eq!(counts, (alone.pages_allocated, alone.failures, alone.skipped_frees), "{policy}");
            assert_eq!(copy.free[0].order9_blocks(), alone.samples[0].free.order9_blocks(), "{policy}");
        }
    }
}

#[test]
fn a_free_on_another_cpu_waits_for_its_allocation() {
    let mut events = Vec::new();
    for round in 0..2000 {
        let pfn = FIRST + PageCount(u64::from(round) % 7);
        events.push(alloc(round % 3, pfn, Order(0)));
        events.push(free((round + 1) % 3, pfn, Order(0)));
    }
    let replay = replay(&plan(events, 1), "desktop-8", 2, ZonePolicy::Bits, 1);
    let counts = replay.counts;
    assert_eq!((counts.pages_allocated, counts.failures, counts.skipped_frees), (4000, 0, 0));
    assert!(replay.time_per_operation().unwrap().as_ns() < 1000.0, "{:?}", replay.time_per_operation());
}

#[test]
fn copies_contend_for_the_zone_lock_under_vanilla_and_less_with_bits() {
    let plan = plan(rounds(2, 6), 64);
    let contended = |policy| {
        let lock = replay(&plan, "desktop-8", 4, policy, 1).yard.lock;
        lock.contended as f64 / lock.acquisitions as f64
    };
    let (vanilla, bits) = (contended(ZonePolicy::Vanilla), contended(ZonePolicy::Bits));
    assert!(vanilla > 0.0 && bits < vanilla, "vanilla {vanilla}, bits {bits}");
}

#[test]
fn a_seed_decides_the_result() {
    let plan = plan(rounds(2, 3), 8);
    let run = |seed| replay(&plan, "skylake-112", 6, ZonePolicy::Vanilla, seed);
    let first = run(7);
    assert_eq!(run(7), first);
    assert_ne!(run(8).spent, first.spent);
}

#[test]
fn copies_that_the_cpus_do_not_hold_are_refused() {
    let machine = Machine::built_in("desktop-8").unwrap();
    let plan_for = |cpus| plan(rounds(cpus, cpus), 1);
    let refused = |plan: &ReplayPlan, copies| SimReplayPlan::new(plan, &machine, NonZeroU32::new(copies)).unwrap_err();
    let three = plan_for(3);
    assert!(matches!(refused(&three, 3), SimReplayError::TooManyCopies { copies: 3, most: 2 }));
    assert_eq!(SimReplayPlan::new(&three, &machine, None).unwrap().copies().get(), 2);
    let nine = plan_for(9);
    assert!(matches!(refused(&nine, 1), SimReplayError::TooManyRecordedCpus { recorded: 9, socket: 8 }));
}
