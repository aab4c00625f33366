//! `bench report-free`: free memory given back to the host, and used again.

use std::io::{self, Write};

use frameyard::{ByteSize, InitMode, Order, PageCount};
use frameyard_vm::LruPolicy;
use serde::Serialize;

use super::comparison::median_first;
use super::flat_machine::FlatMachine;
use crate::Failure;
use crate::bring_up::{BringUp, FrameBacking, MapLimit};
use crate::cli::{InitArgs, ReportFreeArgs};
use crate::output::{self, RoundedSize, Table, progress_bar, rounded};
use crate::fixture::with_fixture;
use frameyard_workloads::report_free::{self, HELD_EACH, ReportRun};

/// The name of the command.
const NAME: &str = "bench report-free";
/// The least machine.
const LEAST_MEMORY: ByteSize = ByteSize::mib(64);

/// Runs with each smallest order.
pub(super) fn run(args: &ReportFreeArgs) -> Result<(), Failure> {
    let flat = FlatMachine::of(&args.machine, NAME, LEAST_MEMORY)?;
    if let Some(highest) = args.orders.iter().max() {
        flat.check_order(NAME, *highest)?;
    }
    if args.yard.poison {
        return Err(Failure::input(format!(
            "{NAME} --poison: free frames that are poisoned keep their bytes, so none are given back; leave --poison out"
        )));
    }
    let machine = flat.with_spare(ByteSize(0))?;
    let options = BringUp {
        backing: FrameBacking::Real,
        map_init: InitArgs::default().map_init(InitMode::Eager, &machine)?,
        map_limit: MapLimit::Full,
        ..BringUp::of(&args.machine, &args.yard)
    };
    let budget = args.budget.map_or(PageCount(u64::MAX), |budget| machine.geometry.pages_in(budget));
    let repeat = u64::from(args.repeat.get());
    let bar = progress_bar(NAME, args.orders.len() as u64 * repeat);
    let mut rows = Vec::new();
    for &order in &args.orders {
        let once = |_| {
            let run = with_fixture(&machine, &options, LruPolicy::default(), |fixture| {
                Ok(report_free::run(fixture, order, budget, args.seed)?)
            });
            bar.inc(1);
            run
        };
        rows.push(row(order, args, (0..repeat).map(once).collect::<Result<_, _>>()?));
    }
    bar.finish_and_clear();
    output::print_rows(NAME, flat.name(), &rows, write_rows, &args.output)
}

/// The runs with a smallest order. Rates are in 10⁹ bytes a second.
#[derive(Serialize, Debug)]
struct Row {
    min_order: u8,
    runs: u64,
    budget_bytes: Option<u64>,
    free_bytes: u64,
    reported_bytes: u64,
    reported_blocks: u64,
    reported_share: f64,
    resident_before: u64,
    resident_after: u64,
    resident_again: u64,
    reported_after_use: u64,
    report_ns: u64,
    report_block_ns: f64,
    report_gb_per_s: f64,
    first_use_page_ns: f64,
    use_again_page_ns: f64,
    checked_pages: u64,
    data_intact: bool,
}

fn row(order: Order, args: &ReportFreeArgs, runs: Vec<ReportRun>) -> Row {
    let number = runs.len() as u64;
    let (run, _) = median_first(runs, |run| run.report_ns as f64);
    let bytes = |pages: PageCount| pages.0 * 4096;
    let reported = bytes(run.reported.pages);
    Row {
        min_order: order.0,
        runs: number,
        budget_bytes: args.budget.map(|budget| budget.0),
        free_bytes: bytes(run.free),
        reported_bytes: reported,
        reported_blocks: run.reported.blocks,
        reported_share: (reported as f64 / bytes(run.free).max(1) as f64 * 1e4).round() / 1e4,
        resident_before: run.resident_before.0,
        resident_after: run.resident_after.0,
        resident_again: run.resident_again.0,
        reported_after_use: bytes(run.reported_after_use),
        report_ns: run.report_ns,
        report_block_ns: rounded(run.report_ns as f64 / run.reported.blocks.max(1) as f64),
        // Bytes in a nanosecond are 10⁹ bytes in a second.
        report_gb_per_s: rounded(reported as f64 / run.report_ns.max(1) as f64),
        first_use_page_ns: rounded(run.first_use_page_ns),
        use_again_page_ns: rounded(run.use_again_page_ns),
        checked_pages: run.checked,
        data_intact: true,
    }
}

/// Writes rows for people.
fn write_rows(out: &mut dyn Write, rows: &[Row]) -> io::Result<()> {
    let size = |bytes| RoundedSize(ByteSize(bytes)).to_string();
    let mut table = Table::new([
        "order",
        "free",
        "given back",
        "share %",
        "blocks",
        "ms",
        "GB/s",
        "resident before",
        "after",
        "used again",
        "first use ns",
        "again ns",
    ]);
    for row in rows {
        table.push([
            row.min_order.to_string(),
            size(row.free_bytes),
            size(row.reported_bytes),
            format!("{:.1}", row.reported_share * 100.0),
            row.reported_blocks.to_string(),
            format!("{:.1}", row.report_ns as f64 / 1e6),
            format!("{:.1}", row.report_gb_per_s),
            size(row.resident_before),
            size(row.resident_after),
            size(row.resident_again),
            format!("{:.0}", row.first_use_page_ns),
            format!("{:.0}", row.use_again_page_ns),
        ]);
    }
    table.write(out)?;
    writeln!(
        out,
        "\nFree blocks of at least the order, in memory of which one frame in {HELD_EACH} is in use. ns: to allocate and write a\n\
         page. GB are 10^9 bytes."
    )
}
