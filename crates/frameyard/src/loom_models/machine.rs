//! The machine of the models: two CPUs, a few frames, and a platform whose protections can be broken.

use std::boxed::Box;
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::Arc;
use std::vec::Vec;

use loom::cell::UnsafeCell;
use loom::thread::{self, JoinHandle};

mod platform;

use crate::AllocError;
use crate::boot::{AttachError, Claims, InitMode, Initialiser, MapInit, Tables, ZoneLimits};
use crate::control::ModelledRegion;
use crate::lists::YardLimits;
use crate::memmap::{MemMap, Numbering};
use crate::owners::Owners;
use crate::page::{FrameState, Link, PAYLOAD_WORDS, Page, Tag};
use crate::platform::SpeculativeGets;
use crate::policy::ZonePolicy;
use crate::units::{ByteSize, CpuId, Geometry, MigrateType, NodeId, Order, PageCount, Pfn, PfnRange, ZoneId, ZoneKind};
use crate::watermarks::{PcpSizing, WatermarkOptions};
use crate::zone::PageblockMap;
use crate::{Gfp, Layout, MemoryTable, RawRegion, Yard, YardConfig};
use platform::{Deduplicated, Provided};
pub(crate) use platform::{Flaw, InitFlaw, Locks, ModelPlatform, TAIL_WRITTEN, contentions};

/// The failure message for an allocated frame whose page is not written.
pub(crate) const NOT_INITIALISED: &str = "allocated before it was initialised";
/// The only zone.
pub(crate) const ZONE: ZoneId = ZoneId::new(NodeId(0), ZoneKind::Normal);
/// The number of frames of a section, and of a block of the largest order.
const SECTION: u64 = 4;
/// The order of the only block of a section.
pub(crate) const LARGEST: Order = Order(2);

/// The contents and owners of the frames.
#[derive(Debug)]
pub(crate) struct Contents {
    cells: Vec<UnsafeCell<u64>>,
    /// Not modelled: records the order that loom has chosen.
    owned: Vec<Cell<bool>>,
}

// SAFETY: loom checks every access to the modelled cells for races. All threads of a model run on one thread, so the other
// fields have a single user.
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

    /// Records an owned block and writes to it.
    pub(crate) fn own(&self, pfn: Pfn, order: Order) {
        for frame in Self::frames(pfn, order) {
            assert!(!self.owned[frame].replace(true), "frame {frame} was allocated twice");
            self.write(frame);
        }
    }

    /// Writes to a block for the last time and removes the record.
    pub(crate) fn release(&self, pfn: Pfn, order: Order) {
        for frame in Self::frames(pfn, order) {
            self.write(frame);
            self.owned[frame].set(false);
        }
    }

    fn write(&self, frame: usize) {
        // SAFETY: the caller owns the frame; loom panics otherwise.
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
pub(crate) struct Machine {
    map: Vec<SectionMap>,
    control: Box<ModelledRegion>,
    control_bytes: ByteSize,
    contents: Arc<Contents>,
    memory: [(PfnRange, NodeId); 1],
    setup: Setup,
    tails: Arc<Deduplicated>,
    /// Held by a thread in a restartable sequence of each CPU: no other sequence of that CPU is in progress.
    cpus: Arc<[loom::sync::Mutex<()>; CPUS.len()]>,
}

/// The properties of a machine, other than its size.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    pub(crate) sizing: PcpSizing,
    pub(crate) locks: Locks,
    /// Options of map initialisation. If the initialiser writes every page, the map begins with garbage.
    pub(crate) map_init: MapInit,
    pub(crate) init_flaw: Option<InitFlaw>,
    /// The most workers of a parallel job.
    pub(crate) workers: usize,
    pub(crate) reserved: &'static [PfnRange],
    /// Sections behind memory that are reserved for devices.
    pub(crate) devices: u64,
    /// Whether threads mark their gets. If so, sharing tails waits for marked threads.
    pub(crate) gets: SpeculativeGets,
    /// Whether CPUs use their lists in sequences.
    pub(crate) sequences: bool,
    pub(crate) pageblock: Order,
}

impl Setup {
    /// Zeroed memory that is initialised at creation.
    pub(crate) fn new(sizing: PcpSizing, locks: Locks) -> Self {
        Self {
            sizing,
            locks,
            map_init: MapInit::default(),
            init_flaw: None,
            workers: 1,
            reserved: &[],
            devices: 0,
            gets: SpeculativeGets::Unmarked,
            sequences: false,
            pageblock: Order(1),
        }
    }
}

// SAFETY: the map and the control region are modelled atomics; loom runs all threads of a model on one.
unsafe impl Send for Machine {}
// SAFETY: as above.
unsafe impl Sync for Machine {}

/// A thread's view of the machine: it runs on one CPU.
pub(crate) struct Runner {
    pub(crate) yard: Yard<ModelPlatform>,
    machine: Arc<Machine>,
}

const CPUS: [NodeId; 2] = [NodeId(0); 2];

impl Machine {
    /// A machine with zeroed regions and no yard. Its map will be initialised at creation.
    pub(crate) fn bare(sections: u64, sizing: PcpSizing, locks: Locks) -> Arc<Self> {
        Self::with(sections, Setup::new(sizing, locks))
    }

    fn with(sections: u64, setup: Setup) -> Arc<Self> {
        let frames = sections * SECTION;
        let mut machine = Self {
            map: (0..sections + setup.devices).map(|_| SectionMap::default()).collect(),
            control: Box::default(),
            control_bytes: ByteSize(0),
            contents: Arc::new(Contents::new(frames)),
            memory: [(PfnRange { start: Pfn(0), end: Pfn(frames) }, NodeId(0))],
            setup,
            tails: Arc::default(),
            cpus: Arc::new([(); CPUS.len()].map(loom::sync::Mutex::new)),
        };
        let layout = machine.layout();
        machine.control_bytes = layout.control_bytes();
        // The first use creates the tables. It must order before all other threads.
        machine.tables();
        if setup.map_init.initialiser != Initialiser::None {
            machine.fill_with_garbage();
        }
        Arc::new(machine)
    }

    /// Makes every page look like that of a frame with an owner, so that code that reads a page too early fails.
    fn fill_with_garbage(&self) {
        let map = self.map_view();
        for frame in 0..self.memory[0].0.count().0 {
            let page = map.page(Pfn(frame), &Provided);
            page.set_tag(Tag::new(FrameState::Owned, Order::ZERO, MigrateType::Movable, ZONE));
            page.set_next(Link(1));
            page.set_prev(Link(1));
            (0..PAYLOAD_WORDS).for_each(|word| page.set_payload(word, u64::MAX / 3));
        }
    }

    fn tables(&self) -> Tables {
        // SAFETY: the region belongs to this machine, which outlives all runners.
        unsafe { self.layout().carve(self.control_base()) }.expect("tables that fit the layout")
    }

    fn map_view(&self) -> MemMap {
        let config = self.config();
        // SAFETY: the map has a page for each frame, and outlives all runners.
        unsafe { MemMap::new(self.regions().0.base.cast(), self.numbering(), config.map_init.content, config.geometry) }
    }

    /// That of the yard, without a look at its tables.
    fn numbering(&self) -> Numbering {
        Numbering::without_holes(self.layout().frames())
    }

    /// The claims to the blocks of the map.
    fn claims(&self) -> Claims {
        self.tables().claims(self.numbering(), self.config().geometry)
    }

    /// A machine with a yard, and a runner on CPU 0.
    pub(crate) fn boot(sections: u64, sizing: PcpSizing, locks: Locks) -> Runner {
        Self::bare(sections, sizing, locks).start_up()
    }

    /// As [`boot`](Self::boot), with all properties given.
    pub(crate) fn boot_with(sections: u64, setup: Setup) -> Runner {
        Self::with(sections, setup).start_up()
    }

    fn start_up(self: Arc<Self>) -> Runner {
        let yard = self.create();
        Runner { yard, machine: self }
    }

    fn config(&self) -> YardConfig<'_> {
        let page = ByteSize::kib(4);
        let geometry =
            Geometry::new(page, ByteSize(page.0 * SECTION), self.setup.pageblock, LARGEST).expect("a geometry");
        YardConfig {
            geometry,
            zone_limits: ZoneLimits::NONE,
            watermarks: Self::watermarks(ByteSize(0)),
            pcp_sizing: self.setup.sizing,
            map_init: self.setup.map_init,
            policy: ZonePolicy::Vanilla,
            device_space: Some(self.device_space()).filter(|space| !space.is_empty()),
            ..YardConfig::new(&CPUS)
        }
    }

    fn watermarks(min_free: ByteSize) -> WatermarkOptions {
        WatermarkOptions { min_free_kbytes: Some(min_free.0 >> 10), ..WatermarkOptions::default() }
    }

    /// The frames reserved for devices.
    pub(crate) fn device_space(&self) -> PfnRange {
        PfnRange::new(self.memory[0].0.end, PageCount(self.setup.devices * SECTION))
    }

    fn layout(&self) -> Layout {
        Layout::plan(&self.table(), &self.config()).expect("a machine")
    }

    fn table(&self) -> MemoryTable<'_> {
        MemoryTable { memory: &self.memory, reserved: self.setup.reserved, ..MemoryTable::default() }
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
        let Setup { locks, workers, init_flaw, .. } = self.setup;
        let broken = init_flaw.map(|flaw| {
            let blocks = PageblockMap::new(self.tables().pageblocks, self.numbering(), self.config().geometry);
            (flaw, self.map_view(), blocks)
        });
        let [refusals, longest_wait] = [(); 2].map(|()| std::sync::Mutex::new(0));
        let tails = Arc::clone(&self.tails);
        let mark = (self.setup.gets == SpeculativeGets::Marked).then(Arc::default);
        let contents = Arc::clone(&self.contents);
        let cpus = self.setup.sequences.then(|| Arc::clone(&self.cpus));
        ModelPlatform { cpu: CpuId(cpu), locks, workers, refusals, longest_wait, broken, tails, mark, contents, cpus }
    }

    /// Creates the yard, for CPU 0.
    pub(crate) fn create(&self) -> Yard<ModelPlatform> {
        let (map, control) = self.regions();
        // SAFETY: both regions are zeroed, and outlive all runners: each holds the machine.
        unsafe { Yard::create(&self.table(), &self.config(), &self.layout(), map, control, self.platform(0)) }
            .expect("a yard")
    }

    /// Attaches to the yard, if its creation is finished.
    pub(crate) fn attach(self: &Arc<Self>, cpu: u32) -> Result<Runner, AttachError> {
        let (map, control) = self.regions();
        // SAFETY: both regions belong to one yard, finished or not, and the runner keeps them alive.
        let yard = unsafe { Yard::attach(map, control, self.platform(cpu)) }?;
        Ok(Runner { yard, machine: Arc::clone(self) })
    }
}

impl Runner {
    /// The frames reserved for devices.
    pub(crate) fn device_space(&self) -> PfnRange {
        self.machine.device_space()
    }

    /// Another thread's view.
    fn on(&self, cpu: u32) -> Self {
        self.machine.attach(cpu).expect("a yard that was booted")
    }

    /// Runs `body` in a new thread, on a CPU.
    pub(crate) fn start<T: 'static>(&self, cpu: u32, body: impl FnOnce(&Self) -> T + 'static) -> JoinHandle<T> {
        let runner = self.on(cpu);
        thread::spawn(move || body(&runner))
    }

    /// Allocates a block and writes to it, if there is one.
    pub(crate) fn take(&self, order: Order) -> Option<Pfn> {
        self.take_with(order, Gfp::MOVABLE)
    }

    /// As [`take`](Self::take), with these flags.
    pub(crate) fn take_with(&self, order: Order, gfp: Gfp) -> Option<Pfn> {
        let pfn = self.yard.alloc(order, gfp).ok()?;
        if self.yard.init().mode() != InitMode::Eager {
            self.assert_initialised(pfn, order);
        }
        self.machine.contents.own(pfn, order);
        Some(pfn)
    }

    /// Asserts that the pages of an allocated block are as initialised, except for the tag of its head.
    fn assert_initialised(&self, pfn: Pfn, order: Order) {
        let map = self.machine.map_view();
        for frame in 0..order.pages().0 {
            let at = pfn + PageCount(frame);
            let page = map.page(at, self.yard.platform());
            let head = if frame == 0 { FrameState::Allocated } else { FrameState::Interior };
            let allocation_map = self.yard.zone_view(ZONE).allocation_map;
            let tag = allocation_map.read(at, page.tag());
            let fresh = tag.is(head) && page.rest_is(map.template(at, Some(ZONE)));
            assert!(fresh, "{at} was {NOT_INITIALISED}");
        }
    }

    /// Allocates the frames of a range by number, and writes to them. They are whole blocks of the largest order.
    pub(crate) fn take_range(&self, range: PfnRange) -> Result<(), AllocError> {
        let range = self.yard.request(range, Gfp::HIGHUSER_MOVABLE).range()?;
        let mut at = range.start;
        while at < range.end {
            self.assert_initialised(at, LARGEST);
            self.machine.contents.own(at, LARGEST);
            at = at + LARGEST.pages();
        }
        Ok(())
    }

    /// Allocates a pageblock by number, and writes to it. Frames of it may be in use.
    pub(crate) fn take_contiguous(&self, range: PfnRange) -> Result<(), AllocError> {
        self.yard.request(range, Gfp::HIGHUSER_MOVABLE).owners(&Owners::NONE).range()?;
        self.machine.contents.own(range.start, Order(1));
        Ok(())
    }

    /// Claims a block of the map, like the first step of its initialisation.
    pub(crate) fn claim_block(&self, block: PfnRange) {
        let mut won = 0;
        self.machine.claims().claim(block, &mut |_| won += 1);
        assert_eq!(won, 1, "another thread has claimed {block}");
    }

    /// Gives up the claim of [`claim_block`](Self::claim_block).
    pub(crate) fn give_up_block(&self, block: PfnRange) {
        self.machine.claims().give_up(block);
    }

    /// Allocates a frame and frees it, if there is one.
    pub(crate) fn take_and_give(&self, order: Order) {
        if let Some(pfn) = self.take(order) {
            self.give(pfn, order);
        }
    }

    /// Writes to a block for the first time.
    pub(crate) fn own(&self, pfn: Pfn, order: Order) {
        self.machine.contents.own(pfn, order);
    }

    /// Writes to a block for the last time.
    pub(crate) fn release(&self, pfn: Pfn, order: Order) {
        self.machine.contents.release(pfn, order);
    }

    /// Writes to a block and frees it.
    pub(crate) fn give(&self, pfn: Pfn, order: Order) {
        self.release(pfn, order);
        self.yard.free(pfn, order).expect("the block is ours");
    }

    /// Sets the limits of the lists of CPU 0: `high` and `batch`.
    pub(crate) fn set_limits(&self, high: PageCount, batch: PageCount) {
        let tables = self.machine.tables();
        let pcp = tables.pcp_of(ZONE, CpuId(0)).expect("the lists of CPU 0");
        pcp.lock(self.yard.platform()).unwrap().set_limits(
            self.yard.policy(),
            YardLimits { high, huge_high: PageCount(0), large_high: PageCount(0), batch },
        );
    }

    /// Sets the min watermark, which is 0 otherwise.
    pub(crate) fn set_min_watermark(&self, min: PageCount) {
        let config = self.machine.config();
        let options = Machine::watermarks(config.geometry.size_of(min));
        self.machine.tables().set_watermarks(config.geometry, &options).expect("watermarks below the zone's size");
    }

    /// Puts this number of frames on the lists of this CPU: allocates and frees them.
    pub(crate) fn fill_list(&self, frames: usize) {
        let taken: Vec<Pfn> = (0..frames).map(|_| self.take(Order::ZERO).expect("a free frame")).collect();
        for pfn in taken {
            self.give(pfn, Order::ZERO);
        }
    }

    /// Asserts that all counts are exact and that every frame can be allocated once. All other threads are done and have freed
    /// their frames.
    pub(crate) fn finish(&self) {
        self.validate();
        if self.yard.init().deferred_pages().0 > 0 {
            self.yard.init().finish().expect("the rest of the map");
            self.validate();
        }
        assert_eq!(self.yard.init().deferred_pages(), PageCount(0), "frames were lost: no thread has initialised them");
        self.yard.drain_all();
        let frames = self.yard.stats().managed_pages();
        assert_eq!(self.yard.stats().free_pages(), frames, "frames were lost");
        let reserved: u64 = self.machine.setup.reserved.iter().map(|range| range.count().0).sum();
        assert_eq!(frames.0 + reserved, self.machine.memory[0].0.count().0, "frames were lost");
        // A block that contains reserved frames is free in pieces.
        let order = if reserved == 0 { LARGEST } else { Order::ZERO };
        for _ in 0..frames.0 >> order.0 {
            self.take(order).expect("freed frames have merged");
        }
        assert_eq!(self.yard.stats().free_pages(), PageCount(0), "there are more frames than at the start");
        self.validate();
    }

    fn validate(&self) {
        if let Err(problem) = self.yard.validate() {
            panic!("the validator objects: {problem}");
        }
    }
}
