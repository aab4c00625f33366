//! Looking up the page of a device from a frame: two words per section, on one cache line.

#[cfg(doc)]
use crate::platform::Platform;
use crate::platform::SpeculativeGets;
use crate::sync::{AtomicU64, Ordering, all_atomic};
use crate::units::{Order, Pfn};

/// The way from a frame to its page.
///
/// | bits | meaning |
/// |---|---|
/// | 0–6 | order of the compound pages |
/// | 7 | whether gets are marked ([`MemoryBacking::begin_get`]) |
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

    pub(super) fn written_by(self, generation: u32) -> Self {
        Self(self.0 & !0xffff_0000 | u64::from(generation & 0xffff) << 16)
    }

    /// The same entry, with gets marked or not.
    pub(super) fn with_gets(self, gets: SpeculativeGets) -> Self {
        Self(self.0 & !Self::MARKED | if gets == SpeculativeGets::Marked { Self::MARKED } else { 0 })
    }

    /// Whether both lead from every frame to the same page.
    pub(super) fn leads_as(self, other: Self) -> bool {
        let place = |entry: Self| entry.written_by(0).with_gets(SpeculativeGets::Unmarked);
        place(self) == place(other)
    }

    /// The order of the compound pages.
    #[inline(always)]
    pub(super) fn order(self) -> Order {
        Order(self.0 as u8 & 31)
    }

    /// Whether compound pages have that order and gets are not marked. One comparison.
    #[inline(always)]
    pub(super) fn is_unmarked_of(self, order: Order) -> bool {
        self.0 as u8 == order.0
    }

    /// Whether gets are marked.
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

    /// Whether parts of compound pages have no page structures.
    #[inline(always)]
    pub(super) fn is_folded(self) -> bool {
        self.0 >> 8 & 31 != 0
    }
}

/// A look-up gives up after this number of changes one behind the other. Only a process that writes to the words all the time reaches it.
const MOST_LOOKS: u32 = 1 << 20;

/// The devices in a section.
///
/// `parts` has a bit for each sub-section whose frames a device has. All devices in a section share `entry`, which is written before
/// the first bit is set. The holder of the directory's lock writes both.
#[repr(C, align(16))]
#[derive(Default)]
pub(crate) struct DeviceSection {
    entry: AtomicU64,
    parts: AtomicU64,
}

all_atomic!(DeviceSection { entry, parts });

impl DeviceSection {
    /// The entry for the frames of a part, if a device has them.
    ///
    /// Reads the entry before and after the part's bit. A CPU that finds the bit set sees the entry that was written before it.
    /// A CPU that reads an entry written after the bit was cleared also sees the bit cleared. So if both entries are equal, the
    /// entry belongs to the bit, unless 2¹⁶ devices came and went in between.
    #[inline(always)]
    pub(super) fn look_up(&self, part: u64) -> Option<Entry> {
        for _ in 0..MOST_LOOKS {
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
        None
    }

    /// Whether this is still the entry of a part.
    #[inline(always)]
    pub(super) fn still_leads(&self, entry: Entry, part: u64) -> bool {
        // Relaxed: the caller has acquired a reference, which orders these loads behind the changes that it must see.
        self.parts.load(Ordering::Relaxed) & part != 0 && self.entry.load(Ordering::Relaxed) == entry.0
    }

    /// Entry and parts, for the validator.
    pub(super) fn read(&self) -> (Entry, u64) {
        // Acquire, twice: pairs with the Release in `publish` and `withdraw`.
        let entry = Entry(self.entry.load(Ordering::Acquire));
        (entry, self.parts.load(Ordering::Acquire))
    }

    /// Makes look-ups find the pages of these parts. The caller holds the directory's lock.
    pub(super) fn publish(&self, entry: Entry, parts: u64) {
        let others = self.parts.load(Ordering::Relaxed);
        if others == 0 {
            // Release: pairs with the Acquire in `look_up`. A reader of this entry sees all former parts withdrawn.
            self.entry.store(entry.bits(), Ordering::Release);
        }
        // Release: pairs with the Acquire in `look_up`. A plain store, because the lock excludes other writers.
        self.parts.store(others | parts, Ordering::Release);
    }

    /// Withdraws these parts: look-ups no longer find their pages. The caller holds the directory's lock.
    pub(super) fn withdraw(&self, parts: u64) {
        let others = self.parts.load(Ordering::Relaxed) & !parts;
        // Release: pairs with the Acquire in `look_up`.
        self.parts.store(others, Ordering::Release);
        if others == 0 {
            // Release: pairs with the Acquire in `look_up`. A reader of entry 0, or of the next entry, sees the parts withdrawn.
            self.entry.store(0, Ordering::Release);
        }
    }
}
