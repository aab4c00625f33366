//! What a recording is made of: the kernel's page allocator, or a program's demand for pages.

use std::fs::File;
use std::io;

use frameyard::CpuId;
use frameyard_traces::TraceEvent;

use super::demand::{CallEvent, Demand};
use super::pipes::CpuPipes;

/// Tracepoints, and how necessary they are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tracepoints {
    /// A kernel without them cannot record.
    Needed(&'static [&'static str]),
    /// Kernels may lack some.
    Wanted(&'static [&'static str]),
    /// The first that the kernel has.
    OneOf(&'static [&'static str]),
}

/// What is recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Subject {
    /// What the kernel's page allocator does.
    Kernel,
    /// The pages that a program touches and gives back.
    Demand,
}

impl Subject {
    /// The tracepoints, by system and name.
    pub(super) fn tracepoints(self) -> &'static [Tracepoints] {
        const KERNEL: [Tracepoints; 2] = [
            Tracepoints::Needed(&["kmem/mm_page_alloc", "kmem/mm_page_free"]),
            Tracepoints::Wanted(&[
                "kmem/mm_page_free_batched",
                "kmem/mm_page_alloc_zone_locked",
                "kmem/mm_page_pcpu_drain",
                "kmem/mm_page_alloc_extfrag",
            ]),
        ];
        const DEMAND: [Tracepoints; 2] = [
            Tracepoints::Needed(&[
                "exceptions/page_fault_user",
                "exceptions/page_fault_kernel",
                "syscalls/sys_enter_mmap",
                "syscalls/sys_exit_mmap",
                "syscalls/sys_enter_munmap",
                "syscalls/sys_enter_mremap",
                "syscalls/sys_exit_mremap",
                "syscalls/sys_enter_madvise",
                "syscalls/sys_enter_brk",
                "syscalls/sys_exit_brk",
                "task/task_newtask",
                "sched/sched_process_exit",
            ]),
            // Before a program's first pages are touched, and for older kernels after that.
            Tracepoints::OneOf(&["sched/sched_prepare_exec", "sched/sched_process_exec"]),
        ];
        match self {
            Self::Kernel => &KERNEL,
            Self::Demand => &DEMAND,
        }
    }

    /// Reads the pipes of an instance.
    pub(super) fn source(self, pipes: Vec<(CpuId, File)>) -> Source {
        match self {
            Self::Kernel => Source::Kernel(CpuPipes::new(pipes)),
            Self::Demand => Source::Demand(CpuPipes::new(pipes), Box::default()),
        }
    }
}

/// The events of a recording.
pub(super) enum Source {
    Kernel(CpuPipes<File, TraceEvent>),
    Demand(CpuPipes<File, CallEvent>, Box<Demand>),
}

impl Source {
    /// As [`CpuPipes::round`].
    pub(super) fn round(&mut self, now_us: u64) -> io::Result<Vec<TraceEvent>> {
        match self {
            Self::Kernel(pipes) => pipes.round(now_us),
            Self::Demand(pipes, demand) => Ok(pages_of(demand, &pipes.round(now_us)?)),
        }
    }

    /// As [`CpuPipes::rest`].
    pub(super) fn rest(&mut self) -> Vec<TraceEvent> {
        match self {
            Self::Kernel(pipes) => pipes.rest(),
            Self::Demand(pipes, demand) => pages_of(demand, &pipes.rest()),
        }
    }

    /// As [`CpuPipes::are_empty`].
    pub(super) fn are_empty(&self) -> bool {
        match self {
            Self::Kernel(pipes) => pipes.are_empty(),
            Self::Demand(pipes, _) => pipes.are_empty(),
        }
    }

    /// Lines that cannot be read.
    pub(super) fn bad_lines(&self) -> u64 {
        match self {
            Self::Kernel(pipes) => pipes.bad_lines,
            Self::Demand(pipes, _) => pipes.bad_lines,
        }
    }
}

fn pages_of(demand: &mut Demand, calls: &[CallEvent]) -> Vec<TraceEvent> {
    let mut events = Vec::new();
    calls.iter().for_each(|call| demand.add(call, &mut events));
    events
}

#[cfg(test)]
mod tests {
    use frameyard_formats::PAGE_TRACEPOINTS;

    use super::*;

    #[test]
    fn the_kernels_tracepoints_are_those_that_recordings_hold() {
        let names = |of: &Tracepoints| match *of {
            Tracepoints::Needed(names) | Tracepoints::Wanted(names) | Tracepoints::OneOf(names) => names,
        };
        let all: Vec<&str> = Subject::Kernel.tracepoints().iter().flat_map(names).copied().collect();
        assert_eq!(all, PAGE_TRACEPOINTS.map(|name| format!("kmem/{name}")));
    }
}
