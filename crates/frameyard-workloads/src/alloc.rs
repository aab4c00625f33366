//! `alloc`: blocks of one order, allocated and freed in several patterns.

use std::num::NonZeroU32;
use std::time::Instant;

use frameyard::locks::LockUse;
use frameyard::{Gfp, Order, Pfn, Yard};
use frameyard_host::{HostPlatform, HostTopology};

use crate::measure::nanoseconds_each;
use crate::tasks::{TaskError, run_tasks};

/// The fewest steps of a `repeat` task.
const LEAST_STEPS: u64 = 100_000;
/// Blocks allocated, then freed, to divide the time of a pair.
const GROUP: usize = 16;
/// The flags of all requests: memory for user pages.
const GFP: Gfp = Gfp::HIGHUSER_MOVABLE;

/// The access pattern of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessKind {
    /// Allocates and frees one block per step, with half the memory allocated.
    Repeat,
    /// Allocates its share of half the memory, then frees it.
    Bulk,
    /// Like `Bulk`, freed in an order shuffled across all tasks.
    Random,
    /// Like `Bulk`, on a yard that was just created and used for nothing else: the run touches its lists and its
    /// allocation map first. The caller creates the yard. LLFree's benchmark measures this.
    Cold,
    /// Like `Bulk`, after the same allocations and frees without a drain in between: blocks come from where those left them.
    Warm,
}

impl AccessKind {
    /// All patterns.
    pub const ALL: [Self; 5] = [Self::Repeat, Self::Bulk, Self::Random, Self::Cold, Self::Warm];

    /// The name on command lines and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Repeat => "repeat",
            Self::Bulk => "bulk",
            Self::Random => "random",
            Self::Cold => "cold",
            Self::Warm => "warm",
        }
    }
}

/// The result of one run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct AllocRun {
    /// Pairs of an allocation and a free, of all tasks.
    pub ops: u64,
    /// Nanoseconds per allocation, mean over the tasks.
    pub get_ns: f64,
    /// Nanoseconds per free, mean over the tasks.
    pub put_ns: f64,
    /// Acquisitions of zone locks, set-up included.
    pub zone_lock: LockUse,
    /// Frames moved under a zone lock.
    pub pages_moved: u64,
    /// Frames allocated, set-up included.
    pub pages_allocated: u64,
}

impl AllocRun {
    /// Frames moved per acquisition of a zone lock.
    #[must_use]
    pub fn pages_per_acquisition(&self) -> f64 {
        self.pages_moved as f64 / self.zone_lock.acquisitions.max(1) as f64
    }
}

/// The measurement of one task.
struct Timing {
    ops: u64,
    get_ns: f64,
    put_ns: f64,
}

/// A pattern and its parameters.
#[derive(Clone, Copy, Debug)]
pub struct AllocWorkload {
    /// The pattern.
    pub kind: AccessKind,
    /// The order of all blocks.
    pub order: Order,
    /// Number of tasks that share the work.
    pub tasks: NonZeroU32,
    /// Seed of the shuffle.
    pub seed: u64,
}

impl AllocWorkload {
    /// Runs the workload once. Frees all blocks that it allocated.
    ///
    /// # Errors
    ///
    /// [`TaskError`]. Blocks allocated before the error stay allocated.
    pub fn run(&self, yard: &Yard<HostPlatform>, host: &HostTopology) -> Result<AllocRun, TaskError> {
        let before = lock_counts(yard);
        let timings = match self.kind {
            AccessKind::Repeat => self.repeat(yard, host)?,
            AccessKind::Bulk | AccessKind::Cold => {
                run_tasks(host, self.tasks, |_| bulk(yard, self.order, self.share(yard)))?
            }
            AccessKind::Warm => run_tasks(host, self.tasks, |_| {
                bulk(yard, self.order, self.share(yard))?;
                bulk(yard, self.order, self.share(yard))
            })?,
            AccessKind::Random => self.random(yard, host)?,
        };
        let after = lock_counts(yard);
        let tasks = timings.len() as f64;
        Ok(AllocRun {
            ops: timings.iter().map(|timing| timing.ops).sum(),
            get_ns: timings.iter().map(|timing| timing.get_ns).sum::<f64>() / tasks,
            put_ns: timings.iter().map(|timing| timing.put_ns).sum::<f64>() / tasks,
            zone_lock: after.0.since(before.0),
            pages_moved: after.1 - before.1,
            pages_allocated: after.2 - before.2,
        })
    }

    /// Blocks of the yard, free or not.
    fn blocks(&self, yard: &Yard<HostPlatform>) -> u64 {
        yard.stats().managed_pages().0 >> self.order.0
    }

    /// A task's share of half the memory, in blocks; at least one.
    fn share(&self, yard: &Yard<HostPlatform>) -> usize {
        (self.blocks(yard) / 2 / u64::from(self.tasks.get())).max(1) as usize
    }

    /// Allocates half the memory. Then each step allocates and frees one block.
    fn repeat(&self, yard: &Yard<HostPlatform>, host: &HostTopology) -> Result<Vec<Timing>, TaskError> {
        let steps = (self.blocks(yard) / u64::from(self.tasks.get())).max(LEAST_STEPS);
        run_tasks(host, self.tasks, |_| {
            let mut held = vec![Pfn(1); self.share(yard)];
            allocate(yard, self.order, &mut held)?;
            let start = Instant::now();
            for _ in 0..steps {
                let block = yard.alloc(self.order, GFP)?;
                yard.free(block, self.order)?;
            }
            let pair = nanoseconds_each(start.elapsed(), steps);
            let get_part = allocation_part(yard, self.order)?;
            free(yard, self.order, &held)?;
            Ok(Timing { ops: steps, get_ns: pair * get_part, put_ns: pair * (1.0 - get_part) })
        })
    }

    /// Like `bulk`, but every task frees blocks of all tasks, in a shuffled order.
    fn random(&self, yard: &Yard<HostPlatform>, host: &HostTopology) -> Result<Vec<Timing>, TaskError> {
        let share = self.share(yard);
        let allocated = run_tasks(host, self.tasks, |_| {
            let mut blocks = vec![Pfn(1); share];
            let get_ns = allocate(yard, self.order, &mut blocks)?;
            Ok((blocks, get_ns))
        })?;
        let get_ns: Vec<f64> = allocated.iter().map(|(_, get_ns)| *get_ns).collect();
        let mut all: Vec<Pfn> = allocated.into_iter().flat_map(|(blocks, _)| blocks).collect();
        fastrand::Rng::with_seed(self.seed).shuffle(&mut all);
        let parts: Vec<&[Pfn]> = all.chunks(share).collect();
        let put_ns = run_tasks(host, self.tasks, |task| free(yard, self.order, parts[task]))?;
        let timing = |(get_ns, put_ns)| Timing { ops: share as u64, get_ns, put_ns };
        Ok(get_ns.into_iter().zip(put_ns).map(timing).collect())
    }
}

/// Allocates a task's share, then frees it in the same order.
fn bulk(yard: &Yard<HostPlatform>, order: Order, share: usize) -> Result<Timing, TaskError> {
    let mut blocks = vec![Pfn(1); share];
    let get_ns = allocate(yard, order, &mut blocks)?;
    let put_ns = free(yard, order, &blocks)?;
    Ok(Timing { ops: share as u64, get_ns, put_ns })
}

/// Fills `blocks`. Returns the nanoseconds per allocation.
fn allocate(yard: &Yard<HostPlatform>, order: Order, blocks: &mut [Pfn]) -> Result<f64, TaskError> {
    let start = Instant::now();
    for block in blocks.iter_mut() {
        *block = yard.alloc(order, GFP)?;
    }
    Ok(nanoseconds_each(start.elapsed(), blocks.len() as u64))
}

/// Frees blocks. Returns the nanoseconds per free.
fn free(yard: &Yard<HostPlatform>, order: Order, blocks: &[Pfn]) -> Result<f64, TaskError> {
    let start = Instant::now();
    for block in blocks {
        yard.free(*block, order)?;
    }
    Ok(nanoseconds_each(start.elapsed(), blocks.len() as u64))
}

/// The share of the allocation in the time of a pair.
///
/// Reading the clock takes too long for single operations, so this times small groups and uses only their ratio.
fn allocation_part(yard: &Yard<HostPlatform>, order: Order) -> Result<f64, TaskError> {
    let mut blocks = [Pfn(0); GROUP];
    let (mut get, mut put) = (0.0, 0.0);
    for _ in 0..LEAST_STEPS / 10 / GROUP as u64 {
        get += allocate(yard, order, &mut blocks)?;
        put += free(yard, order, &blocks)?;
    }
    Ok(get / (get + put))
}

/// The use of all zone locks, frames moved under them, and frames allocated.
fn lock_counts(yard: &Yard<HostPlatform>) -> (LockUse, u64, u64) {
    yard.stats().zones().fold(Default::default(), |(lock, moved, allocated), zone| {
        (zone.lock.and(lock), moved + zone.pages_moved, allocated + zone.pages_allocated)
    })
}
