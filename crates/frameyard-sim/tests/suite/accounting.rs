//! Whole runs: every picosecond is in the account, a repeated run gives the same numbers, and failures of a task are
//! reported.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::addresses::ManyAddresses;
use frameyard::boot::PcpReset;
use frameyard::platform::LockKind;
use frameyard::policy::ZonePolicy;
use frameyard::watermarks::PcpSizing;
use frameyard::{ByteSize, CpuId, Gfp, Order, PageCount};
use frameyard_sim::{FaultLoop, FaultRun, ListAccess, Machine, Mode, SimConfig, SimYard, Spent};
use frameyard_vm::{LruPolicy, Vm, VmConfig};

fn yard(policy: ZonePolicy) -> SimYard {
    let config = SimConfig {
        node_memory: PageCount(1 << 19),
        policy,
        sizing: PcpSizing::Classic,
        lists: ListAccess::of_policy(policy),
        costs: Vec::new(),
    };
    SimYard::new(&Machine::built_in("broadwell-40").unwrap(), &config).unwrap()
}

fn fault(yard: &SimYard, tasks: u32, seed: u64) -> FaultRun {
    fault_in(yard, Mode::Processes, tasks, seed)
}

/// Runs the loop, then validates the yard.
fn fault_in(yard: &SimYard, mode: Mode, tasks: u32, seed: u64) -> FaultRun {
    let vm = Vm::create(yard, &VmConfig::default()).unwrap();
    let each = FaultLoop { tasks, mode, pages: 700, rounds: 1, seed, lru: LruPolicy::Vanilla };
    let run = each.run(yard, &vm).unwrap();
    vm.validate().unwrap();
    yard.validate().unwrap();
    // SAFETY: no other view is used afterwards.
    unsafe { vm.destroy() }.unwrap();
    run
}

#[test]
fn the_account_is_complete_to_the_picosecond() {
    for policy in ZonePolicy::ALL {
        for (tasks, mode) in [(13, Mode::Processes), (40, Mode::Processes), (20, Mode::Threads)] {
            let yard = yard(policy);
            fault_in(&yard, mode, tasks, 7);
            let account = yard.platform().account();
            assert_eq!(account.total().0, 40 * yard.platform().now().0, "{policy}, {tasks} {mode}");
            for kind in LockKind::ALL {
                let stats = yard.platform().lock_stats();
                let waited: u64 = stats.iter().filter(|lock| lock.id.kind() == kind).map(|lock| lock.waited.0).sum();
                assert_eq!(account.of(Spent::Waiting(kind)).time.0, waited, "{policy}, {tasks} {mode}, {kind}");
            }
        }
    }
}

#[test]
fn a_repeated_run_gives_the_same_numbers_and_another_seed_different_ones() {
    for policy in [ZonePolicy::Vanilla416, ZonePolicy::Bits] {
        let once = |seed| format!("{:?}", fault(&yard(policy), 40, seed));
        assert_eq!(once(1), once(1), "{policy}");
        assert_ne!(once(1), once(2), "{policy}");
    }
}

#[test]
fn many_tasks_wait_for_the_zone_lock_and_one_does_not() {
    let share = |tasks| fault(&yard(ZonePolicy::LockPerPage), tasks, 1).waiting_share(LockKind::Zone);
    assert_eq!(share(1), 0.0);
    assert!(share(20) > 0.1, "{}", share(20));
}

#[test]
fn a_yard_of_32_gib_and_its_machine_take_at_most_half_as_much_again_as_its_map() {
    let Some(_addresses) = ManyAddresses::wait_for(ByteSize::gib(33)) else { return };
    for name in ["broadwell-40", "skylake-112", "epyc2-256"] {
        let machine = Machine::built_in(name).unwrap();
        let config = SimConfig {
            node_memory: PageCount((32 << 18) / u64::from(machine.topology.sockets)),
            policy: ZonePolicy::Bits,
            sizing: PcpSizing::Scaled,
            lists: ListAccess::Locks,
            costs: Vec::new(),
        };
        let yard = SimYard::new(&machine, &config).unwrap();
        let (before, map) = yard.bytes();
        let tasks = machine.cpus() as u32;
        fault(&yard, tasks, 1);
        let (all, _) = yard.bytes();
        // A stack of 256 KiB, and a frame for each of four levels of page tables.
        let of_tasks = u64::from(tasks) * ((256 << 10) + 4 * 4096);
        assert!(all >= before + of_tasks, "{name}: {before} bytes before {tasks} tasks, {all} with them");
        assert!(all * 2 <= map * 3, "{name}: {all} bytes, {map} of them the map");
        println!("{name}: {all} bytes, {:.3} times its map", all as f64 / map as f64);
    }
}

#[test]
fn per_cpu_lists_keep_their_early_size_without_a_reset() {
    let machine = Machine::built_in("epyc2-256").unwrap();
    let config = SimConfig {
        node_memory: PageCount(1 << 19),
        policy: ZonePolicy::Vanilla,
        sizing: PcpSizing::Classic,
        lists: ListAccess::Locks,
        costs: Vec::new(),
    };
    // The pairs of data/published/pcp-epyc2-256cpu.csv.
    for (reset, expected) in [(PcpReset::Off, (42, 7)), (PcpReset::On, (378, 63))] {
        let yard = SimYard::deferred(&machine, &config, reset).unwrap();
        assert_eq!(yard.init().deferred_pages(), PageCount(0), "some memory is not initialised");
        for (zone, cpu) in yard.stats().zones().zip([0, 64]) {
            let lists = yard.zone(zone.id).pcp(CpuId(cpu)).unwrap();
            assert_eq!((lists.high.0, lists.batch.0), expected, "{reset}");
        }
    }
}

#[test]
fn a_task_that_panics_ends_the_run_with_its_panic() {
    let yard = yard(ZonePolicy::LockPerPage);
    let held = || {
        for round in 0..200 {
            let pfn = yard.alloc(Order(4), Gfp::HIGHUSER_MOVABLE).unwrap();
            if round == 100 {
                resume_unwind(Box::new("enough"));
            }
            yard.free(pfn, Order(4)).unwrap();
        }
    };
    let tasks = (0..20).map(|cpu| (CpuId(cpu), Box::new(held) as Box<dyn FnOnce()>)).collect();
    let run = catch_unwind(AssertUnwindSafe(|| yard.run(tasks)));
    let panic = run.expect_err("the panic of a task");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"enough"));
}
