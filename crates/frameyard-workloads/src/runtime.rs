//! The runtime of a task: the stages of the run, the clock, and the pieces that tasks hand each other.
//!
//! Tasks are written against [`Runtime`], so the same code runs on a host, where threads wait for each other and read
//! the clock, and on a simulated machine, where tasks wait in virtual time.

use frameyard::CpuId;
use frameyard_vm::VirtRange;

use crate::cpu_work::CpuWork;
use crate::report::{Abandoned, TaskReport};

/// A range of addresses that one task hands to another to free, and the CPU that allocated its pages.
pub type Piece = (VirtRange, CpuId);

/// What a task needs besides the yard.
pub trait Runtime {
    /// A reading of the clock.
    type Moment: Copy;

    /// Announces that the task is prepared and waits for all tasks to be. Returns the start of the work.
    ///
    /// # Errors
    ///
    /// [`Abandoned`] if the run ends first.
    fn begin(&self) -> Result<Self::Moment, Abandoned>;

    /// The present moment.
    fn now(&self) -> Self::Moment;

    /// Nanoseconds since a moment.
    fn elapsed_ns(&self, since: Self::Moment) -> u64;

    /// Whether the task should stop. Tasks ask for each page.
    fn is_over(&self) -> bool;

    /// Spends `cycles` on something other than memory.
    fn spend(&self, kind: CpuWork, cycles: u64);

    /// How many of `bytes`, the size of every later round, the task's first round covers.
    fn first_round(&self, bytes: u64) -> u64;

    /// Records the end of a round, after `iterations` steps in all.
    fn round_ends(&self, iterations: u64);

    /// The report of a task that has done `iterations` steps in `rounds` since `begin`.
    fn report(&self, begin: Self::Moment, iterations: u64, rounds: u64) -> TaskReport;

    /// Hands a piece over. Waits while `bound` pieces or more are queued.
    ///
    /// # Errors
    ///
    /// The piece, if the run no longer accepts any.
    fn put(&self, piece: Piece, bound: usize) -> Result<(), Piece>;

    /// Takes the oldest piece. Waits for one; `None` when no more will come.
    fn take(&self) -> Option<Piece>;

    /// Confines the calling thread to a subset of the CPUs that the task may use, where it may use several.
    fn keep_to(&self, some: impl FnOnce(&[CpuId]) -> &[CpuId]);
}
