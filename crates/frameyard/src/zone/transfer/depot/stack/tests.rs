//! A stack by itself, on a map of a few pages.

use core::ptr::NonNull;
use std::vec::Vec;

use super::*;
use crate::memmap::Numbering;
use crate::page::{MapContent, Page};
use crate::platform::plain::Plain;
use crate::units::{Geometry, PageCount, Pfn, PfnRange};

struct Fixture {
    _pages: Vec<Page>,
    map: MemMap,
    stack: BatchStack,
}

impl Fixture {
    fn new() -> Self {
        let pages: Vec<Page> = (0..16).map(|_| Page::default()).collect();
        let range = PfnRange::new(Pfn(0x100), PageCount(16));
        let base = NonNull::from(&pages[0]);
        // SAFETY: as many pages as the range has frames; they live as long as the fixture.
        let map = unsafe { MemMap::new(base, Numbering::without_holes(range), MapContent::Zero, Geometry::X86_64) };
        Self { _pages: pages, map, stack: BatchStack::default() }
    }

    fn links(&self) -> PageLinks<'_, Plain> {
        PageLinks { map: self.map, platform: &Plain }
    }

    fn push(&self, head: u32) {
        self.stack.count_coming(1);
        self.stack.push(self.links(), &Plain, Link(head), Link(head));
    }

    fn pop(&self) -> Option<u32> {
        let head = self.stack.pop(self.links(), &Plain)?;
        self.stack.count_popped(1);
        Some(head.0)
    }

    fn seen(&self, most: usize) -> Seen {
        self.stack.top(self.links(), Ordering::Acquire).seen(self.links(), most).expect("a batch")
    }

    /// Pops up to `most` batches together and follows their links.
    fn pop_some(&self, most: usize) -> Vec<u32> {
        let Some(chain) = self.stack.pop_some(self.links(), &Plain, most) else { return Vec::new() };
        self.stack.count_popped(chain.batches as u64);
        let mut heads = Vec::from([chain.first.0]);
        while heads.len() < chain.batches {
            heads.push(self.links().below(Link(heads[heads.len() - 1])).expect("a head").0);
        }
        assert_eq!(heads.last(), Some(&chain.last.0));
        assert!(heads.len() == 1 || self.links().below(chain.last) == Some(Link::NONE), "the last link leads on");
        heads
    }
}

#[test]
fn batches_are_popped_in_reverse_order_and_counted() {
    let fixture = Fixture::new();
    [3, 1, 16].into_iter().for_each(|head| fixture.push(head));
    assert_eq!(fixture.stack.held_racy(), 3);
    assert_eq!([(); 4].map(|()| fixture.pop()), [Some(16), Some(1), Some(3), None]);
    assert_eq!(fixture.stack.held_racy(), 0);
    assert!(fixture.stack.is_empty_racy(fixture.links()));
}

#[test]
fn a_chain_is_pushed_and_detached_as_a_whole() {
    let fixture = Fixture::new();
    fixture.push(9);
    let page = |link: u32| fixture.map.page(fixture.map.linked(Link(link)).unwrap(), &Plain);
    page(4).set_next(Link(5));
    fixture.stack.count_coming(2);
    fixture.stack.push(fixture.links(), &Plain, Link(4), Link(5));
    let first = fixture.stack.detach(fixture.links());
    assert_eq!([first.0, page(4).next().0, page(5).next().0, page(9).next().0], [4, 5, 9, 0]);
    assert_eq!(fixture.stack.detach(fixture.links()), Link::NONE);
}

#[test]
fn a_pop_between_its_reads_and_its_exchange_fails_however_often_the_batch_returns() {
    let fixture = Fixture::new();
    [1, 2, 3].into_iter().for_each(|head| fixture.push(head));
    let standing = fixture.seen(1);
    assert_eq!((standing.chain.first, standing.next), (Link(3), Link(2)));
    for round in 0..100_000u32 {
        // Batch 3 leaves, the batch below it leaves or stays, and batch 3 is on top again.
        assert_eq!(fixture.pop(), Some(3));
        let below = fixture.pop().unwrap();
        if round % 3 > 0 {
            fixture.push(below);
        }
        fixture.push(3);
        if round % 3 == 0 {
            assert!(fixture.stack.take(standing).is_err(), "batch {below} would be on the stack twice");
            assert_eq!([fixture.pop(), Some(below)], [Some(3), Some(below)]);
            fixture.push(below);
            fixture.push(3);
        }
        assert!(fixture.stack.take(standing).is_err());
    }
    assert_eq!(
        [fixture.pop(), fixture.pop(), fixture.pop(), fixture.pop()].map(|found| found.is_some()),
        [true, true, true, false]
    );
}

#[test]
fn a_pop_whose_batch_is_detached_and_returns_meanwhile_fails() {
    let fixture = Fixture::new();
    [1, 2].into_iter().for_each(|head| fixture.push(head));
    let standing = fixture.seen(1);
    assert_eq!(fixture.stack.detach(fixture.links()), Link(2));
    fixture.push(2);
    assert!(fixture.stack.take(standing).is_err());
    assert_eq!((fixture.pop(), fixture.pop()), (Some(2), None));
}

#[test]
fn several_batches_are_popped_together_in_their_order() {
    let fixture = Fixture::new();
    (1..=7).for_each(|head| fixture.push(head));
    assert_eq!(fixture.pop_some(1), [7]);
    assert_eq!(fixture.pop_some(3), [6, 5, 4]);
    assert_eq!(fixture.stack.held_racy(), 3);
    assert_eq!(fixture.pop_some(16), [3, 2, 1], "all there are");
    assert!(fixture.pop_some(2).is_empty());
}

#[test]
fn a_pop_of_several_fails_if_one_of_them_has_left_meanwhile() {
    let fixture = Fixture::new();
    (1..=3).for_each(|head| fixture.push(head));
    let standing = fixture.seen(2);
    assert_eq!((standing.chain.last, standing.next), (Link(2), Link(1)));
    // Batch 2 leaves, and batch 3 is on top as before.
    assert_eq!((fixture.pop(), fixture.pop()), (Some(3), Some(2)));
    fixture.push(3);
    assert!(fixture.stack.take(standing).is_err(), "batch 2 would have two owners");
    assert_eq!(fixture.pop_some(2), [3, 1]);
}

#[test]
fn a_push_during_a_pop_only_makes_it_retry() {
    let fixture = Fixture::new();
    fixture.push(7);
    let standing = fixture.seen(1);
    fixture.push(8);
    assert!(fixture.stack.take(standing).is_err());
    assert_eq!(fixture.pop(), Some(8));
    assert!(fixture.stack.take(standing).is_err());
    assert_eq!(fixture.stack.take(fixture.seen(1)).ok().map(|chain| chain.first), Some(Link(7)));
}

#[test]
fn links_take_the_bits_that_the_map_needs_and_the_tag_the_rest() {
    let bits = |frames: u64| u64::BITS - frames.leading_zeros();
    assert_eq!([bits(1 << 15), bits(1 << 21), bits((1 << 32) - 2)], [16, 22, 32]);
    let top = Top { word: 0, link_bits: 22 };
    let word = (0..5).fold(top.word, |word, _| Top { word, ..top }.left_with(Link(1 << 21)));
    assert_eq!((Top { word, ..top }.link(), word >> 22), (Link(1 << 21), 5));
    assert_eq!(Top { word: u64::MAX, ..top }.left_with(Link(3)), 3, "the tag wraps around");
    assert_eq!(Top { word, ..top }.with_link(Link::NONE), 5 << 22);
}
