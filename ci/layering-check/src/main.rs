//! Checks the layers of Frameyard: inside the core a module uses only those before it in [`MODULES`], and
//! a crate depends only on those before it in [`CRATES`]. Atomics of the crates that models explore come from the core's
//! module `sync` alone.
//!
//! Run from the repository root; prints one line for each violation and exits with 1 if there is any.
//! Code for tests only (`#[cfg(test)]`) may look upwards and is left out.

mod crates;
mod modules;
mod tokens;

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The modules of the core, bottom-up. `units` is the crate `frameyard-units`, which the core re-exports under this name.
const MODULES: &[&str] = &[
    "units",
    "gfp",
    "sync",
    "platform",
    "lock",
    "job",
    "page",
    "owner",
    "memmap",
    "memblock",
    "control",
    "zone",
    "pagemap",
    "boot",
    "compaction",
    "yard",
    "report",
];

/// The crates, bottom-up.
const CRATES: &[&str] = &["frameyard-units", "frameyard", "frameyard-vm", "frameyard-host", "frameyard-sim", "frameyard-workloads", "frameyard-lab"];

/// Crates that depend on nothing outside the workspace.
const WITHOUT_DEPENDENCIES: &[&str] = &["frameyard-units", "frameyard"];

/// Crates that stand side by side: neither may use the other.
const APART: &[(&str, &str)] = &[("frameyard-host", "frameyard-sim")];

/// The crates beside the core whose protocols are explored by models.
const MODELLED: &[&str] = &["frameyard-vm"];

/// A place where a layer is not kept, or where the check cannot tell.
#[derive(Debug, PartialEq, Eq)]
struct Violation {
    file: PathBuf,
    line: usize,
    what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file.display(), self.line, self.what)
    }
}

/// A source file: its path from the source folder, and its text.
struct SourceFile {
    path: PathBuf,
    text: String,
}

fn main() -> ExitCode {
    match check(Path::new(".")) {
        Ok((files, violations)) => {
            for violation in &violations {
                eprintln!("layering: {violation}");
            }
            if violations.is_empty() {
                println!("layering: {files} files of the core and every manifest keep the layers");
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(error) => {
            eprintln!("layering: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Checks the repository at `root`; also returns how many files of the core were read.
fn check(root: &Path) -> Result<(usize, Vec<Violation>), String> {
    let source = root.join("crates/frameyard/src");
    let mut files = Vec::new();
    read_sources(&source, &source, &mut files)?;
    let mut violations = modules::check(&files, MODULES);
    for violation in &mut violations {
        violation.file = Path::new("crates/frameyard/src").join(&violation.file);
    }
    for name in MODELLED {
        let source = root.join("crates").join(name).join("src");
        let mut files = Vec::new();
        read_sources(&source, &source, &mut files)?;
        violations.extend(modules::check_atomics(&files).into_iter().map(|violation| Violation {
            file: Path::new("crates").join(name).join("src").join(violation.file),
            ..violation
        }));
    }
    for folder in read_folder(&root.join("crates"))? {
        let manifest = folder.join("Cargo.toml");
        if manifest.is_file() {
            violations.extend(crates::check(&manifest, &read(&manifest)?, CRATES));
        }
    }
    Ok((files.len(), violations))
}

fn read_sources(base: &Path, folder: &Path, files: &mut Vec<SourceFile>) -> Result<(), String> {
    for path in read_folder(folder)? {
        if path.is_dir() {
            read_sources(base, &path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = read(&path)?;
            let path = path.strip_prefix(base).map_err(|error| error.to_string())?.to_owned();
            files.push(SourceFile { path, text });
        }
    }
    Ok(())
}

fn read_folder(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(entry.map_err(|error| format!("{}: {error}", folder.display()))?.path());
    }
    paths.sort();
    Ok(paths)
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}
