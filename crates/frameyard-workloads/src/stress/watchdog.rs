//! Who notices that somebody hangs inside the yard, and ends the program: a thread that hangs cannot be ended otherwise.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::board::Board;
use crate::Failure;

/// Between two looks.
const LOOK: Duration = Duration::from_secs(1);
/// Who does nothing for so long hangs. Waiting in the yard is bounded far below that, on busy hosts too.
const STILL: Duration = Duration::from_secs(120);

/// Whom to watch.
#[derive(Clone, Copy)]
pub(super) struct Watched<'a> {
    pub(super) board: &'a Board,
    /// Steps of who leads the run.
    pub(super) leader: &'a AtomicU64,
    pub(super) tasks: u32,
}

impl Watched<'_> {
    /// What the leader, and then each task, has done. Tasks may rest where the leader inspects, or be done.
    fn steps(self) -> Vec<u64> {
        let tasks = (0..self.tasks).map(|task| {
            let tally = self.board.tally_of(task);
            tally.ops() + tally.out_of_memory + tally.ranges_refused
        });
        std::iter::once(self.leader.load(Relaxed)).chain(tasks).collect()
    }
}

/// Does `work` under watch.
pub(super) fn watch<R>(watched: &Watched<'_>, work: impl FnOnce() -> R) -> R {
    let (done, over) = mpsc::channel::<()>();
    let watched = *watched;
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut steps = watched.steps();
            let mut moved = vec![Instant::now(); steps.len()];
            while over.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                let now = watched.steps();
                for (at, then) in moved.iter_mut().enumerate() {
                    if now[at] != steps[at] {
                        *then = Instant::now();
                    }
                }
                steps = now;
                if let Some(still) = moved.iter().position(|then| then.elapsed() > STILL) {
                    let who = if still == 0 { "the controller".to_owned() } else { format!("task {}", still - 1) };
                    let failure =
                        Failure::run_time(format!("{who} has done nothing for {} s: it hangs", STILL.as_secs()));
                    let _ = failure.report();
                    std::process::exit(i32::from(failure.code()));
                }
            }
        });
        let result = work();
        drop(done);
        result
    })
}
