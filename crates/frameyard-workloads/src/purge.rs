//! `purge`: tasks fault pages in, and purgers free them, as the background purging of a user-space allocator does: memory
//! is freed on another CPU than it was allocated on.
//!
//! So that it is, purgers have some of the CPUs to themselves. Left alone, a scheduler wakes a purger where the task that
//! has something for it runs.

use std::thread;
use std::time::Duration;

use frameyard::{ByteSize, CpuId, Platform};
use frameyard_vm::MemoryAccess;
use serde::{Deserialize, Serialize};

use super::course::Course;
use super::ground::{Ground, Setting};
use super::page_fault::{Pages, TaskRun, map, pages_of, run_for};
use super::task::{HostSite, Site, TaskOrder, TaskProblem, TaskReport, TaskSpace, Work, nanoseconds, task_seed};
use crate::Failure;
use crate::cli::TaskMode;

/// What is mapped, faulted in and handed over at a time.
pub(crate) const PIECE: ByteSize = ByteSize::mib(2);
/// How many pieces may wait for a purger, for each task that faults.
pub(crate) const PIECES_WAITING: usize = 16;

/// What a task of the workload does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Purge {
    /// Its part.
    pub(crate) role: Role,
    /// The most pieces that may wait.
    pub(crate) bound: usize,
    /// How many of those that share the CPUs are purgers, and how many there are.
    pub(crate) purgers: (u32, u32),
}

/// The parts of the workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Role {
    /// One of the two.
    One(Part),
    /// Both, on two threads: a process with a purger of its own.
    Both,
}

/// What one thread does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Part {
    /// Faults pieces in.
    Fault,
    /// Frees pieces of all tasks.
    Free,
}

impl Purge {
    /// Runs on this host until told to stop; an iteration is a page faulted in.
    pub(crate) fn run(&self, site: &HostSite<'_, '_>) -> Result<TaskReport, TaskProblem> {
        if let Role::One(part) = self.role {
            return self.run_part(site, part);
        }
        let space = site.space()?;
        let begin = site.begin()?;
        let report = thread::scope(|scope| {
            let purger = scope.spawn(|| self.free(site, &space));
            // Closed in any case: the purger waits for it.
            let faulted = self.fault(site, &space);
            site.course.exchange.close();
            let freed = purger.join().map_err(|_| TaskProblem::from("the purger panicked"))??;
            let iterations = faulted?;
            Ok::<_, TaskProblem>(TaskReport { iterations, ..freed })
        })?;
        Ok(TaskReport { elapsed_ns: nanoseconds(begin.elapsed()), ..report })
    }

    /// Does one part until told to stop.
    pub(crate) fn run_part<P: Platform, C: Course>(
        &self,
        site: &Site<'_, '_, P, C>,
        part: Part,
    ) -> Result<TaskReport, TaskProblem> {
        let space = site.space()?;
        let begin = site.begin()?;
        match part {
            Part::Fault => {
                let iterations = self.fault(site, &space)?;
                Ok(site.course.report(begin, iterations))
            }
            Part::Free => {
                let report = self.free(site, &space)?;
                Ok(TaskReport { elapsed_ns: site.course.elapsed_ns(begin), ..report })
            }
        }
    }

    /// Faults pieces in until told to stop; how many pages.
    fn fault<P: Platform, C: Course>(
        &self,
        site: &Site<'_, '_, P, C>,
        space: &TaskSpace<'_, '_, P>,
    ) -> Result<u64, TaskProblem> {
        self.settle(&site.course, Part::Fault);
        let mut iterations = 0;
        while !site.is_over() {
            let range = map(space, PIECE, Pages::Small)?;
            for addr in pages_of(range) {
                space.touch(addr, MemoryAccess::Write)?;
                iterations += 1;
            }
            if let Err((range, _)) = site.course.put((range, cpu(site)), self.bound) {
                space.unmap(range)?;
            }
            site.course.round_ends(iterations);
        }
        Ok(iterations)
    }

    /// Frees pieces until there are no more to come.
    fn free<P: Platform, C: Course>(
        &self,
        site: &Site<'_, '_, P, C>,
        space: &TaskSpace<'_, '_, P>,
    ) -> Result<TaskReport, TaskProblem> {
        self.settle(&site.course, Part::Free);
        let mut report = TaskReport::default();
        while let Some((range, allocated_on)) = site.course.take() {
            space.unmap(range)?;
            report.freed += 1;
            report.freed_elsewhere += u64::from(cpu(site) != allocated_on);
        }
        Ok(report)
    }

    /// Keeps this thread to the CPUs of its part. Where that is refused it runs all the same: the share of pieces that were
    /// freed elsewhere says what came of it.
    fn settle(&self, course: &impl Course, part: Part) {
        let (purgers, all) = self.purgers;
        course.keep_to(|allowed| {
            let (faulting, freeing) = allowed.split_at(allowed.len() - purgers_cpus(allowed.len(), purgers, all));
            if part == Part::Free { freeing } else { faulting }
        });
    }
}

/// How many of the CPUs purgers have: as their part of all, at least one, and not all. None where there is one CPU.
fn purgers_cpus(cpus: usize, purgers: u32, all: u32) -> usize {
    if cpus < 2 {
        return 0;
    }
    (cpus * purgers as usize / all.max(1) as usize).clamp(1, cpus - 1)
}

fn cpu<P: Platform, C>(site: &Site<'_, '_, P, C>) -> CpuId {
    site.vm.yard().platform().current_cpu()
}

/// How many purgers serve so many tasks, where they are threads: one for four.
#[must_use]
pub(crate) fn usual_purgers(tasks: u32) -> u32 {
    tasks.div_ceil(4)
}

/// One run of the workload.
pub(crate) fn run(
    ground: &Ground<'_>,
    setting: &Setting,
    purgers: u32,
    seed: u64,
    duration: Duration,
) -> Result<TaskRun, Failure> {
    let tasks = setting.tasks.get();
    let orders = match setting.mode {
        TaskMode::Processes => {
            let work = Work::Purge(Purge { role: Role::Both, bound: PIECES_WAITING, purgers: (1, 2) });
            TaskOrder::alike(tasks, seed, &work)
        }
        TaskMode::Threads => apart(tasks, purgers, seed, PIECES_WAITING * tasks as usize),
    };
    run_for(ground, &orders, duration)
}

/// What tasks are told that do one part each: those that fault come first. So many pieces may wait in an exchange.
pub(crate) fn apart(tasks: u32, purgers: u32, seed: u64, bound: usize) -> Vec<TaskOrder> {
    let role = |number| Role::One(if number < tasks { Part::Fault } else { Part::Free });
    let order = |number| TaskOrder {
        number,
        seed: task_seed(seed, number),
        work: Work::Purge(Purge { role: role(number), bound, purgers: (purgers, tasks + purgers) }),
    };
    (0..tasks + purgers).map(order).collect()
}

/// What a yard must have free for so many tasks and purgers.
#[must_use]
pub(crate) fn memory_needed(tasks: u32, purgers: u32) -> ByteSize {
    let pieces = u64::from(tasks) * (PIECES_WAITING as u64 + 1) + u64::from(purgers);
    ByteSize(pieces.saturating_mul(PIECE.0 + PIECE.0 / 16).saturating_add(ByteSize::mib(32).0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purgers_have_their_part_of_the_cpus_and_never_all_or_none() {
        assert_eq!([1, 2, 3, 8, 112].map(|cpus| purgers_cpus(cpus, 1, 4)), [0, 1, 1, 2, 28]);
        assert_eq!((purgers_cpus(8, 9, 10), purgers_cpus(8, 10, 10)), (7, 7));
    }
}
