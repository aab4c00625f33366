//! The platform: passes each call to another platform and counts it.

use core::fmt;
use core::num::NonZeroU32;
use core::ptr::NonNull;

use crate::platform::{
    Access, Activity, BadPage, Contention, FramesNotReturned, FreeFrames, GetMark, HugePageTails, InitProgress,
    LockError, LockId, MapNotBacked, MapWrite, MemoryBacking, Offload, OwnList, Popped, Probe, SequencesNotEnded,
    SharedLine, SpeculativeGets, WorkerPanicked,
};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::{ByteSize, CpuId, NodeId, Order, PageCount, Pfn, PfnRange, Platform};

use crate::counting::counted::Counted;
use crate::counting::task_counters::{NO_SPAN, TaskCounters, add, get, place_of};

/// A platform that counts calls and passes them to `inner`. Use it for a second view
/// ([`Yard::attach`](crate::Yard::attach)) of an existing yard.
///
/// `current_task` returns the number of the calling task: a small number that no two concurrent tasks share.
pub struct CountingPlatform<'r, P, W, const LINES: usize = 1024> {
    inner: &'r P,
    tasks: &'r [TaskCounters<LINES>],
    current_task: W,
    lost: AtomicU64,
}

impl<'r, P: Platform, W: Fn() -> u32 + Sync, const LINES: usize> CountingPlatform<'r, P, W, LINES> {
    /// Counts calls to `inner` in `tasks`, in addition to their earlier counts.
    #[must_use]
    pub fn new(inner: &'r P, tasks: &'r [TaskCounters<LINES>], current_task: W) -> Self {
        Self { inner, tasks, current_task, lost: AtomicU64::new(0) }
    }

    /// The platform that does the work.
    pub fn inner(&self) -> &'r P {
        self.inner
    }

    /// The sum over all tasks. Exact while no task is running.
    #[must_use]
    pub fn counted(&self) -> Counted {
        let none = Counted { lost: get(&self.lost), ..Counted::default() };
        self.tasks.iter().fold(none, |sum, counters| sum.with(&counters.read(), u64::wrapping_add))
    }

    /// Counts everything that `work` does as one stretch of the calling task. Each line counts once, where it is first
    /// touched, even outside refills, drains and holds of zone locks.
    pub fn in_one_stretch<R>(&self, work: impl FnOnce() -> R) -> R {
        self.counters().into_iter().for_each(TaskCounters::begin_long_stretch);
        let result = work();
        self.counters().into_iter().for_each(TaskCounters::end_long_stretch);
        result
    }

    /// Counts an access to the word of a lock.
    fn touch_lock(&self, word: &AtomicU32) {
        if let Some(counters) = self.counters() {
            counters.touch_other(word);
        }
    }

    /// The counters of the calling task; `None` if they belong to another task.
    fn counters(&self) -> Option<&'r TaskCounters<LINES>> {
        let task = (self.current_task)();
        let counters = self.tasks.get(task as usize % self.tasks.len().max(1));
        let mine = counters.filter(|counters| {
            let id = u64::from(task) + 1;
            match counters.owner.load(Ordering::Relaxed) {
                0 => counters.owner.compare_exchange(0, id, Ordering::Relaxed, Ordering::Relaxed).is_ok(),
                owner => owner == id,
            }
        });
        if mine.is_none() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        mine
    }
}

impl<P: fmt::Debug, W, const LINES: usize> fmt::Debug for CountingPlatform<'_, P, W, LINES> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountingPlatform").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<P: Platform, W: Fn() -> u32 + Sync, const LINES: usize> Platform for CountingPlatform<'_, P, W, LINES> {
    type Guard = P::Guard;

    #[inline(always)]
    fn backing(&self) -> &impl MemoryBacking {
        self
    }

    #[inline(always)]
    fn probe(&self) -> &impl Probe {
        self
    }

    fn guard(&self) -> Self::Guard {
        self.inner.guard()
    }

    fn current_cpu(&self) -> CpuId {
        self.inner.current_cpu()
    }

    fn spin(&self, round: u32) {
        self.inner.spin(round);
    }

    fn wait(&self, round: u32) {
        self.inner.wait(round);
    }

    fn frame_bytes(&self, pfn: Pfn) -> Option<NonNull<u8>> {
        self.inner.frame_bytes(pfn)
    }

    fn lock(&self, id: LockId, word: &AtomicU32) -> Result<Contention, LockError> {
        self.touch_lock(word);
        let contention = self.inner.lock(id, word)?;
        if let Some(counters) = self.counters() {
            counters.locked(id, contention);
        }
        Ok(contention)
    }

    fn note_corrupt(&self, lock: LockId) {
        self.inner.note_corrupt(lock);
    }

    fn note_bad_page(&self, bad: BadPage) {
        self.inner.note_bad_page(bad);
    }

    fn lock_error(&self) -> Option<LockError> {
        self.inner.lock_error()
    }

    fn try_lock(&self, id: LockId, word: &AtomicU32) -> Contention {
        self.touch_lock(word);
        let contention = self.inner.try_lock(id, word);
        if let Some(counters) = self.counters() {
            match contention {
                Contention::Free => counters.locked(id, Contention::Free),
                Contention::Contended => add(&counters.locks[id.kind() as usize][2], 1),
            }
        }
        contention
    }

    fn unlock(&self, id: LockId, word: &AtomicU32) {
        if matches!(id, LockId::Zone(_))
            && let Some(counters) = self.counters()
        {
            counters.holding.store(0, Ordering::Relaxed);
            counters.begin_stretch();
        }
        self.touch_lock(word);
        self.inner.unlock(id, word);
    }

    fn has_sequences(&self) -> bool {
        self.inner.has_sequences()
    }

    fn sequence_cpu(&self) -> Option<CpuId> {
        self.inner.sequence_cpu()
    }

    fn pop_in_sequence(&self, cpu: CpuId, list: OwnList<'_>) -> Popped {
        list.announce_pop(self);
        self.inner.pop_in_sequence(cpu, list)
    }

    fn push_in_sequence(&self, cpu: CpuId, list: OwnList<'_>, entry: u32) -> bool {
        list.announce_push(self);
        self.inner.push_in_sequence(cpu, list, entry)
    }

    fn take_in_sequence(&self, cpu: CpuId, list: OwnList<'_>) -> bool {
        list.announce_take(self);
        self.inner.take_in_sequence(cpu, list)
    }

    fn end_sequences(&self, cpu: Option<CpuId>) -> Result<(), SequencesNotEnded> {
        self.inner.end_sequences(cpu)
    }

    fn process(&self) -> Option<NonZeroU32> {
        self.inner.process()
    }

    fn has_lost_threads(&self) -> bool {
        self.inner.has_lost_threads()
    }

    fn check_holder(&self, id: LockId, holder: u32, round: u32, still: &dyn Fn() -> bool) -> Result<(), LockError> {
        self.inner.check_holder(id, holder, round, still)
    }

    fn wait_for_change(&self, id: LockId, word: &AtomicU64, seen: u64, round: u32) {
        self.inner.wait_for_change(id, word, seen, round);
    }

    fn wake_waiters(&self, id: LockId, word: &AtomicU64) {
        self.inner.wake_waiters(id, word);
    }

    fn run_workers(
        &self,
        count: usize,
        node_of: &(dyn Fn(usize) -> NodeId + Sync),
        job: &(dyn Fn(usize) + Sync),
    ) -> Result<(), WorkerPanicked> {
        self.inner.run_workers(count, node_of, job)
    }
}

impl<P: Platform, W: Fn() -> u32 + Sync, const LINES: usize> MemoryBacking for CountingPlatform<'_, P, W, LINES> {
    fn zero_frames(&self, frames: PfnRange) -> Offload {
        self.inner.backing().zero_frames(frames)
    }

    fn copy_frames(&self, from: PfnRange, to: Pfn) -> Offload {
        self.inner.backing().copy_frames(from, to)
    }

    fn speculative_gets(&self) -> SpeculativeGets {
        self.inner.backing().speculative_gets()
    }

    fn begin_get(&self) -> Option<&GetMark> {
        self.inner.backing().begin_get()
    }

    fn back_map(&self, frames: PfnRange, address: NonNull<u8>, bytes: usize) -> Result<(), MapNotBacked> {
        self.inner.backing().back_map(frames, address, bytes)
    }

    fn share_tails(
        &self,
        frames: PfnRange,
        order: Order,
        address: NonNull<u8>,
        bytes: usize,
    ) -> Result<(), MapNotBacked> {
        self.inner.backing().share_tails(frames, order, address, bytes)
    }

    fn return_map(&self, frames: PfnRange, address: NonNull<u8>, bytes: usize) {
        self.inner.backing().return_map(frames, address, bytes);
    }

    fn release_tails(&self, tails: &HugePageTails) -> ByteSize {
        self.inner.backing().release_tails(tails)
    }

    fn place_map(&self, holding: PfnRange, address: NonNull<u8>, bytes: usize) -> Result<(), MapNotBacked> {
        self.inner.backing().place_map(holding, address, bytes)
    }

    fn return_frames(&self, frames: &FreeFrames) -> Result<(), FramesNotReturned> {
        self.inner.backing().return_frames(frames)
    }
}

impl<P: Platform, W: Fn() -> u32 + Sync, const LINES: usize> Probe for CountingPlatform<'_, P, W, LINES> {
    fn touch_page(&self, pfn: Pfn, access: Access) {
        if let Some(counters) = self.counters() {
            match access {
                Access::Prefetch => add(&counters.touches().prefetches, 1),
                _ => counters.touch(pfn),
            }
        }
        self.inner.probe().touch_page(pfn, access);
    }

    fn touch_line(&self, line: SharedLine, access: Access) {
        if let Some(counters) = self.counters() {
            counters.touch_other(line.address);
        }
        self.inner.probe().touch_line(line, access);
    }

    fn begin_activity(&self, activity: Activity) {
        self.inner.probe().begin_activity(activity);
        if let Some(place) = place_of(activity)
            && let Some(counters) = self.counters()
        {
            counters.span.store(place, Ordering::Relaxed);
            counters.begin_stretch();
        }
    }

    fn end_activity(&self, activity: Activity, pages: PageCount) {
        if place_of(activity).is_some()
            && let Some(counters) = self.counters()
        {
            add(&counters.counters().spans, 1);
            add(&counters.counters().pages, pages.0);
            counters.span.store(NO_SPAN, Ordering::Relaxed);
            counters.begin_stretch();
        }
        self.inner.probe().end_activity(activity, pages);
    }

    fn clock_ns(&self) -> Option<u64> {
        self.inner.probe().clock_ns()
    }

    fn lock_clock_ns(&self) -> Option<u64> {
        self.inner.probe().lock_clock_ns()
    }

    fn map_written(&self, frames: PfnRange, how: MapWrite) {
        self.inner.probe().map_written(frames, how);
    }

    fn init_progress(&self, progress: InitProgress) {
        self.inner.probe().init_progress(progress);
    }
}
