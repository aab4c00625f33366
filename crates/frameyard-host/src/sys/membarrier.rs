//! A memory barrier on all threads of this process, issued by one of them.

use std::io;
use std::sync::OnceLock;

use rustix::thread::{MembarrierCommand, membarrier};

use super::fork::{self, Hook, OtherThreads};

/// Proof that the kernel issues such barriers for this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ProcessBarrier(());

static REGISTERED: OnceLock<Option<ProcessBarrier>> = OnceLock::new();

static HOOK: Hook = fork::in_child(register_again);

/// Registers a forked child as its parent is registered. Linux copies the registration.
fn register_again(others: OtherThreads) {
    if others == OtherThreads::AreGone {
        let _ = membarrier(MembarrierCommand::RegisterPrivateExpedited);
    }
}

impl ProcessBarrier {
    /// Registers this process, once. `None` if the kernel lacks the call (before 4.14) or forbids it.
    pub(crate) fn registered() -> Option<Self> {
        if let Some(known) = REGISTERED.get() {
            return *known;
        }
        let is_hooked = fork::add(&HOOK).is_ok();
        // A forked child would wait for the registration of a thread that it does not have.
        let _inside = fork::inside();
        *REGISTERED.get_or_init(|| {
            let is_registered = is_hooked && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok();
            is_registered.then_some(ProcessBarrier(()))
        })
    }

    /// Makes every thread of this process pass a full barrier between begin and end of the call.
    ///
    /// The kernel interrupts threads that are running. A thread that is not running passed a barrier when it was
    /// descheduled.
    pub(crate) fn pass(self) -> io::Result<()> {
        Ok(membarrier(MembarrierCommand::PrivateExpedited)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registered_process_can_pass_barriers() {
        match ProcessBarrier::registered() {
            Some(barrier) => barrier.pass().unwrap(),
            None => println!("skipped: the kernel has no membarrier"),
        }
    }
}
