//! `frag` in virtual time: memory is fragmented in no time, then tasks free and allocate random frames on virtual CPUs.

use std::cell::RefCell;
use std::num::NonZeroU32;

use frameyard::CpuId;
use frameyard_sim::{Machine, SimYard, Topology};
use frameyard_workloads::fixture::check_all_is_back;
use frameyard_workloads::frag::{FragPoint, FragWorkload};
use frameyard_workloads::{TaskError, TaskRunner, WorkloadError};

use crate::fixture::{SimOptions, create_yard, refused};
use crate::sockets::cpu_of_socket;
use crate::time_spent::whole_ns;

/// Runs `frag` on a new yard without owners, and calls `report` before the first iteration and after each of `iterations`, which ascend.
/// Afterwards checks that the yard is valid and every frame is free. Tasks are distributed evenly over the sockets: otherwise memory of
/// the sockets without tasks would become whole, because every request prefers the memory of its own socket.
///
/// # Errors
///
/// [`WorkloadError::Input`] if the host has no memory for the memory map; [`WorkloadError::RunTime`] if a task or a check fails.
///
/// # Panics
///
/// If there are more tasks than CPUs.
pub fn frag(
    machine: &Machine,
    options: &SimOptions,
    workload: &FragWorkload,
    iterations: &[u32],
    report: &mut dyn FnMut(FragPoint),
) -> Result<(), WorkloadError> {
    let yard = create_yard(machine, options)?;
    let before = yard.stats().free_pages();
    workload.run_on(&yard, &SimTasks { yard: &yard, topology: machine.topology }, iterations, report)?;
    check_all_is_back(&yard, before)
}

/// Tasks on virtual CPUs.
struct SimTasks<'y> {
    yard: &'y SimYard,
    topology: Topology,
}

impl TaskRunner for SimTasks<'_> {
    fn run<T: Send>(
        &self,
        tasks: NonZeroU32,
        task: impl Fn(usize) -> Result<T, TaskError> + Sync,
    ) -> Result<Vec<T>, WorkloadError> {
        let results: Vec<_> = (0..tasks.get()).map(|_| RefCell::new(None)).collect();
        let bodies = results.iter().enumerate().map(|(number, result)| {
            let task = &task;
            let body = move || drop(result.replace(Some(task(number))));
            (cpu_of(self.topology, number), Box::new(body) as Box<dyn FnOnce() + '_>)
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
            platform.set_up_on(cpu_of(self.topology, number));
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

/// The CPU of a task. Tasks take turns over the sockets, and there over the cores.
fn cpu_of(topology: Topology, task: usize) -> CpuId {
    let (task, sockets) = (task as u32, u32::from(topology.sockets));
    cpu_of_socket(topology, task % sockets, task / sockets)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn tasks_take_turns_over_sockets_and_every_cpu_has_one() {
        let machine = Machine::built_in("skylake-112").unwrap();
        let cpus: Vec<u32> = (0..machine.cpus()).map(|task| cpu_of(machine.topology, task).0).collect();
        assert_eq!(cpus[..4], [0, 28, 1, 29]);
        assert_eq!(cpus[54..58], [27, 55, 56, 84]);
        assert_eq!(cpus.iter().collect::<HashSet<_>>().len(), 112);
    }
}
