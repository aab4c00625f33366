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
    PfnRange, Yard, YardConfig, ZoneId,
};
use frameyard_formats::TracedBlock;

use super::counts::LockedByOrder;
use super::layout::{Placed, ZoneLayout, lay_out};
use super::memory::Zeroed;
use super::plan::{ReplayPlan, ReplayZone};
use super::platform::{ReplayPlatform, run_as};

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
    _map: Zeroed,
    _control: Zeroed,
}

impl ReplayYard {
    /// Creates a yard and brings its memory into the state in which the recording began.
    ///
    /// Cost: 64 bytes of the host's memory for each frame that was ever part of a small block, and 2 for each frame.
    ///
    /// # Errors
    ///
    /// [`SetUpError`].
    pub(super) fn new(plan: &ReplayPlan, set_up: SetUp) -> Result<Self, SetUpError> {
        let mut new = Self::create(plan)?;
        run_as(CpuId(0));
        for zone in &plan.zones {
            new.yard.request_range(zone.memory, Gfp::HIGHUSER_MOVABLE).range()?;
        }
        let mut rng = fastrand::Rng::with_seed(set_up.seed);
        let layouts: Vec<ZoneLayout> =
            plan.zones.iter().map(|zone| lay_out(zone, &plan.held, &plan.votes, &mut rng)).collect();
        for (zone, layout) in plan.zones.iter().zip(&layouts) {
            layout.units.iter().try_for_each(|unit| new.convert(zone, unit))?;
            new.missing_pages += layout.missing_pages;
        }
        new.yard.lists().retune(&watermarks(plan), PcpSizing::Scaled)?;
        plan.held.iter().try_for_each(|block| new.cut_out(*block))?;
        let set_policy = || new.yard.set_policy(set_up.policy).map_err(SetUpError::Policy);
        match set_up.start {
            Start::Used => {
                set_policy()?;
                new.free_all(plan, &layouts)?;
            }
            Start::FreeLists => {
                new.free_all(plan, &layouts)?;
                set_policy()?;
            }
        }
        for (zone, layout) in plan.zones.iter().zip(&layouts) {
            new.fill_lists(plan.cpus, zone, layout)?;
        }
        Ok(new)
    }

    fn create(plan: &ReplayPlan) -> Result<Self, SetUpError> {
        let memory: Vec<(PfnRange, NodeId)> = plan.zones.iter().map(|zone| (zone.memory, zone.node)).collect();
        let source = MemoryTable { memory: &memory, ..MemoryTable::default() };
        let end_of = |kind| {
            let ends = plan.zones.iter().filter(|zone| zone.kind == kind).map(|zone| zone.kernel.span.end);
            ends.max().map_or(PhysAddr(0), |end| PhysAddr(end.0 << Geometry::X86_64.page_shift()))
        };
        let dma = end_of(ZoneKind::Dma);
        let zone_limits = ZoneLimits { dma, dma32: end_of(ZoneKind::Dma32).max(dma) };
        let movable = plan.zones.iter().filter(|zone| zone.kind == ZoneKind::Movable).map(|zone| zone.memory.count());
        let node = plan.zones.iter().map(|zone| zone.node).min().unwrap_or(NodeId(0));
        let cpus = vec![node; plan.cpus as usize];
        let config = YardConfig {
            zone_limits,
            movable: match movable.sum() {
                PageCount(0) => MovableMemory::None,
                pages => MovableMemory::Pages(pages),
            },
            watermarks: WatermarkOptions {
                min_free_kbytes: Some(0),
                watermark_scale_factor: 1,
                lowmem_reserve_ratio: [0; ZoneKind::COUNT],
                ..watermarks(plan)
            },
            policy: ZonePolicy::Vanilla,
            ..YardConfig::new(&cpus)
        };
        let layout = Layout::plan(&source, &config)?;
        let memory_for = |size| Zeroed::new(size).ok_or(SetUpError::HostMemory);
        let (map, control) = (memory_for(layout.map_bytes())?, memory_for(layout.control_bytes())?);
        let (map_region, control_region) = (map.region(), control.region());
        // SAFETY: both regions are fresh, zeroed and used by this yard alone. They live as long as the value that owns the yard.
        let yard = unsafe { Yard::create(&source, &config, &layout, map_region, control_region, ReplayPlatform) }?;
        for zone in &plan.zones {
            if yard.zone_of(zone.memory.start).is_none_or(|id| id.kind() != zone.kind) {
                return Err(SetUpError::Zone(zone.kind));
            }
        }
        Ok(Self { yard, missing_pages: 0, _map: map, _control: control })
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
        self.yard.free(unit.pfn, unit.order)?;
        let gfp = Gfp::HIGH | Gfp::NOWARN | mobility | place;
        if self.yard.alloc(unit.order, gfp) != Ok(unit.pfn) {
            self.yard.lists().drain_cpu(CpuId(0));
            self.yard.request_range(range, gfp).range()?;
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

    /// Frees what was free.
    fn free_all(&self, plan: &ReplayPlan, layouts: &[ZoneLayout]) -> Result<(), SetUpError> {
        layouts.iter().flat_map(|layout| &layout.free).try_for_each(|block| self.cut_out(*block))?;
        let blocks = layouts.iter().flat_map(|layout| &layout.free);
        for block in blocks.clone().filter(|block| block.order > LISTED) {
            self.yard.free(block.pfn, block.order)?;
        }
        let small = blocks.filter(|block| block.order <= LISTED);
        let frames =
            small.flat_map(|block| (0..block.order.pages().0).map(move |at| (block, block.pfn + PageCount(at))));
        for (at, (block, pfn)) in frames.enumerate() {
            if pfn == block.pfn && block.order > Order(0) {
                self.yard.split(block.pfn, block.order)?;
            }
            if at % TURN == 0 {
                run_as(CpuId((at / TURN) as u32 % plan.cpus));
            }
            self.yard.free(pfn, Order(0))?;
        }
        (0..plan.cpus).for_each(|cpu| self.yard.lists().drain_cpu(CpuId(cpu)));
        Ok(())
    }

    /// Frees frames to the lists of each CPU until they hold the kernel's number, or their limit.
    fn fill_lists(&self, cpus: u32, zone: &ReplayZone, layout: &ZoneLayout) -> Result<(), SetUpError> {
        let Some(id) = self.yard.zone_of(zone.memory.start) else { return Ok(()) };
        let frames = layout.rest.iter().flat_map(|block| block.pfn.0..(block.pfn + block.order.pages()).0);
        let mut frames = frames.map(Pfn);
        for cpu in (0..cpus).map(CpuId) {
            let wanted = zone.kernel.per_cpu.get(&cpu).copied().unwrap_or_default();
            let limit = self.yard.zone(id).pcp(cpu).map_or(PageCount(0), |pcp| pcp.high);
            run_as(cpu);
            for pfn in frames.by_ref().take(wanted.min(limit).0 as usize) {
                self.cut_out(TracedBlock { pfn, order: Order(0) })?;
                self.yard.free(pfn, Order(0))?;
            }
        }
        Ok(())
    }

    /// The zones of the yard.
    pub(super) fn zones(&self) -> impl Iterator<Item = ZoneId> {
        self.yard.stats().zones().map(|zone| zone.id)
    }
}

/// The watermarks of the kernel: its zones' `min` together.
fn watermarks(plan: &ReplayPlan) -> WatermarkOptions {
    let min: u64 = plan.zones.iter().map(|zone| zone.kernel.min.0).sum();
    let kib = (min << Geometry::X86_64.page_shift()) >> 10;
    WatermarkOptions { min_free_kbytes: (min > 0).then_some(kib), ..WatermarkOptions::default() }
}
