//! Runs jobs, each as a process of this program, and stores their results.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::{Map, Value};

use super::job::Job;
use super::stored::Stored;
use crate::Failure;
use crate::output::{HostFacts, progress_bar};

/// How many jobs ended how.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Outcome {
    pub(super) run: usize,
    /// Run earlier, by the same build.
    pub(super) kept: usize,
    pub(super) failed: usize,
}

/// Runs the jobs that have no result of this build, one after the other, and stores each result at once.
///
/// A job that fails is a result too: it says why there are no rows. A damaged result is named, and its job runs again.
///
/// # Errors
///
/// [`Failure::RunTime`] if a result cannot be written. Results stored before stay.
pub(super) fn run_missing(jobs: &[Job], folder: &Path) -> Result<Outcome, Failure> {
    let mut outcome = Outcome::default();
    let bar = progress_bar("report", jobs.len() as u64);
    for job in jobs {
        bar.set_message(format!("report: {}", job.name));
        let stored = Stored::read(folder, &job.name).unwrap_or_else(|damage| {
            bar.suspend(|| anstream::eprintln!("note: {damage}; running the job again"));
            None
        });
        if stored.is_some_and(|stored| stored.is_current(job)) {
            outcome.kept += 1;
        } else {
            let stored = run(job)?;
            outcome.run += 1;
            if let Some(error) = &stored.result.error {
                outcome.failed += 1;
                bar.suspend(|| anstream::eprintln!("note: job {} failed: {error}", job.name));
            }
            stored.write(folder)?;
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(outcome)
}

/// Runs a job.
fn run(job: &Job) -> Result<Stored, Failure> {
    let program = std::env::current_exe().map_err(Failure::run_time)?;
    let begin = Instant::now();
    let output = Command::new(program).args(&job.arguments).arg("--json").stdin(Stdio::null()).output();
    let seconds = (begin.elapsed().as_secs_f64() * 1000.0).round() / 1000.0;
    let printed = match output {
        Ok(output) if output.status.success() => object(&output.stdout),
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr);
            let line = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
            Err(match line.strip_prefix("error: ").unwrap_or(line) {
                "" => output.status.to_string(),
                reason => reason.to_owned(),
            })
        }
        Err(error) => Err(format!("cannot be started: {error}")),
    };
    Ok(Stored::new(job, HostFacts::read(), seconds, printed))
}

/// The one JSON object of a command.
fn object(text: &[u8]) -> Result<Map<String, Value>, String> {
    match serde_json::from_slice(text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err("printed JSON that is no object".to_owned()),
        Err(error) => Err(format!("printed no JSON object: {error}")),
    }
}
