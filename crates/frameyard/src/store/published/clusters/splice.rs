//! Drains as one cluster: prepared before the zone lock is taken, spliced into the list in one step under it.
//!
//! # Protocol
//!
//! The drain acquires a record, links the pages, tags them as free pages of that cluster and makes them name it, all without the
//! lock: they look free, and are not while the record is held ([`clusters`](super)). Under the lock it checks again the types of
//! their pageblocks and whether merging may still be skipped. Then the chain joins the head of its list and the record becomes
//! listed; of the pages only the last one and the old first one are touched. If a check fails, the pages become pages of a
//! per-CPU list again and go back one by one. All of it counts as a detachment in progress.
//!
//! # Which drains
//!
//! The published rule takes drains of exactly one batch of one type. Here a drain takes the pages of one list after the other, up
//! to 64 at once, so they are of one type except for pageblocks that changed theirs meanwhile. So everything that it takes at once
//! goes in as one cluster, from a quarter of a batch on; fewer pages join the existing clusters page by page. Both are counted, by
//! type: what the published rule would take, and what this one takes. Isolated pageblocks need no rule: their pages are of
//! another type.

use crate::page::{FrameState, Link, MECHANISM, Tag};
use crate::platform::Platform;
use crate::store::batch::Batch;
use crate::store::published::clusters::list::ClusterId;
use crate::store::published::clusters::record::Record;
use crate::store::published::deferred_merge;
use crate::store::statistics::by_type;
use crate::units::{CpuId, MigrateType, Order, PageCount};
use crate::zone::exclusive::add_exclusive;
use crate::zone::view::{LockedZone, ZoneView};

/// Pages that look free and are not, about to be spliced into a list.
struct Prepared {
    id: ClusterId,
    migrate_type: MigrateType,
}

/// Frees a batch as one cluster, or with deferred merge page by page if it cannot be one.
pub(crate) fn give_back<'a, P: Platform>(
    locked: &mut Option<LockedZone<'a, P>>,
    view: ZoneView<'a, P>,
    cpu: CpuId,
    batch: &Batch,
) {
    *locked = None;
    if let Some(prepared) = prepare(view, cpu, batch) {
        let Some(mut zone) = view.lock_for(cpu) else { return };
        if splice(&mut zone, batch, &prepared) {
            *locked = Some(zone);
            return;
        }
        drop(zone);
        abandon(view, cpu, batch, &prepared);
    }
    if let Some(locked) = view.lock_unless(locked, cpu) {
        deferred_merge::give_back(locked, batch);
    }
}

/// The type of the pageblocks of all pages, if they are of one type that is not isolated.
fn common_type<P: Platform>(view: ZoneView<'_, P>, batch: &Batch) -> Option<MigrateType> {
    let (first, others) = batch.split_first()?;
    let migrate_type = view.blocks.get(view.map.pfn(*first));
    let alike = |entry: &u32| view.blocks.get(view.map.pfn(*entry)) == migrate_type;
    (migrate_type != MigrateType::Isolate && others.iter().all(alike)).then_some(migrate_type)
}

/// Makes a cluster of a batch, without the lock, announces it as a detachment, and counts the drain. The caller holds the lock of
/// the lists of `cpu`.
fn prepare<P: Platform>(view: ZoneView<'_, P>, cpu: CpuId, batch: &Batch) -> Option<Prepared> {
    let limit = view.clusters().limit();
    let counted = batch.first().map(|entry| view.blocks.get(view.map.pfn(*entry)))?;
    let counters = view.counters_of(cpu);
    let counts = &counters.mechanisms.clusters;
    add_exclusive(&counts.drains[by_type(counted)], 1);
    if limit < 2 || batch.len() > limit || !view.may_skip_merging_racy() {
        return None;
    }
    let migrate_type = common_type(view, batch)?;
    // A batch is the limit, or one page fewer (`limit_for`).
    add_exclusive(&counts.full_batches[by_type(counted)], u64::from(batch.len() + 1 >= limit));
    if batch.len() < limit.div_ceil(4).max(2) {
        return None;
    }
    let id = view.hold_record()?;
    counters.begin_detachment();
    let tag = Tag::new(FrameState::BuddyFree, Order::ZERO, migrate_type, view.id).with_merge_skipped().with_tentative();
    for (at, entry) in batch.iter().enumerate() {
        let link = |entry: Option<&u32>| entry.map_or(Link::NONE, |entry| view.map.link(view.map.pfn(*entry)));
        let page = view.page(view.map.pfn(*entry));
        page.set_prev(link(at.checked_sub(1).map(|before| &batch[before])));
        page.set_next(link(batch.get(at + 1)));
        page.set_payload(MECHANISM, id.word());
        page.set_tag(tag);
    }
    Some(Prepared { id, migrate_type })
}

/// Turns prepared pages into pages of a per-CPU list again.
fn abandon<P: Platform>(view: ZoneView<'_, P>, cpu: CpuId, batch: &Batch, prepared: &Prepared) {
    let tag = Tag::new(FrameState::PerCpu, Order::ZERO, prepared.migrate_type, view.id);
    for entry in batch.iter() {
        let page = view.page(view.map.pfn(*entry));
        page.set_tag(tag);
        page.set_next(Link::NONE);
        page.set_prev(Link::NONE);
        page.set_payload(MECHANISM, 0);
    }
    view.release_record(prepared.id);
    view.counters_of(cpu).end_detachment();
}

/// Splices a prepared cluster into its list; `false`, with nothing changed, if it may no longer join.
#[must_use]
fn splice<P: Platform>(locked: &mut LockedZone<'_, P>, batch: &Batch, prepared: &Prepared) -> bool {
    let Prepared { id, migrate_type } = *prepared;
    let ends = batch.first().zip(batch.last());
    let Some((first, tail)) = ends.map(|(first, tail)| (locked.map.pfn(*first), locked.map.pfn(*tail))) else {
        return false;
    };
    if !locked.may_skip_merging_racy() || common_type(**locked, batch) != Some(migrate_type) {
        return false;
    }
    let count = batch.len() as u64;
    locked.set_record(id, Record::listed(locked.map.link(tail), batch.len(), batch.len()));
    locked.splice_head(migrate_type, (first, tail), count);
    locked.add_skipped(count);
    let counts = &locked.counters().mechanisms;
    add_exclusive(&counts.deferred_merge.skipped_merges, count);
    add_exclusive(&counts.clusters.spliced[by_type(migrate_type)], 1);
    locked.count_moved(PageCount(count));
    locked.counters().end_detachment();
    true
}
