//! The machine that the program runs on.
//!
//! [`files`] reads the kernel's files. [`cpus`] builds the CPUs from them. This module adds memory and builds the machine.

use core::fmt;
use std::path::Path;

use frameyard_units::{Geometry, NodeId, PhysAddr};

use super::iomem::system_ram;
use super::layout::{divide, pc_nodes, shares};
use super::{
    AddressRange, Cpu, LOCAL_DISTANCE, Machine, MachineError, MachineNode, ZoneLimits, default_distances,
    parse_cpu_list,
};

mod cpus;
mod files;

use files::Files;

/// The host as a machine, with its sources.
#[derive(Clone, PartialEq, Debug)]
pub struct HostMachine {
    /// The machine. It has passed [`Machine::validate`].
    pub machine: Machine,
    /// The source of its memory.
    pub memory_source: MemorySource,
    /// Other differences from the real host, one sentence each.
    pub notes: Vec<String>,
}

/// The source of the host's memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MemorySource {
    /// `/proc/iomem`: sizes and addresses are real.
    ResourceMap,
    /// `MemTotal` of `/proc/meminfo`: the size is real, without the kernel's own memory. The addresses are those of a
    /// typical PC.
    MemTotal {
        /// The reason that the real addresses are unknown.
        why: String,
    },
}

impl fmt::Display for MemorySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ResourceMap => write!(f, "memory as in /proc/iomem"),
            Self::MemTotal { why } => {
                write!(f, "memory as much as MemTotal in /proc/meminfo, laid out as on a PC, because {why}")
            }
        }
    }
}

/// The machine of the kernel whose files are under `root`. `/` is the machine that the program runs on.
///
/// Memory comes from `/proc/iomem` if its addresses are visible, else from `/proc/meminfo`. CPUs, nodes and distances
/// come from `/sys/devices/system`. If files are missing, the simplest value applies, for example one node, or one core
/// for each CPU. If numbers of CPUs or nodes have gaps, they are renumbered. A note states each such change.
///
/// # Errors
///
/// [`MachineError::NoMemoryMap`] if neither file states the memory, and the errors of [`Machine::validate`].
pub fn host(root: &Path) -> Result<HostMachine, MachineError> {
    let mut host = Host { files: Files::new(root), nodes: Vec::new(), notes: Vec::new() };
    host.nodes = host.node_numbers();
    let cpus = host.cpus();
    let (nodes, memory_source) = host.memory()?;
    let machine = Machine {
        name: "host".to_owned(),
        description: host.files.cpu_info("model name").unwrap_or_else(|| "this machine".to_owned()),
        source: "the host's /proc and /sys".to_owned(),
        geometry: Geometry::X86_64,
        zones: ZoneLimits::X86_64,
        cpus,
        distances: host.distances(),
        nodes,
        reserved: Vec::new(),
        cma: Vec::new(),
        clock_mhz: host.files.cpu_info("cpu MHz").and_then(|mhz| mhz.split('.').next()?.parse().ok()),
        simulation: None,
    };
    machine.validate()?;
    Ok(HostMachine { machine, memory_source, notes: host.notes })
}

struct Host {
    files: Files,
    /// The host's node numbers. The index is the [`NodeId`].
    nodes: Vec<u32>,
    notes: Vec<String>,
}

impl Host {
    fn node_numbers(&mut self) -> Vec<u32> {
        let online = self.files.text("sys/devices/system/node/online").ok();
        let Some(nodes) = online.and_then(|list| parse_cpu_list(&list).ok()).filter(|nodes| !nodes.is_empty()) else {
            self.notes.push("/sys/devices/system/node says nothing: taken as one node".to_owned());
            return vec![0];
        };
        if nodes.iter().enumerate().any(|(index, &node)| index as u32 != node) {
            self.notes.push(format!("the host's nodes are numbered {nodes:?}: renumbered from 0 without gaps"));
        }
        nodes
    }

    fn cpus(&mut self) -> Vec<Cpu> {
        let mut numbers = self.files.cpu_numbers();
        if numbers.is_empty() {
            self.notes.push("neither /sys/devices/system/cpu nor /proc/cpuinfo lists CPUs: taken as one".to_owned());
            numbers.push(0);
        }
        if numbers.iter().enumerate().any(|(index, &cpu)| index as u32 != cpu) {
            self.notes.push("the host's CPU numbers have gaps: renumbered from 0 without them".to_owned());
        }
        cpus::cpus(&self.files, &numbers, &self.nodes)
    }

    fn memory(&mut self) -> Result<(Vec<MachineNode>, MemorySource), MachineError> {
        let why = match self.files.text("proc/iomem") {
            Err(error) => format!("/proc/iomem cannot be read ({error})"),
            Ok(text) => match system_ram("/proc/iomem", &text) {
                Ok(ranges) => return Ok((self.divided(&ranges), MemorySource::ResourceMap)),
                Err(MachineError::HiddenAddresses { .. }) => {
                    "/proc/iomem shows its addresses to the privileged alone (CAP_SYS_ADMIN)".to_owned()
                }
                Err(MachineError::NoMemoryMap { .. }) => "/proc/iomem names no System RAM".to_owned(),
                Err(error) => error.to_string(),
            },
        };
        let total = self.files.mem_total().ok_or_else(|| MachineError::NoMemoryMap {
            file: "/proc/meminfo".to_owned(),
            expected: "a line as in 'MemTotal:  16384000 kB'",
        })?;
        let section = Geometry::X86_64.section_size().0;
        let installed = shares(total.0, &self.node_weights(), section);
        Ok((pc_nodes(&installed), MemorySource::MemTotal { why }))
    }

    /// Divides the ranges between nodes, by the memory blocks under `/sys`. Without these, each node gets its size in
    /// ascending order of addresses.
    fn divided(&mut self, ranges: &[AddressRange]) -> Vec<MachineNode> {
        if self.nodes.len() == 1 {
            return vec![MachineNode { memory: ranges.to_vec() }];
        }
        let mut claims = self.blocks();
        if claims.is_empty() {
            self.notes.push("/sys names no memory blocks: memory is divided by the nodes' sizes".to_owned());
            claims = self.claims_by_size(ranges);
        }
        divide(ranges, &claims, self.nodes.len())
    }

    /// The memory blocks of each node.
    fn blocks(&self) -> Vec<(NodeId, AddressRange)> {
        let Some(size) = self.files.block_size() else {
            return Vec::new();
        };
        let block = |index: u64| {
            let (start, end) = (index.checked_mul(size)?, index.checked_add(1)?.checked_mul(size)?);
            Some(AddressRange::new(PhysAddr(start), PhysAddr(end)))
        };
        let of_node = |(id, &number): (usize, &u32)| {
            let blocks = self.files.node_blocks(number).into_iter().filter_map(block);
            blocks.map(move |range| (NodeId(id as u16), range)).collect::<Vec<_>>()
        };
        self.nodes.iter().enumerate().flat_map(of_node).collect()
    }

    fn claims_by_size(&self, ranges: &[AddressRange]) -> Vec<(NodeId, AddressRange)> {
        let total = ranges.iter().map(|range| range.bytes().0).sum();
        let sizes = shares(total, &self.node_weights(), Geometry::X86_64.page_size().0);
        let mut rest = ranges.iter().copied();
        let mut range = rest.next().unwrap_or_default();
        let mut claims = Vec::new();
        for (node, mut size) in sizes.into_iter().enumerate() {
            while size > 0 && !range.is_empty() {
                let end = range.end.min(PhysAddr(range.start.0.saturating_add(size)));
                let taken = AddressRange::new(range.start, end);
                claims.push((NodeId(node as u16), taken));
                size -= taken.bytes().0;
                range.start = end;
                if range.is_empty() {
                    range = rest.next().unwrap_or_default();
                }
            }
        }
        claims
    }

    /// The memory size of each node, as a weight.
    fn node_weights(&self) -> Vec<u64> {
        self.nodes.iter().map(|&node| self.files.node_mem_total(node).map_or(0, |size| size.0)).collect()
    }

    fn distances(&mut self) -> Vec<Vec<u8>> {
        let count = self.nodes.len();
        let row = |(index, &node): (usize, &u32)| {
            let text = self.files.text(&format!("sys/devices/system/node/node{node}/distance")).ok()?;
            let row: Vec<u8> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
            let fits = row.len() == count && row[index] == LOCAL_DISTANCE && row.iter().all(|&to| to >= LOCAL_DISTANCE);
            fits.then_some(row)
        };
        let rows: Option<Vec<_>> = self.nodes.iter().enumerate().map(row).collect();
        rows.unwrap_or_else(|| {
            if count > 1 {
                self.notes.push("/sys gives no table of distances between nodes: taken as 10 and 20".to_owned());
            }
            default_distances(count)
        })
    }
}
