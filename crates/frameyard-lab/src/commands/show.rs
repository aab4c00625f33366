//! `show`: a file of /proc as a kernel would print it on the machine, or metrics of the yard's own.

mod rows;

use std::fmt;
use std::io::{self, Write};

use frameyard::{
    InitMode, KernelFormat, MovableMinimum, write_buddyinfo, write_metrics, write_pagetypeinfo, write_prometheus,
    write_vmstat, write_zoneinfo,
};
use frameyard_host::{HostYard, LockTiming};
use serde_json::{Map, Value};

use super::boot::{boot, reproducible};
use crate::Failure;
use crate::bring_up::{BringUp, BroughtUp, MapLimit};
use crate::cli::{ShowArgs, ShownFile, ShownFormat, Workload};
use crate::output::{self, Outcome, RowError, Rows};
use frameyard_workloads::churn::churn;

/// Boots, runs the workload if one is asked for, and prints the file.
pub(super) fn run(args: &ShowArgs) -> Result<(), Failure> {
    let form = form(args.file, args.format).map_err(Failure::input)?;
    let booted = boot(&args.machine, |machine| {
        let map_init = args.init.map_init(InitMode::Eager, machine)?;
        let map_limit = if args.full { MapLimit::Full } else { MapLimit::Usual };
        let mut options =
            BringUp { map_init, map_limit, policy: args.policy, ..reproducible(&args.machine, &args.yard) };
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
    output::print(&Shown { booted, form }, &args.output)
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

/// What is shown, and how it is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Form {
    Proc(ProcFile, KernelFormat),
    Metrics(MetricsFormat),
}

/// The form that is asked for, or why there is none.
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

/// What is shown of a machine that was brought up.
struct Shown {
    booted: BroughtUp,
    form: Form,
}

impl Shown {
    fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        write_form(&self.booted.yard, self.form, &mut text)?;
        Ok(text)
    }
}

fn write_form(yard: &HostYard, form: Form, out: &mut String) -> fmt::Result {
    match form {
        Form::Proc(ProcFile::Buddyinfo, _) => write_buddyinfo(&**yard, out),
        Form::Proc(ProcFile::Pagetypeinfo, _) => write_pagetypeinfo(&**yard, out),
        Form::Proc(ProcFile::Zoneinfo, format) => write_zoneinfo(&**yard, format, out),
        Form::Proc(ProcFile::Vmstat, format) => write_vmstat(&**yard, format, out),
        Form::Metrics(MetricsFormat::Text) => write_metrics(&**yard, out),
        Form::Metrics(MetricsFormat::Prometheus) => write_prometheus(&**yard, out),
    }
}

impl Outcome for Shown {
    fn command(&self) -> &'static str {
        match self.form {
            Form::Proc(ProcFile::Buddyinfo, _) => "show buddyinfo",
            Form::Proc(ProcFile::Pagetypeinfo, _) => "show pagetypeinfo",
            Form::Proc(ProcFile::Zoneinfo, _) => "show zoneinfo",
            Form::Proc(ProcFile::Vmstat, _) => "show vmstat",
            Form::Metrics(_) => "show metrics",
        }
    }

    fn machine(&self) -> Option<&str> {
        Some(&self.booted.machine.name)
    }

    fn totals(&self) -> Map<String, Value> {
        let format = match self.form {
            Form::Proc(_, format) => format.to_string(),
            Form::Metrics(MetricsFormat::Text) => "text".to_owned(),
            Form::Metrics(MetricsFormat::Prometheus) => "prometheus".to_owned(),
        };
        Map::from_iter([("format".to_owned(), format.into())])
    }

    fn rows(&self) -> Result<Rows, RowError> {
        let yard = &*self.booted.yard;
        let rows = match self.form {
            Form::Proc(ProcFile::Buddyinfo, _) => rows::of_buddyinfo(yard),
            Form::Proc(ProcFile::Pagetypeinfo, _) => rows::of_pagetypeinfo(yard),
            Form::Proc(ProcFile::Zoneinfo, _) => rows::of_zoneinfo(yard),
            Form::Proc(ProcFile::Vmstat, format) => rows::of_vmstat(yard, format),
            Form::Metrics(_) => rows::of_metrics(yard),
        };
        Rows::of(&rows)
    }

    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(self.text().map_err(io::Error::other)?.as_bytes())
    }
}
