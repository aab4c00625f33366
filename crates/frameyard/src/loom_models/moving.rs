//! An owner frees a block while compaction isolates and moves it (`compaction`, `page::counted`).
//!
//! The owner is minimal: a slot under a lock holds the number of its frame. Isolation gets a reference without that lock,
//! while another thread may free or reuse the frame. The thread that puts the last reference frees the frame, even if the
//! contents have moved.
//!
//! The targets of compaction are free frames that it has isolated. Other threads free their buddies, allocate and drain meanwhile.

use std::sync::{Arc, Mutex};

use loom::thread::JoinHandle;

use crate::compaction::CompactRequest;
use crate::loom_models::machine::{Flaw, Locks, Machine, ModelPlatform, Runner, ZONE};
use crate::loom_models::{DAMAGES, assert_fails_within, explore_within};
use crate::owners::{Block, FrameOwner, MigrateMode, MigrateProblem, OwnerKind, Owners, Ownership};
use crate::page::{CountedPage, Counts, FrameState, Tag};
use crate::platform::{LockId, Platform};
use crate::sync::{AtomicU32, AtomicU64, Ordering, Weakness, weakened};
use crate::units::{MigrateType, Order, Pfn};
use crate::watermarks::PcpSizing;

const KIND: OwnerKind = OwnerKind(1);
const LOCK: LockId = LockId::ObjectTable(0);

/// The highest frame of two sections.
const HIGHEST: Pfn = Pfn(7);

/// The bound of involuntary switches. One finds every broken variant.
const PREEMPTIONS: usize = 2;

/// The same, for longer executions.
const FEW_PREEMPTIONS: usize = 1;

/// The failure messages for damaged lists.
const ALL_DAMAGES: [&str; 8] = [
    DAMAGES[0],
    DAMAGES[1],
    DAMAGES[2],
    DAMAGES[3],
    "frames were lost",
    "freed frames have merged",
    // Assertions of the production code.
    " is buddy-free ",
    "a free frame",
];

/// The owner's slot.
#[derive(Default)]
struct Slot {
    lock: AtomicU32,
    /// The number of the frame, plus one. 0: the owner has given the frame up.
    place: AtomicU64,
}

/// The outcomes that executions have reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Seen {
    moved: bool,
    gone_before: bool,
    gone_meanwhile: bool,
    freed_by_compactor: bool,
}

/// One thread's view of the owner.
struct SlotOwner<'a> {
    runner: &'a Runner,
    slot: &'a Slot,
    seen: &'a Mutex<Seen>,
}

// SAFETY: loom runs all threads of a model on one thread.
unsafe impl Sync for SlotOwner<'_> {}

impl SlotOwner<'_> {
    fn page(&self, pfn: Pfn) -> CountedPage<'_, ModelPlatform> {
        // SAFETY: a thread changes counts only while it holds a reference, and gets one by `try_get`.
        unsafe { self.runner.yard.counted().page(pfn) }.expect("a page")
    }

    fn locked<T>(&self, work: impl FnOnce() -> T) -> T {
        let platform = self.runner.yard.platform();
        platform.lock(LOCK, &self.slot.lock).unwrap();
        let result = work();
        platform.unlock(LOCK, &self.slot.lock);
        result
    }

    /// Puts a reference, and frees the frame with the last one. Returns whether it was the last.
    fn put(&self, pfn: Pfn) -> bool {
        let last = self.page(pfn).put().expect("the thread has a reference") == 0;
        if last {
            // SAFETY: this thread put the last reference.
            unsafe { self.runner.yard.counted().free(pfn, Order::ZERO) }.expect("the block is ours");
        }
        last
    }

    fn saw(&self, what: impl FnOnce(&mut Seen)) {
        what(&mut self.seen.lock().unwrap());
    }

    /// Gives the frame up, before or after it moved.
    fn give_up(&self) {
        let pfn = self.locked(|| {
            let place = self.slot.place.load(Ordering::Relaxed);
            self.slot.place.store(0, Ordering::Relaxed);
            let pfn = Pfn(place - 1);
            self.runner.release(pfn, Order::ZERO);
            pfn
        });
        self.put(pfn);
    }
}

impl FrameOwner for SlotOwner<'_> {
    fn isolate(&self, block: Block, _mode: MigrateMode) -> Result<(), MigrateProblem> {
        if self.page(block.pfn).try_get() {
            return Ok(());
        }
        self.saw(|seen| seen.gone_before = true);
        Err(MigrateProblem::Gone)
    }

    fn migrate(&self, from: Block, to: Pfn, _mode: MigrateMode) -> Result<(), MigrateProblem> {
        self.locked(|| {
            if self.slot.place.load(Ordering::Relaxed) != from.pfn.0 + 1 {
                self.saw(|seen| seen.gone_meanwhile = true);
                return Err(MigrateProblem::Gone);
            }
            // One reference of the slot, one of the isolation.
            if !self.page(from.pfn).freeze(Counts { references: 2, mappings: 0 }) {
                return Err(MigrateProblem::Busy);
            }
            self.runner.release(from.pfn, Order::ZERO);
            self.runner.own(to, Order::ZERO);
            self.runner.yard.counted().init_refs(to, Order::ZERO, ownership()).expect("the block is ours");
            self.slot.place.store(to.0 + 1, Ordering::Relaxed);
            // SAFETY: this thread froze the counts.
            unsafe { self.runner.yard.counted().clear_refs(from.pfn, Order::ZERO) }.expect("the block is ours");
            self.saw(|seen| seen.moved = true);
            Ok(())
        })
    }

    fn put_back(&self, block: Block) {
        if self.put(block.pfn) {
            self.saw(|seen| seen.freed_by_compactor = true);
        }
    }
}

fn ownership() -> Ownership {
    Ownership { counts: Counts { references: 1, mappings: 0 }, owner: u64::from(KIND.0), index: 0 }
}

/// CPU 0 gives a frame up while CPU 1 compacts its zone.
fn give_up_while_compacting(seen: &Arc<Mutex<Seen>>) {
    let main = Machine::boot(2, PcpSizing::Fixed(0), Locks::SOUND);
    let slot = with_movable_frame(&main);
    let compactor = start_compactor(&main, &slot, seen);
    SlotOwner { runner: &main, slot: &slot, seen }.give_up();
    compactor.join().unwrap();
    main.give(HIGHEST, Order::ZERO);
    main.finish();
}

/// Allocates the lowest and the highest frame, and gives the lowest an owner.
fn with_movable_frame(main: &Runner) -> Arc<Slot> {
    let slot = Arc::new(Slot::default());
    // The lowest and the highest frame are allocated. Compaction moves the lowest to the pageblock of the highest, for it
    // keeps whole free pageblocks whole.
    while let Some(pfn) = main.take(Order::ZERO) {
        assert!(pfn <= HIGHEST);
    }
    (1..HIGHEST.0).for_each(|frame| main.give(Pfn(frame), Order::ZERO));
    main.yard.counted().init_refs(Pfn(0), Order::ZERO, ownership()).unwrap();
    slot.place.store(1, Ordering::Relaxed);
    slot
}

/// Compacts the zone on CPU 1.
fn start_compactor(main: &Runner, slot: &Arc<Slot>, seen: &Arc<Mutex<Seen>>) -> JoinHandle<()> {
    let (slot, seen) = (Arc::clone(slot), Arc::clone(seen));
    main.start(1, move |runner| {
        let owner = SlotOwner { runner, slot: &slot, seen: &seen };
        runner.yard.compaction().zone(ZONE, CompactRequest::WHOLE_ZONE, &Owners::default().with(KIND, &owner));
    })
}

/// CPU 1 compacts its zone, which moves the lowest frame next to the highest, while CPU 0 frees the highest frame, allocates another,
/// and drains everything. The target is the only free frame of its pageblock, so CPU 0 frees its buddy.
fn use_memory_while_compacting(locks: Locks, seen: &Arc<Mutex<Seen>>) {
    let main = Machine::boot(2, PcpSizing::Fixed(0), locks);
    let slot = with_movable_frame(&main);
    main.yard.drain_all();
    let compactor = start_compactor(&main, &slot, seen);
    let user = main.start(0, |runner| {
        runner.give(HIGHEST, Order::ZERO);
        runner.take_and_give(Order::ZERO);
        runner.yard.drain_all();
    });
    compactor.join().unwrap();
    user.join().unwrap();
    SlotOwner { runner: &main, slot: &slot, seen }.give_up();
    main.finish();
}

#[test]
fn frees_and_drains_race_the_targets_of_compaction() {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let in_model = Arc::clone(&seen);
    explore_within(FEW_PREEMPTIONS, move || use_memory_while_compacting(Locks::SOUND, &in_model));
    assert!(seen.lock().unwrap().moved, "nothing was moved");
}

#[test]
fn targets_without_protection_fail() {
    let model = |locks| use_memory_while_compacting(locks, &Arc::default());
    for flaw in [Flaw::TakenRelaxed, Flaw::GivenBackRelaxed, Flaw::NeverRefused] {
        assert_fails_within(FEW_PREEMPTIONS, move || model(Locks { zone: Some(flaw), ..Locks::SOUND }), &ALL_DAMAGES);
    }
    let isolated = Tag::new(FrameState::Isolated, Order::ZERO, MigrateType::Movable, ZONE);
    weakened(Weakness::LostStoresOf(isolated.bits()), || {
        assert_fails_within(FEW_PREEMPTIONS, move || model(Locks::SOUND), &ALL_DAMAGES);
    });
}

#[test]
fn free_races_migration() {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let model = {
        let seen = Arc::clone(&seen);
        move || give_up_while_compacting(&seen)
    };
    explore_within(PREEMPTIONS, model);
    let all = Seen { moved: true, gone_before: true, gone_meanwhile: true, freed_by_compactor: true };
    assert_eq!(*seen.lock().unwrap(), all, "an outcome was not explored");
}

#[test]
fn non_atomic_references_fail() {
    let more = ["the thread has a reference", "frames were lost"];
    let expected: std::vec::Vec<&str> = DAMAGES.into_iter().chain(more).collect();
    weakened(Weakness::SplitCompareExchange, || {
        assert_fails_within(PREEMPTIONS, || give_up_while_compacting(&Arc::default()), &expected);
    });
}
