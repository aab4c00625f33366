//! Batches in a table of pageblocks.

use std::boxed::Box;
use std::vec::Vec;

use super::*;
use crate::platform::plain::Plain;

const ORDER: Order = Order(9);

fn links(pageblocks: usize) -> BlockLinks<'static, Plain> {
    let table: Vec<BatchLine> = (0..pageblocks).map(|_| BatchLine::default()).collect();
    BlockLinks::new(Box::leak(table.into_boxed_slice()), ORDER, &Plain)
}

fn places(numbers: impl IntoIterator<Item = u32>) -> impl ExactSizeIterator<Item = u32> {
    numbers.into_iter().map(|number| number << ORDER.0).collect::<Vec<_>>().into_iter()
}

fn unpacked(links: BlockLinks<'_, Plain>, head: Link) -> (Option<Link>, Vec<u32>) {
    let mut found = Vec::new();
    let below = links.unpack(head, |place| found.push(place >> ORDER.0));
    (below, found)
}

#[test]
fn batches_of_every_length_come_back_in_their_order() {
    let links = links(100);
    // Each head has had a longer batch before.
    for len in (1..=HUGE_BATCH as u32).rev() {
        let numbers: Vec<u32> = (0..len).map(|at| (at * 37 + 5) % 100).collect();
        let head = links.pack(places(numbers.iter().copied())).expect("blocks of the map");
        assert_eq!(head, Link(numbers[0] + 1));
        links.set_below(head, Link(77));
        assert_eq!(unpacked(links, head), (Some(Link(77)), numbers.clone()), "{len} members");
        assert_eq!(links.below(head), Some(Link(77)));
    }
}

#[test]
fn what_is_no_batch_is_not_packed() {
    let links = links(20);
    assert_eq!(links.pack(places([])), None);
    assert_eq!(links.pack(places([20])), None, "behind the table");
    assert_eq!(links.pack(places(0..17)), None, "too many");
}

#[test]
fn damaged_places_end_a_walk() {
    let links = links(20);
    let head = links.pack(places(0..16)).unwrap();
    for place in [(3 << ORDER.0) + 1, 20 << ORDER.0, u32::MAX - 1] {
        let slot = &links.table[0].others[7];
        let was = slot.swap(place + 1, Ordering::Relaxed);
        assert_eq!(unpacked(links, head), (None, (0..8).collect()), "{place:#x}");
        slot.store(was, Ordering::Relaxed);
    }
    assert_eq!(unpacked(links, Link(21)).0, None);
    assert_eq!(unpacked(links, Link::NONE).0, None);
}
