//! Tasks without owners or rounds, each on a virtual CPU: the simulated form of the host's threads.

use std::cell::RefCell;
use std::num::NonZeroU32;

use crate::{TaskError, TaskRunner, WorkloadError};
use frameyard::CpuId;
use frameyard_sim::SimYard;

use crate::sim::fixture::refused;
use crate::sim::time_spent::whole_ns;

/// Tasks on virtual CPUs.
pub(crate) struct SimTasks<'y, F> {
    yard: &'y SimYard,
    cpu_of: F,
}

impl<'y, F: Fn(usize) -> CpuId + Sync> SimTasks<'y, F> {
    /// Tasks whose CPUs `cpu_of` names by their numbers.
    pub(crate) fn new(yard: &'y SimYard, cpu_of: F) -> Self {
        Self { yard, cpu_of }
    }
}

impl<F: Fn(usize) -> CpuId + Sync> TaskRunner for SimTasks<'_, F> {
    fn run<T: Send>(
        &self,
        tasks: NonZeroU32,
        task: impl Fn(usize) -> Result<T, TaskError> + Sync,
    ) -> Result<Vec<T>, WorkloadError> {
        let results: Vec<_> = (0..tasks.get()).map(|_| RefCell::new(None)).collect();
        let bodies = results.iter().enumerate().map(|(number, result)| {
            let task = &task;
            let body = move || drop(result.replace(Some(task(number))));
            ((self.cpu_of)(number), Box::new(body) as Box<dyn FnOnce() + '_>)
        });
        run_in(self.yard, bodies.collect())?;
        let ended =
            |result: RefCell<Option<Result<T, TaskError>>>| result.into_inner().unwrap_or(Err(TaskError::Panicked));
        Ok(results.into_iter().map(ended).collect::<Result<_, _>>()?)
    }

    fn set_up<T: Send>(
        &self,
        tasks: NonZeroU32,
        task: impl Fn(usize) -> Result<T, TaskError> + Sync,
    ) -> Result<Vec<T>, WorkloadError> {
        let platform = self.yard.platform();
        let results = (0..tasks.get() as usize).map(|number| {
            platform.set_up_on((self.cpu_of)(number));
            task(number)
        });
        let results = results.collect::<Result<_, _>>();
        platform.set_up_on(CpuId(0));
        Ok(results?)
    }

    fn now_ns(&self) -> u64 {
        whole_ns(self.yard.platform().now())
    }
}

/// Runs bodies that live less long than the yard.
fn run_in<'t>(yard: &'t SimYard, bodies: Vec<(CpuId, Box<dyn FnOnce() + 't>)>) -> Result<(), WorkloadError> {
    yard.run(bodies).map(drop).map_err(refused)
}
