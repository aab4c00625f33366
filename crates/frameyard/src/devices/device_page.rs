//! The result of looking up a frame of a device.

use core::fmt;

use crate::devices::build::OWN;
use crate::devices::section::{DeviceSection, Entry};
use crate::memmap::MemMap;
use crate::page::{CountedPage, Counts, FrameState, PageRef, ReferenceUnderflow, Tag};
use crate::platform::{GetMark, MemoryBacking, Platform, copied_views};
use crate::sync::is_broken;
use crate::units::{Order, Pfn};

/// The page that counts the users of a frame of a device: the head of its compound page, or the frame's own page if the
/// device has base pages or the compound page is split. It is `Copy`, and valid as long as the view of the yard.
///
/// Unless the caller holds a reference ([`try_get`](Self::try_get)), the page may change or the device may be removed
/// at any time.
pub struct DevicePage<'a, P> {
    page: PageRef<'a, P>,
    /// The head, if a get does more than add references on `page`: `page` is a part of a split compound page, or gets are marked.
    /// One test covers both cases.
    head: Option<PageRef<'a, P>>,
    order: Order,
    section: &'a DeviceSection,
    entry: Entry,
    part: u64,
    no_users: u64,
}

copied_views!(DevicePage);

impl<P: Platform> fmt::Debug for DevicePage<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DevicePage").field("head", &self.head()).field("order", &self.order).finish_non_exhaustive()
    }
}

impl<'a, P: Platform> DevicePage<'a, P> {
    /// The page for `pfn`, where `page` is that of the head that the section's entry leads to.
    #[inline(always)]
    pub(super) fn found(
        page: PageRef<'a, P>,
        pfn: Pfn,
        (section, entry, part): (&'a DeviceSection, Entry, u64),
        map: MemMap,
    ) -> Option<Self> {
        let tag = page.tag();
        if !tag.is(FrameState::Device) || (tag.order() != entry.order() && tag.order() != Order::ZERO) {
            return None;
        }
        let no_users = map.content().no_users();
        let found = Self { page, head: None, order: tag.order(), section, entry, part, no_users };
        if entry.is_unmarked_of(tag.order()) {
            return Some(found);
        }
        let counts_itself = tag.order() == entry.order() || pfn == page.pfn() || entry.is_folded();
        Some(match counts_itself {
            true if entry.is_marked() => Self { head: Some(page), ..found },
            true => found,
            // Split: the frame's own page counts. A get reads it only with a reference on the head.
            false => Self { page: map.page(pfn, page.platform()), head: Some(page), ..found },
        })
    }

    /// The first frame that the page covers.
    #[inline(always)]
    #[must_use]
    pub fn head(&self) -> Pfn {
        self.page.pfn()
    }

    /// The number of frames that it covers, as an order.
    #[inline(always)]
    #[must_use]
    pub fn order(&self) -> Order {
        self.order
    }

    /// Its users, possibly stale. One reference is the device's own.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counted().counts()
    }

    /// State, order and zone, possibly stale.
    #[must_use]
    pub fn tag(&self) -> Tag {
        self.page.tag()
    }

    #[inline(always)]
    fn counted(&self) -> CountedPage<'a, P> {
        CountedPage::new(self.page, self.no_users)
    }

    /// The page structure, for reference counting and owner's words.
    ///
    /// # Safety
    ///
    /// The caller holds a reference on this page ([`try_get`](Self::try_get)) while it changes anything through the
    /// page structure. It changes counts only by getting and putting its own references, pins and mappings. The owner
    /// words belong to one owner, which zeroes them before it puts its last reference. Without a reference, the page
    /// may by now be a tail or a page of another device.
    #[inline(always)]
    #[must_use]
    pub unsafe fn page(&self) -> CountedPage<'a, P> {
        self.counted()
    }

    /// Gets `count` references, if the page is still the one that the look-up found.
    ///
    /// Returns `false` if it is not (look it up again), if another CPU is changing it, or if the count would overflow;
    /// nothing has changed then. After `true`, [`put`](Self::put) releases the references, singly or together.
    ///
    /// Never writes to a tail of a compound page. Cost: an exchange on the page's cache line and a read of the
    /// section's. In a split compound page, two more exchanges on the head's line. The get is marked if the platform
    /// asks for that ([`MemoryBacking::speculative_gets`](crate::platform::MemoryBacking::speculative_gets)).
    #[inline]
    #[must_use]
    pub fn try_get(&self, count: u32) -> bool {
        let Some(head) = self.head else { return self.try_get_on(self.page, count) };
        let _marked = self.entry.is_marked().then(|| Marked(self.page.platform().backing().begin_get()));
        if head.pfn() == self.page.pfn() { self.try_get_on(self.page, count) } else { self.try_get_part(head, count) }
    }

    /// Gets references on a part of a split compound page.
    #[inline(always)]
    fn try_get_part(&self, head: PageRef<'a, P>, count: u32) -> bool {
        if is_broken!(PartsGotWithoutHead) {
            return self.try_get_on(self.page, count);
        }
        if !self.try_get_on(head, 1) {
            return false;
        }
        // A join cannot freeze the head while this reference exists.
        let got = self.try_get_on(self.page, count);
        self.give_back(head, 1);
        got
    }

    #[inline(always)]
    fn try_get_on(&self, page: PageRef<'a, P>, count: u32) -> bool {
        if !CountedPage::new(page, self.no_users).try_get_many(count) {
            return false;
        }
        let still =
            page.tag().is_block(FrameState::Device, self.order) && self.section.still_leads(self.entry, self.part);
        if still || is_broken!(PageNotRechecked) {
            return true;
        }
        self.give_back(page, count);
        false
    }

    /// Releases references that were just got.
    #[inline(always)]
    fn give_back(&self, page: PageRef<'a, P>, count: u32) {
        // The device has a reference of its own, so this is not the last one.
        let _ = CountedPage::new(page, self.no_users).put_many(count);
    }

    /// Puts `count` references that [`try_get`](Self::try_get) of this page got; returns the remaining count, which
    /// includes the device's own.
    ///
    /// # Errors
    ///
    /// [`ReferenceUnderflow`] if the page has fewer references, not counting the device's own. Nothing has changed
    /// then.
    ///
    /// # Safety
    ///
    /// The references are the caller's own.
    pub unsafe fn put(&self, count: u32) -> Result<u32, ReferenceUnderflow> {
        self.counted().put_unmapped(count, OWN.references)
    }
}

/// The mark of a get, if it has one. Ends it when dropped.
struct Marked<'a>(Option<&'a GetMark>);

impl Drop for Marked<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(mark) = self.0 {
            mark.end();
        }
    }
}
