//! The tasks of a simulated run, each on a virtual CPU of its own.

use std::cell::RefCell;

use crate::report::{Abandoned, TaskProblem, TaskReport};
use crate::{TaskMode, TaskSpec, WorkloadError};
use frameyard::CpuId;
use frameyard_sim::SimPlatform;
use frameyard_vm::AddressSpace;

use crate::sim::driver::Driver;
use crate::sim::fixture::SimFixture;
use crate::sim::runtime::{Exchange, SimRuntime};

/// Which tasks share an address space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Spaces {
    /// All: they are threads of one process.
    One,
    /// None: each creates its own.
    Own,
    /// Tasks take turns over this number of spaces: they are threads of several processes.
    Shared(usize),
}

impl Spaces {
    pub(crate) fn of(mode: TaskMode) -> Self {
        match mode {
            TaskMode::Threads => Self::One,
            TaskMode::Processes => Self::Own,
        }
    }
}

/// How a task ended; `None` before its end.
type Outcome = RefCell<Option<Result<TaskReport, TaskProblem>>>;

/// Code that runs on a CPU beside the tasks.
pub(crate) type Companion<'t> = (CpuId, Box<dyn FnOnce() + 't>);

/// Tasks on the CPUs from 0 on.
#[derive(Clone, Debug)]
pub(crate) struct SimWorkers {
    specs: Vec<TaskSpec>,
    spaces: Spaces,
}

impl SimWorkers {
    pub(crate) fn new(specs: Vec<TaskSpec>, spaces: Spaces) -> Self {
        Self { specs, spaces }
    }

    pub(crate) fn tasks(&self) -> usize {
        self.specs.len()
    }

    /// Runs all tasks to their end, in new address spaces.
    pub(crate) fn run(
        &self,
        fixture: &SimFixture<'_>,
        driver: &Driver<'_, '_>,
    ) -> Result<Vec<TaskReport>, WorkloadError> {
        self.run_beside_alone(fixture, driver, Vec::new())
    }

    /// The same, beside `companions` that have CPUs of their own and end by themselves.
    pub(crate) fn run_beside_alone(
        &self,
        fixture: &SimFixture<'_>,
        driver: &Driver<'_, '_>,
        companions: Vec<Companion<'_>>,
    ) -> Result<Vec<TaskReport>, WorkloadError> {
        let count = match self.spaces {
            Spaces::One => 1,
            Spaces::Own => 0,
            Spaces::Shared(count) => count,
        };
        // Each space is created on the CPU of the first task that uses it.
        let spaces = (0..count).map(|space| fixture.set_up_on(CpuId(space as u32), || fixture.vm.create_space()));
        let spaces = spaces.collect::<Result<Vec<_>, _>>();
        self.run_beside(fixture, driver, &spaces.map_err(WorkloadError::run_time)?, companions)
    }

    /// Runs all tasks to their end, distributed over `spaces`. Without any, each task creates its own.
    pub(crate) fn run_in<'y>(
        &self,
        fixture: &SimFixture<'y>,
        driver: &Driver<'_, '_>,
        spaces: &[AddressSpace<'y, SimPlatform>],
    ) -> Result<Vec<TaskReport>, WorkloadError> {
        self.run_beside(fixture, driver, spaces, Vec::new())
    }

    /// The same, in `spaces` and beside `companions`.
    pub(crate) fn run_beside<'y>(
        &self,
        fixture: &SimFixture<'y>,
        driver: &Driver<'_, '_>,
        spaces: &[AddressSpace<'y, SimPlatform>],
        companions: Vec<Companion<'_>>,
    ) -> Result<Vec<TaskReport>, WorkloadError> {
        let exchanges: Vec<Exchange> = std::iter::repeat_with(Exchange::default).take(spaces.len().max(1)).collect();
        let results: Vec<Outcome> = std::iter::repeat_with(RefCell::default).take(self.specs.len()).collect();
        let bodies = self.specs.iter().enumerate().map(|(task, spec)| {
            let common = (!spaces.is_empty()).then(|| &spaces[task % spaces.len()]);
            let exchange = &exchanges[task % exchanges.len()];
            let result = &results[task];
            let body = move || {
                let runtime = SimRuntime::new(driver, exchange, task, spec.seed);
                let done = spec.run_on(fixture.vm, common, runtime);
                if done.is_err() {
                    driver.end();
                }
                result.replace(Some(done));
            };
            (CpuId(spec.number), Box::new(body) as Box<dyn FnOnce() + '_>)
        });
        fixture.run(bodies.chain(companions).collect())?;
        reports_of(results)
    }
}

/// The reports of all tasks. If some failed, the error of the task that ended the run, not of one that abandoned its work then.
fn reports_of(results: Vec<Outcome>) -> Result<Vec<TaskReport>, WorkloadError> {
    let (mut reports, mut causes, mut effects) = (Vec::new(), Vec::new(), Vec::new());
    for (task, result) in results.into_iter().enumerate() {
        match result.into_inner() {
            Some(Ok(report)) => reports.push(report),
            Some(Err(problem)) if problem.is::<Abandoned>() => effects.push(format!("task {task}: {problem}")),
            Some(Err(problem)) => causes.push(format!("task {task}: {problem}")),
            None => effects.push(format!("task {task} ended without a report")),
        }
    }
    match causes.into_iter().chain(effects).next() {
        Some(error) => Err(WorkloadError::run_time(error)),
        None => Ok(reports),
    }
}
