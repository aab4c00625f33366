//! `alloc`: blocks of one order, allocated and freed in several patterns.

mod homes;

use std::num::NonZeroU32;

use frameyard::locks::LockUse;
use frameyard::{Gfp, Order, Pfn, Platform, Yard, ZoneId};
use frameyard_host::{HostPlatform, HostTopology};

use self::homes::{Homes, fill, zone_of};
use crate::error::WorkloadError;
use crate::tasks::{HostTasks, TaskError, TaskRunner};

/// The fewest steps of a task that repeats pairs.
const LEAST_STEPS: u64 = 100_000;
/// Blocks allocated, then freed, to divide the time of a pair.
const GROUP: usize = 16;
/// One of this number of pairs is in a group.
const GROUPED: u64 = 10;
/// The flags of all requests: memory for user pages.
const GFP: Gfp = Gfp::HIGHUSER_MOVABLE;

/// The access pattern of a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AccessKind {
    /// Allocates and frees one block per step, with half of the zone allocated that the task prefers.
    Repeat,
    /// As `Repeat`, with that zone at its low watermark: another zone serves each request. Where a node without tasks has room, the
    /// tasks' nodes are full, and a neighbour serves.
    Spill,
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
    pub const ALL: [Self; 6] = [Self::Repeat, Self::Spill, Self::Bulk, Self::Random, Self::Cold, Self::Warm];

    /// The name on command lines and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Repeat => "repeat",
            Self::Spill => "spill",
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
    /// The part of the blocks that came from another zone than the one that their task prefers. Of pairs, those are counted that divide
    /// their time into allocation and free.
    pub spilled: f64,
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
    spilled: f64,
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
    /// Pairs of each task that repeats them; `None`: 100,000, or for `Repeat` one for each block of its part of the yard if
    /// that is more.
    pub steps: Option<u64>,
}

impl AllocWorkload {
    /// Refuses a yard without the zones that the pattern needs. All zones must have free memory.
    ///
    /// # Errors
    ///
    /// [`WorkloadError::Input`] then; [`WorkloadError::RunTime`] if a task fails.
    pub fn check(&self, yard: &Yard<HostPlatform>, host: &HostTopology) -> Result<(), WorkloadError> {
        self.check_on(yard, &HostTasks::new(host))
    }

    /// The same on any platform, with tasks that `runner` runs.
    ///
    /// # Errors
    ///
    /// As for [`check`](Self::check).
    pub fn check_on<P: Platform>(&self, yard: &Yard<P>, runner: &impl TaskRunner) -> Result<(), WorkloadError> {
        match self.kind {
            AccessKind::Spill => Homes::find(yard, runner, self.tasks)?.to_fill(yard, self.order).map(drop),
            _ => Ok(()),
        }
    }

    /// Runs the workload once on this host. Frees all blocks that it allocated.
    ///
    /// # Errors
    ///
    /// [`WorkloadError::RunTime`] if a task fails, and what [`check`](Self::check) refuses. Blocks allocated before the error stay
    /// allocated.
    pub fn run(&self, yard: &Yard<HostPlatform>, host: &HostTopology) -> Result<AllocRun, WorkloadError> {
        self.run_on(yard, &HostTasks::new(host))
    }

    /// The same on any platform, with tasks that `runner` runs.
    ///
    /// # Errors
    ///
    /// As for [`run`](Self::run).
    pub fn run_on<P: Platform>(&self, yard: &Yard<P>, runner: &impl TaskRunner) -> Result<AllocRun, WorkloadError> {
        let before = lock_counts(yard);
        let timings = match self.kind {
            AccessKind::Repeat => self.repeat(yard, runner)?,
            AccessKind::Spill => self.spill(yard, runner)?,
            AccessKind::Bulk | AccessKind::Cold => runner.run(self.tasks, |_| self.bulk(yard, runner))?,
            AccessKind::Warm => runner.run(self.tasks, |_| {
                self.bulk(yard, runner)?;
                self.bulk(yard, runner)
            })?,
            AccessKind::Random => self.random(yard, runner)?,
        };
        let after = lock_counts(yard);
        let mean = |of: fn(&Timing) -> f64| timings.iter().map(of).sum::<f64>() / timings.len() as f64;
        Ok(AllocRun {
            ops: timings.iter().map(|timing| timing.ops).sum(),
            get_ns: mean(|timing| timing.get_ns),
            put_ns: mean(|timing| timing.put_ns),
            spilled: mean(|timing| timing.spilled),
            zone_lock: after.0.since(before.0),
            pages_moved: after.1 - before.1,
            pages_allocated: after.2 - before.2,
        })
    }

    /// A task's part of the yard, in blocks, free or not.
    fn part<P: Platform>(&self, yard: &Yard<P>) -> u64 {
        (yard.stats().managed_pages().0 >> self.order.0) / u64::from(self.tasks.get())
    }

    /// A task's share of half the memory, in blocks; at least one.
    fn share<P: Platform>(&self, yard: &Yard<P>) -> usize {
        (self.part(yard) / 2).max(1) as usize
    }

    /// Allocates half of each home. Then each step allocates and frees one block.
    fn repeat<P: Platform>(&self, yard: &Yard<P>, runner: &impl TaskRunner) -> Result<Vec<Timing>, WorkloadError> {
        let homes = Homes::find(yard, runner, self.tasks)?;
        let held = runner.set_up(self.tasks, |task| {
            let mut held = vec![Pfn(0); homes.share(yard, task, self.order)];
            allocate(yard, runner, self.order, &mut held)?;
            Ok(held)
        })?;
        let steps = self.steps.unwrap_or_else(|| self.part(yard).max(LEAST_STEPS));
        let timings = self.pairs(yard, runner, &homes, steps)?;
        runner.set_up(self.tasks, |task| free(yard, runner, self.order, &held[task]))?;
        Ok(timings)
    }

    /// The same with full homes; if another node has room, with full nodes.
    fn spill<P: Platform>(&self, yard: &Yard<P>, runner: &impl TaskRunner) -> Result<Vec<Timing>, WorkloadError> {
        let homes = Homes::find(yard, runner, self.tasks)?;
        let full = homes.to_fill(yard, self.order)?;
        let held = runner.set_up(self.tasks, |_| fill(yard, &full))?;
        let timings = self.pairs(yard, runner, &homes, self.steps.unwrap_or(LEAST_STEPS))?;
        runner.set_up(self.tasks, |task| {
            held[task].iter().try_for_each(|block| yard.free(block.pfn, block.order))?;
            Ok(())
        })?;
        Ok(timings)
    }

    /// Each task allocates and frees one block per step.
    fn pairs<P: Platform>(
        &self,
        yard: &Yard<P>,
        runner: &impl TaskRunner,
        homes: &Homes,
        steps: u64,
    ) -> Result<Vec<Timing>, WorkloadError> {
        let groups = (steps.min(LEAST_STEPS) / GROUPED / GROUP as u64).max(1);
        runner.run(self.tasks, |task| {
            let start = runner.now_ns();
            for _ in 0..steps {
                let block = yard.alloc(self.order, GFP)?;
                yard.free(block, self.order)?;
            }
            let pair = (runner.now_ns() - start) as f64 / steps as f64;
            let (get_part, spilled) = self.divide(yard, runner, homes.of(task), groups)?;
            Ok(Timing { ops: steps, get_ns: pair * get_part, put_ns: pair * (1.0 - get_part), spilled })
        })
    }

    /// The share of the allocation in the time of a pair, and the part of the blocks that came from another zone than `home`.
    ///
    /// Reading the clock takes too long for single operations, so this times small groups and uses only their ratio.
    fn divide<P: Platform>(
        &self,
        yard: &Yard<P>,
        runner: &impl TaskRunner,
        home: ZoneId,
        groups: u64,
    ) -> Result<(f64, f64), TaskError> {
        let mut blocks = [Pfn(0); GROUP];
        let (mut get, mut put, mut spilled) = (0.0, 0.0, 0.0);
        for _ in 0..groups {
            get += allocate(yard, runner, self.order, &mut blocks)?;
            put += free(yard, runner, self.order, &blocks)?;
            spilled += spilled_part(yard, home, &blocks);
        }
        let all: f64 = get + put;
        Ok((if all > 0.0 { get / all } else { 0.5 }, spilled / groups as f64))
    }

    /// Allocates a task's share, then frees it in the same order.
    fn bulk<P: Platform>(&self, yard: &Yard<P>, runner: &impl TaskRunner) -> Result<Timing, TaskError> {
        let mut blocks = vec![Pfn(1); self.share(yard)];
        let get_ns = allocate(yard, runner, self.order, &mut blocks)?;
        let put_ns = free(yard, runner, self.order, &blocks)?;
        Ok(Timing { ops: blocks.len() as u64, get_ns, put_ns, spilled: spilled_of_share(yard, &blocks) })
    }

    /// Like `bulk`, but every task frees blocks of all tasks, in a shuffled order.
    fn random<P: Platform>(&self, yard: &Yard<P>, runner: &impl TaskRunner) -> Result<Vec<Timing>, WorkloadError> {
        let share = self.share(yard);
        let allocated = runner.run(self.tasks, |_| {
            let mut blocks = vec![Pfn(1); share];
            let get_ns = allocate(yard, runner, self.order, &mut blocks)?;
            Ok((blocks, get_ns))
        })?;
        let gets: Vec<(f64, f64)> =
            allocated.iter().map(|(blocks, get_ns)| (*get_ns, spilled_of_share(yard, blocks))).collect();
        let mut all: Vec<Pfn> = allocated.into_iter().flat_map(|(blocks, _)| blocks).collect();
        fastrand::Rng::with_seed(self.seed).shuffle(&mut all);
        let parts: Vec<&[Pfn]> = all.chunks(share).collect();
        let put_ns = runner.run(self.tasks, |task| free(yard, runner, self.order, parts[task]))?;
        let timing = |((get_ns, spilled), put_ns)| Timing { ops: share as u64, get_ns, put_ns, spilled };
        Ok(gets.into_iter().zip(put_ns).map(timing).collect())
    }
}

/// Fills `blocks`. Returns the nanoseconds per allocation.
fn allocate<P: Platform>(
    yard: &Yard<P>,
    runner: &impl TaskRunner,
    order: Order,
    blocks: &mut [Pfn],
) -> Result<f64, TaskError> {
    let start = runner.now_ns();
    for block in blocks.iter_mut() {
        *block = yard.alloc(order, GFP)?;
    }
    Ok((runner.now_ns() - start) as f64 / blocks.len() as f64)
}

/// Frees blocks. Returns the nanoseconds per free.
fn free<P: Platform>(yard: &Yard<P>, runner: &impl TaskRunner, order: Order, blocks: &[Pfn]) -> Result<f64, TaskError> {
    let start = runner.now_ns();
    for block in blocks {
        yard.free(*block, order)?;
    }
    Ok((runner.now_ns() - start) as f64 / blocks.len() as f64)
}

/// The part of a task's blocks that came from another zone than the first of them: its home, as its share was free then.
fn spilled_of_share<P: Platform>(yard: &Yard<P>, blocks: &[Pfn]) -> f64 {
    blocks.first().map_or(0.0, |first| spilled_part(yard, zone_of(yard, *first), blocks))
}

/// The part of blocks that lie in another zone than `home`.
fn spilled_part<P: Platform>(yard: &Yard<P>, home: ZoneId, blocks: &[Pfn]) -> f64 {
    blocks.iter().filter(|block| zone_of(yard, **block) != home).count() as f64 / blocks.len() as f64
}

/// The use of all zone locks, frames moved under them, and frames allocated.
fn lock_counts<P: Platform>(yard: &Yard<P>) -> (LockUse, u64, u64) {
    yard.stats().zones().fold(Default::default(), |(lock, moved, allocated), zone| {
        (zone.lock.and(lock), moved + zone.pages_moved, allocated + zone.pages_allocated)
    })
}

#[cfg(test)]
mod tests {
    use frameyard::policy::ZonePolicy;
    use frameyard::stats::ZoneStatistics;
    use frameyard::{MemoryTable, NodeId, PageCount, PfnRange, YardConfig};
    use frameyard_host::{Backing, HostYard};

    use super::*;

    /// Where DMA32 ends and Normal begins.
    const NORMAL: Pfn = Pfn(1 << 20);
    /// 64 MiB.
    const PART: PageCount = PageCount(1 << 14);

    /// All CPUs are on node 0.
    fn yard(memory: &[(PfnRange, NodeId)], policy: ZonePolicy, host: &HostTopology) -> HostYard {
        let cpus = vec![NodeId(0); host.allowed().as_slice().len().max(1)];
        let config = YardConfig { policy, ..YardConfig::new(&cpus) };
        let memory = MemoryTable { memory, ..MemoryTable::default() };
        HostYard::builder().backing(Backing::Phantom).machine(&memory, &config).host(host).build().unwrap()
    }

    fn workload(kind: AccessKind, order: u8, tasks: u32) -> AllocWorkload {
        AllocWorkload { kind, order: Order(order), tasks: NonZeroU32::new(tasks).unwrap(), seed: 1, steps: Some(2000) }
    }

    /// Two parts of memory, in two zones of node 0 or on two nodes.
    fn two_parts(second: NodeId) -> [(PfnRange, NodeId); 2] {
        let first = if second == NodeId(0) { Pfn(NORMAL.0 - PART.0) } else { NORMAL + PART };
        [(PfnRange::new(NORMAL, PART), NodeId(0)), (PfnRange::new(first, PART), second)]
    }

    #[test]
    fn a_full_home_lets_another_zone_serve_every_pair() {
        let host = HostTopology::current().unwrap();
        for second in [NodeId(0), NodeId(1)] {
            let mut memory = two_parts(second);
            memory.sort_by_key(|(range, _)| range.start);
            for policy in [ZonePolicy::Vanilla, ZonePolicy::Bits] {
                let yard = yard(&memory, policy, &host);
                let before = yard.stats().free_pages();
                let served = || {
                    let other = |zone: &ZoneStatistics| zone.span.start != NORMAL;
                    yard.stats().zones().find(other).map(|zone| (zone.allocations, zone.numa_miss)).unwrap()
                };
                for (order, tasks) in [(0, 1), (0, 2), (3, 1), (6, 2)] {
                    let at_home = workload(AccessKind::Repeat, order, tasks).run(yard.core(), &host).unwrap();
                    assert_eq!(at_home.spilled, 0.0, "{} {order} {tasks}", policy.name());
                    let (allocations, misses) = served();
                    let spilled = workload(AccessKind::Spill, order, tasks).run(yard.core(), &host).unwrap();
                    assert_eq!(spilled.spilled, 1.0, "{} {order} {tasks}", policy.name());
                    let after = served();
                    assert!(after.0 - allocations >= spilled.ops, "{} {order} {tasks}", policy.name());
                    // A block of a CPU's list there is no miss: the first one that a request had to search for is.
                    assert_eq!(after.1 > misses, second != NodeId(0));
                    yard.drain_all();
                    assert_eq!(yard.stats().free_pages(), before);
                }
                yard.validate().unwrap();
            }
        }
    }

    #[test]
    fn spills_need_a_second_zone() {
        let host = HostTopology::current().unwrap();
        let yard = yard(&two_parts(NodeId(1))[..1], ZonePolicy::default(), &host);
        let spill = workload(AccessKind::Spill, 0, 1);
        for refused in [spill.check(yard.core(), &host), spill.run(yard.core(), &host).map(drop)] {
            let Err(WorkloadError::Input(reason)) = refused else { panic!("{refused:?}") };
            let text = reason.to_string();
            assert!(
                text.starts_with("the tasks fill node 0 zone Normal, and no other zone has room for 32 blocks of 4K"),
                "{text}"
            );
        }
        // Another pattern needs none.
        workload(AccessKind::Repeat, 0, 1).check(yard.core(), &host).unwrap();
    }
}
