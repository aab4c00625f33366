//! The machine of an execution: a yard of real sizes in plain memory, and a view of it for each thread.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use std::vec::Vec;

use shuttle::rand::{RngCore, thread_rng};
use shuttle::sync::Mutex as ScheduledMutex;
use shuttle::thread::{self, JoinHandle};

use crate::boot::ZoneLimits;
use crate::platform::Platform;
use crate::policy::ZonePolicy;
use crate::shuttle_tests::mover::Moved;
use crate::sync::models::{run_alone, run_scheduled};
use crate::units::{ByteSize, CpuId, Geometry, MigrateType, NodeId, Order, PageCount, Pfn, PfnRange, ZoneId, ZoneKind};
use crate::watermarks::PcpSizing;
use crate::{Gfp, Layout, MemoryTable, RawRegion, Yard, YardConfig};

/// The only zone.
pub(super) const ZONE: ZoneId = ZoneId::new(NodeId(0), ZoneKind::Normal);
const FIRST: Pfn = Pfn(0x1000);
pub(super) const FRAMES: u64 = 0x800;
/// The order of pageblocks.
pub(super) const PAGEBLOCK: Order = Order(6);
/// The largest order.
pub(super) const LARGEST: Order = Order(8);
/// Memory aligned like a mapping.
#[derive(Clone)]
#[repr(C, align(4096))]
struct Chunk([u8; 4096]);

/// The memory of one execution, and the state that its threads share beside the yard.
pub(super) struct Machine {
    map: Vec<Chunk>,
    control: Vec<Chunk>,
    /// The holder of each frame; 0 for none. Not scheduled: records the order that the scheduler has chosen.
    owners: Mutex<Vec<u32>>,
    /// The state of the owner of movable blocks.
    pub(super) moved: ScheduledMutex<Moved>,
}

/// A thread's platform.
pub(super) struct TaskPlatform {
    cpu: CpuId,
}

impl Platform for TaskPlatform {
    type Guard = ();

    fn guard(&self) {}

    fn current_cpu(&self) -> CpuId {
        self.cpu
    }

    fn spin(&self, _round: u32) {
        // Not while a failed execution unwinds.
        if !std::thread::panicking() {
            thread::yield_now();
        }
    }

    fn frame_bytes(&self, _pfn: Pfn) -> Option<NonNull<u8>> {
        None
    }
}

/// A thread's view of the machine: it runs on one CPU.
pub(super) struct Runner {
    pub(super) yard: Yard<TaskPlatform>,
    pub(super) machine: Arc<Machine>,
}

fn chunks(bytes: ByteSize) -> Vec<Chunk> {
    std::vec![Chunk([0; 4096]); bytes.0.div_ceil(4096) as usize]
}

fn raw(chunks: &[Chunk]) -> RawRegion {
    RawRegion { base: NonNull::from(chunks).cast(), size: ByteSize(size_of_val(chunks) as u64) }
}

impl Machine {
    /// A machine with a yard, and a runner on CPU 0.
    fn boot(policy: ZonePolicy) -> Runner {
        let geometry = Geometry::new(ByteSize::kib(4), ByteSize::mib(4), PAGEBLOCK, LARGEST).expect("a geometry");
        let config = YardConfig {
            geometry,
            zone_limits: ZoneLimits::NONE,
            pcp_sizing: PcpSizing::Fixed(128),
            policy,
            ..YardConfig::new(&[NodeId(0); 4])
        };
        let memory = [(PfnRange::new(FIRST, PageCount(FRAMES)), NodeId(0))];
        let table = MemoryTable { memory: &memory, ..MemoryTable::default() };
        let layout = Layout::plan(&table, &config).expect("a machine");
        let machine = Arc::new(Self {
            map: chunks(layout.map_bytes()),
            control: chunks(layout.control_bytes()),
            owners: Mutex::new(std::vec![0; FRAMES as usize]),
            moved: ScheduledMutex::default(),
        });
        let (map, control) = (raw(&machine.map), raw(&machine.control));
        // SAFETY: both regions are zeroed, as large as planned, used by this yard alone, and outlive all runners: each
        // holds the machine.
        let yard = unsafe { Yard::create(&table, &config, &layout, map, control, Self::platform(0)) }.expect("a yard");
        Runner { yard, machine }
    }

    fn platform(cpu: u32) -> TaskPlatform {
        TaskPlatform { cpu: CpuId(cpu) }
    }
}

/// Creates a yard, runs `threads` on it in an order that the scheduler chooses, and asserts that nothing was lost.
pub(super) fn live(policy: ZonePolicy, threads: impl FnOnce(&Runner)) {
    let main = run_alone(|| Machine::boot(policy));
    run_scheduled(|| threads(&main));
    run_alone(|| main.finish());
}

/// A number of the scheduler's choice.
pub(super) fn below(end: u64) -> u64 {
    thread_rng().next_u64() % end
}

/// One of several values, by the scheduler's choice.
pub(super) fn pick<T: Copy>(from: &[T]) -> T {
    from[below(from.len() as u64) as usize]
}

/// Frames of the zone, by their place in it.
pub(super) fn at(start: u64, count: u64) -> PfnRange {
    PfnRange::new(FIRST + PageCount(start), PageCount(count))
}

impl Runner {
    /// Runs `body` in a new thread, on a CPU.
    pub(super) fn start(&self, cpu: u32, body: impl FnOnce(&Self) + Send + 'static) -> JoinHandle<()> {
        let (map, control) = (raw(&self.machine.map), raw(&self.machine.control));
        // SAFETY: both regions are one yard's, and the runner holds them.
        let yard = run_alone(|| unsafe { Yard::attach(map, control, Machine::platform(cpu)) }).expect("a yard");
        let runner = Self { yard, machine: Arc::clone(&self.machine) };
        thread::spawn(move || body(&runner))
    }

    /// Records an allocated block. Asserts that no other thread holds a frame of it.
    pub(super) fn own(&self, range: PfnRange, mark: u32) {
        let mut owners = self.machine.owners.lock().unwrap();
        for frame in 0..range.count().0 {
            let pfn = range.start + PageCount(frame);
            let before = std::mem::replace(&mut owners[(pfn.0 - FIRST.0) as usize], mark);
            assert_eq!(before, 0, "{pfn} was allocated twice");
        }
    }

    /// Removes the record of a block before its free.
    pub(super) fn release(&self, range: PfnRange, mark: u32) {
        let mut owners = self.machine.owners.lock().unwrap();
        for frame in 0..range.count().0 {
            let pfn = range.start + PageCount(frame);
            let before = std::mem::take(&mut owners[(pfn.0 - FIRST.0) as usize]);
            assert_eq!(before, mark, "{pfn} was allocated twice");
        }
    }

    /// The mark of this runner's CPU.
    fn mark(&self) -> u32 {
        self.yard.platform().cpu.0 + 1
    }

    /// Allocates a block, if there is one.
    pub(super) fn take(&self, order: Order, gfp: Gfp) -> Option<Pfn> {
        let pfn = self.yard.alloc(order, gfp | Gfp::NOWARN).ok()?;
        self.own(PfnRange::new(pfn, order.pages()), self.mark());
        Some(pfn)
    }

    /// Frees a block.
    pub(super) fn give(&self, pfn: Pfn, order: Order) {
        self.release(PfnRange::new(pfn, order.pages()), self.mark());
        self.yard.free(pfn, order).expect("the block is ours");
    }

    /// Asserts that all counts are exact, that every frame is free, and that all frames merge. All other threads are done and
    /// have freed their frames.
    fn finish(&self) {
        self.validate();
        self.yard.drain_all();
        self.validate();
        assert_eq!(self.yard.stats().free_pages(), self.yard.stats().managed_pages(), "frames were lost");
        // A policy change completes deferred merges, and empties the bits.
        let policy = self.yard.policy();
        let policy = if policy.is_changeable() { ZonePolicy::Vanilla } else { policy };
        self.yard.set_policy(policy).expect("no other thread changes it");
        self.validate();
        let whole: u64 = MigrateType::ALL.map(|of| self.yard.zone(ZONE).free_blocks(LARGEST, of)).iter().sum();
        assert_eq!(whole, FRAMES >> LARGEST.0, "freed frames have merged");
    }

    fn validate(&self) {
        if let Err(problem) = self.yard.validate() {
            panic!("the validator objects: {problem}");
        }
    }
}
