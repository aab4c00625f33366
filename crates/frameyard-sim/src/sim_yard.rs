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
use crate::engine::{Engine, Ground};
use crate::fiber::{Fiber, Progress, take_spawned};
use crate::frame_bytes::FrameBytes;
use crate::machine::Machine;
use crate::platform::SimPlatform;
use crate::region::ZeroedRegion;
use crate::time::Picos;

/// Binary logarithm of the bytes of a page.
const PAGE_SHIFT: u32 = 12;

/// Where memory begins: at 4 GiB, above what the low zones could take.
pub(crate) const FIRST_FRAME: Pfn = Pfn(0x10_0000);

/// What a yard on a simulated machine is like.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// Memory of each node, a multiple of a section.
    pub node_memory: PageCount,
    /// How frames cross between CPUs and zones.
    pub policy: ZonePolicy,
    /// How per-CPU lists are sized.
    pub sizing: PcpSizing,
    /// The names of costs that tasks will spend on, beside those that every machine knows ([`KernelCost::ALL`](crate::KernelCost::ALL)).
    pub costs: Vec<&'static str>,
}

/// Why there is no simulated yard.
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
    /// There are no owners of frames in the yard.
    Owners(VmError),
    /// CPUs wait for locks that nobody gives back.
    Deadlock {
        /// How many.
        waiting: usize,
    },
}

impl fmt::Display for SimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boot(error) => write!(f, "no yard on the simulated machine: {error}"),
            Self::NoMemory => f.write_str("the host has no memory for the map of the simulated machine: simulate less"),
            Self::NoAddresses => {
                f.write_str("the host reserves no addresses for the frames of the simulated machine: simulate less")
            }
            Self::NoStack(error) => write!(f, "the host has no memory for the stack of a virtual CPU: {error}"),
            Self::Owners(error) => write!(f, "no owners of frames on the simulated machine: {error}"),
            Self::Deadlock { waiting } => write!(f, "{waiting} virtual CPUs wait for locks that nobody gives back"),
        }
    }
}

impl std::error::Error for SimError {}

/// A yard on a simulated machine. Frames have addresses, and those whose bytes somebody looks at have memory.
pub struct SimYard {
    // Before the regions, so that it is dropped first.
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
    /// [`SimError`] where the yard cannot be created, or the host has too little memory.
    pub fn new(machine: &Machine, config: &SimConfig) -> Result<Self, SimError> {
        Self::configured(machine, config, MapInit::default())
    }

    /// A yard that came up in two steps: early boot brought up a first section of each node, and per-CPU lists were sized by
    /// that; then all the rest came up, and the lists were sized again or, as in kernels up to 5.3, not. No virtual time passes.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    ///
    /// # Panics
    ///
    /// Where the rest of the map does not come up: never, for all of it is there.
    pub fn deferred(machine: &Machine, config: &SimConfig, pcp_reset: PcpReset) -> Result<Self, SimError> {
        let jobs = InitJobs { threads: Some(1), ..InitJobs::default() };
        let map_init = MapInit { mode: InitMode::Deferred, jobs, pcp_reset, ..MapInit::default() };
        let yard = Self::configured(machine, config, map_init)?;
        yard.finish_init().expect("all of the map is there, and its creator finishes it");
        Ok(yard)
    }

    fn configured(machine: &Machine, config: &SimConfig, map_init: MapInit) -> Result<Self, SimError> {
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
        Self::create(machine, &nodes, &config.costs, change)
    }

    /// A yard with memory of a machine's choice, and otherwise as `change` has it.
    pub(crate) fn create(
        machine: &Machine,
        nodes: &[(PfnRange, NodeId)],
        costs: &[&'static str],
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
        let map = ZeroedRegion::new(layout.map_bytes()).ok_or(SimError::NoMemory)?;
        let control = ZeroedRegion::new(layout.control_bytes()).ok_or(SimError::NoMemory)?;
        let bytes = FrameBytes::new(layout.frames(), PAGE_SHIFT).ok_or(SimError::NoAddresses)?;
        let ground = Ground {
            frames: layout.frames(),
            nodes: nodes.to_vec(),
            control: (control.raw().base.addr().get(), control.raw().size.0 as usize),
            bytes: bytes.range(),
            map: map.raw().base.addr().get(),
        };
        let platform = SimPlatform::new(machine, ground, bytes, costs).ok_or(SimError::NoMemory)?;
        // SAFETY: the regions are fresh and zeroed, as large as planned, and dropped after the yard.
        let yard = unsafe { Yard::create(&table, &yard_config, &layout, map.raw(), control.raw(), platform) };
        Ok(Self { yard: yard.map_err(SimError::Boot)?, map, control })
    }

    /// Bytes that the yard and the simulated machine hold of the host's memory, at most, and those of the memory map. Stacks of
    /// tasks and the frames whose addresses somebody has asked for are among them, as many as there have been.
    #[must_use]
    pub fn bytes(&self) -> (u64, u64) {
        let own = self.yard.platform().bytes() as u64;
        let map = self.map.raw().size.0;
        (map + self.control.raw().size.0 + own, map)
    }

    /// Runs tasks, each on a CPU of its own, from the same moment on until all have ended; when that was. CPUs without a
    /// task are idle.
    ///
    /// # Errors
    ///
    /// [`SimError::NoStack`], and [`SimError::Deadlock`] where tasks wait for each other.
    ///
    /// # Panics
    ///
    /// With a task's panic; and where two tasks are on one CPU, or a CPU does not exist.
    pub fn run<'t>(&'t self, tasks: Vec<(CpuId, Box<dyn FnOnce() + 't>)>) -> Result<Picos, SimError> {
        let engine = self.yard.platform().engine();
        let mut fibers = Fibers::new(self.cpu_count());
        let mut cpus = Vec::new();
        for (cpu, task) in tasks {
            fibers.add(cpu.index(), Fiber::new(task).map_err(SimError::NoStack)?);
            cpus.push(cpu.index());
        }
        engine.borrow().begin(&cpus);
        // Dropped before the fibers: what a panic unwinds there runs as set-up does.
        let _running = Running(engine);
        loop {
            let Some(cpu) = engine.borrow().next() else { break };
            let fiber = fibers.by_cpu[cpu].as_mut().expect("only CPUs with tasks are scheduled");
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

/// The fibers of a run. The last that came is dropped first: a worker before the task that it works for.
struct Fibers<'t> {
    by_cpu: Vec<Option<Fiber<'t>>>,
    /// CPUs in the order in which their fibers came.
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
        // Those that have not begun, where a run broke off.
        drop(take_spawned());
        while let Some(cpu) = self.order.pop() {
            self.by_cpu[cpu] = None;
        }
    }
}

/// Says, when it is dropped, that a run is over, whichever way it ended.
struct Running<'e>(&'e Confined<Engine>);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.borrow().stop();
    }
}
