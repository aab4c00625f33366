//! Frees that do not look at the buddy, and merging what they left apart when somebody needs it.
//!
//! A single page that a drain frees goes to the head of its list with a mark, without a look at its buddy's page. Merging is
//! skipped as long as it is not missed: while the zone's counter of considered compactions is 0, which it is unless
//! compaction failed lately, and the zone is not suspended. An emptied list is merged: who empties lists wants large blocks.
//!
//! # Merging later
//!
//! [`merge_later`] goes through pageblocks page by page, without a lock, and looks for marked pages whose buddies look
//! free; what it finds it looks at again under the zone lock, and merges. Compaction calls it for every pageblock that it
//! passes; [`collect`] for all of them, for a request that would fail and for whoever changes the policy. Under another
//! policy that takes the marks of all other pages, and ends their clusters, too.

use super::Batch;
use crate::page::{Residence, Tag};
use crate::platform::Platform;
use crate::units::{MigrateType, Order, PageCount, Pfn, PfnRange};
use crate::zone::free_area::Place;
use crate::zone::{LockedZone, ZonePolicy, ZoneView, add_exclusive};

/// How many pages are dealt with under one hold of the lock.
const AT_ONCE: usize = if cfg!(loom) { 2 } else { 32 };

/// What is left of pages whose buddies are not free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Rest {
    /// They stay as they are.
    Stays,
    /// They lose their marks.
    Unmarked,
    /// They lose their marks and their clusters.
    Alone,
}

impl<P: Platform> ZoneView<'_, P> {
    /// Whether a free may skip merging. Exact under the zone lock, but for the counter of considered compactions: that
    /// may change at any time, and what is skipped meanwhile is merged when somebody needs it.
    pub(super) fn may_skip_merging_racy(&self) -> bool {
        !self.is_quiesced() && self.zone.compaction.deferral().0 == 0
    }

    /// Whether a block that has to be merged may be all that a request lacks, a moment ago.
    pub(crate) fn has_unmerged_racy(&self) -> bool {
        self.zone.clusters().skipped_racy() > 0
    }
}

/// Frees picked single pages without merging them; where that may not be, merges them.
pub(super) fn give_back<P: Platform>(locked: &mut LockedZone<'_, P>, picked: &Batch) {
    locked.count_moved(PageCount(picked.len as u64));
    let skip = locked.may_skip_merging_racy();
    let mut skipped = 0;
    for entry in picked.entries() {
        let pfn = locked.map.pfn(*entry);
        let migrate_type = locked.blocks.get(pfn);
        if skip && migrate_type != MigrateType::Isolate {
            locked.add_block(pfn, Order::ZERO, migrate_type, Place::Head, Residence::Resident);
            locked.mark_skipped(pfn);
            skipped += 1;
        } else {
            locked.free_block(pfn, Order::ZERO, migrate_type);
        }
    }
    add_exclusive(&locked.row.transfer.skipped_merges, skipped);
}

/// Merges the pages of some pageblocks that skipped it, as far as their buddies are free; how many did.
pub(crate) fn merge_later<P: Platform>(view: ZoneView<'_, P>, frames: PfnRange) -> u64 {
    settle(view, frames, Rest::Stays)
}

/// Merges all of a zone that skipped it. Under a policy that does not skip merging, no marks are left; under one without
/// clusters, none of those.
pub(super) fn collect<P: Platform>(view: ZoneView<'_, P>) {
    let clusters = view.zone.clusters();
    let policy = view.zone.policy();
    if clusters.is_joining() == clusters.would_join(policy)
        && !view.has_unmerged_racy()
        && (policy.has_clusters() || clusters.used_racy() == 0)
    {
        return;
    }
    view.lock().set_joining(policy);
    let rest = match policy {
        ZonePolicy::SkipMerge if clusters.used_racy() == 0 => Rest::Stays,
        ZonePolicy::Cluster | ZonePolicy::ClusterBulk => Rest::Stays,
        _ if clusters.used_racy() > 0 => Rest::Alone,
        _ => Rest::Unmarked,
    };
    let mut at = view.blocks.start_of(view.zone.span().start);
    while at < view.zone.span().end && (view.has_unmerged_racy() || (rest == Rest::Alone && clusters.used_racy() > 0)) {
        settle(view, PfnRange::new(at, view.blocks.pages()).intersection(view.zone.span()), rest);
        at = at + view.blocks.pages();
    }
}

/// Goes through the pages of one pageblock; how many merges were made.
fn settle<P: Platform>(view: ZoneView<'_, P>, frames: PfnRange, rest: Rest) -> u64 {
    let mut merged = 0;
    let mut at = frames.start;
    if !view.blocks.has_memory(at) {
        return 0;
    }
    while at < frames.end {
        let mut found = [Pfn(0); AT_ONCE];
        let mut len = 0;
        while at < frames.end && len < AT_ONCE {
            let tag = view.page(at).tag();
            if tag.seems_free_buddy(Order::ZERO, view.id) && tag.has_listing() && wants(view, at, tag, rest) {
                found[len] = at;
                len += 1;
            }
            at = at
                + if tag.order() <= view.geometry.max_order() && at.is_aligned(tag.order()) {
                    tag.order().pages()
                } else {
                    PageCount(1)
                };
        }
        if len > 0 {
            let mut locked = view.lock();
            merged += found[..len].iter().map(|pfn| u64::from(locked.settle_page(*pfn, rest))).sum::<u64>();
        }
    }
    merged
}

/// Whether there is something to do about a marked page or one in a cluster, as far as one sees without the lock.
fn wants<P: Platform>(view: ZoneView<'_, P>, pfn: Pfn, tag: Tag, rest: Rest) -> bool {
    match rest {
        Rest::Stays => {
            tag.is_merge_skipped() && view.page(pfn.buddy(Order::ZERO)).tag().seems_free_buddy(Order::ZERO, view.id)
        }
        Rest::Unmarked => tag.is_merge_skipped(),
        Rest::Alone => true,
    }
}

impl<P: Platform> LockedZone<'_, P> {
    /// Merges a page that skipped it if its buddy is free; whether it did.
    fn settle_page(&mut self, pfn: Pfn, rest: Rest) -> bool {
        let tag = self.page(pfn).tag();
        if !tag.seems_free_buddy(Order::ZERO, self.id) || !self.is_listed(pfn, tag) {
            return false;
        }
        let buddy = pfn.buddy(Order::ZERO);
        let buddy_tag = self.page(buddy).tag();
        let free = buddy_tag.seems_free_buddy(Order::ZERO, self.id) && self.is_listed(buddy, buddy_tag);
        if tag.is_merge_skipped() && free {
            self.remove_block(pfn, tag);
            self.page(pfn).set_tag(Tag::INTERIOR);
            self.free_block_as(pfn, Order::ZERO, tag.migrate_type(), tag.residence());
            add_exclusive(&self.row.transfer.later_merges, 1);
            return true;
        }
        if rest == Rest::Alone && tag.is_clustered() {
            self.dissolve_cluster(pfn);
        }
        // A buddy in a cut that is in progress is not free, and merges when it comes back.
        if rest != Rest::Stays {
            self.unmark_skipped(pfn);
        }
        false
    }
}

impl ZonePolicy {
    /// Whether single pages that join a list join clusters.
    pub(super) fn has_clusters(self) -> bool {
        matches!(self, Self::Cluster | Self::ClusterBulk)
    }
}
