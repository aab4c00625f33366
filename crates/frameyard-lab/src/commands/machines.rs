//! `machines`: the built-in machines, and a machine as TOML.

use std::io::{self, Write};

use frameyard::{ByteSize, NodeId};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::Failure;
use crate::chosen_machine::ChosenMachine;
use crate::cli::{MachineArgs, MachinesArgs, MachinesCommand, MachinesShowArgs};
use crate::machine::{Machine, built_in, built_in_names, format_cpu_list};
use crate::output::{self, Outcome, RowError, Rows, Table};

/// Lists the machines, or prints one.
pub(super) fn run(args: &MachinesArgs) -> Result<(), Failure> {
    match &args.command {
        None => output::print(&MachineList::of_built_in(), &args.output),
        Some(MachinesCommand::Show(show)) => {
            let chosen = choose(show)?;
            chosen.print_notes();
            output::print(&MachineDescription { machine: chosen.machine }, &show.output)
        }
    }
}

fn choose(show: &MachinesShowArgs) -> Result<ChosenMachine, Failure> {
    ChosenMachine::of(&MachineArgs {
        machine: show.machine.clone(),
        host: show.host,
        memory: show.memory,
        phantom: false,
        geometry: show.geometry,
    })
}

/// The machines that the program knows by name.
struct MachineList {
    machines: Vec<Machine>,
}

#[derive(Serialize)]
struct ListRow {
    name: String,
    nodes: usize,
    cpus: usize,
    memory_bytes: u64,
    page_bytes: u64,
    simulated: bool,
    description: String,
}

impl MachineList {
    fn of_built_in() -> Self {
        Self { machines: built_in_names().filter_map(built_in).collect() }
    }
}

impl Outcome for MachineList {
    fn command(&self) -> &'static str {
        "machines"
    }

    fn rows(&self) -> Result<Rows, RowError> {
        let row = |machine: &Machine| ListRow {
            name: machine.name.clone(),
            nodes: machine.nodes.len(),
            cpus: machine.cpus.len(),
            memory_bytes: machine.installed_bytes().0,
            page_bytes: machine.geometry.page_size().0,
            simulated: machine.simulation.is_some(),
            description: machine.description.clone(),
        };
        Rows::of(&self.machines.iter().map(row).collect::<Vec<_>>())
    }

    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut table = Table::new(["name", "nodes", "cpus", "memory", "page", "sim", "description"]);
        for machine in &self.machines {
            table.push([
                machine.name.clone(),
                machine.nodes.len().to_string(),
                machine.cpus.len().to_string(),
                machine.installed_bytes().to_string(),
                machine.geometry.page_size().to_string(),
                if machine.simulation.is_some() { "yes" } else { "no" }.to_owned(),
                machine.description.clone(),
            ]);
        }
        table.write(out)
    }
}

/// One machine in full: as text its TOML, in JSON a row for each node with the TOML beside them.
struct MachineDescription {
    machine: Machine,
}

#[derive(Serialize)]
struct NodeRow {
    node: u16,
    cpus: usize,
    cpu_list: String,
    memory_bytes: u64,
    ranges: usize,
}

impl MachineDescription {
    fn node_row(&self, node: usize) -> NodeRow {
        let id = NodeId(node as u16);
        let cpus: Vec<u32> = self.machine.cpus_of(id).map(|cpu| cpu.0).collect();
        NodeRow {
            node: id.0,
            cpus: cpus.len(),
            cpu_list: format_cpu_list(&cpus),
            memory_bytes: self.machine.node_bytes(id).0,
            ranges: self.machine.nodes[node].memory.len(),
        }
    }
}

impl Outcome for MachineDescription {
    fn command(&self) -> &'static str {
        "machines show"
    }

    fn machine(&self) -> Option<&str> {
        Some(&self.machine.name)
    }

    fn totals(&self) -> Map<String, Value> {
        let ByteSize(memory) = self.machine.memory_bytes();
        Map::from_iter([
            ("description".to_owned(), self.machine.description.clone().into()),
            ("source".to_owned(), self.machine.source.clone().into()),
            ("memory_bytes".to_owned(), memory.into()),
            ("installed_bytes".to_owned(), self.machine.installed_bytes().0.into()),
            ("page_bytes".to_owned(), self.machine.geometry.page_size().0.into()),
            ("toml".to_owned(), self.machine.to_toml().into()),
        ])
    }

    fn rows(&self) -> Result<Rows, RowError> {
        Rows::of(&(0..self.machine.nodes.len()).map(|node| self.node_row(node)).collect::<Vec<_>>())
    }

    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(self.machine.to_toml().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_shows_sizes_as_a_machine_is_sold() {
        let mut out = anstream::StripStream::new(Vec::new());
        MachineList::of_built_in().write_text(&mut out).unwrap();
        let text = String::from_utf8(out.into_inner()).unwrap();
        let line = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap();
            line.split_whitespace().take(6).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(line("name"), ["name", "nodes", "cpus", "memory", "page", "sim"]);
        assert_eq!(line("skylake-8167m"), ["skylake-8167m", "2", "104", "768G", "4K", "yes"]);
        assert_eq!(line("sparc-m7"), ["sparc-m7", "4", "1024", "3312G", "8K", "no"]);
    }

    #[test]
    fn a_described_machine_has_a_row_for_each_node() {
        let described = MachineDescription { machine: built_in("skylake-112").unwrap() };
        let rows = described.rows().unwrap();
        assert_eq!(rows.as_slice().len(), 2);
        assert_eq!(rows.as_slice()[1]["cpus"], 56);
        let total: u64 = rows.as_slice().iter().map(|row| row["memory_bytes"].as_u64().unwrap()).sum();
        assert_eq!(described.totals()["memory_bytes"], total);
    }
}
