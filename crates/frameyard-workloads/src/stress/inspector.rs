//! Inspections: all tasks halt, and the yard is checked as a whole.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use frameyard::PageCount;

use crate::error::WorkloadError;
use crate::fixture::Fixture;
use crate::task::stress::shared_state::SharedState;
use crate::workers::Workers;

/// Time between two checks whether all tasks have halted.
const PAUSE: Duration = Duration::from_micros(50);

/// With every task halted, free and held frames do not add up to all memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Unbalanced {
    before: PageCount,
    free: PageCount,
    held: u64,
}

impl fmt::Display for Unbalanced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { before, free, held } = self;
        write!(
            f,
            "{} frames were free before the run; now {} are free and {held} held, which is not the same",
            before.0, free.0
        )
    }
}

impl std::error::Error for Unbalanced {}

/// Halts the tasks and checks the yard.
pub(crate) struct Inspector<'a> {
    fixture: &'a Fixture<'a>,
    state: &'a SharedState,
    tasks: u32,
    before: PageCount,
    /// Frames that may be neither free nor held.
    allowance: PageCount,
    inspections: u64,
}

impl<'a> Inspector<'a> {
    /// An inspector of a yard with `before` free frames while no task held any.
    pub(crate) fn new(
        fixture: &'a Fixture<'a>,
        state: &'a SharedState,
        tasks: u32,
        before: PageCount,
        allowance: PageCount,
    ) -> Self {
        Self { fixture, state, tasks, before, allowance, inspections: 0 }
    }

    /// Number of inspections so far.
    pub(crate) fn inspections(&self) -> u64 {
        self.inspections
    }

    /// Halts the tasks, checks the yard and resumes them.
    pub(crate) fn inspect(&mut self, workers: &mut Workers<'_>, steps: &AtomicU64) -> Result<(), WorkloadError> {
        self.state.request_halt();
        while !self.state.all_halted(self.tasks) {
            workers.poll().map_err(WorkloadError::run_time)?;
            // The controller makes progress while it waits. The watchdog notices a task that hangs by itself.
            steps.fetch_add(1, Relaxed);
            thread::sleep(PAUSE);
        }
        self.fixture.vm.lru_drain_all();
        self.fixture.yard.validate().map_err(WorkloadError::run_time)?;
        let (free, held) = (self.fixture.yard.stats().free_pages(), self.state.held_frames());
        let known = free.0 + held;
        if known > self.before.0 || known + self.allowance.0 < self.before.0 {
            return Err(WorkloadError::run_time(Unbalanced { before: self.before, free, held }));
        }
        self.inspections += 1;
        self.state.resume();
        Ok(())
    }
}
