//! `show`: a file of /proc as a kernel would print it on the machine.

mod rows;

use std::fmt;
use std::io::{self, Write};

use frameyard::{
    InitMode, KernelFormat, MovableMinimum, ReportSource, write_buddyinfo, write_pagetypeinfo, write_vmstat,
    write_zoneinfo,
};
use serde_json::{Map, Value};

use super::boot::{boot, reproducible};
use crate::Failure;
use crate::bring_up::{BringUp, BroughtUp, MapLimit};
use crate::cli::{ProcFile, ShowArgs, Workload};
use crate::output::{self, Outcome, RowError, Rows};
use crate::workload::churn::churn;

/// Boots, runs the workload if one is asked for, and prints the file.
pub(super) fn run(args: &ShowArgs) -> Result<(), Failure> {
    let format = KernelFormat::from(args.format);
    let booted = boot(&args.machine, |machine| {
        let map_init = args.init.map_init(InitMode::Eager, machine)?;
        let map_limit = if args.full { MapLimit::Full } else { MapLimit::Usual };
        let mut options =
            BringUp { map_init, map_limit, policy: args.policy, ..reproducible(&args.machine, &args.yard) };
        options.watermarks.movable_minimum = match format {
            KernelFormat::V6_1 => MovableMinimum::Proportional,
            KernelFormat::V6_12 => MovableMinimum::Clamped,
        };
        Ok(options)
    })?;
    match args.after {
        None => {}
        Some(Workload::Churn) => churn(&booted.yard, args.seed).map_err(Failure::run_time)?,
    }
    output::print(&Shown { booted, file: args.file, format }, &args.output)
}

/// A file of a machine that was brought up.
struct Shown {
    booted: BroughtUp,
    file: ProcFile,
    format: KernelFormat,
}

impl Shown {
    fn text(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        write_file(&*self.booted.yard, self.file, self.format, &mut text)?;
        Ok(text)
    }
}

fn write_file(source: &dyn ReportSource, file: ProcFile, format: KernelFormat, out: &mut String) -> fmt::Result {
    match file {
        ProcFile::Buddyinfo => write_buddyinfo(source, out),
        ProcFile::Pagetypeinfo => write_pagetypeinfo(source, out),
        ProcFile::Zoneinfo => write_zoneinfo(source, format, out),
        ProcFile::Vmstat => write_vmstat(source, format, out),
    }
}

impl Outcome for Shown {
    fn command(&self) -> &'static str {
        match self.file {
            ProcFile::Buddyinfo => "show buddyinfo",
            ProcFile::Pagetypeinfo => "show pagetypeinfo",
            ProcFile::Zoneinfo => "show zoneinfo",
            ProcFile::Vmstat => "show vmstat",
        }
    }

    fn machine(&self) -> Option<&str> {
        Some(&self.booted.machine.name)
    }

    fn totals(&self) -> Map<String, Value> {
        Map::from_iter([("format".to_owned(), self.format.to_string().into())])
    }

    fn rows(&self) -> Result<Rows, RowError> {
        let yard = &*self.booted.yard;
        let rows = match self.file {
            ProcFile::Buddyinfo => rows::of_buddyinfo(yard),
            ProcFile::Pagetypeinfo => rows::of_pagetypeinfo(yard),
            ProcFile::Zoneinfo => rows::of_zoneinfo(yard),
            ProcFile::Vmstat => rows::of_vmstat(yard, self.format),
        };
        Rows::of(&rows)
    }

    fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(self.text().map_err(io::Error::other)?.as_bytes())
    }
}
