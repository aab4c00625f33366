//! Loom models of this crate's protocols: every interleaving of a few threads, up to a bound of preemptions.
//!
//! They run the production code on a small yard whose frame words are modelled. Each protocol has a model that passes,
//! and the same model with one defect, which must fail.

mod ageing;
mod batches;
mod cache;
mod counts;
mod kept;
mod lru;
mod machine;
mod mapped;
mod migrate;
mod pins;
mod readers;
mod regions;

use std::any::Any;
use std::boxed::Box;
use std::string::String;
use std::sync::Arc;

use frameyard::Yard;
use loom::model::Builder;
use loom::thread::{self, JoinHandle};

use crate::VmConfig;
use crate::vm::Vm;
use crate::words::learn_all;
use machine::{Broken, Machine, ModelPlatform};

/// The bound of involuntary thread switches in an execution.
const PREEMPTIONS: usize = 3;

/// Explores a model; panics if an execution fails.
#[track_caller]
fn explore(model: impl Fn() + Send + Sync + 'static) {
    explore_to(PREEMPTIONS, model);
}

/// Like [`explore`], with a smaller bound of preemptions for large models.
#[track_caller]
fn explore_to(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let model = Arc::new(model);
    let mut known = learn_all();
    while let Err(panic) = explore_once(preemptions, &model) {
        let learnt = learn_all();
        // A thread created a word while another was about to use it. The next exploration starts with the word.
        if learnt == known || !message_of(&panic).contains("and mut accesses") {
            std::panic::resume_unwind(panic);
        }
        known = learnt;
    }
}

/// The bound of a model that takes long: one switch less, except in long runs (`cargo xtask long`).
fn in_long_runs(preemptions: usize) -> usize {
    if std::env::var_os("FRAMEYARD_LONG_RUNS").is_some() { preemptions } else { preemptions - 1 }
}

fn explore_once(preemptions: usize, model: &Arc<impl Fn() + Send + Sync + 'static>) -> std::thread::Result<()> {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    // An execution has many thousands of accesses, most of them while one thread creates the yard.
    builder.max_branches = 1_000_000;
    let model = Arc::clone(model);
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| builder.check(move || model())))
}

fn message_of(panic: &Box<dyn Any + Send>) -> &str {
    match panic.downcast_ref::<String>() {
        Some(message) => message,
        None => panic.downcast_ref::<&str>().expect("a panic has a message"),
    }
}

/// Asserts that a broken protocol fails its model with one of these messages.
#[track_caller]
fn assert_fails(model: impl Fn() + Send + Sync + 'static, expected: &[&str]) {
    assert_fails_to(PREEMPTIONS, model, expected);
}

/// Like [`assert_fails`], with another bound of preemptions.
#[track_caller]
fn assert_fails_to(preemptions: usize, model: impl Fn() + Send + Sync + 'static, expected: &[&str]) {
    let explored = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| explore_to(preemptions, model)));
    let Err(panic) = explored else { panic!("the broken protocol passes its model") };
    let message = message_of(&panic);
    // A broken protocol may damage the state, which the root then notes.
    let mut expected = expected.iter().copied().chain(["a root that was created: Damaged"]);
    assert!(expected.any(|part| message.contains(part)), "failed for another reason: {message}");
}

/// Runs `body` in a new thread on a CPU of a machine whose root was created.
fn start(machine: &Arc<Machine>, cpu: u32, body: impl FnOnce(Vm<'_, ModelPlatform>) + 'static) -> JoinHandle<()> {
    let machine = Arc::clone(machine);
    thread::spawn(move || {
        let yard = machine.attach(cpu);
        body(Vm::attach(&yard).expect("a root that was created"));
    })
}

/// The main thread of a model: the machine, its yard and its root.
struct Scene {
    machine: Arc<Machine>,
    yard: Yard<ModelPlatform>,
}

impl Scene {
    /// A machine of `sections` sections of four frames, with a root.
    fn new(sections: u64, config: &VmConfig, broken: Broken) -> Self {
        Self::of(Machine::bare(sections, broken), config)
    }

    /// Like [`new`](Self::new), with a device section above the memory.
    fn with_device(sections: u64, config: &VmConfig) -> Self {
        Self::of(Machine::with_device(sections), config)
    }

    fn of(machine: Arc<Machine>, config: &VmConfig) -> Self {
        let yard = machine.create();
        Vm::create(&yard, config).expect("a root");
        Self { machine, yard }
    }

    /// The view of this thread.
    fn vm(&self) -> Vm<'_, ModelPlatform> {
        Vm::attach(&self.yard).expect("a root that was created")
    }

    /// Runs `body` in a new thread on a CPU.
    fn start(&self, cpu: u32, body: impl FnOnce(Vm<'_, ModelPlatform>) + 'static) -> JoinHandle<()> {
        start(&self.machine, cpu, body)
    }

    /// Asserts that nothing is lost, once all other threads have finished and released what they held.
    fn finish(&self) {
        self.vm().finish();
        self.yard.drain_all();
        self.yard.validate().unwrap_or_else(|problem| panic!("the validator objects: {problem}"));
        assert_eq!(self.yard.stats().free_pages(), self.yard.stats().managed_pages(), "frames were lost");
    }
}
