//! The table of a kernel build with per-CPU lists sized before and after most memory is initialised.
//!
//! A whole build is too long to simulate. Its jobs are simulated for some milliseconds and their times multiplied.
//! Three numbers are fitted on the column with final lists alone: the computing per page (by the ratio of user to
//! system time), the number of jobs, and the idle time. Further kernel work per page was measured apart
//! ([`Job::KERNEL_WORK`]). That number weighs most, so all is predicted a second time without it.

use std::time::Duration;

use frameyard::policy::ZonePolicy;
use frameyard::watermarks::PcpSizing;
use frameyard_sim::{Effort, Machine};
use frameyard_vm::LruPolicy;
use frameyard_workloads::kernbench::Job;
use serde::Deserialize;

use super::super::kernbench::{Built, Case, ListsSized};
use crate::Failure;
use crate::commands::published_table::records;
use crate::output::{Format, Report, Row, progress_bar, rounded};

/// The published table; its header names the columns.
const TABLE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/published/kernbench-epyc2-256cpu.csv"));

const NOTE: &str = "Jobs are simulated for some milliseconds and their times scaled to a build. The computing, the number of jobs and the idle time are \
    fitted on the column with final lists; kernel work is cycles per page, measured apart or 0. Shares of locks are shares of busy CPU time.";

/// How long jobs are counted, at least one job per CPU.
const DURATION: Duration = Duration::from_millis(20);
/// The tolerance of the fitted ratio of system to user time.
const TOLERANCE: f64 = 0.003;
/// The most simulations of a fit.
const MOST_STEPS: u32 = 10;

/// The times of a build, in seconds: CPU time of all CPUs, and elapsed time.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Times {
    user: f64,
    system: f64,
    elapsed: f64,
}

/// The published values.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Published {
    early: Times,
    last: Times,
}

impl Published {
    /// The means of the table.
    fn read() -> Option<Self> {
        /// A line of the table.
        #[derive(Deserialize)]
        struct Record {
            metric: String,
            vanilla: f64,
            reset_pcp: f64,
        }
        let line = |name: &str| {
            let record = records::<Record>(TABLE).find(|record| record.metric == name)?;
            Some((record.vanilla, record.reset_pcp))
        };
        let (user, system, elapsed) =
            (line("user_256_amean_s")?, line("system_256_amean_s")?, line("elapsed_256_amean_s")?);
        let early = Times { user: user.0, system: system.0, elapsed: elapsed.0 };
        Some(Self { early, last: Times { user: user.1, system: system.1, elapsed: elapsed.1 } })
    }
}

/// Predicted and published values.
struct Prediction {
    /// Cycles per page of further kernel work, and of computing.
    kernel_work_cycles: u64,
    compute_cycles: u64,
    zone_policy: &'static str,
    lists: &'static str,
    batch: u64,
    metric: &'static str,
    published_s: Option<f64>,
    predicted_s: f64,
    error_pct: Option<f64>,
    /// The error of the expectation that the lists make no difference.
    naive_error_pct: Option<f64>,
    /// Whether the fit used this value.
    fitted: bool,
    zone_lock_share: f64,
    lru_lock_share: f64,
}

/// Predicts and compares.
pub(super) fn compared(machine: &Machine, effort: Effort) -> Result<Report, Failure> {
    let published =
        Published::read().ok_or_else(|| Failure::run_time("the published table of the build lacks a row"))?;
    let bar = progress_bar("predicting", 2 * 8);
    let mut rows: Vec<Prediction> = Vec::new();
    for kernel_work in [Job::KERNEL_WORK, 0] {
        let build = Job { pages: effort.pages, kernel_work, ..Job::default() };
        let case = Case {
            machine,
            zone_size: None,
            lists: ListsSized::Final,
            sizing: PcpSizing::Classic,
            zone: ZonePolicy::Vanilla,
            lru: LruPolicy::Vanilla,
            build,
            seed: effort.seed,
            duration: DURATION,
        };
        let ratio = published.last.system / published.last.user;
        let simulate = |compute| {
            bar.inc(1);
            Ok(Case { build: Job { compute, ..build }, ..case }.run()?.0)
        };
        let (compute, last) = fit(ratio, Job::default().compute, simulate)?;
        let case = Case { build: Job { compute, ..build }, ..case };
        let scaled =
            Scaled { machine, published, kernel_work, compute, jobs: published.last.user * 1e9 / last.user_ns };
        rows.extend(scaled.fitted(&last));
        bar.inc(1);
        rows.extend(scaled.predicted(&Case { lists: ListsSized::Early, ..case }.run()?.0, Some(published.early)));
        for lists in [ListsSized::Early, ListsSized::Final] {
            bar.inc(1);
            rows.extend(scaled.predicted(&Case { lists, zone: ZonePolicy::Depot, ..case }.run()?.0, None));
        }
    }
    bar.finish_and_clear();
    Ok(Report::new("sim check", rows.iter().map(Prediction::row).collect()).of_machine(&machine.name).note(NOTE))
}

/// The logarithm of the computing, and of the excess of system time.
type Known = (f64, f64);

/// Finds the computing per page that gives this ratio of system to user time, and its result.
///
/// More computing lowers the share of system time, so the answer lies between the two nearest known points. The
/// search interpolates their logarithms.
fn fit(
    ratio: f64,
    first: u64,
    mut simulate: impl FnMut(u64) -> Result<Built, Failure>,
) -> Result<(u64, Built), Failure> {
    let (mut too_little, mut too_much): (Option<Known>, Option<Known>) = (None, None);
    let (mut x, mut nearest): (f64, Option<(f64, u64, Built)>) = ((first as f64).ln(), None);
    for _ in 0..MOST_STEPS {
        let compute = x.exp().round() as u64;
        let built = simulate(compute)?;
        let off = (built.system_ns / built.user_ns / ratio).ln();
        if nearest.as_ref().is_none_or(|(least, ..)| off.abs() < least.abs()) {
            nearest = Some((off, compute, built));
        }
        if off.abs() < TOLERANCE {
            break;
        }
        *if off > 0.0 { &mut too_little } else { &mut too_much } = Some((x, off));
        x = match (too_little, too_much) {
            (Some((low, above)), Some((high, below))) => {
                low + (high - low) * (above / (above - below)).clamp(0.05, 0.95)
            }
            _ => x + off / 1.5,
        };
    }
    let (_, compute, built) = nearest.ok_or_else(|| Failure::run_time("nothing was simulated"))?;
    Ok((compute, built))
}

/// A build with the published number of jobs.
struct Scaled<'m> {
    machine: &'m Machine,
    published: Published,
    kernel_work: u64,
    compute: u64,
    jobs: f64,
}

impl Scaled<'_> {
    /// Idle seconds of each CPU, from the published times.
    fn idle(&self) -> f64 {
        let Times { user, system, elapsed } = self.published.last;
        elapsed - (user + system) / self.machine.cpus() as f64
    }

    /// The rows of the fitted column.
    fn fitted(&self, built: &Built) -> Vec<Prediction> {
        let of = self.published.last;
        let (user, system, busy) = self.times(built);
        [("user", of.user, user), ("system", of.system, system), ("elapsed", of.elapsed, busy + self.idle())]
            .map(|(metric, published, predicted)| self.row(built, metric, Some(published), predicted, true))
            .into()
    }

    /// The rows of another column, published or not. Idle time is not simulated, so elapsed time has two estimates:
    /// the same idle seconds, as where CPUs wait for one long job, or the same idle share, as where CPUs wait for
    /// equally busy ones.
    fn predicted(&self, built: &Built, of: Option<Times>) -> Vec<Prediction> {
        let (user, system, busy) = self.times(built);
        let share = self.published.last.elapsed / (self.published.last.elapsed - self.idle());
        let elapsed = of.map(|of| of.elapsed);
        [
            ("user", of.map(|of| of.user), user),
            ("system", of.map(|of| of.system), system),
            ("elapsed, idle as long", elapsed, busy + self.idle()),
            ("elapsed, idle as large a share", elapsed, busy * share),
        ]
        .into_iter()
        .filter(|(metric, published, _)| published.is_some() || !metric.starts_with("elapsed"))
        .map(|(metric, published, predicted)| self.row(built, metric, published, predicted, false))
        .collect()
    }

    /// The time in the fitted column.
    fn fitted_time(&self, metric: &str) -> f64 {
        let Times { user, system, elapsed } = self.published.last;
        match metric {
            "user" => user,
            "system" => system,
            _ => elapsed,
        }
    }

    /// User and system time of all CPUs, and the busy time of each.
    fn times(&self, built: &Built) -> (f64, f64, f64) {
        let (user, system) = (built.user_ns * self.jobs / 1e9, built.system_ns * self.jobs / 1e9);
        (user, system, (user + system) / self.machine.cpus() as f64)
    }

    fn row(
        &self,
        built: &Built,
        metric: &'static str,
        published: Option<f64>,
        predicted: f64,
        fitted: bool,
    ) -> Prediction {
        Prediction {
            kernel_work_cycles: self.kernel_work,
            compute_cycles: self.compute,
            zone_policy: built.zone_policy,
            lists: built.lists,
            batch: built.batch,
            metric,
            published_s: published,
            predicted_s: rounded(predicted),
            error_pct: published.map(|published| rounded((predicted / published - 1.0) * 100.0)),
            naive_error_pct: published.map(|published| rounded((self.fitted_time(metric) / published - 1.0) * 100.0)),
            fitted,
            zone_lock_share: built.zone_lock_share,
            lru_lock_share: built.lru_lock_share,
        }
    }
}

impl Prediction {
    fn row(&self) -> Row {
        let error = self.error_pct.map(|error| format!("{error:+.1}{}", if self.fitted { " (fitted)" } else { "" }));
        Row::new()
            .column("kernel_work_cycles", "kernel work", self.kernel_work_cycles)
            .minor()
            .column("compute_cycles", "compute", self.compute_cycles)
            .minor()
            .column("zone_policy", "zone policy", self.zone_policy)
            .column("lists", "lists", self.lists)
            .column("batch", "batch", self.batch)
            .minor()
            .column("metric", "time", self.metric)
            .column_as("published_s", "published s", Format::number(2), self.published_s)
            .column_as("predicted_s", "predicted s", Format::number(2), self.predicted_s)
            .data("error_pct", self.error_pct)
            .remark("error %", Format::Plain, error)
            .column_as("naive_error_pct", "naive %", Format::number(1).signed(), self.naive_error_pct)
            .minor()
            .data("fitted", self.fitted)
            .column_as("zone_lock_share", "zone lock %", Format::percent(2), self.zone_lock_share)
            .minor()
            .column_as("lru_lock_share", "LRU lock %", Format::percent(2), self.lru_lock_share)
            .minor()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_both_columns() {
        let Published { early, last } = Published::read().unwrap();
        assert_eq!(early, Times { user: 13249.5, system: 14760.3, elapsed: 162.42 });
        assert_eq!(last, Times { user: 16401.31, system: 4448.39, elapsed: 119.13 });
    }

    fn built(user_ns: f64, system_ns: f64) -> Built {
        Built { user_ns, system_ns, ..Built::default() }
    }

    #[test]
    fn the_fit_finds_the_computing_with_and_without_a_saturated_lock() {
        // A page takes 5000 cycles of system time, or longer once the lock saturates.
        let simulate = |compute: u64| {
            let user = compute as f64;
            Ok(built(user, (40_000.0 - user).max(5000.0)))
        };
        for (ratio, expected) in [(0.1, 50_000.0), (1.0, 20_000.0), (4.0, 8000.0)] {
            let (compute, _) = fit(ratio, 30_000, simulate).unwrap();
            assert!((compute as f64 / expected - 1.0).abs() < 0.01, "{ratio}: {compute}");
        }
    }

    #[test]
    fn a_scaled_build_keeps_the_published_user_and_idle_time() {
        let machine = Machine::built_in("epyc2-256").unwrap();
        let published = Published::read().unwrap();
        let jobs = published.last.user * 1e9 / 50.0;
        let scaled = Scaled { machine: &machine, published, kernel_work: 0, compute: 1, jobs };
        let rows = scaled.fitted(&built(50.0, 10.0));
        assert_eq!((rows[0].error_pct, rows[0].fitted), (Some(0.0), true));
        // System time is a fifth of user time, a quarter too little, so CPUs are busy for less.
        assert_eq!(rows[1].predicted_s, 3280.26);
        assert_eq!(rows[2].predicted_s, 114.57);
        let rows = scaled.predicted(&built(100.0, 20.0), Some(published.early));
        assert_eq!(rows[0].predicted_s, 32802.62);
        assert_eq!((rows[2].predicted_s, rows[3].predicted_s), (191.45, 224.91));
    }
}
