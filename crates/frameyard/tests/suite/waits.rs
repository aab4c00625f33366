//! How long a request may wait: its flags decide on every path. Waits are counted in rounds, of [`Platform::spin`] and of
//! [`Platform::wait`] apart.
//!
//! [`Platform::spin`]: frameyard::Platform::spin
//! [`Platform::wait`]: frameyard::Platform::wait

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use crate::busy_yard::{Made, PAGES, made};
use crate::clusters;
use crate::contig::RefusesOne;
use crate::fixture::{Fixture, Moment, Rounds, order, rounds_of, run_on};
use crate::maps::{LATE, frames, give_back, listed, plain, way};
use crate::movers::{KIND, Movers};
use frameyard::owners::{Block, FrameOwner, MigrateMode, MigrateProblem, Owners};
use frameyard::platform::LockId;
use frameyard::policy::ZonePolicy;
use frameyard::watermarks::PcpSizing;
use frameyard::{Gfp, NodeId, Order, PageCount, Pfn, PfnRange};

/// Requests that must not wait.
const HURRIED: [Gfp; 5] = [
    Gfp::NOWAIT,
    Gfp::ATOMIC,
    Gfp::MOVABLE,
    Gfp::ATOMIC.union(Gfp::NORETRY),
    Gfp::ATOMIC.union(Gfp::MOVABLE).union(Gfp::NOFRAGMENT),
];
/// Requests that may sleep.
const PATIENT: [Gfp; 3] = [Gfp::KERNEL, Gfp::KERNEL.union(Gfp::NORETRY), Gfp::HIGHUSER_MOVABLE];

/// The most rounds that a request may spend in one place.
struct Most {
    /// Calls of `spin` of a request that must not wait. It makes no call of `wait`.
    spins: u32,
    /// Calls of `wait` of a request that may sleep.
    waits: u32,
}

/// Makes a request with all flags and compares its rounds. The requests find what they wait for unfinished. The caller asserts
/// that there are no complaints when no thread is stopped any more.
#[must_use]
fn complaints(place: &str, most: &Most, request: impl Fn(Gfp)) -> Vec<String> {
    let tell = |gfp, Rounds { spins, waits }| format!("{place}, {gfp}: {spins} spins, {waits} waits");
    let hurried = HURRIED.map(|gfp| (gfp, rounds_of(|| request(gfp | Gfp::NOWARN))));
    let patient = PATIENT.map(|gfp| (gfp, rounds_of(|| request(gfp | Gfp::NOWARN))));
    let too_long = hurried.iter().filter(|(_, rounds)| rounds.waits > 0 || rounds.spins > most.spins);
    let too_long = too_long.chain(patient.iter().filter(|(_, rounds)| rounds.spins > 0 || rounds.waits > most.waits));
    let mut found: Vec<String> = too_long.map(|(gfp, rounds)| tell(*gfp, *rounds)).collect();
    if patient.iter().all(|(_, rounds)| rounds.waits == 0) {
        found.push(format!("{place}: nothing to wait for"));
    }
    found
}

#[test]
fn no_request_waits_longer_for_the_memory_map_than_its_flags_allow() {
    run_on(0);
    for mode in LATE {
        let yard = plain().with_free_lists().create_yard(way(mode));
        yard.init().next_section(NodeId(0)).unwrap();
        let mut taken = Vec::new();
        while yard.init().deferred_pages() > PageCount(0x100) || listed(&yard) > 0 {
            taken.push(yard.alloc(Order::ZERO, Gfp::KERNEL).unwrap());
        }
        let (begun, go_on) = (Arc::new(Mutex::new(None)), Arc::new(AtomicBool::new(false)));
        let (begins, goes_on) = (begun.clone(), go_on.clone());
        yard.watch().back_with(move |range| {
            *begins.lock().unwrap() = Some(range);
            while !goes_on.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            Ok(())
        });
        let found = thread::scope(|scope| {
            let other = scope.spawn(|| yard.init().next_section(NodeId(0)));
            while begun.lock().unwrap().is_none() {
                thread::yield_now();
            }
            let mut found = complaints("the map of a range", &Most { spins: 32, waits: 4096 }, |gfp| {
                yard.request(frames(0xf00, 0xf20), gfp).range().expect_err("it is not initialised");
            });
            found.extend(complaints("the map", &Most { spins: 32, waits: 4096 }, |gfp| {
                yard.alloc(Order::ZERO, gfp).expect_err("no other memory is free");
            }));
            go_on.store(true, Ordering::Relaxed);
            other.join().unwrap().unwrap();
            found
        });
        assert!(found.is_empty(), "{mode}: {found:#?}");
        yard.watch().calm();
        give_back(&yard, &taken);
    }
}

#[test]
fn no_request_waits_longer_for_a_detachment_than_its_flags_allow() {
    let yard = clusters::yard(ZonePolicy::Cluster, 256);
    let range = PfnRange::new(clusters::FIRST + PageCount(1024), PageCount(64));
    let mut found = Vec::new();
    clusters::with_a_cut_in_progress(&yard, || {
        found = complaints("a detachment", &Most { spins: 32, waits: 4096 }, |gfp| {
            yard.request(range, gfp).owners(&Owners::NONE).range().expect_err("a transfer is stalled");
        });
    });
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn no_request_waits_longer_for_a_busy_block_than_its_flags_allow() {
    let yard = made(&Made::default());
    let movers = Movers::new(&yard);
    let name = movers.take(Order::ZERO).unwrap();
    let busy = movers.place_of(name);
    let owner = RefusesOne { movers, block: busy, problem: MigrateProblem::Busy };
    let owners = Owners::NONE.with(KIND, &owner);
    let found = complaints("a busy block", &Most { spins: 32, waits: 512 }, |gfp| {
        yard.request(PfnRange::new(busy, PageCount(1)), gfp).owners(&owners).range().expect_err("it is busy");
    });
    assert!(found.is_empty(), "{found:#?}");
    owner.movers.give_all_back();
}

/// Reports every block as busy.
struct Busy;

impl FrameOwner for Busy {
    fn isolate(&self, _: Block, _: MigrateMode) -> Result<(), MigrateProblem> {
        Err(MigrateProblem::Busy)
    }

    fn migrate(&self, _: Block, _: Pfn, _: MigrateMode) -> Result<(), MigrateProblem> {
        Err(MigrateProblem::Busy)
    }

    fn put_back(&self, _: Block) {}
}

#[test]
fn a_search_waits_at_few_of_many_places() {
    let yard = made(&Made::default());
    let movers = Movers::new(&yard);
    // A place holds three or four of them, so there are more than eight places.
    let busy = std::iter::from_fn(|| movers.take(order(6)).ok()).count();
    assert!(busy > 32, "{busy} busy blocks");
    let owners = Owners::NONE.with(KIND, &Busy);
    let waits = rounds_of(|| {
        let request = yard.request(PageCount(192), Gfp::KERNEL).aligned(Order::ZERO).owners(&owners);
        request.range().expect_err("all places hold a busy block");
    });
    assert!((512..=8 * 512).contains(&waits.waits), "{} waits", waits.waits);
    movers.give_all_back();
}

#[test]
fn a_search_tries_places_behind_the_last_block_in_the_way() {
    let yard = made(&Made::default());
    // Without an owner, such a frame may still be freed or become counted.
    let taken: Vec<_> = std::iter::from_fn(|| yard.alloc(Order::ZERO, Gfp::MOVABLE | Gfp::NOWARN).ok()).collect();
    let spins = rounds_of(|| {
        let request = yard.request(PageCount(512), Gfp::NOWAIT).aligned(Order::ZERO).owners(&Owners::NONE);
        request.range().expect_err("all places hold frames in use");
    });
    // At a place, it spins twice between two of 16 rounds.
    let places = PAGES / 512;
    assert!((1..=32 * places).contains(&u64::from(spins.spins)), "{} spins", spins.spins);
    taken.into_iter().for_each(|pfn| yard.free(pfn, Order::ZERO).unwrap());
}

/// An owner of blocks that can be isolated, and are busy when they are to move.
struct BusyToMove<'y>(Movers<'y>);

impl FrameOwner for BusyToMove<'_> {
    fn isolate(&self, block: Block, mode: MigrateMode) -> Result<(), MigrateProblem> {
        self.0.isolate(block, mode)
    }

    fn migrate(&self, _from: Block, _to: Pfn, _mode: MigrateMode) -> Result<(), MigrateProblem> {
        Err(MigrateProblem::Busy)
    }

    fn put_back(&self, block: Block) {
        self.0.put_back(block);
    }
}

#[test]
fn no_request_waits_longer_for_blocks_that_compaction_moves_than_its_flags_allow() {
    let yard = made(&Made::default());
    let owner = BusyToMove(Movers::new(&yard));
    let names: Vec<_> = std::iter::from_fn(|| owner.0.take(Order::ZERO).ok()).collect();
    // The rest is left to requests that may use the reserves.
    let large: Vec<_> = std::iter::from_fn(|| yard.alloc(order(6), Gfp::ATOMIC | Gfp::NOWARN).ok()).collect();
    let odd = names.into_iter().filter(|name| owner.0.place_of(*name).0 % 2 == 1);
    odd.for_each(|name| assert!(owner.0.give_back(name)));
    yard.drain_all();
    let owners = Owners::NONE.with(KIND, &owner);
    // Of the compactions of a request without a reclaimer, one waits: twice for each block.
    let most = Most { spins: 0, waits: PAGES as u32 };
    let found = complaints("a compaction", &most, |gfp| {
        yard.request(order(8), gfp).owners(&owners).frame().expect_err("no large block is free");
    });
    assert!(found.is_empty(), "{found:#?}");
    owner.0.give_all_back();
    large.into_iter().for_each(|pfn| yard.free(pfn, order(6)).unwrap());
}

/// Runs `meanwhile` while a thread of CPU 3 stands in a drain, with the lock of its lists and not yet that of the zone. Passes a frame
/// of these lists.
fn with_a_drain_stopped(yard: &Fixture, meanwhile: impl FnOnce(Pfn)) {
    thread_local! {
        static STOPS: Cell<bool> = const { Cell::new(false) };
    }
    yard.lists().resize(PcpSizing::Fixed(64));
    let frames: Vec<Pfn> = (0..65).map(|_| yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap()).collect();
    yard.drain_all();
    let (stopped, goes_on) = (Arc::new(Barrier::new(2)), Arc::new(Barrier::new(2)));
    yard.watch().spy_with({
        let (stopped, goes_on) = (Arc::clone(&stopped), Arc::clone(&goes_on));
        move |moment| {
            if matches!(moment, Moment::Lock(LockId::Zone(_))) && STOPS.take() {
                stopped.wait();
                goes_on.wait();
            }
        }
    });
    thread::scope(|scope| {
        scope.spawn(|| {
            run_on(3);
            STOPS.set(true);
            frames.iter().for_each(|pfn| yard.free(*pfn, Order::ZERO).unwrap());
        });
        stopped.wait();
        meanwhile(frames[63]);
        goes_on.wait();
    });
    yard.watch().calm();
}

#[test]
fn no_request_that_must_not_wait_waits_for_the_lists_of_a_cpu() {
    let yard = made(&Made { policy: ZonePolicy::Vanilla, ..Made::default() });
    let (done, wait) = mpsc::channel();
    let (done, yard) = (&done, &yard);
    let found = thread::scope(|scope| {
        let mut found = None;
        with_a_drain_stopped(yard, |listed| {
            let range = PfnRange::new(listed, PageCount(1));
            scope.spawn(move || {
                run_on(1);
                let free = |taken| yard.free_range(taken).unwrap();
                let rounds = HURRIED.map(|gfp| {
                    rounds_of(|| {
                        let request = || yard.request(range, gfp | Gfp::NOWARN);
                        let _ = request().range().map(free);
                        let _ = request().owners(&Owners::NONE).range().map(free);
                    })
                });
                let _ = done.send(rounds);
            });
            found = wait.recv_timeout(Duration::from_secs(60)).ok();
        });
        found
    });
    let found = found.expect("no request waits for the lists of a stopped thread");
    for (gfp, Rounds { spins, waits }) in HURRIED.into_iter().zip(found) {
        assert!(waits == 0 && spins <= 32 * 32, "{gfp}: {spins} spins, {waits} waits");
    }
}
