//! What the core needs from the kernel or process that it runs in.
//!
//! | trait | provides | a kernel port |
//! |---|---|---|
//! | [`Platform`] | CPU identity, waiting, locks, workers, the bytes of frames | writes four methods |
//! | [`MemoryBacking`] | memory behind the map and behind frames | by default [`OrdinaryMemory`] |
//! | [`Probe`] | instrumentation for simulators, counters and progress displays | by default [`NoProbe`], which costs nothing |
//!
//! A platform hands out its backing and its probe ([`Platform::backing`], [`Platform::probe`]). It can implement the
//! traits itself and return `self`.

use core::num::NonZeroU32;
use core::ptr::NonNull;

use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::units::{CpuId, NodeId, Pfn, errors, messages};

mod backing;
mod bad_page;
mod get_mark;
mod lock_id;

mod own_list;
#[cfg(test)]
pub(crate) mod plain;
mod probe;
mod shared_line;

pub use backing::{
    FramesNotReturned, FreeFrames, HugePageTails, MapNotBacked, MemoryBacking, Offload, OrdinaryMemory, SpeculativeGets,
};
pub use bad_page::{BadPage, PageProblem};
pub use get_mark::{GetMark, StillGetting, wait_for_gets};
pub use lock_id::{LockId, LockKind};
pub use own_list::{OwnList, Popped};
pub use probe::{Access, Activity, InitProgress, MapWrite, NoProbe, NodeInit, Probe};
pub use shared_line::{LineKind, SharedLine};

/// Whether a lock was free.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Contention {
    /// The lock was free.
    Free,
    /// Another CPU held the lock. [`Platform::lock`] waited for it; [`Platform::try_lock`] did not take it.
    Contended,
}

errors! {
    /// Why a lock of a shared yard could not be taken. The call has given up; frames that it had taken from one list and not
    /// put on another are lost.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[non_exhaustive]
    pub enum LockError {
        /// The process that held the lock died. What the lock guards may be half changed, so no process takes it again:
        /// the yard is damaged, and all its processes should end.
        OwnerDied {
            /// What the process held.
            lock: LockId,
            /// The number of the process, as it saw it itself.
            holder: u32,
        } = "process {holder} died while it held the lock of {lock}: the yard is damaged, end all its processes",
        /// A process has held the lock for longer than a wait may take. It may be stopped, or the word of the lock is damaged.
        LockStuck {
            /// What the process holds.
            lock: LockId,
            /// The number of the process, as it sees it itself.
            holder: u32,
        } = "process {holder} does not release the lock of {lock}: let it run, or end it",
        /// What the lock guards is corrupt: a process has written there what no yard writes. The yard is damaged, and all its
        /// processes should end.
        Corrupt {
            /// The lock.
            lock: LockId,
        } = "what the lock of {lock} guards is corrupt: the yard is damaged, end all its processes",
        /// The platform cannot end the restartable sequences of a CPU: the lists of other CPUs cannot be drained.
        SequencesNotEnded {
            /// The lists.
            lock: LockId,
        } = "the sequences that use {lock} cannot be ended: allow the system call or interrupt for it",
    }
}

/// Implements `Clone` and `Copy` for views that borrow their platform. A derive would require a platform that is `Copy`.
macro_rules! copied_views {
    ($($view:ident),+) => {$(
        impl<P> Clone for $view<'_, P> {
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<P> Copy for $view<'_, P> {}
    )+};
}

pub(crate) use copied_views;

/// Tells the processor that the line at an address will be written soon.
#[inline(always)]
pub(crate) fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch never faults and changes nothing that can be observed, whatever the address.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        _mm_prefetch::<{ _MM_HINT_ET0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

const FREE: u32 = 0;
const HELD: u32 = 1;

/// The environment of a yard.
///
/// Four methods are required: [`guard`](Self::guard), [`current_cpu`](Self::current_cpu), [`spin`](Self::spin) and
/// [`frame_bytes`](Self::frame_bytes). All other methods have defaults that suit a kernel with spin locks.
///
/// # Contexts
///
/// | method | called | locks that the caller may hold | may sleep |
/// |---|---|---|---|
/// | `guard` | before each lock is taken | earlier locks of the yard | no |
/// | `lock`, `try_lock`, `unlock` | between `guard` and the drop of the guard | earlier locks of the yard | no |
/// | `current_cpu` | once per request, free or drain | none | no |
/// | `spin` | while a lock is contended, and in short waits of callers that must not sleep | in `lock`: earlier locks; else none of the yard | no |
/// | `wait` | in all other waits, see [Waiting](#waiting) | none of the yard | yes |
/// | `frame_bytes` | to zero, copy or check bytes, and by owners of frames | locks of `frameyard-vm` | no |
/// | `wait_for_change`, `wake_waiters` | by `frameyard-vm`, for the map of an address space | none of the yard | yes |
/// | `run_workers` | when a map is initialised, a device is mapped or removed, or an address space exits | none | yes |
///
/// In every row, callers may hold locks of their own. No method may call the yard, because it could wait for a lock
/// that its caller holds.
///
/// The core calls these methods on the thread that called the yard. If an interrupt handler uses the yard, they run in
/// the handler. Interrupt handlers may allocate (with [`Gfp::ATOMIC`](crate::Gfp::ATOMIC)) and free; all other calls
/// are for threads. A handler that cannot be masked must not use the yard.
///
/// # Waiting
///
/// All waiting in the core and in `frameyard-vm` goes through [`spin`](Self::spin), [`wait`](Self::wait),
/// [`lock`](Self::lock) and [`wait_for_change`](Self::wait_for_change). A waiting caller calls one of them between two
/// reads of a word. `round` counts the calls within one wait, from 0.
///
/// | wait for | caller | calls | ends | then |
/// |---|---|---|---|---|
/// | a lock | any | `lock`; by default `spin` | when the holder unlocks it, or the platform gives up | the caller has the lock, or a typed error |
/// | initialisation of a part of the map | a request without `DIRECT_RECLAIM` | `spin` | after 32 rounds | takes other memory or fails |
/// | the same | any other request | `wait` | after 4096 rounds | takes other memory or fails |
/// | frames in transit, busy blocks | a range without `DIRECT_RECLAIM` | `spin` | after 32 rounds | returns a typed error |
/// | frames in transit, users of a device or an address space | ranges with `DIRECT_RECLAIM`, compaction, change of policy, removal, exit | `wait` | after 4096 rounds | returns a typed error |
/// | a page that is locked in the page cache of `frameyard-vm` | a thread | `wait` | after 32768 rounds | returns a typed error |
///
/// So the flags of a request decide how it waits. Without [`Gfp::DIRECT_RECLAIM`](crate::Gfp::DIRECT_RECLAIM) it never
/// calls `wait`.
///
/// A lock holder waits only for locks that come later in the lock order, so a wait for a lock ends as long as every
/// holder keeps running. Any other wait depends on a thread that may be stopped. It is therefore bounded, and the
/// waiting CPU holds no lock of the yard meanwhile.
///
/// In a kernel,
///
/// - `spin` pauses the CPU (`core::hint::spin_loop`) and returns. It does not sleep or schedule;
/// - `wait` pauses for about 1 µs per call from round 8 on, or schedules, so that 4096 rounds last at least 4 ms. The longest work
///   that such a wait covers is the initialisation of a section of 128 MiB, which writes 2 MiB of map;
/// - if `wait` does not schedule, only other CPUs make progress: a caller on the same CPU as the thread that it waits
///   for uses up its rounds and fails.
///
/// In user space, where the scheduler can stop a lock holder at any instruction,
///
/// - both pause in the first rounds, twice as long each time;
/// - both yield to other threads from about round 7 on;
/// - `wait` sleeps from about round 64 on, for at most 1 ms per round;
/// - `lock` sleeps in long waits, too, because otherwise a waiter with a higher priority could starve the holder.
#[expect(unused_variables, reason = "the defaults ignore their arguments")]
pub trait Platform: Sync {
    /// Held while the caller holds a lock of the yard.
    ///
    /// In a kernel whose interrupt handlers use the yard, a guard disables interrupts on its CPU: a handler that waited
    /// for a lock of the code that it interrupted would wait for ever. In any other kernel it disables preemption. User
    /// space needs no guard: `type Guard = ()`.
    type Guard;

    /// Makes a guard, before a lock is taken. The guard is dropped after the lock is released.
    ///
    /// The guards of a thread nest, and are dropped in reverse order, so a guard can save the interrupt flag when it is
    /// made and restore it when it is dropped. A thread with a guard does not sleep, and waits for nothing but locks.
    fn guard(&self) -> Self::Guard;

    /// The CPU that runs the caller. Every allocation and free calls this, so it should take only a few instructions.
    ///
    /// The caller may be moved to another CPU before it uses the answer, and the answer may be a CPU that the yard does
    /// not have; the core reduces it modulo the number of CPUs. Unless the platform [has
    /// sequences](Self::has_sequences), a wrong answer is harmless: it only makes threads share a list.
    fn current_cpu(&self) -> CpuId;

    /// Pauses between two reads of a busy word. Never sleeps: the caller may be between [`guard`](Self::guard) and its drop, or in
    /// an interrupt handler. [Waiting](Self#waiting) says for how long.
    fn spin(&self, round: u32);

    /// Waits briefly between two reads of a busy word. The caller holds no lock of the yard and may sleep.
    /// [Waiting](Self#waiting) says for how long. By default this is one [`spin`](Self::spin).
    fn wait(&self, round: u32) {
        self.spin(round);
    }

    /// Where the bytes of a frame are mapped; `None` if they are not.
    ///
    /// The frames that follow in the same block are mapped right behind it, and the mapping lasts as long as the yard
    /// is used. The caller owns the frame and accesses only its block. Called for requests with
    /// [`Gfp::ZERO`](crate::Gfp::ZERO), for poisoning, by owners that move blocks, and by [`Frames`](crate::Frames). If
    /// a platform returns `None` for all frames, requests to zero or poison are refused, and everything else works.
    fn frame_bytes(&self, pfn: Pfn) -> Option<NonNull<u8>>;

    /// The memory behind the map and behind frames. By default it is [ordinary](OrdinaryMemory).
    #[inline(always)]
    fn backing(&self) -> &impl MemoryBacking {
        &OrdinaryMemory
    }

    /// What observes the yard's work. By default [nothing](NoProbe).
    #[inline(always)]
    fn probe(&self) -> &impl Probe {
        &NoProbe
    }

    /// Takes the lock `word`, which is 0 while the lock is free. Spins until it has the lock.
    ///
    /// In a kernel this always succeeds.
    ///
    /// # Errors
    ///
    /// [`LockError`] on a platform whose locks are in memory shared by several processes, if the holder has died or
    /// does not continue. [`lock_error`](Self::lock_error) then returns the same error.
    ///
    /// # Implementation
    ///
    /// The default swaps in 1 and calls [`spin`](Self::spin) while the lock is held. A platform that overrides this
    /// either uses [`try_lock`](Self::try_lock) for the swap, or overrides `try_lock` and `unlock` as well, because the
    /// three methods together define the values of the word. The lock must be acquired with Acquire and released with
    /// Release. A queue of waiters must not need memory from the yard.
    #[inline]
    fn lock(&self, id: LockId, word: &AtomicU32) -> Result<Contention, LockError> {
        if self.try_lock(id, word) == Contention::Free {
            return Ok(Contention::Free);
        }
        let mut round = 0;
        loop {
            while word.load(Ordering::Relaxed) != FREE {
                self.spin(round);
                round = round.saturating_add(1);
            }
            if self.try_lock(id, word) == Contention::Free {
                return Ok(Contention::Contended);
            }
        }
    }

    /// Takes the lock if it is free, without waiting. If this returns [`Contention::Contended`], the caller does not
    /// hold the lock.
    #[inline(always)]
    fn try_lock(&self, id: LockId, word: &AtomicU32) -> Contention {
        // Acquire: pairs with the Release in `Platform::unlock`.
        if word.swap(HELD, Ordering::Acquire) == FREE { Contention::Free } else { Contention::Contended }
    }

    /// Releases the lock, which the calling thread holds.
    #[inline(always)]
    fn unlock(&self, id: LockId, word: &AtomicU32) {
        // Release: pairs with the Acquire in `Platform::try_lock`.
        word.store(FREE, Ordering::Release);
    }

    /// Whether a CPU uses its own lists in *restartable sequences*, instead of under their lock. A sequence is a few
    /// instructions that end with one store. Either nothing else runs on that CPU during the sequence, or the sequence
    /// has no effect. The answer must be the same for all views of the yard, and must not change while the yard is
    /// used. `false` by default.
    ///
    /// If this returns `true`, [`current_cpu`](Self::current_cpu) must return the caller's own CPU, each CPU needs a
    /// number of its own, and the platform must override [`end_sequences`](Self::end_sequences). The other methods have
    /// defaults for a kernel whose [`guard`](Self::guard) keeps other code off the CPU: it disables interrupts if
    /// handlers use the yard, and preemption otherwise. [`OwnList`] describes the protocol.
    #[inline(always)]
    fn has_sequences(&self) -> bool {
        false
    }

    /// The CPU that runs the caller, for the sequence that follows; `None` on a platform without sequences. For a
    /// thread that cannot enter sequences, the answer is a number that no yard has. The thread then takes slow paths,
    /// which bypass the lists.
    #[inline(always)]
    fn sequence_cpu(&self) -> Option<CpuId> {
        if self.has_sequences() { Some(self.current_cpu()) } else { None }
    }

    /// Takes the newest entry of a list of `cpu` in a sequence. Returns [`Popped::NOTHING`] if the list is empty or in
    /// use, or if the caller runs on another CPU or was interrupted; the caller then takes a slow path.
    #[inline(always)]
    fn pop_in_sequence(&self, cpu: CpuId, list: OwnList<'_>) -> Popped {
        let _guard = self.guard();
        if self.current_cpu() == cpu { list.pop(|| true) } else { Popped::NOTHING }
    }

    /// Adds an entry to a list of `cpu` in a sequence. Returns `false`, and has changed nothing, if the list is at its
    /// limit or in use, or if the caller runs on another CPU or was interrupted.
    #[inline(always)]
    fn push_in_sequence(&self, cpu: CpuId, list: OwnList<'_>, entry: u32) -> bool {
        let guard = self.guard();
        // Both ends drop the guard, so that no flag survives it.
        if self.current_cpu() == cpu && list.push(entry, || true) {
            drop(guard);
            return true;
        }
        drop(guard);
        false
    }

    /// Takes all lists of `cpu` in a sequence; returns whether it did. [`unlock`](Self::unlock) of the first owner word
    /// gives them back. The caller holds a [`guard`](Self::guard).
    #[inline]
    fn take_in_sequence(&self, cpu: CpuId, list: OwnList<'_>) -> bool {
        self.current_cpu() == cpu && list.take(|| true)
    }

    /// Returns once every sequence that was in progress on `cpu` has ended, with or without effect; `None` means all
    /// CPUs. Sequences that begin later see everything that the caller did before the call, and the caller sees the
    /// effects of earlier ones. A kernel interrupts the CPU. Called without a [`guard`](Self::guard), by threads that
    /// may wait.
    ///
    /// # Errors
    ///
    /// The platform could not end them.
    fn end_sequences(&self, cpu: Option<CpuId>) -> Result<(), SequencesNotEnded> {
        Err(SequencesNotEnded)
    }

    /// Notes that what the lock guards is corrupt: it contains a link, an index, an order or a count that no yard
    /// writes. The calling thread may hold the lock. The call in progress loses the frames concerned and goes on. From
    /// then on [`lock_error`](Self::lock_error) returns [`LockError::Corrupt`].
    ///
    /// # Panics
    ///
    /// The default panics in builds with debug assertions, and does nothing in release builds.
    #[cold]
    fn note_corrupt(&self, lock: LockId) {
        // The models break protections, and say themselves what they find.
        debug_assert!(cfg!(any(loom, shuttle)), "what the lock of {lock} guards is corrupt");
    }

    /// Notes that a check ([`PageChecks`](crate::boot::PageChecks)) has found a bad page structure. The block is taken
    /// out of use, and the call goes on with another. The calling thread may hold locks. By default this does nothing;
    /// the yard itself counts the pages and keeps the last report.
    #[cold]
    fn note_bad_page(&self, bad: BadPage) {
        let _ = bad;
    }

    /// Why the calling thread failed to take a lock since it last called this method. In a damaged yard this always
    /// returns the damage. `None` by default, because the default [`lock`](Self::lock) does not fail.
    #[inline(always)]
    fn lock_error(&self) -> Option<LockError> {
        None
    }

    /// The number that identifies the calling process in the words of a shared yard; `None` in a private yard, which
    /// needs none.
    #[inline(always)]
    fn process(&self) -> Option<NonZeroU32> {
        None
    }

    /// Whether threads may have vanished in the middle of an allocation or free, because the caller runs in a forked
    /// copy of the process that made the yard. [`Yard::validate`](crate::Yard::validate) then attributes blocks that
    /// are neither allocated nor on any list to those threads. `false` by default.
    fn has_lost_threads(&self) -> bool {
        false
    }

    /// Whether a caller that has waited for `round` rounds should give up, because the process `holder` has died or the
    /// wait has reached its limit. `holder` is 0 if the word names no process; `still` tells whether the word still
    /// names it. In a private yard, and by default, no wait ends this way.
    ///
    /// Callers of [`lock`](Self::lock) need not call this, because `lock` does the same check itself. In all other
    /// waits it is called once per round, from round 0 on. After an error, [`lock_error`](Self::lock_error) returns the
    /// same error.
    ///
    /// # Errors
    ///
    /// As [`lock`](Self::lock).
    #[inline(always)]
    fn check_holder(&self, id: LockId, holder: u32, round: u32, still: &dyn Fn() -> bool) -> Result<(), LockError> {
        Ok(())
    }

    /// Waits until `word` no longer has the value `seen`, or returns earlier. The caller then reads `word` again.
    ///
    /// For the readers-writer lock of an address space in `frameyard-vm`, whose holders may sleep. The thread that changes the
    /// word calls [`wake_waiters`](Self::wake_waiters). A platform with wait queues (a futex, for example) queues the caller if
    /// the word still has the value `seen`, and may return early. By default this is one [`wait`](Self::wait).
    #[inline(always)]
    fn wait_for_change(&self, id: LockId, word: &AtomicU64, seen: u64, round: u32) {
        self.wait(round);
    }

    /// Wakes all callers that wait for this word in [`wait_for_change`](Self::wait_for_change). The word has its new
    /// value already. The default does nothing, which is correct only with the default `wait_for_change`.
    #[inline(always)]
    fn wake_waiters(&self, id: LockId, word: &AtomicU64) {}

    /// Runs `job` on `count` workers in parallel and waits for all of them. Each worker gets its own number; the caller
    /// is worker 0.
    ///
    /// Worker `n` should run on a CPU of node `node_of(n)`. Fewer workers may run than requested, and they may run one
    /// after the other, so a job must not wait for another worker. Everything that the caller did before the call is
    /// visible to the workers, and what they did is visible to the caller afterwards. Calls nest: a worker may call
    /// this again. The default runs only worker 0 and lets its panic propagate.
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
        job(0);
        Ok(())
    }
}

/// A platform could not end the restartable sequences of a CPU in [`Platform::end_sequences`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SequencesNotEnded;

messages!(SequencesNotEnded { Self => "restartable sequences of a CPU cannot be ended" });

/// A worker thread panicked in [`Platform::run_workers`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkerPanicked;

messages!(WorkerPanicked { Self => "a worker thread panicked" });
