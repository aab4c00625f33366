//! Jobs that a task runs on other CPUs and joins.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use frameyard::NodeId;
use frameyard::platform::WorkerPanicked;

use crate::confined::Confined;
use crate::engine::Engine;
use crate::fiber;
use crate::time::Picos;

/// The progress of a job's workers.
#[derive(Default)]
struct JobProgress {
    /// The number of workers still at work, without the caller.
    at_work: Cell<usize>,
    /// The latest end of a worker.
    end: Cell<Picos>,
    panicked: Cell<bool>,
    /// The caller's CPU while it sleeps in the join.
    sleeper: Cell<Option<usize>>,
}

impl JobProgress {
    /// Runs one worker's part of a job and records a panic. Continues the unwinding of an aborted run.
    fn work(&self, engine: &Confined<Engine>, number: usize, job: &(dyn Fn(usize) + Sync)) {
        let stack = engine.borrow().stack();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| job(number))) {
            if !engine.borrow().is_running() {
                resume_unwind(panic);
            }
            engine.borrow().return_to(stack);
            self.panicked.set(true);
        }
    }

    /// Records the end of a worker other than the caller.
    fn leave(&self, engine: &Confined<Engine>) {
        let mut engine = engine.borrow();
        self.at_work.set(self.at_work.get() - 1);
        self.end.set(self.end.get().max(engine.now()));
        if self.at_work.get() == 0
            && let Some(cpu) = self.sleeper.take()
        {
            engine.awaken(cpu, self.end.get());
        }
    }

    /// The caller waits for all workers.
    fn join(&self, engine: &Confined<Engine>) {
        if self.at_work.get() > 0 {
            let mut engine = engine.borrow();
            self.sleeper.set(Some(engine.current()));
            engine.sleep_idle();
            drop(engine);
            fiber::suspend();
        }
        // A worker may have ended before the caller joined, with a later clock than the caller's.
        let mut engine = engine.borrow();
        if engine.now() < self.end.get() {
            engine.idle_until(self.end.get());
        }
    }
}

/// Runs `job` on idle CPUs of the workers' nodes, from the caller's time on. The caller is worker 0 and then idle
/// until all have ended. Fewer workers run if a node has fewer idle CPUs or the host has no memory for a stack.
/// Outside of runs the caller works alone.
pub(crate) fn run_workers(
    engine: &Confined<Engine>,
    count: usize,
    node_of: &(dyn Fn(usize) -> NodeId + Sync),
    job: &(dyn Fn(usize) + Sync),
) -> Result<(), WorkerPanicked> {
    if !engine.borrow().is_running() {
        job(0);
        return Ok(());
    }
    let progress = JobProgress::default();
    for number in 1..count {
        let Some(cpu) = engine.borrow().idle_cpu(node_of(number).0.into()) else { continue };
        let progress = &progress;
        let worker = move || {
            progress.work(engine, number, job);
            progress.leave(engine);
        };
        // SAFETY: the worker borrows from the caller's callers, and `progress`, which lives here. This function
        // returns after all workers: `join` waits for them, and panics are caught before. In an aborted run the
        // schedule drops fibers in reverse order of spawning, so workers before their spawner.
        if unsafe { fiber::spawn(cpu, worker) }.is_err() {
            break;
        }
        progress.at_work.set(progress.at_work.get() + 1);
        engine.borrow().start(cpu);
    }
    progress.work(engine, 0, job);
    progress.join(engine);
    if progress.panicked.get() { Err(WorkerPanicked) } else { Ok(()) }
}
