//! Batches in the table of pageblocks: threads pack, push, pop and unpack batches of huge blocks whose heads return.

use std::boxed::Box;
use std::sync::Arc;
use std::vec::Vec;

use loom::cell::UnsafeCell;
use loom::thread;

use super::Plain;
use crate::loom_models::{assert_fails, explore};
use crate::page::Link;
use crate::sync::{AtomicU32, Weakness, weakened};
use crate::units::Order;
use crate::zone::transfer::depot::links::{BatchLine, BlockLinks, HUGE_BATCH};
use crate::zone::transfer::depot::stack::BatchStack;

const ORDER: Order = Order(1);
/// Two batches and a single block, by the numbers of their pageblocks.
const BATCHES: [&[u32]; 3] = [&[4, 2], &[1, 5, 3], &[0]];

/// A stack, its table, and a cell for each block that its owner writes to.
struct Fixture {
    table: Box<[BatchLine]>,
    contents: Vec<UnsafeCell<u32>>,
    stack: BatchStack,
}

// SAFETY: loom checks every access to the contents, and all else is atomics.
unsafe impl Send for Fixture {}
// SAFETY: as above.
unsafe impl Sync for Fixture {}

impl Fixture {
    /// With all batches on the stack, the first on top.
    fn new() -> Arc<Self> {
        let table = (0..6).map(|_| BatchLine::default()).collect();
        let contents = (0..6).map(|_| UnsafeCell::new(0)).collect();
        let fixture = Self { table, contents, stack: BatchStack::default() };
        BATCHES.iter().rev().for_each(|batch| fixture.push(batch));
        Arc::new(fixture)
    }

    fn links(&self) -> BlockLinks<'static, Plain> {
        // SAFETY: the table is on the heap; every thread that uses the links keeps the fixture.
        let table = unsafe { &*core::ptr::from_ref(&*self.table) };
        BlockLinks::new(table, ORDER, &Plain)
    }

    /// Writes to blocks that the caller owns.
    fn own(&self, blocks: &[u32]) {
        for block in blocks {
            // SAFETY: loom reports a concurrent access.
            self.contents[*block as usize].with_mut(|value| unsafe { *value += 1 });
        }
    }

    fn push(&self, blocks: &[u32]) {
        self.own(blocks);
        let head = self.links().pack(blocks.iter().map(|block| block << ORDER.0)).expect("blocks of the table");
        self.stack.count_coming(blocks.len() as u64);
        self.stack.push(self.links(), &Plain, head, head);
    }

    /// The blocks of a batch that the caller owns, and the link to the batch below.
    fn unpack(&self, head: Link) -> (Vec<u32>, Link) {
        let mut blocks = Vec::with_capacity(HUGE_BATCH);
        let below = self.links().unpack(head, |place| blocks.push(place >> ORDER.0)).expect("a sound table");
        self.own(&blocks);
        (blocks, below)
    }

    fn pop(&self) -> Vec<u32> {
        let Some(head) = self.stack.pop(self.links(), &Plain) else { return Vec::new() };
        let (blocks, _) = self.unpack(head);
        self.stack.count_popped(blocks.len() as u64);
        blocks
    }

    fn detach(&self) -> Vec<u32> {
        let (mut head, mut found) = (self.stack.detach(self.links()), Vec::new());
        while head != Link::NONE {
            let (blocks, below) = self.unpack(head);
            found.extend(blocks);
            head = below;
        }
        self.stack.count_collected(found.len() as u64);
        found
    }

    /// Demands that every block exists once: held by a thread or on the stack.
    fn finish(&self, mut held: Vec<u32>) {
        for _ in 0..=BATCHES.len() {
            held.extend(self.pop());
        }
        held.sort_unstable();
        assert_eq!(held, [0, 1, 2, 3, 4, 5], "blocks were lost or exist twice");
        assert_eq!(self.stack.held_racy(), 0, "the count is wrong");
    }
}

/// The failures of a lost block, a duplicate, or a block with two owners.
const DAMAGES: [&str; 2] = ["blocks were lost or exist twice", "Causality violation"];

/// One thread pops; another pops two batches and pushes the blocks of the first again, in a batch with the same head and one member
/// less.
fn a_head_comes_back() {
    let fixture = Fixture::new();
    let other = fixture.clone();
    let popping = thread::spawn(move || other.pop());
    let first = fixture.pop();
    let mut held = fixture.pop();
    let (again, kept) = first.split_at(1.min(first.len()));
    if !again.is_empty() {
        fixture.push(again);
    }
    held.extend(kept);
    held.extend(popping.join().unwrap());
    fixture.finish(held);
}

/// One thread detaches all while another pops a batch and pushes it in another order, with another head.
fn detached_meanwhile() {
    let fixture = Fixture::new();
    let other = fixture.clone();
    let detaching = thread::spawn(move || other.detach());
    let mut batch = fixture.pop();
    batch.reverse();
    if !batch.is_empty() {
        fixture.push(&batch);
    }
    fixture.finish(detaching.join().unwrap());
}

#[test]
fn blocks_of_the_table_have_one_owner() {
    explore(a_head_comes_back);
    explore(detached_meanwhile);
}

#[test]
fn a_tag_that_stands_still_loses_blocks_of_the_table() {
    weakened(Weakness::ConstantTags, || assert_fails(a_head_comes_back, &DAMAGES));
}

#[test]
fn exchanges_hand_over_the_entries_of_the_table() {
    weakened(Weakness::RelaxedExchanges, || assert_fails(a_head_comes_back, &DAMAGES));
    weakened(Weakness::RelaxedExchanges, || assert_fails(detached_meanwhile, &DAMAGES));
}
