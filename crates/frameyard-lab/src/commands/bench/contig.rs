//! `bench contig`: allocating contiguous ranges from a zone that tasks use meanwhile.

use std::num::NonZeroU32;

use clap::Args;
use frameyard::boot::InitMode;
use frameyard::{AllocError, ByteSize};
use frameyard_vm::LruPolicy;
use frameyard_workloads::contig::{self, Attempt, ContigPlan, ContigRun};
use frameyard_workloads::task_seed;

use super::flat_machine::FlatMachine;
use crate::Failure;
use crate::args::values::{lru_policy, positive_number, positive_size, whole_number};
use crate::args::{Amount, InitArgs, MachineArgs, OutputArgs, QuickArgs, YardArgs};
use crate::boot::{BootOptions, FrameBacking, MapLimit};
use crate::fixture::with_fixture;
use crate::output::{Format, Report, RoundedSize, Row, progress_bar, rounded};

/// What follows the options in the help text.
const HELP: &str = "\
Takes about 30 seconds; --quick about 5.

Example:
  frameyard bench contig --size 256M --fill 80% --tasks 4";

/// Allocates contiguous ranges in a zone that is in use
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(super) struct ContigArgs {
    /// Size of the contiguous ranges
    #[arg(long, value_name = "SIZE", default_value = "1G", default_value_if("quick", "true", "256M"), value_parser = positive_size)]
    size: ByteSize,

    /// The part of the Movable zone that tasks use, up to 90%
    #[arg(long, value_name = "SIZE|PERCENT", default_value = "50%")]
    fill: Amount,

    /// Tasks that use memory meanwhile
    #[arg(long, value_name = "N", default_value = "2", value_parser = positive_number)]
    tasks: NonZeroU32,

    /// Repetitions, each in a new yard
    #[arg(long, value_name = "N", default_value = "3", default_value_if("quick", "true", "1"), value_parser = positive_number)]
    repeat: NonZeroU32,

    /// Policies of LRU lists to compare
    #[arg(long = "lru", value_name = "POLICIES", value_delimiter = ',', value_parser = lru_policy(), default_value = "vanilla")]
    lru_policies: Vec<LruPolicy>,

    /// Seed of the random choices
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number)]
    seed: u64,

    #[command(flatten)]
    quick: QuickArgs,
    #[command(flatten)]
    machine: MachineArgs,
    #[command(flatten)]
    yard: YardArgs,
    #[command(flatten)]
    output: OutputArgs,
}

const NAME: &str = "bench contig";
/// The least machine.
const LEAST_MEMORY: ByteSize = ByteSize::mib(64);
/// The part of memory that is Movable, unless the command line says otherwise.
const MOVABLE: Amount = Amount::Percent(75);
/// The part of the zone that tasks may use, in percent. They need some room to map.
const MOST_FILLED: u8 = 90;
const NOTE: &str = "Tasks fault, write, read and unmap meanwhile. busy: a range anywhere; pinned: a certain range that holds a pinned page; \
    unpinned: the same range without the pin, zeroed. GB are 10^9 bytes. All contents were checked.";

/// Runs with each LRU policy.
pub(super) fn run(args: &ContigArgs) -> Result<(), Failure> {
    let flat = FlatMachine::of(&args.machine, args.quick, NAME, LEAST_MEMORY)?;
    let machine = flat.with_spare(ByteSize(0))?;
    let movable = args.yard.movable.unwrap_or(MOVABLE);
    let zone = movable.of(flat.memory);
    let plan = plan(args, zone, machine.geometry.size_of(machine.geometry.pageblock_order().pages()))?;
    let options = BootOptions {
        backing: FrameBacking::Real,
        movable: Some(movable),
        map_init: InitArgs::default().map_init(InitMode::Eager, &machine)?,
        map_limit: MapLimit::Full,
        ..BootOptions::of(&args.machine, &args.yard)
    };
    let bar = progress_bar(NAME, args.lru_policies.len() as u64 * u64::from(args.repeat.get()));
    let mut rows = Vec::new();
    for &lru in &args.lru_policies {
        for number in 0..args.repeat.get() {
            let plan = ContigPlan { seed: task_seed(args.seed, number), ..plan };
            let run = with_fixture(&machine, &options, lru, |fixture| Ok(contig::run(fixture, &plan)?))?;
            rows.extend(run.attempts.iter().map(|attempt| row(lru, number, &plan, &run, attempt)));
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Report::new(NAME, rows).of_machine(flat.name()).note(NOTE).print(&args.output)
}

/// The plan of the runs, if the zone has room for it.
fn plan(args: &ContigArgs, zone: ByteSize, pageblock: ByteSize) -> Result<ContigPlan, Failure> {
    let refuse = |reason: String| Err(Failure::input(reason));
    if !args.size.0.is_multiple_of(pageblock.0) {
        return refuse(format!("--size {}: write a multiple of a pageblock, {pageblock}", args.size));
    }
    if args.size > zone {
        return refuse(format!(
            "--size {}: the Movable zone has {}; request less, or give the machine more --memory or --movable",
            args.size,
            RoundedSize(zone)
        ));
    }
    let fill = args.fill.of(zone);
    let most = Amount::Percent(MOST_FILLED).of(zone);
    if fill > most {
        return refuse(format!(
            "--fill {fill}: tasks may use up to {MOST_FILLED}% of the Movable zone, which has {}",
            RoundedSize(zone)
        ));
    }
    Ok(ContigPlan { size: args.size, fill, most, tasks: args.tasks.get(), seed: args.seed })
}

/// A requested range. Rates are in 10⁹ bytes a second.
fn row(lru: LruPolicy, number: u32, plan: &ContigPlan, run: &ContigRun, attempt: &Attempt) -> Row {
    // Bytes in a nanosecond are 10⁹ bytes in a second.
    let rate = |bytes: u64| rounded(bytes as f64 / attempt.contig_ns.max(1) as f64);
    let taken = attempt.outcome.ok();
    let blocker = match attempt.outcome {
        Err(AllocError::Blocked(blocker)) => Some(blocker),
        _ => None,
    };
    let used_before = rounded(attempt.used_before.0 as f64 / run.zone.0.max(1) as f64);
    Row::new()
        .column("lru_policy", "LRU", lru.name())
        .data("run", number)
        .column("kind", "kind", attempt.asked.name())
        .data("zone_bytes", run.zone.0 * 4096)
        .column_as("used_share_before", "used %", Format::percent(0), used_before)
        .data("tasks", plan.tasks)
        .column_as("range_bytes", "range", Format::Size, plan.size.0)
        .column("outcome", "outcome", if taken.is_some() { "taken" } else { "blocked" })
        .data("first_frame", taken.map(|range| range.start.0))
        .data("blocked_frame", blocker.map(|blocker| blocker.pfn.0))
        .data("pinned_frame", attempt.pinned.map(|pfn| pfn.0))
        .column_as("contig_ns", "ms", Format::millions(1), attempt.contig_ns)
        .column("pages_moved", "pages moved", attempt.pages_moved)
        .minor()
        .column_as("gb_per_s", "GB/s", Format::number(2), taken.map(|_| rate(plan.size.0)))
        .column_as("moved_gb_per_s", "moved GB/s", Format::number(2), rate(attempt.pages_moved * 4096))
        .minor()
        .data("occupant_steps", attempt.occupant_steps)
        .data("checked_pages", run.checked)
        .data("data_intact", true)
        .column("blocked_by", "blocked by", attempt.outcome.err().map(|error| error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{assert_refused, read};

    #[test]
    fn a_bare_run_allocates_a_gibibyte_beside_two_tasks() {
        let args: ContigArgs = read("").unwrap();
        assert_eq!((args.size, args.fill, args.tasks.get()), (ByteSize::gib(1), Amount::Percent(50), 2));
        assert_refused::<ContigArgs>(&[
            ("--size 0", "more than nothing"),
            ("--fill half", "or a percentage, as in 25%"),
            ("--tasks none", "from 1"),
        ]);
    }
}
