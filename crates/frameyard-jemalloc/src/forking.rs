//! Hooks in a thread that forks.
//!
//! `frameyard-host` holds the locks of all yards during a fork. jemalloc takes its own locks after them, and other code's handlers for
//! forks may allocate between the two. Such an allocation must not wait for the yard: its thread holds the lock. It gets memory from the
//! host. The handlers here are installed after those of the yard, so they are the first before a fork and the last after it.
//!
//! jemalloc calls the hooks that use the yard's locks while it holds no lock that a fork takes: it creates all arenas when the hooks are
//! installed, `retain` is off, and decay releases its lock before it purges. Otherwise a thread that waits for the yard could hold a lock
//! that the forking thread needs.

use crate::thread_state::{self, FORKING};

/// Whether the calling thread is in a `fork`.
pub(crate) fn is_forking() -> bool {
    thread_state::is_set(FORKING)
}

/// Installs the handlers. The yard exists.
pub(crate) fn install() -> std::io::Result<()> {
    // SAFETY: the handlers may run in any thread and never unwind.
    let status = unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after)) };
    if status == 0 { Ok(()) } else { Err(std::io::Error::from_raw_os_error(status)) }
}

extern "C" fn before() {
    thread_state::set(FORKING);
}

extern "C" fn after() {
    thread_state::clear(FORKING);
}
