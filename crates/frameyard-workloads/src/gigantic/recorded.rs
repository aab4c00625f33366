//! Blocks whose lifetimes come from recordings of a kernel's page allocator.
//!
//! A task runs *copies* of the recordings side by side, and does an operation of each in turn. It begins one after the other, each up to a
//! random place in its recording, until its share of memory is in use. A copy that has done its recording goes on with the first operation.
//! When an allocation has no room, the oldest copy frees everything and begins again, as a process that ends and is started again.

use std::collections::HashMap;
use std::ops::Range;

use fastrand::Rng;
use frameyard::{Block, Gfp, MigrateType, Order, Pfn, Yard};
use frameyard_host::HostPlatform;

use super::holder::Holder;
use crate::tasks::TaskError;

/// The most copies of a task.
const MOST_COPIES: usize = 1 << 12;

/// The operations of a recording.
pub type Recording = Vec<RecordedOperation>;

/// An allocation or a free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordedOperation {
    /// The number of the block.
    pub block: u32,
    /// Its order. A movable block becomes as many movable frames.
    pub order: Order,
    /// The type of an allocation, which frees the block first if it is allocated; `None` is a free.
    pub allocates: Option<MigrateType>,
}

/// A block in use.
enum Held {
    /// Movable frames, by their slots.
    Movable(Vec<usize>),
    Staying(Block),
}

impl Held {
    fn frames(&self) -> usize {
        match self {
            Self::Movable(slots) => slots.len(),
            Self::Staying(block) => 1 << block.order.0,
        }
    }
}

/// A copy of a recording.
struct Copy<'r> {
    operations: &'r [RecordedOperation],
    /// The next operation.
    next: usize,
    held: HashMap<u32, Held>,
    /// When it began: copies begun before.
    age: u64,
}

/// The copies of a task.
pub(super) struct Recorded<'r> {
    recordings: &'r [Recording],
    copies: Vec<Copy<'r>>,
    /// The copy whose turn it is.
    turn: usize,
    begun: u64,
    /// Slots that are empty.
    slots: Vec<usize>,
    /// Frames in use, and the most.
    frames: usize,
    most: usize,
    rng: Rng,
}

/// Whether copies of a recording can fill that number of frames.
pub(super) fn can_fill(recording: &Recording, frames: usize) -> bool {
    let (mut held, mut used, mut most) = (HashMap::new(), 0, 0);
    for operation in recording {
        used -= held.remove(&operation.block).unwrap_or(0);
        if operation.allocates.is_some() {
            let pages = 1usize << operation.order.0;
            held.insert(operation.block, pages);
            used += pages;
            most = most.max(used);
        }
    }
    most * MOST_COPIES >= frames
}

impl<'r> Recorded<'r> {
    /// A task that has at most a frame in use for each slot. Recordings have operations.
    pub(super) fn new(recordings: &'r [Recording], slots: Range<usize>, rng: Rng) -> Self {
        let most = slots.len();
        let slots = slots.rev().collect();
        Self { recordings, copies: Vec::new(), turn: 0, begun: 0, slots, frames: 0, most, rng }
    }

    /// The first frames of blocks that cannot move.
    pub(super) fn staying(&self) -> impl Iterator<Item = Pfn> {
        let held = self.copies.iter().flat_map(|copy| copy.held.values());
        held.filter_map(|held| match held {
            Held::Staying(block) => Some(block.pfn),
            Held::Movable(_) => None,
        })
    }

    /// Begins copies until memory is in use.
    pub(super) fn fill(&mut self, yard: &Yard<HostPlatform>, holder: &Holder<'_>) -> Result<(), TaskError> {
        while self.copies.len() < MOST_COPIES {
            let operations = &*self.recordings[self.copies.len() % self.recordings.len()];
            self.turn = self.copies.len();
            self.copies.push(Copy { operations, next: 0, held: HashMap::new(), age: self.begun });
            self.begun += 1;
            for _ in 0..self.rng.usize(..operations.len()) {
                if self.step(yard, holder)? {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Does an operation of the copy whose turn it is.
    pub(super) fn event(&mut self, yard: &Yard<HostPlatform>, holder: &Holder<'_>) -> Result<(), TaskError> {
        self.turn = (self.turn + 1) % self.copies.len();
        self.step(yard, holder).map(|_| ())
    }

    /// Does the next operation of a copy; whether a copy ended to make room for it.
    fn step(&mut self, yard: &Yard<HostPlatform>, holder: &Holder<'_>) -> Result<bool, TaskError> {
        let copy = &mut self.copies[self.turn];
        let RecordedOperation { block, order, allocates } = copy.operations[copy.next];
        copy.next = (copy.next + 1) % copy.operations.len();
        if let Some(held) = copy.held.remove(&block) {
            self.free(yard, holder, held)?;
        }
        let Some(migrate_type) = allocates else { return Ok(false) };
        let mut ended = false;
        while self.frames + (1 << order.0) > self.most && self.frames > 0 {
            self.end_oldest(yard, holder)?;
            ended = true;
        }
        if let Some(held) = self.alloc(yard, holder, order, migrate_type)? {
            self.frames += held.frames();
            self.copies[self.turn].held.insert(block, held);
        }
        Ok(ended)
    }

    /// Allocates a block; `None` if there is none of an order above 0, as kernels do without such blocks, too.
    fn alloc(
        &mut self,
        yard: &Yard<HostPlatform>,
        holder: &Holder<'_>,
        order: Order,
        migrate_type: MigrateType,
    ) -> Result<Option<Held>, TaskError> {
        if migrate_type == MigrateType::Movable {
            let first = self.slots.len().saturating_sub(1 << order.0);
            let slots = self.slots.split_off(first);
            slots.iter().try_for_each(|slot| holder.alloc(*slot))?;
            return Ok(Some(Held::Movable(slots)));
        }
        let gfp = if migrate_type == MigrateType::Reclaimable { Gfp::KERNEL | Gfp::RECLAIMABLE } else { Gfp::KERNEL };
        match yard.alloc(order, gfp | Gfp::NOWARN) {
            Ok(pfn) => Ok(Some(Held::Staying(Block { pfn, order }))),
            Err(_) if order > Order::ZERO => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn free(&mut self, yard: &Yard<HostPlatform>, holder: &Holder<'_>, held: Held) -> Result<(), TaskError> {
        self.frames -= held.frames();
        match held {
            Held::Movable(slots) => {
                slots.iter().try_for_each(|slot| holder.free(*slot))?;
                self.slots.extend(slots);
                Ok(())
            }
            Held::Staying(Block { pfn, order }) => Ok(yard.free(pfn, order)?),
        }
    }

    /// Frees all blocks of the oldest copy, and lets it begin again.
    fn end_oldest(&mut self, yard: &Yard<HostPlatform>, holder: &Holder<'_>) -> Result<(), TaskError> {
        let Some(copy) = self.copies.iter_mut().min_by_key(|copy| copy.age) else { return Ok(()) };
        (copy.next, copy.age) = (0, self.begun);
        self.begun += 1;
        let held = std::mem::take(&mut copy.held);
        held.into_values().try_for_each(|held| self.free(yard, holder, held))
    }

    pub(super) fn free_all(&mut self, yard: &Yard<HostPlatform>, holder: &Holder<'_>) -> Result<(), TaskError> {
        let copies = std::mem::take(&mut self.copies);
        copies.into_iter().flat_map(|copy| copy.held.into_values()).try_for_each(|held| self.free(yard, holder, held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_fills_memory_by_the_most_frames_that_it_has_in_use() {
        let operation = |block, order, allocates| RecordedOperation { block, order: Order(order), allocates };
        let movable = Some(MigrateType::Movable);
        // Two frames, then four: the second allocation of a block frees the first.
        let recording = vec![
            operation(0, 1, movable),
            operation(0, 1, None),
            operation(1, 1, movable),
            operation(2, 1, movable),
            operation(2, 1, movable),
        ];
        assert!(can_fill(&recording, 4 * MOST_COPIES) && !can_fill(&recording, 4 * MOST_COPIES + 1));
    }
}
