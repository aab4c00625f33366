//! A yard on a simulated machine, and runs of tasks on its CPUs.

use std::fmt;
use std::io;
use std::ops::Deref;

use frameyard::boot::{BootError, InitJobs, InitMode, MapInit, PcpReset, ZoneLimits};
use frameyard::policy::ZonePolicy;
use frameyard::watermarks::PcpSizing;
use frameyard::{CpuId, Layout, MemoryTable, NodeId, PageCount, Pfn, PfnRange, Yard, YardConfig};
use frameyard_vm::VmError;

use crate::confined::Confined;
use crate::engine::{Engine, YardRegions};
use crate::fiber::{Fiber, Progress, take_spawned};
use crate::frame_bytes::FrameBytes;
use crate::list_access::ListAccess;
use crate::machine::Machine;
use crate::platform::SimPlatform;
use crate::region::{HostPages, ZeroedRegion};
use crate::time::Picos;

/// The first frame: at 4 GiB, above the low zones.
pub(crate) const FIRST_FRAME: Pfn = Pfn(0x10_0000);

/// The configuration of a yard on a simulated machine.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// Memory of each node, a multiple of a section.
    pub node_memory: PageCount,
    /// The transfer policy of the zones.
    pub policy: ZonePolicy,
    /// The sizes of per-CPU lists.
    pub sizing: PcpSizing,
    /// How CPUs use their own lists.
    pub lists: ListAccess,
    /// The names of the workload's costs, beside those of every machine
    /// ([`KernelCost::ALL`](crate::KernelCost::ALL)).
    pub costs: Vec<&'static str>,
}

/// Why a yard cannot be simulated.
#[derive(Debug)]
pub enum SimError {
    /// The yard cannot be created.
    Boot(BootError),
    /// The host has no memory for the memory map.
    NoMemory,
    /// The host has no range of addresses for the frames.
    NoAddresses,
    /// The host has no memory for a CPU's stack.
    NoStack(io::Error),
    /// The yard's frames cannot get owners.
    Owners(VmError),
    /// CPUs wait for locks that are never released.
    Deadlock {
        /// The number of waiting CPUs.
        waiting: usize,
    },
}

impl fmt::Display for SimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boot(error) => write!(f, "the yard of the simulated machine cannot be created: {error}"),
            Self::NoMemory => {
                f.write_str("the host has too little memory for the simulated memory map: simulate less memory")
            }
            Self::NoAddresses => {
                f.write_str("the host has no addresses for the simulated frames: simulate less memory")
            }
            Self::NoStack(error) => write!(f, "the host has no memory for the stack of a virtual CPU: {error}"),
            Self::Owners(error) => write!(f, "the owners of frames cannot be created: {error}"),
            Self::Deadlock { waiting } => write!(f, "{waiting} virtual CPUs wait for locks that are never released"),
        }
    }
}

impl std::error::Error for SimError {}

/// A yard on a simulated machine. Its frames have addresses; those that code reads or writes have memory.
pub struct SimYard {
    // Declared before the regions, so that it is dropped first.
    yard: Yard<SimPlatform>,
    map: ZeroedRegion,
    control: ZeroedRegion,
}

impl fmt::Debug for SimYard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimYard").field("frames", &self.yard.frame_range()).finish_non_exhaustive()
    }
}

impl Deref for SimYard {
    type Target = Yard<SimPlatform>;

    fn deref(&self) -> &Yard<SimPlatform> {
        &self.yard
    }
}

impl SimYard {
    /// A yard whose nodes are the sockets of a machine.
    ///
    /// # Errors
    ///
    /// [`SimError`] if the yard cannot be created, or the host has too little memory.
    pub fn new(machine: &Machine, config: &SimConfig) -> Result<Self, SimError> {
        Self::configured(machine, config, MapInit::default(), HostPages::Huge)
    }

    /// A yard of whose memory a part is used. The host backs only what is touched, in small pages: such a yard takes less memory and more
    /// time.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn sparse(machine: &Machine, config: &SimConfig) -> Result<Self, SimError> {
        Self::configured(machine, config, MapInit::default(), HostPages::Small)
    }

    /// A yard that was initialised in two steps. Early boot initialised a first section of each node and sized the
    /// per-CPU lists by it. Then the rest was initialised, and the lists were sized again or, as in kernels up to
    /// 5.3, not. No virtual time passes.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    ///
    /// # Panics
    ///
    /// If the rest cannot be initialised; the memory map is complete, so that does not happen.
    pub fn deferred(machine: &Machine, config: &SimConfig, pcp_reset: PcpReset) -> Result<Self, SimError> {
        let jobs = InitJobs { threads: Some(1), ..InitJobs::default() };
        let map_init = MapInit { mode: InitMode::Deferred, jobs, pcp_reset, ..MapInit::default() };
        let yard = Self::configured(machine, config, map_init, HostPages::Huge)?;
        yard.init().finish().expect("the whole map is present");
        Ok(yard)
    }

    fn configured(
        machine: &Machine,
        config: &SimConfig,
        map_init: MapInit,
        host_pages: HostPages,
    ) -> Result<Self, SimError> {
        let nodes: Vec<(PfnRange, NodeId)> = (0..machine.topology.sockets)
            .map(|node| {
                let before = PageCount(config.node_memory.0 * u64::from(node));
                (PfnRange::new(FIRST_FRAME + before, config.node_memory), NodeId(node))
            })
            .collect();
        let change = |yard_config: &mut YardConfig<'_>| {
            yard_config.policy = config.policy;
            yard_config.pcp_sizing = config.sizing;
            yard_config.map_init = map_init;
        };
        Self::create(machine, &nodes, config.lists, &config.costs, host_pages, change)
    }

    /// A yard with the given memory; `change` completes its configuration.
    pub(crate) fn create(
        machine: &Machine,
        nodes: &[(PfnRange, NodeId)],
        lists: ListAccess,
        costs: &[&'static str],
        host_pages: HostPages,
        change: impl FnOnce(&mut YardConfig<'_>),
    ) -> Result<Self, SimError> {
        let places: Vec<_> = (0..machine.cpus()).map(|cpu| machine.place(cpu)).collect();
        let cpus: Vec<NodeId> = places.iter().map(|place| NodeId(place.socket)).collect();
        let groups: Vec<u16> = places.iter().map(|place| place.group).collect();
        let mut yard_config =
            YardConfig { zone_limits: ZoneLimits::NONE, cache_groups: Some(&groups), ..YardConfig::new(&cpus) };
        change(&mut yard_config);
        let table = MemoryTable { memory: nodes, ..MemoryTable::default() };
        let layout = Layout::plan(&table, &yard_config).map_err(SimError::Boot)?;
        let map = ZeroedRegion::new(layout.map_bytes(), host_pages).ok_or(SimError::NoMemory)?;
        let control = ZeroedRegion::new(layout.control_bytes(), host_pages).ok_or(SimError::NoMemory)?;
        let bytes =
            FrameBytes::new(layout.frames(), yard_config.geometry.page_shift().into()).ok_or(SimError::NoAddresses)?;
        let regions = YardRegions {
            frames: layout.frames(),
            nodes: nodes.to_vec(),
            control: (control.raw().base.addr().get(), control.raw().size.0 as usize),
            bytes: bytes.range(),
            map: map.raw().base.addr().get(),
            host_pages,
        };
        let platform = SimPlatform::new(machine, regions, bytes, lists, costs).ok_or(SimError::NoMemory)?;
        // SAFETY: the regions are fresh, zeroed, of the planned sizes, and dropped after the yard.
        let yard = unsafe { Yard::create(&table, &yard_config, &layout, map.raw(), control.raw(), platform) };
        Ok(Self { yard: yard.map_err(SimError::Boot)?, map, control })
    }

    /// The most bytes of host memory that the yard and the simulated machine take, with task stacks and backed
    /// frames; and the bytes of the memory map.
    #[must_use]
    pub fn bytes(&self) -> (u64, u64) {
        let own = self.yard.platform().bytes() as u64;
        let map = self.map.raw().size.0;
        (map + self.control.raw().size.0 + own, map)
    }

    /// Runs tasks, each on its own CPU, from the same moment until all have ended. Returns the end time. CPUs without
    /// a task are idle.
    ///
    /// # Errors
    ///
    /// [`SimError::NoStack`], and [`SimError::Deadlock`] if tasks wait for each other.
    ///
    /// # Panics
    ///
    /// If a task panics, two tasks have one CPU, or a CPU does not exist.
    pub fn run<'t>(&'t self, tasks: Vec<(CpuId, Box<dyn FnOnce() + 't>)>) -> Result<Picos, SimError> {
        let engine = self.yard.platform().engine();
        let mut fibers = Fibers::new(self.cpu_count());
        let mut cpus = Vec::new();
        for (cpu, task) in tasks {
            fibers.add(cpu.index(), Fiber::new(task).map_err(SimError::NoStack)?);
            cpus.push(cpu.index());
        }
        engine.borrow().begin(&cpus);
        // Dropped before the fibers, so that unwinding code runs as set-up.
        let _running = Running(engine);
        loop {
            let Some(cpu) = engine.borrow().next() else { break };
            let fiber = fibers.by_cpu[cpu].as_mut().expect("only CPUs with a task are scheduled");
            let progress = fiber.resume();
            for (worker, fiber) in take_spawned() {
                fibers.add(worker, fiber);
            }
            if progress == Progress::Done {
                fibers.remove(cpu);
                engine.borrow().task_ended();
            }
        }
        let waiting = engine.borrow().waiting();
        if waiting > 0 {
            return Err(SimError::Deadlock { waiting });
        }
        Ok(engine.borrow().end())
    }

    fn cpu_count(&self) -> usize {
        self.yard.platform().engine().borrow().machine().cpus()
    }
}

/// The fibers of a run. Dropped in reverse order of arrival: a worker before the task that it works for.
struct Fibers<'t> {
    by_cpu: Vec<Option<Fiber<'t>>>,
    /// CPUs in order of their fibers' arrival.
    order: Vec<usize>,
}

impl<'t> Fibers<'t> {
    fn new(cpus: usize) -> Self {
        Self { by_cpu: std::iter::repeat_with(|| None).take(cpus).collect(), order: Vec::new() }
    }

    fn add(&mut self, cpu: usize, fiber: Fiber<'t>) {
        assert!(self.by_cpu[cpu].is_none(), "CPU {cpu} has a task already");
        self.by_cpu[cpu] = Some(fiber);
        self.order.push(cpu);
    }

    fn remove(&mut self, cpu: usize) {
        self.by_cpu[cpu] = None;
        self.order.retain(|other| *other != cpu);
    }
}

impl Drop for Fibers<'_> {
    fn drop(&mut self) {
        // Spawned fibers that have not begun, in an aborted run.
        drop(take_spawned());
        while let Some(cpu) = self.order.pop() {
            self.by_cpu[cpu] = None;
        }
    }
}

/// Ends the run on drop, however it ended.
struct Running<'e>(&'e Confined<Engine>);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.borrow().stop();
    }
}
