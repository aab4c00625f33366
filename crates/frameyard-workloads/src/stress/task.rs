//! What a task does: random steps, until enough operations were done.

use std::thread;
use std::time::Duration;

use fastrand::Rng;
use frameyard::{Gfp, Order};

use super::Stress;
use super::board::{Board, Holder};
use super::hands::Hands;
use super::mapped::Mapped;
use crate::workload::task::{HostSite, TaskOrder, TaskProblem, TaskReport, nanoseconds};

/// Operations that a task takes on at a time.
const CHUNK: u64 = 1024;
/// Chunks after which a task means to hold another number of frames.
const CHUNKS_A_TARGET: u32 = 64;
/// Steps without an operation after which a task lets others run: memory may be all theirs.
const FUTILE: u32 = 64;
/// Between two looks whether it may go on.
const PAUSE: Duration = Duration::from_micros(100);

/// Runs a task to its end.
pub(super) fn run(work: &Stress, site: &HostSite<'_, '_>, order: &TaskOrder) -> Result<TaskReport, TaskProblem> {
    let board = Board::open(&work.board)?;
    let space = site.space()?;
    let holder = Holder::task(order.number);
    let mut task = Task {
        hands: Hands::new(site.vm.yard(), &board, holder),
        mapped: Mapped::new(&space, order.number),
        random: Rng::with_seed(order.seed),
        target: 0,
    };
    let begin = site.begin()?;
    let mut chunks = 0;
    while !site.is_over() && board.take_on(CHUNK, work.ops) {
        if chunks % CHUNKS_A_TARGET == 0 {
            task.target = task.random.u64(..=work.share);
        }
        chunks = chunks.wrapping_add(1);
        let done = task.work(CHUNK)?;
        board.give_back(CHUNK.saturating_sub(done));
        board.write(order.number, &task.hands.tally);
        if let Some(halt) = board.halt_asked() {
            task.mapped.unmap_all(&mut task.hands.tally)?;
            task.hands.check()?;
            board.halt();
            while !board.may_go_on(halt) && !site.is_over() {
                thread::sleep(PAUSE);
            }
        }
    }
    task.mapped.unmap_all(&mut task.hands.tally)?;
    task.hands.free_all()?;
    board.write(order.number, &task.hands.tally);
    board.done();
    Ok(TaskReport {
        iterations: task.hands.tally.ops(),
        elapsed_ns: nanoseconds(begin.elapsed()),
        ..TaskReport::default()
    })
}

struct Task<'a, 'y> {
    hands: Hands<'a>,
    mapped: Mapped<'a, 'y>,
    random: Rng,
    /// How many frames it means to hold.
    target: u64,
}

impl Task<'_, '_> {
    /// Does about so many operations; how many it did.
    fn work(&mut self, ops: u64) -> Result<u64, TaskProblem> {
        let begin = self.hands.tally.ops();
        let (mut futile, mut done) = (0, 0);
        while done < ops {
            self.step()?;
            let now = self.hands.tally.ops() - begin;
            futile = if now == done { futile + 1 } else { 0 };
            done = now;
            if futile == FUTILE {
                // Others hold all memory, and may be waiting for this one at a halt.
                thread::yield_now();
                break;
            }
        }
        Ok(done)
    }

    fn step(&mut self) -> Result<(), TaskProblem> {
        let towards = if self.hands.frames() < self.target { 6 } else { 2 };
        if self.random.u8(..8) < towards {
            return self.get();
        }
        match self.random.u8(..4) {
            0 => self.hands.hand_over(&mut self.random)?,
            _ => self.hands.free_one(&mut self.random)?,
        }
        Ok(())
    }

    /// Gets something. Where there is no memory, the task means to hold less.
    fn get(&mut self) -> Result<(), TaskProblem> {
        let random = &mut self.random;
        let gfp = flags(random);
        let (kind, order) = (random.u16(..4096), order(random));
        let got = match kind {
            0 => self.hands.range(random, gfp)?,
            1 => return self.mapped.change(random, &mut self.hands.tally),
            2..=9 => self.hands.exact(random, gfp)?,
            10..=49 => self.hands.split(random, gfp)?,
            50..=109 => self.hands.bulk(random, gfp)?,
            _ => self.hands.alloc(order, gfp)?,
        };
        if got.is_none() && kind > 0 {
            self.target = self.hands.frames() / 2;
        }
        Ok(())
    }
}

/// A single frame in four of five cases, else order 1, each further order half as often, up to 9.
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
