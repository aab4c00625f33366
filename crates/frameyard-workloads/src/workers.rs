//! The tasks of a run, as threads or as processes, and who leads them through its stages.
//!
//! [`Crew`] is how a leader talks to the tasks; where they run makes no difference to it.

mod processes;
mod threads;

use std::any::Any;
use std::fmt;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use frameyard_host::WorkerError;
use serde::{Deserialize, Serialize};

use super::stage::Stage;
use super::task::TaskReport;

pub(crate) use processes::{Worker, lead_processes};
pub(crate) use threads::lead_threads;

/// What a task lets the leader know.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Note {
    /// It is ready to work.
    Prepared,
    /// It has begun to work.
    Begun,
    /// It has done its work.
    Done(TaskReport),
    /// It has ended without.
    Failed(String),
}

/// A note and whose it is; `None`: the task has gone without a word.
pub(super) type Message = (usize, Option<Note>);

/// Why the tasks of a run did not do their work.
#[derive(Debug)]
pub(crate) enum CrewError {
    /// A task could not be started.
    Start(std::io::Error),
    /// A process could not be started, or has ended badly.
    Worker(WorkerError),
    /// A task says what went wrong.
    Failed {
        /// Which task.
        task: usize,
        /// In its words.
        what: String,
    },
    /// A task has gone without a word.
    Lost {
        /// Which task.
        task: usize,
    },
}

impl fmt::Display for CrewError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(error) => write!(f, "cannot start a task: {error}"),
            Self::Worker(error) => error.fmt(f),
            Self::Failed { task, what } => write!(f, "task {task}: {what}"),
            Self::Lost { task } => write!(f, "task {task} ended without a report"),
        }
    }
}

impl std::error::Error for CrewError {}

/// The tasks of a run, to who leads them.
pub(crate) struct Crew<'a> {
    messages: Receiver<Message>,
    announce: &'a dyn Fn(Stage),
    prepared: usize,
    begun: usize,
    reports: Vec<Option<TaskReport>>,
}

impl fmt::Debug for Crew<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Crew").field("prepared", &self.prepared).field("reports", &self.reports).finish_non_exhaustive()
    }
}

impl<'a> Crew<'a> {
    fn new(tasks: usize, messages: Receiver<Message>, announce: &'a dyn Fn(Stage)) -> Self {
        Self { messages, announce, prepared: 0, begun: 0, reports: vec![None; tasks] }
    }

    /// Waits until all tasks are prepared.
    pub(crate) fn wait_prepared(&mut self) -> Result<(), CrewError> {
        while self.prepared < self.reports.len() {
            self.take_next()?;
        }
        Ok(())
    }

    /// Lets the tasks work, and returns when all have begun: on a busy host that takes a while.
    pub(crate) fn begin(&mut self) -> Result<(), CrewError> {
        (self.announce)(Stage::Work);
        while self.begun < self.reports.len() {
            self.take_next()?;
        }
        Ok(())
    }

    /// Waits so long; less, where all tasks are done before.
    pub(crate) fn watch(&mut self, duration: Duration) -> Result<(), CrewError> {
        let end = Instant::now() + duration;
        while self.reports.contains(&None) {
            let left = end.saturating_duration_since(Instant::now());
            match self.messages.recv_timeout(left) {
                Ok(message) => self.take(message)?,
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return Err(self.lost()),
            }
        }
        Ok(())
    }

    /// Looks whether a task has failed.
    pub(crate) fn look(&mut self) -> Result<(), CrewError> {
        while let Ok(message) = self.messages.try_recv() {
            self.take(message)?;
        }
        Ok(())
    }

    /// Tells the tasks to stop.
    pub(crate) fn end(&self) {
        (self.announce)(Stage::End);
    }

    /// Waits for the reports of all tasks, by their numbers.
    pub(crate) fn reports(&mut self) -> Result<Vec<TaskReport>, CrewError> {
        while self.reports.contains(&None) {
            self.take_next()?;
        }
        Ok(self.reports.iter().flatten().copied().collect())
    }

    fn take_next(&mut self) -> Result<(), CrewError> {
        match self.messages.recv() {
            Ok(message) => self.take(message),
            Err(_) => Err(self.lost()),
        }
    }

    fn take(&mut self, (task, note): Message) -> Result<(), CrewError> {
        match note {
            Some(Note::Prepared) => self.prepared += 1,
            Some(Note::Begun) => self.begun += 1,
            Some(Note::Done(report)) => self.reports[task] = Some(report),
            Some(Note::Failed(what)) => return Err(CrewError::Failed { task, what }),
            // The end of one that has reported.
            None if self.reports[task].is_some() => {}
            None => return Err(CrewError::Lost { task }),
        }
        Ok(())
    }

    fn lost(&self) -> CrewError {
        CrewError::Lost { task: self.reports.iter().position(Option::is_none).unwrap_or(0) }
    }
}

/// What a panic says.
fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("panicked: {}", text.unwrap_or("without a text"))
}
