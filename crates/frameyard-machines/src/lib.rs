// Links of the README, which come first so that they replace its own links to docs.rs.
//! [`Machine`]: Machine
//! [`MachineNode`]: MachineNode
//! [`Cpu`]: Cpu
//! [`Simulation`]: Simulation
//! [`built_in`]: built_in
//! [`from_toml`]: from_toml
//! [`from_iomem`]: from_iomem
//! [`from_boot_log`]: from_boot_log
//! [`host`]: fn@host
//! [`resolve`]: fn@resolve
//! [`MachineError`]: MachineError
//!
#![doc = include_str!("../README.md")]

use frameyard_units::{ByteSize, CpuId, Geometry, NodeId, PhysAddr};

mod areas;
mod bootlog;
mod builtin;
mod cpulist;
mod description;
mod error;
mod host;
mod iomem;
mod layout;
mod print;
mod range;
mod resolve;
mod scale;
mod simulation;
mod topology;
mod validate;

pub use bootlog::from_boot_log;
pub use builtin::{built_in, built_in_names, built_in_text};
pub use cpulist::{CpuListError, format_cpu_list, parse_cpu_list};
pub use description::from_toml;
pub use error::{MachineError, Place, Problem};
pub use host::{HostMachine, MemorySource, host};
pub use iomem::from_iomem;
pub use range::AddressRange;
pub use resolve::{resolve, resolve_with_text};
pub use simulation::{
    AccessCosts, Caches, Calibration, Clock, KernelOverhead, Lock, LockMethod, MapInitCosts, Memory, Simulation,
};
pub use topology::{Numbering, Topology};

/// The largest number of nodes of a machine, as in the kernel's largest configuration.
pub const MAX_NODES: usize = 1024;

/// The largest number of CPUs of a machine, as in the kernel's largest x86-64 configuration.
pub const MAX_CPUS: usize = 8192;

/// The upper bound of physical addresses, which have at most 52 bits as on x86-64. No range ends behind it.
pub const ADDRESS_LIMIT: PhysAddr = PhysAddr(1 << 52);

/// The distance of a node to itself (the kernel's `LOCAL_DISTANCE`).
pub const LOCAL_DISTANCE: u8 = 10;

/// The default distance between two nodes (the kernel's `REMOTE_DISTANCE`).
pub const REMOTE_DISTANCE: u8 = 20;

/// A machine: its memory, nodes and CPUs.
///
/// A caller may build one from the public fields. [`Machine::validate`] checks their consistency.
#[derive(Clone, PartialEq, Debug)]
pub struct Machine {
    /// A short name, for example that of the built-in machine or of the file.
    pub name: String,
    /// A sentence about the machine.
    pub description: String,
    /// The sources of the figures, with the assumptions.
    pub source: String,
    /// Page size, section size and orders.
    pub geometry: Geometry,
    /// The ends of the address-limited zones.
    pub zones: ZoneLimits,
    /// The CPUs. The index is the [`CpuId`].
    pub cpus: Vec<Cpu>,
    /// The memory nodes. The index is the [`NodeId`].
    pub nodes: Vec<MachineNode>,
    /// Distances between nodes as in the firmware's SLIT table, one row for each node. 10 is local.
    pub distances: Vec<Vec<u8>>,
    /// Memory in use before the allocator starts.
    pub reserved: Vec<AddressRange>,
    /// Contiguous memory areas.
    pub cma: Vec<AddressRange>,
    /// The clock of a CPU in MHz, if known.
    pub clock_mhz: Option<u32>,
    /// The costs of a simulated machine. `None`: the machine cannot be simulated.
    pub simulation: Option<Simulation>,
}

/// A CPU: a hardware thread, and its node, socket, core and cache.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Cpu {
    /// The node of its local memory.
    pub node: NodeId,
    /// Its socket (package).
    pub socket: u16,
    /// Its core, numbered within the socket.
    pub core: u16,
    /// Its thread within the core, from 0.
    pub thread: u8,
    /// Its group of CPUs that share a last-level cache, numbered over the whole machine.
    pub cache: u16,
}

/// The memory of a node. A node may have none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct MachineNode {
    /// Usable memory, lowest first.
    pub memory: Vec<AddressRange>,
}

/// The ends of the address-limited zones. `None`: the machine has no such zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ZoneLimits {
    /// The first address behind the DMA zone.
    pub dma: Option<PhysAddr>,
    /// The first address behind the DMA32 zone.
    pub dma32: Option<PhysAddr>,
}

impl ZoneLimits {
    /// DMA below 16 MiB and DMA32 below 4 GiB.
    pub const X86_64: Self = Self { dma: Some(PhysAddr(16 << 20)), dma32: Some(PhysAddr(4 << 30)) };
}

impl Machine {
    /// The usable memory of all nodes.
    ///
    /// On a PC this is less than [`Machine::installed_bytes`]. The sum saturates at `u64::MAX`, which only a machine that
    /// fails [`Machine::validate`] reaches.
    #[must_use]
    pub fn memory_bytes(&self) -> ByteSize {
        sum(self.memory_ranges().map(|(_, range)| range))
    }

    /// The memory of a node. 0 for a node that the machine does not have.
    #[must_use]
    pub fn node_bytes(&self, node: NodeId) -> ByteSize {
        sum(self.nodes.get(node.index()).into_iter().flat_map(|node| node.memory.iter().copied()))
    }

    /// The installed memory: usable memory plus the holes in the first MiB, where a PC's firmware and video window hide
    /// memory.
    ///
    /// This is the size on the machine's data sheet, and the argument of [`Machine::scaled`]. On a machine without memory
    /// in the first MiB it equals [`Machine::memory_bytes`]. Memory that firmware reserves elsewhere does not count,
    /// because memory maps do not state its amount.
    #[must_use]
    pub fn installed_bytes(&self) -> ByteSize {
        ByteSize(self.memory_bytes().0.saturating_add(self.low_holes().0))
    }

    /// The memory ranges with their nodes, node by node, and lowest first within a node.
    pub fn memory_ranges(&self) -> impl Iterator<Item = (NodeId, AddressRange)> + '_ {
        self.nodes
            .iter()
            .enumerate()
            .flat_map(|(node, of)| of.memory.iter().map(move |range| (NodeId(node as u16), *range)))
    }

    /// The CPUs of a node, lowest first.
    pub fn cpus_of(&self, node: NodeId) -> impl Iterator<Item = CpuId> + '_ {
        self.cpus.iter().enumerate().filter(move |(_, cpu)| cpu.node == node).map(|(id, _)| CpuId(id as u32))
    }

    /// The first address behind all memory. 0 for a machine without memory.
    #[must_use]
    pub fn memory_end(&self) -> PhysAddr {
        self.memory_ranges().map(|(_, range)| range.end).max().unwrap_or_default()
    }

    /// The size of the unusable part of the first MiB. 0 on a machine without memory there.
    fn low_holes(&self) -> ByteSize {
        let low = AddressRange::new(PhysAddr(0), PhysAddr(FIRST_MIB));
        let usable = sum(self.memory_ranges().map(|(_, range)| range.intersection(low)));
        if usable.0 == 0 { usable } else { ByteSize(FIRST_MIB.saturating_sub(usable.0)) }
    }
}

/// The end of the memory hole of a PC.
const FIRST_MIB: u64 = 1 << 20;

fn sum(ranges: impl Iterator<Item = AddressRange>) -> ByteSize {
    ByteSize(ranges.fold(0u64, |bytes, range| bytes.saturating_add(range.bytes().0)))
}

/// The default distances: [`LOCAL_DISTANCE`] to itself, [`REMOTE_DISTANCE`] to every other node.
fn default_distances(nodes: usize) -> Vec<Vec<u8>> {
    (0..nodes)
        .map(|from| (0..nodes).map(|to| if from == to { LOCAL_DISTANCE } else { REMOTE_DISTANCE }).collect())
        .collect()
}
