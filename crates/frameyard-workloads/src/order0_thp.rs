//! `order0-thp`: memory is filled with small pages and given back, and then tasks with huge pages and tasks without run
//! side by side on what that has left.

use std::time::Duration;

use frameyard::{ByteSize, Platform};
use frameyard_vm::{MemoryAccess, Vm};
use serde::{Deserialize, Serialize};

use super::course::Course;
use super::ground::{Ground, Setting, share_of_free};
use super::page_fault::{self, Loop, MAP_SIZE, Pages, TaskRun, map, pages_of, run_for};
use super::task::{Site, TaskOrder, TaskProblem, TaskReport, Work, task_seed};
use crate::Failure;

/// The part of free memory that is filled first, in percent; page tables and reserves need some of the rest.
const FILLED_PERCENT: u64 = 90;

/// What a task fills and gives back.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Fragment {
    /// How much.
    pub(crate) bytes: u64,
}

impl Fragment {
    /// Fills its share; the space takes it along when it goes, which is when all have filled theirs.
    pub(crate) fn run<P: Platform, C: Course>(&self, site: &Site<'_, '_, P, C>) -> Result<TaskReport, TaskProblem> {
        let space = site.space()?;
        let range = map(&space, ByteSize(self.bytes), Pages::Small)?;
        let mut iterations = 0;
        for addr in pages_of(range) {
            space.touch(addr, MemoryAccess::Write)?;
            iterations += 1;
        }
        site.begin()?;
        Ok(TaskReport { iterations, ..TaskReport::default() })
    }
}

/// Which pages a task of a run has: the first half of them huge ones.
pub(crate) fn pages_of_task(setting: &Setting, task: usize) -> Pages {
    if task < setting.tasks.get() as usize { Pages::Huge } else { Pages::Small }
}

/// One run of the workload: as many tasks of each kind as the setting has.
pub(crate) fn run(ground: &Ground<'_>, setting: &Setting, seed: u64, duration: Duration) -> Result<TaskRun, Failure> {
    fragment(ground, setting, seed)?;
    run_for(ground, &orders(setting, seed, MAP_SIZE), duration)
}

/// What the tasks of a run are told, each of which maps so much at a time.
pub(crate) fn orders(setting: &Setting, seed: u64, map: ByteSize) -> Vec<TaskOrder> {
    let order = |number| {
        let pages = pages_of_task(setting, number as usize);
        TaskOrder { number, seed: task_seed(seed, number), work: Work::PageFault(Loop { bytes: map.0, pages }) }
    };
    (0..2 * setting.tasks.get()).map(order).collect()
}

/// Fills memory and gives it back.
fn fragment(ground: &Ground<'_>, setting: &Setting, seed: u64) -> Result<(), Failure> {
    let orders = filling(setting, seed, &ground.vm);
    ground.lead(&orders, |crew| {
        crew.wait_prepared().map_err(Failure::run_time)?;
        crew.begin().map_err(Failure::run_time)?;
        crew.reports().map_err(Failure::run_time).map(drop)
    })
}

/// What tasks are told that fill memory together.
pub(crate) fn filling<P: Platform>(setting: &Setting, seed: u64, vm: &Vm<'_, P>) -> Vec<TaskOrder> {
    let tasks = setting.tasks.get();
    let share = share_of_free(vm.yard(), FILLED_PERCENT, tasks).0;
    TaskOrder::alike(tasks, seed, &Work::Fragment(Fragment { bytes: share }))
}

/// What a yard must have free for so many tasks of each kind.
#[must_use]
pub(crate) fn memory_needed(tasks: u32, map: ByteSize) -> ByteSize {
    page_fault::memory_needed(tasks.saturating_mul(2), map)
}
