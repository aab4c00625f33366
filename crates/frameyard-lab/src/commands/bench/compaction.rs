//! `bench compaction`: what compaction makes of a zone in which every second frame is free, and how fast.

use std::io::{self, Write};

use frameyard::{ByteSize, InitMode, WatermarkOptions};
use frameyard_vm::LruPolicy;
use serde::Serialize;

use super::comparison::median_first;
use super::flat_machine::FlatMachine;
use crate::Failure;
use crate::bring_up::{BringUp, FrameBacking, MapLimit};
use crate::cli::{Amount, CompactionArgs, InitArgs};
use frameyard_workloads::measure::Spread;
use crate::output::{self, RoundedSize, Table, progress_bar, rounded};
use frameyard_workloads::compaction::{self, CompactionRun, HUGE};
use frameyard_workloads::copy_speed::CopySpeed;
use crate::fixture::with_fixture;

/// The name of the command.
const NAME: &str = "bench compaction";
/// The least zone.
const LEAST_MEMORY: ByteSize = ByteSize::mib(32);
/// Memory beside the zone, for what cannot be moved, besides page tables.
const SPARE: ByteSize = ByteSize::mib(64);
/// The zone is filled nearly to its end: its watermarks are as low as they can be.
const WATERMARKS: fn() -> WatermarkOptions = || WatermarkOptions {
    min_free_kbytes: Some(32),
    watermark_scale_factor: 1,
    // What falls back to the memory beside it finds some.
    lowmem_reserve_ratio: [0; frameyard::ZoneKind::COUNT],
    ..WatermarkOptions::default()
};

/// Runs with each policy of the lists of used pages.
pub(super) fn run(args: &CompactionArgs) -> Result<(), Failure> {
    let flat = FlatMachine::of(&args.machine, NAME, LEAST_MEMORY)?;
    flat.check_order(NAME, HUGE)?;
    // Two spaces, each with an entry of eight bytes for every page.
    let machine = flat.with_spare(ByteSize(SPARE.0 + flat.memory.0 / 128))?;
    let options = BringUp {
        backing: FrameBacking::Real,
        movable: Some(Amount::Size(flat.memory)),
        watermarks: WATERMARKS(),
        map_init: InitArgs::default().map_init(InitMode::Eager, &machine)?,
        map_limit: MapLimit::Full,
        ..BringUp::default()
    };
    let speed = CopySpeed::measure();
    let repeat = u64::from(args.repeat.get());
    let bar = progress_bar(NAME, args.lru_policies.len() as u64 * repeat);
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
    output::print_rows(NAME, flat.name(), &rows, write_rows, &args.output)
}

/// The runs of a policy. Rates are in 10⁹ bytes a second.
#[derive(Serialize, Debug)]
struct Row {
    lru_policy: &'static str,
    zone_bytes: u64,
    runs: u64,
    free_pages: u64,
    order9_before: u64,
    order9_possible: u64,
    order9_after: u64,
    share_of_possible: f64,
    share_of_possible_min: Option<f64>,
    result: &'static str,
    pages_moved: u64,
    pages_failed: u64,
    pages_busy: u64,
    pages_pinned: u64,
    pages_unmovable: u64,
    pages_scanned: u64,
    compact_ns: u64,
    compact_ns_min: f64,
    compact_ns_max: f64,
    moved_page_ns: f64,
    moved_gb_per_s: f64,
    zone_gb_per_s: f64,
    copy_gb_per_s: f64,
    zero_gb_per_s: f64,
    fragmentation_index_before: Option<i64>,
    fragmentation_index_after: Option<i64>,
    unusable_share_before: Option<f64>,
    unusable_share_after: Option<f64>,
    checked_pages: u64,
    data_intact: bool,
}

fn share(run: &CompactionRun) -> f64 {
    (run.huge_after as f64 / run.huge_possible as f64 * 1e4).round() / 1e4
}

fn row(lru: LruPolicy, speed: CopySpeed, runs: Vec<CompactionRun>) -> Row {
    let number = runs.len() as u64;
    let time = |run: &CompactionRun| run.compact_ns as f64;
    let spread = Spread::of(runs.iter().map(time)).unwrap_or(Spread { median: 0.0, min: 0.0, max: 0.0 });
    let shares = Spread::of(runs.iter().map(share));
    let (run, _) = median_first(runs, time);
    // Bytes in a nanosecond are 10⁹ bytes in a second.
    let rate = |pages: u64| rounded(pages as f64 * 4096.0 / time(&run).max(1.0));
    let thousandths = |value: u64| value as f64 / 1000.0;
    let outcome = run.outcome;
    Row {
        lru_policy: lru.name(),
        zone_bytes: run.zone.0 * 4096,
        runs: number,
        free_pages: run.free.0,
        order9_before: run.huge_before,
        order9_possible: run.huge_possible,
        order9_after: run.huge_after,
        share_of_possible: share(&run),
        share_of_possible_min: shares.map(|shares| shares.min),
        result: outcome.result.name(),
        pages_moved: outcome.migrated.0,
        pages_failed: outcome.failed.0,
        pages_busy: outcome.busy.0,
        pages_pinned: outcome.pinned.0,
        pages_unmovable: outcome.unmovable.0,
        pages_scanned: outcome.migrate_scanned.0 + outcome.free_scanned.0,
        compact_ns: run.compact_ns,
        compact_ns_min: spread.min,
        compact_ns_max: spread.max,
        moved_page_ns: rounded(time(&run) / outcome.migrated.0.max(1) as f64),
        moved_gb_per_s: rate(outcome.migrated.0),
        zone_gb_per_s: rate(run.zone.0),
        copy_gb_per_s: rounded(speed.copied / 1e9),
        zero_gb_per_s: rounded(speed.zeroed / 1e9),
        fragmentation_index_before: run.fragmentation_before,
        fragmentation_index_after: run.fragmentation_after,
        unusable_share_before: run.unusable_before.map(thousandths),
        unusable_share_after: run.unusable_after.map(thousandths),
        checked_pages: run.checked,
        data_intact: true,
    }
}

/// Writes rows for people.
fn write_rows(out: &mut dyn Write, rows: &[Row]) -> io::Result<()> {
    let mut table = Table::new([
        "LRU",
        "zone",
        "order 9 before",
        "possible",
        "after",
        "share %",
        "pages moved",
        "ms",
        "moved GB/s",
        "zone GB/s",
        "copy GB/s",
        "zero GB/s",
    ]);
    for row in rows {
        table.push([
            row.lru_policy.to_owned(),
            RoundedSize(ByteSize(row.zone_bytes)).to_string(),
            row.order9_before.to_string(),
            row.order9_possible.to_string(),
            row.order9_after.to_string(),
            format!("{:.2}", row.share_of_possible * 100.0),
            row.pages_moved.to_string(),
            format!("{:.1}", row.compact_ns as f64 / 1e6),
            format!("{:.2}", row.moved_gb_per_s),
            format!("{:.2}", row.zone_gb_per_s),
            format!("{:.1}", row.copy_gb_per_s),
            format!("{:.1}", row.zero_gb_per_s),
        ]);
    }
    table.write(out)?;
    writeln!(
        out,
        "\nEvery second frame of the zone is in use. The run of median time by one thread; GB are 10^9 bytes, of pages that\n\
         were moved, of the zone, and of pages that this host copies and zeroes. All contents were checked."
    )
}
