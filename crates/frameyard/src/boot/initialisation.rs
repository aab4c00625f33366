//! Map initialisation: writing the page structures of a part of the memory map, tagging its reserved blocks, and adding
//! its free blocks to their zones.
//!
//! | submodule | when |
//! |---|---|
//! | `early` | at the creation of the yard |
//! | `pass` | in a parallel pass over all deferred memory, with [`job`](crate::job) |
//! | `grow` | in an allocation that would otherwise fail or take blocks of another type |
//!
//! Until then, a part exists only in counts ([`DeferredFrames`](crate::zone::DeferredFrames)), and no CPU reads its
//! page structures.
//!
//! # Protocol
//!
//! 1. A worker claims the part ([`Claims`]). From then on it works on the part exclusively.
//! 2. It writes the pages with plain or streaming stores, then executes a fence.
//! 3. It tags the reserved blocks.
//! 4. It stores the type of each pageblock with Release. Until then the type is "no memory", so a CPU that looks up a
//!    frame by number does not read its page. A CPU that reads the type with Acquire sees steps 2 and 3. Holders of the
//!    zone lock also store later types with Release.
//! 5. It adds the free blocks to the zones' free lists under the zone locks. The locks order steps 1 to 5 before the
//!    allocation of these blocks.
//! 6. It subtracts the free blocks from the deferred frames. A CPU that reads zero deferred frames with Acquire finds
//!    the blocks on the lists.

use crate::boot::claims::Claims;
use crate::boot::{Poisoning, SectionEntry, Tables};
use crate::memmap::MapWriter;
use crate::page::{FrameState, MapContent, PageTemplate, Tag};
use crate::platform::{Activity, InitProgress, MapNotBacked, MemoryBacking, Platform, Probe};
use crate::store;
use crate::units::{Block, MigrateType, PageCount, Pfn, PfnRange, ZoneId};
use crate::zone::fixed_vec::FixedVec;
use crate::zone::{ZoneTables, ZoneView, poison};

mod early;
mod grow;
mod pass;

pub(crate) use grow::Growth;
pub(crate) use pass::Grain;

/// What map initialisation needs of a yard. Its methods initialise parts of the map.
pub(crate) struct Initialisation<'a, P> {
    pub(crate) tables: &'a Tables,
    pub(crate) zone_tables: &'a ZoneTables,
    pub(crate) poisoning: Poisoning,
    pub(crate) writer: MapWriter,
    pub(crate) platform: &'a P,
}

/// The result of initialising a part.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InitResult {
    /// Page structures that were written, holes included.
    pub(crate) pages: PageCount,
    /// Frames that became free.
    pub(crate) freed: PageCount,
    /// The first part whose page structures the platform had no memory for, if any.
    pub(crate) not_backed: Option<PfnRange>,
}

impl InitResult {
    pub(crate) fn add(&mut self, other: Self) {
        self.pages += other.pages;
        self.freed += other.freed;
        self.not_backed = self.not_backed.or(other.not_backed);
    }
}

/// A claim to pages that no CPU has begun to write. The drop gives it up, if the platform panics or has no memory for
/// them.
struct Unwritten {
    claims: Claims,
    run: PfnRange,
}

impl Drop for Unwritten {
    fn drop(&mut self) {
        self.claims.give_up(self.run);
    }
}

impl<P: Platform> Initialisation<'_, P> {
    pub(crate) fn claims(&self) -> Claims {
        self.tables.claims(self.zone_tables.map.numbering(), self.zone_tables.geometry)
    }

    /// The section that holds a frame.
    pub(crate) fn section_of(&self, pfn: Pfn) -> PfnRange {
        let pages = self.zone_tables.geometry.section_pages();
        PfnRange::new(Pfn(pfn.0 & !(pages.0 - 1)), pages)
    }

    /// The parts of a range that lie in one section each, ascending.
    pub(crate) fn sections_in(&self, range: PfnRange) -> impl Iterator<Item = PfnRange> {
        let mut rest = range;
        core::iter::from_fn(move || {
            let section = self.section_of(rest.start);
            let part = section.intersection(rest);
            rest.start = section.end;
            (!part.is_empty()).then_some(part)
        })
    }

    /// As [`sections_in`](Self::sections_in), without the parts that lie in holes of whole sections.
    pub(crate) fn present_sections_in(&self, range: PfnRange) -> impl Iterator<Item = PfnRange> {
        let mut rest = range;
        core::iter::from_fn(move || {
            rest.start = self.zone_tables.map.numbering().next_present(rest.start).min(rest.end);
            let part = self.section_of(rest.start).intersection(rest);
            rest.start = part.end;
            (!part.is_empty()).then_some(part)
        })
    }

    /// The table entry of the section that holds a frame; of no section in a hole.
    pub(crate) fn entry_of(&self, pfn: Pfn) -> SectionEntry {
        let map = self.zone_tables.map;
        self.tables.section(map.section_number(map.place(pfn)))
    }

    /// Claims and initialises every unclaimed maximum-order block that overlaps a range. The range lies in present sections.
    pub(crate) fn initialise(&self, range: PfnRange) -> InitResult {
        let mut result = InitResult::default();
        let claims = self.claims();
        claims.claim(range, &mut |run| match self.initialise_claimed(run, Unwritten { claims, run }) {
            Ok(part) => result.add(part),
            Err(MapNotBacked) => _ = result.not_backed.get_or_insert(run),
        });
        result
    }

    /// As [`initialise`](Self::initialise), section by section, without the sections that have no memory. Stops at the
    /// first part that the platform cannot back.
    pub(crate) fn initialise_sections(&self, range: PfnRange) -> InitResult {
        let mut result = InitResult::default();
        for part in self.present_sections_in(range).filter(|part| self.entry_of(part.start).is_present()) {
            result.add(self.initialise(part));
            if result.not_backed.is_some() {
                break;
            }
        }
        result
    }

    fn initialise_claimed(&self, run: PfnRange, unwritten: Unwritten) -> Result<InitResult, MapNotBacked> {
        let (first, bytes) = self.zone_tables.map.memory_of(run);
        self.platform.backing().back_map(run, first, bytes)?;
        core::mem::forget(unwritten);
        self.platform.probe().begin_activity(Activity::BringUp);
        self.write_pages(run);
        self.tag_reserved(run);
        self.publish_types(run);
        let freed = self.free(run);
        self.platform.probe().end_activity(Activity::BringUp, freed);
        self.platform.probe().init_progress(InitProgress::Written(run));
        Ok(InitResult { pages: run.count(), freed, not_backed: None })
    }

    fn write_pages(&self, run: PfnRange) {
        let (first, count) = self.zone_tables.map.structures(run);
        // SAFETY: the caller has claimed the run, and it lies in present sections, so its pages are mapped, and no
        // other CPU reads them before they are published.
        unsafe { self.writer.prepare(first, count) };
        if self.zone_tables.map.content() == MapContent::Zero {
            self.write_part(run, PageTemplate::ZERO);
        } else {
            self.sections_in(run).for_each(|part| self.write_section(part));
        }
        self.writer.finish();
        self.writer.passes().for_each(|pass| self.platform.probe().map_written(run, pass));
    }

    /// Writes a part of one section: each range of memory with its zone, holes without one.
    fn write_section(&self, part: PfnRange) {
        let mut at = part.start;
        for (range, zone) in self.tables.ranges_in(part) {
            self.write_part(PfnRange { start: at, end: range.start }, self.zone_tables.map.template(at, None));
            self.write_part(range, self.zone_tables.map.template(at, Some(zone)));
            at = range.end;
        }
        self.write_part(PfnRange { start: at, end: part.end }, self.zone_tables.map.template(at, None));
    }

    fn write_part(&self, part: PfnRange, template: PageTemplate) {
        if !part.is_empty() {
            let (first, count) = self.zone_tables.map.structures(part);
            // SAFETY: as in `write_pages`.
            unsafe { self.writer.write(first, count, template) };
        }
    }

    /// Tags the reserved blocks of a run.
    fn tag_reserved(&self, run: PfnRange) {
        for (memory, zone) in self.tables.ranges_in(run) {
            let mut at = memory.start;
            for (free, _) in self.tables.free_ranges_in(memory) {
                self.tag_reserved_range(PfnRange { start: at, end: free.start }, zone);
                at = free.end;
            }
            self.tag_reserved_range(PfnRange { start: at, end: memory.end }, zone);
        }
    }

    fn tag_reserved_range(&self, range: PfnRange, zone: ZoneId) {
        for Block { pfn, order } in range.blocks(self.zone_tables.geometry.max_order()) {
            let tag = Tag::new(FrameState::Reserved, order, MigrateType::Unmovable, zone);
            self.zone_tables.map.page(pfn, self.platform).set_tag(tag);
        }
    }

    fn publish_types(&self, run: PfnRange) {
        let blocks = self.zone_tables.blocks;
        for (memory, zone) in self.tables.ranges_in(run) {
            blocks.starts_in(memory).for_each(|pageblock| blocks.publish(pageblock, zone));
        }
    }

    fn free(&self, run: PfnRange) -> PageCount {
        let mut freed = PageCount(0);
        let mut free = self.tables.free_ranges_in(run).peekable();
        while let Some((first, zone)) = free.next() {
            self.fill_poison(first);
            let view = self.view(zone);
            let put = put_without_lock(view, first);
            // Memory whose zone cannot be locked is lost.
            let Ok(mut locked) = view.lock() else { break };
            locked.add_initialised(first, put.iter().copied());
            freed += first.count();
            // Without poisoning, one acquisition of the lock serves all blocks of the zone that need it.
            while self.poisoning == Poisoning::Off
                && let Some((range, _)) =
                    free.next_if(|(range, next)| *next == zone && !store::puts_initialised(view, *range))
            {
                locked.add_initialised(range, core::iter::empty());
                freed += range.count();
            }
        }
        freed
    }

    fn fill_poison(&self, range: PfnRange) {
        if self.poisoning == Poisoning::On {
            for Block { pfn, order } in range.blocks(self.zone_tables.geometry.max_order()) {
                // SAFETY: the caller initialises the frames, and they are on no list yet.
                unsafe { poison::fill(self.platform, self.zone_tables.geometry, pfn, order) };
            }
        }
    }

    fn view(&self, id: ZoneId) -> ZoneView<'_, P> {
        self.tables.zone_view(id, self.zone_tables, self.platform)
    }
}

/// The most parts of a range that are freed without the zone lock. Contiguous memory areas, which go to the free lists, lie between them.
const PARTS: usize = 8;

/// Frees what needs no zone lock of a range of initialised memory, the first [`PARTS`] parts. Returns these, ascending. The caller does not
/// hold the zone lock.
fn put_without_lock<P: Platform>(view: ZoneView<'_, P>, range: PfnRange) -> FixedVec<PfnRange, PARTS> {
    let (mut parts, mut rest) = (FixedVec::new(), range);
    for _ in 0..PARTS {
        let put = store::put_initialised(view, rest);
        if put.is_empty() {
            break;
        }
        parts.push(put);
        rest.start = put.end;
    }
    parts
}
