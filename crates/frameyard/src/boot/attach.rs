//! Attaching to a yard that another process created: from the header of its control region to its tables.

use core::ptr::NonNull;

use super::claims::words_for;
use super::tables::{HEADER_WORDS, HeaderWord, MAGIC, TABLES, Tables, VERSION};
use super::{AttachError, MAX_NODES, MapInit, ZONE_CHOICES};
use crate::control::{ControlRegion, TABLE_ALIGN, TableSpan};
use crate::devices::devices_are_sound;
use crate::sync::{AtomicU64, Ordering};
use crate::units::{ByteSize, Geometry, Order, Pfn, PfnRange, ZoneId, ZoneKind};
use crate::zone::Zone;
use crate::zone::transfer::TableSizes;

/// The contents of a yard's header.
#[derive(Clone, Copy)]
pub(crate) struct Attached {
    pub(crate) tables: Tables,
    pub(crate) geometry: Geometry,
    pub(crate) frames: PfnRange,
    pub(crate) map_init: MapInit,
}

/// Reads the header of a control region of at most `bytes` bytes.
///
/// # Safety
///
/// `control` points to `bytes` readable and writable bytes that stay mapped as long as the tables are used and
/// that are used as control region of a yard or not at all.
pub(crate) unsafe fn attach(control: NonNull<u8>, bytes: usize) -> Result<Attached, AttachError> {
    if !control.addr().get().is_multiple_of(TABLE_ALIGN) {
        return Err(AttachError::Misaligned);
    }
    // SAFETY: passed on to the caller; the header has this span and type in every yard.
    let header =
        unsafe { ControlRegion::new(control, bytes).table::<AtomicU64>(TableSpan { offset: 0, count: HEADER_WORDS }) };
    let header = header.ok_or(AttachError::TooSmall)?;
    let word = |word: HeaderWord| header[word as usize].load(Ordering::Relaxed);
    // Acquire: pairs with the Release in `init`, so that the rest of a finished yard is seen.
    if header[HeaderWord::Magic as usize].load(Ordering::Acquire) != MAGIC {
        return Err(AttachError::NoYard);
    }
    if word(HeaderWord::Version) != VERSION {
        return Err(AttachError::Version { found: word(HeaderWord::Version) });
    }
    if word(HeaderWord::Bytes) > bytes as u64 {
        return Err(AttachError::TooSmall);
    }
    let geometry = unpack_geometry(word(HeaderWord::Geometry)).ok_or(AttachError::Damaged)?;
    let frames = PfnRange { start: Pfn(word(HeaderWord::MapStart)), end: Pfn(word(HeaderWord::MapEnd)) };
    let mut spans = [TableSpan::default(); TABLES];
    for (span, words) in spans.iter_mut().zip(header[HeaderWord::FirstSpan as usize..].chunks(2)) {
        let [offset, count] = [words[0].load(Ordering::Relaxed), words[1].load(Ordering::Relaxed)];
        *span = TableSpan { offset: offset as usize, count: count as usize };
    }
    // SAFETY: passed on to the caller; a span outside the region is refused.
    let tables = unsafe { Tables::carve(control, bytes, &spans) }.ok_or(AttachError::Damaged)?;
    let map_init = MapInit::unpack(word(HeaderWord::MapInit)).ok_or(AttachError::Damaged)?;
    let found = Attached { tables, geometry, frames, map_init };
    if found.fits(word(HeaderWord::Nodes)) { Ok(found) } else { Err(AttachError::Damaged) }
}

impl Attached {
    /// Whether the table lengths fit together, and memory is where the map is.
    fn fits(&self, nodes: u64) -> bool {
        let Self { tables, geometry, frames, .. } = self;
        let Some(nodes) = usize::try_from(nodes).ok().filter(|nodes| (1..=MAX_NODES).contains(nodes)) else {
            return false;
        };
        let (cpus, zones) = (tables.cpu_nodes.len(), nodes * ZoneKind::COUNT);
        let lengths = [
            (tables.zones.len(), zones),
            (tables.distances.len(), nodes * nodes),
            (tables.zonelists.len(), nodes * Tables::zonelist_stride(nodes)),
            (tables.home_pcps.len(), cpus * ZONE_CHOICES),
            (tables.pcps.len(), cpus * zones),
            (tables.transfer_counters().0.len(), cpus * zones),
            (tables.sections.len(), (frames.count().0 >> geometry.section_pages_shift()) as usize),
            (tables.pageblocks.len(), (frames.count().0 >> geometry.pageblock_order().0) as usize),
            (tables.allocation_map.len(), frames.count().0 as usize),
            (tables.skip_hints.len(), tables.pageblocks.len().div_ceil(64)),
            (tables.range_ends.len(), tables.range_starts.len()),
            (tables.range_zones.len(), tables.range_starts.len()),
            (tables.free_ends.len(), tables.free_starts.len()),
            (tables.cma_ends.len(), tables.cma_starts.len()),
            (tables.claims.len(), words_for(frames.count().0 >> geometry.max_order().0) as usize),
        ];
        let pageblocks = tables.pageblocks.len();
        let sizes = TableSizes { cpus, zones, groups: 0, pageblocks, batch_words: 0 };
        // A map of more frames than links can name, or that begins inside a section, is no yard's.
        let section = geometry.section_pages().0;
        let sound_map = frames.count().0 < u64::from(u32::MAX) && frames.start.0.is_multiple_of(section);
        let nodes_exist = tables.cpu_nodes.iter().all(|node| usize::from(node.load(Ordering::Relaxed)) < nodes);
        let equal = lengths.iter().all(|(found, expected)| found == expected);
        cpus > 0
            && sound_map
            && equal
            && nodes_exist
            && tables.transfer.fit(tables.zones, &sizes)
            && self.memory_is_sound()
            && self.sections_have_memory()
            && self.devices_are_sound()
    }

    /// Whether ranges of memory ascend and lie in the map, free ones ascend and lie in those, areas lie in them, and zones
    /// span parts of the map.
    fn memory_is_sound(&self) -> bool {
        let Self { tables, frames, .. } = self;
        let ascends = |last: &mut Pfn, range: PfnRange| {
            let behind = *last <= range.start && !range.is_empty();
            *last = range.end;
            behind
        };
        let (mut last, mut last_free) = (frames.start, frames.start);
        let in_map = |(range, zone): (PfnRange, ZoneId)| {
            ascends(&mut last, range) && range.end <= frames.end && zone.index() < tables.zones.len()
        };
        let mut memory = tables.ranges().peekable();
        let in_memory = |free: PfnRange| {
            while memory.next_if(|(range, _)| range.end <= free.start).is_some() {}
            ascends(&mut last_free, free) && memory.peek().is_some_and(|(range, _)| range.intersection(free) == free)
        };
        let spans_map =
            |zone: &Zone| zone.span() == PfnRange::default() || zone.span().intersection(*frames) == zone.span();
        let is_memory = |area: PfnRange| tables.range_of(area.start).is_some_and(|(range, _)| area.end <= range.end);
        tables.ranges().all(in_map)
            && tables.free_ranges().all(in_memory)
            && tables.zones.iter().all(spans_map)
            && tables.cma_areas().all(|area| !area.is_empty() && is_memory(area))
    }

    /// Whether devices lie where they may, and sections lead to devices alone.
    fn devices_are_sound(&self) -> bool {
        let Self { tables, geometry, frames, .. } = self;
        let is_memory = |range| tables.ranges_in(range).next().is_some();
        let frames = (*frames, tables.device_space());
        devices_are_sound(tables.devices, frames, (*geometry, tables.zones.len()), is_memory)
    }

    /// Whether the table marks exactly the sections with memory as present. Sections without memory must not be
    /// touched.
    fn sections_have_memory(&self) -> bool {
        let Self { tables, geometry, frames, .. } = self;
        let place = |pfn: u64| ((pfn - frames.start.0) >> geometry.section_pages_shift()) as usize;
        let (mut next, mut with_memory) = (0, 0);
        for (range, _) in tables.ranges() {
            let sections = next.max(place(range.start.0))..place(range.end.0 - 1) + 1;
            if !sections.clone().all(|at| tables.section(at).is_present()) {
                return false;
            }
            with_memory += sections.len();
            next = next.max(sections.end);
        }
        (0..tables.sections.len()).filter(|at| tables.section(*at).is_present()).count() == with_memory
    }
}

fn unpack_geometry(packed: u64) -> Option<Geometry> {
    let byte = |at: u32| (packed >> (8 * at)) as u8;
    let size = |shift: u8| 1u64.checked_shl(u32::from(shift)).map(ByteSize);
    Geometry::new(size(byte(0))?, size(byte(1))?, Order(byte(2)), Order(byte(3))).ok()
}
