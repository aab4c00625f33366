//! Checks of the sources that the compiler does not make.
//!
//! A check prints one line for each violation, and fails if there is any. Code under `#[cfg(test)]` may use higher layers, and its
//! orderings need no partners.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::process::{Outcome, failed};

pub(crate) mod count;
pub(crate) mod crates;
mod files;
mod impls;
pub(crate) mod layers;
mod modules;
pub(crate) mod orderings;
pub(crate) mod references;
mod tokens;

/// A place that breaks a rule, or that the check cannot judge.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    file: PathBuf,
    line: usize,
    what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.file.display(), self.line, self.what)
    }
}

/// The result of a check.
pub(crate) struct Findings {
    /// What the check has read, in words.
    read: String,
    violations: Vec<Violation>,
}

/// Runs a check on the working directory and prints what it finds.
pub(crate) fn check(name: &str, check: fn(&Path) -> Result<Findings, String>) -> Outcome {
    let Findings { read, violations } = check(Path::new(".")).map_err(|error| format!("{name}: {error}"))?;
    for violation in &violations {
        eprintln!("{name}: {violation}");
    }
    if violations.is_empty() {
        println!("{name}: {read}");
        return Ok(());
    }
    failed(format!("{name}: {} violations", violations.len()))
}
