//! The stages of a run, which all tasks pass through together.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// The progress of a run. Stages only advance.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[repr(u8)]
pub(crate) enum Stage {
    /// Tasks set themselves up.
    Prepare = 0,
    /// Tasks work, and the driver measures.
    Work = 1,
    /// Tasks stop, check and free what they hold, and report.
    End = 2,
}

impl Stage {
    fn of(number: u8) -> Self {
        match number {
            0 => Self::Prepare,
            1 => Self::Work,
            _ => Self::End,
        }
    }
}

/// The stage that the tasks of this process have been told.
#[derive(Debug, Default)]
pub(crate) struct Stages {
    stage: AtomicU8,
    /// Guards nothing. A task holds it from its check of the stage until it waits for `changed`.
    waiting: Mutex<()>,
    changed: Condvar,
}

impl Stages {
    /// Advances to a stage and wakes waiting tasks. A stage before the present one changes nothing.
    pub(crate) fn announce(&self, stage: Stage) {
        let held = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // Release: pairs with the Acquire in `Stages::has_come`, so that a task sees what preceded the announcement.
        self.stage.fetch_max(stage as u8, Ordering::Release);
        drop(held);
        self.changed.notify_all();
    }

    /// Whether the run has reached a stage. One load, for use in inner loops.
    #[inline(always)]
    pub(crate) fn has_come(&self, stage: Stage) -> bool {
        // Acquire: pairs with the Release in `Stages::announce`.
        self.stage.load(Ordering::Acquire) >= stage as u8
    }

    /// Waits for a stage. Returns the present one, which may be a later one.
    pub(crate) fn wait_for(&self, stage: Stage) -> Stage {
        let mut held = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.has_come(stage) {
            held = self.changed.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
        // Acquire: pairs with the Release in `Stages::announce`.
        Stage::of(self.stage.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_ends_with_its_stage_or_a_later_one() {
        let stages = Stages::default();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| stages.wait_for(Stage::Work));
            stages.announce(Stage::End);
            assert_eq!(waiter.join().unwrap(), Stage::End);
        });
        stages.announce(Stage::Work);
        assert!(stages.has_come(Stage::End), "stages only advance");
    }
}
