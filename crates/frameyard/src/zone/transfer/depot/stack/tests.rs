//! A stack by itself, on a map of a few pages.

use core::ptr::NonNull;
use std::vec::Vec;

use super::*;
use crate::page::{MapContent, Page};
use crate::platform::plain::Plain;
use crate::units::{Geometry, PageCount, Pfn, PfnRange};

struct Ground {
    _pages: Vec<Page>,
    map: MemMap,
    stack: BatchStack,
}

impl Ground {
    fn new() -> Self {
        let pages: Vec<Page> = (0..16).map(|_| Page::default()).collect();
        let range = PfnRange::new(Pfn(0x100), PageCount(16));
        let base = NonNull::from(&pages[0]);
        // SAFETY: as many pages as the range has frames; they live as long as the ground.
        let map = unsafe { MemMap::new(base, range, MapContent::Zero, Geometry::X86_64) };
        Self { _pages: pages, map, stack: BatchStack::default() }
    }

    fn push(&self, leader: u32) {
        self.stack.count_coming(1);
        self.stack.push(self.map, &Plain, Link(leader), Link(leader));
    }

    fn pop(&self) -> Option<u32> {
        let leader = self.stack.pop(self.map, &Plain)?;
        self.stack.count_popped(1);
        Some(leader.0)
    }

    fn seen(&self) -> Seen {
        self.stack.head(self.map, Ordering::Acquire).seen(self.map, &Plain).expect("a batch")
    }
}

#[test]
fn batches_come_back_last_first_and_are_counted() {
    let ground = Ground::new();
    [3, 1, 16].into_iter().for_each(|leader| ground.push(leader));
    assert_eq!(ground.stack.batches_racy(), 3);
    assert_eq!([(); 4].map(|()| ground.pop()), [Some(16), Some(1), Some(3), None]);
    assert_eq!(ground.stack.batches_racy(), 0);
    assert!(ground.stack.is_empty_racy(ground.map));
}

#[test]
fn a_chain_is_pushed_whole_and_detached_whole() {
    let ground = Ground::new();
    ground.push(9);
    let page = |link: u32| ground.map.page(ground.map.linked(Link(link)).unwrap(), &Plain);
    page(4).set_next(Link(5));
    ground.stack.count_coming(2);
    ground.stack.push(ground.map, &Plain, Link(4), Link(5));
    let first = ground.stack.detach(ground.map);
    assert_eq!([first.0, page(4).next().0, page(5).next().0, page(9).next().0], [4, 5, 9, 0]);
    assert_eq!(ground.stack.detach(ground.map), Link::NONE);
}

#[test]
fn a_pop_that_stands_between_its_reads_and_its_exchange_fails_however_often_the_batch_comes_back() {
    let ground = Ground::new();
    [1, 2, 3].into_iter().for_each(|leader| ground.push(leader));
    let standing = ground.seen();
    assert_eq!((standing.leader, standing.next), (Link(3), Link(2)));
    for round in 0..100_000u32 {
        // Batch 3 leaves, what was below it leaves or stays, and it is on top again.
        assert_eq!(ground.pop(), Some(3));
        let below = ground.pop().unwrap();
        if round % 3 > 0 {
            ground.push(below);
        }
        ground.push(3);
        if round % 3 == 0 {
            assert!(ground.stack.take(standing).is_err(), "batch {below} would be on the stack though it is not");
            assert_eq!([ground.pop(), Some(below)], [Some(3), Some(below)]);
            ground.push(below);
            ground.push(3);
        }
        assert!(ground.stack.take(standing).is_err());
    }
    assert_eq!(
        [ground.pop(), ground.pop(), ground.pop(), ground.pop()].map(|found| found.is_some()),
        [true, true, true, false]
    );
}

#[test]
fn a_pop_that_stands_while_its_batch_is_detached_and_comes_back_fails() {
    let ground = Ground::new();
    [1, 2].into_iter().for_each(|leader| ground.push(leader));
    let standing = ground.seen();
    assert_eq!(ground.stack.detach(ground.map), Link(2));
    ground.push(2);
    assert!(ground.stack.take(standing).is_err());
    assert_eq!((ground.pop(), ground.pop()), (Some(2), None));
}

#[test]
fn a_push_while_somebody_pops_makes_him_look_again_and_nothing_else() {
    let ground = Ground::new();
    ground.push(7);
    let standing = ground.seen();
    ground.push(8);
    assert!(ground.stack.take(standing).is_err());
    assert_eq!(ground.pop(), Some(8));
    assert!(ground.stack.take(standing).is_err());
    assert_eq!(ground.stack.take(ground.seen()).ok(), Some(Link(7)));
}

#[test]
fn links_take_the_bits_that_the_map_needs_and_the_tag_all_others() {
    let head = |frames: u64| u64::BITS - frames.leading_zeros();
    assert_eq!([head(1 << 15), head(1 << 21), head((1 << 32) - 2)], [16, 22, 32]);
    let head = Head { word: 0, link_bits: 22 };
    let word = (0..5).fold(head.word, |word, _| Head { word, ..head }.left_with(Link(1 << 21)));
    assert_eq!((Head { word, ..head }.top(), word >> 22), (Link(1 << 21), 5));
    assert_eq!(Head { word: u64::MAX, ..head }.left_with(Link(3)), 3, "a tag begins anew");
    assert_eq!(Head { word, ..head }.with_top(Link::NONE), 5 << 22);
}
