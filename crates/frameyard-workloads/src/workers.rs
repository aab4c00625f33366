//! The tasks of a run, as threads or as processes, and the handle through which a driver leads them.
//!
//! A driver is the code that starts a run, moves it from stage to stage and measures it. `Workers` is its view of the
//! tasks; it does not depend on where they run.

mod processes;
mod threads;

use std::any::Any;
use std::fmt;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use frameyard_host::WorkerError;

use crate::report::{TaskEvent, TaskReport};
use crate::stage::Stage;

pub(crate) use processes::drive_processes;
pub use processes::{WORKER_COMMAND, Worker};
pub(crate) use threads::drive_threads;

/// An event and the number of its task; `None`: the task has ended.
type Message = (usize, Option<TaskEvent>);

/// Why the tasks of a run failed.
#[derive(Debug)]
pub(crate) enum WorkersError {
    /// A task could not be started.
    Start(std::io::Error),
    /// A process could not be started, or ended badly.
    Worker(WorkerError),
    /// A task reported an error.
    Failed {
        /// The task's number.
        task: usize,
        /// The error text.
        what: String,
    },
    /// A task ended without a report.
    Lost {
        /// The task's number.
        task: usize,
    },
}

impl fmt::Display for WorkersError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(error) => write!(f, "cannot start a task: {error}"),
            Self::Worker(error) => error.fmt(f),
            Self::Failed { task, what } => write!(f, "task {task}: {what}"),
            Self::Lost { task } => write!(f, "task {task} ended without a report"),
        }
    }
}

impl std::error::Error for WorkersError {}

/// The tasks of a run, as their driver sees them.
pub(crate) struct Workers<'a> {
    messages: Receiver<Message>,
    announce: &'a dyn Fn(Stage),
    prepared: usize,
    begun: usize,
    reports: Vec<Option<TaskReport>>,
}

impl fmt::Debug for Workers<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers")
            .field("prepared", &self.prepared)
            .field("reports", &self.reports)
            .finish_non_exhaustive()
    }
}

impl<'a> Workers<'a> {
    fn new(tasks: usize, messages: Receiver<Message>, announce: &'a dyn Fn(Stage)) -> Self {
        Self { messages, announce, prepared: 0, begun: 0, reports: vec![None; tasks] }
    }

    /// Waits until all tasks are prepared.
    pub(crate) fn wait_prepared(&mut self) -> Result<(), WorkersError> {
        while self.prepared < self.reports.len() {
            self.receive()?;
        }
        Ok(())
    }

    /// Starts the work. Returns when all tasks have begun, which takes a while on a busy host.
    pub(crate) fn begin(&mut self) -> Result<(), WorkersError> {
        (self.announce)(Stage::Work);
        while self.begun < self.reports.len() {
            self.receive()?;
        }
        Ok(())
    }

    /// Waits for `duration`, or until all tasks are done.
    pub(crate) fn watch(&mut self, duration: Duration) -> Result<(), WorkersError> {
        let end = Instant::now() + duration;
        while self.reports.contains(&None) {
            let left = end.saturating_duration_since(Instant::now());
            match self.messages.recv_timeout(left) {
                Ok(message) => self.handle(message)?,
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return Err(self.lost()),
            }
        }
        Ok(())
    }

    /// Fails if a task has failed. Does not wait.
    pub(crate) fn poll(&mut self) -> Result<(), WorkersError> {
        while let Ok(message) = self.messages.try_recv() {
            self.handle(message)?;
        }
        Ok(())
    }

    /// Tells the tasks to stop.
    pub(crate) fn end(&self) {
        (self.announce)(Stage::End);
    }

    /// Waits for the reports of all tasks. Returns them in the order of the tasks.
    pub(crate) fn reports(&mut self) -> Result<Vec<TaskReport>, WorkersError> {
        while self.reports.contains(&None) {
            self.receive()?;
        }
        Ok(self.reports.iter().flatten().cloned().collect())
    }

    fn receive(&mut self) -> Result<(), WorkersError> {
        match self.messages.recv() {
            Ok(message) => self.handle(message),
            Err(_) => Err(self.lost()),
        }
    }

    fn handle(&mut self, (task, event): Message) -> Result<(), WorkersError> {
        match event {
            Some(TaskEvent::Prepared) => self.prepared += 1,
            Some(TaskEvent::Begun) => self.begun += 1,
            Some(TaskEvent::Done(report)) => self.reports[task] = Some(report),
            Some(TaskEvent::Failed(what)) => return Err(WorkersError::Failed { task, what }),
            None if self.reports[task].is_some() => {}
            None => return Err(WorkersError::Lost { task }),
        }
        Ok(())
    }

    fn lost(&self) -> WorkersError {
        WorkersError::Lost { task: self.reports.iter().position(Option::is_none).unwrap_or(0) }
    }
}

/// The message of a panic.
fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("panicked: {}", text.unwrap_or("without a text"))
}
