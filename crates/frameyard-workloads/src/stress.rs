//! `stress`: tasks allocate and free at random while a controller disturbs them, and every frame is watched.
//!
//! A table with a word for each frame says who holds it ([`board`]): a frame that is handed out twice is noticed at once.
//! Now and then all tasks come to a halt and the yard is validated; what is free and what is held must then be all
//! memory. In the end everything is freed, and the free blocks must be those of the beginning.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use frameyard::{PageCount, PcpSizing, ZonePolicy};
use serde::{Deserialize, Serialize};

use super::ground::Ground;
use super::task::{TaskOrder, TaskReport, Work, nanoseconds};
use crate::Failure;

mod board;
mod controller;
mod hands;
mod mapped;
mod pause;
mod shape;
mod task;
mod watchdog;

use board::Board;
pub(crate) use board::{MOST_TASKS, Tally};
pub(crate) use controller::Disturbances;
use controller::{Controller, Switching};
use pause::Inspector;
use shape::Shape;

/// Frames that what owns frames may keep for its tables while nothing is mapped, for each task.
const TABLE_PAGES: u64 = 64;

/// How the workload is run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StressPlan {
    /// How many tasks.
    pub(crate) tasks: u32,
    /// How many allocations and frees, all together.
    pub(crate) ops: u64,
    /// The policy to keep to, or whether it changes all the time.
    pub(crate) policy: Option<ZonePolicy>,
    /// Seed of the random choices.
    pub(crate) seed: u64,
    /// How long tasks work between two validations.
    pub(crate) interval: Duration,
    /// The sizes that per-CPU lists have in the end, as in the beginning.
    pub(crate) pcp_sizing: PcpSizing,
}

/// What a task is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Stress {
    board: board::Place,
    ops: u64,
    /// The most frames it means to hold.
    share: u64,
}

/// What came of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct StressRun {
    /// What tasks did, all together.
    pub(crate) tally: Tally,
    /// What the controller did.
    pub(crate) disturbances: Disturbances,
    /// How often the yard was validated, the last time with all memory free.
    pub(crate) validations: u64,
    /// From the beginning of the work to the end of the last task.
    pub(crate) elapsed_ns: u64,
}

impl Stress {
    /// Runs until as many operations were done as were asked for.
    pub(super) fn run(
        &self,
        site: &super::task::HostSite<'_, '_>,
        order: &TaskOrder,
    ) -> Result<TaskReport, super::task::TaskProblem> {
        task::run(self, site, order)
    }
}

/// One run of the workload. `tell` is told how many operations were begun.
///
/// # Errors
///
/// [`Failure::RunTime`] for whatever is wrong with the yard.
pub(crate) fn run(ground: &Ground<'_>, plan: &StressPlan, tell: &dyn Fn(u64)) -> Result<StressRun, Failure> {
    let yard = ground.yard;
    if let Some(policy) = plan.policy {
        controller::settle(yard, policy)?;
    }
    // What owns frames keeps a few once it was used: those are not free before, either.
    mapped::warm_up(ground.vm).map_err(Failure::run_time)?;
    yard.drain_all();
    let (before, free) = (Shape::of(yard), yard.free_pages());
    let board = Board::create(yard.frame_range(), plan.tasks).map_err(Failure::run_time)?;
    let share = yard.managed_pages().0 / u64::from(plan.tasks);
    let work = Work::Stress(Stress { board: board.place(), ops: plan.ops, share });
    let orders = TaskOrder::alike(plan.tasks, plan.seed, &work);
    let leader_steps = AtomicU64::new(0);
    let watched = watchdog::Watched { board: &board, leader: &leader_steps, tasks: plan.tasks };
    let mut inspector =
        Inspector::new(ground, &board, plan.tasks, free, PageCount(u64::from(plan.tasks) * TABLE_PAGES));
    let switching = if plan.policy.is_some() { Switching::No } else { Switching::Yes };
    let mut controller = Controller::new(ground, &board, switching, plan.seed);
    let elapsed_ns = watchdog::watch(&watched, || {
        ground.lead(&orders, |crew| {
            crew.wait_prepared().map_err(Failure::run_time)?;
            let begin = Instant::now();
            crew.begin().map_err(Failure::run_time)?;
            let mut rested = Instant::now();
            while !board.all_done(plan.tasks) {
                crew.look().map_err(Failure::run_time)?;
                controller.disturb()?;
                leader_steps.fetch_add(1, Relaxed);
                if rested.elapsed() >= plan.interval {
                    inspector.inspect(crew, &leader_steps)?;
                    tell(board.begun().min(plan.ops));
                    rested = Instant::now();
                }
            }
            let elapsed_ns = nanoseconds(begin.elapsed());
            crew.end();
            crew.reports().map_err(Failure::run_time)?;
            Ok(elapsed_ns)
        })
    })?;
    let mut tally = board.tally(plan.tasks);
    tally.frees += free_what_is_left(ground, &board)?;
    if tally.allocations != tally.frees {
        let Tally { allocations, frees, .. } = tally;
        return Err(Failure::run_time(format!("{allocations} blocks were allocated and {frees} freed")));
    }
    let validations = inspector.inspections() + close(ground, plan, &board, &before)?;
    Ok(StressRun { tally, disturbances: controller.done(), validations, elapsed_ns })
}

/// Frees the blocks that were left for others; how many.
fn free_what_is_left(ground: &Ground<'_>, board: &Board) -> Result<u64, Failure> {
    let mut freed = 0;
    for block in board.left_over() {
        board.disclaim(block).map_err(Failure::run_time)?;
        ground.yard.free(block.pfn, block.order).map_err(Failure::run_time)?;
        freed += 1;
    }
    Ok(freed)
}

/// All memory must be back, in the blocks of the beginning; how often the yard was validated.
fn close(ground: &Ground<'_>, plan: &StressPlan, board: &Board, before: &Shape) -> Result<u64, Failure> {
    let yard = ground.yard;
    let held = board.held_frames();
    if held > 0 {
        return Err(Failure::run_time(format!("{held} frames are marked as held when all was freed")));
    }
    ground.vm.lru_drain_all();
    yard.set_pcp_sizing(plan.pcp_sizing);
    yard.drain_all();
    yard.validate().map_err(Failure::run_time)?;
    // What skipped its merges is merged when the policy changes.
    for policy in [ZonePolicy::Vanilla, plan.policy.unwrap_or_default()] {
        controller::settle(yard, policy)?;
        yard.drain_all();
        yard.validate().map_err(Failure::run_time)?;
        Shape::of(yard).check_against(before).map_err(Failure::run_time)?;
    }
    if yard.poison_hits() > 0 {
        return Err(Failure::run_time(format!("{} frames were written to while they were free", yard.poison_hits())));
    }
    Ok(3)
}
