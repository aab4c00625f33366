//! The pass: initialising all deferred memory in parallel.
//!
//! Nodes run side by side. Within a node the work is one job or several ([`JobGranularity`]), each cut into chunks that
//! the node's workers take one after the other. Every worker keeps its own counts, and adds them to the node's total
//! once.

use super::{BringUp, InitResult};
use crate::boot::{BootError, InitError, InitJobs, JobGranularity};
use crate::job::ParallelJob;
use crate::platform::{InitProgress, NodeInit, Platform};
use crate::sync::{AtomicU64, Ordering};
use crate::units::{NodeId, PageCount, Pfn, PfnRange};

/// Why a pass did not finish.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PassError {
    WorkerPanicked,
    NotBacked(PfnRange),
}

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
    pub(crate) fn pass(&self, jobs: InitJobs, grain: Grain) -> Result<(), PassError> {
        let nodes = u64::from(self.tables.nodes());
        let next = AtomicU64::new(0);
        let failed = Failure::default();
        // Leaders take one node after the other: there may be fewer leaders than nodes.
        let lead = |_| loop {
            let node = next.fetch_add(1, Ordering::Relaxed);
            if node >= nodes {
                break;
            }
            self.pass_over_node(NodeId(node as u16), jobs, grain, &failed);
        };
        let led = self.platform.run_workers(nodes as usize, &|leader| NodeId(leader as u16), &lead);
        if led.is_err() {
            return Err(PassError::WorkerPanicked);
        }
        failed.result()
    }

    fn pass_over_node(&self, node: NodeId, jobs: InitJobs, grain: Grain, failed: &Failure) {
        let sections = NodeSections::of(self, node);
        if sections.count == 0 {
            return;
        }
        let begin = self.platform.clock_ns();
        let pass = NodePass { bring_up: self, node, jobs, grain, failed, tally: Tally::default() };
        let (count, threads) = match jobs.granularity {
            JobGranularity::Sections => pass.by_sections(&sections),
            JobGranularity::Ranges => pass.by_ranges(&sections),
        };
        let elapsed_ns = begin.zip(self.platform.clock_ns()).map(|(begin, end)| end - begin);
        let Tally { pages, freed } = &pass.tally;
        let (pages, freed) = (pages.load(Ordering::Relaxed), freed.load(Ordering::Relaxed));
        if pages == 0 {
            // Nothing was deferred, so there is no pass to report.
            return;
        }
        let done =
            NodeInit { node, threads, jobs: count, pages: PageCount(pages), freed: PageCount(freed), elapsed_ns };
        self.platform.init_progress(InitProgress::NodeDone(done));
    }
}

/// The first part of the map without backing memory.
#[derive(Default)]
struct Failure {
    panicked: AtomicU64,
    /// The number of parts without backing memory.
    count: AtomicU64,
    /// One more than the first frame, so that 0 means none.
    start: AtomicU64,
    end: AtomicU64,
}

impl Failure {
    fn set(&self, range: PfnRange) {
        // One caller alone writes both ends.
        if self.count.fetch_add(1, Ordering::Relaxed) == 0 {
            self.end.store(range.end.0, Ordering::Relaxed);
            self.start.store(range.start.0 + 1, Ordering::Relaxed);
        }
    }

    fn is_set(&self) -> bool {
        self.start.load(Ordering::Relaxed) != 0
    }

    /// Called when all workers have ended.
    fn result(&self) -> Result<(), PassError> {
        if self.panicked.load(Ordering::Relaxed) != 0 {
            return Err(PassError::WorkerPanicked);
        }
        match self.start.load(Ordering::Relaxed) {
            0 => Ok(()),
            start => {
                let range = PfnRange { start: Pfn(start - 1), end: Pfn(self.end.load(Ordering::Relaxed)) };
                Err(PassError::NotBacked(range))
            }
        }
    }
}

/// The total of a node's workers. Each worker adds its counts when it is done.
#[derive(Default)]
struct Tally {
    pages: AtomicU64,
    freed: AtomicU64,
}

/// The present sections of a node, as one line of frames without gaps.
struct NodeSections {
    node: NodeId,
    count: u64,
}

impl NodeSections {
    fn of<P: Platform>(bring_up: &BringUp<'_, P>, node: NodeId) -> Self {
        let count = (0..bring_up.tables.sections.len())
            .filter(|at| bring_up.tables.section(*at).node() == Some(node))
            .count() as u64;
        Self { node, count }
    }

    /// Calls `visit` with the frames of each section that part of the line stands for.
    fn for_each<P: Platform>(
        &self,
        bring_up: &BringUp<'_, P>,
        line: core::ops::Range<u64>,
        mut visit: impl FnMut(PfnRange),
    ) {
        let shift = bring_up.geometry.section_pages_shift();
        let pages = 1 << shift;
        let mut place = 0;
        for at in 0..bring_up.tables.sections.len() {
            if place >= line.end {
                break;
            }
            if bring_up.tables.section(at).node() != Some(self.node) {
                continue;
            }
            let (from, to) = (line.start.max(place), line.end.min(place + pages));
            if from < to {
                let first = bring_up.map.range().start.0 + ((at as u64) << shift);
                visit(PfnRange { start: Pfn(first + from - place), end: Pfn(first + to - place) });
            }
            place += pages;
        }
    }
}

/// The pass over one node.
struct NodePass<'a, P> {
    bring_up: &'a BringUp<'a, P>,
    node: NodeId,
    jobs: InitJobs,
    grain: Grain,
    failed: &'a Failure,
    tally: Tally,
}

impl<P: Platform> NodePass<'_, P> {
    fn max_threads(&self) -> usize {
        let tables = &self.bring_up.tables;
        let cpus = (tables.cpus_of(self.node) as usize).max(1);
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

    /// One job over all sections of the node, however many holes lie between and in them.
    fn by_sections(&self, sections: &NodeSections) -> (u64, usize) {
        let size = sections.count * self.bring_up.geometry.section_pages().0;
        let threads = self.run(0, size, &|line| {
            let mut result = InitResult::default();
            let mut run = PfnRange::default();
            sections.for_each(self.bring_up, line, |part| {
                if run.end == part.start && self.grain == Grain::Chunk {
                    run.end = part.end;
                } else {
                    result.add(self.bring_up_part(run));
                    run = part;
                }
            });
            result.add(self.bring_up_part(run));
            result
        });
        (1, threads)
    }

    /// A job for each range of free memory, then one for the rest.
    fn by_ranges(&self, sections: &NodeSections) -> (u64, usize) {
        let tables = self.bring_up.tables;
        let (mut count, mut most) = (0, 1);
        for (range, _) in tables.free_ranges_in(self.bring_up.map.range()).filter(|(_, zone)| zone.node() == self.node)
        {
            let threads = self.run(range.start.0, range.count().0, &|frames| {
                let range = PfnRange { start: Pfn(frames.start), end: Pfn(frames.end) };
                match self.grain {
                    Grain::Chunk => self.bring_up_part(range),
                    Grain::Section => self.bring_up_by_section(range),
                }
            });
            count += 1;
            most = most.max(threads);
        }
        let all = sections.count * self.bring_up.geometry.section_pages().0;
        sections.for_each(self.bring_up, 0..all, |section| self.add(self.bring_up_part(section)));
        (count, most)
    }

    fn bring_up_by_section(&self, range: PfnRange) -> InitResult {
        let mut result = InitResult::default();
        self.bring_up.sections_in(range).for_each(|part| result.add(self.bring_up_part(part)));
        result
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
        self.tally.pages.fetch_add(result.pages.0, Ordering::Relaxed);
        self.tally.freed.fetch_add(result.freed.0, Ordering::Relaxed);
    }

    /// Runs one job; how many threads it was given.
    fn run(&self, start: u64, size: u64, work: &(dyn Fn(core::ops::Range<u64>) -> InitResult + Sync)) -> usize {
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

impl From<PassError> for BootError {
    fn from(error: PassError) -> Self {
        match error {
            PassError::WorkerPanicked => Self::WorkerPanicked,
            PassError::NotBacked(range) => Self::MapNotBacked(range),
        }
    }
}

impl From<PassError> for InitError {
    fn from(error: PassError) -> Self {
        match error {
            PassError::WorkerPanicked => Self::WorkerPanicked,
            PassError::NotBacked(range) => Self::MapNotBacked(range),
        }
    }
}
