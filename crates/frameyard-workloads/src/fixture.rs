//! The fixture of a run: a yard with owners of its frames, created for the run and checked after it.

use frameyard::platform::Probe;
use std::fmt;

use frameyard::{ByteSize, PageCount, Platform, Yard};
use frameyard_host::{HostPlatform, HostYard, LockTiming};
use frameyard_vm::{LruPolicy, Vm, VmConfig, VmError};

use crate::error::WorkloadError;
use crate::task::TaskSpec;
use crate::workers::{Workers, drive_processes, drive_threads};

/// Memory was lost: fewer frames are free after the run than before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct LostFrames {
    before: PageCount,
    after: PageCount,
}

impl fmt::Display for LostFrames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { before, after } = self;
        write!(f, "frames were lost: {} free before the run and {} after it", before.0, after.0)
    }
}

impl std::error::Error for LostFrames {}

/// A yard with owners of its frames.
#[derive(Debug)]
pub struct Fixture<'y> {
    /// The owners.
    pub vm: Vm<'y, HostPlatform>,
    /// The yard.
    pub yard: &'y HostYard,
}

/// Creates owners on `yard`, calls `run` with them, and checks that the yard is valid and every frame is free again.
/// Locks are timed. `run` cannot keep a view of the owners, since nothing else uses this view of the yard. Tasks run as processes if the yard is shared, else as threads.
///
/// # Errors
///
/// [`WorkloadError::Input`] if the frames have no memory; [`WorkloadError::RunTime`] for a failed check; and the errors of
/// `run`.
pub fn with_fixture<R, E: From<WorkloadError>>(
    yard: &mut HostYard,
    lru: LruPolicy,
    run: impl FnOnce(&Fixture<'_>) -> Result<R, E>,
) -> Result<R, E> {
    let (fixture, before) = create(yard, lru)?;
    let result = run(&fixture)?;
    // SAFETY: `run` and its tasks have ended, and kept no view: only the fixture leads to the yard.
    unsafe { destroy(fixture.vm, before) }?;
    Ok(result)
}

/// Creates a fixture. Also returns the number of free frames before.
fn create(yard: &HostYard, lru: LruPolicy) -> Result<(Fixture<'_>, PageCount), WorkloadError> {
    yard.platform().time_locks(LockTiming::On);
    let before = yard.stats().free_pages();
    let vm = Vm::create(yard.core(), &VmConfig { lru, ..VmConfig::default() }).map_err(refused)?;
    Ok((Fixture { vm, yard }, before))
}

/// Frames without memory are an error of input: the caller asked for them.
fn refused(error: VmError) -> WorkloadError {
    match error {
        VmError::NoFrameBytes(_) => WorkloadError::input(error),
        _ => WorkloadError::run_time(error),
    }
}

/// Validates and destroys the owners, and checks that all memory is back: `before` frames are free.
///
/// # Errors
///
/// [`WorkloadError::RunTime`] for a failed check.
///
/// # Safety
///
/// As for [`Vm::destroy`].
pub unsafe fn destroy<P: Platform>(vm: Vm<'_, P>, before: PageCount) -> Result<(), WorkloadError> {
    let yard = vm.yard();
    vm.lru_drain_all();
    vm.validate().map_err(WorkloadError::run_time)?;
    yard.validate().map_err(WorkloadError::run_time)?;
    // SAFETY: passed on to the caller.
    unsafe { vm.destroy() }.map_err(WorkloadError::run_time)?;
    check_all_is_back(yard, before)
}

/// Empties the lists of a yard, validates it, and checks that `before` frames are free.
///
/// # Errors
///
/// [`WorkloadError::RunTime`] for a failed check.
pub fn check_all_is_back<P: Platform>(yard: &Yard<P>, before: PageCount) -> Result<(), WorkloadError> {
    yard.drain_all();
    yard.validate().map_err(WorkloadError::run_time)?;
    let after = yard.stats().free_pages();
    if after == before { Ok(()) } else { Err(WorkloadError::run_time(LostFrames { before, after })) }
}

impl Fixture<'_> {
    /// Free memory.
    #[must_use]
    pub fn free_memory(&self) -> ByteSize {
        free_memory(self.vm.yard())
    }

    /// Whether locks are timed.
    #[must_use]
    pub fn lock_timing(&self) -> LockTiming {
        match self.vm.yard().platform().probe().lock_clock_ns() {
            Some(_) => LockTiming::On,
            None => LockTiming::Off,
        }
    }

    /// Runs tasks, as threads of one address space or as processes, while `drive` drives them.
    pub(crate) fn drive<R>(
        &self,
        specs: &[TaskSpec],
        drive: impl FnOnce(&mut Workers<'_>) -> Result<R, WorkloadError>,
    ) -> Result<R, WorkloadError> {
        match self.yard.shared_file() {
            Some(file) => drive_processes(file, self.lock_timing(), specs, drive),
            None => {
                let common = self.vm.create_space().map_err(WorkloadError::run_time)?;
                drive_threads(self.vm, &common, specs, drive)
            }
        }
    }
}

/// Free memory of a yard.
pub(crate) fn free_memory<P: Platform>(yard: &Yard<P>) -> ByteSize {
    yard.geometry().size_of(yard.stats().free_pages())
}

/// One task's share of `percent` of a yard's free memory, in whole pages.
pub(crate) fn share_of_free<P: Platform>(yard: &Yard<P>, percent: u64, tasks: u32) -> ByteSize {
    let page = yard.geometry().page_size().0;
    ByteSize(free_memory(yard).0 / 100 * percent / u64::from(tasks) / page * page)
}
