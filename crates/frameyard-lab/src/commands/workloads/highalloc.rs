//! `highalloc`: how many huge blocks can be allocated while memory is full of page cache.

use std::num::NonZeroU32;
use std::time::Duration;

use clap::Args;
use frameyard::{ByteSize, DefragMode, Order};
use frameyard_workloads::Setting;
use frameyard_workloads::fixture::Fixture;
use frameyard_workloads::highalloc::{self, DelayKind, HUGE, HighallocPlan, HighallocRun};
use frameyard_workloads::sim::{FrameContents, SimFixture, SimRun};

use super::{
    Compared, ComparedRow, Comparison, Measured, Native, Simulated, Workload, Yards, counts, effort, simulate,
};
use crate::Failure;
use crate::args::values::{defrag_mode, duration, percentage};
use crate::args::{ComparisonArgs, SimRunArgs};
use crate::commands::simulated_machine::machine;
use crate::measure::{Spread, median_first};
use crate::output::{Format, rounded};

/// What follows the options in the help text.
const HELP: &str = "\
Takes about two minutes; --quick about 15 seconds.

Examples:
  frameyard bench highalloc --quick
  frameyard bench highalloc --delay 100ms --mode threads --policy vanilla,cluster-bulk";

/// Allocates huge blocks in memory full of page cache
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(in crate::commands) struct HighallocArgs {
    /// Times between two requests for a huge block
    #[arg(long = "delay", value_name = "TIMES", value_delimiter = ',', default_value = "100ms,1ms", default_value_if("quick", "true", "1ms"), value_parser = duration)]
    delays: Vec<Duration>,
    /// Let that time pass; otherwise only its background work is done
    #[arg(long)]
    real_delay: bool,
    /// Time between the filling of memory and the first request
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = duration)]
    settle: Duration,
    /// The part of memory that builders hold in unmovable frames, up to 50%
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = percentage)]
    unmovable: u8,
    /// Whether the yard keeps a stock of whole free pageblocks
    #[arg(long, value_name = "on|off", default_value = "off", value_parser = defrag_mode())]
    defrag_mode: DefragMode,
    #[command(flatten)]
    comparison: ComparisonArgs,
}

/// The same for simulated machines.
const SIM_HELP: &str = "\
Takes many minutes, and more with more memory; --quick about 15 seconds.

Examples:
  frameyard sim highalloc --quick
  frameyard sim highalloc --tasks 4 --policy vanilla,cluster-bulk --memory 4G";

/// Asks for huge blocks while builders fill memory with page cache; the host needs as much memory as the machine
#[derive(Args, Clone, Debug)]
#[command(
    after_help = SIM_HELP,
    mut_arg("memory", |arg| arg.default_value_if("quick", "true", "512M")),
    mut_arg("tasks", |arg| arg.default_value_if("quick", "true", "2"))
)]
pub(in crate::commands) struct SimHighallocArgs {
    /// Virtual time between two requests for a huge block
    #[arg(long, value_name = "TIME", default_value = "1ms", default_value_if("quick", "true", "100us"), value_parser = duration)]
    delay: Duration,
    /// Virtual time between the filling of memory and the first request
    #[arg(long, value_name = "TIME", default_value = "50ms", default_value_if("quick", "true", "5ms"), value_parser = duration)]
    settle: Duration,
    /// The share of memory that builders hold in unmovable frames, up to 50%
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = percentage)]
    unmovable: u8,
    /// Whether the yard keeps a stock of whole free pageblocks
    #[arg(long, value_name = "on|off", default_value = "off", value_parser = defrag_mode())]
    defrag_mode: DefragMode,
    #[command(flatten)]
    runs: SimRunArgs,
}

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
            defrag: args.defrag_mode,
            compute: 0,
        },
        seed: args.comparison.compared.seed,
        other_cpus: 0,
    };
    let workloads: Vec<Highalloc> = args.delays.iter().map(|delay| workload(*delay)).collect();
    comparison.run(&workloads, NOTE)
}

/// Runs on a simulated machine. Modes do not differ: builders share only files.
pub(in crate::commands) fn sim(args: &SimHighallocArgs) -> Result<(), Failure> {
    let other_cpus = frameyard_workloads::sim::other_cpus(machine(&args.runs.machine)?.topology.sockets.into());
    let plan = HighallocPlan {
        delay: args.delay,
        kind: DelayKind::Real,
        settle: args.settle,
        unmovable_percent: args.unmovable,
        defrag: args.defrag_mode,
        compute: 0,
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
            .data("defrag_mode", plan.defrag.name())
            .data("high_order", order)
            .spread(
                "high_order_success",
                "success %",
                Format::percent(1),
                successes.map(|all| Spread { median: share(success(&run)), ..all }),
            )
            .column("high_order_attempts", "of", run.attempts)
            .column_as("high_order_ns", "mean ms", Format::millions(3), rounded(run.times.mean()))
            .column_as("high_order_ns_p99", "99 % ms", Format::millions(3), run.times.percentile(99))
            .minor()
            .column_as("high_order_ns_max", "longest ms", Format::millions(1), run.times.longest())
            .column("high_order_fallbacks", "fallbacks", run.attempts - run.successes)
            .minor()
            .data("elapsed_ns", run.elapsed_ns)
            .data("background_ns", run.background_ns)
            .data("pages_per_s", rounded(run.builders_rate))
            .data("unusable_share_before", run.unusable_before.map(|thousandths| thousandths as f64 / 1000.0))
            .remark("moved", Format::Plain, run.counts.compact_migrated)
            .minor()
            .column("checked_pages", "pages checked", run.checked)
            .minor()
            .followed_by(effort(&run.counts))
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
        Ok(frameyard_workloads::sim::highalloc(fixture, setting, self.seed, &self.plan)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::assert_refused;
    use frameyard::policy::ZonePolicy;
    use frameyard_vm::LruPolicy;
    use frameyard_workloads::TaskMode;

    fn read(line: &str) -> Result<HighallocArgs, String> {
        crate::args::read(line)
    }

    #[test]
    fn a_bare_workload_compares_every_pair_of_policies_in_both_modes() {
        let args = read("").unwrap();
        let comparison = args.comparison.compared;
        assert_eq!(comparison.policies.lru, LruPolicy::ALL);
        assert_eq!(comparison.policies.zones, [ZonePolicy::default()]);
        assert_eq!(comparison.modes, [TaskMode::Threads, TaskMode::Processes]);
        assert_eq!(args.delays, [Duration::from_millis(100), Duration::from_millis(1)]);
        assert_eq!(args.unmovable, 5);
    }

    #[test]
    fn quick_runs_have_other_defaults_and_options_override_them() {
        let args = read("--quick").unwrap();
        assert_eq!((args.delays, args.comparison.repeat), (vec![Duration::from_millis(1)], NonZeroU32::new(1)));
        assert_eq!(args.comparison.compared.modes, [TaskMode::Threads]);
        assert_eq!(read("--quick --repeat 7").unwrap().comparison.repeat, NonZeroU32::new(7));
    }

    #[test]
    fn refusals_name_a_correct_value() {
        assert_refused::<HighallocArgs>(&[
            ("--tasks 0", "as in 4 or 1..40"),
            ("--lru fast", "possible values: vanilla, sharded"),
            ("--policy fast", "possible values: vanilla"),
            ("--delay 5", "as in 500ms or 2s"),
            ("--delay 99999999999999999999s", "as in 500ms or 2s"),
            ("--unmovable 51%", "from 0% to 50%"),
            ("--mode fibres", "possible values: threads, processes"),
        ]);
    }
}
