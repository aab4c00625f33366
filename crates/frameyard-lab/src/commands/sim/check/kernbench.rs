//! The table of a kernel build with per-CPU lists sized before and after most memory is initialised.
//!
//! A whole build is too long to simulate. Its jobs are simulated for some milliseconds and their times multiplied. Computing
//! per page and pages per process are those of a recorded build ([`Job`]). Three numbers are fitted on the column with
//! final lists alone: further kernel work per page (by the ratio of system to user time), the number of jobs, and the
//! idle time. The column with early lists is predicted.

use std::time::Duration;

use frameyard::policy::ZonePolicy;
use frameyard::watermarks::PcpSizing;
use frameyard_sim::{Effort, Machine};
use frameyard_vm::LruPolicy;
use frameyard_workloads::kernbench::Job;
use serde::Deserialize;

use super::super::kernbench::{Built, Case, ListsSized};
use super::super::published::BASE;
use crate::Failure;
use crate::commands::published_table::records;
use crate::measure::Deviation;
use crate::output::{Format, Report, Row, progress_bar, rounded};

/// The published table; its header names the columns.
const TABLE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/published/kernbench-epyc2-256cpu.csv"));

const NOTE: &str = "Jobs are simulated for some milliseconds and their times scaled to a build. Computing per page is that of a recorded build. \
    Kernel work per page, the number of jobs and the idle time are fitted on the column with final lists. Shares of locks are shares of busy \
    CPU time. Predicted times are means of several seeds, with the standard deviation in percent.";

/// How long jobs are counted, at least one job per CPU.
const DURATION: Duration = Duration::from_millis(20);
/// The tolerance of the fitted ratio of system to user time.
const TOLERANCE: f64 = 0.003;
/// The most simulations of a fit.
const MOST_STEPS: u32 = 6;
/// Seeds of a predicted column.
const SEEDS: u32 = 3;

/// The times of a build, in seconds: CPU time of all CPUs, and elapsed time.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Times {
    user: Deviation,
    system: Deviation,
    elapsed: Deviation,
}

/// The published values.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Published {
    early: Times,
    last: Times,
}

impl Published {
    /// The means and standard deviations of the table.
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
        let times = |column: fn((f64, f64)) -> f64| {
            let time = |name: &str| {
                let mean = column(line(&format!("{name}_256_amean_s"))?);
                let deviation = column(line(&format!("{name}_256_stddev"))?);
                Some(Deviation { mean, percent: Some(deviation / mean * 100.0) })
            };
            Some(Times { user: time("user")?, system: time("system")?, elapsed: time("elapsed")? })
        };
        Some(Self { early: times(|columns| columns.0)?, last: times(|columns| columns.1)? })
    }
}

/// Predicted and published values.
struct Prediction {
    build: Job,
    zone_policy: &'static str,
    lists: &'static str,
    batch: u64,
    metric: &'static str,
    /// In seconds.
    published: Option<Deviation>,
    predicted: Deviation,
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
    let bar = progress_bar("predicting", 12);
    let case = |lists, zone, build| Case {
        machine,
        zone_size: None,
        lists,
        sizing: PcpSizing::Classic,
        zone,
        lru: LruPolicy::Vanilla,
        build,
        seed: effort.seed,
        duration: DURATION,
    };
    let recorded = Job { pages: effort.pages, ..Job::default() };
    let simulate = |kernel_work| {
        bar.inc(1);
        Ok::<Built, Failure>(case(ListsSized::Final, BASE, Job { kernel_work, ..recorded }).run()?.0)
    };
    let kernel_work = fit(published.last.system.mean / published.last.user.mean, recorded, simulate)?;
    let build = Job { kernel_work, ..recorded };
    let predict = |lists, zone, seeds: u32| {
        bar.inc(seeds.into());
        Ok::<Built, Failure>(case(lists, zone, build).run_seeds(seeds)?.0)
    };
    let last = predict(ListsSized::Final, BASE, SEEDS)?;
    let scaled = Scaled { machine, published, build, jobs: published.last.user.mean * 1e9 / last.user_ns };
    let mut rows = scaled.fitted(&last);
    rows.extend(scaled.predicted(&predict(ListsSized::Early, BASE, SEEDS)?, Some(published.early)));
    for lists in [ListsSized::Early, ListsSized::Final] {
        rows.extend(scaled.predicted(&predict(lists, ZonePolicy::Bits, 1)?, None));
    }
    bar.finish_and_clear();
    Ok(Report::new("sim check", rows.iter().map(Prediction::row).collect()).of_machine(&machine.name).note(NOTE))
}

/// Finds the kernel work per page that gives this ratio of system to user time; 0 if system time is longer without any.
///
/// User time is the computing, so more kernel work lengthens system time in proportion while locks are not saturated.
fn fit(ratio: f64, job: Job, mut simulate: impl FnMut(u64) -> Result<Built, Failure>) -> Result<u64, Failure> {
    let mut kernel_work = job.kernel_work;
    let mut steps = 1;
    loop {
        let built = simulate(kernel_work)?;
        let found = built.system_ns / built.user_ns;
        let next = (kernel_work as f64 + (ratio - found) * job.compute as f64).round().max(0.0) as u64;
        if (found / ratio).ln().abs() < TOLERANCE || next == kernel_work || steps == MOST_STEPS {
            return Ok(kernel_work);
        }
        (kernel_work, steps) = (next, steps + 1);
    }
}

/// A build with the published number of jobs.
struct Scaled<'m> {
    machine: &'m Machine,
    published: Published,
    build: Job,
    jobs: f64,
}

impl Scaled<'_> {
    /// Busy seconds of each CPU, and idle ones, from the published times.
    fn busy_and_idle(&self) -> (f64, f64) {
        let Times { user, system, elapsed } = self.published.last;
        let busy = (user.mean + system.mean) / self.machine.cpus() as f64;
        (busy, elapsed.mean - busy)
    }

    /// The rows of the fitted column.
    fn fitted(&self, built: &Built) -> Vec<Prediction> {
        let Times { user, system, elapsed } = self.published.last;
        let busy = self.busy(built);
        let elapsed_s = Deviation { mean: busy.mean + self.busy_and_idle().1, percent: None };
        [("user", user, self.user(built)), ("system", system, self.system(built)), ("elapsed", elapsed, elapsed_s)]
            .map(|(metric, published, predicted)| self.row(built, metric, Some(published), predicted, true))
            .into()
    }

    /// The rows of another column, published or not. Idle time is not simulated, so elapsed time has two estimates:
    /// the same idle seconds, as where CPUs wait for one long job, or the same idle share, as where CPUs wait for
    /// equally busy ones.
    fn predicted(&self, built: &Built, of: Option<Times>) -> Vec<Prediction> {
        let (busy, idle) = self.busy_and_idle();
        let elapsed = |mean| Deviation { mean, percent: None };
        let now = self.busy(built).mean;
        [
            ("user", of.map(|of| of.user), self.user(built)),
            ("system", of.map(|of| of.system), self.system(built)),
            ("elapsed, idle as long", of.map(|of| of.elapsed), elapsed(now + idle)),
            ("elapsed, idle as large a share", of.map(|of| of.elapsed), elapsed(now * (busy + idle) / busy)),
        ]
        .into_iter()
        .filter(|(metric, published, _)| published.is_some() || !metric.starts_with("elapsed"))
        .map(|(metric, published, predicted)| self.row(built, metric, published, predicted, false))
        .collect()
    }

    /// The time in the fitted column, in seconds.
    fn fitted_time(&self, metric: &str) -> f64 {
        let Times { user, system, elapsed } = self.published.last;
        match metric {
            "user" => user.mean,
            "system" => system.mean,
            _ => elapsed.mean,
        }
    }

    /// User time of all CPUs, in seconds.
    fn user(&self, built: &Built) -> Deviation {
        Deviation { mean: built.user_ns * self.jobs / 1e9, percent: built.user_stddev_pct }
    }

    /// System time of all CPUs, in seconds.
    fn system(&self, built: &Built) -> Deviation {
        Deviation { mean: built.system_ns * self.jobs / 1e9, percent: built.system_stddev_pct }
    }

    /// Busy time of each CPU, in seconds.
    fn busy(&self, built: &Built) -> Deviation {
        let mean = (self.user(built).mean + self.system(built).mean) / self.machine.cpus() as f64;
        Deviation { mean, percent: None }
    }

    fn row(
        &self,
        built: &Built,
        metric: &'static str,
        published: Option<Deviation>,
        predicted: Deviation,
        fitted: bool,
    ) -> Prediction {
        let error = |seconds: f64| published.map(|published| rounded((seconds / published.mean - 1.0) * 100.0));
        Prediction {
            build: self.build,
            zone_policy: built.zone_policy,
            lists: built.lists,
            batch: built.batch,
            metric,
            published,
            predicted: Deviation { mean: rounded(predicted.mean), ..predicted },
            error_pct: error(predicted.mean),
            naive_error_pct: error(self.fitted_time(metric)),
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
            .column("kernel_work_cycles", "kernel work", self.build.kernel_work)
            .minor()
            .column("compute_cycles", "compute", self.build.compute)
            .minor()
            .column("process_pages", "pages a process", self.build.pages)
            .minor()
            .column("zone_policy", "zone policy", self.zone_policy)
            .column("lists", "lists", self.lists)
            .column("batch", "batch", self.batch)
            .minor()
            .column("metric", "time", self.metric)
            .column_as("published_s", "published s", Format::number(2), self.published.map(|time| time.mean))
            .column_as("published_stddev_pct", "± %", Format::number(2), self.published.and_then(|time| time.percent))
            .minor()
            .column_as("predicted_s", "predicted s", Format::number(2), self.predicted.mean)
            .column_as("predicted_stddev_pct", "± %", Format::number(2), self.predicted.percent)
            .minor()
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
        let means = |times: Times| [times.user, times.system, times.elapsed].map(|time| time.mean);
        assert_eq!(means(early), [13249.5, 14760.3, 162.42]);
        assert_eq!(means(last), [16401.31, 4448.39, 119.13]);
        let spread = early.system.percent.unwrap();
        assert!((spread - 2.28).abs() < 0.01, "{spread}");
    }

    fn built(user_ns: f64, system_ns: f64) -> Built {
        Built { user_ns, system_ns, ..Built::default() }
    }

    #[test]
    fn the_fit_finds_the_kernel_work_with_and_without_other_system_time() {
        let job = Job { compute: 50_000, kernel_work: 10_000, ..Job::default() };
        // Second threads slow computing down by 1.5, and waiting shortens with more kernel work.
        let simulate = |kernel_work: u64| {
            let kernel_work = kernel_work as f64;
            Ok(built(75_000.0, kernel_work * 1.5 + 3000.0 + (5000.0 - kernel_work).max(0.0) / 2.0))
        };
        for (ratio, expected) in [(0.3, 13_000.0), (0.1, 2000.0), (0.04, 0.0)] {
            let kernel_work = fit(ratio, job, simulate).unwrap();
            assert!((kernel_work as f64 - expected).abs() < 150.0, "{ratio}: {kernel_work}");
        }
    }

    #[test]
    fn a_scaled_build_keeps_the_published_user_and_idle_time() {
        let machine = Machine::built_in("epyc2-256").unwrap();
        let published = Published::read().unwrap();
        let jobs = published.last.user.mean * 1e9 / 50.0;
        let scaled = Scaled { machine: &machine, published, build: Job::default(), jobs };
        let rows = scaled.fitted(&built(50.0, 10.0));
        assert_eq!((rows[0].error_pct, rows[0].fitted), (Some(0.0), true));
        // System time is a fifth of user time, a quarter too little, so CPUs are busy for less.
        assert_eq!(rows[1].predicted.mean, 3280.26);
        assert_eq!(rows[2].predicted.mean, 114.57);
        let rows = scaled.predicted(&built(100.0, 20.0), Some(published.early));
        assert_eq!(rows[0].predicted.mean, 32802.62);
        assert_eq!((rows[2].predicted.mean, rows[3].predicted.mean), (191.45, 224.91));
    }
}
