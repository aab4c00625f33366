//! `show`: a file of /proc as a kernel prints it on the machine, or the metrics of the yard.

mod rows;

use std::fmt;

use clap::{Args, ValueEnum};
use frameyard::boot::InitMode;
use frameyard::policy::ZonePolicy;
use frameyard::watermarks::MovableMinimum;
use frameyard_formats::{
    KernelFormat, Series, write_buddyinfo, write_metrics, write_pagetypeinfo, write_prometheus, write_vmstat,
    write_zoneinfo,
};
use frameyard_host::{HostYard, LockTiming};
use frameyard_workloads::churn::churn;

use super::boot::{boot, reproducible};
use crate::Failure;
use crate::args::values::{whole_number, zone_policy};
use crate::args::{FullArgs, InitArgs, MachineArgs, OutputArgs, YardArgs};
use crate::boot::BootOptions;
use crate::output::{Report, Row};

/// What follows the options in the help text.
const HELP: &str = "\
Examples:
  frameyard show zoneinfo --machine desktop-8 --phantom
  frameyard show buddyinfo --machine server-1t --memory 8G --phantom --after churn
  frameyard show metrics --machine desktop-8 --phantom --after churn --format prometheus --nonzero";

/// Boots a yard and prints a file of /proc as a kernel would, or metrics
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(super) struct ShowArgs {
    /// What to print
    #[arg(value_name = "FILE")]
    file: ShownFile,
    #[command(flatten)]
    machine: MachineArgs,
    #[command(flatten)]
    yard: YardArgs,
    #[command(flatten)]
    init: InitArgs,
    #[command(flatten)]
    full: FullArgs,
    /// The policy to boot with
    #[arg(long, value_parser = zone_policy(), default_value_t)]
    policy: ZonePolicy,
    /// The format: of a kernel for files of /proc; text or Prometheus for metrics
    #[arg(long, value_enum)]
    format: Option<ShownFormat>,
    /// Leave out metrics whose value is 0: in Prometheus single series, in JSON and CSV rows
    #[arg(long)]
    nonzero: bool,
    /// Run a workload first
    #[arg(long, value_name = "WORKLOAD")]
    after: Option<Workload>,
    /// Seed of the workload's random choices
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole_number, requires = "after")]
    seed: u64,
    #[command(flatten)]
    output: OutputArgs,
}

/// What `show` prints: a file of /proc, or the metrics of the yard.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum ShownFile {
    /// Free blocks of each order, by zone
    Buddyinfo,
    /// Free blocks by migration type, and pageblocks of each type
    Pagetypeinfo,
    /// Zones: page counts, watermarks, reserves, per-CPU lists
    Zoneinfo,
    /// Counters of the whole machine
    Vmstat,
    /// Zone locks and transfers, by zone and CPU
    Metrics,
}

/// The format of a file: a file of /proc as of a kernel version, metrics as text or for Prometheus.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum ShownFormat {
    /// A file of /proc, as in Linux 6.1
    #[value(name = "6.1")]
    V6_1,
    /// A file of /proc, as in Linux 6.12, the default there
    #[value(name = "6.12")]
    V6_12,
    /// Metrics, as lines of a name and a number, the default there
    Text,
    /// Metrics, in the text format of Prometheus
    Prometheus,
}

/// A workload of `show --after`.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum Workload {
    /// Blocks of mixed orders and types are allocated and freed at random, and some stay allocated
    Churn,
}

/// Boots, runs the workload of `--after`, and prints the file.
pub(super) fn run(args: &ShowArgs) -> Result<(), Failure> {
    let form = form(args.file, args.format).map_err(Failure::input)?;
    if args.nonzero && !matches!(form, Form::Metrics(_)) {
        return Err(Failure::input("--nonzero goes with show metrics: a file of /proc is shown as a kernel writes it"));
    }
    let booted = boot(&args.machine, |machine| {
        let map_init = args.init.map_init(InitMode::Eager, machine)?;
        let mut options = BootOptions {
            map_init,
            map_limit: args.full.map_limit(),
            policy: args.policy,
            ..reproducible(&args.machine, &args.yard)
        };
        options.watermarks.movable_minimum = match form {
            Form::Proc(_, KernelFormat::V6_1) => MovableMinimum::Proportional,
            Form::Proc(_, KernelFormat::V6_12) | Form::Metrics(_) => MovableMinimum::Clamped,
        };
        Ok(options)
    })?;
    if matches!(form, Form::Metrics(_)) {
        booted.yard.platform().time_locks(LockTiming::On);
    }
    match args.after {
        None => {}
        Some(Workload::Churn) => churn(booted.yard.core(), args.seed).map_err(Failure::run_time)?,
    }
    let series = if args.nonzero { Series::NonZero } else { Series::All };
    let mut text = String::new();
    write_form(&booted.yard, form, series, &mut text).map_err(Failure::run_time)?;
    Report::new(form.command(), form.rows(&booted.yard, series))
        .of_machine(booted.machine.name)
        .total("format", form.format())
        .verbatim(text)
        .print(&args.output)
}

/// A file of /proc.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum ProcFile {
    Buddyinfo,
    Pagetypeinfo,
    Zoneinfo,
    Vmstat,
}

/// How metrics are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MetricsFormat {
    Text,
    Prometheus,
}

/// A file and its format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Proc(ProcFile, KernelFormat),
    Metrics(MetricsFormat),
}

/// The form of the command line, or the reason why there is none.
fn form(file: ShownFile, format: Option<ShownFormat>) -> Result<Form, &'static str> {
    let file = match file {
        ShownFile::Buddyinfo => ProcFile::Buddyinfo,
        ShownFile::Pagetypeinfo => ProcFile::Pagetypeinfo,
        ShownFile::Zoneinfo => ProcFile::Zoneinfo,
        ShownFile::Vmstat => ProcFile::Vmstat,
        ShownFile::Metrics => {
            return match format {
                None | Some(ShownFormat::Text) => Ok(Form::Metrics(MetricsFormat::Text)),
                Some(ShownFormat::Prometheus) => Ok(Form::Metrics(MetricsFormat::Prometheus)),
                Some(ShownFormat::V6_1 | ShownFormat::V6_12) => {
                    Err("no kernel has the format of metrics: write --format text or --format prometheus")
                }
            };
        }
    };
    match format {
        Some(ShownFormat::V6_1) => Ok(Form::Proc(file, KernelFormat::V6_1)),
        None | Some(ShownFormat::V6_12) => Ok(Form::Proc(file, KernelFormat::V6_12)),
        Some(ShownFormat::Text | ShownFormat::Prometheus) => {
            Err("files of /proc are written as a kernel does: write --format 6.1 or --format 6.12")
        }
    }
}

fn write_form(yard: &HostYard, form: Form, series: Series, out: &mut String) -> fmt::Result {
    match form {
        Form::Proc(ProcFile::Buddyinfo, _) => write_buddyinfo(yard.core(), out),
        Form::Proc(ProcFile::Pagetypeinfo, _) => write_pagetypeinfo(yard.core(), out),
        Form::Proc(ProcFile::Zoneinfo, format) => write_zoneinfo(yard.core(), format, out),
        Form::Proc(ProcFile::Vmstat, format) => write_vmstat(yard.core(), format, out),
        Form::Metrics(MetricsFormat::Text) => write_metrics(yard.core(), out),
        Form::Metrics(MetricsFormat::Prometheus) => write_prometheus(yard.core(), series, out),
    }
}

impl Form {
    fn command(self) -> &'static str {
        match self {
            Self::Proc(ProcFile::Buddyinfo, _) => "show buddyinfo",
            Self::Proc(ProcFile::Pagetypeinfo, _) => "show pagetypeinfo",
            Self::Proc(ProcFile::Zoneinfo, _) => "show zoneinfo",
            Self::Proc(ProcFile::Vmstat, _) => "show vmstat",
            Self::Metrics(_) => "show metrics",
        }
    }

    fn format(self) -> String {
        match self {
            Self::Proc(_, format) => format.to_string(),
            Self::Metrics(MetricsFormat::Text) => "text".to_owned(),
            Self::Metrics(MetricsFormat::Prometheus) => "prometheus".to_owned(),
        }
    }

    fn rows(self, yard: &HostYard, series: Series) -> Vec<Row> {
        let rows = match self {
            Self::Proc(ProcFile::Buddyinfo, _) => rows::of_buddyinfo(yard.core()),
            Self::Proc(ProcFile::Pagetypeinfo, _) => rows::of_pagetypeinfo(yard.core()),
            Self::Proc(ProcFile::Zoneinfo, _) => rows::of_zoneinfo(yard.core()),
            Self::Proc(ProcFile::Vmstat, format) => rows::of_vmstat(yard.core(), format),
            Self::Metrics(_) => rows::of_metrics(yard.core(), series),
        };
        rows.into_iter().map(Row::from).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Amount;
    use frameyard::watermarks::PcpSizing;

    fn read(line: &str) -> Result<ShowArgs, String> {
        crate::args::read(line)
    }

    #[test]
    fn show_takes_a_format() {
        let args = read("zoneinfo").unwrap();
        assert_eq!((args.file, args.format, args.after), (ShownFile::Zoneinfo, None, None));
        assert_eq!((args.yard.sizing(), args.yard.movable), (None, None));
        let args = read("buddyinfo --format 6.1 --after churn --movable 10% --pcp-sizing fixed:512").unwrap();
        assert_eq!((args.format, args.after), (Some(ShownFormat::V6_1), Some(Workload::Churn)));
        assert_eq!(args.yard.movable, Some(Amount::Percent(10)));
        assert_eq!(args.yard.sizing(), Some(PcpSizing::Fixed(512)));
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
