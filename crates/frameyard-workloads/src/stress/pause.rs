//! All tasks come to a halt, and the yard is looked at as a whole.

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use frameyard::PageCount;

use super::board::Board;
use crate::Failure;
use crate::workload::crew::Crew;
use crate::workload::ground::Ground;

/// Between two looks whether all stand still.
const PAUSE: Duration = Duration::from_micros(50);

/// With every task at a halt, what is free and what is held is not all there was.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Unbalanced {
    before: PageCount,
    free: PageCount,
    held: u64,
}

impl fmt::Display for Unbalanced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { before, free, held } = self;
        write!(
            f,
            "{} frames were free before the run; now {} are free and {held} held, which is not the same",
            before.0, free.0
        )
    }
}

impl std::error::Error for Unbalanced {}

/// Who stops the tasks and looks.
pub(super) struct Inspector<'a> {
    ground: &'a Ground<'a>,
    board: &'a Board,
    tasks: u32,
    before: PageCount,
    /// Frames that may be neither free nor held.
    allowance: PageCount,
    inspections: u64,
}

impl<'a> Inspector<'a> {
    /// Of a yard in which so much was free when nobody held anything.
    pub(super) fn new(
        ground: &'a Ground<'a>,
        board: &'a Board,
        tasks: u32,
        before: PageCount,
        allowance: PageCount,
    ) -> Self {
        Self { ground, board, tasks, before, allowance, inspections: 0 }
    }

    /// How often was looked.
    pub(super) fn inspections(&self) -> u64 {
        self.inspections
    }

    /// Looks once, and lets the tasks go on.
    pub(super) fn inspect(&mut self, crew: &mut Crew<'_>, steps: &AtomicU64) -> Result<(), Failure> {
        self.board.ask_halt();
        while !self.board.is_quiet(self.tasks) {
            crew.look().map_err(Failure::run_time)?;
            // Waiting is no standstill of the leader's: that of a task is noticed by itself.
            steps.fetch_add(1, Relaxed);
            thread::sleep(PAUSE);
        }
        self.ground.vm.lru_drain_all();
        self.ground.yard.validate().map_err(Failure::run_time)?;
        let (free, held) = (self.ground.yard.free_pages(), self.board.held_frames());
        let known = free.0 + held;
        if known > self.before.0 || known + self.allowance.0 < self.before.0 {
            return Err(Failure::run_time(Unbalanced { before: self.before, free, held }));
        }
        self.inspections += 1;
        self.board.resume();
        Ok(())
    }
}
