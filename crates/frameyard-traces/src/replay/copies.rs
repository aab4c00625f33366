//! Copies of a recording that run at the same time on the CPUs of one yard.
//!
//! Each copy has memory of its own: the recorded zones from a frame of the yard on, with the free blocks of the snapshot at places of its
//! own. Each recorded CPU of a copy is a CPU of the yard. It does its operations in the order of the recording, one right after the other.
//! The yard serves a request from any memory of its node, so copies share free lists and meet at their locks.
//!
//! Operations on one recorded frame keep their order within a copy, by tickets as in `threads`. A CPU whose turn has not come sleeps, and
//! the CPU that ends the operation before wakes it ([`Pausing`]).
//!
//! All CPUs run on one host thread and change only in calls of the platform, so plain cells suffice. No cell is borrowed in such a call.

use std::cell::{Cell, RefCell};
use std::fmt;

use frameyard::{CpuId, Gfp, PageCount, Pfn, Platform, Yard};

use super::calls::{Calls, PackedBlock};
use super::plan::ReplayPlan;
use super::recorded_memory::RecordedMemory;
use super::setup::{PlacedCopy, SetUp, SetUpError, SettingUp};
use super::threads::Stream;

/// How the CPUs of a yard wait for each other.
pub trait Pausing {
    /// The running CPU sleeps until it is woken.
    fn sleep(&self);
    /// Wakes a CPU that sleeps.
    fn wake(&self, cpu: CpuId);
    /// The running CPU has done an operation.
    fn operation_done(&self);
}

/// Where a copy is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyPlace {
    /// Its first frame, a multiple of the largest block.
    pub first: Pfn,
    /// The CPUs of the yard that stand for the recorded ones.
    pub cpus: Vec<CpuId>,
}

/// What came of the operations of a CPU.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CopyCounts {
    /// Operations done.
    pub operations: u64,
    /// Pages allocated.
    pub pages_allocated: u64,
    /// Requests that failed.
    pub failures: u64,
    /// Frees of blocks whose allocation had failed, of a part of a block, or of several blocks.
    pub skipped_frees: u64,
}

impl CopyCounts {
    /// The sum with those of another CPU.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            operations: self.operations + other.operations,
            pages_allocated: self.pages_allocated + other.pages_allocated,
            failures: self.failures + other.failures,
            skipped_frees: self.skipped_frees + other.skipped_frees,
        }
    }
}

/// The block that stands for the block at a recorded frame.
#[derive(Clone, Default)]
struct Slot {
    block: Cell<PackedBlock>,
    /// The ticket of the next operation.
    turn: Cell<u32>,
}

/// A CPU that waits for its turn.
#[derive(Clone, Copy)]
struct Sleeper {
    cpu: CpuId,
    slot: u32,
    ticket: u32,
}

/// A copy of the recorded memory.
struct ReplayCopy {
    memory: RecordedMemory,
    cpus: Vec<CpuId>,
    slots: Vec<Slot>,
    sleepers: RefCell<Vec<Sleeper>>,
}

/// Copies of a recording.
pub struct ReplayCopies {
    /// The operations of each recorded CPU. Each names the slot of its frame in place of the frame.
    streams: Vec<Stream>,
    copies: Vec<ReplayCopy>,
}

impl ReplayPlan {
    /// Frames that a copy of the recorded memory takes: its zones, each with whole blocks of the largest order.
    #[must_use]
    pub fn frames_of_copy(&self) -> PageCount {
        self.memory.span()
    }

    /// Operations of the recorded CPU that has most.
    #[must_use]
    pub fn most_operations_of_cpu(&self) -> u64 {
        let mut operations = vec![0_u64; self.cpus as usize];
        self.operations.iter().for_each(|operation| operations[usize::from(operation.cpu)] += 1);
        operations.into_iter().max().unwrap_or(0)
    }
}

impl fmt::Debug for ReplayCopies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplayCopies").field("copies", &self.copies.len()).finish_non_exhaustive()
    }
}

impl ReplayCopies {
    /// Copies at these places. They must not overlap, and each must name a CPU for each [recorded one](ReplayPlan::cpus).
    ///
    /// Requests for the zones DMA and DMA32 become requests for any memory: a copy is a part of a zone `Normal`.
    ///
    /// Cost: 16 bytes for each copy and frame that begins an operation's block, 20 for each operation.
    ///
    /// # Panics
    ///
    /// If a place has too few CPUs.
    #[must_use]
    pub fn new(plan: &ReplayPlan, places: Vec<CopyPlace>) -> Self {
        let mut streams = plan.streams(plan.cpus);
        let (mut slot_of, mut slots) = (vec![u32::MAX; plan.memory.frames()], 0);
        for (operation, _) in streams.iter_mut().flatten() {
            operation.gfp = operation.gfp.without(Gfp::DMA.union(Gfp::DMA32));
            let slot = &mut slot_of[operation.place as usize];
            if *slot == u32::MAX {
                *slot = slots;
                slots += 1;
            }
            operation.place = *slot;
        }
        let copy = |place: CopyPlace| {
            assert_eq!(place.cpus.len(), plan.cpus as usize, "a copy has a CPU for each recorded one");
            let memory = plan.memory.moved_to(place.first);
            let slots = vec![Slot::default(); slots as usize];
            for block in &memory.held {
                if let Some(place) = memory.place(block.pfn) {
                    slots[slot_of[place as usize] as usize].block.set(PackedBlock::new(block.pfn, block.order));
                }
            }
            ReplayCopy { memory, cpus: place.cpus, slots, sleepers: RefCell::default() }
        };
        Self { streams, copies: places.into_iter().map(copy).collect() }
    }

    /// Brings a fresh yard into the state in which the recording began, for each copy. `run_as` makes the caller run as a CPU. Returns the
    /// pages of free blocks of the snapshots that found no place.
    ///
    /// # Errors
    ///
    /// [`SetUpError`].
    pub fn set_up<P: Platform>(
        &self,
        yard: &Yard<P>,
        set_up: SetUp,
        run_as: &dyn Fn(CpuId),
    ) -> Result<PageCount, SetUpError> {
        let placed: Vec<PlacedCopy<'_>> =
            self.copies.iter().map(|copy| PlacedCopy { memory: &copy.memory, cpus: &copy.cpus }).collect();
        SettingUp { yard, run_as }.set_up(&placed, set_up).map(PageCount)
    }

    /// The CPUs of the yard with operations: for each the number of its copy, and that of the recorded CPU.
    pub fn cpus(&self) -> impl Iterator<Item = (CpuId, usize, usize)> {
        let of_copy = |(number, copy): (usize, &ReplayCopy)| {
            let cpus = copy.cpus.iter().enumerate().filter(|(recorded, _)| !self.streams[*recorded].is_empty());
            cpus.map(move |(recorded, cpu)| (*cpu, number, recorded)).collect::<Vec<_>>()
        };
        self.copies.iter().enumerate().flat_map(of_copy)
    }

    /// Does the operations of a recorded CPU of a copy, on the CPU that runs. All CPUs with operations must run, each once.
    pub fn operate<P: Platform>(
        &self,
        yard: &Yard<P>,
        copy: usize,
        recorded: usize,
        pausing: &impl Pausing,
    ) -> CopyCounts {
        let copy = &self.copies[copy];
        let (mut calls, stream) = (Calls::default(), &self.streams[recorded]);
        for (operation, ticket) in stream {
            let slot = &copy.slots[operation.place as usize];
            if slot.turn.get() != *ticket {
                let sleeper = Sleeper { cpu: copy.cpus[recorded], slot: operation.place, ticket: *ticket };
                copy.sleepers.borrow_mut().push(sleeper);
                pausing.sleep();
            }
            match calls.operate(yard, operation, slot.block.get()) {
                Some(after) => slot.block.set(after),
                None => calls.skipped_frees += 1,
            }
            slot.turn.set(ticket.wrapping_add(1));
            copy.wake_next(operation.place, ticket.wrapping_add(1), pausing);
            pausing.operation_done();
        }
        CopyCounts {
            operations: stream.len() as u64,
            pages_allocated: calls.pages_allocated,
            failures: calls.failures,
            skipped_frees: calls.skipped_frees,
        }
    }
}

impl ReplayCopy {
    /// Wakes the CPU that waits for a turn, if it sleeps.
    #[inline]
    fn wake_next(&self, slot: u32, ticket: u32, pausing: &impl Pausing) {
        let mut sleepers = self.sleepers.borrow_mut();
        let next = sleepers.iter().position(|sleeper| sleeper.slot == slot && sleeper.ticket == ticket);
        let next = next.map(|at| sleepers.swap_remove(at));
        drop(sleepers);
        if let Some(sleeper) = next {
            pausing.wake(sleeper.cpu);
        }
    }
}
