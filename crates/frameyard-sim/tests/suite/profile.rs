//! Profiles: virtual time by the spans that the allocator and owners mark.

use std::collections::BTreeMap;
use std::panic::resume_unwind;

use frameyard::platform::{Activity, Probe};
use frameyard::policy::ZonePolicy;
use frameyard::watermarks::PcpSizing;
use frameyard::{CpuId, Gfp, NodeId, Order, PageCount, Platform};
use frameyard_sim::{CostId, FaultLoop, KernelCost, ListAccess, Machine, Mode, Picos, SimConfig, SimYard, Spent};
use frameyard_vm::{LruPolicy, Vm, VmConfig};

/// A machine with a constant clock.
fn yard(policy: ZonePolicy) -> SimYard {
    let mut machine = Machine::built_in("broadwell-40").unwrap();
    machine.clock.mhz = vec![1000];
    machine.clock.smt_slowdown = 1.0;
    let config = SimConfig {
        node_memory: PageCount(1 << 19),
        policy,
        sizing: PcpSizing::Classic,
        lists: ListAccess::Locks,
        costs: vec!["work"],
    };
    SimYard::new(&machine, &config).unwrap()
}

/// Time by the spans of a line, without its last part.
fn by_stack(lines: &[(String, Picos)]) -> BTreeMap<&str, u64> {
    let mut stacks = BTreeMap::new();
    for (line, time) in lines {
        *stacks.entry(line.rsplit_once(';').map_or("", |(stack, _)| stack)).or_default() += time.0;
    }
    stacks
}

#[test]
fn every_picosecond_is_in_one_line_below_its_spans() {
    for policy in ZonePolicy::ALL {
        let yard = yard(policy);
        let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
        let (mode, lru) = (Mode::Processes, LruPolicy::default());
        FaultLoop { tasks: 30, mode, pages: 1500, rounds: 1, seed: 3, lru }.run(&yard, &vm).unwrap();
        let (account, profile, lines) =
            (yard.platform().account(), yard.platform().profile(), yard.platform().folded());
        assert_eq!(profile.account(), account, "{policy}");
        assert_eq!(lines.iter().map(|(_, time)| time.0).sum::<u64>(), account.total().0, "{policy}");
        assert!(lines.is_sorted() && lines.iter().all(|(_, time)| time.0 > 0), "{policy}");
        let time = |name: &str| lines.iter().filter(|(line, _)| line == name).map(|(_, time)| time.0).sum::<u64>();
        let spent = |name| account.of(Spent::Cost(yard.platform().cost(name).unwrap())).time;
        assert_eq!(KernelCost::ALL[0].name(), "exception");
        assert_eq!(time("fault;exception"), spent("exception").0, "{policy}");
        assert_eq!(time("idle"), account.of(Spent::Idle).time.0, "{policy}");
        let stacks = by_stack(&lines);
        for stack in ["fault;alloc", "fault;alloc;refill"] {
            assert!(stacks.contains_key(stack), "{policy}: no {stack} in {stacks:?}");
        }
        // Lists of this size are not full before the task ends.
        let drained = stacks.keys().any(|stack| stack.ends_with(";drain"));
        assert_eq!(drained, policy != ZonePolicy::BigPcp, "{policy}: {stacks:?}");
    }
}

#[test]
fn waits_for_the_zone_lock_are_split_by_allocation_and_free() {
    let yard = yard(ZonePolicy::LockPerPage);
    let task = || {
        for _ in 0..5 {
            let frames: Vec<_> =
                (0..2000).map(|_| yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).expect("a frame")).collect();
            frames.into_iter().for_each(|pfn| yard.free(pfn, Order::ZERO).expect("an allocated frame"));
        }
    };
    yard.run((0..20).map(|cpu| (CpuId(cpu), Box::new(task) as Box<dyn FnOnce()>)).collect()).unwrap();
    let lines = yard.platform().folded();
    for line in ["alloc;refill;wait zone", "free;drain;wait zone"] {
        assert!(lines.iter().any(|(name, _)| name == line), "no {line} in {lines:?}");
    }
    let stacks = by_stack(&lines);
    for stack in ["alloc;refill;split", "free;drain;merge"] {
        assert!(stacks.contains_key(stack), "no {stack} in {stacks:?}");
    }
}

#[test]
fn workers_inherit_the_spans_of_their_task() {
    let yard = yard(ZonePolicy::Vanilla);
    let platform = yard.platform();
    let work = platform.cost("work").unwrap();
    let task = || {
        platform.begin_activity(Activity::BringUp);
        let job = |number| {
            if number == 2 {
                platform.begin_activity(Activity::Merge);
                resume_unwind(Box::new("a span stays open"));
            }
            platform.spend(work, 1000);
        };
        platform.run_workers(3, &|_| NodeId(0), &job).expect_err("a worker has panicked");
        let job = |_| resume_unwind(Box::new("so does the caller's"));
        platform.run_workers(1, &|_| NodeId(0), &job).expect_err("as above");
        platform.end_activity(Activity::BringUp, PageCount(0));
        platform.spend(work, 500);
    };
    let before = platform.profile();
    yard.run(vec![(CpuId(0), Box::new(task))]).unwrap();
    let lines = platform.profile().since(&before).folded();
    let time = |name: &str| lines.iter().find(|(line, _)| line == name).map(|(_, time)| *time);
    assert_eq!(time("bring-up;work"), Some(Picos::from_ns(2 * 1000)));
    assert_eq!(time("work"), Some(Picos::from_ns(500)));
    assert_ne!(work, CostId::nth(0), "the costs that all machines know come first");
}
