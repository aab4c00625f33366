//! Loom models of the core's protocols: every interleaving of a few threads, up to a bound of preemptions.
//!
//! They run the production code: [`Yard::create`](crate::Yard::create) initialises a yard on a region of modelled
//! atomics, each thread attaches a view of its own, and the validator recounts everything at the end of each execution.
//! Only sizes differ: one small order, batches of two frames, arrays of four. The model of a parallel job needs no
//! yard.
//!
//! Each protocol has a model that holds, and the same model with one step broken, which must fail: a lock that does not
//! acquire, release or exclude ([`Flaw`](machine::Flaw), by [`Platform`](crate::Platform) methods), pages of the map
//! that are written or published out of order ([`InitFlaw`](machine::InitFlaw)), or an atomic access that is weaker
//! than written ([`Weakness`](crate::sync::Weakness)). The models of a transfer mechanism are in its folder.
//!
//! The contents of frames are modelled, too: one cell per frame, which the owner of the frame writes without
//! synchronisation of its own. Loom objects if a transfer of ownership does not order the accesses of both owners.
//!
//! # Bound
//!
//! Loom explores executions with up to [`PREEMPTIONS`] involuntary switches; switches at a held lock and at a thread's
//! end are free. One switch is enough to find most broken protocols here, so three leave a margin. All models together
//! take about two minutes on two CPUs. The larger models state a smaller bound. Without a bound the models of three
//! threads do not end in practice.

mod bring_up;
mod devices;
mod isolation;
mod lru_pages;
pub(crate) mod machine;
mod moving;
mod parallel_job;
mod per_cpu_lists;
pub(crate) mod policies;
mod publication;
mod racing_frees;
mod zone_lock;

use std::string::String;

use loom::model::Builder;

/// How many involuntary thread switches an execution has at most.
const PREEMPTIONS: usize = 3;

/// What an exploration has met.
pub(crate) struct Explored {
    /// How often a thread found a lock held, over all executions.
    pub(crate) contentions: u64,
}

/// Explores a model; panics where an execution breaks it.
pub(crate) fn explore(model: impl Fn() + Send + Sync + 'static) -> Explored {
    explore_within(PREEMPTIONS, model)
}

/// As [`explore`], with another bound.
pub(crate) fn explore_within(preemptions: usize, model: impl Fn() + Send + Sync + 'static) -> Explored {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    // An execution has thousands of accesses, most of them while one thread creates the yard.
    builder.max_branches = 100_000;
    let before = machine::contentions();
    builder.check(model);
    Explored { contentions: machine::contentions() - before }
}

/// Explores a model that must fail; what the first failing execution said.
fn failure_of(preemptions: usize, model: impl Fn() + Send + Sync + 'static) -> String {
    let explored = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| explore_within(preemptions, model)));
    let Err(panic) = explored else { panic!("the broken protocol passes its model") };
    match panic.downcast::<String>() {
        Ok(message) => *message,
        Err(other) => String::from(*other.downcast::<&str>().expect("a panic has a message")),
    }
}

/// Demands that a broken protocol fails its model with one of these messages, and not by an accident of another kind.
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

/// The messages of a lock that does not exclude or order.
pub(crate) const DAMAGES: [&str; 4] = [
    // Loom: accesses to one frame's contents, or to a word, are not ordered.
    "Causality violation",
    // The owners' witness: a frame has two of them.
    "handed out twice",
    // The free of a frame that its owner still has is refused.
    "the block is ours",
    // Counts, lists or tags are wrong when all threads are done.
    "the validator objects",
];
