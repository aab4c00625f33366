//! A full memory barrier on all threads of this process, made by one of them.

use std::io;
use std::sync::OnceLock;

use super::check;

/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED` and the command that allows it, of `linux/membarrier.h`.
const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

fn membarrier(command: libc::c_int) -> io::Result<()> {
    // SAFETY: the call takes numbers and touches no memory of ours.
    check(unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) })
}

/// That the kernel makes such barriers for this process: shown by asking it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ProcessBarrier(());

impl ProcessBarrier {
    /// Asks the kernel, once in a process; `None` where it has no such call (before 4.14), or does not let us.
    pub(crate) fn registered() -> Option<Self> {
        static FOUND: OnceLock<Option<ProcessBarrier>> = OnceLock::new();
        *FOUND.get_or_init(|| membarrier(REGISTER_PRIVATE_EXPEDITED).ok().map(|()| Self(())))
    }

    /// Makes every thread of this process pass a full barrier, at some place between begin and end of the call: those that
    /// run, by an interrupt; those that do not, as they were taken off their CPU.
    pub(crate) fn pass(self) -> io::Result<()> {
        membarrier(PRIVATE_EXPEDITED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_that_has_the_call_passes_barriers() {
        match ProcessBarrier::registered() {
            Some(barrier) => barrier.pass().unwrap(),
            None => println!("skipped: no membarrier here"),
        }
    }
}
