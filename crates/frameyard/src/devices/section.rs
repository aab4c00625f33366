//! How the frames of a section lead to the pages of devices: two words a section, on one line.

#[cfg(doc)]
use crate::platform::Platform;
use crate::platform::SpeculativeGets;
use crate::sync::{AtomicU64, Ordering, all_atomic};
use crate::units::{Order, Pfn};

/// How the page of a frame is found.
///
/// | bits | meaning |
/// |---|---|
/// | 0–6 | order of the compound pages |
/// | 7 | whether the platform is told of speculative gets ([`MapBacking::begin_get`]) |
/// | 8–15 | by how many bits a head's frame number is shifted: 0, or (folded) the order |
/// | 16–31 | which mapping wrote the entry: the same value never comes back soon |
/// | 32–63 | what is added (modulo 2³²) to the shifted number to give the place of the head's page in the map |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry(u64);

impl Entry {
    const MARKED: u64 = 1 << 7;

    /// The entry of compound pages of that order, of which that of `head` is at that place of the map.
    pub(super) fn new(order: Order, fold: u8, head: Pfn, place: u32) -> Self {
        let bias = place.wrapping_sub((head.0 >> fold) as u32);
        Self(u64::from(order.0) | u64::from(fold) << 8 | u64::from(bias) << 32)
    }

    pub(super) fn bits(self) -> u64 {
        self.0
    }

    pub(super) fn written_by(self, generation: u64) -> Self {
        Self(self.0 & !0xffff_0000 | (generation & 0xffff) << 16)
    }

    /// The same, of pages on which gets are told of or not.
    pub(super) fn with_gets(self, gets: SpeculativeGets) -> Self {
        Self(self.0 & !Self::MARKED | if gets == SpeculativeGets::Marked { Self::MARKED } else { 0 })
    }

    /// Whether both lead everywhere to the same pages.
    pub(super) fn leads_as(self, other: Self) -> bool {
        let place = |entry: Self| entry.written_by(0).with_gets(SpeculativeGets::Unmarked);
        place(self) == place(other)
    }

    /// The order of the compound pages.
    #[inline(always)]
    pub(super) fn order(self) -> Order {
        Order(self.0 as u8 & 31)
    }

    /// Whether compound pages are of that order and the platform is told of nothing: one comparison.
    #[inline(always)]
    pub(super) fn is_unmarked_of(self, order: Order) -> bool {
        self.0 as u8 == order.0
    }

    /// Whether the platform is told of speculative gets.
    #[inline(always)]
    pub(super) fn is_marked(self) -> bool {
        self.0 & Self::MARKED != 0
    }

    /// The head of the compound page that covers a frame.
    #[inline(always)]
    pub(super) fn head(self, pfn: Pfn) -> Pfn {
        let order = self.0 & 31;
        Pfn(pfn.0 >> order << order)
    }

    /// The place in the map of a head's page.
    #[inline(always)]
    pub(super) fn place(self, head: Pfn) -> u32 {
        ((head.0 >> (self.0 >> 8 & 31)) as u32).wrapping_add((self.0 >> 32) as u32)
    }

    /// Whether all compound pages have a page structure each and their parts have none.
    #[inline(always)]
    pub(super) fn is_folded(self) -> bool {
        self.0 >> 8 & 31 != 0
    }
}

/// What is known of devices in a section.
///
/// `parts` says of which sub-sections, one bit each, a device has the frames. `entry` is written while no bit is set, before
/// the first is; all devices in a section share it. Both are written under the directory's lock.
#[repr(C, align(16))]
#[derive(Default)]
pub(crate) struct DeviceSection {
    entry: AtomicU64,
    parts: AtomicU64,
}

all_atomic!(DeviceSection { entry, parts });

impl DeviceSection {
    /// The entry that leads from the frames of a part, if a device has them.
    ///
    /// The entry is read before and after the part's bit. A CPU that finds the bit sees the entry written before it; an
    /// entry written after the bit was cleared makes that clearing visible. So two equal entries around a bit are the
    /// one that belongs to it, unless 2¹⁶ devices came and went in between.
    #[inline(always)]
    pub(super) fn look_up(&self, part: u64) -> Option<Entry> {
        loop {
            // Acquire: pairs with the Release in `publish` and `withdraw`.
            let entry = self.entry.load(Ordering::Acquire);
            // Acquire: pairs with the Release in `publish`. A reader that finds the bit sees the pages written.
            if self.parts.load(Ordering::Acquire) & part == 0 {
                return None;
            }
            if self.entry.load(Ordering::Relaxed) == entry {
                return Some(Entry(entry));
            }
        }
    }

    /// Whether the entry still leads from the frames of a part.
    #[inline(always)]
    pub(super) fn still_leads(&self, entry: Entry, part: u64) -> bool {
        // Relaxed: what the caller has acquired with a reference is seen, and no more is asked.
        self.parts.load(Ordering::Relaxed) & part != 0 && self.entry.load(Ordering::Relaxed) == entry.0
    }

    /// Entry and parts, for the validator.
    pub(super) fn read(&self) -> (Entry, u64) {
        // Acquire, twice: pairs with the Release in `publish` and `withdraw`.
        let entry = Entry(self.entry.load(Ordering::Acquire));
        (entry, self.parts.load(Ordering::Acquire))
    }

    /// Lets everybody find the pages of these parts. The directory is locked.
    pub(super) fn publish(&self, entry: Entry, parts: u64) {
        let others = self.parts.load(Ordering::Relaxed);
        if others == 0 {
            // Release: pairs with the Acquire in `look_up`. A reader of this entry sees that all former parts were withdrawn.
            self.entry.store(entry.bits(), Ordering::Release);
        }
        // Release: pairs with the Acquire in `look_up`. Plain, for the lock keeps all other writers away.
        self.parts.store(others | parts, Ordering::Release);
    }

    /// Withdraws these parts: look-ups no longer find their pages. The caller holds the directory's lock.
    pub(super) fn withdraw(&self, parts: u64) {
        let others = self.parts.load(Ordering::Relaxed) & !parts;
        // Release: pairs with the Acquire in `look_up`.
        self.parts.store(others, Ordering::Release);
        if others == 0 {
            // Release: pairs with the Acquire in `look_up`. A reader of no entry, or of the next, sees the parts withdrawn.
            self.entry.store(0, Ordering::Release);
        }
    }
}
