//! The end of a test run: what tests skipped, if the harness shows it (`--show-output`), the tests that failed, with their messages, and
//! how many there were of each.

use std::collections::BTreeMap;

use crate::process::{Outcome, failed};

/// What the harness of `cargo test` prints after the tests: the output of those that passed, then of those that failed, each followed by
/// a list of names under the same heading.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
enum Section {
    #[default]
    Tests,
    Successes,
    Failures,
    NamesOfSuccesses,
    NamesOfFailures,
}

#[derive(Default)]
pub(crate) struct Summary {
    section: Section,
    /// The test whose output follows.
    test: String,
    panics: usize,
    /// How many more lines belong to a message.
    lines: usize,
    /// What failed tests have said.
    said: BTreeMap<String, String>,
    shows_output: bool,
    skips: Vec<String>,
    failures: Vec<String>,
    errors: Vec<String>,
    passed: usize,
    failed: usize,
}

impl Summary {
    /// Takes a line of the output. A message ends at the backtrace or at an empty line. Three panics of a test and three lines of each
    /// tell enough.
    pub(crate) fn read(&mut self, line: &str) {
        let in_failures = self.section == Section::Failures;
        if line == "successes:" {
            let again = self.section == Section::Successes;
            self.section = if again { Section::NamesOfSuccesses } else { Section::Successes };
            self.shows_output = true;
        } else if line == "failures:" {
            self.section = if in_failures { Section::NamesOfFailures } else { Section::Failures };
        } else if let Some(counts) = line.strip_prefix("test result: ") {
            let count =
                |at| counts.split_whitespace().nth(at).and_then(|count| count.parse::<usize>().ok()).unwrap_or(0);
            self.passed += count(1);
            self.failed += count(3);
            self.section = Section::Tests;
        } else if let Some(test) = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----")) {
            self.test = test.to_owned();
            (self.panics, self.lines) = (0, 0);
        } else if self.section == Section::Successes && line.starts_with("skipped: ") {
            self.skips.push(format!("{} {line}", self.test));
        } else if line.is_empty() || line == "stack backtrace:" || line.starts_with("note: ") {
            self.lines = 0;
            if in_failures && line.starts_with("note: test did not panic") {
                self.says(line);
            }
        } else if in_failures {
            if line.contains(" panicked at ") {
                self.panics += 1;
                self.lines = if self.panics <= 3 { 4 } else { self.lines };
            }
            if self.lines > 0 || line.starts_with("Error: ") {
                self.says(line);
            }
            self.lines = self.lines.saturating_sub(1);
        } else if self.section == Section::NamesOfFailures
            && let Some(test) = line.strip_prefix("    ")
        {
            self.failures.push(format!("FAILED {test}{}", self.said.remove(test).unwrap_or_default()));
        }
        if line.starts_with("error: ") && self.errors.len() < 3 {
            self.errors.push(line.to_owned());
        }
    }

    fn says(&mut self, line: &str) {
        let start: String = line.chars().take(300).collect();
        *self.said.entry(self.test.clone()).or_default() += &format!("\n    {start}");
    }

    /// Prints the summary. That no test ran is a failure.
    pub(crate) fn print(&self, label: &str) -> Outcome {
        for line in self.skips.iter().chain(&self.failures).chain(&self.errors) {
            println!("{label}: {line}");
        }
        let skipped = if self.shows_output { format!(", {} skipped", self.skips.len()) } else { String::new() };
        println!("{label}: {} passed, {} failed{skipped}", self.passed, self.failed);
        if self.passed + self.failed == 0 { failed("") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skips_failures_with_their_messages_and_counts_are_found() {
        let output = "running 3 tests\n\nsuccesses:\n\n---- a stdout ----\nskipped: no huge pages\n\n---- b stdout ----\nnote\n\n\
            successes:\n    a\n    b\n\nfailures:\n\n---- c stdout ----\nskipped: not this\nthread 'c' panicked at x.rs:1:2:\nleft: 1\nright: 2\n\
            note: run with RUST_BACKTRACE\nrest\n\n---- d stdout ----\nnote: test did not panic as expected\n\nfailures:\n    c\n    d\n\n\
            test result: FAILED. 2 passed; 2 failed; 0 ignored\n\nerror: test failed\nerror: 1 target failed\n";
        let mut summary = Summary::default();
        output.lines().for_each(|line| summary.read(line));
        assert_eq!(summary.skips, ["a skipped: no huge pages"]);
        assert_eq!(
            summary.failures,
            [
                "FAILED c\n    thread 'c' panicked at x.rs:1:2:\n    left: 1\n    right: 2",
                "FAILED d\n    note: test did not panic as expected"
            ]
        );
        assert_eq!(summary.errors.len(), 2);
        assert_eq!((summary.passed, summary.failed, summary.shows_output), (2, 2, true));
        assert!(summary.print("x").is_ok() && Summary::default().print("x").is_err());
    }
}
