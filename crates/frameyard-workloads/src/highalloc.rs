//! `highalloc`: nearly all memory is page cache, with unmovable frames among it; how many blocks of order 9 can be had?
//!
//! Builders, as those of a kernel's build, read files until memory is full, and hold and replace unmovable frames. They go
//! on while the leader asks for one huge block after another, and holds them. Between two requests lies a delay, in which
//! the background reclaimer and the background compactor of each node work: in real time, or, where the delay is virtual,
//! for as long as it or until they have nothing more to do.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use frameyard::{AllocError, Gfp, NodeId, Order, Pfn, Platform};
use frameyard_host::HostPlatform;
use frameyard_vm::{ReclaimStep, Vm};

use super::counts::{Counts, unusable_thousandths};
use super::crew::Crew;
use super::ground::{Ground, Setting};
use super::task::{TaskOrder, TaskReport, Work, nanoseconds};
use crate::Failure;

mod builder;

pub(crate) use builder::Build;

/// The blocks that are asked for: of 2 MiB.
pub(crate) const HUGE: Order = Order(9);
/// As many are asked for as this part of the yard has, in percent.
const WANTED_PERCENT: u64 = 80;
/// How long a background thread rests when it has nothing to do.
pub(super) const NAP: Duration = Duration::from_millis(1);

/// What a delay between requests is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum DelayKind {
    /// The background work of that time, without the rest of it.
    #[default]
    Virtual,
    /// Time that passes.
    Real,
}

impl DelayKind {
    /// The name in rows.
    #[must_use]
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Virtual => "virtual",
            Self::Real => "real",
        }
    }
}

/// How the workload is run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HighallocPlan {
    /// Between two requests.
    pub(crate) delay: Duration,
    /// What that is.
    pub(crate) kind: DelayKind,
    /// Between the filling of memory and the first request.
    pub(crate) settle: Duration,
    /// The part of memory that builders hold in unmovable frames, in percent.
    pub(crate) unmovable_percent: u8,
}

/// What came of it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct HighallocRun {
    /// Blocks asked for.
    pub(crate) attempts: u64,
    /// Blocks got.
    pub(crate) successes: u64,
    /// How long all requests took together.
    pub(crate) total_ns: u64,
    /// How long the longest took.
    pub(crate) longest_ns: u64,
    /// How long the requests and what lay between them took.
    pub(crate) elapsed_ns: u64,
    /// How long the background worked between requests, where the delay was virtual.
    pub(crate) background_ns: Option<u64>,
    /// The part of free memory in smaller blocks, in thousandths, before the first request.
    pub(crate) unusable_before: Option<u64>,
    /// Pages that builders read each second, from when memory was full to the end.
    pub(crate) builders_rate: f64,
    /// Pages and frames whose contents were checked in the end.
    pub(crate) checked: u64,
    /// What was counted from the first request to the last.
    pub(crate) counts: Counts,
}

/// One run of the workload.
pub(crate) fn run(
    ground: &Ground<'_>,
    setting: &Setting,
    seed: u64,
    plan: &HighallocPlan,
) -> Result<HighallocRun, Failure> {
    let tasks = setting.tasks.get();
    let build = Build::share_of(&ground.vm, tasks, plan.unmovable_percent);
    let orders = TaskOrder::alike(tasks, seed, &Work::Build(build));
    ground.lead(&orders, |crew| {
        let vm = ground.vm;
        let go_on = AtomicBool::new(true);
        let run = thread::scope(|scope| {
            let _stop = StopOnDrop(&go_on);
            let mut threads = Vec::new();
            for node in (0..vm.yard().nodes()).map(NodeId) {
                for step in background() {
                    let (vm, go_on) = (&vm, &go_on);
                    let body = move || work_in_background(vm, node, step, go_on);
                    threads.push(thread::Builder::new().spawn_scoped(scope, body)?);
                }
            }
            Ok::<_, Failure>(settle_and_ask(&vm, crew, plan, || {
                go_on.store(false, Ordering::Relaxed);
                threads.drain(..).for_each(|thread| drop(thread.join()));
            }))
        })??;
        crew.end();
        let reports = crew.reports().map_err(Failure::run_time)?;
        Ok(with_reports(run, &reports))
    })
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

pub(super) fn with_reports(run: HighallocRun, reports: &[TaskReport]) -> HighallocRun {
    let checked = reports.iter().map(|report| report.checked).sum();
    HighallocRun { builders_rate: reports.iter().map(TaskReport::rate).sum(), checked, ..run }
}

/// Waits until memory is full and has settled, and then asks for blocks. `stop_threads` ends the background threads.
fn settle_and_ask(
    vm: &Vm<'_, HostPlatform>,
    crew: &mut Crew<'_>,
    plan: &HighallocPlan,
    stop_threads: impl FnOnce(),
) -> Result<HighallocRun, Failure> {
    crew.wait_prepared().map_err(Failure::run_time)?;
    crew.begin().map_err(Failure::run_time)?;
    crew.watch(plan.settle).map_err(Failure::run_time)?;
    let begin = Instant::now();
    let now_ns = || nanoseconds(begin.elapsed());
    match plan.kind {
        DelayKind::Real => ask(vm, now_ns, || {
            crew.watch(plan.delay).map_err(Failure::run_time)?;
            Ok(None)
        }),
        DelayKind::Virtual => {
            stop_threads();
            ask(vm, now_ns, || {
                crew.look().map_err(Failure::run_time)?;
                Ok(Some(work_for(vm, plan.delay)))
            })
        }
    }
}

/// Asks for blocks, holds them until the last, and gives them back. `delay` says how long the background worked.
pub(super) fn ask<P: Platform>(
    vm: &Vm<'_, P>,
    now_ns: impl Fn() -> u64,
    mut delay: impl FnMut() -> Result<Option<u64>, Failure>,
) -> Result<HighallocRun, Failure> {
    let attempts = blocks_wanted(vm);
    let (before, begin) = (Counts::of(vm), now_ns());
    let mut run = HighallocRun {
        attempts,
        successes: 0,
        total_ns: 0,
        longest_ns: 0,
        elapsed_ns: 0,
        background_ns: None,
        unusable_before: unusable_thousandths(vm.yard(), HUGE),
        builders_rate: 0.0,
        checked: 0,
        counts: Counts::default(),
    };
    let mut blocks = HeldBlocks { vm, blocks: Vec::new() };
    for _ in 0..attempts {
        let asked = now_ns();
        let found = vm.yard().alloc_with(HUGE, Gfp::HIGHUSER_MOVABLE | Gfp::NOWARN, &vm.owners());
        let took = now_ns() - asked;
        run.total_ns += took;
        run.longest_ns = run.longest_ns.max(took);
        match found {
            Ok(block) => blocks.blocks.push(block),
            Err(AllocError::OutOfMemory { .. }) => {}
            Err(error) => return Err(Failure::run_time(error)),
        }
        if let Some(worked) = delay()? {
            *run.background_ns.get_or_insert(0) += worked;
        }
    }
    run.elapsed_ns = now_ns() - begin;
    run.counts = Counts::of(vm).since(&before);
    run.successes = blocks.blocks.len() as u64;
    Ok(run)
}

/// As many blocks as are asked for on a yard.
pub(crate) fn blocks_wanted<P: Platform>(vm: &Vm<'_, P>) -> u64 {
    (vm.yard().managed_pages().0 >> HUGE.0) * WANTED_PERCENT / 100
}

/// Blocks that the leader has; given back in any case.
struct HeldBlocks<'a, 'y, P: Platform> {
    vm: &'a Vm<'y, P>,
    blocks: Vec<Pfn>,
}

impl<P: Platform> Drop for HeldBlocks<'_, '_, P> {
    fn drop(&mut self) {
        for block in &self.blocks {
            // A block that was lost shows when all frames are counted.
            let _ = self.vm.yard().free(*block, HUGE);
        }
    }
}

/// One step of a background worker: whether there was something to do.
pub(super) type Step<P> = fn(&Vm<'_, P>, NodeId) -> bool;

/// The background workers of a node.
pub(super) const fn background<P: Platform>() -> [Step<P>; 2] {
    [reclaim::<P>, compact::<P>]
}

fn reclaim<P: Platform>(vm: &Vm<'_, P>, node: NodeId) -> bool {
    matches!(vm.reclaim_step(node), ReclaimStep::Progress(_))
}

fn compact<P: Platform>(vm: &Vm<'_, P>, node: NodeId) -> bool {
    vm.compact_step(node).is_some()
}

fn work_in_background(vm: &Vm<'_, HostPlatform>, node: NodeId, step: Step<HostPlatform>, go_on: &AtomicBool) {
    while go_on.load(Ordering::Relaxed) {
        if !step(vm, node) {
            thread::sleep(NAP);
        }
    }
}

/// The background work of all nodes, until there is none left or it has taken so long; how long it took.
///
/// Every node has a reclaimer and a compactor of its own, which would have worked side by side: each has the whole time.
fn work_for(vm: &Vm<'_, HostPlatform>, delay: Duration) -> u64 {
    let mut worked = Duration::ZERO;
    for node in (0..vm.yard().nodes()).map(NodeId) {
        for step in background() {
            let begin = Instant::now();
            while begin.elapsed() < delay && step(vm, node) {}
            worked += begin.elapsed();
        }
    }
    nanoseconds(worked)
}
