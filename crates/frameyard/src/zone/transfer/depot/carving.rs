//! Carving: a refill that finds the stacks of its order empty cuts larger blocks into batches.
//!
//! Under one hold of the zone lock the refill takes a few blocks, smallest first like any allocation, until they have frames for
//! several batches; it touches only their heads. After it drops the lock it clears the tag of each head, gives the list what that has
//! room for, up to four batches, and the stack the rest. In between the frames are in blocks in transit: the depot counts them already, so that no sum of free
//! memory misses them.
//!
//! A block of a batch or more makes batches of neighbours, so only the head of each batch is written. Smaller ones share batches,
//! which come first.
//!
//! Single frames get no tags ([`untagged`](crate::zone::untagged)). So carving them touches the page structures of a block's head and of the
//! heads of batches, one line for each 64 frames. A head is cleared before any frame of its block leaves the refill: from then on
//! another CPU may free the frame to the zone, and a walk under the zone lock must not pass it as a part of the block. The CPU that
//! frees it acquires the clear with the frame, and the zone lock hands it on to the walk.
//!
//! Blocks of larger orders that wait in the depot are cut in the same way, without the lock: smallest first, and no more than a batch
//! needs, so that large ones last.
//!
//! Where zones meet in a section or it has holes, a zero tag says too little: there each frame gets a tag. So does each block of a larger
//! order, everywhere.

use core::ops::Range;

use super::{BatchStack, PackedBatches};
use crate::memmap::{Located, MapPlace};
use crate::page::{FrameState, Link, Tag};
use crate::platform::{Access, Platform};
use crate::sync::is_broken;
use crate::units::{MigrateType, Order, PageCount, PfnRange};
use crate::zone::batch::{BATCH, Batch, batch_len, batch_pages, packed};
use crate::zone::buddy::parts_of;
use crate::zone::checks::PageChecks;
use crate::zone::fixed_vec::FixedVec;
use crate::zone::request::BlockRequest;
use crate::zone::transfer::exchange::{Delivered, RefillRequest};
use crate::zone::view::{LockedZone, ZoneView};

/// The frames that one hold of the lock takes where whole pageblocks are plenty.
pub(super) const TAKEN: u64 = if cfg!(loom) { 2 * BATCH as u64 } else { 8 * BATCH as u64 };
/// After this many blocks the current batch is filled and no other is begun: in memory of small pieces the lock is not held much
/// longer than for a single batch.
const MANY: usize = BATCH;
/// Blocks for one more batch of the smallest blocks, and the pieces of the last one.
const PIECES: usize = MANY + BATCH + 16;

/// How many blocks ahead, of those that lie at equal distances in memory, a refill prefetches.
const AHEAD: u32 = 6;

/// Blocks that were taken off the free lists together.
pub(super) struct Taken {
    /// By the index of the head, with the order.
    pieces: FixedVec<(u32, u8), PIECES>,
    pub(super) pages: u64,
}

impl Taken {
    pub(super) fn new() -> Self {
        Self { pieces: FixedVec::new(), pages: 0 }
    }

    /// Adds a block and tags it as in transit.
    fn add<P: Platform>(
        &mut self,
        locked: &LockedZone<'_, P>,
        (block, order): (MapPlace, Order),
        request: BlockRequest,
    ) {
        locked.tag_block(block, FrameState::InTransit, order, request.migrate_type);
        if P::SEES_PAGES && request.order > Order::ZERO {
            locked.platform.block_taken(PfnRange::new(locked.map.pfn(block), order.pages()));
        }
        // Neighbours on a list of large blocks are often neighbours in memory, at a distance for which no processor reads ahead.
        if let Some((last, _)) = self.pieces.last() {
            let step = block.index().wrapping_sub(*last);
            if let Some(ahead) = locked.map.entry(block.index().wrapping_add(step.wrapping_mul(AHEAD))) {
                locked.page(ahead).prefetch();
            }
        }
        self.push(block.index(), order);
    }

    fn push(&mut self, block: u32, order: Order) {
        self.pieces.push((block, order.0));
        self.pages += order.pages().0;
    }

    /// Counts what [`divide`] will push.
    fn count_coming<P: Platform>(&self, view: ZoneView<'_, P>, each: Order, (stack, most): (&BatchStack, usize)) {
        stack.touch(view.platform, Access::ReadModifyWrite);
        stack.count_coming((self.pages / batch_pages(each)).saturating_sub(most as u64));
    }

    /// The indices of the frames of each block.
    pub(super) fn blocks(&self) -> impl Iterator<Item = Range<u32>> {
        self.pieces.iter().map(|(first, order)| *first..*first + (1 << order))
    }
}

/// Carves batches from large blocks: delivers up to `most`, with a rest that does not fill a batch, and pushes all further ones on `stack`.
/// Takes up to `frames` frames from the zone, rounded up to whole batches. Returns the number of delivered blocks.
pub(super) fn fetch<P: Platform>(
    view: ZoneView<'_, P>,
    refill: RefillRequest<'_>,
    (stack, most, frames): (&BatchStack, usize, u64),
    deliver: impl FnMut(Delivered<'_>),
) -> usize {
    let each = refill.blocks.order;
    let wanted = frames.max(1).next_multiple_of(batch_pages(each));
    let mut taken = Taken::new();
    let Some(mut locked) = view.lock_for(refill.cpu) else { return 0 };
    locked.take_for_batches(refill.blocks, batch_len(each), wanted, &mut taken);
    locked.count_moved(PageCount(taken.pages));
    taken.count_coming(view, each, (stack, most));
    drop(locked);
    divide(view, refill.blocks, (stack, most), &taken, deliver)
}

/// Cuts blocks of the order `of` that a refill popped from the stack `source`, as [`fetch`] does with blocks of the zone.
pub(super) fn cut<P: Platform>(
    view: ZoneView<'_, P>,
    refill: RefillRequest<'_>,
    (stack, most): (&BatchStack, usize),
    (of, (popped, source)): (Order, (PackedBatches, &BatchStack)),
    deliver: impl FnMut(Delivered<'_>),
) -> usize {
    let mut taken = Taken::new();
    let mut is_sound = popped.unpack(view, of, |batch| {
        // As many blocks as there is room for.
        let full = if batch.len() == batch_len(of) { &batch[..] } else { &[] };
        full.iter().for_each(|block| taken.push(*block, of));
    });
    is_sound &= taken.pages == popped.batches as u64 * batch_pages(of);
    if !is_sound {
        view.note_corrupt();
    }
    taken.count_coming(view, refill.blocks.order, (stack, most));
    source.count_popped(popped.batches as u64);
    divide(view, refill.blocks, (stack, most), &taken, deliver)
}

/// Divides blocks that a refill owns into batches: delivers up to `most`, with a rest that does not fill a batch, and pushes all further
/// ones on `stack`. Returns the number of delivered blocks.
fn divide<P: Platform>(
    view: ZoneView<'_, P>,
    request: BlockRequest,
    (stack, most): (&BatchStack, usize),
    taken: &Taken,
    mut deliver: impl FnMut(Delivered<'_>),
) -> usize {
    let each = request.order;
    let len = batch_len(each);
    let links = view.page_links();
    let (mut of_list, mut of_stack) = (PackedBatches::EMPTY, PackedBatches::EMPTY);
    let mut delivered = 0;
    let mut add = |carved: Carved<'_>| {
        let is_for_list = delivered < most * len;
        delivered += if is_for_list { len } else { 0 };
        match (is_for_list, view.checks) {
            (true, PageChecks::None) => of_list.append(links, carved.pack(view, each)),
            // Packing would overwrite words of bad pages.
            (true, _) => deliver(Delivered::Blocks(&carved.batch(each))),
            (false, _) => of_stack.append(links, carved.pack(view, each)),
        }
    };
    let open = |block: &Range<u32>| {
        if !is_broken!(HeadsClearedLate) {
            dissolve(view, request, block.clone());
        }
    };
    let whole = len << each.0;
    let mut mixed = Batch::new();
    for block in taken.blocks().filter(|block| block.len() < whole) {
        open(&block);
        for piece in block.step_by(1 << each.0) {
            mixed.push(piece);
            if mixed.len() == len {
                add(Carved::Mixed(&mixed));
                mixed.clear();
            }
        }
    }
    for block in taken.blocks().filter(|block| block.len() >= whole) {
        open(&block);
        block.step_by(whole).for_each(|first| add(Carved::Run(first)));
    }
    if !mixed.is_empty() {
        deliver(Delivered::Blocks(&mixed));
    }
    if of_list.batches > 0 {
        deliver(Delivered::Packed(of_list));
    }
    if of_stack.batches > 0 {
        stack.push(links, view.platform, of_stack.first, of_stack.last);
    }
    if is_broken!(HeadsClearedLate) {
        taken.blocks().for_each(|block| dissolve(view, request, block));
    }
    delivered + mixed.len()
}

/// A batch that was carved.
#[derive(Clone, Copy)]
enum Carved<'b> {
    /// Neighbours, by the index of the first.
    Run(u32),
    /// Parts of small blocks.
    Mixed(&'b Batch),
}

impl Carved<'_> {
    /// The batch, of blocks of the order `each`.
    fn batch(self, each: Order) -> Batch {
        match self {
            Self::Run(first) => {
                let mut batch = Batch::new();
                (0..batch_len(each) as u32).for_each(|at| batch.push(first + (at << each.0)));
                batch
            }
            Self::Mixed(batch) => *batch,
        }
    }

    /// Packs the batch, so that a list gives out its first block first. Returns the link to its head.
    #[inline(always)]
    fn pack<P: Platform>(self, view: ZoneView<'_, P>, each: Order) -> Link {
        match self {
            Self::Run(first) => {
                let (step, len) = (1 << each.0, batch_len(each));
                let descending = (first + (len as u32 - 1) * step, step.wrapping_neg(), len);
                packed::pack_steps(view.map, view.platform, descending, Link::NONE)
            }
            Self::Mixed(batch) => {
                let mut reversed = *batch;
                reversed.reverse();
                packed::pack(view.map, view.platform, &reversed, Link::NONE)
            }
        }
    }
}

/// Turns a block in transit into blocks of the requested order outside their zone.
pub(super) fn dissolve<P: Platform>(view: ZoneView<'_, P>, request: BlockRequest, block: Range<u32>) {
    let (head, each) = (block.start, request.order);
    let is_untagged = each == Order::ZERO && view.untagged_zone_at(head as usize) == Some(view.id);
    let (tag, tagged) = match is_untagged {
        true => (Tag::INTERIOR, head..head + 1),
        false => (Tag::new(FrameState::PerCpu, each, request.migrate_type, view.id), block),
    };
    // The head last: its tag covers the block until then.
    let tagged = tagged.step_by(1 << each.0).rev();
    tagged.for_each(|place| view.page(view.map.checked(place)).set_tag(tag));
}

impl<P: Platform> LockedZone<'_, P> {
    /// Takes blocks for batches of that many requested blocks, up to `wanted` frames, a multiple of a batch if possible, by the rules of
    /// [`take_block`](Self::take_block): blocks of other types only if there is none of the right type, and then for one batch at most.
    pub(super) fn take_for_batches(&mut self, request: BlockRequest, batch: usize, wanted: u64, taken: &mut Taken) {
        let (batch, mut wanted) = ((batch as u64) << request.order.0, wanted);
        let mut falls_back = false;
        while taken.pages < wanted {
            self.prefer_draining(request.order, request.migrate_type);
            if taken.pieces.len() >= MANY {
                wanted = wanted.min(taken.pages.next_multiple_of(batch));
            }
            if taken.pages == wanted || self.take_piece(request, batch, wanted - taken.pages, taken) {
                continue;
            }
            falls_back |= taken.pages == 0;
            if !falls_back {
                break;
            }
            wanted = wanted.min(batch);
            let Some(pfn) = self.take_block(request) else { break };
            taken.add(self, (pfn.place(&self.map), request.order), request);
        }
    }

    /// Takes the smallest block of the right type, or as much of it as is wanted; `false` if there is none. While CMA memory is
    /// balanced against ordinary memory, a piece is at most a batch.
    fn take_piece(&mut self, request: BlockRequest, batch: u64, most: u64, taken: &mut Taken) -> bool {
        let most = if self.balances_cma(request) { most.min(batch) } else { most };
        self.own_lists(request).into_iter().flatten().any(|list| self.take_piece_of(list, most, request, taken))
    }

    fn take_piece_of(&mut self, list: MigrateType, most: u64, request: BlockRequest, taken: &mut Taken) -> bool {
        let order = self.order_to_take(request.order, list);
        let Some((block, tag)) = order.and_then(|order| self.first_block_at(order, list)) else { return false };
        self.remove_block(block, tag);
        let part = tag.order().pages().0.min(most) as u32;
        for (piece, order) in parts_of((block, tag.order()), 0..part) {
            taken.add(self, (piece, order), request);
        }
        self.put_back_from((block, tag.order()), part, list, tag.residence());
        true
    }
}
