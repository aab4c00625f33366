//! `highalloc`: how many huge blocks can be allocated while memory is full of page cache.

use std::num::NonZeroU32;

use frameyard::{ByteSize, Order};

use super::{Compared, ComparedRow, Comparison, Measured, Native, Simulated, Workload, Yards, counts, simulate};
use crate::Failure;
use crate::cli::{HighallocArgs, SimHighallocArgs};
use crate::commands::simulated_machine::machine;
use crate::measure::{Spread, median_first};
use crate::output::{Format, rounded};
use frameyard_workloads::Setting;
use frameyard_workloads::fixture::Fixture;
use frameyard_workloads::highalloc::{self, DelayKind, HUGE, HighallocPlan, HighallocRun};
use frameyard_workloads::simulated::{self, FrameContents, SimFixture, SimRun};

/// What the rows leave out.
const NOTE: &str =
    "A virtual delay does the background work of that time without waiting. All contents were checked at the end.";
/// Runs of a row, unless the command line says otherwise.
const REPEAT: NonZeroU32 = NonZeroU32::MIN;
/// What must be free for each builder, and once more: some pageblocks.
const LEAST_MEMORY: ByteSize = ByteSize::mib(64);

/// Runs on this machine, with each delay.
pub(in crate::commands) fn bench(args: &HighallocArgs) -> Result<(), Failure> {
    let comparison =
        Comparison::new(&args.comparison, "bench highalloc", Yards::OneForEachRun, REPEAT)?.with_most_tasks();
    comparison.check_order(HUGE)?;
    let workload = |delay| Highalloc {
        plan: HighallocPlan {
            delay,
            kind: if args.real_delay { DelayKind::Real } else { DelayKind::Virtual },
            settle: args.settle,
            unmovable_percent: args.unmovable,
        },
        seed: args.comparison.compared.seed,
        other_cpus: 0,
    };
    let workloads: Vec<Highalloc> = args.delays.iter().map(|delay| workload(*delay)).collect();
    comparison.run(&workloads, NOTE)
}

/// Runs on a simulated machine. Modes do not differ: builders share only files.
pub(in crate::commands) fn sim(args: &SimHighallocArgs) -> Result<(), Failure> {
    let other_cpus = simulated::other_cpus(machine(&args.runs.machine)?.topology.sockets.into());
    let plan = HighallocPlan {
        delay: args.delay,
        kind: DelayKind::Real,
        settle: args.settle,
        unmovable_percent: args.unmovable,
    };
    simulate(&args.runs, "sim highalloc", &Highalloc { plan, seed: args.runs.compared.seed, other_cpus })
}

struct Highalloc {
    plan: HighallocPlan,
    seed: u64,
    /// CPUs of a simulated machine that do not build.
    other_cpus: u64,
}

impl Workload for Highalloc {
    type Run = HighallocRun;

    fn needed(&self, setting: &Setting) -> ByteSize {
        ByteSize(LEAST_MEMORY.0.saturating_mul(1 + u64::from(setting.tasks.get())))
    }
}

impl Compared for Highalloc {
    fn rows(&self, measured: Measured<HighallocRun>) -> Vec<ComparedRow> {
        let columns = measured.columns();
        let Measured { setting, runs, .. } = measured;
        let (plan, Order(order)) = (&self.plan, HUGE);
        let share = |value: f64| (value * 1e4).round() / 1e4;
        let successes = Spread::of(runs.iter().map(success)).map(|spread| spread.map(share));
        let (run, _) = median_first(runs, success);
        let row = columns
            .column_as("delay_ns", "delay ms", Format::millions(1), plan.delay.as_nanos() as u64)
            .column("delay_kind", "kind", plan.kind.name())
            .data("settle_ns", plan.settle.as_nanos() as u64)
            .data("unmovable_share", share(f64::from(plan.unmovable_percent) / 100.0))
            .data("high_order", order)
            .spread(
                "high_order_success",
                "success %",
                Format::percent(1),
                successes.map(|all| Spread { median: share(success(&run)), ..all }),
            )
            .column("high_order_attempts", "of", run.attempts)
            .column_as(
                "high_order_ns",
                "mean ms",
                Format::millions(3),
                rounded(run.total_ns as f64 / run.attempts.max(1) as f64),
            )
            .column_as("high_order_ns_max", "longest ms", Format::millions(1), run.longest_ns)
            .data("elapsed_ns", run.elapsed_ns)
            .data("background_ns", run.background_ns)
            .data("pages_per_s", rounded(run.builders_rate))
            .data("unusable_share_before", run.unusable_before.map(|thousandths| thousandths as f64 / 1000.0))
            .remark("moved", Format::Plain, run.counts.compact_migrated)
            .minor()
            .column("checked_pages", "pages checked", run.checked)
            .minor()
            .followed_by(counts(&run.counts));
        let group = format!(
            "{}, builders: {}, {} delay of {} ms; huge blocks allocated, and builders' pages each second",
            setting.mode.name(),
            setting.tasks,
            plan.kind.name(),
            plan.delay.as_secs_f64() * 1e3
        );
        let result = format!("{:.1} %, {:.0}", success(&run) * 100.0, run.builders_rate);
        vec![ComparedRow { row, group, result }]
    }
}

fn success(run: &HighallocRun) -> f64 {
    run.successes as f64 / run.attempts.max(1) as f64
}

impl Native for Highalloc {
    fn run(&self, fixture: &Fixture<'_>, setting: &Setting) -> Result<HighallocRun, Failure> {
        Ok(highalloc::run(fixture, setting, self.seed, &self.plan)?)
    }
}

impl Simulated for Highalloc {
    const CONTENTS: FrameContents = FrameContents::Kept;

    fn cpus(&self, setting: &Setting) -> u64 {
        u64::from(setting.tasks.get()) + self.other_cpus
    }

    fn simulate(&self, fixture: &SimFixture<'_>, setting: &Setting) -> Result<SimRun<HighallocRun>, Failure> {
        Ok(simulated::highalloc(fixture, setting, self.seed, &self.plan)?)
    }
}
