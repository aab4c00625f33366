//! A replay on several threads, for time.
//!
//! Each thread runs as a group of the recorded CPUs and does their operations in the order of the recording. Operations on one recorded
//! frame keep their order across threads: each has a *ticket*, its number among the operations on the frame, and waits for its turn. An
//! operation waits only for earlier ones, so the earliest one that is not done can always go on.
//!
//! A free of a part of a block, or of several blocks, concerns several frames. It is skipped and counted; the block stays allocated.

use std::hint;
use std::num::NonZeroU32;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use frameyard::{CpuId, PageCount};

use super::calls::{Calls, PackedBlock};
use super::counts::YardCounts;
use super::memory::{MakeMemory, own_memory};
use super::plan::{Operation, ReplayPlan};
use super::platform::run_as;
use super::run::{FreeMemory, ReplayResult, Sample};
use super::setup::{ReplayYard, SetUp, SetUpError};

/// Rounds that an operation spins before it yields its CPU.
const SPINS: u32 = 64;

/// The block that stands for the block at a recorded frame.
#[derive(Default)]
struct Slot {
    /// The ticket of the next operation.
    turn: AtomicU32,
    /// A [`PackedBlock`]. The operation whose turn it is has it alone.
    block: AtomicU64,
}

impl Slot {
    fn wait_for(&self, ticket: u32) {
        let mut round = 0_u32;
        // Acquire: pairs with the Release in `pass`, so that the block is that of the operation before.
        while self.turn.load(Ordering::Acquire) != ticket {
            round = round.saturating_add(1);
            if round < SPINS { hint::spin_loop() } else { thread::yield_now() }
        }
    }

    fn pass(&self, ticket: u32) {
        // Release: pairs with the Acquire in `wait_for`.
        self.turn.store(ticket.wrapping_add(1), Ordering::Release);
    }
}

/// The operations of a thread or CPU, each with its ticket.
pub(super) type Stream = Vec<(Operation, u32)>;

impl ReplayPlan {
    /// CPUs of the replay.
    #[must_use]
    pub fn cpus(&self) -> u32 {
        self.cpus
    }

    /// Replays on threads that run at the same time; at most one for each CPU of the recording. Counts differ between runs, and there is no
    /// state during the replay. [`ReplayResult::elapsed_ns`] is the time until the last thread has ended.
    ///
    /// Cost: 16 bytes for each frame of memory, 20 for each operation.
    ///
    /// # Errors
    ///
    /// [`SetUpError`].
    ///
    /// # Panics
    ///
    /// If the host has too few resources for the threads.
    pub fn replay_on_threads(&self, set_up: SetUp, threads: NonZeroU32) -> Result<ReplayResult, SetUpError> {
        self.replay_on_threads_in(set_up, threads, &own_memory)
    }

    /// As [`replay_on_threads`](Self::replay_on_threads), in a yard with the memory that `make` makes.
    ///
    /// # Errors
    ///
    /// [`SetUpError`].
    ///
    /// # Panics
    ///
    /// If the host has too few resources for the threads.
    pub fn replay_on_threads_in(
        &self,
        set_up: SetUp,
        threads: NonZeroU32,
        make: MakeMemory<'_>,
    ) -> Result<ReplayResult, SetUpError> {
        let yard = ReplayYard::new(self, set_up, make)?;
        let (before, begin) = (YardCounts::of(&yard.yard), FreeMemory::of(&yard.yard));
        let slots = self.slots();
        let streams = self.streams(threads.get().min(self.cpus));
        let barrier = Barrier::new(streams.len() + 1);
        let (calls, elapsed_ns) = thread::scope(|scope| {
            let (yard, slots, barrier) = (&yard, &slots, &barrier);
            let running: Vec<_> = streams
                .iter()
                .map(|stream| {
                    scope.spawn(move || {
                        barrier.wait();
                        operate_all(yard, slots, stream)
                    })
                })
                .collect();
            barrier.wait();
            let start = Instant::now();
            let calls: Vec<Calls> = running
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect();
            (calls, start.elapsed().as_nanos() as u64)
        });
        let sum = |of: fn(&Calls) -> u64| calls.iter().map(of).sum::<u64>();
        let operations = self.operations.len() as u64;
        Ok(ReplayResult {
            policy: set_up.policy,
            operations,
            pages_allocated: sum(|calls| calls.pages_allocated),
            failures: sum(|calls| calls.failures),
            skipped_frees: sum(|calls| calls.skipped_frees),
            other_orders: 0,
            elapsed_ns,
            counts: YardCounts::of(&yard.yard).since(&before),
            by_order: None,
            missing_pages: PageCount(yard.missing_pages),
            samples: vec![
                Sample { operations: 0, free: begin },
                Sample { operations, free: FreeMemory::of(&yard.yard) },
            ],
            drained: FreeMemory::drained(&yard.yard),
        })
    }

    /// A slot for each frame.
    fn slots(&self) -> Vec<Slot> {
        let mut slots: Vec<Slot> = Vec::new();
        slots.resize_with(self.memory.frames(), Slot::default);
        for block in &self.memory.held {
            if let Some(place) = self.memory.place(block.pfn) {
                slots[place as usize].block = AtomicU64::new(PackedBlock::new(block.pfn, block.order).bits());
            }
        }
        slots
    }

    /// The operations of each group of CPUs.
    pub(super) fn streams(&self, groups: u32) -> Vec<Stream> {
        let mut tickets = vec![0_u32; self.memory.frames()];
        let mut streams = vec![Stream::new(); groups as usize];
        for operation in &self.operations {
            let ticket = &mut tickets[operation.place as usize];
            let group = u64::from(operation.cpu) * u64::from(groups) / u64::from(self.cpus);
            streams[group as usize].push((*operation, *ticket));
            *ticket = ticket.wrapping_add(1);
        }
        streams
    }
}

fn operate_all(yard: &ReplayYard, slots: &[Slot], stream: &Stream) -> Calls {
    let mut calls = Calls::default();
    for (operation, ticket) in stream {
        let slot = &slots[operation.place as usize];
        slot.wait_for(*ticket);
        run_as(CpuId(u32::from(operation.cpu)));
        match calls.operate(&yard.yard, operation, PackedBlock::from_bits(slot.block.load(Ordering::Relaxed))) {
            Some(after) => slot.block.store(after.bits(), Ordering::Relaxed),
            None => calls.skipped_frees += 1,
        }
        slot.pass(*ticket);
    }
    calls
}
