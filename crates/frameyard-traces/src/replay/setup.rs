//! A yard in the state that memory was in when the recording began.
//!
//! The yard first allocates all memory, gives units their types, and then frees what was free. It frees under the policy of the replay:
//! free memory is where that policy keeps it. [`Start`] says in which pieces.

use std::fmt;

use frameyard::boot::{BootError, MovableMemory, ZoneLimits};
use frameyard::policy::{PolicyError, ZonePolicy};
use frameyard::units::{PhysAddr, ZoneKind};
use frameyard::watermarks::{PcpSizing, WatermarkOptions};
use frameyard::{
    AllocError, CpuId, FreeError, Geometry, Gfp, Layout, MemoryTable, MigrateType, NodeId, Order, PageCount, Pfn,
    PfnRange, Platform, Yard, YardConfig,
};
use frameyard_formats::TracedBlock;

use super::counts::LockedByOrder;
use super::layout::{Placed, ZoneLayout, lay_out};
use super::memory::{MakeMemory, YardMemory, YardParts};
use super::plan::ReplayPlan;
use super::platform::{ReplayPlatform, run_as};
use super::recorded_memory::{RecordedMemory, ReplayZone};

/// The largest order of which per-CPU lists hold blocks.
const LISTED: Order = Order(3);
/// Frames that one CPU frees before the next one's turn.
const TURN: usize = 64;

/// How memory became free that was free when the recording began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Start {
    /// The CPUs freed it frame by frame under the policy of the replay, as a system does that was in use. Only blocks above order 3,
    /// which per-CPU lists do not hold, came as blocks.
    #[default]
    Used,
    /// It is on the free lists, as under `vanilla`, and the policy has just begun.
    FreeLists,
}

/// What a replay counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Detail {
    /// What the yard counts.
    #[default]
    Totals,
    /// The use of zone locks by each operation, too ([`LockedByOrder`]). Times are then of no use. A replay on threads cannot.
    ByOrder,
}

impl Detail {
    /// Counts of zero, if they are asked for.
    pub(super) fn by_order(self) -> Option<LockedByOrder> {
        (self == Self::ByOrder).then(LockedByOrder::default)
    }
}

/// How to set a yard up.
#[derive(Clone, Copy, Debug, Default)]
pub struct SetUp {
    /// The policy.
    pub policy: ZonePolicy,
    /// How memory became free.
    pub start: Start,
    /// Seed of the places of free blocks.
    pub seed: u64,
    /// What to count.
    pub detail: Detail,
}

impl SetUp {
    /// The policy with which the yard is created, while memory gets its layout.
    #[must_use]
    pub fn initial_policy(&self) -> ZonePolicy {
        if self.policy.is_changeable() { ZonePolicy::Vanilla } else { self.policy }
    }
}

/// Why a yard was not set up.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum SetUpError {
    /// The memory makes no yard.
    Boot(BootError),
    /// The host has too little memory for the yard's structures.
    HostMemory,
    /// The policy is not available.
    Policy(PolicyError),
    /// A zone of the kernel is none of the yard.
    Zone(ZoneKind),
    /// Memory could not be allocated for the set-up.
    Alloc(AllocError),
    /// Memory could not be freed for the set-up.
    Free(FreeError),
}

impl fmt::Display for SetUpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boot(error) => write!(f, "the recorded memory makes no yard: {error}"),
            Self::HostMemory => f.write_str("too little memory for the memory map of the recorded machine"),
            Self::Policy(error) => error.fmt(f),
            Self::Zone(kind) => write!(f, "a zone {kind} of the recorded kernel has no place in a yard"),
            Self::Alloc(error) => write!(f, "setting up: {error}"),
            Self::Free(error) => write!(f, "setting up: {error}"),
        }
    }
}

impl std::error::Error for SetUpError {}

impl From<BootError> for SetUpError {
    fn from(error: BootError) -> Self {
        Self::Boot(error)
    }
}

impl From<AllocError> for SetUpError {
    fn from(error: AllocError) -> Self {
        Self::Alloc(error)
    }
}

impl From<FreeError> for SetUpError {
    fn from(error: FreeError) -> Self {
        Self::Free(error)
    }
}

/// A yard with the memory of a recording.
#[derive(Debug)]
pub(super) struct ReplayYard {
    pub(super) yard: Yard<ReplayPlatform>,
    /// Pages of free blocks of the snapshot that found no place.
    pub(super) missing_pages: u64,
    _memory: Box<dyn YardMemory>,
}

impl ReplayYard {
    /// Creates a yard and brings its memory into the state in which the recording began.
    ///
    /// Cost: 64 bytes of the host's memory for each frame that was ever part of a small block, and 2 for each frame.
    ///
    /// # Errors
    ///
    /// [`SetUpError`].
    pub(super) fn new(plan: &ReplayPlan, set_up: SetUp, make: MakeMemory<'_>) -> Result<Self, SetUpError> {
        let mut new = Self::create(plan, set_up.initial_policy(), make)?;
        let cpus: Vec<CpuId> = (0..plan.cpus).map(CpuId).collect();
        let copies = [PlacedCopy { memory: &plan.memory, cpus: &cpus }];
        new.missing_pages = SettingUp { yard: &new.yard, run_as: &run_as }.set_up(&copies, set_up)?;
        Ok(new)
    }

    fn create(plan: &ReplayPlan, policy: ZonePolicy, make: MakeMemory<'_>) -> Result<Self, SetUpError> {
        let memory: Vec<(PfnRange, NodeId)> = plan.memory.zones.iter().map(|zone| (zone.memory, zone.node)).collect();
        let source = MemoryTable { memory: &memory, ..MemoryTable::default() };
        let end_of = |kind| {
            let ends = plan.memory.zones.iter().filter(|zone| zone.kind == kind).map(|zone| zone.kernel.span.end);
            ends.max().map_or(PhysAddr(0), |end| PhysAddr(end.0 << Geometry::X86_64.page_shift()))
        };
        let dma = end_of(ZoneKind::Dma);
        let zone_limits = ZoneLimits { dma, dma32: end_of(ZoneKind::Dma32).max(dma) };
        let movable =
            plan.memory.zones.iter().filter(|zone| zone.kind == ZoneKind::Movable).map(|zone| zone.memory.count());
        let node = plan.memory.zones.iter().map(|zone| zone.node).min().unwrap_or(NodeId(0));
        let cpus = vec![node; plan.cpus as usize];
        let config = YardConfig {
            zone_limits,
            movable: match movable.sum() {
                PageCount(0) => MovableMemory::None,
                pages => MovableMemory::Pages(pages),
            },
            watermarks: no_watermarks(),
            policy,
            ..YardConfig::new(&cpus)
        };
        let layout = Layout::plan(&source, &config)?;
        let (map, control) = (layout.map_bytes(), layout.control_bytes());
        let parts = YardParts { geometry: config.geometry, memory: memory.clone(), map, control };
        let structures = make(&parts).ok_or(SetUpError::HostMemory)?;
        let (map, control) = (structures.map(), structures.control());
        // SAFETY: `YardMemory` promises zeroed regions of these sizes that only the yard writes to. They live as long as the value that
        // owns the yard.
        let yard = unsafe { Yard::create(&source, &config, &layout, map, control, ReplayPlatform) }?;
        for zone in &plan.memory.zones {
            if yard.zone_of(zone.memory.start).is_none_or(|id| id.kind() != zone.kind) {
                return Err(SetUpError::Zone(zone.kind));
            }
        }
        Ok(Self { yard, missing_pages: 0, _memory: structures })
    }
}

/// A copy of the recorded memory at its place in a yard, and the CPUs of the yard that stand for the recorded ones.
#[derive(Clone, Copy)]
pub(super) struct PlacedCopy<'c> {
    pub(super) memory: &'c RecordedMemory,
    pub(super) cpus: &'c [CpuId],
}

/// A yard that is set up.
pub(super) struct SettingUp<'y, P: Platform> {
    pub(super) yard: &'y Yard<P>,
    /// Makes the calling thread run as a CPU of the yard.
    pub(super) run_as: &'y dyn Fn(CpuId),
}

impl<P: Platform> SettingUp<'_, P> {
    /// Brings the memory of copies into the state in which the recording began. All other memory of the yard becomes allocated. The
    /// first copy has the layout that it has alone. Returns the pages of free blocks of the snapshot that found no place.
    ///
    /// # Errors
    ///
    /// [`SetUpError`].
    pub(super) fn set_up(&self, copies: &[PlacedCopy<'_>], set_up: SetUp) -> Result<u64, SetUpError> {
        (self.run_as)(CpuId(0));
        self.yard.lists().retune(&no_watermarks(), PcpSizing::Scaled)?;
        self.yard.set_policy(set_up.initial_policy()).map_err(SetUpError::Policy)?;
        let all: Vec<PfnRange> = self.yard.memory_ranges().map(|(range, _)| range).collect();
        for range in all {
            self.yard.request(range, Gfp::HIGHUSER_MOVABLE).range()?;
        }
        let mut rng = fastrand::Rng::with_seed(set_up.seed);
        let mut laid_out: Vec<(PlacedCopy<'_>, &ReplayZone, ZoneLayout)> = Vec::new();
        for copy in copies {
            let lay_out = |zone| lay_out(zone, &copy.memory.held, &copy.memory.votes, &mut rng);
            let layouts: Vec<ZoneLayout> = copy.memory.zones.iter().map(lay_out).collect();
            laid_out.extend(copy.memory.zones.iter().zip(layouts).map(|(zone, layout)| (*copy, zone, layout)));
        }
        for (_, zone, layout) in &laid_out {
            layout.units.iter().try_for_each(|unit| self.convert(zone, unit))?;
        }
        if let Some(first) = copies.first() {
            self.yard.lists().retune(&watermarks(first.memory, copies.len() as u64), PcpSizing::Scaled)?;
        }
        copies.iter().flat_map(|copy| &copy.memory.held).try_for_each(|block| self.cut_out(*block))?;
        let mut free: Vec<(&[CpuId], TracedBlock)> = Vec::new();
        for (copy, _, layout) in &laid_out {
            free.extend(layout.free.iter().map(|block| (copy.cpus, *block)));
        }
        if copies.len() > 1 {
            rng.shuffle(&mut free);
        }
        // Counted before the policy resizes the lists, so that the same frames are free under every policy.
        let on_lists: Vec<_> = laid_out.iter().map(|(copy, zone, _)| self.frames_on_lists(copy.cpus, zone)).collect();
        let set_policy = || self.yard.set_policy(set_up.policy).map_err(SetUpError::Policy);
        match set_up.start {
            Start::Used => {
                set_policy()?;
                self.free_all(copies, &free)?;
            }
            Start::FreeLists => {
                self.free_all(copies, &free)?;
                set_policy()?;
            }
        }
        for ((_, _, layout), lists) in laid_out.iter().zip(on_lists) {
            self.fill_lists(&lists, layout)?;
        }
        Ok(laid_out.iter().map(|(_, _, layout)| layout.missing_pages).sum())
    }

    /// Gives a unit of movable memory another type: frees it, so that it is the only free block, and allocates it with that type.
    fn convert(&self, zone: &ReplayZone, unit: &Placed) -> Result<(), SetUpError> {
        let mobility = match unit.migrate_type {
            MigrateType::Reclaimable => Gfp::RECLAIMABLE,
            _ => Gfp::NOWAIT,
        };
        let place = match zone.kind {
            ZoneKind::Dma => Gfp::DMA,
            ZoneKind::Dma32 => Gfp::DMA32,
            _ => Gfp::NOWAIT,
        };
        let range = PfnRange::new(unit.pfn, unit.order.pages());
        self.cut_out(TracedBlock { pfn: unit.pfn, order: unit.order })?;
        self.yard.free(unit.pfn, unit.order)?;
        // May wait: an urgent request that may not would reserve pageblocks that the recorded kernel had not reserved.
        let gfp = Gfp::HIGH | Gfp::DIRECT_RECLAIM | Gfp::NORETRY | Gfp::NOWARN | mobility | place;
        if self.yard.alloc(unit.order, gfp) != Ok(unit.pfn) {
            self.yard.lists().drain_cpu(CpuId(0));
            self.yard.request(range, gfp).range()?;
        }
        Ok(())
    }

    /// Makes a block of allocated memory that can be freed for itself.
    fn cut_out(&self, block: TracedBlock) -> Result<(), SetUpError> {
        self.yard.split_at(block.pfn)?;
        // Where the block ends already, what follows may be free or outside memory.
        let _ = self.yard.split_at(block.pfn + block.order.pages());
        Ok(())
    }

    /// Frees what was free, each block by the CPUs of its copy, and drains their lists.
    fn free_all(&self, copies: &[PlacedCopy<'_>], free: &[(&[CpuId], TracedBlock)]) -> Result<(), SetUpError> {
        free.iter().try_for_each(|(_, block)| self.cut_out(*block))?;
        for (cpus, block) in free.iter().filter(|(_, block)| block.order > LISTED) {
            (self.run_as)(cpus[0]);
            self.yard.free(block.pfn, block.order)?;
        }
        let small = free.iter().filter(|(_, block)| block.order <= LISTED);
        let frames = small.flat_map(|(cpus, block)| {
            (0..block.order.pages().0).map(move |at| (cpus, block, block.pfn + PageCount(at)))
        });
        for (at, (cpus, block, pfn)) in frames.enumerate() {
            if pfn == block.pfn && block.order > Order(0) {
                self.yard.split(block.pfn, block.order)?;
            }
            (self.run_as)(cpus[at / TURN % cpus.len()]);
            self.yard.free(pfn, Order(0))?;
        }
        copies.iter().flat_map(|copy| copy.cpus).for_each(|cpu| self.yard.lists().drain_cpu(*cpu));
        Ok(())
    }

    /// The number of frames on the lists of each CPU when the recording began: the kernel's, or the limit of the list if that is less.
    fn frames_on_lists(&self, cpus: &[CpuId], zone: &ReplayZone) -> Vec<(CpuId, u64)> {
        let Some(id) = self.yard.zone_of(zone.memory.start) else { return Vec::new() };
        let of_cpu = |(recorded, cpu): (CpuId, &CpuId)| {
            let wanted = zone.kernel.per_cpu.get(&recorded).copied().unwrap_or_default();
            let limit = self.yard.zone(id).pcp(*cpu).map_or(PageCount(0), |pcp| pcp.high);
            (*cpu, wanted.min(limit).0)
        };
        (0..).map(CpuId).zip(cpus).map(of_cpu).collect()
    }

    /// Frees that number of frames to the lists of each CPU.
    fn fill_lists(&self, lists: &[(CpuId, u64)], layout: &ZoneLayout) -> Result<(), SetUpError> {
        let frames = layout.rest.iter().flat_map(|block| block.pfn.0..(block.pfn + block.order.pages()).0);
        let mut frames = frames.map(Pfn);
        for (cpu, count) in lists {
            (self.run_as)(*cpu);
            for pfn in frames.by_ref().take(*count as usize) {
                self.cut_out(TracedBlock { pfn, order: Order(0) })?;
                self.yard.free(pfn, Order(0))?;
            }
        }
        Ok(())
    }
}

/// No watermarks and no reserves: the set-up allocates all memory.
fn no_watermarks() -> WatermarkOptions {
    WatermarkOptions {
        min_free_kbytes: Some(0),
        watermark_scale_factor: 1,
        lowmem_reserve_ratio: [0; ZoneKind::COUNT],
        ..WatermarkOptions::default()
    }
}

/// The watermarks of the kernel: its zones' `min` together, for each copy.
fn watermarks(memory: &RecordedMemory, copies: u64) -> WatermarkOptions {
    let min: u64 = memory.zones.iter().map(|zone| zone.kernel.min.0).sum();
    let kib = ((min * copies) << Geometry::X86_64.page_shift()) >> 10;
    WatermarkOptions { min_free_kbytes: (min > 0).then_some(kib), ..WatermarkOptions::default() }
}
