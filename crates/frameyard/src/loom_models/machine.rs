//! The machine that the models run on: two CPUs, a few frames, and a platform whose locks can be broken.

use std::boxed::Box;
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::Arc;
use std::vec::Vec;

use loom::cell::UnsafeCell;
use loom::thread::{self, JoinHandle};

use crate::control::ModelledRegion;
use crate::page::Page;
use crate::platform::{Contention, LockId, Platform};
use crate::sync::{AtomicU32, Ordering};
use crate::units::{ByteSize, CpuId, Geometry, NodeId, Order, PageCount, Pfn, PfnRange, ZoneId, ZoneKind};
use crate::{
    AttachError, Gfp, Layout, MemoryTable, PcpSizing, RawRegion, WatermarkOptions, Yard, YardConfig, ZoneLimits,
};

/// The only zone.
pub(super) const ZONE: ZoneId = ZoneId::new(NodeId(0), ZoneKind::Normal);
/// How many frames a section, and a block of the largest order, has.
const SECTION: u64 = 4;
/// The order of the only block of a section.
pub(super) const LARGEST: Order = Order(2);

std::thread_local! {
    /// How often a lock was found held, in all executions of the models that this thread has explored.
    static CONTENDED: Cell<u64> = const { Cell::new(0) };
}

/// How often threads of models met at a lock, in all executions that the caller has explored.
pub(super) fn contentions() -> u64 {
    CONTENDED.get()
}

/// What is wrong with a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flaw {
    /// Taking it orders nothing.
    TakenRelaxed,
    /// Giving it back orders nothing.
    GivenBackRelaxed,
    /// Taking it succeeds though another thread has it.
    NeverRefused,
}

/// Which locks are broken, and how.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Locks {
    pub(super) per_cpu: Option<Flaw>,
    pub(super) zone: Option<Flaw>,
}

impl Locks {
    pub(super) const SOUND: Self = Self { per_cpu: None, zone: None };

    fn flaw(self, id: LockId) -> Option<Flaw> {
        match id {
            LockId::PerCpu(..) => self.per_cpu,
            LockId::Zone(_) => self.zone,
        }
    }
}

/// The platform with the locks that the trait provides.
#[derive(Debug)]
struct Provided;

impl Platform for Provided {
    type Guard = ();

    fn guard(&self) {}

    fn current_cpu(&self) -> CpuId {
        CpuId(0)
    }

    /// Explores one look at a lock that is held, then lets the others go on.
    ///
    /// A look changes nothing, so executions with more looks differ from ones with fewer in nothing that counts.
    /// Without the cut two waiting threads would be tried in turns without end while the holder is preempted.
    fn relax(&self, round: u32) {
        if round > 0 {
            loom::skip_branch();
        }
        thread::yield_now();
    }

    fn frame_bytes(&self, _pfn: Pfn) -> Option<NonNull<u8>> {
        None
    }
}

/// A thread's platform: the provided locks, unless they are to be broken.
#[derive(Debug)]
pub(super) struct ModelPlatform {
    cpu: CpuId,
    locks: Locks,
}

impl Platform for ModelPlatform {
    type Guard = ();

    fn guard(&self) {}

    fn current_cpu(&self) -> CpuId {
        self.cpu
    }

    fn relax(&self, round: u32) {
        Provided.relax(round);
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
}

/// What the frames hold, and who owns them.
pub(super) struct Contents {
    cells: Vec<UnsafeCell<u64>>,
    /// Seen by no model: a witness of the order that loom has chosen.
    owned: Vec<Cell<bool>>,
}

// SAFETY: loom checks every access to the modelled cells for races, that is what they are for; all threads of a
// model run on one thread, which alone touches the others.
unsafe impl Send for Contents {}
// SAFETY: as above.
unsafe impl Sync for Contents {}

impl Contents {
    fn new(frames: u64) -> Self {
        Self {
            cells: (0..frames).map(|_| UnsafeCell::new(0)).collect(),
            owned: (0..frames).map(|_| Cell::new(false)).collect(),
        }
    }

    /// Begins to own a block, and writes to it.
    pub(super) fn own(&self, pfn: Pfn, order: Order) {
        for frame in Self::frames(pfn, order) {
            assert!(!self.owned[frame].replace(true), "frame {frame} was handed out twice");
            self.write(frame);
        }
    }

    /// Writes to a block for the last time, and ceases to own it.
    pub(super) fn disown(&self, pfn: Pfn, order: Order) {
        for frame in Self::frames(pfn, order) {
            self.write(frame);
            self.owned[frame].set(false);
        }
    }

    fn write(&self, frame: usize) {
        // SAFETY: the caller owns the frame; loom panics where that is not so.
        self.cells[frame].with_mut(|value| unsafe { *value += 1 });
    }

    fn frames(pfn: Pfn, order: Order) -> core::ops::Range<usize> {
        pfn.0 as usize..(pfn + order.pages()).0 as usize
    }
}

/// The page structures of a machine, aligned like a mapping.
#[repr(C, align(128))]
#[derive(Default)]
struct SectionMap([Page; SECTION as usize]);

/// One execution's memory: map, control region and contents of the frames.
pub(super) struct Machine {
    map: Vec<SectionMap>,
    control: Box<ModelledRegion>,
    control_bytes: ByteSize,
    contents: Contents,
    memory: [(PfnRange, NodeId); 1],
    sizing: PcpSizing,
    locks: Locks,
}

// SAFETY: the map and the control region are modelled atomics; loom runs all threads of a model on one.
unsafe impl Send for Machine {}
// SAFETY: as above.
unsafe impl Sync for Machine {}

/// A thread's view of the machine: it runs on one CPU.
pub(super) struct Runner {
    pub(super) yard: Yard<ModelPlatform>,
    machine: Arc<Machine>,
}

const CPUS: [NodeId; 2] = [NodeId(0); 2];

impl Machine {
    /// A machine whose regions are zeroed: no yard yet.
    pub(super) fn bare(sections: u64, sizing: PcpSizing, locks: Locks) -> Arc<Self> {
        let frames = sections * SECTION;
        let mut machine = Self {
            map: (0..sections).map(|_| SectionMap::default()).collect(),
            control: Box::default(),
            control_bytes: ByteSize(0),
            contents: Contents::new(frames),
            memory: [(PfnRange { start: Pfn(0), end: Pfn(frames) }, NodeId(0))],
            sizing,
            locks,
        };
        let layout = machine.layout();
        machine.control_bytes = layout.control_bytes();
        // Made here, so that every thread that is started later finds zeroed tables.
        // SAFETY: the region is new.
        unsafe { layout.carve(machine.control_base()) }.expect("the layout's own tables");
        Arc::new(machine)
    }

    /// A machine with a yard, and a runner on CPU 0.
    pub(super) fn boot(sections: u64, sizing: PcpSizing, locks: Locks) -> Runner {
        let machine = Self::bare(sections, sizing, locks);
        let yard = machine.create();
        Runner { yard, machine }
    }

    fn config(&self) -> YardConfig<'static> {
        let page = ByteSize::kib(4);
        let geometry = Geometry::new(page, ByteSize(page.0 * SECTION), Order(1), LARGEST).expect("a geometry");
        let watermarks = WatermarkOptions { min_free_kbytes: Some(0), ..WatermarkOptions::default() };
        YardConfig {
            geometry,
            zone_limits: ZoneLimits::NONE,
            watermarks,
            pcp_sizing: self.sizing,
            ..YardConfig::new(&CPUS)
        }
    }

    fn layout(&self) -> Layout {
        Layout::plan(&self.table(), &self.config()).expect("a machine")
    }

    fn table(&self) -> MemoryTable<'_> {
        MemoryTable { memory: &self.memory, ..MemoryTable::default() }
    }

    fn control_base(&self) -> NonNull<u8> {
        NonNull::from(&*self.control).cast()
    }

    fn regions(&self) -> (RawRegion, RawRegion) {
        let map = NonNull::from(self.map.as_slice()).cast();
        let size = ByteSize(size_of_val(self.map.as_slice()) as u64);
        (RawRegion { base: map, size }, RawRegion { base: self.control_base(), size: self.control_bytes })
    }

    fn platform(&self, cpu: u32) -> ModelPlatform {
        ModelPlatform { cpu: CpuId(cpu), locks: self.locks }
    }

    /// Creates the yard, for CPU 0.
    pub(super) fn create(&self) -> Yard<ModelPlatform> {
        let (map, control) = self.regions();
        // SAFETY: both regions are zeroed, and outlive all runners: each holds the machine.
        unsafe { Yard::create(&self.table(), &self.config(), &self.layout(), map, control, self.platform(0)) }
            .expect("a yard")
    }

    /// Looks for a finished yard.
    pub(super) fn attach(self: &Arc<Self>, cpu: u32) -> Result<Runner, AttachError> {
        let (map, control) = self.regions();
        // SAFETY: both regions are one yard's, finished or not, and the runner holds them.
        let yard = unsafe { Yard::attach(map, control, self.platform(cpu)) }?;
        Ok(Runner { yard, machine: Arc::clone(self) })
    }
}

impl Runner {
    /// Another thread's view.
    fn on(&self, cpu: u32) -> Self {
        self.machine.attach(cpu).expect("a yard that was booted")
    }

    /// Runs `body` in a thread of its own on a CPU.
    pub(super) fn start(&self, cpu: u32, body: impl FnOnce(&Self) + 'static) -> JoinHandle<()> {
        let runner = self.on(cpu);
        thread::spawn(move || body(&runner))
    }

    /// Allocates a block and writes to it, if there is one.
    pub(super) fn take(&self, order: Order) -> Option<Pfn> {
        self.take_with(order, Gfp::MOVABLE)
    }

    /// As [`take`](Self::take), with flags of the caller's choice.
    pub(super) fn take_with(&self, order: Order, gfp: Gfp) -> Option<Pfn> {
        let pfn = self.yard.alloc(order, gfp).ok()?;
        self.machine.contents.own(pfn, order);
        Some(pfn)
    }

    /// Takes a frame and gives it back, if there is one.
    pub(super) fn take_and_give(&self, order: Order) {
        if let Some(pfn) = self.take(order) {
            self.give(pfn, order);
        }
    }

    /// Writes to a block for the last time.
    pub(super) fn disown(&self, pfn: Pfn, order: Order) {
        self.machine.contents.disown(pfn, order);
    }

    /// Writes to a block and frees it.
    pub(super) fn give(&self, pfn: Pfn, order: Order) {
        self.disown(pfn, order);
        self.yard.free(pfn, order).expect("the block is ours");
    }

    /// Allocates frames and frees them again, so that the lists of this CPU hold as many.
    pub(super) fn fill_list(&self, frames: usize) {
        let taken: Vec<Pfn> = (0..frames).map(|_| self.take(Order::ZERO).expect("a free frame")).collect();
        for pfn in taken {
            self.give(pfn, Order::ZERO);
        }
    }

    /// Demands, when all other threads are done and have freed what they had, that all counts are exact and
    /// that every frame can still be had, once.
    pub(super) fn finish(&self) {
        self.validate();
        self.yard.drain_all();
        let frames = self.yard.managed_pages();
        assert_eq!(self.yard.free_pages(), frames, "frames were lost");
        for _ in 0..frames.0 / SECTION {
            self.take(LARGEST).expect("what was freed has merged");
        }
        assert_eq!(self.yard.free_pages(), PageCount(0), "there are more frames than there were");
        self.validate();
    }

    fn validate(&self) {
        if let Err(problem) = self.yard.validate() {
            panic!("the validator objects: {problem}");
        }
    }
}
