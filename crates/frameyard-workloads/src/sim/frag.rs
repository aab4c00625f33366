//! `frag` in virtual time: memory is fragmented in no time, then tasks free and allocate random frames on virtual CPUs.

use crate::WorkloadError;
use crate::fixture::check_all_is_back;
use crate::frag::{FragPoint, FragWorkload};
use frameyard::CpuId;
use frameyard_sim::{Machine, Topology};

use crate::sim::fixture::{SimOptions, create_yard};
use crate::sim::sockets::cpu_of_socket;
use crate::sim::tasks::SimTasks;

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
    let topology = machine.topology;
    workload.run_on(&yard, &SimTasks::new(&yard, |task| cpu_of(topology, task)), iterations, report)?;
    check_all_is_back(&yard, before)
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
