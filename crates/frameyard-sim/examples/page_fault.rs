//! Predicts the page-fault workload on a machine, by policy and number of tasks.
//!
//! ```console
//! cargo run --release -p frameyard-sim --example page_fault broadwell-40 vanilla-4.16,bits 1,10,40 threads sharded
//! ```
//!
//! The machine may be a file. Optional arguments after the tasks: the mode (`processes`), the LRU policy (`vanilla`), and the
//! mappings of each task (1).

use std::error::Error;

use frameyard::PageCount;
use frameyard::policy::ZonePolicy;
use frameyard::watermarks::PcpSizing;
use frameyard_sim::{Cause, FaultLoop, FaultRun, KernelCost, ListAccess, Machine, SimConfig, SimYard, Spent};
use frameyard_vm::{Vm, VmConfig};

/// Pages of a mapping: 128 MiB.
const PAGES: u32 = 32768;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |default: &str| arguments.next().unwrap_or_else(|| default.to_owned());
    let (machine, _) = Machine::resolve(&next("broadwell-40"))?;
    let policies = next("vanilla-4.16,cluster-bulk,big-pcp,bits");
    let tasks = next("1,2,5,10,20,30,40");
    let mode = next("processes").parse()?;
    let lru = next("vanilla").parse()?;
    let rounds = next("1").parse()?;
    println!("{:>12} {:>5} {:>10}  {:>6}  share of time", "policy", "tasks", "faults/s", "M/s");
    for policy in policies.split(',').map(str::parse::<ZonePolicy>) {
        let policy = policy?;
        for tasks in tasks.split(',').map(str::parse::<u32>) {
            row(&machine, policy, &FaultLoop { tasks: tasks?, mode, pages: PAGES, rounds, seed: 1, lru })?;
        }
    }
    Ok(())
}

fn row(machine: &Machine, policy: ZonePolicy, each: &FaultLoop) -> Result<(), Box<dyn Error>> {
    let tasks = each.tasks;
    // The mappings of all tasks, half as much again, and a reserve.
    let node_memory = PageCount((u64::from(tasks * PAGES) * 3 / 2).next_multiple_of(1 << 18) + (2 << 18));
    let config =
        SimConfig { node_memory, policy, sizing: PcpSizing::Early, lists: ListAccess::Locks, costs: Vec::new() };
    let yard = SimYard::new(machine, &config)?;
    let vm = Vm::create(&yard, &VmConfig::default())?;
    let begun = processor_seconds();
    let run = each.run(&yard, &vm)?;
    let exception = yard.platform().cost("exception").expect("a known cost");
    let faults = yard.platform().account().of(Spent::Cost(exception)).count;
    let speed = faults as f64 / (processor_seconds() - begun) / 1e6;
    println!("{:>12} {tasks:>5} {:>10.0}  {speed:>6.2}  {}", policy.name(), run.rate, shares(&run));
    vm.validate()?;
    yard.validate()?;
    Ok(())
}

/// Processor time of this process, where the kernel reports it. Other processes do not count.
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok()).map_or(f64::NAN, |ns| ns / 1e9)
}

/// Every use of at least 0.5 % of the time, largest first.
fn shares(run: &FaultRun) -> String {
    let busy = run.busy().0 as f64;
    let of = |spent| run.account.of(spent).time.0 as f64 / busy;
    let locks = frameyard::platform::LockKind::ALL.map(|kind| (format!("wait:{kind}"), of(Spent::Waiting(kind))));
    let costs = KernelCost::ALL.map(|cost| (cost.name().to_owned(), of(Spent::Cost(cost.id()))));
    let accesses = run.access_shares().map(|(accessed, share)| (accessed.name(), share));
    let causes = Cause::ALL.map(|cause| (format!("<{cause}>"), run.account.by_cause(cause).time.0 as f64 / busy));
    let relax = [("relax".to_owned(), of(Spent::Relax))];
    let mut all: Vec<_> = locks.into_iter().chain(costs).chain(accesses).chain(causes).chain(relax).collect();
    all.retain(|(_, share)| *share >= 0.005);
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    all.iter().map(|(name, share)| format!("{name} {:.1}%", share * 100.0)).collect::<Vec<_>>().join(", ")
}
