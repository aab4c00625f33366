//! `bench fault-cost`: what a fault and its unmap cost beyond the zeroing of the page, in rounds that alternate.

use std::io::{self, Write};

use frameyard::{ByteSize, InitMode, ZonePolicy};
use frameyard_host::LockTiming;
use frameyard_vm::LruPolicy;
use serde::Serialize;

use crate::Failure;
use crate::bring_up::{BringUp, FrameBacking};
use crate::chosen_machine::ChosenMachine;
use crate::cli::{FaultCostArgs, InitArgs, MachineArgs};
use frameyard_workloads::measure::Spread;
use crate::output::{self, RoundedSize, Table, rounded};
use frameyard_workloads::fault_cost::{self, FaultCostRound};
use crate::fixture::with_fixture;

/// The name of the command.
const NAME: &str = "bench fault-cost";
/// How much memory the machine has unless something else is asked for.
const DEFAULT_MEMORY: ByteSize = ByteSize::gib(1);
/// What a fault and its unmap may cost: so many times the zeroing of a page …
const ZEROING_FACTOR: f64 = 1.3;
/// … and so many nanoseconds more.
const ALLOWANCE_NS: f64 = 100.0;

/// Measures each pair of policies.
pub(super) fn run(args: &FaultCostArgs) -> Result<(), Failure> {
    if args.machine.phantom {
        return Err(Failure::input(format!("{NAME} --phantom: pages need memory behind them; leave --phantom out")));
    }
    let memory = args.machine.memory.or_else(|| args.machine.machine.is_none().then_some(DEFAULT_MEMORY));
    let chosen = ChosenMachine::of(&MachineArgs { memory, ..args.machine.clone() })?;
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
    let mut rows = Vec::new();
    for (policy, lru) in args.policies.pairs() {
        let rounds = with_fixture(&chosen.machine, &BringUp { policy, ..options }, lru, |fixture| {
            // Two looks at the clock for each acquisition of a lock would be part of the cost.
            fixture.vm.yard().platform().time_locks(LockTiming::Off);
            Ok(fault_cost::run(fixture, args.map, args.repeat.get())?)
        })?;
        rows.push(FaultCostRow::new(policy, lru, args.map, &rounds));
    }
    output::print_rows(NAME, &chosen.machine.name, &rows, write_rows, &args.output)
}

/// A pair's medians. Times are of one page.
#[derive(Serialize, Debug)]
struct FaultCostRow {
    zone_policy: &'static str,
    lru_policy: &'static str,
    map_bytes: u64,
    rounds: usize,
    fault_and_unmap_ns: f64,
    fault_and_unmap_ns_min: f64,
    fault_and_unmap_ns_max: f64,
    fault_ns: f64,
    unmap_ns: f64,
    zero_ns: f64,
    zero_ns_min: f64,
    zero_ns_max: f64,
    allocate_and_free_ns: f64,
    beyond_zeroing_ns: f64,
    allowed_ns: f64,
}

impl FaultCostRow {
    fn new(zone: ZonePolicy, lru: LruPolicy, map: ByteSize, rounds: &[FaultCostRound]) -> Self {
        let spread = |of: fn(&FaultCostRound) -> f64| {
            Spread::of(rounds.iter().map(of)).unwrap_or(Spread { median: f64::NAN, min: f64::NAN, max: f64::NAN })
        };
        let (whole, zero) = (spread(|round| round.fault_and_unmap_ns), spread(|round| round.zero_ns));
        Self {
            zone_policy: zone.name(),
            lru_policy: lru.name(),
            map_bytes: map.0,
            rounds: rounds.len(),
            fault_and_unmap_ns: rounded(whole.median),
            fault_and_unmap_ns_min: rounded(whole.min),
            fault_and_unmap_ns_max: rounded(whole.max),
            fault_ns: rounded(spread(|round| round.fault_ns).median),
            unmap_ns: rounded(spread(|round| round.unmap_ns).median),
            zero_ns: rounded(zero.median),
            zero_ns_min: rounded(zero.min),
            zero_ns_max: rounded(zero.max),
            allocate_and_free_ns: rounded(spread(|round| round.allocate_and_free_ns).median),
            beyond_zeroing_ns: rounded(spread(|round| round.fault_and_unmap_ns - round.zero_ns).median),
            allowed_ns: rounded(spread(|round| ZEROING_FACTOR * round.zero_ns + ALLOWANCE_NS).median),
        }
    }
}

/// Writes rows for people.
fn write_rows(out: &mut dyn Write, rows: &[FaultCostRow]) -> io::Result<()> {
    let mut table = Table::new([
        "zone policy",
        "LRU policy",
        "fault+unmap ns",
        "fault ns",
        "unmap ns",
        "zeroing ns",
        "alloc+free ns",
        "beyond zeroing ns",
        "allowed ns",
    ]);
    for row in rows {
        table.push([
            row.zone_policy.to_owned(),
            row.lru_policy.to_owned(),
            format!(
                "{:.0} ({:.0}–{:.0})",
                row.fault_and_unmap_ns, row.fault_and_unmap_ns_min, row.fault_and_unmap_ns_max
            ),
            format!("{:.0}", row.fault_ns),
            format!("{:.0}", row.unmap_ns),
            format!("{:.0} ({:.0}–{:.0})", row.zero_ns, row.zero_ns_min, row.zero_ns_max),
            format!("{:.0}", row.allocate_and_free_ns),
            format!("{:.0}", row.beyond_zeroing_ns),
            format!("{:.0}", row.allowed_ns),
        ]);
    }
    table.write(out)?;
    writeln!(
        out,
        "\nOf a page of 4 KiB, medians (least–most) of rounds that alternate; allowed are {ZEROING_FACTOR} times the zeroing and \
         {ALLOWANCE_NS:.0} ns."
    )
}
