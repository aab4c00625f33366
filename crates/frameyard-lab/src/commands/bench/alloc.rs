//! `bench alloc`: allocating and freeing blocks, by pattern, order and number of tasks.

use std::num::NonZeroU32;

use clap::Args;
use frameyard::boot::InitMode;
use frameyard::policy::ZonePolicy;
use frameyard::{ByteSize, Order};
use frameyard_host::{HostTopology, HostYard};
use frameyard_workloads::alloc::{AccessKind, AllocRun, AllocWorkload};
use frameyard_workloads::compare_exchange::compare_exchange_ns;
use frameyard_workloads::{TaskMode, WorkloadError};

use crate::Failure;
use crate::args::values::{access_kind, order, positive_number, task_mode, whole_number, zone_policy};
use crate::args::{FullArgs, InitArgs, MachineArgs, OutputArgs, QuickArgs, YardArgs};
use crate::boot::{BootOptions, boot_machine};
use crate::chosen_machine::{ChosenMachine, print_notes};
use crate::commands::comparison::can_change;
use crate::measure::Spread;
use crate::output::{Format, ProgressBar, Report, Row, progress_bar, rounded};

/// What follows the options in the help text.
const HELP: &str = "\
Takes about 30 seconds; --quick about 5.

Examples:
  frameyard bench alloc --quick
  frameyard bench alloc --kind bulk --order 0 --tasks 1,2,4 --policy vanilla,bits
  frameyard bench alloc --kind repeat,spill --order 0 --machine desktop-8 --phantom
  frameyard bench alloc --page-size 2M --order 0 --pcp-sizing fraction:32";

/// Allocates and frees blocks
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(super) struct AllocArgs {
    /// How the blocks are allocated and freed
    #[arg(
        long = "kind",
        value_name = "KINDS",
        value_delimiter = ',',
        value_parser = access_kind(),
        default_value = "repeat,bulk,random,cold,warm"
    )]
    kinds: Vec<AccessKind>,

    /// Orders of the blocks
    #[arg(long = "order", value_name = "ORDERS", value_delimiter = ',', default_value = "0,3,9", default_value_if("quick", "true", "0,9"), value_parser = order)]
    orders: Vec<Order>,

    /// Policies to compare
    #[arg(long = "policy", value_name = "POLICIES", value_delimiter = ',', value_parser = zone_policy(), default_value = ZonePolicy::default().name(), help_heading = "Runs")]
    policies: Vec<ZonePolicy>,

    /// Numbers of tasks to run with
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1,2", value_parser = positive_number, help_heading = "Runs")]
    tasks: Vec<NonZeroU32>,

    /// What a task is
    #[arg(long, value_parser = task_mode(), default_value = "threads", help_heading = "Runs")]
    mode: TaskMode,

    /// Runs of each row, of which the median is reported
    #[arg(long, value_name = "N", default_value = "5", default_value_if("quick", "true", "1"), value_parser = positive_number, help_heading = "Runs")]
    repeat: NonZeroU32,

    /// Seed of the random choices
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number, help_heading = "Runs")]
    seed: u64,

    #[command(flatten)]
    quick: QuickArgs,
    #[command(flatten)]
    full: FullArgs,
    #[command(flatten)]
    machine: MachineArgs,
    #[command(flatten)]
    yard: YardArgs,
    #[command(flatten)]
    init: InitArgs,
    #[command(flatten)]
    output: OutputArgs,
}

const NAME: &str = "bench alloc";
/// Memory of the machine unless the command line says otherwise.
const DEFAULT_MEMORY: ByteSize = ByteSize::gib(8);

/// Runs every combination of pattern, order, policy and number of tasks.
pub(super) fn run(args: &AllocArgs) -> Result<(), Failure> {
    if args.mode == TaskMode::Processes {
        return Err(Failure::input(format!(
            "{NAME} --mode processes: this workload runs as threads; leave --mode out"
        )));
    }
    let chosen = ChosenMachine::with_memory(&args.machine, args.quick.memory(DEFAULT_MEMORY))?;
    let host = HostTopology::current().map_err(Failure::run_time)?;
    let map_init = args.init.map_init(InitMode::Eager, &chosen.machine)?;
    let options = BootOptions {
        map_init,
        map_limit: args.full.map_limit(),
        policy: args.policies.first().copied().unwrap_or_default(),
        ..BootOptions::of(&args.machine, &args.yard)
    };
    let booted = boot_machine(&chosen.machine, &options)?;
    let yard = &booted.yard;
    check_orders(args, yard)?;
    check_spill(args, yard, &host)?;
    chosen.print_notes();
    print_notes(&booted.notes);
    let sweep = Sweep {
        kinds: &args.kinds,
        orders: &args.orders,
        tasks: &args.tasks,
        policies: &args.policies,
        repeat: args.repeat.get(),
        seed: args.seed,
    };
    let boot = |policy| Ok(boot_machine(&chosen.machine, &BootOptions { policy, ..options })?.yard);
    let yards = SweptYards::new(yard, &args.policies, boot)?;
    let measured =
        sweep.measure(NAME, |workload, policy, _| Sample::take(workload, policy, &yards, &host, || boot(policy)))?;
    yards.validate()?;
    let identity = yard.platform().identity().name();
    Report::new(NAME, measured.iter().map(|(workload, policy, runs)| row(workload, *policy, runs)).collect())
        .of_machine(chosen.machine.name)
        .total("cpu_identity", identity)
        .note(format!(
            "Medians (minimum–maximum) of the runs. spilled: blocks of another zone than the one that their task prefers. CAS: an \
             uncontended compare-exchange, measured beside each run. Threads identify their CPU by {identity}."
        ))
        .print(&args.output)
}

/// Refuses orders of which the yard has fewer than two blocks for each task.
fn check_orders(args: &AllocArgs, yard: &HostYard) -> Result<(), Failure> {
    let tasks = args.tasks.iter().map(|tasks| u64::from(tasks.get())).max().unwrap_or(1);
    for order in &args.orders {
        let max = yard.geometry().max_order();
        if *order > max {
            return Err(Failure::input(format!("--order {}: the machine's blocks go up to order {}", order.0, max.0)));
        }
        if yard.stats().managed_pages().0 >> order.0 < 2 * tasks {
            let size = yard.geometry().size_of(order.pages());
            return Err(Failure::input(format!(
                "--order {}: {tasks} tasks need at least {} blocks of {size}; give the machine more --memory",
                order.0,
                2 * tasks
            )));
        }
    }
    Ok(())
}

/// Refuses spills on a machine on which no zone is left for them.
fn check_spill(args: &AllocArgs, yard: &HostYard, host: &HostTopology) -> Result<(), Failure> {
    if !args.kinds.contains(&AccessKind::Spill) {
        return Ok(());
    }
    for &order in &args.orders {
        for &tasks in &args.tasks {
            let workload = AllocWorkload { kind: AccessKind::Spill, order, tasks, seed: args.seed, steps: None };
            spill_refusal(workload.check(yard.core(), host))?;
        }
    }
    Ok(())
}

/// The result of a check, with the option that asks for spills in its refusal.
pub(in crate::commands) fn spill_refusal(checked: Result<(), WorkloadError>) -> Result<(), Failure> {
    checked.map_err(|error| match error {
        WorkloadError::Input(reason) => Failure::input(format!("--kind spill: {reason}")),
        error @ WorkloadError::RunTime(_) => error.into(),
    })
}

/// A run, and the speed of the processor beside it.
struct Sample {
    run: AllocRun,
    compare_exchange_ns: Option<f64>,
}

impl Sample {
    /// Runs a workload on a yard with a policy; a cold one on a yard of its own from `boot`.
    fn take(
        workload: &AllocWorkload,
        policy: ZonePolicy,
        yards: &SweptYards<'_>,
        host: &HostTopology,
        boot: impl FnOnce() -> Result<HostYard, Failure>,
    ) -> Result<Self, Failure> {
        if workload.kind != AccessKind::Cold {
            return yards.with(policy, |yard| Self::of(workload, yard, host));
        }
        let fresh = boot()?;
        let sample = Self::of(workload, &fresh, host)?;
        fresh.validate().map_err(Failure::run_time)?;
        Ok(sample)
    }

    fn of(workload: &AllocWorkload, yard: &HostYard, host: &HostTopology) -> Result<Self, Failure> {
        let compare_exchange_ns = compare_exchange_ns();
        Ok(Self { run: workload.run(yard.core(), host)?, compare_exchange_ns })
    }
}

/// The yards of a sweep, which change their policies: a given one, and more for policies to which that one cannot change.
pub(super) struct SweptYards<'a> {
    given: &'a HostYard,
    more: Vec<HostYard>,
}

impl<'a> SweptYards<'a> {
    /// # Errors
    ///
    /// Those of `boot`.
    pub(super) fn new(
        given: &'a HostYard,
        policies: &[ZonePolicy],
        boot: impl Fn(ZonePolicy) -> Result<HostYard, Failure>,
    ) -> Result<Self, Failure> {
        let mut yards = Self { given, more: Vec::new() };
        for &policy in policies {
            if !can_change(yards.of(policy).core().policy(), policy) {
                yards.more.push(boot(policy)?);
            }
        }
        Ok(yards)
    }

    fn all(&self) -> impl Iterator<Item = &HostYard> {
        self.more.iter().chain([self.given])
    }

    /// The yard for a policy; the given one if none can change to it.
    fn of(&self, policy: ZonePolicy) -> &HostYard {
        self.all().find(|yard| can_change(yard.core().policy(), policy)).unwrap_or(self.given)
    }

    /// Calls `run` with a yard while it has a policy. Afterwards the yard's lists are empty.
    ///
    /// # Errors
    ///
    /// Those of `run`; [`Failure::RunTime`] where the policy cannot be changed.
    pub(super) fn with<R>(
        &self,
        policy: ZonePolicy,
        run: impl FnOnce(&HostYard) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        let yard = self.of(policy);
        // A change of a yard of bits to itself would put all of its memory on free lists.
        if policy.is_changeable() {
            yard.core().set_policy(policy).map_err(Failure::run_time)?;
        }
        let result = run(yard)?;
        yard.drain_all();
        Ok(result)
    }

    /// # Errors
    ///
    /// [`Failure::RunTime`] where a yard is not valid.
    pub(super) fn validate(&self) -> Result<(), Failure> {
        self.all().try_for_each(|yard| yard.validate().map_err(Failure::run_time))
    }
}

/// Every combination of these.
pub(super) struct Sweep<'a> {
    pub(super) kinds: &'a [AccessKind],
    pub(super) orders: &'a [Order],
    pub(super) tasks: &'a [NonZeroU32],
    pub(super) policies: &'a [ZonePolicy],
    pub(super) repeat: u32,
    pub(super) seed: u64,
}

/// The runs of a combination.
pub(super) type SweepRow<R> = (AllocWorkload, ZonePolicy, Vec<R>);

impl Sweep<'_> {
    /// Calls `run` for every round of every combination, with its policy and the number of the round. Round 0 warms up and does
    /// not count; cold runs do without it.
    ///
    /// # Errors
    ///
    /// Those of `run`.
    pub(super) fn measure<R>(
        &self,
        name: &'static str,
        mut run: impl FnMut(&AllocWorkload, ZonePolicy, u32) -> Result<R, Failure>,
    ) -> Result<Vec<SweepRow<R>>, Failure> {
        let runs_of = |kind: AccessKind| u64::from(self.repeat + 1 - first_round(kind));
        let rows_of_a_kind = self.orders.len() * self.tasks.len() * self.policies.len();
        let bar = progress_bar(name, self.kinds.iter().copied().map(runs_of).sum::<u64>() * rows_of_a_kind as u64);
        let mut rows = Vec::new();
        for &kind in self.kinds {
            for &order in self.orders {
                for &tasks in self.tasks {
                    let workload = AllocWorkload { kind, order, tasks, seed: self.seed, steps: None };
                    rows.extend(self.alternate(&workload, &bar, &mut run)?);
                }
            }
        }
        bar.finish_and_clear();
        Ok(rows)
    }

    /// In every round each policy has one run, so that policies can be compared.
    fn alternate<R>(
        &self,
        workload: &AllocWorkload,
        bar: &ProgressBar,
        run: &mut impl FnMut(&AllocWorkload, ZonePolicy, u32) -> Result<R, Failure>,
    ) -> Result<Vec<SweepRow<R>>, Failure> {
        let mut rows: Vec<SweepRow<R>> = self.policies.iter().map(|policy| (*workload, *policy, Vec::new())).collect();
        for round in first_round(workload.kind)..=self.repeat {
            for (workload, policy, runs) in &mut rows {
                let result = run(workload, *policy, round)?;
                bar.inc(1);
                if round > 0 {
                    runs.push(result);
                }
            }
        }
        Ok(rows)
    }
}

/// The first round of a pattern: 0, which warms up, or 1.
fn first_round(kind: AccessKind) -> u32 {
    u32::from(kind == AccessKind::Cold)
}

fn row(workload: &AllocWorkload, policy: ZonePolicy, samples: &[Sample]) -> Row {
    let spread = |of: fn(&AllocRun) -> f64| Spread::of(samples.iter().map(|sample| of(&sample.run)));
    let (get, put) = (spread(|run| run.get_ns), spread(|run| run.put_ns));
    let acquisitions = spread(|run| run.zone_lock.acquisitions as f64).map(|spread| spread.median as u64);
    let spilled = spread(|run| run.spilled).map(|spread| rounded(100.0 * spread.median));
    let pages_each = spread(AllocRun::pages_per_acquisition).map(|spread| rounded(spread.median));
    let exchange = Spread::of(samples.iter().filter_map(|sample| sample.compare_exchange_ns));
    Row::new()
        .column("kind", "kind", workload.kind.name())
        .column("order", "order", workload.order.0)
        .column("tasks", "tasks", workload.tasks.get())
        .column("policy", "policy", policy.name())
        .column("ops", "ops", samples.first().map_or(0, |sample| sample.run.ops))
        .minor()
        .spread("get_ns", "get ns", Format::number(1), get.map(|spread| spread.map(rounded)))
        .spread("put_ns", "put ns", Format::number(1), put.map(|spread| spread.map(rounded)))
        .column_as("spilled_percent", "spilled %", Format::number(0), spilled)
        .column("zone_lock_acquisitions", "lock taken", acquisitions)
        .minor()
        .column_as("pages_per_acquisition", "pages each", Format::number(1), pages_each)
        .minor()
        .column_as("compare_exchange_ns", "CAS ns", Format::number(1), exchange.map(|spread| rounded(spread.median)))
        .minor()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use frameyard::locks::LockUse;

    use super::*;
    use crate::args::assert_refused;

    const RUN: AllocRun = AllocRun {
        ops: 8,
        get_ns: 1.0,
        put_ns: 2.0,
        spilled: 0.0,
        zone_lock: LockUse { acquisitions: 0, contended: 0, wait_ns: 0, hold_ns: 0 },
        pages_moved: 0,
        pages_allocated: 8,
    };

    fn read(line: &str) -> Result<AllocArgs, String> {
        crate::args::read(line)
    }

    #[test]
    fn a_bare_benchmark_runs_every_row() {
        let args = read("").unwrap();
        // A machine with one zone has no spills.
        assert_eq!(
            args.kinds,
            AccessKind::ALL.into_iter().filter(|kind| *kind != AccessKind::Spill).collect::<Vec<_>>()
        );
        assert_eq!(args.orders, [Order(0), Order(3), Order(9)]);
        assert_eq!(args.tasks.iter().map(|tasks| tasks.get()).collect::<Vec<_>>(), [1, 2]);
        assert_eq!((args.repeat.get(), args.seed, args.full.full), (5, 1, false));
        assert_eq!((args.mode, args.policies), (TaskMode::Threads, vec![ZonePolicy::default()]));
    }

    #[test]
    fn a_cold_run_has_a_yard_of_its_own_and_no_other_run_has() {
        let host = HostTopology::current().unwrap();
        let args = read("--memory 64M --phantom").unwrap();
        let machine = ChosenMachine::with_memory(&args.machine, ByteSize::mib(64)).unwrap().machine;
        let boot = || Ok(boot_machine(&machine, &BootOptions::of(&args.machine, &args.yard))?.yard);
        let yard = boot().unwrap();
        let yards = SweptYards::new(&yard, &[], |_| boot()).unwrap();
        for kind in args.kinds {
            let allocated = || yard.stats().zones().map(|zone| zone.pages_allocated).sum::<u64>();
            let before = (allocated(), Cell::new(0));
            let fresh = || {
                before.1.set(before.1.get() + 1);
                boot()
            };
            let workload = AllocWorkload { kind, order: Order(0), tasks: NonZeroU32::MIN, seed: 1, steps: None };
            let sample = Sample::take(&workload, ZonePolicy::default(), &yards, &host, fresh).unwrap();
            let is_cold = kind == AccessKind::Cold;
            assert_eq!((before.1.get() == 1, allocated() == before.0), (is_cold, is_cold), "{}", kind.name());
            assert!(sample.run.ops > 0);
        }
    }

    #[test]
    fn a_warm_run_follows_the_same_allocations_in_the_same_run() {
        let host = HostTopology::current().unwrap();
        let args = read("--memory 64M --phantom").unwrap();
        let machine = ChosenMachine::with_memory(&args.machine, ByteSize::mib(64)).unwrap().machine;
        for policy in [ZonePolicy::Vanilla, ZonePolicy::Bits] {
            let options = BootOptions { policy, ..BootOptions::of(&args.machine, &args.yard) };
            let yard = boot_machine(&machine, &options).unwrap().yard;
            let yards = SweptYards::new(&yard, &[policy], |_| panic!("one yard is enough")).unwrap();
            let allocated = |kind| {
                let workload = AllocWorkload { kind, order: Order(0), tasks: NonZeroU32::MIN, seed: 1, steps: None };
                let fresh = || panic!("no cold run");
                let run = Sample::take(&workload, policy, &yards, &host, fresh).unwrap().run;
                (run.ops, run.pages_allocated)
            };
            let (ops, pages) = allocated(AccessKind::Bulk);
            assert_eq!(allocated(AccessKind::Warm), (ops, 2 * pages), "{policy}");
        }
    }

    #[test]
    fn policies_have_a_yard_that_can_change_to_them() {
        let args = read("--memory 64M --phantom").unwrap();
        let machine = ChosenMachine::with_memory(&args.machine, ByteSize::mib(64)).unwrap().machine;
        let boot = |policy| {
            let options = BootOptions { policy, ..BootOptions::of(&args.machine, &args.yard) };
            Ok(boot_machine(&machine, &options)?.yard)
        };
        for first in [ZonePolicy::Vanilla, ZonePolicy::Bits] {
            let given = boot(first).unwrap();
            let yards = SweptYards::new(&given, &ZonePolicy::ALL, boot).unwrap();
            // One for all policies of free lists, and one for each that keeps bits.
            assert_eq!(yards.all().count(), 1 + ZonePolicy::ALL.len() - ZonePolicy::CHANGEABLE.len(), "{first}");
            for policy in ZonePolicy::ALL {
                assert_eq!(yards.with(policy, |yard| Ok(yard.core().policy())).unwrap(), policy);
            }
            yards.validate().unwrap();
        }
    }

    #[test]
    fn every_run_but_a_cold_one_follows_one_that_warms_up() {
        let sweep = Sweep {
            kinds: &AccessKind::ALL,
            orders: &[Order(0)],
            tasks: &[NonZeroU32::MIN],
            policies: &[ZonePolicy::Vanilla, ZonePolicy::Bits],
            repeat: 2,
            seed: 1,
        };
        let mut runs = Vec::new();
        let rows = sweep.measure("test", |workload, policy, round| {
            runs.push((workload.kind, policy, round));
            Ok(round)
        });
        assert!(rows.unwrap().iter().all(|(_, _, rounds)| *rounds == [1, 2]));
        let of = |kind| runs.iter().filter(|run| run.0 == kind).map(|run| (run.1, run.2)).collect::<Vec<_>>();
        let round = |number| [(ZonePolicy::Vanilla, number), (ZonePolicy::Bits, number)];
        assert_eq!(of(AccessKind::Bulk), [0, 1, 2].map(round).concat());
        assert_eq!(of(AccessKind::Cold), [1, 2].map(round).concat());
    }

    #[test]
    fn a_row_without_a_measured_compare_exchange_says_null() {
        let workload =
            AllocWorkload { kind: AccessKind::Bulk, order: Order(0), tasks: NonZeroU32::MIN, seed: 1, steps: None };
        let row = |costs: &[Option<f64>]| {
            let sample = |cost: &Option<f64>| Sample { run: RUN, compare_exchange_ns: *cost };
            row(&workload, ZonePolicy::Bits, &costs.iter().map(sample).collect::<Vec<_>>())
        };
        assert_eq!(row(&[None, None]).value("compare_exchange_ns"), &serde_json::Value::Null);
        assert_eq!(row(&[Some(5.0), None, Some(7.0), Some(5.246)]).number("compare_exchange_ns"), Some(5.25));
    }

    #[test]
    fn lists_are_written_with_commas() {
        let args = read("--kind bulk --order 0,10 --tasks 1,2,4 --mode processes --repeat 9").unwrap();
        assert_eq!((args.kinds, args.orders), (vec![AccessKind::Bulk], vec![Order(0), Order(10)]));
        assert_eq!(args.tasks.len(), 3);
        assert_eq!((args.mode, args.repeat.get()), (TaskMode::Processes, 9));
    }

    #[test]
    fn refusals_name_a_correct_value() {
        assert_refused::<AllocArgs>(&[
            ("--tasks 0", "from 1"),
            ("--order 0,16", "from 0 to 15"),
            ("--policy fast", "possible values: vanilla"),
            ("--kind bulk,slow", "possible values: repeat, spill, bulk, random, cold, warm"),
        ]);
    }
}
