//! Checks tables of devices that another process wrote: they lead only to existing page structures.

use crate::devices::section::Entry;
use crate::devices::{DeviceRequest, DeviceTables, MAX_ORDER, Plan, part_order};
use crate::memmap::Numbering;
use crate::units::{Geometry, Order, PfnRange, ZoneKind};

/// How often the check reads an entry that another process may be changing.
const LOOKS: u32 = 64;

/// Whether every device lies in the device space, and every section leads only to devices.
///
/// `numbering` is that of the map, `space` those reserved for devices. `is_memory` tells whether there is memory in a range. Other
/// processes may map and remove devices meanwhile, so the check reads a section again that leads nowhere.
pub(crate) fn devices_are_sound(
    tables: DeviceTables,
    (numbering, space): (Numbering, PfnRange),
    (geometry, zones): (Geometry, usize),
    is_memory: impl Fn(PfnRange) -> bool,
) -> bool {
    if space.is_empty() {
        return tables.sections.is_empty() && tables.directories.is_empty();
    }
    let in_map = numbering.places_of(space).map(|places| places.end - places.start).eq([space.count().0]);
    let (Some(directory), 1) = (tables.directories.first(), tables.directories.len()) else { return false };
    let plan = |request: DeviceRequest| {
        let DeviceRequest { range, node, order, .. } = request;
        let placed = range.start < range.end && range.intersection(space) == range && !is_memory(range);
        let unit = order.max(part_order(geometry));
        let aligned = order <= MAX_ORDER && range.start.is_aligned(unit) && range.end.is_aligned(unit);
        let sound = placed && aligned && node.index() < zones / ZoneKind::COUNT;
        sound.then(|| Plan::of(request, geometry).ok()).flatten()
    };
    let plans = || directory.devices().map(|(_, _, request)| plan(request));
    let complete = tables.sections.len() as u64 == numbering.places() >> geometry.section_pages_shift();
    in_map
        && complete
        && plans().all(|plan| plan.is_some())
        && tables.sections.iter().enumerate().all(|(at, section)| {
            let first = numbering.pfn((at << geometry.section_pages_shift()) as u32);
            let section_frames = PfnRange::new(first, geometry.section_pages());
            (0..LOOKS).any(|_| {
                let (entry, parts) = section.read();
                leads_to_devices(entry, parts, (section_frames, numbering), geometry, plans().flatten())
            })
        })
}

/// Whether each part of a section belongs to a device whose entry is that of the section.
fn leads_to_devices(
    entry: Entry,
    parts: u64,
    (section, numbering): (PfnRange, Numbering),
    geometry: Geometry,
    plans: impl Iterator<Item = Plan>,
) -> bool {
    let mut left = parts;
    let order = part_order(geometry);
    for plan in plans.filter(|plan| plan.entry(numbering).leads_as(entry)) {
        let frames = plan.data.intersection(section);
        let mut at = frames.start;
        while at < frames.end {
            left &= !(1 << (numbering.place(at) >> order.0 & 63));
            at = at + order.pages();
        }
    }
    debug_assert!(order >= Order(1));
    left == 0
}
