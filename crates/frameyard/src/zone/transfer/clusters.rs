//! Clusters: single free pages that stand next to each other on a free list, so that they can be taken off together.
//!
//! A zone has a fixed number of cluster records in the control region, and a bit for each that says whether it is in use.
//! A record is one word: the cluster's last page on the list, how many pages it has, how many of them skipped merging, and
//! its state. Each page of a cluster names it in its payload ([`CLUSTER`]) and says so in its tag. A page that joins a list
//! joins the cluster of its neighbour there, or begins one of its own; where all records are in use it stands alone.
//! Reported pages stand alone, too: they wait at the end of their list to be used last.
//!
//! # Protocol
//!
//! A record is free, listed, or held by one thread. Lists and listed records are changed under the zone lock alone. A held
//! record is that of a cluster on its way: one that was cut off its list ([`detach`](super::detach)), or one that is about to
//! join it ([`splice`](super::entering)). Its holder goes through the pages without the lock, and meanwhile they look free
//! and are not. So whoever finds a free page by its number looks at the record that it names, under the lock: only a page
//! of a listed cluster is on a list ([`LockedZone::is_listed`]). Every operation that finds pages by number goes through
//! that: merging, moving a pageblock's pages to another list, isolating, taking a range, compaction.
//!
//! Why the tag and the record suffice, though the holder changes pages while others read them:
//!
//! - The holder of a cut writes a page's tag first, then clears the word that names the cluster. Who has read the old tag and
//!   finds the word cleared knows as much as who finds a held record: the page is not free.
//! - A record is released when all its pages are cleared, with Release, and got with Acquire. So who finds it in a new use
//!   sees the old pages cleared: it can become listed under the lock alone.
//! - A held record becomes listed under the lock, by its holder. So who has the lock sees all of it.
//!
//! # Counting equations
//!
//! - a listed record's size = its pages, which stand on one list one behind the other, the last one being its tail;
//!   likewise those of them that skipped merging.
//! - bits set = records that are not free = `used`; with nobody at work all of these are listed.
//! - `skipped` = pages on free lists that skipped merging.

use crate::page::{CLUSTER, FrameState, Link, Tag};
use crate::platform::{Access, LineKind, Platform, SharedLine};
use crate::sync::{AtomicU32, AtomicU64, Ordering, all_atomic};
use crate::units::{Order, PageCount, Pfn};
use crate::zone::free_area::Place;
use crate::zone::pcp::packed::BATCH;
use crate::zone::{LockedZone, Zone, ZonePolicy, ZoneView, add_exclusive, sub_exclusive};

mod record;

pub(crate) use record::{Record, RecordState};

/// The word of a held record, for models that lose it.
#[cfg(all(test, any(loom, shuttle)))]
pub(crate) const HELD_RECORD: u64 = Record::HELD.bits();

/// What a zone's clusters are like; written when the yard is created, and `joining` with the policy.
#[repr(C, align(64))]
#[derive(Default)]
pub(crate) struct ClusterState {
    /// Where the zone's words begin in the table: first the bits, then the records.
    first: AtomicU64,
    /// How many records there are.
    count: AtomicU32,
    /// How many pages a cluster has at most.
    limit: AtomicU32,
    /// 1 where pages that join a list join clusters; changed under the zone lock.
    joining: AtomicU32,
    /// Records in use; raised before one is looked for, lowered after it is released.
    used: AtomicU32,
    /// The word of bits in which a free one was found last.
    hint: AtomicU32,
    /// Pages on free lists that skipped merging; changed under the zone lock.
    skipped: AtomicU64,
    /// Times that all records were in use.
    pub(super) used_up: AtomicU64,
}

all_atomic!(ClusterState { first, count, limit, joining, used, hint, skipped, used_up });

/// The table of all zones' clusters, as the tables have it.
pub(crate) type ClusterTable<'a> = &'a [AtomicU64];

/// Which cluster of its zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ClusterId(pub(crate) u32);

impl ClusterId {
    /// The cluster that a page names; `None` where it names none.
    pub(crate) fn named(word: u64) -> Option<Self> {
        Some(Self(u32::try_from(word.checked_sub(1)?).ok()?))
    }

    /// The word that names the cluster.
    pub(super) fn word(self) -> u64 {
        u64::from(self.0) + 1
    }
}

/// How many clusters a zone of so many pages gets, with batches of that size (the memory divided by the batch); none
/// where a batch is a single page.
pub(crate) fn clusters_for(pages: PageCount, batch: PageCount) -> u32 {
    if batch.0 < 2 { 0 } else { u32::try_from(pages.0 / batch.0).unwrap_or(u32::MAX) }
}

/// How many words of the table so many clusters need.
pub(crate) fn words_for_clusters(count: u32) -> usize {
    count as usize + (count as usize).div_ceil(64)
}

/// How many pages a cluster may have where a batch is so large.
///
/// One more than the kernel's batch, which is one less than a power of two: here a batch on its way is up to 64 pages, and
/// a drain of 63 is as welcome as one of 64.
fn limit_for(batch: PageCount) -> u32 {
    (batch.0 + 1).min(BATCH as u64) as u32
}

impl ClusterState {
    /// Says where the zone's words are; once, when the yard is created.
    pub(crate) fn assign(&self, first: usize, count: u32, batch: PageCount, policy: ZonePolicy) {
        self.first.store(first as u64, Ordering::Relaxed);
        self.count.store(count, Ordering::Relaxed);
        self.limit.store(if count == 0 { 0 } else { limit_for(batch) }, Ordering::Relaxed);
        self.joining.store(u32::from(self.would_join(policy)), Ordering::Relaxed);
    }

    pub(crate) fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// The words of this zone; none where they do not lie in the table.
    pub(crate) fn words(&self) -> core::ops::Range<usize> {
        let first = self.first.load(Ordering::Relaxed) as usize;
        first..first.saturating_add(words_for_clusters(self.count()))
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed) as usize
    }

    pub(crate) fn used_racy(&self) -> u32 {
        self.used.load(Ordering::Relaxed)
    }

    pub(crate) fn skipped_racy(&self) -> u64 {
        self.skipped.load(Ordering::Relaxed)
    }

    /// Counts pages that left a list with their marks, under the zone lock.
    #[inline(always)]
    pub(super) fn sub_skipped(&self, count: u64) {
        sub_exclusive(&self.skipped, count);
    }

    pub(crate) fn used_up(&self) -> u64 {
        self.used_up.load(Ordering::Relaxed)
    }

    /// Whether single pages that join a list join clusters under a policy.
    pub(super) fn would_join(&self, policy: ZonePolicy) -> bool {
        policy.has_clusters() && self.count() > 0
    }

    /// Whether pages that join lists join clusters.
    #[inline(always)]
    pub(crate) fn is_joining(&self) -> bool {
        self.joining.load(Ordering::Relaxed) != 0
    }
}

impl Zone {
    pub(crate) fn clusters(&self) -> &ClusterState {
        &self.transfer.clusters
    }
}

impl<'a, P: Platform> ZoneView<'a, P> {
    fn bits(&self, word: usize) -> Option<&'a AtomicU64> {
        let first = self.zone.clusters().first.load(Ordering::Relaxed) as usize;
        self.clusters.get(first.checked_add(word)?)
    }

    /// Whether a cluster's bit says that it is in use.
    pub(crate) fn is_in_use(&self, id: ClusterId) -> bool {
        self.bits(id.0 as usize / 64).is_some_and(|bits| bits.load(Ordering::Relaxed) >> (id.0 % 64) & 1 != 0)
    }

    fn record_word(&self, id: ClusterId) -> Option<&'a AtomicU64> {
        let clusters = self.zone.clusters();
        let count = clusters.count() as usize;
        let at = (id.0 as usize) < count;
        self.bits(count.div_ceil(64) + id.0 as usize).filter(|_| at)
    }

    /// What the record of a cluster says.
    pub(crate) fn record(&self, id: ClusterId) -> Record {
        // Relaxed: listed records change under the zone lock; of others only their holder believes more than that.
        self.record_word(id).map_or(Record::FREE, |word| {
            self.touch_clusters(word, Access::Read);
            Record::from_bits(word.load(Ordering::Relaxed))
        })
    }

    pub(super) fn set_record(&self, id: ClusterId, record: Record) {
        if let Some(word) = self.record_word(id) {
            self.touch_clusters(word, Access::Write);
            word.store(record.bits(), Ordering::Relaxed);
        }
    }

    /// Gets a record that is free; the caller holds it. With or without the zone lock.
    pub(super) fn hold_record(&self) -> Option<ClusterId> {
        let clusters = self.zone.clusters();
        let count = clusters.count();
        self.touch_clusters(&clusters.used, Access::ReadModifyWrite);
        if clusters.used.fetch_add(1, Ordering::Relaxed) >= count {
            clusters.used.fetch_sub(1, Ordering::Relaxed);
            clusters.used_up.fetch_add(u64::from(count > 0), Ordering::Relaxed);
            return None;
        }
        // As many are in use as are counted at the most, so one is free; somebody else may get it before, and leaves another.
        let words = count.div_ceil(64);
        let hint = clusters.hint.load(Ordering::Relaxed) % words;
        for step in 0..2 * words {
            let at = (hint + step) % words;
            if let Some(id) = self.hold_one_of(at, count - 64 * at) {
                if at != hint {
                    clusters.hint.store(at, Ordering::Relaxed);
                }
                self.set_record(id, Record::HELD);
                return Some(id);
            }
        }
        clusters.used.fetch_sub(1, Ordering::Relaxed);
        clusters.used_up.fetch_add(1, Ordering::Relaxed);
        None
    }

    /// Gets one of the records of a word of bits, of which so many exist from there on.
    fn hold_one_of(&self, word: u32, count: u32) -> Option<ClusterId> {
        let bits = self.bits(word as usize)?;
        loop {
            self.touch_clusters(bits, Access::ReadModifyWrite);
            let free = bits.load(Ordering::Relaxed).trailing_ones();
            if free >= count.min(64) {
                return None;
            }
            // Acquire: pairs with the Release in `release_record`. The pages of the record's last use are cleared.
            if bits.fetch_or(1 << free, Ordering::Acquire) >> free & 1 == 0 {
                return Some(ClusterId(64 * word + free));
            }
        }
    }

    /// Gives up a record whose pages name it no more.
    pub(super) fn release_record(&self, id: ClusterId) {
        self.set_record(id, Record::FREE);
        if let Some(bits) = self.bits(id.0 as usize / 64) {
            self.touch_clusters(bits, Access::ReadModifyWrite);
            // Release: pairs with the Acquire in `hold_one_of`.
            bits.fetch_and(!(1 << (id.0 % 64)), Ordering::Release);
        }
        let used = &self.zone.clusters().used;
        self.touch_clusters(used, Access::ReadModifyWrite);
        used.fetch_sub(1, Ordering::Relaxed);
    }

    /// Says that a word of the clusters is used.
    #[inline(always)]
    pub(super) fn touch_clusters<T>(&self, word: &T, access: Access) {
        self.platform.touch_line(SharedLine::of(LineKind::Clusters, word), access);
    }
}

impl<P: Platform> LockedZone<'_, P> {
    /// Whether a block with that tag, found by its number, is on a free list of this zone. The one test for all who do not
    /// come from a list.
    #[inline]
    pub(crate) fn is_listed(&self, pfn: Pfn, tag: Tag) -> bool {
        tag.is(FrameState::BuddyFree)
            && tag.zone() == self.id
            && (!tag.is_clustered() || self.is_in_listed_cluster(pfn))
    }

    /// The tag of the block at `pfn` for who looks for free ones: a page that only looks free is in transit.
    #[inline]
    pub(crate) fn settled_tag(&self, pfn: Pfn) -> Tag {
        let tag = self.tag_at(pfn);
        if tag.is_clustered() { self.settle(pfn, tag) } else { tag }
    }

    #[cold]
    fn settle(&self, pfn: Pfn, tag: Tag) -> Tag {
        let listed = !tag.is(FrameState::BuddyFree) || self.is_in_listed_cluster(pfn);
        if listed { tag } else { Tag::new(FrameState::InTransit, Order::ZERO, tag.migrate_type(), tag.zone()) }
    }

    #[cold]
    fn is_in_listed_cluster(&self, pfn: Pfn) -> bool {
        let id = ClusterId::named(self.page(pfn).payload(CLUSTER));
        id.is_some_and(|id| self.record(id).state() == RecordState::Listed)
    }

    /// From now on pages that join lists join clusters or do not, as the policy says.
    pub(super) fn set_joining(&mut self, policy: ZonePolicy) {
        let clusters = self.zone.clusters();
        clusters.joining.store(u32::from(clusters.would_join(policy)), Ordering::Relaxed);
    }

    /// A single page has joined an end of a list, next to `neighbour`: it joins that one's cluster, or begins one.
    #[inline(never)]
    pub(in crate::zone) fn join_cluster(&mut self, pfn: Pfn, tag: Tag, neighbour: Option<Pfn>, place: Place) {
        let page = self.page(pfn);
        let (id, record) = match neighbour.and_then(|neighbour| self.cluster_with_room(neighbour)) {
            Some((id, record)) => match place {
                Place::Head => (id, record.with_page()),
                Place::Tail => (id, record.with_page().with_tail(self.map.link(pfn))),
            },
            None => match self.hold_record() {
                Some(id) => (id, Record::listed(self.map.link(pfn), 1, 0)),
                None => return,
            },
        };
        self.set_record(id, record);
        page.set_payload(CLUSTER, id.word());
        page.set_tag(tag.with_cluster());
    }

    /// The cluster of a page on a list, if it may have one more.
    fn cluster_with_room(&self, pfn: Pfn) -> Option<(ClusterId, Record)> {
        let page = self.page(pfn);
        let id = page.tag().is_clustered().then(|| ClusterId::named(page.payload(CLUSTER)))??;
        let record = self.record(id);
        (record.size() < self.zone.clusters().limit()).then_some((id, record))
    }

    /// A single page that is still linked leaves its list, and its cluster; `prev` stands before it.
    #[cold]
    #[inline(never)]
    pub(in crate::zone) fn leave_cluster(&mut self, pfn: Pfn, tag: Tag, prev: Link) {
        let skipped = tag.is_merge_skipped();
        if skipped {
            self.touch_clusters(self.zone.clusters(), Access::Write);
            sub_exclusive(&self.zone.clusters().skipped, 1);
        }
        if !tag.is_clustered() {
            return;
        }
        let page = self.page(pfn);
        let id = ClusterId::named(page.payload(CLUSTER));
        page.set_payload(CLUSTER, 0);
        let Some(id) = id else { return };
        let record = self.record(id);
        if record.size() <= 1 {
            self.release_record(id);
            return;
        }
        let record = if skipped { record.without_skipped() } else { record }.without_page();
        self.set_record(id, if record.tail() == self.map.link(pfn) { record.with_tail(prev) } else { record });
    }

    /// Marks a single page on a list as one that skipped merging.
    pub(in crate::zone) fn mark_skipped(&mut self, pfn: Pfn) {
        let page = self.page(pfn);
        let tag = page.tag();
        if tag.is_merge_skipped() {
            return;
        }
        add_exclusive(&self.zone.clusters().skipped, 1);
        if tag.is_clustered()
            && let Some(id) = ClusterId::named(page.payload(CLUSTER))
        {
            self.set_record(id, self.record(id).with_skipped());
        }
        page.set_tag(tag.with_merge_skipped());
    }

    /// Takes the mark from a single page on a list.
    pub(super) fn unmark_skipped(&mut self, pfn: Pfn) {
        let page = self.page(pfn);
        let tag = page.tag();
        if !tag.is_merge_skipped() {
            return;
        }
        sub_exclusive(&self.zone.clusters().skipped, 1);
        if tag.is_clustered()
            && let Some(id) = ClusterId::named(page.payload(CLUSTER))
        {
            self.set_record(id, self.record(id).without_skipped());
        }
        page.set_tag(tag.without_merge_skipped());
    }

    /// Counts pages that came to a list with their marks, or left it so.
    pub(super) fn add_skipped(&mut self, count: u64) {
        self.touch_clusters(self.zone.clusters(), Access::Write);
        add_exclusive(&self.zone.clusters().skipped, count);
    }

    pub(super) fn sub_skipped(&mut self, count: u64) {
        self.touch_clusters(self.zone.clusters(), Access::Write);
        self.zone.clusters().sub_skipped(count);
    }

    /// Ends the cluster of a page on a list: its pages stay there, each for itself.
    pub(super) fn dissolve_cluster(&mut self, pfn: Pfn) {
        let Some(id) = ClusterId::named(self.page(pfn).payload(CLUSTER)) else { return };
        let record = self.record(id);
        if record.state() != RecordState::Listed {
            return;
        }
        let mut at = record.tail();
        for _ in 0..record.size() {
            let Some(pfn) = self.map.linked(at) else { break };
            let page = self.page(pfn);
            at = page.prev();
            page.set_payload(CLUSTER, 0);
            page.set_tag(page.tag().without_cluster());
        }
        self.release_record(id);
    }
}
