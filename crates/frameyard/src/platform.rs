//! What the core needs from the kernel or process it runs in.
//!
//! | trait | provides | a kernel port |
//! |---|---|---|
//! | [`Platform`] | CPU identity, waiting, locks, workers, the bytes of frames | writes four methods |
//! | [`MapBacking`] | memory behind the map and behind frames | `impl MapBacking for Kernel {}` |
//! | [`Probe`] | instrumentation for simulators, counters and progress displays | `impl Probe for Kernel {}` |
//!
//! The methods of `MapBacking` and `Probe` all have defaults. The defaults of `Probe` do nothing, so its calls compile to
//! nothing.

use core::ptr::NonNull;

use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::units::{CpuId, NodeId, Pfn, messages};

mod get_mark;
mod lock_id;
mod map_backing;
#[cfg(all(test, not(loom)))]
pub(crate) mod plain;
mod probe;
mod shared_line;

pub use get_mark::{GetMark, StillGetting};
pub use lock_id::{LockId, LockKind};
pub use map_backing::{FramesNotReturned, FreeFrames, MapBacking, MapNotBacked, Offload, SpeculativeGets};
pub use probe::{Access, Activity, InitProgress, MapWrite, NodeInit, Probe};
pub use shared_line::{LineKind, SharedLine};

/// Whether a lock was free.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Contention {
    /// The lock was free.
    Free,
    /// Another CPU held the lock. [`Platform::lock`] waited for it; [`Platform::try_lock`] did not take it.
    Contended,
}

const FREE: u32 = 0;
const HELD: u32 = 1;

/// The environment of a yard.
///
/// Four methods are required: [`guard`](Self::guard), [`current_cpu`](Self::current_cpu), [`relax`](Self::relax) and
/// [`frame_bytes`](Self::frame_bytes).
///
/// # Waiting
///
/// All waiting in the core and in `frameyard-vm` goes through [`relax`](Self::relax) (directly, in [`lock`](Self::lock), or in
/// [`wait_for_change`](Self::wait_for_change)). A wait calls it between two reads of a word; `round` counts the calls of
/// one wait from 0.
///
/// | wait for | ends | then |
/// |---|---|---|
/// | a lock | when the holder unlocks it | the caller has the lock |
/// | initialisation of a part of the map, frames in transit: a request without `DIRECT_RECLAIM` | after 32 rounds | the request fails or takes other memory |
/// | the same: all other requests; removal of a device; exit of an address space | after 4096 rounds | the call returns a typed error |
/// | a page that another CPU has locked in the page cache of `frameyard-vm` | after 32768 rounds | the call returns a typed error |
///
/// A lock holder waits only for locks that come later in the lock order, so waits for locks end when every holder keeps
/// running. All other waits depend on a thread that holds no lock, so they are bounded.
///
/// A kernel that disables interrupts (or preemption) in [`guard`](Self::guard):
///
/// - pauses the CPU in `relax` (`core::hint::spin_loop`) and returns;
/// - does not sleep or schedule in `relax`: the caller may hold other locks, or be an interrupt handler;
/// - waits about 1 µs per call from round 8 on. 4096 rounds then last 4 ms. Initialising a section of 128 MiB, the longest
///   work that such a wait covers, writes 2 MiB of map;
/// - lets the CPU that initialises the map run: a single CPU that waits with preemption disabled only uses up its rounds.
///
/// User space, where the scheduler can stop a lock holder at any instruction:
///
/// - pauses in the first rounds, twice as long in each round;
/// - yields to other threads from about round 7 on. Otherwise a waiter with a higher priority can starve the holder;
/// - does not sleep in rounds 0 to 31: callers that must not sleep give up after 32 rounds;
/// - sleeps from about round 64 on, for at most 1 ms per round.
pub trait Platform: MapBacking + Probe + Sync {
    /// Held while the caller holds a lock of the yard.
    ///
    /// A kernel disables interrupts (or preemption) for its lifetime, so that no interrupt handler waits for a lock that the
    /// interrupted code holds.
    type Guard;

    /// Enters a section that holds a lock. Sections nest.
    fn guard(&self) -> Self::Guard;

    /// The CPU that runs the caller.
    ///
    /// The answer may be stale when it is used, and may name a CPU that the yard does not know. The core folds it into
    /// range and never relies on it for correctness.
    fn current_cpu(&self) -> CpuId;

    /// Waits a moment between two reads of a busy word. See [Waiting](Self#waiting) for what a platform must do.
    fn relax(&self, round: u32);

    /// Where the bytes of a frame are mapped; `None` if they are not.
    ///
    /// The frames that follow it in its block are mapped right behind it.
    fn frame_bytes(&self, pfn: Pfn) -> Option<NonNull<u8>>;

    /// Takes the lock `word`. Spins until acquired.
    ///
    /// A holder may wait only for locks later in the lock order.
    #[inline]
    fn lock(&self, id: LockId, word: &AtomicU32) -> Contention {
        if self.try_lock(id, word) == Contention::Free {
            return Contention::Free;
        }
        let mut round = 0;
        loop {
            while word.load(Ordering::Relaxed) != FREE {
                self.relax(round);
                round = round.saturating_add(1);
            }
            if self.try_lock(id, word) == Contention::Free {
                return Contention::Contended;
            }
        }
    }

    /// Takes the lock if it is free. After [`Contention::Contended`] the caller does not hold it.
    #[inline(always)]
    fn try_lock(&self, id: LockId, word: &AtomicU32) -> Contention {
        let _ = id;
        // Acquire: pairs with the Release in `Platform::unlock`.
        if word.swap(HELD, Ordering::Acquire) == FREE { Contention::Free } else { Contention::Contended }
    }

    /// Releases the lock.
    #[inline(always)]
    fn unlock(&self, id: LockId, word: &AtomicU32) {
        let _ = id;
        // Release: pairs with the Acquire in `Platform::try_lock`.
        word.store(FREE, Ordering::Release);
    }

    /// Waits while `word` has the value `seen`, or for a shorter time. The caller then reads `word` again.
    ///
    /// For locks that are not plain [`lock`](Self::lock) words, such as the readers-writer lock of an address space. The
    /// thread that changes the word calls [`wake_waiters`](Self::wake_waiters). A platform with wait queues (a futex, for
    /// example) queues the caller. By default this is one [`relax`](Self::relax).
    #[inline(always)]
    fn wait_for_change(&self, id: LockId, word: &AtomicU64, seen: u64, round: u32) {
        let _ = (id, word, seen);
        self.relax(round);
    }

    /// Wakes all callers that wait in [`wait_for_change`](Self::wait_for_change). `word` has its new value. Does nothing by
    /// default.
    #[inline(always)]
    fn wake_waiters(&self, id: LockId, word: &AtomicU64) {
        let _ = (id, word);
    }

    /// Runs `job` on `count` workers at once and waits for all of them. Each gets its own number; the caller is worker 0.
    ///
    /// Worker `n` should run on a CPU of node `node_of(n)`. Fewer workers may run than requested, so a job must not rely on
    /// all of them. The default runs worker 0 alone and lets its panic pass.
    ///
    /// # Errors
    ///
    /// [`WorkerPanicked`] if a worker panicked. All other workers have ended by then.
    fn run_workers(
        &self,
        count: usize,
        node_of: &(dyn Fn(usize) -> NodeId + Sync),
        job: &(dyn Fn(usize) + Sync),
    ) -> Result<(), WorkerPanicked> {
        let _ = (count, node_of);
        job(0);
        Ok(())
    }
}

/// A worker thread panicked in [`Platform::run_workers`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkerPanicked;

messages!(WorkerPanicked { Self => "a worker thread panicked" });
