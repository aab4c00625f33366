//! A task of a workload: what it is told, what it reports, and where it runs.

use std::error::Error;
use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use frameyard::Platform;
use frameyard_host::HostPlatform;
use frameyard_vm::{AddressSpace, Vm};
use serde::{Deserialize, Serialize};

use super::course::{Course, HostCourse};
use super::{highalloc, kernbench, order0_thp, page_fault, parallel_free, purge, stress};

/// What a task does. Plain values: a process is told the same as a thread.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Work {
    /// Maps, touches and unmaps, until it is told to stop.
    PageFault(page_fault::Loop),
    /// Fills a space, or a part of the common one; processes take theirs down when told to.
    Fill(parallel_free::Fill),
    /// Fills memory with small pages and gives it all back.
    Fragment(order0_thp::Fragment),
    /// Faults pages in that others free.
    Purge(purge::Purge),
    /// Runs processes that compute, as the jobs of a build do.
    Kernbench(kernbench::Build),
    /// Reads files, and allocates what cannot be moved.
    Build(highalloc::Build),
    /// Allocates and frees at random, and watches every frame.
    Stress(stress::Stress),
}

/// What one task is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct TaskOrder {
    /// Its number, from 0.
    pub(crate) number: u32,
    /// Seed of its random choices.
    pub(crate) seed: u64,
    /// What it does.
    pub(crate) work: Work,
}

impl TaskOrder {
    /// Orders for tasks that all do the same, each with random choices of its own.
    pub(crate) fn alike(tasks: u32, seed: u64, work: &Work) -> Vec<Self> {
        (0..tasks).map(|number| Self { number, seed: task_seed(seed, number), work: work.clone() }).collect()
    }
}

/// The seed of a task's random choices.
pub(crate) fn task_seed(seed: u64, number: u32) -> u64 {
    seed.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(u64::from(number))
}

/// What one task has done.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub(crate) struct TaskReport {
    /// Steps of its work: most often pages that it touched.
    pub(crate) iterations: u64,
    /// How long it worked.
    pub(crate) elapsed_ns: u64,
    /// Pages whose contents it checked in the end.
    pub(crate) checked: u64,
    /// Pieces of memory that it, or its purger, freed.
    pub(crate) freed: u64,
    /// Those of them that were freed on another CPU than they were allocated on.
    pub(crate) freed_elsewhere: u64,
}

impl TaskReport {
    /// Steps in a second.
    pub(crate) fn rate(&self) -> f64 {
        self.iterations as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }
}

/// Why a task did not do its work.
pub(crate) type TaskProblem = Box<dyn Error + Send + Sync>;

/// The run ended before the task had begun to work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Abandoned;

impl fmt::Display for Abandoned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the run ended before its work began")
    }
}

impl Error for Abandoned {}

/// Contents are not what was written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WrongContents {
    /// What holds them.
    pub(crate) what: &'static str,
    /// Which page of it.
    pub(crate) page: u64,
}

impl fmt::Display for WrongContents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "page {} of {} does not hold what was written there", self.page, self.what)
    }
}

impl Error for WrongContents {}

/// Where a task runs.
pub(crate) struct Site<'a, 'y, P: Platform, C> {
    /// The owners of the yard's frames.
    pub(crate) vm: Vm<'y, P>,
    /// The address space of all tasks, where they are threads.
    pub(crate) common: Option<&'a AddressSpace<'y, P>>,
    /// The course of the run.
    pub(crate) course: C,
}

/// Where a task of this host runs.
pub(crate) type HostSite<'a, 'y> = Site<'a, 'y, HostPlatform, HostCourse<'a>>;

impl<P: Platform, C: fmt::Debug> fmt::Debug for Site<'_, '_, P, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Site").field("course", &self.course).finish_non_exhaustive()
    }
}

/// The address space that a task works in.
#[derive(Debug)]
pub(crate) enum TaskSpace<'a, 'y, P: Platform> {
    /// That of all tasks.
    Common(&'a AddressSpace<'y, P>),
    /// One of its own.
    Own(AddressSpace<'y, P>),
}

impl<'y, P: Platform> Deref for TaskSpace<'_, 'y, P> {
    type Target = AddressSpace<'y, P>;

    fn deref(&self) -> &Self::Target {
        match self {
            Self::Common(space) => space,
            Self::Own(space) => space,
        }
    }
}

impl<'a, 'y, P: Platform, C: Course> Site<'a, 'y, P, C> {
    /// The common address space, or a new one.
    pub(crate) fn space(&self) -> Result<TaskSpace<'a, 'y, P>, TaskProblem> {
        match self.common {
            Some(space) => Ok(TaskSpace::Common(space)),
            None => Ok(TaskSpace::Own(self.vm.create_space()?)),
        }
    }

    /// Says that the task is prepared, and waits for all others to be; when its work began.
    pub(crate) fn begin(&self) -> Result<C::Moment, Abandoned> {
        self.course.begin()
    }

    /// Whether the task is to stop.
    #[inline(always)]
    pub(crate) fn is_over(&self) -> bool {
        self.course.is_over()
    }
}

impl HostSite<'_, '_> {
    /// Does what a task is told to.
    pub(crate) fn run(&self, order: &TaskOrder) -> Result<TaskReport, TaskProblem> {
        match &order.work {
            Work::PageFault(work) => work.run(self),
            Work::Fill(work) => work.run(self),
            Work::Fragment(work) => work.run(self),
            Work::Purge(work) => work.run(self),
            Work::Kernbench(work) => work.run(self),
            Work::Build(work) => work.run(self, order),
            Work::Stress(work) => work.run(self, order),
        }
    }
}

/// Nanoseconds of a duration.
pub(crate) fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
