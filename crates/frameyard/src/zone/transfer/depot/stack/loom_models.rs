//! Models of a stack by itself: threads push, pop and detach batches whose heads return.

use std::boxed::Box;
use std::ptr::NonNull;
use std::sync::Arc;
use std::vec::Vec;

use loom::cell::UnsafeCell;
use loom::thread;

mod members;
mod table;

use super::*;
use crate::loom_models::{assert_fails, explore};
use crate::memmap::Numbering;
use crate::page::{MapContent, Page};
use crate::platform::{MapBacking, Probe};
use crate::sync::{Weakness, weakened};
use crate::units::{CpuId, Geometry, PageCount, Pfn, PfnRange};

struct Plain;

impl Platform for Plain {
    type Guard = ();

    fn guard(&self) {}

    fn current_cpu(&self) -> CpuId {
        CpuId(0)
    }

    fn spin(&self, _round: u32) {
        thread::yield_now();
    }

    fn frame_bytes(&self, _pfn: Pfn) -> Option<NonNull<u8>> {
        None
    }
}

impl MapBacking for Plain {}

impl Probe for Plain {}

const BATCHES: u32 = 3;

/// A stack, pages of frames, and a cell for each frame that its owner writes to.
struct Fixture {
    pages: Box<[Page]>,
    contents: Vec<UnsafeCell<u32>>,
    stack: BatchStack,
}

// SAFETY: loom checks every access to the contents, and all else is atomics.
unsafe impl Send for Fixture {}
// SAFETY: as above.
unsafe impl Sync for Fixture {}

impl Fixture {
    /// With an empty stack.
    fn of(frames: u32) -> Self {
        let contents = (0..frames).map(|_| UnsafeCell::new(0)).collect();
        Self { pages: (0..frames).map(|_| Page::default()).collect(), contents, stack: BatchStack::default() }
    }

    fn map(&self) -> MemMap {
        let frames = Numbering::without_holes(PfnRange::new(Pfn(0), PageCount(self.pages.len() as u64)));
        // SAFETY: a page for each frame, which outlive the map.
        unsafe { MemMap::new(NonNull::from(&self.pages[0]), frames, MapContent::Zero, Geometry::X86_64) }
    }

    fn links(&self) -> PageLinks<'_, Plain> {
        PageLinks { map: self.map(), platform: &Plain }
    }

    /// With all batches on the stack, the first on top.
    fn new() -> Arc<Self> {
        let fixture = Self::of(BATCHES);
        (1..=BATCHES).rev().for_each(|head| fixture.push(head));
        Arc::new(fixture)
    }

    /// Writes to a batch that the caller owns.
    fn own(&self, head: u32) -> u32 {
        // SAFETY: loom reports a concurrent access.
        self.contents[head as usize - 1].with_mut(|value| unsafe { *value += 1 });
        head
    }

    fn push(&self, head: u32) {
        self.own(head);
        self.stack.count_coming(1);
        self.stack.push(self.links(), &Plain, Link(head), Link(head));
    }

    fn pop(&self) -> Option<u32> {
        let head = self.stack.pop(self.links(), &Plain)?;
        self.stack.count_popped(1);
        Some(self.own(head.0))
    }

    /// Pops up to two batches together.
    fn pop_two(&self) -> Vec<u32> {
        let Some(chain) = self.stack.pop_some(self.links(), &Plain, 2) else { return Vec::new() };
        self.stack.count_popped(chain.batches as u64);
        let heads = if chain.batches == 1 { Vec::from([chain.first]) } else { Vec::from([chain.first, chain.last]) };
        heads.into_iter().map(|head| self.own(head.0)).collect()
    }

    fn detach(&self) -> Vec<u32> {
        let (map, mut chain, mut found) = (self.map(), self.stack.detach(self.links()), Vec::new());
        while let Some(head) = map.linked(chain) {
            found.push(self.own(chain.0));
            chain = map.page(head, &Plain).next();
        }
        self.stack.count_collected(found.len() as u64);
        found
    }

    /// Demands that every batch exists once: held by a thread or on the stack.
    fn finish(&self, mut held: Vec<u32>) {
        for _ in 0..=BATCHES {
            held.extend(self.pop());
        }
        held.sort_unstable();
        assert_eq!(held, [1, 2, 3], "batches were lost or exist twice");
        assert_eq!(self.stack.held_racy(), 0, "the count is wrong");
    }
}

/// The failures of a lost batch, a duplicate, or a batch with two owners.
const DAMAGES: [&str; 2] = ["batches were lost or exist twice", "Causality violation"];

/// One thread pops; another pops two batches and pushes the first again: its head is on top as before, above another batch.
fn a_head_comes_back() {
    let fixture = Fixture::new();
    let other = fixture.clone();
    let popping = thread::spawn(move || other.pop());
    let first = fixture.pop();
    let second = fixture.pop();
    if let Some(head) = first {
        fixture.push(head);
    }
    let held = [second, popping.join().unwrap()].into_iter().flatten().collect();
    fixture.finish(held);
}

/// One thread pops two together; another pops two and pushes the first again: its head is on top as before, above another batch.
fn popped_together() {
    let fixture = Fixture::new();
    let other = fixture.clone();
    let popping = thread::spawn(move || other.pop_two());
    let (first, second) = (fixture.pop(), fixture.pop());
    if let Some(head) = first {
        fixture.push(head);
    }
    let mut held = popping.join().unwrap();
    held.extend(second);
    fixture.finish(held);
}

/// One thread detaches all while another pops one and pushes it again.
fn detached_meanwhile() {
    let fixture = Fixture::new();
    let other = fixture.clone();
    let detaching = thread::spawn(move || other.detach());
    if let Some(head) = fixture.pop() {
        fixture.push(head);
    }
    fixture.finish(detaching.join().unwrap());
}

/// One thread detaches all and pushes the first again while another pops.
fn detached_and_back() {
    let fixture = Fixture::new();
    let other = fixture.clone();
    let popping = thread::spawn(move || other.pop());
    let mut held = fixture.detach();
    if !held.is_empty() {
        fixture.push(held.remove(0));
    }
    held.extend(popping.join().unwrap());
    fixture.finish(held);
}

/// Three threads at once.
fn three_at_once() {
    let fixture = Fixture::new();
    let threads = [0, 1].map(|_| {
        let other = fixture.clone();
        thread::spawn(move || {
            if let Some(head) = other.pop() {
                other.push(head);
            }
        })
    });
    let held = fixture.detach();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    fixture.finish(held);
}

#[test]
fn a_pop_is_not_misled_by_a_head_that_comes_back() {
    explore(a_head_comes_back);
}

#[test]
fn batches_popped_together_have_one_owner() {
    explore(popped_together);
}

#[test]
fn a_tag_that_stands_still_loses_batches() {
    weakened(Weakness::ConstantTags, || assert_fails(popped_together, &DAMAGES));
    weakened(Weakness::ConstantTags, || assert_fails(a_head_comes_back, &DAMAGES));
    weakened(Weakness::ConstantTags, || assert_fails(detached_and_back, &DAMAGES));
}

#[test]
fn a_detached_stack_has_one_owner() {
    explore(detached_meanwhile);
    explore(detached_and_back);
}

#[test]
fn three_threads_lose_nothing() {
    explore(three_at_once);
}

#[test]
fn exchanges_hand_over_the_contents_of_a_batch() {
    weakened(Weakness::RelaxedExchanges, || assert_fails(a_head_comes_back, &DAMAGES));
    weakened(Weakness::RelaxedExchanges, || assert_fails(detached_meanwhile, &DAMAGES));
}

#[test]
fn an_exchange_that_is_not_one_step_is_found() {
    weakened(Weakness::SplitCompareExchange, || assert_fails(a_head_comes_back, &DAMAGES));
}

#[test]
fn exchanges_that_fail_without_cause_are_repeated() {
    for model in [a_head_comes_back, popped_together, detached_meanwhile, detached_and_back] {
        weakened(Weakness::SpuriousFailures, || explore(model));
    }
}
