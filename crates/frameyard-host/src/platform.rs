//! The native platform: CPU identity, waiting, workers, and the bytes of frames.

use std::fmt;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use frameyard::platform::{
    FramesNotReturned, FreeFrames, GetMark, InitProgress, MapBacking, MapNotBacked, Probe, SpeculativeGets,
    WorkerPanicked,
};
use frameyard::{CpuId, NodeId, Order, Pfn, PfnRange, Platform};

use crate::cpu_list::CpuList;
use crate::device::{AddDeviceError, DeviceMemory, DeviceTable};
use crate::device_map::DeviceMap;
use crate::device_problem::DeviceMapProblem;
use crate::init_watch::InitWatch;
use crate::memory::{HostMemory, NodeFrames};
use crate::speculation;
use crate::sys::cpu::{self, RseqCpu};
use crate::sys::mapping::populate_around;
use crate::topology::HostTopology;

mod lock_clock;
mod placement;

use lock_clock::LockClock;
use placement::CpuLoads;

/// How the platform knows which CPU runs a thread.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CpuIdentity {
    /// From the `cpu_id` of the thread's `rseq` area: one load. Where the kernel leaves it negative on some
    /// thread, that thread asks as with [`Getcpu`](CpuIdentity::Getcpu).
    Rseq,
    /// From `sched_getcpu`.
    Getcpu,
    /// Always the same: every thread is on this CPU of the yard.
    Fixed(CpuId),
}

impl CpuIdentity {
    /// The name of the path, as in `rseq`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rseq => "rseq",
            Self::Getcpu => "getcpu",
            Self::Fixed(_) => "fixed",
        }
    }
}

/// The C library registers no `rseq` area for the calling thread, or the kernel keeps none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RseqUnavailable;

impl fmt::Display for RseqUnavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no rseq area registered: needs x86-64, glibc 2.35 or later, and a kernel with rseq")
    }
}

impl std::error::Error for RseqUnavailable {}

/// Whether the host is asked for the memory of a part of a memory map before that part is written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum PopulateMap {
    /// It is not: the host gives each page at its first write. Where it then has none (a full file system behind
    /// the map, an exhausted pool of huge pages, a damaged page), it ends the process by a signal.
    #[default]
    No,
    /// It is: a map that cannot be backed is an error ([`MapNotBacked`]) and the yard goes on without those frames.
    /// One system call (`MADV_POPULATE_WRITE`) takes the page faults of a whole part, cheaper than one by one. But
    /// all of the part becomes resident, also where it would not have been written. Kernels before 5.14 lack the
    /// call: as with [`No`](PopulateMap::No) there.
    ///
    /// Where a limit of a control group is reached the kernel ends a process in either case.
    Yes,
}

/// Whether locks are timed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum LockTiming {
    /// They are not: taking one costs nothing more than a look at this switch.
    #[default]
    Off,
    /// How long they are waited for and held is counted, by three looks at the clock each time.
    On,
}

/// The environment of a yard in a process of Linux.
///
/// Says the host's CPU numbers as they are; a yard of fewer CPUs folds them in.
#[derive(Debug)]
pub struct HostPlatform {
    /// Where to look for the identity; `None` unless it is [`CpuIdentity::Rseq`].
    rseq: Option<RseqCpu>,
    identity: CpuIdentity,
    memory: HostMemory,
    devices: DeviceTable,
    /// The part of the memory map that is for devices, where there is one.
    device_map: Option<DeviceMap>,
    host: HostTopology,
    loads: CpuLoads,
    init_watch: InitWatch,
    populate_map: PopulateMap,
    clock: LockClock,
}

impl HostPlatform {
    /// A platform for a yard on that memory.
    ///
    /// Identity comes from `rseq` where the calling thread has a registered area, else from `sched_getcpu`.
    #[must_use]
    pub fn new(memory: HostMemory, host: &HostTopology) -> Self {
        let rseq = usable_rseq();
        let identity = if rseq.is_some() { CpuIdentity::Rseq } else { CpuIdentity::Getcpu };
        Self {
            rseq,
            identity,
            devices: DeviceTable::new(memory.page_shift()),
            device_map: None,
            memory,
            host: host.clone(),
            loads: CpuLoads::default(),
            init_watch: InitWatch::default(),
            populate_map: PopulateMap::No,
            clock: LockClock::new(),
        }
    }

    /// The same, reporting to `watch` how the memory map comes up.
    #[must_use]
    pub fn with_init_watch(mut self, watch: &InitWatch) -> Self {
        self.init_watch = watch.clone();
        self
    }

    /// The same, asking for the memory of the memory map beforehand or not; it does not at first.
    #[must_use]
    pub fn with_populate_map(mut self, populate: PopulateMap) -> Self {
        self.populate_map = populate;
        self
    }

    /// The same with a part of the memory map that is for devices.
    pub(crate) fn with_device_map(mut self, map: Option<DeviceMap>) -> Self {
        self.device_map = map;
        self
    }

    /// The part of the memory map that is for devices, where these bytes lie there and are no memory's.
    fn device_map_at(&self, address: NonNull<u8>, bytes: usize) -> Option<&DeviceMap> {
        let map = self.device_map.as_ref()?;
        let frames = map.frames(address, bytes)?;
        let is_memory = |memory: &NodeFrames| !memory.range.intersection(frames).is_empty();
        if self.memory.ranges().iter().any(is_memory) { None } else { Some(map) }
    }

    /// Why memory for page structures of devices was refused the last time, if nobody asked since.
    pub(crate) fn take_map_problem(&self) -> Option<DeviceMapProblem> {
        self.device_map.as_ref()?.take_problem()
    }

    /// From now on, times the locks that are taken through this platform, or does not; it does not at first.
    ///
    /// What is counted is told by [`ZoneStatistics::lock`](frameyard::stats::ZoneStatistics::lock) and its like. A lock that
    /// is held while the switch is turned may be left out.
    ///
    /// The clock is the processor's time-stamp counter where that rises at a constant rate: on x86-64 with an invariant
    /// one. It is compared with the monotonic clock when locks are timed for the first time, which waits until the
    /// platform is 10 ms old. Elsewhere it is the monotonic clock, whose reading counts as part of each time.
    pub fn time_locks(&self, timing: LockTiming) {
        self.clock.switch(timing);
    }

    /// The same with another way to know the CPU.
    ///
    /// # Errors
    ///
    /// [`RseqUnavailable`] where `rseq` is asked for and is not there.
    pub fn with_identity(mut self, identity: CpuIdentity) -> Result<Self, RseqUnavailable> {
        self.rseq = match identity {
            CpuIdentity::Rseq => Some(usable_rseq().ok_or(RseqUnavailable)?),
            CpuIdentity::Getcpu | CpuIdentity::Fixed(_) => None,
        };
        self.identity = identity;
        Ok(self)
    }

    /// How the platform knows which CPU runs a thread.
    #[must_use]
    pub fn identity(&self) -> CpuIdentity {
        self.identity
    }

    /// How far the memory map has come up, as this platform was told.
    #[must_use]
    pub fn init_watch(&self) -> InitWatch {
        self.init_watch.clone()
    }

    /// The memory behind the frames.
    #[must_use]
    pub fn memory(&self) -> &HostMemory {
        &self.memory
    }

    /// Gives the platform a device that has the bytes of these frames, before or after a yard is made with it.
    ///
    /// The yard knows nothing of it: [`HostYard::map_device`](crate::HostYard::map_device) maps it there. In a shared
    /// yard each process gives its own platform the device.
    ///
    /// # Errors
    ///
    /// [`AddDeviceError`] where the frames are not as many as the device's, or have bytes elsewhere.
    pub fn add_device(&self, range: PfnRange, memory: Arc<DeviceMemory>) -> Result<(), AddDeviceError> {
        let taken = |frames: &&NodeFrames| !frames.range.intersection(range).is_empty();
        match self.memory.ranges().iter().find(taken) {
            Some(frames) => Err(AddDeviceError::Taken { range, by: frames.range }),
            None => self.devices.add(range, memory),
        }
    }

    /// The devices of the platform and their frames, ascending.
    #[must_use]
    pub fn devices(&self) -> Vec<(PfnRange, Arc<DeviceMemory>)> {
        self.devices.all().into_iter().map(|device| (device.range, device.memory)).collect()
    }

    /// The device that has the bytes of a frame, and its frames.
    #[must_use]
    pub fn device_of(&self, pfn: Pfn) -> Option<(PfnRange, Arc<DeviceMemory>)> {
        self.devices.of(pfn).map(|device| (device.range, device.memory))
    }

    /// Takes a device back. Whoever had an address of its frames must not use it any more: the caller sees to it that
    /// the device is not mapped in the yard, and adds it again where it is.
    pub(crate) fn remove_device(&self, range: PfnRange) -> Result<Arc<DeviceMemory>, AddDeviceError> {
        self.devices.remove(range)
    }

    /// The machine that the platform runs on.
    #[must_use]
    pub fn host(&self) -> &HostTopology {
        &self.host
    }

    /// The identity where one load did not give it.
    #[cold]
    #[inline(never)]
    fn slow_cpu() -> u32 {
        cpu::getcpu()
    }

    /// The CPUs that workers of a node of the yard run on: all that are allowed where its node has none of them.
    fn cpus_of(&self, node: NodeId) -> CpuList {
        let cpus = self.host.node_for(node).cpus.intersection(self.host.allowed());
        if cpus.is_empty() { self.host.allowed().clone() } else { cpus }
    }
}

/// The `rseq` area, where it says something about the calling thread.
fn usable_rseq() -> Option<RseqCpu> {
    RseqCpu::registered().filter(|rseq| rseq.cpu_id() >= 0)
}

/// Rounds of [`Platform::relax`] that only pause: together 127 pauses, a few microseconds.
const SPIN_ROUNDS: u32 = 7;
/// Rounds up to here give the CPU to another thread; later ones sleep.
const YIELD_ROUNDS: u32 = 64;
/// The longest sleep is 2 to this power microseconds.
const MAX_SLEEP_SHIFT: u32 = 9;

impl Platform for HostPlatform {
    type Guard = ();

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

    /// Pauses 2ⁿ times in round n, then yields, then sleeps up to half a millisecond.
    #[cold]
    fn relax(&self, round: u32) {
        if round < SPIN_ROUNDS {
            for _ in 0..1 << round {
                std::hint::spin_loop();
            }
        } else if round < YIELD_ROUNDS {
            thread::yield_now();
        } else {
            let shift = (round - YIELD_ROUNDS).min(MAX_SLEEP_SHIFT);
            thread::sleep(Duration::from_micros(1 << shift));
        }
    }

    /// Frames of memory first; only where there are none, those of devices.
    #[inline]
    fn frame_bytes(&self, pfn: Pfn) -> Option<NonNull<u8>> {
        self.memory.frame(pfn).or_else(|| self.devices.frame(pfn))
    }

    /// Runs worker 0 on the caller and the others on new threads, on the CPUs of the host's nodes that stand for
    /// theirs.
    ///
    /// Where a node has a CPU for each of its workers, each is pinned to one, the one that has the fewest workers of
    /// all jobs of this platform; else all may run on all CPUs of the node, or on all that are allowed where none of
    /// them is. The caller may afterwards run where it could before, also when a worker panicked.
    ///
    /// Where the system grants fewer threads than asked for, fewer run.
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
                    place.settle();
                    job(worker);
                };
                match thread::Builder::new().spawn_scoped(scope, body) {
                    Ok(thread) => workers.push(thread),
                    Err(_) => break,
                }
            }
            // Not before: threads begin with the CPUs of who starts them.
            let visit = places[0].visit();
            let own = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| job(0)));
            drop(visit);
            // Every worker is joined, so that a panic of one is seen and none is left behind.
            let panicked = workers.into_iter().filter_map(|worker| worker.join().err()).count();
            if panicked == 0 && own.is_ok() { Ok(()) } else { Err(WorkerPanicked) }
        })
    }
}

impl MapBacking for HostPlatform {
    /// Private memory by `MADV_DONTNEED`, that of a file by a hole in it (`MADV_REMOVE`).
    fn return_frames(&self, frames: &FreeFrames) -> Result<(), FramesNotReturned> {
        self.memory.give_back(frames)
    }

    /// Makes all pages of the host that hold a part of the map present, where that was asked for ([`PopulateMap`]).
    ///
    /// Those of devices that are more than one are made present at once in any case, with huge pages where the map has
    /// them.
    fn back_map(&self, frames: PfnRange, address: NonNull<u8>, bytes: usize) -> Result<(), MapNotBacked> {
        let _ = frames;
        if let Some(map) = self.device_map_at(address, bytes) {
            return map.back(address, bytes);
        }
        if self.populate_map == PopulateMap::No {
            return Ok(());
        }
        match populate_around(address, bytes).map_err(|error| error.kind()) {
            // A kernel without the call: the first write does it.
            Ok(()) | Err(io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => Ok(()),
            Err(_) => Err(MapNotBacked),
        }
    }

    /// In private memory what nobody writes shows the host's zero page, so there is nothing to do but to keep
    /// transparent huge pages away. In a shared yard every process puts mappings there which show it.
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

    /// Private memory by `MADV_DONTNEED`, that of a memory file by a hole in it; what lies in a device becomes ordinary
    /// memory again.
    fn return_map(&self, frames: PfnRange, address: NonNull<u8>, bytes: usize) {
        let _ = frames;
        if let Some(map) = self.device_map_at(address, bytes) {
            map.give_back(address, bytes);
        }
    }

    /// Maps the file of the device that has the frames there.
    fn place_map(&self, holding: PfnRange, address: NonNull<u8>, bytes: usize) -> Result<(), MapNotBacked> {
        let map = self.device_map_at(address, bytes).ok_or(MapNotBacked)?;
        let device = self.devices.of(holding.start).filter(|device| holding.end <= device.range.end);
        let file = device.as_ref().and_then(|device| {
            let offset = self.devices.offset(device, holding.start);
            device.memory.file().map(|file| (file, offset.0))
        });
        map.place(file, address, bytes)
    }

    /// In a shared yard tails are mapped such that they cannot be written.
    fn speculative_gets(&self) -> SpeculativeGets {
        match &self.device_map {
            Some(map) if map.gets_read_only() => SpeculativeGets::Marked,
            _ => SpeculativeGets::Unmarked,
        }
    }

    /// Sets the thread's mark, for which every view's keeper waits before it maps tails.
    #[inline(always)]
    fn begin_get(&self) -> Option<&GetMark> {
        Some(speculation::begin_get())
    }
}

impl Probe for HostPlatform {
    /// Since the platform was made, by the system's monotonic clock.
    fn clock_ns(&self) -> Option<u64> {
        self.clock.system_ns()
    }

    /// Since the platform was made, while locks are timed ([`time_locks`](HostPlatform::time_locks)).
    #[inline(always)]
    fn lock_clock_ns(&self) -> Option<u64> {
        self.clock.ns()
    }

    /// Takes note for [`init_watch`](HostPlatform::init_watch).
    fn init_progress(&self, progress: InitProgress) {
        self.init_watch.note(progress);
    }
}

#[cfg(test)]
mod tests;
