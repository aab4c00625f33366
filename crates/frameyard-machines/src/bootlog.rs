//! Machines from a kernel's boot messages.
//!
//! [`lines`] parses messages. [`memory`] applies them to the firmware's memory map. This module builds the machine.

use frameyard_units::{Geometry, NodeId};

use super::description::stem;
use super::layout::divide;
use super::{
    AddressRange, Cpu, CpuListError, MAX_CPUS, MAX_NODES, Machine, MachineError, MachineNode, Place, Problem,
    ZoneLimits, default_distances,
};

mod lines;
mod memory;

use lines::{Line, Scanner};
use memory::Found;

/// The machine that a kernel booted on, from its boot messages, with or without time stamps. `file` names the text in
/// errors. If the log has several boots, the last one counts.
///
/// | of the machine | messages |
/// |---|---|
/// | memory and its nodes | `Early memory node ranges`: whole pages, as the kernel used them |
/// | … in a log without them: memory | usable ranges of `BIOS-e820`, or of `user:` if the command line changed the map; with `e820: update` and `e820: remove` applied |
/// | … in a log without them: nodes | `SRAT` ranges |
/// | number of CPUs | the present CPUs |
/// | nodes of CPUs | `.... node  #0, CPUs:` |
/// | node of CPU 0, which those lists leave out | the `SRAT` entry of APIC 0, or node 0 |
///
/// # Errors
///
/// With file and line: [`MachineError::Malformed`] for a message that begins like one of these and continues differently,
/// and [`MachineError::Invalid`] for overlapping or impossible ranges and for a CPU on two nodes.
/// [`MachineError::NoMemoryMap`] if no message states memory.
pub fn from_boot_log(file: &str, text: &str) -> Result<Machine, MachineError> {
    let place = |line: usize| Place { file: file.to_owned(), line };
    let mut log = Log::default();
    let mut scanner = Scanner::default();
    for (index, line) in text.lines().enumerate() {
        let said =
            scanner.read(line).map_err(|message| MachineError::Malformed { place: place(index + 1), message })?;
        if let Some(said) = said {
            log.take(index + 1, &said).map_err(|problem| MachineError::from(problem).at(place(index + 1)))?;
        }
    }
    log.machine(file)
}

/// Whether the text has a message about memory at boot.
pub(super) fn looks_like_boot_log(text: &str) -> bool {
    ["BIOS-e820: ", "Early memory node ranges", "Linux version "].iter().any(|marker| text.contains(marker))
}

/// The contents of the log so far.
#[derive(Default)]
struct Log {
    memory: memory::Map,
    present: Option<u64>,
    booted_cpus: Option<u64>,
    /// The node of each listed CPU, by CPU.
    cpu_nodes: Vec<Option<NodeId>>,
    boot_cpu_node: Option<NodeId>,
    packages: u16,
    threads_per_core: u8,
    clock_mhz: Option<u32>,
    cma: Vec<Found>,
}

impl Log {
    fn take(&mut self, line: usize, said: &Line) -> Result<(), Problem> {
        match *said {
            Line::Boot => *self = Self::default(),
            Line::PresentCpus(count) => self.present = Some(count),
            Line::BootedCpus(count) => self.booted_cpus = Some(count),
            Line::BootCpuNode(node) => self.boot_cpu_node = Some(node),
            Line::NodeCpus(node, ref cpus) => return self.list_cpus(node, cpus),
            Line::Packages(count) => self.packages = count,
            Line::ThreadsPerCore(count) => self.threads_per_core = count,
            Line::Clock(mhz) => self.clock_mhz = Some(mhz),
            Line::Cma(range) => self.cma.push(Found { line, range, node: NodeId(0) }),
            Line::Firmware(range) => self.memory.firmware.push(Found { line, range, node: NodeId(0) }),
            Line::User(range) => self.memory.user.push(Found { line, range, node: NodeId(0) }),
            Line::NodeRange(node, range) => self.memory.early.push(Found { line, range, node }),
            Line::Affinity(node, range) => self.memory.claims.push((node, range)),
            Line::Remove(range) => self.memory.remove(range),
            Line::Add(range) => self.memory.add(line, range),
        }
        Ok(())
    }

    fn list_cpus(&mut self, node: NodeId, cpus: &[u32]) -> Result<(), Problem> {
        for &cpu in cpus {
            let index = cpu as usize;
            if self.cpu_nodes.len() <= index {
                self.cpu_nodes.resize(index + 1, None);
            }
            match self.cpu_nodes[index].replace(node) {
                Some(first) if first != node => {
                    return Err(Problem::CpuInTwoNodes { cpu: frameyard_units::CpuId(cpu), first, second: node });
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn machine(&self, file: &str) -> Result<Machine, MachineError> {
        let nodes = self.node_count();
        let memory = self.memory.nodes(file, nodes)?;
        let mut cma: Vec<_> = self.cma.iter().map(|found| found.range).collect();
        cma.sort_unstable();
        let machine = Machine {
            name: stem(file),
            description: "the machine of a kernel's boot messages".to_owned(),
            source: file.to_owned(),
            geometry: Geometry::X86_64,
            zones: ZoneLimits::X86_64,
            cpus: self.cpus(nodes),
            nodes: memory,
            distances: default_distances(nodes),
            reserved: Vec::new(),
            cma,
            clock_mhz: self.clock_mhz,
            simulation: None,
        };
        machine.validate().map_err(|error| {
            let line = match &error {
                MachineError::Invalid { problem, .. } => self.line_of(problem),
                _ => None,
            };
            error.at(Place { file: file.to_owned(), line: line.unwrap_or(1) })
        })?;
        Ok(machine)
    }

    fn line_of(&self, problem: &Problem) -> Option<usize> {
        let (Problem::CmaOutsideMemory(range) | Problem::CmaOverlap(_, range)) = problem else {
            return None;
        };
        self.cma.iter().rfind(|found| found.range == *range).map(|found| found.line)
    }

    fn node_count(&self) -> usize {
        let listed = self.cpu_nodes.iter().flatten().chain(&self.boot_cpu_node);
        let last = listed.copied().chain(self.memory.node_ids()).max().unwrap_or_default();
        last.index() + 1
    }

    fn cpus(&self, nodes: usize) -> Vec<Cpu> {
        let listed = self.cpu_nodes.len() as u64;
        let count = self.present.or(self.booted_cpus).unwrap_or(1).max(listed).clamp(1, MAX_CPUS as u64) as usize;
        let boot = self.boot_cpu_node.unwrap_or_default();
        let node_of = |cpu: usize| match self.cpu_nodes.get(cpu).copied().flatten() {
            Some(node) => node,
            None if cpu == 0 => boot,
            // The log ends before the kernel lists CPUs: divide them evenly, adjacent CPUs on one node.
            None if listed == 0 => NodeId((cpu * nodes / count) as u16),
            None => NodeId(0),
        };
        let mut cpus: Vec<_> = (0..count).map(|cpu| Cpu { node: node_of(cpu), ..Cpu::default() }).collect();
        self.place_in_sockets(&mut cpus, nodes);
        cpus
    }

    /// Assigns sockets, cores and threads. Each node has whole sockets if the numbers allow that. Within a socket the first
    /// threads of all cores are numbered first.
    fn place_in_sockets(&self, cpus: &mut [Cpu], nodes: usize) {
        let count = cpus.len();
        let packages = match usize::from(self.packages) {
            0 => nodes,
            packages => packages,
        };
        for (id, cpu) in cpus.iter_mut().enumerate() {
            let follows_node = nodes.is_multiple_of(packages);
            let socket = if follows_node { cpu.node.index() * packages / nodes } else { id * packages / count };
            (cpu.socket, cpu.cache) = (socket as u16, socket as u16);
        }
        let mut members = vec![0usize; packages];
        for cpu in cpus.iter() {
            members[usize::from(cpu.socket)] += 1;
        }
        let mut seen = vec![0usize; packages];
        for cpu in cpus {
            let socket = usize::from(cpu.socket);
            let threads = usize::from(self.threads_per_core.max(1));
            let threads = if members[socket].is_multiple_of(threads) { threads } else { 1 };
            let cores = members[socket] / threads;
            (cpu.core, cpu.thread) = ((seen[socket] % cores) as u16, (seen[socket] / cores) as u8);
            seen[socket] += 1;
        }
    }
}
