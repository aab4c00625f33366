//! Simulated machines: a description's regular topology, its memory above 4 GiB, and the costs under `[simulation]`.

use std::fmt;
use std::str::FromStr;

use frameyard::units::{ByteSize, Geometry, PhysAddr};
use frameyard_machines::{
    AccessCosts, AddressRange, Caches, Calibration, Clock, KernelOverhead, Lock, MapInitCosts, Memory, Simulation,
    Topology, built_in_names, from_toml, resolve_with_text,
};

mod kernel_cost;
mod parameter;
mod place;

pub use kernel_cost::KernelCost;
pub(crate) use parameter::clock_step;
pub(crate) use place::{Distance, Place};

/// A machine to simulate.
///
/// A socket is a node. The simulator numbers CPUs core by core, the first threads of all sockets before the second threads,
/// whatever numbering the description names: tasks fill cores before they share them.
#[derive(Clone, PartialEq, Debug)]
pub struct Machine {
    /// The name of the description.
    pub name: String,
    /// Sockets, cores, threads, and the cores that share a last-level cache (a *group*).
    pub topology: Topology,
    /// Sizes of pages, sections and blocks. Only [`deferred_init`](crate::deferred_init) uses them: the workloads have pages
    /// of 4 KiB on every machine.
    pub geometry: Geometry,
    /// The size of the machine's memory.
    pub installed: ByteSize,
    /// Memory of each node above 4 GiB, which is initialised last.
    pub high_memory: Vec<ByteSize>,
    /// Capacities of caches.
    pub caches: Caches,
    /// Costs of accesses.
    pub costs: AccessCosts,
    /// Memory channels.
    pub memory: Memory,
    /// Clocks of the cores.
    pub clock: Clock,
    /// Hand-over of locks.
    pub lock: Lock,
    /// Costs of writing the memory map.
    pub map_init: MapInitCosts,
    /// Costs of a kernel beside its allocator.
    pub kernel_overhead: KernelOverhead,
    /// The published rows that parameters were fitted on.
    pub calibration: Calibration,
}

/// Why a machine cannot be simulated, or a parameter not be set.
#[derive(Clone, PartialEq, Debug)]
pub enum MachineError {
    /// The description is unknown, unreadable or invalid.
    Description(frameyard_machines::MachineError),
    /// The description of that name has no costs.
    NotSimulated(String),
    /// The machine has no such parameter.
    NoParameter(String),
    /// A parameter's new value is outside its bounds.
    OutOfBounds {
        /// The parameter's path.
        path: String,
        /// The lower bound.
        least: f64,
        /// The upper bound.
        most: f64,
    },
}

impl fmt::Display for MachineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Description(error) => error.fmt(f),
            Self::NotSimulated(name) => {
                let names: Vec<&str> = Machine::names().collect();
                write!(
                    f,
                    "{name} cannot be simulated: its description has no [simulation] section with the costs of accesses; \
                     simulated are {}",
                    names.join(", ")
                )
            }
            Self::NoParameter(path) => {
                write!(f, "the machine has no parameter '{path}': write table.key, or clock.mhz[N] with N from 0")
            }
            Self::OutOfBounds { path, least, most } => write!(f, "{path} must be from {least} to {most}"),
        }
    }
}

impl std::error::Error for MachineError {}

impl From<frameyard_machines::MachineError> for MachineError {
    fn from(error: frameyard_machines::MachineError) -> Self {
        Self::Description(error)
    }
}

/// Early boot initialises the zones below this address.
const LOW_END: PhysAddr = PhysAddr(4 << 30);

impl Machine {
    /// The machine of a description.
    ///
    /// # Errors
    ///
    /// [`MachineError::NotSimulated`] if the description has no costs, and [`MachineError::NoParameter`] if its
    /// calibration names a parameter that does not exist.
    ///
    /// # Panics
    ///
    /// If the description has costs and has not passed [`validate`](frameyard_machines::Machine::validate).
    pub fn new(description: &frameyard_machines::Machine) -> Result<Self, MachineError> {
        let simulation = description.simulation.clone();
        let simulation = simulation.ok_or_else(|| MachineError::NotSimulated(description.name.clone()))?;
        let Simulation { caches, costs, memory, clock, lock, map_init, kernel_overhead, calibration } = simulation;
        let high = |range: &AddressRange| range.end.0.saturating_sub(range.start.max(LOW_END).0);
        let high_memory = description.nodes.iter().map(|node| ByteSize(node.memory.iter().map(high).sum())).collect();
        let machine = Self {
            name: description.name.clone(),
            topology: Topology::of(&description.cpus).expect("a valid simulated machine has a regular topology"),
            geometry: description.geometry,
            installed: description.installed_bytes(),
            high_memory,
            caches,
            costs,
            memory,
            clock,
            lock,
            map_init,
            kernel_overhead,
            calibration,
        };
        match machine.calibration.parameters.iter().find(|path| machine.parameter(path).is_none()) {
            Some(path) => Err(MachineError::NoParameter(path.clone())),
            None => Ok(machine),
        }
    }

    /// A built-in machine by its name, or the machine of a file, with the text of its description.
    ///
    /// # Errors
    ///
    /// The errors of [`resolve_with_text`] and of [`new`](Self::new).
    pub fn resolve(argument: &str) -> Result<(Self, String), MachineError> {
        let (description, text) = resolve_with_text(argument)?;
        Ok((Self::new(&description)?, text))
    }

    /// A built-in machine.
    ///
    /// # Errors
    ///
    /// [`MachineError`] if there is none of that name, or it has no costs.
    pub fn built_in(name: &str) -> Result<Self, MachineError> {
        let unknown = || frameyard_machines::MachineError::Unknown { name: name.to_owned(), nearest: None };
        Self::new(&frameyard_machines::built_in(name).ok_or_else(unknown)?)
    }

    /// The names of the built-in machines that can be simulated.
    pub fn names() -> impl Iterator<Item = &'static str> {
        let is_simulated = |name: &&str| frameyard_machines::built_in(name).is_some_and(|it| it.simulation.is_some());
        built_in_names().filter(is_simulated)
    }

    /// The number of CPUs.
    #[must_use]
    pub fn cpus(&self) -> usize {
        self.cores() * usize::from(self.topology.threads_per_core)
    }

    pub(crate) fn cores(&self) -> usize {
        usize::from(self.topology.sockets) * usize::from(self.topology.cores_per_socket)
    }

    pub(crate) fn groups(&self) -> usize {
        self.cores().div_ceil(usize::from(self.topology.cores_per_cache))
    }
}

impl FromStr for Machine {
    type Err = MachineError;

    fn from_str(text: &str) -> Result<Self, MachineError> {
        Self::new(&from_toml("machine", text)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_simulated_machines_are_those_with_costs() {
        let machines: Vec<(&str, usize)> =
            Machine::names().map(|name| (name, Machine::built_in(name).unwrap().cpus())).collect();
        let cpus = [104, 32, 72, 16, 4, 4, 256, 512, 112, 224, 40, 88, 8, 1024];
        assert_eq!(machines.iter().map(|(_, cpus)| *cpus).collect::<Vec<_>>(), cpus, "{machines:?}");
        let refused = Machine::built_in("server-1t").unwrap_err();
        assert_eq!(refused, MachineError::NotSimulated("server-1t".to_owned()));
        assert!(
            refused.to_string().contains("no [simulation] section") && refused.to_string().contains("broadwell-40")
        );
    }

    #[test]
    fn memory_above_4_gib_is_deferred() {
        let machine = Machine::built_in("haswell-2699v3").unwrap();
        assert_eq!(
            (machine.installed, machine.high_memory),
            (ByteSize::gib(256), [126, 128].map(ByteSize::gib).into())
        );
    }

    #[test]
    fn absent_kernel_overheads_have_their_defaults() {
        let text = frameyard_machines::built_in_text("haswell-2699v3").unwrap();
        let text = format!("{text}\n[simulation.kernel_overhead]\nfault_path_cycles = 1.5\n");
        let overhead = text.parse::<Machine>().unwrap().kernel_overhead;
        assert_eq!(overhead, KernelOverhead { fault_path_cycles: 1.5, ..KernelOverhead::default() });
    }

    #[test]
    fn invalid_descriptions_and_unknown_names_are_refused() {
        assert!(matches!("nonsense = 1".parse::<Machine>(), Err(MachineError::Description(_))));
        assert!(matches!(Machine::built_in("vax"), Err(MachineError::Description(_))));
        let text = frameyard_machines::built_in_text("broadwell-40").unwrap();
        let text = text.replace("\"clock.smt_slowdown\"", "\"clock.slowdown\"");
        assert_eq!(text.parse::<Machine>(), Err(MachineError::NoParameter("clock.slowdown".to_owned())));
    }
}
