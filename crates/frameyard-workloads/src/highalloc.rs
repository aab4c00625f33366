//! `highalloc`: nearly all memory is page cache with unmovable frames among it. How many blocks of order 9 can be allocated?
//!
//! Builders act like those of a kernel build: they read files until memory is full, and hold and replace unmovable frames.
//! They continue while a requester allocates one huge block after another and holds them. Between two requests lies a
//! delay, in which the background reclaimer and the background compactor of each node work: in real time, or, if the delay
//! is virtual, for that time or until they have no more work.

use std::time::{Duration, Instant};

use frameyard::{AllocError, DefragMode, Gfp, NodeId, Order, Pfn, Platform};
use frameyard_host::HostPlatform;
use frameyard_vm::Vm;

use crate::background::{beside_background, steps};
use crate::counts::{Counts, unusable_thousandths};
use crate::error::WorkloadError;
use crate::fixture::Fixture;
use crate::measure::nanoseconds;
use crate::report::TaskReport;
use crate::request_times::RequestTimes;
use crate::setting::Setting;
use crate::task::build::Build;
use crate::task::{TaskSpec, Work};
use crate::workers::Workers;

/// The order of the requested blocks: 2 MiB.
pub const HUGE: Order = Order(9);
/// Percentage of the yard that is requested.
const WANTED_PERCENT: u64 = 80;

/// What a delay between requests is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DelayKind {
    /// The background work of that time; no time passes without work.
    #[default]
    Virtual,
    /// Time that passes.
    Real,
}

impl DelayKind {
    /// The name in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Virtual => "virtual",
            Self::Real => "real",
        }
    }
}

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct HighallocPlan {
    /// The delay between two requests.
    pub delay: Duration,
    /// The kind of that delay.
    pub kind: DelayKind,
    /// Time between the filling of memory and the first request.
    pub settle: Duration,
    /// Percentage of memory that builders hold in unmovable frames.
    pub unmovable_percent: u8,
    /// Whether the yard keeps whole pageblocks in stock.
    pub defrag: DefragMode,
    /// Cycles that builders compute for each page that they read.
    pub compute: u64,
}

/// The result of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct HighallocRun {
    /// Requested blocks.
    pub attempts: u64,
    /// Allocated blocks.
    pub successes: u64,
    /// The time of each request.
    pub times: RequestTimes,
    /// From the first request to the end of the last, delays included.
    pub elapsed_ns: u64,
    /// Background work between requests, if the delay was virtual.
    pub background_ns: Option<u64>,
    /// Thousandths of free memory in smaller blocks before the first request.
    pub unusable_before: Option<u64>,
    /// Pages per second that builders read while blocks were requested.
    pub builders_rate: f64,
    /// Pages and frames whose contents builders checked at the end.
    pub checked: u64,
    /// Counter changes from the first request to the last.
    pub counts: Counts,
}

/// Runs the workload once.
///
/// # Errors
///
/// [`WorkloadError::RunTime`] if a builder or a request fails.
pub fn run(
    fixture: &Fixture<'_>,
    setting: &Setting,
    seed: u64,
    plan: &HighallocPlan,
) -> Result<HighallocRun, WorkloadError> {
    fixture.vm.yard().set_defrag_mode(plan.defrag);
    let specs = specs(setting, seed, plan, &fixture.vm);
    fixture.drive(&specs, |workers| {
        let vm = fixture.vm;
        let run = beside_background(&vm, |stop| settle_and_request(&vm, workers, plan, stop))??;
        workers.end();
        let reports = workers.reports().map_err(WorkloadError::run_time)?;
        Ok(run.with_reports(&reports))
    })
}

/// The builders of a run.
#[must_use]
pub fn specs<P: Platform>(setting: &Setting, seed: u64, plan: &HighallocPlan, vm: &Vm<'_, P>) -> Vec<TaskSpec> {
    let builders = setting.tasks.get();
    let build = Build { compute: plan.compute, ..Build::share_of(vm, builders, plan.unmovable_percent) };
    TaskSpec::alike(builders, seed, &Work::Build(build))
}

impl HighallocRun {
    /// The same run with the work of the builders, from their reports.
    #[must_use]
    pub fn with_reports(self, reports: &[TaskReport]) -> Self {
        let checked = reports.iter().map(|report| report.checked).sum();
        Self { builders_rate: reports.iter().map(TaskReport::rate).sum(), checked, ..self }
    }
}

/// Waits until memory is full and has settled, then requests blocks. `stop_threads` ends the background threads.
fn settle_and_request(
    vm: &Vm<'_, HostPlatform>,
    workers: &mut Workers<'_>,
    plan: &HighallocPlan,
    stop_threads: &mut dyn FnMut(),
) -> Result<HighallocRun, WorkloadError> {
    workers.wait_prepared().map_err(WorkloadError::run_time)?;
    workers.begin().map_err(WorkloadError::run_time)?;
    workers.watch(plan.settle).map_err(WorkloadError::run_time)?;
    let begin = Instant::now();
    let now_ns = || nanoseconds(begin.elapsed());
    match plan.kind {
        DelayKind::Real => request(vm, now_ns, || {
            workers.watch(plan.delay).map_err(WorkloadError::run_time)?;
            Ok(None)
        }),
        DelayKind::Virtual => {
            stop_threads();
            request(vm, now_ns, || {
                workers.poll().map_err(WorkloadError::run_time)?;
                Ok(Some(work_for(vm, plan.delay)))
            })
        }
    }
}

/// Requests blocks, holds them until the last request, and frees them. `delay` returns the nanoseconds of background work.
///
/// # Errors
///
/// Those of `delay`; [`WorkloadError::RunTime`] if a request fails for another reason than a lack of memory.
pub fn request<P: Platform>(
    vm: &Vm<'_, P>,
    now_ns: impl Fn() -> u64,
    mut delay: impl FnMut() -> Result<Option<u64>, WorkloadError>,
) -> Result<HighallocRun, WorkloadError> {
    let attempts = blocks_wanted(vm);
    let (before, begin) = (Counts::of(vm), now_ns());
    let mut run = HighallocRun {
        attempts,
        successes: 0,
        times: RequestTimes::default(),
        elapsed_ns: 0,
        background_ns: None,
        unusable_before: unusable_thousandths(vm.yard(), HUGE),
        builders_rate: 0.0,
        checked: 0,
        counts: Counts::default(),
    };
    let mut times = Vec::new();
    let mut blocks = HeldBlocks { vm, blocks: Vec::new() };
    for _ in 0..attempts {
        let started = now_ns();
        let found = vm.yard().request(HUGE, Gfp::HIGHUSER_MOVABLE | Gfp::NOWARN).owners(&vm.owners()).frame();
        times.push(now_ns() - started);
        match found {
            Ok(block) => blocks.blocks.push(block),
            Err(AllocError::OutOfMemory { .. }) => {}
            Err(error) => return Err(WorkloadError::run_time(error)),
        }
        if let Some(worked) = delay()? {
            *run.background_ns.get_or_insert(0) += worked;
        }
    }
    run.elapsed_ns = now_ns() - begin;
    run.times = RequestTimes::new(times);
    run.counts = Counts::of(vm).since(&before);
    run.successes = blocks.blocks.len() as u64;
    Ok(run)
}

/// Number of blocks that a run requests.
fn blocks_wanted<P: Platform>(vm: &Vm<'_, P>) -> u64 {
    (vm.yard().stats().managed_pages().0 >> HUGE.0) * WANTED_PERCENT / 100
}

/// Blocks of the requester, freed on drop.
struct HeldBlocks<'a, 'y, P: Platform> {
    vm: &'a Vm<'y, P>,
    blocks: Vec<Pfn>,
}

impl<P: Platform> Drop for HeldBlocks<'_, '_, P> {
    fn drop(&mut self) {
        for block in &self.blocks {
            // The check at the end of the run finds blocks that were not freed.
            let _ = self.vm.yard().free(*block, HUGE);
        }
    }
}

/// Does the background work of all nodes for `delay`, or until none is left. Returns its nanoseconds.
///
/// Each node has its own reclaimer and compactor, which would have run side by side, so each gets the whole delay.
fn work_for(vm: &Vm<'_, HostPlatform>, delay: Duration) -> u64 {
    let mut worked = Duration::ZERO;
    for node in (0..vm.yard().nodes()).map(NodeId) {
        for step in steps() {
            let begin = Instant::now();
            while begin.elapsed() < delay && step(vm, node) {}
            worked += begin.elapsed();
        }
    }
    nanoseconds(worked)
}
