//! `page-fault`: map, touch every page, unmap, repeat, like will-it-scale's page_fault1.

use std::time::Duration;

use frameyard::ByteSize;

use crate::error::WorkloadError;
use crate::fixture::Fixture;
use crate::mapping::{MAP_SIZE, Pages};
use crate::setting::Setting;
use crate::task::page_fault::Loop;
use crate::task::{TaskSpec, Work};
use crate::timed_run::{TaskRun, run_for};

pub use crate::task::page_fault::Frames;

/// What each task does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Faults {
    /// Size of each mapping.
    pub map: ByteSize,
    /// Whether the tasks record the frames that they get.
    pub frames: Frames,
}

impl Default for Faults {
    /// Mappings of the published size; frames are not recorded.
    fn default() -> Self {
        Self { map: MAP_SIZE, frames: Frames::Ignored }
    }
}

/// Runs the workload once.
///
/// # Errors
///
/// [`WorkloadError::RunTime`] if a task fails.
pub fn run(
    fixture: &Fixture<'_>,
    setting: &Setting,
    seed: u64,
    faults: Faults,
    duration: Duration,
) -> Result<TaskRun, WorkloadError> {
    run_for(fixture, &tasks(setting, seed, faults), duration)
}

/// The tasks of a run. Each maps `map` bytes at a time.
#[must_use]
pub fn specs(setting: &Setting, seed: u64, map: ByteSize) -> Vec<TaskSpec> {
    tasks(setting, seed, Faults { map, frames: Frames::Ignored })
}

fn tasks(setting: &Setting, seed: u64, faults: Faults) -> Vec<TaskSpec> {
    let work = Work::PageFault(Loop { bytes: faults.map.0, pages: Pages::Small, frames: faults.frames });
    TaskSpec::alike(setting.tasks.get(), seed, &work)
}

/// Free memory that `tasks` tasks need: their mappings, page tables for them, and a reserve.
#[must_use]
pub fn memory_needed(tasks: u32, map: ByteSize) -> ByteSize {
    let mapped = map.0.saturating_mul(u64::from(tasks));
    ByteSize(mapped.saturating_add(mapped / 16).saturating_add(ByteSize::mib(32).0))
}
