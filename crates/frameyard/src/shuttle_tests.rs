//! Whole yards of real sizes under schedules that shuttle chooses: for what is too large for loom.
//!
//! Three or four threads run the production code on one small yard, in turns: before each atomic access the scheduler may
//! let another one run. Some schedules are random, others have random priorities that change a few times (the scheduler of
//! "A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs", Burckhardt et al., 2010). Seeds are
//! fixed, so a run repeats the one before; `SHUTTLE_RANDOM_SEED` gives others.
//!
//! Schedules are sequentially consistent: whether an ordering is strong enough is for the loom models to say. And these are
//! samples: that a protocol holds in every schedule is, too. Here what was thought to be too far apart to meet does: real
//! batches, real limits, compaction and moved blocks, under every policy.
//!
//! As with the models, what must fail is seen to fail: a [`Weakness`] breaks one protection.

mod machine;
mod mover;

use std::string::String;
use std::sync::Arc;
use std::vec::Vec;

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, MaxSteps, Runner as Executions};

use crate::Gfp;
use crate::compaction::CompactRequest;
use crate::policy::ZonePolicy;
use crate::sync::{Weakness, is_weakened, weakened};
use crate::units::{Order, Pfn};
use crate::zone::transfer::HELD_RECORD;
use machine::{FRAMES, LARGEST, PAGEBLOCK, Runner, ZONE, at, below, live, pick};
use mover::Mover;

/// The seed of all schedules.
const SEED: u64 = 1;
/// How many priorities change in an execution, and one more.
const DEPTH: usize = 5;
/// How many executions each scheduler has, where nothing is broken.
const EXECUTIONS: usize = 200;
/// How many it has to find what is broken.
const ENOUGH: usize = 2000;

/// How many frames a batch has.
const BATCH: usize = crate::zone::batch::BATCH;

fn config() -> Config {
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    config.max_steps = MaxSteps::FailAfter(20_000_000);
    // Fixed seeds repeat it; a schedule of so many steps is of no use to print.
    config.failure_persistence = FailurePersistence::None;
    config
}

fn run(scheduler: impl Scheduler + 'static, execution: &Arc<impl Fn() + Send + Sync + 'static>) {
    let execution = Arc::clone(execution);
    Executions::new(scheduler, config()).run(move || execution());
}

/// Runs an execution under both schedulers, so many times each.
fn explore(executions: usize, execution: impl Fn() + Send + Sync + 'static) {
    let execution = Arc::new(execution);
    run(PctScheduler::new_from_seed(SEED, DEPTH, executions), &execution);
    run(RandomScheduler::new_from_seed(SEED, executions), &execution);
}

/// Demands that an execution whose protection is broken fails with one of these messages.
fn assert_fails(execution: impl Fn() + Send + Sync + 'static, expected: &[&str]) {
    let explored = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| explore(ENOUGH, execution)));
    let Err(panic) = explored else { panic!("what is broken was not found") };
    let message = match panic.downcast::<String>() {
        Ok(message) => *message,
        Err(other) => String::from(*other.downcast::<&str>().expect("a panic has a message")),
    };
    assert!(expected.iter().any(|part| message.contains(part)), "failed for another reason: {message}");
}

/// What broken protections come to; the last one is a page on a free list that is not free.
const DAMAGES: [&str; 6] = [
    "handed out twice",
    "the block is ours",
    "the validator objects",
    "frames were lost",
    "what was freed has merged",
    "is interior order 0",
];

const KINDS: [Gfp; 5] =
    [Gfp::HIGHUSER_MOVABLE, Gfp::HIGHUSER_MOVABLE, Gfp::KERNEL, Gfp::KERNEL.union(Gfp::RECLAIMABLE), Gfp::ATOMIC];

/// Takes and gives single frames by more than a batch, large blocks, and blocks that can be moved.
fn work(runner: &Runner) {
    const STEPS: usize = 6;
    let mover = Mover(runner);
    let mut held: Vec<(Pfn, Order)> = Vec::new();
    for _ in 0..STEPS {
        match below(8) {
            0..=2 => {
                let gfp = pick(&KINDS);
                let frames = (0..1 + below(300)).map_while(|_| runner.take(Order::ZERO, gfp));
                held.extend(frames.map(|pfn| (pfn, Order::ZERO)));
            }
            3 => {
                let order = pick(&[Order(3), PAGEBLOCK, LARGEST]);
                held.extend(runner.take(order, pick(&KINDS)).map(|pfn| (pfn, order)));
            }
            4 => (0..8).for_each(|_| mover.take(Order(below(3) as u8))),
            5 => _ = mover.give_one(),
            _ => give_some(runner, &mut held),
        }
    }
    held.into_iter().for_each(|(pfn, order)| runner.give(pfn, order));
}

/// Gives about half of what is held, in an order that is not that of the frames.
fn give_some(runner: &Runner, held: &mut Vec<(Pfn, Order)>) {
    for _ in 0..held.len() / 2 {
        let (pfn, order) = held.swap_remove(below(held.len() as u64) as usize);
        runner.give(pfn, order);
    }
}

/// Does what needs all free frames: takes ranges, compacts, empties lists, changes the policy and changes it back.
fn disturb(runner: &Runner, policy: ZonePolicy) {
    const STEPS: usize = 4;
    let mover = Mover(runner);
    for _ in 0..STEPS {
        match below(5) {
            0 => take_range(runner, &mover),
            1 => _ = runner.yard.compaction().zone(ZONE, CompactRequest::WHOLE_ZONE, &mover.owners()),
            2 => runner.yard.zone(ZONE).drain(),
            3 => {
                for policy in [pick(&ZonePolicy::ALL), policy] {
                    // Somebody who collects may have been waited for in vain: what he has he brings back.
                    _ = runner.yard.set_policy(policy);
                }
            }
            _ => {
                if let Some(pfn) = runner.take(PAGEBLOCK, Gfp::KERNEL) {
                    runner.give(pfn, PAGEBLOCK);
                }
            }
        }
    }
}

/// Takes some pageblocks by number, and gives them back.
fn take_range(runner: &Runner, mover: &Mover<'_>) {
    const MARK: u32 = 77;
    let pageblocks = FRAMES >> PAGEBLOCK.0;
    let range = at(below(pageblocks - 1) << PAGEBLOCK.0, pick(&[1, 2]) << PAGEBLOCK.0);
    let Ok(range) = runner.yard.request_range(range, Gfp::HIGHUSER_MOVABLE).owners(&mover.owners()).range() else {
        return;
    };
    runner.own(range, MARK);
    runner.disown(range, MARK);
    runner.yard.free_range(range).expect("the range is ours");
}

/// Two CPUs at work while a third one, or another thread of one of them, disturbs.
fn busy(policy: ZonePolicy) {
    live(policy, move |main| {
        let disturber = pick(&[0, 3]);
        let threads =
            [main.start(0, work), main.start(1, work), main.start(disturber, move |runner| disturb(runner, policy))];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let mover = Mover(main);
        while mover.give_one() {}
    });
}

/// A thread stands in the middle of a pop while two others empty the depot and fill it again, so that the batch which it has
/// seen on top is there again, on others than before.
fn stopped_in_a_pop() {
    live(ZonePolicy::Depot, |main| {
        let frames: Vec<Pfn> = (0..8 * BATCH).map_while(|_| main.take(Order::ZERO, Gfp::HIGHUSER_MOVABLE)).collect();
        frames.into_iter().for_each(|pfn| main.give(pfn, Order::ZERO));
        assert!(main.yard.zone(ZONE).depot().batches >= 4, "there is something to pop");
        // CPU 3 and its group have nothing: its next allocation pops from the others' stack, and what it reads first of
        // a page is what stands below the leader on top there.
        let stopped = main.start(3, |runner| {
            runner.stop_at_read();
            let pfn = runner.take(Order::ZERO, Gfp::HIGHUSER_MOVABLE).expect("a free frame");
            runner.give(pfn, Order::ZERO);
        });
        let leader = main.wait_for_stopped();
        let threads = [1, 2].map(|cpu| main.start(cpu, move |runner| turn_over(runner, leader)));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        main.open_gate();
        stopped.join().unwrap();
        let retries = main.yard.zone(ZONE).depot().retries;
        assert!(is_weakened(Weakness::IdleTags) || retries > 0, "the pop found another tag");
    });
}

/// Takes batches off the depot and gives their frames back in another order, but for one that is to lead its batch again.
fn turn_over(runner: &Runner, leader: Pfn) {
    for _ in 0..2 {
        let count = BATCH * (3 + below(3) as usize);
        let mut frames: Vec<Pfn> = (0..count).map_while(|_| runner.take(Order::ZERO, Gfp::HIGHUSER_MOVABLE)).collect();
        for at in (1..frames.len()).rev() {
            frames.swap(at, below(at as u64 + 1) as usize);
        }
        if let Some(place) = frames.iter().position(|pfn| *pfn == leader) {
            // The lists keep two batches, so this one is pushed last, and begins with what is freed first of it.
            let last = (frames.len() / BATCH).saturating_sub(3) * BATCH;
            frames.swap(place, last);
        }
        frames.into_iter().for_each(|pfn| runner.give(pfn, Order::ZERO));
    }
}

/// What is said of what is left of a policy.
const LEFT_OVER: &str = "is left of another policy";

/// Three CPUs whose lists are empty allocate and free while the policy changes.
fn changed(from: ZonePolicy) {
    live(from, |main| {
        let workers = [0, 1, 3].map(|cpu| {
            main.start(cpu, |runner| {
                let held: Vec<Pfn> = (0..1 + below(40)).map_while(|_| runner.take(Order::ZERO, pick(&KINDS))).collect();
                held.into_iter().for_each(|pfn| runner.give(pfn, Order::ZERO));
            })
        });
        let changer = main.start(2, |runner| runner.yard.set_policy(ZonePolicy::Vanilla).expect("nobody stands still"));
        workers.into_iter().chain([changer]).for_each(|thread| thread.join().unwrap());
        assert_eq!(main.yard.zone(ZONE).depot().batches, 0, "a batch {LEFT_OVER}");
        assert_eq!(main.yard.zone(ZONE).cpu_owned().pageblocks, 0, "an owned pageblock {LEFT_OVER}");
    });
}

/// A test for each policy, so that they run at the same time.
macro_rules! policies {
    ($($name:ident: $policy:ident)*) => {
        $(
            #[test]
            fn $name() {
                explore(EXECUTIONS, || busy(ZonePolicy::$policy));
            }
        )*

        #[test]
        fn every_policy_has_a_test() {
            assert_eq!([$(ZonePolicy::$policy),*].len(), ZonePolicy::ALL.len());
        }
    };
}

policies! {
    nothing_is_lost_under_vanilla: Vanilla
    nothing_is_lost_under_vanilla_4_16: Vanilla416
    nothing_is_lost_under_skip_merge: SkipMerge
    nothing_is_lost_under_cluster: Cluster
    nothing_is_lost_under_cluster_bulk: ClusterBulk
    nothing_is_lost_under_big_pcp: BigPcp
    nothing_is_lost_under_prefetch: Prefetch
    nothing_is_lost_under_prefetch_before_lock: PrefetchBeforeLock
    nothing_is_lost_under_lock_per_page: LockPerPage
    nothing_is_lost_under_owned_blocks: OwnedBlocks
    nothing_is_lost_under_depot: Depot
}

#[test]
fn a_thread_stopped_in_a_pop_loses_nothing() {
    explore(EXECUTIONS, stopped_in_a_pop);
}

#[test]
fn a_stack_whose_tag_stays_what_it_is_is_found() {
    weakened(Weakness::IdleTags, || assert_fails(stopped_in_a_pop, &DAMAGES));
}

#[test]
fn a_cluster_on_its_way_that_is_taken_for_a_listed_one_is_found() {
    weakened(Weakness::LostStoresOf(HELD_RECORD), || assert_fails(|| busy(ZonePolicy::ClusterBulk), &DAMAGES));
}

#[test]
fn an_owner_that_is_not_asked_again_is_found() {
    weakened(Weakness::OwnerNotAskedAgain, || assert_fails(|| busy(ZonePolicy::OwnedBlocks), &DAMAGES));
}

#[test]
fn nothing_is_left_of_a_policy_that_was_changed_while_others_allocate() {
    explore(EXECUTIONS, || changed(ZonePolicy::OwnedBlocks));
    explore(EXECUTIONS, || changed(ZonePolicy::Depot));
}

#[test]
fn a_change_that_passes_by_lists_that_look_empty_is_found() {
    weakened(Weakness::EmptyListsPassedBy, || {
        assert_fails(|| changed(ZonePolicy::OwnedBlocks), &[LEFT_OVER]);
        assert_fails(|| changed(ZonePolicy::Depot), &[LEFT_OVER]);
    });
}

#[test]
fn exchanges_that_are_not_one_access_are_found() {
    weakened(Weakness::SplitCompareExchange, || assert_fails(|| busy(ZonePolicy::Depot), &DAMAGES));
}
