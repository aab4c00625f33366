//! `frag`: whole pageblocks in memory of which random frames or blocks are freed and allocated.

use std::num::NonZeroU32;

use clap::{Args, ValueHint};
use frameyard::boot::InitMode;
use frameyard::policy::ZonePolicy;
use frameyard::watermarks::PcpSizing;
use frameyard::{ByteSize, Geometry, Order, PageCount};
use frameyard_host::HostTopology;
use frameyard_sim::Machine;
use frameyard_vm::LruPolicy;
use frameyard_workloads::frag::{BlockOrders, FragPoint, FragWorkload};
use frameyard_workloads::sim::{FrameContents, SimInit, SimOptions};

use super::too_few_cpus;
use crate::Failure;
use crate::args::values::{
    Sizings, block_orders, one_sizing, positive_number, positive_size, whole_number, zone_policy,
};
use crate::args::{FullArgs, InitArgs, ListAccessArg, MachineArgs, OutputArgs, QuickArgs, TaskRange, YardArgs};
use crate::boot::{BootOptions, boot_machine};
use crate::chosen_machine::{ChosenMachine, print_notes};
use crate::commands::simulated_machine::machine;
use crate::fixture::check_host_memory;
use crate::output::{Format, Report, Row, progress_bar, rounded};

/// What follows the options in the help text.
const HELP: &str = "\
Takes about 10 seconds for each policy and share; --quick about 5.

Examples:
  frameyard bench frag --quick --policy vanilla,bits
  frameyard bench frag --memory 4G --tasks 2 --free 50,20 --iterations 600 --policy bits
  frameyard bench frag --orders mixed --memory 4G --policy vanilla,bits";

/// What is run, here and on simulated machines.
#[derive(Args, Clone, Debug)]
pub(in crate::commands) struct FragChoice {
    /// Shares of memory that are free during the iterations, in percent
    #[arg(long = "free", value_name = "PERCENT", value_delimiter = ',', default_value = "50", value_parser = free_percent)]
    free_percents: Vec<u8>,

    /// Iterations; each frees and allocates a tenth of the free share
    #[arg(long, value_name = "N", default_value = "600", default_value_if("quick", "true", "80"), value_parser = positive_number)]
    iterations: NonZeroU32,

    /// Orders of the blocks
    #[arg(long, value_name = "ORDERS", value_parser = block_orders(), default_value = BlockOrders::default().name())]
    orders: BlockOrders,

    /// Single frames that are pinned and never freed, in every fourth pageblock
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = kept_frames)]
    kept: u32,

    /// Policies to compare
    #[arg(long = "policy", value_name = "POLICIES", value_delimiter = ',', value_parser = zone_policy(), default_value = ZonePolicy::default().name())]
    policies: Vec<ZonePolicy>,

    /// Numbers of tasks to run with, single or as a range, as in 1,2,4 or 1..40
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "2")]
    tasks: Vec<TaskRange>,

    /// Seed of the random choices
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number)]
    seed: u64,
}

/// Frees and allocates random frames or blocks of fragmented memory, and counts whole pageblocks
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(in crate::commands) struct FragArgs {
    #[command(flatten)]
    choice: FragChoice,
    #[command(flatten)]
    quick: QuickArgs,
    #[command(flatten)]
    full: FullArgs,
    #[command(flatten)]
    machine: MachineArgs,
    #[command(flatten)]
    yard: YardArgs,
    #[command(flatten)]
    init: InitArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// The same for simulated machines.
const SIM_HELP: &str = "\
Takes up to a few minutes for each policy, share and number of tasks, in proportion to --memory and --iterations; --quick a few seconds.

Memory is filled and fragmented in no virtual time. Tasks take turns over the sockets. The lists of a CPU hold about as many
frames whatever --memory is, and these make no pageblock whole: with less memory for each task the shares are lower.

Examples:
  frameyard sim frag --quick --memory 2G --policy vanilla,bits
  frameyard sim frag --memory 4G --tasks 4,28,112 --free 50 --iterations 600 --policy bits
  frameyard sim frag --machine epyc-512 --memory 16G --tasks 512 --iterations 80 --policy bits";

/// Frees and allocates random frames or blocks of fragmented memory, and counts whole pageblocks
#[derive(Args, Clone, Debug)]
#[command(
    after_help = SIM_HELP,
    mut_arg("tasks", |arg| arg.default_value("4,28,112").default_value_if("quick", "true", "4"))
)]
pub(in crate::commands) struct SimFragArgs {
    /// A built-in machine with costs (see `frameyard machines`), or a file that describes one (TOML)
    #[arg(long, value_name = "NAME|FILE", default_value = "skylake-112", value_hint = ValueHint::AnyPath)]
    machine: String,

    /// Memory of the machine, all nodes together [default: 4G; quick: 1G]
    #[arg(long, value_name = "SIZE", value_parser = positive_size)]
    memory: Option<ByteSize>,

    #[command(flatten)]
    choice: FragChoice,

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

const NAME: &str = "bench frag";
const SIM_NAME: &str = "sim frag";
/// Memory of the machine unless the command line says otherwise.
const DEFAULT_MEMORY: ByteSize = ByteSize::gib(4);
/// After these iterations, and after the last, there is a row.
const REPORTED: [u32; 7] = [10, 40, 80, 160, 320, 600, 1200];
/// What all tables say.
const NOTE: &str = "whole: pageblocks that a request which may not wait can have, on free lists and in bits; empty: those without an \
    allocated frame, whether or not lists of CPUs hold some of theirs; failed: requests that found no memory. Nothing moves frames.";

fn free_percent(text: &str) -> Result<u8, String> {
    let number = text.parse().ok().filter(|percent| (1..=90).contains(percent));
    number.ok_or_else(|| "write a whole number from 1 to 90".to_owned())
}

fn kept_frames(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|frames| *frames <= 64);
    number.ok_or_else(|| "write a whole number from 0 to 64".to_owned())
}

/// Runs every combination of share, number of tasks and policy on this machine.
pub(in crate::commands) fn bench(args: &FragArgs) -> Result<(), Failure> {
    let chosen = ChosenMachine::with_memory(&args.machine, args.quick.memory(DEFAULT_MEMORY))?;
    chosen.check_order(NAME, args.choice.orders.largest())?;
    let host = HostTopology::current().map_err(Failure::run_time)?;
    let map_init = args.init.map_init(InitMode::Eager, &chosen.machine)?;
    let options =
        BootOptions { map_init, map_limit: args.full.map_limit(), ..BootOptions::of(&args.machine, &args.yard) };
    let rows = args.choice.each(NAME, |workload, policy, points, report| {
        let booted = boot_machine(&chosen.machine, &BootOptions { policy, ..options })?;
        let yard = &booted.yard;
        check_size(workload, yard.stats().managed_pages(), yard.geometry())?;
        chosen.print_notes();
        print_notes(&booted.notes);
        workload.run(yard.core(), &host, points, &mut |point| report(row(workload, policy, &point)))?;
        yard.drain_all();
        yard.validate().map_err(Failure::run_time)
    })?;
    Report::new(NAME, rows).of_machine(chosen.machine.name).note(NOTE).print(&args.output)
}

/// Runs every combination on a simulated machine.
pub(in crate::commands) fn sim(args: &SimFragArgs) -> Result<(), Failure> {
    let machine = machine(&args.machine)?;
    let memory = args.memory.unwrap_or(args.quick.memory(DEFAULT_MEMORY));
    let sizing = args.pcp_sizing.first();
    let rows = args.choice.each(SIM_NAME, |workload, policy, points, report| {
        check_cpus(workload, &machine)?;
        let options = sim_options(memory, policy, sizing, args.list_access);
        let (geometry, simulated) = (Geometry::X86_64, options.simulated_memory(&machine));
        check_size(workload, PageCount(simulated.0 >> geometry.page_shift()), geometry)?;
        check_host_memory(&machine, &options)?;
        let mut report = |point| {
            report(
                row(workload, policy, &point)
                    .data("memory_bytes", simulated.0)
                    .data("pcp_sizing", sizing.to_string())
                    .data("list_access", options.lists.name()),
            );
        };
        Ok(frameyard_workloads::sim::frag(&machine, &options, workload, points, &mut report)?)
    })?;
    Report::new(SIM_NAME, rows).of_machine(machine.name).note(format!("{NOTE} Times are virtual.")).print(&args.output)
}

fn sim_options(memory: ByteSize, policy: ZonePolicy, sizing: PcpSizing, lists: ListAccessArg) -> SimOptions {
    SimOptions {
        memory,
        zone: policy,
        lru: LruPolicy::default(),
        sizing,
        lists: lists.of(policy),
        contents: FrameContents::Dropped,
        init: SimInit::Eager,
        costs: &[],
    }
}

impl FragChoice {
    /// Calls `run` for every combination, with the iterations after which it reports a row.
    fn each(
        &self,
        name: &'static str,
        mut run: impl FnMut(&FragWorkload, ZonePolicy, &[u32], &mut dyn FnMut(Row)) -> Result<(), Failure>,
    ) -> Result<Vec<Row>, Failure> {
        let points = reported(self.iterations);
        let tasks: Vec<NonZeroU32> = self.tasks.iter().flat_map(|range| range.numbers()).collect();
        let runs = self.free_percents.len() * tasks.len() * self.policies.len();
        let bar = progress_bar(name, (runs * (1 + points.len())) as u64);
        let mut rows = Vec::new();
        for &free_percent in &self.free_percents {
            for &tasks in &tasks {
                let workload =
                    FragWorkload { tasks, free_percent, orders: self.orders, kept_frames: self.kept, seed: self.seed };
                for &policy in &self.policies {
                    run(&workload, policy, &points, &mut |row| {
                        rows.push(row);
                        bar.inc(1);
                    })?;
                }
            }
        }
        bar.finish_and_clear();
        Ok(rows)
    }
}

/// The iterations after which there is a row.
fn reported(iterations: NonZeroU32) -> Vec<u32> {
    let last = iterations.get();
    REPORTED.into_iter().filter(|at| *at < last).chain([last]).collect()
}

/// Refuses a machine so small that an iteration replaces no frame of a task.
fn check_size(workload: &FragWorkload, memory: PageCount, geometry: Geometry) -> Result<(), Failure> {
    let pageblocks = memory.0 >> geometry.pageblock_order().0;
    if pageblocks >= 8 * u64::from(workload.tasks.get()) {
        return Ok(());
    }
    let size = geometry.size_of(Order(geometry.pageblock_order().0 + 3).pages());
    Err(Failure::input(format!(
        "--tasks {}: give the machine at least {size} of --memory for each task",
        workload.tasks
    )))
}

/// Refuses more tasks than the simulated machine has CPUs.
fn check_cpus(workload: &FragWorkload, machine: &Machine) -> Result<(), Failure> {
    let cpus = machine.cpus();
    if workload.tasks.get() as usize <= cpus {
        return Ok(());
    }
    Err(too_few_cpus(SIM_NAME, machine, workload.tasks, workload.tasks.get().into()))
}

fn row(workload: &FragWorkload, policy: ZonePolicy, point: &FragPoint) -> Row {
    let share = |pageblocks: u64| 100.0 * pageblocks as f64 / point.pageblocks.max(1) as f64;
    // Four digits after the point: few requests fail.
    let failed_percent = (1e6 * point.failed as f64 / point.pairs.max(1) as f64).round() / 1e4;
    let per_1000 = |number: u64| rounded(1000.0 * number as f64 / point.pairs.max(1) as f64);
    Row::new()
        .column("policy", "policy", policy.name())
        .column("tasks", "tasks", workload.tasks.get())
        .column("free_percent", "free %", workload.free_percent)
        .column("orders", "orders", workload.orders.name())
        .data("kept_frames", workload.kept_frames)
        .data("seed", workload.seed)
        .column("iteration", "iteration", point.iteration)
        .column_as("whole_pageblocks_percent", "whole %", Format::number(1), rounded(share(point.whole)))
        .column_as("empty_pageblocks_percent", "empty %", Format::number(1), rounded(share(point.empty)))
        .data("pageblocks", point.pageblocks)
        .column_as("held_percent", "held %", Format::number(1), rounded(100.0 * point.held))
        .minor()
        .column("failed_requests", "failed", point.failed)
        .column_as("failed_requests_percent", "failed %", Format::number(3), failed_percent)
        .column_as("pair_ns", "pair ns", Format::number(1), rounded(point.pair_ns))
        .column_as(
            "zone_locks_per_1000",
            "zone locks per 1000",
            Format::number(2),
            per_1000(point.zone_lock.acquisitions),
        )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{assert_refused, read};

    #[test]
    fn the_last_iteration_has_a_row() {
        let after = |last| reported(NonZeroU32::new(last).unwrap());
        assert_eq!(after(600), [10, 40, 80, 160, 320, 600]);
        assert_eq!(after(100), [10, 40, 80, 100]);
        assert_eq!(after(5), [5]);
    }

    #[test]
    fn refusals_name_a_correct_value() {
        let args: FragArgs = read("").unwrap();
        assert_eq!((args.choice.free_percents, args.choice.iterations.get(), args.choice.kept), (vec![50], 600, 0));
        assert_eq!(args.choice.orders, BlockOrders::Single);
        let refused = [
            ("--free 0", "from 1 to 90"),
            ("--free 100", "from 1 to 90"),
            ("--free half", "from 1 to 90"),
            ("--iterations 0", "from 1"),
            ("--kept 65", "from 0 to 64"),
            ("--tasks 0", "from 1 on"),
            ("--orders 0..8", "possible values: single, mixed"),
            ("--policy fast", "possible values: vanilla"),
        ];
        assert_refused::<FragArgs>(&refused);
        assert_refused::<SimFragArgs>(&refused);
    }

    #[test]
    fn quick_simulations_have_one_number_of_tasks() {
        let tasks = |line| {
            let args: SimFragArgs = read(line).unwrap();
            args.choice.tasks.iter().flat_map(|range| range.numbers()).map(NonZeroU32::get).collect::<Vec<_>>()
        };
        assert_eq!(tasks(""), [4, 28, 112]);
        assert_eq!(tasks("--quick"), [4]);
        assert_eq!(tasks("--quick --tasks 1..3"), [1, 2, 3]);
    }
}
