//! The parallel pass that initialises all deferred memory.
//!
//! Nodes run in parallel. The work of a node is one job or several ([`JobGranularity`]). A job is divided into chunks,
//! and the node's workers take chunks until none is left. Each worker keeps its own counts and adds them to the node's
//! total once, at the end.

use core::ops::Range;

use crate::boot::initialisation::{InitResult, Initialisation};
use crate::boot::{BootError, InitError, InitJobs, JobGranularity};
use crate::job::ParallelJob;
use crate::platform::{InitProgress, NodeInit, Platform, Probe};
use crate::sync::{AtomicU64, Ordering};
use crate::units::{NodeId, PageCount, Pfn, PfnRange};

/// How much of the map a worker initialises under one claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Grain {
    /// A whole chunk of the job. Suits a yard that no other thread uses yet.
    Chunk,
    /// A section. Allocations that need memory during the pass still find unclaimed sections.
    Section,
}

impl<P: Platform> Initialisation<'_, P> {
    /// Initialises all deferred memory. Nodes run in parallel, with several threads each.
    ///
    /// # Errors
    ///
    /// [`InitError::WorkerPanicked`], or [`InitError::MapNotBacked`] with the first part without backing memory.
    pub(crate) fn pass(&self, jobs: InitJobs, grain: Grain) -> Result<(), InitError> {
        let nodes = u64::from(self.tables.nodes());
        let next = AtomicU64::new(0);
        let failed = Failure::default();
        // A thread may run several nodes: there may be fewer threads than nodes.
        let run_nodes = |_| loop {
            let node = next.fetch_add(1, Ordering::Relaxed);
            if node >= nodes {
                break;
            }
            let (pages, freed) = <(AtomicU64, AtomicU64)>::default();
            NodePass { initialisation: self, node: NodeId(node as u16), jobs, grain, failed: &failed, pages, freed }
                .run();
        };
        let ran = self.platform.run_workers(nodes as usize, &|thread| NodeId(thread as u16), &run_nodes);
        ran.map_err(|_| InitError::WorkerPanicked)?;
        failed.result()
    }
}

/// Why a pass did not finish.
#[derive(Default)]
struct Failure {
    panicked: AtomicU64,
    /// The first part without backing memory: one more than its first frame. 0: none.
    start: AtomicU64,
    /// The end of that part.
    end: AtomicU64,
}

impl Failure {
    fn set(&self, range: PfnRange) {
        // Only the caller that wins the exchange writes the end.
        if self.start.compare_exchange(0, range.start.0 + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.end.store(range.end.0, Ordering::Relaxed);
        }
    }

    fn is_set(&self) -> bool {
        self.start.load(Ordering::Relaxed) != 0
    }

    /// The result of the pass. Called when all workers have ended.
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
    initialisation: &'a Initialisation<'a, P>,
    node: NodeId,
    jobs: InitJobs,
    grain: Grain,
    failed: &'a Failure,
    pages: AtomicU64,
    freed: AtomicU64,
}

impl<P: Platform> NodePass<'_, P> {
    fn run(&self) {
        let size = self.sections().count() as u64 * self.initialisation.zone_tables.geometry.section_pages().0;
        if size == 0 {
            return;
        }
        let platform = self.initialisation.platform;
        let begin = platform.probe().clock_ns();
        let (jobs, threads) = match self.jobs.granularity {
            JobGranularity::Sections => self.by_sections(size),
            JobGranularity::Ranges => self.by_ranges(size),
        };
        let elapsed_ns = begin.zip(platform.probe().clock_ns()).map(|(begin, end)| end - begin);
        let [pages, freed] = [&self.pages, &self.freed].map(|total| PageCount(total.load(Ordering::Relaxed)));
        // Without deferred memory there was no pass to report.
        if pages.0 > 0 {
            let done = NodeInit { node: self.node, threads, jobs, pages, freed, elapsed_ns };
            platform.probe().init_progress(InitProgress::NodeDone(done));
        }
    }

    /// The first frames of the node's present sections.
    fn sections(&self) -> impl Iterator<Item = Pfn> {
        let (tables, geometry) = (self.initialisation.tables, self.initialisation.zone_tables.geometry);
        let map = self.initialisation.zone_tables.map;
        let of_node = move |at: &usize| tables.section(*at).node() == Some(self.node);
        let numbers = (0..tables.sections.len()).filter(of_node);
        numbers.map(move |at| map.pfn((at << geometry.section_pages_shift()) as u32))
    }

    /// The frames at some positions of the node, one range for each section. Positions count the frames of the node's
    /// present sections, without gaps.
    fn parts_of(&self, positions: Range<u64>) -> impl Iterator<Item = PfnRange> {
        let pages = self.initialisation.zone_tables.geometry.section_pages().0;
        let sections = self.sections().zip((0..).step_by(pages as usize));
        let sections = sections.take_while(move |(_, at)| *at < positions.end);
        let parts = sections.map(move |(first, at)| {
            let clamp = |position: u64| first + PageCount(position.saturating_sub(at).min(pages));
            PfnRange { start: clamp(positions.start), end: clamp(positions.end) }
        });
        parts.filter(|part| !part.is_empty())
    }

    fn max_threads(&self) -> usize {
        let cpus = (self.initialisation.tables.cpus_of(self.node) as usize).max(1);
        // An eager pass runs before the other CPUs start, unless the configuration sets a number of threads.
        let usual = if self.grain == Grain::Chunk { 1 } else { cpus };
        self.jobs.threads.unwrap_or(usual).min(cpus)
    }

    fn alignment(&self) -> u64 {
        let geometry = self.initialisation.zone_tables.geometry;
        let default = match self.jobs.granularity {
            JobGranularity::Ranges => geometry.max_order().pages(),
            JobGranularity::Sections => geometry.section_pages(),
        };
        self.jobs.alignment.unwrap_or(default).0
    }

    /// Runs one job over all sections of the node, holes included. Returns the number of jobs and of threads.
    fn by_sections(&self, size: u64) -> (u64, usize) {
        let threads = self.run_job(0, size, &|positions| {
            let mut result = InitResult::default();
            let mut run = PfnRange::default();
            for part in self.parts_of(positions) {
                if run.end == part.start && self.grain == Grain::Chunk {
                    run.end = part.end;
                } else {
                    result.add(self.initialise_part(run));
                    run = part;
                }
            }
            result.add(self.initialise_part(run));
            result
        });
        (1, threads)
    }

    /// Runs a job for each range of free memory, then initialises the rest. Returns the number of jobs and the most threads
    /// of one.
    fn by_ranges(&self, size: u64) -> (u64, usize) {
        let (mut jobs, mut most_threads) = (0, 1);
        let free = self.initialisation.tables.free_ranges_in(self.initialisation.zone_tables.map.range());
        for (range, _) in free.filter(|(_, zone)| zone.node() == self.node) {
            let threads = self.run_job(range.start.0, range.count().0, &|frames| {
                let range = PfnRange { start: Pfn(frames.start), end: Pfn(frames.end) };
                let mut result = InitResult::default();
                match self.grain {
                    Grain::Chunk => result = self.initialise_part(range),
                    Grain::Section => {
                        self.initialisation.sections_in(range).for_each(|part| result.add(self.initialise_part(part)));
                    }
                }
                result
            });
            jobs += 1;
            most_threads = most_threads.max(threads);
        }
        self.parts_of(0..size).for_each(|section| self.add(self.initialise_part(section)));
        (jobs, most_threads)
    }

    fn initialise_part(&self, part: PfnRange) -> InitResult {
        if part.is_empty() || self.failed.is_set() {
            return InitResult::default();
        }
        let result = self.initialisation.initialise(part);
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
        // A minimum above the job's size means one chunk.
        let min_chunk = self.jobs.min_chunk.map_or(align, |chunk| chunk.0.min(size));
        let job = ParallelJob { start, size, align, min_chunk, max_threads: self.max_threads() };
        let add = |sum: &mut InitResult, chunk| sum.add(work(chunk));
        let ran = job.run(self.initialisation.platform, self.node, &add, &|sum: InitResult| self.add(sum));
        if ran.is_err() {
            self.failed.panicked.store(1, Ordering::Relaxed);
        }
        job.threads().unwrap_or(1)
    }
}

impl From<InitError> for BootError {
    /// The error of a creation that cannot initialise its part of the map.
    fn from(error: InitError) -> Self {
        match error {
            InitError::MapNotBacked(range) => Self::MapNotBacked(range),
            _ => Self::WorkerPanicked,
        }
    }
}
