//! A second try for allocations that fail: memory that arenas keep for later goes back to the yard first.

use std::ptr;

use tikv_jemalloc_sys as sys;

use crate::jemalloc::current::extents;
use crate::jemalloc::forking;
use crate::jemalloc::gate;
use crate::jemalloc::mallctl::{read, write};

/// The tries of an allocation while extents return to the yard.
const MOST_TRIES: u32 = 4096;
/// The tries after the last extent has returned, while a thread is returning another one. Such a thread may wait for a CPU.
const PATIENT_TRIES: u32 = 256;
/// The tries after the last extent has returned, while no thread is returning one. It may be between two.
const QUIET_TRIES: u32 = 4;

/// `MALLCTL_ARENAS_ALL` is 4096.
const ALL_ARENAS_PURGE: &std::ffi::CStr = c"arena.4096.purge";

/// Returns all memory to the yard that arenas keep for later. Whether there is a yard.
///
/// Arenas keep freed extents for ten seconds, out of reach of each other. Takes jemalloc's locks, so it must not run in a hook or a fork.
/// Waits for threads that fork.
#[cold]
#[inline(never)]
pub fn purge() -> bool {
    if extents().is_none() || forking::is_forking() {
        return false;
    }
    gate::begin_purge();
    for action in [c"thread.tcache.flush", ALL_ARENAS_PURGE] {
        // SAFETY: the actions have no values. One that fails returns nothing to the yard.
        let _ = unsafe { sys::mallctl(action.as_ptr(), ptr::null_mut(), ptr::null_mut(), ptr::null_mut(), 0) };
    }
    gate::end_purge();
    true
}

/// Calls `allocate`. If that fails and memory can be purged, purges and calls it again.
#[inline]
pub fn or_purge<T>(allocate: impl Fn() -> *mut T) -> *mut T {
    let block = allocate();
    if block.is_null() { again(&allocate) } else { block }
}

#[cold]
#[inline(never)]
fn again<T>(allocate: &dyn Fn() -> *mut T) -> *mut T {
    let block = after_purge(allocate);
    if block.is_null() && gate::is_forked() { from_any_arena(allocate) } else { block }
}

/// A thread that returns unused extents takes them from an arena all at once, and returns them one by one. A second thread finds none
/// meanwhile. So it tries as long as extents return, by its own purge or another thread's.
fn after_purge<T>(allocate: &dyn Fn() -> *mut T) -> *mut T {
    let (mut returned, mut unchanged) = (None, 0);
    for _ in 0..MOST_TRIES {
        let Some(extents) = extents().filter(|_| purge()) else { break };
        let block = allocate();
        if !block.is_null() {
            return block;
        }
        let now = extents.returned();
        unchanged = if returned.replace(now.count) == Some(now.count) { unchanged + 1 } else { 0 };
        let others_return = now.is_returning || gate::is_purging();
        if unchanged >= if others_return { PATIENT_TRIES } else { QUIET_TRIES } {
            break;
        }
        gate::pause(unchanged);
    }
    ptr::null_mut()
}

/// Calls `allocate` with each arena as that of the thread, until it succeeds.
///
/// If another thread returned extents of an arena to the yard during the fork, jemalloc takes it to be at that for ever in the child. So
/// that arena keeps what is freed in it.
fn from_any_arena<T>(allocate: &dyn Fn() -> *mut T) -> *mut T {
    let mut block: *mut T = ptr::null_mut();
    if let (Some(own), Some(arenas)) = (read(c"thread.arena"), read::<u32>(c"opt.narenas")) {
        for arena in 0..arenas {
            if block.is_null() && use_arena(arena) {
                block = allocate();
            }
        }
        use_arena(own);
    }
    block
}

/// Has the calling thread use an arena; whether it does.
fn use_arena(arena: u32) -> bool {
    // SAFETY: the name's value is the number of an arena.
    unsafe { write(c"thread.arena", arena).is_ok() }
}
