//! The runtime of a task on a virtual CPU.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use crate::kernbench::CpuWork;
use crate::report::{Abandoned, TaskReport};
use crate::{Piece, Runtime};
use frameyard::{CpuId, Platform};
use frameyard_sim::{CostId, Picos};

use crate::sim::driver::Driver;
use crate::sim::time_spent::whole_ns;

/// The queue through which tasks of one process hand each other address ranges to free.
pub(crate) type Exchange = RefCell<VecDeque<Piece>>;

/// The measurement of one task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Measurement {
    /// The task is in its first round, or the measurement of the run has not begun.
    NotYet,
    /// Began at a moment, after this number of steps.
    Since(Picos, u64),
    /// Complete: duration, steps and rounds.
    Done(Picos, u64, u64),
}

/// The runtime of one task.
pub(crate) struct SimRuntime<'d, 'f, 'y> {
    driver: &'d Driver<'f, 'y>,
    exchange: &'d Exchange,
    /// Decides the length of the task's first round.
    seed: u64,
    is_measured: bool,
    has_ended_a_round: Cell<bool>,
    measurement: Cell<Measurement>,
    /// Rounds since the measurement of the task began.
    rounds: Cell<u64>,
    /// The cost that each kind of work is charged to, if the machine has one.
    costs: [Option<CostId>; CpuWork::COSTS.len()],
}

impl<'d, 'f, 'y> SimRuntime<'d, 'f, 'y> {
    pub(crate) fn new(driver: &'d Driver<'f, 'y>, exchange: &'d Exchange, task: usize, seed: u64) -> Self {
        let is_measured = driver.measures(task);
        let (has_ended_a_round, measurement) = (Cell::new(false), Cell::new(Measurement::NotYet));
        let costs = std::array::from_fn(|at| driver.fixture().platform().cost(CpuWork::COSTS[at]));
        let rounds = Cell::new(0);
        Self { driver, exchange, seed, is_measured, has_ended_a_round, measurement, rounds, costs }
    }

    fn now(&self) -> Picos {
        self.driver.fixture().now()
    }

    /// Waits in virtual time until `answer` returns a value or the run is over.
    fn wait_for<T>(&self, mut answer: impl FnMut() -> Option<T>) -> Option<T> {
        let platform = self.driver.fixture().platform();
        for round in 0u32.. {
            if let Some(answer) = answer() {
                return Some(answer);
            }
            if self.is_over() {
                break;
            }
            platform.wait(round);
        }
        None
    }
}

impl Runtime for SimRuntime<'_, '_, '_> {
    type Moment = Picos;

    fn begin(&self) -> Result<Picos, Abandoned> {
        self.driver.prepared();
        self.wait_for(|| self.driver.is_working().then_some(())).ok_or(Abandoned)?;
        Ok(self.now())
    }

    fn now(&self) -> Picos {
        Self::now(self)
    }

    fn elapsed_ns(&self, since: Picos) -> u64 {
        whole_ns(self.now() - since)
    }

    #[inline]
    fn is_over(&self) -> bool {
        self.driver.is_over()
    }

    /// Takes no time on a machine without a cost for this kind.
    fn spend(&self, kind: CpuWork, cycles: u64) {
        if let Some(cost) = self.costs[kind as usize] {
            self.driver.fixture().platform().spend(cost, cycles);
        }
    }

    /// A random part of it, in whole 4 KiB pages, so that tasks are out of step from the second round on.
    fn first_round(&self, bytes: u64) -> u64 {
        let pages = bytes >> 12;
        if pages == 0 { bytes } else { (fastrand::Rng::with_seed(self.seed).u64(..pages) + 1) << 12 }
    }

    fn round_ends(&self, iterations: u64) {
        if !self.is_measured || self.is_over() {
            return;
        }
        if !self.has_ended_a_round.replace(true) {
            self.driver.first_round_ended();
        }
        let now = self.now();
        match self.measurement.get() {
            Measurement::NotYet if self.driver.is_measuring() => {
                self.measurement.set(Measurement::Since(now, iterations));
            }
            Measurement::Since(since, before) => {
                self.rounds.set(self.rounds.get() + 1);
                if self.driver.is_long_enough(now) {
                    self.measurement.set(Measurement::Done(now - since, iterations - before, self.rounds.get()));
                    self.driver.measured();
                }
            }
            _ => {}
        }
    }

    fn report(&self, begin: Picos, iterations: u64, rounds: u64) -> TaskReport {
        let (iterations, rounds, elapsed_ns) = match self.measurement.get() {
            Measurement::Done(time, iterations, rounds) => (iterations, rounds, whole_ns(time)),
            _ => (iterations, rounds, self.elapsed_ns(begin)),
        };
        TaskReport { iterations, rounds, elapsed_ns, ..TaskReport::default() }
    }

    fn put(&self, piece: Piece, bound: usize) -> Result<(), Piece> {
        // After the end no task may take it.
        if self.is_over() {
            return Err(piece);
        }
        let put = self.wait_for(|| {
            let mut queue = self.exchange.borrow_mut();
            (queue.len() < bound).then(|| queue.push_back(piece))
        });
        put.ok_or(piece)
    }

    fn take(&self) -> Option<Piece> {
        self.wait_for(|| self.exchange.borrow_mut().pop_front())
    }

    /// Does nothing: a task of a simulated machine stays on its CPU.
    fn keep_to(&self, _some: impl FnOnce(&[CpuId]) -> &[CpuId]) {}
}
