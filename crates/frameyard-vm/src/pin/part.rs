//! The pages of a run with one head.

use frameyard::devices::DevicePage;
use frameyard::page::{CountedPage, FrameState, references_of_pins};
use frameyard::{Order, Pfn, Platform};

use super::PageRun;
use super::request::{PinCall, PinRequest, RefHandling};
use crate::cache::count_taken;
use crate::page::PageKind;
use crate::table::{Entry, HUGE, Level};
use crate::vm::Vm;

/// Pages with one head.
pub(super) struct Part<'y, P> {
    /// The head.
    pub(super) page: CountedPage<'y, P>,
    /// The owner of the head's block.
    pub(super) owner: PartOwner<'y, P>,
    /// The order of the head's block.
    pub(super) order: Order,
    /// The number of leading pages of the run with this head.
    pub(super) pages: u64,
}

/// What a head belongs to.
pub(super) enum PartOwner<'y, P> {
    /// An address space.
    Space,
    /// A file. The page counts the references that were taken.
    File,
    /// A device, which keeps a reference of each of its pages: the head.
    Device(DevicePage<'y, P>),
    /// A pool of huge pages.
    Pool,
}

impl<P> Clone for PartOwner<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for PartOwner<'_, P> {}

impl<P> Clone for Part<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for Part<'_, P> {}

impl<'y, P: Platform> Vm<'y, P> {
    /// The leading pages of an entry's run with one head; `None` if their users are not counted. The entry may be
    /// stale.
    #[inline(always)]
    pub(super) fn part_behind(&self, entry: Entry, level: Level, run: PageRun) -> Option<Part<'y, P>> {
        if !entry.is_anonymous() {
            return self.part_of_other(entry, run);
        }
        let order = if level == Level::HUGE || entry.is_part() { HUGE } else { Order::ZERO };
        let head = run.first.align_down(order);
        // Read the owner first, so that a frame of another kind does not get a transient reference.
        let page = self.try_page(head).filter(is_of_space)?;
        Some(Part { page, owner: PartOwner::Space, order, pages: run.pages.0 })
    }

    /// As [`part_behind`](Self::part_behind), for an entry of a file, a device or a pool.
    #[inline]
    fn part_of_other(&self, entry: Entry, run: PageRun) -> Option<Part<'y, P>> {
        if entry.is_file() {
            // The entry is of level 0.
            let page = self.try_page(run.first).filter(is_of_file)?;
            return Some(Part { page, owner: PartOwner::File, order: Order::ZERO, pages: run.pages.0 });
        }
        if entry.is_counted_device() {
            self.part_of_device(run)
        } else if entry.is_pooled() {
            self.part_of_pool(run)
        } else {
            None
        }
    }

    /// The leading pages of a run with one head, as their page structures say. For runs that were taken.
    #[inline(always)]
    pub(super) fn part_at(&self, run: PageRun) -> Option<Part<'y, P>> {
        let small = self.part_of_space(run, Order::ZERO);
        small.or_else(|| self.part_of_space(run, HUGE)).or_else(|| self.other_part_at(run))
    }

    /// As [`part_at`](Self::part_at), for pages of files, devices and pools.
    #[inline]
    fn other_part_at(&self, run: PageRun) -> Option<Part<'y, P>> {
        let is_single = |page: &CountedPage<'y, P>| page.is_counted() && page.tag().order() == Order::ZERO;
        match self.try_page(run.first).filter(|page| is_single(page) && is_of_file(page)) {
            Some(page) => Some(Part { page, owner: PartOwner::File, order: Order::ZERO, pages: 1 }),
            None => self.part_of_device(run).or_else(|| self.part_of_pool(run)),
        }
    }

    /// The leading pages of a run in a block of a space of that order.
    #[inline(always)]
    fn part_of_space(&self, run: PageRun, order: Order) -> Option<Part<'y, P>> {
        let page = self.try_page(run.first.align_down(order))?;
        let is_one = page.is_counted() && page.tag().order() == order && is_of_space(&page);
        is_one.then(|| Part { page, owner: PartOwner::Space, order, pages: pages_of(run, page.pfn(), order) })
    }

    /// The leading pages of a run with one head in a device.
    #[inline]
    fn part_of_device(&self, run: PageRun) -> Option<Part<'y, P>> {
        let device = self.yard().devices().page(run.first)?;
        let (head, order) = (device.head(), device.order());
        // SAFETY: the counts of this page change only while references from `try_get` are held, here or by the
        // releasing caller. The only other words of device pages that this crate changes are their pins.
        let page = unsafe { device.page() };
        Some(Part { page, owner: PartOwner::Device(device), order, pages: pages_of(run, head, order) })
    }

    /// The head of the huge page of a pool that has a frame.
    #[inline(always)]
    pub(crate) fn pooled_page(&self, pfn: Pfn) -> Option<(CountedPage<'y, P>, Order)> {
        let (head, size) = self.yard().huge_pages().at(pfn)?;
        Some((self.page(head), size.order()))
    }

    /// The leading pages of a run in a huge page of a pool.
    #[inline]
    fn part_of_pool(&self, run: PageRun) -> Option<Part<'y, P>> {
        let (page, order) = self.pooled_page(run.first)?;
        Some(Part { page, owner: PartOwner::Pool, order, pages: pages_of(run, page.pfn(), order) })
    }
}

/// The number of the run's pages in the block of its first page.
#[inline(always)]
fn pages_of(run: PageRun, head: Pfn, order: Order) -> u64 {
    run.pages.0.min((head.0 + order.pages().0).saturating_sub(run.first.0)).max(1)
}

/// Whether a page belongs to a space, according to its owner's word.
#[inline(always)]
fn is_of_space<P: Platform>(page: &CountedPage<'_, P>) -> bool {
    PageKind::of_word(page.owner()) == Some(PageKind::Anonymous)
}

/// Whether a page belongs to a file, according to its owner's word.
#[inline(always)]
fn is_of_file<P: Platform>(page: &CountedPage<'_, P>) -> bool {
    PageKind::of_word(page.owner()) == Some(PageKind::Cache)
}

impl<P: Platform> Part<'_, P> {
    /// References that must not be released: the one that a device holds of its own page.
    #[inline(always)]
    pub(super) const fn kept(&self) -> u32 {
        self.is_of_device() as u32
    }

    /// Whether it is a page of a device.
    #[inline(always)]
    pub(super) const fn is_of_device(&self) -> bool {
        matches!(self.owner, PartOwner::Device(_))
    }

    /// Whether it is a page of a file.
    #[inline(always)]
    pub(super) const fn is_of_file(&self) -> bool {
        matches!(self.owner, PartOwner::File)
    }

    /// Whether it is a page of an address space.
    #[inline(always)]
    pub(super) const fn is_of_space(&self) -> bool {
        matches!(self.owner, PartOwner::Space)
    }

    /// Tries to take references if the page has any, whatever its owner by now.
    #[inline(always)]
    pub(super) fn try_get_many(&self, references: u32) -> bool {
        match &self.owner {
            PartOwner::Space | PartOwner::File | PartOwner::Pool => self.page.try_get_many(references),
            PartOwner::Device(device) => device.try_get(references),
        }
    }

    /// Whether its owner is unchanged. The caller has a reference.
    pub(super) fn is_still_there(&self) -> bool {
        let has_owner = match self.owner {
            PartOwner::Space => is_of_space(&self.page),
            PartOwner::File => is_of_file(&self.page),
            PartOwner::Pool => self.page.tag().is(FrameState::Pooled),
            // Taking the reference has checked this.
            PartOwner::Device(_) => return true,
        };
        has_owner && self.page.tag().order() == self.order
    }

    /// The references that a request takes for `pages` pages; `None` on overflow.
    #[inline(always)]
    pub(super) fn references(&self, call: PinCall, pages: u64) -> Option<u32> {
        let pages = u32::try_from(pages).ok()?;
        match call {
            PinCall::Get => Some(pages),
            PinCall::Pin => references_of_pins(self.order, pages),
        }
    }

    /// Tries to take the references of a request for all pages. Nothing has changed if it fails.
    #[inline(always)]
    pub(super) fn try_get(&self, request: PinRequest) -> bool {
        if request.refs == RefHandling::Batched {
            return self.references(request.call, self.pages).is_some_and(|all| self.try_get_many(all));
        }
        let Some(each) = self.references(request.call, 1) else { return false };
        let got = (0..self.pages).take_while(|_| self.try_get_many(each)).count() as u64;
        if got < self.pages {
            self.put(each, got);
        }
        got == self.pages
    }

    /// Counts the references as pins, if the request asks for pins, and as taken from a page of a file.
    #[inline(always)]
    pub(super) fn count_pins(&self, request: PinRequest) {
        if self.is_of_file() {
            return count_taken(self.page, self.references(request.call, self.pages).unwrap_or_default());
        }
        if request.call == PinCall::Get || self.order == Order::ZERO {
            return;
        }
        match request.refs {
            RefHandling::Batched => self.page.pins_were_got(self.order, self.pages as u32),
            RefHandling::PerPage => (0..self.pages).for_each(|_| self.page.pins_were_got(self.order, 1)),
        }
    }

    /// Releases references if more remain.
    #[cold]
    fn put(&self, each: u32, times: u64) {
        for _ in 0..times {
            // Refused only if another process has changed the count. The references are lost then.
            let _ = self.page.put_many(each);
        }
    }
}
