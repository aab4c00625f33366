//! Checks of the sources that the compiler does not make. The argument is the name of a check; the working directory is the
//! repository root.
//!
//! - `layering`: a module or crate uses only modules or crates below it, and atomics come from the core's `sync`.
//! - `prose`: comments and documents avoid the constructions listed in [`prose`].
//! - `orderings`: every memory ordering stronger than `Relaxed` names the function it pairs with.
//! - `references`: the files, links and functions that documents name exist.
//! - `count`: prints the lines of code and the unsafe blocks of each crate and module. It has no violations.
//!
//! A check prints one line for each violation, and exits with 1 if there is any. Code under `#[cfg(test)]` may use higher layers,
//! and its orderings need no partners. Its prose is checked.

mod count;
mod crates;
mod impls;
mod layers;
mod modules;
mod orderings;
mod prose;
mod references;
mod sources;
mod tokens;

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A place that breaks a rule, or that the check cannot judge.
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

/// The result of a check.
struct Findings {
    /// What the check has read, in words.
    read: String,
    violations: Vec<Violation>,
}

fn main() -> ExitCode {
    let name = std::env::args().nth(1).unwrap_or_default();
    let root = Path::new(".");
    let findings = match name.as_str() {
        "layering" => layers::check(root),
        "prose" => prose::check(root),
        "orderings" => orderings::check(root),
        "references" => references::check(root),
        "count" => count::check(root),
        _ => Err("name a check: layering, prose, references, orderings or count".to_owned()),
    };
    match findings {
        Ok(Findings { read, violations }) if violations.is_empty() => {
            println!("{name}: {read}");
            ExitCode::SUCCESS
        }
        Ok(Findings { violations, .. }) => {
            for violation in &violations {
                eprintln!("{name}: {violation}");
            }
            eprintln!("{name}: {} violations", violations.len());
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::FAILURE
        }
    }
}
