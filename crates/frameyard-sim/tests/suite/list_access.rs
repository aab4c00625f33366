//! CPUs use their own lists under locks or in restartable sequences.

use frameyard::platform::{LineKind, LockKind};
use frameyard::policy::ZonePolicy;
use frameyard::watermarks::PcpSizing;
use frameyard::{CpuId, Gfp, Order, PageCount, Pfn};
use frameyard_sim::{Accessed, Account, Cause, KernelCost, ListAccess, Machine, Picos, SimConfig, SimYard, Spent};

/// Cycles of an access, and what an atomic read-modify-write adds. The clock is 1 GHz.
const ACCESS: u64 = 3;
const ATOMIC: u64 = 20;
const EXCEPTION: u64 = 800;
const INTERRUPT: u64 = 2000;

fn yard(policy: ZonePolicy, lists: ListAccess) -> SimYard {
    let mut machine = Machine::built_in("broadwell-40").unwrap();
    machine.clock.mhz = vec![1000];
    machine.clock.smt_slowdown = 1.0;
    (machine.costs.access_cycles, machine.costs.atomic_cycles) = (ACCESS as f64, ATOMIC as f64);
    machine.kernel_overhead.exception_cycles = EXCEPTION as f64;
    machine.kernel_overhead.interrupt_cycles = INTERRUPT as f64;
    let (node_memory, sizing) = (PageCount(1 << 16), PcpSizing::Classic);
    SimYard::new(&machine, &SimConfig { node_memory, policy, sizing, lists, costs: vec!["work"] }).unwrap()
}

/// Runs `body` on the first CPUs with each CPU's number. Returns what was spent on it.
fn run_on(yard: &SimYard, cpus: u32, body: impl Fn(u32)) -> Account {
    let (body, before) = (&body, yard.platform().account());
    let tasks = (0..cpus).map(|cpu| (CpuId(cpu), Box::new(move || body(cpu)) as Box<dyn FnOnce()>));
    yard.run(tasks.collect()).unwrap();
    yard.platform().account().since(&before)
}

fn count(account: &Account, accessed: Accessed) -> u64 {
    Cause::ALL.map(|cause| account.of(Spent::Access(accessed, cause)).count).iter().sum()
}

fn take(yard: &SimYard) -> Pfn {
    yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap()
}

fn pairs(yard: &SimYard, pairs: u64) {
    (0..pairs).for_each(|_| yard.free(take(yard), Order::ZERO).unwrap());
}

#[test]
fn a_pair_in_sequences_takes_no_lock_and_one_under_locks_takes_two() {
    const PAIRS: u64 = 100;
    // Accesses and exchanges of a pair. Both: the allocation map twice, once with an exchange, the type of the pageblock, and the
    // list's word and entry twice. Under locks: two exchanges of the lock and two stores to it. In sequences: two reads of the owners.
    let cases = [(ListAccess::Locks, 4, 4, (11, 3)), (ListAccess::Sequences, 0, 6, (9, 1))];
    for (access, of_locks, of_lists, (accesses, exchanges)) in cases {
        let yard = yard(ZonePolicy::Bits, access);
        run_on(&yard, 1, |_| pairs(&yard, 10));
        let spent = run_on(&yard, 1, |_| pairs(&yard, PAIRS));
        assert_eq!(count(&spent, Accessed::Lock(LockKind::PerCpu)), of_locks * PAIRS, "{access}");
        assert_eq!(count(&spent, Accessed::Line(LineKind::PerCpuLists)), of_lists * PAIRS, "{access}");
        assert_eq!(spent.busy(), Picos::from_ns(PAIRS * (accesses * ACCESS + exchanges * ATOMIC)), "{access}");
        yard.validate().unwrap();
    }
}

#[test]
fn a_drain_of_all_lists_interrupts_each_busy_cpu_once_and_only_where_there_are_sequences() {
    const CPUS: u32 = 8;
    const ZONES: u64 = 2;
    for access in ListAccess::ALL {
        let yard = yard(ZonePolicy::Bits, access);
        run_on(&yard, CPUS, |_| pairs(&yard, 10));
        let work = yard.platform().cost("work").unwrap();
        let spent = run_on(&yard, CPUS, |cpu| match cpu {
            0 => yard.drain_all(),
            // Longer than the drain.
            _ => (0..200).for_each(|_| yard.platform().spend(work, 1000)),
        });
        let interrupted = if access == ListAccess::Sequences { ZONES * u64::from(CPUS - 1) } else { 0 };
        let cost = |cost: KernelCost| spent.of(Spent::Cost(cost.id())).time;
        assert_eq!(cost(KernelCost::Interrupt), Picos::from_ns(interrupted * INTERRUPT), "{access}");
        assert_eq!(cost(KernelCost::Exception), Picos::from_ns(interrupted * EXCEPTION), "{access}");
        yard.validate().unwrap();
    }
}

#[test]
fn all_frames_come_back_where_cpus_drain_the_lists_that_others_use() {
    for policy in [ZonePolicy::Bits, ZonePolicy::Vanilla] {
        let yard = yard(policy, ListAccess::Sequences);
        let free = yard.stats().free_pages();
        let spent = run_on(&yard, 24, |cpu| {
            for round in 0..20 {
                let held: Vec<Pfn> = (0..40 + u64::from(cpu)).map(|_| take(&yard)).collect();
                if (round + cpu) % 7 == 0 {
                    yard.drain_all();
                }
                held.into_iter().for_each(|pfn| yard.free(pfn, Order::ZERO).unwrap());
            }
        });
        assert!(
            spent.of(Spent::Waiting(LockKind::PerCpu)).time > Picos(0),
            "{policy}: no drain met a CPU at its lists"
        );
        yard.drain_all();
        yard.validate().unwrap();
        assert_eq!(yard.stats().free_pages(), free, "{policy}");
    }
}
