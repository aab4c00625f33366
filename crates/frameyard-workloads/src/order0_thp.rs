//! `order0-thp`: small pages fill memory and are freed; then tasks with huge pages and tasks with small ones run side by
//! side on the fragmented memory.
//!
//! Some of the pages may stay, chosen at random. Then free memory is scattered among pages that compaction can move, and a
//! huge page has to be made before it can be mapped.

use std::num::NonZeroUsize;
use std::time::Duration;

use fastrand::Rng;
use frameyard::{ByteSize, DefragMode, Platform};
use frameyard_vm::{AddressSpace, MemoryAccess, Vm};

use crate::background::{BackgroundWork, beside_background};
use crate::error::WorkloadError;
use crate::fixture::{Fixture, share_of_free};
use crate::mapping::{MAP_SIZE, Pages, map, pages_of};
use crate::page_fault;
use crate::setting::Setting;
use crate::task::fragment::Fragment;
use crate::task::page_fault::{Frames, Loop};
use crate::task::{TaskSpec, Work, task_seed};
use crate::timed_run::{TaskRun, run_for};

/// Percentage of free memory that is filled first. Page tables and reserves need some of the rest.
const FILLED_PERCENT: u64 = 90;

/// The memory beside the tasks of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Surroundings {
    /// Percentage of the pages filled first that stay, up to 100.
    pub kept_percent: u8,
    /// Whether the yard keeps whole pageblocks in stock.
    pub defrag: DefragMode,
    /// Whether nodes have background workers meanwhile.
    pub background: BackgroundWork,
}

/// The page size of a task: huge for the first half of the tasks.
#[must_use]
pub fn pages_of_task(setting: &Setting, task: usize) -> Pages {
    if task < setting.tasks.get() as usize { Pages::Huge } else { Pages::Small }
}

/// Runs the workload once, with `setting.tasks` tasks of each kind.
///
/// # Errors
///
/// [`WorkloadError::RunTime`] if a task fails.
pub fn run(
    fixture: &Fixture<'_>,
    setting: &Setting,
    seed: u64,
    duration: Duration,
    around: Surroundings,
) -> Result<TaskRun, WorkloadError> {
    fixture.vm.yard().set_defrag_mode(around.defrag);
    let _kept = match around.kept_percent {
        0 => fragment(fixture, setting, seed).map(|()| None),
        percent => Kept::scattered(&fixture.vm, seed, percent).map(Some),
    }?;
    let measured = || run_for(fixture, &specs(setting, seed, MAP_SIZE), duration);
    match around.background {
        BackgroundWork::Absent => measured(),
        BackgroundWork::OfNodes => beside_background(&fixture.vm, |_| measured())?,
    }
}

/// The tasks of a run. Each maps `map` bytes at a time.
#[must_use]
pub fn specs(setting: &Setting, seed: u64, map: ByteSize) -> Vec<TaskSpec> {
    let spec = |number| {
        let pages = pages_of_task(setting, number as usize);
        let each = Loop { bytes: map.0, pages, frames: Frames::HugeTimed };
        TaskSpec { number, seed: task_seed(seed, number), work: Work::PageFault(each) }
    };
    (0..2 * setting.tasks.get()).map(spec).collect()
}

/// Fills memory and frees it.
fn fragment(fixture: &Fixture<'_>, setting: &Setting, seed: u64) -> Result<(), WorkloadError> {
    let specs = filling(setting, seed, &fixture.vm);
    fixture.drive(&specs, |workers| {
        workers.wait_prepared().map_err(WorkloadError::run_time)?;
        workers.begin().map_err(WorkloadError::run_time)?;
        workers.reports().map_err(WorkloadError::run_time).map(drop)
    })
}

/// The tasks that fill memory first.
#[must_use]
pub fn filling<P: Platform>(setting: &Setting, seed: u64, vm: &Vm<'_, P>) -> Vec<TaskSpec> {
    let tasks = setting.tasks.get();
    let share = share_of_free(vm.yard(), FILLED_PERCENT, tasks).0;
    TaskSpec::alike(tasks, seed, &Work::Fragment(Fragment { bytes: share }))
}

/// The pages that stay. They go with the value.
#[derive(Debug)]
pub struct Kept<'y, P: Platform> {
    _space: AddressSpace<'y, P>,
}

impl<'y, P: Platform> Kept<'y, P> {
    /// Fills memory with small pages of two spaces, at random by `seed`, and frees those of one. Those that stay are `percent`
    /// percent of all.
    ///
    /// # Errors
    ///
    /// [`WorkloadError::RunTime`] if a fault or the exit fails.
    pub fn scattered(vm: &Vm<'y, P>, seed: u64, percent: u8) -> Result<Self, WorkloadError> {
        let mut random = Rng::with_seed(seed);
        let bytes = share_of_free(vm.yard(), FILLED_PERCENT, 1);
        let space = || vm.create_space().map_err(WorkloadError::run_time);
        let spaces = [space()?, space()?];
        let mapped = |space| map(space, bytes, Pages::Small).map_err(WorkloadError::run_time);
        let mut pages = [pages_of(mapped(&spaces[0])?), pages_of(mapped(&spaces[1])?)];
        for _ in 0..bytes.0 / Pages::Small.size().0 {
            let side = usize::from(random.u8(..100) < percent);
            let Some(addr) = pages[side].next() else { break };
            spaces[side].touch(addr, MemoryAccess::Write).map_err(WorkloadError::run_time)?;
        }
        let [goes, stays] = spaces;
        let _gone = goes.exit(NonZeroUsize::MIN).map_err(|stalled| WorkloadError::run_time(stalled.problem))?;
        vm.yard().drain_all();
        Ok(Self { _space: stays })
    }
}

/// Free memory that `tasks` tasks of each kind need.
#[must_use]
pub fn memory_needed(tasks: u32, map: ByteSize) -> ByteSize {
    page_fault::memory_needed(tasks.saturating_mul(2), map)
}
