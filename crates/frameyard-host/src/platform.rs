//! The native platform: CPU identity, waiting, worker threads, and the bytes of frames.

use std::io;
use std::num::NonZeroU32;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use frameyard::platform::{
    Contention, FramesNotReturned, FreeFrames, GetMark, HugePageTails, InitProgress, LockError, LockId, MapNotBacked,
    MemoryBacking, OwnList, Popped, Probe, SequencesNotEnded, SpeculativeGets, WorkerPanicked,
};
use frameyard::{ByteSize, CpuId, NodeId, Order, Pfn, PfnRange, Platform};

use crate::cpu_list::CpuList;
use crate::device::{AddDeviceError, DeviceMemory, DeviceTable};
use crate::device_map::DeviceMap;
use crate::device_problem::DeviceMapProblem;
use crate::init_watch::InitWatch;
use crate::map_tails::MapTails;
use crate::memory::{HostMemory, NodeFrames};
use crate::shared::process::Attachment;
use crate::speculation;
use crate::sys::cpu::{self, RseqCpu};
use crate::sys::mapping::populate_around;
use crate::sys::sequences::Sequences;
use crate::topology::HostTopology;

mod lock_clock;
mod lock_wait;
mod options;
mod placement;

use lock_clock::LockClock;
use lock_wait::LockWait;
pub use options::{CpuIdentity, ListAccess, LockTiming, PopulateMap, RseqUnavailable};
use placement::CpuLoads;

/// The platform of a yard in a Linux process.
///
/// It reports the host's CPU numbers unchanged; a yard with fewer CPUs folds them.
#[derive(Debug)]
pub struct HostPlatform {
    /// The `rseq` area, for [`CpuIdentity::Rseq`].
    rseq: Option<RseqCpu>,
    identity: CpuIdentity,
    memory: HostMemory,
    devices: DeviceTable,
    /// The part of the memory map for devices, if there is one.
    device_map: Option<DeviceMap>,
    /// The whole memory map, once the yard exists.
    map_tails: Option<MapTails>,
    host: HostTopology,
    loads: CpuLoads,
    init_watch: InitWatch,
    populate_map: PopulateMap,
    clock: LockClock,
    /// In a shared yard: the place of this process, and how it waits for locks.
    shared: Option<LockWait>,
    /// How CPUs use their lists without locks, in a private yard that knows each CPU of the process.
    sequences: Option<Sequences>,
    /// What this process writes to the word of a lock that it takes.
    holder: u32,
    /// The process that made the platform. A forked child is another.
    created_in: u32,
    /// The lock of what this process has found corrupt, or 0. Not in shared memory: no other process can take it back.
    corrupt: AtomicU64,
}

/// Set in [`HostPlatform::corrupt`] together with the word of a lock.
const IS_CORRUPT: u64 = 1 << 63;

impl HostPlatform {
    /// A platform for a yard on `memory`.
    ///
    /// A thread's CPU comes from `rseq` if the calling thread has a registered `rseq` area, and otherwise from
    /// `sched_getcpu`.
    #[must_use]
    pub fn new(memory: HostMemory, host: &HostTopology) -> Self {
        let rseq = usable_rseq();
        let identity = if rseq.is_some() { CpuIdentity::Rseq } else { CpuIdentity::Getcpu };
        Self {
            rseq,
            identity,
            devices: DeviceTable::new(memory.page_shift()),
            device_map: None,
            map_tails: None,
            memory,
            host: host.clone(),
            loads: CpuLoads::default(),
            init_watch: InitWatch::default(),
            populate_map: PopulateMap::No,
            clock: LockClock::new(),
            shared: None,
            sequences: None,
            holder: HELD,
            created_in: std::process::id(),
            corrupt: AtomicU64::new(0),
        }
    }

    /// Reports the progress of initialising the memory map to `watch`.
    #[must_use]
    pub fn with_init_watch(mut self, watch: &InitWatch) -> Self {
        self.init_watch = watch.clone();
        self
    }

    /// Sets whether the host provides the memory of the memory map before it is written; by default it does not.
    #[must_use]
    pub fn with_populate_map(mut self, populate: PopulateMap) -> Self {
        self.populate_map = populate;
        self
    }

    /// Lets CPUs use their lists in restartable sequences, without locks, where that is possible: in a private yard
    /// with a list for each online CPU of the host, on threads whose CPU comes from `rseq`, with a kernel that has
    /// `membarrier` for such sequences. Elsewhere it has no effect. `cpus` is the number of CPUs of the yard. Call it
    /// after [`with_identity`](Self::with_identity).
    #[must_use]
    pub fn with_sequences(mut self, cpus: u32) -> Self {
        let are_known = self.rseq.is_some()
            && self.shared.is_none()
            && self.host.online().as_slice().iter().all(|cpu| cpu.0 < cpus);
        self.sequences = if are_known { Sequences::registered() } else { None };
        self
    }

    /// Sets the part of the memory map for devices.
    pub(crate) fn with_device_map(mut self, map: Option<DeviceMap>) -> Self {
        self.device_map = map;
        self
    }

    /// Sets the memory map.
    pub(crate) fn with_map(mut self, map: MapTails) -> Self {
        self.map_tails = Some(map);
        self
    }

    /// Sets the place of this process among those that share the yard, and the longest wait for a lock. The platform keeps
    /// the place.
    pub(crate) fn with_attachment(mut self, attachment: Arc<Attachment>, limit: Duration) -> Self {
        self.holder = attachment.process().identity();
        self.shared = Some(LockWait::new(attachment, limit));
        self
    }

    /// The part of the memory map for devices, if it contains these bytes and they describe no memory.
    fn device_map_at(&self, address: NonNull<u8>, bytes: usize) -> Option<&DeviceMap> {
        let map = self.device_map.as_ref()?;
        let frames = map.frames(address, bytes)?;
        let is_memory = |memory: &NodeFrames| !memory.range.intersection(frames).is_empty();
        if self.memory.ranges().iter().any(is_memory) { None } else { Some(map) }
    }

    /// How CPUs use their lists without locks.
    pub(crate) fn sequences(&self) -> Option<Sequences> {
        self.sequences
    }

    /// The reason of the last refusal of memory for page structures of devices, which it forgets.
    pub(crate) fn take_map_problem(&self) -> Option<DeviceMapProblem> {
        self.device_map.as_ref()?.take_problem()
    }

    /// Turns timing of the locks that are taken through this platform on or off; it is off at first.
    ///
    /// [`ZoneStatistics::lock`](frameyard::stats::ZoneStatistics::lock) and its counterparts report the times. A lock
    /// that is held while timing is switched may not be counted.
    ///
    /// The clock is the processor's time-stamp counter if that runs at a constant rate (x86-64 with an invariant
    /// counter). When locks are timed for the first time, it is calibrated against the system's monotonic clock, and
    /// the call waits until the platform is 10 ms old. On other processors, the clock is the monotonic clock itself,
    /// and the time it takes to read it is part of each result.
    pub fn time_locks(&self, timing: LockTiming) {
        self.clock.switch(timing);
    }

    /// Sets how the platform finds out which CPU a thread runs on.
    ///
    /// # Errors
    ///
    /// [`RseqUnavailable`] if `rseq` is requested and is not available.
    pub fn with_identity(mut self, identity: CpuIdentity) -> Result<Self, RseqUnavailable> {
        self.rseq = match identity {
            CpuIdentity::Rseq => Some(usable_rseq().ok_or(RseqUnavailable)?),
            CpuIdentity::Getcpu | CpuIdentity::Fixed(_) => None,
        };
        self.identity = identity;
        Ok(self)
    }

    /// How the platform finds out which CPU a thread runs on.
    #[must_use]
    pub fn identity(&self) -> CpuIdentity {
        self.identity
    }

    /// The progress of initialising the memory map of this platform's yard.
    #[must_use]
    pub fn init_watch(&self) -> InitWatch {
        self.init_watch.clone()
    }

    /// The memory behind the frames.
    #[must_use]
    pub fn memory(&self) -> &HostMemory {
        &self.memory
    }

    /// Adds a device that has the bytes of these frames. The yard may already exist.
    ///
    /// This does not map the device in the yard; [`HostYard::map_device`](crate::HostYard::map_device) does. In a
    /// shared yard, each process adds the device to its own platform.
    ///
    /// # Errors
    ///
    /// [`AddDeviceError`] if the range does not have as many frames as the device, or if frames in it already have
    /// bytes.
    pub fn add_device(&self, range: PfnRange, memory: Arc<DeviceMemory>) -> Result<(), AddDeviceError> {
        let taken = |frames: &&NodeFrames| !frames.range.intersection(range).is_empty();
        match self.memory.ranges().iter().find(taken) {
            Some(frames) => Err(AddDeviceError::Taken { range, by: frames.range }),
            None => self.devices.add(range, memory),
        }
    }

    /// The devices of the platform with their frames, in ascending order.
    #[must_use]
    pub fn devices(&self) -> Vec<(PfnRange, Arc<DeviceMemory>)> {
        self.devices.all().into_iter().map(|device| (device.range, device.memory)).collect()
    }

    /// The device that has the bytes of a frame, and the frames of that device.
    #[must_use]
    pub fn device_of(&self, pfn: Pfn) -> Option<(PfnRange, Arc<DeviceMemory>)> {
        self.devices.of(pfn).map(|device| (device.range, device.memory))
    }

    /// Removes a device. The caller checks afterwards that the device is not mapped in the yard, and adds it again if
    /// it is: no code may use an address of its frames any more.
    pub(crate) fn remove_device(&self, range: PfnRange) -> Result<Arc<DeviceMemory>, AddDeviceError> {
        self.devices.remove(range)
    }

    /// The machine that the platform runs on.
    #[must_use]
    pub fn host(&self) -> &HostTopology {
        &self.host
    }

    /// The CPU of a thread for which one load did not tell it.
    #[cold]
    #[inline(never)]
    fn slow_cpu() -> u32 {
        cpu::getcpu()
    }

    /// The CPUs for workers of a node of the yard: all permitted CPUs if its host node has none of them.
    fn cpus_of(&self, node: NodeId) -> CpuList {
        let cpus = self.host.node_for(node).cpus.intersection(self.host.allowed());
        if cpus.is_empty() { self.host.allowed().clone() } else { cpus }
    }
}

/// The `rseq` area, if the kernel maintains it for the calling thread.
fn usable_rseq() -> Option<RseqCpu> {
    RseqCpu::registered().filter(|rseq| rseq.cpu_id() >= 0)
}

/// Rounds of [`Platform::spin`] that only pause: 127 pauses in total, a few microseconds.
const SPIN_ROUNDS: u32 = 7;
/// Rounds of [`Platform::wait`] below this number are those of `spin`. Later ones sleep.
const YIELD_ROUNDS: u32 = 64;
/// The base-2 logarithm of the longest sleep in microseconds.
const MAX_SLEEP_SHIFT: u32 = 9;
/// The same in the first [`SHARED_ROUNDS`] rounds of a wait in a shared yard. They then take less than a second. The process
/// that the caller waits for may have ended.
const SHARED_SLEEP_SHIFT: u32 = 6;
/// The bound of most waits of the core.
const SHARED_ROUNDS: u32 = 4096;

/// The word of a free lock.
const FREE: u32 = 0;
/// The word of a lock that a thread of a private yard holds. In a shared yard the word names the process.
const HELD: u32 = 1;

impl Platform for HostPlatform {
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
        let known = match (self.rseq, self.identity) {
            (Some(rseq), _) => rseq.cpu_id(),
            (None, CpuIdentity::Fixed(cpu)) => return cpu,
            (None, _) => -1,
        };
        CpuId(if known >= 0 { known as u32 } else { Self::slow_cpu() })
    }

    #[inline(always)]
    fn has_sequences(&self) -> bool {
        self.sequences.is_some()
    }

    #[inline(always)]
    fn sequence_cpu(&self) -> Option<CpuId> {
        Some(self.sequences?.cpu())
    }

    #[inline(always)]
    fn pop_in_sequence(&self, cpu: CpuId, list: OwnList<'_>) -> Popped {
        self.sequences.map_or(Popped::NOTHING, |sequences| sequences.pop(cpu, list))
    }

    #[inline(always)]
    fn push_in_sequence(&self, cpu: CpuId, list: OwnList<'_>, entry: u32) -> bool {
        self.sequences.is_some_and(|sequences| sequences.push(cpu, list, entry))
    }

    #[inline]
    fn take_in_sequence(&self, cpu: CpuId, list: OwnList<'_>) -> bool {
        self.sequences.is_some_and(|sequences| sequences.take(cpu, list))
    }

    #[cold]
    fn end_sequences(&self, cpu: Option<CpuId>) -> Result<(), SequencesNotEnded> {
        self.sequences.ok_or(SequencesNotEnded)?.end_on(cpu).map_err(|_| SequencesNotEnded)
    }

    /// Pauses 2ⁿ times in round n, then yields.
    #[cold]
    fn spin(&self, round: u32) {
        if round < SPIN_ROUNDS {
            for _ in 0..1 << round {
                std::hint::spin_loop();
            }
        } else {
            thread::yield_now();
        }
    }

    /// As [`spin`](Platform::spin), then sleeps up to half a millisecond.
    #[cold]
    fn wait(&self, round: u32) {
        if round < YIELD_ROUNDS {
            self.spin(round);
        } else {
            let is_short = self.shared.is_some() && round < SHARED_ROUNDS;
            let shift = (round - YIELD_ROUNDS).min(if is_short { SHARED_SLEEP_SHIFT } else { MAX_SLEEP_SHIFT });
            thread::sleep(Duration::from_micros(1 << shift));
        }
    }

    /// Spins, then sleeps: the scheduler may have stopped the holder, and a guard disables nothing here.
    #[inline]
    fn lock(&self, id: LockId, word: &AtomicU32) -> Result<Contention, LockError> {
        if self.try_lock(id, word) == Contention::Free {
            return Ok(Contention::Free);
        }
        self.wait_for_lock(id, word)
    }

    /// Notes it in this process and in the memory file.
    #[cold]
    fn note_corrupt(&self, lock: LockId) {
        let found = lock.to_bits() | IS_CORRUPT;
        if self.corrupt.compare_exchange(0, found, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.shared.iter().for_each(|shared| shared.note_corrupt(lock));
        }
    }

    #[inline]
    fn lock_error(&self) -> Option<LockError> {
        match self.corrupt.load(Ordering::Relaxed) {
            0 => self.shared.as_ref()?.error(),
            found => Some(LockError::Corrupt { lock: LockId::from_bits(found & !IS_CORRUPT) }),
        }
    }

    #[inline(always)]
    fn process(&self) -> Option<NonZeroU32> {
        self.shared.as_ref()?;
        NonZeroU32::new(self.holder)
    }

    /// In a forked child.
    fn has_lost_threads(&self) -> bool {
        self.created_in != std::process::id()
    }

    #[inline]
    fn check_holder(&self, id: LockId, holder: u32, round: u32, still: &dyn Fn() -> bool) -> Result<(), LockError> {
        self.check_wait(id, holder, round, still)
    }

    /// Takes the lock if it is free. In a shared yard its word then names this process.
    ///
    /// A compare-exchange, so that a process that fails does not overwrite the name of the holder.
    #[inline(always)]
    fn try_lock(&self, _id: LockId, word: &AtomicU32) -> Contention {
        // Acquire: pairs with the Release in `HostPlatform::unlock`.
        match word.compare_exchange(FREE, self.holder, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Contention::Free,
            Err(_) => Contention::Contended,
        }
    }

    #[inline(always)]
    fn unlock(&self, _id: LockId, word: &AtomicU32) {
        // Release: pairs with the Acquire in `HostPlatform::try_lock`.
        word.store(FREE, Ordering::Release);
    }

    /// Looks among the frames of memory first, then among those of devices.
    #[inline]
    fn frame_bytes(&self, pfn: Pfn) -> Option<NonNull<u8>> {
        self.memory.frame(pfn).or_else(|| self.devices.frame(pfn))
    }

    /// Runs worker 0 on the caller and the other workers on new threads, on the CPUs of the host nodes that stand for
    /// theirs.
    ///
    /// If a node has a CPU for each of its workers, each worker is pinned to its own: the one with the fewest workers
    /// of all jobs of this platform. Otherwise all of them may run on all CPUs of the node, or on all permitted CPUs if
    /// the node has none of these. Afterwards the caller may run where it could before, even if a worker panicked.
    ///
    /// If the system grants fewer threads, fewer workers run.
    fn run_workers(
        &self,
        count: usize,
        node_of: &(dyn Fn(usize) -> NodeId + Sync),
        job: &(dyn Fn(usize) + Sync),
    ) -> Result<(), WorkerPanicked> {
        let wanted = (0..count.max(1)).map(|worker| self.cpus_of(node_of(worker))).collect();
        let places = self.loads.places(wanted, CpuId(cpu::getcpu()));
        thread::scope(|scope| {
            let mut workers = Vec::new();
            for (worker, place) in places.iter().enumerate().skip(1) {
                let body = move || {
                    place.move_here();
                    job(worker);
                };
                match thread::Builder::new().spawn_scoped(scope, body) {
                    Ok(thread) => workers.push(thread),
                    Err(_) => break,
                }
            }
            // Only now: new threads inherit the CPUs of the thread that starts them.
            let visit = places[0].visit();
            let own = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| job(0)));
            drop(visit);
            // Joins every worker, so that a panic of one is reported and none is left running.
            let panicked = workers.into_iter().filter_map(|worker| worker.join().err()).count();
            if panicked == 0 && own.is_ok() { Ok(()) } else { Err(WorkerPanicked) }
        })
    }
}

impl MemoryBacking for HostPlatform {
    /// Returns private memory with `MADV_DONTNEED`, memory of a file by punching a hole (`MADV_REMOVE`).
    fn return_frames(&self, frames: &FreeFrames) -> Result<(), FramesNotReturned> {
        self.memory.release(frames)
    }

    /// Makes all host pages of a part of the map present, if [`PopulateMap`] says so.
    ///
    /// Parts for devices that are larger than a host page are always made present, with huge pages if the map has them.
    fn back_map(&self, frames: PfnRange, address: NonNull<u8>, bytes: usize) -> Result<(), MapNotBacked> {
        let _ = frames;
        if let Some(map) = self.device_map_at(address, bytes) {
            return map.back(address, bytes);
        }
        if self.populate_map == PopulateMap::No {
            return Ok(());
        }
        match populate_around(address, bytes).map_err(|error| error.kind()) {
            // A kernel without the call: the first write allocates the memory.
            Ok(()) | Err(io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => Ok(()),
            Err(_) => Err(MapNotBacked),
        }
    }

    /// Private memory that is never written shows the host's zero page, so this only keeps transparent huge pages away.
    /// In a shared yard every process maps zeroes there.
    fn share_tails(
        &self,
        frames: PfnRange,
        order: Order,
        address: NonNull<u8>,
        bytes: usize,
    ) -> Result<(), MapNotBacked> {
        let Some(map) = self.device_map_at(address, bytes) else { return Ok(()) };
        let pages = frames.count().0 >> order.0;
        map.share_tails(address, bytes, if pages == 0 { bytes } else { bytes / pages as usize })
    }

    /// Returns private memory with `MADV_DONTNEED`, memory of a memory file by punching a hole. Memory of a device is
    /// replaced by ordinary memory.
    fn return_map(&self, frames: PfnRange, address: NonNull<u8>, bytes: usize) {
        let _ = frames;
        if let Some(map) = self.device_map_at(address, bytes) {
            map.release(address, bytes);
        }
    }

    /// Returns private memory with `MADV_DONTNEED`, memory of a memory file by punching a hole (`MADV_REMOVE`).
    fn release_tails(&self, tails: &HugePageTails) -> ByteSize {
        self.map_tails.as_ref().map_or(ByteSize(0), |map| map.release(tails))
    }

    /// Maps the file of the device with these frames.
    fn place_map(&self, holding: PfnRange, address: NonNull<u8>, bytes: usize) -> Result<(), MapNotBacked> {
        let map = self.device_map_at(address, bytes).ok_or(MapNotBacked)?;
        let device = self.devices.of(holding.start).filter(|device| holding.end <= device.range.end);
        let file = device.as_ref().and_then(|device| {
            let offset = self.devices.offset(device, holding.start);
            device.memory.file().map(|file| (file, offset.0))
        });
        map.place(file, address, bytes)
    }

    /// In a shared yard tails are mapped in place of pages that were written.
    fn speculative_gets(&self) -> SpeculativeGets {
        match &self.device_map {
            Some(map) if map.gets_tails() => SpeculativeGets::Marked,
            _ => SpeculativeGets::Unmarked,
        }
    }

    /// Sets the thread's mark. The keeper of every view waits for it before it maps tails.
    #[inline(always)]
    fn begin_get(&self) -> Option<&GetMark> {
        Some(speculation::begin_get())
    }
}

impl Probe for HostPlatform {
    #[inline(always)]
    fn sees_pages(&self) -> bool {
        false
    }

    /// The time since the platform was made, by the system's monotonic clock.
    fn clock_ns(&self) -> Option<u64> {
        self.clock.system_ns()
    }

    /// The time since the platform was made, while locks are timed ([`time_locks`](HostPlatform::time_locks)).
    #[inline(always)]
    fn lock_clock_ns(&self) -> Option<u64> {
        self.clock.ns()
    }

    /// Records progress for [`init_watch`](HostPlatform::init_watch).
    fn init_progress(&self, progress: InitProgress) {
        self.init_watch.note(progress);
    }
}

#[cfg(test)]
mod tests;
