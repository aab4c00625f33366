//! `trace stat`: counts the events of a recorded trace.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use clap::{Args, ValueHint};
use frameyard::{CpuId, MigrateType, Order, PageCount};
use frameyard_formats::{PageEvent, TraceEvent, TraceLine, TracedBlock};

use super::facts::Facts;
use super::input::for_each_line;
use crate::Failure;
use crate::output::{Format, OutputArgs, Report, Row, rounded};

/// What follows the options in the help text.
const HELP: &str = "\
Reads ftrace text of the kmem tracepoints, plain or compressed by zstd. The migration type of a freed block is that of its
allocation, which the trace has only where it covers it. A frame freed in a batch has two events and counts once.

Examples:
  frameyard trace stat build.trace.zst
  frameyard trace stat - --json";

const NOTE: &str = "Pages allocated and freed by order and migration type; unknown: allocated before the recording. Live pages are those that the \
    trace allocates and does not free.";

/// Counts the events of a recorded trace: pages by order and migration type, rates, live pages
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
    let mut counted = Counted::default();
    for_each_line(&args.file, |line| counted.add(line))?;
    if counted.events == 0 {
        return Err(Failure::input(format!("{}: no event of the page allocator", args.file.display())));
    }
    counted.report().print(&args.output)
}

/// Blocks allocated and freed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Flow {
    allocated: u64,
    freed: u64,
}

/// A block that is allocated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Live {
    order: Order,
    migrate_type: MigrateType,
    cpu: CpuId,
}

/// The counts of a trace.
#[derive(Debug, Default)]
struct Counted {
    /// Events of the page allocator, of other tracepoints, and those that the kernel lost.
    events: u64,
    others: u64,
    lost: u64,
    times: Option<(u64, u64)>,
    /// By order and type; no type where the trace does not have the allocation.
    flows: BTreeMap<(Order, Option<MigrateType>), Flow>,
    failed: u64,
    freed_in_batches: u64,
    /// Frees on another CPU than that of the allocation.
    freed_elsewhere: u64,
    /// Allocations of a frame that was allocated: its free is missing.
    allocated_twice: u64,
    extfrag: u64,
    zone_locked_pages: u64,
    drained_pages: u64,
    live: HashMap<u64, Live>,
    live_pages: u64,
    peak_pages: u64,
    facts: Facts,
}

impl Counted {
    /// Adds a line.
    fn add(&mut self, line: TraceLine<'_>) {
        match line {
            TraceLine::Comment(comment) => self.facts.add_comment(comment),
            TraceLine::Lost(events) => self.lost += events,
            TraceLine::Other(_) => self.others += 1,
            TraceLine::Event(event) => self.add_event(&event),
        }
    }

    fn add_event(&mut self, TraceEvent { cpu, time_us, event, .. }: &TraceEvent<'_>) {
        self.events += 1;
        let (first, last) = self.times.unwrap_or((*time_us, *time_us));
        self.times = Some((first.min(*time_us), last.max(*time_us)));
        match event {
            PageEvent::Alloc { block: Some(block), migrate_type, .. } => {
                self.allocate(*block, Live { order: block.order, migrate_type: *migrate_type, cpu: *cpu });
            }
            PageEvent::Alloc { block: None, .. } => self.failed += 1,
            PageEvent::Free(block) => self.free(*block, *cpu),
            PageEvent::FreeBatched(_) => self.freed_in_batches += 1,
            PageEvent::AllocZoneLocked { block, .. } => self.zone_locked_pages += block.order.pages().0,
            PageEvent::PcpuDrain(block) => self.drained_pages += block.order.pages().0,
            PageEvent::ExtFrag => self.extfrag += 1,
        }
    }

    fn allocate(&mut self, block: TracedBlock, live: Live) {
        self.flows.entry((block.order, Some(live.migrate_type))).or_default().allocated += 1;
        if let Some(before) = self.live.insert(block.pfn.0, live) {
            self.allocated_twice += 1;
            self.live_pages -= before.order.pages().0;
        }
        self.live_pages += block.order.pages().0;
        self.peak_pages = self.peak_pages.max(self.live_pages);
    }

    fn free(&mut self, block: TracedBlock, cpu: CpuId) {
        let live = self.live.remove(&block.pfn.0);
        self.flows.entry((block.order, live.map(|live| live.migrate_type))).or_default().freed += 1;
        if let Some(live) = live {
            self.live_pages -= live.order.pages().0;
            self.freed_elsewhere += u64::from(live.cpu != cpu);
        }
    }

    /// Pages of all flows.
    fn pages(&self, blocks: impl Fn(&Flow) -> u64) -> u64 {
        self.flows.iter().map(|((order, _), flow)| blocks(flow) << order.0).sum()
    }

    fn pages_allocated(&self) -> u64 {
        self.pages(|flow| flow.allocated)
    }

    /// Values of the whole trace.
    fn totals(&self) -> Row {
        let allocated = self.pages_allocated();
        let seconds = self.times.map_or(0.0, |(first, last)| (last - first) as f64 / 1e6);
        let per_s = (seconds > 0.0).then(|| (allocated as f64 / seconds).round());
        let per_thousand = |pages: u64| ratio(pages as f64 * 1000.0, allocated);
        let lost = self.facts.number("lost_events").unwrap_or(0).max(self.lost);
        Row::new()
            .column("events", "events", self.events)
            .data("other_events", self.others)
            .column("lost_events", "lost", lost)
            .column_as("seconds", "seconds", Format::number(2), rounded(seconds))
            .column("pages_allocated", "pages allocated", allocated)
            .column("pages_freed", "freed", self.pages(|flow| flow.freed))
            .column_as("pages_per_s", "pages/s", Format::number(0), per_s)
            .column("peak_live_pages", "peak live", self.peak_pages)
            .column("live_pages", "live at end", self.live_pages)
            .data("failed_allocations", self.failed)
            .data("pages_freed_in_batches", self.freed_in_batches)
            .data("blocks_freed_elsewhere", self.freed_elsewhere)
            .data("blocks_allocated_twice", self.allocated_twice)
            .data("extfrag_events", self.extfrag)
            .column("zone_locked_pages_per_1000", "zone lock/1000", per_thousand(self.zone_locked_pages))
            .minor()
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

    fn report(&self) -> Report {
        let rows: Vec<Row> = self.flows.iter().map(|(of, flow)| row(*of, *flow)).collect();
        let (totals, command) = (self.totals(), self.command());
        let mut report = Report::new("trace stat", rows.clone());
        for (key, value) in totals.object().into_iter().chain(command.object()) {
            report = report.total(&key, value);
        }
        report = report.table([totals]);
        if self.facts.text("command").is_some() {
            report = report.title("The recorded command").table([command]);
        }
        report.title("By order and migration type").table(rows).note(NOTE)
    }
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

    fn counted(lines: &[&str]) -> Counted {
        let mut counted = Counted::default();
        for (at, event) in lines.iter().enumerate() {
            let line = match event.split_once(' ') {
                Some(("0" | "1", rest)) => format!("x-7 [00{}] ..... 0.00000{at}: {rest}", &event[..1]),
                _ => (*event).to_owned(),
            };
            counted.add(TraceLine::parse(&line).unwrap());
        }
        counted
    }

    #[test]
    fn live_pages_rise_and_fall_and_their_peak_stays() {
        let counted = counted(&[
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
        assert_eq!((counted.failed, counted.freed_in_batches, counted.allocated_twice, counted.lost), (1, 1, 1, 5));
        assert_eq!((counted.freed_elsewhere, counted.times), (1, Some((0, 6))));
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
        .command();
        assert_eq!((command.text("traced_command"), command.number("user_us_per_page")), (Some("make"), Some(500.0)));
        assert_eq!((command.number("pages_per_fault"), command.number("system_us_per_page")), (Some(0.5), None));
    }
}
