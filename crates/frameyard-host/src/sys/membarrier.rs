//! A memory barrier on all threads of this process, issued by one of them.

use std::io;
use std::sync::OnceLock;

use rustix::thread::{MembarrierCommand, membarrier};

/// Proof that the kernel issues such barriers for this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ProcessBarrier(());

impl ProcessBarrier {
    /// Registers this process, once. `None` if the kernel lacks the call (before 4.14) or forbids it.
    pub(crate) fn registered() -> Option<Self> {
        static REGISTERED: OnceLock<Option<ProcessBarrier>> = OnceLock::new();
        *REGISTERED
            .get_or_init(|| membarrier(MembarrierCommand::RegisterPrivateExpedited).ok().map(|()| ProcessBarrier(())))
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
