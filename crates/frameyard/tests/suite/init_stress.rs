//! Threads use a yard while other threads initialise its memory map. No block is initialised twice, allocated twice, or
//! lost.
//!
//! The tests are not timed. Every thread does a fixed number of steps from a seed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;

use crate::fixture::random::Random;
use crate::fixture::{Fixture, Frames, MapWatch, order, run_on};
use crate::maps::{Machine, frames, give_back, machine, pages_at_rest, reference, take_everything};
use frameyard::boot::{InitError, InitJobs, InitMode, Initialiser, JobGranularity, MapInit, Poisoning, ZoneLimits};
use frameyard::page::MapContent;
use frameyard::platform::MapNotBacked;
use frameyard::units::PhysAddr;
use frameyard::{Gfp, NodeId, Order, PageCount, Pfn, PfnRange, YardConfig};

const FIRST: u64 = 0x1003;
const END: u64 = 0x5fed;

/// Two nodes that meet inside a block, a hole, reserved frames, two contiguous areas, three zones.
fn mixed_machine() -> Machine {
    let reserved = (0x1010..0x5f00).step_by(0x6b).map(|pfn| frames(pfn, pfn + 1 + pfn % 3));
    let cma = vec![frames(0x2400, 0x2480), frames(0x5000, 0x5040)];
    let kept = |range: &PfnRange| cma.iter().all(|area: &PfnRange| area.intersection(*range).is_empty());
    Machine {
        memory: vec![
            (frames(FIRST, 0x2a17), NodeId(0)),
            (frames(0x2c05, 0x3b33), NodeId(0)),
            (frames(0x3b33, END), NodeId(1)),
        ],
        reserved: reserved.filter(kept).collect(),
        cma,
        zone_limits: ZoneLimits { dma: PhysAddr(0), dma32: PhysAddr(0x1a45 << 12) },
        ..machine("holes")
    }
}

/// The yard, and the thread that holds each frame. 0: free.
struct SharedYard {
    yard: Fixture,
    owners: Vec<AtomicU32>,
}

impl SharedYard {
    fn owners(&self, range: PfnRange) -> &[AtomicU32] {
        &self.owners[(range.start.0 - FIRST) as usize..(range.end.0 - FIRST) as usize]
    }

    fn claim(&self, range: PfnRange, mark: u32) {
        for owner in self.owners(range) {
            let before = owner.swap(mark, Ordering::Relaxed);
            assert_eq!(before, 0, "{range} was allocated to {mark}, but {before} holds a frame of it");
        }
    }

    fn free(&self, range: PfnRange, mark: u32) {
        self.owners(range).iter().for_each(|owner| assert_eq!(owner.swap(0, Ordering::Relaxed), mark));
        self.yard.free_range(range).unwrap();
    }

    /// Allocates and frees. The first half of the steps holds more frames, so the yard must grow.
    fn work(&self, mut random: Random, mark: u32, steps: u64) {
        let kinds = [
            Gfp::KERNEL,
            Gfp::HIGHUSER_MOVABLE,
            Gfp::HIGHUSER_MOVABLE,
            Gfp::KERNEL | Gfp::RECLAIMABLE,
            Gfp::ATOMIC,
            Gfp::KERNEL | Gfp::THISNODE,
            Gfp::HIGHUSER_MOVABLE | Gfp::DMA32,
        ];
        let mut held: Vec<PfnRange> = Vec::new();
        for step in 0..steps {
            if step % 64 == 0 {
                run_on(random.below(6) as u32);
            }
            let gfp = random.pick(&kinds) | Gfp::NOWARN;
            let got = match random.below(10) {
                0..=4 => {
                    let at = order(random.pick(&[0, 0, 0, 1, 2, 3, 4, 5]));
                    self.yard.alloc(at, gfp).map(|pfn| vec![PfnRange::new(pfn, at.pages())])
                }
                5 => self.yard.request(Order::ZERO, gfp).node(NodeId(random.below(2) as u16)).frame().map(single),
                6 => self.yard.request(PageCount(1 + random.below(32)), gfp).range().map(|range| vec![range]),
                7 => {
                    let mut some = [Pfn(0); 40];
                    let got = self.yard.alloc_bulk(gfp, &mut some);
                    got.map(|got| some[..got].iter().flat_map(|pfn| single(*pfn)).collect())
                }
                _ => Ok(Vec::new()),
            };
            for range in got.unwrap_or_default() {
                self.claim(range, mark);
                held.push(range);
            }
            let limit = if step < steps / 2 { 400 } else { 40 };
            while held.len() > limit || (random.below(3) == 0 && !held.is_empty()) {
                let at = random.below(held.len() as u64) as usize;
                self.free(held.swap_remove(at), mark);
            }
        }
        held.into_iter().for_each(|range| self.free(range, mark));
    }

    /// Requests or initialises ranges of frames by number.
    fn pick_ranges(&self, mut random: Random, mark: u32, steps: u64) {
        for _ in 0..steps {
            let start = Pfn(FIRST + random.below(END - FIRST - 80));
            let range = PfnRange::new(start, PageCount(1 + random.below(80)));
            if random.below(4) == 0 {
                match self.yard.init().range(range) {
                    Ok(freed) => assert!(freed.0 <= range.count().0 + 64),
                    Err(InitError::AlreadyInitialised(_) | InitError::OutsideMap(_) | InitError::MapNotBacked(_)) => {}
                    Err(other) => panic!("{other}"),
                }
            } else if let Ok(taken) = self.yard.request(range, Gfp::HIGHUSER_MOVABLE).range() {
                self.claim(taken, mark);
                thread::yield_now();
                self.free(taken, mark);
            }
            let _ = self.yard.stats().frame(start);
        }
    }
}

fn single(pfn: Pfn) -> Vec<PfnRange> {
    vec![PfnRange::new(pfn, PageCount(1))]
}

/// Runs all threads on one yard and compares the result with a yard that was initialised at creation.
fn run_threads(
    init: MapInit,
    poisoning: Poisoning,
    seed: u64,
    steps: u64,
    watch: Arc<MapWatch>,
    finish: impl Fn(&Fixture) + Sync,
) {
    let machine = mixed_machine();
    run_on(0);
    let expected = machine.create_yard(reference(init.content));
    let config = YardConfig { poisoning, ..machine.config(init) };
    let real = if poisoning == Poisoning::On { Frames::Real } else { Frames::Phantom };
    let yard = Fixture::watched(&machine.table(), &config, real, watch).expect("a yard");
    let shared = SharedYard { yard, owners: (FIRST..END).map(|_| AtomicU32::new(0)).collect() };
    thread::scope(|scope| {
        for mark in 1..=4 {
            let shared = &shared;
            scope.spawn(move || shared.work(Random::new(seed * 100 + u64::from(mark)), mark, steps));
        }
        scope.spawn(|| shared.pick_ranges(Random::new(seed * 100 + 50), 50, steps / 4));
        for node in [0, 1].map(NodeId) {
            let yard = shared.yard.attach();
            scope.spawn(move || {
                for _ in 0..20 {
                    match yard.init().next_section(node) {
                        Ok(_) | Err(InitError::MapNotBacked(_)) => thread::yield_now(),
                        Err(other) => panic!("{other}"),
                    }
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..seed % 7 * 20 {
                thread::yield_now();
            }
            finish(&shared.yard);
        });
    });
    run_on(0);
    let SharedYard { yard, owners } = shared;
    assert!(owners.iter().all(|owner| owner.load(Ordering::Relaxed) == 0));
    yard.validate().unwrap_or_else(|problem| panic!("{init:?}, {seed}: {problem}"));
    yard.watch().calm();
    yard.init().finish().unwrap();
    assert_eq!(yard.init().deferred_pages(), PageCount(0));
    yard.drain_all();
    yard.validate().unwrap_or_else(|problem| panic!("{init:?}, {seed}, drained: {problem}"));
    for (found, wanted) in yard.stats().zones().zip(expected.stats().zones()) {
        let of =
            |zone: frameyard::stats::ZoneStatistics| (zone.id, zone.present, zone.managed, zone.free, zone.watermarks);
        assert_eq!(of(found), of(wanted), "{init:?}, {seed}");
        let lists = |yard: &Fixture| {
            yard.zone(found.id).pcp(frameyard::CpuId(1)).map(|lists| (lists.count, lists.high, lists.batch))
        };
        assert_eq!(lists(&yard), lists(&expected));
    }
    check_written(&machine, &yard);
    let mut taken = Vec::new();
    take_everything(&yard, |pfn| taken.push(pfn));
    assert_eq!(taken.len() as u64, expected.stats().managed_pages().0);
    give_back(&yard, &taken);
    let payload = |pages: Vec<(Pfn, [u64; 8])>| {
        pages.into_iter().map(|(pfn, page)| (pfn, page[2..].to_vec())).collect::<Vec<_>>()
    };
    for section in machine.sections() {
        assert!(payload(pages_at_rest(&yard, section)) == payload(pages_at_rest(&expected, section)), "{section}");
    }
    assert_eq!(yard.stats().poison_hits(), 0);
}

/// Asserts that each page structure of sections with memory was written once.
fn check_written(machine: &Machine, yard: &Fixture) {
    let mut written = yard.watch().written();
    written.sort_by_key(|range| range.start);
    assert!(written.windows(2).all(|pair| pair[0].end <= pair[1].start), "pages were initialised twice");
    let pages = machine.sections().len() as u64 * machine.geometry.section_pages().0;
    assert_eq!(yard.watch().pages(), pages);
}

fn init(mode: InitMode, granularity: JobGranularity, threads: usize, seed: u64) -> MapInit {
    let jobs = InitJobs { granularity, threads: Some(threads), ..InitJobs::default() };
    let initialiser = Initialiser::ALL[1 + seed as usize % 4];
    let content = MapContent::ALL[seed as usize / 4 % 2];
    MapInit { mode, content, initialiser, jobs, ..MapInit::default() }
}

fn every_init(mut visit: impl FnMut(MapInit, u64)) {
    let mut seed = 0;
    for mode in [InitMode::Deferred, InitMode::Lazy] {
        for granularity in JobGranularity::ALL {
            for threads in [1, 2, 4] {
                seed += 1;
                visit(init(mode, granularity, threads, seed), seed);
            }
        }
    }
}

#[test]
fn concurrent_initialisation_loses_nothing() {
    every_init(|init, seed| {
        run_threads(init, Poisoning::Off, seed, 3000, Arc::default(), |yard| assert_eq!(yard.init().finish(), Ok(())));
    });
}

#[test]
fn concurrent_initialisation_with_poisoning_loses_nothing() {
    every_init(|init, seed| {
        run_threads(init, Poisoning::On, seed, 300, Arc::default(), |yard| assert_eq!(yard.init().finish(), Ok(())));
    });
}

#[test]
fn concurrent_passes_share_the_work() {
    every_init(|init, seed| {
        run_threads(init, Poisoning::Off, seed, 500, Arc::default(), |yard| {
            thread::scope(|scope| {
                let passes = [(); 3].map(|()| scope.spawn(|| yard.init().finish()));
                assert!(passes.into_iter().all(|pass| pass.join().unwrap() == Ok(())));
            });
        });
    });
}

#[test]
fn intermittent_backing_failures_are_retried() {
    every_init(|init, seed| {
        let watch = Arc::new(MapWatch::default());
        let early = Arc::clone(&watch);
        run_threads(init, Poisoning::Off, seed, 1000, watch, move |yard| {
            let count = AtomicU64::new(0);
            early.back_with(
                move |_| if count.fetch_add(1, Ordering::Relaxed) % 3 == 1 { Ok(()) } else { Err(MapNotBacked) },
            );
            for _ in 0..10 {
                match yard.init().finish() {
                    Ok(()) => assert_eq!(yard.init().deferred_pages(), PageCount(0)),
                    Err(InitError::MapNotBacked(range)) => assert!(!range.is_empty()),
                    Err(other) => panic!("{other}"),
                }
            }
        });
    });
}
