//! Tasks as processes: this program executed again on the yard's memory file, each with its own address space.
//!
//! The standard input of a worker process is a socket. Lines of JSON travel both ways: stages to the worker, events back.

use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::panic::{self, AssertUnwindSafe};
use std::process::{self, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, PoisonError};
use std::thread;

use frameyard_host::{HostTopology, HostYard, LockTiming, SharedFileError, SharedMemoryFile, spawn_workers};
use frameyard_vm::Vm;
use serde::{Deserialize, Serialize};

use super::{Message, Workers, WorkersError, panic_text};
use crate::error::WorkloadError;
use crate::exchange::Exchange;
use crate::host_runtime::HostRuntime;
use crate::report::{TaskEvent, TaskProblem, TaskReport};
use crate::stage::{Stage, Stages};
use crate::task::TaskSpec;

/// The first argument of a worker process. The program passes its second argument to [`Worker::new`].
pub const WORKER_COMMAND: &str = "worker";

/// Runs each task in its own process while `drive` drives them. On an error the processes are killed.
///
/// # Errors
///
/// Those of `drive`; how a worker ended that ended badly; or that none could be started.
pub(crate) fn drive_processes<R>(
    file: &SharedMemoryFile,
    timing: LockTiming,
    specs: &[TaskSpec],
    drive: impl FnOnce(&mut Workers<'_>) -> Result<R, WorkloadError>,
) -> Result<R, WorkloadError> {
    let (processes, sockets) = start(file, timing, specs)?;
    let (sender, messages) = mpsc::channel();
    for (task, socket) in sockets.iter().enumerate() {
        let (socket, sender) = (socket.try_clone().map_err(start_failed)?, sender.clone());
        thread::Builder::new().spawn(move || forward(task, &socket, &sender)).map_err(start_failed)?;
    }
    drop(sender);
    let announce = |stage: Stage| {
        let line = serde_json::to_string(&stage).expect("a stage serialises") + "\n";
        // The forwarding thread reports workers that have ended.
        sockets.iter().for_each(|mut socket| drop(socket.write_all(line.as_bytes())));
    };
    match drive(&mut Workers::new(specs.len(), messages, &announce)) {
        Ok(result) => {
            announce(Stage::End);
            processes.wait_all().map_err(WorkersError::Worker).map_err(WorkloadError::run_time)?;
            Ok(result)
        }
        Err(failure) => Err(with_exit_status(failure, processes)),
    }
}

fn start_failed(error: io::Error) -> WorkloadError {
    WorkloadError::run_time(WorkersError::Start(error))
}

/// Starts the worker processes. Returns the driver's ends of their sockets, in the order of the tasks.
fn start(
    file: &SharedMemoryFile,
    timing: LockTiming,
    specs: &[TaskSpec],
) -> Result<(frameyard_host::Workers, Vec<UnixStream>), WorkloadError> {
    let inherited = file.inherit().map_err(start_failed)?;
    let pairs = specs.iter().map(|_| UnixStream::pair()).collect::<Result<Vec<_>, _>>().map_err(start_failed)?;
    let (ours, theirs): (Vec<UnixStream>, Vec<UnixStream>) = pairs.into_iter().unzip();
    let mut theirs = theirs.into_iter();
    let processes = spawn_workers(specs.len(), |command, worker| {
        let spec = WorkerSpec { locks_are_timed: timing == LockTiming::On, task: specs[worker].clone() };
        let spec = serde_json::to_string(&spec).expect("a spec serialises");
        let stdin = theirs.next().map_or(Stdio::null(), |socket| Stdio::from(OwnedFd::from(socket)));
        command.arg(WORKER_COMMAND).arg(spec).stdin(stdin).stdout(Stdio::null()).stderr(Stdio::null());
        inherited.announce(command);
    });
    Ok((processes.map_err(WorkersError::Worker).map_err(WorkloadError::run_time)?, ours))
}

/// Forwards the events of a worker until it ends.
fn forward(task: usize, socket: &UnixStream, sender: &Sender<Message>) {
    for line in BufReader::new(socket).lines().map_while(Result::ok) {
        let event = serde_json::from_str(&line)
            .unwrap_or_else(|_| TaskEvent::Failed(format!("sent an unknown event: {line:?}")));
        if sender.send((task, Some(event))).is_err() {
            return;
        }
    }
    // After the run nothing receives this.
    let _ = sender.send((task, None));
}

/// Replaces the error of a worker that ended without a report by how the process ended.
fn with_exit_status(failure: WorkloadError, processes: frameyard_host::Workers) -> WorkloadError {
    let lost = match &failure {
        WorkloadError::RunTime(reason) => match reason.downcast_ref() {
            Some(WorkersError::Lost { task }) => *task,
            _ => return failure,
        },
        WorkloadError::Input(_) => return failure,
    };
    match processes.wait_for(lost) {
        Err(error) => WorkloadError::run_time(WorkersError::Worker(error)),
        Ok(()) => failure,
    }
}

/// The argument of a worker process.
#[derive(Debug, Serialize, Deserialize)]
struct WorkerSpec {
    locks_are_timed: bool,
    task: TaskSpec,
}

/// A worker process: its task, and its socket to the driver.
pub struct Worker {
    spec: WorkerSpec,
    socket: Mutex<UnixStream>,
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("spec", &self.spec).finish_non_exhaustive()
    }
}

impl Worker {
    /// Creates the worker from the second argument of its process, and opens the inherited memory file.
    ///
    /// # Errors
    ///
    /// [`WorkloadError::Input`] if no run has started this process.
    pub fn new(spec: &str) -> Result<(Self, SharedMemoryFile), WorkloadError> {
        let spec = serde_json::from_str(spec)
            .map_err(|error| WorkloadError::input(format!("worker: not the argument of a worker process: {error}")))?;
        let host = HostTopology::current().map_err(WorkloadError::run_time)?;
        let file =
            SharedMemoryFile::from_environment(&host).map_err(|error: SharedFileError| WorkloadError::input(error))?;
        let socket = io::stdin().as_fd().try_clone_to_owned().map_err(WorkloadError::run_time)?;
        Ok((Self { spec, socket: Mutex::new(UnixStream::from(socket)) }, file))
    }

    /// Runs the task and sends its report, or its error, to the driver.
    ///
    /// # Errors
    ///
    /// [`WorkloadError::RunTime`] with the task's error, for the exit code.
    pub fn run(&self, file: &SharedMemoryFile) -> Result<(), WorkloadError> {
        let result = panic::catch_unwind(AssertUnwindSafe(|| self.work(file)));
        let (event, result) = match result {
            Ok(Ok(report)) => (TaskEvent::Done(report), Ok(())),
            Ok(Err(problem)) => (TaskEvent::Failed(problem.to_string()), Err(WorkloadError::run_time(problem))),
            Err(panic) => {
                let text = panic_text(&*panic);
                (TaskEvent::Failed(text.clone()), Err(WorkloadError::run_time(text)))
            }
        };
        self.tell(&event);
        result
    }

    fn work(&self, file: &SharedMemoryFile) -> Result<TaskReport, TaskProblem> {
        let host = HostTopology::current()?;
        // SAFETY: the parent made the file for its workers, and all of them use it as a yard.
        let yard = unsafe { HostYard::builder().attach(file) }.host(&host).build()?;
        yard.platform().time_locks(if self.spec.locks_are_timed { LockTiming::On } else { LockTiming::Off });
        let vm = Vm::attach(yard.core())?;
        let (stages, exchange) = (&Stages::default(), &Exchange::default());
        let commands = self.socket.lock().unwrap_or_else(PoisonError::into_inner).try_clone()?;
        let is_done = &AtomicBool::new(false);
        thread::scope(|scope| {
            let listener = thread::Builder::new().spawn_scoped(scope, || {
                listen(&commands, stages);
                // Acquire: pairs with the Release in `Worker::work`.
                if !stages.has_come(Stage::End) && !is_done.load(Ordering::Acquire) {
                    // The driver has ended, as on Ctrl-C, and the memory file with it: nothing is left to finish.
                    process::exit(1);
                }
                stages.announce(Stage::End);
                exchange.close();
            })?;
            let cpus = yard.platform().host().allowed();
            let runtime = HostRuntime { exchange, stages, cpus, tell: &|event| self.tell(&event) };
            let result = panic::catch_unwind(AssertUnwindSafe(|| self.spec.task.run_here(vm, None, runtime)));
            // Release: pairs with the Acquire in `Worker::work`.
            is_done.store(true, Ordering::Release);
            // Ends the listener, if the last stage has not.
            let _ = commands.shutdown(std::net::Shutdown::Read);
            drop(listener.join());
            result.unwrap_or_else(|panic| Err(panic_text(&*panic).into()))
        })
    }

    fn tell(&self, event: &TaskEvent) {
        let line = serde_json::to_string(event).expect("an event serialises") + "\n";
        // Fails if the driver has ended; then the run is over.
        let _ = self.socket.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes());
    }
}

/// Receives stages from the driver until the last one, or until the driver or this task ends.
fn listen(commands: &UnixStream, stages: &Stages) {
    for line in BufReader::new(commands).lines().map_while(Result::ok) {
        match serde_json::from_str(&line) {
            Ok(stage) => stages.announce(stage),
            Err(_) => break,
        }
        if stages.has_come(Stage::End) {
            break;
        }
    }
}
