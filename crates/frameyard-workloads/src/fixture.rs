//! What a run stands on: a yard with what owns its frames, made for it and checked behind it.

use std::fmt;
use std::num::NonZeroU32;

use frameyard::{ByteSize, PageCount, Platform, ValidateError, Yard, ZonePolicy};
use frameyard_host::{HostPlatform, HostYard, LockTiming, SharedMemoryFile};
use frameyard_vm::{LruPolicy, Vm, VmConfig, VmError};

use super::crew::{Crew, lead_processes, lead_threads};
use super::task::TaskOrder;
use crate::Failure;
use crate::bring_up::{BringUp, BroughtUp, bring_up};
use crate::chosen_machine::print_notes;
use crate::cli::TaskMode;
use crate::machine::Machine;

/// One combination of what is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Setting {
    /// What tasks are.
    pub(crate) mode: TaskMode,
    /// How many there are.
    pub(crate) tasks: NonZeroU32,
    /// The policy of zones.
    pub(crate) zone: ZonePolicy,
    /// The policy of the lists of used pages.
    pub(crate) lru: LruPolicy,
}

/// Memory was lost: less is free when all was given back than before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LostFrames {
    /// Free before.
    pub(crate) before: PageCount,
    /// Free when all was given back.
    pub(crate) after: PageCount,
}

impl fmt::Display for LostFrames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { before, after } = self;
        write!(f, "frames were lost: {} free before the run and {} after all was given back", before.0, after.0)
    }
}

impl std::error::Error for LostFrames {}

/// A yard with what owns its frames.
#[derive(Debug)]
pub(crate) struct Ground<'y> {
    /// The owners.
    pub(crate) vm: Vm<'y, HostPlatform>,
    /// The yard.
    pub(crate) yard: &'y HostYard,
    file: Option<&'y SharedMemoryFile>,
}

/// Brings up a yard, lets `run` use it, and checks that nothing is wrong and nothing is lost.
///
/// # Errors
///
/// [`Failure::Input`] where machine and options make no yard; [`Failure::RunTime`] for what `run` or a check finds.
pub(crate) fn on_ground<R>(
    machine: &Machine,
    options: &BringUp,
    lru: LruPolicy,
    run: impl FnOnce(&Ground<'_>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let brought_up = bring_up(machine, options)?;
    print_notes(&brought_up.notes);
    let BroughtUp { yard, file, .. } = &brought_up;
    yard.platform().time_locks(LockTiming::On);
    let before = yard.free_pages();
    let vm = Vm::create(&**yard, &VmConfig { lru, ..VmConfig::default() }).map_err(refused)?;
    let result = run(&Ground { vm, yard, file: file.as_ref() })?;
    vm.lru_drain_all();
    vm.validate().map_err(Failure::run_time)?;
    yard.validate().map_err(Failure::run_time)?;
    vm.destroy().map_err(Failure::run_time)?;
    check_all_is_back(yard, before).map_err(Failure::run_time)?;
    Ok(result)
}

/// Frames without bytes are bad input: the user asked for them.
fn refused(error: VmError) -> Failure {
    match error {
        VmError::NoFrameBytes(_) => Failure::input(error),
        _ => Failure::run_time(error),
    }
}

/// Checks a yard of which everything was given back.
pub(super) fn check_all_is_back<P: Platform>(
    yard: &Yard<P>,
    before: PageCount,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    yard.drain_all();
    let check: Result<(), ValidateError> = yard.validate();
    check?;
    let after = yard.free_pages();
    if after == before { Ok(()) } else { Err(LostFrames { before, after }.into()) }
}

impl Ground<'_> {
    /// Memory that is free.
    pub(crate) fn free_memory(&self) -> ByteSize {
        free_memory(self.vm.yard())
    }

    /// Whether locks are timed.
    pub(crate) fn lock_timing(&self) -> LockTiming {
        match self.vm.yard().platform().lock_clock_ns() {
            Some(_) => LockTiming::On,
            None => LockTiming::Off,
        }
    }

    /// Runs tasks, as threads of one address space or as processes, while `lead` leads them.
    pub(crate) fn lead<R>(
        &self,
        orders: &[TaskOrder],
        lead: impl FnOnce(&mut Crew<'_>) -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        match self.file {
            Some(file) => lead_processes(file, self.lock_timing(), orders, lead),
            None => {
                let common = self.vm.create_space().map_err(Failure::run_time)?;
                lead_threads(self.vm, &common, orders, lead)
            }
        }
    }
}

/// Memory of a yard that is free.
pub(crate) fn free_memory<P: Platform>(yard: &Yard<P>) -> ByteSize {
    yard.geometry().size_of(yard.free_pages())
}

/// The share of each of so many tasks in a part of a yard's free memory, in whole pages.
pub(crate) fn share_of_free<P: Platform>(yard: &Yard<P>, percent: u64, tasks: u32) -> ByteSize {
    let page = yard.geometry().page_size().0;
    ByteSize(free_memory(yard).0 / 100 * percent / u64::from(tasks) / page * page)
}
