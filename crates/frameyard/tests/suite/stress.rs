//! Many threads on one yard: more than there are cores, on CPU ids that they share and that the yard does not have.
//!
//! Nothing here is timed; every thread does a fixed number of steps from a seed.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;

use crate::fixture::random::Random;
use crate::fixture::{Fixture, Frames, order};
use frameyard::alloc::FreeProblem;
use frameyard::boot::{Poisoning, ZoneLimits};
use frameyard::compaction::CompactRequest;
use frameyard::owners::Owners;
use frameyard::policy::ZonePolicy;
use frameyard::units::PhysAddr;
use frameyard::watermarks::{PcpSizing, WatermarkOptions};
use frameyard::{
    ByteSize, CpuId, Geometry, Gfp, MemoryTable, NodeId, Order, PageCount, Pfn, PfnRange, Platform, YardConfig, ZoneId,
};

/// The CPU ids that threads say they run on; the yard has three.
const CPU_IDS: [u32; 12] = [0, 0, 0, 1, 1, 2, 3, 7, 100, u32::MAX, 0, 5];
const FIRST: Pfn = Pfn(0x1003);
const PAGES: u64 = 11_000;
/// Node 1 begins in the middle of a pageblock.
const FIRST_NODE_PAGES: u64 = 7_001;

/// An allocated block, and the mark that its holder wrote to every frame of it.
#[derive(Clone, Copy)]
struct Block {
    pfn: Pfn,
    order: Order,
    mark: u32,
}

/// What all threads share.
struct Town {
    yard: Fixture,
    /// The holder of each frame; 0: free.
    owners: Vec<AtomicU32>,
    /// Blocks for the next thread to free.
    mailbox: Mutex<VecDeque<Block>>,
}

impl Town {
    fn new(poisoning: Poisoning, policy: ZonePolicy) -> Self {
        let nodes = [
            (PfnRange::new(FIRST, PageCount(FIRST_NODE_PAGES)), NodeId(0)),
            (PfnRange::new(FIRST + PageCount(FIRST_NODE_PAGES), PageCount(PAGES - FIRST_NODE_PAGES)), NodeId(1)),
        ];
        let cpus = [NodeId(0), NodeId(1), NodeId(0)];
        let zone_limits = ZoneLimits { dma: PhysAddr(0), dma32: PhysAddr(0x1900 << 12) };
        // Small pageblocks, so that there are enough of them to keep some for atomic requests.
        let geometry = Geometry::new(ByteSize::kib(4), ByteSize::mib(16), order(5), order(10)).unwrap();
        let config = YardConfig { geometry, zone_limits, poisoning, policy, ..YardConfig::new(&cpus) };
        let cma = [PfnRange::new(Pfn(0x2000), PageCount(0x400))];
        let reserved = [PfnRange::new(Pfn(0x1801), PageCount(3))];
        let table = MemoryTable { memory: &nodes, reserved: &reserved, cma: &cma };
        let yard = Fixture::new(&table, &config, Frames::Real);
        Self { yard, owners: (0..PAGES).map(|_| AtomicU32::new(0)).collect(), mailbox: Mutex::default() }
    }

    fn owner(&self, pfn: Pfn) -> &AtomicU32 {
        &self.owners[(pfn.0 - FIRST.0) as usize]
    }

    fn frames(block: Block) -> impl Iterator<Item = Pfn> {
        (0..block.order.pages().0).map(move |offset| block.pfn + PageCount(offset))
    }

    fn bytes(&self, pfn: Pfn) -> *mut u64 {
        self.yard.platform().frame_bytes(pfn).expect("a frame with memory").as_ptr().cast()
    }

    /// Enters an allocated block: no frame of it may have another holder.
    fn claim(&self, pfn: Pfn, order: Order, mark: u32) -> Block {
        let block = Block { pfn, order, mark };
        for frame in Self::frames(block) {
            let owner = self.owner(frame).swap(mark, Ordering::Relaxed);
            assert_eq!(owner, 0, "{frame} was allocated to {mark}, but {owner} holds it");
            // SAFETY: the frame is allocated to this thread.
            unsafe { self.bytes(frame).write(stamp(frame, mark)) };
        }
        block
    }

    /// Checks that a block kept its contents while it was held.
    fn disclaim(&self, block: Block) {
        for frame in Self::frames(block) {
            // SAFETY: this thread holds the block.
            let found = unsafe { self.bytes(frame).read() };
            assert_eq!(found, stamp(frame, block.mark), "another thread wrote to {frame}");
            assert_eq!(self.owner(frame).swap(0, Ordering::Relaxed), block.mark);
        }
    }

    fn free(&self, block: Block) {
        self.disclaim(block);
        self.yard.free(block.pfn, block.order).unwrap();
    }

    /// Frees the remaining blocks, and checks the whole yard.
    fn close(self) {
        crate::fixture::run_on(0);
        for block in self.mailbox.lock().unwrap().drain(..) {
            self.free(block);
        }
        assert!(self.owners.iter().all(|owner| owner.load(Ordering::Relaxed) == 0));
        assert_eq!(self.yard.stats().poison_hits(), 0);
    }
}

fn stamp(pfn: Pfn, mark: u32) -> u64 {
    pfn.0 << 32 | u64::from(mark)
}

fn gfp(random: &mut Random) -> Gfp {
    let kinds = [
        Gfp::KERNEL,
        Gfp::HIGHUSER_MOVABLE,
        Gfp::HIGHUSER_MOVABLE,
        Gfp::KERNEL | Gfp::RECLAIMABLE,
        Gfp::ATOMIC,
        Gfp::NOWAIT,
        Gfp::KERNEL | Gfp::NORETRY,
        Gfp::KERNEL | Gfp::DMA32,
        Gfp::KERNEL | Gfp::THISNODE,
    ];
    random.pick(&kinds) | Gfp::NOWARN
}

/// Allocates and frees blocks, and exchanges blocks with other workers.
struct Worker<'t> {
    town: &'t Town,
    random: Random,
    mark: u32,
    held: Vec<Block>,
}

impl Worker<'_> {
    fn work(mut self, steps: usize) {
        for step in 0..steps {
            if step % 64 == 63 {
                crate::fixture::run_on(self.random.pick(&CPU_IDS));
            }
            match self.random.below(100) {
                0..=39 => self.allocate(),
                40..=44 => self.split(),
                45..=49 => self.exact(),
                50..=54 => self.bulk(),
                55..=59 => self.guard(),
                60..=64 => self.free_part(),
                65..=79 => self.free_one(),
                80..=89 => self.hand_over(),
                _ => self.take_over(),
            }
            while self.held.len() > 48 {
                self.free_one();
            }
        }
        while !self.held.is_empty() {
            self.free_one();
        }
    }

    fn hold(&mut self, pfn: Pfn, order: Order) {
        let block = self.town.claim(pfn, order, self.mark);
        self.held.push(block);
    }

    fn allocate(&mut self) {
        let order = order(self.random.pick(&[0, 0, 0, 0, 1, 1, 2, 3, 4, 5, 7, 9, 10]));
        let gfp = gfp(&mut self.random);
        if let Ok(pfn) = self.town.yard.alloc(order, gfp) {
            self.hold(pfn, order);
        }
    }

    fn split(&mut self) {
        let order = order(self.random.pick(&[1, 3, 5]));
        if let Ok(pfn) = self.town.yard.alloc(order, gfp(&mut self.random)) {
            self.town.yard.split(pfn, order).unwrap();
            for offset in 0..order.pages().0 {
                self.hold(pfn + PageCount(offset), Order::ZERO);
            }
        }
    }

    fn exact(&mut self) {
        let count = PageCount(1 + self.random.below(90));
        if let Ok(mut range) = self.town.yard.request(count, gfp(&mut self.random)).range() {
            while let Some(order) = range.first_block(order(10)) {
                self.hold(range.start, order);
                range.start = range.start + order.pages();
            }
        }
    }

    fn bulk(&mut self) {
        let mut frames = [Pfn(0); 70];
        let gfp = gfp(&mut self.random);
        let got = self.town.yard.alloc_bulk(gfp, &mut frames).unwrap_or(0);
        for pfn in &frames[..got] {
            self.hold(*pfn, Order::ZERO);
        }
    }

    /// Divides a guard twice, and frees the middle and one end.
    fn guard(&mut self) {
        let count = 3 + self.random.below(90);
        let Ok(guard) = self.town.yard.frames(PageCount(count), gfp(&mut self.random)) else { return };
        let cut = 1 + self.random.below(count - 2);
        let (first, rest) = guard.split_at(PageCount(cut));
        let (middle, last) = rest.split_at(PageCount(self.random.below(count - cut)));
        drop(middle);
        let (kept, dropped) = if self.random.below(2) == 0 { (first, last) } else { (last, first) };
        drop(dropped);
        // The blocks of a part that begins inside a block are smaller than the largest that would fit.
        for pfn in kept.into_single_frames().map(|frame| frame.into_range().start) {
            self.hold(pfn, Order::ZERO);
        }
    }

    /// Frees some frames of a block, and then the others.
    fn free_part(&mut self) {
        let Some(block) = self.take_any() else { return };
        self.town.disclaim(block);
        let (start, end) = (block.pfn, block.pfn + block.order.pages());
        let first = start + PageCount(self.random.below(block.order.pages().0));
        let behind = first + PageCount(1 + self.random.below((end - first).0));
        let yard = &self.town.yard;
        yard.free_range(PfnRange { start: first, end: behind }).unwrap();
        yard.free_range(PfnRange { start, end: first }).unwrap();
        yard.free_range(PfnRange { start: behind, end }).unwrap();
    }

    fn take_any(&mut self) -> Option<Block> {
        let count = self.held.len() as u64;
        (count > 0).then(|| self.held.swap_remove(self.random.below(count) as usize))
    }

    fn free_one(&mut self) {
        if let Some(block) = self.take_any() {
            self.town.free(block);
        }
    }

    fn hand_over(&mut self) {
        if let Some(block) = self.take_any() {
            self.town.mailbox.lock().unwrap().push_back(block);
        }
    }

    fn take_over(&self) {
        let block = self.town.mailbox.lock().unwrap().pop_front();
        if let Some(block) = block {
            self.town.free(block);
        }
    }
}

/// Drains and resizes under the workers.
fn disturb(town: &Town, mut random: Random, steps: usize) {
    let yard = &town.yard;
    for _ in 0..steps {
        match random.below(8) {
            0 => yard.drain_all(),
            1 => yard.lists().drain_cpu(CpuId(random.below(4) as u32)),
            2 => yard.zone(ZoneId(random.below(11) as u16)).drain(),
            3 => yard.zone(ZoneId(random.below(11) as u16)).drain_cpu(CpuId(random.below(4) as u32)),
            4 => yard.lists().resize(PcpSizing::Fixed(random.below(700) as u32)),
            5 => yard.lists().resize(PcpSizing::Fixed(0)),
            6 => {
                let min_free_kbytes = Some(random.below(2000));
                let options = WatermarkOptions { min_free_kbytes, ..WatermarkOptions::default() };
                yard.lists().retune(&options, PcpSizing::Scaled).unwrap();
            }
            _ => {
                let info = yard.stats().frame(FIRST + PageCount(random.below(PAGES)));
                assert!(info.is_some() && yard.stats().zones().count() == 3);
            }
        }
        thread::yield_now();
    }
}

/// Requests ranges of frames while other threads allocate from them.
fn take_ranges(town: &Town, mut random: Random, mark: u32, steps: usize) {
    for _ in 0..steps {
        let start = FIRST + PageCount(random.below(PAGES));
        let range = PfnRange::new(start, PageCount(1 + random.below(60)));
        let Ok(taken) = town.yard.request(range, Gfp::HIGHUSER_MOVABLE).range() else { continue };
        let mut blocks = Vec::new();
        let mut rest = taken;
        while let Some(order) = rest.first_block(order(10)) {
            blocks.push(town.claim(rest.start, order, mark));
            rest.start = rest.start + order.pages();
        }
        for block in blocks {
            town.disclaim(block);
        }
        town.yard.free_range(taken).unwrap();
    }
}

/// Changes the policy under the workers, isolates ranges and compacts.
fn change_policies(town: &Town, mut random: Random, policies: &[ZonePolicy], steps: usize) {
    let yard = &town.yard;
    for _ in 0..steps {
        match random.below(4) {
            0 => yard.set_policy(random.pick(policies)).unwrap(),
            1 => {
                let zone = ZoneId(random.below(11) as u16);
                yard.compaction().zone(zone, CompactRequest::WHOLE_ZONE, &Owners::NONE);
            }
            2 => {
                let start = FIRST + PageCount(random.below(PAGES));
                let range = PfnRange::new(start, PageCount(1 + random.below(100)));
                if let Ok(taken) = yard.request(range, Gfp::HIGHUSER_MOVABLE).owners(&Owners::NONE).range() {
                    yard.free_range(taken).unwrap();
                }
            }
            // Lists large enough for batches.
            _ => yard.lists().resize(PcpSizing::Fixed(20 + random.below(300) as u32)),
        }
        thread::yield_now();
    }
}

/// Many threads at work while policies change.
pub(crate) fn live_under(policies: &[ZonePolicy], steps: usize) {
    let town = Town::new(Poisoning::Off, policies[0]);
    thread::scope(|scope| {
        for (at, cpu) in CPU_IDS.into_iter().enumerate() {
            let worker = Worker { town: &town, random: Random::new(at as u64), mark: at as u32 + 1, held: Vec::new() };
            scope.spawn(move || {
                crate::fixture::run_on(cpu);
                worker.work(steps);
            });
        }
        scope.spawn(|| change_policies(&town, Random::new(200), policies, steps / 10));
        scope.spawn(|| take_ranges(&town, Random::new(101), 101, steps / 2));
    });
    town.close();
}

fn live(poisoning: Poisoning, steps: usize) {
    let town = Town::new(poisoning, ZonePolicy::default());
    thread::scope(|scope| {
        for (at, cpu) in CPU_IDS.into_iter().enumerate() {
            let worker = Worker { town: &town, random: Random::new(at as u64), mark: at as u32 + 1, held: Vec::new() };
            scope.spawn(move || {
                crate::fixture::run_on(cpu);
                worker.work(steps);
            });
        }
        scope.spawn(|| disturb(&town, Random::new(100), steps / 2));
        scope.spawn(|| take_ranges(&town, Random::new(101), 101, steps / 2));
        scope.spawn(|| take_ranges(&town, Random::new(102), 102, steps / 2));
    });
    town.close();
}

#[test]
fn threads_never_share_or_lose_frames() {
    live(Poisoning::Off, 40_000);
}

#[test]
fn free_frames_keep_their_poison_under_load() {
    live(Poisoning::On, 4_000);
}

/// How the losers of a race must be told.
fn is_told_that_it_is_free(problem: FreeProblem) -> bool {
    matches!(problem, FreeProblem::AlreadyFree(_))
}

#[test]
fn one_of_racing_frees_succeeds() {
    const RACERS: usize = 4;
    let yard = Fixture::small(3, 16 * 256);
    let mut random = Random::new(7);
    for round in 0..600 {
        crate::fixture::run_on(0);
        let orders = [0, 0, 0, 0, 1, 2, 3, 4, 5, 9].map(order);
        let allocate = |at: usize| (yard.alloc(orders[at % orders.len()], Gfp::HIGHUSER_MOVABLE), at % orders.len());
        let blocks: Vec<(Pfn, Order)> =
            (0..40).map(allocate).filter_map(|(pfn, at)| Some((pfn.ok()?, orders[at]))).collect();
        let wins: Vec<AtomicU32> = blocks.iter().map(|_| AtomicU32::new(0)).collect();
        yard.lists().resize(PcpSizing::Fixed(random.pick(&[0, 5, 60, 1000])));
        let barrier = Barrier::new(RACERS + 1);
        thread::scope(|scope| {
            for racer in 0..RACERS {
                let (yard, blocks, wins, barrier) = (&yard, &blocks, &wins, &barrier);
                scope.spawn(move || {
                    crate::fixture::run_on(racer as u32);
                    barrier.wait();
                    for step in 0..blocks.len() {
                        // Some go the other way.
                        let at = if (racer + round) % 3 == 0 { blocks.len() - 1 - step } else { step };
                        let (pfn, order) = blocks[at];
                        match yard.free(pfn, order) {
                            Ok(()) => _ = wins[at].fetch_add(1, Ordering::Relaxed),
                            Err(refused) => assert!(is_told_that_it_is_free(refused.problem), "{refused}"),
                        }
                    }
                });
            }
            scope.spawn(|| {
                barrier.wait();
                for _ in 0..8 {
                    yard.drain_all();
                    thread::yield_now();
                }
            });
        });
        assert!(wins.iter().all(|wins| wins.load(Ordering::Relaxed) == 1), "one free of each block succeeds");
    }
}

#[test]
fn running_out_of_memory_loses_nothing() {
    let town = Town::new(Poisoning::Off, ZonePolicy::default());
    let managed = town.yard.stats().managed_pages();
    let kinds = [
        Gfp::KERNEL,
        Gfp::KERNEL | Gfp::NORETRY,
        Gfp::ATOMIC,
        Gfp::HIGHUSER_MOVABLE,
        Gfp::HIGHUSER_MOVABLE | Gfp::ZERO,
        Gfp::KERNEL | Gfp::RECLAIMABLE | Gfp::THISNODE,
        Gfp::NOWAIT | Gfp::DMA32,
    ];
    for gfp in kinds {
        for order in [0, 1, 3, 4, 9, 10].map(order) {
            town.yard.drain_all();
            let held: Mutex<Vec<Block>> = Mutex::default();
            thread::scope(|scope| {
                for racer in 0..4 {
                    let (town, held) = (&town, &held);
                    scope.spawn(move || {
                        crate::fixture::run_on(racer);
                        while let Ok(pfn) = town.yard.alloc(order, gfp) {
                            let block = town.claim(pfn, order, racer + 1);
                            held.lock().unwrap().push(block);
                        }
                    });
                }
            });
            let held = held.into_inner().unwrap();
            assert!(!held.is_empty(), "{order}, {gfp}");
            let pages = PageCount(held.len() as u64 * order.pages().0);
            assert_eq!(town.yard.stats().free_pages() + pages, managed, "{order}, {gfp}");
            town.yard.validate().unwrap();
            thread::scope(|scope| {
                for (racer, share) in held.chunks(held.len().div_ceil(3)).enumerate() {
                    let town = &town;
                    scope.spawn(move || {
                        crate::fixture::run_on(2 * racer as u32);
                        share.iter().for_each(|block| town.free(*block));
                    });
                }
            });
            assert_eq!(town.yard.stats().free_pages(), managed);
        }
    }
    town.close();
}

#[test]
fn threads_share_free_frames_as_bits() {
    live_under(&[ZonePolicy::Bits], 20_000);
}
