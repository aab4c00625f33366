//! Clusters on free lists: acquiring and releasing records, and the pages that join and leave clusters one by one.

use crate::page::{Link, MECHANISM, Tag};
use crate::platform::{Access, LineKind, Platform, Probe, SharedLine};
use crate::store::batch::BATCH;
use crate::store::published::COMPILED_IN;
use crate::store::published::clusters::record::{Record, RecordState};
use crate::store::published::deferred_merge::{self, Merging, Rest, SkipHooks};
use crate::sync::{AtomicU32, AtomicU64, Ordering, all_atomic};
use crate::units::{PageCount, Pfn};
use crate::zone::block_list::Place;
use crate::zone::view::{LockedZone, ZoneView};

/// The clusters of one zone. Written when the yard is created, `joining` also with the policy.
#[derive(Default)]
pub(in crate::store::published) struct State {
    /// Where the zone's words begin in the table.
    first: AtomicU64,
    /// The number of records.
    count: AtomicU32,
    /// The most pages in a cluster.
    limit: AtomicU32,
    /// 1 if pages that join a list join clusters. Changes under the zone lock.
    joining: AtomicU32,
    /// Records in use. Raised before a search for a free record, lowered after a release.
    used: AtomicU32,
    /// The word of bits in which the last search found a free record.
    hint: AtomicU32,
    /// Times that all records were in use.
    used_up: AtomicU64,
}

all_atomic!(State { first, count, limit, joining, used, hint, used_up });

/// A cluster of a zone, by the number of its record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ClusterId(pub(super) u32);

impl ClusterId {
    /// The lower half of a payload word that names a cluster. No frame has this index, so indices of a packed batch name none.
    const NAMES: u32 = u32::MAX;

    /// The cluster that a payload word names.
    pub(super) fn named(word: u64) -> Option<Self> {
        (word as u32 == Self::NAMES).then_some(Self((word >> 32) as u32))
    }

    /// The word that names the cluster.
    pub(super) fn word(self) -> u64 {
        u64::from(self.0) << 32 | u64::from(Self::NAMES)
    }
}

/// How many words of the table that many records need.
pub(super) fn words_for(records: u32) -> usize {
    records as usize + (records as usize).div_ceil(64)
}

/// The most pages in a cluster for a batch size.
///
/// One more than the kernel's batch, which is one less than a power of two: a batch in transit has up to 64 pages here, and a
/// drain of 63 counts like one of 64.
fn limit_for(batch: PageCount) -> u32 {
    (batch.0 + 1).min(BATCH as u64) as u32
}

impl State {
    /// Records where the zone's words are, once, when the yard is created.
    pub(super) fn assign(&self, first: usize, count: u32, batch: PageCount, merging: Merging) {
        self.first.store(first as u64, Ordering::Relaxed);
        self.count.store(count, Ordering::Relaxed);
        self.limit.store(if count == 0 { 0 } else { limit_for(batch) }, Ordering::Relaxed);
        self.joining.store(u32::from(self.would_join(merging)), Ordering::Relaxed);
    }

    pub(super) fn count(&self) -> u32 {
        self.count.load(Ordering::Relaxed)
    }

    /// The words of this zone, as far as the table has them.
    pub(super) fn words(&self) -> core::ops::Range<usize> {
        let first = self.first.load(Ordering::Relaxed) as usize;
        first..first.saturating_add(words_for(self.count()))
    }

    pub(super) fn limit(&self) -> usize {
        (self.limit.load(Ordering::Relaxed) as usize).min(BATCH)
    }

    pub(super) fn used_racy(&self) -> u32 {
        self.used.load(Ordering::Relaxed)
    }

    pub(super) fn used_up(&self) -> u64 {
        self.used_up.load(Ordering::Relaxed)
    }

    /// Whether single pages that join a list would join clusters.
    fn would_join(&self, merging: Merging) -> bool {
        merging == Merging::Grouped && self.count() > 0
    }

    /// Whether single pages that join a list join clusters.
    #[inline(always)]
    pub(in crate::store::published) fn is_joining(&self) -> bool {
        COMPILED_IN && self.joining.load(Ordering::Relaxed) != 0
    }
}

impl<'a, P: Platform> ZoneView<'a, P> {
    pub(super) fn clusters(&self) -> &'a State {
        &self.zone.mechanisms.published.clusters
    }

    fn bits(&self, word: usize) -> Option<&'a AtomicU64> {
        let first = self.clusters().first.load(Ordering::Relaxed) as usize;
        self.mechanisms.published.clusters.get(first.checked_add(word)?)
    }

    /// Whether a cluster's bit is set.
    pub(super) fn is_in_use(&self, id: ClusterId) -> bool {
        self.bits(id.0 as usize / 64).is_some_and(|bits| bits.load(Ordering::Relaxed) >> (id.0 % 64) & 1 != 0)
    }

    fn record_word(&self, id: ClusterId) -> Option<&'a AtomicU64> {
        let clusters = self.clusters();
        let count = clusters.count() as usize;
        let at = (id.0 as usize) < count;
        self.bits(count.div_ceil(64) + id.0 as usize).filter(|_| at)
    }

    /// The record of a cluster.
    pub(super) fn record(&self, id: ClusterId) -> Record {
        // Relaxed: listed records change under the zone lock; only the holder of another record relies on more than its state.
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

    /// Acquires a free record for the caller, with or without the zone lock.
    pub(super) fn hold_record(&self) -> Option<ClusterId> {
        let clusters = self.clusters();
        let count = clusters.count();
        self.touch_clusters(&clusters.used, Access::ReadModifyWrite);
        if clusters.used.fetch_add(1, Ordering::Relaxed) >= count {
            clusters.used.fetch_sub(1, Ordering::Relaxed);
            clusters.used_up.fetch_add(u64::from(count > 0), Ordering::Relaxed);
            return None;
        }
        // `used` counts at least the records in use, so one is free. Another CPU may take it first and leaves another.
        let words = count.div_ceil(64).min(self.mechanisms.published.clusters.len() as u32);
        if words == 0 {
            return None;
        }
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

    /// Acquires one of the `count` records of a word of bits.
    fn hold_one_of(&self, word: u32, count: u32) -> Option<ClusterId> {
        let bits = self.bits(word as usize)?;
        // Each failed try means that another CPU has set a bit.
        for _ in 0..64 {
            self.touch_clusters(bits, Access::ReadModifyWrite);
            let free = bits.load(Ordering::Relaxed).trailing_ones();
            if free >= count.min(64) {
                break;
            }
            // Acquire: pairs with the Release in `release_record`. The pages of the record's last use are cleared.
            if bits.fetch_or(1 << free, Ordering::Acquire) >> free & 1 == 0 {
                return Some(ClusterId(64 * word + free));
            }
        }
        None
    }

    /// Releases a record that no page names any more.
    pub(super) fn release_record(&self, id: ClusterId) {
        self.set_record(id, Record::FREE);
        if let Some(bits) = self.bits(id.0 as usize / 64) {
            self.touch_clusters(bits, Access::ReadModifyWrite);
            // Release: pairs with the Acquire in `hold_one_of`.
            bits.fetch_and(!(1 << (id.0 % 64)), Ordering::Release);
        }
        let used = &self.clusters().used;
        self.touch_clusters(used, Access::ReadModifyWrite);
        used.fetch_sub(1, Ordering::Relaxed);
    }

    /// Announces a use of a word of the clusters.
    #[inline(always)]
    pub(super) fn touch_clusters<T>(&self, word: &T, access: Access) {
        self.platform.probe().touch_line(SharedLine::of(LineKind::Mechanism, word), access);
    }
}

/// Whether a page in a cluster is on a list: its cluster is listed.
#[cold]
pub(in crate::store::published) fn is_in_listed_cluster<P: Platform>(locked: &LockedZone<'_, P>, pfn: Pfn) -> bool {
    let id = ClusterId::named(locked.page(pfn).payload(MECHANISM));
    id.is_some_and(|id| locked.record(id).state() == RecordState::Listed)
}

/// A single page that joined an end of a list, next to `neighbour`, joins that page's cluster or starts one.
#[inline(never)]
pub(in crate::store::published) fn join<P: Platform>(
    locked: &mut LockedZone<'_, P>,
    pfn: Pfn,
    tag: Tag,
    neighbour: Option<Pfn>,
    place: Place,
) {
    let page = locked.page(pfn);
    let (id, record) = match neighbour.and_then(|neighbour| cluster_with_room(locked, neighbour)) {
        Some((id, record)) => match place {
            Place::Head => (id, record.with_page()),
            Place::Tail => (id, record.with_page().with_tail(locked.map.link(pfn))),
        },
        None => match locked.hold_record() {
            Some(id) => (id, Record::listed(locked.map.link(pfn), 1, 0)),
            None => return,
        },
    };
    locked.set_record(id, record);
    page.set_payload(MECHANISM, id.word());
    page.set_tag(tag.with_tentative());
}

/// The cluster of a page on a list, if it has room for one more page.
fn cluster_with_room<P: Platform>(locked: &LockedZone<'_, P>, pfn: Pfn) -> Option<(ClusterId, Record)> {
    let page = locked.page(pfn);
    let id = page.tag().is_tentative().then(|| ClusterId::named(page.payload(MECHANISM)))??;
    let record = locked.record(id);
    (record.size() < locked.clusters().limit()).then_some((id, record))
}

/// A single page, still linked behind `prev`, leaves its list and its cluster.
pub(in crate::store::published) fn leave<P: Platform>(locked: &mut LockedZone<'_, P>, pfn: Pfn, tag: Tag, prev: Link) {
    let page = locked.page(pfn);
    let id = ClusterId::named(page.payload(MECHANISM));
    page.set_payload(MECHANISM, 0);
    let Some(id) = id else { return };
    let record = locked.record(id);
    if record.size() <= 1 {
        locked.release_record(id);
        return;
    }
    let record = if tag.is_merge_skipped() { record.without_skipped() } else { record }.without_page();
    locked.set_record(id, if record.tail() == locked.map.link(pfn) { record.with_tail(prev) } else { record });
}

impl<P: Platform> SkipHooks for LockedZone<'_, P> {
    fn marked(&mut self, pfn: Pfn, tag: Tag) {
        if tag.is_tentative()
            && let Some(id) = ClusterId::named(self.page(pfn).payload(MECHANISM))
        {
            self.set_record(id, self.record(id).with_skipped());
        }
    }

    fn unmarked(&mut self, pfn: Pfn, tag: Tag) {
        if tag.is_tentative()
            && let Some(id) = ClusterId::named(self.page(pfn).payload(MECHANISM))
        {
            self.set_record(id, self.record(id).without_skipped());
        }
    }

    /// Ends the cluster of a page on a list: its pages stay there, each for itself.
    fn dissolve(&mut self, pfn: Pfn) {
        let Some(id) = ClusterId::named(self.page(pfn).payload(MECHANISM)) else { return };
        let record = self.record(id);
        if record.state() != RecordState::Listed {
            return;
        }
        let mut at = record.tail();
        for _ in 0..record.size() {
            let Some(pfn) = self.map.linked(at) else { break };
            let page = self.page(pfn);
            at = page.prev();
            page.set_payload(MECHANISM, 0);
            page.set_tag(page.tag().without_tentative());
        }
        self.release_record(id);
    }
}

/// Merges the zone's deferred merges. If the mechanism in force defers none, no marks are left; if it has no clusters, no
/// clusters.
pub(in crate::store::published) fn collect<P: Platform>(view: ZoneView<'_, P>, merging: Merging) {
    let clusters = view.clusters();
    let has_clusters = merging == Merging::Grouped;
    if clusters.is_joining() == clusters.would_join(merging)
        && !view.has_unmerged_racy()
        && (has_clusters || clusters.used_racy() == 0)
    {
        return;
    }
    let Ok(locked) = view.lock() else { return };
    clusters.joining.store(u32::from(clusters.would_join(merging)), Ordering::Relaxed);
    drop(locked);
    let rest = match merging {
        Merging::Deferred if clusters.used_racy() == 0 => Rest::Stays,
        Merging::Grouped => Rest::Stays,
        _ if clusters.used_racy() > 0 => Rest::Alone,
        _ => Rest::Unmarked,
    };
    deferred_merge::collect(view, rest, || rest == Rest::Alone && clusters.used_racy() > 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_word_of_a_cluster_names_one() {
        for id in [0, 1, 63, u32::MAX - 1].map(ClusterId) {
            assert_eq!(ClusterId::named(id.word()), Some(id));
        }
        // What else a reader may find: a cleared word, and one or two indices of a packed batch.
        let indices = [0, 1, 5, 0x1000, u32::MAX - 2].map(u64::from);
        for (low, high) in indices.into_iter().flat_map(|low| indices.map(|high| (low, high))) {
            assert_eq!(ClusterId::named(low | high << 32), None, "indices {low} and {high}");
        }
    }
}
