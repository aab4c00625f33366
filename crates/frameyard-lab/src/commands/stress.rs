//! `stress`: checks that a yard loses no frame while tasks use it, policies change and ranges are taken out of it.

use std::num::{NonZeroU32, NonZeroU64};
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use frameyard::ByteSize;
use frameyard::boot::InitMode;
use frameyard::policy::ZonePolicy;
use frameyard_host::{HostTopology, LockTiming};
use frameyard_vm::LruPolicy;
use frameyard_workloads::TaskMode;
use frameyard_workloads::stress::{self, Hang, MOST_TASKS, StressPlan, StressRun};

use crate::Failure;
use crate::args::values::{positive_duration, positive_number, task_mode, whole_number};
use crate::args::{InitArgs, MachineArgs, OutputArgs, YardArgs};
use crate::boot::{BootOptions, FrameBacking, Sharing};
use crate::chosen_machine::ChosenMachine;
use crate::fixture::with_fixture;
use crate::output::{Report, Row, progress_bar};

/// What follows the options in the help text.
const HELP: &str = "\
Takes about 20 seconds: 10 for each of the policies. The time grows with --ops.

Examples:
  frameyard stress
  frameyard stress --policy bits
  frameyard stress --policy all --ops 5M --mode processes --tasks 4";

/// Allocates and frees at random under disturbances, and checks that no frame is lost or allocated twice
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(super) struct StressArgs {
    /// Tasks that allocate and free [default: the CPUs here]
    #[arg(long, value_name = "N", value_parser = positive_number, help_heading = "Runs")]
    tasks: Option<NonZeroU32>,

    /// Allocations and frees of all tasks together, under each policy; as in 500k or 1G
    #[arg(long, value_name = "N", default_value = "20M", value_parser = operations, help_heading = "Runs")]
    ops: NonZeroU64,

    /// Policies, one run for each; all means every policy, switching one run that changes at random between those that allow it
    #[arg(long = "policy", value_name = "POLICIES", value_delimiter = ',', value_parser = stress_policy(), default_values = default_policies(), help_heading = "Runs")]
    policies: Vec<StressPolicy>,

    /// What a task is: a thread, or a process that shares the yard
    #[arg(long, value_parser = task_mode(), default_value = "threads", help_heading = "Runs")]
    mode: TaskMode,

    /// Seed of the random choices; the interleaving of tasks differs in any case
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number, help_heading = "Runs")]
    seed: u64,

    /// Time between two validations of the yard, as in 500ms or 2s
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = positive_duration, help_heading = "Runs")]
    interval: Duration,

    #[command(flatten)]
    machine: MachineArgs,
    #[command(flatten)]
    yard: YardArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// A part of the runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum StressPolicy {
    /// One policy.
    One(ZonePolicy),
    /// Every policy, one run for each.
    All,
    /// Every policy to which a yard in use can change, in one run, switched at random.
    Switching,
}

/// A switching run, and one run for each policy that a yard can have only from its creation on.
fn default_policies() -> impl Iterator<Item = &'static str> {
    let never = ZonePolicy::ALL.into_iter().filter(|policy| !policy.is_changeable());
    ["switching"].into_iter().chain(never.map(ZonePolicy::name))
}

/// Reads a policy, `all` or `switching`.
fn stress_policy() -> impl TypedValueParser<Value = StressPolicy> {
    let names = ["switching", "all"].into_iter().chain(ZonePolicy::ALL.iter().map(|policy| policy.name()));
    PossibleValuesParser::new(names).try_map(|name| match name.as_str() {
        "switching" => Ok(StressPolicy::Switching),
        "all" => Ok(StressPolicy::All),
        name => ZonePolicy::from_str(name).map(StressPolicy::One),
    })
}

/// A number of operations: digits, with `k`, `M` or `G` for 10³, 10⁶ and 10⁹.
fn operations(text: &str) -> Result<NonZeroU64, String> {
    let (digits, unit) = match text.as_bytes().last() {
        Some(b'k') => (&text[..text.len() - 1], 1_000),
        Some(b'M') => (&text[..text.len() - 1], 1_000_000),
        Some(b'G') => (&text[..text.len() - 1], 1_000_000_000),
        _ => (text, 1),
    };
    let number = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(unit)).and_then(NonZeroU64::new);
    // The count cannot overflow while tasks begin the last operations.
    number.filter(|number| number.get() <= 1 << 60).ok_or_else(|| {
        "write a whole number from 1 to 2^60, or one with k, M or G behind it, as in 500k or 1G".to_owned()
    })
}

const NAME: &str = "stress";
/// Memory of the machine unless the command line says otherwise: little, so that tasks often run out of it.
const DEFAULT_MEMORY: ByteSize = ByteSize::mib(512);
/// The least memory for each task: several pageblocks.
const LEAST_MEMORY: ByteSize = ByteSize::mib(16);
/// The least memory of all tasks together.
const LEAST_MEMORY_IN_ALL: ByteSize = ByteSize::mib(64);

/// Runs under each policy of the command line.
pub(super) fn run(args: &StressArgs) -> Result<(), Failure> {
    args.machine.refuse_phantom(NAME, "pages of tasks are written to and moved")?;
    let chosen = ChosenMachine::with_memory(&args.machine, DEFAULT_MEMORY)?;
    chosen.check_page_size(NAME)?;
    let tasks = tasks(args)?;
    let memory = chosen.machine.memory_bytes();
    let least = ByteSize(LEAST_MEMORY.0 * u64::from(tasks)).max(LEAST_MEMORY_IN_ALL);
    if memory < least {
        return Err(Failure::input(format!(
            "stress: {tasks} tasks need at least {least} of memory: give --memory {least}"
        )));
    }
    let policies: Vec<Option<ZonePolicy>> = args.policies.iter().flat_map(|policy| policy.runs()).collect();
    let bar = progress_bar(NAME, args.ops.get() * policies.len() as u64);
    let sharing = match args.mode {
        TaskMode::Threads => Sharing::Private,
        TaskMode::Processes => Sharing::Processes,
    };
    let map_init = InitArgs::default().map_init(InitMode::Eager, &chosen.machine)?;
    chosen.print_notes();
    let of_args =
        BootOptions { map_init, sharing, backing: FrameBacking::Real, ..BootOptions::of(&args.machine, &args.yard) };
    let mut rows = Vec::new();
    for policy in policies {
        let plan = StressPlan {
            tasks,
            ops: args.ops.get(),
            policy,
            seed: args.seed,
            interval: args.interval,
            pcp_sizing: of_args.pcp_sizing,
        };
        let options = BootOptions { policy: plan.first_policy(), ..of_args };
        let before = bar.position();
        let progress = |begun| bar.set_position(before + begun);
        let run = with_fixture(&chosen.machine, &options, LruPolicy::default(), |fixture| {
            fixture.yard.platform().time_locks(LockTiming::Off);
            Ok(stress::run(fixture, &plan, &progress, &exit_on_hang)?)
        });
        let run = run.map_err(|failure| named(failure, policy, args.mode))?;
        bar.set_position(before + plan.ops);
        rows.push(row(&plan, args.mode, memory, &run));
    }
    bar.finish_and_clear();
    let text = text(&rows);
    Report::new(NAME, rows).of_machine(chosen.machine.name).verbatim(text).print(&args.output)
}

impl StressPolicy {
    /// The policy of each run; `None` where it switches.
    fn runs(self) -> Vec<Option<ZonePolicy>> {
        match self {
            Self::One(policy) => vec![Some(policy)],
            Self::All => ZonePolicy::ALL.into_iter().map(Some).collect(),
            Self::Switching => vec![None],
        }
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

/// Reports a thread that hangs in the yard and exits: the thread cannot be ended.
fn exit_on_hang(hang: Hang) {
    let failure = Failure::run_time(hang);
    let _ = failure.report();
    std::process::exit(i32::from(failure.code()));
}

/// Names the run that failed.
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

/// The row of a run.
fn row(plan: &StressPlan, mode: TaskMode, memory: ByteSize, run: &StressRun) -> Row {
    let (tally, done) = (&run.tally, &run.disturbances);
    Row::new()
        .data("policy", policy_name(plan.policy))
        .data("mode", mode.name())
        .data("tasks", plan.tasks)
        .data("memory_bytes", memory.0)
        .data("seed", plan.seed)
        .data("ops", tally.ops())
        .data("elapsed_ns", run.elapsed_ns)
        .data("ops_per_s", (tally.ops() as f64 * 1e9 / run.elapsed_ns.max(1) as f64).round())
        .data("allocations", tally.allocations)
        .data("frees", tally.frees)
        .data("freed_for_others", tally.freed_for_others)
        .data("mapped_pages", tally.mapped)
        .data("out_of_memory", tally.out_of_memory)
        .data("out_of_memory_early", tally.out_of_memory_early)
        .data("exact_ranges", tally.exact)
        .data("certain_ranges", tally.ranges)
        .data("certain_ranges_refused", tally.ranges_refused)
        .data("validations", run.validations)
        .data("switches", done.switches)
        .data("compactions", done.compactions)
        .data("compaction_stalls", done.compaction_stalls)
        .data("pages_migrated", done.migrated)
        .data("contiguous", done.contiguous)
        .data("contiguous_refused", done.contiguous_refused)
        .data("contiguous_stalls", done.contiguous_stalls)
        .data("drains", done.drains)
        .data("resizes", done.resizes)
        .data("pages_reported", done.reported)
}

/// A paragraph for each run.
fn text(rows: &[Row]) -> String {
    let mut text = String::new();
    for row in rows {
        let value = |key| row.value(key).to_string();
        let [policy, mode] = ["policy", "mode"].map(|key| row.text(key).unwrap_or_default());
        text += &format!("{policy}, {} {mode}:\n", value("tasks"));
        let lines = [
            ("operations", format!("{}, {:.0} a second", value("ops"), row.number("ops_per_s").unwrap_or(0.0))),
            ("freed for other tasks", value("freed_for_others")),
            ("pages mapped and unmapped", value("mapped_pages")),
            (
                "out of memory",
                format!(
                    "{}, for a single frame with a quarter free {}",
                    value("out_of_memory"),
                    value("out_of_memory_early")
                ),
            ),
            ("policy switches", value("switches").to_string()),
            (
                "compactions",
                format!(
                    "{}, stalled {}; {} pages moved",
                    value("compactions"),
                    value("compaction_stalls"),
                    value("pages_migrated")
                ),
            ),
            (
                "contiguous ranges",
                format!(
                    "{}, refused {}, stalled {}",
                    value("contiguous"),
                    value("contiguous_refused"),
                    value("contiguous_stalls")
                ),
            ),
            (
                "drains, resizes",
                format!(
                    "{}, {}; {} pages returned to the host",
                    value("drains"),
                    value("resizes"),
                    value("pages_reported")
                ),
            ),
            ("validations", value("validations")),
        ];
        for (what, value) in lines {
            text += &format!("  {what:<26} {value}\n");
        }
    }
    text + "No frame was allocated twice, every validation passed, and all memory was returned in one piece.\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<StressArgs, String> {
        crate::args::read(line)
    }

    #[test]
    fn a_bare_command_switches_policies_and_then_has_those_that_never_change() {
        let args = read("").unwrap();
        let bits = [ZonePolicy::Bits, ZonePolicy::BitsTrees].map(StressPolicy::One);
        let runs = [StressPolicy::Switching].into_iter().chain(bits).collect::<Vec<_>>();
        assert_eq!((args.policies, args.mode), (runs, TaskMode::Threads));
        assert_eq!((args.ops.get(), args.tasks), (20_000_000, None));
    }

    #[test]
    fn operations_may_be_written_in_thousands() {
        for (text, ops) in [("7", 7), ("500k", 500_000), ("3M", 3_000_000), ("1G", 1_000_000_000)] {
            assert_eq!(operations(text), Ok(NonZeroU64::new(ops).unwrap()));
        }
        for text in ["", "0", "k", "-1", "1.5G", "1e9", "99999999999G"] {
            assert!(operations(text).unwrap_err().contains("as in 500k or 1G"), "{text}");
        }
    }

    #[test]
    fn every_policy_can_be_chosen_by_its_name() {
        for policy in ZonePolicy::ALL {
            assert_eq!(read(&format!("--policy {policy}")).unwrap().policies, [StressPolicy::One(policy)]);
        }
        assert_eq!(read("--policy all").unwrap().policies, [StressPolicy::All]);
        assert!(read("--policy fast").unwrap_err().contains("possible values: switching, all, vanilla"));
    }
}
