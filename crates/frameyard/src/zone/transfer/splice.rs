//! Drains as one cluster: prepared before the zone lock is taken, joined to the list in one step under it.
//!
//! # Protocol
//!
//! A record is got and held. The pages are linked, tagged as free pages of that cluster and made to name it, without the
//! lock: they look free, and are not while the record is held ([`clusters`](super::clusters)). Under the lock the types of
//! their pageblocks are looked at again, and whether merging may still be skipped. Then the chain joins the head of its list
//! and the record becomes listed; of the pages the last one and the old first one are touched. Otherwise the pages are
//! made pages of a per-CPU list again and go the other way. All of it counts as a cut in progress.
//!
//! # Which drains
//!
//! The published form takes drains of exactly one batch of one type. Here a drain takes the pages of one list after the
//! other, each up to 64 at once, so what it takes at once is of one type but for pageblocks that have changed theirs
//! meanwhile. So whatever it takes at once goes in as one cluster, from a quarter of a batch on; less joins the clusters
//! that are there page by page. Both are counted, by type: what the published rule would take, and what this one does.
//! That no pageblock may be isolated needs no rule of its own, for pages of such are of another type.

use super::Batch;
use super::clusters::{ClusterId, Record};
use crate::page::{CLUSTER, FrameState, Link, Tag};
use crate::platform::Platform;
use crate::units::{CpuId, MigrateType, Order, PageCount};
use crate::zone::{LockedZone, ZoneView, add_exclusive};

/// Pages that look free and are not, about to join a list.
pub(super) struct Entering {
    id: ClusterId,
    migrate_type: MigrateType,
}

/// The type of the pageblocks of all entries, if it is one that single pages may wait unmerged on.
fn common_type<P: Platform>(view: ZoneView<'_, P>, picked: &Batch) -> Option<MigrateType> {
    let (first, others) = picked.entries().split_first()?;
    let migrate_type = view.blocks.get(view.map.pfn(*first));
    let alike = |entry: &u32| view.blocks.get(view.map.pfn(*entry)) == migrate_type;
    (migrate_type != MigrateType::Isolate && others.iter().all(alike)).then_some(migrate_type)
}

/// Makes a cluster of picked pages, without the lock; counts the drain. The cut that it is in progress is begun where there
/// is something to join. The caller holds the lock of the lists of `cpu`.
pub(super) fn prepare<P: Platform>(view: ZoneView<'_, P>, cpu: CpuId, picked: &Batch) -> Option<Entering> {
    let limit = view.zone.clusters().limit();
    let counted = picked.entries().first().map(|entry| view.blocks.get(view.map.pfn(*entry)))?;
    let row = view.row_of(cpu);
    let counts = &row.transfer.drains[counted.index().min(MigrateType::PER_CPU)];
    add_exclusive(&counts.drains, 1);
    if limit < 2 || picked.len > limit || !view.may_skip_merging_racy() {
        return None;
    }
    let migrate_type = common_type(view, picked)?;
    // A batch is the limit, or one page less (`limit_for`).
    add_exclusive(&counts.ideal, u64::from(picked.len + 1 >= limit));
    if picked.len < limit.div_ceil(4).max(2) {
        return None;
    }
    let id = view.hold_record()?;
    row.begin_detachment();
    let tag = Tag::new(FrameState::BuddyFree, Order::ZERO, migrate_type, view.id).with_merge_skipped().with_cluster();
    let entries = picked.entries();
    for (at, entry) in entries.iter().enumerate() {
        let link = |entry: Option<&u32>| entry.map_or(Link::NONE, |entry| view.map.link(view.map.pfn(*entry)));
        let page = view.page(view.map.listed(*entry));
        page.set_prev(link(at.checked_sub(1).map(|before| &entries[before])));
        page.set_next(link(entries.get(at + 1)));
        page.set_payload(CLUSTER, id.word());
        page.set_tag(tag);
    }
    Some(Entering { id, migrate_type })
}

/// Gives up what was prepared for that CPU: the pages are pages of a per-CPU list again.
pub(super) fn abandon<P: Platform>(view: ZoneView<'_, P>, cpu: CpuId, picked: &Batch, entering: &Entering) {
    let tag = Tag::new(FrameState::PerCpu, Order::ZERO, entering.migrate_type, view.id);
    for entry in picked.entries() {
        let page = view.page(view.map.listed(*entry));
        page.set_tag(tag);
        page.set_next(Link::NONE);
        page.set_prev(Link::NONE);
        page.set_payload(CLUSTER, 0);
    }
    view.release_record(entering.id);
    view.row_of(cpu).end_detachment();
}

impl<P: Platform> LockedZone<'_, P> {
    /// Joins a prepared cluster to its list; `false`, and nothing changed, where it may not join any more.
    #[must_use]
    pub(super) fn enter(&mut self, picked: &Batch, entering: &Entering) -> bool {
        let Entering { id, migrate_type } = *entering;
        let ends = picked.entries().first().zip(picked.entries().last());
        let Some((first, tail)) = ends.map(|(first, tail)| (self.map.pfn(*first), self.map.pfn(*tail))) else {
            return false;
        };
        if !self.may_skip_merging_racy() || common_type(**self, picked) != Some(migrate_type) {
            return false;
        }
        let count = picked.len as u64;
        self.set_record(id, Record::listed(self.map.link(tail), picked.len, picked.len));
        self.join_head(migrate_type, (first, tail), count);
        self.add_skipped(count);
        let counts = &self.row.transfer;
        add_exclusive(&counts.skipped_merges, count);
        add_exclusive(&counts.drains[migrate_type.index().min(MigrateType::PER_CPU)].whole, 1);
        self.count_moved(PageCount(count));
        self.row.end_detachment();
        true
    }
}
