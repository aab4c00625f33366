//! `bench fault-cost`: the cost of a fault and its unmap beyond the zeroing of the page, in rounds that alternate.

use frameyard::ByteSize;
use frameyard::boot::InitMode;
use frameyard::policy::ZonePolicy;
use frameyard_host::LockTiming;
use frameyard_vm::LruPolicy;

use crate::Failure;
use crate::bring_up::{BringUp, FrameBacking};
use crate::chosen_machine::ChosenMachine;
use crate::cli::{FaultCostArgs, InitArgs};
use crate::fixture::with_fixture;
use crate::measure::Spread;
use crate::output::{Format, Report, RoundedSize, Row, progress_bar, rounded};
use frameyard_workloads::fault_cost::{self, FaultCostRound};

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
    chosen.print_notes();
    let has = chosen.machine.memory_bytes();
    if args.map.0 < 1 << 21 || !args.map.0.is_multiple_of(1 << 21) || args.map.0 > has.0 / 2 {
        let most = RoundedSize(ByteSize(has.0 / 2));
        return Err(Failure::input(format!(
            "--map {}: write a multiple of 2M, up to half of the machine's memory, which is {most}",
            RoundedSize(args.map)
        )));
    }
    let map_init = InitArgs::default().map_init(InitMode::Eager, &chosen.machine)?;
    let backing = FrameBacking::Real;
    let options = BringUp { map_init, backing, ..BringUp::of(&args.machine, &args.yard) };
    let bar = progress_bar(NAME, args.policies.pairs().count() as u64);
    let mut rows = Vec::new();
    for (policy, lru) in args.policies.pairs() {
        let rounds = with_fixture(&chosen.machine, &BringUp { policy, ..options }, lru, |fixture| {
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
