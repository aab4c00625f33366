//! `bench report-free`: returning free memory to the host, and using it again.

use std::num::NonZeroU32;

use clap::Args;
use frameyard::boot::InitMode;
use frameyard::{ByteSize, Order, PageCount};
use frameyard_vm::LruPolicy;
use frameyard_workloads::report_free::{self, HELD_EACH, ReportRun};

use super::flat_machine::FlatMachine;
use crate::Failure;
use crate::args::values::{order, positive_number, positive_size, whole_number};
use crate::args::{InitArgs, MachineArgs, OutputArgs, QuickArgs, YardArgs};
use crate::boot::{BootOptions, FrameBacking, MapLimit};
use crate::fixture::with_fixture;
use crate::measure::median_first;
use crate::output::{Format, Report, Row, progress_bar, rounded};

/// What follows the options in the help text.
const HELP: &str = "\
Takes about 30 seconds; --quick about 10.

Example:
  frameyard bench report-free --order 9 --memory 2G";

/// Returns the memory behind free frames to the host, and uses it again
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(super) struct ReportFreeArgs {
    /// Minimum orders of the free blocks that are returned
    #[arg(long = "order", value_name = "ORDERS", value_delimiter = ',', value_parser = order, default_value = "0,4,9")]
    orders: Vec<Order>,

    /// The most memory that is returned [default: all]
    #[arg(long, value_name = "SIZE", value_parser = positive_size)]
    budget: Option<ByteSize>,

    /// Runs of each row, of which the median is reported
    #[arg(long, value_name = "N", default_value = "1", value_parser = positive_number)]
    repeat: NonZeroU32,

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

const NAME: &str = "bench report-free";
/// The least machine.
const LEAST_MEMORY: ByteSize = ByteSize::mib(64);

/// Runs with each minimum order.
pub(super) fn run(args: &ReportFreeArgs) -> Result<(), Failure> {
    let flat = FlatMachine::of(&args.machine, args.quick, NAME, LEAST_MEMORY)?;
    if let Some(highest) = args.orders.iter().max() {
        flat.check_order(NAME, *highest)?;
    }
    if args.yard.poison {
        return Err(Failure::input(format!(
            "{NAME} --poison: poisoned free frames keep their bytes, so none are returned; leave --poison out"
        )));
    }
    let machine = flat.with_spare(ByteSize(0))?;
    let options = BootOptions {
        backing: FrameBacking::Real,
        map_init: InitArgs::default().map_init(InitMode::Eager, &machine)?,
        map_limit: MapLimit::Full,
        ..BootOptions::of(&args.machine, &args.yard)
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
    let note = format!(
        "Free blocks of at least the order, in memory of which one frame in {HELD_EACH} is in use. ns: to allocate and write a page. \
    GB are 10^9 bytes."
    );
    Report::new(NAME, rows).of_machine(flat.name()).note(note).print(&args.output)
}

/// The runs with a minimum order. Rates are in 10⁹ bytes a second.
fn row(order: Order, args: &ReportFreeArgs, runs: Vec<ReportRun>) -> Row {
    let number = runs.len();
    let (run, _) = median_first(runs, |run| run.report_ns as f64);
    let bytes = |pages: PageCount| pages.0 * 4096;
    let reported = bytes(run.reported.pages);
    let share = (reported as f64 / bytes(run.free).max(1) as f64 * 1e4).round() / 1e4;
    // Bytes in a nanosecond are 10⁹ bytes in a second.
    let rate = rounded(reported as f64 / run.report_ns.max(1) as f64);
    Row::new()
        .column("min_order", "order", order.0)
        .data("runs", number)
        .data("budget_bytes", args.budget.map(|budget| budget.0))
        .column_as("free_bytes", "free", Format::Size, bytes(run.free))
        .column_as("reported_bytes", "returned", Format::Size, reported)
        .column("reported_blocks", "blocks", run.reported.blocks)
        .minor()
        .column_as("reported_share", "share %", Format::percent(1), share)
        .column_as("resident_before", "resident before", Format::Size, run.resident_before.0)
        .minor()
        .column_as("resident_after", "after", Format::Size, run.resident_after.0)
        .minor()
        .column_as("resident_again", "used again", Format::Size, run.resident_again.0)
        .minor()
        .data("reported_after_use", bytes(run.reported_after_use))
        .column_as("report_ns", "ms", Format::millions(1), run.report_ns)
        .data("report_block_ns", rounded(run.report_ns as f64 / run.reported.blocks.max(1) as f64))
        .column_as("report_gb_per_s", "GB/s", Format::number(1), rate)
        .column_as("first_use_page_ns", "first use ns", Format::number(0), rounded(run.first_use_page_ns))
        .column_as("use_again_page_ns", "again ns", Format::number(0), rounded(run.use_again_page_ns))
        .data("checked_pages", run.checked)
        .data("data_intact", true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{assert_refused, read};

    #[test]
    fn a_bare_run_returns_blocks_of_three_orders() {
        let args: ReportFreeArgs = read("").unwrap();
        assert_eq!((args.orders, args.budget), (vec![Order(0), Order(4), Order(9)], None));
        assert_refused::<ReportFreeArgs>(&[("--order 16", "from 0 to 15"), ("--budget lots", "write digits")]);
    }
}
