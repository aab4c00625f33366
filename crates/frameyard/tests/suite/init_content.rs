//! Every mode and every initialiser writes the same memory map, bit for bit.

use crate::fixture::{Fixture, run_on};
use crate::maps::{Machine, give_back, machine, pages_at_rest, reference, take_everything, ways};
use frameyard::boot::{InitMode, MapInit};
use frameyard::page::{FrameState, MapContent};
use frameyard::{NodeId, PageCount, Pfn, PfnRange};

/// Asserts that sections with memory equal the reference bit for bit, and that the map has no other sections.
fn assert_same_map(machine: &Machine, init: MapInit, fixture: &Fixture, expected: &Fixture) {
    let sections = machine.sections();
    let mut at = fixture.frame_range().start;
    let pages = machine.geometry.section_pages();
    while at < fixture.frame_range().end {
        let section = PfnRange::new(at, pages);
        if sections.contains(&section) {
            let found = pages_at_rest(fixture, section);
            for (found, expected) in found.iter().zip(pages_at_rest(expected, section)) {
                assert_eq!(*found, expected, "{}, {init:?}", machine.name);
            }
        } else {
            for pfn in (section.start.0..section.end.0).map(Pfn) {
                assert_eq!(fixture.map_offset(pfn), None, "{pfn} of an absent section, {}", machine.name);
            }
        }
        at = section.end;
    }
}

/// Asserts that each page structure of a section with memory was written once, and no other page structure was.
fn assert_written_once(machine: &Machine, init: MapInit, fixture: &Fixture) {
    let mut written = fixture.watch().written();
    written.sort_by_key(|range| range.start);
    assert!(written.windows(2).all(|pair| pair[0].end <= pair[1].start), "{}, {init:?}: twice", machine.name);
    let sections = machine.sections();
    let inside = |range: &PfnRange| -> PageCount {
        sections.iter().map(|section| section.intersection(*range)).map(PfnRange::count).sum()
    };
    assert!(written.iter().all(|range| inside(range) == range.count()), "{}, {init:?}: outside", machine.name);
    let pages = sections.len() as u64 * machine.geometry.section_pages().0;
    assert_eq!(fixture.watch().pages(), pages, "{}, {init:?}", machine.name);
}

fn initialises_identically(name: &str) {
    run_on(0);
    let machine = machine(name);
    for content in MapContent::ALL {
        let expected = machine.create_yard(reference(content));
        for init in ways(content) {
            let yard = machine.create_yard(init);
            if init.mode != InitMode::Eager {
                for node in (0..yard.nodes()).map(NodeId) {
                    yard.init().next_section(node).unwrap();
                }
                yard.validate().unwrap_or_else(|problem| panic!("{name}, {init:?}, half-way: {problem}"));
                yard.init().finish().unwrap();
            }
            assert_eq!(yard.init().deferred_pages(), PageCount(0));
            yard.validate().unwrap_or_else(|problem| panic!("{name}, {init:?}: {problem}"));
            assert_same_map(&machine, init, &yard, &expected);
            assert_written_once(&machine, init, &yard);
        }
    }
}

fn grows_identically(name: &str) {
    run_on(0);
    let machine = machine(name).with_free_lists();
    for content in MapContent::ALL {
        let expected = machine.create_yard(reference(content));
        for init in ways(content).into_iter().filter(|way| way.mode != InitMode::Eager && way.jobs.threads.is_none()) {
            let yard = machine.create_yard(init);
            let mut taken = Vec::new();
            take_everything(&yard, |pfn| taken.push(pfn));
            assert_eq!(
                taken.len() as u64,
                expected.stats().managed_pages().0,
                "{name}, {init:?}: some frames cannot be allocated"
            );
            assert_eq!(yard.init().deferred_pages(), PageCount(0));
            yard.validate().unwrap_or_else(|problem| panic!("{name}, {init:?}, half-way: {problem}"));
            give_back(&yard, &taken);
            yard.validate().unwrap_or_else(|problem| panic!("{name}, {init:?}: {problem}"));
            for range in yard.watch().written() {
                let same = pages_at_rest(&yard, range) == pages_at_rest(&expected, range);
                assert!(same, "{name}, {init:?}: {range} differs");
            }
            // No allocation initialises a section whose frames are all reserved.
            yard.init().finish().unwrap();
            assert_same_map(&machine, init, &yard, &expected);
            assert_written_once(&machine, init, &yard);
        }
    }
}

macro_rules! on_machines {
    ($($test:ident, $grown:ident, $name:literal);* $(;)?) => {
        $(
            #[test]
            fn $test() {
                initialises_identically($name);
            }

            #[test]
            fn $grown() {
                grows_identically($name);
            }
        )*
    };
}

on_machines! {
    holes_initialise_identically, holes_grow_identically, "holes";
    zones_in_one_section_initialise_identically, zones_in_one_section_grow_identically, "zones";
    nodes_in_one_section_initialise_identically, nodes_in_one_section_grow_identically, "nodes";
    fragments_initialise_identically, fragments_grow_identically, "fragmented";
    large_pageblocks_initialise_identically, large_pageblocks_grow_identically, "large pageblocks";
    tiny_blocks_initialise_identically, tiny_blocks_grow_identically, "tiny blocks";
    large_blocks_initialise_identically, large_blocks_grow_identically, "large blocks";
}

#[test]
fn reference_map_equals_the_machines_memory() {
    run_on(0);
    for machine in crate::maps::machines() {
        let yard = machine.create_yard(reference(MapContent::Zero));
        for (memory, _) in &machine.memory {
            for pfn in (memory.start.0..memory.end.0).map(Pfn) {
                let reserved = machine.reserved.iter().any(|range| range.contains(pfn));
                let expected = if reserved { FrameState::Reserved } else { FrameState::BuddyFree };
                assert_eq!(yard.stats().frame(pfn).map(|info| info.state), Some(expected), "{pfn} of {}", machine.name);
            }
        }
        for section in machine.sections() {
            for pfn in (section.start.0..section.end.0).map(Pfn) {
                if yard.zone_of(pfn).is_none() {
                    assert_eq!(yard.page_words(pfn), [0; 8], "the hole at {pfn} of {}", machine.name);
                }
            }
        }
    }
}
