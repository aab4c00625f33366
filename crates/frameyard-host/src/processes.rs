//! Worker processes: the program executes itself again, and supervises the workers until all have ended or one has
//! failed.

use std::fmt;
use std::io::{self, Read};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Command, ExitStatus};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Why not all worker processes succeeded. The remaining workers have been killed.
#[derive(Debug)]
#[non_exhaustive]
pub enum WorkerError {
    /// The program could not be executed again.
    Start {
        /// The number of the worker.
        worker: usize,
        /// The system's error.
        source: io::Error,
    },
    /// A worker failed.
    Failed {
        /// The number of the worker.
        worker: usize,
        /// How it ended.
        status: ExitStatus,
    },
    /// A worker could not be watched, or its output could not be read.
    Watch {
        /// The number of the worker.
        worker: usize,
        /// The system's error.
        source: io::Error,
    },
}

impl fmt::Display for WorkerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start { worker, source } => write!(f, "cannot start worker process {worker}: {source}"),
            Self::Failed { worker, status } => match (status.signal(), status.code()) {
                (Some(signal), _) => write!(f, "worker process {worker} was killed by signal {signal}"),
                (None, Some(code)) => write!(f, "worker process {worker} failed with exit code {code}"),
                (None, None) => write!(f, "worker process {worker} failed: {status}"),
            },
            Self::Watch { worker, source } => write!(f, "cannot supervise worker process {worker}: {source}"),
        }
    }
}

impl std::error::Error for WorkerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Start { source, .. } | Self::Watch { source, .. } => Some(source),
            Self::Failed { .. } => None,
        }
    }
}

/// Running worker processes. Dropping this kills those that have not ended.
#[derive(Debug)]
pub struct Workers {
    workers: Vec<Worker>,
}

#[derive(Debug)]
struct Worker {
    child: Child,
    reader: Option<JoinHandle<io::Result<Vec<u8>>>>,
    status: Option<ExitStatus>,
}

/// Executes this program again, `count` times. `prepare` sets the arguments and the environment of each worker.
///
/// A worker is a new program, not a fork, so it shares no thread and no lock with this one. It inherits the descriptors
/// that [`SharedMemoryFile::inherit`](crate::SharedMemoryFile::inherit) opened. If `prepare` pipes its standard output,
/// [`Workers::wait_all`] collects what it writes.
///
/// # Errors
///
/// [`WorkerError::Start`]; the workers that were already started are killed.
pub fn spawn_workers(count: usize, mut prepare: impl FnMut(&mut Command, usize)) -> Result<Workers, WorkerError> {
    let program = std::env::current_exe().map_err(|source| WorkerError::Start { worker: 0, source })?;
    let mut workers = Workers { workers: Vec::with_capacity(count) };
    for worker in 0..count {
        let mut command = Command::new(&program);
        prepare(&mut command, worker);
        let failed = |source| WorkerError::Start { worker, source };
        let mut child = command.spawn().map_err(failed)?;
        let stdout = child.stdout.take();
        workers.workers.push(Worker { child, reader: None, status: None });
        if let Some(stdout) = stdout {
            let reader = thread::Builder::new().spawn(move || read_all(stdout)).map_err(failed)?;
            workers.workers[worker].reader = Some(reader);
        }
    }
    Ok(workers)
}

fn read_all(mut stdout: ChildStdout) -> io::Result<Vec<u8>> {
    let mut output = Vec::new();
    stdout.read_to_end(&mut output)?;
    Ok(output)
}

impl Workers {
    /// The process numbers of the workers, in the order of the workers.
    #[must_use]
    pub fn process_ids(&self) -> Vec<u32> {
        self.workers.iter().map(|worker| worker.child.id()).collect()
    }

    /// Waits until all workers have succeeded, and returns what each of them wrote to its piped standard output.
    ///
    /// The wait ends at the first failure. The other workers are killed then, because the failed one may have left
    /// shared memory in a state that would keep them waiting forever.
    ///
    /// # Errors
    ///
    /// [`WorkerError`] says which worker failed and how.
    pub fn wait_all(mut self) -> Result<Vec<Vec<u8>>, WorkerError> {
        const LONGEST_NAP: Duration = Duration::from_millis(10);
        let mut nap = Duration::from_micros(100);
        while self.poll()? > 0 {
            thread::sleep(nap);
            nap = (nap * 2).min(LONGEST_NAP);
        }
        let readers: Vec<_> = self.workers.iter_mut().map(|worker| worker.reader.take()).collect();
        let mut outputs = Vec::with_capacity(readers.len());
        for (worker, reader) in readers.into_iter().enumerate() {
            let output = reader.map_or(Ok(Vec::new()), |reader| reader.join().expect("reading a pipe does not panic"));
            outputs.push(output.map_err(|source| WorkerError::Watch { worker, source })?);
        }
        Ok(outputs)
    }

    /// Waits until `worker` has ended, and then kills the workers that still run.
    ///
    /// Use this if you know which worker will fail first, and that others may fail as a consequence.
    ///
    /// # Errors
    ///
    /// [`WorkerError`] says how the worker ended, unless it succeeded.
    ///
    /// # Panics
    ///
    /// If there is no such worker.
    pub fn wait_for(mut self, worker: usize) -> Result<(), WorkerError> {
        let state = &mut self.workers[worker];
        let status = state.child.wait().map_err(|source| WorkerError::Watch { worker, source })?;
        state.status = Some(status);
        if status.success() { Ok(()) } else { Err(WorkerError::Failed { worker, status }) }
    }

    /// Records the workers that have ended since the last call. Returns the number of running ones.
    fn poll(&mut self) -> Result<usize, WorkerError> {
        let mut running = 0;
        for (worker, state) in self.workers.iter_mut().enumerate() {
            if state.status.is_some() {
                continue;
            }
            match state.child.try_wait().map_err(|source| WorkerError::Watch { worker, source })? {
                None => running += 1,
                Some(status) => {
                    state.status = Some(status);
                    if !status.success() {
                        return Err(WorkerError::Failed { worker, status });
                    }
                }
            }
        }
        Ok(running)
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        for worker in self.workers.iter_mut().filter(|worker| worker.status.is_none()) {
            // Both fail only for a process that has ended and whose status was read.
            let _ = worker.child.kill();
            let _ = worker.child.wait();
        }
    }
}
