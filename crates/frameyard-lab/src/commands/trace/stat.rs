//! `trace stat`: counts the events of a recorded trace.

mod counted;

use std::path::PathBuf;

use clap::{Args, ValueHint};
use frameyard::{MigrateType, Order, PageCount};
use frameyard_traces::{GfpFlags, Imported};
use serde_json::Value;

use counted::{Counted, Flow, LIFETIMES_US};

use super::input::{bad_input, open};
use crate::Failure;
use crate::output::{Format, OutputArgs, Report, Row, rounded};

/// What follows the options in the help text.
const HELP: &str = "\
Reads any format that `trace import` reads. The migration type of a freed block is that of its allocation, which the
trace has only where it covers it. A frame freed in a batch has two events and counts once.

Examples:
  frameyard trace stat build.trace.zst
  frameyard trace stat - --json";

const NOTE: &str = "Pages allocated and freed by order and migration type; unknown: allocated before the recording. Live pages are those that the \
    trace allocates and does not free.";

/// Counts the events of a recorded trace: pages by order, type and flags, lifetimes, live pages over time, refills and drains
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(super) struct StatArgs {
    /// A recorded trace; - reads standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,

    #[command(flatten)]
    output: OutputArgs,
}

/// Reads the trace and prints what it has.
pub(super) fn run(args: &StatArgs) -> Result<(), Failure> {
    let (counted, imported) = Counted::read(open(&args.file)?).map_err(|error| bad_input(&args.file, error))?;
    if imported.events == 0 {
        return Err(bad_input(&args.file, "no event of the page allocator"));
    }
    counted.report(&imported).print(&args.output)
}

impl Counted {
    /// Values of the whole trace.
    fn totals(&self, imported: &Imported) -> Row {
        let allocated = self.pages_allocated();
        let seconds = self.times.map_or(0.0, |(first, last)| (last - first) as f64 / 1e6);
        let per_s = (seconds > 0.0).then(|| (allocated as f64 / seconds).round());
        let per_thousand = |pages: u64| ratio(pages as f64 * 1000.0, allocated);
        let lost = self.facts.number("lost_events").unwrap_or(0).max(imported.lost);
        Row::new()
            .column("events", "events", imported.events)
            .data("other_events", imported.others)
            .data("is_truncated", imported.is_truncated)
            .column("lost_events", "lost", lost)
            .column_as("seconds", "seconds", Format::number(2), rounded(seconds))
            .column("pages_allocated", "pages allocated", allocated)
            .column("pages_freed", "freed", self.pages(|flow| flow.freed))
            .column_as("pages_per_s", "pages/s", Format::number(0), per_s)
            .column("peak_live_pages", "peak live", self.peak_pages)
            .column("live_pages", "live at end", self.live_pages)
            .data("failed_allocations", self.failed)
            .data("pages_freed_in_batches", self.freed_in_batches)
            .column("blocks_freed_elsewhere", "freed by another CPU", self.freed_elsewhere)
            .minor()
            .data("blocks_allocated_twice", self.allocated_twice)
            .data("extfrag_events", self.extfrag)
            .column("zone_locked_pages_per_1000", "zone lock/1000", per_thousand(self.zone_locked_pages))
            .minor()
            .data("refilled_pages_per_1000", per_thousand(self.refilled_pages))
            .column("drained_pages_per_1000", "drained/1000", per_thousand(self.drained_pages))
            .minor()
    }

    /// Values of the recorded command.
    fn command(&self) -> Row {
        let [user, system, faults] = ["user_ms", "system_ms", "minor_faults"].map(|name| self.facts.number(name));
        let allocated = self.pages_allocated();
        let us_per_page = |ms: Option<u64>| ratio(ms? as f64 * 1000.0, allocated);
        let per_fault = faults.and_then(|faults| ratio(allocated as f64, faults));
        Row::new()
            .column("traced_command", "command", self.facts.text("command"))
            .column("scope", "traced", self.facts.text("scope"))
            .column("exit_code", "exit", self.facts.number("exit_code"))
            .column("user_ms", "user ms", user)
            .column("system_ms", "system ms", system)
            .column("minor_faults", "page faults", faults)
            .column_as("pages_per_fault", "pages/fault", Format::number(2), per_fault)
            .column_as("user_us_per_page", "user µs/page", Format::number(2), us_per_page(user))
            .column_as("system_us_per_page", "system µs/page", Format::number(2), us_per_page(system))
    }

    fn report(&self, imported: &Imported) -> Report {
        let rows: Vec<Row> = self.flows.iter().map(|(of, flow)| row(*of, *flow)).collect();
        let (totals, command) = (self.totals(imported), self.command());
        let (flags, lifetimes, live) = (self.by_flags(), self.by_lifetime(), self.live_rows());
        let mut report = Report::new("trace stat", rows.clone())
            .total("by_flags", objects(&flags))
            .total("lifetimes", objects(&lifetimes))
            .total("live_over_time", objects(&live));
        for (key, value) in totals.object().into_iter().chain(command.object()) {
            report = report.total(&key, value);
        }
        report = report.table([totals]);
        if self.facts.text("command").is_some() {
            report = report.title("The recorded command").table([command]);
        }
        report = report.title("By order and migration type").table(rows);
        report = report.title("Requests by flags").table(flags);
        report = report.title("Time from allocation to free").table(lifetimes);
        report = report.title("Live pages over time").table(live);
        if imported.is_truncated {
            report = report.note("The end of the recording is missing.");
        }
        report.note(NOTE)
    }

    /// A row for each set of flags, that with the most pages first.
    fn by_flags(&self) -> Vec<Row> {
        let mut flags: Vec<_> = self.flags.iter().collect();
        flags.sort_by_key(|(_, (_, pages))| std::cmp::Reverse(*pages));
        let row = |(flags, (requests, pages)): (&GfpFlags, &(u64, u64))| {
            Row::new()
                .column("gfp_flags", "flags", flags.to_string())
                .column("requests", "requests", *requests)
                .column("pages", "pages", *pages)
        };
        flags.into_iter().map(row).collect()
    }

    /// A row for each range of lifetimes. The last has no limit.
    fn by_lifetime(&self) -> Vec<Row> {
        let limits = LIFETIMES_US.into_iter().map(Some).chain([None]);
        let row = |(below, (blocks, pages)): (Option<u64>, &(u64, u64))| {
            Row::new()
                .column("below_us", "below µs", below)
                .column("blocks", "blocks", *blocks)
                .column("pages", "pages", *pages)
        };
        limits.zip(&self.lifetimes).map(row).collect()
    }

    fn live_rows(&self) -> Vec<Row> {
        let first = self.times.map_or(0, |(first, _)| first);
        let row = |(time_us, pages): (u64, u64)| {
            let seconds = rounded(time_us.saturating_sub(first) as f64 / 1e6);
            Row::new().column_as("seconds", "seconds", Format::number(2), seconds).column(
                "live_pages",
                "live pages",
                pages,
            )
        };
        self.live_over_time.get().map(row).collect()
    }
}

/// Rows as JSON.
fn objects(rows: &[Row]) -> Vec<Value> {
    rows.iter().map(|row| Value::Object(row.object())).collect()
}

fn ratio(value: f64, of: u64) -> Option<f64> {
    (of > 0).then(|| rounded(value / of as f64))
}

/// The row of an order and type.
fn row((order, migrate_type): (Order, Option<MigrateType>), flow: Flow) -> Row {
    let PageCount(pages) = order.pages();
    Row::new()
        .column("order", "order", order.0)
        .column("migrate_type", "type", migrate_type.map_or("unknown", MigrateType::name))
        .column("blocks_allocated", "blocks allocated", flow.allocated)
        .column("blocks_freed", "freed", flow.freed)
        .column("pages_allocated", "pages allocated", flow.allocated * pages)
        .column("pages_freed", "freed", flow.freed * pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(lines: &[&str]) -> (Counted, Imported) {
        let line = |(at, event): (usize, &&str)| match event.split_once(' ') {
            Some(("0" | "1", rest)) => format!("x-7 [00{}] ..... 0.00000{at}: {rest}\n", &event[..1]),
            _ => format!("{event}\n"),
        };
        let text: String = lines.iter().enumerate().map(line).collect();
        Counted::read(text.as_bytes()).unwrap()
    }

    #[test]
    fn live_pages_rise_and_fall_and_their_peak_stays() {
        let (counted, imported) = counted(&[
            "0 mm_page_alloc: page=0 pfn=0x8 order=2 migratetype=1 gfp_flags=A",
            "0 mm_page_alloc: page=0 pfn=0x9 order=0 migratetype=0 gfp_flags=A",
            "1 mm_page_free: page=0 pfn=0x8 order=2",
            "0 mm_page_free: page=0 pfn=0x77 order=0",
            "0 mm_page_free_batched: page=0 pfn=0x77 order=0",
            "0 mm_page_alloc: page=0 pfn=0x0 order=9 migratetype=1 gfp_flags=A",
            "0 mm_page_alloc: page=0 pfn=0x9 order=0 migratetype=0 gfp_flags=A",
            "CPU:1 [LOST 5 EVENTS]",
        ]);
        assert_eq!((counted.peak_pages, counted.live_pages), (5, 1));
        assert_eq!((counted.pages(|flow| flow.allocated), counted.pages(|flow| flow.freed)), (6, 5));
        assert_eq!((counted.failed, counted.freed_in_batches, counted.allocated_twice, imported.lost), (1, 1, 1, 5));
        assert_eq!((counted.freed_elsewhere, counted.times), (1, Some((0, 6))));
        let below: Vec<u64> = counted.lifetimes.iter().map(|(blocks, _)| *blocks).collect();
        assert_eq!((below, counted.flags.len()), (vec![1, 0, 0, 0, 0, 0, 0, 0], 1));
        assert_eq!(counted.live_over_time.get().last(), Some((6, 1)));
        let unknown = counted.flows[&(Order(0), None)];
        assert_eq!(unknown, Flow { allocated: 0, freed: 1 });
    }

    #[test]
    fn the_lines_of_a_recorded_command_give_times_per_page() {
        let command = counted(&[
            "0 mm_page_alloc: page=0 pfn=0x8 order=2 migratetype=1 gfp_flags=A",
            "# frameyard command: make",
            "# frameyard user_ms: 2",
            "# frameyard minor_faults: 8",
        ])
        .0
        .command();
        assert_eq!((command.text("traced_command"), command.number("user_us_per_page")), (Some("make"), Some(500.0)));
        assert_eq!((command.number("pages_per_fault"), command.number("system_us_per_page")), (Some(0.5), None));
    }
}
