//! Contiguous ranges out of memory that is in use: what moves away, what is named when it cannot, and what is undone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::busy_yard::{FIRST, Made, PAGES, ZONE, assert_same_shape, at, fill, geometry, made, memory, shape};
use crate::fixture::random::Random;
use crate::fixture::{Fixture, Frames, Moment, STORES, run_on};
use crate::movers::{KIND, Movers};
use frameyard::AllocError;
use frameyard::boot::{InitMode, MapInit, MovableMemory, Poisoning, ZoneLimits};
use frameyard::compaction::{CompactEffort, CompactRequest};
use frameyard::contig::BlockedBy;
use frameyard::owners::{Block, FrameOwner, MigrateMode, MigrateProblem, OwnerKind, Owners, Ownership};
use frameyard::page::{Counts, FrameState};
use frameyard::platform::LockId;
use frameyard::{
    ByteSize, CpuId, Geometry, Gfp, MemoryTable, MigrateType, NodeId, Order, PageCount, Pfn, PfnRange, YardConfig,
};

#[test]
fn busy_range_is_emptied_and_contents_survive() {
    for policy in STORES {
        for poisoning in [Poisoning::Off, Poisoning::On] {
            let yard = made(&Made { poisoning, policy, ..Made::default() });
            let movers = Movers::new(&yard);
            let owners = Owners::NONE.with(KIND, &movers);
            fill(&yard, &movers, &mut Random::new(1), 40);
            let free = yard.stats().free_pages();
            for range in [at(0, 1024), at(1100, 3), at(1300, 777), at(0xfff, 1)] {
                assert_eq!(yard.request(range, Gfp::KERNEL).owners(&owners).range(), Ok(range));
                yard.validate().unwrap();
            }
            assert!(movers.moved.load(Ordering::Relaxed) > 0, "something was in the way");
            assert_eq!(yard.stats().free_pages(), free - PageCount(1024 + 3 + 777 + 1));
            assert_eq!(yard.zone(ZONE).pageblocks(MigrateType::Isolate), 0);
            movers.check_all();
            for range in [at(0, 1024), at(1100, 3), at(1300, 777), at(0xfff, 1)] {
                yard.free_range(range).unwrap();
            }
            movers.give_all_back();
        }
    }
}

#[test]
fn partly_isolated_free_block_splits_by_type() {
    let geometry = Geometry::new(ByteSize::kib(4), ByteSize::mib(4), Order(2), Order(4)).unwrap();
    let memory = [(PfnRange::new(FIRST, PageCount(1024)), NodeId(0))];
    let cpus = [NodeId(0)];
    let config = YardConfig { geometry, zone_limits: ZoneLimits::NONE, ..YardConfig::new(&cpus) };
    let yard = Fixture::new(&MemoryTable { memory: &memory, ..MemoryTable::default() }, &config, Frames::Phantom);
    let block = yard.alloc(Order(3), Gfp::HIGHUSER_MOVABLE).unwrap();
    yard.free(block, Order(3)).unwrap();
    let range = PfnRange::new(block, PageCount(1));
    assert_eq!(yard.request(range, Gfp::KERNEL).owners(&Owners::NONE).range(), Ok(range));
    yard.validate().unwrap();
    yard.free_range(range).unwrap();
}

#[test]
fn gigantic_page_at_run_time() {
    for policy in STORES {
        let pages = 3 << 18;
        let memory = [(PfnRange::new(Pfn(1 << 18), PageCount(pages)), NodeId(0))];
        let movable = MovableMemory::Percent(100);
        let cpus = [NodeId(0)];
        let config = YardConfig { movable, zone_limits: ZoneLimits::NONE, policy, ..YardConfig::new(&cpus) };
        let yard = Fixture::new(&MemoryTable { memory: &memory, ..MemoryTable::default() }, &config, Frames::Phantom);
        let movers = Movers::new(&yard);
        let owners = Owners::NONE.with(KIND, &movers);
        let mut random = Random::new(2);
        let names: Vec<u64> = (0..pages / 10 * 9).map(|_| movers.take(Order::ZERO).unwrap()).collect();
        names.iter().filter(|_| random.below(2) == 0).for_each(|name| assert!(movers.give_back(*name)));
        let huge = yard
            .request(Order(18), Gfp::HIGHUSER_MOVABLE)
            .aligned(Order(18))
            .node(NodeId(0))
            .owners(&owners)
            .range()
            .unwrap();
        assert_eq!(huge, PfnRange::new(Pfn(1 << 18), PageCount(1 << 18)));
        let moved = movers.moved.load(Ordering::Relaxed);
        assert!(moved > 50_000, "too few frames moved: {moved}");
        yard.validate().unwrap();
        // Pinned memory is named.
        yard.free_range(huge).unwrap();
        let pinned: Vec<u64> = (0..3).map(|_| movers.take(Order::ZERO).unwrap()).collect();
        pinned.iter().for_each(|name| movers.pin(*name));
        let range = PfnRange::new(movers.place_of(pinned[1]).align_down(Order(18)), PageCount(1 << 18));
        let blocked = yard.request(range, Gfp::HIGHUSER_MOVABLE).owners(&owners).range().unwrap_err();
        let AllocError::Blocked(blocker) = blocked else { panic!("{blocked}") };
        assert_eq!((blocker.why, blocker.owner, blocker.state), (BlockedBy::Pinned, KIND, FrameState::Counted));
        assert!(pinned.iter().any(|name| movers.place_of(*name) == blocker.pfn));
        yard.validate().unwrap();
        pinned.iter().for_each(|name| movers.unpin(*name));
        movers.give_all_back();
    }
}

#[test]
fn unmovable_block_is_reported_and_isolation_undone() {
    let yard = made(&Made { reserved: &[at(2048, 5)], ..Made::default() });
    let movers = Movers::new(&yard);
    let owners = Owners::NONE.with(KIND, &movers);
    fill(&yard, &movers, &mut Random::new(3), 30);
    let kernel = yard.alloc(Order(1), Gfp::KERNEL).unwrap();
    let owned = yard.frames(Order::ZERO, Gfp::KERNEL).unwrap();
    let pinned = movers.take(Order::ZERO).unwrap();
    movers.pin(pinned);
    let strange = yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap();
    let counts = Counts { references: 1, mappings: 0 };
    yard.counted().init_refs(strange, Order::ZERO, Ownership { counts, owner: 9, index: 0 }).unwrap();
    let before = shape(&yard);
    let around = |pfn: Pfn| PfnRange { start: Pfn(pfn.0 - 70).max(FIRST), end: Pfn(pfn.0 + 70).min(memory().end) };
    let place = movers.place_of(pinned);
    let none = OwnerKind::NONE;
    for (pfn, why, owner, state) in [
        (kernel, BlockedBy::Unmovable, none, FrameState::Allocated),
        (owned.pfn(), BlockedBy::Unmovable, none, FrameState::Owned),
        (place, BlockedBy::Pinned, KIND, FrameState::Counted),
        (strange, BlockedBy::Unmovable, OwnerKind(9), FrameState::Counted),
        (at(2048, 1).start, BlockedBy::Reserved, none, FrameState::Reserved),
    ] {
        // More of the four may lie nearby: a range of one frame has one answer.
        let alone = PfnRange::new(pfn, PageCount(1));
        let Err(AllocError::Blocked(blocker)) = yard.request(alone, Gfp::KERNEL).owners(&owners).range() else {
            panic!("{pfn} is in the way")
        };
        assert_eq!((blocker.pfn, blocker.why, blocker.owner, blocker.state), (pfn, why, owner, state));
        let wide = yard.request(around(pfn), Gfp::KERNEL).owners(&owners).range();
        assert!(matches!(wide, Err(AllocError::Blocked(_))), "{wide:?}");
        yard.validate().unwrap();
        assert_same_shape(&before, &shape(&yard));
        movers.check_all();
    }
    movers.unpin(pinned);
    assert_eq!(
        yard.request(PfnRange::new(place, PageCount(1)), Gfp::KERNEL).owners(&owners).range().unwrap().start,
        place
    );
    yard.free_range(PfnRange::new(place, PageCount(1))).unwrap();
    // SAFETY: this test has the block alone.
    let page = unsafe { yard.counted().page(strange) }.unwrap();
    assert_eq!(page.put(), Ok(0));
    // SAFETY: this thread put the last reference.
    unsafe { yard.counted().free(strange, Order::ZERO) }.unwrap();
    yard.free(kernel, Order(1)).unwrap();
    drop(owned);
    movers.give_all_back();
}

#[test]
fn invalid_ranges_are_refused() {
    let yard = made(&Made { frames: Frames::Phantom, ..Made::default() });
    let take = |range, gfp| yard.request(range, gfp).owners(&Owners::NONE).range();
    assert_eq!(take(at(5, 0), Gfp::KERNEL), Err(AllocError::Empty));
    let both = Gfp::MOVABLE | Gfp::RECLAIMABLE;
    assert_eq!(take(at(5, 1), both), Err(AllocError::BadFlags(both)));
    assert_eq!(take(at(5, 1), Gfp::ZERO), Err(AllocError::NoFrameBytes(at(5, 1).start)));
    for range in [at(PAGES - 3, 9), PfnRange::new(Pfn(u64::MAX - 9), PageCount(3))] {
        let Err(AllocError::Blocked(blocker)) = take(range, Gfp::KERNEL) else { panic!("{range} has a hole") };
        assert_eq!(blocker.why, BlockedBy::Hole);
        assert_eq!(blocker.pfn, range.start.max(memory().end.min(range.end)));
    }
    let search = |count, align, node| {
        yard.request(PageCount(count), Gfp::KERNEL)
            .aligned(Order(align))
            .node(NodeId(node))
            .owners(&Owners::NONE)
            .range()
    };
    assert_eq!(search(3, 0, 1), Err(AllocError::NoSuchNode(NodeId(1))));
    assert_eq!(search(0, 0, 0), Err(AllocError::Empty));
    for (count, align) in [(PAGES + 1, 0), (1, 40), (u64::MAX, 0), (1, 255)] {
        let refused = AllocError::NoPlace { count: PageCount(count), align: Order(align) };
        assert_eq!(search(count, align, 0), Err(refused));
    }
    assert_eq!(search(PAGES, 0, 0), Ok(memory()));
    yard.free_range(memory()).unwrap();
}

#[test]
fn zones_are_not_mixed() {
    let cpus = [NodeId(0)];
    let limits = ZoneLimits { dma: frameyard::units::PhysAddr(0x1_0000 << 4), ..ZoneLimits::NONE };
    let config = YardConfig { geometry: geometry(), zone_limits: limits, ..YardConfig::new(&cpus) };
    let memory = [(PfnRange { start: Pfn(0), end: Pfn(1024) }, NodeId(0))];
    let yard = Fixture::new(&MemoryTable { memory: &memory, ..MemoryTable::default() }, &config, Frames::Phantom);
    let both = PfnRange { start: Pfn(200), end: Pfn(300) };
    assert_eq!(yard.request(both, Gfp::KERNEL).owners(&Owners::NONE).range(), Err(AllocError::NotOneZone(both)));
    let low = PfnRange { start: Pfn(200), end: Pfn(256) };
    assert_eq!(yard.request(low, Gfp::KERNEL).owners(&Owners::NONE).range(), Ok(low));
    yard.free_range(low).unwrap();
}

#[test]
fn search_continues_above_shared_pageblock() {
    let cpus = [NodeId(0)];
    let limits = ZoneLimits { dma: frameyard::units::PhysAddr(290 << 12), ..ZoneLimits::NONE };
    let config = YardConfig { geometry: geometry(), zone_limits: limits, ..YardConfig::new(&cpus) };
    let memory = [(PfnRange { start: Pfn(0), end: Pfn(1024) }, NodeId(0))];
    let yard = Fixture::new(&MemoryTable { memory: &memory, ..MemoryTable::default() }, &config, Frames::Phantom);
    for (count, start) in [(20, 320), (64, 340), (100, 404)] {
        let found =
            yard.request(PageCount(count), Gfp::KERNEL).aligned(Order(0)).node(NodeId(0)).owners(&Owners::NONE).range();
        assert_eq!(found, Ok(PfnRange::new(Pfn(start), PageCount(count))), "the pageblock at 256 is of both zones");
    }
    for (count, start) in [(20, 320), (64, 340), (100, 404)] {
        yard.free_range(PfnRange::new(Pfn(start), PageCount(count))).unwrap();
    }
    let whole = PageCount(1024 - 320);
    let found = yard.request(whole, Gfp::KERNEL).aligned(Order(0)).node(NodeId(0)).owners(&Owners::NONE).range();
    assert_eq!(found, Ok(PfnRange::new(Pfn(320), whole)));
    yard.free_range(found.unwrap()).unwrap();
    let more = yard
        .request(PageCount(1024 - 300), Gfp::KERNEL)
        .aligned(Order(0))
        .node(NodeId(0))
        .owners(&Owners::NONE)
        .range();
    assert!(matches!(more, Err(AllocError::NotOneZone(_))), "{more:?}");
}

#[test]
fn owners_that_refuse_at_random_lose_nothing() {
    let yard = made(&Made::default());
    let movers = Movers::new(&yard);
    let owners = Owners::NONE.with(KIND, &movers);
    let mut random = Random::new(4);
    fill(&yard, &movers, &mut random, 70);
    let mut made = 0;
    for refuse in [0, 2, 3, 7] {
        movers.refuse_isolate.store(refuse, Ordering::Relaxed);
        movers.refuse_migrate.store(refuse, Ordering::Relaxed);
        for _ in 0..20 {
            let range = at(random.below(PAGES - 600), 1 + random.below(600));
            let before = shape(&yard);
            match yard.request(range, Gfp::KERNEL).owners(&owners).range() {
                Ok(range) => {
                    made += 1;
                    yard.free_range(range).unwrap();
                }
                Err(problem) => assert!(matches!(problem, AllocError::Blocked(_)), "{problem}"),
            }
            yard.validate().unwrap();
            assert_same_shape(&before, &shape(&yard));
        }
        movers.check_all();
    }
    assert!(made > 20, "{made} were made");
    movers.give_all_back();
}

#[test]
fn missing_target_memory_is_reported() {
    let yard = made(&Made::default());
    let movers = Movers::new(&yard);
    let owners = Owners::NONE.with(KIND, &movers);
    while movers.take(Order::ZERO).is_ok() {}
    let before = shape(&yard);
    let full = yard.request(at(0, 512), Gfp::KERNEL).owners(&owners).range();
    let Err(AllocError::Blocked(blocker)) = full else { panic!("{full:?}") };
    assert_eq!((blocker.why, blocker.owner), (BlockedBy::OutOfMemory, KIND));
    let searched = yard.request(PageCount(512), Gfp::KERNEL).aligned(Order(8)).node(NodeId(0)).owners(&owners).range();
    assert!(matches!(searched, Err(AllocError::Blocked(blocker)) if blocker.why == BlockedBy::OutOfMemory));
    yard.validate().unwrap();
    assert_same_shape(&before, &shape(&yard));
    movers.check_all();
    movers.give_all_back();
}

#[test]
fn a_search_skips_blocks_that_cannot_move() {
    for policy in STORES {
        let yard = made(&Made { reserved: &[at(300, 1), at(2000, 1)], policy, ..Made::default() });
        let movers = Movers::new(&yard);
        let owners = Owners::NONE.with(KIND, &movers);
        fill(&yard, &movers, &mut Random::new(5), 50);
        let found = yard
            .request(PageCount(1000), Gfp::KERNEL)
            .aligned(Order(8))
            .node(NodeId(0))
            .owners(&owners)
            .range()
            .unwrap();
        assert_eq!(found, at(512, 1000));
        movers.check_all();
        yard.free_range(found).unwrap();
        movers.give_all_back();
    }
}

#[test]
fn range_initialises_deferred_memory() {
    for mode in [InitMode::Lazy, InitMode::Deferred] {
        let map_init = MapInit { mode, ..MapInit::default() };
        let yard = made(&Made { map_init, reserved: &[at(700, 3)], ..Made::default() });
        let movers = Movers::new(&yard);
        let owners = Owners::NONE.with(KIND, &movers);
        let refused = yard.request(at(600, 200), Gfp::KERNEL).owners(&owners).range().unwrap_err();
        assert!(matches!(refused, AllocError::Blocked(blocker) if blocker.why == BlockedBy::Reserved));
        let found = yard
            .request(PageCount(1500), Gfp::KERNEL)
            .aligned(Order(2))
            .node(NodeId(0))
            .owners(&owners)
            .range()
            .unwrap();
        assert_eq!(found, at(704, 1500));
        yard.validate().unwrap();
        yard.free_range(found).unwrap();
        yard.init().finish().unwrap();
        yard.validate().unwrap();
    }
}

/// Frees a block when the next one is requested.
struct FreesAnother<'y> {
    movers: Movers<'y>,
    yard: &'y Fixture,
    block: Block,
}

impl FrameOwner for FreesAnother<'_> {
    fn isolate(&self, block: Block, mode: MigrateMode) -> Result<(), MigrateProblem> {
        self.movers.isolate(block, mode)?;
        self.yard.free(self.block.pfn, self.block.order).unwrap();
        Ok(())
    }

    fn migrate(&self, from: Block, to: Pfn, mode: MigrateMode) -> Result<(), MigrateProblem> {
        self.movers.migrate(from, to, mode)
    }

    fn put_back(&self, block: Block) {
        self.movers.put_back(block);
    }
}

/// Refuses to isolate one block.
pub(crate) struct RefusesOne<'y> {
    pub(crate) movers: Movers<'y>,
    pub(crate) block: Pfn,
    pub(crate) problem: MigrateProblem,
}

impl FrameOwner for RefusesOne<'_> {
    fn isolate(&self, block: Block, mode: MigrateMode) -> Result<(), MigrateProblem> {
        if block.pfn == self.block { Err(self.problem) } else { self.movers.isolate(block, mode) }
    }

    fn migrate(&self, from: Block, to: Pfn, mode: MigrateMode) -> Result<(), MigrateProblem> {
        self.movers.migrate(from, to, mode)
    }

    fn put_back(&self, block: Block) {
        self.movers.put_back(block);
    }
}

#[test]
fn blocks_isolated_before_one_that_stays_go_back_to_their_owner() {
    let yard = made(&Made::default());
    let movers = Movers::new(&yard);
    let names: Vec<u64> = (0..40).map(|_| movers.take(Order::ZERO).unwrap()).collect();
    let places: Vec<Pfn> = names.iter().map(|name| movers.place_of(*name)).collect();
    let owner = RefusesOne { movers, block: places[39], problem: MigrateProblem::Unmovable };
    let range = PfnRange { start: places[0], end: Pfn(places[39].0 + 1) };
    let outcome = yard.request(range, Gfp::KERNEL).owners(&Owners::NONE.with(KIND, &owner)).range();
    let Err(AllocError::Blocked(blocker)) = outcome else { panic!("{outcome:?}") };
    assert_eq!((blocker.pfn, blocker.why), (places[39], BlockedBy::Unmovable));
    assert!(owner.movers.isolated.load(Ordering::Relaxed) > 0);
    owner.movers.check_all();
    yard.validate().unwrap();
    owner.movers.give_all_back();
}

#[test]
fn pinned_block_is_reported_before_busy_one() {
    let yard = made(&Made::default());
    let movers = Movers::new(&yard);
    let names = [movers.take(Order::ZERO).unwrap(), movers.take(Order::ZERO).unwrap()];
    let [busy, pinned] = names.map(|name| movers.place_of(name));
    assert!(busy < pinned, "frames come out in ascending order");
    movers.pin(names[1]);
    let owner = RefusesOne { movers, block: busy, problem: MigrateProblem::Busy };
    let range = PfnRange { start: busy, end: Pfn(pinned.0 + 1) };
    let outcome = yard.request(range, Gfp::KERNEL).owners(&Owners::NONE.with(KIND, &owner)).range();
    let Err(AllocError::Blocked(blocker)) = outcome else { panic!("{outcome:?}") };
    assert_eq!((blocker.pfn, blocker.why), (pinned, BlockedBy::Pinned));
    owner.movers.unpin(names[1]);
    owner.movers.give_all_back();
}

#[test]
fn partly_isolated_block_frees_to_both_lists() {
    let yard = made(&Made::default());
    let movers = Movers::new(&yard);
    // A block with a maximum-order block before it, whose last pageblock will be isolated.
    let mut before = Vec::new();
    let name = loop {
        let name = movers.take(Order::ZERO).unwrap();
        if movers.place_of(name).0 >= FIRST.0 + 256 {
            break name;
        }
        before.push(name);
    };
    before.into_iter().for_each(|name| assert!(movers.give_back(name)));
    yard.drain_all();
    let counted = movers.place_of(name);
    let whole = PfnRange::new(Pfn(counted.align_down(Order(8)).0 - 256), PageCount(256));
    yard.request(whole, Gfp::HIGHUSER_MOVABLE).range().unwrap();
    let block = Block { pfn: whole.start, order: Order(8) };
    let frees = FreesAnother { movers, yard: &yard, block };
    let owners = Owners::NONE.with(KIND, &frees);
    let range = PfnRange { start: Pfn(whole.end.0 - 3), end: Pfn(counted.0 + 1) };
    let before = yard.stats().free_pages();
    assert_eq!(yard.request(range, Gfp::KERNEL).owners(&owners).range(), Ok(range));
    yard.validate().unwrap();
    assert_eq!(yard.stats().free_pages(), before + PageCount(256) - range.count());
    yard.free_range(range).unwrap();
    frees.movers.give_all_back();
}

#[test]
fn late_free_into_isolated_range_is_collected() {
    let yard = made(&Made::default());
    let late = yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap();
    let (about_to_free, isolated) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (freeing, waiting) = (about_to_free.clone(), isolated.clone());
    let lists = LockId::PerCpu(ZONE, CpuId(1));
    yard.watch().spy_with(move |moment| match moment {
        // It has read the pageblock's type, and puts the frame on a list of its CPU next.
        Moment::TryLock(id) if id == lists && !freeing.swap(true, Ordering::SeqCst) => {
            while !waiting.load(Ordering::SeqCst) {
                thread::yield_now();
            }
        }
        _ => {}
    });
    thread::scope(|scope| {
        let (yard, about_to_free, isolated) = (&yard, &about_to_free, &isolated);
        scope.spawn(move || {
            run_on(1);
            yard.free(late, Order::ZERO).unwrap();
        });
        scope.spawn(move || {
            while yard.zone(ZONE).pageblocks(MigrateType::Isolate) == 0 {
                thread::yield_now();
            }
            isolated.store(true, Ordering::SeqCst);
        });
        while !about_to_free.load(Ordering::SeqCst) {
            thread::yield_now();
        }
        let range = PfnRange::new(late, PageCount(1));
        assert_eq!(yard.request(range, Gfp::KERNEL).owners(&Owners::NONE).range(), Ok(range));
        yard.free_range(range).unwrap();
    });
    yard.watch().calm();
}

#[test]
fn concurrent_operations_on_a_range() {
    let yard = made(&Made::default());
    let movers = Movers::new(&yard);
    movers.refuse_isolate.store(50, Ordering::Relaxed);
    movers.refuse_migrate.store(50, Ordering::Relaxed);
    // Reporting discards the bytes, so the frames must be free meanwhile.
    yard.watch().return_with(|_| Ok(()));
    let owners = Owners::NONE.with(KIND, &movers);
    let done = AtomicBool::new(false);
    let made = thread::scope(|scope| {
        for cpu in 0..2u32 {
            let (yard, movers, done) = (&yard, &movers, &done);
            scope.spawn(move || {
                run_on(cpu);
                let mut random = Random::new(100 + u64::from(cpu));
                let (mut names, mut plain) = (Vec::new(), Vec::new());
                while !done.load(Ordering::Relaxed) {
                    match random.below(8) {
                        0..4 if names.len() < 700 => names.extend(movers.take(Order(random.below(4) as u8))),
                        4..6 if !names.is_empty() => {
                            let name = names.swap_remove(random.below(names.len() as u64) as usize);
                            if !movers.give_back(name) {
                                names.push(name);
                            }
                        }
                        6 => {
                            let order = Order(random.below(9) as u8);
                            plain.extend(yard.alloc(order, Gfp::HIGHUSER_MOVABLE).map(|pfn| (pfn, order)));
                        }
                        _ => plain.drain(..).for_each(|(pfn, order)| yard.free(pfn, order).unwrap()),
                    }
                }
                plain.into_iter().for_each(|(pfn, order)| yard.free(pfn, order).unwrap());
            });
        }
        scope.spawn(|| {
            run_on(4);
            let mut random = Random::new(300);
            while !done.load(Ordering::Relaxed) {
                yard.report_free_pages(Order(random.below(9) as u8), PageCount(random.below(500))).unwrap();
                yard.compaction().zone(ZONE, CompactRequest::WHOLE_ZONE, &owners);
                let wanted = CompactRequest::for_order(Order(6), CompactEffort::ALL[random.below(3) as usize]);
                yard.compaction().zone(ZONE, wanted, &owners);
            }
        });
        let takers: Vec<_> = (2..4u32)
            .map(|cpu| {
                let (yard, owners) = (&yard, &owners);
                scope.spawn(move || {
                    run_on(cpu);
                    let mut random = Random::new(200 + u64::from(cpu));
                    let mut made = 0;
                    // On a busy host a worker may stop for long with frames that cannot move.
                    for attempt in 0..6000 {
                        if attempt >= 150 && made > 0 {
                            break;
                        }
                        let range = at(random.below(PAGES - 300), 1 + random.below(300));
                        match yard.request(range, Gfp::KERNEL).owners(owners).range() {
                            Ok(range) => {
                                made += 1;
                                yard.free_range(range).unwrap();
                            }
                            Err(problem) => assert!(matches!(problem, AllocError::Blocked(_)), "{problem}"),
                        }
                    }
                    made
                })
            })
            .collect();
        let made: u64 = takers.into_iter().map(|taker| taker.join().unwrap()).sum();
        done.store(true, Ordering::Relaxed);
        made
    });
    assert!(made > 0, "some were made");
    yard.validate().unwrap();
    assert_eq!(yard.zone(ZONE).pageblocks(MigrateType::Isolate), 0);
    movers.check_all();
    movers.give_all_back();
}
