//! Arguments of the commands that boot a yard and show it.

use clap::Args;
use frameyard::boot::PcpReset;
use frameyard::policy::ZonePolicy;
use frameyard::watermarks::PcpSizing;

use super::init_args::pcp_reset;
use super::values::{whole_number, zone_policy};
use super::{Amount, FullArgs, HugePageMinimum, InitArgs, MachineArgs, OutputArgs, ShownFile, ShownFormat, Workload};

/// How a yard is set up on its machine.
#[derive(Args, Clone, Copy, Debug)]
#[command(next_help_heading = "Yard")]
pub struct YardArgs {
    /// Memory of the Movable zones: a size, or a percentage as in 25% [default: none]
    #[arg(long, value_name = "SIZE|PERCENT")]
    pub movable: Option<Amount>,

    /// Size of the per-CPU lists: scaled, classic, early, fraction:N or fixed:N [default: scaled]
    #[arg(long, value_name = "SIZING")]
    pub pcp_sizing: Option<PcpSizing>,

    /// How the minimum of free memory is set
    #[arg(long, value_name = "HOW", value_enum, default_value_t)]
    pub huge_page_minimum: HugePageMinimum,

    /// Fill free frames with a pattern and check it on allocation; writes to all memory
    #[arg(long)]
    pub poison: bool,
}

/// Arguments of `boot`.
#[derive(Args, Clone, Debug)]
pub struct BootArgs {
    /// The machine.
    #[command(flatten)]
    pub machine: MachineArgs,
    /// The yard.
    #[command(flatten)]
    pub yard: YardArgs,
    /// How the memory map is initialised.
    #[command(flatten)]
    pub init: InitArgs,
    /// Whether per-CPU lists are sized again once all memory is initialised; prints their sizes; implies deferred
    /// initialisation and classic sizing
    #[arg(long, value_name = "WHETHER", value_parser = pcp_reset())]
    pub pcp_reset: Option<PcpReset>,
    /// A memory map without a limit.
    #[command(flatten)]
    pub full: FullArgs,
    /// The policy to boot with
    #[arg(long, value_parser = zone_policy(), default_value_t)]
    pub policy: ZonePolicy,
    /// Make all frames present in the host's memory
    #[arg(long, conflicts_with = "phantom")]
    pub prefault: bool,
    /// Make the memory map present in the host's memory before its initialisation, which times then exclude
    #[arg(long)]
    pub prefault_map: bool,
    /// The form of the result.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Arguments of `show`.
#[derive(Args, Clone, Debug)]
pub struct ShowArgs {
    /// What to print
    #[arg(value_name = "FILE")]
    pub file: ShownFile,
    /// The machine.
    #[command(flatten)]
    pub machine: MachineArgs,
    /// The yard.
    #[command(flatten)]
    pub yard: YardArgs,
    /// How the memory map is initialised.
    #[command(flatten)]
    pub init: InitArgs,
    /// A memory map without a limit.
    #[command(flatten)]
    pub full: FullArgs,
    /// The policy to boot with
    #[arg(long, value_parser = zone_policy(), default_value_t)]
    pub policy: ZonePolicy,
    /// The format: of a kernel for files of /proc; text or Prometheus for metrics
    #[arg(long, value_enum)]
    pub format: Option<ShownFormat>,
    /// Leave out metrics whose value is 0: in Prometheus single series, in JSON and CSV rows
    #[arg(long)]
    pub nonzero: bool,
    /// Run a workload first
    #[arg(long, value_name = "WORKLOAD")]
    pub after: Option<Workload>,
    /// Seed of the workload's random choices
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number, requires = "after")]
    pub seed: u64,
    /// The form of the result.
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Arguments of `layout`.
#[derive(Args, Clone, Debug)]
pub struct LayoutArgs {
    /// The form of the result.
    #[command(flatten)]
    pub output: OutputArgs,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser, Debug)]
    struct Line {
        #[command(flatten)]
        show: ShowArgs,
    }

    fn read(line: &str) -> Result<ShowArgs, String> {
        let words = std::iter::once("x").chain(line.split_whitespace());
        Line::try_parse_from(words).map(|line| line.show).map_err(|error| error.to_string())
    }

    #[test]
    fn show_takes_a_format() {
        let args = read("zoneinfo").unwrap();
        assert_eq!((args.file, args.format, args.after), (ShownFile::Zoneinfo, None, None));
        assert_eq!((args.yard.pcp_sizing, args.yard.movable), (None, None));
        let args = read("buddyinfo --format 6.1 --after churn --movable 10% --pcp-sizing fixed:512").unwrap();
        assert_eq!((args.format, args.after), (Some(ShownFormat::V6_1), Some(Workload::Churn)));
        assert_eq!(args.yard.movable, Some(Amount::Percent(10)));
        assert_eq!(args.yard.pcp_sizing, Some(PcpSizing::Fixed(512)));
    }

    #[test]
    fn show_refuses_unknown_values() {
        assert!(
            read("slabinfo")
                .unwrap_err()
                .contains("possible values: buddyinfo, pagetypeinfo, zoneinfo, vmstat, metrics")
        );
        assert!(read("vmstat --format 5.4").unwrap_err().contains("possible values: 6.1, 6.12, text, prometheus"));
        assert!(read("vmstat --movable 200%").unwrap_err().contains("0 to 100"));
        assert!(
            read("vmstat --pcp-sizing half").unwrap_err().contains("scaled, classic, early, fraction:N or fixed:N")
        );
    }
}
