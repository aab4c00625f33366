//! Bringing a part of the memory map up: pages written, reserved blocks tagged, free ones handed to their zones.
//!
//! # Protocol
//!
//! 1. The part is claimed ([`Claims`]): from then on it is the caller's alone.
//! 2. Its pages are written, with plain or streaming stores, and fenced.
//! 3. Reserved blocks get their tags.
//! 4. The type of each of its pageblocks is stored with Release. Until then the type is "no memory", which keeps
//!    everybody who is given a frame number from looking at its page; who reads it with Acquire sees 2 and 3. A type
//!    that replaces it later is stored with Release, too, by a holder of the zone lock.
//! 5. Its free blocks join the zones' free lists under the zone locks, which hand all of it on to who allocates them.
//! 6. When they are counted as free, they are pending no more: who finds nothing pending, with Acquire, finds them.

use super::{Poisoning, SectionEntry, Tables};
use crate::memmap::{MapWriter, MemMap};
use crate::page::{FrameState, MapContent, PageTemplate, Tag};
use crate::platform::{Activity, InitProgress, MapNotBacked, Platform};
use crate::units::{Geometry, MigrateType, PageCount, Pfn, PfnRange, ZoneId};
use crate::zone::{PageblockMap, ZoneView, pieces, poison};

mod claims;
mod early;
mod grow;
mod pass;

pub(crate) use claims::Claims;
pub(super) use claims::words_for;
pub(crate) use grow::Growth;
pub(crate) use pass::{Grain, PassError};

/// What is needed to bring up parts of the memory map.
pub(crate) struct BringUp<'a, P> {
    pub(crate) tables: Tables,
    pub(crate) map: MemMap,
    pub(crate) geometry: Geometry,
    pub(crate) poisoning: Poisoning,
    pub(crate) writer: MapWriter,
    pub(crate) platform: &'a P,
}

/// What was brought up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Brought {
    /// Page structures, holes included.
    pub(crate) pages: PageCount,
    /// Frames that became free.
    pub(crate) freed: PageCount,
    /// A part for which there was no memory, if any.
    pub(crate) not_backed: Option<PfnRange>,
}

impl Brought {
    pub(crate) fn add(&mut self, other: Self) {
        self.pages += other.pages;
        self.freed += other.freed;
        self.not_backed = self.not_backed.or(other.not_backed);
    }
}

/// A claim to pages that nobody has begun to write. Given up when dropped: where there is no memory for them, or the
/// platform panicked instead of providing it.
struct Unwritten {
    claims: Claims,
    run: PfnRange,
}

impl Drop for Unwritten {
    fn drop(&mut self) {
        self.claims.give_up(self.run);
    }
}

impl<P: Platform> BringUp<'_, P> {
    pub(crate) fn claims(&self) -> Claims {
        self.tables.claims(self.map.range().start, self.geometry)
    }

    /// The section that holds a frame.
    pub(crate) fn section_of(&self, pfn: Pfn) -> PfnRange {
        let pages = self.geometry.section_pages();
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

    /// What is known of the section that holds a frame.
    pub(crate) fn entry_of(&self, pfn: Pfn) -> SectionEntry {
        let at = (pfn.0 - self.map.range().start.0) >> self.geometry.section_pages_shift();
        self.tables.section(at as usize)
    }

    fn blocks(&self) -> PageblockMap<'static> {
        PageblockMap::new(self.tables.pageblocks, self.map.range().start, self.geometry)
    }

    /// Claims and brings up every maximum-order block that a range touches, unless somebody else has. The range lies
    /// in present sections.
    pub(crate) fn bring_up(&self, range: PfnRange) -> Brought {
        let mut brought = Brought::default();
        let claims = self.claims();
        claims.claim(range, &mut |run| match self.bring_up_claimed(run, Unwritten { claims, run }) {
            Ok(part) => brought.add(part),
            Err(MapNotBacked) => _ = brought.not_backed.get_or_insert(run),
        });
        brought
    }

    /// As [`bring_up`](Self::bring_up), section by section, leaving out those without memory. Ends at the first that
    /// cannot be backed.
    pub(crate) fn bring_up_sections(&self, range: PfnRange) -> Brought {
        let mut brought = Brought::default();
        for part in self.sections_in(range).filter(|part| self.entry_of(part.start).is_present()) {
            brought.add(self.bring_up(part));
            if brought.not_backed.is_some() {
                break;
            }
        }
        brought
    }

    fn bring_up_claimed(&self, run: PfnRange, unwritten: Unwritten) -> Result<Brought, MapNotBacked> {
        let first = self.map.address(run.start);
        let bytes = run.count().0 as usize * size_of::<crate::page::Page>();
        self.platform.back_map(run, first.cast(), bytes)?;
        core::mem::forget(unwritten);
        self.platform.begin_activity(Activity::BringUp);
        self.write_pages(run);
        self.tag_reserved(run);
        self.publish_types(run);
        let freed = self.free(run);
        self.platform.end_activity(Activity::BringUp, freed);
        self.platform.init_progress(InitProgress::Written(run));
        Ok(Brought { pages: run.count(), freed, not_backed: None })
    }

    fn write_pages(&self, run: PfnRange) {
        // SAFETY: the run is claimed by the caller and in present sections of the map, so its pages are mapped, and
        // nobody else looks at them before they are published.
        unsafe { self.writer.prepare(self.map.address(run.start), run.count().0) };
        if self.map.content() == MapContent::Zero {
            self.write_part(run, PageTemplate::ZERO);
        } else {
            self.sections_in(run).for_each(|part| self.write_section(part));
        }
        self.writer.finish();
        self.writer.passes().for_each(|pass| self.platform.map_written(run, pass));
    }

    /// Writes a part of one section: each range of memory with its zone, holes without one.
    fn write_section(&self, part: PfnRange) {
        let mut at = part.start;
        for (range, zone) in self.tables.ranges_in(part) {
            self.write_part(PfnRange { start: at, end: range.start }, self.map.template(at, None));
            self.write_part(range, self.map.template(at, Some(zone)));
            at = range.end;
        }
        self.write_part(PfnRange { start: at, end: part.end }, self.map.template(at, None));
    }

    fn write_part(&self, part: PfnRange, template: PageTemplate) {
        if !part.is_empty() {
            // SAFETY: as in `write_pages`.
            unsafe { self.writer.write(self.map.address(part.start), part.count().0, template) };
        }
    }

    /// Tags what of the run's memory is not free.
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
        for (pfn, order) in pieces(range, self.geometry.max_order()) {
            let tag = Tag::new(FrameState::Reserved, order, MigrateType::Unmovable, zone);
            self.map.page(pfn, self.platform).set_tag(tag);
        }
    }

    fn publish_types(&self, run: PfnRange) {
        let blocks = self.blocks();
        for (memory, _) in self.tables.ranges_in(run) {
            let mut at = blocks.start_of(memory.start);
            while at < memory.end {
                blocks.publish(at);
                at = at + blocks.pages();
            }
        }
    }

    fn free(&self, run: PfnRange) -> PageCount {
        let mut freed = PageCount(0);
        let mut free = self.tables.free_ranges_in(run).peekable();
        while let Some((first, zone)) = free.next() {
            self.fill_poison(first);
            let view = self.view(zone);
            let mut locked = view.lock();
            locked.add_initialised(first);
            freed += first.count();
            // One holding of the lock for all that the zone gets, unless there is more to do about it.
            while self.poisoning == Poisoning::Off
                && let Some((range, _)) = free.next_if(|(_, next)| *next == zone)
            {
                locked.add_initialised(range);
                freed += range.count();
            }
        }
        freed
    }

    fn fill_poison(&self, range: PfnRange) {
        if self.poisoning == Poisoning::On {
            for (pfn, order) in pieces(range, self.geometry.max_order()) {
                // SAFETY: the frames are being initialised by the caller, and are on no list yet.
                unsafe { poison::fill(self.platform, self.geometry, pfn, order) };
            }
        }
    }

    fn view(&self, id: ZoneId) -> ZoneView<'_, P> {
        let zone = &self.tables.zones[id.index()];
        ZoneView {
            id,
            zone,
            map: self.map,
            blocks: self.blocks(),
            all_counters: self.tables.transfer_counters(),
            allocation_map: self.tables.allocation_map(self.map.range().start),
            mechanisms: self.tables.transfer.of(id, self.map.range().start, self.geometry),
            geometry: self.geometry,
            platform: self.platform,
        }
    }
}
