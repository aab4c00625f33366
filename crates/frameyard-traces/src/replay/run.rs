//! Doing the operations of a replay, and counting what the yard did.

use std::time::Instant;

use frameyard::policy::ZonePolicy;
use frameyard::{Block, CpuId, MigrateType, Order, PageCount, Platform, Yard};

use super::calls::{Calls, PackedBlock};
use super::counts::{Cause, LockedByOrder, YardCounts};
use super::memory::{MakeMemory, own_memory};
use super::plan::{Operation, ReplayPlan};
use super::platform::run_as;
use super::recorded_memory::MAX_ORDER;
use super::setup::{ReplayYard, SetUp, SetUpError};
use crate::snapshot::ORDERS;

/// Readings of the state of memory during a replay.
const SAMPLES: usize = 20;

/// Where the free memory of a yard is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FreeMemory {
    /// Blocks on free lists, by order.
    pub blocks: [u64; ORDERS],
    /// Blocks in bits, by order.
    pub blocks_in_bits: [u64; ORDERS],
    /// Pages on lists of CPUs.
    pub per_cpu: PageCount,
}

impl FreeMemory {
    /// Free blocks of pageblock order: larger ones count as several.
    #[must_use]
    pub fn order9_blocks(&self) -> u64 {
        let [of_order9, of_order10] = [9, 10].map(|order| self.blocks[order] + self.blocks_in_bits[order]);
        of_order9 + 2 * of_order10
    }

    /// That of a yard.
    #[must_use]
    pub fn of<P: Platform>(yard: &Yard<P>) -> Self {
        let mut free = Self::default();
        for id in yard.stats().zones().map(|zone| zone.id) {
            let zone = yard.zone(id);
            free.per_cpu += zone.statistics().per_cpu;
            for order in 0..ORDERS {
                let of = Order(order as u8);
                for migrate_type in MigrateType::ALL {
                    free.blocks[order] += zone.free_blocks(of, migrate_type);
                    free.blocks_in_bits[order] += zone.blocks_in_bits(of, migrate_type);
                }
            }
        }
        free
    }

    /// That of a yard once its lists are drained and its free blocks merged.
    pub(super) fn drained<P: Platform>(yard: &Yard<P>) -> Self {
        yard.drain_all();
        Self::of(yard)
    }
}

/// The state of memory after some operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// Operations done.
    pub operations: u64,
    /// Where the free memory is.
    pub free: FreeMemory,
}

/// What a replay found.
#[derive(Clone, PartialEq, Debug)]
pub struct ReplayResult {
    /// The policy.
    pub policy: ZonePolicy,
    /// Allocations and frees of the recording.
    pub operations: u64,
    /// Pages allocated.
    pub pages_allocated: u64,
    /// Requests that failed.
    pub failures: u64,
    /// Frees of blocks whose allocation had failed, or that are damaged in the recording.
    pub skipped_frees: u64,
    /// Frees of a part of a block, or of more than a block.
    pub other_orders: u64,
    /// Nanoseconds of all operations.
    pub elapsed_ns: u64,
    /// What the yard counted.
    pub counts: YardCounts,
    /// What moved pages under a zone lock, if it was asked for.
    pub by_order: Option<LockedByOrder>,
    /// Pages of the snapshot's free blocks that found no place.
    pub missing_pages: PageCount,
    /// The state of memory: before the first operation, during the replay, and after the last.
    pub samples: Vec<Sample>,
    /// The state of memory at the end once the lists of CPUs are drained and all free blocks are merged, as a request that may wait
    /// finds it.
    pub drained: FreeMemory,
}

impl ReplayResult {
    /// Pages through the zone lock for 1000 pages allocated; `None` without allocations.
    #[must_use]
    pub fn zone_locked_per_1000(&self) -> Option<f64> {
        let pages = self.counts.zone_locked_pages as f64;
        (self.pages_allocated > 0).then(|| pages * 1000.0 / self.pages_allocated as f64)
    }

    /// The state of memory at the end.
    #[must_use]
    pub fn end(&self) -> FreeMemory {
        self.samples.last().map(|sample| sample.free).unwrap_or_default()
    }

    /// The most pages on lists of CPUs in a reading.
    #[must_use]
    pub fn most_per_cpu(&self) -> PageCount {
        self.samples.iter().map(|sample| sample.free.per_cpu).max().unwrap_or_default()
    }
}

/// The blocks of a replay by the place of the recorded frame, and what went wrong.
pub(super) struct Blocks {
    blocks: Vec<PackedBlock>,
    calls: Calls,
    other_orders: u64,
}

impl Blocks {
    fn new(plan: &ReplayPlan) -> Self {
        let mut blocks = vec![PackedBlock::NONE; plan.memory.frames()];
        for block in &plan.memory.held {
            if let Some(place) = plan.memory.place(block.pfn) {
                blocks[place as usize] = PackedBlock::new(block.pfn, block.order);
            }
        }
        Self { blocks, calls: Calls::default(), other_orders: 0 }
    }

    /// Does operations and attributes what moved under zone locks to each.
    fn operate_counted(&mut self, yard: &ReplayYard, part: &[Operation], by_order: &mut LockedByOrder) {
        let mut before = YardCounts::of(&yard.yard);
        for operation in part {
            self.operate(yard, operation);
            let now = YardCounts::of(&yard.yard);
            let cause = if operation.is_alloc { Cause::Alloc } else { Cause::Free };
            by_order.add(cause, operation.order.index(), &now.since(&before));
            before = now;
        }
    }

    #[inline]
    fn operate(&mut self, yard: &ReplayYard, operation: &Operation) {
        let block = &mut self.blocks[operation.place as usize];
        run_as(CpuId(u32::from(operation.cpu)));
        match self.calls.operate(&yard.yard, operation, *block) {
            Some(after) => *block = after,
            None => self.free_part(yard, operation),
        }
    }

    /// Frees what is not a block of the replay: a part of one, or several.
    #[cold]
    fn free_part(&mut self, yard: &ReplayYard, operation: &Operation) {
        let (place, order) = (operation.place as usize, operation.order);
        let covering = (order.0..=MAX_ORDER.0).find_map(|above| {
            let head = place >> above << above;
            let Block { pfn, order: of } = self.blocks.get(head)?.get()?;
            (of.0 >= above && of > order).then_some((head, pfn, of))
        });
        if let Some((mut head, mut pfn, of)) = covering {
            self.other_orders += 1;
            self.blocks[head] = PackedBlock::NONE;
            for half in (order.0..of.0).rev().map(Order) {
                let pages = half.pages();
                let middle = pfn + pages;
                if yard.yard.split_at(middle).is_err() {
                    self.calls.skipped_frees += 1;
                    return;
                }
                let upper = head + pages.0 as usize;
                let (kept, kept_pfn);
                if place >= upper {
                    (kept, kept_pfn) = (head, pfn);
                    (head, pfn) = (upper, middle);
                } else {
                    (kept, kept_pfn) = (upper, middle);
                }
                self.blocks[kept] = PackedBlock::new(kept_pfn, half);
            }
            self.calls.release(&yard.yard, Block { pfn, order });
            return;
        }
        let parts: Vec<Block> = self.blocks[place..place + order.pages().0 as usize]
            .iter_mut()
            .filter_map(|block| std::mem::take(block).get())
            .collect();
        match parts.is_empty() {
            true => self.calls.skipped_frees += 1,
            false => self.other_orders += 1,
        }
        parts.into_iter().for_each(|block| self.calls.release(&yard.yard, block));
    }
}

impl ReplayPlan {
    /// Replays on one thread, which runs as the CPU of each operation in turn. The same plan and set-up give the same counts.
    ///
    /// # Errors
    ///
    /// [`SetUpError`].
    pub fn replay(&self, set_up: SetUp) -> Result<ReplayResult, SetUpError> {
        self.replay_in(set_up, &own_memory)
    }

    /// As [`replay`](Self::replay), in a yard with the memory that `make` makes: another process may watch the yard there.
    ///
    /// # Errors
    ///
    /// [`SetUpError`].
    pub fn replay_in(&self, set_up: SetUp, make: MakeMemory<'_>) -> Result<ReplayResult, SetUpError> {
        let yard = ReplayYard::new(self, set_up, make)?;
        let mut blocks = Blocks::new(self);
        let before = YardCounts::of(&yard.yard);
        let mut samples = vec![Sample { operations: 0, free: FreeMemory::of(&yard.yard) }];
        let mut by_order = set_up.detail.by_order();
        let (mut elapsed_ns, mut done) = (0, 0);
        for part in self.operations.chunks(self.operations.len().div_ceil(SAMPLES).max(1)) {
            let start = Instant::now();
            match &mut by_order {
                None => part.iter().for_each(|operation| blocks.operate(&yard, operation)),
                Some(by_order) => blocks.operate_counted(&yard, part, by_order),
            }
            elapsed_ns += start.elapsed().as_nanos() as u64;
            done += part.len() as u64;
            samples.push(Sample { operations: done, free: FreeMemory::of(&yard.yard) });
        }
        Ok(ReplayResult {
            policy: set_up.policy,
            operations: done,
            pages_allocated: blocks.calls.pages_allocated,
            failures: blocks.calls.failures,
            skipped_frees: blocks.calls.skipped_frees,
            other_orders: blocks.other_orders,
            elapsed_ns,
            counts: YardCounts::of(&yard.yard).since(&before),
            by_order,
            missing_pages: PageCount(yard.missing_pages),
            samples,
            drained: FreeMemory::drained(&yard.yard),
        })
    }
}
