//! The fixture of a simulated run: a yard on a simulated machine with owners of its frames, created for the run and checked
//! after it.

use std::cell::RefCell;

use crate::WorkloadError;
use crate::fixture::destroy;
use frameyard::boot::PcpReset;
use frameyard::policy::ZonePolicy;
use frameyard::watermarks::PcpSizing;
use frameyard::{ByteSize, CpuId, Geometry, PageCount};
use frameyard_sim::{ListAccess, Machine, Picos, Profile, SimConfig, SimError, SimPlatform, SimYard};
use frameyard_vm::{LruPolicy, Vm, VmConfig};

/// Host memory per simulated frame: its page structure, the state of its cache line, and a share of the other tables.
const HOST_BYTES_EACH: u64 = 64 + 8 + 8;

/// Whether the workload reads the contents of frames. If so, the host needs memory for them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FrameContents {
    /// The workload writes contents but never reads them.
    #[default]
    Dropped,
    /// The workload reads what it wrote.
    Kept,
}

/// The parameters of a simulated yard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SimOptions {
    /// Memory of all nodes together.
    pub memory: ByteSize,
    /// The policy of zones.
    pub zone: ZonePolicy,
    /// The policy of LRU lists.
    pub lru: LruPolicy,
    /// The sizing of per-CPU lists.
    pub sizing: PcpSizing,
    /// How CPUs use their own lists.
    pub lists: ListAccess,
    /// Whether frames keep their contents.
    pub contents: FrameContents,
    /// When memory was initialised.
    pub init: SimInit,
    /// Named costs that the workload charges.
    pub costs: &'static [&'static str],
}

/// When the memory of a simulated yard was initialised.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SimInit {
    /// All of it when the yard was created.
    Eager,
    /// Most of it after per-CPU lists had been sized. Whether they were sized again afterwards.
    Deferred(PcpReset),
}

impl SimOptions {
    /// Memory of each node: whole sections, at least one.
    fn node_memory(&self, machine: &Machine) -> PageCount {
        let geometry = Geometry::X86_64;
        let section = geometry.section_size().0;
        let sections = self.memory.0 / u64::from(machine.topology.sockets) / section;
        PageCount(sections.max(1) * (section / geometry.page_size().0))
    }

    /// Memory of all nodes, in whole sections of each.
    #[must_use]
    pub fn simulated_memory(&self, machine: &Machine) -> ByteSize {
        let frames = self.node_memory(machine).0 * u64::from(machine.topology.sockets);
        Geometry::X86_64.size_of(PageCount(frames))
    }

    /// Host memory that the simulation needs.
    #[must_use]
    pub fn host_memory_needed(&self, machine: &Machine) -> ByteSize {
        let frames = self.simulated_memory(machine).0 / Geometry::X86_64.page_size().0;
        let each = match self.contents {
            FrameContents::Dropped => HOST_BYTES_EACH,
            FrameContents::Kept => HOST_BYTES_EACH + Geometry::X86_64.page_size().0,
        };
        ByteSize(frames.saturating_mul(each))
    }
}

/// A yard on a simulated machine, with owners of its frames.
#[derive(Debug)]
pub struct SimFixture<'y> {
    /// The owners.
    pub vm: Vm<'y, SimPlatform>,
    yard: &'y SimYard,
}

/// Creates a yard, calls `run` with it, and checks that the yard is valid and every frame is free again.
///
/// # Errors
///
/// [`WorkloadError::Input`] if the host has no memory for the memory map; [`WorkloadError::RunTime`] for a failed check; and
/// the errors of `run`.
pub fn with_sim_fixture<R, E: From<WorkloadError>>(
    machine: &Machine,
    options: &SimOptions,
    run: impl FnOnce(&SimFixture<'_>) -> Result<R, E>,
) -> Result<R, E> {
    let yard = create_yard(machine, options)?;
    let (fixture, before) = create_owners(&yard, options)?;
    let result = run(&fixture)?;
    // SAFETY: `run` and its tasks have ended, and kept no view: only the fixture leads to the yard.
    unsafe { destroy(fixture.vm, before) }?;
    Ok(result)
}

pub(crate) fn create_yard(machine: &Machine, options: &SimOptions) -> Result<SimYard, WorkloadError> {
    let node_memory = options.node_memory(machine);
    let config = SimConfig {
        node_memory,
        policy: options.zone,
        sizing: options.sizing,
        lists: options.lists,
        costs: options.costs.to_vec(),
    };
    let yard = match options.init {
        SimInit::Eager => SimYard::new(machine, &config),
        SimInit::Deferred(reset) => SimYard::deferred(machine, &config, reset),
    };
    yard.map_err(refused)
}

/// Creates the owners. Also returns the number of free frames before.
fn create_owners<'y>(yard: &'y SimYard, options: &SimOptions) -> Result<(SimFixture<'y>, PageCount), WorkloadError> {
    let before = yard.stats().free_pages();
    let config = VmConfig { lru: options.lru, ..VmConfig::default() };
    let vm = Vm::create(&**yard, &config).map_err(WorkloadError::run_time)?;
    Ok((SimFixture { vm, yard }, before))
}

pub(crate) fn refused(error: SimError) -> WorkloadError {
    match error {
        SimError::NoMemory => WorkloadError::input(error),
        _ => WorkloadError::run_time(error.to_string()),
    }
}

impl SimFixture<'_> {
    /// `high` and `batch` of the first CPU's list in the first zone.
    #[must_use]
    pub fn list_sizes(&self) -> Option<(PageCount, PageCount)> {
        let zone = self.yard.stats().zones().next()?;
        self.yard.zone(zone.id).pcp(CpuId(0)).map(|lists| (lists.high, lists.batch))
    }

    /// Memory of all nodes.
    #[must_use]
    pub fn memory(&self) -> ByteSize {
        Geometry::X86_64.size_of(self.yard.frame_range().count())
    }

    /// Free memory.
    #[must_use]
    pub fn free_memory(&self) -> ByteSize {
        self.yard.geometry().size_of(self.yard.stats().free_pages())
    }

    /// The platform.
    pub(crate) fn platform(&self) -> &SimPlatform {
        self.yard.platform()
    }

    /// The virtual time of the running CPU; between runs, the end of the last one.
    #[inline]
    pub(crate) fn now(&self) -> Picos {
        self.platform().now()
    }

    /// Calls `set_up` as if on a CPU, in no time.
    pub(crate) fn set_up_on<R>(&self, cpu: CpuId, set_up: impl FnOnce() -> R) -> R {
        self.platform().set_up_on(cpu);
        let result = set_up();
        self.platform().set_up_on(CpuId(0));
        result
    }

    /// What time was spent on so far.
    pub(crate) fn profile(&self) -> Profile {
        self.platform().profile()
    }

    /// Runs tasks until all have ended.
    pub(crate) fn run<'t>(&'t self, tasks: Vec<(CpuId, Box<dyn FnOnce() + 't>)>) -> Result<(), WorkloadError> {
        self.yard.run(tasks).map(drop).map_err(refused)
    }

    /// Runs a task on the first CPU.
    pub(crate) fn run_on_first<R>(&self, task: impl FnOnce() -> R) -> Result<R, WorkloadError> {
        let result = RefCell::new(None);
        let body = || drop(result.replace(Some(task())));
        // Shortens the lifetime of the borrow to that of `body`.
        let yard: &SimYard = self.yard;
        yard.run(vec![(CpuId(0), Box::new(body) as Box<dyn FnOnce() + '_>)]).map_err(refused)?;
        result.into_inner().ok_or_else(|| WorkloadError::run_time("a virtual CPU did not end its task"))
    }
}
