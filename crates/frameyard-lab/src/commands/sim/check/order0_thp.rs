//! The table of tasks with huge pages beside tasks with small ones, in memory that was full of small pages.

use std::num::NonZeroU32;
use std::time::Duration;

use frameyard::ByteSize;
use frameyard::policy::ZonePolicy;
use frameyard::watermarks::PcpSizing;
use frameyard_sim::{ListAccess, Machine};
use frameyard_vm::LruPolicy;
use frameyard_workloads::order0_thp::{Surroundings, pages_of_task};
use frameyard_workloads::sim::{FrameContents, SimInit, SimOptions, order0_thp, with_sim_fixture};
use frameyard_workloads::{Pages, Setting, TaskMode};

use crate::Failure;
use crate::commands::sim::published::{ZoneLockLine, distinct, zone_lock_lines};
use crate::output::{Format, Report, Row, progress_bar, rounded};

/// The predicted experiment.
const EXPERIMENT: &str = "order0-thp";
/// The table's names of the scores.
const SCORES: [(&str, Pages); 2] =
    [("score of the order-0 tasks", Pages::Small), ("score of the huge-page tasks", Pages::Huge)];

/// The amount of simulated work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Work {
    /// The machine's memory.
    memory: ByteSize,
    /// Tasks of each kind.
    tasks: NonZeroU32,
    /// The size of each mapping.
    map: ByteSize,
    /// Virtual time to count.
    duration: Duration,
}

impl Work {
    /// All memory and CPUs of the machine. Mappings are smaller than the published 128 MiB, so that a short run has several.
    pub(super) fn full(machine: &Machine) -> Self {
        let tasks = NonZeroU32::new(machine.cpus() as u32 / 2).unwrap_or(NonZeroU32::MIN);
        Self { memory: machine.installed, tasks, map: ByteSize::mib(32), duration: Duration::from_millis(100) }
    }

    /// A thirty-second of the memory, few tasks.
    pub(super) fn quick(machine: &Machine) -> Self {
        let tasks = NonZeroU32::new(2).unwrap_or(NonZeroU32::MIN);
        let memory = ByteSize(machine.installed.0 / 32);
        Self { memory, tasks, map: ByteSize::mib(4), duration: Duration::from_millis(4) }
    }
}

/// A published score: pages touched in a second by all tasks of a kind.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Score {
    policy: ZonePolicy,
    kind: Pages,
    published: f64,
}

/// The published scores.
fn scores() -> Vec<Score> {
    let score = |ZoneLockLine { metric, policy, value }| {
        let (_, kind) = SCORES.into_iter().find(|(name, _)| *name == metric)?;
        Some(Score { policy, kind, published: value })
    };
    zone_lock_lines(EXPERIMENT).filter_map(score).collect()
}

/// Predicts and compares.
pub(super) fn compared(machine: &Machine, work: Work) -> Result<Report, Failure> {
    let scores = scores();
    let policies = distinct(scores.iter().map(|score| score.policy));
    let bar = progress_bar("predicting", policies.len() as u64);
    let mut rows = Vec::new();
    for policy in policies {
        let rates = predicted(machine, policy, work)?;
        let of_policy = scores.iter().filter(|score| score.policy == policy);
        rows.extend(of_policy.map(|score| {
            let rate = rates.iter().find(|(kind, _)| *kind == score.kind).map_or(0.0, |(_, rate)| *rate);
            row(score, work.tasks, rate, &scores)
        }));
        bar.inc(1);
    }
    bar.finish_and_clear();
    let note = "the scores of the base bound the memory channels of skylake-112, which are not published; naive: no policy changes what \
                was published of the base";
    Ok(Report::new("sim check", rows).of_machine(&machine.name).note(note))
}

/// Pages touched in a second by each kind of tasks.
fn predicted(machine: &Machine, policy: ZonePolicy, work: Work) -> Result<[(Pages, f64); 2], Failure> {
    let Work { memory, tasks, map, duration } = work;
    let setting = Setting { mode: TaskMode::Processes, tasks, zone: policy, lru: LruPolicy::Vanilla };
    let options = SimOptions {
        memory,
        zone: policy,
        lru: LruPolicy::Vanilla,
        sizing: PcpSizing::Early,
        lists: ListAccess::Locks,
        contents: FrameContents::Dropped,
        init: SimInit::Eager,
        costs: &[],
    };
    with_sim_fixture(machine, &options, |fixture| {
        let run = order0_thp(fixture, &setting, 1, map, duration, Surroundings::default())?.run;
        let rate = |kind| (kind, run.rate_of(|task| pages_of_task(&setting, task) == kind));
        Ok([Pages::Small, Pages::Huge].map(rate))
    })
}

/// The error of a naive expectation, in percent: a policy changes nothing.
fn naive_error(score: &Score, scores: &[Score]) -> Option<f64> {
    let base = scores.iter().find(|other| other.kind == score.kind)?;
    (base.policy != score.policy).then(|| error(base.published, score.published))
}

/// In percent of the published value.
fn error(expected: f64, published: f64) -> f64 {
    rounded((expected / published - 1.0) * 100.0)
}

fn row(score: &Score, tasks: NonZeroU32, predicted: f64, scores: &[Score]) -> Row {
    let number = Format::number(0);
    let percent = Format::number(1).signed();
    Row::new()
        .column("policy", "policy", score.policy.name())
        .column("tasks", "tasks of a kind", tasks.get())
        .column("task_kind", "pages", score.kind.name())
        .column_as("published_per_s", "published/s", number, score.published)
        .column_as("predicted_per_s", "predicted/s", number, predicted.round())
        .column_as("error_pct", "error %", percent, error(predicted, score.published))
        .column_as("naive_error_pct", "naive %", percent, naive_error(score, scores))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::published_table::zone_lock;

    #[test]
    fn every_line_of_the_experiment_is_read() {
        let lines = zone_lock().filter(|record| record.experiment == EXPERIMENT).count();
        let scores = scores();
        assert_eq!((scores.len(), lines), (6, 6));
        let small = Score { policy: ZonePolicy::SkipMerge, kind: Pages::Small, published: 5_266_247.0 };
        assert!(scores.contains(&small));
        assert_eq!(naive_error(&small, &scores).map(f64::round), Some(-71.0));
        assert_eq!(naive_error(&scores[0], &scores), None);
    }

    #[test]
    fn tasks_of_both_kinds_touch_pages() {
        let machine = Machine::built_in("skylake-112").unwrap();
        let rates = predicted(&machine, ZonePolicy::Vanilla417, Work::quick(&machine)).unwrap();
        assert!(rates.iter().all(|(_, rate)| *rate > 1e5), "{rates:?}");
    }
}
