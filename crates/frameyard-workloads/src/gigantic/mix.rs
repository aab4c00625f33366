//! The mix of blocks whose lifetimes come from a seed.

use std::ops::Range;

use fastrand::Rng;
use frameyard::owners::Ownership;
use frameyard::page::{Counts, references_of_pins};
use frameyard::{Block, Gfp, Order, Pfn, Yard};
use frameyard_host::HostPlatform;

use super::MOVABLE;
use super::holder::Holder;
use crate::tasks::TaskError;

/// The movable frames that are freed once memory is full, in percent of it.
const SPARE: u64 = 15;
/// Of this number of events, one is of each kind that cannot move; pinned frames change more rarely.
const EVENTS_OF_A_KIND: u32 = 10;
const PINNED_RARER: u32 = 16;

/// The kinds of blocks that cannot move.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Unmovable,
    Reclaimable,
    Pinned,
}

const KINDS: [Kind; 3] = [Kind::Unmovable, Kind::Reclaimable, Kind::Pinned];

/// What a pinned frame counts as.
const PIN: Counts = match references_of_pins(Order::ZERO, 1) {
    Some(references) => Counts { references, mappings: 0 },
    None => panic!("one pin can be counted"),
};

/// The blocks of one kind of a task.
#[derive(Default)]
struct Staying {
    blocks: Vec<Block>,
    frames: u64,
}

/// A task: its slots for movable frames, which are all in use, and its other blocks.
pub(super) struct Mix {
    slots: Range<usize>,
    staying: [Staying; 3],
    rng: Rng,
}

impl Kind {
    fn alloc(self, yard: &Yard<HostPlatform>, rng: &mut Rng) -> Result<Block, TaskError> {
        let order = Order(if self == Self::Pinned { 0 } else { rng.u32(..16).saturating_sub(12) as u8 });
        let gfp = match self {
            Self::Unmovable => Gfp::KERNEL,
            Self::Reclaimable => Gfp::KERNEL | Gfp::RECLAIMABLE,
            Self::Pinned => Gfp::HIGHUSER_MOVABLE.without(Gfp::MOVABLE),
        };
        let pfn = yard.alloc(order, gfp)?;
        if self == Self::Pinned {
            yard.counted().init_refs(pfn, order, Ownership { counts: PIN, owner: 0, index: 0 })?;
        }
        Ok(Block { pfn, order })
    }

    fn free(self, yard: &Yard<HostPlatform>, Block { pfn, order }: Block) -> Result<(), TaskError> {
        if self != Self::Pinned {
            return Ok(yard.free(pfn, order)?);
        }
        // SAFETY: the frame was pinned in `alloc`, its only user goes, and then this task has it alone.
        unsafe {
            if let Some(page) = yard.counted().page(pfn) {
                let _ = page.unpin_many(1);
            }
            Ok(yard.counted().free(pfn, order)?)
        }
    }
}

impl Staying {
    fn add(&mut self, kind: Kind, yard: &Yard<HostPlatform>, rng: &mut Rng) -> Result<(), TaskError> {
        let block = kind.alloc(yard, rng)?;
        self.blocks.push(block);
        self.frames += block.order.pages().0;
        Ok(())
    }

    fn remove(&mut self, kind: Kind, yard: &Yard<HostPlatform>, rng: &mut Rng) -> Result<(), TaskError> {
        if self.blocks.is_empty() {
            return Ok(());
        }
        let block = self.blocks.swap_remove(rng.usize(..self.blocks.len()));
        self.frames -= block.order.pages().0;
        kind.free(yard, block)
    }
}

impl Mix {
    pub(super) fn new(slots: Range<usize>, rng: Rng) -> Self {
        Self { slots, staying: Default::default(), rng }
    }

    /// The first frames of blocks that cannot move.
    pub(super) fn staying(&self) -> impl Iterator<Item = Pfn> {
        self.staying.iter().flat_map(|of_kind| &of_kind.blocks).map(|block| block.pfn)
    }

    pub(super) fn fill(
        &mut self,
        yard: &Yard<HostPlatform>,
        holder: &Holder<'_>,
        targets: [u64; 3],
    ) -> Result<(), TaskError> {
        let Self { slots, staying, rng } = self;
        let all = slots.len() as u64 + targets.iter().sum::<u64>();
        let mut spare = Vec::new();
        for slot in slots.clone() {
            holder.alloc(slot)?;
            if rng.u64(..MOVABLE) < SPARE {
                spare.push(holder.alloc_frame(slot)?);
            }
            for ((kind, of_kind), target) in KINDS.into_iter().zip(&mut *staying).zip(targets) {
                if of_kind.frames < target && rng.u64(..all) < target {
                    of_kind.add(kind, yard, rng)?;
                }
            }
        }
        for ((kind, of_kind), target) in KINDS.into_iter().zip(staying).zip(targets) {
            while of_kind.frames < target {
                of_kind.add(kind, yard, rng)?;
            }
        }
        spare.into_iter().try_for_each(|pfn| Ok(yard.free(pfn, Order::ZERO)?))
    }

    /// Frees a block and allocates another of its kind, unless there are too many or too few.
    pub(super) fn event(
        &mut self,
        yard: &Yard<HostPlatform>,
        holder: &Holder<'_>,
        targets: [u64; 3],
    ) -> Result<(), TaskError> {
        let Self { slots, staying, rng } = self;
        let at = rng.u32(..EVENTS_OF_A_KIND) as usize;
        if at >= KINDS.len() || (KINDS[at] == Kind::Pinned && rng.u32(..PINNED_RARER) != 0) {
            let often = if rng.bool() { slots.len().div_ceil(8) } else { slots.len() };
            let slot = slots.start + rng.usize(..often.max(1));
            holder.free(slot)?;
            return holder.alloc(slot);
        }
        let (kind, of_kind) = (KINDS[at], &mut staying[at]);
        // Twice as fast as the amount changes, so that it follows.
        for _ in 0..if of_kind.frames > targets[at] { 2 } else { 1 } {
            of_kind.remove(kind, yard, rng)?;
        }
        let mut added = 0;
        while of_kind.frames < targets[at] && added < 2 {
            of_kind.add(kind, yard, rng)?;
            added += 1;
        }
        Ok(())
    }

    pub(super) fn free_all(&mut self, yard: &Yard<HostPlatform>, holder: &Holder<'_>) -> Result<(), TaskError> {
        self.slots.clone().try_for_each(|slot| holder.free(slot))?;
        for (kind, of_kind) in KINDS.into_iter().zip(&mut self.staying) {
            std::mem::take(&mut of_kind.blocks).into_iter().try_for_each(|block| kind.free(yard, block))?;
        }
        Ok(())
    }
}
