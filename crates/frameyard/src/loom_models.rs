//! Loom models of the core's protocols: every interleaving of a few threads, up to a bound of preemptions.
//!
//! They run the production code. [`Yard::create`](crate::Yard::create) initialises a yard on a region of modelled atomics.
//! Each thread attaches its own view. The validator recounts everything at the end of each execution. Only sizes differ:
//! orders up to 2, batches of two frames, arrays of four. The model of a parallel job has no yard.
//!
//! Each protocol has a model that must hold, and variants with one broken step that must fail:
//!
//! | defect | effect |
//! |---|---|
//! | [`Flaw`](machine::Flaw) | a lock does not acquire, release or exclude |
//! | [`InitFlaw`](machine::InitFlaw) | pages of the map are written or published out of order |
//! | [`Weakness`](crate::sync::Weakness) | an atomic access is weaker than the code says |
//!
//! The models of a transfer mechanism are in its folder.
//!
//! The models include the contents of frames: one cell per frame. The owner of a frame writes it without further
//! synchronisation. Loom fails a model in which a transfer of ownership does not order the accesses of both owners.
//!
//! # Bound
//!
//! Loom explores executions with up to [`PREEMPTIONS`] involuntary switches. Switches at a held lock and at a thread's end
//! do not count. One switch finds most broken variants, so three leave a margin. Larger models have a smaller bound, which
//! they state, or leave one switch to long runs ([`in_long_runs`]). Without a bound, models with three threads do not end in practice.
//! All models together take about five minutes on two CPUs.

mod devices;
mod guards;
mod highatomic;
mod isolation;
mod lru_pages;
pub(crate) mod machine;
mod map_init;
mod moving;
mod offline;
mod parallel_job;
mod per_cpu_lists;
pub(crate) mod policies;
mod publication;
mod racing_frees;
mod reporting;
mod sequences;
mod zone_lock;

use std::string::String;

use loom::model::Builder;

/// The bound of involuntary thread switches.
const PREEMPTIONS: usize = 3;

/// The result of an exploration.
pub(crate) struct Explored {
    /// How often a thread found a lock held, over all executions.
    pub(crate) contentions: u64,
}

/// Explores a model. Panics if an execution fails.
pub(crate) fn explore(model: impl Fn() + Send + Sync + 'static) -> Explored {
    explore_within(PREEMPTIONS, model)
}

/// As [`explore`], with another bound.
pub(crate) fn explore_within(preemptions: usize, model: impl Fn() + Send + Sync + 'static) -> Explored {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    // The creation of the yard alone has thousands of accesses.
    builder.max_branches = 100_000;
    let before = machine::contentions();
    builder.check(model);
    Explored { contentions: machine::contentions() - before }
}

/// The bound of a model that takes long: one switch less, except in long runs (`cargo xtask long`).
pub(crate) fn in_long_runs(preemptions: usize) -> usize {
    if is_long_run() { preemptions } else { preemptions - 1 }
}

/// Whether models may take long.
pub(crate) fn is_long_run() -> bool {
    std::env::var_os("FRAMEYARD_LONG_RUNS").is_some()
}

/// Explores a model that must fail. Returns the panic message of the first failing execution.
fn failure_of(preemptions: usize, model: impl Fn() + Send + Sync + 'static) -> String {
    let explored = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| explore_within(preemptions, model)));
    let Err(panic) = explored else { panic!("the broken protocol passes its model") };
    match panic.downcast::<String>() {
        Ok(message) => *message,
        Err(other) => String::from(*other.downcast::<&str>().expect("a panic has a message")),
    }
}

/// Asserts that a broken protocol fails its model, with one of these messages.
#[track_caller]
pub(crate) fn assert_fails(model: impl Fn() + Send + Sync + 'static, expected: &[&str]) {
    assert_fails_within(PREEMPTIONS, model, expected);
}

/// As [`assert_fails`], with another bound.
#[track_caller]
pub(crate) fn assert_fails_within(preemptions: usize, model: impl Fn() + Send + Sync + 'static, expected: &[&str]) {
    let message = failure_of(preemptions, model);
    assert!(expected.iter().any(|part| message.contains(part)), "failed for another reason: {message}");
}

/// The failure messages for a lock that does not exclude or order.
pub(crate) const DAMAGES: [&str; 4] = [
    // Loom: nothing orders the accesses to a frame's contents or to a word.
    "Causality violation",
    // A frame has two owners.
    "allocated twice",
    // The yard refuses the free of a frame by its owner.
    "the block is ours",
    // Counts, lists or tags are wrong at the end of the execution.
    "the validator objects",
];

/// The same, for damaged lists of free blocks.
pub(crate) const LIST_DAMAGES: [&str; 7] = {
    let [a, b, c, d] = DAMAGES;
    // The last is an assertion of the production code.
    [a, b, c, d, "frames were lost", "freed frames have merged", " is buddy-free "]
};
