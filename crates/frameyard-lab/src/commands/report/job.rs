//! A job: a named command line of this program, and a part of a list of jobs.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// What a job measures.
#[derive(Serialize, Deserialize, Clone, Copy, PartialEq, Eq, Debug)]
#[serde(rename_all = "kebab-case")]
pub(super) enum JobKind {
    /// A benchmark on this machine: its figures differ between runs.
    Native,
    /// A simulation: its rows depend on the program, and a recording that it names, alone.
    Simulation,
    /// A replay of a recording on one thread: its counts depend on the program and the recording alone.
    Replay,
}

impl JobKind {
    /// The name in lists and results.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Simulation => "simulation",
            Self::Replay => "replay",
        }
    }

    /// Whether two runs of the same program give the same rows.
    pub(super) fn is_deterministic(self) -> bool {
        self != Self::Native
    }
}

/// A named command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Job {
    /// Names the file of the result: letters, digits, hyphens.
    pub(super) name: String,
    pub(super) kind: JobKind,
    /// The arguments of the program, without `--json`.
    pub(super) arguments: Vec<String>,
}

impl Job {
    /// A job of a command line in words.
    pub(super) fn new(name: impl Into<String>, kind: JobKind, line: &str) -> Self {
        Self { name: name.into(), kind, arguments: line.split_whitespace().map(str::to_owned).collect() }
    }

    /// The command line that runs the job again, for a shell.
    pub(super) fn command(&self) -> String {
        let quoted = |argument: &String| {
            let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-_=.,/:+%".contains(letter);
            match argument.chars().all(is_plain) && !argument.is_empty() {
                true => argument.clone(),
                // A quote ends the quoted part, stands for itself behind a backslash, and another part begins.
                false => format!("'{}'", argument.replace('\'', "'\\''")),
            }
        };
        format!("frameyard {} --json", self.arguments.iter().map(quoted).collect::<Vec<_>>().join(" "))
    }
}

/// A part of the jobs: the I-th of N.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shard {
    index: NonZeroU32,
    count: NonZeroU32,
}

impl Shard {
    /// Every N-th job, from the I-th on. Neighbours in the list take similar times, so the parts do too.
    pub(super) fn of(self, jobs: Vec<Job>) -> Vec<Job> {
        let (first, step) = (self.index.get() as usize - 1, self.count.get() as usize);
        jobs.into_iter().skip(first).step_by(step).collect()
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
        match parts {
            Some((index, count)) if index <= count => Ok(Self { index, count }),
            _ => Err("write I/N with I from 1 to N, as in 2/8".to_owned()),
        }
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_parts_that_cover_all_jobs_once() {
        let jobs: Vec<Job> = (0..10).map(|n| Job::new(format!("job-{n}"), JobKind::Simulation, "sim purge")).collect();
        for count in 1..12 {
            let shard = |index| format!("{index}/{count}").parse::<Shard>().unwrap();
            let mut parts: Vec<String> =
                (1..=count).flat_map(|index| shard(index).of(jobs.clone())).map(|job| job.name).collect();
            parts.sort();
            assert_eq!(parts, jobs.iter().map(|job| job.name.clone()).collect::<Vec<_>>(), "{count}");
        }
    }

    #[test]
    fn bad_shards_are_refused_with_a_correct_one() {
        for bad in ["0/3", "4/3", "x", "1/0", "1/", "1/2/3", "-1/2", "1/99999999999"] {
            assert!(bad.parse::<Shard>().unwrap_err().contains("as in 2/8"), "{bad}");
        }
    }

    #[test]
    fn a_command_can_be_pasted_into_a_shell() {
        let job = Job::new("a", JobKind::Simulation, "sim check --rows bits/processes/1..4;x/threads/2");
        assert_eq!(job.command(), "frameyard sim check --rows 'bits/processes/1..4;x/threads/2' --json");
    }

    #[test]
    fn a_shell_reads_any_argument_back() {
        let arguments = ["it's a \"trace\".zst", "'", "a b", "", "$HOME `ls` \\", "ä*?;#!~", "plain-1.fyt"];
        let mut job = Job::new("a", JobKind::Replay, "trace replay");
        job.arguments.extend(arguments.map(str::to_owned));
        // A function in place of the program prints each argument on a line.
        let script = format!("frameyard() {{ printf '%s\\n' \"$@\"; }}; {}", job.command());
        let output = std::process::Command::new("sh").arg("-c").arg(script).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let expected = ["trace", "replay"].iter().chain(&arguments).chain(&["--json"]);
        let expected: String = expected.map(|argument| format!("{argument}\n")).collect();
        assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
    }
}
