//! Attaching to control regions whose tables say something else than what yards write there.

use crate::fixture::words::{self, FIRST_SPAN};
use crate::fixture::{Fixture, run_on};
use crate::maps::{machine, machines, way};
use frameyard::Yard;
use frameyard::boot::{AttachError, InitMode};

/// The tables, in the order of the header.
const ZONES: u64 = 4;
const SECTIONS: u64 = 5;
const RANGES: u64 = 7;
const FREE: u64 = 8;
const DEVICE_SECTIONS: u64 = 14;
const DEVICES: u64 = 15;
const RUNS: u64 = 16;
const ALLOCATION_MAP: u64 = 23;
/// Words of an entry of the tables of ranges: start, end, zone.
const RANGE_WORDS: u64 = 3;
/// The places of the numbers of CPUs, ranges, reserved ranges and contiguous memory areas, and of the free ranges in use.
const COUNTS: std::ops::Range<u64> = 16..20;
const FREE_RANGES: u64 = 21;
/// The places of the number of places and of runs.
const PLACES: [u64; 2] = [22, 23];
/// The places of the first and the end of the frames for devices in the header.
const DEVICE_SPACE: [u64; 2] = [14, 15];
/// Words of the table of devices: before the first row, and of a row: users, start, end, shape.
const FIRST_ROW: u64 = 16;

/// A word of the control region.
fn read(yard: &Fixture, place: u64) -> u64 {
    words::read(yard.control.raw(), place)
}

/// What attaching says while a word holds another value.
fn attached_with(yard: &Fixture, place: u64, value: u64) -> Result<(), AttachError> {
    let good = read(yard, place);
    words::write(yard.control.raw(), place, value);
    // SAFETY: the regions are the yard's; the view is dropped unused.
    let attached = unsafe { Yard::attach(yard.map.raw(), yard.control.raw(), yard.platform().clone()) }.map(|_| ());
    words::write(yard.control.raw(), place, good);
    attached
}

/// Where a table's first word is, and how many entries it has.
fn table(yard: &Fixture, id: u64) -> (u64, u64) {
    (read(yard, FIRST_SPAN + 2 * id) / 8, read(yard, FIRST_SPAN + 2 * id + 1))
}

#[test]
fn rejects_misplaced_ranges() {
    run_on(0);
    for machine in machines() {
        let yard = machine.create_yard(way(InitMode::Lazy));
        let map = yard.frame_range();
        let damaged = Err(AttachError::Damaged);
        for id in [RANGES, FREE] {
            let (first, entries) = table(&yard, id);
            let entries = if id == FREE { read(&yard, FREE_RANGES) } else { entries };
            assert!(entries > 1, "{}", machine.name);
            for place in (first..first + RANGE_WORDS * entries).filter(|place| (place - first) % RANGE_WORDS < 2) {
                for value in [map.start.0.wrapping_sub(1), map.end.0 + 1, u64::MAX, u64::MAX - 1] {
                    assert_eq!(attached_with(&yard, place, value), damaged, "{}, table {id}: {value:#x}", machine.name);
                }
                if place >= first + RANGE_WORDS {
                    let before = read(&yard, place - RANGE_WORDS);
                    assert_eq!(attached_with(&yard, place, before), damaged, "{}, table {id}", machine.name);
                }
            }
            for zone in (first + 2..first + RANGE_WORDS * entries).step_by(RANGE_WORDS as usize) {
                assert_eq!(attached_with(&yard, zone, 0xffff), damaged, "{}, table {id}", machine.name);
            }
        }
        assert_eq!(attached_with(&yard, 0, read(&yard, 0)), Ok(()));
    }
}

#[test]
fn rejects_runs_that_contradict_each_other() {
    run_on(0);
    let yard = machine("holes").create_yard(way(InitMode::Lazy));
    let (first, entries) = table(&yard, RUNS);
    assert!(entries > 1, "there are holes");
    for place in (first..first + RANGE_WORDS * entries).chain(PLACES) {
        let good = read(&yard, place);
        for value in [0, good.wrapping_sub(1), good + 1, good + 0x100, 1 << 32, u64::MAX - 0xff, u64::MAX] {
            let expected = if value == good { Ok(()) } else { Err(AttachError::Damaged) };
            assert_eq!(attached_with(&yard, place, value), expected, "word {place}: {value:#x} for {good:#x}");
        }
    }
}

#[test]
fn rejects_free_blocks_outside_memory() {
    run_on(0);
    let yard = machine("holes").create_yard(way(InitMode::Lazy));
    let (first, _) = table(&yard, FREE);
    let count = read(&yard, FREE_RANGES);
    let mut checked = 0;
    for entry in 0..count {
        let place = first + RANGE_WORDS * entry + 1;
        let end = read(&yard, place);
        let next = if entry + 1 < count { read(&yard, place + RANGE_WORDS - 1) } else { yard.frame_range().end.0 };
        let in_hole = yard.zone_of(frameyard::Pfn(end)).is_none() && end < next;
        if in_hole {
            assert_eq!(attached_with(&yard, place, end + 1), Err(AttachError::Damaged), "{end:#x}");
            checked += 1;
        }
    }
    assert!(checked >= 2, "{checked} ranges end where memory does");
}

#[test]
fn rejects_sections_that_contradict_memory() {
    run_on(0);
    for machine in machines() {
        let yard = machine.create_yard(way(InitMode::Lazy));
        let (first, count) = table(&yard, SECTIONS);
        for section in 0..count {
            let place = first + section / 2;
            let present = 1 << (16 + 32 * (section % 2));
            let flipped = read(&yard, place) ^ present;
            assert_eq!(attached_with(&yard, place, flipped), Err(AttachError::Damaged), "{} {section}", machine.name);
        }
    }
}

#[test]
fn zones_that_span_more_than_the_map_are_damage() {
    run_on(0);
    let yard = machine("zones").create_yard(way(InitMode::Lazy));
    let (zones, _) = table(&yard, ZONES);
    for value in [u64::MAX, yard.frame_range().end.0 + 1] {
        assert_eq!(attached_with(&yard, zones + 1, value), Err(AttachError::Damaged));
    }
}

#[test]
fn tables_of_the_wrong_length_are_damage() {
    run_on(0);
    let yard = machine("nodes").create_yard(way(InitMode::Lazy));
    for place in (0..=ALLOCATION_MAP).map(|id| FIRST_SPAN + 2 * id + 1).chain(COUNTS) {
        let count = read(&yard, place);
        for value in [count.wrapping_sub(1), count + 1, u64::MAX] {
            assert_eq!(attached_with(&yard, place, value), Err(AttachError::Damaged), "word {place}: {value}");
        }
    }
}

#[test]
fn rejects_device_space_outside_the_map() {
    let with_room = crate::devices::yard();
    let map = with_room.frame_range();
    let damaged = Err(AttachError::Damaged);
    for (place, values) in DEVICE_SPACE.into_iter().zip([[0, map.start.0.wrapping_sub(1)], [map.end.0 + 1, u64::MAX]]) {
        assert_eq!(attached_with(&with_room, place, values[1]), damaged, "{values:?}");
        assert_eq!(attached_with(&with_room, place, if place == 14 { u64::MAX } else { 0 }), damaged);
    }
    for id in [DEVICE_SECTIONS, DEVICES] {
        let place = FIRST_SPAN + 2 * id + 1;
        let count = read(&with_room, place);
        for value in [0, count - 1, count + 1, u64::MAX] {
            assert_eq!(attached_with(&with_room, place, value), damaged, "table {id}: {value}");
        }
    }
    let without = crate::devices::yard_with(frameyard::boot::MapInit::default(), None);
    assert_eq!(attached_with(&without, DEVICE_SPACE[1], 1), damaged);
}

#[test]
fn rejects_devices_that_lead_elsewhere() {
    use crate::devices::{HUGE, MEMORY, SECTION, SPACE, frames, request};
    use frameyard::devices::{MapLayout, Removal};
    let yard = crate::devices::yard();
    let damaged = Err(AttachError::Damaged);
    for layout in MapLayout::ALL {
        let range = frames(512, 2 * SECTION);
        let device = yard.devices().map(request(range, HUGE, layout)).unwrap();
        let row = table(&yard, DEVICES).0 + FIRST_ROW;
        let [start, end, shape] = [row + 1, row + 2, row + 3];
        assert_eq!((read(&yard, start), read(&yard, end)), (range.start.0, range.end.0), "the row is where it is");
        for value in [0, 512, range.start.0 + 1, range.start.0 + 512, range.end.0, MEMORY[0].0.start.0, !511] {
            assert_eq!(attached_with(&yard, start, value), damaged, "{layout}: {value:#x}");
        }
        for value in [0, range.start.0, range.end.0 - 1, SPACE.end.0, SPACE.end.0 + 512, !511] {
            assert_eq!(attached_with(&yard, end, value), damaged, "{layout}: {value:#x}");
        }
        let good = read(&yard, shape);
        // No device, other orders, and layouts, placements and nodes that do not exist.
        for value in
            [0, good & !0xff | 1, good & !0xff | 12, good | 0xff, good | 0xff00, good | 0xff_0000, good | 0xffff << 24]
        {
            assert_eq!(attached_with(&yard, shape, value), damaged, "{layout}: {value:#x}");
        }
        let (sections, count) = table(&yard, DEVICE_SECTIONS);
        assert_eq!(count, yard.frame_range().count().0 / SECTION);
        for section in 1..4 {
            let [entry, parts] = [sections + 2 * section, sections + 2 * section + 1];
            let (led, bits) = (read(&yard, entry), read(&yard, parts));
            assert_ne!(bits, 0, "section {section} has a part of the device");
            for value in [led + 1, led ^ 1 << 8, led ^ 1 << 32, led ^ 1 << 63, !led] {
                assert_eq!(attached_with(&yard, entry, value), damaged, "{layout}: {value:#x}");
            }
            if bits != u64::MAX {
                assert_eq!(attached_with(&yard, parts, u64::MAX), damaged, "{layout}");
            }
            assert_eq!(attached_with(&yard, parts, bits), Ok(()));
        }
        for section in [0, 5, count - 1] {
            assert_eq!(attached_with(&yard, sections + 2 * section + 1, 1), damaged, "{layout}");
        }
        yard.devices().unmap(device, Removal::Refuse).unwrap();
    }
}
