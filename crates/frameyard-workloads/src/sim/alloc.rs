//! `alloc` in virtual time.

use crate::alloc::{AccessKind, AllocRun, AllocWorkload};
use crate::fixture::check_all_is_back;
use crate::{TaskRunner, WorkloadError};
use frameyard::CpuId;
use frameyard_sim::{Machine, SimYard};

use crate::sim::fixture::{SimOptions, create_yard};
use crate::sim::tasks::SimTasks;

/// Runs `alloc` on a new yard without owners, with the tasks on the CPUs from 0 on. A run that warms up comes first, except before a cold
/// one. Afterwards checks that the yard is valid and every frame is free.
///
/// # Errors
///
/// [`WorkloadError::Input`] if the host has no memory for the memory map, and for what [`check_alloc`] refuses;
/// [`WorkloadError::RunTime`] if a task or a check fails.
///
/// # Panics
///
/// If there are more tasks than CPUs.
pub fn alloc(machine: &Machine, options: &SimOptions, workload: &AllocWorkload) -> Result<AllocRun, WorkloadError> {
    let yard = create_yard(machine, options)?;
    let before = yard.stats().free_pages();
    let tasks = tasks(&yard);
    if workload.kind != AccessKind::Cold {
        workload.run_on(&yard, &tasks)?;
        yard.drain_all();
    }
    let run = workload.run_on(&yard, &tasks)?;
    check_all_is_back(&yard, before)?;
    Ok(run)
}

/// Refuses a machine without the zones that the pattern of the workload needs.
///
/// # Errors
///
/// [`WorkloadError::Input`] then, and if the host has no memory for the memory map.
pub fn check_alloc(machine: &Machine, options: &SimOptions, workload: &AllocWorkload) -> Result<(), WorkloadError> {
    let yard = create_yard(machine, options)?;
    workload.check_on(&yard, &tasks(&yard))
}

/// A socket has consecutive CPUs, so that few tasks leave nodes to which they can spill.
fn tasks(yard: &SimYard) -> impl TaskRunner {
    SimTasks::new(yard, |task| CpuId(task as u32))
}
