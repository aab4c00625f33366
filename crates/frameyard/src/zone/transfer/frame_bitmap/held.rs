//! Held frames: the bits, the counts of pageblocks, and the lists of pageblocks by type.
//!
//! Other processes may damage the tables. So links and counts lead no further than the tables, and every loop has a bound.

use super::State;
use crate::memmap::MapPlace;
use crate::page::Tag;
use crate::platform::{Access, LineKind, Platform, SharedLine};
use crate::sync::{AtomicU32, AtomicU64, Ordering, all_atomic};
use crate::units::{MigrateType, Order, ZoneId};
use crate::zone::batch::{BATCH, Batch};
use crate::zone::exclusive::{add_exclusive, sub_exclusive};
use crate::zone::view::{LockedZone, ZoneView};

/// The order of a group: the frames of one word.
#[inline(always)]
pub(super) const fn group_order(pageblock_order: Order) -> Order {
    let word = u64::BITS.ilog2() as u8;
    if pageblock_order.0 < word { pageblock_order } else { Order(word) }
}

/// The words of a pageblock in the table: [`LINKS`], [`STATE`], and the bits of its frames.
///
/// The first zone that adds a frame claims the pageblock for good: where two zones meet in a pageblock, only one has frames held
/// there, so that all of them change under one lock.
#[derive(Clone, Copy)]
pub(super) struct Record<'a> {
    words: &'a [AtomicU64],
    /// The number of the pageblock.
    number: u32,
}

/// The word with the next pageblock of the list (low half) and the previous one, by their numbers plus 1; 0: none.
const LINKS: usize = 0;
/// The word with the number of words that have bits set in bits 0–31, the [`MigrateType`] of the list in bits 32–39, and the zone plus
/// 1 in bits 40–56: 0 while no zone has claimed the pageblock. A drain writes it only when a word gets its first bit or loses its last.
const STATE: usize = 1;
/// The words before the bits.
const HEAD: usize = 2;

const TYPE_SHIFT: u32 = 32;
const ZONE_SHIFT: u32 = 40;

/// The words of a record.
#[inline(always)]
pub(super) const fn record_words(pageblock_order: Order) -> usize {
    HEAD + (1 << (pageblock_order.0 - group_order(pageblock_order).0))
}

impl<'a> Record<'a> {
    #[inline(always)]
    fn new(words: &'a [AtomicU64], number: u32) -> Option<Self> {
        (words.len() > HEAD).then_some(Self { words, number })
    }

    #[inline(always)]
    fn links(self) -> &'a AtomicU64 {
        &self.words[LINKS]
    }

    #[inline(always)]
    fn state(self) -> &'a AtomicU64 {
        &self.words[STATE]
    }

    pub(super) fn number(self) -> u32 {
        self.number
    }

    /// The words of bits.
    #[inline(always)]
    pub(super) fn bits(self) -> &'a [AtomicU64] {
        &self.words[HEAD..]
    }

    /// The number of words that have bits set.
    #[inline(always)]
    pub(super) fn filled(self) -> u32 {
        self.state().load(Ordering::Relaxed) as u32
    }

    /// The zone that has claimed the pageblock, plus 1; 0 if none has.
    #[inline(always)]
    fn claimant(self) -> u64 {
        self.state().load(Ordering::Relaxed) >> ZONE_SHIFT
    }

    /// Whether frames are held here for that zone. Exact under its lock.
    pub(super) fn holds_for(self, zone: ZoneId) -> bool {
        self.filled() > 0 && self.claimant() == u64::from(zone.0) + 1
    }

    /// Whether the pageblock is that zone's, which claims it if no zone has. The caller holds the zone lock.
    #[inline(always)]
    fn belongs_to(self, zone: ZoneId) -> bool {
        match self.claimant() {
            0 => self.claim(zone),
            claimant => claimant == u64::from(zone.0) + 1,
        }
    }

    #[cold]
    fn claim(self, zone: ZoneId) -> bool {
        let state = (u64::from(zone.0) + 1) << ZONE_SHIFT;
        self.state().compare_exchange(0, state, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    fn set_list_type(self, migrate_type: MigrateType) {
        let others = self.state().load(Ordering::Relaxed) & !(0xff << TYPE_SHIFT);
        self.state().store(others | (migrate_type as u64) << TYPE_SHIFT, Ordering::Relaxed);
    }

    /// The type of the list, as an index.
    #[inline(always)]
    fn list_type(self) -> usize {
        usize::from((self.state().load(Ordering::Relaxed) >> TYPE_SHIFT) as u8)
    }

    #[inline(always)]
    fn set_filled(self, words: u32) {
        let others = self.state().load(Ordering::Relaxed) & !u64::from(u32::MAX);
        self.state().store(others | u64::from(words), Ordering::Relaxed);
    }

    fn next(self) -> u32 {
        self.links().load(Ordering::Relaxed) as u32
    }

    fn prev(self) -> u32 {
        (self.links().load(Ordering::Relaxed) >> u32::BITS) as u32
    }

    fn set_links(self, next: u32, prev: u32) {
        self.links().store(u64::from(next) | u64::from(prev) << u32::BITS, Ordering::Relaxed);
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

/// What a drain changes in the counts of its zone, added to them once at its end.
#[derive(Default)]
struct Change {
    /// Held frames, by the list; wraps around where frames leave.
    pages: [u64; MigrateType::PER_CPU],
    added: u64,
    merged: u64,
}

impl Change {
    /// Adds frames to those of the list of a pageblock.
    #[inline(always)]
    fn count(&mut self, record: Record<'_>, frames: u64) {
        if let Some(pages) = self.pages.get_mut(record.list_type()) {
            *pages = pages.wrapping_add(frames);
        }
    }
}

/// The held frames of one zone: its lists, and the table of the yard.
#[derive(Clone, Copy)]
pub(super) struct Held<'a> {
    pub(super) state: &'a State,
    table: &'a [AtomicU64],
    pageblock_order: Order,
    group_order: Order,
}

impl<'a> Held<'a> {
    #[inline(always)]
    pub(super) fn of<P: Platform>(view: &ZoneView<'a, P>) -> Self {
        let pageblock_order = view.geometry.pageblock_order();
        Self {
            state: &view.zone.mechanisms.frame_bitmap,
            table: view.mechanisms.frame_bitmap.0,
            pageblock_order,
            group_order: group_order(pageblock_order),
        }
    }

    /// The word of a full group.
    #[inline(always)]
    pub(super) fn full(&self) -> u64 {
        u64::MAX >> (u64::BITS - (1 << self.group_order.0))
    }

    /// The record of a pageblock, by its number.
    #[inline(always)]
    pub(super) fn record(&self, number: u32) -> Option<Record<'a>> {
        let words = record_words(self.pageblock_order);
        let first = number as usize * words;
        Record::new(self.table.get(first..first + words)?, number)
    }

    /// The record of the pageblock of a place.
    #[inline(always)]
    pub(super) fn record_of(&self, place: MapPlace) -> Option<Record<'a>> {
        self.record(place.index() >> self.pageblock_order.0)
    }

    /// The word of a place in the bits of its pageblock.
    #[inline(always)]
    fn word_of(&self, record: Record<'a>, place: MapPlace) -> Option<&'a AtomicU64> {
        let inner = place.index() & ((1 << self.pageblock_order.0) - 1);
        record.bits().get((inner >> self.group_order.0) as usize)
    }

    /// The bit of a place in its word.
    #[inline(always)]
    fn bit_of(&self, place: MapPlace) -> u64 {
        1 << (place.index() & ((1 << self.group_order.0) - 1))
    }

    /// The record that a link names.
    fn linked(&self, link: u32) -> Option<Record<'a>> {
        self.record(link.checked_sub(1)?)
    }

    /// The pageblocks in the table: more than any list has.
    pub(super) fn most_pageblocks(&self) -> usize {
        self.table.len() / record_words(self.pageblock_order)
    }

    /// The first pageblock of a list.
    pub(super) fn first(&self, list_type: MigrateType) -> Option<Record<'a>> {
        self.linked(self.state.lists.get(list_type.index())?.first.load(Ordering::Relaxed))
    }

    /// The pageblock behind another one.
    pub(super) fn behind(&self, record: Record<'_>) -> Option<Record<'a>> {
        self.linked(record.next())
    }

    #[inline(always)]
    fn list_of(&self, record: Record<'_>) -> Option<&'a TypeList> {
        self.state.lists.get(record.list_type())
    }

    /// The words of a pageblock, each with the place of its first frame.
    pub(super) fn words(&self, record: Record<'a>) -> impl Iterator<Item = (u32, &'a AtomicU64)> + use<'a> {
        let (first, shift) = (record.number << self.pageblock_order.0, self.group_order.0);
        record.bits().iter().enumerate().map(move |(at, word)| (first + ((at as u32) << shift), word))
    }

    /// Reads, before the lock is taken, the lines that [`add`](Self::add) uses, so that their misses overlap: those of the table, and the
    /// page structures of groups that become whole. The values may be stale; they only decide what is read next.
    pub(super) fn read_ahead<P: Platform>(&self, view: &ZoneView<'_, P>, batch: &Batch) {
        for place in batch.iter().map(|entry| view.map.checked(*entry)) {
            let Some(record) = self.record_of(place) else { return };
            touch(view, record.state(), Access::ReadAhead);
            record.state().load(Ordering::Relaxed);
            if let Some(word) = self.word_of(record, place) {
                touch(view, word, Access::ReadAhead);
                if word.load(Ordering::Relaxed) | self.bit_of(place) == self.full() {
                    let group = view.map.head(place, self.group_order);
                    let frames = 0..self.group_order.pages().0 as u32;
                    frames.for_each(|inner| view.page(group.part(self.group_order, inner)).prefetch());
                }
            }
        }
    }

    /// Adds single frames that the caller owns. Frees those whose pageblock is not of an ordinary type, or another zone's, and each
    /// group that is whole then.
    #[inline(always)]
    pub(super) fn add<P: Platform>(&self, zone: &mut LockedZone<'_, P>, batch: &Batch) {
        let mut change = Change::default();
        for entry in batch.iter() {
            self.add_one(zone, zone.map.checked(*entry), &mut change);
        }
        self.count(&change);
    }

    #[inline(always)]
    fn add_one<P: Platform>(&self, zone: &mut LockedZone<'_, P>, place: MapPlace, change: &mut Change) {
        let list_type = zone.blocks.ordinary_at(place.index() as usize).map(|(list_type, _)| list_type);
        let record = self.record_of(place).filter(|record| record.belongs_to(zone.id));
        let (Some(list_type), Some(record)) = (list_type, record) else { return zone.free_by_type(place, Order::ZERO) };
        let Some(word) = self.word_of(record, place) else { return };
        touch(zone, word, Access::Write);
        let was = word.load(Ordering::Relaxed);
        let bits = was | self.bit_of(place);
        if bits == was {
            return zone.note_corrupt();
        }
        change.added += 1;
        if was == 0 && bits != self.full() {
            self.count_word(zone, record, list_type);
        }
        if bits != self.full() {
            word.store(bits, Ordering::Relaxed);
            return change.count(record, 1);
        }
        word.store(0, Ordering::Relaxed);
        if was != 0 {
            change.count(record, u64::from(was.count_ones()).wrapping_neg());
            self.count_emptied(zone, record, 1);
        }
        change.merged += 1;
        free_whole(zone, zone.map.head(place, self.group_order), self.group_order);
    }

    /// Adds a change to the counts of the zone.
    #[inline(always)]
    fn count(&self, change: &Change) {
        for (list, pages) in self.state.lists.iter().zip(change.pages) {
            if pages != 0 {
                add_exclusive(&list.pages, pages);
            }
        }
        add_exclusive(&self.state.added, change.added);
        add_exclusive(&self.state.merged, change.merged);
    }

    /// Counts a word of a pageblock that gets its first bit. The first such word puts the pageblock on the list of that type.
    #[inline]
    fn count_word<P: Platform>(&self, view: &ZoneView<'_, P>, record: Record<'_>, list_type: MigrateType) {
        touch(view, record.state(), Access::Write);
        let filled = record.filled();
        if filled == 0 {
            self.append(record, list_type);
        }
        record.set_filled(filled.wrapping_add(1));
    }

    /// Counts words of a pageblock that have no bits any more. The last one takes the pageblock off its list.
    #[inline]
    fn count_emptied<P: Platform>(&self, view: &ZoneView<'_, P>, record: Record<'_>, words: u32) {
        touch(view, record.state(), Access::Write);
        let filled = record.filled().wrapping_sub(words);
        record.set_filled(filled);
        if filled == 0 {
            self.unlink(record);
        }
    }

    /// Counts frames that have left the list of a pageblock.
    #[inline]
    fn count_left(&self, record: Record<'_>, frames: u64) {
        if let Some(list) = self.list_of(record) {
            sub_exclusive(&list.pages, frames);
        }
    }

    /// Puts a pageblock at the end of the list of a type.
    #[cold]
    fn append(&self, record: Record<'_>, list_type: MigrateType) {
        record.set_list_type(list_type);
        let Some(list) = self.list_of(record) else { return };
        let (link, last) = (record.number + 1, list.last.load(Ordering::Relaxed));
        record.set_links(0, last);
        match self.linked(last) {
            Some(last) => last.set_links(link, last.prev()),
            None => list.first.store(link, Ordering::Relaxed),
        }
        list.last.store(link, Ordering::Relaxed);
    }

    /// Takes a pageblock off its list.
    #[cold]
    fn unlink(&self, record: Record<'_>) {
        let Some(list) = self.list_of(record) else { return };
        let (next, prev) = (record.next(), record.prev());
        match self.linked(prev) {
            Some(before) => before.set_links(next, before.prev()),
            None => list.first.store(next, Ordering::Relaxed),
        }
        match self.linked(next) {
            Some(behind) => behind.set_links(behind.next(), prev),
            None => list.last.store(prev, Ordering::Relaxed),
        }
        record.set_links(0, 0);
    }

    /// Takes up to `wanted` frames off the list of a type into `batch`, which is empty, each pageblock's in ascending order.
    pub(super) fn take<P: Platform>(
        &self,
        zone: &mut LockedZone<'_, P>,
        list_type: MigrateType,
        wanted: usize,
        batch: &mut Batch,
    ) {
        for _ in 0..self.most_pageblocks() {
            if batch.len() >= wanted.min(BATCH) {
                break;
            }
            let Some(record) = self.first(list_type) else { break };
            touch(zone, record.state(), Access::Read);
            if zone.blocks.get(zone.blocks.start_at(record.number.into())) != list_type {
                self.release(zone, record);
                continue;
            }
            let before = batch.len();
            let emptied = self.words(record).map(|word| u32::from(take_bits(zone, word, wanted, batch))).sum();
            if batch.len() == before {
                // The count says that there are some.
                zone.note_corrupt();
                record.set_filled(0);
            }
            self.count_left(record, (batch.len() - before) as u64);
            self.count_emptied(zone, record, emptied);
        }
        add_exclusive(&self.state.taken, batch.len() as u64);
    }

    /// Frees the held frames of a pageblock as the largest blocks that they make up. Returns their number.
    pub(super) fn release<P: Platform>(&self, zone: &mut LockedZone<'_, P>, record: Record<'a>) -> u64 {
        let (mut frames, mut emptied) = (0, 0);
        for (first, word) in self.words(record) {
            touch(zone, word, Access::Write);
            let mut bits = word.load(Ordering::Relaxed) & self.full();
            word.store(0, Ordering::Relaxed);
            frames += u64::from(bits.count_ones());
            emptied += u32::from(bits != 0);
            while bits != 0 {
                let start = bits.trailing_zeros();
                let length = (bits >> start).trailing_ones();
                bits &= !(u64::MAX >> (u64::BITS - length) << start);
                for (block, order) in zone.blocks_at(first + start, length as usize, self.group_order) {
                    free_whole(zone, block, order);
                }
            }
        }
        if emptied != record.filled() {
            zone.note_corrupt();
            record.set_filled(emptied);
        }
        self.count_left(record, frames);
        self.count_emptied(zone, record, emptied);
        add_exclusive(&self.state.collected, frames);
        frames
    }
}

/// Moves frames of a word into a batch, until that has the number wanted. Whether the word has lost its last bit.
#[inline(always)]
fn take_bits<P: Platform>(
    view: &ZoneView<'_, P>,
    (first, word): (u32, &AtomicU64),
    wanted: usize,
    batch: &mut Batch,
) -> bool {
    let mut bits = word.load(Ordering::Relaxed);
    if bits == 0 {
        return false;
    }
    touch(view, word, Access::Write);
    while bits != 0 && batch.len() < wanted.min(BATCH) {
        batch.push(view.map.checked(first + bits.trailing_zeros()).index());
        bits &= bits - 1;
    }
    word.store(bits, Ordering::Relaxed);
    bits == 0
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
