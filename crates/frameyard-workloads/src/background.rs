//! The background reclaimer and the background compactor of each node, beside a workload.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use frameyard::{NodeId, Platform};
use frameyard_host::HostPlatform;
use frameyard_vm::{ReclaimStep, Vm};

use crate::error::WorkloadError;

/// How long a background thread sleeps when it has no work.
pub const NAP: Duration = Duration::from_millis(1);

/// Whether a workload has background workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BackgroundWork {
    /// It has none.
    #[default]
    Absent,
    /// Each node has a reclaimer and a compactor.
    OfNodes,
}

/// One step of a background worker. Returns whether it had work.
pub type Step<P> = fn(&Vm<'_, P>, NodeId) -> bool;

/// The background workers of a node: its reclaimer and its compactor.
#[must_use]
pub const fn steps<P: Platform>() -> [Step<P>; 2] {
    [reclaim::<P>, compact::<P>]
}

fn reclaim<P: Platform>(vm: &Vm<'_, P>, node: NodeId) -> bool {
    matches!(vm.reclaim_step(node), ReclaimStep::Progress(_))
}

fn compact<P: Platform>(vm: &Vm<'_, P>, node: NodeId) -> bool {
    vm.compact_step(node).is_some()
}

/// Runs `work` beside a thread for each background worker. `work` may end these threads earlier by a call of its argument.
pub(crate) fn beside_background<R>(
    vm: &Vm<'_, HostPlatform>,
    work: impl FnOnce(&mut dyn FnMut()) -> R,
) -> Result<R, WorkloadError> {
    let go_on = AtomicBool::new(true);
    thread::scope(|scope| {
        let _stop = StopOnDrop(&go_on);
        let mut threads = Vec::new();
        for node in (0..vm.yard().nodes()).map(NodeId) {
            for step in steps() {
                let go_on = &go_on;
                let body = move || work_in_background(vm, node, step, go_on);
                let thread = thread::Builder::new().spawn_scoped(scope, body);
                threads.push(thread.map_err(WorkloadError::run_time)?);
            }
        }
        Ok(work(&mut || {
            go_on.store(false, Ordering::Relaxed);
            threads.drain(..).for_each(|thread| drop(thread.join()));
        }))
    })
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

fn work_in_background(vm: &Vm<'_, HostPlatform>, node: NodeId, step: Step<HostPlatform>, go_on: &AtomicBool) {
    while go_on.load(Ordering::Relaxed) {
        if !step(vm, node) {
            thread::sleep(NAP);
        }
    }
}
