//! Arguments of `machines`.

use clap::{Args, Subcommand, ValueHint};
use frameyard::ByteSize;

use super::values::positive_size;
use super::{GeometryArgs, OutputArgs};

/// Arguments of `machines`.
#[derive(Args, Clone, Debug)]
#[command(args_conflicts_with_subcommands = true, disable_help_subcommand = true)]
pub struct MachinesArgs {
    /// Another action than listing them.
    #[command(subcommand)]
    pub command: Option<MachinesCommand>,
    /// The form of the list.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Actions on machines other than listing them.
#[derive(Subcommand, Clone, Debug)]
pub enum MachinesCommand {
    /// Prints the description of one machine as TOML
    Show(MachinesShowArgs),
}

/// Arguments of `machines show`.
#[derive(Args, Clone, Debug)]
pub struct MachinesShowArgs {
    /// A built-in machine, or a file: a description (TOML), /proc/iomem, or a kernel's boot messages
    #[arg(value_name = "NAME|FILE", value_hint = ValueHint::AnyPath, required_unless_present = "host")]
    pub machine: Option<String>,

    /// The machine this runs on
    #[arg(long, conflicts_with = "machine")]
    pub host: bool,

    /// Scale the machine to this much memory, as in 64M, 8G or 1T
    #[arg(long, value_name = "SIZE", value_parser = positive_size)]
    pub memory: Option<ByteSize>,

    /// Changes to the geometry.
    #[command(flatten)]
    pub geometry: GeometryArgs,

    /// The form of the result.
    #[command(flatten)]
    pub output: OutputArgs,
}
