//! What a simulated run stands on: a yard on a simulated machine with what owns its frames, made for it and checked behind it.

use std::cell::RefCell;

use frameyard::{ByteSize, CpuId, Geometry, PageCount, PcpReset, PcpSizing, ZonePolicy};
use frameyard_host::HostTopology;
use frameyard_sim::{Machine, Picos, Profile, SimConfig, SimError, SimPlatform, SimYard};
use frameyard_vm::{LruPolicy, Vm, VmConfig};

use crate::Failure;
use crate::output::RoundedSize;
use crate::workload::ground::{check_all_is_back, free_memory};

/// Bytes that the host needs for a simulated frame: its page structure, what is known of its line, and a share of the rest.
const HOST_BYTES_EACH: u64 = 64 + 8 + 8;

/// Whether frames have contents that somebody looks at, for which the host needs as much memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Contents {
    /// What tasks write nobody looks at.
    #[default]
    Unseen,
    /// All of them are written and looked at.
    Kept,
}

/// What a simulated yard is like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SimOptions {
    /// Memory of all nodes together.
    pub(crate) memory: ByteSize,
    /// The policy of zones.
    pub(crate) zone: ZonePolicy,
    /// The policy of the lists of used pages.
    pub(crate) lru: LruPolicy,
    /// How per-CPU lists are sized.
    pub(crate) sizing: PcpSizing,
    /// What frames hold.
    pub(crate) contents: Contents,
    /// When memory came up.
    pub(crate) came_up: CameUp,
    /// Costs that the workload spends on.
    pub(crate) costs: &'static [&'static str],
}

/// When the memory of a simulated yard came up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CameUp {
    /// All of it when the yard was made.
    AtOnce,
    /// Most of it after per-CPU lists had been sized by the rest; they were sized again, or not.
    Deferred(PcpReset),
}

/// A yard on a simulated machine, with what owns its frames.
#[derive(Debug)]
pub(crate) struct SimGround<'y> {
    /// The owners.
    pub(crate) vm: Vm<'y, SimPlatform>,
    yard: &'y SimYard,
}

/// Memory of a node, of so much memory of all nodes: whole sections, at least one.
fn node_memory(machine: &Machine, memory: ByteSize) -> PageCount {
    let geometry = Geometry::X86_64;
    let section = geometry.section_size().0;
    let sections = memory.0 / u64::from(machine.topology.sockets) / section;
    PageCount(sections.max(1) * (section / geometry.page_size().0))
}

/// Makes a yard, lets `run` use it, and checks that nothing is wrong and nothing is lost.
///
/// # Errors
///
/// [`Failure::Input`] where the host cannot hold the memory map; [`Failure::RunTime`] for what `run` or a check finds.
pub(crate) fn on_sim_ground<R>(
    machine: &Machine,
    options: &SimOptions,
    run: impl FnOnce(&SimGround<'_>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let node_memory = node_memory(machine, options.memory);
    let frames = PageCount(node_memory.0 * u64::from(machine.topology.sockets));
    check_host(&machine.name, frames, options.contents)?;
    let config = SimConfig { node_memory, policy: options.zone, sizing: options.sizing, costs: options.costs.to_vec() };
    let yard = match options.came_up {
        CameUp::AtOnce => SimYard::new(machine, &config),
        CameUp::Deferred(reset) => SimYard::deferred(machine, &config, reset),
    };
    let yard = yard.map_err(refused)?;
    let before = yard.free_pages();
    let vm = Vm::create(&*yard, &VmConfig { lru: options.lru, ..VmConfig::default() }).map_err(Failure::run_time)?;
    let result = run(&SimGround { vm, yard: &yard })?;
    vm.lru_drain_all();
    vm.validate().map_err(Failure::run_time)?;
    yard.validate().map_err(Failure::run_time)?;
    vm.destroy().map_err(Failure::run_time)?;
    check_all_is_back(&yard, before).map_err(Failure::run_time)?;
    Ok(result)
}

/// Refuses a machine whose memory map, and what frames hold, the host has no memory for.
fn check_host(machine: &str, frames: PageCount, contents: Contents) -> Result<(), Failure> {
    let host = HostTopology::current().map_err(Failure::run_time)?;
    let available = host.available_memory().map_err(Failure::run_time)?;
    let each = match contents {
        Contents::Unseen => HOST_BYTES_EACH,
        Contents::Kept => HOST_BYTES_EACH + Geometry::X86_64.page_size().0,
    };
    let needed = ByteSize(frames.0.saturating_mul(each));
    if needed <= available {
        return Ok(());
    }
    Err(Failure::input(format!(
        "{machine}: simulating {} of memory takes {} and this host has {} available: give the machine less --memory, or run fewer --tasks",
        RoundedSize(Geometry::X86_64.size_of(frames)),
        RoundedSize(needed),
        RoundedSize(available)
    )))
}

fn refused(error: SimError) -> Failure {
    match error {
        SimError::NoMemory => Failure::input(error),
        _ => Failure::run_time(error.to_string()),
    }
}

impl SimGround<'_> {
    /// How the lists of the first CPU are sized in its own zone: `high` and `batch`.
    pub(crate) fn list_sizes(&self) -> Option<(PageCount, PageCount)> {
        let zone = self.yard.zones().next()?;
        self.yard.pcp_statistics(zone.id, CpuId(0)).map(|lists| (lists.high, lists.batch))
    }

    /// Memory of all nodes.
    pub(crate) fn memory(&self) -> ByteSize {
        Geometry::X86_64.size_of(self.yard.frame_range().count())
    }

    /// Memory that is free.
    pub(crate) fn free_memory(&self) -> ByteSize {
        free_memory(self.yard)
    }

    /// The platform.
    pub(super) fn platform(&self) -> &SimPlatform {
        self.yard.platform()
    }

    /// The virtual time of the CPU that runs; between runs, when the last one ended.
    #[inline]
    pub(super) fn now(&self) -> Picos {
        self.platform().now()
    }

    /// Sets something up as if on a CPU, in no time.
    pub(super) fn set_up_on<R>(&self, cpu: CpuId, set_up: impl FnOnce() -> R) -> R {
        self.platform().set_up_on(cpu);
        let result = set_up();
        self.platform().set_up_on(CpuId(0));
        result
    }

    /// Where time has gone.
    pub(super) fn profile(&self) -> Profile {
        self.platform().profile()
    }

    /// Runs tasks until all have ended.
    pub(super) fn run<'t>(&'t self, tasks: Vec<(CpuId, Box<dyn FnOnce() + 't>)>) -> Result<(), Failure> {
        self.yard.run(tasks).map(drop).map_err(refused)
    }

    /// Runs a task on the first CPU.
    pub(super) fn run_on_first<R>(&self, task: impl FnOnce() -> R) -> Result<R, Failure> {
        let result = RefCell::new(None);
        let body = || drop(result.replace(Some(task())));
        // The yard may be borrowed for less long than it lives.
        let yard: &SimYard = self.yard;
        yard.run(vec![(CpuId(0), Box::new(body) as Box<dyn FnOnce() + '_>)]).map_err(refused)?;
        result.into_inner().ok_or_else(|| Failure::run_time("a virtual CPU did not end its task"))
    }
}
