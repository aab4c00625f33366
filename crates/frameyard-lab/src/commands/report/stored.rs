//! Stored results of jobs: what a report is rendered from.
//!
//! A job has two files. `jobs/NAME.json` has the command line and its rows; for simulations and replays its bytes are the same
//! whichever machine ran them, at whatever speed. `jobs/NAME.run.json` has what varies: machine, duration, the program's file, and
//! columns of host time. Each file is written under another name and renamed, so an interruption or a full disk leaves whole files.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::job::{Job, JobKind};
use crate::Failure;
use crate::output::HostFacts;
use crate::version::{COMMIT, VERSION, executable, is_this_build};

/// The folder of results below the folder of a report.
pub(super) const JOBS: &str = "jobs";
/// Columns of replays that hold host time, which differs between runs.
const HOST_TIMES: [&str; 2] = ["ns_per_operation", "operations_per_s"];

/// The result of a job.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub(super) struct JobResult {
    pub(super) job: String,
    pub(super) kind: JobKind,
    pub(super) command: String,
    pub(super) version: String,
    pub(super) commit: String,
    /// Why there are no rows.
    pub(super) error: Option<String>,
    /// The machine of the rows, where there is one.
    pub(super) machine: Option<String>,
    /// Values of the whole run.
    pub(super) totals: Map<String, Value>,
    pub(super) rows: Vec<Map<String, Value>>,
}

/// What differs between two runs of a deterministic job.
#[derive(Serialize, Deserialize, Clone, PartialEq, Debug)]
pub(super) struct JobRun {
    pub(super) seconds: f64,
    pub(super) host: HostFacts,
    /// Columns of host time, for each row.
    pub(super) host_times: Vec<Map<String, Value>>,
    /// The file of the program, which tells builds of changed sources apart.
    #[serde(default)]
    pub(super) executable: Option<String>,
}

/// A result with its run.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Stored {
    pub(super) result: JobResult,
    pub(super) run: JobRun,
}

impl Stored {
    /// The result of a run: the object that the command printed, or why it printed none.
    pub(super) fn new(job: &Job, host: HostFacts, seconds: f64, printed: Result<Map<String, Value>, String>) -> Self {
        let (mut object, error) = match printed {
            Ok(object) => (object, None),
            Err(error) => (Map::new(), Some(error)),
        };
        for known in ["schema", "command", "version", "commit", "host"] {
            object.shift_remove(known);
        }
        let machine = object.shift_remove("machine").and_then(|name| name.as_str().map(str::to_owned));
        let rows = match object.shift_remove("rows") {
            Some(Value::Array(rows)) => rows,
            _ => Vec::new(),
        };
        let is_row = |row| if let Value::Object(row) = row { Some(row) } else { None };
        let mut rows: Vec<Map<String, Value>> = rows.into_iter().filter_map(is_row).collect();
        let host_times = match job.kind {
            JobKind::Replay => rows.iter_mut().map(take_host_times).collect(),
            JobKind::Native | JobKind::Simulation => Vec::new(),
        };
        let result = JobResult {
            job: job.name.clone(),
            kind: job.kind,
            command: job.command(),
            version: VERSION.to_owned(),
            commit: COMMIT.to_owned(),
            error,
            machine,
            totals: object,
            rows,
        };
        Self { result, run: JobRun { seconds, host, host_times, executable: executable() } }
    }

    /// Whether this build has already run the job.
    pub(super) fn is_current(&self, job: &Job) -> bool {
        let result = &self.result;
        result.command == job.command()
            && result.error.is_none()
            && is_this_build(&result.version, &result.commit, self.run.executable.as_deref())
    }

    /// Writes both files: the run first, so that a result is never without one.
    ///
    /// # Errors
    ///
    /// [`Failure::RunTime`] that names the file.
    pub(super) fn write(&self, folder: &Path) -> Result<(), Failure> {
        write_json(&run_path(folder, &self.result.job), &self.run)?;
        write_json(&result_path(folder, &self.result.job), &self.result)
    }

    /// Reads a result; `None` if the job has none.
    ///
    /// # Errors
    ///
    /// A message that names the file and what is wrong with it.
    pub(super) fn read(folder: &Path, job: &str) -> Result<Option<Self>, String> {
        let path = result_path(folder, job);
        let Some(result) = read_json::<JobResult>(&path)? else { return Ok(None) };
        if result.job != job {
            return Err(format!("{}: has the result of job {:?}", path.display(), result.job));
        }
        let path = run_path(folder, job);
        let run = read_json(&path)?.ok_or_else(|| format!("{}: missing, but its result is there", path.display()))?;
        Ok(Some(Self { result, run }))
    }

    /// Reads every result of a report, in order of their names.
    ///
    /// # Errors
    ///
    /// [`Failure::Input`] if a file is damaged or the folder cannot be read.
    pub(super) fn read_all(folder: &Path) -> Result<Vec<Self>, Failure> {
        let jobs = folder.join(JOBS);
        let unreadable = |error: io::Error| Failure::input(format!("{}: cannot read: {error}", jobs.display()));
        let mut names = Vec::new();
        for entry in fs::read_dir(&jobs).map_err(unreadable)? {
            let name = entry.map_err(unreadable)?.file_name().to_string_lossy().into_owned();
            if let Some(job) = name.strip_suffix(".json").filter(|job| !job.ends_with(".run") && !job.starts_with('.'))
            {
                names.push(job.to_owned());
            }
        }
        names.sort();
        names
            .iter()
            .filter_map(|job| Self::read(folder, job).transpose())
            .collect::<Result<_, _>>()
            .map_err(Failure::input)
    }
}

/// Moves the columns of host time out of a row.
fn take_host_times(row: &mut Map<String, Value>) -> Map<String, Value> {
    HOST_TIMES.iter().filter_map(|key| Some(((*key).to_owned(), row.shift_remove(*key)?))).collect()
}

fn result_path(folder: &Path, job: &str) -> PathBuf {
    folder.join(JOBS).join(format!("{job}.json"))
}

fn run_path(folder: &Path, job: &str) -> PathBuf {
    folder.join(JOBS).join(format!("{job}.run.json"))
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, String> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("{}: cannot read: {error}", path.display())),
    };
    serde_json::from_str(&text).map(Some).map_err(|error| format!("{}: damaged result: {error}", path.display()))
}

fn write_json(path: &Path, value: &impl Serialize) -> Result<(), Failure> {
    let mut text = serde_json::to_string_pretty(value).map_err(Failure::run_time)?;
    text.push('\n');
    write_file(path, text.as_bytes())
}

/// Writes a file as a whole or not at all.
///
/// # Errors
///
/// [`Failure::RunTime`] that names the file.
pub(super) fn write_file(path: &Path, contents: &[u8]) -> Result<(), Failure> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let part = path.with_file_name(format!(".{name}.{}", std::process::id()));
    let write = || {
        let mut file = fs::File::create(&part)?;
        file.write_all(contents)?;
        file.sync_all()?;
        fs::rename(&part, path)
    };
    write().map_err(|error| {
        // The part is of no use. If it cannot be removed either, the first error is the one to report.
        drop(fs::remove_file(&part));
        Failure::run_time(format!("{}: cannot write: {error}", path.display()))
    })
}

/// Creates the folder of a report.
///
/// # Errors
///
/// [`Failure::Input`] if the folder cannot be created or written.
pub(super) fn create_folder(folder: &Path) -> Result<(), Failure> {
    let jobs = folder.join(JOBS);
    let probe = jobs.join(format!(".probe.{}", std::process::id()));
    fs::create_dir_all(&jobs)
        .and_then(|()| fs::write(&probe, ""))
        .and_then(|()| fs::remove_file(&probe))
        .map_err(|error| Failure::input(format!("{}: cannot write: {error}", folder.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn host(cpus: u32) -> HostFacts {
        HostFacts { cpu: None, cpus: Some(cpus), memory_bytes: None, kernel: None }
    }

    fn printed(ns: f64) -> Map<String, Value> {
        let object = json!({"schema": 1, "command": "trace replay", "version": "x", "commit": "y", "host": {"cpus": ns},
            "machine": null, "skipped": 2, "rows": [{"policy": "bits", "events": 7, "ns_per_operation": ns}]});
        object.as_object().unwrap().clone()
    }

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("frameyard-{name}-{}", std::process::id()));
        drop(fs::remove_dir_all(&folder));
        create_folder(&folder).unwrap();
        folder
    }

    #[test]
    fn what_varies_is_kept_apart_from_the_result_of_a_deterministic_job() {
        let job = Job::new("replay-a", JobKind::Replay, "trace replay a");
        let (one, two) =
            (Stored::new(&job, host(1), 1.0, Ok(printed(3.5))), Stored::new(&job, host(2), 9.0, Ok(printed(4.5))));
        assert_eq!(one.result, two.result);
        assert_eq!(one.result.totals, json!({"skipped": 2}).as_object().unwrap().clone());
        assert_eq!(one.run.host_times[0]["ns_per_operation"], 3.5);
        let folder = folder("stored");
        one.write(&folder).unwrap();
        assert_eq!(Stored::read(&folder, "replay-a").unwrap(), Some(one.clone()));
        assert_eq!(Stored::read_all(&folder).unwrap(), [one]);
        assert_eq!(fs::read_dir(folder.join(JOBS)).unwrap().count(), 2, "no temporary files stay");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn damaged_results_are_named() {
        let job = Job::new("sim-a", JobKind::Simulation, "sim purge");
        let folder = folder("damaged");
        Stored::new(&job, host(1), 1.0, Ok(Map::new())).write(&folder).unwrap();
        fs::write(folder.join("jobs/sim-a.json"), "{\"job\": \"sim-").unwrap();
        assert!(Stored::read(&folder, "sim-a").unwrap_err().contains("jobs/sim-a.json: damaged result: "));
        assert_eq!(Stored::read_all(&folder).unwrap_err().code(), 2);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_failed_job_is_run_again_and_a_finished_one_is_not() {
        let job = Job::new("sim-a", JobKind::Simulation, "sim purge");
        assert!(Stored::new(&job, host(1), 1.0, Ok(Map::new())).is_current(&job));
        assert!(!Stored::new(&job, host(1), 1.0, Err("killed".to_owned())).is_current(&job));
        let other = Job::new("sim-a", JobKind::Simulation, "sim purge --quick");
        assert!(!Stored::new(&job, host(1), 1.0, Ok(Map::new())).is_current(&other));
    }
}
