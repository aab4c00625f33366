//! The platform of a simulated machine: every hook of the core charges virtual time.

use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use frameyard::platform::{
    Access, Activity, Contention, InitProgress, LineKind, LockError, LockId, MapWrite, MemoryBacking, NodeInit,
    Offload, OwnList, Popped, Probe, SequencesNotEnded, SharedLine, WorkerPanicked,
};
use frameyard::{CpuId, NodeId, PageCount, Pfn, PfnRange, Platform};

use crate::account::{Accessed, Account, CostId};
use crate::confined::Confined;
use crate::engine::{Engine, Handover, InOrder, LockStats, YardRegions, is_shared};
use crate::fiber;
use crate::frame_bytes::FrameBytes;
use crate::list_access::ListAccess;
use crate::machine::{KernelCost, Machine};
use crate::profile::Profile;
use crate::time::Picos;
use crate::workers::run_workers;

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, with waiters in the machine's queue.
const AWAITED: u32 = 2;

/// The environment of a yard on a simulated machine.
///
/// Outside of runs ([`run`](crate::SimYard::run)) its hooks charge nothing, so set-up takes no virtual time. It works
/// only on the thread that created it.
pub struct SimPlatform {
    engine: Confined<Engine>,
    bytes: FrameBytes,
    lists: ListAccess,
}

impl fmt::Debug for SimPlatform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimPlatform").finish_non_exhaustive()
    }
}

impl SimPlatform {
    /// `None` if the host lacks memory for the machine's state.
    pub(crate) fn new(
        machine: &Machine,
        regions: YardRegions,
        bytes: FrameBytes,
        lists: ListAccess,
        costs: &[&'static str],
    ) -> Option<Self> {
        let costs = KernelCost::ALL.map(KernelCost::name).iter().chain(costs).copied().collect();
        Some(Self { engine: Confined::new(Engine::new(machine, regions, costs)?), bytes, lists })
    }

    pub(crate) fn engine(&self) -> &Confined<Engine> {
        &self.engine
    }

    /// The most bytes of host memory that the machine takes.
    pub(crate) fn bytes(&self) -> usize {
        self.engine.borrow().bytes() + self.bytes.bytes()
    }

    /// The machine.
    #[must_use]
    pub fn machine(&self) -> Machine {
        self.engine.borrow().machine().clone()
    }

    /// The virtual time of the running CPU.
    #[must_use]
    pub fn now(&self) -> Picos {
        self.engine.borrow().now()
    }

    /// The cost of that name, if the machine has it.
    #[must_use]
    pub fn cost(&self, name: &str) -> Option<CostId> {
        let at = self.engine.borrow().costs().iter().position(|known| *known == name)?;
        Some(CostId(at as u16))
    }

    /// The running CPU spends cycles on a named cost. No effect outside of runs.
    #[inline]
    pub fn spend(&self, cost: CostId, cycles: u64) {
        let mut engine = self.engine.borrow();
        if !engine.is_running() {
            return;
        }
        engine.spend(cost, cycles);
        let is_far_ahead = engine.is_far_ahead();
        drop(engine);
        if is_far_ahead {
            self.yield_to_earlier();
        }
    }

    /// The running CPU is idle for `time`. No effect outside of runs.
    pub fn idle_for(&self, time: Picos) {
        let mut engine = self.engine.borrow();
        if !engine.is_running() {
            return;
        }
        let until = engine.now() + time;
        engine.idle_until(until);
        drop(engine);
        self.yield_to_earlier();
    }

    /// The running CPU is idle until another CPU calls [`wake`](Self::wake) for it. A run in which no CPU does ends with
    /// [`SimError::Deadlock`](crate::SimError::Deadlock).
    ///
    /// Costs the host nothing while it sleeps.
    ///
    /// # Panics
    ///
    /// Outside of runs.
    pub fn sleep(&self) {
        let mut engine = self.engine.borrow();
        assert!(engine.is_running(), "outside of a run no other CPU can wake this one");
        engine.sleep_idle();
        drop(engine);
        fiber::suspend();
    }

    /// Wakes a CPU that [sleeps](Self::sleep), at the time of the running CPU or later.
    pub fn wake(&self, cpu: CpuId) {
        let mut engine = self.engine.borrow();
        let now = engine.now();
        engine.awaken(cpu.index(), now);
    }

    /// Selects the CPU on which set-up runs.
    pub fn set_up_on(&self, cpu: CpuId) {
        let mut engine = self.engine.borrow();
        assert!(!engine.is_running(), "during a run the schedule selects the CPU");
        engine.set_current(cpu.index());
    }

    /// The time of all CPUs together since the machine was created.
    #[must_use]
    pub fn account(&self) -> Account {
        self.engine.borrow().account()
    }

    /// The same time by span.
    #[must_use]
    pub fn profile(&self) -> Profile {
        self.engine.borrow().profile().clone()
    }

    /// The [lines](Profile::folded) of the profile.
    #[must_use]
    pub fn folded(&self) -> Vec<(String, Picos)> {
        self.engine.borrow().profile().folded()
    }

    /// The finished passes over the memory maps of nodes.
    #[must_use]
    pub fn node_inits(&self) -> Vec<NodeInit> {
        self.engine.borrow().node_inits().to_vec()
    }

    /// The use of locks that at least one CPU has waited for.
    #[must_use]
    pub fn lock_stats(&self) -> Vec<LockStats> {
        self.engine.borrow().lock_stats()
    }

    /// Lines moved from and to the memory of each node.
    #[must_use]
    pub fn channel_lines(&self) -> Vec<u64> {
        self.engine.borrow().channel_lines()
    }

    /// Charges the writes of `count` frames one by one, between which other CPUs run. No effect outside of runs.
    fn write_frames(&self, PageCount(count): PageCount, write: impl Fn(&mut Engine, PageCount)) {
        for at in 0..count {
            let mut engine = self.engine.borrow();
            if !engine.is_running() {
                return;
            }
            write(&mut engine, PageCount(at));
            let is_far_ahead = engine.is_far_ahead();
            drop(engine);
            if is_far_ahead {
                self.yield_to_earlier();
            }
        }
    }

    /// Lets CPUs with earlier clocks run until the running CPU is the earliest.
    fn yield_to_earlier(&self) {
        self.engine.borrow().yield_to_earlier();
        fiber::suspend();
    }

    /// Lets earlier CPUs run, if there are any, before CPUs meet.
    #[inline(always)]
    fn run_earlier_cpus(&self) {
        if self.engine.borrow().is_ahead() {
            self.yield_to_earlier();
        }
    }

    #[inline]
    fn use_line(&self, address: usize, accessed: Accessed, access: Access) {
        let mut engine = self.engine.borrow();
        if engine.is_running()
            && let Some(when) = engine.use_line(address, accessed, access)
        {
            drop(engine);
            self.use_line_in_order(when, address, accessed, access);
        }
    }

    /// Uses a line after all earlier CPUs have run.
    #[inline(never)]
    fn use_line_in_order(&self, when: InOrder, address: usize, accessed: Accessed, access: Access) {
        self.run_earlier_cpus();
        let line = match when {
            InOrder::Fetch(line) => line,
            InOrder::Recheck(line) => {
                if self.engine.borrow().use_at_hand(line, address, accessed, access) {
                    return;
                }
                self.run_earlier_cpus();
                line
            }
        };
        self.engine.borrow().fetch_line(line, accessed, access);
    }
}

impl Platform for SimPlatform {
    type Guard = ();

    #[inline(always)]
    fn backing(&self) -> &impl MemoryBacking {
        self
    }

    #[inline(always)]
    fn probe(&self) -> &impl Probe {
        self
    }

    #[inline(always)]
    fn guard(&self) {}

    #[inline(always)]
    fn current_cpu(&self) -> CpuId {
        CpuId(self.engine.borrow().current() as u32)
    }

    fn spin(&self, round: u32) {
        let mut engine = self.engine.borrow();
        assert!(engine.is_running(), "outside of a run no other CPU can end the wait");
        engine.relax(round);
        drop(engine);
        self.yield_to_earlier();
    }

    #[inline]
    fn frame_bytes(&self, pfn: Pfn) -> Option<NonNull<u8>> {
        self.bytes.of(pfn)
    }

    fn lock(&self, id: LockId, word: &AtomicU32) -> Result<Contention, LockError> {
        if is_shared(id.kind()) && self.engine.borrow().is_running() {
            self.run_earlier_cpus();
        }
        if word.load(Ordering::Relaxed) == FREE {
            // The lock is taken before its line arrives, so a CPU that tries to take it in between waits.
            word.store(HELD, Ordering::Relaxed);
            self.use_line(std::ptr::from_ref(word).addr(), Accessed::Lock(id.kind()), Access::ReadModifyWrite);
            return Ok(Contention::Free);
        }
        assert!(self.engine.borrow().is_running(), "outside of a run no other CPU can release {id:?}");
        word.store(AWAITED, Ordering::Relaxed);
        self.engine.borrow().enqueue(std::ptr::from_ref(word).addr(), id);
        fiber::suspend();
        Ok(Contention::Contended)
    }

    #[inline]
    fn try_lock(&self, id: LockId, word: &AtomicU32) -> Contention {
        self.use_line(std::ptr::from_ref(word).addr(), Accessed::Lock(id.kind()), Access::ReadModifyWrite);
        if word.load(Ordering::Relaxed) != FREE {
            return Contention::Contended;
        }
        word.store(HELD, Ordering::Relaxed);
        Contention::Free
    }

    #[inline]
    fn unlock(&self, id: LockId, word: &AtomicU32) {
        let address = std::ptr::from_ref(word).addr();
        if !self.engine.borrow().is_running() {
            return word.store(FREE, Ordering::Relaxed);
        }
        if is_shared(id.kind()) {
            self.run_earlier_cpus();
        }
        if word.load(Ordering::Relaxed) == AWAITED {
            let handover = self.engine.borrow().hand_over(address, id);
            let next = match handover {
                Handover::Free => FREE,
                Handover::ToLast => HELD,
                Handover::ToOneOfMany => AWAITED,
            };
            return word.store(next, Ordering::Relaxed);
        }
        self.use_line(address, Accessed::Lock(id.kind()), Access::Write);
        // A waiter may have arrived while the line was on its way.
        if word.load(Ordering::Relaxed) == AWAITED {
            return self.unlock(id, word);
        }
        word.store(FREE, Ordering::Relaxed);
        let mut engine = self.engine.borrow();
        if let Some(line) = engine.line_at(address) {
            engine.mark_held_until_now(line);
        }
    }

    #[inline(always)]
    fn has_sequences(&self) -> bool {
        self.lists == ListAccess::Sequences
    }

    // A task stays on its CPU, and is suspended only in calls of the platform, of which a sequence makes none. So a sequence that has
    // begun comes to its end.

    #[inline]
    fn pop_in_sequence(&self, cpu: CpuId, list: OwnList<'_>) -> Popped {
        list.announce_pop(self);
        if self.current_cpu() == cpu { list.pop(|| true) } else { Popped::NOTHING }
    }

    #[inline]
    fn push_in_sequence(&self, cpu: CpuId, list: OwnList<'_>, entry: u32) -> bool {
        list.announce_push(self);
        self.current_cpu() == cpu && list.push(entry, || true)
    }

    #[inline]
    fn take_in_sequence(&self, cpu: CpuId, list: OwnList<'_>) -> bool {
        list.announce_take(self);
        self.current_cpu() == cpu && list.take(|| true)
    }

    /// No sequence is in progress while another CPU runs. What remains is the time of the interrupts.
    fn end_sequences(&self, cpu: Option<CpuId>) -> Result<(), SequencesNotEnded> {
        if self.lists == ListAccess::Locks {
            return Err(SequencesNotEnded);
        }
        let mut engine = self.engine.borrow();
        if engine.is_running() {
            engine.interrupt(cpu.map(CpuId::index));
            drop(engine);
            self.run_earlier_cpus();
        }
        Ok(())
    }

    fn run_workers(
        &self,
        count: usize,
        node_of: &(dyn Fn(usize) -> NodeId + Sync),
        job: &(dyn Fn(usize) + Sync),
    ) -> Result<(), WorkerPanicked> {
        run_workers(&self.engine, count, node_of, job)
    }

    fn wait_for_change(&self, id: LockId, word: &AtomicU64, seen: u64, _round: u32) {
        if word.load(Ordering::Relaxed) != seen {
            return;
        }
        assert!(self.engine.borrow().is_running(), "outside of a run no other CPU can release {id:?}");
        self.engine.borrow().sleep(std::ptr::from_ref(word).addr(), id);
        fiber::suspend();
    }

    fn wake_waiters(&self, id: LockId, word: &AtomicU64) {
        let mut engine = self.engine.borrow();
        if engine.is_running() {
            engine.wake_all(std::ptr::from_ref(word).addr(), id.kind());
        }
    }
}

impl MemoryBacking for SimPlatform {
    fn zero_frames(&self, frames: PfnRange) -> Offload {
        self.bytes.zero(frames);
        self.write_frames(frames.count(), |engine, at| {
            engine.write_frame(None, frames.start + at, KernelCost::ZeroPage);
        });
        Offload::Done
    }

    fn copy_frames(&self, from: PfnRange, to: Pfn) -> Offload {
        self.bytes.copy(from, to);
        self.write_frames(from.count(), |engine, at| {
            engine.write_frame(Some(from.start + at), to + at, KernelCost::CopyPage);
        });
        Offload::Done
    }
}

impl Probe for SimPlatform {
    #[inline]
    fn begin_activity(&self, span: Activity) {
        let mut engine = self.engine.borrow();
        if engine.is_running() {
            engine.enter(span);
        }
    }

    #[inline]
    fn end_activity(&self, span: Activity, PageCount(pages): PageCount) {
        let mut engine = self.engine.borrow();
        if !engine.is_running() {
            return;
        }
        match span {
            Activity::Fault if pages > 0 => {
                engine.spend_kernel(KernelCost::Exception, pages);
                engine.spend_kernel(KernelCost::FaultPath, pages);
            }
            Activity::Zap if pages > 0 => engine.spend_kernel(KernelCost::UnmapPage, pages),
            Activity::Map => engine.spend_kernel(KernelCost::MapCall, 1),
            Activity::Relist if pages > 0 => engine.spend_kernel(KernelCost::LruPage, pages),
            _ => return engine.leave(span),
        }
        engine.leave(span);
        let is_far_ahead = engine.is_far_ahead();
        drop(engine);
        if is_far_ahead {
            self.yield_to_earlier();
        }
    }

    #[inline(always)]
    fn touch_page(&self, pfn: Pfn, access: Access) {
        let mut engine = self.engine.borrow();
        if engine.is_running() {
            engine.touch_page(pfn, access);
        }
    }

    #[inline]
    fn touch_line(&self, line: SharedLine, access: Access) {
        match line.kind {
            LineKind::AllocationMap => {
                let mut engine = self.engine.borrow();
                if engine.is_running() {
                    engine.touch_allocation_map(line.address.addr(), access);
                }
                return;
            }
            LineKind::PageTable => {
                let mut engine = self.engine.borrow();
                if !engine.is_running() || engine.touch_entry(line.address.addr(), access) {
                    return;
                }
            }
            _ => {}
        }
        self.use_line(line.address.addr(), Accessed::Line(line.kind), access);
    }

    fn block_taken(&self, block: PfnRange) {
        let mut engine = self.engine.borrow();
        if engine.is_running() {
            engine.check_block(block);
        }
    }

    fn map_written(&self, frames: PfnRange, how: MapWrite) {
        let mut rest = frames;
        while !rest.is_empty() {
            let mut engine = self.engine.borrow();
            if !engine.is_running() {
                return;
            }
            rest.start = rest.start + PageCount(engine.write_map(rest.start, rest.count().0, how));
            let is_far_ahead = engine.is_far_ahead();
            drop(engine);
            if is_far_ahead {
                self.yield_to_earlier();
            }
        }
    }

    fn init_progress(&self, progress: InitProgress) {
        if let InitProgress::NodeDone(done) = progress {
            self.engine.borrow().note_node_init(done);
        }
    }

    fn clock_ns(&self) -> Option<u64> {
        Some(self.now().0 / 1000)
    }

    fn lock_clock_ns(&self) -> Option<u64> {
        let engine = self.engine.borrow();
        engine.is_running().then(|| engine.now().0 / 1000)
    }
}
