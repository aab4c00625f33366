//! Refills by whole clusters: cut off the head of the list under the zone lock, cleared when the lock is given back.
//!
//! # Protocol
//!
//! 1. Under the lock, clusters are taken off the head of the list: first and last page of each are looked at, and the first
//!    page behind it. Its record is held from then on, so its pages are not free to anybody, whatever their tags say
//!    ([`clusters`](super::clusters)). Larger blocks are taken off whole; a page of such a block is inside no block then. What
//!    has to be tagged so that nobody takes it for free is the head alone.
//! 2. The CPU's row says that a cut is in progress ([`Quiescence`](super::Quiescence) waits for it), and the lock is given
//!    back.
//! 3. The pages are tagged as pages of a per-CPU list and cleared, each tag first, and the records released.
//! 4. The cut is in progress no more.
//!
//! Where whole clusters are all that is needed, the cut is planned before the lock is taken ([`plan`]), and under
//! [`ZonePolicy::ClusterBulk`](crate::policy::ZonePolicy) several are cut off at once. A zone that is suspended is refilled page by page.

use super::clusters::{ClusterId, Record};
use super::{Batch, TransferCounters, pages};
use crate::page::{CLUSTER, FrameState, Link, Tag};
use crate::platform::Platform;
use crate::units::{CpuId, MigrateType, Order, PageCount, Pfn, PfnRange};
use crate::zone::pcp::packed::BATCH;
use crate::zone::{BlockRequest, CmaUse, LockedZone, ZoneView, add_exclusive};

mod plan;

use plan::Plan;

/// Pages that were taken off a list together.
#[derive(Clone, Copy)]
enum Piece {
    /// A cluster: its first page and how many it has. They are linked.
    Cluster(Pfn, usize, ClusterId),
    /// Neighbours of a block.
    Run(Pfn, usize),
}

/// What one hold of the lock took off the lists.
struct Cut {
    pieces: [Piece; BATCH],
    len: usize,
    pages: usize,
}

impl Cut {
    fn none() -> Self {
        Self { pieces: [Piece::Run(Pfn(0), 0); BATCH], len: 0, pages: 0 }
    }

    fn push(&mut self, piece: Piece) {
        let (Piece::Cluster(_, pages, _) | Piece::Run(_, pages)) = piece;
        self.pieces[self.len] = piece;
        self.len += 1;
        self.pages += pages;
    }
}

/// Whether the cluster at the head of a list could be taken.
enum Head {
    Cut(Piece),
    /// It has more pages than are wanted.
    TooLarge,
    /// There is none.
    NoCluster,
}

/// How many pages a refill by clusters takes.
#[derive(Clone, Copy)]
pub(super) struct Amount {
    /// A few more or fewer where that spares cutting a cluster in two.
    pub(super) wanted: usize,
    /// Up to how many where whole clusters are there.
    pub(super) most: usize,
}

/// Fetches single pages by whole clusters.
pub(super) fn fetch<P: Platform>(
    view: ZoneView<'_, P>,
    request: BlockRequest,
    cpu: CpuId,
    Amount { wanted, most }: Amount,
    mut deliver: impl FnMut(&Batch),
) -> usize {
    let mut got = 0;
    while got < wanted {
        let left = wanted - got;
        let at_most = at_most(left.min(BATCH)).max(most.saturating_sub(got));
        let cut = match cut_planned(view, request, cpu, at_most, &mut deliver) {
            0 => cut_walked(view, request, cpu, left, &mut deliver),
            planned => planned,
        };
        got += cut;
        if cut == 0 || (cut < left && cut * 2 >= wanted) {
            break;
        }
    }
    got
}

/// Cuts whole clusters of at most so many pages off, as planned without the lock, and delivers them; 0, and nothing changed,
/// where they do not stand as planned.
fn cut_planned<P: Platform>(
    view: ZoneView<'_, P>,
    request: BlockRequest,
    cpu: CpuId,
    most: usize,
    deliver: &mut impl FnMut(&Batch),
) -> usize {
    let row = view.row_of(cpu);
    let plan = Plan::make(&view, request, most);
    if plan.pages() == 0 || !plan.carry_out(&view, row) {
        return 0;
    }
    for cluster in plan.clusters() {
        let mut picked = Batch::none();
        clear(view, cluster.piece(), request.migrate_type, &mut picked);
        deliver(&picked);
    }
    row.end_detachment();
    for cluster in plan.clusters() {
        count(row, &cluster.piece());
    }
    plan.pages()
}

/// Takes about `wanted` pages, a batch at most, in whatever pieces they are found under the lock, and delivers them; page by
/// page while the zone is suspended.
fn cut_walked<P: Platform>(
    view: ZoneView<'_, P>,
    request: BlockRequest,
    cpu: CpuId,
    wanted: usize,
    deliver: &mut impl FnMut(&Batch),
) -> usize {
    let row = view.row_of(cpu);
    // What is written before the lock is taken is not written under it.
    let mut cut = Cut::none();
    let mut locked = view.lock_for(cpu);
    if locked.is_quiesced() {
        return pages::fetch_locked(locked, request, wanted, deliver, |_| ());
    }
    locked.cut_pieces(request, wanted.min(BATCH), &mut cut);
    if cut.pages == 0 {
        return 0;
    }
    locked.count_moved(PageCount(cut.pages as u64));
    row.begin_detachment();
    drop(locked);
    let mut picked = Batch::none();
    for piece in &cut.pieces[..cut.len] {
        clear(view, *piece, request.migrate_type, &mut picked);
        count(row, piece);
    }
    row.end_detachment();
    deliver(&picked);
    cut.pages
}

/// What a cluster may exceed what is wanted by.
fn at_most(wanted: usize) -> usize {
    (wanted + wanted / 2).min(BATCH)
}

/// Counts a cluster that was cut off. The caller holds the lock of the CPU's lists.
fn count(row: &TransferCounters, piece: &Piece) {
    if let Piece::Cluster(_, pages, _) = *piece {
        add_exclusive(&row.transfer.cuts, 1);
        add_exclusive(&row.transfer.cut_pages, pages as u64);
    }
}

/// Makes pages of a per-CPU list of what was cut, without the lock.
fn clear<P: Platform>(view: ZoneView<'_, P>, piece: Piece, migrate_type: MigrateType, picked: &mut Batch) {
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
                page.set_payload(CLUSTER, 0);
                picked.push(view.map.index(pfn));
            }
            view.release_record(id);
        }
        Piece::Run(first, pages) => {
            for offset in 0..pages as u64 {
                let pfn = first + PageCount(offset);
                view.page(pfn).set_tag(taken);
                picked.push(view.map.index(pfn));
            }
        }
    }
}

impl<P: Platform> LockedZone<'_, P> {
    /// Takes about `wanted` single pages off the lists for a request, in pieces that are cleared later.
    fn cut_pieces(&mut self, request: BlockRequest, wanted: usize, cut: &mut Cut) {
        let BlockRequest { migrate_type, cma, .. } = request;
        let most = at_most(wanted);
        while cut.pages < wanted {
            // CMA is balanced against ordinary memory block by block.
            let balanced = migrate_type == MigrateType::Movable && cma == CmaUse::Allowed && self.free_cma().0 > 0;
            let head = if balanced { Head::NoCluster } else { self.cut_cluster(migrate_type, most - cut.pages) };
            let piece = match head {
                Head::Cut(piece) => Some(piece),
                Head::TooLarge if cut.pages * 2 >= wanted => None,
                _ if balanced => self.cut_block(request),
                _ => self.cut_run(migrate_type, wanted - cut.pages).or_else(|| self.cut_block(request)),
            };
            let Some(piece) = piece else { break };
            cut.push(piece);
        }
    }

    /// Takes the cluster at the head of a list, if it has at most so many pages.
    fn cut_cluster(&mut self, migrate_type: MigrateType, most: usize) -> Head {
        let Some(first) = self.first_block(Order::ZERO, migrate_type) else { return Head::NoCluster };
        let page = self.page(first);
        let id = page.tag().is_clustered().then(|| ClusterId::named(page.payload(CLUSTER))).flatten();
        let Some(id) = id else { return Head::NoCluster };
        let record = self.record(id);
        if record.size() > most {
            return Head::TooLarge;
        }
        let Some(tail) = self.map.linked(record.tail()) else { return Head::NoCluster };
        self.set_record(id, Record::HELD);
        self.sub_skipped(record.skipped() as u64);
        self.cut_head(migrate_type, tail, record.size() as u64);
        Head::Cut(Piece::Cluster(first, record.size(), id))
    }

    /// Takes up to `wanted` pages of the smallest block of a type, from its lower end.
    fn cut_run(&mut self, migrate_type: MigrateType, wanted: usize) -> Option<Piece> {
        let orders = self.orders_from(Order::ZERO, migrate_type);
        let found = Order(u8::try_from(orders.checked_ilog2().map(|_| orders.trailing_zeros())?).ok()?);
        let block = self.first_block(found, migrate_type)?;
        let tag = self.page(block).tag();
        self.remove_block(block, tag);
        self.tag_block(block, FrameState::InTransit, Order::ZERO, migrate_type);
        let pages = (1 << found.0).min(wanted);
        let rest = PfnRange { start: block + PageCount(pages as u64), end: block + found.pages() };
        self.put_back_pieces(rest, migrate_type, tag.residence());
        Some(Piece::Run(block, pages))
    }

    /// Takes one page, of other types too.
    fn cut_block(&mut self, request: BlockRequest) -> Option<Piece> {
        let pfn = self.take_block(request)?;
        self.tag_block(pfn, FrameState::InTransit, Order::ZERO, request.migrate_type);
        Some(Piece::Run(pfn, 1))
    }
}
