//! An owner of blocks for tests: it knows what is in each, moves contents, and refuses as it is told to.
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use frameyard::owners::{Block, FrameOwner, MigrateMode, MigrateProblem, OwnerKind, Owners, Ownership};
use frameyard::page::{Counts, FrameState};
use frameyard::{AllocError, Gfp, Order, PageCount, Pfn, Platform, Yard};

use crate::fixture::TestPlatform;
use crate::fixture::random::Random;

/// The kind of the blocks of a [`Mover`].
pub(crate) const KIND: OwnerKind = OwnerKind(3);

const PROBLEMS: [MigrateProblem; 5] = [
    MigrateProblem::Gone,
    MigrateProblem::Busy,
    MigrateProblem::Pinned,
    MigrateProblem::Unmovable,
    MigrateProblem::Failed,
];

const ONE_USER: Counts = Counts { references: 1, mappings: 0 };

/// What is in a block.
#[derive(Clone, Copy, Debug)]
struct Entry {
    order: Order,
    slot: u64,
    isolated: bool,
    pinned: bool,
    /// Given up while it was isolated.
    dead: bool,
}

/// How often, of a thousand times, the owner refuses.
#[derive(Clone, Copy, Default)]
pub(crate) struct Faults {
    pub(crate) isolate: u64,
    pub(crate) migrate: u64,
}

#[derive(Default)]
struct State {
    blocks: HashMap<Pfn, Entry>,
    places: HashMap<u64, Pfn>,
    next_slot: u64,
}

/// Owns blocks by slot: a slot stays, its block may move.
pub(crate) struct Mover<'y> {
    yard: &'y Yard<TestPlatform>,
    state: Mutex<State>,
    faults: Mutex<(Faults, Random)>,
    pub(crate) moves: AtomicU64,
    pub(crate) refusals: AtomicU64,
}

impl<'y> Mover<'y> {
    pub(crate) fn new(yard: &'y Yard<TestPlatform>) -> Self {
        Self {
            yard,
            state: Mutex::default(),
            faults: Mutex::new((Faults::default(), Random::new(1))),
            moves: AtomicU64::new(0),
            refusals: AtomicU64::new(0),
        }
    }

    pub(crate) fn owners(&self) -> Owners<'_> {
        Owners::default().with(KIND, self)
    }

    pub(crate) fn fail(&self, faults: Faults, seed: u64) {
        *self.faults.lock().unwrap() = (faults, Random::new(seed));
    }

    fn fault(&self, rate: fn(Faults) -> u64) -> Result<(), MigrateProblem> {
        let (faults, random) = &mut *self.faults.lock().unwrap();
        if random.below(1000) < rate(*faults) {
            self.refusals.fetch_add(1, Ordering::Relaxed);
            return Err(random.pick(&PROBLEMS));
        }
        Ok(())
    }

    /// Takes over a block that the caller has allocated; its slot.
    pub(crate) fn own(&self, pfn: Pfn, order: Order) -> u64 {
        let mut state = self.state.lock().unwrap();
        let slot = state.next_slot;
        state.next_slot += 1;
        self.write(pfn, order, slot);
        let ownership = Ownership { counts: ONE_USER, owner: u64::from(KIND.0), index: slot };
        self.yard.counted().init_refs(pfn, order, ownership).expect("an allocated block");
        let entry = Entry { order, slot, isolated: false, pinned: false, dead: false };
        assert!(state.blocks.insert(pfn, entry).is_none(), "{pfn} has an owner already");
        state.places.insert(slot, pfn);
        slot
    }

    /// Allocates a block; its slot.
    pub(crate) fn alloc(&self, order: Order, gfp: Gfp) -> Result<u64, AllocError> {
        self.yard.alloc(order, gfp).map(|pfn| self.own(pfn, order))
    }

    /// Gives a slot up. Its block is freed now, or by the isolation that holds it.
    pub(crate) fn free(&self, slot: u64) {
        let mut state = self.state.lock().unwrap();
        let pfn = state.places.remove(&slot).expect("a slot in use");
        self.check(pfn, state.blocks[&pfn]);
        let entry = state.blocks.get_mut(&pfn).unwrap();
        if entry.isolated {
            entry.dead = true;
            return;
        }
        let entry = state.blocks.remove(&pfn).unwrap();
        self.let_go(pfn, entry.order);
        // SAFETY: the block has no users, and the state's lock is held.
        unsafe { self.yard.counted().free(pfn, entry.order) }.expect("a counted block without users");
    }

    pub(crate) fn pin(&self, slot: u64) {
        let mut state = self.state.lock().unwrap();
        let pfn = state.places[&slot];
        state.blocks.get_mut(&pfn).unwrap().pinned = true;
    }

    pub(crate) fn place(&self, slot: u64) -> Pfn {
        self.state.lock().unwrap().places[&slot]
    }

    pub(crate) fn slots(&self) -> Vec<u64> {
        self.state.lock().unwrap().places.keys().copied().collect()
    }

    /// Checks that every block is where the owner thinks, is not isolated, and holds its contents.
    pub(crate) fn check_all(&self) {
        let state = self.state.lock().unwrap();
        assert_eq!(state.blocks.len(), state.places.len());
        for (pfn, entry) in &state.blocks {
            assert!(!entry.isolated, "{pfn} was never put back");
            assert_eq!(state.places[&entry.slot], *pfn);
            self.check(*pfn, *entry);
        }
    }

    /// Gives all slots up.
    pub(crate) fn free_all(&self) {
        self.slots().into_iter().for_each(|slot| self.free(slot));
    }

    fn check(&self, pfn: Pfn, entry: Entry) {
        let info = self.yard.stats().frame(pfn).expect("memory");
        assert_eq!((info.head, info.state, info.order), (pfn, FrameState::Counted, entry.order));
        // SAFETY: only read.
        let page = unsafe { self.yard.counted().page(pfn) }.expect("a page");
        assert_eq!((page.index(), page.owner()), (entry.slot, u64::from(KIND.0)));
        for offset in 0..entry.order.pages().0 {
            if let Some(words) = self.words(pfn + PageCount(offset)) {
                // SAFETY: the block is this owner's.
                let found = unsafe { (words.read(), words.add(511).read()) };
                assert_eq!(found, (stamp(entry.slot, offset), !stamp(entry.slot, offset)), "contents of {pfn}");
            }
        }
    }

    fn words(&self, pfn: Pfn) -> Option<*mut u64> {
        self.yard.platform().frame_bytes(pfn).map(|bytes| bytes.as_ptr().cast())
    }

    fn write(&self, pfn: Pfn, order: Order, slot: u64) {
        for offset in 0..order.pages().0 {
            if let Some(words) = self.words(pfn + PageCount(offset)) {
                // SAFETY: the block is allocated and this owner's.
                unsafe {
                    words.write(stamp(slot, offset));
                    words.add(511).write(!stamp(slot, offset));
                }
            }
        }
    }

    fn let_go(&self, pfn: Pfn, _order: Order) {
        // SAFETY: the block is this owner's, which alone has a reference.
        let page = unsafe { self.yard.counted().page(pfn) }.expect("a page");
        assert_eq!(page.put().expect("a reference"), 0);
    }
}

fn stamp(slot: u64, offset: u64) -> u64 {
    (slot << 16 | offset).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl FrameOwner for Mover<'_> {
    fn isolate(&self, block: Block, _mode: MigrateMode) -> Result<(), MigrateProblem> {
        self.fault(|faults| faults.isolate)?;
        let mut state = self.state.lock().unwrap();
        let entry = state.blocks.get_mut(&block.pfn).ok_or(MigrateProblem::Gone)?;
        if entry.order != block.order {
            return Err(MigrateProblem::Gone);
        }
        if entry.pinned {
            return Err(MigrateProblem::Pinned);
        }
        if std::mem::replace(&mut entry.isolated, true) {
            return Err(MigrateProblem::Busy);
        }
        Ok(())
    }

    fn migrate(&self, from: Block, to: Pfn, _mode: MigrateMode) -> Result<(), MigrateProblem> {
        let mut state = self.state.lock().unwrap();
        let entry = state.blocks[&from.pfn];
        assert!(entry.isolated && entry.order == from.order, "{from} is moved, and is {entry:?}");
        let info = self.yard.stats().frame(to).expect("memory");
        assert_eq!((info.head, info.state, info.order), (to, FrameState::Allocated, from.order), "the target");
        // Half of the contents are written before it fails.
        self.write(to, from.order, u64::MAX);
        self.fault(|faults| faults.migrate)?;
        if entry.dead {
            return Err(MigrateProblem::Gone);
        }
        // SAFETY: the block is this owner's, and isolated.
        let page = unsafe { self.yard.counted().page(from.pfn) }.expect("a page");
        assert!(page.freeze(ONE_USER), "there is no other reference");
        for offset in 0..from.order.pages().0 {
            let (old, new) = (from.pfn + PageCount(offset), to + PageCount(offset));
            if let Some((old, new)) = self.words(old).zip(self.words(new)) {
                // SAFETY: both blocks are this owner's, each frame has 512 words.
                unsafe { new.copy_from_nonoverlapping(old, 512) };
            }
        }
        let ownership = Ownership { counts: ONE_USER, owner: u64::from(KIND.0), index: entry.slot };
        self.yard.counted().init_refs(to, from.order, ownership).expect("an allocated target");
        // SAFETY: this thread froze the counts.
        unsafe { self.yard.counted().clear_refs(from.pfn, from.order) }.expect("a block without users");
        state.blocks.remove(&from.pfn);
        state.blocks.insert(to, Entry { isolated: false, ..entry });
        state.places.insert(entry.slot, to);
        self.moves.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn put_back(&self, block: Block) {
        let mut state = self.state.lock().unwrap();
        let entry = state.blocks.get_mut(&block.pfn).expect("a block of this owner");
        assert!(std::mem::replace(&mut entry.isolated, false), "{block} was put back, but not isolated");
        if entry.dead {
            let entry = state.blocks.remove(&block.pfn).unwrap();
            self.let_go(block.pfn, entry.order);
            // SAFETY: the block has no users, and the state's lock is held.
            unsafe { self.yard.counted().free(block.pfn, entry.order) }.expect("a counted block without users");
        }
    }
}
