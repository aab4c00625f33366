//! `bench contig`: contiguous ranges out of a zone that tasks use all the time.

use std::io::{self, Write};

use frameyard::{ByteSize, ContigError, InitMode};
use frameyard_vm::LruPolicy;
use serde::Serialize;

use super::flat_machine::FlatMachine;
use crate::Failure;
use crate::bring_up::{BringUp, FrameBacking, MapLimit};
use crate::cli::{Amount, ContigArgs, InitArgs};
use crate::output::{self, RoundedSize, Table, progress_bar, rounded};
use frameyard_workloads::contig::{self, Attempt, ContigPlan, ContigRun};
use crate::fixture::with_fixture;
use frameyard_workloads::task_seed;

/// The name of the command.
const NAME: &str = "bench contig";
/// The least machine.
const LEAST_MEMORY: ByteSize = ByteSize::mib(64);
/// The part of memory that is Movable, unless asked for otherwise.
const MOVABLE: Amount = Amount::Percent(75);
/// The part of the zone that tasks may use, in percent: they need some room to map.
const MOST_FILLED: u8 = 90;

/// Runs with each policy of the lists of used pages.
pub(super) fn run(args: &ContigArgs) -> Result<(), Failure> {
    let flat = FlatMachine::of(&args.machine, NAME, LEAST_MEMORY)?;
    let machine = flat.with_spare(ByteSize(0))?;
    let movable = args.yard.movable.unwrap_or(MOVABLE);
    let zone = movable.of(flat.memory);
    let plan = plan(args, zone, machine.geometry.size_of(machine.geometry.pageblock_order().pages()))?;
    let options = BringUp {
        backing: FrameBacking::Real,
        movable: Some(movable),
        map_init: InitArgs::default().map_init(InitMode::Eager, &machine)?,
        map_limit: MapLimit::Full,
        ..BringUp::of(&args.machine, &args.yard)
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
    output::print_rows(NAME, flat.name(), &rows, write_rows, &args.output)
}

/// What is run, where the zone has room for it.
fn plan(args: &ContigArgs, zone: ByteSize, pageblock: ByteSize) -> Result<ContigPlan, Failure> {
    let refuse = |reason: String| Err(Failure::input(reason));
    if !args.size.0.is_multiple_of(pageblock.0) {
        return refuse(format!("--size {}: write a multiple of a pageblock, {pageblock}", args.size));
    }
    if args.size > zone {
        return refuse(format!(
            "--size {}: the Movable zone has {}; ask for less, or give the machine more --memory or --movable",
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

/// A range that was asked for. Rates are in 10⁹ bytes a second.
#[derive(Serialize, Debug)]
struct Row {
    lru_policy: &'static str,
    run: u32,
    kind: &'static str,
    zone_bytes: u64,
    used_share_before: f64,
    tasks: u32,
    range_bytes: u64,
    outcome: &'static str,
    first_frame: Option<u64>,
    blocked_frame: Option<u64>,
    blocked_by: Option<String>,
    pinned_frame: Option<u64>,
    contig_ns: u64,
    pages_moved: u64,
    gb_per_s: Option<f64>,
    moved_gb_per_s: f64,
    occupant_steps: u64,
    checked_pages: u64,
    data_intact: bool,
}

fn row(lru: LruPolicy, number: u32, plan: &ContigPlan, run: &ContigRun, attempt: &Attempt) -> Row {
    // Bytes in a nanosecond are 10⁹ bytes in a second.
    let rate = |bytes: u64| rounded(bytes as f64 / attempt.contig_ns.max(1) as f64);
    let taken = attempt.outcome.ok();
    let blocker = match attempt.outcome {
        Err(ContigError::Blocked(blocker)) => Some(blocker),
        _ => None,
    };
    Row {
        lru_policy: lru.name(),
        run: number,
        kind: attempt.asked.name(),
        zone_bytes: run.zone.0 * 4096,
        used_share_before: rounded(attempt.used_before.0 as f64 / run.zone.0.max(1) as f64),
        tasks: plan.tasks,
        range_bytes: plan.size.0,
        outcome: if taken.is_some() { "taken" } else { "blocked" },
        first_frame: taken.map(|range| range.start.0),
        blocked_frame: blocker.map(|blocker| blocker.pfn.0),
        blocked_by: attempt.outcome.err().map(|error| error.to_string()),
        pinned_frame: attempt.pinned.map(|pfn| pfn.0),
        contig_ns: attempt.contig_ns,
        pages_moved: attempt.pages_moved,
        gb_per_s: taken.map(|_| rate(plan.size.0)),
        moved_gb_per_s: rate(attempt.pages_moved * 4096),
        occupant_steps: attempt.occupant_steps,
        checked_pages: run.checked,
        data_intact: true,
    }
}

/// Writes rows for people.
fn write_rows(out: &mut dyn Write, rows: &[Row]) -> io::Result<()> {
    let mut table = Table::new([
        "LRU",
        "kind",
        "range",
        "used %",
        "outcome",
        "pages moved",
        "ms",
        "GB/s",
        "moved GB/s",
        "blocked by",
    ]);
    for row in rows {
        table.push([
            row.lru_policy.to_owned(),
            row.kind.to_owned(),
            RoundedSize(ByteSize(row.range_bytes)).to_string(),
            format!("{:.0}", row.used_share_before * 100.0),
            row.outcome.to_owned(),
            row.pages_moved.to_string(),
            format!("{:.1}", row.contig_ns as f64 / 1e6),
            row.gb_per_s.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.2}")),
            format!("{:.2}", row.moved_gb_per_s),
            row.blocked_by.clone().unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    table.write(out)?;
    writeln!(
        out,
        "\nTasks fault, write, read and unmap all the while. busy: a range anywhere; pinned: a certain one, with a pinned page\n\
         in it; unpinned: the same without the pin, set to zero. GB are 10^9 bytes. All contents were checked."
    )
}
