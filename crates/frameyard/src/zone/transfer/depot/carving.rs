//! JobGranularity large blocks of a zone into batches: what a refill does when the depot is empty.
//!
//! Under one hold of the zone lock a few blocks are taken, the smallest first as any allocation takes them, until there are
//! frames for several batches; of them only the heads are touched. When the lock is given back, every frame gets its tag,
//! the list gets one batch and the stack the others. Between the two the frames are in blocks that are in transit: they
//! are counted with the depot already, so that nobody who sums up free memory misses them.

use core::ops::Range;

use super::BatchStack;
use crate::page::{FrameState, Link, Tag};
use crate::platform::{Access, Platform};
use crate::units::{CpuId, MigrateType, Order, PageCount, Pfn, PfnRange};
use crate::zone::pcp::packed::{self, BATCH};
use crate::zone::transfer::Batch;
use crate::zone::{BlockRequest, CmaUse, LockedZone, ZoneView, pieces};

/// How many frames one hold of the lock is for.
const CUT: u64 = if cfg!(loom) { 2 * BATCH as u64 } else { 8 * BATCH as u64 };
/// After so many blocks the batch that was begun is filled, and no other is begun: where memory is in small pieces, the
/// lock is not held much longer than for a single batch.
const MANY: usize = BATCH;
/// Blocks for one batch more, of one frame each, and the pieces of the last one.
const PIECES: usize = MANY + BATCH + 16;

/// Blocks that were taken off the free lists together.
struct Taken {
    pieces: [(u32, u8); PIECES],
    len: usize,
    pages: u64,
}

impl Taken {
    fn new() -> Self {
        Self { pieces: [(0, 0); PIECES], len: 0, pages: 0 }
    }

    /// Adds a block, and tags it as on its way.
    fn add<P: Platform>(&mut self, locked: &LockedZone<'_, P>, pfn: Pfn, order: Order, migrate_type: MigrateType) {
        locked.tag_block(pfn, FrameState::InTransit, order, migrate_type);
        self.pieces[self.len] = (locked.map.index(pfn), order.0);
        self.len += 1;
        self.pages += order.pages().0;
    }

    /// The places of all frames, in the order in which their blocks were taken.
    fn frames(&self) -> Frames<'_> {
        Frames { pieces: &self.pieces[..self.len], rest: 0..0 }
    }
}

/// What is left of the frames of some blocks.
struct Frames<'t> {
    pieces: &'t [(u32, u8)],
    /// Of the block that was begun.
    rest: Range<u32>,
}

impl Frames<'_> {
    /// Up to so many neighbours; none at the end.
    fn run(&mut self, most: usize) -> Range<u32> {
        if self.rest.is_empty()
            && let Some(((first, order), others)) = self.pieces.split_first()
        {
            self.pieces = others;
            self.rest = *first..*first + (1 << order);
        }
        let end = self.rest.end.min(self.rest.start + most as u32);
        let run = self.rest.start..end;
        self.rest.start = end;
        run
    }
}

/// Takes blocks, cuts them into batches, gives one to `deliver`, with what does not fill a batch, and leaves the others on
/// `stack`. How many frames were delivered.
pub(super) fn fetch<P: Platform>(
    view: ZoneView<'_, P>,
    request: BlockRequest,
    cpu: CpuId,
    stack: &BatchStack,
    mut deliver: impl FnMut(&Batch),
) -> usize {
    let mut locked = view.lock_for(cpu);
    let taken = locked.take_for_batches(request);
    locked.count_moved(PageCount(taken.pages));
    stack.touch(view.platform, Access::ReadModifyWrite);
    // The first full batch is not for the stack.
    stack.count_coming((taken.pages / BATCH as u64).saturating_sub(1));
    drop(locked);

    let mut delivered = 0;
    let mut chain: Option<(Link, Link)> = None;
    let mut frames = taken.frames();
    loop {
        let picked = next_batch(view, request.migrate_type, &mut frames);
        if picked.len == 0 {
            break;
        }
        if picked.len < BATCH || delivered == 0 {
            deliver(&picked);
            delivered += picked.len;
            continue;
        }
        let leader = packed::pack(view.map, view.platform, picked.entries(), Link::NONE);
        if let Some(last) = chain.and_then(|(_, last)| view.map.next(last)) {
            view.page(last).set_next(leader);
        }
        chain = Some((chain.map_or(leader, |(first, _)| first), leader));
    }
    if let Some((first, last)) = chain {
        stack.push(view.map, view.platform, first, last);
    }
    delivered
}

/// Tags frames as those of per-CPU lists, up to a batch.
fn next_batch<P: Platform>(view: ZoneView<'_, P>, migrate_type: MigrateType, frames: &mut Frames<'_>) -> Batch {
    let tag = Tag::new(FrameState::PerCpu, Order::ZERO, migrate_type, view.id);
    let mut picked = Batch::none();
    while picked.len < BATCH {
        let run = frames.run(BATCH - picked.len);
        if run.is_empty() {
            break;
        }
        for (slot, frame) in picked.entries[picked.len..].iter_mut().zip(run.clone()) {
            view.page(view.map.pfn(frame)).set_tag(tag);
            *slot = frame;
        }
        picked.len += run.len();
    }
    picked
}

impl<P: Platform> LockedZone<'_, P> {
    /// Takes blocks for several batches, a multiple of a batch if there is as much, by the rules of
    /// [`take_block`](Self::take_block): other types' blocks are taken only where there is none of the right one, and no
    /// more than for one batch.
    fn take_for_batches(&mut self, request: BlockRequest) -> Taken {
        let mut taken = Taken::new();
        // Where large blocks are few, nothing is cut for later.
        let mut wanted = if self.has_whole_pageblocks_racy() { CUT } else { BATCH as u64 };
        let mut falls_back = false;
        while taken.pages < wanted {
            if taken.len >= MANY {
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
            taken.add(self, pfn, Order::ZERO, request.migrate_type);
        }
        taken
    }

    /// Takes the smallest block of the right type, or as much of it as is wanted; `false` where there is none.
    ///
    /// Movable requests use CMA as in [`take_block`](Self::take_block); where there is some free, a piece is no more than a
    /// batch, so that the two kinds stay in balance.
    fn take_piece(&mut self, request: BlockRequest, most: u64, taken: &mut Taken) -> bool {
        let BlockRequest { migrate_type, cma, .. } = request;
        let cma = migrate_type == MigrateType::Movable && cma == CmaUse::Allowed && self.free_cma().0 > 0;
        if !cma {
            return self.take_piece_of(migrate_type, most, request, taken);
        }
        let most = most.min(BATCH as u64);
        let cma_first = self.free_cma().0 > self.free_pages().0 / 2;
        let (first, second) =
            if cma_first { (MigrateType::Cma, migrate_type) } else { (migrate_type, MigrateType::Cma) };
        self.take_piece_of(first, most, request, taken) || self.take_piece_of(second, most, request, taken)
    }

    fn take_piece_of(&mut self, list: MigrateType, most: u64, request: BlockRequest, taken: &mut Taken) -> bool {
        let orders = self.orders_from(Order::ZERO, list);
        let Some(pfn) =
            orders.checked_ilog2().and_then(|_| self.first_block(Order(orders.trailing_zeros() as u8), list))
        else {
            return false;
        };
        let tag = self.page(pfn).tag();
        self.remove_block(pfn, tag);
        let block = PfnRange::new(pfn, tag.order().pages());
        let part = PfnRange::new(pfn, PageCount(block.count().0.min(most)));
        for (pfn, order) in pieces(part, tag.order()) {
            taken.add(self, pfn, order, request.migrate_type);
        }
        self.put_back_pieces(PfnRange { start: part.end, end: block.end }, list, tag.residence());
        true
    }
}
