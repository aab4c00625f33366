//! The layout of a yard: the sizes of its map and control region and the position of each table, computed before either
//! exists.

use core::ptr::NonNull;

use crate::boot::movable::{MovableStarts, movable_starts};
use crate::boot::runs::RunPlan;
use crate::boot::tables::{TableCounts, TablePlan, Tables};
use crate::boot::{BootError, MAX_CPUS, MAX_NODES, MemorySource, YardConfig, ZoneLimits};
use crate::page::Page;
use crate::store::batch_words;
use crate::units::{ByteSize, Geometry, NodeId, PageCount, Pfn, PfnRange, ZoneId, ZoneKind};
use crate::zone::PcpZone;

/// The sizes of a yard's memory map and control region.
#[derive(Clone, Debug)]
pub struct Layout {
    pub(super) runs: RunPlan,
    pub(super) cutter: ZoneCutter,
    /// The place of the first frame for devices.
    device_place: Option<u64>,
    pub(super) counts: TableCounts,
    pub(super) plan: TablePlan,
    present: PageCount,
}

/// Cuts ranges of memory at the borders of zones.
#[derive(Clone, Debug)]
pub(crate) struct ZoneCutter {
    limits: [Pfn; 2],
    movable: MovableStarts,
}

impl ZoneCutter {
    fn new(geometry: Geometry, limits: ZoneLimits, movable: MovableStarts) -> Self {
        Self { limits: [geometry.frame_of(limits.dma), geometry.frame_of(limits.dma32.max(limits.dma))], movable }
    }

    /// The zone of a frame, and where that zone ends on its node.
    fn zone_at(&self, pfn: Pfn, node: NodeId) -> (ZoneId, Pfn) {
        let below = [ZoneKind::Dma, ZoneKind::Dma32, ZoneKind::Normal].map(|kind| ZoneId::new(node, kind));
        let zone = below.into_iter().find(|zone| self.limits_of(*zone).contains(pfn));
        let zone = zone.unwrap_or(ZoneId::new(node, ZoneKind::Movable));
        (zone, self.limits_of(zone).end)
    }

    /// The frames within a zone's limits, with or without memory (`arch_zone_lowest_possible_pfn` and
    /// `arch_zone_highest_possible_pfn`, cut by the Movable zone as in `adjust_zone_range_for_zone_movable`).
    pub(crate) fn limits_of(&self, zone: ZoneId) -> PfnRange {
        let movable = self.movable[zone.node().index()];
        let [dma, dma32] = self.limits;
        let (start, end) = match zone.kind() {
            ZoneKind::Dma => (Pfn(0), dma),
            ZoneKind::Dma32 => (dma, dma32),
            ZoneKind::Normal => (dma32, Pfn(u64::MAX)),
            ZoneKind::Movable => return PfnRange { start: movable, end: Pfn(u64::MAX) },
            ZoneKind::Device => return PfnRange::default(),
        };
        PfnRange { start, end: end.min(movable) }
    }

    /// Calls `visit` with each range of memory, cut at zone borders, and its zone.
    ///
    /// Neighbouring ranges of the same zone become one, as blocks merge across their border.
    pub(crate) fn for_each_range(&self, memory: &dyn MemorySource, visit: &mut dyn FnMut(PfnRange, ZoneId)) {
        let mut pending: Option<(PfnRange, ZoneId)> = None;
        memory.for_each_memory(&mut |range, node| {
            if node.index() >= MAX_NODES {
                // The survey refuses such ranges, so this one is new; the count of ranges then reveals the change.
                return;
            }
            let mut start = range.start;
            while start < range.end {
                let (zone, zone_end) = self.zone_at(start, node);
                let end = zone_end.min(range.end);
                match &mut pending {
                    Some((last, owner)) if *owner == zone && last.end == start => last.end = end,
                    _ => {
                        if let Some((last, owner)) = pending.replace((PfnRange { start, end }, zone)) {
                            visit(last, owner);
                        }
                    }
                }
                start = end;
            }
        });
        if let Some((last, owner)) = pending {
            visit(last, owner);
        }
    }
}

/// What a first pass over the memory finds.
struct Survey {
    nodes: usize,
    present: u64,
    reserved: usize,
    cma: usize,
}

fn survey(memory: &dyn MemorySource, config: &YardConfig<'_>) -> Result<Survey, BootError> {
    let mut found = Survey { nodes: 1, present: 0, reserved: 0, cma: 0 };
    let mut last = PfnRange::default();
    let mut problem = None;
    memory.for_each_memory(&mut |range, node| {
        if range.is_empty() {
            problem.get_or_insert(BootError::EmptyMemory(range));
        }
        if range.start < last.end {
            problem.get_or_insert(BootError::OverlappingMemory(last, range));
        }
        if node.index() >= MAX_NODES {
            problem.get_or_insert(BootError::TooManyNodes(node));
        }
        last = range;
        found.nodes = found.nodes.max(node.index() + 1);
        found.present = found.present.saturating_add(range.count().0);
    });
    let mut last = PfnRange::default();
    memory.for_each_reserved(&mut |range| {
        if range.start < last.start {
            problem.get_or_insert(BootError::UnorderedReserved(last, range));
        }
        last = range;
        found.reserved += 1;
    });
    memory.for_each_cma(&mut |_| found.cma += 1);
    if let Some(node) = config.cpus.iter().max() {
        if node.index() >= MAX_NODES {
            problem.get_or_insert(BootError::TooManyNodes(*node));
        }
        found.nodes = found.nodes.max(node.index() + 1);
    }
    match problem {
        Some(problem) => Err(problem),
        None if found.present == 0 => Err(BootError::NoMemory),
        None if found.present >= u64::from(u32::MAX) => Err(BootError::TooMuchMemory(PageCount(found.present))),
        None => Ok(found),
    }
}

/// The batch of per-CPU lists in a zone of that size, before anything is managed.
pub(super) fn planned_batch(config: &YardConfig<'_>, present: PageCount) -> PageCount {
    let zone = PcpZone { managed: present, low: PageCount(0), local_cpus: 1, online_cpus: 1 };
    config.pcp_sizing.sizes(config.geometry, zone).batch
}

/// How many ranges of memory there are, cut at zone borders, and how many words the zones need for what they have once per batch.
// Boot has a small stack: inlined, these counts would stay in the caller's frame.
#[inline(never)]
fn ranges_and_batch_words(memory: &dyn MemorySource, config: &YardConfig<'_>, cutter: &ZoneCutter) -> (usize, usize) {
    let mut ranges = 0;
    // The survey has refused memory of more frames.
    let mut present = [0_u32; MAX_NODES * ZoneKind::COUNT];
    cutter.for_each_range(memory, &mut |range, zone| {
        ranges += 1;
        let pages = &mut present[zone.index()];
        *pages = pages.saturating_add(u32::try_from(range.count().0).unwrap_or(u32::MAX));
    });
    let zones = present.iter().map(|pages| PageCount((*pages).into()));
    (ranges, batch_words(zones.map(|pages| (pages, planned_batch(config, pages)))))
}

impl Layout {
    /// Plans the yard of a machine. It touches no memory, and makes a few passes over the ranges of memory and one over
    /// the reserved ranges.
    ///
    /// # Errors
    ///
    /// [`BootError`] if the memory, the CPUs, the distances or another part of the configuration is invalid.
    pub fn plan(memory: &dyn MemorySource, config: &YardConfig<'_>) -> Result<Self, BootError> {
        let found = survey(memory, config)?;
        match config.cpus.len() {
            0 => return Err(BootError::NoCpus),
            1..=MAX_CPUS => {}
            count => return Err(BootError::TooManyCpus(count)),
        }
        let pairs = found.nodes * found.nodes;
        if let Some(given) = config.distances.map(<[u8]>::len).filter(|given| *given != pairs) {
            return Err(BootError::WrongDistances { given, expected: pairs });
        }
        let device_space = config.device_space.filter(|space| !space.is_empty()).unwrap_or_default();
        let runs = RunPlan::new(memory, config.geometry, device_space)?;
        let cutter = ZoneCutter::new(config.geometry, config.zone_limits, movable_starts(memory, config)?);
        let (ranges, batch_words) = ranges_and_batch_words(memory, config, &cutter);
        let counts = TableCounts {
            geometry: config.geometry,
            frames: runs.places,
            runs: runs.count,
            nodes: found.nodes,
            cpus: config.cpus.len(),
            ranges,
            reserved: found.reserved,
            cma: found.cma,
            batch_words,
            free_bits: config.policy.keeps_bits(),
            directories: usize::from(!device_space.is_empty()),
        };
        let plan = counts.plan().ok_or(BootError::TooLarge)?;
        let device_place = runs.device_place(memory);
        Ok(Self { runs, cutter, device_place, counts, plan, present: PageCount(found.present) })
    }

    /// The frames from the first to the last, holes included, rounded to whole sections.
    #[must_use]
    pub fn frames(&self) -> PfnRange {
        self.runs.span
    }

    /// Where in the memory map the page structures of [`YardConfig::device_space`] begin; `None` without room for devices.
    #[must_use]
    pub fn device_map_offset(&self) -> Option<ByteSize> {
        self.device_place.map(bytes_of_pages)
    }

    /// The tables of a yard that is planned so.
    ///
    /// # Safety
    ///
    /// As for [`Tables::carve`]; the region is as large as the layout says.
    pub(crate) unsafe fn carve(&self, control: NonNull<u8>) -> Option<Tables> {
        // SAFETY: passed on to the caller; the spans were planned without overlap.
        unsafe { Tables::carve(control, &self.plan) }
    }

    /// The number of frames of memory, reserved ones included.
    #[must_use]
    pub fn present(&self) -> PageCount {
        self.present
    }

    /// How many nodes the yard has.
    #[must_use]
    pub fn nodes(&self) -> u16 {
        self.counts.nodes as u16
    }

    /// The size of the memory map: 64 bytes for each frame of every section that has memory or room for devices.
    #[must_use]
    pub fn map_bytes(&self) -> ByteSize {
        bytes_of_pages(self.runs.places.0)
    }

    /// The size of the control region.
    #[must_use]
    pub fn control_bytes(&self) -> ByteSize {
        ByteSize(self.plan.bytes as u64)
    }
}

const fn bytes_of_pages(pages: u64) -> ByteSize {
    ByteSize(pages * size_of::<Page>() as u64)
}
