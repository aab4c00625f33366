//! The combination of task mode, task count and policies that one run measures.

use std::num::NonZeroU32;

use frameyard::policy::ZonePolicy;
use frameyard_vm::LruPolicy;

/// What the tasks of a run are.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum TaskMode {
    /// Threads of one process, in one address space.
    #[default]
    Threads,
    /// Processes that share the yard, each with an address space of its own.
    Processes,
}

impl TaskMode {
    /// All modes.
    pub const ALL: [Self; 2] = [Self::Threads, Self::Processes];

    /// The name on command lines and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Threads => "threads",
            Self::Processes => "processes",
        }
    }
}

/// One combination of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setting {
    /// What tasks are.
    pub mode: TaskMode,
    /// Number of tasks.
    pub tasks: NonZeroU32,
    /// The policy of zones.
    pub zone: ZonePolicy,
    /// The policy of LRU lists.
    pub lru: LruPolicy,
}
