//! Tasks as processes: this program executed again on the yard's memory file, with an address space each.
//!
//! A socket that is the worker's standard input carries lines of JSON both ways: stages to the worker, notes back.

use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::panic::{self, AssertUnwindSafe};
use std::process::Stdio;
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, PoisonError};
use std::thread;

use frameyard_host::{HostTopology, HostYard, LockTiming, SharedFileError, SharedMemoryFile, Workers, spawn_workers};
use frameyard_vm::Vm;
use serde::{Deserialize, Serialize};

use super::{Crew, CrewError, Message, Note, panic_text};
use crate::Failure;
use crate::cli::WORKER;
use crate::workload::course::HostCourse;
use crate::workload::exchange::Exchange;
use crate::workload::stage::{Stage, Stages};
use crate::workload::task::{Site, TaskOrder, TaskProblem, TaskReport};

/// Runs each order in a process of its own while `lead` leads them. Where that fails, the processes are killed.
///
/// # Errors
///
/// What `lead` returns; how a worker ended that did not end well; or that none could be started.
pub(crate) fn lead_processes<R>(
    file: &SharedMemoryFile,
    timing: LockTiming,
    orders: &[TaskOrder],
    lead: impl FnOnce(&mut Crew<'_>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let (workers, sockets) = start(file, timing, orders)?;
    let (sender, messages) = mpsc::channel();
    for (task, socket) in sockets.iter().enumerate() {
        let (socket, sender) = (socket.try_clone().map_err(start_failed)?, sender.clone());
        thread::Builder::new().spawn(move || forward(task, &socket, &sender)).map_err(start_failed)?;
    }
    drop(sender);
    let announce = |stage: Stage| {
        let line = serde_json::to_string(&stage).expect("a stage is a text") + "\n";
        // Who has gone is noticed by the end of its notes.
        sockets.iter().for_each(|mut socket| drop(socket.write_all(line.as_bytes())));
    };
    match lead(&mut Crew::new(orders.len(), messages, &announce)) {
        Ok(result) => {
            announce(Stage::End);
            workers.wait_all().map_err(CrewError::Worker).map_err(Failure::run_time)?;
            Ok(result)
        }
        Err(failure) => Err(how_it_ended(failure, workers, &announce)),
    }
}

fn start_failed(error: io::Error) -> Failure {
    Failure::run_time(CrewError::Start(error))
}

/// Starts the workers; our ends of their sockets, by task.
fn start(
    file: &SharedMemoryFile,
    timing: LockTiming,
    orders: &[TaskOrder],
) -> Result<(Workers, Vec<UnixStream>), Failure> {
    let inherited = file.inherit().map_err(start_failed)?;
    let pairs = orders.iter().map(|_| UnixStream::pair()).collect::<Result<Vec<_>, _>>().map_err(start_failed)?;
    let (ours, theirs): (Vec<UnixStream>, Vec<UnixStream>) = pairs.into_iter().unzip();
    let mut theirs = theirs.into_iter();
    let workers = spawn_workers(orders.len(), |command, worker| {
        let order = WorkerOrder { locks_are_timed: timing == LockTiming::On, task: orders[worker].clone() };
        let order = serde_json::to_string(&order).expect("an order is plain values");
        let stdin = theirs.next().map_or(Stdio::null(), |socket| Stdio::from(OwnedFd::from(socket)));
        command.arg(WORKER).arg(order).stdin(stdin).stdout(Stdio::null()).stderr(Stdio::null());
        inherited.announce(command);
    });
    Ok((workers.map_err(CrewError::Worker).map_err(Failure::run_time)?, ours))
}

/// Passes a worker's notes on until it has gone.
fn forward(task: usize, socket: &UnixStream, sender: &Sender<Message>) {
    for line in BufReader::new(socket).lines().map_while(Result::ok) {
        let note = serde_json::from_str(&line).unwrap_or_else(|_| Note::Failed(format!("says {line:?}")));
        if sender.send((task, Some(note))).is_err() {
            return;
        }
    }
    // Nobody listens any more where the run is over.
    let _ = sender.send((task, None));
}

/// A worker that has gone without a word is asked how it ended.
fn how_it_ended(failure: Failure, workers: Workers, announce: &dyn Fn(Stage)) -> Failure {
    let is_lost = match &failure {
        Failure::RunTime(reason) => matches!(reason.downcast_ref(), Some(CrewError::Lost { .. })),
        _ => false,
    };
    if !is_lost {
        return failure;
    }
    // So that the others end, if they can, and there is an answer in any case.
    announce(Stage::End);
    match workers.wait_all() {
        Err(error) => Failure::run_time(CrewError::Worker(error)),
        Ok(_) => failure,
    }
}

/// What a worker is told when it is started.
#[derive(Debug, Serialize, Deserialize)]
struct WorkerOrder {
    locks_are_timed: bool,
    task: TaskOrder,
}

/// A worker process: what it was told, and its line to the leader.
pub(crate) struct Worker {
    order: WorkerOrder,
    socket: Mutex<UnixStream>,
}

impl std::fmt::Debug for Worker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("order", &self.order).finish_non_exhaustive()
    }
}

impl Worker {
    /// Of the order that is the argument of the hidden command.
    ///
    /// # Errors
    ///
    /// [`Failure::Input`] where this process was not started by a run.
    pub(crate) fn of(order: &str) -> Result<(Self, SharedMemoryFile), Failure> {
        let order =
            serde_json::from_str(order).map_err(|error| Failure::input(format!("worker: no order: {error}")))?;
        let host = HostTopology::current().map_err(Failure::run_time)?;
        let file = SharedMemoryFile::from_environment(&host).map_err(|error: SharedFileError| Failure::input(error))?;
        let socket = io::stdin().as_fd().try_clone_to_owned().map_err(Failure::run_time)?;
        Ok((Self { order, socket: Mutex::new(UnixStream::from(socket)) }, file))
    }

    /// Does what it was told, and reports. Whatever goes wrong is told to the leader.
    ///
    /// # Errors
    ///
    /// [`Failure::RunTime`], for the exit code.
    pub(crate) fn run(&self, file: &SharedMemoryFile) -> Result<(), Failure> {
        let result = panic::catch_unwind(AssertUnwindSafe(|| self.work(file)));
        let (note, result) = match result {
            Ok(Ok(report)) => (Note::Done(report), Ok(())),
            Ok(Err(problem)) => (Note::Failed(problem.to_string()), Err(Failure::run_time(problem))),
            Err(panic) => {
                let text = panic_text(&*panic);
                (Note::Failed(text.clone()), Err(Failure::run_time(text)))
            }
        };
        self.tell(&note);
        result
    }

    fn work(&self, file: &SharedMemoryFile) -> Result<TaskReport, TaskProblem> {
        let yard = HostYard::builder().attach(file, &HostTopology::current()?)?;
        yard.platform().time_locks(if self.order.locks_are_timed { LockTiming::On } else { LockTiming::Off });
        let vm = Vm::attach(&yard)?;
        let (stages, exchange) = (&Stages::default(), &Exchange::default());
        let commands = self.socket.lock().unwrap_or_else(PoisonError::into_inner).try_clone()?;
        thread::scope(|scope| {
            let listener = thread::Builder::new().spawn_scoped(scope, || listen(&commands, stages, exchange))?;
            let cpus = yard.platform().host().allowed();
            let course = HostCourse { exchange, stages, cpus, tell: &|note| self.tell(&note) };
            let site = Site { vm, common: None, course };
            let result = panic::catch_unwind(AssertUnwindSafe(|| site.run(&self.order.task)));
            // The listener ends with the stage, or with this.
            let _ = commands.shutdown(std::net::Shutdown::Read);
            drop(listener.join());
            result.unwrap_or_else(|panic| Err(panic_text(&*panic).into()))
        })
    }

    fn tell(&self, note: &Note) {
        let line = serde_json::to_string(note).expect("a note is plain values") + "\n";
        // Where nobody listens any more, the run is over.
        let _ = self.socket.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes());
    }
}

/// Hears of stages. When the leader goes, the run is over.
fn listen(commands: &UnixStream, stages: &Stages, exchange: &Exchange) {
    for line in BufReader::new(commands).lines().map_while(Result::ok) {
        match serde_json::from_str(&line) {
            Ok(stage) => stages.announce(stage),
            Err(_) => break,
        }
        if stages.has_come(Stage::End) {
            break;
        }
    }
    stages.announce(Stage::End);
    exchange.close();
}
