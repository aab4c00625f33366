//! The parallel job engine: a [`ParallelJob`] is a range of positions that workers of the platform cut into chunks
//! and work through, as with the kernel's `padata_do_multithreaded`.
//!
//! Positions have no unit: frames, sections or entries of a table. Workers take chunks from one shared position, so
//! that a fast one takes more, and keep what they count to themselves until they are done.

use core::fmt;
use core::ops::Range;

use crate::platform::{Platform, WorkerPanicked};
use crate::sync::{AtomicU64, Ordering};
use crate::units::NodeId;

/// How many chunks an even share is cut into, so that a thread that starts late leaves its chunks to others.
const CHUNKS_PER_SHARE: u64 = 4;

/// Work on a range of positions, cut into chunks that several threads take in turn.
///
/// The formulas are those of the kernel's `padata_do_multithreaded`:
///
/// ```
/// use frameyard::job::ParallelJob;
///
/// // The frames of 1 GiB, cut by maximum-order blocks, on a node of 16 CPUs.
/// let blocks = ParallelJob { start: 0, size: 262_144, align: 1024, min_chunk: 1024, max_threads: 16 };
/// assert_eq!((blocks.threads(), blocks.chunk()), (Ok(16), Ok(4096)));
///
/// // Cut by sections of 128 MiB there is work for fewer threads.
/// let sections = ParallelJob { align: 32_768, min_chunk: 32_768, ..blocks };
/// assert_eq!((sections.threads(), sections.chunk()), (Ok(8), Ok(32_768)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParallelJob {
    /// The first position.
    pub start: u64,
    /// How many positions there are; 0 is a job that is done.
    pub size: u64,
    /// Chunks begin and end at multiples of this, but for the ends of the job. A power of two.
    pub align: u64,
    /// The least that a thread takes at once.
    pub min_chunk: u64,
    /// The most threads that work, the caller among them.
    pub max_threads: usize,
}

/// Why five numbers are no job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JobError {
    /// The most threads are 0.
    NoThreads,
    /// The alignment is no power of two.
    Alignment(u64),
    /// The end of the job, or of a chunk that is rounded up to the alignment, is beyond 2⁶⁴ − 1.
    Overflow,
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoThreads => f.write_str("a job for 0 threads: must be at least 1"),
            Self::Alignment(align) => write!(f, "chunks aligned to {align}: must be a power of two"),
            Self::Overflow => f.write_str("the job's end or its chunk overflows: both must be at most 2^64 - 1"),
        }
    }
}

impl core::error::Error for JobError {}

/// Why a job is not done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RunError {
    /// It is no job: nothing has run.
    Job(JobError),
    /// A worker panicked: the chunk that it was at work on is lost, all others are done.
    WorkerPanicked,
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Job(error) => error.fmt(f),
            Self::WorkerPanicked => WorkerPanicked.fmt(f),
        }
    }
}

impl core::error::Error for RunError {}

impl From<JobError> for RunError {
    fn from(error: JobError) -> Self {
        Self::Job(error)
    }
}

impl From<WorkerPanicked> for RunError {
    fn from(_: WorkerPanicked) -> Self {
        Self::WorkerPanicked
    }
}

impl ParallelJob {
    /// How many threads the job is worth: its size divided by the larger of the least chunk and the alignment, at
    /// least 1, at most [`max_threads`](Self::max_threads).
    ///
    /// # Errors
    ///
    /// [`JobError`] where the numbers are no job.
    pub fn threads(&self) -> Result<usize, JobError> {
        self.check()?;
        let worth = self.size / self.min_chunk.max(self.align);
        Ok(usize::try_from(worth).unwrap_or(usize::MAX).clamp(1, self.max_threads))
    }

    /// How many positions a thread takes at once: a quarter of an even share, at least the least chunk, rounded up to
    /// the alignment. The chunks at the ends of the job may be shorter.
    ///
    /// # Errors
    ///
    /// [`JobError`] where the numbers are no job.
    pub fn chunk(&self) -> Result<u64, JobError> {
        let share = self.size / self.threads()? as u64;
        let wanted = (share / CHUNKS_PER_SHARE).max(self.min_chunk).max(1);
        wanted.checked_next_multiple_of(self.align).ok_or(JobError::Overflow)
    }

    /// Runs `work` on all of the job, each position once, by [`threads`](Self::threads) workers on CPUs of `node`, of
    /// which the caller is one; returns when all are done. Never starts more workers than there are chunks, and none
    /// where one is enough.
    ///
    /// `work` is called with a chunk and what its worker has accumulated so far. `merge` is called once by each
    /// worker that took a chunk, when there are none left, so that nothing shared is written for each chunk but the
    /// position. Calls of `merge` are not ordered: it adds to atomics or takes a lock.
    ///
    /// # A worker that panics
    ///
    /// The others go on, and do all that is left but the chunk that it was at work on. What it had accumulated is
    /// merged, so that finished chunks count: `work` adds to it what is really done. A job that one thread does has
    /// no worker but the caller, whose panic goes on to whoever called `run`.
    ///
    /// # Errors
    ///
    /// [`RunError::Job`] where the numbers are no job; [`RunError::WorkerPanicked`].
    ///
    /// # Cost
    ///
    /// One atomic addition a chunk, on a cache line of its own; [`Platform::run_workers`] once.
    pub fn run<P: Platform, A: Default>(
        &self,
        platform: &P,
        node: NodeId,
        work: &(impl Fn(&mut A, Range<u64>) + Sync),
        merge: &(impl Fn(A) + Sync),
    ) -> Result<(), RunError> {
        let chunks = Chunks::of(self)?;
        let threads = self.threads()?.min(usize::try_from(chunks.count).unwrap_or(usize::MAX));
        let worker = |_| chunks.work_through(work, merge);
        if threads <= 1 {
            worker(0);
            return Ok(());
        }
        Ok(platform.run_workers(threads, &|_| node, &worker)?)
    }

    fn check(&self) -> Result<(), JobError> {
        if self.max_threads == 0 {
            return Err(JobError::NoThreads);
        }
        if !self.align.is_power_of_two() {
            return Err(JobError::Alignment(self.align));
        }
        self.start.checked_add(self.size).map(|_| ()).ok_or(JobError::Overflow)
    }
}

/// What the workers of a job share: its chunks, each of which one of them takes.
#[derive(Debug)]
pub(crate) struct Chunks {
    start: u64,
    end: u64,
    /// Where the first chunk would begin if it were whole: `start`, rounded down to the alignment.
    base: u64,
    chunk: u64,
    count: u64,
    next: NextChunk,
}

/// The number of the chunk that nobody has taken yet; counts on when all are taken.
///
/// Counts chunks, not positions, so that it cannot overflow: each worker adds at most 1 past the last chunk. Has a
/// cache line (and the neighbour that is fetched with it) to itself: all workers write to it.
#[repr(align(128))]
#[derive(Debug)]
struct NextChunk(AtomicU64);

impl Chunks {
    pub(crate) fn of(job: &ParallelJob) -> Result<Self, JobError> {
        let chunk = job.chunk()?;
        let end = job.start + job.size;
        let base = job.start & !(job.align - 1);
        let count = if job.size == 0 { 0 } else { (end - base).div_ceil(chunk) };
        Ok(Self { start: job.start, end, base, chunk, count, next: NextChunk(AtomicU64::new(0)) })
    }

    /// Takes a chunk, if there is one left.
    fn take(&self) -> Option<Range<u64>> {
        // Relaxed: that an addition is atomic gives each number out once, and nothing is handed over with it. What a
        // job needs was written before its workers began, and what they write is read when they have ended: the
        // platform orders both, as it waits for them.
        let number = self.next.0.fetch_add(1, Ordering::Relaxed);
        if number >= self.count {
            return None;
        }
        let from = self.base + number * self.chunk;
        Some(from.max(self.start)..from.saturating_add(self.chunk).min(self.end))
    }

    /// What one worker does: takes chunks until there are none, and merges what it has gathered.
    pub(crate) fn work_through<A: Default>(&self, work: &impl Fn(&mut A, Range<u64>), merge: &impl Fn(A)) {
        let mut gathered = Gathered { result: None, merge };
        while let Some(chunk) = self.take() {
            work(gathered.result.get_or_insert_default(), chunk);
        }
    }
}

/// What a worker has gathered; merged when dropped, also where the worker unwinds.
struct Gathered<'a, A, M: Fn(A)> {
    /// `None` until the first chunk.
    result: Option<A>,
    merge: &'a M,
}

impl<A, M: Fn(A)> Drop for Gathered<'_, A, M> {
    fn drop(&mut self) {
        if let Some(result) = self.result.take() {
            (self.merge)(result);
        }
    }
}

#[cfg(test)]
mod tests;
