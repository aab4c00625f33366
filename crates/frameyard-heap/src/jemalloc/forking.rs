//! Hooks in a thread that forks, and the order of locks.
//!
//! `pthread_atfork` runs the handlers of one library after those of another, the last installed first:
//!
//! | before a fork | installed by | takes |
//! |---|---|---|
//! | 1 | this module, after the yard exists | nothing; waits for purges, and marks the thread |
//! | 2 | `frameyard-host`, with the first yard | all locks of all yards |
//! | 3 | other code, between the two | anything |
//! | 4 | jemalloc, with its first allocation | all of its locks |
//!
//! So the order is: the yard's locks, then jemalloc's. An allocation in step 3 must not wait for the yard, whose locks its own thread holds:
//! it gets memory from the host, and what it frees stays with its arena.
//!
//! Elsewhere a hook takes the yard's locks below jemalloc's. There is no cycle, because jemalloc then holds none that a fork takes:
//!
//! - It asserts that no lock of an arena is held around `alloc` and `dalloc` (`WITNESS_RANK_CORE`), but for the one that grows retained
//!   memory, which `retain:false` leaves unused. Decay releases its lock before it purges.
//! - `arenas_lock` and `ctl_mtx` are held while an arena is created with hooks. All arenas exist when the installation ends.
//! - `split` and `merge` run under an arena's lock. They take no lock of the yard.
//! - The tables of all arenas lie in the first arena's metadata, which has no hooks.
//!
//! A program that creates, resets or destroys arenas itself, through `mallctl`, while another thread forks, breaks the second rule.

use crate::jemalloc::current::extents;
use crate::jemalloc::gate;
use crate::jemalloc::thread_state::{self, FORKING};

/// Whether the calling thread is in a `fork`.
pub(crate) fn is_forking() -> bool {
    thread_state::is_set(FORKING)
}

/// Installs the handlers. The yard exists.
pub(crate) fn install() -> std::io::Result<()> {
    // SAFETY: the handlers may run in any thread and never unwind.
    let status = unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after_in_child)) };
    if status == 0 { Ok(()) } else { Err(std::io::Error::from_raw_os_error(status)) }
}

extern "C" fn before() {
    gate::begin_fork();
    thread_state::set(FORKING);
}

extern "C" fn after() {
    thread_state::clear(FORKING);
    gate::end_fork();
}

/// Runs after the handlers of `frameyard-host`, which release the yard.
extern "C" fn after_in_child() {
    thread_state::clear(FORKING);
    gate::end_fork_in_child();
    let Some(extents) = extents() else { return };
    extents.forget_other_threads();
    if let Some(share) = extents.share() {
        share.join_forked();
    }
}
