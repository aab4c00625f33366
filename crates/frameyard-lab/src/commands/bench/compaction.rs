//! `bench compaction`: compacting a zone in which every second frame is free.

use std::num::NonZeroU32;

use clap::Args;
use frameyard::ByteSize;
use frameyard::boot::InitMode;
use frameyard::units::ZoneKind;
use frameyard::watermarks::WatermarkOptions;
use frameyard_vm::LruPolicy;
use frameyard_workloads::compaction::{self, CompactionRun, HUGE};
use frameyard_workloads::copy_speed::CopySpeed;

use super::flat_machine::FlatMachine;
use crate::Failure;
use crate::args::values::{lru_policy, positive_number};
use crate::args::{Amount, InitArgs, MachineArgs, OutputArgs, QuickArgs};
use crate::boot::{BootOptions, FrameBacking, MapLimit};
use crate::fixture::with_fixture;
use crate::measure::{Spread, median_first};
use crate::output::{Format, Report, Row, progress_bar, rounded};

/// What follows the options in the help text.
const HELP: &str = "\
Takes about 30 seconds; --quick about 5.

Example:
  frameyard bench compaction --memory 2G --lru vanilla,sharded";

/// Compacts a zone in which every second frame is free
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(super) struct CompactionArgs {
    /// Policies of LRU lists to compare
    #[arg(long = "lru", value_name = "POLICIES", value_delimiter = ',', value_parser = lru_policy(), default_value = "vanilla")]
    lru_policies: Vec<LruPolicy>,

    /// Runs of each row, of which the median is reported
    #[arg(long, value_name = "N", default_value = "3", default_value_if("quick", "true", "1"), value_parser = positive_number)]
    repeat: NonZeroU32,

    #[command(flatten)]
    quick: QuickArgs,
    #[command(flatten)]
    machine: MachineArgs,
    #[command(flatten)]
    output: OutputArgs,
}

const NAME: &str = "bench compaction";
/// The least zone.
const LEAST_MEMORY: ByteSize = ByteSize::mib(32);
/// Memory beside the zone for what cannot be moved, besides page tables.
const SPARE: ByteSize = ByteSize::mib(64);
/// The workload fills the zone nearly to its end, so its watermarks are as low as possible.
const WATERMARKS: fn() -> WatermarkOptions = || WatermarkOptions {
    min_free_kbytes: Some(32),
    watermark_scale_factor: 1,
    // Allocations that fall back to the memory beside the zone find some.
    lowmem_reserve_ratio: [0; ZoneKind::COUNT],
    ..WatermarkOptions::default()
};
const NOTE: &str = "Every second frame of the zone is in use. The run of median time, by one thread. GB are 10^9 bytes: of pages that were \
    moved, of the zone, and of pages that this host copies and zeroes. All contents were checked.";

/// Runs with each LRU policy.
pub(super) fn run(args: &CompactionArgs) -> Result<(), Failure> {
    let flat = FlatMachine::of(&args.machine, args.quick, NAME, LEAST_MEMORY)?;
    flat.check_order(NAME, HUGE)?;
    // Two address spaces, each with an entry of eight bytes for every page.
    let machine = flat.with_spare(ByteSize(SPARE.0 + flat.memory.0 / 128))?;
    let options = BootOptions {
        backing: FrameBacking::Real,
        movable: Some(Amount::Size(flat.memory)),
        watermarks: WATERMARKS(),
        map_init: InitArgs::default().map_init(InitMode::Eager, &machine)?,
        map_limit: MapLimit::Full,
        ..BootOptions::default()
    };
    let repeat = u64::from(args.repeat.get());
    let bar = progress_bar(NAME, args.lru_policies.len() as u64 * repeat);
    let speed = CopySpeed::measure();
    let mut rows = Vec::new();
    for &lru in &args.lru_policies {
        let once = |_| {
            let run = with_fixture(&machine, &options, lru, |fixture| Ok(compaction::run(fixture)?));
            bar.inc(1);
            run
        };
        rows.push(row(lru, speed, (0..repeat).map(once).collect::<Result<_, _>>()?));
    }
    bar.finish_and_clear();
    Report::new(NAME, rows).of_machine(flat.name()).note(NOTE).print(&args.output)
}

fn share(run: &CompactionRun) -> f64 {
    (run.huge_after as f64 / run.huge_possible as f64 * 1e4).round() / 1e4
}

/// The runs of a policy. Rates are in 10⁹ bytes a second.
fn row(lru: LruPolicy, speed: CopySpeed, runs: Vec<CompactionRun>) -> Row {
    let number = runs.len();
    let time = |run: &CompactionRun| run.compact_ns as f64;
    let times = Spread::of(runs.iter().map(time));
    let least_share = Spread::of(runs.iter().map(share)).map(|shares| shares.min);
    let (run, _) = median_first(runs, time);
    // Bytes in a nanosecond are 10⁹ bytes in a second.
    let rate = |pages: u64| rounded(pages as f64 * 4096.0 / time(&run).max(1.0));
    let thousandths = |value: u64| value as f64 / 1000.0;
    let outcome = run.outcome;
    Row::new()
        .column("lru_policy", "LRU", lru.name())
        .column_as("zone_bytes", "zone", Format::Size, run.zone.0 * 4096)
        .data("runs", number)
        .data("free_pages", run.free.0)
        .column("order9_before", "order 9 before", run.huge_before)
        .column("order9_possible", "possible", run.huge_possible)
        .column("order9_after", "after", run.huge_after)
        .column_as("share_of_possible", "share %", Format::percent(2), share(&run))
        .data("share_of_possible_min", least_share)
        .data("result", outcome.result.name())
        .column("pages_moved", "pages moved", outcome.migrated.0)
        .minor()
        .data("pages_failed", outcome.failed.0)
        .data("pages_busy", outcome.busy.0)
        .data("pages_pinned", outcome.pinned.0)
        .data("pages_unmovable", outcome.unmovable.0)
        .data("pages_scanned", outcome.migrate_scanned.0 + outcome.free_scanned.0)
        .column_as("compact_ns", "ms", Format::millions(1), run.compact_ns)
        .data("compact_ns_min", times.map(|times| times.min))
        .data("compact_ns_max", times.map(|times| times.max))
        .data("moved_page_ns", rounded(time(&run) / outcome.migrated.0.max(1) as f64))
        .column_as("moved_gb_per_s", "moved GB/s", Format::number(2), rate(outcome.migrated.0))
        .column_as("zone_gb_per_s", "zone GB/s", Format::number(2), rate(run.zone.0))
        .minor()
        .column_as("copy_gb_per_s", "copy GB/s", Format::number(1), rounded(speed.copied / 1e9))
        .minor()
        .column_as("zero_gb_per_s", "zero GB/s", Format::number(1), rounded(speed.zeroed / 1e9))
        .minor()
        .data("fragmentation_index_before", run.fragmentation_before)
        .data("fragmentation_index_after", run.fragmentation_after)
        .data("unusable_share_before", run.unusable_before.map(thousandths))
        .data("unusable_share_after", run.unusable_after.map(thousandths))
        .data("checked_pages", run.checked)
        .data("data_intact", true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{assert_refused, read};

    #[test]
    fn a_bare_run_compacts_three_times_with_the_vanilla_lists() {
        let args: CompactionArgs = read("").unwrap();
        assert_eq!((args.lru_policies, args.repeat.get()), (vec![LruPolicy::Vanilla], 3));
        assert_refused::<CompactionArgs>(&[
            ("--lru fast", "possible values: vanilla, sharded"),
            ("--repeat 0", "from 1"),
        ]);
    }
}
