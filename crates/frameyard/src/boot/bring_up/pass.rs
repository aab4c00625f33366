//! The pass: initialising all deferred memory in parallel.
//!
//! Nodes run side by side. Within a node the work is one job or several ([`JobGranularity`]), each cut into chunks that
//! the node's workers take one after the other. Every worker keeps its own counts, and adds them to the node's total
//! once.

use core::ops::Range;

use super::{BringUp, InitResult};
use crate::boot::{BootError, InitError, InitJobs, JobGranularity};
use crate::job::ParallelJob;
use crate::platform::{InitProgress, NodeInit, Platform};
use crate::sync::{AtomicU64, Ordering};
use crate::units::{NodeId, PageCount, Pfn, PfnRange};

/// How much of the map a worker initialises under one claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Grain {
    /// A whole chunk of the job: no allocation waits for a part of it.
    Chunk,
    /// A section: allocations that need memory meanwhile find unclaimed sections.
    Section,
}

impl<P: Platform> BringUp<'_, P> {
    /// Initialises all deferred memory, nodes side by side, with several threads for each.
    ///
    /// # Errors
    ///
    /// [`InitError::WorkerPanicked`], or [`InitError::MapNotBacked`] with the first part without backing memory.
    pub(crate) fn pass(&self, jobs: InitJobs, grain: Grain) -> Result<(), InitError> {
        let nodes = u64::from(self.tables.nodes());
        let next = AtomicU64::new(0);
        let failed = Failure::default();
        // Leaders take one node after the other: there may be fewer leaders than nodes.
        let lead = |_| loop {
            let node = next.fetch_add(1, Ordering::Relaxed);
            if node >= nodes {
                break;
            }
            let (pages, freed) = <(AtomicU64, AtomicU64)>::default();
            NodePass { bring_up: self, node: NodeId(node as u16), jobs, grain, failed: &failed, pages, freed }.run();
        };
        let led = self.platform.run_workers(nodes as usize, &|leader| NodeId(leader as u16), &lead);
        led.map_err(|_| InitError::WorkerPanicked)?;
        failed.result()
    }
}

/// Why a pass did not finish.
#[derive(Default)]
struct Failure {
    panicked: AtomicU64,
    /// The first part without backing memory: one more than its first frame, so that 0 means none, and its end.
    start: AtomicU64,
    end: AtomicU64,
}

impl Failure {
    fn set(&self, range: PfnRange) {
        // One caller alone writes the end.
        if self.start.compare_exchange(0, range.start.0 + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.end.store(range.end.0, Ordering::Relaxed);
        }
    }

    fn is_set(&self) -> bool {
        self.start.load(Ordering::Relaxed) != 0
    }

    /// Called when all workers have ended.
    fn result(&self) -> Result<(), InitError> {
        if self.panicked.load(Ordering::Relaxed) != 0 {
            return Err(InitError::WorkerPanicked);
        }
        let end = Pfn(self.end.load(Ordering::Relaxed));
        match self.start.load(Ordering::Relaxed).checked_sub(1) {
            None => Ok(()),
            Some(start) => Err(InitError::MapNotBacked(PfnRange { start: Pfn(start), end })),
        }
    }
}

/// The pass over one node, and the totals of its workers.
struct NodePass<'a, P> {
    bring_up: &'a BringUp<'a, P>,
    node: NodeId,
    jobs: InitJobs,
    grain: Grain,
    failed: &'a Failure,
    pages: AtomicU64,
    freed: AtomicU64,
}

impl<P: Platform> NodePass<'_, P> {
    fn run(&self) {
        let size = self.sections().count() as u64 * self.bring_up.geometry.section_pages().0;
        if size == 0 {
            return;
        }
        let platform = self.bring_up.platform;
        let begin = platform.clock_ns();
        let (jobs, threads) = match self.jobs.granularity {
            JobGranularity::Sections => self.by_sections(size),
            JobGranularity::Ranges => self.by_ranges(size),
        };
        let elapsed_ns = begin.zip(platform.clock_ns()).map(|(begin, end)| end - begin);
        let [pages, freed] = [&self.pages, &self.freed].map(|total| PageCount(total.load(Ordering::Relaxed)));
        // Without deferred memory there was no pass to report.
        if pages.0 > 0 {
            let done = NodeInit { node: self.node, threads, jobs, pages, freed, elapsed_ns };
            platform.init_progress(InitProgress::NodeDone(done));
        }
    }

    /// The first frames of the node's present sections.
    fn sections(&self) -> impl Iterator<Item = Pfn> {
        let (tables, geometry) = (self.bring_up.tables, self.bring_up.geometry);
        let first = self.bring_up.map.range().start;
        let of_node = move |at: &usize| tables.section(*at).node() == Some(self.node);
        let numbers = (0..tables.sections.len()).filter(of_node);
        numbers.map(move |at| first + PageCount((at as u64) << geometry.section_pages_shift()))
    }

    /// A part of the node's present sections, taken as one line of frames without gaps: the frames of each section.
    fn parts_of(&self, line: Range<u64>) -> impl Iterator<Item = PfnRange> {
        let pages = self.bring_up.geometry.section_pages().0;
        let lines = self.sections().zip((0..).step_by(pages as usize)).take_while(move |(_, at)| *at < line.end);
        let parts = lines.map(move |(first, at)| {
            let clamp = |place: u64| first + PageCount(place.saturating_sub(at).min(pages));
            PfnRange { start: clamp(line.start), end: clamp(line.end) }
        });
        parts.filter(|part| !part.is_empty())
    }

    fn max_threads(&self) -> usize {
        let cpus = (self.bring_up.tables.cpus_of(self.node) as usize).max(1);
        // An eager pass runs before the other CPUs are up, unless the configuration names a number of threads.
        let usual = if self.grain == Grain::Chunk { 1 } else { cpus };
        self.jobs.threads.unwrap_or(usual).min(cpus)
    }

    fn alignment(&self) -> u64 {
        let geometry = self.bring_up.geometry;
        let default = match self.jobs.granularity {
            JobGranularity::Ranges => geometry.max_order().pages(),
            JobGranularity::Sections => geometry.section_pages(),
        };
        self.jobs.alignment.unwrap_or(default).0
    }

    /// One job over all sections of the node, however many holes lie between and in them. Returns how many jobs and
    /// threads there were.
    fn by_sections(&self, size: u64) -> (u64, usize) {
        let threads = self.run_job(0, size, &|line| {
            let mut result = InitResult::default();
            let mut run = PfnRange::default();
            for part in self.parts_of(line) {
                if run.end == part.start && self.grain == Grain::Chunk {
                    run.end = part.end;
                } else {
                    result.add(self.bring_up_part(run));
                    run = part;
                }
            }
            result.add(self.bring_up_part(run));
            result
        });
        (1, threads)
    }

    /// A job for each range of free memory, then one for the rest. Returns how many jobs there were, and the most threads
    /// of one.
    fn by_ranges(&self, size: u64) -> (u64, usize) {
        let (mut count, mut most) = (0, 1);
        let free = self.bring_up.tables.free_ranges_in(self.bring_up.map.range());
        for (range, _) in free.filter(|(_, zone)| zone.node() == self.node) {
            let threads = self.run_job(range.start.0, range.count().0, &|frames| {
                let range = PfnRange { start: Pfn(frames.start), end: Pfn(frames.end) };
                let mut result = InitResult::default();
                match self.grain {
                    Grain::Chunk => result = self.bring_up_part(range),
                    Grain::Section => {
                        self.bring_up.sections_in(range).for_each(|part| result.add(self.bring_up_part(part)));
                    }
                }
                result
            });
            count += 1;
            most = most.max(threads);
        }
        self.parts_of(0..size).for_each(|section| self.add(self.bring_up_part(section)));
        (count, most)
    }

    fn bring_up_part(&self, part: PfnRange) -> InitResult {
        if part.is_empty() || self.failed.is_set() {
            return InitResult::default();
        }
        let result = self.bring_up.bring_up(part);
        if let Some(range) = result.not_backed {
            self.failed.set(range);
        }
        result
    }

    fn add(&self, result: InitResult) {
        self.pages.fetch_add(result.pages.0, Ordering::Relaxed);
        self.freed.fetch_add(result.freed.0, Ordering::Relaxed);
    }

    /// Runs one job; returns the number of its threads.
    fn run_job(&self, start: u64, size: u64, work: &(dyn Fn(Range<u64>) -> InitResult + Sync)) -> usize {
        let align = self.alignment();
        // Clamped: a larger request means everything.
        let min_chunk = self.jobs.min_chunk.map_or(align, |chunk| chunk.0.min(size));
        let job = ParallelJob { start, size, align, min_chunk, max_threads: self.max_threads() };
        let add = |sum: &mut InitResult, chunk| sum.add(work(chunk));
        let ran = job.run(self.bring_up.platform, self.node, &add, &|sum: InitResult| self.add(sum));
        if ran.is_err() {
            self.failed.panicked.store(1, Ordering::Relaxed);
        }
        job.threads().unwrap_or(1)
    }
}

impl From<InitError> for BootError {
    /// The error of a yard whose map could not be initialised at creation.
    fn from(error: InitError) -> Self {
        match error {
            InitError::MapNotBacked(range) => Self::MapNotBacked(range),
            _ => Self::WorkerPanicked,
        }
    }
}
