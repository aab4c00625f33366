//! `machines`: the built-in machines, and a machine as TOML.

use clap::{Args, Subcommand, ValueHint};
use frameyard::{ByteSize, NodeId};

use crate::Failure;
use crate::args::values::positive_size;
use crate::args::{GeometryArgs, MachineArgs, OutputArgs};
use crate::chosen_machine::ChosenMachine;
use crate::machine::{Machine, built_in, built_in_names, built_in_text, format_cpu_list};
use crate::output::{Format, Report, Row};

/// What follows the options in the help text.
const HELP: &str = "\
Examples:
  frameyard machines
  frameyard machines show skylake-112 > my-machine.toml";

/// Lists the built-in machines, or prints a machine's description
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP, args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub(super) struct MachinesArgs {
    #[command(subcommand)]
    command: Option<MachinesCommand>,
    #[command(flatten)]
    output: OutputArgs,
}

/// Actions on machines other than listing them.
#[derive(Subcommand, Clone, Debug)]
enum MachinesCommand {
    Show(MachinesShowArgs),
}

/// What follows the options in the help text.
const SHOW_HELP: &str = "\
Examples:
  frameyard machines show server-1t --memory 64G
  frameyard machines show --host --json";

/// Prints the description of one machine as TOML
#[derive(Args, Clone, Debug)]
#[command(after_help = SHOW_HELP)]
struct MachinesShowArgs {
    /// A built-in machine, or a file: a description (TOML), /proc/iomem, or a kernel's boot messages
    #[arg(value_name = "NAME|FILE", value_hint = ValueHint::AnyPath, required_unless_present = "host")]
    machine: Option<String>,

    /// The machine this runs on
    #[arg(long, conflicts_with = "machine")]
    host: bool,

    /// Scale the machine to this much memory, as in 64M, 8G or 1T
    #[arg(long, value_name = "SIZE", value_parser = positive_size)]
    memory: Option<ByteSize>,

    #[command(flatten)]
    geometry: GeometryArgs,

    #[command(flatten)]
    output: OutputArgs,
}

/// Lists the machines, or prints one.
pub(super) fn run(args: &MachinesArgs) -> Result<(), Failure> {
    match &args.command {
        None => list().print(&args.output),
        Some(MachinesCommand::Show(show)) => {
            let chosen = choose(show)?;
            chosen.print_notes();
            description(&chosen.machine).print(&show.output)
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
fn list() -> Report {
    Report::new("machines", built_in_names().filter_map(built_in).map(|machine| list_row(&machine)).collect())
}

fn list_row(machine: &Machine) -> Row {
    Row::new()
        .column("name", "name", machine.name.clone())
        .column("nodes", "nodes", machine.nodes.len())
        .column("cpus", "cpus", machine.cpus.len())
        .column_as("memory_bytes", "memory", Format::ExactSize, machine.installed_bytes().0)
        .column_as("page_bytes", "page", Format::ExactSize, machine.geometry.page_size().0)
        .data("simulated", machine.simulation.is_some())
        .remark("sim", Format::Plain, if machine.simulation.is_some() { "yes" } else { "no" })
        .column("description", "description", machine.description.clone())
}

/// One machine in full: TOML as text; in JSON a row for each node, with the TOML beside the rows.
fn description(machine: &Machine) -> Report {
    let ByteSize(memory) = machine.memory_bytes();
    Report::new("machines show", (0..machine.nodes.len()).map(|node| node_row(machine, node)).collect())
        .of_machine(&machine.name)
        .total("description", machine.description.clone())
        .total("source", machine.source.clone())
        .total("memory_bytes", memory)
        .total("installed_bytes", machine.installed_bytes().0)
        .total("page_bytes", machine.geometry.page_size().0)
        .total("toml", toml_of(machine))
        .verbatim(toml_of(machine))
}

/// The description as TOML. An unchanged built-in machine keeps the comments with the sources of its numbers.
fn toml_of(machine: &Machine) -> String {
    let text = built_in_text(&machine.name).filter(|_| built_in(&machine.name).as_ref() == Some(machine));
    text.map_or_else(|| machine.to_toml(), str::to_owned)
}

fn node_row(machine: &Machine, node: usize) -> Row {
    let id = NodeId(node as u16);
    let cpus: Vec<u32> = machine.cpus_of(id).map(|cpu| cpu.0).collect();
    Row::new()
        .data("node", id.0)
        .data("cpus", cpus.len())
        .data("cpu_list", format_cpu_list(&cpus))
        .data("memory_bytes", machine.node_bytes(id).0)
        .data("ranges", machine.nodes[node].memory.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_shows_installed_sizes() {
        let mut out = anstream::StripStream::new(Vec::new());
        list().write_text(None, &mut out).unwrap();
        let text = String::from_utf8(out.into_inner()).unwrap();
        let line = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap();
            line.split_whitespace().take(6).map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(line("name"), ["name", "nodes", "cpus", "memory", "page", "sim"]);
        assert_eq!(line("skylake-8167m"), ["skylake-8167m", "2", "104", "768G", "4K", "yes"]);
        assert_eq!(line("sparc-m7"), ["sparc-m7", "4", "1024", "3312G", "8K", "yes"]);
    }

    #[test]
    fn a_described_machine_has_a_row_for_each_node() {
        let machine = built_in("skylake-112").unwrap();
        let described = description(&machine);
        let rows = described.rows();
        assert_eq!((rows.len(), rows[1].number("cpus")), (2, Some(56.0)));
        let total: u64 = rows.iter().map(|row| row.value("memory_bytes").as_u64().unwrap()).sum();
        assert_eq!(machine.memory_bytes().0, total);
    }
}
