//! The rows of the sweep, which of them this host has memory for, and in how many pieces.

use std::num::NonZeroU64;

use frameyard::devices::MapLayout;
use frameyard::{ByteSize, Geometry, Order};
use frameyard_host::{DeviceAlignment, HostTopology};
use frameyard_workloads::device_map::{DeviceShape, YardSharing};

use super::{DeviceMapArgs, NAME};
use crate::Failure;
use crate::output::RoundedSize;

/// Sizes of devices of compound pages, unless the command line says otherwise.
const SIZES: [ByteSize; 2] = [ByteSize::gib(256), ByteSize::gib(1024)];
/// Sizes of devices of base pages, unless the command line says otherwise. Each base page has a structure in every layout.
const SIZES_OF_BASE_PAGES: [ByteSize; 2] = [ByteSize::gib(16), ByteSize::gib(1024)];
/// The largest page structures that are written without `--full`.
const USUAL_LIMIT: ByteSize = ByteSize::gib(4);
/// Every device is a multiple of this, whatever its pages.
const LEAST: DeviceAlignment = DeviceAlignment::Huge;

/// Rows whose devices differ only in their layout. They are measured in alternation.
#[derive(Clone, Debug)]
pub(super) struct Group {
    pub(super) size: ByteSize,
    pub(super) geometry: DeviceAlignment,
    pub(super) yard: YardSharing,
    pub(super) cases: Vec<Case>,
}

/// One row.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) shape: DeviceShape,
    /// The number of equal pieces that are mapped one after another.
    pub(super) pieces: NonZeroU64,
    /// Why it is not measured.
    pub(super) left_out: Option<String>,
}

/// The rows of the command line. A row for which this host lacks memory is left out, or refused if the command line names sizes.
pub(super) fn groups(args: &DeviceMapArgs, host: &HostTopology) -> Result<Vec<Group>, Failure> {
    let available = host.available_memory().map_err(Failure::run_time)?;
    // An eighth stays for other programs.
    let usable = ByteSize(available.0 / 8 * 7);
    if let Some(piece) = args.piece.filter(|piece| !piece.0.is_power_of_two()) {
        return Err(Failure::input(format!("--piece {piece}: write a power of two")));
    }
    let asked = &args.geometries;
    let geometries: Vec<DeviceAlignment> = match (asked.is_empty(), args.sizes.is_empty()) {
        (false, _) => asked.clone(),
        (true, true) => DeviceAlignment::ALL.to_vec(),
        (true, false) => vec![DeviceAlignment::Huge, DeviceAlignment::Gigantic],
    };
    let yards: &[YardSharing] = if args.yards.is_empty() { &[YardSharing::Private] } else { &args.yards };
    let most = if args.full.full { ByteSize(u64::MAX) } else { USUAL_LIMIT };
    let group = |size, geometry, yard, layouts: &[MapLayout]| {
        let case = |&layout: &MapLayout| {
            let shape = DeviceShape { size, order: geometry_order(geometry), layout };
            let pieces = pieces(shape, geometry, usable, args.piece.unwrap_or(size));
            Case { shape, pieces, left_out: left_out(shape, (geometry, pieces), usable, most) }
        };
        Group { size, geometry, yard, cases: layouts.iter().map(case).collect() }
    };
    let mut groups = Vec::new();
    for geometry in geometries {
        let usual: &[ByteSize] = if geometry == DeviceAlignment::Base { &SIZES_OF_BASE_PAGES } else { &SIZES };
        for &size in if args.sizes.is_empty() { usual } else { &args.sizes } {
            check_size(size, geometry)?;
            groups.extend(yards.iter().map(|yard| group(size, geometry, *yard, &args.layouts)));
        }
    }
    if args.sizes.is_empty() && asked.is_empty() && args.yards.is_empty() {
        // The largest device shows what several processes share. The layout `full` adds nothing there.
        let layouts: Vec<MapLayout> =
            args.layouts.iter().copied().filter(|layout| *layout != MapLayout::Full).collect();
        groups.push(group(SIZES[1], DeviceAlignment::Gigantic, YardSharing::Shared, &layouts));
    }
    let refused = groups.iter().flat_map(|group| &group.cases).find_map(|case| case.left_out.as_deref());
    match refused.filter(|_| !args.sizes.is_empty()) {
        Some(reason) => Err(Failure::input(format!("{NAME}: {reason}"))),
        None => Ok(groups),
    }
}

fn geometry_order(geometry: DeviceAlignment) -> Order {
    geometry.order(Geometry::X86_64)
}

/// The fewest pieces of at most `most` bytes each that memory suffices for. The number is a power of two. If there is no such
/// number, the most pieces that consist of whole pages.
fn pieces(shape: DeviceShape, geometry: DeviceAlignment, usable: ByteSize, most: ByteSize) -> NonZeroU64 {
    let units = shape.size.0 / geometry.max(LEAST).size().0;
    let mut numbers = (0..=units.trailing_zeros()).filter_map(|doublings| NonZeroU64::new(1 << doublings));
    let fits = |piece: DeviceShape| piece.needs() <= usable && piece.size <= most;
    let last = numbers.clone().next_back().unwrap_or(NonZeroU64::MIN);
    numbers.find(|number| fits(shape.piece(*number))).unwrap_or(last)
}

/// Why a row is not measured: it lacks memory, or it would take long.
fn left_out(
    shape: DeviceShape,
    (geometry, pieces): (DeviceAlignment, NonZeroU64),
    usable: ByteSize,
    most: ByteSize,
) -> Option<String> {
    let needed = shape.piece(pieces).needs();
    let what = format!("{} of {geometry} pages with layout {} takes {}", shape.size, shape.layout, RoundedSize(needed));
    let others = "choose another --layout, larger pages (--geometry), or a smaller --size";
    if needed > usable {
        return Some(format!("{what} of memory, and {} can be used here: {others}", RoundedSize(usable)));
    }
    (shape.map_bytes() > most).then(|| format!("{what} of memory, which takes long: add --full, or {others}"))
}

fn check_size(size: ByteSize, geometry: DeviceAlignment) -> Result<(), Failure> {
    let unit = geometry.max(LEAST);
    let bytes = unit.size().0;
    if size.0.is_multiple_of(bytes) {
        return Ok(());
    }
    let above = size.0.checked_next_multiple_of(bytes).map(ByteSize);
    let below = ByteSize(size.0 / bytes * bytes);
    let nearest = match above {
        Some(above) if below.0 == 0 => above.to_string(),
        Some(above) => format!("{below} and {above}"),
        None => below.to_string(),
    };
    Err(Failure::input(format!(
        "--size {size}: devices of {geometry} pages are multiples of {unit}; nearest: {nearest}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(size: ByteSize, geometry: DeviceAlignment, layout: MapLayout) -> DeviceShape {
        DeviceShape { size, order: geometry_order(geometry), layout }
    }

    #[test]
    fn a_row_without_memory_is_left_out_with_a_reason() {
        let of = |geometry, layout, available| {
            let most = ByteSize(u64::MAX);
            let shape = shape(ByteSize::gib(1024), geometry, layout);
            left_out(shape, (geometry, NonZeroU64::MIN), ByteSize::gib(available), most)
        };
        let reason = of(DeviceAlignment::Huge, MapLayout::Full, 16).unwrap();
        assert!(
            reason.contains("1T of 2M pages with layout full takes 16") && reason.contains("smaller --size"),
            "{reason}"
        );
        assert_eq!(of(DeviceAlignment::Huge, MapLayout::Full, 17), None);
        assert_eq!(of(DeviceAlignment::Huge, MapLayout::Deduplicated, 3), None);
        assert!(of(DeviceAlignment::Huge, MapLayout::Deduplicated, 2).is_some());
        assert_eq!(of(DeviceAlignment::Gigantic, MapLayout::Folded, 1), None);
        // Base pages have only heads.
        assert!(of(DeviceAlignment::Base, MapLayout::Deduplicated, 16).is_some());
    }

    #[test]
    fn a_device_without_memory_for_its_whole_map_comes_in_pieces() {
        let of = |size, geometry, usable, most| {
            pieces(shape(size, geometry, MapLayout::Full), geometry, ByteSize::gib(usable), most).get()
        };
        let tib = ByteSize::gib(1024);
        assert_eq!(of(tib, DeviceAlignment::Base, 17, tib), 1);
        // Page tables take a little more than 16 GiB.
        assert_eq!(of(tib, DeviceAlignment::Base, 16, tib), 2);
        assert_eq!(of(tib, DeviceAlignment::Gigantic, 3, tib), 8);
        assert_eq!(of(tib, DeviceAlignment::Base, 17, ByteSize::gib(64)), 16);
        // Three pages of 1 GiB have no half of whole pages.
        assert_eq!(of(ByteSize::gib(3), DeviceAlignment::Gigantic, 0, tib), 1);
    }

    #[test]
    fn a_long_row_is_left_out_without_full() {
        let full = |size| {
            let shape = shape(size, DeviceAlignment::Huge, MapLayout::Full);
            left_out(shape, (DeviceAlignment::Huge, NonZeroU64::MIN), ByteSize::gib(64), USUAL_LIMIT)
        };
        assert_eq!(full(ByteSize::gib(256)), None);
        assert!(full(ByteSize::gib(257)).unwrap().contains("add --full"));
    }

    #[test]
    fn sizes_are_multiples_of_the_pages() {
        assert!(check_size(ByteSize::gib(3), DeviceAlignment::Gigantic).is_ok());
        let says = |size, geometry| check_size(size, geometry).unwrap_err().to_string();
        assert!(says(ByteSize::mib(1500), DeviceAlignment::Gigantic).contains("nearest: 1G and 2G"));
        assert!(says(ByteSize::mib(1), DeviceAlignment::Base).contains("multiples of 2M; nearest: 2M"));
    }
}
