//! Writing the first contents of a yard: tables, sections, reserved and free blocks.

use core::ptr::NonNull;

use crate::boot::cache_groups::CacheGroups;
use crate::boot::layout::planned_batch;
use crate::boot::tables::{HeaderWord, MAGIC, VERSION};
use crate::boot::{
    BootError, InitMode, Initialisation, Layout, MAX_NODES, MemorySource, Poisoning, SectionEntry, Tables, YardConfig,
    ZONE_CHOICES,
};
use crate::memmap::{MapWriter, MemMap, Numbering};
use crate::page::Page;
use crate::platform::Platform;
use crate::sync::Ordering;
use crate::units::{CpuId, Geometry, MigrateType, NodeId, Pfn, PfnRange, ZoneId, ZoneKind};
use crate::zone::{Zone, ZoneTables};

/// Writes a yard into its map and its tables, and publishes its header. Returns the map.
///
/// `memory` may answer differently than at planning. Only tables that were checked are trusted, and memory that does
/// not fit them makes the creation fail.
///
/// Touches the part of the map that is initialised at creation; with
/// [`Initialiser::None`](crate::boot::Initialiser::None) one page structure for each free or reserved block of it.
///
/// # Safety
///
/// The tables are those of the layout ([`Layout::carve`]) in zeroed memory that nothing else uses. `map` points to
/// `layout.map_bytes()` bytes, zeroed unless the initialiser writes them, that nothing else uses and that stay mapped while the
/// tables are used.
pub(crate) unsafe fn init<P: Platform>(
    memory: &dyn MemorySource,
    config: &YardConfig<'_>,
    layout: &Layout,
    // Borrowed: they have 0.5 KiB, each copy is one in the frame below which the map is initialised, and boot has a small stack.
    tables: &mut Tables,
    map: NonNull<Page>,
    (writer, platform): (MapWriter, &P),
) -> Result<MemMap, BootError> {
    config.map_init.check(config.geometry, config.cpus.len())?;
    let mode = config.map_init.mode;
    write_header(tables, config, layout);
    tables.word(HeaderWord::Sequences).store(platform.has_sequences().into(), Ordering::Relaxed);
    write_cpus_and_distances(tables, config, layout);
    write_cache_groups(tables, config, layout)?;
    let numbering = write_runs(tables, memory, layout)?;
    // SAFETY: passed on to the caller; the map has as many page structures as there are places.
    let map = unsafe { MemMap::new(map, numbering, config.map_init.content, config.geometry) };
    write_ranges(tables, memory, map, layout)?;
    write_zonelists(tables);
    write_pcps(tables);
    write_free_ranges(tables, memory, config.geometry, layout)?;
    write_regions(tables, map, config.geometry);
    tables.zones.iter().for_each(|zone| zone.set_clean_regions(config.clean_regions));
    if mode == InitMode::Lazy {
        tables.zones.iter().for_each(Zone::count_deferred);
    }
    let initialisation = Initialisation {
        tables,
        zone_tables: &tables.zone_tables(map, config.geometry),
        poisoning: config.poisoning,
        writer,
        platform,
    };
    mark_cma(&initialisation, memory, mode)?;
    if !config.policy.is_built() {
        return Err(BootError::PolicyNotBuilt(config.policy));
    }
    if layout.counts.free_bits != config.policy.keeps_bits() {
        return Err(BootError::LayoutMismatch);
    }
    let batch = |present| planned_batch(config, present);
    tables.store.assign(tables.zones, config.policy, &batch).ok_or(BootError::LayoutMismatch)?;
    tables.zones.iter().for_each(|zone| zone.set_policy(config.policy));
    initialisation.at_creation(&config.map_init)?;
    tables.tune(platform, config.geometry, &config.watermarks, config.pcp_sizing)?;
    // Release: pairs with the Acquire in `attach`, which then sees a finished yard.
    tables.word(HeaderWord::Magic).store(MAGIC, Ordering::Release);
    Ok(map)
}

fn write_header(tables: &Tables, config: &YardConfig<'_>, layout: &Layout) {
    let geometry = config.geometry;
    let packed = u64::from(geometry.page_shift())
        | u64::from(geometry.section_size().0.trailing_zeros()) << 8
        | u64::from(geometry.pageblock_order().0) << 16
        | u64::from(geometry.max_order().0) << 24;
    let counts = layout.counts;
    let words = [
        (HeaderWord::Version, VERSION),
        (HeaderWord::Geometry, packed),
        (HeaderWord::MapStart, layout.runs.span.start.0),
        (HeaderWord::MapEnd, layout.runs.span.end.0),
        (HeaderWord::Nodes, counts.nodes as u64),
        (HeaderWord::Poisoning, u64::from(config.poisoning == Poisoning::On)),
        (HeaderWord::Checks, config.checks as u64),
        (HeaderWord::DefragMode, config.defrag_mode as u64),
        (HeaderWord::CleanRegions, config.clean_regions as u64),
        (HeaderWord::Bytes, layout.control_bytes().0),
        (HeaderWord::MapInit, config.map_init.pack()),
        (HeaderWord::Places, counts.frames.0),
        (HeaderWord::Runs, counts.runs as u64),
        (HeaderWord::DeviceStart, layout.runs.device_space.start.0),
        (HeaderWord::DeviceEnd, layout.runs.device_space.end.0),
        (HeaderWord::Cpus, counts.cpus as u64),
        (HeaderWord::Ranges, counts.ranges as u64),
        (HeaderWord::Reserved, counts.reserved as u64),
        (HeaderWord::CmaAreas, counts.cma as u64),
        (HeaderWord::BatchWords, counts.batch_words as u64),
        (HeaderWord::FreeBits, u64::from(counts.free_bits)),
    ];
    for (word, value) in words {
        tables.word(word).store(value, Ordering::Relaxed);
    }
    let spans = layout.plan.tables.iter().flat_map(|span| [span.offset, span.count]);
    for (word, value) in tables.header[HeaderWord::FirstSpan as usize..].iter().zip(spans) {
        word.store(value as u64, Ordering::Relaxed);
    }
}

fn write_cpus_and_distances(tables: &Tables, config: &YardConfig<'_>, layout: &Layout) {
    for (slot, node) in tables.cpu_nodes.iter().zip(config.cpus) {
        slot.store(node.0, Ordering::Relaxed);
    }
    for (at, slot) in tables.distances.iter().enumerate() {
        let default = if at / layout.counts.nodes == at % layout.counts.nodes { 10 } else { 20 };
        let distance = config.distances.map_or(default, |given| given[at]);
        slot.store(distance, Ordering::Relaxed);
    }
}

fn write_cache_groups(tables: &Tables, config: &YardConfig<'_>, layout: &Layout) -> Result<(), BootError> {
    if config.cpus.iter().any(|node| node.index() >= layout.counts.nodes) {
        return Err(BootError::LayoutMismatch);
    }
    let groups = CacheGroups::of(config);
    groups.count()?;
    groups.for_each(|cpu, group| {
        if let Some(slot) = tables.cache_groups.get(cpu.index()) {
            slot.store(group, Ordering::Relaxed);
        }
    });
    Ok(())
}

/// Writes the tables of runs and sections. Returns the numbering that follows from it.
fn write_runs(tables: &Tables, memory: &dyn MemorySource, layout: &Layout) -> Result<Numbering, BootError> {
    let mut entries = tables.runs.iter();
    let numbered = layout.runs.number(memory, |run, place| {
        if let Some(entry) = entries.next() {
            entry.set(run, place);
        }
    });
    let numbering =
        numbered.and_then(|()| tables.numbering(layout.counts.geometry)).ok_or(BootError::LayoutMismatch)?;
    numbering.write_sections();
    Ok(numbering)
}

/// Writes the range table and, from it, each zone's present pages and span, and the sections.
fn write_ranges(tables: &Tables, memory: &dyn MemorySource, map: MemMap, layout: &Layout) -> Result<(), BootError> {
    let (mut at, mut last) = (0, map.range().start);
    let mut as_planned = true;
    layout.cutter.for_each_range(memory, &mut |range, zone| {
        as_planned &= last <= range.start && range.start < range.end && range.end <= map.range().end;
        as_planned &= zone.index() < tables.zones.len();
        last = range.end;
        if let Some(entry) = tables.ranges.get(at).filter(|_| as_planned) {
            entry.set(range, zone);
        }
        at += 1;
    });
    if !as_planned || at != tables.ranges.len() {
        return Err(BootError::LayoutMismatch);
    }
    for (range, id) in tables.ranges() {
        let facts = &tables.zones[id.index()].facts;
        facts.present.fetch_add(range.count().0, Ordering::Relaxed);
        mark_sections(tables, map, range, id).ok_or(BootError::LayoutMismatch)?;
    }
    write_spans(tables, layout);
    Ok(())
}

/// Gives each zone that has memory the part of its node that lies within its limits, holes at its ends included
/// (`zone_spanned_pages_in_node`).
fn write_spans(tables: &Tables, layout: &Layout) {
    let mut nodes = [PfnRange { start: Pfn(u64::MAX), end: Pfn(0) }; MAX_NODES];
    for (range, id) in tables.ranges() {
        let node = &mut nodes[id.node().index()];
        *node = PfnRange { start: node.start.min(range.start), end: node.end.max(range.end) };
    }
    for (at, zone) in tables.zones.iter().enumerate() {
        let id = ZoneId(at as u16);
        if zone.facts.present.load(Ordering::Relaxed) > 0 {
            let span = layout.cutter.limits_of(id).intersection(nodes[id.node().index()]);
            zone.facts.start.store(span.start.0, Ordering::Relaxed);
            zone.facts.end.store(span.end.0, Ordering::Relaxed);
        }
    }
}

/// Marks the sections of a range of memory. `None` if it does not lie in one run.
fn mark_sections(tables: &Tables, map: MemMap, range: PfnRange, id: ZoneId) -> Option<()> {
    let places =
        map.numbering().places_of(range).next().filter(|places| places.end - places.start == range.count().0)?;
    let [first, last] = [places.start, places.end - 1].map(|place| map.section_number(place as usize));
    for section in &tables.sections[first..=last] {
        let entry = SectionEntry::from_bits(section.load(Ordering::Relaxed)).with(id);
        section.store(entry.bits(), Ordering::Relaxed);
    }
    // Ranges of one zone that follow each other are one range, so a section without holes lies in one.
    let first_whole = map.section_number(places.start.next_multiple_of(map.section_pages()) as usize);
    let end_whole = map.section_number(places.end as usize);
    for section in tables.sections.get(first_whole..end_whole).unwrap_or_default() {
        let entry = SectionEntry::from_bits(section.load(Ordering::Relaxed)).covered();
        section.store(entry.bits(), Ordering::Relaxed);
    }
    Some(())
}

/// Orders each node's zones by distance, then from the highest kind to the lowest (`build_zonelists`).
///
/// Of nodes at the same distance the one with the next higher number comes first, so that fallbacks of
/// different nodes spread.
fn write_zonelists(tables: &Tables) {
    let nodes = usize::from(tables.nodes());
    for node in 0..nodes {
        let mut order: [u16; MAX_NODES] = core::array::from_fn(|at| at as u16);
        order[..nodes].sort_unstable_by_key(|other| {
            let distance = tables.distance(NodeId(node as u16), NodeId(*other));
            (usize::from(*other) != node, distance, usize::from(*other) < node, *other)
        });
        let list = &tables.zonelists[node * Tables::zonelist_stride(nodes)..];
        let mut count = 0;
        for other in &order[..nodes] {
            for kind in [ZoneKind::Movable, ZoneKind::Normal, ZoneKind::Dma32, ZoneKind::Dma] {
                let id = ZoneId::new(NodeId(*other), kind);
                if tables.zones[id.index()].facts.present.load(Ordering::Relaxed) > 0 {
                    count += 1;
                    list[count].store(id.0, Ordering::Relaxed);
                }
            }
        }
        list[0].store(count as u16, Ordering::Relaxed);
    }
}

/// Writes the owner of each per-CPU list, and the home list of each CPU.
fn write_pcps(tables: &Tables) {
    let zones = tables.zones.len();
    for (at, pcp) in tables.pcps.iter().enumerate() {
        let zone = ZoneId((at % zones) as u16);
        if tables.zones[zone.index()].facts.present.load(Ordering::Relaxed) > 0 {
            pcp.assign(zone, CpuId((at / zones) as u32));
        }
    }
    for cpu in 0..tables.cpus() as usize {
        for choice in 0..ZONE_CHOICES {
            let home = tables.zonelist(tables.node_of_cpu(cpu)).find(|zone| zone.kind() as usize <= choice);
            let place = home.map_or(u32::MAX, |zone| (cpu * zones + zone.index()) as u32);
            tables.home_pcps[cpu * ZONE_CHOICES + choice].store(place, Ordering::Relaxed);
        }
    }
}

/// Writes the table of free memory, and from it the managed frames of each zone: cuts reserved ranges, which ascend by
/// their starts and may overlap, out of memory, which ascends without overlap.
fn write_free_ranges(
    tables: &mut Tables,
    memory: &dyn MemorySource,
    geometry: Geometry,
    layout: &Layout,
) -> Result<(), BootError> {
    let (mut count, mut reserved_ranges) = (0, 0);
    let mut add = |(free, zone): (PfnRange, ZoneId)| {
        if let Some(entry) = tables.free.get(count).filter(|_| !free.is_empty()) {
            entry.set(free, zone);
            tables.zones[zone.index()].deferred.add(free, geometry.max_order());
        }
        count += usize::from(!free.is_empty());
    };
    let mut ranges = tables.ranges();
    // What is left of the current range of memory.
    let mut rest = ranges.next();
    memory.for_each_reserved(&mut |reserved| {
        reserved_ranges += 1;
        while let Some((range, zone)) = rest.filter(|(range, _)| range.start < reserved.end && !reserved.is_empty()) {
            add((PfnRange { start: range.start, end: range.end.min(reserved.start) }, zone));
            let behind = PfnRange { start: range.start.max(reserved.end), end: range.end };
            rest = if behind.is_empty() { ranges.next() } else { Some((behind, zone)) };
        }
    });
    rest.into_iter().chain(ranges).for_each(&mut add);
    let as_planned = reserved_ranges == layout.counts.reserved;
    tables.set_free_ranges(count).filter(|()| as_planned).ok_or(BootError::LayoutMismatch)
}

/// Gives each whole region of free memory of one zone its record.
fn write_regions(tables: &Tables, map: MemMap, geometry: Geometry) {
    let order = geometry.largest_order();
    for (free, zone) in tables.free_ranges_in(map.range()) {
        let mut start = free.start.align_up(order);
        while let Some(at) = start.filter(|at| *at < free.end && free.end - *at >= order.pages()) {
            if let Some(region) = tables.regions.get(map.place(at) >> order.0) {
                region.assign(at, zone);
            }
            start = Some(at + order.pages());
        }
    }
}

/// Gives the pageblocks of contiguous memory areas their type before anything in them is freed. Areas are initialised
/// early even if the rest of the map is deferred, because a pageblock with a type promises initialised pages.
fn mark_cma(
    initialisation: &Initialisation<'_, impl Platform>,
    memory: &dyn MemorySource,
    mode: InitMode,
) -> Result<(), BootError> {
    let Initialisation { tables, zone_tables: ZoneTables { blocks, geometry, .. }, .. } = initialisation;
    let max_order = geometry.max_order();
    let mut problem = None;
    let mut last_end = Pfn(0);
    let mut count = 0;
    memory.for_each_cma(&mut |area| {
        let whole = area.start.is_aligned(max_order) && area.end.is_aligned(max_order) && !area.is_empty();
        let free = tables.free_ranges_in(area).next().filter(|(free, _)| *free == area);
        let Some((_, zone)) = free.filter(|_| whole && area.start >= last_end) else {
            problem.get_or_insert(BootError::BadCma(area));
            return;
        };
        last_end = area.end;
        if let Some(entry) = tables.cma.get(count) {
            entry.set(area, zone);
        }
        count += 1;
        blocks.starts_in(area).for_each(|pageblock| blocks.assign(pageblock, zone, MigrateType::Cma));
        tables.zones[zone.index()].facts.cma.fetch_add(area.count().0, Ordering::Relaxed);
        if mode != InitMode::Eager
            && let Some(missing) = initialisation.initialise(area).not_backed
        {
            problem.get_or_insert(BootError::MapNotBacked(missing));
        }
    });
    match problem {
        Some(problem) => Err(problem),
        None if count != tables.cma.len() => Err(BootError::LayoutMismatch),
        None => Ok(()),
    }
}
