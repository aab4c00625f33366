//! The machine of the models: two CPUs, a few frames with modelled words, and a platform with breakable locks.

use std::boxed::Box;
use std::ptr::NonNull;
use std::sync::Arc;
use std::vec::Vec;

use frameyard::boot::ZoneLimits;
use frameyard::page::Page;
use frameyard::platform::{Contention, LockId};
use frameyard::policy::ZonePolicy;
use frameyard::sync::{AtomicU32, Ordering};
use frameyard::watermarks::{PcpSizing, WatermarkOptions};
use frameyard::{
    ByteSize, CpuId, Geometry, Layout, MemoryTable, ModelledRegion, NodeId, Order, Pfn, PfnRange, Platform, RawRegion,
    Yard, YardConfig,
};
use loom::thread;

use crate::words::forget_all;

/// Frames per section, and per block of the largest order.
const SECTION: u64 = 4;
const LARGEST: Order = Order(2);
const CPUS: [NodeId; 2] = [NodeId(0); 2];

/// A defect of a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flaw {
    /// An acquisition orders nothing.
    TakenRelaxed,
    /// An acquisition succeeds while another thread holds it.
    NeverRefused,
}

/// The broken locks and their defect.
pub(super) type Broken = Option<(fn(LockId) -> bool, Flaw)>;

/// The platform of a thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct ModelPlatform {
    cpu: CpuId,
    broken: Broken,
}

struct Provided;

impl Platform for Provided {
    type Guard = ();
    fn guard(&self) {}
    fn current_cpu(&self) -> CpuId {
        CpuId(0)
    }
    fn spin(&self, _round: u32) {}
    fn frame_bytes(&self, _pfn: Pfn) -> Option<NonNull<u8>> {
        None
    }
}

impl Platform for ModelPlatform {
    type Guard = ();

    fn guard(&self) {}

    fn current_cpu(&self) -> CpuId {
        self.cpu
    }

    /// Explores one failed attempt, then yields to the other threads: further attempts change nothing.
    fn spin(&self, round: u32) {
        if round > 0 {
            loom::skip_branch();
        }
        thread::yield_now();
    }

    fn frame_bytes(&self, pfn: Pfn) -> Option<NonNull<u8>> {
        // A key of the modelled words, never dereferenced.
        NonNull::new(std::ptr::without_provenance_mut((pfn.0 as usize + 1) << 12))
    }

    fn try_lock(&self, id: LockId, word: &AtomicU32) -> Contention {
        match self.broken {
            Some((is, Flaw::TakenRelaxed)) if is(id) => match word.swap(1, Ordering::Relaxed) {
                0 => Contention::Free,
                _ => Contention::Contended,
            },
            Some((is, Flaw::NeverRefused)) if is(id) => {
                let _ = Provided.try_lock(id, word);
                Contention::Free
            }
            _ => Provided.try_lock(id, word),
        }
    }
}

#[repr(C, align(128))]
#[derive(Default)]
struct SectionMap([Page; SECTION as usize]);

/// The memory of one execution: map and control region. Frame contents are modelled by number.
pub(super) struct Machine {
    map: Vec<SectionMap>,
    control: Box<ModelledRegion>,
    control_bytes: ByteSize,
    memory: [(PfnRange, NodeId); 1],
    /// The device section above the memory, or none.
    devices: Option<PfnRange>,
    broken: Broken,
}

// SAFETY: modelled atomics; loom runs all threads of a model on one.
unsafe impl Send for Machine {}
// SAFETY: as above.
unsafe impl Sync for Machine {}

impl Machine {
    /// Memory without a yard. Forgets the frame contents of the previous execution.
    pub(super) fn bare(sections: u64, broken: Broken) -> Arc<Self> {
        Self::of(sections, None, broken)
    }

    /// Like [`bare`](Self::bare), with a device section above the memory.
    pub(super) fn with_device(sections: u64) -> Arc<Self> {
        Self::of(sections, Some(Self::device(sections)), None)
    }

    /// The device frames above `sections` sections.
    pub(super) fn device(sections: u64) -> PfnRange {
        PfnRange { start: Pfn(sections * SECTION), end: Pfn((sections + 1) * SECTION) }
    }

    fn of(sections: u64, devices: Option<PfnRange>, broken: Broken) -> Arc<Self> {
        forget_all();
        let frames = PfnRange { start: Pfn(0), end: Pfn(sections * SECTION) };
        let mut machine = Self {
            devices,
            map: (0..sections + u64::from(devices.is_some())).map(|_| SectionMap::default()).collect(),
            control: Box::default(),
            control_bytes: ByteSize(0),
            memory: [(frames, NodeId(0))],
            broken,
        };
        machine.control_bytes = machine.layout().control_bytes();
        Arc::new(machine)
    }

    fn config(&self) -> YardConfig<'static> {
        let page = ByteSize::kib(4);
        let geometry = Geometry::new(page, ByteSize(page.0 * SECTION), Order(1), LARGEST).expect("a geometry");
        let watermarks = WatermarkOptions { min_free_kbytes: Some(0), ..WatermarkOptions::default() };
        YardConfig {
            geometry,
            zone_limits: ZoneLimits::NONE,
            watermarks,
            // No frames stay on per-CPU lists, which have their own models.
            pcp_sizing: PcpSizing::Fixed(0),
            device_space: self.devices,
            // The simplest one.
            policy: ZonePolicy::Vanilla,
            ..YardConfig::new(&CPUS)
        }
    }

    fn table(&self) -> MemoryTable<'_> {
        MemoryTable { memory: &self.memory, ..MemoryTable::default() }
    }

    fn layout(&self) -> Layout {
        Layout::plan(&self.table(), &self.config()).expect("a machine")
    }

    fn regions(&self) -> (RawRegion, RawRegion) {
        let map = NonNull::from(self.map.as_slice()).cast();
        let size = ByteSize(size_of_val(self.map.as_slice()) as u64);
        let control = NonNull::from(&*self.control).cast();
        (RawRegion { base: map, size }, RawRegion { base: control, size: self.control_bytes })
    }

    /// Creates the yard, for CPU 0.
    pub(super) fn create(&self) -> Yard<ModelPlatform> {
        let platform = ModelPlatform { cpu: CpuId(0), broken: self.broken };
        let (map, control) = self.regions();
        // SAFETY: both regions are zeroed, and outlive all yards: each thread holds the machine.
        unsafe { Yard::create(&self.table(), &self.config(), &self.layout(), map, control, platform) }.expect("a yard")
    }

    /// A view for a CPU.
    pub(super) fn attach(&self, cpu: u32) -> Yard<ModelPlatform> {
        let platform = ModelPlatform { cpu: CpuId(cpu), broken: self.broken };
        let (map, control) = self.regions();
        // SAFETY: both regions are one yard's, and outlive all yards.
        unsafe { Yard::attach(map, control, platform) }.expect("a yard that was created")
    }
}
