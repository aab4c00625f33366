//! Jobs that a task runs on other CPUs, and waits for.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use frameyard::NodeId;
use frameyard::platform::WorkerPanicked;

use crate::confined::Confined;
use crate::engine::Engine;
use crate::fiber;
use crate::time::Picos;

/// The workers of a job.
#[derive(Default)]
struct Crew {
    /// How many have not ended, but for the caller.
    at_work: Cell<usize>,
    /// When the last of those that have ended did.
    end: Cell<Picos>,
    panicked: Cell<bool>,
    /// The caller's CPU, when it waits for the others.
    sleeper: Cell<Option<usize>>,
}

impl Crew {
    /// Does a worker's part of a job; notes a panic. What unwinds when a run is over goes on.
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

    /// A worker other than the caller has ended.
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

    /// The caller waits for all others.
    fn join(&self, engine: &Confined<Engine>) {
        if self.at_work.get() > 0 {
            let mut engine = engine.borrow();
            self.sleeper.set(Some(engine.current()));
            engine.await_workers();
            drop(engine);
            fiber::suspend();
        }
        // They may have ended before the caller came to wait, and yet later than he did.
        let mut engine = engine.borrow();
        if engine.now() < self.end.get() {
            engine.idle_until(self.end.get());
        }
    }
}

/// Runs `job` on idle CPUs, each of its worker's node, from the caller's time on; the caller is worker 0, and idle until all have ended. There
/// are fewer workers where a node has fewer idle CPUs, or the host no memory for a stack. Outside of runs the caller works alone.
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
    let crew = Crew::default();
    for number in 1..count {
        let Some(cpu) = engine.borrow().idle_cpu(node_of(number).0.into()) else { continue };
        let crew = &crew;
        let worker = move || {
            crew.work(engine, number, job);
            crew.leave(engine);
        };
        // SAFETY: what the worker borrows is borrowed from the caller's callers, but for the crew, which lives here. This function
        // returns when all workers have: `join` waits for them, and panics are caught before. In a run that breaks off, the
        // schedule drops fibers in the reverse of the order in which they were spawned: workers before who spawned them.
        if unsafe { fiber::spawn(cpu, worker) }.is_err() {
            break;
        }
        crew.at_work.set(crew.at_work.get() + 1);
        engine.borrow().start(cpu);
    }
    crew.work(engine, 0, job);
    crew.join(engine);
    if crew.panicked.get() { Err(WorkerPanicked) } else { Ok(()) }
}
