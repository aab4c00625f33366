//! `trace replay`: does the allocations and frees of a recording on a yard.

mod simulated;
mod watched;

use std::num::NonZeroU32;
use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use frameyard::policy::ZonePolicy;
use frameyard_traces::replay::{
    Detail, LockedByOrder, ReplayPlan, ReplayResult, Sample, SetUp, Start, YardParts, own_memory,
};
use serde_json::Value;

use super::input::{ReadRecording, read};
use crate::Failure;
use crate::args::values::{positive_number, whole_number, zone_policy};
use crate::output::{Format, OutputArgs, Report, Row, rounded};

/// What follows the options in the help text.
const HELP: &str = "\
Reads any format that `trace import` reads. The snapshot is PREFIX.buddyinfo.before, PREFIX.pagetypeinfo.before and
PREFIX.zoneinfo.before; without --snapshot that of the recording, or the files beside it, if there are any.

With --machine, copies of the recording run at once on a simulated machine. Each has its own memory and CPUs. A copy of a million
events takes a few seconds for each policy, and about 25 bytes of host memory for each recorded frame.

Examples:
  frameyard trace replay build.trace.zst --policy vanilla,bits
  frameyard trace replay build.trace.zst --policy vanilla,bits --machine skylake-112 --copies 8 --events 100000";

const NAME: &str = "trace replay";

const NOTE: &str = "Pages through the zone lock for 1000 pages allocated, here and in the recorded kernel. Free blocks of order 9 are counted on free lists and in bits. Drained: once lists are drained and free blocks merged, as a request that may wait has it done.";

/// Replays a recording under several policies
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(super) struct ReplayArgs {
    /// A recording; - reads standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,

    /// What the names of the snapshot's files begin with
    #[arg(long, value_name = "PREFIX", value_hint = ValueHint::FilePath)]
    snapshot: Option<PathBuf>,

    /// Policies to compare
    #[arg(long, value_name = "POLICIES", value_delimiter = ',', value_parser = zone_policy(), default_value = ZonePolicy::default().name())]
    policy: Vec<ZonePolicy>,

    /// How memory became free that was free when the recording began
    #[arg(long, value_name = "START", value_enum, default_value = "used")]
    start: StartName,

    /// Seed of the places of free memory, and with --machine of the times at which copies start
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number)]
    seed: u64,

    /// Replay on one thread for each CPU of the host, at most one for each recorded CPU: for times. Counts then differ between runs
    #[arg(long, conflicts_with = "by_order")]
    threads: bool,

    /// Replay copies of the recording at once on a simulated machine: a built-in one with costs (see `frameyard machines`), or a file
    /// that describes one (TOML)
    #[arg(long, value_name = "NAME|FILE", conflicts_with_all = ["threads", "by_order"], value_hint = ValueHint::AnyPath)]
    machine: Option<String>,

    /// Copies on the simulated machine [default: all that its CPUs hold]
    #[arg(long, value_name = "N", requires = "machine", value_parser = positive_number)]
    copies: Option<NonZeroU32>,

    /// Replay only the first events of the recording
    #[arg(long, value_name = "N", value_parser = positive_number)]
    events: Option<NonZeroU32>,

    /// Attribute the use of the zone lock to allocations and frees of each order
    #[arg(long)]
    by_order: bool,

    #[command(flatten)]
    output: OutputArgs,
}

/// How memory became free.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum StartName {
    /// Frame by frame under the policy, as in a system that was in use
    Used,
    /// It is on the free lists, and the policy has just begun
    FreeLists,
}

impl StartName {
    fn start(self) -> Start {
        match self {
            Self::Used => Start::Used,
            Self::FreeLists => Start::FreeLists,
        }
    }
}

/// Replays, and prints a row for each policy.
pub(super) fn run(args: &ReplayArgs) -> Result<(), Failure> {
    let recording = read(&args.file, args.snapshot.as_deref(), args.events)?;
    let report = match &args.machine {
        Some(machine) => simulated::run(args, machine, &recording.plan)?,
        None => on_this_machine(args, &recording.plan)?,
    };
    of_recording(report, &recording).print(&args.output)
}

/// The report with what is known of the recording.
fn of_recording(report: Report, ReadRecording { imported, plan }: &ReadRecording) -> Report {
    let anomalies = plan.anomalies();
    report
        .total("skipped_lines", imported.skipped)
        .total("is_truncated", imported.is_truncated)
        .total("lost_events", anomalies.lost)
        .total("out_of_order", anomalies.out_of_order)
        .total("double_allocations", anomalies.double_allocations)
        .total("double_frees", anomalies.double_frees)
        .total("blocks_outside_zones", anomalies.outside)
        .total("blocks_held_before", plan.held_blocks())
}

/// Replays on one thread or several.
fn on_this_machine(args: &ReplayArgs, plan: &ReplayPlan) -> Result<Report, Failure> {
    let start = args.start.start();
    let detail = if args.by_order { Detail::ByOrder } else { Detail::Totals };
    let threads = args.threads.then(|| threads(plan));
    // Without memory files the yard cannot be watched, and everything else is the same.
    let make = |parts: &YardParts| watched::memory(parts).or_else(|| own_memory(parts));
    let (mut rows, mut by_order, mut samples) = (Vec::new(), Vec::new(), Vec::new());
    for policy in &args.policy {
        let set_up = SetUp { policy: *policy, start, seed: args.seed, detail };
        let result = match threads {
            Some(threads) => plan.replay_on_threads_in(set_up, threads, &make),
            None => plan.replay_in(set_up, &make),
        };
        let result = result.map_err(Failure::run_time)?;
        rows.push(row(plan, &result).data("threads", threads.map_or(1, NonZeroU32::get)));
        samples.extend(result.samples.iter().map(|sample| Value::Object(sample_row(&result, sample).object())));
        by_order.extend(result.by_order.iter().flat_map(|counts| order_rows(&result, counts)));
    }
    let mut report = Report::new(NAME, rows.clone()).total("samples", samples);
    if !by_order.is_empty() {
        let objects: Vec<Value> = by_order.iter().map(|row| Value::Object(row.object())).collect();
        report =
            report.total("by_order", objects).table(rows).title("Use of the zone lock by operation").table(by_order);
    }
    Ok(report.note(NOTE))
}

/// Where free memory was after some operations: in JSON alone.
fn sample_row(result: &ReplayResult, sample: &Sample) -> Row {
    Row::new()
        .data("policy", result.policy.name())
        .data("operations", sample.operations)
        .data("free_order9_blocks", sample.free.order9_blocks())
        .data("pcp_pages_held", sample.free.per_cpu.0)
}

/// As many threads as the host has CPUs, at most one for each CPU of the recording.
fn threads(plan: &ReplayPlan) -> NonZeroU32 {
    let host = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32);
    NonZeroU32::new(host.min(plan.cpus())).unwrap_or(NonZeroU32::MIN)
}

/// A row for each order whose operations took a zone lock.
fn order_rows(result: &ReplayResult, counts: &LockedByOrder) -> Vec<Row> {
    let per_thousand = |pages: u64| {
        (result.pages_allocated > 0).then(|| rounded(pages as f64 * 1000.0 / result.pages_allocated as f64))
    };
    let used = |order: &usize| counts.alloc_acquisitions[*order] + counts.free_acquisitions[*order] > 0;
    let row = |order: usize| {
        Row::new()
            .column("policy", "policy", result.policy.name())
            .column("order", "order", order)
            .column("alloc_pages_per_1000", "allocations/1000", per_thousand(counts.alloc_pages[order]))
            .column("free_pages_per_1000", "frees/1000", per_thousand(counts.free_pages[order]))
            .column("alloc_acquisitions", "acquisitions by allocations", counts.alloc_acquisitions[order])
            .column("free_acquisitions", "by frees", counts.free_acquisitions[order])
    };
    (0..counts.alloc_pages.len()).filter(used).map(row).collect()
}

/// The row of a policy.
fn row(plan: &ReplayPlan, result: &ReplayResult) -> Row {
    let (kernel, end) = (plan.kernel(), result.end());
    let per_second = result.operations as f64 * 1e9 / result.elapsed_ns.max(1) as f64;
    let ns = (result.operations > 0).then(|| rounded(result.elapsed_ns as f64 / result.operations as f64));
    Row::new()
        .column("policy", "policy", result.policy.name())
        .column("events", "events", kernel.events)
        .data("operations", result.operations)
        .column("zone_locked_pages_per_1000", "zone lock/1000", result.zone_locked_per_1000().map(rounded))
        .column("kernel_zone_locked_pages_per_1000", "kernel's", kernel.zone_locked_per_1000().map(rounded))
        .column("zone_lock_acquisitions", "acquisitions", result.counts.lock.acquisitions)
        .column("pcp_pages_held", "held in lists", end.per_cpu.0)
        .data("pcp_pages_held_most", result.most_per_cpu().0)
        .column("free_order9_blocks", "free order 9", end.order9_blocks())
        .column("free_order9_blocks_drained", "drained", result.drained.order9_blocks())
        .data("free_blocks", end.blocks.to_vec())
        .data("blocks_in_bits", end.blocks_in_bits.to_vec())
        .column("extfrag_events", "fallbacks", result.counts.extfrag)
        .data("kernel_extfrag_events", kernel.extfrag)
        .column("failures", "failed", result.failures)
        .data("kernel_failures", kernel.failures)
        .data("skipped_frees", result.skipped_frees)
        .data("frees_of_other_orders", result.other_orders)
        .data("unplaced_free_pages", result.missing_pages.0)
        .column("ns_per_operation", "ns/operation", ns)
        .minor()
        .column_as("operations_per_s", "operations/s", Format::number(0), per_second.round())
}
