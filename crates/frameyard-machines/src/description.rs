//! The TOML format of machine descriptions, built-in and users'.

use frameyard_units::{ByteSize, CpuId, Geometry, NodeId, Order, PhysAddr};
use serde::Deserialize;
use toml::Spanned;

use super::topology::{Numbering, Topology};
use super::{
    AddressRange, Cpu, LOCAL_DISTANCE, Machine, MachineError, MachineNode, Place, Problem, REMOTE_DISTANCE, Simulation,
    ZoneLimits, parse_cpu_list,
};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    name: Option<String>,
    description: Option<String>,
    source: Option<String>,
    clock_mhz: Option<u32>,
    simulation: Option<Spanned<Simulation>>,
    geometry: Option<Spanned<GeometryTable>>,
    zones: Option<Spanned<ZonesTable>>,
    topology: Option<Spanned<TopologyTable>>,
    cpus: Option<Vec<Spanned<CpuTable>>>,
    #[serde(default)]
    node: Vec<Spanned<NodeTable>>,
    #[serde(default)]
    reserved: Vec<Spanned<RangeTable>>,
    #[serde(default)]
    cma: Vec<Spanned<AreaTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GeometryTable {
    page_size: Option<Spanned<String>>,
    section_size: Option<Spanned<String>>,
    pageblock_order: Option<u8>,
    max_order: Option<u8>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ZonesTable {
    dma_below: Option<Spanned<String>>,
    dma32_below: Option<Spanned<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TopologyTable {
    sockets: u16,
    cores_per_socket: u16,
    threads_per_core: u8,
    cores_per_cache: Option<u16>,
    #[serde(default)]
    numbering: NumberingName,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
enum NumberingName {
    #[default]
    CoresFirst,
    ThreadsFirst,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CpuTable {
    socket: u16,
    core: u16,
    #[serde(default)]
    thread: u8,
    cache: Option<u16>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeTable {
    cpus: Option<Spanned<String>>,
    distances: Option<Spanned<Vec<u8>>>,
    #[serde(default)]
    memory: Vec<Spanned<RangeTable>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RangeTable {
    start: u64,
    end: Option<u64>,
    size: Option<Spanned<String>>,
}

/// A contiguous memory area: either a range, or only a size. An area with only a size is placed on `node`, or on any node.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AreaTable {
    start: Option<u64>,
    end: Option<u64>,
    size: Option<Spanned<String>>,
    node: Option<u16>,
}

/// The machine that a TOML text describes. `file` names the text in errors.
///
/// ```
/// let text = r#"
/// topology = { sockets = 1, cores_per_socket = 2, threads_per_core = 2 }
/// [[node]]
/// memory = [{ start = 0x100000, end = 0x80000000 }, { start = 0x100000000, size = "2G" }]
/// "#;
/// let machine = frameyard_machines::from_toml("box.toml", text)?;
/// assert_eq!((machine.name.as_str(), machine.cpus.len()), ("box", 4));
/// # Ok::<(), frameyard_machines::MachineError>(())
/// ```
///
/// # Errors
///
/// With file and line: [`MachineError::Malformed`] for text that is not TOML, an unknown key or a value of the wrong kind, and
/// [`MachineError::Invalid`] for inconsistent figures.
pub fn from_toml(file: &str, text: &str) -> Result<Machine, MachineError> {
    let reader = Reader { file, text };
    let document: Document = toml::from_str(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        let lines: Vec<&str> = error.message().lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        reader.malformed(offset, lines.join(", "))
    })?;
    let machine = reader.machine(&document)?;
    machine.validate().map_err(|error| match &error {
        MachineError::Invalid { problem, .. } => {
            let offset = reader.locate(&document, problem);
            error.at(reader.place(offset))
        }
        _ => error,
    })?;
    Ok(machine)
}

struct Reader<'a> {
    file: &'a str,
    text: &'a str,
}

impl Reader<'_> {
    fn place(&self, offset: usize) -> Place {
        let before = &self.text.as_bytes()[..offset.min(self.text.len())];
        Place { file: self.file.to_owned(), line: 1 + before.iter().filter(|byte| **byte == b'\n').count() }
    }

    fn malformed(&self, offset: usize, message: String) -> MachineError {
        MachineError::Malformed { place: self.place(offset), message }
    }

    fn invalid(&self, offset: usize, problem: Problem) -> MachineError {
        MachineError::nowhere(problem).at(self.place(offset))
    }

    fn machine(&self, document: &Document) -> Result<Machine, MachineError> {
        let nodes = document.node.iter().map(|node| {
            let memory = self.ranges(&node.get_ref().memory)?;
            Ok(MachineNode { memory })
        });
        let mut machine = Machine {
            name: document.name.clone().unwrap_or_else(|| stem(self.file)),
            description: document.description.clone().unwrap_or_default(),
            source: document.source.clone().unwrap_or_else(|| self.file.to_owned()),
            geometry: self.geometry(document)?,
            zones: self.zones(document)?,
            cpus: Vec::new(),
            nodes: nodes.collect::<Result<_, MachineError>>()?,
            distances: distances(document),
            reserved: self.ranges(&document.reserved)?,
            cma: Vec::new(),
            clock_mhz: document.clock_mhz,
            simulation: document.simulation.as_ref().map(|table| table.get_ref().clone()),
        };
        self.place_areas(document, &mut machine)?;
        machine.cpus = self.cpus(document)?;
        Ok(machine)
    }

    fn size(&self, text: &Spanned<String>) -> Result<ByteSize, MachineError> {
        let size = text.get_ref().parse::<ByteSize>();
        size.map_err(|error| self.malformed(text.span().start, format!("'{}': {error}", text.get_ref().escape_debug())))
    }

    fn range(&self, table: &Spanned<RangeTable>) -> Result<AddressRange, MachineError> {
        let RangeTable { start, end, size } = table.get_ref();
        self.range_of(table.span().start, PhysAddr(*start), *end, size.as_ref())
    }

    fn range_of(
        &self,
        offset: usize,
        start: PhysAddr,
        end: Option<u64>,
        size: Option<&Spanned<String>>,
    ) -> Result<AddressRange, MachineError> {
        let end = match (end, size) {
            (Some(end), None) => end,
            (None, Some(text)) => {
                let size = self.size(text)?;
                let overflow = || self.invalid(offset, Problem::SizeOverflow { start, size });
                start.0.checked_add(size.0).ok_or_else(overflow)?
            }
            _ => {
                let message = "a range has a start and either an end or a size".to_owned();
                return Err(self.malformed(offset, message));
            }
        };
        Ok(AddressRange::new(start, PhysAddr(end)))
    }

    /// The range of an area. `None` for an area without a start.
    fn area(&self, table: &Spanned<AreaTable>) -> Option<Result<AddressRange, MachineError>> {
        let AreaTable { start, end, size, .. } = table.get_ref();
        start.map(|start| self.range_of(table.span().start, PhysAddr(start), *end, size.as_ref()))
    }

    /// Adds the contiguous areas to the machine. Areas with a start come first, so that areas with only a size find free places.
    fn place_areas(&self, document: &Document, machine: &mut Machine) -> Result<(), MachineError> {
        let nodes = machine.nodes.len();
        for table in &document.cma {
            if let Some(node) = table.get_ref().node.map(NodeId).filter(|node| node.index() >= nodes) {
                return Err(self.invalid(table.span().start, Problem::CmaUnknownNode { node, nodes }));
            }
            if let Some(area) = self.area(table) {
                let (area, node) = (area?, table.get_ref().node.map(NodeId));
                if node.is_some_and(|node| !machine.nodes[node.index()].holds(area)) {
                    return Err(self.invalid(table.span().start, Problem::CmaOutsideMemory(area)));
                }
                machine.cma.push(area);
            }
        }
        for table in document.cma.iter().filter(|table| table.get_ref().start.is_none()) {
            let AreaTable { end: None, size: Some(size), node, .. } = table.get_ref() else {
                let message = "a contiguous area has a start and either an end or a size, or a size alone".to_owned();
                return Err(self.malformed(table.span().start, message));
            };
            let (size, node) = (self.size(size)?, node.map(NodeId));
            let no_room = || self.invalid(table.span().start, Problem::CmaNoRoom { size, node });
            let area = machine.room_for_area(size, node).ok_or_else(no_room)?;
            machine.cma.push(area);
        }
        machine.cma.sort_unstable();
        Ok(())
    }

    fn ranges(&self, tables: &[Spanned<RangeTable>]) -> Result<Vec<AddressRange>, MachineError> {
        let mut ranges = tables.iter().map(|table| self.range(table)).collect::<Result<Vec<_>, _>>()?;
        ranges.sort_unstable();
        Ok(ranges)
    }

    fn geometry(&self, document: &Document) -> Result<Geometry, MachineError> {
        let Some(spanned) = &document.geometry else {
            return Ok(Geometry::X86_64);
        };
        let (table, default) = (spanned.get_ref(), Geometry::X86_64);
        let size = |given: &Option<Spanned<String>>, default: ByteSize| match given {
            Some(text) => self.size(text),
            None => Ok(default),
        };
        Geometry::new(
            size(&table.page_size, default.page_size())?,
            size(&table.section_size, default.section_size())?,
            table.pageblock_order.map_or(default.pageblock_order(), Order),
            table.max_order.map_or(default.max_order(), Order),
        )
        .map_err(|error| self.invalid(spanned.span().start, Problem::Geometry(error)))
    }

    fn zones(&self, document: &Document) -> Result<ZoneLimits, MachineError> {
        let Some(table) = &document.zones else {
            return Ok(ZoneLimits::X86_64);
        };
        let limit = |given: &Option<Spanned<String>>| {
            given.as_ref().map(|text| self.size(text).map(|size| PhysAddr(size.0))).transpose()
        };
        let table = table.get_ref();
        Ok(ZoneLimits { dma: limit(&table.dma_below)?, dma32: limit(&table.dma32_below)? })
    }

    fn cpus(&self, document: &Document) -> Result<Vec<Cpu>, MachineError> {
        let lists = self.cpu_lists(document)?;
        let mut cpus = match (&document.topology, &document.cpus) {
            (Some(_), Some(cpus)) => {
                let offset = cpus.first().map_or(0, |cpu| cpu.span().start);
                let message = "the CPUs are given twice: write either [topology] or cpus = [...]".to_owned();
                return Err(self.malformed(offset, message));
            }
            (Some(table), None) => {
                let offset = table.span().start;
                table.get_ref().topology().cpus().map_err(|problem| self.invalid(offset, problem))?
            }
            (None, Some(tables)) => tables.iter().map(|table| table.get_ref().cpu()).collect(),
            (None, None) => cores_of_lists(&lists),
        };
        if lists.iter().all(|(_, cpus)| cpus.is_empty()) {
            self.spread(document, &mut cpus)?;
        } else {
            self.assign(&lists, &mut cpus)?;
        }
        Ok(cpus)
    }

    /// The CPU list of each node, with its offset in the text.
    fn cpu_lists(&self, document: &Document) -> Result<Vec<(usize, Vec<u32>)>, MachineError> {
        let lists = document.node.iter().map(|node| match &node.get_ref().cpus {
            None => Ok((node.span().start, Vec::new())),
            Some(text) => match parse_cpu_list(text.get_ref()) {
                Ok(cpus) => Ok((text.span().start, cpus)),
                Err(error) => Err(self.malformed(text.span().start, error.to_string())),
            },
        });
        lists.collect()
    }

    /// Assigns each CPU to the node that lists it.
    fn assign(&self, lists: &[(usize, Vec<u32>)], cpus: &mut [Cpu]) -> Result<(), MachineError> {
        let mut owners = vec![None; cpus.len()];
        for (node, (offset, list)) in lists.iter().enumerate() {
            let node = NodeId(node as u16);
            for &cpu in list {
                let id = CpuId(cpu);
                let Some(owner) = owners.get_mut(id.index()) else {
                    return Err(self.invalid(*offset, Problem::UnknownCpu { node, cpu: id, cpus: cpus.len() }));
                };
                if let Some(first) = owner.replace(node) {
                    return Err(self.invalid(*offset, Problem::CpuInTwoNodes { cpu: id, first, second: node }));
                }
            }
        }
        for (id, (cpu, owner)) in cpus.iter_mut().zip(owners).enumerate() {
            let missing = || self.invalid(lists[0].0, Problem::CpuInNoNode(CpuId(id as u32)));
            cpu.node = owner.ok_or_else(missing)?;
        }
        Ok(())
    }

    /// Divides the sockets evenly between the nodes, for a description in which no node lists CPUs.
    fn spread(&self, document: &Document, cpus: &mut [Cpu]) -> Result<(), MachineError> {
        let nodes = document.node.len().max(1);
        let sockets = cpus.iter().map(|cpu| usize::from(cpu.socket) + 1).max().unwrap_or(1);
        if !sockets.is_multiple_of(nodes) && nodes > 1 {
            let message = format!("{sockets} socket(s) do not spread over {nodes} nodes: list the cpus of each node");
            return Err(self.malformed(document.node[0].span().start, message));
        }
        for cpu in cpus {
            cpu.node = NodeId((usize::from(cpu.socket) * nodes / sockets) as u16);
        }
        Ok(())
    }

    /// The offset of the part of the text that causes a problem. 0 if no single part does.
    fn locate(&self, document: &Document, problem: &Problem) -> usize {
        let node = |node: usize| document.node.get(node).map(Spanned::get_ref);
        let row = |row: usize| node(row)?.distances.as_ref().map(|row| row.span().start);
        let find = |tables: &[Spanned<RangeTable>], range: AddressRange| {
            tables.iter().rfind(|table| self.range(table) == Ok(range)).map(|table| table.span().start)
        };
        let find_area = |range: AddressRange| {
            let is_it = |table: &&Spanned<AreaTable>| self.area(table) == Some(Ok(range));
            document.cma.iter().rfind(is_it).map(|table| table.span().start)
        };
        let found = match problem {
            Problem::Overlap { second, second_range, .. } => {
                node(second.index()).and_then(|node| find(&node.memory, *second_range))
            }
            Problem::EmptyRange(range) | Problem::BeyondAddresses(range) => document
                .node
                .iter()
                .map(|node| &node.get_ref().memory)
                .chain([&document.reserved])
                .find_map(|tables| find(tables, *range))
                .or_else(|| find_area(*range)),
            Problem::CmaOutsideMemory(range) | Problem::CmaOverlap(_, range) => find_area(*range),
            Problem::SelfDistance(from, _) | Problem::ShortDistance(from, ..) => row(from.index()),
            Problem::DistanceShape { row: index, .. } => row(*index),
            Problem::SameThread(_, second) => {
                document.cpus.as_ref().and_then(|cpus| cpus.get(second.index())).map(|cpu| cpu.span().start)
            }
            Problem::Simulation(_) => document.simulation.as_ref().map(|table| table.span().start),
            Problem::ZoneLimits => document.zones.as_ref().map(|zones| zones.span().start),
            _ => None,
        };
        found.unwrap_or(0)
    }
}

impl TopologyTable {
    fn topology(&self) -> Topology {
        Topology {
            sockets: self.sockets,
            cores_per_socket: self.cores_per_socket,
            threads_per_core: self.threads_per_core,
            cores_per_cache: self.cores_per_cache.unwrap_or(self.cores_per_socket),
            numbering: match self.numbering {
                NumberingName::CoresFirst => Numbering::CoresFirst,
                NumberingName::ThreadsFirst => Numbering::ThreadsFirst,
            },
        }
    }
}

impl CpuTable {
    fn cpu(&self) -> Cpu {
        Cpu {
            node: NodeId(0),
            socket: self.socket,
            core: self.core,
            thread: self.thread,
            cache: self.cache.unwrap_or(self.socket),
        }
    }
}

/// The CPUs of a description that has only CPU lists: one socket for each node, one core for each CPU.
fn cores_of_lists(lists: &[(usize, Vec<u32>)]) -> Vec<Cpu> {
    let count = lists.iter().flat_map(|(_, cpus)| cpus).max().map_or(0, |last| *last as usize + 1);
    let mut cpus: Vec<_> = (0..count).map(|id| Cpu { core: id as u16, ..Cpu::default() }).collect();
    for (node, (_, list)) in lists.iter().enumerate() {
        for (core, &cpu) in list.iter().enumerate() {
            let (socket, core) = (node as u16, core as u16);
            cpus[cpu as usize] = Cpu { socket, core, cache: socket, ..Cpu::default() };
        }
    }
    cpus
}

fn distances(document: &Document) -> Vec<Vec<u8>> {
    let nodes = document.node.len();
    let default = |from: usize, to: usize| if from == to { LOCAL_DISTANCE } else { REMOTE_DISTANCE };
    let row = |(from, node): (usize, &Spanned<NodeTable>)| match &node.get_ref().distances {
        Some(row) => row.get_ref().clone(),
        None => (0..nodes).map(|to| default(from, to)).collect(),
    };
    document.node.iter().enumerate().map(row).collect()
}

/// The file's name without its folder and extension.
pub(super) fn stem(file: &str) -> String {
    std::path::Path::new(file).file_stem().map_or_else(|| file.to_owned(), |stem| stem.to_string_lossy().into_owned())
}
