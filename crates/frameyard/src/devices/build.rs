//! Mapping a device: a row of the table, its page structures, and the sections that lead to them.

use core::ops::Range;

use crate::devices::{
    DeviceError, DeviceId, DeviceRequest, MAX_ORDER, MapLayout, MapPlacement, PageMap, Plan, zone_of,
};
use crate::job::{ParallelJob, RunError};
use crate::memmap::{Initialiser, MapWriter};
use crate::page::content::{COUNTS, PageTemplate};
use crate::page::{CountedPage, Counts, FrameState, MapContent, Tag};
use crate::platform::{MemoryBacking, Platform};
use crate::sync::{AtomicU64, Ordering, fence};
use crate::units::{MigrateType, Order, PageCount, Pfn, PfnRange, ZoneKind};

/// The reference that a device holds on each of its pages.
pub(super) const OWN: Counts = Counts { references: 1, mappings: 0 };

/// The fewest page structures (or heads among tails, each on its own map page) per thread.
const LEAST_STRUCTURES: u64 = 1 << 15;
const LEAST_HEADS: u64 = 1 << 8;

/// The first part of the map without memory: its first place plus 1 (0: none), and its end.
#[derive(Default)]
struct Missing {
    start: AtomicU64,
    end: AtomicU64,
}

impl Missing {
    fn set(&self, places: PfnRange) {
        if self.start.compare_exchange(0, places.start.0 + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            self.end.store(places.end.0, Ordering::Relaxed);
        }
    }

    fn is_set(&self) -> bool {
        self.start.load(Ordering::Relaxed) != 0
    }

    /// The part. Called when all workers have ended.
    fn places(&self) -> Option<PfnRange> {
        let start = self.start.load(Ordering::Relaxed).checked_sub(1)?;
        Some(PfnRange { start: Pfn(start), end: Pfn(self.end.load(Ordering::Relaxed)) })
    }
}

impl<P: Platform> PageMap<'_, P> {
    /// Maps a device; `memory` is the first part of its range that is memory. At most `threads` write its structures.
    pub(crate) fn map_device(
        &self,
        request: DeviceRequest,
        memory: Option<PfnRange>,
        threads: usize,
    ) -> Result<DeviceId, DeviceError> {
        let plan = self.plan_of(request)?;
        if let Some(memory) = memory {
            return Err(DeviceError::IsMemory { range: request.range, memory });
        }
        let id = self.claim(&plan)?;
        if let Err(problem) = self.write_structures(&plan, threads) {
            self.clear_structures(&plan, 1);
            self.release(id, &plan);
            return Err(problem);
        }
        let Some((directory, (row, _))) = self.directory().and_then(|found| Some((found, found.row(id)?))) else {
            return Err(DeviceError::NoSuchDevice(id));
        };
        // Before the sections lead here: a CPU that finds a page may map it.
        row.open();
        let entry = plan.entry(self.map.numbering()).written_by(id.generation());
        let entry = entry.with_gets(self.platform.backing().speculative_gets());
        directory.locked(self.platform, |_| {
            self.sections_of(plan.data).for_each(|(section, parts)| section.publish(entry, parts));
        })?;
        Ok(id)
    }

    /// Refuses a request that no yard of this geometry and space can serve.
    pub(super) fn admit(&self, request: &DeviceRequest) -> Result<(), DeviceError> {
        let DeviceRequest { range, node, order, layout, .. } = *request;
        if range.start >= range.end {
            return Err(DeviceError::Empty);
        }
        if order > MAX_ORDER {
            return Err(DeviceError::OrderTooLarge { order, max: MAX_ORDER });
        }
        let unit = order.max(self.part_order);
        if !range.start.is_aligned(unit) || !range.end.is_aligned(unit) {
            return Err(DeviceError::Unaligned { range, unit: unit.pages(), nearest: nearest(range, unit) });
        }
        if range.intersection(self.space) != range {
            return Err(DeviceError::OutsideDeviceSpace { range, space: self.space });
        }
        if node.index() >= self.zones.len() / ZoneKind::COUNT {
            return Err(DeviceError::NoSuchNode(node));
        }
        let content = self.map.content();
        if layout != MapLayout::Full && content != MapContent::Zero {
            return Err(DeviceError::ContentNotZero { layout, content });
        }
        Ok(())
    }

    /// Claims a row for the device, unless it conflicts with another device.
    fn claim(&self, plan: &Plan) -> Result<DeviceId, DeviceError> {
        let space = self.space;
        let range = plan.request.range;
        let directory = self.directory().ok_or(DeviceError::OutsideDeviceSpace { range, space })?;
        directory.locked(self.platform, |locked| {
            let overlaps =
                |other: &DeviceRequest| !range.intersection(other.range).is_empty() && range.start < other.range.end;
            // First: whether sections mix depends on the layout, this does not.
            if let Some((device, other)) = locked.requests().find(|(_, other)| overlaps(other)) {
                return Err(DeviceError::Overlaps { range, device, with: other.range });
            }
            for (device, other) in locked.requests() {
                let numbering = self.map.numbering();
                let alike = self.plan_of(other)?.entry(numbering).leads_as(plan.entry(numbering));
                let (ours, others) = (self.whole_sections(range), self.whole_sections(other.range));
                if !alike && ours.start < others.end && others.start < ours.end {
                    return Err(DeviceError::MixedSection { range, device, order: other.order, layout: other.layout });
                }
            }
            let claimed = locked.claim(&plan.request)?;
            self.count_zone(
                locked.requests().map(|(_, request)| request).filter(|request| self.admit(request).is_ok()),
                plan.request.node,
            );
            Ok(claimed)
        })?
    }

    fn whole_sections(&self, range: PfnRange) -> PfnRange {
        let pages = self.geometry.section_pages().0;
        PfnRange { start: Pfn(range.start.0 / pages * pages), end: Pfn(range.end.0.next_multiple_of(pages)) }
    }

    /// Releases the row of a removed device.
    pub(super) fn release(&self, id: DeviceId, plan: &Plan) {
        let Some(directory) = self.directory() else { return };
        // The row of a device whose table cannot be locked stays in use.
        let _ = directory.locked(self.platform, |locked| {
            locked.release(id);
            self.count_zone(
                locked.requests().map(|(_, request)| request).filter(|request| self.admit(request).is_ok()),
                plan.request.node,
            );
        });
    }

    /// Writes all structures that exist in the device's layout, in parallel.
    fn write_structures(&self, plan: &Plan, threads: usize) -> Result<(), DeviceError> {
        let range = plan.request.range;
        self.prepare(plan)?;
        let writer = MapWriter::new(Initialiser::Stream);
        let missing = Missing::default();
        let work = |numbers: Range<u64>| {
            // Release: pairs with the Acquire in `try_get_many`. A get may reach a count written here through a page of a former
            // device. It then sees that the sections of that device were withdrawn before the write.
            fence(Ordering::Release);
            if !missing.is_set() {
                let written = match plan.request.layout {
                    MapLayout::Folded => self.write_folded(plan, &writer, numbers),
                    MapLayout::Deduplicated if plan.has_shared_tails() => self.write_heads(plan, numbers),
                    _ if plan.has_shared_tails() => self.write_kept_pages(plan, &writer, numbers),
                    // If no map page holds only tails, there is nothing to share.
                    _ => self.write_full(plan, &writer, numbers),
                };
                written.unwrap_or_else(|places| missing.set(places));
            }
            writer.finish();
        };
        match (self.run_job(plan, threads, &work), missing.places()) {
            (Err(RunError::WorkerPanicked), _) => Err(DeviceError::WorkerPanicked),
            (Err(RunError::Job(_)), _) => Err(DeviceError::NoMapMemory(range)),
            (Ok(()), Some(_)) if plan.request.placement == MapPlacement::Device => {
                Err(DeviceError::NoMapInDevice(range))
            }
            (Ok(()), Some(places)) => Err(DeviceError::NoMapMemory(places)),
            (Ok(()), None) => Ok(()),
        }
    }

    /// Announces to the platform which parts of the map hold only tails.
    fn prepare(&self, plan: &Plan) -> Result<(), DeviceError> {
        if !plan.has_shared_tails() {
            return Ok(());
        }
        let (address, bytes) = self.map.memory_of(plan.data);
        let shared = self.platform.backing().share_tails(plan.data, plan.request.order, address, bytes);
        shared.map_err(|_| DeviceError::NoMapMemory(plan.data))
    }

    /// Runs `work` on all compound pages, by number, with at most `threads` workers.
    pub(super) fn run_job(
        &self,
        plan: &Plan,
        threads: usize,
        work: &(impl Fn(Range<u64>) + Sync),
    ) -> Result<(), RunError> {
        let structures = |least: u64| (least >> plan.request.order.0).max(1);
        let least = match plan.request.layout {
            MapLayout::Folded => LEAST_STRUCTURES,
            _ if plan.has_shared_tails() => LEAST_HEADS,
            _ => structures(LEAST_STRUCTURES),
        };
        // No two workers write the same map page.
        let align = 1 << super::plan::map_page_order(self.geometry).0;
        let job = ParallelJob { start: 0, size: plan.pages(), align, min_chunk: least, max_threads: threads.max(1) };
        job.run(self.platform, plan.request.node, &|_: &mut (), numbers| work(numbers), &|()| {})
    }

    /// Provides memory for places of the map.
    fn back(&self, plan: &Plan, places: PfnRange) -> Result<(), PfnRange> {
        let (address, bytes) = self.map.memory_of(places);
        let backed = match plan.request.placement {
            MapPlacement::Memory => self.platform.backing().back_map(places, address, bytes),
            MapPlacement::Device => self.platform.backing().place_map(plan.frames_holding(places), address, bytes),
        };
        backed.map_err(|_| places)
    }

    /// The fresh page structure of a frame of the device: that of a tail.
    pub(super) fn tail_template(&self, plan: &Plan, pfn: Pfn) -> PageTemplate {
        self.map.template(pfn, Some(zone_of(plan.request.node)))
    }

    /// The page structure of the head of a page of the device.
    fn head_template(&self, plan: &Plan, pfn: Pfn) -> PageTemplate {
        let mut template = self.tail_template(plan, pfn);
        template.0[0] = plan.tag(plan.request.order).bits();
        template.0[COUNTS] = template.0[COUNTS].wrapping_add(u64::from(OWN.references));
        template
    }

    fn write_full(&self, plan: &Plan, writer: &MapWriter, numbers: Range<u64>) -> Result<(), PfnRange> {
        let places = PfnRange { start: plan.head(numbers.start), end: plan.head(numbers.end) };
        self.back(plan, places)?;
        let order = plan.request.order;
        let mut at: Pfn = places.start;
        while at < places.end {
            // Kernel-like content names the section.
            let section_end = self.whole_sections(PfnRange::new(at, PageCount(1))).end.min(places.end);
            let (end, template) = match order {
                Order::ZERO => (section_end, self.head_template(plan, at)),
                _ if at.is_aligned(order) => (at + PageCount(1), self.head_template(plan, at)),
                _ => (section_end.min(Pfn(at.0 | (order.pages().0 - 1)) + PageCount(1)), self.tail_template(plan, at)),
            };
            let (first, count) = self.map.structures(PfnRange { start: at, end });
            // SAFETY: these places have memory and belong to the device, whose chunk only this worker writes. Look-ups of a former
            // device can still reach them, but only read words: that device's counts are zero.
            unsafe { writer.write(first, count, template) };
            at = end;
        }
        Ok(())
    }

    fn write_heads(&self, plan: &Plan, numbers: Range<u64>) -> Result<(), PfnRange> {
        for number in numbers {
            let head = plan.head(number);
            plan.kept_pages_of(head).try_for_each(|places| self.back(plan, places))?;
            let page = self.own_page(head);
            page.set_tag(plan.tag(plan.request.order));
            CountedPage::new(page, 0).set_counts(OWN);
        }
        Ok(())
    }

    /// Writes every structure in the map pages that remain. A written page takes memory, also if it holds only zeroes.
    fn write_kept_pages(&self, plan: &Plan, writer: &MapWriter, numbers: Range<u64>) -> Result<(), PfnRange> {
        for head in numbers.map(|number| plan.head(number)) {
            for places in plan.kept_pages_of(head) {
                self.back(plan, places)?;
                let heads = PageCount(u64::from(places.start == head));
                let templates = [(PageCount(0), heads, self.head_template(plan, head))];
                let tails = (heads, places.count() - heads, self.tail_template(plan, head));
                for (skip, count, template) in templates.into_iter().chain([tails]) {
                    let (first, count) = self.map.structures(PfnRange::new(places.start + skip, count));
                    // SAFETY: as in `write_full`.
                    unsafe { writer.write(first, count, template) };
                }
            }
        }
        Ok(())
    }

    fn write_folded(&self, plan: &Plan, writer: &MapWriter, numbers: Range<u64>) -> Result<(), PfnRange> {
        let places = PfnRange { start: plan.place_of(numbers.start), end: plan.place_of(numbers.end) };
        self.back(plan, places)?;
        let template = self.head_template(plan, places.start);
        let (first, count) = self.map.structures(places);
        // SAFETY: as in `write_full`.
        unsafe { writer.write(first, count, template) };
        Ok(())
    }
}

impl Plan {
    /// The tag of a page of the device.
    pub(super) fn tag(&self, order: Order) -> Tag {
        Tag::new(FrameState::Device, order, MigrateType::Movable, zone_of(self.request.node))
    }
}

/// The largest aligned range inside, or the smallest around where there is none inside.
fn nearest(range: PfnRange, unit: Order) -> PfnRange {
    let pages = unit.pages().0;
    let (start, end) = (range.start.0.checked_next_multiple_of(pages).unwrap_or(u64::MAX), range.end.0 / pages * pages);
    if start < end {
        return PfnRange { start: Pfn(start), end: Pfn(end) };
    }
    let end = range.end.0.checked_next_multiple_of(pages).unwrap_or(u64::MAX / pages * pages);
    PfnRange { start: range.start.align_down(unit), end: Pfn(end) }
}
