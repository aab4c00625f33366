//! The tasks of `purge`: some fault pages in, purgers free them on other CPUs.
//!
//! Purgers are bound to CPUs of their own. Otherwise the scheduler would wake a purger on the CPU of the task that queues
//! the piece.

use std::thread;

use frameyard::{ByteSize, CpuId, Platform};
use frameyard_vm::MemoryAccess;
use serde::{Deserialize, Serialize};

use crate::host_runtime::HostSite;
use crate::mapping::{Pages, map, pages_of};
use crate::measure::nanoseconds;
use crate::report::{TaskProblem, TaskReport};
use crate::runtime::Runtime;
use crate::site::{Site, TaskSpace};

/// The size of a piece. A task maps a piece, faults it in and queues it for a purger.
pub(crate) const PIECE: ByteSize = ByteSize::mib(2);

/// One task.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Purge {
    /// Its role.
    pub(crate) role: Role,
    /// The most pieces that may be queued.
    pub(crate) bound: usize,
    /// Purgers among the threads that share the CPUs, and all those threads.
    pub(crate) purgers: (u32, u32),
}

/// The parts that a task plays.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Role {
    /// One of the two.
    One(Part),
    /// Both, on two threads: a process with its own purger.
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
    /// Runs on this host until told to stop. An iteration is one page faulted in.
    pub(crate) fn run(&self, site: &HostSite<'_, '_>) -> Result<TaskReport, TaskProblem> {
        if let Role::One(part) = self.role {
            return self.run_part(site, part);
        }
        let space = site.space()?;
        let begin = site.begin()?;
        let report = thread::scope(|scope| {
            let purger = scope.spawn(|| self.free(site, &space));
            let faulted = self.fault(site, &space);
            // Closed even after an error: the purger waits for it.
            site.runtime.exchange.close();
            let freed = purger.join().map_err(|_| TaskProblem::from("the purger panicked"))??;
            let iterations = faulted?;
            Ok::<_, TaskProblem>(TaskReport { iterations, ..freed })
        })?;
        Ok(TaskReport { elapsed_ns: nanoseconds(begin.elapsed()), ..report })
    }

    /// Plays one part until told to stop.
    pub(crate) fn run_part<P: Platform, R: Runtime>(
        &self,
        site: &Site<'_, '_, P, R>,
        part: Part,
    ) -> Result<TaskReport, TaskProblem> {
        let space = site.space()?;
        let begin = site.begin()?;
        match part {
            Part::Fault => {
                let iterations = self.fault(site, &space)?;
                Ok(site.runtime.report(begin, iterations, 0))
            }
            Part::Free => {
                let report = self.free(site, &space)?;
                Ok(TaskReport { elapsed_ns: site.runtime.elapsed_ns(begin), ..report })
            }
        }
    }

    /// Faults pieces in until told to stop, one at least. Returns the number of pages.
    fn fault<P: Platform, R: Runtime>(
        &self,
        site: &Site<'_, '_, P, R>,
        space: &TaskSpace<'_, '_, P>,
    ) -> Result<u64, TaskProblem> {
        self.settle(&site.runtime, Part::Fault);
        let mut iterations = 0;
        while iterations == 0 || !site.is_over() {
            let range = map(space, PIECE, Pages::Small)?;
            for addr in pages_of(range) {
                space.touch(addr, MemoryAccess::Write)?;
                iterations += 1;
            }
            if let Err((range, _)) = site.runtime.put((range, cpu(site)), self.bound) {
                space.unmap(range)?;
            }
            site.runtime.round_ends(iterations);
        }
        Ok(iterations)
    }

    /// Frees pieces until no more come.
    fn free<P: Platform, R: Runtime>(
        &self,
        site: &Site<'_, '_, P, R>,
        space: &TaskSpace<'_, '_, P>,
    ) -> Result<TaskReport, TaskProblem> {
        self.settle(&site.runtime, Part::Free);
        let mut report = TaskReport::default();
        while let Some((range, allocated_on)) = site.runtime.take() {
            space.unmap(range)?;
            report.freed += 1;
            report.freed_elsewhere += u64::from(cpu(site) != allocated_on);
        }
        Ok(report)
    }

    /// Confines the calling thread to the CPUs of its part. If the host refuses, the thread runs anywhere; the share of
    /// pieces freed elsewhere shows the effect.
    fn settle(&self, runtime: &impl Runtime, part: Part) {
        let (purgers, all) = self.purgers;
        runtime.keep_to(|allowed| {
            let (faulting, freeing) = allowed.split_at(allowed.len() - purgers_cpus(allowed.len(), purgers, all));
            if part == Part::Free { freeing } else { faulting }
        });
    }
}

/// Number of CPUs for purgers: in proportion to their share of the threads, at least one, never all. 0 with one CPU.
fn purgers_cpus(cpus: usize, purgers: u32, all: u32) -> usize {
    if cpus < 2 {
        return 0;
    }
    (cpus * purgers as usize / all.max(1) as usize).clamp(1, cpus - 1)
}

fn cpu<P: Platform, R>(site: &Site<'_, '_, P, R>) -> CpuId {
    site.vm.yard().platform().current_cpu()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purgers_get_a_proportional_share_of_the_cpus_but_never_all_or_none() {
        assert_eq!([1, 2, 3, 8, 112].map(|cpus| purgers_cpus(cpus, 1, 4)), [0, 1, 1, 2, 28]);
        assert_eq!((purgers_cpus(8, 9, 10), purgers_cpus(8, 10, 10)), (7, 7));
    }
}
