//! `bench zone-lock`: every policy of zones in every workload that shows what a zone's lock costs, beside published figures.
//!
//! What is measured has rows of its own, and so has what was published. Throughput comes from runs whose locks are not timed,
//! times at locks from one more run of the same; what is counted in one direction, from one thread that does what the tasks
//! do ([`frameyard_workloads::transfer`]).

use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use frameyard::{ByteSize, InitMode, Order, PageCount};
use frameyard_host::{HostTopology, LockTiming};

use super::alloc::{alternate, kind_name};
use super::comparison::{Comparison, Yards};
use crate::Failure;
use crate::bring_up::{BringUp, FrameBacking, MapLimit, bring_up};
use crate::chosen_machine::ChosenMachine;
use crate::cli::{ComparisonArgs, InitArgs, MachineArgs, ZoneLockArgs, ZoneLockWorkload};
use frameyard_workloads::alloc::AccessKind;
use frameyard_workloads::TaskMode;
use crate::output::{self, progress_bar};
use frameyard_workloads::alloc::AllocWorkload;
use frameyard_workloads::counts::Drains;
use frameyard_workloads::transfer::{self, Return};
use frameyard_workloads::fixture::Fixture;
use frameyard_workloads::Setting;
use frameyard_workloads::held::while_looking;
use frameyard_workloads::highalloc::{self, DelayKind, HUGE, HighallocPlan};
use frameyard_workloads::order0_thp::{self, pages_of_task};
use frameyard_workloads::page_fault;
use frameyard_workloads::{MAP_SIZE, Pages};
use frameyard_workloads::timed_run::TaskRun;
use frameyard_workloads::{parallel_free, purge};

mod published;
mod row;
mod sample;
mod text;

use row::{Combination, Row};
use sample::{HighOrder, Sample};
use text::ZoneLockOutcome;

/// The name of the command.
const NAME: &str = "bench zone-lock";
/// Runs of a row without timed locks, unless asked for otherwise …
const REPEAT: NonZeroU32 = NonZeroU32::new(3).unwrap();
/// … and where each run needs a yard of its own.
const REPEAT_ON_NEW_YARDS: NonZeroU32 = NonZeroU32::new(2).unwrap();
/// The least memory, unless asked for otherwise. More tasks have more.
const LEAST_MEMORY: ByteSize = ByteSize::gib(1);
/// Memory of `highalloc`, unless asked for otherwise: small, so that it is soon full.
const HIGHALLOC_MEMORY: ByteSize = ByteSize::mib(512);
/// Memory of `alloc`, unless asked for otherwise. Its frames are never touched.
const ALLOC_MEMORY: ByteSize = ByteSize::gib(4);
/// Between two requests of `highalloc`, as published.
const DELAYS: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(1)];
/// Between the filling of memory and the first request of `highalloc`.
const SETTLE: Duration = Duration::from_millis(100);
/// The part of memory that builders of `highalloc` hold in unmovable frames.
const UNMOVABLE_PERCENT: u8 = 5;
/// What `highalloc` needs for each builder, and once more.
const HIGHALLOC_NEEDS: ByteSize = ByteSize::mib(64);
/// What one thread takes and gives back to show each direction by itself.
const CROSSING: ByteSize = ByteSize::mib(32);
/// A run that is not counted takes this part of the time of one that is.
const LEAD_IN: u32 = 3;

/// Runs what is asked for.
pub(super) fn run(args: &ZoneLockArgs) -> Result<(), Failure> {
    if args.machine.phantom {
        return Err(Failure::input(format!("{NAME} --phantom: pages need memory behind them; leave --phantom out")));
    }
    let host = HostTopology::current().map_err(Failure::run_time)?;
    let plan = Plan { args, host: &host };
    let (usual, small) = (plan.comparison_args(LEAST_MEMORY)?, plan.comparison_args(HIGHALLOC_MEMORY)?);
    let owned = args.workloads.iter().filter(|workload| **workload != ZoneLockWorkload::Alloc);
    let mut parts = Vec::new();
    for &workload in owned {
        let on = if workload == ZoneLockWorkload::Highalloc { &small } else { &usual };
        parts.push((workload, plan.comparison(workload, on)?));
    }
    // All that can be refused is refused before the first run.
    for (workload, comparison) in &parts {
        comparison.check_memory(|setting| plan.needed(*workload, setting))?;
    }
    let mut rows = Vec::new();
    let mut machine = None;
    for (workload, comparison) in &parts {
        machine.get_or_insert_with(|| comparison.machine().to_owned());
        rows.extend(plan.measure(*workload, comparison)?);
    }
    if args.workloads.contains(&ZoneLockWorkload::Alloc) {
        let (name, of_alloc) = plan.alloc()?;
        machine.get_or_insert(name);
        rows.extend(of_alloc);
    }
    rows.extend(published::rows(&args.workloads));
    output::print(&ZoneLockOutcome { machine: machine.unwrap_or_default(), rows }, &args.output)
}

/// What is asked for, on this host.
struct Plan<'a> {
    args: &'a ZoneLockArgs,
    host: &'a HostTopology,
}

impl Plan<'_> {
    fn cpus(&self) -> u32 {
        self.host.allowed().count().max(1)
    }

    /// The options of comparisons on a machine of that memory, or as much more as the tasks need.
    fn comparison_args(&self, memory: ByteSize) -> Result<ComparisonArgs, Failure> {
        let mut args = self.args.comparison();
        if args.machine.memory.is_none() && args.machine.machine.is_none() {
            let tasks = args.tasks.iter().copied().max().map_or(self.cpus(), NonZeroU32::get);
            let needed = match memory {
                HIGHALLOC_MEMORY => ByteSize(HIGHALLOC_NEEDS.0.saturating_mul(2 * u64::from(tasks))),
                _ => order0_thp::memory_needed(tasks, MAP_SIZE),
            };
            let memory = memory.0.max(needed.0.checked_next_power_of_two().unwrap_or(needed.0));
            args.machine.memory = Some(ByteSize(memory));
        }
        Ok(args)
    }

    /// The comparison of a workload, with the tasks that it has unless others are asked for.
    fn comparison<'c>(&self, workload: ZoneLockWorkload, args: &'c ComparisonArgs) -> Result<Comparison<'c>, Failure> {
        let (yards, repeat, tasks) = match workload {
            // As many of each kind fill the CPUs.
            ZoneLockWorkload::Order0Thp => (Yards::OneForEachRun, REPEAT_ON_NEW_YARDS, self.cpus() / 2),
            ZoneLockWorkload::Highalloc => (Yards::OneForEachRun, REPEAT_ON_NEW_YARDS, self.cpus()),
            // Their purgers have the rest.
            ZoneLockWorkload::Purge => {
                (Yards::OneForAllPolicies, REPEAT, self.cpus().saturating_sub(purge::usual_purgers(self.cpus())))
            }
            _ => (Yards::OneForAllPolicies, REPEAT, self.cpus()),
        };
        let comparison = Comparison::new(args, NAME, yards, repeat)?;
        let comparison = if workload == ZoneLockWorkload::Highalloc {
            // Its requests take milliseconds: a look at the clock at each lock is nothing to them.
            comparison.check_order(HUGE)?;
            comparison
        } else {
            comparison.with_times_apart()
        };
        Ok(comparison.with_usual_tasks(NonZeroU32::new(tasks).unwrap_or(NonZeroU32::MIN)))
    }

    /// What a workload needs to have free.
    fn needed(&self, workload: ZoneLockWorkload, setting: &Setting) -> ByteSize {
        let tasks = setting.tasks.get();
        match workload {
            ZoneLockWorkload::Order0Thp => order0_thp::memory_needed(tasks, MAP_SIZE),
            ZoneLockWorkload::Purge => purge::memory_needed(tasks, purgers(setting)).max(crossing_needs()),
            ZoneLockWorkload::ParallelFree => parallel_free::memory_needed(tasks).max(crossing_needs()),
            ZoneLockWorkload::Highalloc => ByteSize(HIGHALLOC_NEEDS.0.saturating_mul(1 + u64::from(tasks))),
            ZoneLockWorkload::PageFault | ZoneLockWorkload::Alloc => page_fault::memory_needed(tasks, MAP_SIZE),
        }
    }

    /// The rows of a workload whose pages have owners.
    fn measure(&self, workload: ZoneLockWorkload, comparison: &Comparison<'_>) -> Result<Vec<Row>, Failure> {
        let variants = if workload == ZoneLockWorkload::Highalloc { DELAYS.len() } else { 1 };
        let needed = |setting: &Setting| self.needed(workload, setting);
        let compared = comparison.measure(variants, needed, |fixture, setting, variant| {
            self.lead_in(workload, fixture, setting)?;
            if fixture.lock_timing() == LockTiming::Off {
                return self.once(workload, fixture, setting, variant);
            }
            let (sample, held) = while_looking(fixture.vm.yard(), || self.once(workload, fixture, setting, variant));
            let crossings = match way(workload) {
                Some(way) => transfer::timed_and_counted(fixture, self.host.allowed(), way, CROSSING)?,
                None => Vec::new(),
            };
            Ok(Sample { held: Some(held), crossings, ..sample? })
        })?;
        let kinds: &[Option<&'static str>] = match workload {
            ZoneLockWorkload::Order0Thp => &[Some("small"), Some("huge")],
            _ => &[None],
        };
        let mut rows = Vec::new();
        for (variant, row) in &compared {
            let delay = (workload == ZoneLockWorkload::Highalloc).then(|| DELAYS[*variant]);
            for &task_kind in kinds {
                let Setting { mode, tasks, zone: policy, lru } = row.setting;
                let lru = Some(lru);
                let combination =
                    Combination { workload, policy, mode, tasks, task_kind, lru, delay, memory: row.memory };
                rows.push(Row::measured(&combination, &row.runs));
            }
        }
        Ok(rows)
    }

    /// Brings lists of a policy that came a moment ago to where they will stay, on memory that the host has provided: what the
    /// host takes for that is not to be measured, and a policy that keeps more would have more of it. Workloads that have a
    /// yard for each run fill it first in any case.
    fn lead_in(&self, workload: ZoneLockWorkload, fixture: &Fixture<'_>, setting: &Setting) -> Result<(), Failure> {
        let threads = NonZeroUsize::new(self.cpus() as usize).unwrap_or(NonZeroUsize::MIN);
        if !matches!(workload, ZoneLockWorkload::Highalloc | ZoneLockWorkload::Order0Thp) {
            fixture.yard.memory().prefault(threads, self.host, &mut |_| {}).map_err(Failure::run_time)?;
        }
        let (seed, duration) = (self.args.seed, self.args.duration() / LEAD_IN);
        match workload {
            ZoneLockWorkload::PageFault => drop(page_fault::run(fixture, setting, seed, duration)?),
            ZoneLockWorkload::Purge => {
                drop(purge::run(fixture, setting, purgers(setting), seed, duration)?);
            },
            ZoneLockWorkload::ParallelFree => drop(parallel_free::run(fixture, setting, seed)?),
            ZoneLockWorkload::Highalloc | ZoneLockWorkload::Order0Thp | ZoneLockWorkload::Alloc => {}
        }
        Ok(())
    }

    /// One run of a workload, as its own command runs it.
    fn once(
        &self,
        workload: ZoneLockWorkload,
        fixture: &Fixture<'_>,
        setting: &Setting,
        variant: usize,
    ) -> Result<Sample, Failure> {
        let (seed, duration) = (self.args.seed, self.args.duration());
        let of_tasks = |run: &TaskRun| Sample::of(vec![(None, run.rate())], &run.counts);
        Ok(match workload {
            ZoneLockWorkload::PageFault => of_tasks(&page_fault::run(fixture, setting, seed, duration)?),
            ZoneLockWorkload::Purge => of_tasks(&purge::run(fixture, setting, purgers(setting), seed, duration)?),
            ZoneLockWorkload::ParallelFree => {
                let run = parallel_free::run(fixture, setting, seed)?;
                Sample::of(vec![(None, run.pages.0 as f64 * 1e9 / run.exit_ns.max(1) as f64)], &run.counts)
            }
            ZoneLockWorkload::Order0Thp => {
                let run = order0_thp::run(fixture, setting, seed, duration)?;
                let rate = |kind| (Some(kind), run.rate_of(|task| pages_of_task(setting, task).name() == kind));
                Sample::of(vec![rate(Pages::Small.name()), rate(Pages::Huge.name())], &run.counts)
            }
            ZoneLockWorkload::Highalloc | ZoneLockWorkload::Alloc => {
                let (delay, unmovable_percent) = (DELAYS[variant], UNMOVABLE_PERCENT);
                let plan = HighallocPlan { delay, kind: DelayKind::Virtual, settle: SETTLE, unmovable_percent };
                let run = highalloc::run(fixture, setting, seed, &plan)?;
                let attempts = run.attempts.max(1) as f64;
                let high_order =
                    HighOrder { success: run.successes as f64 / attempts, ns: run.total_ns as f64 / attempts };
                Sample { high_order: Some(high_order), ..Sample::of(vec![(None, run.builders_rate)], &run.counts) }
            }
        })
    }

    /// The rows of `alloc`, whose pages have no owners, and the machine's name.
    fn alloc(&self) -> Result<(String, Vec<Row>), Failure> {
        let args = self.args;
        let memory = args.machine.memory.or_else(|| args.machine.machine.is_none().then_some(ALLOC_MEMORY));
        let ChosenMachine { machine, .. } = ChosenMachine::of(&MachineArgs { memory, ..args.machine.clone() })?;
        let map_init = InitArgs::default().map_init(InitMode::Eager, &machine)?;
        let map_limit = if args.full { MapLimit::Full } else { MapLimit::Usual };
        let backing = FrameBacking::Real;
        let options = BringUp { map_init, map_limit, backing, ..BringUp::of(&args.machine, &args.yard) };
        let yard = &bring_up(&machine, &options)?.yard;
        let repeat = args.repeat.unwrap_or(REPEAT).get();
        let all = NonZeroU32::new(self.cpus()).unwrap_or(NonZeroU32::MIN);
        let mut tasks = if args.tasks.is_empty() { vec![NonZeroU32::MIN, all] } else { args.tasks.clone() };
        tasks.dedup();
        let kinds = [AccessKind::Bulk, AccessKind::Random, AccessKind::Repeat];
        let bar = progress_bar(NAME, (kinds.len() * tasks.len() * args.policies.len()) as u64 * u64::from(repeat + 2));
        let mut rows = Vec::new();
        for kind in kinds {
            for &tasks in &tasks {
                let workload = AllocWorkload { kind, order: Order::ZERO, tasks, seed: args.seed };
                if yard.managed_pages() < PageCount(2 * u64::from(tasks.get())) {
                    return Err(Failure::input(format!("{NAME}: {tasks} tasks need more --memory")));
                }
                let runs = alternate(yard, &args.policies, repeat + 1, |round| {
                    bar.inc(1);
                    let is_timed = round > repeat;
                    yard.platform().time_locks(if is_timed { LockTiming::On } else { LockTiming::Off });
                    let before = Drains::of(yard);
                    let run = || {
                        let run = workload.run(&**yard, self.host).map_err(Failure::run_time)?;
                        let drains = Drains::of(yard).since(&before);
                        Ok(Sample { drains, ..Sample::of_alloc(&workload, &run) })
                    };
                    if !is_timed {
                        return run();
                    }
                    let (sample, held) = while_looking(&**yard, run);
                    Ok(Sample { held: Some(held), locks_are_timed: true, ..sample? })
                })?;
                for (&policy, runs) in args.policies.iter().zip(&runs) {
                    let combination = Combination {
                        workload: ZoneLockWorkload::Alloc,
                        policy,
                        mode: TaskMode::Threads,
                        tasks,
                        task_kind: Some(kind_name(kind)),
                        lru: None,
                        delay: None,
                        memory: machine.memory_bytes(),
                    };
                    rows.push(Row::measured(&combination, runs));
                }
            }
        }
        bar.finish_and_clear();
        yard.validate().map_err(Failure::run_time)?;
        Ok((machine.name, rows))
    }
}

/// How frames come back in a workload whose directions are shown by themselves.
fn way(workload: ZoneLockWorkload) -> Option<Return> {
    match workload {
        ZoneLockWorkload::PageFault => Some(Return::SameCpu),
        ZoneLockWorkload::Purge => Some(Return::OtherCpu),
        ZoneLockWorkload::ParallelFree => Some(Return::Exit),
        ZoneLockWorkload::Highalloc | ZoneLockWorkload::Order0Thp | ZoneLockWorkload::Alloc => None,
    }
}

fn purgers(setting: &Setting) -> u32 {
    match setting.mode {
        TaskMode::Threads => purge::usual_purgers(setting.tasks.get()),
        TaskMode::Processes => setting.tasks.get(),
    }
}

/// Memory for what one thread takes and gives back.
fn crossing_needs() -> ByteSize {
    ByteSize(CROSSING.0 + CROSSING.0 / 16 + ByteSize::mib(16).0)
}
