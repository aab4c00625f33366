//! `trace import`: reads a recording of any known format, and writes Frameyard's.

use std::path::PathBuf;

use clap::{Args, ValueHint};
use frameyard_traces::{BadLines, Item, TraceWriter, import};

use super::input::{SnapshotFiles, bad_input, open, snapshot_beside, summary};
use crate::Failure;
use crate::output::OutputFile;

/// What follows the options in the help text.
const HELP: &str = "\
Reads text of ftrace, trace-cmd report or perf script, traces of LLFree, and Frameyard's format; plain or compressed by zstd.
Stores the snapshot beside the recording, if there is one: FILE without .zst and .trace, then .buddyinfo.before,
.pagetypeinfo.before and .zoneinfo.before.

Examples:
  frameyard trace import build.trace.zst -o build.fyt
  perf script | frameyard trace import - -o build.fyt";

/// Converts a recording to Frameyard's format
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub(super) struct ImportArgs {
    /// A recording; - reads standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,

    /// The file to write
    #[arg(long, short, value_name = "FILE", value_hint = ValueHint::FilePath)]
    out: OutputFile,

    /// Fail at the first line that cannot be read
    #[arg(long)]
    strict: bool,
}

/// Converts, and prints one line.
pub(super) fn run(args: &ImportArgs) -> Result<(), Failure> {
    let source = open(&args.file)?;
    let mut beside = snapshot_beside(&args.file)?;
    let bad_lines = if args.strict { BadLines::Refuse } else { BadLines::Skip };
    let (mut read, mut written) = (None, 0);
    args.out.write(|out| {
        let mut writer = TraceWriter::new(out)?;
        read = Some(import(source, bad_lines, &mut |item| {
            match item {
                Item::Events(events) => events.into_iter().try_for_each(|event| writer.event(event))?,
                Item::Fact { name, value } => writer.fact(&name, &value)?,
                Item::Snapshot { name, text } => {
                    beside = SnapshotFiles::new();
                    writer.snapshot(&name, &text)?;
                }
            }
            Ok(())
        }));
        beside.iter().try_for_each(|(name, text)| writer.snapshot(name, text))?;
        (_, written) = writer.finish()?;
        Ok(())
    })?;
    if let Some(imported) = read {
        let imported = imported.map_err(|error| bad_input(&args.file, error))?;
        println!("{}: {}, {written} bytes", args.out.path().display(), summary(&args.file, &imported));
    }
    Ok(())
}
