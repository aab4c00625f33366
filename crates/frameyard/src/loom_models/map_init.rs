//! Deferred initialisation while the yard is in use (`boot::initialisation`, `yard::init`): one thread initialises a
//! block, no thread reads its pages before they are written, and the block becomes free once.
//!
//! The map begins with garbage: every page looks like that of a frame with an owner. A thread that reads, frees or allocates
//! a frame before its page is written therefore fails the model.
//!
//! # Bounds
//!
//! A model has one to three sections of one maximum-order block of four frames. It has two threads, or three if two of
//! them are workers. Lists hold no frames, so every frame passes the zone. A waiting thread gives up after three rounds,
//! of which loom explores one.
//!
//! Models of allocations that initialise memory have two involuntary switches, or one with three sections or threads. The
//! other models have the usual bound. One switch finds every broken variant.
//!
//! The models write pages through their atomics, with relaxed stores, so a missing `Release` or `Acquire` between writer
//! and reader shows as stale words. They do not cover the fence that orders streaming stores; the native stress tests do.

use std::sync::{Arc, Mutex};

use crate::AllocError;
use crate::Gfp;
use crate::boot::{InitError, InitJobs, InitMode, Initialiser, JobGranularity, MapInit};
use crate::loom_models::machine::{Flaw, InitFlaw, LARGEST, Locks, Machine, NOT_INITIALISED, Runner, Setup};
use crate::loom_models::{assert_fails_within, explore, explore_within, in_long_runs};
use crate::page::{FrameState, MapContent};
use crate::sync::{Weakness, weakened};
use crate::units::{NodeId, Order, PageCount, Pfn, PfnRange};
use crate::watermarks::PcpSizing;

/// The failure messages for a part that is initialised twice or allocated too early.
const DAMAGES: [&str; 10] = [
    NOT_INITIALISED,
    NOT_ONCE,
    EARLY,
    "Causality violation",
    "allocated twice",
    "the block is ours",
    "the validator objects",
    "frames were lost",
    // A block on a free list has no tag: a second initialisation has overwritten it.
    "is interior order 0",
    // A block on a free list has the tag of the garbage: the reader does not see the initialisation.
    "is owned order 0",
];
/// The failure message for two threads that initialise one block.
const NOT_ONCE: &str = "frames became free other than once";
/// The failure message for a page that is read before it is written.
const EARLY: &str = "a page was read before it was written";
/// The failure message for a request that fails though there is memory for it.
const REFUSED: &str = "a request failed though there was memory";
/// The failure message for a pass that sizes per-CPU lists and watermarks by a part of the memory.
const UNFINISHED: &str = "the pass ended before all memory was initialised";
/// The last round of the longest possible wait, counted from 0.
const LAST_ROUND: u32 = 2;

const NODE: NodeId = NodeId(0);

/// Asserts that a broken model fails with at most one involuntary switch.
#[track_caller]
fn fails(model: impl Fn() + Send + Sync + 'static, expected: &[&str]) {
    assert_fails_within(1, model, expected);
}

fn setup(mode: InitMode) -> Setup {
    let map_init =
        MapInit { mode, content: MapContent::Kernel, initialiser: Initialiser::StoresPerPage, ..MapInit::default() };
    Setup { map_init, ..Setup::new(PcpSizing::Fixed(0), Locks::SOUND) }
}

fn lazy() -> Setup {
    setup(InitMode::Lazy)
}

fn flawed(flaw: InitFlaw) -> Setup {
    Setup { init_flaw: Some(flaw), ..lazy() }
}

fn frames(start: u64, end: u64) -> PfnRange {
    PfnRange { start: Pfn(start), end: Pfn(end) }
}

/// Allocates a block and frees it. There is memory for it, so the allocation may fail only after a full wait for the other
/// thread.
fn take_and_give(runner: &Runner, order: Order) {
    match runner.take(order) {
        Some(pfn) => runner.give(pfn, order),
        None => assert!(runner.yard.platform().longest_wait() >= LAST_ROUND, "{REFUSED}"),
    }
}

/// Two threads allocate from a yard without initialised memory. There is a block for each.
fn grow_twice(order: Order, setup: Setup) {
    let main = Machine::boot_with(2, setup);
    let other = main.start(1, move |runner| take_and_give(runner, order));
    take_and_give(&main, order);
    other.join().unwrap();
    main.finish();
}

#[test]
fn racing_growth_returns_initialised_frames() {
    explore_within(2, || grow_twice(Order::ZERO, lazy()));
    explore_within(2, || grow_twice(LARGEST, lazy()));
}

#[test]
fn non_atomic_claim_fails() {
    weakened(Weakness::SplitUnion, || fails(|| grow_twice(Order::ZERO, lazy()), &DAMAGES));
}

#[test]
fn claims_that_ignore_the_exchanged_bits_fail() {
    weakened(Weakness::UnionReportsAll, || fails(|| grow_twice(Order::ZERO, lazy()), &DAMAGES));
}

#[test]
fn zone_lock_without_ordering_fails() {
    for flaw in [Flaw::TakenRelaxed, Flaw::GivenBackRelaxed] {
        let locks = Locks { zone: Some(flaw), ..Locks::SOUND };
        fails(move || grow_twice(Order::ZERO, Setup { locks, ..lazy() }), &DAMAGES);
    }
}

/// The failures of a map whose structures are overwritten: damaged lists, or lists that have lost frames.
fn overwritten() -> std::vec::Vec<&'static str> {
    [&DAMAGES[..], &[REFUSED, "memory for the map"]].concat()
}

#[test]
fn writing_after_publication_fails() {
    fails(|| grow_twice(Order::ZERO, flawed(InitFlaw::WrittenLate)), &overwritten());
}

/// A thread allocates from a yard whose first section is allocated, while a pass initialises the rest.
fn grow_during_the_pass(sections: u64) {
    let main = Machine::boot_with(sections, setup(InitMode::Deferred));
    let early = main.take(LARGEST).expect("the first section is initialised at creation");
    let other = main.start(1, |runner| take_and_give(runner, Order::ZERO));
    main.yard.init().finish().expect("memory for the map");
    let complete = main.yard.init().deferred_pages() == PageCount(0);
    assert!(complete || main.yard.platform().longest_wait() >= LAST_ROUND, "{UNFINISHED}");
    other.join().unwrap();
    main.give(early, LARGEST);
    main.finish();
}

#[test]
fn allocation_grows_beside_the_pass() {
    explore_within(2, || grow_during_the_pass(2));
    explore_within(1, || grow_during_the_pass(3));
}

#[test]
fn pass_ignoring_claims_fails() {
    weakened(Weakness::UnionReportsAll, || {
        fails(|| grow_during_the_pass(2), &overwritten());
        fails(|| grow_beside_two_workers(JobGranularity::Sections), &overwritten());
    });
}

/// As [`grow_during_the_pass`], with an idle worker in place of the pass.
fn grow_beside_an_idle_worker() {
    let main = Machine::boot_with(2, setup(InitMode::Deferred));
    let early = main.take(LARGEST).expect("the first section is initialised at creation");
    let other = main.start(1, |runner| take_and_give(runner, Order::ZERO));
    main.yard.init().next_section(NODE).expect("memory for the map");
    other.join().unwrap();
    main.give(early, LARGEST);
    main.finish();
}

#[test]
fn allocation_grows_beside_an_idle_worker() {
    explore(grow_beside_an_idle_worker);
}

#[test]
fn uncounting_deferred_frames_early_fails() {
    weakened(Weakness::RelaxedStoresOf(8), || fails(grow_beside_an_idle_worker, &[REFUSED]));
    weakened(Weakness::RelaxedLoadsOf(8), || fails(grow_beside_an_idle_worker, &[REFUSED]));
}

/// One thread's allocation initialises the only section. The other thread reads the state of the last frame by number,
/// then tries to free it, though it is not allocated.
fn read_during_initialisation(gfp: Gfp, setup: Setup) {
    let main = Machine::boot_with(1, setup);
    let other = main.start(1, |runner| {
        let last = Pfn(3);
        let info = runner.yard.stats().frame(last).expect("a frame of memory");
        // A reader of the garbage reports a frame with an owner. There is none.
        assert_ne!(info.state, FrameState::Owned, "{EARLY}");
        assert!(runner.yard.free(last, Order::ZERO).is_err(), "{EARLY}");
    });
    let taken = main.take_with(Order::ZERO, gfp).expect("no other thread allocates");
    other.join().unwrap();
    main.give(taken, Order::ZERO);
    main.finish();
}

#[test]
fn racing_read_sees_initialised_frame_or_error() {
    explore(|| read_during_initialisation(Gfp::MOVABLE, lazy()));
}

#[test]
fn racing_type_change_sees_initialised_frame_or_error() {
    explore(|| read_during_initialisation(Gfp::KERNEL, lazy()));
}

#[test]
fn pageblock_type_without_release_fails() {
    weakened(Weakness::PageblocksPublishedRelaxed, || {
        fails(|| read_during_initialisation(Gfp::MOVABLE, lazy()), &[EARLY]);
        fails(|| read_during_initialisation(Gfp::KERNEL, lazy()), &[EARLY]);
    });
}

#[test]
fn pageblock_type_without_acquire_fails() {
    weakened(Weakness::RelaxedLoadsOf(4), || {
        fails(|| read_during_initialisation(Gfp::MOVABLE, lazy()), &[EARLY]);
    });
}

#[test]
fn publishing_types_early_fails() {
    fails(|| read_during_initialisation(Gfp::MOVABLE, flawed(InitFlaw::PublishedEarly)), &[EARLY]);
}

/// One thread allocates a frame, another all frames of a section by number.
fn take_by_number_during_initialisation() {
    let main = Machine::boot_with(2, lazy());
    let other = main.start(1, |runner| match runner.take_range(frames(0, 4)) {
        Ok(()) => runner.give(Pfn(0), LARGEST),
        // The other thread has a frame of the range, or has just freed it to its list.
        Err(AllocError::InUse { state: FrameState::Allocated | FrameState::PerCpu, .. }) => {}
        Err(error @ (AllocError::InUse { state: FrameState::Interior, .. } | AllocError::NotInitialised(_))) => {
            assert!(runner.yard.platform().longest_wait() >= LAST_ROUND, "{REFUSED}: {error}");
        }
        Err(error) => panic!("{REFUSED}: {error}"),
    });
    take_and_give(&main, Order::ZERO);
    other.join().unwrap();
    main.finish();
}

#[test]
fn range_racing_initialisation_succeeds_or_is_in_use() {
    explore_within(in_long_runs(2), take_by_number_during_initialisation);
}

/// Two threads initialise parts of the map by number. The frames that they report as freed must add up to `whole`.
fn initialise_twice(parts: [PfnRange; 2], whole: PageCount) {
    let main = Machine::boot_with(2, lazy());
    let freed = Arc::new(Mutex::new(PageCount(0)));
    let threads = [0, 1].map(|cpu| {
        let (freed, part) = (Arc::clone(&freed), parts[cpu as usize]);
        main.start(cpu, move |runner| match runner.yard.init().range(part) {
            Ok(count) => *freed.lock().unwrap() += count,
            Err(error) => {
                assert!(matches!(error, InitError::AlreadyInitialised(_)), "the loser gets another error: {error}")
            }
        })
    });
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(*freed.lock().unwrap(), whole, "{NOT_ONCE}");
    main.finish();
}

#[test]
fn range_initialised_by_two_threads_is_initialised_once() {
    explore(|| initialise_twice([frames(0, 8); 2], PageCount(8)));
}

#[test]
fn shared_block_is_initialised_once() {
    explore(|| initialise_twice([frames(0, 2), frames(2, 4)], PageCount(4)));
}

#[test]
fn double_initialisation_of_a_range_fails() {
    for weakness in [Weakness::SplitUnion, Weakness::UnionReportsAll] {
        weakened(weakness, || fails(|| initialise_twice([frames(0, 2), frames(2, 4)], PageCount(4)), &DAMAGES));
    }
}

/// Two workers run a pass over sections, or over ranges of free memory whose ends lie inside blocks.
fn pass_by_two_workers(granularity: JobGranularity) {
    let main = boot_for_two_workers(granularity);
    main.yard.init().finish().expect("memory for the map");
    main.finish();
}

/// As [`pass_by_two_workers`], while a third thread allocates.
fn grow_beside_two_workers(granularity: JobGranularity) {
    let main = boot_for_two_workers(granularity);
    let other = main.start(1, |runner| take_and_give(runner, Order::ZERO));
    main.yard.init().finish().expect("memory for the map");
    other.join().unwrap();
    main.finish();
}

fn boot_for_two_workers(granularity: JobGranularity) -> Runner {
    let jobs = InitJobs { granularity, threads: Some(2), ..InitJobs::default() };
    let map_init = MapInit { jobs, ..lazy().map_init };
    Machine::boot_with(3, Setup { map_init, workers: 2, reserved: &[RESERVED], ..lazy() })
}

/// A frame inside the last block. One range of free memory ends there and the next begins.
const RESERVED: PfnRange = PfnRange { start: Pfn(9), end: Pfn(10) };

#[test]
fn two_workers_initialise_each_block_once() {
    explore(|| pass_by_two_workers(JobGranularity::Sections));
    explore(|| pass_by_two_workers(JobGranularity::Ranges));
}

#[test]
fn allocation_grows_beside_two_workers() {
    explore_within(1, || grow_beside_two_workers(JobGranularity::Sections));
    explore_within(1, || grow_beside_two_workers(JobGranularity::Ranges));
}

/// Another thread claims all deferred memory and later gives it up. A request that needs the memory does not hang.
fn wait_for_a_claim() {
    let main = Machine::boot_with(1, lazy());
    let block = frames(0, 4);
    main.claim_block(block);
    let other = main.start(1, |runner| take_and_give(runner, Order::ZERO));
    main.give_up_block(block);
    other.join().unwrap();
    main.finish();
}

#[test]
fn wait_for_initialisation_is_bounded() {
    explore(wait_for_a_claim);
}

/// A thread has no memory for the map and gives up its claim, while another thread needs the same section.
fn give_up_a_claim() {
    let main = Machine::boot_with(1, lazy());
    main.yard.platform().refuse(1);
    let other = main.start(1, |runner| take_and_give(runner, Order::ZERO));
    match main.yard.init().range(frames(0, 4)) {
        Ok(_) | Err(InitError::MapNotBacked(_) | InitError::AlreadyInitialised(_)) => {}
        Err(error) => panic!("{error}"),
    }
    other.join().unwrap();
    main.yard.platform().refuse(0);
    main.finish();
}

#[test]
fn abandoned_claim_is_initialised_by_another() {
    explore(give_up_a_claim);
}
