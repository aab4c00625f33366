//! Frame bitmap: a drain sets one bit for each single frame, and single frames merge in the bitmap.
//!
//! # Structure
//!
//! A *group* is the frames of one word of the bitmap: 64 neighbours, or a pageblock if that is smaller. A set bit is a free frame that
//! the bitmap holds. Each pageblock with held frames is on a list of its zone and type; its record counts the words that have bits
//! ([`held`]). All of it takes 1 bit for each frame and 16 bytes for each pageblock, so it stays in a CPU's cache where the page structures
//! do not.
//!
//! # Transfers
//!
//! | event | action |
//! |---|---|
//! | a drain of single frames | set their bits under the zone lock; no page structure is read or written |
//! | a word becomes full | the group joins the free lists as one block, which merges on |
//! | a refill of single frames | clear bits of the pageblock that is longest on its list; page by page if no bit is set |
//! | a request that would fail, compaction, a contiguous range, a change of the policy | held frames return to the free lists ([`collecting`]) |
//!
//! A free frame merges at once with the held frames of its group: its buddies' bits are in the same word. It does not merge with
//! blocks below the size of a group that are on the free lists. Those come from requests for several frames and from emptied lists;
//! collecting merges both.
//!
//! Blocks of several frames, emptied lists and drains of quiesced zones move page by page.
//!
//! The state of all buddies of a frame is in one word, and a free frame needs no links. Two designs that keep single frames on the free lists
//! and learn a buddy's state without its page (a bit for each block and order, the allocation map) were not faster than merging page by page:
//! the page structures of the freed block and of its neighbours on the list still miss the cache (`docs/policies.md`).
//!
//! # Invariants
//!
//! Everything here changes under the zone lock.
//!
//! - A held frame carries the per-CPU tag or none, so the buddy never merges with it. It counts as free in watermarks and statistics.
//! - It lies in a pageblock of an ordinary type when it is added. A refill takes it only while the pageblock has the type of the list;
//!   where the type has changed, the frames return to the free lists. So no frame of an isolated pageblock leaves the bitmap for a
//!   list.
//! - No word is full outside of a hold of the lock.
//!
//! # Counting equations
//!
//! - The count of a pageblock = its words that are not 0; it is on a list exactly if the count is not 0.
//! - The count of a zone and type = Σ over the pageblocks of the list of the set bits of their words.

use super::exchange::RefillRequest;
use super::pagewise;
use super::table_sizes::TableSizes;
use crate::control::{ControlRegion, TablePlanner, TableSpan};
use crate::platform::Platform;
use crate::sync::{AtomicU64, all_atomic};
use crate::units::{CpuId, MigrateType, Order, PageCount};
use crate::zone::batch::{BATCH, Batch};
use crate::zone::view::{LockedZone, ZoneView};
use held::{Held, TypeList, record_words};

mod collecting;
mod held;
mod statistics;
mod validate;

pub(super) use collecting::{collect, collect_for};
pub(super) use statistics::{COUNTERS, count};
pub(super) use validate::validate;

/// Whether the mechanism is compiled in.
pub(super) const COMPILED_IN: bool = cfg!(feature = "policy-frame-bitmap");

/// The held frames of one zone. Changes under the zone lock.
#[repr(C, align(64))]
#[derive(Default)]
pub(super) struct State {
    /// The pageblocks with held frames, by type.
    lists: [TypeList; MigrateType::PER_CPU],
    /// Frames added.
    added: AtomicU64,
    /// Frames taken by refills.
    taken: AtomicU64,
    /// Groups that became whole.
    merged: AtomicU64,
    /// Frames returned to the free lists by collecting.
    collected: AtomicU64,
}

all_atomic!(State { lists, added, taken, merged, collected });

/// The records of all pageblocks: see [`Record`](held::Record).
#[derive(Clone, Copy)]
pub(super) struct Table(&'static [AtomicU64]);

/// The length of the table; `None` if it does not fit an address space.
const fn length(sizes: &TableSizes) -> Option<usize> {
    if COMPILED_IN { sizes.pageblocks.checked_mul(record_words(sizes.pageblock_order)) } else { Some(0) }
}

/// Plans the table.
pub(super) const fn plan(planner: &mut TablePlanner, sizes: &TableSizes) -> Option<TableSpan> {
    match length(sizes) {
        Some(words) => planner.table::<AtomicU64>(words),
        None => None,
    }
}

impl Table {
    /// # Safety
    ///
    /// As for [`ControlRegion::table`]: the span is that which [`plan`] made.
    pub(super) unsafe fn carve(region: &ControlRegion, span: TableSpan) -> Option<Self> {
        // SAFETY: passed on to the caller.
        unsafe { region.table(span).map(Self) }
    }

    /// Whether the table has the length that a yard of that size needs.
    pub(super) fn fits(&self, sizes: &TableSizes) -> bool {
        length(sizes) == Some(self.0.len())
    }
}

impl State {
    /// Held frames, possibly stale.
    pub(super) fn pages_racy(&self) -> PageCount {
        PageCount(self.lists.iter().map(TypeList::pages_racy).fold(0, u64::saturating_add))
    }

    /// Held frames of one type, possibly stale.
    pub(super) fn pages_of_racy(&self, migrate_type: MigrateType) -> PageCount {
        PageCount(self.lists.get(migrate_type.index()).map_or(0, TypeList::pages_racy))
    }
}

/// Fetches single frames for a list: held ones of its type, or as page-wise transfer does if there are none.
#[inline(never)]
pub(super) fn fetch<P: Platform>(
    view: ZoneView<'_, P>,
    refill: RefillRequest<'_>,
    mut deliver: impl FnMut(&Batch),
) -> usize {
    let migrate_type = refill.blocks.migrate_type;
    if !view.has_block_for_racy(Order::ZERO, migrate_type)
        && view.zone.mechanisms.frame_bitmap.pages_of_racy(migrate_type) == PageCount(0)
    {
        // Before types mix in a pageblock: held frames of other types may be of this type by now, or merge to whole pageblocks.
        collect_for(view, Order::ZERO, migrate_type, refill.effort);
    }
    // A whole group leaves nothing of it behind on the free lists.
    let wanted = if refill.room >= BATCH { refill.wanted.max(BATCH) } else { refill.wanted };
    let Some(mut locked) = view.lock_for(refill.cpu) else { return 0 };
    let mut batch = Batch::new();
    Held::of(&view).take(&mut locked, migrate_type, wanted, &mut batch);
    if batch.is_empty() {
        return pagewise::fetch_locked(locked, refill.blocks, wanted, deliver, |_| ());
    }
    locked.count_moved(PageCount(batch.len() as u64));
    drop(locked);
    deliver(&batch);
    batch.len()
}

/// Adds single frames to the bitmap; takes the zone lock unless it is held already.
pub(super) fn give_back<'a, P: Platform>(
    locked: &mut Option<LockedZone<'a, P>>,
    view: ZoneView<'a, P>,
    cpu: CpuId,
    batch: &Batch,
) {
    let held = Held::of(&view);
    if locked.is_none() {
        held.read_ahead(&view, batch);
    }
    let Some(zone) = view.lock_unless(locked, cpu) else { return };
    if view.is_quiesced() {
        return pagewise::give_back(locked, view, cpu, batch, Order::ZERO);
    }
    zone.count_moved(PageCount(batch.len() as u64));
    held.add(zone, batch);
}
