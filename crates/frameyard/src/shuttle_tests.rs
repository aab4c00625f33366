//! Whole yards of real sizes under schedules that shuttle chooses, for interactions that are too large for loom.
//!
//! # Schedules
//!
//! Three or four threads run the production code on one small yard, in turns. Before each atomic access the scheduler may
//! switch threads. Half of the schedules are random; the other half have random priorities that change a few times (the
//! scheduler of "A Randomized Scheduler with Probabilistic Guarantees of Finding Bugs", Burckhardt et al., 2010). The variable
//! `SHUTTLE_RANDOM_SEED` is the seed; without it the seed is fixed. `cargo xtask shuttle` explores a new seed in each run, and prints it.
//!
//! # Limits
//!
//! Schedules are samples, and sequentially consistent. The loom models check orderings and all schedules of a few steps. These
//! tests add real batches, real limits, compaction and moved blocks, under every policy.
//!
//! A [`Weakness`] breaks one protection, and the test must then fail.

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
use crate::sync::{Weakness, weakened};
use crate::units::{Block, Order};
use machine::{FRAMES, LARGEST, PAGEBLOCK, Runner, ZONE, at, below, live, pick};
use mover::Mover;

/// The seed of all schedules.
const SEED: u64 = 8;
/// Priority changes in an execution, plus one.
const DEPTH: usize = 5;
/// Executions per scheduler of a test with sound protections, unless this is a long run (`cargo xtask long`).
const EXECUTIONS: usize = 15;
/// Executions per scheduler in long runs.
const LONG_RUN: usize = 500;
/// Executions per scheduler that must find a broken protection.
const ENOUGH: usize = 2000;
/// Executions of one scheduler before the other has its turn, in the search for a broken protection.
const TURN: usize = 20;

fn config() -> Config {
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    config.max_steps = MaxSteps::FailAfter(20_000_000);
    // Fixed seeds repeat a failure. A printed schedule of millions of steps helps no reader.
    config.failure_persistence = FailurePersistence::None;
    config
}

fn run(scheduler: impl Scheduler + 'static, execution: &Arc<impl Fn() + Send + Sync + 'static>) {
    let execution = Arc::clone(execution);
    Executions::new(scheduler, config()).run(move || execution());
}

/// Runs an execution `executions` times under each scheduler.
fn explore(seed: u64, executions: usize, execution: &Arc<impl Fn() + Send + Sync + 'static>) {
    run(PctScheduler::new_from_seed(seed, DEPTH, executions), execution);
    run(RandomScheduler::new_from_seed(seed, executions), execution);
}

/// Explores executions with sound protections.
fn explore_sound(execution: impl Fn() + Send + Sync + 'static) {
    let is_long = std::env::var_os("FRAMEYARD_LONG_RUNS").is_some();
    explore(SEED, if is_long { LONG_RUN } else { EXECUTIONS }, &Arc::new(execution));
}

/// Asserts that an execution with a broken protection fails with one of these messages.
pub(crate) fn assert_fails(execution: impl Fn() + Send + Sync + 'static, expected: &[&str]) {
    let execution = Arc::new(execution);
    let search = || (0..).take(ENOUGH / TURN).for_each(|turn| explore(SEED + turn, TURN, &execution));
    let explored = std::panic::catch_unwind(std::panic::AssertUnwindSafe(search));
    let Err(panic) = explored else { panic!("the broken protection was not found") };
    let message = match panic.downcast::<String>() {
        Ok(message) => *message,
        Err(other) => String::from(*other.downcast::<&str>().expect("a panic has a message")),
    };
    assert!(expected.iter().any(|part| message.contains(part)), "failed for another reason: {message}");
}

/// The failures that broken protections cause. The last is an assertion of the free lists.
pub(crate) const DAMAGES: [&str; 6] = [
    "allocated twice",
    "the block is ours",
    "the validator objects",
    "frames were lost",
    "freed frames have merged",
    ", and on a free list",
];

const KINDS: [Gfp; 5] =
    [Gfp::HIGHUSER_MOVABLE, Gfp::HIGHUSER_MOVABLE, Gfp::KERNEL, Gfp::KERNEL.union(Gfp::RECLAIMABLE), Gfp::ATOMIC];

/// Allocates and frees single frames in numbers above a batch, large blocks, and movable blocks.
fn work(runner: &Runner) {
    const STEPS: usize = 6;
    let mover = Mover(runner);
    let mut held: Vec<Block> = Vec::new();
    for _ in 0..STEPS {
        match below(8) {
            0..=2 => {
                let gfp = pick(&KINDS);
                let frames = (0..1 + below(300)).map_while(|_| runner.take(Order::ZERO, gfp));
                held.extend(frames.map(|pfn| Block { pfn, order: Order::ZERO }));
            }
            3 => {
                let order = pick(&[Order(3), Order(4), Order(5), PAGEBLOCK, LARGEST]);
                held.extend(runner.take(order, pick(&KINDS)).map(|pfn| Block { pfn, order }));
            }
            4 => (0..8).for_each(|_| mover.take(Order(below(3) as u8))),
            5 => _ = mover.give_one(),
            _ => give_some(runner, &mut held),
        }
    }
    held.into_iter().for_each(|Block { pfn, order }| runner.give(pfn, order));
}

/// Frees about half of the held blocks, in an order other than that of the frames.
fn give_some(runner: &Runner, held: &mut Vec<Block>) {
    for _ in 0..held.len() / 2 {
        let Block { pfn, order } = held.swap_remove(below(held.len() as u64) as usize);
        runner.give(pfn, order);
    }
}

/// Operations that need all free frames: takes ranges, compacts, drains lists, changes the policy and changes it back.
fn disturb(runner: &Runner, policy: ZonePolicy) {
    const STEPS: usize = 4;
    let mover = Mover(runner);
    for _ in 0..STEPS {
        match below(5) {
            0 => take_range(runner, &mover),
            1 => _ = runner.yard.compaction().zone(ZONE, CompactRequest::WHOLE_ZONE, &mover.owners()),
            2 => runner.yard.zone(ZONE).drain(),
            3 => {
                let other = if policy.is_changeable() { pick(&ZonePolicy::CHANGEABLE) } else { policy };
                for policy in [other, policy] {
                    runner.yard.set_policy(policy).expect("no thread is stopped");
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

/// Allocates some pageblocks by number and frees them.
fn take_range(runner: &Runner, mover: &Mover<'_>) {
    const MARK: u32 = 77;
    let pageblocks = FRAMES >> PAGEBLOCK.0;
    let range = at(below(pageblocks - 1) << PAGEBLOCK.0, pick(&[1, 2]) << PAGEBLOCK.0);
    let Ok(range) = runner.yard.request(range, Gfp::HIGHUSER_MOVABLE).owners(&mover.owners()).range() else {
        return;
    };
    runner.own(range, MARK);
    runner.release(range, MARK);
    runner.yard.free_range(range).expect("the range is ours");
}

/// Two CPUs allocate while a third one, or a second thread of the first, disturbs.
pub(crate) fn busy(policy: ZonePolicy) {
    live(policy, move |main| {
        let disturber = pick(&[0, 3]);
        let threads =
            [main.start(0, work), main.start(1, work), main.start(disturber, move |runner| disturb(runner, policy))];
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let mover = Mover(main);
        while mover.give_one() {}
    });
}

/// All policies, in four tests that run at the same time.
macro_rules! every_policy {
    ($($name:ident: $first:literal)*) => {
        $(
            #[test]
            fn $name() {
                for policy in ZonePolicy::ALL.into_iter().skip($first).step_by(4) {
                    println!("under {policy}");
                    explore_sound(move || busy(policy));
                }
            }
        )*
    };
}

every_policy! {
    nothing_is_lost_under_every_fourth_policy_from_the_first: 0
    nothing_is_lost_under_every_fourth_policy_from_the_second: 1
    nothing_is_lost_under_every_fourth_policy_from_the_third: 2
    nothing_is_lost_under_every_fourth_policy_from_the_fourth: 3
}

#[test]
fn finds_exchanges_that_are_not_atomic() {
    weakened(Weakness::SplitCompareExchange, || assert_fails(|| busy(ZonePolicy::Bits), &DAMAGES));
}
