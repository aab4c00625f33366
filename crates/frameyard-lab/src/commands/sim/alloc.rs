//! `sim alloc`: allocating and freeing blocks on a simulated machine, by pattern, order and number of tasks.

use std::num::NonZeroU32;

use clap::{Args, ValueHint};
use frameyard::policy::ZonePolicy;
use frameyard::{ByteSize, Geometry, Order, PageCount};
use frameyard_sim::Machine;
use frameyard_vm::LruPolicy;
use frameyard_workloads::alloc::{AccessKind, AllocRun, AllocWorkload};
use frameyard_workloads::sim::{FrameContents, SimInit, SimOptions};

use crate::Failure;
use crate::args::values::{Sizings, access_kind, one_sizing, order, positive_size, whole_number, zone_policy};
use crate::args::{ListAccessArg, OutputArgs, QuickArgs, TaskRange};
use crate::commands::bench::spill_refusal;
use crate::commands::comparison::too_few_cpus;
use crate::commands::simulated_machine::machine;
use crate::fixture::check_host_memory;
use crate::output::{Format, Report, Row, progress_bar, rounded};

/// What follows the options in the help text.
const HELP: &str = "\
Takes about a minute, in proportion to --memory; --quick a few seconds.

Tasks run on the CPUs from 0 on. A --kind spill needs a socket without tasks, whose memory serves the requests.

Examples:
  frameyard sim alloc --quick
  frameyard sim alloc --kind repeat,spill --order 0 --tasks 1,28 --policy vanilla,bits
  frameyard sim alloc --machine epyc-512 --memory 16G --kind bulk --order 0,2 --tasks 512";

/// Allocates and frees blocks
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(super) struct SimAllocArgs {
    /// A built-in machine with costs (see `frameyard machines`), or a file that describes one (TOML)
    #[arg(long, value_name = "NAME|FILE", default_value = "skylake-112", value_hint = ValueHint::AnyPath)]
    machine: String,

    /// Memory of the machine, all nodes together [default: 4G; quick: 1G]
    #[arg(long, value_name = "SIZE", value_parser = positive_size)]
    memory: Option<ByteSize>,

    /// How the blocks are allocated and freed
    #[arg(
        long = "kind",
        value_name = "KINDS",
        value_delimiter = ',',
        value_parser = access_kind(),
        default_value = "repeat,bulk,random,cold,warm"
    )]
    kinds: Vec<AccessKind>,

    /// Orders of the blocks
    #[arg(long = "order", value_name = "ORDERS", value_delimiter = ',', default_value = "0,3,9", default_value_if("quick", "true", "0,9"), value_parser = order)]
    orders: Vec<Order>,

    /// Policies to compare
    #[arg(long = "policy", value_name = "POLICIES", value_delimiter = ',', value_parser = zone_policy(), default_value = ZonePolicy::default().name())]
    policies: Vec<ZonePolicy>,

    /// Numbers of tasks to run with, single or as a range, as in 1,2,4 or 1..40
    #[arg(
        long,
        value_name = "N",
        value_delimiter = ',',
        default_value = "1,4,28",
        default_value_if("quick", "true", "4")
    )]
    tasks: Vec<TaskRange>,

    /// Seed of the random choices
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number)]
    seed: u64,

    /// Size of the per-CPU lists: scaled, classic, early, fraction:N or fixed:N
    #[arg(long, value_name = "SIZING", value_parser = one_sizing, default_value = "scaled")]
    pcp_sizing: Sizings,

    /// How CPUs use their own lists
    #[arg(long, value_name = "ACCESS", value_enum, default_value = "by-policy")]
    list_access: ListAccessArg,

    #[command(flatten)]
    quick: QuickArgs,
    #[command(flatten)]
    output: OutputArgs,
}

const NAME: &str = "sim alloc";
/// Memory of the machine unless the command line says otherwise.
const DEFAULT_MEMORY: ByteSize = ByteSize::gib(4);
/// Pairs of each task that repeats them. Virtual times vary little.
const STEPS: u64 = 2000;
/// The fewest blocks of the machine for each task.
const LEAST_BLOCKS: u64 = 64;

/// Runs every combination of pattern, order, number of tasks and policy.
pub(super) fn run(args: &SimAllocArgs) -> Result<(), Failure> {
    let machine = machine(&args.machine)?;
    let workloads = workloads(args);
    for workload in &workloads {
        check(args, &machine, workload)?;
    }
    let bar = progress_bar(NAME, (workloads.len() * args.policies.len()) as u64);
    let mut rows = Vec::new();
    for workload in &workloads {
        for &policy in &args.policies {
            let options = options(args, policy);
            let run = frameyard_workloads::sim::alloc(&machine, &options, workload)?;
            rows.push(row(args, workload, &options, &run, &machine));
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Report::new(NAME, rows)
        .of_machine(machine.name)
        .note("Times are virtual. spilled: blocks of another zone than the one that their task prefers.")
        .print(&args.output)
}

fn workloads(args: &SimAllocArgs) -> Vec<AllocWorkload> {
    let tasks: Vec<NonZeroU32> = args.tasks.iter().flat_map(|range| range.numbers()).collect();
    let mut workloads = Vec::new();
    for &kind in &args.kinds {
        for &order in &args.orders {
            let of_tasks = |&tasks| AllocWorkload { kind, order, tasks, seed: args.seed, steps: Some(STEPS) };
            workloads.extend(tasks.iter().map(of_tasks));
        }
    }
    workloads
}

fn options(args: &SimAllocArgs, policy: ZonePolicy) -> SimOptions {
    SimOptions {
        memory: args.memory.unwrap_or(args.quick.memory(DEFAULT_MEMORY)),
        zone: policy,
        lru: LruPolicy::default(),
        sizing: args.pcp_sizing.first(),
        lists: args.list_access.of(policy),
        contents: FrameContents::Dropped,
        init: SimInit::Eager,
        costs: &[],
    }
}

/// Refuses more tasks than the machine has CPUs or blocks for, and spills where no node is left for them.
fn check(args: &SimAllocArgs, machine: &Machine, workload: &AllocWorkload) -> Result<(), Failure> {
    let AllocWorkload { kind, order, tasks, .. } = *workload;
    if tasks.get() as usize > machine.cpus() {
        return Err(too_few_cpus(NAME, machine, tasks, tasks.get().into()));
    }
    let (options, geometry) = (options(args, ZonePolicy::default()), Geometry::X86_64);
    if order > geometry.max_order() {
        let (order, max) = (order.0, geometry.max_order().0);
        return Err(Failure::input(format!("--order {order}: the machine's blocks go up to order {max}")));
    }
    let (frames, needed) =
        (geometry.pages_in(options.simulated_memory(machine)), LEAST_BLOCKS * u64::from(tasks.get()));
    if frames.0 >> order.0 < needed {
        let memory = geometry.size_of(PageCount(needed << order.0));
        return Err(Failure::input(format!(
            "--order {}: {tasks} tasks need {needed} blocks; give the machine at least {memory} of --memory",
            order.0
        )));
    }
    check_host_memory(machine, &options)?;
    match kind {
        AccessKind::Spill => spill_refusal(frameyard_workloads::sim::check_alloc(machine, &options, workload)),
        _ => Ok(()),
    }
}

fn row(args: &SimAllocArgs, workload: &AllocWorkload, options: &SimOptions, run: &AllocRun, machine: &Machine) -> Row {
    Row::new()
        .column("kind", "kind", workload.kind.name())
        .column("order", "order", workload.order.0)
        .column("tasks", "tasks", workload.tasks.get())
        .column("policy", "policy", options.zone.name())
        .column("ops", "ops", run.ops)
        .minor()
        .column_as("get_ns", "get ns", Format::number(1), rounded(run.get_ns))
        .column_as("put_ns", "put ns", Format::number(1), rounded(run.put_ns))
        .column_as("spilled_percent", "spilled %", Format::number(0), rounded(100.0 * run.spilled))
        .column("zone_lock_acquisitions", "lock taken", run.zone_lock.acquisitions)
        .minor()
        .column_as("pages_per_acquisition", "pages each", Format::number(1), rounded(run.pages_per_acquisition()))
        .minor()
        .data("seed", workload.seed)
        .data("memory_bytes", options.simulated_memory(machine).0)
        .data("pcp_sizing", args.pcp_sizing.first().to_string())
        .data("list_access", options.lists.name())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{assert_refused, read};

    #[test]
    fn every_combination_has_a_row() {
        let args: SimAllocArgs = read("--kind repeat,spill --order 0,2 --tasks 1..3").unwrap();
        let found: Vec<_> = workloads(&args).iter().map(|of| (of.kind, of.order.0, of.tasks.get())).collect();
        assert_eq!(found.len(), 12);
        assert_eq!(
            found[..4],
            [(0, 1), (0, 2), (0, 3), (2, 1)].map(|(order, tasks)| (AccessKind::Repeat, order, tasks))
        );
        assert!(found[6..].iter().all(|found| found.0 == AccessKind::Spill));
    }

    #[test]
    fn refusals_name_a_correct_value() {
        assert_refused::<SimAllocArgs>(&[
            ("--tasks 0", "from 1 on"),
            ("--order 0,16", "from 0 to 15"),
            ("--policy fast", "possible values: vanilla"),
            ("--kind slow", "possible values: repeat, spill, bulk"),
        ]);
    }
}
