//! What the simulated workloads have in common: every combination is run on a yard of its own, and becomes a row as it does
//! natively, with where virtual time went.

use std::io::{self, Write};
use std::num::NonZeroU32;

use frameyard::{ByteSize, LockKind};
use frameyard_sim::{Machine, Picos, Topology};
use serde::Serialize;
use serde_json::{Map, Value};

use super::machine::machine;
use super::profile;
use crate::Failure;
use crate::cli::SimRunArgs;
use crate::commands::bench::comparison::{Compared, Row, percent, too_small};
use crate::output::{self, Outcome, RowError, Rows, Table, progress_bar};
use frameyard_workloads::Setting;
use crate::fixture::with_sim_fixture;
use frameyard_workloads::simulated::{SimInit, FrameContents, SimFixture, SimOptions, SimRun, TimeSpent, whole_ns};

/// What every node has beside what tasks need: so that zones are large enough for per-CPU lists of full size.
const SPARE: ByteSize = ByteSize::gib(1);

/// A comparison on a simulated machine.
#[derive(Debug)]
pub(super) struct Simulation<'a> {
    args: &'a SimRunArgs,
    name: &'static str,
    machine: Machine,
    settings: Vec<Setting>,
    contents: FrameContents,
}

/// A combination that was simulated.
#[derive(Debug)]
pub(super) struct Simulated<R> {
    /// The combination and its run, as if it were native.
    pub(super) compared: Compared<R>,
    simulated: Picos,
    spent: TimeSpent,
}

impl<'a> Simulation<'a> {
    /// Of a workload whose settings need so many CPUs each.
    ///
    /// # Errors
    ///
    /// [`Failure::Input`] for a machine that is none, or that has too few CPUs.
    pub(super) fn new(
        args: &'a SimRunArgs,
        name: &'static str,
        cpus: impl Fn(&Setting) -> u64,
    ) -> Result<Self, Failure> {
        let machine = machine(&args.machine)?;
        let settings = settings(args, &machine, &cpus);
        let there = machine.cpus() as u64;
        match settings.iter().find(|setting| cpus(setting) > there) {
            Some(setting) => Err(too_few_cpus(name, &machine, setting, cpus(setting))),
            None if settings.is_empty() => {
                Err(Failure::input(format!("{name}: {} has too few CPUs: choose another --machine", machine.name)))
            }
            None => Ok(Self { args, name, machine, settings, contents: FrameContents::default() }),
        }
    }

    /// The same, with frames that have contents.
    pub(super) fn with_contents(self) -> Self {
        Self { contents: FrameContents::Kept, ..self }
    }

    /// Runs every combination. `needed` says what must be free for it, on so many of the machine's CPUs.
    ///
    /// # Errors
    ///
    /// [`Failure::Input`] where machine or host have too little memory, and what a run or a check says.
    pub(super) fn measure<R>(
        &self,
        needed: impl Fn(&Setting) -> (ByteSize, u64),
        mut run: impl FnMut(&SimFixture<'_>, &Setting) -> Result<SimRun<R>, Failure>,
    ) -> Result<Vec<Simulated<R>>, Failure> {
        let bar = progress_bar(self.name, self.settings.len() as u64);
        let mut rows = Vec::new();
        for setting in &self.settings {
            let (needed, cpus) = needed(setting);
            let memory = self.args.memory.unwrap_or_else(|| self.usual_memory(needed, cpus));
            let options = SimOptions {
                memory,
                zone: setting.zone,
                lru: setting.lru,
                sizing: self.args.pcp_sizing,
                contents: self.contents,
                init: SimInit::Eager,
                costs: &[],
            };
            let simulated = with_sim_fixture(&self.machine, &options, |fixture| {
                let free = fixture.free_memory();
                if needed > free {
                    return Err(too_small(self.name, needed, free));
                }
                run(fixture, setting).map(|run| (run, fixture.memory()))
            });
            let (SimRun { run, simulated, spent }, memory) = simulated?;
            let compared = Compared { setting: *setting, memory, runs: vec![run] };
            rows.push(Simulated { compared, simulated, spent });
            bar.inc(1);
        }
        bar.finish_and_clear();
        Ok(rows)
    }

    /// As much for each node as the tasks of the fullest one need, a quarter more, and something to spare.
    fn usual_memory(&self, needed: ByteSize, cpus: u64) -> ByteSize {
        let fullest = on_first_socket(self.machine.topology, cpus);
        let of_node = needed.0.saturating_mul(fullest).div_ceil(cpus.max(1));
        let of_node = of_node.saturating_add(of_node / 4).saturating_add(SPARE.0);
        ByteSize(of_node.saturating_mul(self.machine.topology.sockets.into()))
    }

    /// Prints rows, as `write_rows` writes them for people.
    ///
    /// # Errors
    ///
    /// As [`output::print`] has them.
    pub(super) fn print<V: Serialize, R>(
        &self,
        all: Vec<Simulated<R>>,
        rows_of: impl Fn(Compared<R>) -> Vec<Row<V>>,
        write_rows: fn(&mut dyn Write, &[Row<V>]) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let mut outcome = SimOutcome {
            name: self.name,
            machine: self.machine.name.clone(),
            rows: Vec::new(),
            times: Vec::new(),
            write_rows,
        };
        if let Some(file) = &self.args.profile {
            profile::write(file, all.iter().map(|row| (row.compared.setting, &row.spent)))?;
        }
        for Simulated { compared, simulated, spent } in all {
            for row in rows_of(compared) {
                outcome.rows.push(row);
                outcome.times.push((simulated, spent.clone()));
            }
        }
        output::print(&outcome, &self.args.output)
    }
}

/// Every combination, those next to each other that are to be compared.
fn settings(args: &SimRunArgs, machine: &Machine, cpus: impl Fn(&Setting) -> u64) -> Vec<Setting> {
    let mut settings = Vec::new();
    for &mode in &args.modes {
        let tasks: Vec<NonZeroU32> = match &args.tasks[..] {
            [] => powers_and(machine.cpus() as u32),
            ranges => ranges.iter().flat_map(|range| range.numbers()).collect(),
        };
        for tasks in tasks {
            settings.extend(args.policies.pairs().map(|(zone, lru)| Setting { mode, tasks, zone, lru }));
        }
    }
    if args.tasks.is_empty() {
        settings.retain(|setting| cpus(setting) <= machine.cpus() as u64);
    }
    settings
}

/// 1, 2, 4, … up to a number, and that.
fn powers_and(most: u32) -> Vec<NonZeroU32> {
    let powers = (0..u32::BITS).map(|shift| 1 << shift).take_while(|number| *number < most);
    powers.chain([most]).filter_map(NonZeroU32::new).collect()
}

/// How many of the first so many CPUs are of the first socket, which tasks fill before the others.
fn on_first_socket(topology: Topology, cpus: u64) -> u64 {
    let (sockets, of_socket) = (u64::from(topology.sockets), u64::from(topology.cores_per_socket));
    let cores = sockets * of_socket;
    cpus / cores * of_socket + (cpus % cores).min(of_socket)
}

fn too_few_cpus(name: &str, machine: &Machine, setting: &Setting, needed: u64) -> Failure {
    let (tasks, there) = (setting.tasks, machine.cpus());
    let what = if needed == u64::from(tasks.get()) {
        format!("{tasks} tasks")
    } else {
        format!("{tasks} tasks and what goes with them take {needed} CPUs, which")
    };
    Failure::input(format!(
        "{name}: {what} are more than the {there} CPUs of {}: run fewer --tasks, or on another --machine",
        machine.name
    ))
}

/// Rows, and where the time of each went.
struct SimOutcome<V> {
    name: &'static str,
    machine: String,
    rows: Vec<Row<V>>,
    times: Vec<(Picos, TimeSpent)>,
    write_rows: fn(&mut dyn Write, &[Row<V>]) -> io::Result<()>,
}

/// A row with the columns that only a simulation has.
#[derive(Serialize)]
struct SimRow<'r, V> {
    #[serde(flatten)]
    row: &'r Row<V>,
    simulated_ns: u64,
    counted_ns: u64,
    #[serde(flatten)]
    shares: Map<String, Value>,
}

impl<V: Serialize> Outcome for SimOutcome<V> {
    fn command(&self) -> &'static str {
        self.name
    }

    fn machine(&self) -> Option<&str> {
        Some(&self.machine)
    }

    fn rows(&self) -> Result<Rows, RowError> {
        let columns = |(row, (simulated, spent)): (_, &(Picos, TimeSpent))| SimRow {
            row,
            simulated_ns: whole_ns(*simulated),
            counted_ns: whole_ns(spent.length()),
            shares: spent.shares().map(|(name, share)| (name, share.into())).collect(),
        };
        Rows::of(&self.rows.iter().zip(&self.times).map(columns).collect::<Vec<_>>())
    }

    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        (self.write_rows)(out, &self.rows)?;
        writeln!(out, "\nWhere the time of CPUs with a task went, in percent")?;
        let setting = ["mode", "tasks", "zone policy", "LRU policy", "counted ms"];
        let shares = ["zone lock", "LRU lock", "map lock", "other locks", "misses", "named costs", "waiting"];
        let mut table = Table::with_headings(setting.into_iter().chain(shares));
        for (row, (_, spent)) in self.rows.iter().zip(&self.times) {
            let setting = &row.setting;
            let own =
                [setting.mode, &setting.tasks.to_string(), setting.zone_policy, setting.lru_policy].map(str::to_owned);
            let time = format!("{:.2}", spent.length().as_ns() / 1e6);
            let [zone, lru, map] = [LockKind::Zone, LockKind::Lru, LockKind::Space].map(|kind| spent.lock(kind));
            let others = spent.locks_but(&[LockKind::Zone, LockKind::Lru, LockKind::Space]);
            let went = [zone, lru, map, others, spent.misses(), spent.outside(), spent.relaxed()].map(percent);
            table.push(own.into_iter().chain([time]).chain(went));
        }
        table.write(out)?;
        writeln!(
            out,
            "\nVirtual time of {}: a share of a lock is the time for which it was waited for; misses are accesses that the\n\
             core's own caches did not serve, those to words of locks among them; tasks that have nothing to do are waiting.",
            self.machine
        )
    }
}
