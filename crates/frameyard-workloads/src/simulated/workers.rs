//! The tasks of a simulated run, each on a virtual CPU of its own.

use std::cell::RefCell;

use frameyard::CpuId;
use frameyard_sim::SimPlatform;
use frameyard_vm::AddressSpace;

use super::driver::Driver;
use super::fixture::SimFixture;
use super::runtime::SimRuntime;
use crate::error::WorkloadError;
use crate::exchange::Exchange;
use crate::report::{Abandoned, TaskProblem, TaskReport};
use crate::setting::TaskMode;
use crate::site::Site;
use crate::task::purge::Role;
use crate::task::{TaskSpec, Work};
use crate::workers::WorkersError;

/// Which tasks share an address space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Spaces {
    /// All: they are threads of one process.
    One,
    /// None: each creates its own.
    Own,
    /// Tasks take turns over this number of spaces: they are threads of several processes.
    Shared(usize),
}

impl Spaces {
    pub(super) fn of(mode: TaskMode) -> Self {
        match mode {
            TaskMode::Threads => Self::One,
            TaskMode::Processes => Self::Own,
        }
    }
}

/// Code that runs on a CPU beside the tasks.
pub(super) type Companion<'t> = (CpuId, Box<dyn FnOnce() + 't>);

/// Tasks on the CPUs from 0 on.
#[derive(Clone, Debug)]
pub(super) struct SimWorkers {
    specs: Vec<TaskSpec>,
    spaces: Spaces,
}

impl SimWorkers {
    pub(super) fn new(specs: Vec<TaskSpec>, spaces: Spaces) -> Self {
        Self { specs, spaces }
    }

    pub(super) fn tasks(&self) -> usize {
        self.specs.len()
    }

    /// Runs all tasks to their end, in new address spaces.
    pub(super) fn run(
        &self,
        fixture: &SimFixture<'_>,
        driver: &Driver<'_, '_>,
    ) -> Result<Vec<TaskReport>, WorkloadError> {
        let count = match self.spaces {
            Spaces::One => 1,
            Spaces::Own => 0,
            Spaces::Shared(count) => count,
        };
        // Each space is created on the CPU of the first task that uses it.
        let spaces = (0..count).map(|space| fixture.set_up_on(CpuId(space as u32), || fixture.vm.create_space()));
        let spaces = spaces.collect::<Result<Vec<_>, _>>();
        self.run_in(fixture, driver, &spaces.map_err(WorkloadError::run_time)?)
    }

    /// Runs all tasks to their end, distributed over `spaces`. Without any, each task creates its own.
    pub(super) fn run_in<'y>(
        &self,
        fixture: &SimFixture<'y>,
        driver: &Driver<'_, '_>,
        spaces: &[AddressSpace<'y, SimPlatform>],
    ) -> Result<Vec<TaskReport>, WorkloadError> {
        self.run_beside(fixture, driver, spaces, Vec::new())
    }

    /// The same, beside `companions` that have CPUs of their own and end by themselves.
    pub(super) fn run_beside<'y>(
        &self,
        fixture: &SimFixture<'y>,
        driver: &Driver<'_, '_>,
        spaces: &[AddressSpace<'y, SimPlatform>],
        companions: Vec<Companion<'_>>,
    ) -> Result<Vec<TaskReport>, WorkloadError> {
        let exchanges: Vec<Exchange> = std::iter::repeat_with(Exchange::default).take(spaces.len().max(1)).collect();
        let results: Vec<RefCell<Option<Result<TaskReport, TaskProblem>>>> =
            std::iter::repeat_with(RefCell::default).take(self.specs.len()).collect();
        let bodies = self.specs.iter().enumerate().map(|(task, spec)| {
            let common = (!spaces.is_empty()).then(|| &spaces[task % spaces.len()]);
            let exchange = &exchanges[task % exchanges.len()];
            let result = &results[task];
            let body = move || {
                let runtime = SimRuntime::new(driver, exchange, task, spec.seed);
                let site = Site { vm: fixture.vm, common, runtime, number: spec.number, seed: spec.seed };
                let done = work(&spec.work, &site);
                if done.is_err() {
                    driver.end();
                }
                result.replace(Some(done));
            };
            (CpuId(spec.number), Box::new(body) as Box<dyn FnOnce() + '_>)
        });
        fixture.run(bodies.chain(companions).collect())?;
        let reports = results.into_iter().enumerate().map(|(task, result)| match result.into_inner() {
            Some(Ok(report)) => Ok(report),
            Some(Err(problem)) => Err(WorkersError::Failed { task, what: problem.to_string() }),
            None => Err(WorkersError::Lost { task }),
        });
        let (failed, reports): (Vec<_>, Vec<_>) = reports.partition(Result::is_err);
        // Prefers the task that caused the end of the run to those that it made abandon theirs.
        let is_cause = |result: &Result<_, WorkersError>| matches!(result, Err(WorkersError::Failed { what, .. }) if *what != Abandoned.to_string());
        let first = failed.iter().position(is_cause).unwrap_or(0);
        match failed.into_iter().nth(first) {
            Some(Err(error)) => Err(WorkloadError::run_time(error)),
            _ => Ok(reports.into_iter().flatten().collect()),
        }
    }
}

/// Runs a task.
fn work(work: &Work, site: &Site<'_, '_, SimPlatform, SimRuntime<'_, '_, '_>>) -> Result<TaskReport, TaskProblem> {
    match work {
        Work::PageFault(work) => work.run(site),
        Work::Fill(work) => work.run(site),
        Work::Fragment(work) => work.run(site),
        Work::Kernbench(work) => work.run(site),
        Work::Purge(work) => match work.role {
            Role::One(part) => work.run_part(site, part),
            Role::Both => Err("a virtual CPU runs one thread".into()),
        },
        Work::Build(work) => work.run(site),
        Work::Stress(_) => Err("`stress` has no simulated form".into()),
    }
}
