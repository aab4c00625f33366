//! `frag`: blocks freed and allocated at random in fragmented memory, after LLFree's benchmark of that name.
//!
//! The tasks allocate all memory in single frames, and free a share of it at random. In each iteration they free and allocate again a
//! tenth of that share, one frame at a time. Nothing moves frames, so whole pageblocks appear only by the allocator's choice of the
//! frame that each request gets.
//!
//! With [`BlockOrders::Mixed`] the blocks have orders 0 to 8, like the folios of a page cache. The task draws the order of each block, and
//! a block is replaced by one of any order. A request that fails leaves its place empty until that place is drawn again, so every
//! allocator with the same number of frames gets the same sequence of requests, whatever it refuses.
//!
//! The workload is generic over the platform. [`FragWorkload::run`] is its form for this host.

use std::collections::{HashMap, HashSet};
use std::num::NonZeroU32;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fastrand::Rng;
use frameyard::locks::LockUse;
use frameyard::owners::Ownership;
use frameyard::page::{Counts, references_of_pins};
use frameyard::units::MigrateType;
use frameyard::{AllocError, Gfp, Order, Pfn, Platform, Yard};
use frameyard_host::{HostPlatform, HostTopology};

use crate::error::WorkloadError;
use crate::task::task_seed;
use crate::tasks::{HostTasks, TaskError, TaskRunner};

/// The flags of all requests: memory for user pages.
const GFP: Gfp = Gfp::HIGHUSER_MOVABLE;
/// An iteration replaces one of this number of the freed frames.
const REPLACED: u64 = 10;
/// One of this number of pageblocks keeps the frames that are never freed.
const KEEPING: u64 = 4;

/// The largest order of mixed blocks: half a pageblock of x86-64.
const LARGEST_MIXED: u32 = 8;

/// The orders of the blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BlockOrders {
    /// Single frames.
    #[default]
    Single,
    /// Orders 0 to 8. Every order has the same share of the bytes: order 0 is drawn 256 times in 511, order 1 128 times, order 8 once.
    Mixed,
}

impl BlockOrders {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Single, Self::Mixed];

    /// The name on command lines and in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Mixed => "mixed",
        }
    }

    /// The largest order of a block.
    #[must_use]
    pub fn largest(self) -> Order {
        match self {
            Self::Single => Order::ZERO,
            Self::Mixed => Order(LARGEST_MIXED as u8),
        }
    }

    /// The order of the next block.
    fn draw(self, rng: &mut Rng) -> Order {
        match self {
            Self::Single => Order::ZERO,
            Self::Mixed => Order((LARGEST_MIXED - rng.u32(1..2 << LARGEST_MIXED).ilog2()) as u8),
        }
    }
}

/// The workload and its parameters.
#[derive(Clone, Copy, Debug)]
pub struct FragWorkload {
    /// Number of tasks that share the work.
    pub tasks: NonZeroU32,
    /// The share of memory that is free during the iterations, in percent.
    pub free_percent: u8,
    /// The orders of the blocks.
    pub orders: BlockOrders,
    /// Single frames that are pinned and never freed, in every fourth pageblock.
    pub kept_frames: u32,
    /// Seed of the random choices.
    pub seed: u64,
}

/// The state of memory after an iteration.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FragPoint {
    /// The number of the iteration, from 1; 0 before the first.
    pub iteration: u32,
    /// Pageblocks of the yard.
    pub pageblocks: u64,
    /// Pageblocks without an allocated frame, by the frames that the tasks hold.
    pub empty: u64,
    /// Pageblocks that requests can have which may not wait: on free lists and in bits, without those on lists of CPUs.
    pub whole: u64,
    /// The part of the frames that the tasks hold: less than was asked for where requests failed.
    pub held: f64,
    /// Nanoseconds per pair of a free and an allocation, mean over the iterations since the last point.
    pub pair_ns: f64,
    /// Pairs since the last point.
    pub pairs: u64,
    /// Allocations of these pairs that found no memory.
    pub failed: u64,
    /// Use of the zone locks since the last point.
    pub zone_lock: LockUse,
}

/// A block that a task holds, or a place where a request for one of that order failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Place(u64);

impl Place {
    const ORDER_BITS: u32 = 4;
    /// What stands for the frame of an empty place.
    const NO_FRAME: u64 = u64::MAX >> Self::ORDER_BITS;

    fn new(order: Order, frame: Option<Pfn>) -> Self {
        Self(frame.map_or(Self::NO_FRAME, |frame| frame.0) << Self::ORDER_BITS | u64::from(order.0))
    }

    /// Allocates a block; the place stays empty where there is no memory for it.
    fn allocate<P: Platform>(yard: &Yard<P>, order: Order, gfp: Gfp) -> Result<Self, TaskError> {
        match yard.alloc(order, gfp) {
            Ok(frame) => Ok(Self::new(order, Some(frame))),
            Err(AllocError::OutOfMemory { .. }) => Ok(Self::new(order, None)),
            Err(error) => Err(error.into()),
        }
    }

    fn order(self) -> Order {
        Order((self.0 % (1 << Self::ORDER_BITS)) as u8)
    }

    fn frame(self) -> Option<Pfn> {
        let frame = self.0 >> Self::ORDER_BITS;
        (frame != Self::NO_FRAME).then_some(Pfn(frame))
    }

    fn free<P: Platform>(self, yard: &Yard<P>) -> Result<(), TaskError> {
        self.frame().map_or(Ok(()), |frame| Ok(yard.free(frame, self.order())?))
    }
}

/// The blocks of a task.
struct Held {
    places: Vec<Place>,
    rng: Rng,
}

/// Fragmented memory.
struct Fragmented {
    held: Vec<Mutex<Held>>,
    /// Frames that are never freed.
    kept: Vec<Pfn>,
    /// Pairs of each task in an iteration.
    pairs_of_task: u64,
}

impl FragWorkload {
    /// Runs the workload once on this host, and calls `report` before the first iteration and after each of `iterations`, which ascend.
    /// Frees all frames.
    ///
    /// # Errors
    ///
    /// [`WorkloadError::RunTime`]. Frames allocated before the error stay allocated.
    pub fn run(
        &self,
        yard: &Yard<HostPlatform>,
        host: &HostTopology,
        iterations: &[u32],
        report: &mut dyn FnMut(FragPoint),
    ) -> Result<(), WorkloadError> {
        self.run_on(yard, &HostTasks::new(host), iterations, report)
    }

    /// The same on any platform, with tasks that `runner` runs.
    ///
    /// # Errors
    ///
    /// As for [`run`](Self::run).
    pub fn run_on<P: Platform>(
        &self,
        yard: &Yard<P>,
        runner: &impl TaskRunner,
        iterations: &[u32],
        report: &mut dyn FnMut(FragPoint),
    ) -> Result<(), WorkloadError> {
        let Fragmented { held, kept, pairs_of_task } = self.fragment(yard, runner)?;
        let (mut done, mut before) = (0, zone_lock(yard));
        for iteration in std::iter::once(0).chain(iterations.iter().copied()) {
            let pairs = u64::from(iteration - done) * pairs_of_task;
            let (pair_ns, failed) = self.replace(yard, runner, &held, pairs)?;
            let (pageblocks, empty) = count_pageblocks(yard, &held, &kept);
            let held_frames = kept.len() as u64 + held.iter().map(|held| frames_of(&lock(held).places)).sum::<u64>();
            let now = zone_lock(yard);
            report(FragPoint {
                iteration,
                pageblocks,
                empty,
                whole: whole_pageblocks(yard),
                held: held_frames as f64 / yard.stats().managed_pages().0 as f64,
                pair_ns,
                pairs: pairs * u64::from(self.tasks.get()),
                failed,
                zone_lock: now.since(before),
            });
            (done, before) = (iteration, now);
        }
        let mut held = held.iter().flat_map(|held| std::mem::take(&mut lock(held).places));
        held.try_for_each(|place| place.free(yard))?;
        Ok(kept.into_iter().try_for_each(|frame| unpin_and_free(yard, frame))?)
    }

    /// The part of a number of frames or blocks that is free during the iterations.
    fn freed(&self, total: u64) -> u64 {
        total * u64::from(self.free_percent) / 100
    }

    /// Allocates all memory, chooses the frames that are never freed, and frees a share of the rest at random.
    fn fragment<P: Platform>(&self, yard: &Yard<P>, runner: &impl TaskRunner) -> Result<Fragmented, WorkloadError> {
        let filled = runner.set_up(self.tasks, |task| match self.orders {
            BlockOrders::Single => fill_with_frames(yard),
            BlockOrders::Mixed => self.fill_with_blocks(yard, task),
        })?;
        let mut all: Vec<Place> = filled.into_iter().flatten().collect();
        let managed = yard.stats().managed_pages().0;
        let freed = match self.orders {
            BlockOrders::Single => self.freed(managed),
            BlockOrders::Mixed => self.freed(all.len() as u64),
        };
        let mut rng = Rng::with_seed(self.seed);
        rng.shuffle(&mut all);
        let kept = choose_kept(&mut all, yard.geometry().pageblock_order(), self.kept_frames);
        kept.iter().try_for_each(|frame| pin(yard, *frame))?;
        let left = (managed - self.freed(managed)).saturating_sub(kept.len() as u64);
        let given = all.split_off(blocks_within(&all, left).max(1).min(all.len()));
        let parts: Vec<&[Place]> = chunks(&given, self.tasks).collect();
        runner.set_up(self.tasks, |task| {
            parts.get(task).into_iter().copied().flatten().try_for_each(|place| place.free(yard))
        })?;
        let mut shares = chunks(&all, self.tasks);
        let held = (0..self.tasks.get()).map(|task| {
            let places = shares.next().unwrap_or_default().to_vec();
            Mutex::new(Held { places, rng: Rng::with_seed(task_seed(self.seed, task)) })
        });
        let pairs_of_task = (freed / REPLACED / u64::from(self.tasks.get())).max(1);
        Ok(Fragmented { held: held.collect(), kept, pairs_of_task })
    }

    /// Draws blocks that together have a task's part of all frames, and allocates them. The last ones may fail: a yard keeps a reserve.
    fn fill_with_blocks<P: Platform>(&self, yard: &Yard<P>, task: usize) -> Result<Vec<Place>, TaskError> {
        let tasks = self.tasks.get();
        let mut rng = Rng::with_seed(task_seed(self.seed, tasks + task as u32));
        let (mut left, mut places) = (yard.stats().managed_pages().0 / u64::from(tasks), Vec::new());
        while left > 0 {
            let order = self.orders.draw(&mut rng);
            left = left.saturating_sub(order.pages().0);
            places.push(Place::allocate(yard, order, GFP | Gfp::NOWARN)?);
        }
        Ok(places)
    }

    /// Frees and allocates `pairs` blocks in each task. Returns the nanoseconds of a pair, and how many allocations of all tasks found no
    /// memory.
    fn replace<P: Platform>(
        &self,
        yard: &Yard<P>,
        runner: &impl TaskRunner,
        held: &[Mutex<Held>],
        pairs: u64,
    ) -> Result<(f64, u64), WorkloadError> {
        let done = runner.run(self.tasks, |task| {
            let Held { places, rng } = &mut *lock(&held[task]);
            let (start, mut failed) = (runner.now_ns(), 0);
            for _ in 0..pairs {
                let at = rng.usize(..places.len());
                places[at].free(yard)?;
                places[at] = Place::allocate(yard, self.orders.draw(rng), GFP | Gfp::NOWARN)?;
                failed += u64::from(places[at].frame().is_none());
            }
            Ok(((runner.now_ns() - start) as f64 / pairs.max(1) as f64, failed))
        })?;
        let ns = done.iter().map(|(ns, _)| ns).sum::<f64>() / f64::from(self.tasks.get());
        Ok((ns, done.iter().map(|(_, failed)| failed).sum()))
    }
}

/// Allocates single frames until a request fails.
fn fill_with_frames<P: Platform>(yard: &Yard<P>) -> Result<Vec<Place>, TaskError> {
    let mut places = Vec::new();
    loop {
        let place = Place::allocate(yard, Order::ZERO, GFP | Gfp::NOWARN)?;
        if place.frame().is_none() {
            return Ok(places);
        }
        places.push(place);
    }
}

/// How many blocks from the first on have at most `frames` frames together, those of empty places counted.
fn blocks_within(places: &[Place], frames: u64) -> usize {
    let mut sum = 0;
    places
        .iter()
        .take_while(|place| {
            sum += place.order().pages().0;
            sum <= frames
        })
        .count()
}

/// The blocks of a task, which no other thread uses.
fn lock(held: &Mutex<Held>) -> MutexGuard<'_, Held> {
    held.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What pins a frame counts as.
const PINNED: Counts = match references_of_pins(Order::ZERO, 1) {
    Some(references) => Counts { references, mappings: 0 },
    None => panic!("one pin can be counted"),
};

/// Pins an allocated frame, as for direct access by a device: it cannot move from now on.
fn pin<P: Platform>(yard: &Yard<P>, frame: Pfn) -> Result<(), TaskError> {
    Ok(yard.counted().init_refs(frame, Order::ZERO, Ownership { counts: PINNED, owner: 0, index: 0 })?)
}

/// Frees a frame that [`pin`] has pinned.
fn unpin_and_free<P: Platform>(yard: &Yard<P>, frame: Pfn) -> Result<(), TaskError> {
    // SAFETY: the frame was pinned here, its only user goes, and then this function has it alone.
    unsafe {
        if let Some(page) = yard.counted().page(frame) {
            let _ = page.unpin_many(1);
        }
        Ok(yard.counted().free(frame, Order::ZERO)?)
    }
}

/// Takes the frames that are never freed out of `all`: the first `number` single ones there of every fourth pageblock.
fn choose_kept(all: &mut Vec<Place>, pageblock_order: Order, number: u32) -> Vec<Pfn> {
    let mut kept_of_pageblock = HashMap::<u64, u32>::new();
    let is_kept = |place: &mut Place| {
        let Some(frame) = place.frame().filter(|_| place.order() == Order::ZERO) else { return false };
        let pageblock = frame.0 >> pageblock_order.0;
        let kept = kept_of_pageblock.entry(pageblock).or_default();
        let is_kept = pageblock.is_multiple_of(KEEPING) && *kept < number;
        *kept += u32::from(is_kept);
        is_kept
    };
    all.extract_if(.., is_kept).filter_map(Place::frame).collect()
}

/// The frames of all blocks.
fn frames_of(places: &[Place]) -> u64 {
    places.iter().filter(|place| place.frame().is_some()).map(|place| place.order().pages().0).sum()
}

/// Parts of blocks, one for each task, as equal as possible.
fn chunks(places: &[Place], tasks: NonZeroU32) -> impl Iterator<Item = &[Place]> {
    places.chunks(places.len().div_ceil(tasks.get() as usize).max(1))
}

/// The pageblocks of the yard, and those without a held frame.
fn count_pageblocks<P: Platform>(yard: &Yard<P>, held: &[Mutex<Held>], kept: &[Pfn]) -> (u64, u64) {
    let order = yard.geometry().pageblock_order();
    let pageblocks = yard.stats().managed_pages().0 >> order.0;
    let mut in_use: HashSet<u64> = kept.iter().map(|frame| frame.0 >> order.0).collect();
    for held in held {
        for place in &lock(held).places {
            let Some(first) = place.frame() else { continue };
            let last = first.0 + place.order().pages().0 - 1;
            in_use.extend(first.0 >> order.0..=last >> order.0);
        }
    }
    (pageblocks, pageblocks.saturating_sub(in_use.len() as u64))
}

/// Whole pageblocks on free lists and in bits.
fn whole_pageblocks<P: Platform>(yard: &Yard<P>) -> u64 {
    let geometry = yard.geometry();
    let pageblock = geometry.pageblock_order().0;
    let of_zone = |id| {
        let zone = yard.zone(id);
        let of_type = |migrate_type| {
            let blocks = |order| zone.free_blocks(order, migrate_type) + zone.blocks_in_bits(order, migrate_type);
            (pageblock..=geometry.max_order().0).map(|order| blocks(Order(order)) << (order - pageblock)).sum::<u64>()
        };
        MigrateType::ALL.into_iter().map(of_type).sum::<u64>()
    };
    yard.stats().zones().map(|zone| of_zone(zone.id)).sum()
}

/// The use of all zone locks.
fn zone_lock<P: Platform>(yard: &Yard<P>) -> LockUse {
    yard.stats().zones().fold(LockUse::default(), |lock, zone| zone.lock.and(lock))
}

#[cfg(test)]
mod tests {
    use frameyard::policy::ZonePolicy;
    use frameyard::{MemoryTable, NodeId, PageCount, PfnRange, YardConfig};
    use frameyard_host::{Backing, HostYard};

    use super::*;

    /// 64 MiB in one zone.
    fn yard(policy: ZonePolicy, host: &HostTopology) -> HostYard {
        let memory = [(PfnRange::new(Pfn(1 << 20), PageCount(1 << 14)), NodeId(0))];
        let cpus = vec![NodeId(0); host.allowed().as_slice().len().max(1)];
        let config = YardConfig { policy, ..YardConfig::new(&cpus) };
        let memory = MemoryTable { memory: &memory, ..MemoryTable::default() };
        HostYard::builder().backing(Backing::Phantom).machine(&memory, &config).host(host).build().unwrap()
    }

    #[test]
    fn all_policies_get_the_same_requests_and_those_that_fail_leave_their_places_empty() {
        let host = HostTopology::current().unwrap();
        // With a hundredth of memory free some requests fail; with most of it none does.
        for (free_percent, fails) in [(1, true), (90, false)] {
            let runs = [ZonePolicy::Vanilla, ZonePolicy::Bits].map(|policy| {
                let (yard, runner) = (yard(policy, &host), HostTasks::new(&host));
                let tasks = NonZeroU32::new(2).unwrap();
                let workload =
                    FragWorkload { tasks, free_percent, orders: BlockOrders::Mixed, kept_frames: 0, seed: 1 };
                let Fragmented { held, .. } = workload.fragment(yard.core(), &runner).unwrap();
                let (_, failed) = workload.replace(yard.core(), &runner, &held, 20_000).unwrap();
                assert_eq!(failed > 0, fails, "{}: {failed}", policy.name());
                let places: Vec<Place> = held.iter().flat_map(|held| lock(held).places.clone()).collect();
                let empty = places.iter().filter(|place| place.frame().is_none()).count();
                // Places that failed when memory was filled may be empty still.
                assert!((!fails || empty > 0) && empty <= places.len() / 2, "{}: {empty}", policy.name());
                places.iter().map(|place| place.order()).collect::<Vec<_>>()
            });
            assert_eq!(runs[0], runs[1]);
        }
    }

    fn single(frame: u64) -> Place {
        Place::new(Order::ZERO, Some(Pfn(frame)))
    }

    #[test]
    fn every_fourth_pageblock_keeps_its_first_single_frames() {
        // Three pageblocks of eight frames, of which the first and the last keep frames.
        let pair = Place::new(Order(1), Some(Pfn(6)));
        let mut all: Vec<Place> = [5, 3, 9, 4, 34, 33, 32, 35].map(single).into();
        all.insert(0, pair);
        all.insert(1, Place::new(Order::ZERO, None));
        let left = [&all[..2], &[9, 4, 32, 35].map(single)[..]].concat();
        assert_eq!(choose_kept(&mut all, Order(3), 2), [5, 3, 34, 33].map(Pfn));
        assert_eq!(all, left);
        assert_eq!(choose_kept(&mut all, Order(3), 0), []);
    }

    #[test]
    fn a_place_has_its_order_with_a_frame_and_without() {
        for order in [Order::ZERO, Order(8), Order(15)] {
            for frame in [None, Some(Pfn(0)), Some(Pfn((1 << 52) - 1))] {
                let place = Place::new(order, frame);
                assert_eq!((place.order(), place.frame()), (order, frame));
            }
        }
    }

    #[test]
    fn mixed_orders_have_equal_shares_of_the_bytes() {
        let mut rng = Rng::with_seed(1);
        let mut frames = [0_u64; 9];
        for _ in 0..511 << 10 {
            let order = BlockOrders::Mixed.draw(&mut rng);
            frames[order.0 as usize] += order.pages().0;
        }
        // 2^18 frames each; of order 8 there are about 1024 blocks.
        for (order, frames) in frames.iter().enumerate() {
            assert!((0.85..1.15).contains(&(*frames as f64 / f64::from(1 << 18))), "order {order}: {frames}");
        }
        assert_eq!(BlockOrders::Single.draw(&mut rng), Order::ZERO);
    }

    #[test]
    fn blocks_are_kept_up_to_a_number_of_frames() {
        let places = [2, 0, 8].map(|order| Place::new(Order(order), None));
        assert_eq!(frames_of(&places), 0);
        assert_eq!(frames_of(&[single(7), Place::new(Order(3), Some(Pfn(8))), places[0]]), 9);
        assert_eq!([0, 4, 5, 260, 261].map(|frames| blocks_within(&places, frames)), [0, 1, 2, 2, 3]);
    }
}
