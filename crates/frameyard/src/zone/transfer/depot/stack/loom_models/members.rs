//! Batches of twelve members, whose indices lie in two page structures: those of the head and of one more member. Threads pop them from
//! a stack, unpack them, write to all frames, pack them in another order, and push them again.
//!
//! A batch of the other models has two frames and keeps a step instead of indices.

use super::{DAMAGES, Fixture, Plain};
use crate::loom_models::{assert_fails_within, explore_within};
use crate::page::{Link, PAYLOAD_WORDS};
use crate::sync::{Weakness, weakened};
use crate::units::{Order, Pfn, ZoneId};
use crate::zone::batch::packed;
use crate::zone::fixed_vec::FixedVec;

use std::sync::Arc;
use std::vec::Vec;

use loom::thread;

/// The bound of involuntary switches. One switch finds every broken variant.
const SWITCHES: usize = 2;
/// The members of a batch: the head, the ten whose indices it stores, and one whose index the second member stores.
const MEMBERS: usize = 12;
const BATCHES: usize = 2;
const FRAMES: usize = BATCHES * MEMBERS;

type Members = FixedVec<u32, MEMBERS>;

impl Fixture {
    /// With two batches on the stack.
    fn with_members() -> Arc<Self> {
        let fixture = Self::of(FRAMES as u32);
        for batch in 0..BATCHES as u32 {
            // No two steps are equal, and neighbours belong to different batches.
            let indices: Vec<u32> = (0..MEMBERS as u32).map(|at| BATCHES as u32 * (at ^ 1) + batch).collect();
            fixture.push_members(&indices);
        }
        Arc::new(fixture)
    }

    /// Writes to frames that the caller owns.
    fn own_all(&self, frames: &[u32]) {
        for frame in frames {
            // SAFETY: loom reports a concurrent access.
            self.contents[*frame as usize].with_mut(|value| unsafe { *value += 1 });
        }
    }

    fn push_members(&self, frames: &[u32]) {
        self.own_all(frames);
        let head = packed::pack(self.map(), &Plain, frames, Link::NONE);
        self.stack.count_coming(1);
        self.stack.push(self.links(), &Plain, head, head);
    }

    fn pop_members(&self) -> Option<Members> {
        let head = self.stack.pop(self.links(), &Plain)?;
        self.stack.count_popped(1);
        let mut batch = Members::new();
        packed::unpack(self.map(), (&Plain, ZoneId(0)), (head, Order::ZERO), &mut batch)?;
        assert_eq!(batch.len(), MEMBERS, "frames were lost: a batch is shorter than it was");
        self.own_all(&batch);
        Some(batch)
    }

    /// Pops a batch and pushes it with another head.
    fn turn_over(&self) {
        if let Some(mut batch) = self.pop_members() {
            batch.reverse();
            self.push_members(&batch);
        }
    }

    /// Demands that every frame is in exactly one batch, and that unpacked pages are as fresh ones.
    fn finish_members(&self) {
        let mut found: Vec<u32> = std::iter::from_fn(|| self.pop_members()).flat_map(|batch| batch.to_vec()).collect();
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
    let fixture = Fixture::with_members();
    let other = fixture.clone();
    let turning = thread::spawn(move || other.turn_over());
    fixture.turn_over();
    turning.join().unwrap();
    fixture.finish_members();
}

/// A batch passes from one thread to the other, which has none.
fn a_batch_is_handed_over() {
    let fixture = Fixture::with_members();
    let kept = fixture.pop_members().expect("two batches");
    let other = fixture.clone();
    let turning = thread::spawn(move || [(); 2].map(|()| other.turn_over()));
    fixture.push_members(&kept);
    turning.join().unwrap();
    fixture.finish_members();
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
