//! Free-page reporting: how much is reported, how marks follow blocks that split, merge and are allocated, and
//! platforms that refuse.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::fixture::random::Random;
use crate::fixture::{Fixture, Frames, RETURNED, STORES, run_on};
use crate::movers::{KIND, Movers};
use frameyard::AllocError;
use frameyard::boot::{InitMode, MapInit, Poisoning, ZoneLimits};
use frameyard::contig::BlockedBy;
use frameyard::owners::Owners;
use frameyard::page::FrameState;
use frameyard::platform::FramesNotReturned;
use frameyard::policy::ZonePolicy;
use frameyard::reporting::{ReportError, ReportOutcome};
use frameyard::units::ZoneKind;
use frameyard::{ByteSize, Geometry, Gfp, MemoryTable, NodeId, Order, PageCount, Pfn, PfnRange, YardConfig, ZoneId};

const FIRST: Pfn = Pfn(0x1000);
const PAGES: u64 = 0x1000;
const ZONE: ZoneId = ZoneId(ZoneKind::Normal as u16);
const ALL: PageCount = PageCount(u64::MAX);

/// Pageblocks of 64 frames, maximum blocks of 256.
fn geometry() -> Geometry {
    Geometry::new(ByteSize::kib(4), ByteSize::mib(4), Order(6), Order(8)).unwrap()
}

fn made(poisoning: Poisoning, mode: InitMode, cma: &[PfnRange]) -> Fixture {
    made_under(ZonePolicy::default(), poisoning, mode, cma)
}

fn made_under(policy: ZonePolicy, poisoning: Poisoning, mode: InitMode, cma: &[PfnRange]) -> Fixture {
    let cpus = [NodeId(0); 3];
    let map_init = MapInit { mode, ..MapInit::default() };
    let zone_limits = ZoneLimits::NONE;
    let config =
        YardConfig { geometry: geometry(), zone_limits, poisoning, map_init, policy, ..YardConfig::new(&cpus) };
    let memory = [(PfnRange::new(FIRST, PageCount(PAGES)), NodeId(0))];
    Fixture::new(&MemoryTable { memory: &memory, cma, ..MemoryTable::default() }, &config, Frames::Real)
}

fn plain() -> Fixture {
    made(Poisoning::Off, InitMode::Eager, &[])
}

/// A yard whose host takes everything back, and counts it.
fn willing(yard: &Fixture) -> Arc<AtomicU64> {
    let returned = Arc::new(AtomicU64::new(0));
    let count = returned.clone();
    yard.watch().return_with(move |frames| {
        count.fetch_add(frames.count().0, Ordering::Relaxed);
        Ok(())
    });
    returned
}

fn reported(yard: &Fixture) -> u64 {
    yard.zone(ZONE).statistics().reported.0
}

fn low(yard: &Fixture) -> u64 {
    yard.zone(ZONE).statistics().watermarks.low.0
}

#[test]
fn free_memory_is_reported_once() {
    for policy in STORES {
        let area = [PfnRange::new(Pfn(FIRST.0 + 1024), PageCount(512))];
        for mode in InitMode::ALL {
            let yard = made_under(policy, Poisoning::Off, mode, &area);
            yard.init().finish().unwrap();
            let returned = willing(&yard);
            let free = yard.stats().free_pages();
            let outcome = yard.report_free_pages(Order(8), ALL).unwrap();
            assert_eq!(outcome.pages.0, returned.load(Ordering::Relaxed));
            assert_eq!((outcome.blocks << 8, reported(&yard)), (outcome.pages.0, outcome.pages.0));
            // All but what the low watermark keeps in reach.
            assert!(outcome.pages.0 + low(&yard) + 256 >= PAGES, "{outcome:?}");
            yard.validate().unwrap();
            assert_eq!(yard.stats().free_pages(), free, "reported blocks stay free");
            yard.drain_all();
            let again = yard.report_free_pages(Order(8), ALL).unwrap();
            assert!(again.pages.0 <= PAGES - outcome.pages.0, "none twice: {again:?}");
            yard.watch().calm();
        }
    }
}

#[test]
fn a_budget_is_kept_to_the_block() {
    for policy in STORES {
        let yard = made_under(policy, Poisoning::Off, InitMode::Eager, &[]);
        let returned = willing(&yard);
        assert_eq!(yard.report_free_pages(Order(6), PageCount(0)), Ok(ReportOutcome::default()));
        let outcome = yard.report_free_pages(Order(6), PageCount(700)).unwrap();
        assert_eq!(outcome, ReportOutcome { pages: PageCount(768), blocks: 3 });
        assert_eq!(returned.load(Ordering::Relaxed), 768);
        yard.watch().calm();
    }
}

#[test]
fn one_call_reaches_every_block_of_a_long_list() {
    let yard = plain();
    let returned = willing(&yard);
    // Every second pair of frames is free: lists of a thousand blocks, more than are out at once.
    let pairs: Vec<Pfn> = std::iter::from_fn(|| yard.alloc(Order(1), Gfp::KERNEL).ok()).collect();
    let (freed, kept): (Vec<Pfn>, Vec<Pfn>) = pairs.into_iter().partition(|pfn| pfn.0 % 4 == 0);
    freed.iter().for_each(|pfn| yard.free(*pfn, Order(1)).unwrap());
    yard.drain_all();
    assert!(freed.len() > 500, "{}", freed.len());
    let outcome = yard.report_free_pages(Order::ZERO, ALL).unwrap();
    let free = yard.stats().free_pages().0;
    assert_eq!((outcome.pages.0, reported(&yard), returned.load(Ordering::Relaxed)), (free, free, free));
    yard.validate().unwrap();
    kept.iter().for_each(|pfn| yard.free(*pfn, Order(1)).unwrap());
    yard.watch().calm();
}

#[test]
fn mark_follows_split_merge_and_allocation() {
    // A frame merges with the block that it comes from, or becomes a bit beside it.
    mark_follows(ZonePolicy::Vanilla, 256);
    mark_follows(ZonePolicy::Bits, 1);
}

/// Takes a frame out of a reported block and frees it. That many fewer frames are reported then.
fn mark_follows(policy: ZonePolicy, lost: u64) {
    let yard = made_under(policy, Poisoning::Off, InitMode::Eager, &[]);
    willing(&yard);
    yard.report_free_pages(Order(8), ALL).unwrap();
    let before = reported(&yard);
    // One frame out of a reported block: the rest of it stays reported.
    let place = (0..PAGES >> 8).map(|at| Pfn(FIRST.0 + (at << 8))).find(|pfn| {
        let frame = PfnRange::new(Pfn(pfn.0 + 77), PageCount(1));
        yard.request(frame, Gfp::KERNEL).range().unwrap();
        let used = reported(&yard) < before;
        if !used {
            yard.free_range(frame).unwrap();
            yard.drain_all();
        }
        used
    });
    let frame = Pfn(place.expect("a reported block").0 + 77);
    assert_eq!(reported(&yard), before - 1);
    yard.validate().unwrap();
    // SAFETY: allocated by this test, and mapped.
    let byte = unsafe { yard.platform_bytes(frame).read() };
    assert_eq!(byte, RETURNED, "its bytes were gone");
    yard.free(frame, Order::ZERO).unwrap();
    yard.drain_all();
    assert_eq!(reported(&yard), before - lost, "{policy}: merged with a frame that was used");
    yard.validate().unwrap();
    yard.watch().calm();
}

trait Bytes {
    fn platform_bytes(&self, pfn: Pfn) -> *mut u8;
}

impl Bytes for Fixture {
    fn platform_bytes(&self, pfn: Pfn) -> *mut u8 {
        use frameyard::Platform;
        self.platform().frame_bytes(pfn).unwrap().as_ptr()
    }
}

#[test]
fn refusing_platform_changes_nothing() {
    let yard = made(Poisoning::On, InitMode::Eager, &[]);
    willing(&yard);
    assert_eq!(yard.report_free_pages(Order(8), ALL), Err(ReportError::Poisoning));
    let too_large = ReportError::OrderTooLarge { order: Order(9), max: Order(8) };
    assert_eq!(yard.report_free_pages(Order(9), ALL), Err(too_large));
    let yard = plain();
    let refused = yard.report_free_pages(Order(8), ALL).unwrap_err();
    let ReportError::NotReturned { frames, problem, before } = refused else { panic!("{refused}") };
    assert_eq!((problem, before), (FramesNotReturned::NotPossible, ReportOutcome::default()));
    assert_eq!(frames.count(), PageCount(256));
    yard.validate().unwrap();
    assert_eq!(reported(&yard), 0);
    // The fifth is refused.
    let asked = AtomicU64::new(0);
    yard.watch().return_with(move |_| match asked.fetch_add(1, Ordering::Relaxed) {
        4 => Err(FramesNotReturned::Refused(12)),
        _ => Ok(()),
    });
    let refused = yard.report_free_pages(Order(8), ALL).unwrap_err();
    assert!(
        matches!(refused, ReportError::NotReturned { problem: FramesNotReturned::Refused(12), before, .. } if before.blocks == 4),
        "{refused}"
    );
    assert_eq!(reported(&yard), 4 << 8);
    yard.validate().unwrap();
    yard.watch().calm();
}

#[test]
fn reporting_respects_low_watermark() {
    let yard = Arc::new(plain());
    let mut held = Vec::new();
    while yard.zone(ZONE).statistics().free.0 > low(&yard) + 300 {
        held.push(yard.alloc(Order(4), Gfp::KERNEL).unwrap());
    }
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (looker, told) = (Arc::downgrade(&yard), seen.clone());
    yard.watch().return_with(move |_| {
        told.lock().unwrap().push(looker.upgrade().unwrap().zone(ZONE).statistics().free.0);
        Ok(())
    });
    let outcome = yard.report_free_pages(Order(2), ALL).unwrap();
    let least = seen.lock().unwrap().iter().copied().min().expect("something was given back");
    assert!(least >= low(&yard), "{least} were left");
    assert!(outcome.pages.0 > 0);
    yard.watch().calm();
    held.into_iter().for_each(|pfn| yard.free(pfn, Order(4)).unwrap());
}

#[test]
fn reported_block_returns_to_current_pageblock_type() {
    let yard = Arc::new(plain());
    let seen = Arc::new(Mutex::new(None));
    let (other, told) = (Arc::downgrade(&yard), seen.clone());
    yard.watch().return_with(move |frames| {
        let yard = other.upgrade().unwrap();
        assert_eq!(yard.stats().frame(frames.start).unwrap().state, FrameState::InTransit);
        assert!(yard.free(frames.start, Order(8)).is_err(), "the block is free");
        let taken = yard.request(PfnRange::new(frames.start, PageCount(3)), Gfp::KERNEL).owners(&Owners::NONE).range();
        *told.lock().unwrap() = Some(taken.unwrap_err());
        Ok(())
    });
    let outcome = yard.report_free_pages(Order(8), PageCount(256)).unwrap();
    let blocked = seen.lock().unwrap().expect("asked");
    let busy = matches!(blocked, AllocError::Blocked(blocker) if blocker.why == BlockedBy::Busy);
    assert!(busy, "{blocked}");
    assert_eq!(reported(&yard), outcome.pages.0);
    yard.watch().calm();
}

#[test]
fn concurrent_reporting_loses_no_contents() {
    for policy in STORES {
        let yard = made_under(policy, Poisoning::Off, InitMode::Eager, &[]);
        let count = AtomicU64::new(0);
        yard.watch().return_with(move |_| match count.fetch_add(1, Ordering::Relaxed) % 7 {
            6 => Err(FramesNotReturned::Refused(11)),
            _ => Ok(()),
        });
        let movers = Movers::new(&yard);
        let owners = Owners::NONE.with(KIND, &movers);
        let done = AtomicBool::new(false);
        let pages = thread::scope(|scope| {
            let (yard, movers, done) = (&yard, &movers, &done);
            scope.spawn(move || {
                run_on(1);
                let mut random = Random::new(1);
                let mut names = Vec::new();
                while !done.load(Ordering::Relaxed) {
                    if random.below(2) == 0 && names.len() < 300 {
                        names.extend(movers.take(Order(random.below(5) as u8)));
                    } else if !names.is_empty() {
                        let name = names.swap_remove(random.below(names.len() as u64) as usize);
                        if !movers.give_back(name) {
                            names.push(name);
                        }
                    }
                }
            });
            scope.spawn(move || {
                run_on(2);
                let mut random = Random::new(2);
                while !done.load(Ordering::Relaxed) {
                    let range =
                        PfnRange::new(Pfn(FIRST.0 + random.below(PAGES - 200)), PageCount(1 + random.below(200)));
                    if yard.request(range, Gfp::KERNEL).owners(&owners).range().is_ok() {
                        yard.free_range(range).unwrap();
                    }
                }
            });
            let mut pages = 0;
            for at in 0..250 {
                pages += match yard.report_free_pages(Order(at % 5), PageCount(500)) {
                    Ok(outcome) | Err(ReportError::NotReturned { before: outcome, .. }) => outcome.pages.0,
                    Err(problem) => panic!("{problem}"),
                };
            }
            done.store(true, Ordering::Relaxed);
            pages
        });
        assert!(pages > 1000, "{pages} were given back");
        yard.validate().unwrap();
        movers.check_all();
        movers.give_all_back();
        yard.watch().calm();
    }
}
