//! The loop of `stress`: random steps until enough operations are done.

pub(crate) mod holdings;
pub(crate) mod mapped;
pub(crate) mod shared_state;

use std::thread;
use std::time::Duration;

use fastrand::Rng;
use frameyard::{Gfp, Order};
use serde::{Deserialize, Serialize};

use crate::host_runtime::HostSite;
use crate::measure::nanoseconds;
use crate::report::{TaskProblem, TaskReport};
use holdings::Holdings;
use mapped::Mapped;
use shared_state::{Holder, Place, SharedState};

/// Operations that a task reserves at a time.
const CHUNK: u64 = 1024;
/// Chunks after which a task draws a new target for the number of frames it holds.
const CHUNKS_A_TARGET: u32 = 64;
/// Steps without an operation after which a task yields: other tasks may hold all memory.
const FUTILE: u32 = 64;
/// Pause between two checks whether a halt is over.
const PAUSE: Duration = Duration::from_micros(100);

/// What a task is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Stress {
    /// The shared state of the run.
    pub(crate) state: Place,
    /// Operations of all tasks together.
    pub(crate) ops: u64,
    /// The highest target for the number of frames that the task holds.
    pub(crate) share: u64,
}

impl Stress {
    /// Runs until all tasks together have done enough operations.
    pub(crate) fn run(&self, site: &HostSite<'_, '_>) -> Result<TaskReport, TaskProblem> {
        let state = SharedState::open(&self.state)?;
        let space = site.space()?;
        let holder = Holder::task(site.number);
        let mut task = Task {
            holdings: Holdings::new(site.vm.yard(), &state, holder),
            mapped: Mapped::new(&space, site.number),
            random: Rng::with_seed(site.seed),
            target: 0,
        };
        let begin = site.begin()?;
        let mut chunks = 0;
        while !site.is_over() && state.reserve_ops(CHUNK, self.ops) {
            if chunks % CHUNKS_A_TARGET == 0 {
                task.target = task.random.u64(..=self.share);
            }
            chunks = chunks.wrapping_add(1);
            let done = task.work(CHUNK)?;
            state.return_ops(CHUNK.saturating_sub(done));
            state.write_tally(site.number, &task.holdings.tally);
            if let Some(halt) = state.halt_requested() {
                task.mapped.unmap_all(&mut task.holdings.tally)?;
                task.holdings.check()?;
                state.halt();
                while !state.may_go_on(halt) && !site.is_over() {
                    thread::sleep(PAUSE);
                }
            }
        }
        task.mapped.unmap_all(&mut task.holdings.tally)?;
        task.holdings.free_all()?;
        state.write_tally(site.number, &task.holdings.tally);
        state.done();
        Ok(TaskReport {
            iterations: task.holdings.tally.ops(),
            elapsed_ns: nanoseconds(begin.elapsed()),
            ..TaskReport::default()
        })
    }
}

struct Task<'a, 'y> {
    holdings: Holdings<'a>,
    mapped: Mapped<'a, 'y>,
    random: Rng,
    /// The number of frames that the task tries to hold.
    target: u64,
}

impl Task<'_, '_> {
    /// Does about `ops` operations. Returns how many it did.
    fn work(&mut self, ops: u64) -> Result<u64, TaskProblem> {
        let begin = self.holdings.tally.ops();
        let (mut futile, mut done) = (0, 0);
        while done < ops {
            self.step()?;
            let now = self.holdings.tally.ops() - begin;
            futile = if now == done { futile + 1 } else { 0 };
            done = now;
            if futile == FUTILE {
                // The other tasks hold all memory, and may wait at a halt for this one.
                thread::yield_now();
                break;
            }
        }
        Ok(done)
    }

    fn step(&mut self) -> Result<(), TaskProblem> {
        let towards = if self.holdings.frames() < self.target { 6 } else { 2 };
        if self.random.u8(..8) < towards {
            return self.get();
        }
        match self.random.u8(..4) {
            0 => self.holdings.hand_over(&mut self.random)?,
            _ => self.holdings.free_one(&mut self.random)?,
        }
        Ok(())
    }

    /// Allocates something. Out of memory lowers the target.
    fn get(&mut self) -> Result<(), TaskProblem> {
        let random = &mut self.random;
        let gfp = flags(random);
        let (kind, order) = (random.u16(..4096), order(random));
        let got = match kind {
            0 => self.holdings.range(random, gfp)?,
            1 => return self.mapped.change(random, &mut self.holdings.tally),
            2..=9 => self.holdings.exact(random, gfp)?,
            10..=49 => self.holdings.split(random, gfp)?,
            50..=109 => self.holdings.bulk(random, gfp)?,
            _ => self.holdings.alloc(order, gfp)?,
        };
        if got.is_none() && kind > 0 {
            self.target = self.holdings.frames() / 2;
        }
        Ok(())
    }
}

/// Order 0 in 13 of 16 cases, else order 1 and up, each half as often as the one below, up to 9.
fn order(random: &mut Rng) -> Order {
    let bits = random.u32(..);
    match bits % 16 {
        0..=12 => Order::ZERO,
        _ => Order((1 + (bits >> 4).trailing_zeros()).min(9) as u8),
    }
}

fn flags(random: &mut Rng) -> Gfp {
    let kinds = [
        Gfp::KERNEL,
        Gfp::HIGHUSER_MOVABLE,
        Gfp::HIGHUSER_MOVABLE,
        Gfp::HIGHUSER_MOVABLE,
        Gfp::KERNEL | Gfp::RECLAIMABLE,
        Gfp::NOWAIT,
        Gfp::ATOMIC,
        Gfp::KERNEL | Gfp::DMA32,
    ];
    kinds[random.usize(..kinds.len())] | Gfp::NOWARN
}
