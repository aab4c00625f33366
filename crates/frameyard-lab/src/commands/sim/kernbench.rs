//! `sim kernbench`: jobs of a build on every CPU, with per-CPU lists sized before or after most memory is
//! initialised.

use std::num::NonZeroU32;
use std::time::Duration;

use clap::{Args, ValueEnum, ValueHint};
use frameyard::ByteSize;
use frameyard::boot::PcpReset;
use frameyard::platform::LockKind;
use frameyard::policy::ZonePolicy;
use frameyard::watermarks::PcpSizing;
use frameyard_sim::{ListAccess, Machine};
use frameyard_vm::LruPolicy;
use frameyard_workloads::counts::Drains;
use frameyard_workloads::kernbench::{CpuWork, Job, memory_needed};
use frameyard_workloads::sim::{FrameContents, SimInit, SimOptions, SimRun, TimeSpent, whole_ns};
use frameyard_workloads::timed_run::TaskRun;
use frameyard_workloads::{Setting, TaskMode};

use crate::Failure;
use crate::args::values::{positive_number, positive_size, whole_number};
use crate::args::{OutputArgs, PolicyArgs, QuickArgs, VirtualDurationArgs};
use crate::commands::comparison::{profile, too_small};
use crate::commands::simulated_machine::machine;
use crate::commands::workloads::kernbench::BuildArgs;
use crate::fixture::with_sim_fixture;
use crate::measure::{Deviation, median_first};
use crate::output::{Format, OutputFile, Report, Row, progress_bar, rounded};

/// What follows the options in the help text.
const HELP: &str = "\
Takes about a minute; --quick about 2 seconds.

Examples:
  frameyard sim kernbench --quick
  frameyard sim kernbench --machine epyc2-256 --zone-cpus 16,64 --policy vanilla,bits
  frameyard sim kernbench --quick --seeds 5
  frameyard sim kernbench --quick --policy cluster-bulk --lists final --profile build.folded";

/// Runs jobs of a build on every CPU, with per-CPU lists sized before or after most memory is initialised
#[derive(Args, Clone, Debug)]
#[command(
    after_help = HELP,
    mut_arg("zones", |arg| arg.default_value(ZonePolicy::Vanilla.name())),
    mut_arg("lru", |arg| arg.default_value(LruPolicy::Vanilla.name()))
)]
pub(super) struct SimKernbenchArgs {
    /// A built-in simulated machine, or a file that describes one (TOML)
    #[arg(long, value_name = "NAME|FILE", default_value = "epyc2-256", value_hint = ValueHint::AnyPath)]
    machine: String,

    /// CPUs of each zone, both threads of its cores [default: all CPUs of a socket]
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = positive_number, default_value_if("quick", "true", "16"))]
    zone_cpus: Vec<NonZeroU32>,

    /// Sizes of zones, whole sections of 128M [default: 4G, or what the jobs need]
    #[arg(long, value_name = "SIZE", value_delimiter = ',', value_parser = positive_size)]
    zone_size: Vec<ByteSize>,

    /// By which memory per-CPU lists are sized
    #[arg(long, value_name = "WHEN", value_delimiter = ',', value_enum, default_value = "early,final")]
    lists: Vec<ListsSized>,

    /// Size of the per-CPU lists: scaled, classic, early, fraction:N or fixed:N; classic is what kernels up to 5.13 had, early up to 4.18
    #[arg(long, value_name = "SIZING", default_value = "classic")]
    pcp_sizing: PcpSizing,

    #[command(flatten)]
    policies: PolicyArgs,

    /// Seed of the random choices
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number)]
    seed: u64,

    /// Seeds to run each combination with, from --seed on; CPU times become means, with standard deviations
    #[arg(long, value_name = "N", default_value = "1", value_parser = positive_number)]
    seeds: NonZeroU32,

    /// Also write a profile of virtual time as folded stacks for flame graphs, of the first seed; several rows get one file
    /// each, named after the row
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    profile: Option<OutputFile>,

    #[command(flatten)]
    build: BuildArgs,
    #[command(flatten)]
    duration: VirtualDurationArgs,
    #[command(flatten)]
    quick: QuickArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// By which memory per-CPU lists are sized.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ListsSized {
    /// By the memory of early boot: one section of each zone
    Early,
    /// By all memory, once all of it is initialised
    Final,
}

impl ListsSized {
    /// The name on command lines and in rows.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Early => "early",
            Self::Final => "final",
        }
    }
}

const NAME: &str = "sim kernbench";
const NOTE: &str = "CPU times per job; severity is system time relative to that with final lists. Shares are shares of all CPUs' time; each CPU \
    runs one job after another. With several seeds, CPU times are means with the standard deviation in percent, and the other columns are \
    those of the run with the median system time. Drains are counted by cluster-bulk: a full batch is one whole batch of one type.";

/// The default size of a zone, unless jobs need more: enough for the largest batches.
const ZONE_SIZE: ByteSize = ByteSize::gib(4);

/// One combination of settings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Case<'m> {
    pub(super) machine: &'m Machine,
    pub(super) zone_size: Option<ByteSize>,
    pub(super) lists: ListsSized,
    pub(super) sizing: PcpSizing,
    pub(super) zone: ZonePolicy,
    pub(super) lru: LruPolicy,
    pub(super) build: Job,
    pub(super) seed: u64,
    pub(super) duration: Duration,
}

/// The result of a combination, or the mean of several.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Built {
    pub(super) zone_policy: &'static str,
    pub(super) lru_policy: &'static str,
    pub(super) lists: &'static str,
    pub(super) zone_cpus: u32,
    pub(super) zone_bytes: u64,
    pub(super) high: u64,
    pub(super) batch: u64,
    /// Jobs per second of all CPUs.
    pub(super) jobs_per_s: f64,
    /// CPU time per job: computing, and the rest.
    pub(super) user_ns: f64,
    pub(super) system_ns: f64,
    /// Their standard deviations over seeds, in percent.
    pub(super) user_stddev_pct: Option<f64>,
    pub(super) system_stddev_pct: Option<f64>,
    /// Runs with different seeds.
    pub(super) seeds: usize,
    /// System time relative to that with lists of their final size.
    pub(super) severity: Option<f64>,
    pub(super) system_share: f64,
    pub(super) zone_lock_share: f64,
    pub(super) lru_lock_share: f64,
    pub(super) other_locks_share: f64,
    pub(super) misses_share: f64,
    /// Drains of per-CPU lists, where the policy counts them.
    pub(super) drains: Option<Drains>,
    pub(super) simulated_ns: u64,
}

impl Case<'_> {
    /// Runs the combination with this seed and those after it.
    ///
    /// # Errors
    ///
    /// Those of [`run`](Self::run).
    pub(super) fn run_seeds(&self, seeds: u32) -> Result<(Built, Option<TimeSpent>), Failure> {
        let (mut runs, mut first) = (Vec::new(), None);
        for seed in (self.seed..).take(seeds as usize) {
            let (built, spent) = Case { seed, ..*self }.run()?;
            runs.push(built);
            first.get_or_insert(spent);
        }
        Ok((Built::of_seeds(runs), first))
    }

    /// Runs the combination.
    ///
    /// # Errors
    ///
    /// [`Failure::Input`] where a zone is too small, and failures of the run and its checks.
    pub(super) fn run(&self) -> Result<(Built, TimeSpent), Failure> {
        let (zones, cpus) = (u64::from(self.machine.topology.sockets), self.machine.cpus() as u32);
        let tasks = NonZeroU32::new(cpus).unwrap_or(NonZeroU32::MIN);
        let needed = memory_needed(cpus, self.build);
        // A quarter more of each zone, for frames on per-CPU lists.
        let enough = ByteSize(needed.0 / zones / 4 * 5 + ByteSize::mib(256).0).max(ZONE_SIZE);
        let memory = ByteSize(self.zone_size.unwrap_or(enough).0.saturating_mul(zones));
        let reset = match self.lists {
            ListsSized::Early => PcpReset::Off,
            ListsSized::Final => PcpReset::On,
        };
        let options = SimOptions {
            memory,
            zone: self.zone,
            lru: self.lru,
            sizing: self.sizing,
            lists: ListAccess::Locks,
            init: SimInit::Deferred(reset),
            costs: CpuWork::COSTS,
            contents: FrameContents::Dropped,
        };
        let setting = Setting { mode: TaskMode::Processes, tasks, zone: self.zone, lru: self.lru };
        with_sim_fixture(self.machine, &options, |fixture| {
            let free = fixture.free_memory();
            if needed > free {
                return Err(too_small(NAME, needed, free));
            }
            let run = frameyard_workloads::sim::kernbench(fixture, &setting, self.seed, self.build, self.duration)?;
            let (high, batch) = fixture.list_sizes().map_or((0, 0), |(high, batch)| (high.0, batch.0));
            let built = Built { high, batch, ..self.built(&run, ByteSize(fixture.memory().0 / zones)) };
            Ok((built, run.spent))
        })
    }

    fn built(&self, SimRun { run, simulated, spent }: &SimRun<TaskRun>, zone: ByteSize) -> Built {
        let share = |share: Option<f64>| share.unwrap_or(0.0);
        let user = share(spent.cost(CpuWork::COSTS[CpuWork::Compute as usize]));
        let jobs_per_s = run.rate() / f64::from(self.build.pages);
        let cpu_ns = self.machine.cpus() as f64 * 1e9 / jobs_per_s;
        Built {
            zone_policy: self.zone.name(),
            lru_policy: self.lru.name(),
            lists: self.lists.name(),
            zone_cpus: self.machine.cpus() as u32 / u32::from(self.machine.topology.sockets),
            zone_bytes: zone.0,
            high: 0,
            batch: 0,
            jobs_per_s: rounded(jobs_per_s),
            user_ns: (cpu_ns * user).round(),
            system_ns: (cpu_ns * (1.0 - user)).round(),
            user_stddev_pct: None,
            system_stddev_pct: None,
            seeds: 1,
            severity: None,
            system_share: 1.0 - user,
            zone_lock_share: share(spent.lock(LockKind::Zone)),
            lru_lock_share: share(spent.lock(LockKind::LruShard)),
            other_locks_share: share(spent.locks_but(&[LockKind::Zone, LockKind::LruShard])),
            misses_share: share(spent.misses()),
            drains: Some(run.counts.drains).filter(|drains| drains.all > 0),
            simulated_ns: whole_ns(*simulated),
        }
    }
}

/// Runs every combination.
pub(super) fn run(args: &SimKernbenchArgs) -> Result<(), Failure> {
    let whole = machine(&args.machine)?;
    let machines: Vec<Machine> = match &args.zone_cpus[..] {
        [] => vec![whole],
        numbers => numbers.iter().map(|cpus| with_zone_cpus(&whole, cpus.get())).collect::<Result<_, _>>()?,
    };
    let sizes: Vec<Option<ByteSize>> = match &args.zone_size[..] {
        [] => vec![None],
        sizes => sizes.iter().copied().map(Some).collect(),
    };
    let runs = machines.len() * sizes.len() * args.policies.pairs().count() * args.lists.len();
    let bar = progress_bar(NAME, runs as u64);
    let (mut rows, mut profiles) = (Vec::new(), Vec::new());
    for machine in &machines {
        for zone_size in &sizes {
            for (zone, lru) in args.policies.pairs() {
                let case = |lists| Case {
                    machine,
                    zone_size: *zone_size,
                    lists,
                    sizing: args.pcp_sizing,
                    zone,
                    lru,
                    build: args.build.into(),
                    seed: args.seed,
                    duration: args.duration.duration,
                };
                let first = rows.len();
                for lists in &args.lists {
                    let (built, spent) = case(*lists).run_seeds(args.seeds.get())?;
                    profiles.extend(spent.map(|spent| (built.name(), spent)));
                    rows.push(built);
                    bar.inc(1);
                }
                note_severity(&mut rows[first..]);
            }
        }
    }
    bar.finish_and_clear();
    if let Some(file) = &args.profile {
        profile::write(file, profiles.iter().map(|(name, spent)| (name.clone(), spent)))?;
    }
    Report::new(NAME, rows.iter().map(Built::row).collect()).of_machine(&args.machine).note(NOTE).print(&args.output)
}

/// Sets each row's system time relative to that with lists of their final size.
fn note_severity(rows: &mut [Built]) {
    let last = rows.iter().find(|row| row.lists == ListsSized::Final.name()).map(|row| row.system_ns);
    for row in rows {
        row.severity = last.map(|last| rounded(row.system_ns / last));
    }
}

/// The machine with `cpus` CPUs per socket.
fn with_zone_cpus(machine: &Machine, cpus: u32) -> Result<Machine, Failure> {
    let mut smaller = machine.clone();
    let topology = &mut smaller.topology;
    let threads = u32::from(topology.threads_per_core);
    let cores = cpus / threads;
    topology.cores_per_cache = topology.cores_per_cache.min(cores.try_into().unwrap_or(u16::MAX));
    let fits = cores > 0
        && cpus.is_multiple_of(threads)
        && cores <= u32::from(topology.cores_per_socket)
        && cores.is_multiple_of(u32::from(topology.cores_per_cache.max(1)));
    if !fits {
        let (most, step) = (topology.cores_per_socket, topology.cores_per_cache.max(1));
        return Err(Failure::input(format!(
            "--zone-cpus {cpus}: {} has {most} cores of {threads} threads a socket, in groups: write multiples of {} up to {}",
            machine.name,
            u32::from(step) * threads,
            u32::from(most) * threads
        )));
    }
    topology.cores_per_socket = cores as u16;
    Ok(smaller)
}

impl Built {
    /// The median run by system time, with means and deviations of CPU times.
    fn of_seeds(runs: Vec<Self>) -> Self {
        let seeds = runs.len();
        let of = |value: fn(&Self) -> f64| Deviation::of(&runs.iter().map(value).collect::<Vec<_>>());
        let Some((user, system)) = of(|run| run.user_ns).zip(of(|run| run.system_ns)) else {
            return Self::default();
        };
        let (median, _) = median_first(runs, |run| run.system_ns);
        Self {
            user_ns: user.mean.round(),
            system_ns: system.mean.round(),
            user_stddev_pct: user.percent.map(rounded),
            system_stddev_pct: system.percent.map(rounded),
            seeds,
            ..median
        }
    }

    /// The name of a profile.
    fn name(&self) -> String {
        let Self { lists, zone_cpus, zone_bytes, zone_policy, lru_policy, .. } = self;
        format!("{lists}-{zone_cpus}-{}M-{zone_policy}-{lru_policy}", zone_bytes >> 20)
    }

    fn row(&self) -> Row {
        let percent = Format::percent(2);
        let drains = |part: fn(&Drains) -> u64| self.drains.map(|drains| part(&drains));
        let full_share = self.drains.map(|drains| (drains.full_batches as f64 / drains.all as f64 * 1e6).round() / 1e6);
        Row::new()
            .column("zone_policy", "zone policy", self.zone_policy)
            .column("lru_policy", "LRU policy", self.lru_policy)
            .column("lists", "lists", self.lists)
            .column("zone_cpus", "CPUs a zone", self.zone_cpus)
            .column_as("zone_bytes", "zone", Format::Size, self.zone_bytes)
            .column("high", "high", self.high)
            .minor()
            .column("batch", "batch", self.batch)
            .column_as("jobs_per_s", "jobs/s", Format::number(0), self.jobs_per_s)
            .column_as("user_ns", "user µs", Format::thousands(0), self.user_ns)
            .minor()
            .column_as("user_stddev_pct", "± %", Format::number(2), self.user_stddev_pct)
            .minor()
            .column_as("system_ns", "system µs", Format::thousands(0), self.system_ns)
            .column_as("system_stddev_pct", "± %", Format::number(2), self.system_stddev_pct)
            .minor()
            .data("seeds", self.seeds)
            .column_as("severity", "severity", Format::number(2), self.severity)
            .column_as("system_share", "system %", percent, self.system_share)
            .minor()
            .column_as("zone_lock_share", "zone lock %", percent, self.zone_lock_share)
            .minor()
            .column_as("lru_lock_share", "LRU lock %", percent, self.lru_lock_share)
            .minor()
            .column_as("other_locks_share", "other locks %", percent, self.other_locks_share)
            .minor()
            .column_as("misses_share", "misses %", percent, self.misses_share)
            .minor()
            .column("drains", "drains", drains(|drains| drains.all))
            .minor()
            .column_as("full_batch_drains_share", "full batch %", percent, full_share)
            .minor()
            .data("full_batch_drains_unmovable", drains(|drains| drains.full_batches_of[0]))
            .data("full_batch_drains_movable", drains(|drains| drains.full_batches_of[1]))
            .data("full_batch_drains_reclaimable", drains(|drains| drains.full_batches_of[2]))
            .data("simulated_ns", self.simulated_ns)
    }
}
