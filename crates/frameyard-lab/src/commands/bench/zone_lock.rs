//! `bench zone-lock`: every policy of zones in every workload that shows the cost of the zone lock, beside published figures.
//!
//! Measured and published values have separate rows. Throughput comes from runs without timed locks, times at locks from one
//! further run. Values of refills and drains come from one thread that does the tasks' work ([`frameyard_workloads::transfer`]).

mod published;
mod row;
mod sample;
mod text;

use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use clap::{Args, ValueEnum};
use frameyard::boot::InitMode;
use frameyard::policy::ZonePolicy;
use frameyard::{ByteSize, DefragMode, Order, PageCount};
use frameyard_host::{HostTopology, LockTiming};
use frameyard_workloads::alloc::AccessKind;
use frameyard_workloads::counts::Drains;
use frameyard_workloads::fixture::Fixture;
use frameyard_workloads::held::while_sampling;
use frameyard_workloads::highalloc::{self, DelayKind, HUGE, HighallocPlan};
use frameyard_workloads::order0_thp::{self, Surroundings, pages_of_task};
use frameyard_workloads::page_fault::Faults;
use frameyard_workloads::timed_run::TaskRun;
use frameyard_workloads::transfer::{self, Return};
use frameyard_workloads::{MAP_SIZE, Pages, Setting, TaskMode, page_fault, parallel_free, purge};

use super::alloc::{Sweep, SweepRow, SweptYards};
use crate::Failure;
use crate::args::values::positive_duration;
use crate::args::{ComparisonArgs, InitArgs};
use crate::boot::{BootOptions, FrameBacking, boot_machine};
use crate::chosen_machine::ChosenMachine;
use crate::commands::comparison::{Comparison, Measured, Native, Workload, Yards};
use crate::commands::workloads::purge::purgers;
use crate::output::Row;
use row::Combination;
use sample::{HighOrder, Sample};

/// What follows the options in the help text.
const HELP: &str = "\
The first policy is what the others are compared with. Takes about five minutes; --quick about 20 seconds; --full runs for at \
    least a second each, in both modes.

Examples:
  frameyard bench zone-lock --quick
  frameyard bench zone-lock --workload page-fault,alloc --policy vanilla,cluster-bulk,bits --lru vanilla";

/// Compares all policies of zones in all workloads that show the cost of the zone lock, beside published figures
#[derive(Args, Clone, Debug)]
#[command(
    after_help = HELP,
    mut_arg("zones", |arg| arg.default_values(all_policies()).default_value_if("quick", "true", "vanilla,bits").hide_default_value(true)),
    mut_arg("lru", |arg| arg.default_value_if("quick", "true", "vanilla")),
    mut_arg("modes", |arg| arg.default_value("threads"))
)]
pub(super) struct ZoneLockArgs {
    /// Workloads to run
    #[arg(
        long = "workload",
        value_name = "WORKLOADS",
        value_delimiter = ',',
        value_enum,
        default_value = "page-fault,parallel-free,purge,highalloc,order0-thp,alloc",
        help_heading = "Runs"
    )]
    workloads: Vec<ZoneLockWorkload>,

    /// Duration of each run of page-fault, purge and order0-thp, as in 500ms or 2s
    #[arg(long, value_name = "TIME", default_value = "250ms", default_value_if("quick", "true", "100ms"), value_parser = positive_duration, help_heading = "Runs")]
    duration: Duration,

    #[command(flatten)]
    comparison: ComparisonArgs,
}

/// A workload that shows the cost of the zone lock.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ZoneLockWorkload {
    /// Mappings are faulted in and unmapped
    PageFault,
    /// Address spaces that hold most of memory exit
    ParallelFree,
    /// Pages are freed on other CPUs than they were allocated on
    Purge,
    /// Huge blocks are allocated in memory full of page cache
    Highalloc,
    /// Tasks with huge pages run beside tasks without
    #[value(name = "order0-thp")]
    Order0Thp,
    /// Single frames are allocated and freed: in bulk, in random order, and one after the other; only threads
    Alloc,
}

impl ZoneLockWorkload {
    /// The name in the command line and in rows.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::PageFault => "page-fault",
            Self::ParallelFree => "parallel-free",
            Self::Purge => "purge",
            Self::Highalloc => "highalloc",
            Self::Order0Thp => "order0-thp",
            Self::Alloc => "alloc",
        }
    }
}

/// Every policy, as a list of the command line.
fn all_policies() -> impl Iterator<Item = &'static str> {
    ZonePolicy::ALL.into_iter().map(ZonePolicy::name)
}

/// The least duration of a run without limits.
const FULL_DURATION: Duration = Duration::from_secs(1);

impl ZoneLockArgs {
    /// The duration of a run.
    fn duration(&self) -> Duration {
        if self.comparison.full.full { self.duration.max(FULL_DURATION) } else { self.duration }
    }

    /// The comparison of each workload.
    fn comparison(&self) -> ComparisonArgs {
        let mut comparison = self.comparison.clone();
        if comparison.full.full {
            comparison.compared.modes = vec![TaskMode::Threads, TaskMode::Processes];
        }
        comparison
    }
}

const NAME: &str = "bench zone-lock";
/// Runs of a row without timed locks, unless the command line says otherwise …
const REPEAT: NonZeroU32 = NonZeroU32::new(3).unwrap();
/// … and the same for workloads with a yard for each run.
const REPEAT_ON_NEW_YARDS: NonZeroU32 = NonZeroU32::new(2).unwrap();
/// The least memory, unless the command line says otherwise. More tasks have more.
const LEAST_MEMORY: ByteSize = ByteSize::gib(1);
/// Memory of `highalloc`, unless the command line says otherwise: little, so that it is soon full.
const HIGHALLOC_MEMORY: ByteSize = ByteSize::mib(512);
/// Memory of `alloc`, unless the command line says otherwise. Its frames are never touched.
const ALLOC_MEMORY: ByteSize = ByteSize::gib(4);
/// Between two requests of `highalloc`, as published.
const DELAYS: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(1)];
/// Between the filling of memory and the first request of `highalloc`.
const SETTLE: Duration = Duration::from_millis(100);
/// The part of memory that builders of `highalloc` hold in unmovable frames.
const UNMOVABLE_PERCENT: u8 = 5;
/// Memory that `highalloc` needs for each builder, and once more.
const HIGHALLOC_NEEDS: ByteSize = ByteSize::mib(64);
/// Memory that one thread allocates and frees to measure refills and drains separately.
const TRANSFERRED: ByteSize = ByteSize::mib(32);
/// A run that does not count takes one part in this many of the duration.
const LEAD_IN: u32 = 3;

/// Runs every combination of the command line.
pub(super) fn run(args: &ZoneLockArgs) -> Result<(), Failure> {
    args.comparison.machine.refuse_phantom(NAME, "pages need memory behind them")?;
    let host = HostTopology::current().map_err(Failure::run_time)?;
    let plan = Plan { args, host: &host };
    let (usual, small) = (plan.comparison_args(LEAST_MEMORY)?, plan.comparison_args(HIGHALLOC_MEMORY)?);
    let mut parts = Vec::new();
    for &workload in args.workloads.iter().filter(|workload| **workload != ZoneLockWorkload::Alloc) {
        let on = if workload == ZoneLockWorkload::Highalloc { &small } else { &usual };
        parts.push((plan.runs_of(workload), plan.comparison(workload, on)?));
    }
    // Every refusal comes before the first run.
    for (runs, comparison) in &parts {
        comparison.check_memory(|setting| runs[0].needed(setting))?;
    }
    let mut rows = Vec::new();
    let mut machine = None;
    for (runs, comparison) in &parts {
        machine.get_or_insert_with(|| comparison.machine().to_owned());
        for (run, measured) in comparison.measure(runs)? {
            rows.extend(run.rows_of(&measured));
        }
    }
    if args.workloads.contains(&ZoneLockWorkload::Alloc) {
        let (name, of_alloc) = plan.alloc()?;
        machine.get_or_insert(name);
        rows.extend(of_alloc);
    }
    rows.extend(published::rows(&args.workloads));
    text::report(machine.unwrap_or_default(), rows).print(&args.comparison.output)
}

/// The command line and the host.
struct Plan<'a> {
    args: &'a ZoneLockArgs,
    host: &'a HostTopology,
}

impl<'a> Plan<'a> {
    fn cpus(&self) -> u32 {
        self.host.allowed().count().max(1)
    }

    /// The options of comparisons on a machine with that memory, or more if the tasks need more.
    fn comparison_args(&self, memory: ByteSize) -> Result<ComparisonArgs, Failure> {
        let mut args = self.args.comparison();
        if args.machine.memory.is_none() && args.machine.machine.is_none() {
            let tasks = args.compared.tasks().into_iter().max().map_or(self.cpus(), NonZeroU32::get);
            let needed = match memory {
                HIGHALLOC_MEMORY => ByteSize(HIGHALLOC_NEEDS.0.saturating_mul(2 * u64::from(tasks))),
                _ => order0_thp::memory_needed(tasks, MAP_SIZE),
            };
            let memory = memory.0.max(needed.0.checked_next_power_of_two().unwrap_or(needed.0));
            args.machine.memory = Some(ByteSize(memory));
        }
        Ok(args)
    }

    /// The comparison of a workload, with its usual number of tasks unless the command line says otherwise.
    fn comparison<'c>(&self, workload: ZoneLockWorkload, args: &'c ComparisonArgs) -> Result<Comparison<'c>, Failure> {
        let (yards, repeat, tasks) = match workload {
            // That many tasks of each kind occupy all CPUs.
            ZoneLockWorkload::Order0Thp => (Yards::OneForEachRun, REPEAT_ON_NEW_YARDS, self.cpus() / 2),
            ZoneLockWorkload::Highalloc => (Yards::OneForEachRun, REPEAT_ON_NEW_YARDS, self.cpus()),
            // Purgers occupy the remaining CPUs.
            ZoneLockWorkload::Purge => {
                (Yards::OneForAllPolicies, REPEAT, self.cpus().saturating_sub(purge::usual_purgers(self.cpus())))
            }
            _ => (Yards::OneForAllPolicies, REPEAT, self.cpus()),
        };
        let comparison = Comparison::new(args, NAME, yards, repeat)?;
        let comparison = if workload == ZoneLockWorkload::Highalloc {
            // Its requests take milliseconds. Reading the clock at each lock does not matter.
            comparison.check_order(HUGE)?;
            comparison
        } else {
            comparison.with_times_apart()
        };
        Ok(comparison.with_usual_tasks(NonZeroU32::new(tasks).unwrap_or(NonZeroU32::MIN)))
    }

    /// The runs of a workload; those of `highalloc` differ in their delays.
    fn runs_of(&self, workload: ZoneLockWorkload) -> Vec<WorkloadRun<'a>> {
        let run = |delay| WorkloadRun { args: self.args, host: self.host, workload, delay };
        match workload {
            ZoneLockWorkload::Highalloc => DELAYS.map(|delay| run(Some(delay))).into(),
            _ => vec![run(None)],
        }
    }

    /// The name of the machine, and the rows of `alloc`, whose pages have no owners.
    fn alloc(&self) -> Result<(String, Vec<Row>), Failure> {
        let args = &self.args.comparison;
        let ChosenMachine { machine, .. } = ChosenMachine::with_memory(&args.machine, args.quick.memory(ALLOC_MEMORY))?;
        let options = BootOptions {
            map_init: InitArgs::default().map_init(InitMode::Eager, &machine)?,
            map_limit: args.full.map_limit(),
            backing: FrameBacking::Real,
            policy: args.compared.policies.zones.first().copied().unwrap_or_default(),
            ..BootOptions::of(&args.machine, &args.yard)
        };
        let yard = &boot_machine(&machine, &options)?.yard;
        let repeat = args.repeat.unwrap_or(REPEAT).get();
        let all = NonZeroU32::new(self.cpus()).unwrap_or(NonZeroU32::MIN);
        let mut tasks = args.compared.tasks();
        if tasks.is_empty() {
            tasks = vec![NonZeroU32::MIN, all];
        }
        tasks.dedup();
        if let Some(tasks) =
            tasks.iter().find(|tasks| yard.stats().managed_pages() < PageCount(2 * u64::from(tasks.get())))
        {
            return Err(Failure::input(format!("{NAME}: {tasks} tasks need more --memory")));
        }
        let sweep = Sweep {
            kinds: &[AccessKind::Bulk, AccessKind::Random, AccessKind::Repeat],
            orders: &[Order::ZERO],
            tasks: &tasks,
            policies: &args.compared.policies.zones,
            repeat: repeat + 1,
            seed: args.compared.seed,
        };
        let boot = |policy| Ok(boot_machine(&machine, &BootOptions { policy, ..options })?.yard);
        let yards = SweptYards::new(yard, &args.compared.policies.zones, boot)?;
        let measured = sweep.measure(NAME, |workload, policy, round| {
            yards.with(policy, |yard| {
                let timing = if round > repeat { LockTiming::On } else { LockTiming::Off };
                yard.platform().time_locks(timing);
                let before = Drains::of(yard.core());
                let run = || {
                    let run = workload.run(yard.core(), self.host)?;
                    let drains = Drains::of(yard.core()).since(&before);
                    Ok(Sample { drains, ..Sample::of_alloc(workload, &run) })
                };
                if timing == LockTiming::Off {
                    return run();
                }
                let (sample, held) = while_sampling(yard.core(), run);
                Ok(Sample { held: Some(held), locks_are_timed: true, ..sample? })
            })
        })?;
        let row = |(workload, policy, runs): &SweepRow<Sample>| {
            let combination = Combination {
                workload: ZoneLockWorkload::Alloc,
                policy: *policy,
                mode: TaskMode::Threads,
                tasks: workload.tasks,
                task_kind: Some(workload.kind.name()),
                lru: None,
                delay: None,
                memory: machine.memory_bytes(),
            };
            row::measured(&combination, runs)
        };
        let rows = measured.iter().map(row).collect();
        yards.validate()?;
        Ok((machine.name, rows))
    }
}

/// A run of a workload whose pages have owners.
struct WorkloadRun<'a> {
    args: &'a ZoneLockArgs,
    host: &'a HostTopology,
    workload: ZoneLockWorkload,
    /// Between two requests of `highalloc`.
    delay: Option<Duration>,
}

impl Workload for WorkloadRun<'_> {
    type Run = Sample;

    fn needed(&self, setting: &Setting) -> ByteSize {
        let tasks = setting.tasks.get();
        match self.workload {
            ZoneLockWorkload::Order0Thp => order0_thp::memory_needed(tasks, MAP_SIZE),
            ZoneLockWorkload::Purge => purge::memory_needed(tasks, purgers(setting, None)).max(transfer_needs()),
            ZoneLockWorkload::ParallelFree => parallel_free::memory_needed(tasks).max(transfer_needs()),
            ZoneLockWorkload::Highalloc => ByteSize(HIGHALLOC_NEEDS.0.saturating_mul(1 + u64::from(tasks))),
            ZoneLockWorkload::PageFault | ZoneLockWorkload::Alloc => page_fault::memory_needed(tasks, MAP_SIZE),
        }
    }
}

impl Native for WorkloadRun<'_> {
    fn run(&self, fixture: &Fixture<'_>, setting: &Setting) -> Result<Sample, Failure> {
        self.lead_in(fixture, setting)?;
        if fixture.lock_timing() == LockTiming::Off {
            return self.once(fixture, setting);
        }
        let (sample, held) = while_sampling(fixture.vm.yard(), || self.once(fixture, setting));
        let transfers = match return_of(self.workload) {
            Some(way) => transfer::timed_and_counted(fixture, self.host.allowed(), way, TRANSFERRED)?,
            None => Vec::new(),
        };
        Ok(Sample { held: Some(held), transfers, ..sample? })
    }
}

impl WorkloadRun<'_> {
    fn rows_of(&self, measured: &Measured<Sample>) -> Vec<Row> {
        let kinds: &[Option<&'static str>] = match self.workload {
            ZoneLockWorkload::Order0Thp => &[Some("small"), Some("huge")],
            _ => &[None],
        };
        let Setting { mode, tasks, zone: policy, lru } = measured.setting;
        let combination = |&task_kind: &Option<&'static str>| Combination {
            workload: self.workload,
            policy,
            mode,
            tasks,
            task_kind,
            lru: Some(lru),
            delay: self.delay,
            memory: measured.memory,
        };
        kinds.iter().map(|kind| row::measured(&combination(kind), &measured.runs)).collect()
    }

    /// Fills the lists of a policy that was just switched to, on memory that the host has provided. The time that the host takes
    /// for that is not measured, and a policy with larger lists would need more of it. Workloads that have a yard for each run
    /// fill it first in any case.
    fn lead_in(&self, fixture: &Fixture<'_>, setting: &Setting) -> Result<(), Failure> {
        if matches!(self.workload, ZoneLockWorkload::Highalloc | ZoneLockWorkload::Order0Thp) {
            return Ok(());
        }
        let cpus = self.host.allowed().count().max(1) as usize;
        let threads = NonZeroUsize::new(cpus).unwrap_or(NonZeroUsize::MIN);
        fixture.yard.memory().prefault(threads, self.host, &mut |_| {}).map_err(Failure::run_time)?;
        self.work(fixture, setting, self.args.duration() / LEAD_IN).map(drop)
    }

    /// One run of the workload, as its own command runs it.
    fn once(&self, fixture: &Fixture<'_>, setting: &Setting) -> Result<Sample, Failure> {
        self.work(fixture, setting, self.args.duration())
    }

    fn work(&self, fixture: &Fixture<'_>, setting: &Setting, duration: Duration) -> Result<Sample, Failure> {
        let seed = self.args.comparison.compared.seed;
        let of_tasks = |run: &TaskRun| Sample::of(vec![(None, run.rate())], &run.counts);
        Ok(match self.workload {
            ZoneLockWorkload::PageFault => {
                of_tasks(&page_fault::run(fixture, setting, seed, Faults::default(), duration)?)
            }
            ZoneLockWorkload::Purge => of_tasks(&purge::run(fixture, setting, purgers(setting, None), seed, duration)?),
            ZoneLockWorkload::ParallelFree => {
                let run = parallel_free::run(fixture, setting, seed, Pages::Small)?;
                Sample::of(vec![(None, run.pages.0 as f64 * 1e9 / run.exit_ns.max(1) as f64)], &run.counts)
            }
            ZoneLockWorkload::Order0Thp => {
                let run = order0_thp::run(fixture, setting, seed, duration, Surroundings::default())?;
                let rate = |kind| (Some(kind), run.rate_of(|task| pages_of_task(setting, task).name() == kind));
                Sample::of(vec![rate(Pages::Small.name()), rate(Pages::Huge.name())], &run.counts)
            }
            ZoneLockWorkload::Highalloc | ZoneLockWorkload::Alloc => {
                let (delay, unmovable_percent) = (self.delay.unwrap_or_default(), UNMOVABLE_PERCENT);
                let plan = HighallocPlan {
                    delay,
                    kind: DelayKind::Virtual,
                    settle: SETTLE,
                    unmovable_percent,
                    defrag: DefragMode::Off,
                    compute: 0,
                };
                let run = highalloc::run(fixture, setting, seed, &plan)?;
                let attempts = run.attempts.max(1) as f64;
                let high_order = HighOrder { success: run.successes as f64 / attempts, ns: run.times.mean() };
                Sample { high_order: Some(high_order), ..Sample::of(vec![(None, run.builders_rate)], &run.counts) }
            }
        })
    }
}

/// Where frames are freed, for workloads whose refills and drains are measured separately.
fn return_of(workload: ZoneLockWorkload) -> Option<Return> {
    match workload {
        ZoneLockWorkload::PageFault => Some(Return::SameCpu),
        ZoneLockWorkload::Purge => Some(Return::OtherCpu),
        ZoneLockWorkload::ParallelFree => Some(Return::Exit),
        ZoneLockWorkload::Highalloc | ZoneLockWorkload::Order0Thp | ZoneLockWorkload::Alloc => None,
    }
}

/// Memory for what one thread allocates and frees.
fn transfer_needs() -> ByteSize {
    ByteSize(TRANSFERRED.0 + TRANSFERRED.0 / 16 + ByteSize::mib(16).0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::assert_refused;
    use frameyard_vm::LruPolicy;

    fn read(line: &str) -> Result<ZoneLockArgs, String> {
        crate::args::read(line)
    }

    #[test]
    fn a_bare_run_compares_every_policy_in_every_workload() {
        let args = read("").unwrap();
        assert_eq!(args.comparison.compared.policies.zones, ZonePolicy::ALL);
        assert_eq!(args.workloads, ZoneLockWorkload::value_variants());
        assert_eq!(args.comparison.compared.policies.lru, LruPolicy::ALL);
        assert_eq!(args.comparison.compared.modes, [TaskMode::Threads]);
    }

    #[test]
    fn workloads_have_the_same_names_in_the_command_line_and_in_rows() {
        for workload in ZoneLockWorkload::value_variants() {
            assert_eq!(workload.to_possible_value().unwrap().get_name(), workload.name());
        }
    }

    #[test]
    fn full_runs_are_longer_and_in_both_modes() {
        let args = read("--full --policy bits,vanilla").unwrap();
        assert_eq!((args.duration(), args.comparison().compared.modes.len()), (FULL_DURATION, 2));
        assert_eq!(args.comparison.compared.policies.zones, [ZonePolicy::Bits, ZonePolicy::Vanilla]);
        assert_eq!(read("--full --duration 3s").unwrap().duration(), Duration::from_secs(3));
    }

    #[test]
    fn refusals_name_a_correct_value() {
        assert_refused::<ZoneLockArgs>(&[
            ("--policy fast", "possible values: vanilla"),
            ("--workload idle", "possible values: page-fault"),
            ("--lru fast", "possible values: vanilla, sharded"),
            ("--tasks 0", "as in 4 or 1..40"),
            ("--repeat 0", "from 1"),
            ("--duration 5", "as in 500ms or 2s"),
        ]);
    }
}
