//! The table of huge blocks that a desktop allocates during a kernel build: success rates and mean times.
//!
//! Nothing is fitted to it. Builders compute as long per page as a build does, and read files instead of compiling them.

use std::num::NonZeroU32;
use std::time::Duration;

use frameyard::policy::ZonePolicy;
use frameyard::watermarks::PcpSizing;
use frameyard::{ByteSize, DefragMode};
use frameyard_sim::{ListAccess, Machine};
use frameyard_vm::LruPolicy;
use frameyard_workloads::highalloc::{DelayKind, HighallocPlan, HighallocRun};
use frameyard_workloads::kernbench::{CpuWork, Job};
use frameyard_workloads::sim::{FrameContents, SimInit, SimOptions, other_cpus};
use frameyard_workloads::{Setting, TaskMode};

use crate::Failure;
use crate::commands::sim::published::{BASE, ZoneLockLine, zone_lock_lines};
use crate::fixture::with_sim_fixture;
use crate::output::{Format, Report, Row, progress_bar, rounded};

/// The predicted experiments.
const EXPERIMENTS: [(&str, Duration); 2] =
    [("highalloc delay 100 ms", Duration::from_millis(100)), ("highalloc delay 1 ms", Duration::from_millis(1))];
/// Time between the filling of memory and the first request.
const SETTLE: Duration = Duration::from_millis(50);
/// Percentage of memory in unmovable frames: the choice of the workload, here and on hosts.
const UNMOVABLE_PERCENT: u8 = 5;
/// Cycles of a build for each page that it allocates: those of its programs, and those of the kernel.
const BUILD_CYCLES: u64 = Job::COMPUTE + Job::KERNEL_WORK;

/// The subject of a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Metric {
    /// The part of requested blocks that were allocated, in percent.
    Success,
    /// The mean time of a request, in nanoseconds.
    MeanTime,
}

impl Metric {
    /// The metric of a name in the table.
    fn named(name: &str) -> Option<Self> {
        match name {
            "success rate" => Some(Self::Success),
            "mean time of one order-9 allocation" => Some(Self::MeanTime),
            _ => None,
        }
    }

    fn of(self, run: &HighallocRun) -> f64 {
        let attempts = run.attempts.max(1) as f64;
        match self {
            Self::Success => rounded(run.successes as f64 * 100.0 / attempts),
            Self::MeanTime => run.times.mean().round(),
        }
    }

    /// How far `value` is from `published`: in percentage points of a rate, in percent of a time.
    fn error(self, value: f64, published: f64) -> f64 {
        match self {
            Self::Success => rounded(value - published),
            Self::MeanTime => rounded((value / published - 1.0) * 100.0),
        }
    }
}

/// A published value.
#[derive(Clone, PartialEq, Debug)]
struct Value {
    delay: Duration,
    policy: ZonePolicy,
    metric: Metric,
    name: String,
    published: f64,
}

/// Predicts and compares.
pub(super) fn compared(machine: &Machine, memory: ByteSize, seed: u64) -> Result<Report, Failure> {
    let others = other_cpus(machine.topology.sockets.into());
    let builders = (machine.cpus() as u64).checked_sub(others).and_then(|builders| NonZeroU32::new(builders as u32));
    let Some(builders) = builders else {
        let name = &machine.name;
        return Err(Failure::input(format!("{name} has no CPU for a builder beside the {others} of the requester")));
    };
    let values = values();
    let mut cases: Vec<(Duration, ZonePolicy)> = Vec::new();
    for Value { delay, policy, .. } in &values {
        if !cases.contains(&(*delay, *policy)) {
            cases.push((*delay, *policy));
        }
    }
    let bar = progress_bar("predicting", cases.len() as u64);
    let mut rows = Vec::new();
    for (delay, policy) in cases {
        let run = predict(machine, memory, seed, builders, (delay, policy))?;
        let of_case = values.iter().filter(|value| (value.delay, value.policy) == (delay, policy));
        rows.extend(of_case.map(|value| row(value, &values, &run)));
        bar.inc(1);
    }
    bar.finish_and_clear();
    let note = "differences are percentage points of rates, and percent of times; naive: no policy changes what was published of the base";
    Ok(Report::new("sim check", rows).of_machine(&machine.name).note(note))
}

/// Runs the workload once, with a builder on each CPU that the requester and the background threads leave.
fn predict(
    machine: &Machine,
    memory: ByteSize,
    seed: u64,
    builders: NonZeroU32,
    (delay, zone): (Duration, ZonePolicy),
) -> Result<HighallocRun, Failure> {
    let options = SimOptions {
        memory,
        zone,
        lru: LruPolicy::Vanilla,
        sizing: PcpSizing::Early,
        lists: ListAccess::Locks,
        contents: FrameContents::Kept,
        init: SimInit::Eager,
        costs: CpuWork::COSTS,
    };
    let setting = Setting { mode: TaskMode::Processes, tasks: builders, zone, lru: LruPolicy::Vanilla };
    let plan = HighallocPlan {
        delay,
        kind: DelayKind::Real,
        settle: SETTLE,
        unmovable_percent: UNMOVABLE_PERCENT,
        defrag: DefragMode::Off,
        compute: BUILD_CYCLES,
    };
    with_sim_fixture(machine, &options, |fixture| {
        Ok(frameyard_workloads::sim::highalloc(fixture, &setting, seed, &plan)?.run)
    })
}

/// The published values.
fn values() -> Vec<Value> {
    let of = |(experiment, delay): (&'static str, Duration)| {
        zone_lock_lines(experiment).filter_map(move |ZoneLockLine { metric: name, policy, value: published }| {
            Some(Value { delay, policy, metric: Metric::named(&name)?, name, published })
        })
    };
    EXPERIMENTS.into_iter().flat_map(of).collect()
}

/// What one would expect of a policy that changes nothing: the published value of the base.
fn naive(value: &Value, values: &[Value]) -> Option<f64> {
    let is_base = |other: &&Value| (other.delay, other.policy, other.metric) == (value.delay, BASE, value.metric);
    let base = values.iter().find(is_base)?;
    (value.policy != BASE).then(|| value.metric.error(base.published, value.published))
}

fn row(value: &Value, values: &[Value], run: &HighallocRun) -> Row {
    let Value { delay, policy, metric, ref name, published } = *value;
    let predicted = metric.of(run);
    let (unit, number) = match metric {
        Metric::Success => ("%", Format::number(1)),
        Metric::MeanTime => ("ns", Format::number(0)),
    };
    let signed = Format::number(1).signed();
    Row::new()
        .column_as("delay_ns", "delay ms", Format::millions(0), delay.as_nanos() as u64)
        .column("policy", "policy", policy.name())
        .column("metric", "metric", name.clone())
        .column("unit", "unit", unit)
        .column_as("published", "published", number, published)
        .column_as("predicted", "predicted", number, predicted)
        .column_as("difference", "difference", signed, metric.error(predicted, published))
        .column_as("naive_difference", "naive", signed, naive(value, values))
        .column("high_order_attempts", "of", run.attempts)
        .minor()
        .column_as("high_order_ns_max", "longest ms", Format::millions(1), run.times.longest())
        .minor()
        .data("pages_per_s", rounded(run.builders_rate))
        .data("compact_migrated", run.counts.compact_migrated)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::published_table::zone_lock;

    #[test]
    fn every_line_of_both_experiments_is_read() {
        let lines = zone_lock().filter(|record| record.experiment.starts_with("highalloc")).count();
        let values = values();
        assert_eq!((values.len(), lines), (12, 12));
        let of = |delay, policy, metric| {
            let is_it = |value: &&Value| (value.delay, value.policy, value.metric) == (delay, policy, metric);
            values.iter().find(is_it).unwrap().published
        };
        let [(_, long), (_, short)] = EXPERIMENTS;
        assert_eq!(of(long, ZonePolicy::ClusterBulk, Metric::MeanTime), 6_591_740.0);
        assert_eq!(of(short, ZonePolicy::SkipMerge, Metric::Success), 44.0);
    }

    #[test]
    fn the_naive_expectation_is_the_value_of_the_base_with_the_same_delay() {
        let values = values();
        let errors: Vec<Option<f64>> = values.iter().map(|value| naive(value, &values)).collect();
        assert_eq!(errors.iter().filter(|error| error.is_none()).count(), 4);
        let at = |policy, metric| {
            let is_it = |value: &Value| (value.delay, value.policy, value.metric) == (EXPERIMENTS[1].1, policy, metric);
            errors[values.iter().position(is_it).unwrap()]
        };
        assert_eq!(at(ZonePolicy::SkipMerge, Metric::Success), Some(9.0));
        assert_eq!(
            at(ZonePolicy::ClusterBulk, Metric::MeanTime),
            Some(rounded(100.0 * (3_173_620.0 / 2_730_290.0 - 1.0)))
        );
    }

    #[test]
    fn a_machine_without_a_cpu_for_a_builder_is_refused() {
        let machine = Machine::built_in("zen-7551-guest4").unwrap();
        let few = Machine { topology: frameyard_sim::Topology { cores_per_socket: 1, ..machine.topology }, ..machine };
        let refused = compared(&few, ByteSize::mib(128), 1).err().unwrap();
        assert!(refused.to_string().contains("no CPU for a builder beside the 3"), "{refused}");
    }
}
