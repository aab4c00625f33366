//! The type and the zone of each pageblock: one word for each `2^pageblock_order` frames.
//!
//! | bits | meaning |
//! |---|---|
//! | 0–3 | the type plus one; 0 means no memory, or uninitialised page structures |
//! | 4–7 | while the pageblock is isolated: the type to restore, plus one |
//! | 8 | the pageblock has memory of several zones |
//! | 9 | the pageblock is being emptied: frames freed here become bits, and do not go to a per-CPU list |
//! | 16–31 | the zone of its memory, if it is only one |
//!
//! So one load tells whether a frame has a readable page structure, and which list of which zone it belongs to when it
//! is freed.

use crate::memmap::{MapPlace, Numbering};
use crate::platform::{Access, LineKind, Platform, Probe, SharedLine};
use crate::sync::{AtomicU32, Ordering, is_broken};
use crate::units::{Geometry, MigrateType, Order, PageCount, Pfn, PfnRange, ZoneId};

const TYPE_BITS: u32 = 4;
const TYPE: u32 = (1 << TYPE_BITS) - 1;
/// Both types.
const TYPES: u32 = 0xff;
const SEVERAL_ZONES: u32 = 1 << 8;
const EMPTYING: u32 = 1 << 9;
const ZONE_SHIFT: u32 = 16;

const _: () = assert!(MigrateType::COUNT < TYPE as usize, "type plus one fits its bits");

/// The type whose number plus one is in the lowest bits.
fn type_of(bits: u32) -> Option<MigrateType> {
    MigrateType::from_bits(((bits & TYPE) as u8).wrapping_sub(1))
}

/// The bits of the type of a pageblock that is not isolated.
fn bits_of(migrate_type: MigrateType) -> u32 {
    migrate_type as u32 + 1
}

/// The type and zone in a word, if that has memory of one zone and a type that has per-CPU lists.
#[inline(always)]
fn ordinary(word: u32) -> Option<(MigrateType, ZoneId)> {
    // All that is not ordinary has another bit in the lower half.
    let bits = (word as u16).wrapping_sub(1);
    if usize::from(bits) >= MigrateType::PER_CPU {
        return None;
    }
    Some((MigrateType::from_bits(bits as u8)?, ZoneId((word >> ZONE_SHIFT) as u16)))
}

/// Stores a word so that a CPU that sees it sees the pages of the pageblock initialised.
fn publish(word: &AtomicU32, value: u32) {
    if is_broken!(PageblocksPublishedRelaxed) {
        return word.store(value, Ordering::Relaxed);
    }
    // Release: pairs with the Acquire in `has_memory_at` and `ordinary_at`.
    word.store(value, Ordering::Release);
}

/// The pageblock words of the whole memory map. Written under the lock of the pageblock's zone; the first time by the CPU that
/// initialises the pageblock, before any other can access it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageblockMap<'a> {
    words: &'a [AtomicU32],
    numbering: Numbering,
    order: Order,
}

impl<'a> PageblockMap<'a> {
    pub(crate) fn new(words: &'a [AtomicU32], numbering: Numbering, geometry: Geometry) -> Self {
        Self { words, numbering, order: geometry.pageblock_order() }
    }

    /// The index of a frame's word. Behind the table's end for frames outside the map.
    #[inline(always)]
    fn place(&self, pfn: Pfn) -> usize {
        self.numbering.place(pfn) >> self.order.0
    }

    #[inline(always)]
    fn word(&self, pfn: Pfn) -> &'a AtomicU32 {
        // As in `MemMap::outside`: a place that another process damaged is the first one.
        self.words.get(self.place(pfn)).unwrap_or(&self.words[0])
    }

    /// Replaces the types of a word. Only the holder of its zone's lock does.
    fn set_types(&self, pfn: Pfn, types: u32) {
        let word = self.word(pfn);
        // The writer sees the pages initialised by the zone lock; a CPU that sees this type instead of the published one must see
        // them, too.
        publish(word, word.load(Ordering::Relaxed) & !TYPES | types);
    }

    /// The type of the pageblock at a place, and its zone, if it has memory of one zone and is of one of the types that have
    /// per-CPU lists. Accepts any place.
    #[inline(always)]
    pub(crate) fn ordinary_at(&self, place: usize) -> Option<(MigrateType, ZoneId)> {
        // Acquire: pairs with the Release in `publish`.
        ordinary(self.words.get(place >> self.order.0)?.load(Ordering::Acquire))
    }

    /// As [`ordinary_at`](Self::ordinary_at), also of a pageblock that is being emptied.
    #[inline(always)]
    pub(crate) fn lasting_at(&self, place: usize) -> Option<(MigrateType, ZoneId)> {
        // Acquire: pairs with the Release in `publish`.
        ordinary(self.words.get(place >> self.order.0)?.load(Ordering::Acquire) & !EMPTYING)
    }

    /// Whether a pageblock is being emptied.
    #[inline(always)]
    pub(crate) fn is_emptying_at(&self, place: usize) -> bool {
        self.words.get(place >> self.order.0).is_some_and(|word| word.load(Ordering::Relaxed) & EMPTYING != 0)
    }

    /// Begins to empty a pageblock; whether it was not being emptied. Another change of the word at the same time may undo this.
    pub(crate) fn begin_emptying_at(&self, place: usize) -> bool {
        let word = self.words.get(place >> self.order.0);
        word.is_some_and(|word| word.fetch_or(EMPTYING, Ordering::Relaxed) & EMPTYING == 0)
    }

    /// Ends the emptying of a pageblock; whether it was being emptied. Another change of the word at the same time may undo this.
    pub(crate) fn end_emptying_at(&self, place: usize) -> bool {
        self.is_emptying_at(place)
            && self.words[place >> self.order.0].fetch_and(!EMPTYING, Ordering::Relaxed) & EMPTYING != 0
    }

    /// Whether [`lasting_at`](Self::lasting_at) still names a type, for a caller that has just set bits of free frames there.
    #[inline(always)]
    pub(crate) fn is_still_ordinary_at(&self, place: usize) -> bool {
        // Sequentially consistent: pairs with the fence in `collect_line`. The caller sees that the pageblock was isolated, or the isolation
        // sees its bits.
        let word = self.words.get(place >> self.order.0).map_or(0, |word| word.load(Ordering::SeqCst));
        ordinary(word & !EMPTYING).is_some()
    }

    /// The zone of the pageblock at a place; `None` if it has no initialised memory, or zones meet in it. Accepts any place.
    #[inline(always)]
    pub(crate) fn zone_at(&self, place: usize) -> Option<ZoneId> {
        let word = self.words.get(place >> self.order.0)?.load(Ordering::Relaxed);
        let has_one = word & TYPE != 0 && word & SEVERAL_ZONES == 0;
        has_one.then_some(ZoneId((word >> ZONE_SHIFT) as u16))
    }

    /// Announces a read of the type of the pageblock of the frame at an index. Other reads, mostly of types that were read just
    /// before, are not announced.
    #[inline(always)]
    pub(crate) fn touch_at<P: Platform>(&self, platform: &P, place: usize) {
        let types = self.words.as_ptr().wrapping_add(place >> self.order.0).cast();
        platform.probe().touch_line(SharedLine { kind: LineKind::PageblockTypes, address: types }, Access::Read);
    }

    /// Whether the frame lies in a pageblock that has memory. Accepts any frame number.
    #[inline(always)]
    pub(crate) fn has_memory(&self, pfn: Pfn) -> bool {
        self.has_memory_at(self.numbering.place(pfn))
    }

    /// As [`has_memory`](Self::has_memory), by the frame's place in the map.
    #[inline(always)]
    pub(crate) fn has_memory_at(&self, place: usize) -> bool {
        // Acquire: pairs with the Release in `publish`.
        self.words.get(place >> self.order.0).is_some_and(|word| word.load(Ordering::Acquire) != 0)
    }

    /// The type of the pageblock that holds `pfn`. Without the zone lock it may be stale at once.
    #[inline(always)]
    pub(crate) fn get(&self, pfn: Pfn) -> MigrateType {
        type_of(self.word(pfn).load(Ordering::Relaxed)).unwrap_or(MigrateType::Unmovable)
    }

    /// As [`get`](Self::get), by the place of a frame.
    #[inline(always)]
    pub(crate) fn get_at(&self, place: MapPlace) -> MigrateType {
        let word = self.words.get(place.index() as usize >> self.order.0).unwrap_or(&self.words[0]);
        type_of(word.load(Ordering::Relaxed)).unwrap_or(MigrateType::Unmovable)
    }

    /// The type that the pageblock has, or that is restored when its isolation ends. Without the zone lock it may be stale.
    pub(crate) fn lasting_type(&self, pfn: Pfn) -> MigrateType {
        let word = self.word(pfn).load(Ordering::Relaxed);
        type_of(word >> TYPE_BITS).or(type_of(word)).unwrap_or(MigrateType::Unmovable)
    }

    /// Isolates the pageblock and keeps its type in the word. Returns the type; `None` if it is isolated already.
    pub(crate) fn isolate(&self, pfn: Pfn) -> Option<MigrateType> {
        let was = self.get(pfn);
        if was == MigrateType::Isolate {
            return None;
        }
        self.set_types(pfn, bits_of(was) << TYPE_BITS | bits_of(MigrateType::Isolate));
        Some(was)
    }

    /// Restores the type of an isolated pageblock. Returns the type; `None` if it is not isolated.
    pub(crate) fn restore(&self, pfn: Pfn) -> Option<MigrateType> {
        if self.get(pfn) != MigrateType::Isolate {
            return None;
        }
        let was = self.lasting_type(pfn);
        self.set_types(pfn, bits_of(was));
        Some(was)
    }

    /// Publishes the pages of a pageblock with memory of a zone: as Movable, unless it has a type already. A CPU that sees a type
    /// sees these pages initialised.
    pub(crate) fn publish(&self, pfn: Pfn, zone: ZoneId) {
        let word = self.word(pfn);
        let found = word.load(Ordering::Relaxed);
        let zone = u32::from(zone.0) << ZONE_SHIFT;
        let published = match found {
            0 => bits_of(MigrateType::Movable) | zone,
            _ if found >> ZONE_SHIFT << ZONE_SHIFT == zone => return,
            _ => found | SEVERAL_ZONES,
        };
        publish(word, published);
    }

    /// Gives a pageblock of a zone its type before its pages are initialised and published.
    pub(crate) fn assign(&self, pfn: Pfn, zone: ZoneId, migrate_type: MigrateType) {
        self.word(pfn).store(u32::from(zone.0) << ZONE_SHIFT | bits_of(migrate_type), Ordering::Relaxed);
    }

    /// Sets the type of the pageblock that holds `pfn`, which is not isolated.
    pub(crate) fn set(&self, pfn: Pfn, migrate_type: MigrateType) {
        self.set_types(pfn, bits_of(migrate_type));
    }

    /// Sets the type of every pageblock of a block of at least pageblock order.
    pub(crate) fn set_block(&self, pfn: Pfn, order: Order, migrate_type: MigrateType) {
        self.starts_in(PfnRange::new(pfn, order.pages())).for_each(|pageblock| self.set(pageblock, migrate_type));
    }

    /// The types of the pageblocks that a block lies in.
    pub(crate) fn types_of(&self, pfn: Pfn, order: Order) -> impl Iterator<Item = MigrateType> {
        let count = 1u64 << order.0.saturating_sub(self.order.0);
        (0..count).map(move |at| self.get(pfn + PageCount(at << self.order.0)))
    }

    /// How many frames a pageblock has.
    pub(crate) fn pages(&self) -> PageCount {
        self.order.pages()
    }

    /// The first frames of the pageblocks that a range touches, ascending.
    pub(crate) fn starts_in(&self, range: PfnRange) -> impl Iterator<Item = Pfn> + use<> {
        (self.start_of(range.start).0..range.end.0).step_by(self.pages().0 as usize).map(Pfn)
    }

    /// The numbers of the pageblocks that a range touches, run by run. Holes have none.
    pub(crate) fn numbers_in(&self, range: PfnRange) -> impl Iterator<Item = core::ops::Range<u64>> + use<> {
        self.numbering.blocks_of(range, self.order)
    }

    /// The first frame of a pageblock, by its number.
    pub(crate) fn start_at(&self, number: u64) -> Pfn {
        self.numbering.block_start(number, self.order)
    }

    /// As [`starts_in`](Self::starts_in), run by run, without holes.
    pub(crate) fn present_starts_in(&self, range: PfnRange) -> impl Iterator<Item = Pfn> {
        self.numbers_in(range).flatten().map(|number| self.start_at(number))
    }

    /// The first frame of the pageblock that holds `pfn`.
    pub(crate) fn start_of(&self, pfn: Pfn) -> Pfn {
        pfn.align_down(self.order)
    }
}
