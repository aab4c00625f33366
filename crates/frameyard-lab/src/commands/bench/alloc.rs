//! `bench alloc`: allocating and freeing blocks, by pattern, order and number of tasks.

use std::io::{self, Write};

use frameyard::{ByteSize, InitMode, ZonePolicy};
use frameyard_host::{HostTopology, HostYard};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::Failure;
use crate::bring_up::{BringUp, MapLimit, bring_up};
use crate::chosen_machine::{ChosenMachine, print_notes};
use crate::cli::{AllocArgs, MachineArgs};
use frameyard_workloads::alloc::AccessKind;
use frameyard_workloads::TaskMode;
use frameyard_workloads::measure::Spread;
use crate::output::{self, Outcome, RowError, Rows, Table, progress_bar, rounded};
use frameyard_workloads::alloc::{AllocRun, AllocWorkload};

/// How much memory the machine has unless something else is asked for.
const DEFAULT_MEMORY: ByteSize = ByteSize::gib(8);

/// Runs every combination of pattern, order, policy and number of tasks.
pub(super) fn run(args: &AllocArgs) -> Result<(), Failure> {
    if args.runs.mode == TaskMode::Processes {
        return Err(Failure::input("bench alloc --mode processes: this workload runs as threads; leave --mode out"));
    }
    let memory = args.machine.memory.or_else(|| args.machine.machine.is_none().then_some(DEFAULT_MEMORY));
    let chosen = ChosenMachine::of(&MachineArgs { memory, ..args.machine.clone() })?;
    chosen.print_notes();
    let host = HostTopology::current().map_err(Failure::run_time)?;
    let map_init = args.init.map_init(InitMode::Eager, &chosen.machine)?;
    let map_limit = if args.runs.full { MapLimit::Full } else { MapLimit::Usual };
    let options = BringUp { map_init, map_limit, ..BringUp::of(&args.machine, &args.yard) };
    let brought_up = bring_up(&chosen.machine, &options)?;
    print_notes(&brought_up.notes);
    let yard = &brought_up.yard;
    check_orders(args, yard)?;
    let outcome = AllocOutcome {
        machine: chosen.machine.name.clone(),
        identity: yard.platform().identity().name(),
        rows: measure(args, yard, &host)?,
    };
    yard.validate().map_err(Failure::run_time)?;
    output::print(&outcome, &args.output)
}

/// Refuses orders that the yard has no two blocks of for each task.
fn check_orders(args: &AllocArgs, yard: &HostYard) -> Result<(), Failure> {
    let tasks = args.runs.tasks.iter().map(|tasks| u64::from(tasks.get())).max().unwrap_or(1);
    for order in &args.orders {
        let max = yard.geometry().max_order();
        if *order > max {
            return Err(Failure::input(format!("--order {}: the machine's blocks go up to order {}", order.0, max.0)));
        }
        if yard.managed_pages().0 >> order.0 < 2 * tasks {
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

fn measure(args: &AllocArgs, yard: &HostYard, host: &HostTopology) -> Result<Vec<AllocRow>, Failure> {
    let mut rows = Vec::new();
    let combinations = args.kinds.len() * args.orders.len() * args.runs.tasks.len() * args.runs.policies.len();
    let bar = progress_bar("bench alloc", combinations as u64 * u64::from(args.runs.repeat.get() + 1));
    for &kind in &args.kinds {
        for &order in &args.orders {
            for &tasks in &args.runs.tasks {
                let workload = AllocWorkload { kind, order, tasks, seed: args.runs.seed };
                let runs = alternate(yard, &args.runs.policies, args.runs.repeat.get(), |_| {
                    bar.inc(1);
                    workload.run(&**yard, host).map_err(Failure::run_time)
                })?;
                let policies = args.runs.policies.iter();
                rows.extend(policies.zip(&runs).map(|(&policy, runs)| AllocRow::new(&workload, policy, runs)));
            }
        }
    }
    bar.finish_and_clear();
    Ok(rows)
}

/// What the rounds of each policy gave; in every round each policy has a run, so that they are compared. A round before the
/// first, which warms up, is not counted. `run` is told the number of the round, from 0 for that one.
pub(super) fn alternate<R>(
    yard: &HostYard,
    policies: &[ZonePolicy],
    rounds: u32,
    mut run: impl FnMut(u32) -> Result<R, Failure>,
) -> Result<Vec<Vec<R>>, Failure> {
    let mut results: Vec<Vec<R>> = policies.iter().map(|_| Vec::new()).collect();
    for round in 0..=rounds {
        for (policy, results) in policies.iter().zip(&mut results) {
            yard.set_policy(*policy).map_err(Failure::run_time)?;
            let result = run(round)?;
            yard.drain_all();
            if round > 0 {
                results.push(result);
            }
        }
    }
    Ok(results)
}

/// A row: one combination, over its runs.
#[derive(Serialize, Debug)]
struct AllocRow {
    kind: &'static str,
    order: u8,
    tasks: u32,
    policy: &'static str,
    ops: u64,
    get_ns: f64,
    put_ns: f64,
    get_ns_min: f64,
    get_ns_max: f64,
    put_ns_min: f64,
    put_ns_max: f64,
    zone_lock_acquisitions: u64,
    pages_per_acquisition: f64,
}

impl AllocRow {
    fn new(workload: &AllocWorkload, policy: ZonePolicy, runs: &[AllocRun]) -> Self {
        let spread = |of: fn(&AllocRun) -> f64| {
            Spread::of(runs.iter().map(of)).unwrap_or(Spread { median: f64::NAN, min: f64::NAN, max: f64::NAN })
        };
        let (get, put) = (spread(|run| run.get_ns), spread(|run| run.put_ns));
        Self {
            kind: kind_name(workload.kind),
            order: workload.order.0,
            tasks: workload.tasks.get(),
            policy: policy.name(),
            ops: runs.first().map_or(0, |run| run.ops),
            get_ns: rounded(get.median),
            put_ns: rounded(put.median),
            get_ns_min: rounded(get.min),
            get_ns_max: rounded(get.max),
            put_ns_min: rounded(put.min),
            put_ns_max: rounded(put.max),
            zone_lock_acquisitions: spread(|run| run.zone_lock.acquisitions as f64).median as u64,
            pages_per_acquisition: rounded(spread(AllocRun::pages_per_acquisition).median),
        }
    }
}

pub(super) fn kind_name(kind: AccessKind) -> &'static str {
    match kind {
        AccessKind::Repeat => "repeat",
        AccessKind::Bulk => "bulk",
        AccessKind::Random => "random",
    }
}

/// All rows of a run.
struct AllocOutcome {
    machine: String,
    identity: &'static str,
    rows: Vec<AllocRow>,
}

impl Outcome for AllocOutcome {
    fn command(&self) -> &'static str {
        "bench alloc"
    }

    fn machine(&self) -> Option<&str> {
        Some(&self.machine)
    }

    fn totals(&self) -> Map<String, Value> {
        Map::from_iter([("cpu_identity".to_owned(), Value::from(self.identity))])
    }

    fn rows(&self) -> Result<Rows, RowError> {
        Rows::of(&self.rows)
    }

    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut table =
            Table::new(["kind", "order", "tasks", "policy", "ops", "get ns", "put ns", "lock taken", "pages each"]);
        for row in &self.rows {
            table.push([
                row.kind.to_owned(),
                row.order.to_string(),
                row.tasks.to_string(),
                row.policy.to_owned(),
                row.ops.to_string(),
                format!("{:.1} ({:.1}–{:.1})", row.get_ns, row.get_ns_min, row.get_ns_max),
                format!("{:.1} ({:.1}–{:.1})", row.put_ns, row.put_ns_min, row.put_ns_max),
                row.zone_lock_acquisitions.to_string(),
                format!("{:.1}", row.pages_per_acquisition),
            ]);
        }
        table.write(out)?;
        writeln!(out, "\nMedians (least–most) of the runs; CPUs known by {}.", self.identity)
    }
}
