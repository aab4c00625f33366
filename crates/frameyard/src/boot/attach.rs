//! Attaching to a yard that another process created: from the header of its control region to its tables.

use core::ptr::NonNull;

use crate::boot::tables::{HEADER_WORDS, HeaderWord, MAGIC, TableCounts, Tables, VERSION};
use crate::boot::{AttachError, MAX_CPUS, MAX_NODES, MapInit};
use crate::control::{ControlRegion, TABLE_ALIGN, TableSpan};
use crate::devices::devices_are_sound;
use crate::memmap::{Numbering, RangeEntry};
use crate::sync::{AtomicU64, Ordering};
use crate::units::{ByteSize, Geometry, Order, PageCount, Pfn, PfnRange, ZoneId};
use crate::zone::Zone;

/// The contents of a yard's header.
#[derive(Clone, Copy)]
pub(crate) struct Attached {
    pub(crate) tables: Tables,
    pub(crate) geometry: Geometry,
    pub(crate) numbering: Numbering,
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
    // SAFETY: passed on to the caller.
    unsafe { read_yard(control, header) }.ok_or(AttachError::Damaged)
}

/// The yard that a header describes; `None` where header and tables contradict each other.
///
/// # Safety
///
/// As for [`attach`]; the region has the size that the header says.
unsafe fn read_yard(control: NonNull<u8>, header: &[AtomicU64]) -> Option<Attached> {
    let word = |word: HeaderWord| header[word as usize].load(Ordering::Relaxed);
    let spans = header[HeaderWord::FirstSpan as usize..].chunks_exact(2).map(|words| {
        let [offset, count] = [&words[0], &words[1]].map(|word| word.load(Ordering::Relaxed) as usize);
        TableSpan { offset, count }
    });
    // A table has fewer entries than the region has bytes.
    let count = |of: HeaderWord| usize::try_from(word(of)).ok().filter(|_| word(of) <= word(HeaderWord::Bytes));
    let counts = TableCounts {
        geometry: unpack_geometry(word(HeaderWord::Geometry))?,
        frames: PageCount(word(HeaderWord::Places)),
        runs: count(HeaderWord::Runs)?,
        nodes: count(HeaderWord::Nodes).filter(|nodes| (1..=MAX_NODES).contains(nodes))?,
        cpus: count(HeaderWord::Cpus).filter(|cpus| (1..=MAX_CPUS).contains(cpus))?,
        ranges: count(HeaderWord::Ranges)?,
        reserved: count(HeaderWord::Reserved)?,
        cma: count(HeaderWord::CmaAreas)?,
        batch_words: count(HeaderWord::BatchWords)?,
        free_bits: word(HeaderWord::FreeBits) == 1,
        directories: usize::from(word(HeaderWord::DeviceStart) < word(HeaderWord::DeviceEnd)),
    };
    let plan = counts.plan().filter(|plan| plan.bytes as u64 == word(HeaderWord::Bytes))?;
    if !spans.take(plan.tables.len()).eq(plan.tables) {
        return None;
    }
    // SAFETY: passed on to the caller.
    let tables = unsafe { Tables::carve(control, &plan)? };
    let free = tables.free.get(..count(HeaderWord::FreeRanges)?)?;
    let found = Attached {
        tables: Tables { free, ..tables },
        geometry: counts.geometry,
        numbering: tables.numbering(counts.geometry)?,
        map_init: MapInit::unpack(word(HeaderWord::MapInit))?,
    };
    let nodes_exist = tables.cpu_nodes.iter().all(|node| usize::from(node.load(Ordering::Relaxed)) < counts.nodes);
    let sound = found.numbering.is_sound()
        && nodes_exist
        && tables.store.fit(tables.zones, &counts.store())
        && found.memory_is_sound()
        && found.sections_have_memory()
        && found.devices_are_sound();
    sound.then_some(found)
}

impl Attached {
    /// Whether ranges of memory ascend and lie in the map, free ones ascend and lie in those, areas lie in them, and zones
    /// span parts of the map.
    fn memory_is_sound(&self) -> bool {
        let Self { tables, numbering, .. } = self;
        let frames = numbering.span();
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
        let in_memory = |(free, zone): (PfnRange, ZoneId)| {
            while memory.next_if(|(range, _)| range.end <= free.start).is_some() {}
            let inside = |(range, of): &(PfnRange, ZoneId)| range.intersection(free) == free && *of == zone;
            ascends(&mut last_free, free) && memory.peek().is_some_and(inside)
        };
        let spans_map =
            |zone: &Zone| zone.span() == PfnRange::default() || zone.span().intersection(frames) == zone.span();
        let is_memory = |area: PfnRange| tables.range_of(area.start).is_some_and(|(range, _)| area.end <= range.end);
        tables.ranges().all(in_map)
            && tables.free.iter().map(RangeEntry::get).all(in_memory)
            && tables.zones.iter().all(spans_map)
            && tables.cma_areas().all(|area| !area.is_empty() && is_memory(area))
    }

    /// Whether devices lie where they may, and sections lead to devices alone.
    fn devices_are_sound(&self) -> bool {
        let Self { tables, geometry, numbering, .. } = self;
        let is_memory = |range| tables.ranges_in(range).next().is_some();
        let frames = (*numbering, tables.device_space());
        devices_are_sound(tables.devices(), frames, (*geometry, tables.zones.len()), is_memory)
    }

    /// Whether memory lies in runs, and the table marks exactly the sections with memory as present.
    fn sections_have_memory(&self) -> bool {
        let Self { tables, geometry, numbering, .. } = self;
        let shift = geometry.section_pages_shift();
        // The frame behind the last section that was counted, and the number of sections.
        let (mut next, mut with_memory) = (Pfn(0), 0);
        for (range, _) in tables.ranges() {
            let rest = PfnRange { start: next.max(range.start), end: range.end };
            next = next.max(Pfn((((range.end.0 - 1) >> shift) + 1) << shift));
            if rest.is_empty() {
                continue;
            }
            let Some(places) = numbering.places_of(rest).next() else { return false };
            let mut sections = places.start >> shift..((places.end - 1) >> shift) + 1;
            with_memory += (sections.end - sections.start) as usize;
            let in_one_run = places.end - places.start == rest.count().0;
            if !in_one_run || !sections.all(|at| tables.section(at as usize).is_present()) {
                return false;
            }
        }
        (0..tables.sections.len()).filter(|at| tables.section(*at).is_present()).count() == with_memory
    }
}

fn unpack_geometry(packed: u64) -> Option<Geometry> {
    let byte = |at: u32| (packed >> (8 * at)) as u8;
    let size = |shift: u8| 1u64.checked_shl(u32::from(shift)).map(ByteSize);
    Geometry::new(size(byte(0))?, size(byte(1))?, Order(byte(2)), Order(byte(3))).ok()
}
