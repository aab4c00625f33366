//! Batches in a table of pageblocks.

use std::boxed::Box;
use std::vec::Vec;

use super::*;
use crate::platform::plain::Plain;

const ORDER: Order = Order(9);

fn links(pageblocks: usize) -> BlockLinks<'static, Plain> {
    let table: Vec<AtomicU64> = (0..pageblocks).map(|_| AtomicU64::new(0)).collect();
    BlockLinks::new(Box::leak(table.into_boxed_slice()), ORDER, &Plain)
}

fn places(numbers: impl IntoIterator<Item = u32>) -> Vec<AtomicU32> {
    numbers.into_iter().map(|number| AtomicU32::new(number << ORDER.0)).collect()
}

fn unpacked(links: BlockLinks<'_, Plain>, head: Link) -> (Option<Link>, Vec<u32>) {
    let mut found = Vec::new();
    let below = links.unpack(head, |place| found.push(place >> ORDER.0));
    (below, found)
}

#[test]
fn batches_of_every_length_come_back_in_their_order() {
    let links = links(100);
    // Entries of earlier batches stay where they were.
    for len in (1..=HUGE_BATCH as u32).chain((1..=HUGE_BATCH as u32).rev()) {
        let numbers: Vec<u32> = (0..len).map(|at| (at * 37 + len) % 100).collect();
        let head = links.pack(&places(numbers.iter().copied())).expect("blocks of the map");
        assert_eq!(head, Link(numbers[0] + 1));
        links.set_below(head, Link(77));
        assert_eq!(unpacked(links, head), (Some(Link(77)), numbers.clone()), "{len} members");
        assert_eq!(links.below(head), Some(Link(77)));
    }
}

#[test]
fn a_batch_touches_half_as_many_entries_as_it_has_members() {
    let links = links(16);
    links.table.iter().for_each(|word| word.store(u64::MAX, Ordering::Relaxed));
    links.pack(&places(0..16)).unwrap();
    let written = links.table.iter().filter(|word| word.load(Ordering::Relaxed) != u64::MAX).count();
    assert_eq!(written, HUGE_BATCH / 2);
}

#[test]
fn what_is_no_batch_is_not_packed() {
    let links = links(20);
    assert_eq!(links.pack(&[]), None);
    assert_eq!(links.pack(&places([20])), None, "behind the table");
    assert_eq!(links.pack(&places(0..17)), None, "too many");
}

#[test]
fn damaged_links_end_a_walk() {
    let links = links(20);
    let head = links.pack(&places(0..16)).unwrap();
    for (damaged, value) in [(0, u64::from(u32::MAX)), (3, 21), (7, 30 << 32)] {
        let word = &links.table[damaged];
        let was = word.swap(value, Ordering::Relaxed);
        assert_eq!(unpacked(links, head).0, None, "entry {damaged}");
        word.store(was, Ordering::Relaxed);
    }
    assert_eq!(unpacked(links, Link(21)).0, None);
    assert_eq!(unpacked(links, Link::NONE).0, None);
    // A circle has as many members as a batch can have.
    links.table.iter().for_each(|word| word.store(entry(Link(1), Link(1)), Ordering::Relaxed));
    assert_eq!(unpacked(links, Link(1)).1.len(), HUGE_BATCH);
}
