//! `purge`: tasks fault pages in, and purgers free them, as the background purging of a user-space allocator does: memory
//! is freed on another CPU than it was allocated on.
//!
//! So that it is, purgers have some of the CPUs to themselves. Left alone, a scheduler wakes a purger where the task that
//! has something for it runs.

use std::thread;
use std::time::Duration;

use frameyard::{ByteSize, CpuId, Platform};
use frameyard_host::CpuList;
use frameyard_vm::MemoryAccess;
use serde::{Deserialize, Serialize};

use super::ground::{Ground, Setting};
use super::page_fault::{Pages, TaskRun, map, pages_of, run_for};
use super::task::{Site, TaskOrder, TaskProblem, TaskReport, TaskSpace, Work, nanoseconds, task_seed};
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
    /// Faults pieces in.
    Fault,
    /// Frees pieces of all tasks.
    Free,
    /// Both, on two threads: a process with a purger of its own.
    Both,
}

impl Purge {
    /// Runs until told to stop; an iteration is a page faulted in.
    pub(crate) fn run(&self, site: &Site<'_, '_>) -> Result<TaskReport, TaskProblem> {
        let space = site.space()?;
        let begin = site.begin()?;
        let report = match self.role {
            Role::Fault => self.fault(site, &space)?,
            Role::Free => self.free(site, &space)?,
            Role::Both => thread::scope(|scope| {
                let purger = scope.spawn(|| self.free(site, &space));
                // Closed in any case: the purger waits for it.
                let faulted = self.fault(site, &space);
                site.exchange.close();
                let freed = purger.join().map_err(|_| TaskProblem::from("the purger panicked"))??;
                let faulted = faulted?;
                Ok::<_, TaskProblem>(TaskReport { iterations: faulted.iterations, ..freed })
            })?,
        };
        Ok(TaskReport { elapsed_ns: nanoseconds(begin.elapsed()), ..report })
    }

    fn fault(&self, site: &Site<'_, '_>, space: &TaskSpace<'_, '_>) -> Result<TaskReport, TaskProblem> {
        self.settle(site, Role::Fault);
        let mut iterations = 0;
        while !site.is_over() {
            let range = map(space, PIECE, Pages::Small)?;
            for addr in pages_of(range) {
                space.touch(addr, MemoryAccess::Write)?;
                iterations += 1;
            }
            if let Err((range, _)) = site.exchange.put((range, cpu(site)), self.bound) {
                space.unmap(range)?;
            }
        }
        Ok(TaskReport { iterations, ..TaskReport::default() })
    }

    /// Frees pieces until there are no more to come.
    fn free(&self, site: &Site<'_, '_>, space: &TaskSpace<'_, '_>) -> Result<TaskReport, TaskProblem> {
        self.settle(site, Role::Free);
        let mut report = TaskReport::default();
        while let Some((range, allocated_on)) = site.exchange.take() {
            space.unmap(range)?;
            report.freed += 1;
            report.freed_elsewhere += u64::from(cpu(site) != allocated_on);
        }
        Ok(report)
    }

    /// Keeps this thread to the CPUs of its role. Where that is refused it runs all the same: the share of pieces that were
    /// freed elsewhere says what came of it.
    fn settle(&self, site: &Site<'_, '_>, role: Role) {
        let allowed = site.vm.yard().platform().host().allowed().as_slice();
        let (purgers, all) = self.purgers;
        let (faulting, freeing) = allowed.split_at(allowed.len() - purgers_cpus(allowed.len(), purgers, all));
        let own = if role == Role::Free { freeing } else { faulting };
        if !own.is_empty() {
            let _ = own.iter().copied().collect::<CpuList>().pin_this_thread();
        }
    }
}

/// How many of the CPUs purgers have: as their part of all, at least one, and not all. None where there is one CPU.
fn purgers_cpus(cpus: usize, purgers: u32, all: u32) -> usize {
    if cpus < 2 {
        return 0;
    }
    (cpus * purgers as usize / all.max(1) as usize).clamp(1, cpus - 1)
}

fn cpu(site: &Site<'_, '_>) -> CpuId {
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
        TaskMode::Threads => {
            let bound = PIECES_WAITING * tasks as usize;
            let role = |number| if number < tasks { Role::Fault } else { Role::Free };
            let order = |number| TaskOrder {
                number,
                seed: task_seed(seed, number),
                work: Work::Purge(Purge { role: role(number), bound, purgers: (purgers, tasks + purgers) }),
            };
            (0..tasks + purgers).map(order).collect()
        }
    };
    run_for(ground, &orders, duration)
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
