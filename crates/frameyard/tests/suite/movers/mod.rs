//! An owner of movable blocks: each has a name that stays when the block moves, and bytes that tell the name.
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use frameyard::owners::{Block, FrameOwner, MigrateMode, MigrateProblem, OwnerKind, Ownership};
use frameyard::page::Counts;
use frameyard::{AllocError, Gfp, Order, Pfn, Platform, Yard};

use crate::fixture::TestPlatform;

/// The kind of these blocks.
pub(crate) const KIND: OwnerKind = OwnerKind(3);

#[derive(Clone, Copy)]
struct Held {
    name: u64,
    order: Order,
    isolated: bool,
}

#[derive(Default)]
struct State {
    by_frame: HashMap<Pfn, Held>,
    by_name: HashMap<u64, Pfn>,
    next_name: u64,
}

/// Owns blocks of a yard, and moves them when asked.
pub(crate) struct Movers<'y> {
    yard: &'y Yard<TestPlatform>,
    state: Mutex<State>,
    pub(crate) isolated: AtomicU64,
    pub(crate) moved: AtomicU64,
    /// One of this number of calls is refused; 0: none.
    pub(crate) refuse_isolate: AtomicU64,
    pub(crate) refuse_migrate: AtomicU64,
    calls: AtomicU64,
}

const ONE: Counts = Counts { references: 1, mappings: 0 };

impl<'y> Movers<'y> {
    pub(crate) fn new(yard: &'y Yard<TestPlatform>) -> Self {
        Self {
            yard,
            state: Mutex::default(),
            isolated: AtomicU64::new(0),
            moved: AtomicU64::new(0),
            refuse_isolate: AtomicU64::new(0),
            refuse_migrate: AtomicU64::new(0),
            calls: AtomicU64::new(0),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn counted(&self, pfn: Pfn) -> frameyard::page::CountedPage<'_, TestPlatform> {
        // SAFETY: counts and words of these blocks change only under the owner's lock, while the caller holds the block
        // exclusively.
        unsafe { self.yard.counted().page(pfn) }.expect("memory")
    }

    /// The words of a block, where frames have memory. The borrow of the state makes the access exclusive.
    fn words<'s>(&self, _state: &'s mut State, pfn: Pfn, order: Order) -> Option<&'s mut [u64]> {
        let bytes = self.yard.geometry().size_of(order.pages()).0 as usize;
        let first = self.yard.platform().frame_bytes(pfn)?;
        // SAFETY: the block is this owner's, which reads it only under its lock.
        Some(unsafe { std::slice::from_raw_parts_mut(first.as_ptr().cast(), bytes / 8) })
    }

    /// Allocates a block; its name.
    pub(crate) fn take(&self, order: Order) -> Result<u64, AllocError> {
        let pfn = self.yard.alloc(order, Gfp::HIGHUSER_MOVABLE)?;
        let mut state = self.state();
        let name = state.next_name;
        state.next_name += 1;
        if let Some(words) = self.words(&mut state, pfn, order) {
            words.fill(name);
        }
        let ownership = Ownership { counts: ONE, owner: KIND.0.into(), index: name };
        self.yard.counted().init_refs(pfn, order, ownership).expect("just allocated");
        state.by_frame.insert(pfn, Held { name, order, isolated: false });
        state.by_name.insert(name, pfn);
        Ok(name)
    }

    /// Frees a block; `false` while a migration holds it.
    pub(crate) fn give_back(&self, name: u64) -> bool {
        let mut state = self.state();
        let pfn = state.by_name[&name];
        let held = state.by_frame[&pfn];
        if held.isolated {
            return false;
        }
        self.check(&mut state, pfn, held);
        state.by_name.remove(&name);
        state.by_frame.remove(&pfn);
        assert!(self.counted(pfn).freeze(ONE), "the block has another user");
        // SAFETY: this thread froze the counts.
        unsafe { self.yard.counted().free(pfn, held.order) }.expect("the block is counted");
        true
    }

    /// Where a block is now.
    pub(crate) fn place_of(&self, name: u64) -> Pfn {
        self.state().by_name[&name]
    }

    /// Takes a further reference that the owner knows nothing of.
    pub(crate) fn pin(&self, name: u64) {
        self.counted(self.place_of(name)).get();
    }

    pub(crate) fn unpin(&self, name: u64) {
        self.counted(self.place_of(name)).put().expect("the block is pinned");
    }

    /// Frees everything that is left.
    pub(crate) fn give_all_back(&self) {
        let names: Vec<u64> = self.state().by_name.keys().copied().collect();
        for name in names {
            assert!(self.give_back(name), "no owner is at work");
        }
    }

    fn check(&self, state: &mut State, pfn: Pfn, held: Held) {
        assert_eq!(self.counted(pfn).index(), held.name);
        if let Some(words) = self.words(state, pfn, held.order) {
            assert!(words.iter().all(|word| *word == held.name), "{pfn} lost its contents");
        }
    }

    /// Checks every block's bytes, and that none is left isolated.
    pub(crate) fn check_all(&self) {
        let mut state = self.state();
        let all: Vec<_> = state.by_frame.iter().map(|(pfn, held)| (*pfn, *held)).collect();
        for (pfn, held) in all {
            assert!(!held.isolated, "{pfn} was not put back");
            self.check(&mut state, pfn, held);
        }
    }

    /// Whether it is this call's turn to be refused.
    fn refused(&self, one_of: &AtomicU64) -> bool {
        let one_of = one_of.load(Ordering::Relaxed);
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        one_of != 0 && call.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32 & 0xffff < 0x1_0000 / one_of
    }
}

impl FrameOwner for Movers<'_> {
    fn isolate(&self, block: Block, _mode: MigrateMode) -> Result<(), MigrateProblem> {
        if self.refused(&self.refuse_isolate) {
            return Err(MigrateProblem::Busy);
        }
        let mut state = self.state();
        let held = state.by_frame.get_mut(&block.pfn).filter(|held| held.order == block.order);
        let held = held.ok_or(MigrateProblem::Gone)?;
        if held.isolated {
            return Err(MigrateProblem::Busy);
        }
        if self.counted(block.pfn).counts() != ONE {
            return Err(MigrateProblem::Pinned);
        }
        held.isolated = true;
        self.isolated.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn migrate(&self, from: Block, to: Pfn, _mode: MigrateMode) -> Result<(), MigrateProblem> {
        if self.refused(&self.refuse_migrate) {
            return Err(MigrateProblem::Failed);
        }
        let mut state = self.state();
        let held = state.by_frame[&from.pfn];
        assert!(held.isolated && held.order == from.order, "isolated before it is moved");
        if !self.counted(from.pfn).freeze(ONE) {
            return Err(MigrateProblem::Pinned);
        }
        if let Some(old) = self.words(&mut state, from.pfn, from.order) {
            let words = old.to_vec();
            old.fill(u64::MAX);
            self.words(&mut state, to, from.order).expect("memory, too").copy_from_slice(&words);
        }
        let ownership = Ownership { counts: ONE, owner: KIND.0.into(), index: held.name };
        self.yard.counted().init_refs(to, from.order, ownership).expect("a fresh target");
        // SAFETY: this thread froze the counts.
        unsafe { self.yard.counted().clear_refs(from.pfn, from.order) }.expect("frozen");
        state.by_frame.remove(&from.pfn);
        state.by_frame.insert(to, Held { isolated: false, ..held });
        state.by_name.insert(held.name, to);
        self.moved.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn put_back(&self, block: Block) {
        let mut state = self.state();
        let held = state.by_frame.get_mut(&block.pfn).expect("it stayed where it was");
        assert!(held.isolated, "put back once");
        held.isolated = false;
    }
}
