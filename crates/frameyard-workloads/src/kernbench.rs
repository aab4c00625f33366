//! `kernbench`: jobs of a build, over and over: a process is made, maps memory in a few pieces, computes between its first uses of
//! pages, and exits.
//!
//! What a build's system time goes to besides pages (making processes, reading and writing files) goes with the pages, too:
//! so much for each.

use std::num::NonZeroUsize;
use std::time::Duration;

use frameyard::{ByteSize, Platform};
use frameyard_vm::MemoryAccess;
use serde::{Deserialize, Serialize};

use super::course::Course;
use super::ground::{Ground, Setting};
use super::page_fault::{Pages, TaskRun, map, pages_of, run_for};
use super::parallel_free::check_gone;
use super::task::{Site, TaskOrder, TaskProblem, TaskReport, Work};
use crate::Failure;
use crate::cli::BuildArgs;

/// Bytes of a page.
const PAGE: u64 = 4096;

/// What a task does: one job after the other, each of which is a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Build {
    /// Pages that a process uses.
    pub(crate) pages: u32,
    /// In how many mappings they are.
    pub(crate) mappings: u32,
    /// Cycles that it computes for each page.
    pub(crate) compute: u64,
    /// Cycles that the kernel works for it besides, for each page.
    pub(crate) kernel_work: u64,
}

impl Build {
    /// What a kernel does besides for each page that a build's processes allocate, in cycles.
    ///
    /// Measured on Linux 6.18 as a guest on Zen 4 processors of 3.66 GHz, with gcc 12 on C files of 1000 to 24000 lines after their
    /// headers: 4.6 to 5.9 µs of system time for each page allocated (`kmem:mm_page_alloc`), in the mean 18,800 cycles; less the
    /// 4,400 that simulated pages take alone, and rounded. Older kernels on bare machines probably need less.
    pub(crate) const KERNEL_WORK: u64 = 14_000;

    /// Memory that the process of a job uses.
    pub(crate) fn memory(&self) -> ByteSize {
        ByteSize(u64::from(self.pages) * PAGE)
    }
}

impl Default for Build {
    fn default() -> Self {
        Self { pages: 1024, mappings: 8, compute: 74_000, kernel_work: Self::KERNEL_WORK }
    }
}

impl From<BuildArgs> for Build {
    fn from(args: BuildArgs) -> Self {
        let BuildArgs { pages, mappings, compute, kernel_work } = args;
        Self { pages: pages.get(), mappings: mappings.get(), compute, kernel_work }
    }
}

/// What takes time on a CPU besides using memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Labour {
    /// A program computes.
    Compute = 0,
    /// The kernel works for it.
    KernelWork = 1,
}

impl Labour {
    /// The names of the costs on simulated machines, in the order of the kinds.
    pub(crate) const COSTS: &'static [&'static str] = &["compute", "kernel-work"];
}

impl Build {
    /// Runs until told to stop; an iteration is a page of 4 KiB used.
    pub(crate) fn run<P: Platform, C: Course>(&self, site: &Site<'_, '_, P, C>) -> Result<TaskReport, TaskProblem> {
        let begin = site.begin()?;
        let ByteSize(bytes) = self.memory();
        let (mut iterations, mut of_process) = (0, site.course.first_round(bytes));
        while !site.is_over() {
            iterations += self.process(site, of_process)?;
            site.course.round_ends(iterations);
            of_process = bytes;
        }
        Ok(site.course.report(begin, iterations))
    }

    /// One process from beginning to end; how many pages it used.
    fn process<P: Platform, C: Course>(&self, site: &Site<'_, '_, P, C>, bytes: u64) -> Result<u64, TaskProblem> {
        let space = site.vm.create_space()?;
        let piece = (bytes / PAGE).div_ceil(u64::from(self.mappings.max(1))).max(1) * PAGE;
        let (mut pages, mut left) = (0, bytes);
        while left > 0 && !site.is_over() {
            let range = map(&space, ByteSize(piece.min(left)), Pages::Small)?;
            for addr in pages_of(range) {
                if site.is_over() {
                    break;
                }
                space.touch(addr, MemoryAccess::Write)?;
                site.course.spend(Labour::KernelWork, self.kernel_work);
                site.course.spend(Labour::Compute, self.compute);
                pages += 1;
            }
            left -= piece.min(left);
        }
        check_gone(space.exit(NonZeroUsize::MIN))?;
        Ok(pages)
    }
}

/// One run of the workload.
pub(crate) fn run(
    ground: &Ground<'_>,
    setting: &Setting,
    seed: u64,
    build: Build,
    duration: Duration,
) -> Result<TaskRun, Failure> {
    run_for(ground, &orders(setting, seed, build), duration)
}

/// What the tasks of a run are told.
pub(crate) fn orders(setting: &Setting, seed: u64, build: Build) -> Vec<TaskOrder> {
    TaskOrder::alike(setting.tasks.get(), seed, &Work::Kernbench(build))
}

/// What a yard must have free for so many tasks: pages of their processes, page tables for them, and a reserve.
#[must_use]
pub(crate) fn memory_needed(tasks: u32, build: Build) -> ByteSize {
    let process = (u64::from(build.pages) + 64) * PAGE;
    ByteSize((process + process / 16).saturating_mul(u64::from(tasks)).saturating_add(ByteSize::mib(32).0))
}
