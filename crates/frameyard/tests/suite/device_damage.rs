//! The validator finds damage that is done to pages, sections and the table of devices on purpose, and names the equation.

use crate::devices::{HUGE, SECTION, SPACE, frames, request, yard};
use crate::fixture::Fixture;
use crate::fixture::words::{FIRST_SPAN, read, validated_with};
use frameyard::devices::{MapLayout, Removal};
use frameyard::units::ZoneKind;
use frameyard::validate::ValidateError;
use frameyard::{NodeId, Order, PageCount, Pfn, ZoneId};

/// The words of a page: its tag, and its counts.
const TAG: u64 = 0;
const COUNTS: u64 = 3;
/// Places in the header of the control region, and words of the table of devices before its first row.
const ZONES: u64 = 4;
const DEVICE_SECTIONS: u64 = 14;
const DEVICES: u64 = 15;
const FIRST_ROW: u64 = 16;

/// Where a word of a frame's own place in the map is.
fn in_map(yard: &Fixture, pfn: Pfn, word: u64) -> u64 {
    (pfn - yard.frame_range().start).0 * 8 + word
}

#[track_caller]
fn assert_device(problem: ValidateError, part: &str, pfn: Pfn) {
    let ValidateError::Device { device, what, at } = problem else { panic!("{problem}") };
    assert_eq!(device.number(), 0, "{problem}");
    assert!(what.contains(part) && at == pfn, "{problem}");
    assert!(problem.to_string().contains(part), "{problem}");
}

#[test]
fn damaged_pages_of_devices_are_found() {
    let yard = yard();
    let map = yard.map.raw();
    let range = frames(0, 2048);
    let head = frames(512, 1).start;
    let tail = head + PageCount(7);
    for layout in [MapLayout::Full, MapLayout::Deduplicated] {
        let device = yard.devices().map(request(range, HUGE, layout)).unwrap();
        let tag = read(map, in_map(&yard, head, TAG));
        for wrong in [0, tag ^ 1 << 8, tag ^ 1, tag ^ 1 << 32, tag | 1 << 60] {
            let problem = validated_with(&yard, map, in_map(&yard, head, TAG), wrong);
            assert_device(problem, "the tag of a page", head);
        }
        assert_device(validated_with(&yard, map, in_map(&yard, head, COUNTS), 0), "no reference", head);
        for word in 0..8 {
            assert_device(validated_with(&yard, map, in_map(&yard, tail, word), 1), "a tail", tail);
        }
        yard.devices().split(head).unwrap();
        yard.validate().unwrap();
        assert_device(validated_with(&yard, map, in_map(&yard, tail, TAG), 0), "the tag of a page", tail);
        assert_device(validated_with(&yard, map, in_map(&yard, tail, COUNTS), 0), "no reference", tail);
        yard.devices().unmap(device, Removal::Refuse).unwrap();
    }
    let device = yard.devices().map(request(range, HUGE, MapLayout::Folded)).unwrap();
    // Its structures lie in the first four places.
    let second = range.start + PageCount(1);
    assert_device(validated_with(&yard, map, in_map(&yard, second, COUNTS), 0), "no reference", head);
    let unused = range.start + PageCount(4);
    assert_device(validated_with(&yard, map, in_map(&yard, unused, TAG), 7), "where no structure lies", unused);
    yard.devices().unmap(device, Removal::Refuse).unwrap();
}

#[test]
fn damaged_device_tables_are_detected() {
    let yard = yard();
    let control = yard.control.raw();
    let table = |id: u64| read(control, FIRST_SPAN + 2 * id) / 8;
    let range = frames(512, SECTION);
    let device = yard.devices().map(request(range, Order::ZERO, MapLayout::Full)).unwrap();
    let section = |at: u64| table(DEVICE_SECTIONS) + 2 * at;
    let leads = "a section does not lead to its pages";
    assert_device(validated_with(&yard, control, section(1), 1 << 32), leads, range.start);
    assert_device(validated_with(&yard, control, section(1) + 1, 0), leads, range.start);
    let problem = validated_with(&yard, control, section(2) + 1, 3);
    assert_eq!(problem, ValidateError::NoDevice(SPACE.start + PageCount(SECTION)));
    let problem = validated_with(&yard, control, section(5) + 1, 1);
    assert_eq!(problem, ValidateError::NoDevice(Pfn(5 * SECTION)));
    let users = table(DEVICES) + FIRST_ROW;
    for wrong in [0, 1, 3, 2 | 1 << 8] {
        assert_device(
            validated_with(&yard, control, users, wrong),
            "a CPU maps, splits, joins or removes it",
            range.start,
        );
    }
    let second_row = users + 8;
    let unused = validated_with(&yard, control, users + 3, 0);
    assert!(matches!(unused, ValidateError::Device { what: "a row without device is not free", .. }), "{unused}");
    assert_eq!(read(control, second_row), 0);
    let id = ZoneId::new(NodeId(0), ZoneKind::Device);
    let zones = table(ZONES);
    let present = range.count().0;
    let facts = (zones..zones + 8192).find(|at| read(control, *at) == range.start.0).expect("the zone's first frame");
    for (word, wrong) in [(0, 0), (1, range.end.0 + 512), (2, present + 1), (3, 1)] {
        let problem = validated_with(&yard, control, facts + word, wrong);
        assert!(matches!(problem, ValidateError::Count { zone, .. } if zone == id), "{problem}");
    }
    yard.devices().unmap(device, Removal::Refuse).unwrap();
}
