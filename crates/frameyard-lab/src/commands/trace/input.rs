//! A recording, from a file or standard input, and the snapshot beside it.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, Read};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

use frameyard_traces::replay::ReplayPlan;
use frameyard_traces::snapshot::{KernelSnapshot, SnapshotError};
use frameyard_traces::{BadLines, Imported, Item, TraceEvent, import};

use crate::Failure;

/// The files of a snapshot. The kernel may have been built without pagetypeinfo.
pub(super) const BUDDYINFO: &str = "buddyinfo.before";
pub(super) const PAGETYPEINFO: &str = "pagetypeinfo.before";
pub(super) const ZONEINFO: &str = "zoneinfo.before";

/// The texts of a snapshot's files, by name.
pub(super) type SnapshotFiles = BTreeMap<String, String>;

/// An error of a recording or of a file beside it.
pub(super) fn bad_input(path: &Path, error: impl Display) -> Failure {
    Failure::input(format!("{}: {error}", path.display()))
}

/// Opens a recording; `-` is standard input.
pub(super) fn open(path: &Path) -> Result<Box<dyn Read>, Failure> {
    Ok(match path.to_str() {
        Some("-") => Box::new(io::stdin()),
        _ => Box::new(File::open(path).map_err(|error| bad_input(path, error))?),
    })
}

/// A recording that was read as a whole, and what replaying it takes.
pub(in crate::commands) struct ReadRecording {
    pub(in crate::commands) imported: Imported,
    pub(in crate::commands) plan: ReplayPlan,
}

/// Reads a recording, or its first `most` events, with the snapshot that a prefix names, or that of the recording, or the one beside it.
pub(in crate::commands) fn read(
    path: &Path,
    prefix: Option<&Path>,
    most: Option<NonZeroU32>,
) -> Result<ReadRecording, Failure> {
    let most = most.map_or(usize::MAX, |most| most.get() as usize);
    let (mut events, mut recorded): (Vec<TraceEvent>, _) = (Vec::new(), SnapshotFiles::new());
    let imported = import(open(path)?, BadLines::Skip, &mut |item| {
        match item {
            Item::Events(more) => events.extend(more.into_iter().take(most - events.len())),
            Item::Snapshot { name, text } => drop(recorded.insert(name, text)),
            Item::Fact { .. } => {}
        }
        Ok(())
    });
    let imported = imported.map_err(|error| bad_input(path, error))?;
    let files = match prefix {
        Some(prefix) => snapshot_files(prefix)?,
        None if recorded.is_empty() => snapshot_beside(path)?,
        None => recorded,
    };
    let snapshot = parse(&files).map_err(|error| bad_input(prefix.unwrap_or(path), error))?;
    let plan = ReplayPlan::new(&events, snapshot.as_ref()).map_err(|error| bad_input(path, error))?;
    Ok(ReadRecording { imported, plan })
}

/// The snapshot in some files; `None` without files.
fn parse(files: &SnapshotFiles) -> Result<Option<KernelSnapshot>, SnapshotError> {
    if files.is_empty() {
        return Ok(None);
    }
    let text = |name| files.get(name).map_or("", String::as_str);
    let types = files.get(PAGETYPEINFO).map(String::as_str);
    KernelSnapshot::parse(text(BUDDYINFO), types, text(ZONEINFO)).map(Some)
}

/// Prints the lines that were skipped. Returns what was read, in words.
pub(super) fn summary(path: &Path, imported: &Imported) -> String {
    for (number, problem) in &imported.first_skipped {
        eprintln!("{}: line {number} skipped: {problem}", path.display());
    }
    let end = if imported.is_truncated { ", its end is missing" } else { "" };
    let Imported { events, skipped, lost, .. } = imported;
    format!("{events} events, {skipped} lines skipped, {lost} lost{end}")
}

/// Reads the files of a snapshot whose names begin with a prefix.
pub(super) fn snapshot_files(prefix: &Path) -> Result<SnapshotFiles, Failure> {
    let mut files = SnapshotFiles::new();
    for name in [BUDDYINFO, PAGETYPEINFO, ZONEINFO] {
        let path = snapshot_file(prefix, name);
        match fs::read_to_string(&path) {
            Ok(text) => drop(files.insert(name.to_owned(), text)),
            Err(error) if name == PAGETYPEINFO && error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(bad_input(&path, error)),
        }
    }
    Ok(files)
}

/// Reads the snapshot beside a recording; no files if there is none.
pub(super) fn snapshot_beside(file: &Path) -> Result<SnapshotFiles, Failure> {
    let prefix = beside(file);
    if snapshot_file(&prefix, BUDDYINFO).exists() { snapshot_files(&prefix) } else { Ok(SnapshotFiles::new()) }
}

/// The path of a snapshot's file.
pub(super) fn snapshot_file(prefix: &Path, name: &str) -> PathBuf {
    let mut path = prefix.as_os_str().to_owned();
    path.push(".");
    path.push(name);
    path.into()
}

/// What the names of the snapshot beside a recording begin with: `a/build` for `a/build.trace.zst`.
pub(super) fn beside(file: &Path) -> PathBuf {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let name = name.strip_suffix(".zst").unwrap_or(&name);
    file.with_file_name(name.strip_suffix(".trace").unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_lies_beside_its_recording() {
        assert_eq!(beside(Path::new("a/build.trace.zst")), Path::new("a/build"));
        assert_eq!(beside(Path::new("build.trace")), Path::new("build"));
        assert_eq!(beside(Path::new("build.fyt")), Path::new("build.fyt"));
    }
}
