//! Tasks: what each is told, and the loops that they run.
//!
//! A task is plain values, so that a thread and a process can be told the same. Each loop has a file of its own; the
//! module named like the workload starts the tasks and measures them.

pub(crate) mod build;
pub(crate) mod fill;
pub(crate) mod fragment;
pub(crate) mod kernbench;
pub(crate) mod page_fault;
pub(crate) mod purge;
pub(crate) mod stress;

use serde::{Deserialize, Serialize};

use crate::report::{TaskProblem, TaskReport};
use crate::site::HostSite;

/// What a task does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Work {
    /// Maps, touches and unmaps until told to stop.
    PageFault(page_fault::Loop),
    /// Fills an address space, or its part of the common one. A process exits its space when told to.
    Fill(fill::Fill),
    /// Fills memory with small pages and frees them.
    Fragment(fragment::Fragment),
    /// Faults in pages that purgers free.
    Purge(purge::Purge),
    /// Runs short processes that compute, like the jobs of a build.
    Kernbench(kernbench::Job),
    /// Reads files and allocates unmovable frames.
    Build(build::Build),
    /// Allocates and frees at random and checks every frame.
    Stress(stress::Stress),
}

/// What one task is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TaskSpec {
    /// Its number, from 0.
    pub(crate) number: u32,
    /// Seed of its random choices.
    pub(crate) seed: u64,
    /// What it does.
    pub(crate) work: Work,
}

impl TaskSpec {
    /// Specs of `tasks` tasks that do the same work, each with its own seed.
    pub(crate) fn alike(tasks: u32, seed: u64, work: &Work) -> Vec<Self> {
        (0..tasks).map(|number| Self { number, seed: task_seed(seed, number), work: work.clone() }).collect()
    }
}

/// The seed of one task's random choices.
#[must_use]
pub fn task_seed(seed: u64, number: u32) -> u64 {
    seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(u64::from(number))
}

impl Work {
    /// Runs a task on this host.
    pub(crate) fn run(&self, site: &HostSite<'_, '_>) -> Result<TaskReport, TaskProblem> {
        match self {
            Self::PageFault(work) => work.run(site),
            Self::Fill(work) => work.run(site),
            Self::Fragment(work) => work.run(site),
            Self::Purge(work) => work.run(site),
            Self::Kernbench(work) => work.run(site),
            Self::Build(work) => work.run(site),
            Self::Stress(work) => work.run(site),
        }
    }
}
