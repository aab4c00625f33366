//! `stress`: tasks allocate and free at random while a controller disturbs them, and every frame is checked.
//!
//! A table with a word per frame records its holder (`shared_state`), so a frame that is allocated twice is noticed at
//! once. At intervals all tasks halt and the yard is validated: free and held frames must add up to all memory. At the
//! end everything is freed, and the free blocks must be those of the beginning.

mod controller;
mod inspector;
mod shape;
mod watchdog;

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use frameyard::PageCount;
use frameyard::policy::ZonePolicy;
use frameyard::watermarks::PcpSizing;

use crate::error::WorkloadError;
use crate::fixture::Fixture;
use crate::measure::nanoseconds;
use crate::task::stress::Stress;
use crate::task::stress::mapped::warm_up;
use crate::task::stress::shared_state::SharedState;
use crate::task::{TaskSpec, Work};

pub use controller::Disturbances;
use controller::{Controller, Switching};
use inspector::Inspector;
use shape::Shape;

pub use crate::task::stress::shared_state::{MOST_TASKS, Tally};
pub use watchdog::Hang;

/// Frames per task that owners may keep for their tables while nothing is mapped.
const TABLE_PAGES: u64 = 64;

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub struct StressPlan {
    /// Number of tasks, at most [`MOST_TASKS`].
    pub tasks: u32,
    /// Allocations and frees of all tasks together.
    pub ops: u64,
    /// The policy; `None` to switch between [`CHANGEABLE`](ZonePolicy::CHANGEABLE) ones all the time.
    pub policy: Option<ZonePolicy>,
    /// Seed of the random choices.
    pub seed: u64,
    /// Time between two validations.
    pub interval: Duration,
    /// The sizes of per-CPU lists at the beginning, restored at the end.
    pub pcp_sizing: PcpSizing,
}

impl StressPlan {
    /// The policy that the yard has in the beginning and in the end.
    #[must_use]
    pub fn first_policy(&self) -> ZonePolicy {
        self.policy.unwrap_or(ZonePolicy::Vanilla)
    }
}

/// The result of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct StressRun {
    /// What all tasks did together.
    pub tally: Tally,
    /// What the controller did.
    pub disturbances: Disturbances,
    /// Number of validations, the last ones with all memory free.
    pub validations: u64,
    /// From the start of the work to the end of the last task.
    pub elapsed_ns: u64,
}

/// Runs the workload once, on a yard that can have [the plan's first policy](StressPlan::first_policy). Calls `progress` with the number of
/// operations begun, after each validation, and `on_hang`, from another thread, if a task or the controller hangs in the yard.
///
/// # Errors
///
/// [`WorkloadError::RunTime`] for any fault of the yard.
pub fn run(
    fixture: &Fixture<'_>,
    plan: &StressPlan,
    progress: &dyn Fn(u64),
    on_hang: &(dyn Fn(Hang) + Sync),
) -> Result<StressRun, WorkloadError> {
    let yard = fixture.yard;
    // Owners keep a few frames after their first use. Those must not count as free at the beginning.
    warm_up(fixture.vm).map_err(WorkloadError::run_time)?;
    // Afterwards the zones' stores have everything that is free.
    controller::settle(yard, plan.first_policy())?;
    yard.drain_all();
    let (before, free) = (Shape::of(yard), yard.stats().free_pages());
    let state = SharedState::create(yard.core().frame_range(), plan.tasks).map_err(WorkloadError::run_time)?;
    let share = yard.stats().managed_pages().0 / u64::from(plan.tasks);
    let work = Work::Stress(Stress { state: state.place(), ops: plan.ops, share });
    let specs = TaskSpec::alike(plan.tasks, plan.seed, &work);
    let controller_steps = AtomicU64::new(0);
    let watched = watchdog::Watched { state: &state, controller: &controller_steps, tasks: plan.tasks };
    let mut inspector =
        Inspector::new(fixture, &state, plan.tasks, free, PageCount(u64::from(plan.tasks) * TABLE_PAGES));
    let switching = if plan.policy.is_some() { Switching::No } else { Switching::Yes };
    let mut controller = Controller::new(fixture, &state, switching, plan.seed);
    let elapsed_ns = watchdog::watch(&watched, on_hang, || {
        fixture.drive(&specs, |workers| {
            workers.wait_prepared().map_err(WorkloadError::run_time)?;
            let begin = Instant::now();
            workers.begin().map_err(WorkloadError::run_time)?;
            let mut inspected = Instant::now();
            while !state.all_done(plan.tasks) {
                workers.poll().map_err(WorkloadError::run_time)?;
                controller.disturb()?;
                controller_steps.fetch_add(1, Relaxed);
                if inspected.elapsed() >= plan.interval {
                    inspector.inspect(workers, &controller_steps)?;
                    progress(state.begun().min(plan.ops));
                    inspected = Instant::now();
                }
            }
            let elapsed_ns = nanoseconds(begin.elapsed());
            workers.end();
            workers.reports().map_err(WorkloadError::run_time)?;
            Ok(elapsed_ns)
        })
    })?;
    let mut tally = state.tally(plan.tasks);
    tally.frees += free_leftovers(fixture, &state)?;
    if tally.allocations != tally.frees {
        let Tally { allocations, frees, .. } = tally;
        return Err(WorkloadError::run_time(format!("{allocations} blocks were allocated and {frees} freed")));
    }
    let validations = inspector.inspections() + close(fixture, plan, &state, &before)?;
    Ok(StressRun { tally, disturbances: controller.done(), validations, elapsed_ns })
}

/// Frees the blocks that tasks left in the slots. Returns their number.
fn free_leftovers(fixture: &Fixture<'_>, state: &SharedState) -> Result<u64, WorkloadError> {
    let mut freed = 0;
    for block in state.take_leftovers() {
        state.release(block).map_err(WorkloadError::run_time)?;
        fixture.yard.free(block.pfn, block.order).map_err(WorkloadError::run_time)?;
        freed += 1;
    }
    Ok(freed)
}

/// Checks that all memory is free again, in the blocks of the beginning. Returns the number of validations.
fn close(fixture: &Fixture<'_>, plan: &StressPlan, state: &SharedState, before: &Shape) -> Result<u64, WorkloadError> {
    let yard = fixture.yard;
    let held = state.held_frames();
    if held > 0 {
        return Err(WorkloadError::run_time(format!("{held} frames are marked as held when all was freed")));
    }
    fixture.vm.lru_drain_all();
    yard.core().lists().resize(plan.pcp_sizing);
    yard.drain_all();
    yard.validate().map_err(WorkloadError::run_time)?;
    // Policies that skip or defer merges leave the merging to a change of the policy, be it to the same one.
    let last = plan.first_policy();
    for policy in [if last.is_changeable() { ZonePolicy::Vanilla } else { last }, last] {
        controller::settle(yard, policy)?;
        yard.drain_all();
        yard.validate().map_err(WorkloadError::run_time)?;
        Shape::of(yard).check_against(before).map_err(WorkloadError::run_time)?;
    }
    if yard.stats().poison_hits() > 0 {
        let hits = yard.stats().poison_hits();
        return Err(WorkloadError::run_time(format!("{hits} frames were written to while they were free")));
    }
    Ok(3)
}
