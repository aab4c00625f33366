//! The stages of a run, which all tasks go through together, and how a task learns of them.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// How far a run has come. Stages follow each other; none comes back.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[repr(u8)]
pub(crate) enum Stage {
    /// Tasks set up what they need.
    Prepare = 0,
    /// What is measured happens.
    Work = 1,
    /// Tasks stop, check and give back what they have, and report.
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

/// The stage that tasks of this process have been told of.
#[derive(Debug, Default)]
pub(crate) struct Stages {
    stage: AtomicU8,
    /// Guards nothing: a task that is about to wait for `changed` holds it.
    waiting: Mutex<()>,
    changed: Condvar,
}

impl Stages {
    /// Tells the tasks. An earlier stage than the present one changes nothing.
    pub(crate) fn announce(&self, stage: Stage) {
        let held = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        // Release: what was done before is seen by who finds the stage.
        self.stage.fetch_max(stage as u8, Ordering::Release);
        drop(held);
        self.changed.notify_all();
    }

    /// Whether that stage has come. One load, for loops that ask often.
    #[inline(always)]
    pub(crate) fn has_come(&self, stage: Stage) -> bool {
        self.stage.load(Ordering::Acquire) >= stage as u8
    }

    /// Waits for a stage, and returns the present one.
    pub(crate) fn wait_for(&self, stage: Stage) -> Stage {
        let mut held = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.has_come(stage) {
            held = self.changed.wait(held).unwrap_or_else(PoisonError::into_inner);
        }
        Stage::of(self.stage.load(Ordering::Acquire))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_for_a_stage_goes_on_when_it_or_a_later_one_comes() {
        let stages = Stages::default();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| stages.wait_for(Stage::Work));
            stages.announce(Stage::End);
            assert_eq!(waiter.join().unwrap(), Stage::End);
        });
        stages.announce(Stage::Work);
        assert!(stages.has_come(Stage::End), "stages do not come back");
    }
}
