//! Jobs that a task on a simulated machine runs on other CPUs.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use frameyard::platform::WorkerPanicked;
use frameyard::policy::ZonePolicy;
use frameyard::watermarks::PcpSizing;
use frameyard::{CpuId, NodeId, PageCount, Platform};
use frameyard_sim::{CostId, ListAccess, Machine, Picos, SimConfig, SimError, SimYard, Spent};

const WORK: CostId = CostId::nth(0);

/// Two nodes of ten cores with two threads, at 1 GHz, so that a cycle is a nanosecond.
fn yard() -> SimYard {
    let mut machine = Machine::built_in("broadwell-40").unwrap();
    machine.clock.mhz = vec![1000];
    machine.clock.smt_slowdown = 1.0;
    let config = SimConfig {
        node_memory: PageCount(1 << 16),
        policy: ZonePolicy::Vanilla,
        sizing: PcpSizing::Classic,
        lists: ListAccess::Locks,
        costs: vec!["work"],
    };
    SimYard::new(&machine, &config).unwrap()
}

fn run_one<'t>(yard: &'t SimYard, task: impl FnOnce() + 't) -> Result<Picos, SimError> {
    yard.run(vec![(CpuId(0), Box::new(task))])
}

#[test]
fn workers_run_at_once_on_cpus_of_their_nodes_and_the_caller_waits_for_the_slowest() {
    let yard = yard();
    let platform = yard.platform();
    let seen = Mutex::new(Vec::new());
    let end = run_one(&yard, || {
        platform.spend(WORK, 1000);
        let job = |number: usize| {
            platform.spend(WORK, 100 * (number as u64 + 1));
            seen.lock().unwrap().push((number, platform.current_cpu()));
        };
        platform.run_workers(5, &|number| NodeId((number % 2) as u16), &job).unwrap();
        assert_eq!(platform.now(), Picos::from_ns(1500));
        platform.spend(WORK, 500);
    });
    assert_eq!(end.unwrap(), Picos::from_ns(2000));
    // Workers run on the first idle CPUs of their nodes.
    seen.lock().unwrap().sort_unstable();
    let cpus = [(0, 0), (1, 10), (2, 1), (3, 11), (4, 2)].map(|(number, cpu)| (number, CpuId(cpu)));
    assert_eq!(*seen.lock().unwrap(), cpus);
    let account = platform.account();
    assert_eq!(account.total(), Picos::from_ns(40 * 2000));
    assert_eq!(account.of(Spent::Cost(WORK)).time, Picos::from_ns(1000 + 1500 + 500));
}

#[test]
fn workers_can_have_workers_up_to_the_number_of_cpus() {
    let yard = yard();
    let platform = yard.platform();
    let count = AtomicU32::new(0);
    let nested = |_| {
        platform.spend(WORK, 1000);
        count.fetch_add(1, Ordering::Relaxed);
    };
    let start_nested = |worker: usize| platform.run_workers(100, &|_| NodeId(worker as u16), &nested).unwrap();
    let end =
        run_one(&yard, || platform.run_workers(2, &|worker| NodeId(worker as u16), &start_nested).unwrap()).unwrap();
    assert_eq!((count.into_inner(), end), (40, Picos::from_ns(1000)));
}

#[test]
fn outside_of_runs_the_caller_works_alone() {
    let yard = yard();
    let numbers = Mutex::new(Vec::new());
    yard.platform().run_workers(8, &|_| NodeId(0), &|number| numbers.lock().unwrap().push(number)).unwrap();
    assert_eq!(*numbers.lock().unwrap(), [0]);
}

#[test]
fn a_panicking_worker_is_reported_after_all_workers_end() {
    for bad in [0, 3] {
        let yard = yard();
        let platform = yard.platform();
        let done = AtomicU32::new(0);
        let job = |number| {
            platform.spend(WORK, 100_000);
            if number == bad {
                resume_unwind(Box::new("bad"));
            }
            platform.spend(WORK, 100_000);
            done.fetch_add(1, Ordering::Relaxed);
        };
        let end = run_one(&yard, || {
            assert_eq!(platform.run_workers(6, &|_| NodeId(0), &job), Err(WorkerPanicked));
            assert_eq!(done.load(Ordering::Relaxed), 5);
        });
        assert_eq!(end.unwrap(), Picos::from_ns(200_000), "{bad}");
    }
}

#[test]
fn an_aborted_run_drops_workers_before_their_spawner() {
    struct Noting<'a>(&'a Mutex<Vec<&'static str>>, &'static str);
    impl Drop for Noting<'_> {
        fn drop(&mut self) {
            self.0.lock().unwrap().push(self.1);
        }
    }
    let yard = yard();
    let platform = yard.platform();
    let order = Mutex::new(Vec::new());
    let caller = || {
        let _last = Noting(&order, "caller");
        let job = |number| {
            let _first = Noting(&order, if number == 0 { "worker 0" } else { "worker" });
            (0..100).for_each(|_| platform.spend(WORK, 100_000));
        };
        platform.run_workers(3, &|_| NodeId(0), &job).unwrap();
    };
    let other = || {
        platform.spend(WORK, 500_000);
        platform.spend(WORK, 1);
        resume_unwind(Box::new("enough"));
    };
    let tasks: Vec<(CpuId, Box<dyn FnOnce()>)> = vec![(CpuId(9), Box::new(caller)), (CpuId(0), Box::new(other))];
    let run = catch_unwind(AssertUnwindSafe(|| yard.run(tasks)));
    assert_eq!(run.expect_err("the panic of a task").downcast_ref::<&str>(), Some(&"enough"));
    assert_eq!(*order.lock().unwrap(), ["worker", "worker", "worker 0", "caller"]);
}
