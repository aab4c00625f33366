//! `trace export`: writes a recording in a format of other programs.

use std::io::{Cursor, Read, Write};
use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use frameyard_traces::{
    BadLines, CSV_HEADER, Imported, Item, LlfreeWriter, TraceError, TraceEvent, import, write_csv, write_fact,
    write_text,
};

use super::input::{bad_input, open, summary};
use crate::Failure;
use crate::output::OutputFile;

/// What follows the options in the help text.
const HELP: &str = "\
Reads any format that `trace import` reads.

Examples:
  frameyard trace export build.fyt --format csv -o build.csv
  frameyard trace export build.trace.zst --format llfree -o build.bin";

/// Converts a recording to a format of other programs
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(super) struct ExportArgs {
    /// A recording; - reads standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,

    /// The format to write
    #[arg(long, value_name = "FORMAT", value_enum)]
    format: ExportFormat,

    /// The file to write
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    out: OutputFile,
}

/// A format of other programs.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum ExportFormat {
    /// Comma-separated values, a line for each event
    Csv,
    /// Lines as ftrace prints them
    Text,
    /// A trace for LLFree's replay: allocations and frees only; takes their size in memory
    Llfree,
}

/// Converts, and prints one line.
pub(super) fn run(args: &ExportArgs) -> Result<(), Failure> {
    let source = open(&args.file)?;
    let mut exported = None;
    args.out.write(|out| {
        exported = Some(export(source, args.format, out));
        Ok(())
    })?;
    if let Some(exported) = exported {
        let (imported, written) = exported.map_err(|error| bad_input(&args.file, error))?;
        let summary = summary(&args.file, &imported);
        println!("{}: {written} lines or entries for {summary}", args.out.path().display());
    }
    Ok(())
}

/// Writes a recording. Returns what was read, and the number of events written.
fn export(source: Box<dyn Read>, format: ExportFormat, mut out: &mut dyn Write) -> Result<(Imported, u64), TraceError> {
    if format == ExportFormat::Llfree {
        let mut file = Cursor::new(Vec::new());
        let mut writer = LlfreeWriter::new(&mut file)?;
        let imported = import(source, BadLines::Skip, &mut |item| match item {
            Item::Events(events) => events.iter().try_for_each(|event| writer.event(event)),
            Item::Fact { .. } | Item::Snapshot { .. } => Ok(()),
        })?;
        let written = writer.finish()?;
        out.write_all(file.get_ref())?;
        return Ok((imported, written));
    }
    let is_csv = format == ExportFormat::Csv;
    if is_csv {
        writeln!(out, "{CSV_HEADER}")?;
    }
    let mut written = 0;
    let imported = import(source, BadLines::Skip, &mut |item| {
        match item {
            Item::Events(events) => {
                written += events.len() as u64;
                let mut write = |event: &TraceEvent| match is_csv {
                    true => write_csv(event, &mut out),
                    false => write_text(event, &mut out),
                };
                events.iter().try_for_each(&mut write)?;
            }
            Item::Fact { name, value } if !is_csv => write_fact(&name, &value, &mut out)?,
            Item::Fact { .. } | Item::Snapshot { .. } => {}
        }
        Ok(())
    })?;
    Ok((imported, written))
}
