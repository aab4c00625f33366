//! The platform of a machine's thread. Locks and the initialisation of the memory map can be broken on purpose.

use std::cell::Cell;
use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use std::vec::Vec;

use loom::thread;

use crate::loom_models::machine::{Contents, LARGEST, ZONE};
use crate::memmap::MemMap;
use crate::page::Tag;
use crate::platform::{
    Access, Contention, FramesNotReturned, FreeFrames, GetMark, InitProgress, LockId, MapNotBacked, MemoryBacking,
    OwnList, Platform, Popped, Probe, SequencesNotEnded, SpeculativeGets, StillGetting, WorkerPanicked, wait_for_gets,
};
use crate::sync::{AtomicU32, Ordering, Weakness, is_weakened};
use crate::units::{CpuId, NodeId, Order, PageCount, Pfn, PfnRange};
use crate::zone::PageblockMap;

std::thread_local! {
    /// Contended lock attempts in all executions that this thread has explored.
    static CONTENDED: Cell<u64> = const { Cell::new(0) };
}

/// Contended lock attempts in all executions that the caller has explored.
pub(crate) fn contentions() -> u64 {
    CONTENDED.get()
}

/// A defect of a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flaw {
    /// The exchange that takes it is relaxed.
    TakenRelaxed,
    /// The store that releases it is relaxed.
    GivenBackRelaxed,
    /// A thread can take it while another thread holds it.
    NeverRefused,
}

/// Which locks are broken, and how.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Locks {
    pub(crate) per_cpu: Option<Flaw>,
    pub(crate) zone: Option<Flaw>,
    pub(crate) devices: Option<Flaw>,
}

impl Locks {
    pub(crate) const SOUND: Self = Self { per_cpu: None, zone: None, devices: None };

    fn flaw(self, id: LockId) -> Option<Flaw> {
        match id {
            LockId::PerCpu(..) => self.per_cpu,
            LockId::Zone(_) => self.zone,
            LockId::Devices => self.devices,
            _ => None,
        }
    }
}

/// The platform with the locks that the trait provides.
#[derive(Debug)]
pub(crate) struct Provided;

impl Platform for Provided {
    type Guard = ();

    fn guard(&self) {}

    fn current_cpu(&self) -> CpuId {
        CpuId(0)
    }

    /// Explores one read of a held lock, then switches to another thread.
    ///
    /// A read changes nothing, so executions with more reads are equivalent. Without this limit loom would alternate for ever
    /// between two waiting threads while the holder is preempted.
    fn spin(&self, round: u32) {
        if round > 0 {
            loom::skip_branch();
        }
        thread::yield_now();
    }

    fn frame_bytes(&self, _pfn: Pfn) -> Option<NonNull<u8>> {
        None
    }
}

/// A defect of the initialisation of the memory map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InitFlaw {
    /// The types of pageblocks are published before their pages are written.
    PublishedEarly,
    /// Pages are written again when their blocks are free.
    WrittenLate,
}

/// The failure message for a write to a shared tail.
pub(crate) const TAIL_WRITTEN: &str = "a shared tail is written to";

/// A mark of a copied list.
struct CopiedMark(Arc<ThreadMark>);

impl Deref for CopiedMark {
    type Target = GetMark;

    fn deref(&self) -> &GetMark {
        &self.0.mark
    }
}

/// The shared tails of devices. No thread may write to them. Not modelled: records the order that loom has chosen. Loom may
/// switch threads at its checks.
#[derive(Debug, Default)]
pub(crate) struct Deduplicated {
    frames: Mutex<Vec<PfnRange>>,
    switch: AtomicU32,
    /// The marks of all threads that have got references, if threads mark their gets. Its lock is modelled.
    marks: Mutex<Vec<Arc<ThreadMark>>>,
    marks_lock: AtomicU32,
}

/// The mark of a thread, and the pages that it has written or is about to write since its last get.
#[derive(Debug, Default)]
pub(crate) struct ThreadMark {
    mark: GetMark,
    /// Whether the mark is in the list. Not modelled: only its thread uses this.
    entered: Mutex<bool>,
    touched: Mutex<Vec<Pfn>>,
}

impl Deduplicated {
    /// Enters the mark of a thread that gets references for the first time.
    fn enter(&self, mark: &Arc<ThreadMark>) {
        if !std::mem::replace(&mut *mark.entered.lock().unwrap(), true) {
            self.with_marks(|marks| marks.push(Arc::clone(mark)));
        }
    }

    /// Runs `work` under the lock of the list of marks.
    fn with_marks<T>(&self, work: impl FnOnce(&mut Vec<Arc<ThreadMark>>) -> T) -> T {
        const LOCK: LockId = LockId::ObjectTable(0);
        if is_weakened(Weakness::MarksEnteredUnlocked) {
            let result = work(&mut self.marks.lock().unwrap());
            // Lets loom switch threads here.
            self.marks_lock.fetch_add(1, Ordering::Relaxed);
            return result;
        }
        Provided.lock(LOCK, &self.marks_lock).unwrap();
        let result = work(&mut self.marks.lock().unwrap());
        Provided.unlock(LOCK, &self.marks_lock);
        result
    }

    /// Waits for gets in progress, like a platform that makes tails read-only.
    fn wait_for_gets(&self) {
        if is_weakened(Weakness::NoGracePeriod) {
            return;
        }
        let all = || self.with_marks(|marks| marks.clone()).into_iter().map(CopiedMark);
        let wait_round = |round| {
            Provided.spin(round);
            true
        };
        wait_for_gets(all, || Ok::<_, StillGetting>(()), wait_round).expect("a wait without a bound");
    }

    fn share(&self, frames: PfnRange) {
        for mark in self.marks.lock().unwrap().clone() {
            let touches = mark.touched.lock().unwrap().iter().any(|pfn| frames.contains(*pfn));
            let may_write = touches && mark.mark.wait(|_| false).is_err();
            assert!(!may_write, "{TAIL_WRITTEN}, perhaps: one of {frames}");
        }
        self.frames.lock().unwrap().push(frames);
    }

    /// Allows writes to the structures of these frames again.
    fn make_real(&self, frames: PfnRange) {
        self.frames.lock().unwrap().retain(|shared| shared.start >= frames.end || frames.start >= shared.end);
    }

    fn check(&self, pfn: Pfn) {
        if self.frames.lock().unwrap().is_empty() {
            return;
        }
        self.switch.load(Ordering::Relaxed);
        let shared = self.frames.lock().unwrap().iter().any(|frames| frames.contains(pfn));
        assert!(!shared, "{TAIL_WRITTEN}: {pfn}");
    }
}

/// A thread's platform: the provided locks, possibly broken, and loom's threads as workers.
#[derive(Debug)]
pub(crate) struct ModelPlatform {
    pub(crate) cpu: CpuId,
    pub(crate) locks: Locks,
    /// The most workers.
    pub(crate) workers: usize,
    /// The number of requests for map memory to refuse. Not modelled: only one thread uses this platform.
    pub(crate) refusals: Mutex<u32>,
    /// The last round of the longest wait. Not modelled, as above.
    pub(crate) longest_wait: Mutex<u32>,
    /// The defect, and the yard's map and pageblock types, which it changes.
    pub(crate) broken: Option<(InitFlaw, MemMap, PageblockMap<'static>)>,
    pub(crate) tails: Arc<Deduplicated>,
    /// The mark of the thread, if threads mark their gets.
    pub(crate) mark: Option<Arc<ThreadMark>>,
    /// What the platform changes when it returns the memory behind frames.
    pub(crate) contents: Arc<Contents>,
    /// What makes the restartable sequences of each CPU exclude each other, if CPUs use their lists in sequences.
    pub(crate) cpus: Option<Arc<[loom::sync::Mutex<()>; 2]>>,
}

impl ModelPlatform {
    /// Runs a sequence on a CPU. A thread that finds another one in progress is preempted there.
    fn sequence<T>(&self, cpu: CpuId, body: impl FnOnce() -> T) -> T {
        let cpus = self.cpus.as_ref().expect("a machine with sequences");
        let _sequence = cpus[cpu.index()].lock().unwrap();
        body()
    }

    /// The last round of the longest wait so far.
    pub(crate) fn longest_wait(&self) -> u32 {
        *self.longest_wait.lock().unwrap()
    }

    /// Refuses the next `times` requests for map memory.
    pub(crate) fn refuse(&self, times: u32) {
        *self.refusals.lock().unwrap() = times;
    }

    /// Applies the defect, if it is this one.
    fn break_init(&self, flaw: InitFlaw, run: PfnRange) {
        let Some((_, map, blocks)) = self.broken.filter(|(wanted, ..)| *wanted == flaw) else { return };
        for frame in 0..run.count().0 {
            let pfn = run.start + PageCount(frame);
            match flaw {
                InitFlaw::PublishedEarly => blocks.publish(pfn, ZONE),
                InitFlaw::WrittenLate => map.page(pfn, self).set_tag(Tag::INTERIOR),
            }
        }
    }
}

impl Platform for ModelPlatform {
    type Guard = ();

    #[inline(always)]
    fn backing(&self) -> &impl MemoryBacking {
        self
    }

    #[inline(always)]
    fn probe(&self) -> &impl Probe {
        self
    }

    fn guard(&self) {}

    fn current_cpu(&self) -> CpuId {
        self.cpu
    }

    fn has_sequences(&self) -> bool {
        self.cpus.is_some()
    }

    fn pop_in_sequence(&self, cpu: CpuId, list: OwnList<'_>) -> Popped {
        self.sequence(cpu, || list.pop(|| true))
    }

    fn push_in_sequence(&self, cpu: CpuId, list: OwnList<'_>, entry: u32) -> bool {
        self.sequence(cpu, || list.push(entry, || true))
    }

    fn take_in_sequence(&self, cpu: CpuId, list: OwnList<'_>) -> bool {
        let taken = self.sequence(cpu, || list.take(|| true));
        if !taken {
            CONTENDED.set(CONTENDED.get() + 1);
        }
        taken
    }

    /// Waits for the sequence in progress: it ends with its effect. One that is aborted has none, as one that begins later.
    fn end_sequences(&self, cpu: Option<CpuId>) -> Result<(), SequencesNotEnded> {
        let wanted = |at: &CpuId| cpu.is_none_or(|cpu| cpu == *at);
        [CpuId(0), CpuId(1)].into_iter().filter(wanted).for_each(|cpu| self.sequence(cpu, || ()));
        Ok(())
    }

    fn spin(&self, round: u32) {
        let longest = self.longest_wait().max(round);
        *self.longest_wait.lock().unwrap() = longest;
        Provided.spin(round);
    }

    fn frame_bytes(&self, pfn: Pfn) -> Option<NonNull<u8>> {
        Provided.frame_bytes(pfn)
    }

    fn try_lock(&self, id: LockId, word: &AtomicU32) -> Contention {
        let contention = match self.locks.flaw(id) {
            Some(Flaw::TakenRelaxed) if word.swap(1, Ordering::Relaxed) == 0 => Contention::Free,
            Some(Flaw::TakenRelaxed) => Contention::Contended,
            _ => Provided.try_lock(id, word),
        };
        if contention == Contention::Contended {
            CONTENDED.set(CONTENDED.get() + 1);
        }
        if self.locks.flaw(id) == Some(Flaw::NeverRefused) { Contention::Free } else { contention }
    }

    fn unlock(&self, id: LockId, word: &AtomicU32) {
        match self.locks.flaw(id) {
            Some(Flaw::GivenBackRelaxed) => word.store(0, Ordering::Relaxed),
            _ => Provided.unlock(id, word),
        }
    }

    fn run_workers(
        &self,
        count: usize,
        _node_of: &(dyn Fn(usize) -> NodeId + Sync),
        job: &(dyn Fn(usize) + Sync),
    ) -> Result<(), WorkerPanicked> {
        // SAFETY: all workers are joined before this returns. If one panics, loom ends the whole execution.
        let shared: &'static (dyn Fn(usize) + Sync) = unsafe { core::mem::transmute(job) };
        let spawned: Vec<_> =
            (1..count.min(self.workers)).map(|number| thread::spawn(move || shared(number))).collect();
        job(0);
        spawned.into_iter().try_for_each(|worker| worker.join()).map_err(|_| WorkerPanicked)
    }
}

impl MemoryBacking for ModelPlatform {
    fn back_map(&self, frames: PfnRange, _address: NonNull<u8>, _bytes: usize) -> Result<(), MapNotBacked> {
        let left = *self.refusals.lock().unwrap();
        if left > 0 {
            self.refuse(left - 1);
            return Err(MapNotBacked);
        }
        self.break_init(InitFlaw::PublishedEarly, frames);
        self.tails.make_real(frames);
        Ok(())
    }

    fn speculative_gets(&self) -> SpeculativeGets {
        if self.mark.is_some() { SpeculativeGets::Marked } else { SpeculativeGets::Unmarked }
    }

    fn begin_get(&self) -> Option<&GetMark> {
        let entered = self.mark.as_ref()?;
        self.tails.enter(entered);
        let ThreadMark { mark, touched, .. } = &**entered;
        touched.lock().unwrap().clear();
        mark.begin();
        Some(mark)
    }

    fn share_tails(
        &self,
        frames: PfnRange,
        order: Order,
        _address: NonNull<u8>,
        _bytes: usize,
    ) -> Result<(), MapNotBacked> {
        self.tails.wait_for_gets();
        let mut head = frames.start;
        while head < frames.end {
            self.tails.share(PfnRange { start: head + PageCount(1), end: head + order.pages() });
            head = head + order.pages();
        }
        Ok(())
    }

    /// Changes the bytes of frames that no thread owns.
    fn return_frames(&self, frames: &FreeFrames) -> Result<(), FramesNotReturned> {
        for frame in 0..frames.range().count().0 {
            self.contents.own(frames.range().start + PageCount(frame), Order::ZERO);
        }
        thread::yield_now();
        for frame in 0..frames.range().count().0 {
            self.contents.release(frames.range().start + PageCount(frame), Order::ZERO);
        }
        Ok(())
    }

    fn return_map(&self, frames: PfnRange, _address: NonNull<u8>, _bytes: usize) {
        // An aligned range is a whole device, which becomes untouched memory. Any other range is the tails of a compound page.
        if frames.start.is_aligned(LARGEST) {
            self.tails.make_real(frames);
        } else {
            self.tails.wait_for_gets();
            self.tails.share(frames);
        }
    }
}

impl Probe for ModelPlatform {
    fn touch_page(&self, pfn: Pfn, access: Access) {
        if matches!(access, Access::Write | Access::ReadModifyWrite) {
            self.tails.check(pfn);
            if let Some(mark) = &self.mark {
                mark.touched.lock().unwrap().push(pfn);
            }
        }
    }

    fn init_progress(&self, progress: InitProgress) {
        if let InitProgress::Written(run) = progress {
            self.break_init(InitFlaw::WrittenLate, run);
        }
    }
}
