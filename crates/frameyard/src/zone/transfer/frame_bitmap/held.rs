//! Held frames: the bits, the counts of pageblocks, and the lists of pageblocks by type.
//!
//! Other processes may damage the tables. So links and counts lead no further than the tables, and every loop has a bound.

use super::State;
use crate::memmap::MapPlace;
use crate::page::Tag;
use crate::platform::{Access, LineKind, Platform, SharedLine};
use crate::sync::{AtomicU32, AtomicU64, Ordering, all_atomic};
use crate::units::{MigrateType, Order};
use crate::zone::batch::{BATCH, Batch};
use crate::zone::exclusive::{add_exclusive, sub_exclusive};
use crate::zone::view::{LockedZone, ZoneView};

/// The order of a group: the frames of one word.
pub(super) const fn group_order(pageblock_order: Order) -> Order {
    let word = u64::BITS.ilog2() as u8;
    if pageblock_order.0 < word { pageblock_order } else { Order(word) }
}

/// A pageblock with held frames. All zero if there are none.
#[derive(Default)]
pub(super) struct PageblockEntry {
    /// The next pageblock of the list, by its number plus 1; 0: none.
    next: AtomicU32,
    /// The previous one.
    prev: AtomicU32,
    /// The held frames.
    frames: AtomicU32,
    /// The [`MigrateType`] of the list.
    list_type: AtomicU32,
}

all_atomic!(PageblockEntry { next, prev, frames, list_type });

impl PageblockEntry {
    pub(super) fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed).into()
    }
}

/// The pageblocks of a zone and type that have held frames: refills take from the first, new ones become the last.
#[derive(Default)]
pub(super) struct TypeList {
    /// By number plus 1; 0: none.
    first: AtomicU32,
    last: AtomicU32,
    /// Their held frames.
    pages: AtomicU64,
}

all_atomic!(TypeList { first, last, pages });

impl TypeList {
    pub(super) fn pages_racy(&self) -> u64 {
        self.pages.load(Ordering::Relaxed)
    }
}

/// The held frames of one zone: its lists, and the tables of the yard.
#[derive(Clone, Copy)]
pub(super) struct Held<'a> {
    pub(super) state: &'a State,
    words: &'a [AtomicU64],
    pageblocks: &'a [PageblockEntry],
    pageblock_order: Order,
    pub(super) group_order: Order,
}

impl<'a> Held<'a> {
    #[inline(always)]
    pub(super) fn of<P: Platform>(view: &ZoneView<'a, P>) -> Self {
        let super::Tables { words, pageblocks } = view.mechanisms.frame_bitmap;
        let pageblock_order = view.geometry.pageblock_order();
        let group_order = group_order(pageblock_order);
        Self { state: &view.zone.mechanisms.frame_bitmap, words, pageblocks, pageblock_order, group_order }
    }

    /// The word of a full group.
    #[inline(always)]
    pub(super) fn full(&self) -> u64 {
        u64::MAX >> (u64::BITS - (1 << self.group_order.0))
    }

    #[inline(always)]
    fn number(&self, place: MapPlace) -> u32 {
        place.index() >> self.pageblock_order.0
    }

    #[inline(always)]
    pub(super) fn entry(&self, number: u32) -> Option<&'a PageblockEntry> {
        self.pageblocks.get(number as usize)
    }

    /// The entry that a link names, with its number.
    fn linked(&self, link: &AtomicU32) -> Option<(u32, &'a PageblockEntry)> {
        let number = link.load(Ordering::Relaxed).checked_sub(1)?;
        self.entry(number).map(|entry| (number, entry))
    }

    /// The pageblocks in the tables: more than any list has.
    pub(super) fn most_pageblocks(&self) -> usize {
        self.pageblocks.len()
    }

    /// The first pageblock of a list.
    pub(super) fn first(&self, list_type: MigrateType) -> Option<(u32, &'a PageblockEntry)> {
        self.linked(&self.state.lists.get(list_type.index())?.first)
    }

    /// The pageblock behind another one.
    pub(super) fn next(&self, entry: &PageblockEntry) -> Option<(u32, &'a PageblockEntry)> {
        self.linked(&entry.next)
    }

    /// The number of the pageblock of a place, if it has held frames. Possibly stale.
    pub(super) fn holding_racy(&self, place: MapPlace) -> Option<u32> {
        let number = self.number(place);
        self.entry(number).filter(|entry| entry.frames() > 0).map(|_| number)
    }

    /// The words of a pageblock, each with the place of its first frame.
    pub(super) fn words_of(&self, number: u32) -> impl Iterator<Item = (u32, &'a AtomicU64)> + use<'a> {
        let shift = self.group_order.0;
        let first = (number as usize) << (self.pageblock_order.0 - shift);
        let words = self.words.get(first..first + (1 << (self.pageblock_order.0 - shift))).unwrap_or_default();
        words.iter().enumerate().map(move |(at, word)| (((first + at) as u32) << shift, word))
    }

    /// Reads, before the lock is taken, the lines that [`add`](Self::add) uses, so that their misses overlap.
    pub(super) fn read_ahead<P: Platform>(&self, view: &ZoneView<'_, P>, batch: &Batch) {
        for entry in batch.iter() {
            let place = view.map.checked(*entry);
            if let (Some(word), Some(entry)) = (self.word(place), self.entry(self.number(place))) {
                touch(view, word, Access::ReadAhead);
                word.load(Ordering::Relaxed);
                touch(view, entry, Access::ReadAhead);
                entry.frames.load(Ordering::Relaxed);
            }
        }
    }

    #[inline(always)]
    fn word(&self, place: MapPlace) -> Option<&'a AtomicU64> {
        self.words.get((place.index() >> self.group_order.0) as usize)
    }

    /// Adds a single frame that the caller owns. Frees it if its pageblock is not of an ordinary type. If its group is whole then,
    /// frees the group.
    #[inline]
    pub(super) fn add<P: Platform>(&self, zone: &mut LockedZone<'_, P>, place: MapPlace) {
        let number = self.number(place);
        let (Some(word), Some(entry), Some(migrate_type)) =
            (self.word(place), self.entry(number), zone.blocks.ordinary_type_at(place.index() as usize))
        else {
            return zone.free_by_type(place, Order::ZERO);
        };
        touch(zone, word, Access::Write);
        let was = word.load(Ordering::Relaxed);
        let bits = was | 1 << (place.index() & ((1 << self.group_order.0) - 1));
        if bits == was {
            return zone.note_corrupt();
        }
        add_exclusive(&self.state.added, 1);
        let group = zone.map.head(place, self.group_order);
        if bits != self.full() {
            word.store(bits, Ordering::Relaxed);
            return self.count_added(zone, (number, entry), migrate_type);
        }
        word.store(0, Ordering::Relaxed);
        if was != 0 {
            self.count_removed(zone, (number, entry), was.count_ones());
        }
        add_exclusive(&self.state.merged, 1);
        free_whole(zone, group, self.group_order);
    }

    /// Counts a frame added to a pageblock. The first one puts the pageblock on the list of that type.
    #[inline(always)]
    fn count_added<P: Platform>(
        &self,
        view: &ZoneView<'_, P>,
        (number, entry): (u32, &PageblockEntry),
        migrate_type: MigrateType,
    ) {
        touch(view, entry, Access::Write);
        let frames = entry.frames.load(Ordering::Relaxed);
        entry.frames.store(frames.wrapping_add(1), Ordering::Relaxed);
        if frames == 0 {
            self.append((number, entry), migrate_type);
        }
        if let Some(list) = self.list_of(entry) {
            add_exclusive(&list.pages, 1);
        }
    }

    /// Counts frames that have left a pageblock. The last one takes the pageblock off its list.
    #[inline(always)]
    pub(super) fn count_removed<P: Platform>(
        &self,
        view: &ZoneView<'_, P>,
        (number, entry): (u32, &PageblockEntry),
        count: u32,
    ) {
        touch(view, entry, Access::Write);
        let frames = entry.frames.load(Ordering::Relaxed).wrapping_sub(count);
        entry.frames.store(frames, Ordering::Relaxed);
        if let Some(list) = self.list_of(entry) {
            sub_exclusive(&list.pages, count.into());
        }
        if frames == 0 {
            self.unlink((number, entry));
        }
    }

    fn list_of(&self, entry: &PageblockEntry) -> Option<&'a TypeList> {
        self.state.lists.get(entry.list_type.load(Ordering::Relaxed) as usize)
    }

    /// Puts a pageblock at the end of the list of a type.
    #[cold]
    fn append(&self, (number, entry): (u32, &PageblockEntry), migrate_type: MigrateType) {
        entry.list_type.store(migrate_type as u32, Ordering::Relaxed);
        let Some(list) = self.list_of(entry) else { return };
        entry.next.store(0, Ordering::Relaxed);
        entry.prev.store(list.last.load(Ordering::Relaxed), Ordering::Relaxed);
        match self.linked(&list.last) {
            Some((_, last)) => last.next.store(number + 1, Ordering::Relaxed),
            None => list.first.store(number + 1, Ordering::Relaxed),
        }
        list.last.store(number + 1, Ordering::Relaxed);
    }

    /// Takes a pageblock off its list.
    #[cold]
    fn unlink(&self, (_, entry): (u32, &PageblockEntry)) {
        let Some(list) = self.list_of(entry) else { return };
        let (next, prev) = (entry.next.load(Ordering::Relaxed), entry.prev.load(Ordering::Relaxed));
        match self.linked(&entry.prev) {
            Some((_, before)) => before.next.store(next, Ordering::Relaxed),
            None => list.first.store(next, Ordering::Relaxed),
        }
        match self.linked(&entry.next) {
            Some((_, behind)) => behind.prev.store(prev, Ordering::Relaxed),
            None => list.last.store(prev, Ordering::Relaxed),
        }
        entry.next.store(0, Ordering::Relaxed);
        entry.prev.store(0, Ordering::Relaxed);
    }

    /// Takes up to `wanted` frames off the list of a type into `batch`, which is empty, each pageblock's in ascending order.
    pub(super) fn take<P: Platform>(
        &self,
        zone: &mut LockedZone<'_, P>,
        list_type: MigrateType,
        wanted: usize,
        batch: &mut Batch,
    ) {
        let mut left = self.most_pageblocks();
        while batch.len() < wanted.min(BATCH)
            && let Some((number, entry)) = self.first(list_type)
        {
            left = left.saturating_sub(1);
            if left == 0 {
                return zone.note_corrupt();
            }
            touch(zone, entry, Access::Read);
            if zone.blocks.get(zone.blocks.start_at(number.into())) != list_type {
                self.release(zone, (number, entry));
                continue;
            }
            let before = batch.len();
            for (first, word) in self.words_of(number) {
                take_bits(zone, (first, word), wanted, batch);
            }
            let taken = (batch.len() - before) as u32;
            if taken == 0 {
                // The count says that there are some.
                zone.note_corrupt();
                entry.frames.store(0, Ordering::Relaxed);
            }
            self.count_removed(zone, (number, entry), taken);
        }
        add_exclusive(&self.state.taken, batch.len() as u64);
    }

    /// Frees the held frames of a pageblock as the largest blocks that they make up. Returns their number.
    pub(super) fn release<P: Platform>(
        &self,
        zone: &mut LockedZone<'_, P>,
        (number, entry): (u32, &PageblockEntry),
    ) -> u64 {
        let mut frames = 0;
        for (first, word) in self.words_of(number) {
            touch(zone, word, Access::Write);
            let mut bits = word.load(Ordering::Relaxed);
            word.store(0, Ordering::Relaxed);
            frames += bits.count_ones();
            while bits != 0 {
                let start = bits.trailing_zeros();
                let length = (bits >> start).trailing_ones();
                bits &= !(u64::MAX >> (u64::BITS - length) << start);
                for (block, order) in (**zone).blocks_at(first + start, length as usize, self.group_order) {
                    free_whole(zone, block, order);
                }
            }
        }
        if u64::from(frames) != entry.frames() {
            zone.note_corrupt();
            entry.frames.store(frames, Ordering::Relaxed);
        }
        self.count_removed(zone, (number, entry), frames);
        add_exclusive(&self.state.collected, frames.into());
        frames.into()
    }
}

/// Moves frames of a word into a batch, until that has as many as wanted.
#[inline(always)]
fn take_bits<P: Platform>(view: &ZoneView<'_, P>, (first, word): (u32, &AtomicU64), wanted: usize, batch: &mut Batch) {
    let mut bits = word.load(Ordering::Relaxed);
    if bits == 0 {
        return;
    }
    touch(view, word, Access::Write);
    while bits != 0 && batch.len() < wanted.min(BATCH) {
        batch.push(view.map.checked(first + bits.trailing_zeros()).index());
        bits &= bits - 1;
    }
    word.store(bits, Ordering::Relaxed);
}

/// Frees a block whose frames have the tags of single frames.
fn free_whole<P: Platform>(zone: &mut LockedZone<'_, P>, block: MapPlace, order: Order) {
    for inner in 1..order.pages().0 as u32 {
        zone.page(block.part(order, inner)).set_tag(Tag::INTERIOR);
    }
    zone.free_by_type(block, order);
}

/// Announces a use of a line of the tables.
#[inline(always)]
fn touch<P: Platform, T>(view: &ZoneView<'_, P>, word: &T, access: Access) {
    view.platform.touch_line(SharedLine::of(LineKind::Mechanism, word), access);
}
