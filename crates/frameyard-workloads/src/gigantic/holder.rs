//! The owner of the workload's movable frames: a slot for each frame, which stays while the frame moves.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use frameyard::owners::{Block, FrameOwner, MigrateMode, MigrateProblem, Move, OwnerKind, Owners, Ownership};
use frameyard::page::Counts;
use frameyard::{Gfp, Order, Pfn, Platform, Yard};
use frameyard_host::HostPlatform;

use crate::error::WorkloadError;
use crate::measure::nanoseconds;
use crate::tasks::TaskError;

const KIND: OwnerKind = OwnerKind(7);
const ONE_USER: Counts = Counts { references: 1, mappings: 0 };
/// The flags of all its requests.
const GFP: Gfp = Gfp::HIGHUSER_MOVABLE;

/// A slot: 0, or a frame number times 4 and one of these.
const USED: u64 = 1;
const ISOLATED: u64 = 2;

const fn word(pfn: Pfn, state: u64) -> u64 {
    pfn.0 << 2 | state
}

/// Movable frames by slot.
pub(super) struct Holder<'y> {
    yard: &'y Yard<HostPlatform>,
    slots: Box<[AtomicU64]>,
    /// The last moves: the frame before and after.
    moves: Box<[(AtomicU64, AtomicU64)]>,
    /// All moves.
    moved: AtomicUsize,
    /// The number of the first of the last moves.
    first: AtomicUsize,
}

impl<'y> Holder<'y> {
    /// An owner of that number of slots, which remembers that number of moves.
    pub(super) fn new(yard: &'y Yard<HostPlatform>, slots: usize, remembered: usize) -> Self {
        Self {
            yard,
            slots: (0..slots).map(|_| AtomicU64::new(0)).collect(),
            moves: (0..remembered).map(|_| Default::default()).collect(),
            moved: AtomicUsize::new(0),
            first: AtomicUsize::new(0),
        }
    }

    pub(super) fn owners(&self) -> Owners<'_> {
        Owners::NONE.with(KIND, self)
    }

    /// Frames moved.
    pub(super) fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed) as u64
    }

    /// Allocates a frame for an empty slot, and writes the slot's number into it.
    pub(super) fn alloc(&self, slot: usize) -> Result<(), TaskError> {
        let pfn = self.alloc_frame(slot)?;
        let ownership = Ownership { counts: ONE_USER, owner: u64::from(KIND.0), index: slot as u64 };
        self.yard.counted().init_refs(pfn, Order::ZERO, ownership)?;
        // Release: pairs with the Acquire in `isolate`, which then sees the contents.
        self.slots[slot].store(word(pfn, USED), Ordering::Release);
        Ok(())
    }

    /// Allocates a movable frame that is in no slot, and writes a number into it.
    pub(super) fn alloc_frame(&self, number: usize) -> Result<Pfn, TaskError> {
        let pfn = self.yard.alloc(Order::ZERO, GFP)?;
        if let Some(bytes) = self.yard.platform().frame_bytes(pfn) {
            // SAFETY: the frame was just allocated, and has room for a word.
            unsafe { bytes.cast::<u64>().as_ptr().write(number as u64) };
        }
        Ok(pfn)
    }

    /// Frees the frame of a slot in use, after a move in progress, and checks its contents.
    pub(super) fn free(&self, slot: usize) -> Result<(), TaskError> {
        let pfn = loop {
            let found = self.slots[slot].load(Ordering::Relaxed);
            // Acquire: pairs with the Release in `migrate` and `put_back`.
            let taken = self.slots[slot].compare_exchange(found & !ISOLATED, 0, Ordering::Acquire, Ordering::Relaxed);
            if found & USED != 0 && taken.is_ok() {
                break Pfn(found >> 2);
            }
            spin_loop();
        };
        if let Some(bytes) = self.yard.platform().frame_bytes(pfn) {
            // SAFETY: the frame is this owner's, and holds the word that `alloc` has written.
            let found = unsafe { bytes.cast::<u64>().as_ptr().read() };
            assert_eq!(found, slot as u64, "the contents of {pfn}");
        }
        // SAFETY: the slot's exchange made the frame this thread's alone, and its only user goes.
        unsafe {
            if let Some(page) = self.yard.counted().page(pfn) {
                let _ = page.put();
            }
            Ok(self.yard.counted().free(pfn, Order::ZERO)?)
        }
    }

    /// Calls `visit` with the frame of each slot in use.
    pub(super) fn for_each(&self, mut visit: impl FnMut(Pfn)) {
        let used = self.slots.iter().map(|slot| slot.load(Ordering::Relaxed)).filter(|word| *word != 0);
        used.for_each(|word| visit(Pfn(word >> 2)));
    }

    /// Forgets the last moves.
    pub(super) fn forget_moves(&self) {
        self.first.store(self.moved.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// The nanoseconds to copy the last moves' frames back. `None` if they have no bytes, or some moves are not remembered.
    ///
    /// # Safety
    ///
    /// The frames before are the caller's, and no thread frees or moves those after.
    pub(super) unsafe fn copy_back_ns(&self) -> Result<Option<u64>, WorkloadError> {
        let count = self.moved.load(Ordering::Relaxed) - self.first.load(Ordering::Relaxed);
        let bytes = |pfn: &AtomicU64| self.yard.platform().frame_bytes(Pfn(pfn.load(Ordering::Relaxed)));
        let Some(moves) = self.moves.get(..count) else { return Ok(None) };
        let begin = Instant::now();
        for (from, to) in moves {
            let Some((from, to)) = bytes(from).zip(bytes(to)) else { return Ok(None) };
            // SAFETY: two frames, one of which is the caller's to write, the other not written by any thread (caller).
            unsafe { from.copy_from_nonoverlapping(to, self.page()) };
        }
        Ok(Some(nanoseconds(begin.elapsed())))
    }

    /// Bytes of a frame.
    fn page(&self) -> usize {
        self.yard.geometry().page_size().0 as usize
    }

    /// Takes the only reference of an isolated block.
    fn freeze(&self, block: Block) -> Result<(), MigrateProblem> {
        // SAFETY: the block is this owner's, and isolated.
        let page = unsafe { self.yard.counted().page(block.pfn) }.ok_or(MigrateProblem::Gone)?;
        if page.freeze(ONE_USER) { Ok(()) } else { Err(MigrateProblem::Busy) }
    }

    /// Gives a frozen block's slot to the block that has its contents now.
    fn settle(&self, from: Block, to: Pfn) -> Result<(), MigrateProblem> {
        let slot = self.slot_of(from).ok_or(MigrateProblem::Gone)?;
        let ownership = Ownership { counts: ONE_USER, owner: u64::from(KIND.0), index: slot as u64 };
        self.yard.counted().init_refs(to, Order::ZERO, ownership).map_err(|_| MigrateProblem::Failed)?;
        // SAFETY: this thread froze the counts.
        unsafe { self.yard.counted().clear_refs(from.pfn, Order::ZERO) }.map_err(|_| MigrateProblem::Failed)?;
        let number = self.moved.fetch_add(1, Ordering::Relaxed) - self.first.load(Ordering::Relaxed);
        if let Some((before, after)) = self.moves.get(number) {
            before.store(from.pfn.0, Ordering::Relaxed);
            after.store(to.0, Ordering::Relaxed);
        }
        // Release: pairs with the Acquire in `isolate` and `free`.
        self.slots[slot].store(word(to, USED), Ordering::Release);
        Ok(())
    }

    /// The slot of a block, if it may be this owner's.
    fn slot_of(&self, block: Block) -> Option<usize> {
        // SAFETY: only read.
        let page = unsafe { self.yard.counted().page(block.pfn) }?;
        usize::try_from(page.index()).ok().filter(|slot| *slot < self.slots.len())
    }
}

impl FrameOwner for Holder<'_> {
    fn isolate(&self, block: Block, _mode: MigrateMode) -> Result<(), MigrateProblem> {
        let slot = self.slot_of(block).ok_or(MigrateProblem::Gone)?;
        let (used, isolated) = (word(block.pfn, USED), word(block.pfn, ISOLATED));
        // Acquire: pairs with the Release in `alloc` and `migrate`.
        match self.slots[slot].compare_exchange(used, isolated, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Ok(()),
            Err(found) if found == isolated => Err(MigrateProblem::Busy),
            Err(_) => Err(MigrateProblem::Gone),
        }
    }

    fn migrate(&self, from: Block, to: Pfn, mode: MigrateMode) -> Result<(), MigrateProblem> {
        let mut only = [Move { from, to, problem: None }];
        self.migrate_all(&mut only, mode);
        only[0].problem.map_or(Ok(()), Err)
    }

    /// Copies all contents before the first change of a page structure: an atomic operation waits for the stores before it.
    fn migrate_all(&self, moves: &mut [Move], _mode: MigrateMode) {
        moves.iter_mut().for_each(|of| of.problem = self.freeze(of.from).err());
        let bytes = |pfn| self.yard.platform().frame_bytes(pfn);
        for of in moves.iter().filter(|of| of.problem.is_none()) {
            if let Some((old, new)) = bytes(of.from.pfn).zip(bytes(of.to)) {
                // SAFETY: the block is isolated and the target the caller's: no other thread uses either.
                unsafe { new.copy_from_nonoverlapping(old, self.page()) };
            }
        }
        for of in moves.iter_mut().filter(|of| of.problem.is_none()) {
            of.problem = self.settle(of.from, of.to).err();
        }
    }

    fn put_back(&self, block: Block) {
        if let Some(slot) = self.slot_of(block) {
            // Release: pairs with the Acquire in `free` and `isolate`.
            self.slots[slot].store(word(block.pfn, USED), Ordering::Release);
        }
    }
}
