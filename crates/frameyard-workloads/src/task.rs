//! Tasks: what each is told, and the loops that they run.
//!
//! A task is plain values, so that a thread and a process can be told the same. Each loop has a file of its own; the
//! module named like the workload starts the tasks and measures them.
//!
//! [`TaskSpec::run_here`] compiles the loops for this host, in this crate. [`TaskSpec::run_on`] compiles them in the crate
//! that calls it, for that crate's platform.

pub(crate) mod build;
pub(crate) mod decision_support;
pub(crate) mod fill;
pub(crate) mod fragment;
pub(crate) mod kernbench;
pub(crate) mod page_fault;
pub(crate) mod purge;
pub(crate) mod reuse;
pub(crate) mod stress;

use frameyard::Platform;
use frameyard_host::HostPlatform;
use frameyard_vm::{AddressSpace, Vm};
use serde::{Deserialize, Serialize};

use crate::host_runtime::{HostRuntime, HostSite};
use crate::report::{TaskProblem, TaskReport};
use crate::runtime::Runtime;
use crate::site::Site;

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
    /// Runs queries that scan a table and use a work area.
    DecisionSupport(decision_support::QueryMix),
    /// Reads files and allocates unmovable frames.
    Build(build::Build),
    /// Allocates and frees at random and checks every frame.
    Stress(stress::Stress),
}

/// What one task is told. The modules of the workloads make them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TaskSpec {
    /// Its number, from 0.
    pub number: u32,
    /// Seed of its random choices.
    pub seed: u64,
    /// What it does.
    pub(crate) work: Work,
}

impl TaskSpec {
    /// Specs of `tasks` tasks that do the same work, each with its own seed.
    pub(crate) fn alike(tasks: u32, seed: u64, work: &Work) -> Vec<Self> {
        (0..tasks).map(|number| Self { number, seed: task_seed(seed, number), work: work.clone() }).collect()
    }

    /// Runs the task on any platform, on the calling CPU. Without a `common` address space it creates its own.
    ///
    /// # Errors
    ///
    /// The error of the first access or request that fails; [`Abandoned`](crate::report::Abandoned) if the run ends before
    /// the task begins; and a text for a task that only a host can run: a purger and a faulting task in one, and `stress`.
    pub fn run_on<P: Platform, R: Runtime>(
        &self,
        vm: Vm<'_, P>,
        common: Option<&AddressSpace<'_, P>>,
        runtime: R,
    ) -> Result<TaskReport, TaskProblem> {
        self.work.run_on(&Site { vm, common, runtime, number: self.number, seed: self.seed })
    }

    /// Runs the task on this host.
    pub(crate) fn run_here(
        &self,
        vm: Vm<'_, HostPlatform>,
        common: Option<&AddressSpace<'_, HostPlatform>>,
        runtime: HostRuntime<'_>,
    ) -> Result<TaskReport, TaskProblem> {
        self.work.run_here(&Site { vm, common, runtime, number: self.number, seed: self.seed })
    }
}

/// The seed of one task's random choices.
#[must_use]
pub fn task_seed(seed: u64, number: u32) -> u64 {
    seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(u64::from(number))
}

impl Work {
    fn run_on<P: Platform, R: Runtime>(&self, site: &Site<'_, '_, P, R>) -> Result<TaskReport, TaskProblem> {
        match self {
            Self::PageFault(work) => work.run(site),
            Self::Fill(work) => work.run(site),
            Self::Fragment(work) => work.run(site),
            Self::Purge(work) => match work.role {
                purge::Role::One(part) => work.run_part(site, part),
                purge::Role::Both => Err("a virtual CPU runs one thread".into()),
            },
            Self::Kernbench(work) => work.run(site),
            Self::DecisionSupport(work) => work.run(site),
            Self::Build(work) => work.run(site),
            Self::Stress(_) => Err("`stress` has no simulated form".into()),
        }
    }

    fn run_here(&self, site: &HostSite<'_, '_>) -> Result<TaskReport, TaskProblem> {
        match self {
            Self::PageFault(work) => work.run(site),
            Self::Fill(work) => work.run(site),
            Self::Fragment(work) => work.run(site),
            Self::Purge(work) => work.run(site),
            Self::Kernbench(work) => work.run(site),
            Self::DecisionSupport(work) => work.run(site),
            Self::Build(work) => work.run(site),
            Self::Stress(work) => work.run(site),
        }
    }
}
