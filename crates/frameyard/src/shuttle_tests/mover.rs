//! An owner of movable blocks: a block keeps its name when it moves.

use std::collections::BTreeMap;

use crate::Gfp;
use crate::owners::{Block, FrameOwner, MigrateMode, MigrateProblem, OwnerKind, Owners, Ownership};
use crate::page::Counts;
use crate::shuttle_tests::machine::Runner;
use crate::units::{Order, Pfn, PfnRange};

const KIND: OwnerKind = OwnerKind(3);
/// The holder of these blocks in the machine's records.
const MARK: u32 = 99;
const ONE: Counts = Counts { references: 1, mappings: 0 };

#[derive(Clone, Copy)]
struct Held {
    name: u64,
    order: Order,
    isolated: bool,
}

/// The blocks.
#[derive(Default)]
pub(super) struct Moved {
    blocks: BTreeMap<Pfn, Held>,
    next_name: u64,
}

/// Owns movable blocks for all threads; a thread's view of it.
pub(super) struct Mover<'r>(pub(super) &'r Runner);

impl Mover<'_> {
    pub(super) fn owners(&self) -> Owners<'_> {
        Owners::NONE.with(KIND, self)
    }

    /// Allocates a block, if there is one.
    pub(super) fn take(&self, order: Order) {
        let Ok(pfn) = self.0.yard.alloc(order, Gfp::HIGHUSER_MOVABLE | Gfp::NOWARN) else { return };
        self.0.own(PfnRange::new(pfn, order.pages()), MARK);
        let mut moved = self.0.machine.moved.lock().unwrap();
        let name = moved.next_name;
        moved.next_name += 1;
        self.0.yard.counted().init_refs(pfn, order, ownership(name)).expect("just allocated");
        moved.blocks.insert(pfn, Held { name, order, isolated: false });
    }

    /// Frees the first block that is not being moved; false if there is none.
    pub(super) fn give_one(&self) -> bool {
        let mut moved = self.0.machine.moved.lock().unwrap();
        let found = moved.blocks.iter().find(|(_, held)| !held.isolated).map(|(pfn, held)| (*pfn, *held));
        let Some((pfn, held)) = found else { return false };
        moved.blocks.remove(&pfn);
        // SAFETY: counts and words of these blocks change only under the owner's lock.
        let page = unsafe { self.0.yard.counted().page(pfn) }.expect("memory");
        assert_eq!(page.index(), held.name, "the block's own name");
        assert!(page.freeze(ONE), "the owner is the only user");
        self.0.release(PfnRange::new(pfn, held.order.pages()), MARK);
        // SAFETY: this thread froze the counts.
        unsafe { self.0.yard.counted().free(pfn, held.order) }.expect("the block is ours");
        true
    }
}

fn ownership(name: u64) -> Ownership {
    Ownership { counts: ONE, owner: KIND.0.into(), index: name }
}

impl FrameOwner for Mover<'_> {
    fn isolate(&self, block: Block, _mode: MigrateMode) -> Result<(), MigrateProblem> {
        let mut moved = self.0.machine.moved.lock().unwrap();
        let held = moved.blocks.get_mut(&block.pfn).filter(|held| held.order == block.order);
        let held = held.ok_or(MigrateProblem::Gone)?;
        if std::mem::replace(&mut held.isolated, true) { Err(MigrateProblem::Busy) } else { Ok(()) }
    }

    fn migrate(&self, from: Block, to: Pfn, _mode: MigrateMode) -> Result<(), MigrateProblem> {
        let mut moved = self.0.machine.moved.lock().unwrap();
        let held = moved.blocks.remove(&from.pfn).expect("the block is isolated");
        // SAFETY: as in `give_one`.
        let page = unsafe { self.0.yard.counted().page(from.pfn) }.expect("memory");
        assert!(page.freeze(ONE), "the owner is the only user");
        self.0.own(PfnRange::new(to, from.order.pages()), MARK);
        self.0.release(PfnRange::new(from.pfn, from.order.pages()), MARK);
        self.0.yard.counted().init_refs(to, from.order, ownership(held.name)).expect("an allocated target");
        // SAFETY: this thread froze the counts.
        unsafe { self.0.yard.counted().clear_refs(from.pfn, from.order) }.expect("frozen");
        moved.blocks.insert(to, Held { isolated: false, ..held });
        Ok(())
    }

    fn put_back(&self, block: Block) {
        let mut moved = self.0.machine.moved.lock().unwrap();
        let held = moved.blocks.get_mut(&block.pfn).expect("it stayed where it was");
        assert!(std::mem::replace(&mut held.isolated, false), "put back once");
    }
}
