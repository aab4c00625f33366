//! `bench alloc`: allocating and freeing blocks, by pattern, order and number of tasks.

use std::num::NonZeroU32;

use frameyard::boot::InitMode;
use frameyard::policy::ZonePolicy;
use frameyard::{ByteSize, Order};
use frameyard_host::{HostTopology, HostYard};
use indicatif::ProgressBar;

use crate::Failure;
use crate::bring_up::{BringUp, bring_up};
use crate::chosen_machine::{ChosenMachine, print_notes};
use crate::cli::AllocArgs;
use crate::measure::Spread;
use crate::output::{Format, Report, Row, progress_bar, rounded};
use frameyard_workloads::TaskMode;
use frameyard_workloads::alloc::AccessKind;
use frameyard_workloads::alloc::{AllocRun, AllocWorkload};

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
    chosen.print_notes();
    let host = HostTopology::current().map_err(Failure::run_time)?;
    let map_init = args.init.map_init(InitMode::Eager, &chosen.machine)?;
    let options = BringUp { map_init, map_limit: args.full.map_limit(), ..BringUp::of(&args.machine, &args.yard) };
    let brought_up = bring_up(&chosen.machine, &options)?;
    print_notes(&brought_up.notes);
    let yard = &brought_up.yard;
    check_orders(args, yard)?;
    let sweep = Sweep {
        kinds: &args.kinds,
        orders: &args.orders,
        tasks: &args.tasks,
        policies: &args.policies,
        repeat: args.repeat.get(),
        seed: args.seed,
    };
    let measured = sweep.measure(NAME, yard, |workload, _| workload.run(&**yard, &host).map_err(Failure::run_time))?;
    yard.validate().map_err(Failure::run_time)?;
    let identity = yard.platform().identity().name();
    Report::new(NAME, measured.iter().map(|(workload, policy, runs)| row(workload, *policy, runs)).collect())
        .of_machine(chosen.machine.name)
        .total("cpu_identity", identity)
        .note(format!("Medians (minimum–maximum) of the runs. Threads identify their CPU by {identity}."))
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

/// Every combination of these, on one yard.
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
    /// Calls `run` for every round of every combination, with the number of the round. Round 0 warms up and does not count.
    ///
    /// # Errors
    ///
    /// Those of `run`.
    pub(super) fn measure<R>(
        &self,
        name: &'static str,
        yard: &HostYard,
        mut run: impl FnMut(&AllocWorkload, u32) -> Result<R, Failure>,
    ) -> Result<Vec<SweepRow<R>>, Failure> {
        let combinations = self.kinds.len() * self.orders.len() * self.tasks.len() * self.policies.len();
        let bar = progress_bar(name, combinations as u64 * u64::from(self.repeat + 1));
        let mut rows = Vec::new();
        for &kind in self.kinds {
            for &order in self.orders {
                for &tasks in self.tasks {
                    let workload = AllocWorkload { kind, order, tasks, seed: self.seed };
                    rows.extend(self.alternate(&workload, yard, &bar, &mut run)?);
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
        yard: &HostYard,
        bar: &ProgressBar,
        run: &mut impl FnMut(&AllocWorkload, u32) -> Result<R, Failure>,
    ) -> Result<Vec<SweepRow<R>>, Failure> {
        let mut rows: Vec<SweepRow<R>> = self.policies.iter().map(|policy| (*workload, *policy, Vec::new())).collect();
        for round in 0..=self.repeat {
            for (workload, policy, runs) in &mut rows {
                yard.set_policy(*policy).map_err(Failure::run_time)?;
                let result = run(workload, round)?;
                yard.drain_all();
                bar.inc(1);
                if round > 0 {
                    runs.push(result);
                }
            }
        }
        Ok(rows)
    }
}

fn row(workload: &AllocWorkload, policy: ZonePolicy, runs: &[AllocRun]) -> Row {
    let spread = |of: fn(&AllocRun) -> f64| Spread::of(runs.iter().map(of));
    let (get, put) = (spread(|run| run.get_ns), spread(|run| run.put_ns));
    let acquisitions = spread(|run| run.zone_lock.acquisitions as f64).map(|spread| spread.median as u64);
    let pages_each = spread(AllocRun::pages_per_acquisition).map(|spread| rounded(spread.median));
    Row::new()
        .column("kind", "kind", workload.kind.name())
        .column("order", "order", workload.order.0)
        .column("tasks", "tasks", workload.tasks.get())
        .column("policy", "policy", policy.name())
        .column("ops", "ops", runs.first().map_or(0, |run| run.ops))
        .minor()
        .spread("get_ns", "get ns", Format::number(1), get.map(|spread| spread.map(rounded)))
        .spread("put_ns", "put ns", Format::number(1), put.map(|spread| spread.map(rounded)))
        .column("zone_lock_acquisitions", "lock taken", acquisitions)
        .minor()
        .column_as("pages_per_acquisition", "pages each", Format::number(1), pages_each)
        .minor()
}
