//! `bench frag`: whole pageblocks in memory of which random frames are freed and allocated.

use std::num::NonZeroU32;

use clap::Args;
use frameyard::boot::InitMode;
use frameyard::policy::ZonePolicy;
use frameyard::{ByteSize, Order};
use frameyard_host::{HostTopology, HostYard};
use frameyard_workloads::frag::{FragPoint, FragWorkload};

use super::alloc::on_yard;
use crate::Failure;
use crate::args::values::{positive_number, whole_number, zone_policy};
use crate::args::{FullArgs, InitArgs, MachineArgs, OutputArgs, QuickArgs, YardArgs};
use crate::boot::{BootOptions, boot_machine};
use crate::chosen_machine::{ChosenMachine, print_notes};
use crate::output::{Format, Report, Row, progress_bar, rounded};

/// What follows the options in the help text.
const HELP: &str = "\
Takes about 10 seconds for each policy and share; --quick about 5.

Examples:
  frameyard bench frag --quick --policy vanilla,depot
  frameyard bench frag --memory 4G --tasks 2 --free 50,20 --iterations 600 --policy depot";

/// Frees and allocates random frames of fragmented memory, and counts whole pageblocks
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(super) struct FragArgs {
    /// Shares of memory that are free during the iterations, in percent
    #[arg(long = "free", value_name = "PERCENT", value_delimiter = ',', default_value = "50", value_parser = free_percent)]
    free_percents: Vec<u8>,

    /// Iterations; each frees and allocates a tenth of the free share
    #[arg(long, value_name = "N", default_value = "600", default_value_if("quick", "true", "80"), value_parser = positive_number)]
    iterations: NonZeroU32,

    /// Frames that are pinned and never freed, in every fourth pageblock
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = kept_frames)]
    kept: u32,

    /// Policies to compare
    #[arg(long = "policy", value_name = "POLICIES", value_delimiter = ',', value_parser = zone_policy(), default_value = ZonePolicy::default().name())]
    policies: Vec<ZonePolicy>,

    /// Numbers of tasks to run with
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "2", value_parser = positive_number)]
    tasks: Vec<NonZeroU32>,

    /// Seed of the random choices
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number)]
    seed: u64,

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

const NAME: &str = "bench frag";
/// Memory of the machine unless the command line says otherwise.
const DEFAULT_MEMORY: ByteSize = ByteSize::gib(4);
/// After these iterations, and after the last, there is a row.
const REPORTED: [u32; 7] = [10, 40, 80, 160, 320, 600, 1200];

fn free_percent(text: &str) -> Result<u8, String> {
    let number = text.parse().ok().filter(|percent| (1..=90).contains(percent));
    number.ok_or_else(|| "write a whole number from 1 to 90".to_owned())
}

fn kept_frames(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|frames| *frames <= 64);
    number.ok_or_else(|| "write a whole number from 0 to 64".to_owned())
}

/// Runs every combination of share, number of tasks and policy.
pub(super) fn run(args: &FragArgs) -> Result<(), Failure> {
    let chosen = ChosenMachine::with_memory(&args.machine, args.quick.memory(DEFAULT_MEMORY))?;
    chosen.print_notes();
    let host = HostTopology::current().map_err(Failure::run_time)?;
    let map_init = args.init.map_init(InitMode::Eager, &chosen.machine)?;
    let options =
        BootOptions { map_init, map_limit: args.full.map_limit(), ..BootOptions::of(&args.machine, &args.yard) };
    let points = reported(args.iterations);
    let runs = args.free_percents.len() * args.tasks.len() * args.policies.len();
    let bar = progress_bar(NAME, (runs * points.len()) as u64);
    let mut rows = Vec::new();
    for &free_percent in &args.free_percents {
        for &tasks in &args.tasks {
            for &policy in &args.policies {
                let workload = FragWorkload { tasks, free_percent, kept_frames: args.kept, seed: args.seed };
                let booted = boot_machine(&chosen.machine, &BootOptions { policy, ..options })?;
                print_notes(&booted.notes);
                check_size(&workload, &booted.yard)?;
                on_yard(&booted.yard, policy, || {
                    workload
                        .run(&booted.yard, &host, &points, |point| {
                            rows.push(row(&workload, policy, &point));
                            bar.inc(1);
                        })
                        .map_err(Failure::run_time)
                })?;
                booted.yard.validate().map_err(Failure::run_time)?;
            }
        }
    }
    bar.finish_and_clear();
    Report::new(NAME, rows)
        .of_machine(chosen.machine.name)
        .note(
            "whole: pageblocks that a request which may not wait can have, on free lists and in depots; empty: those without an \
             allocated frame, whether or not lists of CPUs hold some of theirs. Nothing moves frames.",
        )
        .print(&args.output)
}

/// The iterations after which there is a row.
fn reported(iterations: NonZeroU32) -> Vec<u32> {
    let last = iterations.get();
    REPORTED.into_iter().filter(|at| *at < last).chain([last]).collect()
}

/// Refuses a machine so small that an iteration replaces no frame of a task.
fn check_size(workload: &FragWorkload, yard: &HostYard) -> Result<(), Failure> {
    let pageblocks = yard.stats().managed_pages().0 >> yard.geometry().pageblock_order().0;
    if pageblocks >= 8 * u64::from(workload.tasks.get()) {
        return Ok(());
    }
    let size = yard.geometry().size_of(Order(yard.geometry().pageblock_order().0 + 3).pages());
    Err(Failure::input(format!(
        "--tasks {}: give the machine at least {size} of --memory for each task",
        workload.tasks
    )))
}

fn row(workload: &FragWorkload, policy: ZonePolicy, point: &FragPoint) -> Row {
    let share = |pageblocks: u64| 100.0 * pageblocks as f64 / point.pageblocks.max(1) as f64;
    let per_1000 = |number: u64| rounded(1000.0 * number as f64 / point.pairs.max(1) as f64);
    Row::new()
        .column("policy", "policy", policy.name())
        .column("tasks", "tasks", workload.tasks.get())
        .column("free_percent", "free %", workload.free_percent)
        .data("kept_frames", workload.kept_frames)
        .data("seed", workload.seed)
        .column("iteration", "iteration", point.iteration)
        .column_as("whole_pageblocks_percent", "whole %", Format::number(1), rounded(share(point.whole)))
        .column_as("empty_pageblocks_percent", "empty %", Format::number(1), rounded(share(point.empty)))
        .data("pageblocks", point.pageblocks)
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
        assert_eq!((args.free_percents, args.iterations.get(), args.kept), (vec![50], 600, 0));
        assert_refused::<FragArgs>(&[
            ("--free 0", "from 1 to 90"),
            ("--free half", "from 1 to 90"),
            ("--iterations 0", "from 1"),
            ("--kept 65", "from 0 to 64"),
            ("--policy fast", "possible values: vanilla"),
        ]);
    }
}
