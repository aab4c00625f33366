//! The course of a run as a task sees it: its stages, the time, and what tasks hand each other.
//!
//! Workloads are written against [`Course`], so that they are the same on a host, whose threads wait for each other and
//! look at its clock, and on a simulated machine, whose tasks wait in virtual time.

use std::fmt;
use std::hint::black_box;
use std::time::Instant;

use frameyard::CpuId;
use frameyard_host::CpuList;

use super::crew::Note;
use super::exchange::{Exchange, Piece};
use super::kernbench::Labour;
use super::stage::{Stage, Stages};
use super::task::{Abandoned, TaskReport, nanoseconds};

/// What a task needs of where it runs, besides the yard.
pub(crate) trait Course {
    /// A moment of its clock.
    type Moment: Copy;

    /// Says that the task is prepared, and waits for all others to be; when its work began.
    ///
    /// # Errors
    ///
    /// [`Abandoned`] where the run ends before.
    fn begin(&self) -> Result<Self::Moment, Abandoned>;

    /// Nanoseconds since a moment.
    fn elapsed_ns(&self, since: Self::Moment) -> u64;

    /// Whether the task is to stop. Asked for each page.
    fn is_over(&self) -> bool;

    /// Spends so many cycles on something other than memory.
    fn spend(&self, labour: Labour, cycles: u64);

    /// How many bytes of the first of many equal rounds a task works on.
    fn first_round(&self, bytes: u64) -> u64;

    /// A round has ended, and so many steps were done up to now.
    fn round_ends(&self, iterations: u64);

    /// What is reported of a task that has done so many steps since its work began.
    fn report(&self, begin: Self::Moment, iterations: u64) -> TaskReport;

    /// Puts a piece in, when fewer than `bound` are there; gives it back where nothing goes in any more.
    ///
    /// # Errors
    ///
    /// The piece.
    fn put(&self, piece: Piece, bound: usize) -> Result<(), Piece>;

    /// Takes the oldest piece, when there is one; `None` when there will be none any more.
    fn take(&self) -> Option<Piece>;

    /// Keeps the task to some of the CPUs that it may run on, where it may run on several.
    fn keep_to(&self, some: impl FnOnce(&[CpuId]) -> &[CpuId]);
}

/// A run on this host.
#[derive(Clone, Copy)]
pub(crate) struct HostCourse<'a> {
    /// What tasks of this process hand each other.
    pub(crate) exchange: &'a Exchange,
    /// The stage of the run.
    pub(crate) stages: &'a Stages,
    /// The CPUs that this process may use.
    pub(crate) cpus: &'a CpuList,
    /// Tells whoever leads the run how far the task is.
    pub(super) tell: &'a (dyn Fn(Note) + Sync),
}

impl fmt::Debug for HostCourse<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostCourse").field("stages", &self.stages).finish_non_exhaustive()
    }
}

impl Course for HostCourse<'_> {
    type Moment = Instant;

    fn begin(&self) -> Result<Instant, Abandoned> {
        (self.tell)(Note::Prepared);
        match self.stages.wait_for(Stage::Work) {
            Stage::End => Err(Abandoned),
            _ => {
                (self.tell)(Note::Begun);
                Ok(Instant::now())
            }
        }
    }

    fn elapsed_ns(&self, since: Instant) -> u64 {
        nanoseconds(since.elapsed())
    }

    #[inline(always)]
    fn is_over(&self) -> bool {
        self.stages.has_come(Stage::End)
    }

    /// A chain of multiplications and additions, each of which takes four cycles on processors of the last ten years.
    fn spend(&self, _labour: Labour, cycles: u64) {
        let step = |x: u64, _| x.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        black_box((0..cycles / 4).fold(black_box(1), step));
    }

    /// All of it: tasks of a host are out of step soon by themselves.
    #[inline(always)]
    fn first_round(&self, bytes: u64) -> u64 {
        bytes
    }

    #[inline(always)]
    fn round_ends(&self, _iterations: u64) {}

    fn report(&self, begin: Instant, iterations: u64) -> TaskReport {
        TaskReport { iterations, elapsed_ns: self.elapsed_ns(begin), ..TaskReport::default() }
    }

    fn put(&self, piece: Piece, bound: usize) -> Result<(), Piece> {
        self.exchange.put(piece, bound)
    }

    fn take(&self) -> Option<Piece> {
        self.exchange.take()
    }

    /// Where that is refused the task runs all the same.
    fn keep_to(&self, some: impl FnOnce(&[CpuId]) -> &[CpuId]) {
        let own = some(self.cpus.as_slice());
        if !own.is_empty() {
            let _ = own.iter().copied().collect::<CpuList>().pin_this_thread();
        }
    }
}
