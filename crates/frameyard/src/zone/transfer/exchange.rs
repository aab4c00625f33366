//! What refills, drains and collectors pass to a mechanism.

use crate::page::Link;
use crate::platform::Platform;
use crate::units::{CpuId, MigrateType, Order, Pfn, PfnRange};
use crate::zone::batch::{BATCH, Batch, packed};
use crate::zone::effort::{Effort, Patience};
use crate::zone::request::BlockRequest;
use crate::zone::view::ZoneView;

/// What a refill asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RefillRequest<'a> {
    pub(crate) blocks: BlockRequest,
    /// The CPU for whose list it is. The caller holds the lock of that CPU's lists.
    pub(crate) cpu: CpuId,
    /// How many blocks: a batch.
    pub(crate) wanted: usize,
    /// How many blocks the list may get before it is at its limit.
    pub(crate) room: usize,
    /// How many blocks the list has given out so far: a refill that takes more than is wanted should not take many times as much.
    pub(crate) given_out: u64,
    /// The type of the list, if it is of a small order and has room for whole batches.
    pub(crate) batch_type: Option<MigrateType>,
    /// What the refill may spend on merging.
    pub(crate) effort: &'a Effort,
}

impl RefillRequest<'_> {
    /// The batches that the list has room for, up to `most`; at least one.
    pub(crate) fn batches_up_to(&self, most: usize) -> usize {
        (self.room / BATCH).clamp(1, most)
    }
}

/// What a refill delivers to its list.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Delivered<'b> {
    /// The list should give out the first one first.
    Blocks(&'b Batch),
    /// The list should give out the last block of the first batch first.
    Packed(PackedBatches),
}

/// Why blocks leave a CPU's lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum DrainReason {
    /// The lists are over their limit.
    Overflow,
    /// A list's array is full, though the lists are below their limit: a mechanism may take a batch that it can move cheaply.
    ArrayFull,
    /// The lists are emptied: their blocks are wanted on the free lists, merged.
    Emptying,
}

/// A per-CPU list that gives up blocks.
pub(crate) trait DrainSource {
    /// The type of the list, if it is of a small order and has room for whole batches.
    fn batch_type(&self) -> Option<MigrateType>;
    /// Announces a use of the list's entries.
    fn announce(&self);
    /// Takes up to `most` blocks, at most a batch, oldest first, into `batch`, which is empty.
    fn take(&mut self, most: usize, batch: &mut Batch);
    /// Takes full packed batches, if the list has any or can pack one.
    fn take_packed(&mut self) -> Option<PackedBatches>;
}

/// A chain of full packed batches on its way between a list and a mechanism.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PackedBatches {
    /// The head of the batch that was freed last, or should be allocated first.
    pub(crate) first: Link,
    /// The head of the last one. Its link to the next batch means nothing.
    pub(crate) last: Link,
    pub(crate) batches: usize,
}

impl PackedBatches {
    /// Unpacks the batches, of blocks of that order, and gives each to `take`; whether all are sound.
    pub(crate) fn unpack<P: Platform>(&self, view: ZoneView<'_, P>, order: Order, mut take: impl FnMut(Batch)) -> bool {
        let mut head = self.first;
        (0..self.batches).all(|_| {
            let mut batch = Batch::new();
            let next = packed::unpack(view.map, (view.platform, view.id), (head, order), &mut batch);
            head = next.unwrap_or(Link::NONE);
            take(batch);
            next.is_some()
        })
    }
}

/// What should return to the free lists.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Collect<'a> {
    /// Everything. Waits with that patience for what other CPUs collect.
    All(Patience),
    /// What the mechanisms hold of the pageblock around a frame.
    Pageblock(Pfn),
    /// Deferred merges of a range, as far as buddies are free.
    Merges(PfnRange),
    /// Depot batches for a request of that order and type, as far as its effort allows.
    For(Order, MigrateType, &'a Effort),
    /// What all mechanisms hold for such a request, as far as its effort allows. Waits for no other CPU but for locks.
    Within(Order, MigrateType, &'a Effort),
    /// A background step: some batches, if large blocks run low.
    InBackground,
}

/// What came of collecting.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Collected {
    /// Whether the mechanisms held anything that was asked for. Counted for [`Collect::For`] only.
    pub(crate) any: bool,
    /// Merges made. Counted for [`Collect::Merges`] only.
    pub(crate) merges: u64,
}
