//! Comparisons on simulated machines. Every combination has its own yard, and its row says where virtual time went.

use std::num::NonZeroU32;

use frameyard::ByteSize;
use frameyard::platform::LockKind;
use frameyard_sim::{ListAccess, Machine, Picos, Topology};
use frameyard_workloads::Setting;
use frameyard_workloads::sim::{SimInit, SimOptions, SimRun, TimeSpent, whole_ns};
use serde_json::Map;

use super::{ComparedRow, Measured, Simulated, powers_up_to, profile, text, too_small};
use crate::Failure;
use crate::args::SimRunArgs;
use crate::commands::simulated_machine::machine;
use crate::fixture::with_sim_fixture;
use crate::output::{Format, Row, progress_bar};

/// What every node has beside the tasks' needs, so that zones are large enough for per-CPU lists of full size.
const SPARE: ByteSize = ByteSize::gib(1);
/// Numbers of tasks of a quick run.
const QUICK_TASKS: [u32; 2] = [1, 8];

/// A combination that was simulated.
struct Simulation<R> {
    measured: Measured<R>,
    lists: ListAccess,
    simulated: Picos,
    spent: TimeSpent,
}

/// Runs every combination of a workload and prints the report.
///
/// # Errors
///
/// [`Failure::Input`] for a bad machine, or one with too few CPUs or too little memory; the failures of runs and checks.
pub(in crate::commands) fn simulate<W: Simulated>(
    args: &SimRunArgs,
    name: &'static str,
    workload: &W,
) -> Result<(), Failure> {
    simulate_each(args, name, std::slice::from_ref(workload))
}

/// As [`simulate`], with each of several workloads in turn for a combination. There is at least one.
///
/// # Errors
///
/// As for [`simulate`].
pub(in crate::commands) fn simulate_each<W: Simulated>(
    args: &SimRunArgs,
    name: &'static str,
    workloads: &[W],
) -> Result<(), Failure> {
    let machine = machine(&args.machine)?;
    let mut runs = Vec::new();
    for workload in workloads {
        runs.extend(settings(args, name, &machine, workload)?.into_iter().map(|setting| (setting, workload)));
    }
    let bar = progress_bar(name, runs.len() as u64);
    let mut simulations = Vec::new();
    for (setting, workload) in runs {
        simulations.push((workload, run(args, name, &machine, workload, setting)?));
        bar.inc(1);
    }
    bar.finish_and_clear();
    if let Some(file) = &args.profile {
        let runs = simulations.iter();
        let named =
            runs.map(|(workload, done)| (profile::name_of(done.measured.setting, workload.sizing()), &done.spent));
        profile::write(file, named)?;
    }
    let (mut rows, mut times) = (Vec::new(), Vec::new());
    for (workload, Simulation { measured, lists, simulated, spent }) in simulations {
        for ComparedRow { row, group, result } in workload.rows(measured) {
            times.push(times_row(&row, &spent));
            let row = row
                .data("list_access", lists.name())
                .data("simulated_ns", whole_ns(simulated))
                .data("counted_ns", whole_ns(spent.length()))
                .followed_by(spent.shares().map(|(name, share)| (name, share.into())).collect::<Map<_, _>>().into());
            rows.push(ComparedRow { row, group, result });
        }
    }
    let note = format!(
        "Virtual time of {}. The share of a lock is time spent waiting for it. Misses are accesses that the core's own caches \
    did not serve, those to lock words included. A task without work is waiting.",
        machine.name
    );
    text::report(name, &machine.name, &rows)
        .title("Where the time of CPUs with a task went, in percent")
        .table(times)
        .note(note)
        .print(&args.output)
}

fn run<W: Simulated>(
    args: &SimRunArgs,
    name: &str,
    machine: &Machine,
    workload: &W,
    setting: Setting,
) -> Result<Simulation<W::Run>, Failure> {
    let (needed, cpus) = (workload.needed(&setting), workload.cpus(&setting));
    let lists = args.list_access.of(setting.zone);
    let options = SimOptions {
        memory: args.memory.unwrap_or_else(|| usual_memory(machine, needed, cpus)),
        zone: setting.zone,
        lru: setting.lru,
        sizing: workload.sizing().unwrap_or(args.pcp_sizing.first()),
        lists,
        contents: W::CONTENTS,
        init: SimInit::Eager,
        costs: &[],
    };
    with_sim_fixture(machine, &options, |fixture| {
        let free = fixture.free_memory();
        if needed > free {
            return Err(too_small(name, needed, free));
        }
        let SimRun { run, simulated, spent } = workload.simulate(fixture, &setting)?;
        let measured = Measured { setting, memory: fixture.memory(), runs: vec![run] };
        Ok(Simulation { measured, lists, simulated, spent })
    })
}

/// The row of the table of time.
fn times_row(row: &Row, spent: &TimeSpent) -> Row {
    let text = |key, heading: &'static str| Row::new().remark(heading, Format::Plain, row.value(key).clone());
    let sizing = if row.text("pcp_sizing").is_some() { text("pcp_sizing", "list sizing") } else { Row::new() };
    let percent = Format::percent(2);
    let [zone, lru, map] = [LockKind::Zone, LockKind::LruShard, LockKind::AddressSpace].map(|kind| spent.lock(kind));
    let others = spent.locks_but(&[LockKind::Zone, LockKind::LruShard, LockKind::AddressSpace]);
    text("mode", "mode")
        .followed_by(text("tasks", "tasks"))
        .followed_by(text("zone_policy", "zone policy"))
        .followed_by(text("lru_policy", "LRU policy"))
        .followed_by(sizing)
        .remark("counted ms", Format::millions(2), spent.length().as_ns())
        .minor()
        .remark("zone lock", percent, zone)
        .remark("LRU lock", percent, lru)
        .remark("map lock", percent, map)
        .remark("other locks", percent, others)
        .minor()
        .remark("misses", percent, spent.misses())
        .remark("named costs", percent, spent.outside())
        .minor()
        .remark("waiting", percent, spent.relaxed())
        .minor()
}

/// A quarter more for each node than the tasks of the fullest node need, and [`SPARE`].
fn usual_memory(machine: &Machine, needed: ByteSize, cpus: u64) -> ByteSize {
    let fullest = on_first_socket(machine.topology, cpus);
    let of_node = needed.0.saturating_mul(fullest).div_ceil(cpus.max(1));
    let of_node = of_node.saturating_add(of_node / 4).saturating_add(SPARE.0);
    ByteSize(of_node.saturating_mul(machine.topology.sockets.into()))
}

/// Every setting. Numbers of tasks for which the machine has too few CPUs
/// are left out, or refused where the command line names them.
fn settings<W: Simulated>(
    args: &SimRunArgs,
    name: &str,
    machine: &Machine,
    workload: &W,
) -> Result<Vec<Setting>, Failure> {
    let there = machine.cpus() as u64;
    let tasks = match args.compared.tasks() {
        tasks if tasks.is_empty() && args.quick.quick => QUICK_TASKS.into_iter().filter_map(NonZeroU32::new).collect(),
        tasks if tasks.is_empty() => powers_up_to(machine.cpus() as u32),
        tasks => tasks,
    };
    let mut settings = super::settings(&args.compared, &tasks);
    if args.compared.tasks.is_empty() {
        settings.retain(|setting| workload.cpus(setting) <= there);
    }
    match settings.iter().find(|setting| workload.cpus(setting) > there) {
        Some(setting) => Err(too_few_cpus(name, machine, setting.tasks, workload.cpus(setting))),
        None if settings.is_empty() => {
            Err(Failure::input(format!("{name}: {} has too few CPUs: choose another --machine", machine.name)))
        }
        None => Ok(settings),
    }
}

/// How many of the first `cpus` CPUs belong to the first socket, which tasks fill first.
fn on_first_socket(topology: Topology, cpus: u64) -> u64 {
    let (sockets, of_socket) = (u64::from(topology.sockets), u64::from(topology.cores_per_socket));
    let cores = sockets * of_socket;
    cpus / cores * of_socket + (cpus % cores).min(of_socket)
}

/// The refusal of a setting for which the machine has too few CPUs.
pub(in crate::commands) fn too_few_cpus(name: &str, machine: &Machine, tasks: NonZeroU32, needed: u64) -> Failure {
    let there = machine.cpus();
    let what = if needed == u64::from(tasks.get()) {
        format!("{tasks} tasks")
    } else {
        format!("{tasks} tasks and what goes with them take {needed} CPUs, which")
    };
    Failure::input(format!(
        "{name}: {what} are more than the {there} CPUs of {}: run fewer --tasks, or choose another --machine",
        machine.name
    ))
}
