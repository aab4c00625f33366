//! Batches of twelve members, whose indices lie in two page structures: those of the head and of one more member. Threads pop them from
//! a stack, unpack them, write to all frames, pack them in another order, and push them again.
//!
//! A batch of the other models has two frames and keeps a step instead of indices.

use super::{DAMAGES, Plain};
use crate::loom_models::{assert_fails_within, explore_within};
use crate::memmap::{MemMap, Numbering};
use crate::page::{Link, MapContent, PAYLOAD_WORDS, Page};
use crate::sync::{Weakness, weakened};
use crate::units::{Geometry, Order, PageCount, Pfn, PfnRange};
use crate::zone::batch::packed;
use crate::zone::fixed_vec::FixedVec;
use crate::zone::transfer::depot::stack::BatchStack;

use std::boxed::Box;
use std::ptr::NonNull;
use std::sync::Arc;
use std::vec::Vec;

use loom::cell::UnsafeCell;
use loom::thread;

/// The bound of involuntary switches. One switch finds every broken variant.
const SWITCHES: usize = 2;
/// The members of a batch: the head, the ten whose indices it stores, and one whose index the second member stores.
const MEMBERS: usize = 12;
const BATCHES: usize = 2;
const FRAMES: usize = BATCHES * MEMBERS;

type Members = FixedVec<u32, MEMBERS>;

/// A stack of two batches, the pages of their members, and a cell for each frame that its owner writes to.
struct Fixture {
    pages: Box<[Page; FRAMES]>,
    contents: Vec<UnsafeCell<u32>>,
    stack: BatchStack,
}

// SAFETY: loom checks every access to the contents, and all else is atomics.
unsafe impl Send for Fixture {}
// SAFETY: as above.
unsafe impl Sync for Fixture {}

impl Fixture {
    fn new() -> Arc<Self> {
        let contents = (0..FRAMES).map(|_| UnsafeCell::new(0)).collect();
        let fixture = Self { pages: Box::default(), contents, stack: BatchStack::default() };
        for batch in 0..BATCHES as u32 {
            // No two steps are equal, and neighbours belong to different batches.
            let indices: Vec<u32> = (0..MEMBERS as u32).map(|at| BATCHES as u32 * (at ^ 1) + batch).collect();
            fixture.push(&indices);
        }
        Arc::new(fixture)
    }

    fn map(&self) -> MemMap {
        let frames = Numbering::without_holes(PfnRange::new(Pfn(0), PageCount(FRAMES as u64)));
        // SAFETY: a page for each frame, which outlive the map.
        unsafe { MemMap::new(NonNull::from(&self.pages[0]), frames, MapContent::Zero, Geometry::X86_64) }
    }

    /// Writes to frames that the caller owns.
    fn own(&self, frames: &[u32]) {
        for frame in frames {
            // SAFETY: loom reports a concurrent access.
            self.contents[*frame as usize].with_mut(|value| unsafe { *value += 1 });
        }
    }

    fn push(&self, frames: &[u32]) {
        self.own(frames);
        let head = packed::pack(self.map(), &Plain, frames, Link::NONE);
        self.stack.count_coming(1);
        self.stack.push(self.map(), &Plain, head, head);
    }

    fn pop(&self) -> Option<Members> {
        let head = self.stack.pop(self.map(), &Plain)?;
        self.stack.count_popped(1);
        let mut batch = Members::new();
        packed::unpack(self.map(), &Plain, (head, Order::ZERO), &mut batch)?;
        assert_eq!(batch.len(), MEMBERS, "frames were lost: a batch is shorter than it was");
        self.own(&batch);
        Some(batch)
    }

    /// Pops a batch and pushes it with another head.
    fn turn_over(&self) {
        if let Some(mut batch) = self.pop() {
            batch.reverse();
            self.push(&batch);
        }
    }

    /// Demands that every frame is in exactly one batch, and that unpacked pages are as fresh ones.
    fn finish(&self) {
        let mut found: Vec<u32> = std::iter::from_fn(|| self.pop()).flat_map(|batch| batch.to_vec()).collect();
        found.sort_unstable();
        assert!(found.into_iter().eq(0..FRAMES as u32), "batches were lost or exist twice");
        for pfn in 0..FRAMES as u64 {
            let page = self.map().page(Pfn(pfn), &Plain);
            assert!((0..PAYLOAD_WORDS).all(|word| page.payload(word) == 0), "{pfn} keeps an index");
        }
    }
}

/// Two threads pop a batch each, and push it.
fn batches_are_turned_over() {
    let fixture = Fixture::new();
    let other = fixture.clone();
    let turning = thread::spawn(move || other.turn_over());
    fixture.turn_over();
    turning.join().unwrap();
    fixture.finish();
}

/// A batch passes from one thread to the other, which has none.
fn a_batch_is_handed_over() {
    let fixture = Fixture::new();
    let kept = fixture.pop().expect("two batches");
    let other = fixture.clone();
    let turning = thread::spawn(move || [(); 2].map(|()| other.turn_over()));
    fixture.push(&kept);
    turning.join().unwrap();
    fixture.finish();
}

#[test]
fn all_members_pass_with_their_batch() {
    explore_within(SWITCHES, batches_are_turned_over);
    explore_within(SWITCHES, a_batch_is_handed_over);
    weakened(Weakness::SpuriousFailures, || explore_within(SWITCHES, batches_are_turned_over));
}

#[test]
fn members_without_ordering_fail() {
    let damages = [DAMAGES[0], DAMAGES[1], "frames were lost", "keeps an index"];
    weakened(Weakness::RelaxedExchanges, || {
        assert_fails_within(SWITCHES, batches_are_turned_over, &damages);
        assert_fails_within(SWITCHES, a_batch_is_handed_over, &damages);
    });
}
