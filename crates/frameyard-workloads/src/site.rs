//! Where a task runs: its owners, its address space, its runtime.

use std::fmt;
use std::ops::Deref;

use frameyard::Platform;
use frameyard_vm::{AddressSpace, Vm};

use crate::report::{Abandoned, TaskProblem};
use crate::runtime::Runtime;

/// Where a task runs.
pub(crate) struct Site<'a, 'y, P: Platform, R> {
    /// The owners of the yard's frames.
    pub vm: Vm<'y, P>,
    /// The address space that all tasks share, if they are threads.
    pub common: Option<&'a AddressSpace<'y, P>>,
    /// The runtime of the task.
    pub runtime: R,
    /// The task's number, from 0.
    pub number: u32,
    /// Seed of the task's random choices.
    pub seed: u64,
}

impl<P: Platform, R: fmt::Debug> fmt::Debug for Site<'_, '_, P, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Site").field("number", &self.number).field("runtime", &self.runtime).finish_non_exhaustive()
    }
}

/// The address space of a task.
#[derive(Debug)]
pub(crate) enum TaskSpace<'a, 'y, P: Platform> {
    /// The space that all tasks share.
    Common(&'a AddressSpace<'y, P>),
    /// The task's own.
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

impl<'a, 'y, P: Platform, R: Runtime> Site<'a, 'y, P, R> {
    /// The common address space, or a new one.
    pub(crate) fn space(&self) -> Result<TaskSpace<'a, 'y, P>, TaskProblem> {
        match self.common {
            Some(space) => Ok(TaskSpace::Common(space)),
            None => Ok(TaskSpace::Own(self.vm.create_space()?)),
        }
    }

    /// Announces that the task is prepared and waits for all tasks to be. Returns the start of the work.
    pub(crate) fn begin(&self) -> Result<R::Moment, Abandoned> {
        self.runtime.begin()
    }

    /// Whether the task should stop.
    #[inline(always)]
    pub(crate) fn is_over(&self) -> bool {
        self.runtime.is_over()
    }
}
