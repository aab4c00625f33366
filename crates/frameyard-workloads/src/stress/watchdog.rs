//! A watchdog that reports when a task or the controller hangs inside the yard. A hanging thread cannot be ended, so the
//! caller's handler ends the program.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use crate::task::stress::shared_state::SharedState;

/// Time between two checks.
const INTERVAL: Duration = Duration::from_secs(1);
/// A thread without progress for this long hangs. Waits in the yard are bounded far below, also on busy hosts.
const STILL: Duration = Duration::from_secs(120);

/// A thread that hangs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hang {
    /// The controller.
    Controller,
    /// The task of that number.
    Task(usize),
}

impl fmt::Display for Hang {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Controller => f.write_str("the controller")?,
            Self::Task(number) => write!(f, "task {number}")?,
        }
        write!(f, " has done nothing for {} s: it hangs", STILL.as_secs())
    }
}

impl std::error::Error for Hang {}

/// What to watch.
#[derive(Clone, Copy)]
pub(crate) struct Watched<'a> {
    pub(crate) state: &'a SharedState,
    /// Steps of the controller.
    pub(crate) controller: &'a AtomicU64,
    pub(crate) tasks: u32,
}

impl Watched<'_> {
    /// Step counts of the controller and then of each task. Tasks rest during an inspection, and when they are done; the
    /// controller's steps continue.
    fn steps(self) -> Vec<u64> {
        let tasks = (0..self.tasks).map(|task| {
            let tally = self.state.tally_of(task);
            tally.ops() + tally.out_of_memory + tally.ranges_refused
        });
        std::iter::once(self.controller.load(Relaxed)).chain(tasks).collect()
    }
}

/// Does `work` under watch. Calls `on_hang` for each check that finds a thread without progress.
pub(crate) fn watch<R>(watched: &Watched<'_>, on_hang: &(dyn Fn(Hang) + Sync), work: impl FnOnce() -> R) -> R {
    let (done, over) = mpsc::channel::<()>();
    let watched = *watched;
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut steps = watched.steps();
            let mut moved = vec![Instant::now(); steps.len()];
            while over.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                let now = watched.steps();
                for (at, then) in moved.iter_mut().enumerate() {
                    if now[at] != steps[at] {
                        *then = Instant::now();
                    }
                }
                steps = now;
                match moved.iter().position(|then| then.elapsed() > STILL) {
                    Some(0) => on_hang(Hang::Controller),
                    Some(at) => on_hang(Hang::Task(at - 1)),
                    None => {}
                }
            }
        });
        let result = work();
        drop(done);
        result
    })
}
