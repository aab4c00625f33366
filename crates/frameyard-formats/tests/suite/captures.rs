//! The captures of real kernels under `data/captures`, and a machine's numbers as plain data that the
//! writers can be fed with.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use frameyard::units::ZoneKind;
use frameyard::{CpuId, Geometry, MigrateType, NodeId, Order, PageCount, Pfn, ZoneId};
use frameyard_formats::{
    GlobalStat, KernelFormat, NodeStat, NumaEvent, PcpSnapshot, ReportSource, VmEvent, ZoneSnapshot, ZoneStat,
};

/// What one kernel printed.
pub(crate) struct Capture {
    pub(crate) name: String,
    pub(crate) format: KernelFormat,
    folder: PathBuf,
}

impl Capture {
    /// One of the captured files.
    pub(crate) fn text(&self, file: &str) -> String {
        let path = self.folder.join(file);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}

/// All captures; the kernel stands in the folder's name, as in `boot-612-m16G-n4`.
pub(crate) fn all() -> Vec<Capture> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/captures");
    let mut captures = Vec::new();
    for entry in fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
        let folder = entry.unwrap().path();
        if !folder.is_dir() {
            continue;
        }
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        let format = match name.split('-').nth(1) {
            Some("61") => KernelFormat::V6_1,
            Some("612") => KernelFormat::V6_12,
            _ => panic!("{name}: names no known kernel"),
        };
        captures.push(Capture { name, format, folder });
    }
    assert!(captures.len() >= 5, "the captures are incomplete: {} found", captures.len());
    captures.sort_by(|a, b| a.name.cmp(&b.name));
    captures
}

/// A machine's numbers; what is not in the tables is 0.
#[derive(Default)]
pub(crate) struct MachineNumbers {
    pub(crate) geometry: Geometry,
    pub(crate) nodes: u16,
    pub(crate) cpus: u32,
    pub(crate) has_cma: bool,
    pub(crate) zones: BTreeMap<ZoneId, ZoneSnapshot>,
    pub(crate) per_cpu: HashMap<(ZoneId, CpuId), PcpSnapshot>,
    pub(crate) free_blocks: HashMap<(ZoneId, MigrateType, Order), u64>,
    pub(crate) pageblocks: HashMap<(ZoneId, MigrateType), u64>,
    pub(crate) zone_stats: HashMap<(ZoneId, ZoneStat), u64>,
    pub(crate) numa_events: HashMap<(ZoneId, NumaEvent), u64>,
    pub(crate) node_stats: HashMap<(NodeId, NodeStat), u64>,
    pub(crate) global_stats: HashMap<GlobalStat, u64>,
    pub(crate) events: HashMap<VmEvent, u64>,
    pub(crate) unreclaimable: Vec<NodeId>,
}

impl MachineNumbers {
    /// The zone, made where the machine did not have it yet, which may add nodes.
    pub(crate) fn zone_mut(&mut self, id: ZoneId) -> &mut ZoneSnapshot {
        self.nodes = self.nodes.max(id.node().0 + 1);
        self.zones.entry(id).or_default()
    }
}

impl ReportSource for MachineNumbers {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    fn nodes(&self) -> u16 {
        self.nodes
    }

    fn cpus(&self) -> u32 {
        self.cpus
    }

    fn has_cma(&self) -> bool {
        self.has_cma
    }

    fn zone(&self, id: ZoneId) -> ZoneSnapshot {
        self.zones.get(&id).copied().unwrap_or_default()
    }

    fn per_cpu(&self, id: ZoneId, cpu: CpuId) -> PcpSnapshot {
        self.per_cpu.get(&(id, cpu)).copied().unwrap_or_default()
    }

    fn free_blocks(&self, id: ZoneId, migrate_type: MigrateType, order: Order) -> u64 {
        self.free_blocks.get(&(id, migrate_type, order)).copied().unwrap_or(0)
    }

    fn pageblocks(&self, id: ZoneId, migrate_type: MigrateType) -> u64 {
        self.pageblocks.get(&(id, migrate_type)).copied().unwrap_or(0)
    }

    fn zone_stat(&self, id: ZoneId, stat: ZoneStat) -> u64 {
        self.zone_stats.get(&(id, stat)).copied().unwrap_or(0)
    }

    fn numa_event(&self, id: ZoneId, event: NumaEvent) -> u64 {
        self.numa_events.get(&(id, event)).copied().unwrap_or(0)
    }

    fn node_stat(&self, node: NodeId, stat: NodeStat) -> u64 {
        self.node_stats.get(&(node, stat)).copied().unwrap_or(0)
    }

    fn global_stat(&self, stat: GlobalStat) -> u64 {
        self.global_stats.get(&stat).copied().unwrap_or(0)
    }

    fn event(&self, event: VmEvent) -> u64 {
        self.events.get(&event).copied().unwrap_or(0)
    }

    fn node_unreclaimable(&self, node: NodeId) -> bool {
        self.unreclaimable.contains(&node)
    }
}

/// The zone that a line begins with: `Node 0, zone    DMA32`, and what stands behind it.
pub(crate) fn zone_of_line(line: &str) -> Option<(ZoneId, &str)> {
    let (node, rest) = line.strip_prefix("Node ")?.split_once(", zone")?;
    let rest = rest.trim_start();
    let (name, rest) = rest.split_at(rest.find([' ', ',']).unwrap_or(rest.len()));
    let kind = ZoneKind::ALL.into_iter().find(|kind| kind.name() == name)?;
    Some((ZoneId::new(NodeId(node.trim().parse().ok()?), kind), rest))
}

/// Reads zoneinfo into a machine's numbers; panics at the first line that it does not know.
pub(crate) fn parse_zoneinfo(text: &str) -> MachineNumbers {
    let mut machine = MachineNumbers::default();
    let mut current = None;
    let mut cpu = CpuId(0);
    for line in text.lines() {
        if let Some((id, _)) = zone_of_line(line) {
            machine.zone_mut(id);
            current = Some(id);
            continue;
        }
        let id = current.expect("a zone comes first");
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["per-node", "stats"] | ["pagesets"] => {}
            ["protection:", ..] => machine.zone_mut(id).protection = parse_protection(line),
            ["pages", "free", value] => machine.zone_mut(id).free = PageCount(number(value)),
            ["cpu:", value] => {
                cpu = CpuId(value.parse().unwrap());
                machine.cpus = machine.cpus.max(cpu.0 + 1);
            }
            ["count:", value] => machine.per_cpu.entry((id, cpu)).or_default().count = PageCount(number(value)),
            ["high:", value] => machine.per_cpu.entry((id, cpu)).or_default().high = PageCount(number(value)),
            ["batch:", value] => machine.per_cpu.entry((id, cpu)).or_default().batch = PageCount(number(value)),
            ["vm", "stats", "threshold:", value] => {
                machine.per_cpu.entry((id, cpu)).or_default().stat_threshold = value.parse().unwrap();
            }
            ["node_unreclaimable:", "0"] => {}
            ["start_pfn:", value] => machine.zone_mut(id).start = Pfn(number(value)),
            [name, value] => zoneinfo_number(&mut machine, id, name, number(value)),
            _ => panic!("unknown line in zoneinfo: {line}"),
        }
    }
    machine
}

fn zoneinfo_number(machine: &mut MachineNumbers, id: ZoneId, name: &str, value: u64) {
    let pages = PageCount(value);
    let zone = machine.zone_mut(id);
    match name {
        "boost" => zone.watermarks.boost = pages,
        // The printed levels contain the boost.
        "min" => zone.watermarks.min = pages - zone.watermarks.boost,
        "low" => zone.watermarks.low = pages - zone.watermarks.boost,
        "high" => zone.watermarks.high = pages - zone.watermarks.boost,
        "promo" => zone.watermarks.promo = pages - zone.watermarks.boost,
        "spanned" => zone.spanned = pages,
        "present" => zone.present = pages,
        "managed" => zone.managed = pages,
        "cma" => zone.cma = pages,
        "nr_free_pages" => assert_eq!(zone.free, pages, "{id}: two counts of free pages"),
        "nr_free_cma" => zone.free_cma = pages,
        _ => {
            if let Some(stat) = NodeStat::from_name(name) {
                machine.node_stats.insert((id.node(), stat), value);
            } else if let Some(stat) = ZoneStat::from_name(name) {
                machine.zone_stats.insert((id, stat), value);
            } else if let Some(event) = NumaEvent::from_name(name) {
                machine.numa_events.insert((id, event), value);
            } else {
                panic!("unknown number in zoneinfo: {name}");
            }
        }
    }
}

fn parse_protection(line: &str) -> [PageCount; ZoneKind::COUNT] {
    let list = line.split_once('(').unwrap().1.trim_end_matches(')');
    let pages: Vec<PageCount> = list.split(", ").map(|value| PageCount(number(value))).collect();
    pages.try_into().unwrap()
}

/// A number; panics with the text where it is none.
pub(crate) fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("not a number: {text}"))
}
