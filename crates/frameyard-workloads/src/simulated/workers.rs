//! The tasks of a run, each on a virtual CPU of its own.

use std::cell::RefCell;

use frameyard::CpuId;
use frameyard_sim::SimPlatform;
use frameyard_vm::AddressSpace;

use super::SimGround;
use super::conductor::{Conductor, VirtualCourse};
use crate::Failure;
use crate::cli::TaskMode;
use crate::workload::crew::CrewError;
use crate::workload::exchange::Exchange;
use crate::workload::purge::Role;
use crate::workload::task::{Abandoned, Site, TaskOrder, TaskProblem, TaskReport, Work};

/// Which tasks have a space in common.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Spaces {
    /// All: they are threads of a process.
    One,
    /// None: each makes its own.
    Own,
    /// There are so many spaces, and tasks have them in turn: they are threads of as many processes.
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

/// Tasks, on the CPUs from 0 on.
#[derive(Clone, Debug)]
pub(super) struct Crew {
    orders: Vec<TaskOrder>,
    spaces: Spaces,
}

impl Crew {
    pub(super) fn new(orders: Vec<TaskOrder>, spaces: Spaces) -> Self {
        Self { orders, spaces }
    }

    pub(super) fn tasks(&self) -> usize {
        self.orders.len()
    }

    /// Runs all tasks to their end, in spaces that are made for it.
    pub(super) fn run(
        &self,
        ground: &SimGround<'_>,
        conductor: &Conductor<'_, '_>,
    ) -> Result<Vec<TaskReport>, Failure> {
        let count = match self.spaces {
            Spaces::One => 1,
            Spaces::Own => 0,
            Spaces::Shared(count) => count,
        };
        // Each where the first task is that has it.
        let spaces = (0..count).map(|space| ground.set_up_on(CpuId(space as u32), || ground.vm.create_space()));
        let spaces = spaces.collect::<Result<Vec<_>, _>>();
        self.run_in(ground, conductor, &spaces.map_err(Failure::run_time)?)
    }

    /// Runs all tasks to their end, in those spaces in turn; without any, each makes its own.
    pub(super) fn run_in<'y>(
        &self,
        ground: &SimGround<'y>,
        conductor: &Conductor<'_, '_>,
        spaces: &[AddressSpace<'y, SimPlatform>],
    ) -> Result<Vec<TaskReport>, Failure> {
        self.run_beside(ground, conductor, spaces, Vec::new())
    }

    /// The same, beside others that have CPUs of their own and end by themselves.
    pub(super) fn run_beside<'y>(
        &self,
        ground: &SimGround<'y>,
        conductor: &Conductor<'_, '_>,
        spaces: &[AddressSpace<'y, SimPlatform>],
        others: Vec<(CpuId, Box<dyn FnOnce() + '_>)>,
    ) -> Result<Vec<TaskReport>, Failure> {
        let exchanges: Vec<Exchange> = std::iter::repeat_with(Exchange::default).take(spaces.len().max(1)).collect();
        let results: Vec<RefCell<Option<Result<TaskReport, TaskProblem>>>> =
            std::iter::repeat_with(RefCell::default).take(self.orders.len()).collect();
        let bodies = self.orders.iter().enumerate().map(|(task, order)| {
            let common = (!spaces.is_empty()).then(|| &spaces[task % spaces.len()]);
            let exchange = &exchanges[task % exchanges.len()];
            let result = &results[task];
            let body = move || {
                let course = VirtualCourse::new(conductor, exchange, task, order.seed);
                let done = work(order, &Site { vm: ground.vm, common, course });
                if done.is_err() {
                    conductor.end();
                }
                result.replace(Some(done));
            };
            (CpuId(order.number), Box::new(body) as Box<dyn FnOnce() + '_>)
        });
        ground.run(bodies.chain(others).collect())?;
        let reports = results.into_iter().enumerate().map(|(task, result)| match result.into_inner() {
            Some(Ok(report)) => Ok(report),
            Some(Err(problem)) => Err(CrewError::Failed { task, what: problem.to_string() }),
            None => Err(CrewError::Lost { task }),
        });
        let (failed, reports): (Vec<_>, Vec<_>) = reports.partition(Result::is_err);
        // The one that has something to say, rather than those that were abandoned for it.
        let said = |result: &Result<_, CrewError>| matches!(result, Err(CrewError::Failed { what, .. }) if *what != Abandoned.to_string());
        let first = failed.iter().position(said).unwrap_or(0);
        match failed.into_iter().nth(first) {
            Some(Err(error)) => Err(Failure::run_time(error)),
            _ => Ok(reports.into_iter().flatten().collect()),
        }
    }
}

/// Does what a task is told to.
fn work(
    order: &TaskOrder,
    site: &Site<'_, '_, SimPlatform, VirtualCourse<'_, '_, '_>>,
) -> Result<TaskReport, TaskProblem> {
    match &order.work {
        Work::PageFault(work) => work.run(site),
        Work::Fill(work) => work.run(site),
        Work::Fragment(work) => work.run(site),
        Work::Kernbench(work) => work.run(site),
        Work::Purge(work) => match work.role {
            Role::One(part) => work.run_part(site, part),
            Role::Both => Err("a virtual CPU has one thread".into()),
        },
        Work::Build(work) => work.run(site, order),
        Work::Stress(_) => Err("what watches every frame is not simulated".into()),
    }
}
