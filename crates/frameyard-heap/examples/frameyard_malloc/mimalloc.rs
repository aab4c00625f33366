//! mimalloc in place of jemalloc: a heap in an arena that fills a yard.
//!
//! All that was allocated before the arena existed is jemalloc's. The address of a block says where it is freed.
//!
//! mimalloc has no handlers for forks. Its locks serve threads that start and end: in a child, a lock that another thread of the parent
//! held would never be free. So threads start and end mimalloc's state under a lock of this module, which a fork takes.

use std::cell::UnsafeCell;
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use frameyard_heap::jemalloc::thread_state::{self, OTHER_HEAP};
use frameyard_heap::jemalloc::{HeapSummary, Settings};
use frameyard_heap::mimalloc::{ArenaHeap, BudgetShare, ByteSize, sys};

static HEAP: AtomicPtr<ArenaHeap> = AtomicPtr::new(ptr::null_mut());

/// The heap, if mimalloc was chosen and its arena exists. The first call in a thread starts mimalloc's state there.
#[inline]
pub(crate) fn heap() -> Option<&'static ArenaHeap> {
    let heap = arena()?;
    if !thread_state::is_set(OTHER_HEAP) {
        start_thread(heap);
    }
    Some(heap)
}

/// The heap, for a block that it has allocated.
#[inline]
pub(crate) fn owner(block: *mut c_void) -> Option<&'static ArenaHeap> {
    arena().filter(|heap| heap.contains(block))
}

#[inline]
fn arena() -> Option<&'static ArenaHeap> {
    // Acquire: pairs with the Release in `install`.
    let heap = HEAP.load(Ordering::Acquire);
    // SAFETY: `install` has stored a pointer that is never freed, or it is null.
    unsafe { heap.as_ref() }
}

/// Makes yard and arena. The size of the arena is rounded down to a multiple of 32 MiB.
pub(crate) fn install(settings: &Settings, share: Option<BudgetShare>) -> Result<(), String> {
    let heap = ArenaHeap::in_own_yard(settings.memory, settings.policy, share).map_err(|error| error.to_string())?;
    let heap = Box::leak(Box::new(heap));
    // SAFETY: a function for any thread, which does not unwind.
    let status = unsafe { libc::pthread_key_create(KEY.as_ptr().cast(), Some(end_thread)) };
    if status != 0 {
        return Err(format!("no key for threads: {}", std::io::Error::from_raw_os_error(status)));
    }
    start_thread(heap);
    // SAFETY: the handlers may run in any thread and never unwind.
    let status = unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(after_fork_in_child)) };
    if status != 0 {
        return Err(format!("no handlers for forks: {}", std::io::Error::from_raw_os_error(status)));
    }
    // Release: pairs with the Acquire in `arena`.
    HEAP.store(heap, Ordering::Release);
    Ok(())
}

/// What the heap has taken from its arena. Extents are ranges that came into use.
pub(crate) fn summary() -> Option<HeapSummary> {
    let heap = arena()?;
    let usage = heap.usage();
    Some(HeapSummary {
        policy: heap.yard().core().policy(),
        size: usage.size,
        allocations: usage.ranges,
        failures: usage.refused,
        zone_locks: heap.yard().stats().zones().map(|zone| zone.lock.acquisitions).sum(),
        free_pageblocks: usage.free_pageblocks,
        free: ByteSize(usage.size.0 - usage.in_use.0),
        in_use: usage.in_use,
        peak: usage.peak,
    })
}

/// A lock that a fork may hold: its owner in a child is the thread that forked.
struct Gate(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: a mutex is for all threads.
unsafe impl Sync for Gate {}

static GATE: Gate = Gate(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));

impl Gate {
    fn close(&self) {
        // SAFETY: a static mutex. The thread does not hold it.
        unsafe { libc::pthread_mutex_lock(self.0.get()) };
    }

    fn open(&self) {
        // SAFETY: the thread holds the mutex.
        unsafe { libc::pthread_mutex_unlock(self.0.get()) };
    }
}

/// The key whose destructor runs at the end of a thread that has used the heap.
static KEY: AtomicU32 = AtomicU32::new(0);

/// Starts mimalloc's state in the calling thread.
#[cold]
#[inline(never)]
fn start_thread(heap: &ArenaHeap) {
    GATE.close();
    // First: what the functions below allocate must not come here again.
    thread_state::set(OTHER_HEAP);
    if let Some(block) = heap.allocate_bytes(1) {
        // SAFETY: allocated above.
        unsafe { heap.free(block) };
    }
    // SAFETY: the key exists. Without a value, mimalloc ends the state of the thread by itself.
    let _ = unsafe { libc::pthread_setspecific(KEY.load(Ordering::Relaxed), (&raw const KEY).cast()) };
    GATE.open();
}

/// Ends mimalloc's state in the calling thread. Destructors that run later may start it again, and have this run again.
unsafe extern "C" fn end_thread(_value: *mut c_void) {
    GATE.close();
    // SAFETY: any thread.
    unsafe { sys::mi_thread_done() };
    thread_state::clear(OTHER_HEAP);
    GATE.open();
}

extern "C" fn before_fork() {
    // Other handlers may allocate while this thread holds the lock.
    let _ = heap();
    GATE.close();
}

extern "C" fn after_fork() {
    GATE.open();
}

extern "C" fn after_fork_in_child() {
    GATE.open();
    if let Some(share) = arena().and_then(ArenaHeap::share) {
        share.join_forked();
    }
}
