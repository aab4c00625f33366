//! Simulated machines against closed formulas: a single lock, independent work, a full memory channel.

use std::cell::Cell;
use std::sync::atomic::AtomicU32;

use frameyard::platform::{LockId, MemoryBacking};
use frameyard::policy::ZonePolicy;
use frameyard::units::ZoneKind;
use frameyard::watermarks::PcpSizing;
use frameyard::{CpuId, Gfp, NodeId, Order, PageCount, Pfn, PfnRange, Platform, ZoneId};
use frameyard_sim::{Accessed, Cause, CostId, ListAccess, LockMethod, Machine, Picos, SimConfig, SimYard, Spent};

const LOCK: LockId = LockId::Zone(ZoneId::new(NodeId(0), ZoneKind::Normal));
const THINKING: CostId = CostId::nth(0);
const SERVICE: CostId = CostId::nth(1);

/// Forty CPUs at a constant 1 GHz, so that a cycle is a nanosecond; lock hand-overs are free.
fn plain_machine() -> Machine {
    let mut machine = Machine::built_in("broadwell-40").unwrap();
    machine.clock.mhz = vec![1000];
    machine.clock.smt_slowdown = 1.0;
    machine.lock.handover_transfers = 0.0;
    machine
}

fn yard_on(machine: &Machine) -> SimYard {
    let config = SimConfig {
        node_memory: PageCount(1 << 16),
        policy: ZonePolicy::Vanilla,
        sizing: PcpSizing::Classic,
        lists: ListAccess::Locks,
        costs: vec!["thinking", "service"],
    };
    SimYard::new(machine, &config).unwrap()
}

/// Runs `body` on the first CPUs with each CPU's number. Returns the end time.
fn run_on(yard: &SimYard, cpus: u32, body: impl Fn(u32)) -> Picos {
    let body = &body;
    let tasks = (0..cpus).map(|cpu| (CpuId(cpu), Box::new(move || body(cpu)) as Box<dyn FnOnce()>));
    yard.run(tasks.collect()).unwrap()
}

/// Random numbers (splitmix64).
struct Random(Cell<u64>);

impl Random {
    fn next(&self) -> u64 {
        self.0.set(self.0.get().wrapping_add(0x9e37_79b9_7f4a_7c15));
        let mut z = self.0.get();
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Exponentially distributed with this mean.
    fn exponential(&self, mean: f64) -> u64 {
        let uniform = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        (-mean * (1.0 - uniform).ln()).round() as u64
    }
}

/// Visits to a lock per microsecond, with `cpus` CPUs that alternate between thinking and service.
fn visits(
    machine: &Machine,
    cpus: u32,
    turns: u32,
    thinking: impl Fn(&Random) -> u64,
    service: impl Fn(&Random) -> u64,
) -> f64 {
    let yard = yard_on(machine);
    let word = AtomicU32::new(0);
    let platform = yard.platform();
    let done = Cell::new(0u64);
    let end = Cell::new(Picos(0));
    run_on(&yard, cpus, |cpu| {
        let random = Random(Cell::new(u64::from(cpu) << 32));
        for _ in 0..turns {
            platform.spend(THINKING, thinking(&random));
            platform.lock(LOCK, &word).unwrap();
            platform.spend(SERVICE, service(&random));
            platform.unlock(LOCK, &word);
            if end.get() == Picos(0) {
                done.set(done.get() + 1);
            }
        }
        // After the first CPU has finished, the queue has fewer customers.
        if end.get() == Picos(0) {
            end.set(platform.now());
        }
    });
    done.get() as f64 * 1000.0 / end.get().as_ns()
}

#[test]
fn a_lock_with_constant_times_serves_in_series_or_at_the_arrival_rate() {
    let machine = plain_machine();
    let (thinking, service) = (900, 100);
    for cpus in [1, 2, 5, 9, 10, 11, 20, 40] {
        let bound = f64::min(f64::from(cpus) / (thinking + service) as f64, 1.0 / service as f64) * 1000.0;
        let found = visits(&machine, cpus, 2000, |_| thinking, |_| service);
        assert!((found / bound - 1.0).abs() < 0.01, "{cpus} CPUs: {found} visits a µs, {bound} are possible");
    }
}

#[test]
fn a_lock_with_random_times_follows_the_machine_repairman() {
    let machine = plain_machine();
    let (thinking, service) = (4000.0, 400.0);
    for cpus in [1u32, 5, 10, 20] {
        // M/M/1//N: p0 = 1 / Σ N!/(N-k)! (s/z)^k, and the server is busy the rest of the time.
        let mut term = 1.0;
        let mut sum = 1.0;
        for k in 0..cpus {
            term *= f64::from(cpus - k) * service / thinking;
            sum += term;
        }
        let expected = (1.0 - 1.0 / sum) / service * 1000.0;
        let found =
            visits(&machine, cpus, 20_000, |random| random.exponential(thinking), |random| random.exponential(service));
        assert!((found / expected - 1.0).abs() < 0.02, "{cpus} CPUs: {found} visits a µs, expected {expected}");
    }
}

#[test]
fn hand_overs_add_to_the_service_time_of_a_saturated_lock() {
    let mut machine = plain_machine();
    machine.lock.handover_transfers = 2.0;
    machine.costs.access_cycles = 0.0;
    // Ten CPUs of one socket: every hand-over is two transfers within the group.
    let period = 100.0 + 2.0 * machine.costs.same_group_ns;
    let found = visits(&machine, 10, 2000, |_| 200, |_| 100);
    assert!((found * period / 1000.0 - 1.0).abs() < 0.01, "{found} visits a µs, one in {period} ns expected");
}

#[test]
fn nearest_first_keeps_a_lock_on_a_socket_and_first_come_does_not() {
    let across = |kind| {
        let mut machine = plain_machine();
        machine.lock.kind = kind;
        machine.lock.handover_transfers = 1.0;
        visits(&machine, 20, 1000, |random| random.exponential(100.0), |_| 20)
    };
    assert!(across(LockMethod::TestAndSet) > 1.2 * across(LockMethod::Queued));
}

#[test]
fn independent_work_scales_linearly_and_other_cpus_are_idle() {
    let mut machine = plain_machine();
    machine.clock.smt_slowdown = 1.5;
    for cpus in [1, 7, 20] {
        let yard = yard_on(&machine);
        let end = run_on(&yard, cpus, |_| (0..1000).for_each(|_| yard.platform().spend(THINKING, 777)));
        assert_eq!(end, Picos(777_000_000), "{cpus} CPUs");
        let account = yard.platform().account();
        assert_eq!(account.of(Spent::Cost(THINKING)).time.0, u64::from(cpus) * end.0);
        assert_eq!(account.of(Spent::Idle).time.0, u64::from(40 - cpus) * end.0);
    }
    let yard = yard_on(&machine);
    let end = run_on(&yard, 40, |_| yard.platform().spend(THINKING, 1000));
    assert_eq!(end, Picos(1_500_000), "both threads of each core are busy");
}

#[test]
fn the_clock_falls_with_the_busy_cores_of_a_socket() {
    let mut machine = plain_machine();
    machine.clock.mhz = vec![4000, 2000, 1000];
    for (cpus, ns) in [(1, 250), (2, 500), (3, 1000), (10, 1000)] {
        let yard = yard_on(&machine);
        assert_eq!(run_on(&yard, cpus, |_| yard.platform().spend(THINKING, 1000)), Picos::from_ns(ns));
    }
}

#[test]
fn a_full_memory_channel_moves_its_bandwidth() {
    let mut machine = plain_machine();
    machine.memory.node_gb_per_s = 10.0;
    machine.kernel_overhead.zero_page_cycles = 1000.0;
    // Each line is fetched and written back.
    let moved = 2 * 4096;
    for (cpus, is_full) in [(1, false), (10, true)] {
        let yard = yard_on(&machine);
        let frames = PfnRange::new(yard.frame_range().start, PageCount(2000));
        let end = run_on(&yard, cpus, |_| {
            yard.platform().zero_frames(frames);
        });
        let rate = (u64::from(cpus) * 2000 * moved) as f64 / end.as_ns();
        let expected = if is_full { 10.0 } else { moved as f64 / 1000.0 };
        assert!((rate / expected - 1.0).abs() < 0.01, "{cpus} CPUs move {rate} bytes a ns, expected {expected}");
        let waited = yard.platform().account().of(Spent::Access(Accessed::Frames, Cause::Bandwidth)).time;
        assert_eq!(waited > Picos(0), is_full);
        assert_eq!(yard.platform().channel_lines(), [u64::from(cpus) * 2000 * 128, 0]);
    }
}

#[test]
fn each_node_has_its_own_channel() {
    let yard = yard_on(&plain_machine());
    let Pfn(first) = yard.frame_range().start;
    let remote = PfnRange::new(Pfn(first + (1 << 16)), PageCount(1));
    run_on(&yard, 1, |_| {
        yard.platform().zero_frames(remote);
    });
    assert_eq!(yard.platform().channel_lines(), [0, 128], "lines are fetched and written back");
}

/// The time of 64 pairs of an order.
fn pairs_of(machine: &Machine, order: Order) -> f64 {
    let yard = yard_on(machine);
    let begin = Cell::new(Picos(0));
    let end = run_on(&yard, 1, |_| {
        begin.set(yard.platform().now());
        for _ in 0..64 {
            let pfn = yard.alloc(order, Gfp::HIGHUSER_MOVABLE).unwrap();
            yard.free(pfn, order).unwrap();
        }
    });
    (end - begin.get()).as_ns()
}

#[test]
fn a_block_costs_the_zone_the_same_whatever_its_order_if_the_kernel_does_not_check_its_pages() {
    let mut machine = Machine::built_in("skylake-112").unwrap();
    machine.kernel_overhead.block_checks = 0.0;
    // Orders without per-CPU lists. The larger block has 16 times as many frames; the smaller one splits and merges four times more.
    let [small, large] = [Order(4), Order(8)].map(|order| pairs_of(&machine, order));
    assert!(large < small, "{large} and {small} ns");
}

#[test]
fn an_allocation_reads_each_page_structure_of_its_block_if_the_kernel_checks_them() {
    let mut machine = Machine::built_in("skylake-112").unwrap();
    let mut time = |checks| {
        machine.kernel_overhead.block_checks = checks;
        pairs_of(&machine, Order(8))
    };
    let [none, half, all] = [0.0, 0.5, 1.0].map(&mut time);
    // The lines stay in the private cache after the first allocation: 255 hits of 6 cycles at 3.8 GHz, and misses of the first.
    let hits = 64.0 * 255.0 * 6.0 / 3.8;
    assert!((hits..hits * 1.5).contains(&(all - none)), "{} and {hits} ns", all - none);
    assert!(((half - none) / (all - none) - 0.5).abs() < 0.05, "{none}, {half}, {all} ns");
}
