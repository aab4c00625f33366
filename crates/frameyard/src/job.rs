//! Parallel jobs: the platform's workers process a range of positions in chunks, as the kernel's
//! `padata_do_multithreaded` does.
//!
//! Positions can count anything: frames, sections or table entries. Workers take chunks from one shared counter, so a
//! fast worker takes more of them. Each worker accumulates its result privately, and merges it once, at the end.

use core::ops::Range;

use crate::platform::{Platform, WorkerPanicked};
use crate::sync::{AtomicU64, Ordering};
use crate::units::{NodeId, messages};

/// Chunks per even share. A worker that starts late leaves chunks to the other workers.
const CHUNKS_PER_SHARE: u64 = 4;

/// A range of positions, divided into chunks that several threads process.
///
/// The formulas are those of the kernel's `padata_do_multithreaded`:
///
/// ```
/// use frameyard::job::ParallelJob;
///
/// // The frames of 1 GiB, in maximum-order blocks, on a node of 16 CPUs.
/// let blocks = ParallelJob { start: 0, size: 262_144, align: 1024, min_chunk: 1024, max_threads: 16 };
/// assert_eq!((blocks.threads(), blocks.chunk()), (Ok(16), Ok(4096)));
///
/// // In sections of 128 MiB there is work for fewer threads.
/// let sections = ParallelJob { align: 32_768, min_chunk: 32_768, ..blocks };
/// assert_eq!((sections.threads(), sections.chunk()), (Ok(8), Ok(32_768)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ParallelJob {
    /// The first position.
    pub start: u64,
    /// The number of positions; 0 for a job with nothing to do.
    pub size: u64,
    /// Chunks begin and end at multiples of this, except at the ends of the job. A power of two.
    pub align: u64,
    /// The smallest chunk.
    pub min_chunk: u64,
    /// The most threads, the caller included.
    pub max_threads: usize,
}

/// Why the numbers do not describe a valid job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum JobError {
    /// `max_threads` is 0.
    NoThreads,
    /// The alignment is not a power of two.
    Alignment(u64),
    /// The end of the job, or of a chunk rounded up to the alignment, exceeds 2⁶⁴ − 1.
    Overflow,
}

messages!(JobError {
    Self::NoThreads => "a job for 0 threads: must be at least 1",
    Self::Alignment(align) => "chunks aligned to {align}: must be a power of two",
    Self::Overflow => "the job's end or its chunk overflows: both must be at most 2^64 - 1",
});

/// Why a job was not done, or not completely.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RunError {
    /// The numbers do not describe a valid job. Nothing ran.
    Job(JobError),
    /// A worker panicked. Its current chunk is lost; all other chunks are done.
    WorkerPanicked,
}

messages!(RunError { Self::Job(error) => "{error}", Self::WorkerPanicked => "{WorkerPanicked}" });

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
    /// The number of threads: the size divided by the larger of the smallest chunk and the alignment, at least 1, at most
    /// [`max_threads`](Self::max_threads).
    ///
    /// # Errors
    ///
    /// [`JobError`] where the numbers are no job.
    pub fn threads(&self) -> Result<usize, JobError> {
        self.check()?;
        let worth = self.size / self.min_chunk.max(self.align);
        Ok(usize::try_from(worth).unwrap_or(usize::MAX).clamp(1, self.max_threads))
    }

    /// Positions per chunk: a quarter of an even share, at least the smallest chunk, rounded up to the alignment. The chunks
    /// at the ends of the job may be shorter.
    ///
    /// # Errors
    ///
    /// [`JobError`] where the numbers are no job.
    pub fn chunk(&self) -> Result<u64, JobError> {
        let share = self.size / self.threads()? as u64;
        let wanted = (share / CHUNKS_PER_SHARE).max(self.min_chunk).max(1);
        wanted.checked_next_multiple_of(self.align).ok_or(JobError::Overflow)
    }

    /// Runs `work` on each position once, with [`threads`](Self::threads) workers on CPUs of `node`, one of which is
    /// the caller. Returns when all of them are done. Starts at most one worker per chunk.
    ///
    /// `work` gets a chunk and the accumulator of its worker. Each worker that took a chunk calls `merge` once, when no
    /// chunks are left, so workers share only the chunk counter. Calls of `merge` may run concurrently, so it should
    /// add to atomics or take a lock.
    ///
    /// # Panics in workers
    ///
    /// The other workers process all remaining chunks, but not the one that the panicking worker had taken. The
    /// accumulator of that worker is merged, so its finished chunks count; `work` must add to it only when work is
    /// finished. A job of one thread runs on the caller alone, and its panic propagates through `run`.
    ///
    /// # Errors
    ///
    /// [`RunError::Job`] if the numbers do not describe a valid job; [`RunError::WorkerPanicked`] if a worker panicked.
    ///
    /// # Cost
    ///
    /// One atomic addition per chunk, on its own cache line; one [`Platform::run_workers`].
    pub fn run<P: Platform, A: Default>(
        &self,
        platform: &P,
        node: NodeId,
        work: &(impl Fn(&mut A, Range<u64>) + Sync),
        merge: &(impl Fn(A) + Sync),
    ) -> Result<(), RunError> {
        // The shared part is made in its place: it takes 384 bytes, and a copy as many again of a small stack.
        let (start, end, base, chunk, count) = Chunks::plan(self)?;
        let chunks = Chunks { start, end, base, chunk, count, next: NextChunk(AtomicU64::new(0)) };
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

/// The chunks of a job, shared by its workers. One worker takes each.
#[derive(Debug)]
pub(crate) struct Chunks {
    start: u64,
    end: u64,
    /// `start`, rounded down to the alignment: where a whole first chunk would begin.
    base: u64,
    chunk: u64,
    count: u64,
    next: NextChunk,
}

/// The number of the next chunk. Keeps counting after the last one.
///
/// Counts chunks, not positions, so it cannot overflow: each worker adds at most 1 past the last chunk. All workers write to
/// it, so it has a pair of cache lines to itself.
#[repr(align(128))]
#[derive(Debug)]
struct NextChunk(AtomicU64);

impl Chunks {
    #[cfg(all(test, loom))]
    pub(crate) fn of(job: &ParallelJob) -> Result<Self, JobError> {
        let (start, end, base, chunk, count) = Self::plan(job)?;
        Ok(Self { start, end, base, chunk, count, next: NextChunk(AtomicU64::new(0)) })
    }

    /// Start, end, base, length of a chunk, and their number.
    fn plan(job: &ParallelJob) -> Result<(u64, u64, u64, u64, u64), JobError> {
        let chunk = job.chunk()?;
        let end = job.start + job.size;
        let base = job.start & !(job.align - 1);
        let count = if job.size == 0 { 0 } else { (end - base).div_ceil(chunk) };
        Ok((job.start, end, base, chunk, count))
    }

    /// Takes a chunk; `None` if all are taken.
    fn take(&self) -> Option<Range<u64>> {
        // Relaxed: the addition is atomic, so each number is taken once, and it passes no data. The platform orders the
        // job's inputs before its workers and their results after them.
        let number = self.next.0.fetch_add(1, Ordering::Relaxed);
        if number >= self.count {
            return None;
        }
        let from = self.base + number * self.chunk;
        Some(from.max(self.start)..from.saturating_add(self.chunk).min(self.end))
    }

    /// One worker: takes chunks until there are none, then merges its result.
    pub(crate) fn work_through<A: Default>(&self, work: &impl Fn(&mut A, Range<u64>), merge: &impl Fn(A)) {
        let mut gathered = Gathered { result: None, merge };
        while let Some(chunk) = self.take() {
            work(gathered.result.get_or_insert_default(), chunk);
        }
    }
}

/// The result of a worker. Merged when dropped, also during unwinding.
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
