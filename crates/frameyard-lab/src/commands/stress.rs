//! `stress`: whether a yard keeps its memory together while tasks use it, policies change and ranges are taken out of it.

use std::io::{self, Write};
use std::num::NonZeroU32;

use frameyard::{ByteSize, InitMode, ZonePolicy};
use frameyard_host::{HostTopology, LockTiming};
use frameyard_vm::LruPolicy;
use serde::Serialize;

use crate::Failure;
use crate::bring_up::{BringUp, FrameBacking, Sharing};
use crate::chosen_machine::ChosenMachine;
use crate::cli::{InitArgs, MachineArgs, StressArgs, StressPolicy};
use frameyard_workloads::TaskMode;
use crate::output::{self, Outcome, RowError, Rows, progress_bar};
use crate::fixture::with_fixture;
use frameyard_workloads::stress::{self, Hang, MOST_TASKS, StressPlan, StressRun};

/// The name of the command.
const NAME: &str = "stress";
/// How much memory there is unless something else is asked for: so little that tasks often run out of it.
const DEFAULT_MEMORY: ByteSize = ByteSize::mib(512);
/// The least memory for each task: several pageblocks, so that there is something to disturb.
const LEAST_MEMORY: ByteSize = ByteSize::mib(16);
/// The least memory in any case.
const LEAST_MEMORY_IN_ALL: ByteSize = ByteSize::mib(64);

/// Runs under each policy that is asked for.
pub(super) fn run(args: &StressArgs) -> Result<(), Failure> {
    if args.machine.phantom {
        return Err(Failure::input("stress --phantom: pages of tasks are written to and moved; leave --phantom out"));
    }
    let memory = args.machine.memory.or_else(|| args.machine.machine.is_none().then_some(DEFAULT_MEMORY));
    let chosen = ChosenMachine::of(&MachineArgs { memory, ..args.machine.clone() })?;
    chosen.print_notes();
    if chosen.machine.geometry.page_size() != ByteSize::kib(4) {
        return Err(Failure::input("stress: page tables are those of x86-64, so pages have 4K; leave --page-size out"));
    }
    let tasks = tasks(args)?;
    let memory = chosen.machine.memory_bytes();
    let least = ByteSize(LEAST_MEMORY.0 * u64::from(tasks)).max(LEAST_MEMORY_IN_ALL);
    if memory < least {
        return Err(Failure::input(format!(
            "stress: {tasks} tasks need at least {least} of memory: give --memory {least}"
        )));
    }
    let policies = policies(args.policy);
    let bar = progress_bar(NAME, args.ops.get() * policies.len() as u64);
    let sharing = match args.mode {
        TaskMode::Threads => Sharing::Private,
        TaskMode::Processes => Sharing::Processes,
    };
    let map_init = InitArgs::default().map_init(InitMode::Eager, &chosen.machine)?;
    let of_args = BringUp { map_init, sharing, backing: FrameBacking::Real, ..BringUp::of(&args.machine, &args.yard) };
    let mut rows = Vec::new();
    for policy in policies {
        let options = BringUp { policy: policy.unwrap_or_default(), ..of_args };
        let plan = StressPlan {
            tasks,
            ops: args.ops.get(),
            policy,
            seed: args.seed,
            interval: args.interval,
            pcp_sizing: options.pcp_sizing,
        };
        let before = bar.position();
        let progress = |begun| bar.set_position(before + begun);
        let run = with_fixture(&chosen.machine, &options, LruPolicy::default(), |fixture| {
            fixture.yard.platform().time_locks(LockTiming::Off);
            Ok(stress::run(fixture, &plan, &progress, &exit_on_hang)?)
        });
        let run = run.map_err(|failure| named(failure, policy, args.mode))?;
        bar.set_position(before + plan.ops);
        rows.push(Row::of(&plan, args.mode, memory, &run));
    }
    bar.finish_and_clear();
    output::print(&StressOutcome { machine: chosen.machine.name, rows }, &args.output)
}

/// The policy of each run; `None` where it switches.
fn policies(policy: StressPolicy) -> Vec<Option<ZonePolicy>> {
    match policy {
        StressPolicy::One(policy) => vec![Some(policy)],
        StressPolicy::All => ZonePolicy::ALL.into_iter().map(Some).collect(),
        StressPolicy::Switching => vec![None],
    }
}

fn tasks(args: &StressArgs) -> Result<u32, Failure> {
    let tasks = match args.tasks {
        Some(tasks) => tasks.get(),
        None => HostTopology::current().map_err(Failure::run_time)?.allowed().count(),
    };
    if tasks > MOST_TASKS {
        return Err(Failure::input(format!("stress --tasks {tasks}: at most {MOST_TASKS}")));
    }
    Ok(NonZeroU32::new(tasks).map_or(1, NonZeroU32::get))
}

/// Reports a thread that hangs in the yard. It cannot be ended, so the program ends.
fn exit_on_hang(hang: Hang) {
    let failure = Failure::run_time(hang);
    let _ = failure.report();
    std::process::exit(i32::from(failure.code()));
}

/// Says in which run something went wrong.
fn named(failure: Failure, policy: Option<ZonePolicy>, mode: TaskMode) -> Failure {
    match failure {
        Failure::RunTime(reason) => {
            Failure::run_time(format!("stress, policy {}, {}: {reason}", policy_name(policy), mode.name()))
        }
        other => other,
    }
}

fn policy_name(policy: Option<ZonePolicy>) -> &'static str {
    policy.map_or("switching", ZonePolicy::name)
}

/// What came of a run.
#[derive(Serialize, Debug)]
struct Row {
    policy: &'static str,
    mode: &'static str,
    tasks: u32,
    memory_bytes: u64,
    seed: u64,
    ops: u64,
    elapsed_ns: u64,
    ops_per_s: f64,
    allocations: u64,
    frees: u64,
    freed_for_others: u64,
    mapped_pages: u64,
    out_of_memory: u64,
    out_of_memory_early: u64,
    exact_ranges: u64,
    certain_ranges: u64,
    certain_ranges_refused: u64,
    validations: u64,
    switches: u64,
    switch_stalls: u64,
    compactions: u64,
    compaction_stalls: u64,
    pages_migrated: u64,
    contiguous: u64,
    contiguous_refused: u64,
    contiguous_stalls: u64,
    drains: u64,
    resizes: u64,
    pages_reported: u64,
}

impl Row {
    fn of(plan: &StressPlan, mode: TaskMode, memory: ByteSize, run: &StressRun) -> Self {
        let (tally, done) = (&run.tally, &run.disturbances);
        Self {
            policy: policy_name(plan.policy),
            mode: mode.name(),
            tasks: plan.tasks,
            memory_bytes: memory.0,
            seed: plan.seed,
            ops: tally.ops(),
            elapsed_ns: run.elapsed_ns,
            ops_per_s: (tally.ops() as f64 * 1e9 / run.elapsed_ns.max(1) as f64).round(),
            allocations: tally.allocations,
            frees: tally.frees,
            freed_for_others: tally.freed_for_others,
            mapped_pages: tally.mapped,
            out_of_memory: tally.out_of_memory,
            out_of_memory_early: tally.out_of_memory_early,
            exact_ranges: tally.exact,
            certain_ranges: tally.ranges,
            certain_ranges_refused: tally.ranges_refused,
            validations: run.validations,
            switches: done.switches,
            switch_stalls: done.switch_stalls,
            compactions: done.compactions,
            compaction_stalls: done.compaction_stalls,
            pages_migrated: done.migrated,
            contiguous: done.contiguous,
            contiguous_refused: done.contiguous_refused,
            contiguous_stalls: done.contiguous_stalls,
            drains: done.drains,
            resizes: done.resizes,
            pages_reported: done.reported,
        }
    }

    /// What is said of it, line by line.
    fn lines(&self) -> [(&'static str, String); 9] {
        [
            ("operations", format!("{}, {:.0} a second", self.ops, self.ops_per_s)),
            ("freed for other tasks", self.freed_for_others.to_string()),
            ("pages mapped and unmapped", self.mapped_pages.to_string()),
            (
                "out of memory",
                format!("{}, for a single frame with a quarter free {}", self.out_of_memory, self.out_of_memory_early),
            ),
            ("policy switches", format!("{}, stalled {}", self.switches, self.switch_stalls)),
            (
                "compactions",
                format!(
                    "{}, stalled {}; {} pages moved",
                    self.compactions, self.compaction_stalls, self.pages_migrated
                ),
            ),
            (
                "contiguous ranges",
                format!("{}, refused {}, stalled {}", self.contiguous, self.contiguous_refused, self.contiguous_stalls),
            ),
            (
                "drains, resizes",
                format!("{}, {}; {} pages given back to the host", self.drains, self.resizes, self.pages_reported),
            ),
            ("validations", self.validations.to_string()),
        ]
    }
}

/// All runs.
struct StressOutcome {
    machine: String,
    rows: Vec<Row>,
}

impl Outcome for StressOutcome {
    fn command(&self) -> &'static str {
        NAME
    }

    fn machine(&self) -> Option<&str> {
        Some(&self.machine)
    }

    fn rows(&self) -> Result<Rows, RowError> {
        Rows::of(&self.rows)
    }

    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        for row in &self.rows {
            writeln!(out, "{}, {} {}:", row.policy, row.tasks, row.mode)?;
            for (what, value) in row.lines() {
                writeln!(out, "  {what:<26} {value}")?;
            }
        }
        writeln!(out, "No frame was handed out twice, every validation passed, and all memory came back in one piece.")
    }
}
