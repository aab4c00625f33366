//! `show`: a file of /proc as a kernel prints it on the machine, or the metrics of the yard.

mod rows;

use std::fmt;

use frameyard::boot::InitMode;
use frameyard::watermarks::MovableMinimum;
use frameyard_formats::{
    KernelFormat, Series, write_buddyinfo, write_metrics, write_pagetypeinfo, write_prometheus, write_vmstat,
    write_zoneinfo,
};
use frameyard_host::{HostYard, LockTiming};

use super::boot::{boot, reproducible};
use crate::Failure;
use crate::bring_up::BringUp;
use crate::cli::{ShowArgs, ShownFile, ShownFormat, Workload};
use crate::output::{Report, Row};
use frameyard_workloads::churn::churn;

/// Boots, runs the workload of `--after`, and prints the file.
pub(super) fn run(args: &ShowArgs) -> Result<(), Failure> {
    let form = form(args.file, args.format).map_err(Failure::input)?;
    if args.nonzero && !matches!(form, Form::Metrics(_)) {
        return Err(Failure::input("--nonzero goes with show metrics: a file of /proc is shown as a kernel writes it"));
    }
    let booted = boot(&args.machine, |machine| {
        let map_init = args.init.map_init(InitMode::Eager, machine)?;
        let mut options = BringUp {
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
        Some(Workload::Churn) => churn(&booted.yard, args.seed).map_err(Failure::run_time)?,
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
        Form::Proc(ProcFile::Buddyinfo, _) => write_buddyinfo(&**yard, out),
        Form::Proc(ProcFile::Pagetypeinfo, _) => write_pagetypeinfo(&**yard, out),
        Form::Proc(ProcFile::Zoneinfo, format) => write_zoneinfo(&**yard, format, out),
        Form::Proc(ProcFile::Vmstat, format) => write_vmstat(&**yard, format, out),
        Form::Metrics(MetricsFormat::Text) => write_metrics(&**yard, out),
        Form::Metrics(MetricsFormat::Prometheus) => write_prometheus(&**yard, series, out),
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
            Self::Proc(ProcFile::Buddyinfo, _) => rows::of_buddyinfo(&**yard),
            Self::Proc(ProcFile::Pagetypeinfo, _) => rows::of_pagetypeinfo(&**yard),
            Self::Proc(ProcFile::Zoneinfo, _) => rows::of_zoneinfo(&**yard),
            Self::Proc(ProcFile::Vmstat, format) => rows::of_vmstat(&**yard, format),
            Self::Metrics(_) => rows::of_metrics(&**yard, series),
        };
        rows.into_iter().map(Row::from).collect()
    }
}
