//! A second try for allocations that fail: memory that arenas keep for later goes back to the yard first.

use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use tikv_jemalloc_sys as sys;

use crate::current::extents;
use crate::forking;

/// Threads in [`purge`]. In a forked child, those that exist no more are among them.
static PURGING: AtomicU32 = AtomicU32::new(0);
/// Purges that have begun.
static BEGUN: AtomicU32 = AtomicU32::new(0);

/// The tries of an allocation while other threads purge.
const MOST_TRIES: u32 = 64;
/// After this number of tries, a thread sleeps a millisecond between two tries. Before, it lets another thread run.
const YIELDS: u32 = 16;

/// `MALLCTL_ARENAS_ALL` is 4096.
const ALL_ARENAS_PURGE: &std::ffi::CStr = c"arena.4096.purge";

/// Returns all memory to the yard that arenas keep for later. Whether there is a yard.
///
/// Arenas keep freed extents for ten seconds, out of reach of each other. Takes jemalloc's locks, so it must not run in a hook or a fork.
#[cold]
#[inline(never)]
pub fn purge() -> bool {
    if extents().is_none() || forking::is_forking() {
        return false;
    }
    PURGING.fetch_add(1, Ordering::Relaxed);
    BEGUN.fetch_add(1, Ordering::Relaxed);
    for action in [c"thread.tcache.flush", ALL_ARENAS_PURGE] {
        // SAFETY: the actions have no values. One that fails returns nothing to the yard.
        let _ = unsafe { sys::mallctl(action.as_ptr(), ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), 0) };
    }
    PURGING.fetch_sub(1, Ordering::Relaxed);
    true
}

/// Calls `allocate`. If that fails and memory can be purged, purges and calls it again.
#[inline]
pub fn or_purge<T>(allocate: impl Fn() -> *mut T) -> *mut T {
    let block = allocate();
    if block.is_null() { again(&allocate) } else { block }
}

/// A thread that purges takes all unused extents of an arena at once, and returns them one by one. A second thread finds none meanwhile,
/// and waits for the first.
#[cold]
#[inline(never)]
fn again<T>(allocate: &dyn Fn() -> *mut T) -> *mut T {
    for round in 0..MOST_TRIES {
        let (begun, purging) = (BEGUN.load(Ordering::Relaxed), PURGING.load(Ordering::Relaxed));
        if !purge() {
            break;
        }
        let block = allocate();
        let is_alone = purging == 0 && BEGUN.load(Ordering::Relaxed) == begun.wrapping_add(1);
        if !block.is_null() || is_alone {
            return block;
        }
        if round < YIELDS { thread::yield_now() } else { thread::sleep(Duration::from_millis(1)) }
    }
    ptr::null_mut()
}
