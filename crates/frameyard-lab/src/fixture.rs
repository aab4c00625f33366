//! Fixtures of workloads: boots a machine on this host, or simulates it, for one run.

use frameyard::ByteSize;
use frameyard_host::HostTopology;
use frameyard_vm::LruPolicy;
use frameyard_workloads::fixture::{self, Fixture};
use frameyard_workloads::sim::{SimFixture, SimOptions};

use crate::Failure;
use crate::boot::{BootOptions, boot_machine};
use crate::chosen_machine::print_notes;
use crate::output::RoundedSize;
use frameyard_machines::Machine;

/// Boots `machine` and calls `run` with a fixture on its yard.
///
/// # Errors
///
/// [`Failure::Input`] if machine and options make no yard; otherwise the errors of `run` and of the checks after it.
pub(crate) fn with_fixture<R>(
    machine: &Machine,
    options: &BootOptions,
    lru: LruPolicy,
    run: impl FnOnce(&Fixture<'_>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let mut booted = boot_machine(machine, options)?;
    print_notes(&booted.notes);
    fixture::with_fixture(&mut booted.yard, lru, run)
}

/// Simulates `machine` and calls `run` with a fixture on its yard.
///
/// # Errors
///
/// [`Failure::Input`] if this host has too little memory; otherwise the errors of `run` and of the checks after it.
pub(crate) fn with_sim_fixture<R>(
    machine: &frameyard_sim::Machine,
    options: &SimOptions,
    run: impl FnOnce(&SimFixture<'_>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    check_host_memory(machine, options)?;
    frameyard_workloads::sim::with_sim_fixture(machine, options, run)
}

/// Refuses a simulation for which this host has too little memory.
///
/// # Errors
///
/// [`Failure::Input`] then.
pub(crate) fn check_host_memory(machine: &frameyard_sim::Machine, options: &SimOptions) -> Result<(), Failure> {
    let (simulated, needed) = (options.simulated_memory(machine), options.host_memory_needed(machine));
    refuse_beyond_host(&machine.name, simulated, needed, "give the machine less --memory, or run fewer --tasks")
}

/// Refuses a simulation that takes more memory than this host has available.
///
/// # Errors
///
/// [`Failure::Input`] then, which ends with `advice`.
pub(crate) fn refuse_beyond_host(
    machine: &str,
    simulated: ByteSize,
    needed: ByteSize,
    advice: &str,
) -> Result<(), Failure> {
    let host = HostTopology::current().map_err(Failure::run_time)?;
    let available = host.available_memory().map_err(Failure::run_time)?;
    if needed > available {
        return Err(Failure::input(format!(
            "{machine}: simulating {} of memory takes {} and this host has {} available: {advice}",
            RoundedSize(simulated),
            RoundedSize(needed),
            RoundedSize(available)
        )));
    }
    Ok(())
}
