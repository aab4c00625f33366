//! Carving: a refill that finds the depot empty cuts large blocks of the zone into batches.
//!
//! Under one hold of the zone lock the refill takes a few blocks, smallest first like any allocation, until they have frames for
//! several batches; it touches only their heads. After it drops the lock it clears the tag of each head, gives the list one batch
//! and the stack the rest. In between the frames are in blocks in transit: the depot counts them already, so that no sum of free
//! memory misses them.
//!
//! The frames get no tags ([`untagged`](crate::zone::untagged)). So carving touches the page structures of a block's head and of the
//! heads of batches, one line for each 64 frames. A head is cleared before any frame of its block leaves the refill: from then on
//! another CPU may free the frame to the zone, and a walk under the zone lock must not pass it as a part of the block. The CPU that
//! frees it acquires the clear with the frame, and the zone lock hands it on to the walk.
//!
//! Where zones meet in a section or it has holes, a zero tag says too little: there each frame gets a tag.

use core::ops::Range;

use super::BatchStack;
use crate::memmap::{Located, MapPlace};
use crate::page::{FrameState, Link, Tag};
use crate::platform::{Access, Platform};
use crate::sync::is_broken;
use crate::units::{MigrateType, Order, PageCount};
use crate::zone::batch::{BATCH, Batch, packed};
use crate::zone::buddy::parts_of;
use crate::zone::fixed_vec::FixedVec;
use crate::zone::request::BlockRequest;
use crate::zone::transfer::exchange::RefillRequest;
use crate::zone::view::{LockedZone, ZoneView};

/// The frames that one hold of the lock takes.
const TAKEN: u64 = if cfg!(loom) { 2 * BATCH as u64 } else { 8 * BATCH as u64 };
/// After this many blocks the current batch is filled and no other is begun: in memory of small pieces the lock is not held much
/// longer than for a single batch.
const MANY: usize = BATCH;
/// Blocks for one more batch of one frame each, and the pieces of the last one.
const PIECES: usize = MANY + BATCH + 16;

/// Blocks that were taken off the free lists together.
struct Taken {
    /// By the index of the head, with the order.
    pieces: FixedVec<(u32, u8), PIECES>,
    pages: u64,
}

impl Taken {
    fn new() -> Self {
        Self { pieces: FixedVec::new(), pages: 0 }
    }

    /// Adds a block and tags it as in transit.
    fn add<P: Platform>(
        &mut self,
        locked: &LockedZone<'_, P>,
        block: MapPlace,
        order: Order,
        migrate_type: MigrateType,
    ) {
        locked.tag_block(block, FrameState::InTransit, order, migrate_type);
        self.pieces.push((block.index(), order.0));
        self.pages += order.pages().0;
    }

    /// The indices of the frames of each block.
    fn blocks(&self) -> impl Iterator<Item = Range<u32>> {
        self.pieces.iter().map(|(first, order)| *first..*first + (1 << order))
    }

    /// The indices of all frames, in the order in which their blocks were taken.
    fn frames(&self) -> Frames<'_> {
        Frames { pieces: &self.pieces, rest: 0..0 }
    }
}

/// The remaining frames of some blocks.
struct Frames<'t> {
    pieces: &'t [(u32, u8)],
    /// The rest of the current block.
    rest: Range<u32>,
}

impl Frames<'_> {
    /// Up to `most` neighbours; none at the end. Calls `begin` with each block before it returns frames of it.
    fn run(&mut self, most: usize, begin: impl FnOnce(Range<u32>)) -> Range<u32> {
        if self.rest.is_empty()
            && let Some(((first, order), others)) = self.pieces.split_first()
        {
            self.pieces = others;
            self.rest = *first..*first + (1 << order);
            begin(self.rest.clone());
        }
        let end = self.rest.end.min(self.rest.start + most as u32);
        let run = self.rest.start..end;
        self.rest.start = end;
        run
    }
}

/// Carves batches from large blocks: delivers one, with a rest that does not fill a batch, and pushes all further ones on `stack`.
/// Returns the number of delivered frames.
pub(super) fn fetch<P: Platform>(
    view: ZoneView<'_, P>,
    refill: RefillRequest<'_>,
    stack: &BatchStack,
    mut deliver: impl FnMut(&Batch),
) -> usize {
    let Some(mut locked) = view.lock_for(refill.cpu) else { return 0 };
    let taken = locked.take_for_batches(refill.blocks);
    locked.count_moved(PageCount(taken.pages));
    stack.touch(view.platform, Access::ReadModifyWrite);
    // The first full batch is not for the stack.
    stack.count_coming((taken.pages / BATCH as u64).saturating_sub(1));
    drop(locked);

    let mut delivered = 0;
    let mut chain: Option<(Link, Link)> = None;
    let mut frames = taken.frames();
    loop {
        let batch = next_batch(view, refill.blocks.migrate_type, &mut frames);
        if batch.is_empty() {
            break;
        }
        if !batch.is_full() || delivered == 0 {
            deliver(&batch);
            delivered += batch.len();
            continue;
        }
        let head = packed::pack(view.map, view.platform, &batch, Link::NONE);
        if let Some(last) = chain.and_then(|(_, last)| view.map.next(last)) {
            view.page(last).set_next(head);
        }
        chain = Some((chain.map_or(head, |(first, _)| first), head));
    }
    if let Some((first, last)) = chain {
        stack.push(view.page_links(), view.platform, first, last);
    }
    if is_broken!(HeadsClearedLate) {
        taken.blocks().for_each(|block| dissolve(view, refill.blocks.migrate_type, block));
    }
    delivered
}

/// Makes up to a batch of frames single frames that have left the zone.
fn next_batch<P: Platform>(view: ZoneView<'_, P>, migrate_type: MigrateType, frames: &mut Frames<'_>) -> Batch {
    let mut batch = Batch::new();
    while !batch.is_full() {
        let run = frames.run(BATCH - batch.len(), |block| {
            if !is_broken!(HeadsClearedLate) {
                dissolve(view, migrate_type, block);
            }
        });
        if run.is_empty() {
            break;
        }
        batch.extend(run);
    }
    batch
}

/// Turns a block in transit into single frames outside their zone.
fn dissolve<P: Platform>(view: ZoneView<'_, P>, migrate_type: MigrateType, block: Range<u32>) {
    let head = block.start;
    let (tag, tagged) = match view.untagged_zone_at(head as usize) == Some(view.id) {
        true => (Tag::INTERIOR, head..head + 1),
        false => (Tag::new(FrameState::PerCpu, Order::ZERO, migrate_type, view.id), block),
    };
    // The head last: its tag covers the block until then.
    tagged.rev().for_each(|frame| view.page(view.map.checked(frame)).set_tag(tag));
}

impl<P: Platform> LockedZone<'_, P> {
    /// Takes blocks for several batches, a multiple of a batch if possible, by the rules of [`take_block`](Self::take_block):
    /// blocks of other types only if there is none of the right type, and then for one batch at most.
    fn take_for_batches(&mut self, request: BlockRequest) -> Taken {
        let mut taken = Taken::new();
        // While few whole pageblocks are free, nothing is carved for later.
        let mut wanted = if self.has_whole_pageblocks_racy() { TAKEN } else { BATCH as u64 };
        let mut falls_back = false;
        while taken.pages < wanted {
            if taken.pieces.len() >= MANY {
                wanted = wanted.min(taken.pages.next_multiple_of(BATCH as u64));
            }
            if taken.pages == wanted || self.take_piece(request, wanted - taken.pages, &mut taken) {
                continue;
            }
            falls_back |= taken.pages == 0;
            if !falls_back {
                break;
            }
            wanted = wanted.min(BATCH as u64);
            let Some(pfn) = self.take_block(request) else { break };
            taken.add(self, pfn.place(&self.map), Order::ZERO, request.migrate_type);
        }
        taken
    }

    /// Takes the smallest block of the right type, or as much of it as is wanted; `false` if there is none. While CMA memory is
    /// balanced against ordinary memory, a piece is at most a batch.
    fn take_piece(&mut self, request: BlockRequest, most: u64, taken: &mut Taken) -> bool {
        let most = if self.balances_cma(request) { most.min(BATCH as u64) } else { most };
        self.own_lists(request).into_iter().flatten().any(|list| self.take_piece_of(list, most, request, taken))
    }

    fn take_piece_of(&mut self, list: MigrateType, most: u64, request: BlockRequest, taken: &mut Taken) -> bool {
        let order = self.smallest_order(Order::ZERO, list);
        let Some((block, tag)) = order.and_then(|order| self.first_block_at(order, list)) else { return false };
        self.remove_block(block, tag);
        let part = tag.order().pages().0.min(most) as u32;
        for (piece, order) in parts_of((block, tag.order()), 0..part) {
            taken.add(self, piece, order, request.migrate_type);
        }
        self.put_back_from((block, tag.order()), part, list, tag.residence());
        true
    }
}
