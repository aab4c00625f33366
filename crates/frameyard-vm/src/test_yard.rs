//! A yard on heap memory whose frames have bytes. Each thread chooses its CPU. Drop validates the yard and requires
//! every frame back.
#![allow(dead_code, unreachable_pub, reason = "each test crate uses a part of it")]

use std::alloc::{Layout as HeapLayout, alloc_zeroed, dealloc};
use std::cell::Cell;
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use frameyard::boot::{MovableMemory, ZoneLimits};
use frameyard::platform::{
    Access, Activity, Contention, LockError, LockId, MemoryBacking, Offload, Probe, SharedLine, WorkerPanicked,
};
use frameyard::sync::{AtomicU32, AtomicU64, Ordering};
use frameyard::{
    ByteSize, CpuId, Geometry, Layout, MemoryTable, NodeId, Order, PageCount, Pfn, PfnRange, Platform, RawRegion, Yard,
    YardConfig,
};

const PAGE: usize = 4096;

thread_local! {
    static CPU: Cell<u32> = const { Cell::new(0) };
    /// The locks that this thread holds.
    static HELD: Cell<u32> = const { Cell::new(0) };
    /// The page structures that the thread has touched.
    static TOUCHED: Cell<u32> = const { Cell::new(0) };
    static PAUSES: Cell<u32> = const { Cell::new(0) };
    /// Frames that the thread finds mapped before all are unmapped.
    static MAPPED: Cell<u32> = const { Cell::new(u32::MAX) };
    /// The bound of this thread's waits for locks, in rounds; `u32::MAX` is none.
    static LIMIT: Cell<u32> = const { Cell::new(u32::MAX) };
    static LOCK_ERROR: Cell<Option<LockError>> = const { Cell::new(None) };
    /// The yard whose blocks are freed while they are written.
    static ATTACKED: Cell<Option<&'static TestYard>> = const { Cell::new(None) };
}

/// From now on, when code on this thread is about to write a block's bytes, other code that knows only the number tries to free it.
pub fn free_all_blocks_in_use(yard: &'static TestYard) {
    ATTACKED.set(Some(yard));
}

/// From now on this thread finds that many frames mapped, and no later one. `u32::MAX` is no limit.
pub fn unmap_all_after(frames: u32) {
    MAPPED.set(frames);
}

/// From now on this thread waits for a lock for at most that many rounds, as in a shared yard. `u32::MAX` is no limit.
pub fn limit_waits(rounds: u32) {
    LIMIT.set(rounds);
    LOCK_ERROR.set(None);
}

/// Ends a wait in its last round.
fn check_limit(lock: LockId, holder: u32, round: u32) -> Result<(), LockError> {
    if round < LIMIT.get() {
        return Ok(());
    }
    let error = LockError::LockStuck { lock, holder };
    LOCK_ERROR.set(Some(error));
    Err(error)
}

/// Makes this thread pause before each access to a line, so that other threads meet it between two accesses.
pub fn pause_before_accesses(pauses: u32) {
    PAUSES.set(pauses);
}

/// Tries to free a block whose bytes are about to be accessed.
fn attack(frames: PfnRange) {
    if let Some(yard) = ATTACKED.get() {
        let order = Order::covering(frames.count()).unwrap();
        assert!(yard.free(frames.start, order).is_err(), "{frames}: freed by number while its bytes are in use");
    }
}

/// Counts the locks that its thread holds.
#[derive(Debug)]
pub struct CountedGuard(());

impl Drop for CountedGuard {
    fn drop(&mut self) {
        HELD.set(HELD.get() - 1);
    }
}

/// The accesses to page structures in `call`, and its result.
pub fn touches_of<T>(call: impl FnOnce() -> T) -> (u32, T) {
    TOUCHED.set(0);
    let result = call();
    (TOUCHED.get(), result)
}

/// Sets the CPU of this thread.
pub fn run_on(cpu: u32) {
    CPU.set(cpu);
}

/// Zeroed heap memory, aligned to a page. Requests little alignment, because the host zeroes such memory lazily.
#[derive(Debug)]
struct HeapRegion {
    whole: NonNull<u8>,
    layout: HeapLayout,
    base: NonNull<u8>,
    size: ByteSize,
}

// SAFETY: plain memory, accessed through atomics or by the owner of a frame.
unsafe impl Send for HeapRegion {}
// SAFETY: as above.
unsafe impl Sync for HeapRegion {}

impl HeapRegion {
    fn new(size: ByteSize) -> Self {
        let layout = HeapLayout::from_size_align(size.0 as usize + PAGE, 16).unwrap();
        // SAFETY: the layout has a size.
        let whole = NonNull::new(unsafe { alloc_zeroed(layout) }).expect("memory for a test");
        // SAFETY: the offset is below a page, and the region has a spare page.
        let base = unsafe { whole.add(whole.align_offset(PAGE)) };
        Self { whole, layout, base, size }
    }

    fn raw(&self) -> RawRegion {
        RawRegion { base: self.base, size: self.size }
    }
}

impl Drop for HeapRegion {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `new`.
        unsafe { dealloc(self.whole.as_ptr(), self.layout) }
    }
}

/// Threads choose their CPU; every frame has memory.
#[derive(Clone, Debug)]
pub struct TestPlatform {
    first: Pfn,
    frames: Option<Arc<HeapRegion>>,
    /// The first frame of the device space, and its bytes.
    devices: Option<(Pfn, Arc<HeapRegion>)>,
}

impl Platform for TestPlatform {
    type Guard = CountedGuard;

    #[inline(always)]
    fn backing(&self) -> &impl MemoryBacking {
        self
    }

    #[inline(always)]
    fn probe(&self) -> &impl Probe {
        self
    }

    fn guard(&self) -> CountedGuard {
        HELD.set(HELD.get() + 1);
        CountedGuard(())
    }

    fn current_cpu(&self) -> CpuId {
        CpuId(CPU.get())
    }

    fn spin(&self, round: u32) {
        if round < 64 || LIMIT.get() != u32::MAX { std::hint::spin_loop() } else { thread::yield_now() }
    }

    fn wait(&self, round: u32) {
        self.spin(round);
        if round >= 256 && LIMIT.get() == u32::MAX {
            thread::sleep(Duration::from_micros(50));
        }
    }

    fn lock(&self, id: LockId, word: &AtomicU32) -> Result<Contention, LockError> {
        let mut contention = Contention::Free;
        while word.swap(1, Ordering::Acquire) != 0 {
            contention = Contention::Contended;
            let mut round = 0;
            while word.load(Ordering::Relaxed) != 0 {
                check_limit(id, 1, round)?;
                self.spin(round);
                round = round.saturating_add(1);
            }
        }
        Ok(contention)
    }

    fn note_corrupt(&self, lock: LockId) {
        // Only another process of a shared yard damages it.
        assert!(LIMIT.get() != u32::MAX, "what the lock of {lock} guards is corrupt");
    }

    fn lock_error(&self) -> Option<LockError> {
        LOCK_ERROR.take()
    }

    fn process(&self) -> Option<NonZeroU32> {
        NonZeroU32::new(7).filter(|_| LIMIT.get() != u32::MAX)
    }

    fn check_holder(&self, id: LockId, holder: u32, round: u32, _still: &dyn Fn() -> bool) -> Result<(), LockError> {
        check_limit(id, holder, round)
    }

    fn frame_bytes(&self, pfn: Pfn) -> Option<NonNull<u8>> {
        let device = self.devices.as_ref().filter(|(first, _)| pfn >= *first);
        let (first, frames) =
            device.map_or((self.first, self.frames.as_ref()), |(first, frames)| (*first, Some(frames)));
        let offset = (pfn.0.checked_sub(first.0)? as usize) << Geometry::X86_64.page_shift();
        let frames = frames?;
        match MAPPED.get() {
            u32::MAX => {}
            0 => return None,
            left => MAPPED.set(left - 1),
        }
        // SAFETY: the offset is checked to lie in the region.
        (offset < frames.size.0 as usize).then(|| unsafe { frames.base.add(offset) })
    }

    fn run_workers(
        &self,
        count: usize,
        _node_of: &(dyn Fn(usize) -> NodeId + Sync),
        job: &(dyn Fn(usize) + Sync),
    ) -> Result<(), WorkerPanicked> {
        let limit = LIMIT.get();
        thread::scope(|scope| {
            let worker = |worker: usize| {
                run_on(worker as u32);
                LIMIT.set(limit);
                job(worker);
            };
            let workers: Vec<_> = (1..count).map(|number| scope.spawn(move || worker(number))).collect();
            let own = catch_unwind(AssertUnwindSafe(|| job(0)));
            let panicked = workers.into_iter().filter_map(|worker| worker.join().err()).count();
            if panicked == 0 && own.is_ok() { Ok(()) } else { Err(WorkerPanicked) }
        })
    }
}

impl MemoryBacking for TestPlatform {
    fn zero_frames(&self, frames: PfnRange) -> Offload {
        attack(frames);
        Offload::Declined
    }

    fn copy_frames(&self, from: PfnRange, to: Pfn) -> Offload {
        attack(from);
        attack(PfnRange::new(to, from.count()));
        Offload::Declined
    }
}

impl Probe for TestPlatform {
    fn touch_page(&self, _pfn: Pfn, _access: Access) {
        TOUCHED.set(TOUCHED.get().wrapping_add(1));
    }

    fn touch_line(&self, _line: SharedLine, _access: Access) {
        for _ in 0..PAUSES.get() {
            std::hint::spin_loop();
        }
    }

    fn begin_activity(&self, activity: Activity) {
        // Every allocation of this crate may reclaim, and reclaim takes the locks of the crate.
        assert!(activity != Activity::Alloc || HELD.get() == 0, "an allocation that may wait, under a lock");
    }
}

/// The configuration of a test's yard.
#[derive(Clone, Copy, Debug)]
pub struct TestMachine {
    /// CPUs, distributed round-robin over the nodes.
    pub cpus: usize,
    /// Nodes, with equal parts of the memory.
    pub nodes: u16,
    /// All memory.
    pub memory: ByteSize,
    /// Whether frames have bytes.
    pub phantom: bool,
    /// Size of the contiguous memory area at the end of the last node.
    pub cma: ByteSize,
    /// Size of the device space above the memory; it has bytes.
    pub devices: ByteSize,
    /// Size of the Movable zones.
    pub movable: ByteSize,
    /// The first frame of the memory.
    pub first: Pfn,
}

impl Default for TestMachine {
    fn default() -> Self {
        Self::PLAIN
    }
}

impl TestMachine {
    /// 64 MiB on one node, with two CPUs.
    pub const PLAIN: Self = Self {
        cpus: 2,
        nodes: 1,
        memory: ByteSize::mib(64),
        phantom: false,
        cma: ByteSize(0),
        devices: ByteSize(0),
        movable: ByteSize(0),
        first: Pfn(0x1_0000),
    };

    /// The start of the device space: the first GiB boundary above the memory, so that pages of any size fit.
    pub fn first_device(&self) -> Pfn {
        let pages = self.memory.0 >> Geometry::X86_64.page_shift();
        Pfn((self.first.0 + pages).next_multiple_of(1 << 18))
    }
}

/// A yard and its memory.
pub struct TestYard {
    yard: Option<Yard<TestPlatform>>,
    map: HeapRegion,
    control: HeapRegion,
}

impl TestYard {
    /// A plain yard.
    pub fn new() -> Self {
        Self::of(TestMachine::PLAIN)
    }

    /// A yard of that machine. Its memory has no holes.
    pub fn of(machine: TestMachine) -> Self {
        let pages = machine.memory.0 >> Geometry::X86_64.page_shift();
        let share = pages / u64::from(machine.nodes);
        let first = machine.first;
        let of_node =
            |node: u16| (PfnRange::new(Pfn(first.0 + u64::from(node) * share), PageCount(share)), NodeId(node));
        let memory: Vec<_> = (0..machine.nodes).map(of_node).collect();
        let cpus: Vec<_> = (0..machine.cpus).map(|cpu| NodeId(cpu as u16 % machine.nodes)).collect();
        let end = Pfn(first.0 + pages);
        let cma_pages = machine.cma.0 >> Geometry::X86_64.page_shift();
        let cma: Vec<_> =
            (cma_pages > 0).then_some(PfnRange { start: Pfn(end.0 - cma_pages), end }).into_iter().collect();
        let memory = MemoryTable { memory: &memory, cma: &cma, ..MemoryTable::default() };
        let device_pages = machine.devices.0 >> Geometry::X86_64.page_shift();
        let device_space = (device_pages > 0).then(|| PfnRange::new(machine.first_device(), PageCount(device_pages)));
        let movable = MovableMemory::Pages(PageCount(machine.movable.0 >> Geometry::X86_64.page_shift()));
        let movable = if machine.movable > ByteSize(0) { movable } else { MovableMemory::None };
        let config = YardConfig { zone_limits: ZoneLimits::NONE, device_space, movable, ..YardConfig::new(&cpus) };
        let layout = Layout::plan(&memory, &config).expect("a layout");
        let (map, control) = (HeapRegion::new(layout.map_bytes()), HeapRegion::new(layout.control_bytes()));
        let frames = (!machine.phantom).then(|| Arc::new(HeapRegion::new(machine.memory)));
        let devices = device_space.map(|space| (space.start, Arc::new(HeapRegion::new(machine.devices))));
        let platform = TestPlatform { first, frames, devices };
        // SAFETY: the regions are fresh and zeroed, as large as planned, and dropped after the yard.
        let yard = unsafe { Yard::create(&memory, &config, &layout, map.raw(), control.raw(), platform) };
        Self { yard: Some(yard.expect("a yard")), map, control }
    }
}

impl TestYard {
    /// Drops the yard without checks: its memory was overwritten.
    pub fn abandon(mut self) {
        self.yard = None;
    }

    /// The words of a frame, as another process writes to them.
    pub fn frame_words(&self, pfn: Pfn) -> Option<&[AtomicU64]> {
        let base = self.platform().frame_bytes(pfn)?.cast::<AtomicU64>();
        // SAFETY: the frame has 4 KiB, mapped while the yard lives. Races with accesses as bytes are those of another process.
        Some(unsafe { std::slice::from_raw_parts(base.as_ptr(), PAGE / 8) })
    }
}

impl std::ops::Deref for TestYard {
    type Target = Yard<TestPlatform>;

    fn deref(&self) -> &Yard<TestPlatform> {
        self.yard.as_ref().unwrap()
    }
}

impl Drop for TestYard {
    fn drop(&mut self) {
        let Some(yard) = self.yard.take() else { return };
        if thread::panicking() {
            return;
        }
        yard.validate().expect("the yard is valid at the end");
        assert_eq!(yard.stats().free_pages(), yard.stats().managed_pages(), "every frame is back");
    }
}
