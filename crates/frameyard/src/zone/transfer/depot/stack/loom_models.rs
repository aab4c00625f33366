//! Models of a stack by itself: threads push, pop and detach batches whose leaders come back.

use std::boxed::Box;
use std::ptr::NonNull;
use std::sync::Arc;
use std::vec::Vec;

use loom::cell::UnsafeCell;
use loom::thread;

use super::*;
use crate::loom_models::{assert_fails, explore};
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

    fn relax(&self, _round: u32) {
        thread::yield_now();
    }

    fn frame_bytes(&self, _pfn: Pfn) -> Option<NonNull<u8>> {
        None
    }
}

impl MapBacking for Plain {}

impl Probe for Plain {}

const LEADERS: usize = 3;

/// A stack, the pages of a few leaders, and something that the owner of each writes to.
struct Ground {
    pages: Box<[Page; LEADERS]>,
    contents: Vec<UnsafeCell<u32>>,
    stack: BatchStack,
}

// SAFETY: loom checks every access to the contents, and all else is atomics.
unsafe impl Send for Ground {}
// SAFETY: as above.
unsafe impl Sync for Ground {}

impl Ground {
    /// With all batches on the stack, the first on top.
    fn new() -> Arc<Self> {
        let contents = (0..LEADERS).map(|_| UnsafeCell::new(0)).collect();
        let ground = Self { pages: Box::default(), contents, stack: BatchStack::default() };
        (1..=LEADERS as u32).rev().for_each(|leader| ground.push(leader));
        Arc::new(ground)
    }

    fn map(&self) -> MemMap {
        let range = PfnRange::new(Pfn(0), PageCount(LEADERS as u64));
        // SAFETY: a page for each frame, which outlive the map.
        unsafe { MemMap::new(NonNull::from(&self.pages[0]), range, MapContent::Zero, Geometry::X86_64) }
    }

    /// Writes to a batch, which is the caller's.
    fn own(&self, leader: u32) -> u32 {
        // SAFETY: loom objects where it is somebody else's, too.
        self.contents[leader as usize - 1].with_mut(|value| unsafe { *value += 1 });
        leader
    }

    fn push(&self, leader: u32) {
        self.own(leader);
        self.stack.count_coming(1);
        self.stack.push(self.map(), &Plain, Link(leader), Link(leader));
    }

    fn pop(&self) -> Option<u32> {
        let leader = self.stack.pop(self.map(), &Plain)?;
        self.stack.count_popped(1);
        Some(self.own(leader.0))
    }

    fn detach(&self) -> Vec<u32> {
        let (map, mut chain, mut found) = (self.map(), self.stack.detach(self.map()), Vec::new());
        while let Some(leader) = map.linked(chain) {
            found.push(self.own(chain.0));
            chain = map.page(leader, &Plain).next();
        }
        self.stack.count_collected(found.len() as u64);
        found
    }

    /// Demands that every batch is there once: in somebody's hands or on the stack.
    fn finish(&self, mut held: Vec<u32>) {
        for _ in 0..=LEADERS {
            held.extend(self.pop());
        }
        held.sort_unstable();
        assert_eq!(held, [1, 2, 3], "batches were lost or are there twice");
        assert_eq!(self.stack.batches_racy(), 0, "the count is wrong");
    }
}

/// What is said where a batch is lost, there twice, or has two owners.
const DAMAGES: [&str; 2] = ["batches were lost or are there twice", "Causality violation"];

/// One thread pops; another pops two batches and pushes the first again: its leader is on top as before, on another one.
fn a_leader_comes_back() {
    let ground = Ground::new();
    let other = ground.clone();
    let popping = thread::spawn(move || other.pop());
    let first = ground.pop();
    let second = ground.pop();
    if let Some(leader) = first {
        ground.push(leader);
    }
    let held = [second, popping.join().unwrap()].into_iter().flatten().collect();
    ground.finish(held);
}

/// One thread detaches all while another pops one and pushes it again.
fn detached_meanwhile() {
    let ground = Ground::new();
    let other = ground.clone();
    let detaching = thread::spawn(move || other.detach());
    if let Some(leader) = ground.pop() {
        ground.push(leader);
    }
    ground.finish(detaching.join().unwrap());
}

/// One thread detaches all and pushes the first again while another pops.
fn detached_and_back() {
    let ground = Ground::new();
    let other = ground.clone();
    let popping = thread::spawn(move || other.pop());
    let mut held = ground.detach();
    if !held.is_empty() {
        ground.push(held.remove(0));
    }
    held.extend(popping.join().unwrap());
    ground.finish(held);
}

/// Three threads at once.
fn three_at_once() {
    let ground = Ground::new();
    let threads = [0, 1].map(|_| {
        let other = ground.clone();
        thread::spawn(move || {
            if let Some(leader) = other.pop() {
                other.push(leader);
            }
        })
    });
    let held = ground.detach();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    ground.finish(held);
}

#[test]
fn a_pop_is_not_misled_by_a_leader_that_comes_back() {
    explore(a_leader_comes_back);
}

#[test]
fn a_tag_that_stands_still_loses_batches() {
    weakened(Weakness::ConstantTags, || assert_fails(a_leader_comes_back, &DAMAGES));
    weakened(Weakness::ConstantTags, || assert_fails(detached_and_back, &DAMAGES));
}

#[test]
fn a_detached_stack_is_in_one_hand() {
    explore(detached_meanwhile);
    explore(detached_and_back);
}

#[test]
fn three_threads_lose_nothing() {
    explore(three_at_once);
}

#[test]
fn exchanges_hand_over_what_is_in_a_batch() {
    weakened(Weakness::RelaxedExchanges, || assert_fails(a_leader_comes_back, &DAMAGES));
    weakened(Weakness::RelaxedExchanges, || assert_fails(detached_meanwhile, &DAMAGES));
}

#[test]
fn an_exchange_that_is_not_one_step_is_found() {
    weakened(Weakness::SplitCompareExchange, || assert_fails(a_leader_comes_back, &DAMAGES));
}
