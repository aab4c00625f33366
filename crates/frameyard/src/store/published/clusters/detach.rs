//! Refills by whole clusters: detached from the head of the list under the zone lock, cleared after the lock is dropped.
//!
//! # Protocol
//!
//! 1. Under the lock the refill takes clusters off the head of the list. It reads the first and last page of each, and the first
//!    page behind it. It holds the record from then on, so the pages are free to no one, whatever their tags say
//!    ([`clusters`](super)). Larger blocks are taken off whole; their pages are inside no block then, and only the head needs a
//!    tag that says it is not free.
//! 2. The refill announces the detachment in the CPU's counters ([`Quiescence`](crate::store::quiescence::Quiescence) waits for it)
//!    and drops the lock.
//! 3. It tags the pages as pages of a per-CPU list and clears them, each tag first, and releases the records.
//! 4. It ends the detachment.
//!
//! If whole clusters are enough, the detachment is planned before the lock is taken ([`plan`]); the policy `cluster-bulk` then
//! detaches several at once. A quiesced zone is refilled page by page.

use crate::page::{FrameState, Link, MECHANISM, Tag};
use crate::platform::Platform;
use crate::store::RefillRequest;
use crate::store::batch::{BATCH, Batch};
use crate::store::buddy::pagewise;
use crate::store::published::clusters::list::ClusterId;
use crate::store::published::clusters::plan::{Plan, Planned};
use crate::store::published::clusters::record::Record;
use crate::units::{MigrateType, Order, PageCount, Pfn, PfnRange};
use crate::zone::counters::TransferCounters;
use crate::zone::exclusive::add_exclusive;
use crate::zone::fixed_vec::FixedVec;
use crate::zone::request::BlockRequest;
use crate::zone::view::{ListRules, LockedZone, ZoneView};

/// Pages that were taken off a list together.
#[derive(Clone, Copy)]
enum Piece {
    /// A cluster: its first page and its size. The pages are linked.
    Cluster(Pfn, usize, ClusterId),
    /// Neighbouring pages of a block.
    Run(Pfn, usize),
}

impl Default for Piece {
    fn default() -> Self {
        Self::Run(Pfn(0), 0)
    }
}

impl Piece {
    fn of(planned: &Planned) -> Self {
        let (first, pages, id) = planned.parts();
        Self::Cluster(first, pages, id)
    }

    fn pages(&self) -> usize {
        let (Self::Cluster(_, pages, _) | Self::Run(_, pages)) = *self;
        pages
    }
}

/// What one hold of the lock took off the lists.
struct Detached {
    pieces: FixedVec<Piece, BATCH>,
    pages: usize,
}

impl Detached {
    fn none() -> Self {
        Self { pieces: FixedVec::new(), pages: 0 }
    }

    fn push(&mut self, piece: Piece) {
        self.pages += piece.pages();
        self.pieces.push(piece);
    }
}

/// The cluster at the head of a list.
enum Head {
    Detached(Piece),
    /// It has more pages than the refill takes.
    TooLarge,
    /// There is none.
    NoCluster,
}

/// Fetches single pages by whole clusters.
#[inline(never)]
pub(crate) fn fetch<P: Platform>(
    view: ZoneView<'_, P>,
    refill: RefillRequest,
    several: bool,
    mut deliver: impl FnMut(&Batch),
) -> usize {
    let RefillRequest { wanted, room, .. } = refill;
    let most = if several { room / 2 } else { wanted };
    let mut got = 0;
    while got < wanted {
        let left = wanted - got;
        let at_most = at_most(left.min(BATCH)).max(most.saturating_sub(got));
        let detached = match detach_planned(view, refill, at_most, &mut deliver) {
            0 => detach_walked(view, RefillRequest { wanted: left, ..refill }, &mut deliver),
            planned => planned,
        };
        got += detached;
        if detached == 0 || (detached < left && detached * 2 >= wanted) {
            break;
        }
    }
    got
}

/// Detaches whole clusters of at most `most` pages as planned without the lock, and delivers them. Returns 0, with nothing
/// changed, if the list does not begin as planned.
fn detach_planned<P: Platform>(
    view: ZoneView<'_, P>,
    refill: RefillRequest,
    most: usize,
    deliver: &mut impl FnMut(&Batch),
) -> usize {
    let counters = view.counters_of(refill.cpu);
    let plan = Plan::make(&view, refill.blocks, most);
    if plan.pages() == 0 || !plan.carry_out(&view, counters) {
        return 0;
    }
    for cluster in plan.clusters() {
        let mut batch = Batch::new();
        clear(view, Piece::of(cluster), refill.blocks.migrate_type, &mut batch);
        deliver(&batch);
    }
    counters.end_detachment();
    for cluster in plan.clusters() {
        count(counters, &Piece::of(cluster));
    }
    plan.pages()
}

/// Takes about `wanted` pages, at most a batch, in the pieces that the lists have, and delivers them. Page by page while the
/// zone is quiesced.
fn detach_walked<P: Platform>(view: ZoneView<'_, P>, refill: RefillRequest, deliver: &mut impl FnMut(&Batch)) -> usize {
    let counters = view.counters_of(refill.cpu);
    // Initialised before the lock is taken.
    let mut detached = Detached::none();
    let Some(mut locked) = view.lock_for(refill.cpu) else { return 0 };
    if locked.is_quiesced() {
        return pagewise::fetch_locked(locked, refill.blocks, refill.wanted, deliver, |_| ());
    }
    locked.detach_pieces(refill.blocks, refill.wanted.min(BATCH), &mut detached);
    if detached.pages == 0 {
        return 0;
    }
    locked.count_moved(PageCount(detached.pages as u64));
    counters.begin_detachment();
    drop(locked);
    let mut batch = Batch::new();
    for piece in detached.pieces.iter() {
        clear(view, *piece, refill.blocks.migrate_type, &mut batch);
        count(counters, piece);
    }
    counters.end_detachment();
    deliver(&batch);
    detached.pages
}

/// The largest cluster taken for `wanted` pages.
fn at_most(wanted: usize) -> usize {
    (wanted + wanted / 2).min(BATCH)
}

/// Counts a detached cluster. The caller holds the lock of the CPU's lists.
fn count(counters: &TransferCounters, piece: &Piece) {
    if let Piece::Cluster(_, pages, _) = *piece {
        let counts = &counters.mechanisms.clusters;
        add_exclusive(&counts.detachments, 1);
        add_exclusive(&counts.detached_pages, pages as u64);
    }
}

/// Turns a piece into pages of a per-CPU list, without the lock.
fn clear<P: Platform>(view: ZoneView<'_, P>, piece: Piece, migrate_type: MigrateType, batch: &mut Batch) {
    let taken = Tag::new(FrameState::PerCpu, Order::ZERO, migrate_type, view.id);
    match piece {
        Piece::Cluster(first, pages, id) => {
            let mut at = view.map.link(first);
            for _ in 0..pages {
                let Some(pfn) = view.map.linked(at) else { break };
                let page = view.page(pfn);
                at = page.next();
                page.set_tag(taken);
                page.set_next(Link::NONE);
                page.set_prev(Link::NONE);
                page.set_payload(MECHANISM, 0);
                batch.push(view.map.index(pfn));
            }
            view.release_record(id);
        }
        Piece::Run(first, pages) => {
            for offset in 0..pages as u64 {
                let pfn = first + PageCount(offset);
                view.page(pfn).set_tag(taken);
                batch.push(view.map.index(pfn));
            }
        }
    }
}

impl<P: Platform> LockedZone<'_, P> {
    /// Takes about `wanted` single pages off the lists, in pieces that are cleared later.
    fn detach_pieces(&mut self, request: BlockRequest, wanted: usize, detached: &mut Detached) {
        let migrate_type = request.migrate_type;
        let most = at_most(wanted);
        while detached.pages < wanted {
            let balanced = self.balances_cma(request);
            let head =
                if balanced { Head::NoCluster } else { self.detach_cluster(migrate_type, most - detached.pages) };
            let piece = match head {
                Head::Detached(piece) => Some(piece),
                Head::TooLarge if detached.pages * 2 >= wanted => None,
                _ if balanced => self.detach_block(request),
                _ => self.detach_run(migrate_type, wanted - detached.pages).or_else(|| self.detach_block(request)),
            };
            let Some(piece) = piece else { break };
            detached.push(piece);
        }
    }

    /// Takes the cluster at the head of a list if it has at most `most` pages.
    fn detach_cluster(&mut self, migrate_type: MigrateType, most: usize) -> Head {
        let Some((first, tag)) = self.first_block(Order::ZERO, migrate_type) else { return Head::NoCluster };
        let id = tag.is_tentative().then(|| ClusterId::named(self.page(first).payload(MECHANISM))).flatten();
        let Some(id) = id else { return Head::NoCluster };
        let record = self.record(id);
        if record.size() == 0 {
            self.note_corrupt();
            return Head::NoCluster;
        }
        if record.size() > most {
            return Head::TooLarge;
        }
        let Some(tail) = self.map.linked(record.tail()) else { return Head::NoCluster };
        self.set_record(id, Record::HELD);
        self.sub_skipped(record.skipped() as u64);
        self.detach_head(migrate_type, tail, record.size() as u64);
        Head::Detached(Piece::Cluster(first, record.size(), id))
    }

    /// Takes up to `wanted` pages of the smallest block of a type, from its lower end.
    fn detach_run(&mut self, migrate_type: MigrateType, wanted: usize) -> Option<Piece> {
        let found = self.smallest_order(Order::ZERO, migrate_type)?;
        let (block, tag) = self.first_block(found, migrate_type)?;
        self.remove_block(block, tag);
        self.tag_block(block, FrameState::InTransit, Order::ZERO, migrate_type);
        let pages = (1 << found.0).min(wanted);
        let rest = PfnRange { start: block + PageCount(pages as u64), end: block + found.pages() };
        self.put_back_pieces(rest, migrate_type, tag.residence());
        Some(Piece::Run(block, pages))
    }

    /// Takes one page, if need be of another type.
    fn detach_block(&mut self, request: BlockRequest) -> Option<Piece> {
        let pfn = self.take_block(request)?;
        self.tag_block(pfn, FrameState::InTransit, Order::ZERO, request.migrate_type);
        Some(Piece::Run(pfn, 1))
    }
}
