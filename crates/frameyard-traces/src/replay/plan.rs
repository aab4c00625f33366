//! From events to operations.

use std::collections::BTreeMap;
use std::fmt;

use frameyard::units::ZoneKind;
use frameyard::{Gfp, MigrateType, NodeId, Order, PageCount, Pfn, PfnRange};
use frameyard_formats::TracedBlock;

use super::recorded_memory::{MAX_ORDER, RecordedMemory, ReplayZone};
use crate::snapshot::{KernelSnapshot, KernelZone};
use crate::{GfpFlags, PageEvent, TraceEvent};

/// The most CPUs of a recording.
const MOST_CPUS: u32 = 1 << 12;
/// The most frames of a replay's memory: 1 TiB in pages of 4 KiB.
const MOST_FRAMES: u64 = 1 << 28;

/// Why a recording cannot be replayed.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PlanError {
    /// It has no allocation and no free.
    NoOperations,
    /// More than one in a hundred of its frames lies in no zone of the snapshot.
    WrongSnapshot {
        /// Allocations and frees outside all zones.
        outside: u64,
        /// All of them.
        of: u64,
        /// The first such frame.
        first: Pfn,
    },
    /// The snapshot has more memory than a replay can have.
    TooMuchMemory(PageCount),
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoOperations => f.write_str("the recording has no allocation and no free"),
            Self::WrongSnapshot { outside, of, first } => write!(
                f,
                "the snapshot does not match the recording: {outside} of {of} blocks lie in no zone, first frame {:#x}",
                first.0
            ),
            Self::TooMuchMemory(pages) => write!(f, "the zones have {} frames, more than a replay can have", pages.0),
        }
    }
}

impl std::error::Error for PlanError {}

/// What is wrong in a recording. Each is skipped or mended, and counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Anomalies {
    /// Events with an earlier time than the event before.
    pub out_of_order: u64,
    /// Allocations of frames that were allocated: the free is missing. The replay frees first.
    pub double_allocations: u64,
    /// Frees of frames that were freed. Skipped.
    pub double_frees: u64,
    /// Allocations and frees outside all zones, or by CPUs from 4096 on. Skipped.
    pub outside: u64,
    /// Events that the recorder lost.
    pub lost: u64,
}

/// An allocation or a free. Sixteen bytes, so that the operations do not fill the caches of the yard.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    /// The place of the frame in the memory of the replay.
    pub(super) place: u32,
    /// Flags of an allocation.
    pub(super) gfp: Gfp,
    pub(super) cpu: u16,
    pub(super) order: Order,
    pub(super) is_alloc: bool,
}

/// An allocation or a free of a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlannedOperation {
    /// The first frame of the block: its place in the memory of a replay.
    pub place: u32,
    /// Its order.
    pub order: Order,
    /// Flags of an allocation; `None` is a free.
    pub gfp: Option<Gfp>,
}

/// A recording as operations.
#[derive(Clone, Debug)]
pub struct ReplayPlan {
    pub(super) operations: Vec<Operation>,
    pub(super) memory: RecordedMemory,
    /// CPUs of the replay.
    pub(super) cpus: u32,
    anomalies: Anomalies,
    kernel: KernelCounts,
}

/// What the recorded kernel did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct KernelCounts {
    /// Events.
    pub events: u64,
    /// Pages allocated.
    pub pages_allocated: u64,
    /// Pages that left the free lists under the zone lock.
    pub refilled_pages: u64,
    /// Pages that returned from per-CPU lists.
    pub drained_pages: u64,
    /// Requests served from pageblocks of another type.
    pub extfrag: u64,
    /// Failed requests.
    pub failures: u64,
}

impl KernelCounts {
    fn add(&mut self, what: &PageEvent) {
        self.events += u64::from(!matches!(what, PageEvent::Lost(_)));
        match what {
            PageEvent::Alloc { pfn: Some(_), order, .. } => self.pages_allocated += order.pages().0,
            PageEvent::Alloc { pfn: None, .. } => self.failures += 1,
            PageEvent::AllocZoneLocked { block, .. } => self.refilled_pages += block.order.pages().0,
            PageEvent::PcpuDrain { block, .. } => self.drained_pages += block.order.pages().0,
            PageEvent::ExtFrag(_) => self.extfrag += 1,
            PageEvent::Free(_) | PageEvent::FreeBatched(_) | PageEvent::Lost(_) => {}
        }
    }

    /// Pages through the zone lock for 1000 pages allocated; `None` without allocations.
    #[must_use]
    pub fn zone_locked_per_1000(&self) -> Option<f64> {
        let pages = (self.refilled_pages + self.drained_pages) as f64;
        (self.pages_allocated > 0).then(|| pages * 1000.0 / self.pages_allocated as f64)
    }
}

/// What is known of a frame while events are planned.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Known {
    Nothing,
    Freed,
    Allocated,
}

impl ReplayPlan {
    /// Plans the replay of events in the memory of a snapshot. Without a snapshot the memory is one zone that spans the frames of the
    /// recording, all of them free unless the recording frees them first.
    ///
    /// Cost: 9 bytes for each frame of memory, 16 for each allocation and free.
    ///
    /// # Errors
    ///
    /// [`PlanError`].
    pub fn new(events: &[TraceEvent], snapshot: Option<&KernelSnapshot>) -> Result<Self, PlanError> {
        let blocks = || events.iter().filter_map(block_of);
        let spanned;
        let snapshot = match snapshot {
            Some(snapshot) => snapshot,
            None => {
                spanned = spanning(blocks().map(|(block, _)| block)).ok_or(PlanError::NoOperations)?;
                &spanned
            }
        };
        check(blocks().map(|(block, _)| block.pfn), snapshot)?;
        let zones = zones(snapshot, blocks().map(|(block, _)| block))?;
        let cpus = events.iter().map(|event| event.cpu.0).filter(|cpu| *cpu < MOST_CPUS).max().unwrap_or(0) + 1;
        let listed = snapshot.zones.values().filter_map(|zone| zone.per_cpu.keys().next_back()).max();
        let cpus = cpus.max(listed.map_or(1, |cpu| cpu.0.saturating_add(1)).min(MOST_CPUS));
        let memory = RecordedMemory { zones, ..RecordedMemory::default() };
        let mut planner = Planner {
            known: vec![Known::Nothing; memory.frames()],
            plan: Self {
                operations: Vec::new(),
                memory,
                cpus,
                anomalies: Anomalies::default(),
                kernel: KernelCounts::default(),
            },
        };
        let mut time_us = 0;
        for event in events {
            planner.plan.anomalies.out_of_order += u64::from(event.time_us < time_us);
            time_us = event.time_us;
            planner.add(event);
        }
        if planner.plan.operations.is_empty() {
            return Err(PlanError::NoOperations);
        }
        planner.plan.memory.held.sort_by_key(|block| block.pfn);
        Ok(planner.plan)
    }

    /// What is wrong in the recording.
    #[must_use]
    pub fn anomalies(&self) -> Anomalies {
        self.anomalies
    }

    /// What the recorded kernel did.
    #[must_use]
    pub fn kernel(&self) -> KernelCounts {
        self.kernel
    }

    /// Blocks that were allocated before the recording and are freed in it.
    #[must_use]
    pub fn held_blocks(&self) -> usize {
        self.memory.held.len()
    }

    /// The allocations and frees, in the order of the recording.
    pub fn operations(&self) -> impl Iterator<Item = PlannedOperation> {
        self.operations.iter().map(|of| PlannedOperation {
            place: of.place,
            order: of.order,
            gfp: of.is_alloc.then_some(of.gfp),
        })
    }
}

/// The block that an event allocates or frees, and the flags of an allocation.
fn block_of(event: &TraceEvent) -> Option<(TracedBlock, Option<(GfpFlags, MigrateType)>)> {
    match event.what {
        PageEvent::Alloc { pfn: Some(pfn), order, gfp, migrate_type } => {
            Some((TracedBlock { pfn, order }, Some((gfp, migrate_type))))
        }
        PageEvent::Free(block) => Some((block, None)),
        _ => None,
    }
}

fn end_of(block: TracedBlock) -> Pfn {
    Pfn(block.pfn.0.saturating_add(block.order.pages().0))
}

/// A snapshot with one zone around all blocks.
fn spanning(blocks: impl Iterator<Item = TracedBlock>) -> Option<KernelSnapshot> {
    let (mut start, mut end) = (Pfn(u64::MAX), Pfn(0));
    for block in blocks {
        (start, end) = (start.min(block.pfn), end.max(end_of(block)));
    }
    let span = PfnRange { start: start.align_down(MAX_ORDER), end: end.align_up(MAX_ORDER)? };
    if span.is_empty() {
        return None;
    }
    let zone = KernelZone { span, managed: span.count(), ..KernelZone::default() };
    Some(KernelSnapshot { zones: [((NodeId(0), ZoneKind::Normal), zone)].into() })
}

/// Checks that the frames lie in the zones of the snapshot, up to one in a hundred.
fn check(frames: impl Iterator<Item = Pfn>, snapshot: &KernelSnapshot) -> Result<(), PlanError> {
    let (mut outside, mut of, mut first) = (0, 0, Pfn(0));
    for pfn in frames {
        of += 1;
        if snapshot.zone_of(pfn).is_none() {
            first = if outside == 0 { pfn } else { first };
            outside += 1;
        }
    }
    match of {
        0 => Err(PlanError::NoOperations),
        _ if outside * 100 > of => Err(PlanError::WrongSnapshot { outside, of, first }),
        _ => Ok(()),
    }
}

/// The memory of each zone. The snapshot says how many frames a zone manages, and not which. The replay takes as many frames from the
/// zone's start on, or up to its end, and all frames up to those that the recording names.
fn zones(snapshot: &KernelSnapshot, blocks: impl Iterator<Item = TracedBlock>) -> Result<Vec<ReplayZone>, PlanError> {
    let mut named = BTreeMap::<(NodeId, ZoneKind), PfnRange>::new();
    for block in blocks {
        if let Some(id) = snapshot.zone_of(block.pfn) {
            let range = named.entry(id).or_insert(PfnRange { start: block.pfn, end: block.pfn });
            *range = PfnRange { start: range.start.min(block.pfn), end: range.end.max(end_of(block)) };
        }
    }
    let mut zones: Vec<ReplayZone> = Vec::new();
    for ((node, kind), kernel) in &snapshot.zones {
        let span = kernel.span;
        let aligned = span.start.align_up(MAX_ORDER).unwrap_or(span.start);
        let mut end = Pfn(aligned.0 + kernel.managed.0).min(span.end);
        let mut start = Pfn(end.0.saturating_sub(kernel.managed.0)).max(span.start);
        if let Some(range) = named.get(&(*node, *kind)) {
            start = start.min(range.start.align_down(MAX_ORDER).max(span.start));
            end = end.max(range.end.align_up(MAX_ORDER).unwrap_or(range.end).min(span.end));
        }
        zones.push(ReplayZone {
            node: *node,
            kind: *kind,
            memory: PfnRange { start, end },
            base: 0,
            kernel: kernel.clone(),
        });
    }
    zones.sort_by_key(|zone| zone.memory.start);
    let frames = PageCount(zones.iter().map(|zone| zone.memory.count().0).sum());
    if frames.0 > MOST_FRAMES {
        return Err(PlanError::TooMuchMemory(frames));
    }
    let mut base = 0;
    for zone in &mut zones {
        zone.base = base;
        base += zone.memory.count().0 as u32;
    }
    Ok(zones)
}

struct Planner {
    plan: ReplayPlan,
    known: Vec<Known>,
}

impl Planner {
    fn add(&mut self, event: &TraceEvent) {
        self.plan.kernel.add(&event.what);
        if let PageEvent::Lost(lost) = event.what {
            self.plan.anomalies.lost = self.plan.anomalies.lost.saturating_add(lost);
        }
        let Some((block, request)) = block_of(event) else { return };
        let last = Pfn(end_of(block).0 - 1);
        let places = self.plan.memory.place(block.pfn).zip(self.plan.memory.place(last));
        let (Some((place, end)), true) = (places, event.cpu.0 < MOST_CPUS && block.order <= MAX_ORDER) else {
            self.plan.anomalies.outside += 1;
            return;
        };
        // Misaligned blocks come from damaged recordings only.
        if u64::from(end - place) + 1 != block.order.pages().0 || !block.pfn.is_aligned(block.order) {
            self.plan.anomalies.outside += 1;
            return;
        }
        match request {
            Some((_, migrate_type)) => {
                self.vote(block.pfn, migrate_type);
                if self.known[place as usize] == Known::Allocated {
                    self.plan.anomalies.double_allocations += 1;
                }
            }
            None if self.known[place as usize] == Known::Freed => {
                self.plan.anomalies.double_frees += 1;
                return;
            }
            None => {
                let known = &self.known[place as usize..=end as usize];
                if known.iter().all(|known| *known == Known::Nothing) {
                    self.plan.memory.held.push(block);
                }
            }
        }
        let now = if request.is_some() { Known::Allocated } else { Known::Freed };
        self.known[place as usize..=end as usize].fill(now);
        let gfp = request.map_or(Gfp::NOWAIT, |(gfp, _)| gfp.to_gfp() | Gfp::NOWARN);
        let operation =
            Operation { place, gfp, cpu: event.cpu.0 as u16, order: block.order, is_alloc: request.is_some() };
        self.plan.operations.push(operation);
    }

    fn vote(&mut self, pfn: Pfn, migrate_type: MigrateType) {
        let votes = self.plan.memory.votes.entry(pfn.0 >> MAX_ORDER.0).or_default();
        match migrate_type {
            MigrateType::Movable | MigrateType::Cma => votes.movable += 1,
            MigrateType::Reclaimable => votes.reclaimable += 1,
            _ => votes.unmovable += 1,
        }
    }
}
