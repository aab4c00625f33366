//! `bench fault-cost`: the cost of a fault and its unmap beyond the zeroing of the page, in rounds that alternate.

use std::num::NonZeroU32;

use clap::Args;
use frameyard::ByteSize;
use frameyard::boot::InitMode;
use frameyard::policy::ZonePolicy;
use frameyard_host::LockTiming;
use frameyard_vm::LruPolicy;
use frameyard_workloads::fault_cost::{self, FaultCostRound};

use crate::Failure;
use crate::args::values::positive_number;
use crate::args::{InitArgs, MachineArgs, OutputArgs, PolicyArgs, QuickArgs, YardArgs};
use crate::boot::{BootOptions, FrameBacking};
use crate::chosen_machine::ChosenMachine;
use crate::fixture::with_fixture;
use crate::measure::Spread;
use crate::output::{Format, Report, RoundedSize, Row, progress_bar, rounded};

/// What follows the options in the help text.
const HELP: &str = "\
Takes about 10 seconds; --quick about 3.

Example:
  frameyard bench fault-cost --policy vanilla,bits --lru vanilla";

/// Compares a fault and its unmap with the zeroing of the page
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(super) struct FaultCostArgs {
    #[command(flatten)]
    policies: PolicyArgs,
    /// Memory that is mapped at a time
    #[arg(long, value_name = "SIZE", default_value = "128M")]
    map: ByteSize,
    /// Rounds, of which the median is reported
    #[arg(long, value_name = "N", default_value = "21", default_value_if("quick", "true", "5"), value_parser = positive_number)]
    repeat: NonZeroU32,
    #[command(flatten)]
    quick: QuickArgs,
    #[command(flatten)]
    machine: MachineArgs,
    #[command(flatten)]
    yard: YardArgs,
    #[command(flatten)]
    output: OutputArgs,
}

const NAME: &str = "bench fault-cost";
/// Memory of the machine unless the command line says otherwise.
const DEFAULT_MEMORY: ByteSize = ByteSize::gib(1);
/// A fault and its unmap may cost this many times the zeroing of a page …
const ZEROING_FACTOR: f64 = 1.3;
/// … and this many nanoseconds more.
const ALLOWANCE_NS: f64 = 100.0;

/// Measures each pair of policies.
pub(super) fn run(args: &FaultCostArgs) -> Result<(), Failure> {
    args.machine.refuse_phantom(NAME, "pages need memory behind them")?;
    let chosen = ChosenMachine::with_memory(&args.machine, DEFAULT_MEMORY)?;
    let has = chosen.machine.memory_bytes();
    if args.map.0 < 1 << 21 || !args.map.0.is_multiple_of(1 << 21) || args.map.0 > has.0 / 2 {
        let most = RoundedSize(ByteSize(has.0 / 2));
        return Err(Failure::input(format!(
            "--map {}: write a multiple of 2M, up to half of the machine's memory, which is {most}",
            RoundedSize(args.map)
        )));
    }
    let map_init = InitArgs::default().map_init(InitMode::Eager, &chosen.machine)?;
    chosen.print_notes();
    let backing = FrameBacking::Real;
    let options = BootOptions { map_init, backing, ..BootOptions::of(&args.machine, &args.yard) };
    let bar = progress_bar(NAME, args.policies.pairs().count() as u64);
    let mut rows = Vec::new();
    for (policy, lru) in args.policies.pairs() {
        let rounds = with_fixture(&chosen.machine, &BootOptions { policy, ..options }, lru, |fixture| {
            // Reading the clock twice for each acquisition of a lock would be part of the cost.
            fixture.vm.yard().platform().time_locks(LockTiming::Off);
            Ok(fault_cost::run(fixture, args.map, args.repeat.get())?)
        })?;
        rows.push(row(policy, lru, args.map, &rounds));
        bar.inc(1);
    }
    bar.finish_and_clear();
    let note = format!(
        "Of a page of 4 KiB: medians (minimum–maximum) of rounds that alternate. Allowed: {ZEROING_FACTOR} times the zeroing and {ALLOWANCE_NS:.0} ns."
    );
    Report::new(NAME, rows).of_machine(chosen.machine.name).note(note).print(&args.output)
}

/// The medians of a pair of policies. Times are of one page.
fn row(zone: ZonePolicy, lru: LruPolicy, map: ByteSize, rounds: &[FaultCostRound]) -> Row {
    let ns = Format::number(0);
    let spread = |of: fn(&FaultCostRound) -> f64| Spread::of(rounds.iter().map(of)).map(|spread| spread.map(rounded));
    let median = |of| spread(of).map(|spread| spread.median);
    Row::new()
        .column("zone_policy", "zone policy", zone.name())
        .column("lru_policy", "LRU policy", lru.name())
        .data("map_bytes", map.0)
        .data("rounds", rounds.len())
        .spread("fault_and_unmap_ns", "fault+unmap ns", ns, spread(|round| round.fault_and_unmap_ns))
        .column_as("fault_ns", "fault ns", ns, median(|round| round.fault_ns))
        .minor()
        .column_as("unmap_ns", "unmap ns", ns, median(|round| round.unmap_ns))
        .minor()
        .spread("zero_ns", "zeroing ns", ns, spread(|round| round.zero_ns))
        .column_as("allocate_and_free_ns", "alloc+free ns", ns, median(|round| round.allocate_and_free_ns))
        .minor()
        .column_as(
            "beyond_zeroing_ns",
            "beyond zeroing ns",
            ns,
            median(|round| round.fault_and_unmap_ns - round.zero_ns),
        )
        .minor()
        .column_as("allowed_ns", "allowed ns", ns, median(|round| ZEROING_FACTOR * round.zero_ns + ALLOWANCE_NS))
}
