//! A machine as TOML text.

use core::fmt::Write as _;

use frameyard_units::{ByteSize, Geometry, NodeId};
use serde::Serialize;

use super::topology::{Numbering, Topology, cpu_list_of};
use super::{AddressRange, Machine, Simulation, ZoneLimits};

impl Machine {
    /// The description of the machine in TOML. [`super::from_toml`] reads the same machine from it if the machine passes
    /// [`Machine::validate`] and its ranges of each kind are sorted.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        self.write_toml(&mut text).expect("writing to a string cannot fail");
        text
    }

    fn write_toml(&self, text: &mut String) -> core::fmt::Result {
        for (key, value) in [("name", &self.name), ("description", &self.description), ("source", &self.source)] {
            writeln!(text, "{key} = {}", quoted(value))?;
        }
        if let Some(clock) = self.clock_mhz {
            writeln!(text, "clock_mhz = {clock}")?;
        }
        write_ranges(text, "reserved", &self.reserved)?;
        write_ranges(text, "cma", &self.cma)?;
        self.write_cpus(text)?;
        write_geometry(text, self.geometry)?;
        if self.zones != ZoneLimits::X86_64 {
            write_zones(text, self.zones)?;
        }
        for (node, memory) in self.nodes.iter().enumerate() {
            let cpus = cpu_list_of(self, NodeId(node as u16));
            writeln!(text, "\n[[node]]\ncpus = \"{cpus}\"")?;
            if let Some(row) = self.distances.get(node) {
                writeln!(text, "distances = {row:?}")?;
            }
            write_ranges(text, "memory", &memory.memory)?;
        }
        if let Some(simulation) = &self.simulation {
            write_simulation(text, simulation)?;
        }
        Ok(())
    }

    /// Writes the topology if it is regular, else each CPU.
    fn write_cpus(&self, text: &mut String) -> core::fmt::Result {
        let Some(topology) = Topology::of(&self.cpus) else {
            writeln!(text, "cpus = [")?;
            for cpu in &self.cpus {
                let (socket, core, thread, cache) = (cpu.socket, cpu.core, cpu.thread, cpu.cache);
                writeln!(text, "  {{ socket = {socket}, core = {core}, thread = {thread}, cache = {cache} }},")?;
            }
            return writeln!(text, "]");
        };
        let numbering = match topology.numbering {
            Numbering::CoresFirst => "cores-first",
            Numbering::ThreadsFirst => "threads-first",
        };
        writeln!(text, "\n[topology]\nsockets = {}", topology.sockets)?;
        writeln!(text, "cores_per_socket = {}", topology.cores_per_socket)?;
        writeln!(text, "threads_per_core = {}", topology.threads_per_core)?;
        writeln!(text, "cores_per_cache = {}", topology.cores_per_cache)?;
        writeln!(text, "numbering = \"{numbering}\"")
    }
}

fn write_geometry(text: &mut String, geometry: Geometry) -> core::fmt::Result {
    writeln!(text, "\n[geometry]\npage_size = \"{}\"", geometry.page_size())?;
    writeln!(text, "section_size = \"{}\"", geometry.section_size())?;
    writeln!(text, "pageblock_order = {}", geometry.pageblock_order().0)?;
    writeln!(text, "max_order = {}", geometry.max_order().0)
}

fn write_zones(text: &mut String, zones: ZoneLimits) -> core::fmt::Result {
    writeln!(text, "\n[zones]")?;
    for (key, limit) in [("dma_below", zones.dma), ("dma32_below", zones.dma32)] {
        if let Some(limit) = limit {
            writeln!(text, "{key} = \"{}\"", ByteSize(limit.0))?;
        }
    }
    Ok(())
}

fn write_ranges(text: &mut String, key: &str, ranges: &[AddressRange]) -> core::fmt::Result {
    if ranges.is_empty() {
        return Ok(());
    }
    writeln!(text, "{key} = [")?;
    for range in ranges {
        writeln!(text, "  {{ start = {:#x}, end = {:#x} }}, # {}", range.start.0, range.end.0, range.bytes())?;
    }
    writeln!(text, "]")
}

fn write_simulation(text: &mut String, simulation: &Simulation) -> core::fmt::Result {
    #[derive(Serialize)]
    struct Section<'s> {
        simulation: &'s Simulation,
    }
    let section = toml::to_string(&Section { simulation }).map_err(|_| core::fmt::Error)?;
    write!(text, "\n{section}")
}

/// A string in TOML's quotation.
fn quoted(text: &str) -> toml::Value {
    toml::Value::String(text.to_owned())
}
