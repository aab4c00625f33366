//! `bench highalloc`: how many huge blocks can be had when memory is full of page cache.

use std::io::{self, Write};
use std::num::NonZeroU32;

use frameyard::{ByteSize, Order};
use serde::Serialize;

use super::comparison::{
    Compared, Comparison, Headline, Row, SettingColumns, Yards, counted, median_first, write_comparison,
};
use crate::Failure;
use crate::cli::HighallocArgs;
use frameyard_workloads::measure::Spread;
use crate::output::rounded;
use frameyard_workloads::Setting;
use frameyard_workloads::highalloc::{self, DelayKind, HUGE, HighallocPlan, HighallocRun};

/// The name of the command.
const NAME: &str = "bench highalloc";
/// What people have to know of its rows.
const NOTE: &str =
    "A virtual delay does the background work of that time and does not wait. All contents were checked in the end.";
/// Runs of a row, unless asked for otherwise.
const REPEAT: NonZeroU32 = NonZeroU32::MIN;
/// What must be free: some pageblocks for each builder, and a reserve.
pub(in crate::commands) const LEAST_MEMORY: ByteSize = ByteSize::mib(64);

/// Runs every combination of mode, number of builders, delay and policies.
pub(super) fn run(args: &HighallocArgs) -> Result<(), Failure> {
    let comparison = Comparison::new(&args.comparison, NAME, Yards::OneForEachRun, REPEAT)?.with_most_tasks();
    comparison.check_order(HUGE)?;
    let plan = |delay| HighallocPlan {
        delay,
        kind: if args.real_delay { DelayKind::Real } else { DelayKind::Virtual },
        settle: args.settle,
        unmovable_percent: args.unmovable,
    };
    let plans: Vec<HighallocPlan> = args.delays.iter().map(|delay| plan(*delay)).collect();
    let needed = |setting: &Setting| ByteSize(LEAST_MEMORY.0.saturating_mul(1 + u64::from(setting.tasks.get())));
    let seed = args.comparison.seed;
    let compared = comparison
        .measure(plans.len(), needed, |fixture, setting, plan| Ok(highalloc::run(fixture, setting, seed, &plans[plan])?))?;
    let rows: Vec<_> = compared.into_iter().map(|(plan, compared)| row(&plans[plan], compared)).collect();
    comparison.print(&rows, write_rows, NOTE)
}

/// What is measured.
#[derive(Serialize, Debug)]
pub(in crate::commands) struct Values {
    delay_ns: u64,
    delay_kind: &'static str,
    settle_ns: u64,
    unmovable_share: f64,
    high_order: u8,
    high_order_attempts: u64,
    high_order_success: f64,
    high_order_success_min: f64,
    high_order_success_max: f64,
    high_order_ns: f64,
    high_order_ns_max: u64,
    elapsed_ns: u64,
    background_ns: Option<u64>,
    pages_per_s: f64,
    unusable_share_before: Option<f64>,
    checked_pages: u64,
}

fn success(run: &HighallocRun) -> f64 {
    run.successes as f64 / run.attempts.max(1) as f64
}

pub(in crate::commands) fn row(plan: &HighallocPlan, compared: Compared<HighallocRun>) -> Row<Values> {
    let Compared { setting, memory, runs } = compared;
    let number = runs.len();
    let spread = Spread::of(runs.iter().map(success)).unwrap_or(Spread { median: 0.0, min: 0.0, max: 0.0 });
    let (run, _) = median_first(runs, success);
    let share = |value: f64| (value * 1e4).round() / 1e4;
    Row {
        setting: SettingColumns::of(&setting, memory, number),
        values: Values {
            delay_ns: plan.delay.as_nanos() as u64,
            delay_kind: plan.kind.name(),
            settle_ns: plan.settle.as_nanos() as u64,
            unmovable_share: share(f64::from(plan.unmovable_percent) / 100.0),
            high_order: {
                let Order(order) = HUGE;
                order
            },
            high_order_attempts: run.attempts,
            high_order_success: share(success(&run)),
            high_order_success_min: share(spread.min),
            high_order_success_max: share(spread.max),
            high_order_ns: rounded(run.total_ns as f64 / run.attempts.max(1) as f64),
            high_order_ns_max: run.longest_ns,
            elapsed_ns: run.elapsed_ns,
            background_ns: run.background_ns,
            pages_per_s: rounded(run.builders_rate),
            unusable_share_before: run.unusable_before.map(|thousandths| thousandths as f64 / 1000.0),
            checked_pages: run.checked,
        },
        counts: counted(&run.counts),
    }
}

/// Writes rows as people read them.
pub(in crate::commands) fn write_rows(out: &mut dyn Write, rows: &[Row<Values>]) -> io::Result<()> {
    let milliseconds = |ns: f64| ns / 1e6;
    let headline = |row: &Row<Values>| Headline {
        group: format!(
            "{}, builders: {}, {} delay of {} ms; huge blocks got, and builders' pages each second",
            row.setting.mode,
            row.setting.tasks,
            row.values.delay_kind,
            milliseconds(row.values.delay_ns as f64)
        ),
        result: format!("{:.1} %, {:.0}", row.values.high_order_success * 100.0, row.values.pages_per_s),
    };
    let headings = ["delay ms", "kind", "success %", "of", "mean ms", "longest ms", "moved", "pages checked"];
    write_comparison(out, rows, headline, headings, |row| {
        let values = &row.values;
        [
            milliseconds(values.delay_ns as f64).to_string(),
            values.delay_kind.to_owned(),
            format!("{:.1}", values.high_order_success * 100.0),
            values.high_order_attempts.to_string(),
            format!("{:.3}", milliseconds(values.high_order_ns)),
            format!("{:.1}", milliseconds(values.high_order_ns_max as f64)),
            row.counts.migrated().to_string(),
            values.checked_pages.to_string(),
        ]
    })
}
