//! `bench gigantic`: pages of 1 GiB in memory where blocks that cannot move come and go.

use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use clap::{Args, ValueHint};
use frameyard::boot::InitMode;
use frameyard::policy::ZonePolicy;
use frameyard::{ByteSize, CleanRegions, Gfp, MigrateType};
use frameyard_host::HostTopology;
use frameyard_traces::replay::PlannedOperation;
use frameyard_workloads::gigantic::{GiganticOutcome, GiganticWorkload, RecordedOperation, Recording};

use crate::Failure;
use crate::args::values::{positive_number, whole_number, zone_policy};
use crate::args::{InitArgs, MachineArgs, OutputArgs, QuickArgs, YardArgs};
use crate::boot::{BootOptions, MapLimit, boot_machine};
use crate::chosen_machine::{ChosenMachine, print_notes};
use crate::commands::trace::input::{ReadRecording, read};
use crate::output::{Format, Report, Row, progress_bar, rounded};

/// What follows the options in the help text.
const HELP: &str = "\
Takes about 30 seconds for each policy and mode; --quick about 10. 256 GiB of phantom memory take about 5 GiB and a minute.

Examples:
  frameyard bench gigantic --quick
  frameyard bench gigantic --memory 256G --phantom --policy vanilla,bits
  frameyard bench gigantic --memory 8G --clean-regions on --events 4000000
  frameyard bench gigantic --trace recordings/cargo-check.fytrace";

/// What the option of the mode means here.
const MODES_HELP: &str = "Modes to compare: whether regions of 1 GiB are kept clean";

/// Allocates pages of 1 GiB after blocks of all types have come and gone
#[derive(Args, Clone, Debug)]
#[command(
    after_help = HELP,
    mut_arg("clean_regions", |arg| arg.value_delimiter(',').default_value("off,on").help(MODES_HELP))
)]
pub(super) struct GiganticArgs {
    /// Policies to compare
    #[arg(long = "policy", value_name = "POLICIES", value_delimiter = ',', value_parser = zone_policy(), default_value = ZonePolicy::default().name())]
    policies: Vec<ZonePolicy>,

    /// Seed of the random choices
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number)]
    seed: u64,

    /// Blocks that are freed and replaced, by all tasks together
    #[arg(long, value_name = "N", default_value = "20000000", default_value_if("quick", "true", "1000000"), value_parser = positive_number)]
    events: NonZeroU32,

    /// Recordings whose blocks take the place of the mix, in any format that `trace import` reads. Copies of them fill memory
    #[arg(long, value_name = "FILES", value_delimiter = ',', value_hint = ValueHint::FilePath)]
    trace: Vec<PathBuf>,

    /// Tasks that share the work
    #[arg(long, value_name = "N", default_value = "2", value_parser = positive_number)]
    tasks: NonZeroU32,

    #[command(flatten)]
    quick: QuickArgs,
    #[command(flatten)]
    machine: MachineArgs,
    #[command(flatten)]
    yard: YardArgs,
    #[command(flatten)]
    init: InitArgs,
    #[command(flatten)]
    output: OutputArgs,
}

const NAME: &str = "bench gigantic";
/// Memory of the machine unless the command line says otherwise, and for a quick run.
const DEFAULT_MEMORY: ByteSize = ByteSize::gib(8);
const QUICK_MEMORY: ByteSize = ByteSize::gib(4);
const NOTE: &str = "tainted: regions of 1 GiB with a block that cannot move, after memory was filled and after the events; possible: the \
    pages of 1 GiB that free memory of the other regions has the size of. copy: copying the frames that were moved, and nothing else.";

/// Runs every combination of policy and mode.
pub(super) fn run(args: &GiganticArgs) -> Result<(), Failure> {
    let recordings = args.trace.iter().map(|path| recording(path)).collect::<Result<Vec<Recording>, Failure>>()?;
    let memory = if args.quick.quick { QUICK_MEMORY } else { DEFAULT_MEMORY };
    let chosen = ChosenMachine::with_memory(&args.machine, memory)?;
    let host = HostTopology::current().map_err(Failure::run_time)?;
    let map_init = args.init.map_init(InitMode::Eager, &chosen.machine)?;
    let options = BootOptions { map_init, map_limit: MapLimit::Full, ..BootOptions::of(&args.machine, &args.yard) };
    let workload = GiganticWorkload { tasks: args.tasks, events: args.events.get().into(), seed: args.seed };
    let bar = progress_bar(NAME, (args.policies.len() * args.yard.clean_regions.len()) as u64);
    let mut rows = Vec::new();
    for &policy in &args.policies {
        for &clean_regions in &args.yard.clean_regions {
            let booted = boot_machine(&chosen.machine, &BootOptions { policy, clean_regions, ..options })?;
            chosen.print_notes();
            print_notes(&booted.notes);
            let yard = &booted.yard;
            let outcome = workload.run(yard.core(), &host, &recordings)?;
            yard.drain_all();
            yard.validate().map_err(Failure::run_time)?;
            rows.push(row(&workload, (policy, clean_regions), &outcome).data("recordings", recordings.len()));
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Report::new(NAME, rows).of_machine(chosen.machine.name).note(NOTE).print(&args.output)
}

/// The allocations and frees of a recording.
fn recording(path: &Path) -> Result<Recording, Failure> {
    let ReadRecording { plan, .. } = read(path, None, None)?;
    let of_gfp = |gfp: Gfp| gfp.migrate_type().unwrap_or(MigrateType::Unmovable);
    let operation =
        |of: PlannedOperation| RecordedOperation { block: of.place, order: of.order, allocates: of.gfp.map(of_gfp) };
    Ok(plan.operations().map(operation).collect())
}

/// The median of values; `None` without any.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

fn row(workload: &GiganticWorkload, (policy, mode): (ZonePolicy, CleanRegions), outcome: &GiganticOutcome) -> Row {
    let pages = &outcome.obtained;
    let times = |of: fn(&frameyard_workloads::gigantic::ObtainedPage) -> Option<f64>| {
        pages.iter().filter_map(of).collect::<Vec<_>>()
    };
    let ratios = times(|page| page.copy_ns.filter(|_| page.moved > 0).map(|copy| page.ns as f64 / copy.max(1) as f64));
    let worst = ratios.iter().copied().max_by(f64::total_cmp);
    let moved: u64 = pages.iter().map(|page| page.moved).sum();
    Row::new()
        .column("policy", "policy", policy.name())
        .column("clean_regions", "clean regions", mode.name())
        .data("tasks", workload.tasks.get())
        .data("seed", workload.seed)
        .data("events", workload.events)
        .data("frames_in_use_percent", rounded(outcome.used_percent))
        .column("regions", "regions", outcome.regions)
        .column("tainted_before", "tainted at first", outcome.tainted_before)
        .column("tainted_regions", "tainted", outcome.tainted)
        .column("gib_possible", "possible", outcome.possible)
        .column("gib_obtained", "obtained", pages.len())
        .column("frames_moved", "frames moved", moved)
        .data("frames_moved_in_background", outcome.background_moved)
        .column_as("page_ns", "ms", Format::millions(1), median(times(|page| Some(page.ns as f64))).map(rounded))
        .column_as(
            "copy_ns",
            "copy ms",
            Format::millions(1),
            median(times(|page| page.copy_ns.filter(|_| page.moved > 0).map(|ns| ns as f64))).map(rounded),
        )
        .column_as("time_per_copy", "time/copy", Format::number(2), median(ratios).map(rounded))
        .column_as("time_per_copy_worst", "worst", Format::number(2), worst.map(rounded))
        .data("event_ns", rounded(outcome.event_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{assert_refused, read};

    #[test]
    fn a_bare_run_compares_both_modes() {
        let args: GiganticArgs = read("").unwrap();
        assert_eq!(args.yard.clean_regions, [CleanRegions::Off, CleanRegions::On]);
        assert_eq!((args.policies, args.tasks.get(), args.events.get()), (vec![ZonePolicy::default()], 2, 20_000_000));
        assert_refused::<GiganticArgs>(&[
            ("--clean-regions often", "possible values: off, on"),
            ("--policy fast", "possible values: vanilla"),
            ("--events 0", "from 1"),
            ("--tasks none", "from 1"),
        ]);
    }

    #[test]
    fn the_median_is_the_value_in_the_middle() {
        assert_eq!((median(vec![3.0, 1.0, 2.0]), median(Vec::new())), (Some(2.0), None));
    }
}
