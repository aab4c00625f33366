//! The pages of a run that have one head: it counts the references and pins of all of them.

use frameyard::devices::DevicePage;
use frameyard::page::{CountedPage, references_of_pins};
use frameyard::{Order, Pfn, Platform};

use super::PageRun;
use super::request::{PinCall, PinRequest, RefHandling};
use crate::page::PageKind;
use crate::table::{Entry, HUGE, Level};
use crate::vm::Vm;

/// Pages of one head.
pub(super) struct Part<'y, P> {
    /// The head.
    pub(super) page: CountedPage<'y, P>,
    /// The same, where it is a page of a device.
    pub(super) device: Option<DevicePage<'y, P>>,
    /// Of the head's block.
    pub(super) order: Order,
    /// How many pages of the run, the first ones, have this head.
    pub(super) pages: u64,
}

impl<P> Clone for Part<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P> Copy for Part<'_, P> {}

impl<'y, P: Platform> Vm<'y, P> {
    /// The first pages behind an entry, of which a run is, that have one head; `None` where nobody counts their users. What
    /// the entry says may be stale.
    #[inline(always)]
    pub(super) fn part_behind(&self, entry: Entry, level: Level, run: PageRun) -> Option<Part<'y, P>> {
        if entry.is_device() {
            return if entry.is_counted_device() { self.part_of_device(run) } else { None };
        }
        let order = if level == Level::HUGE || entry.is_part() { HUGE } else { Order::ZERO };
        let head = run.first.align_down(order);
        // A look spares whoever has a frame of another kind references that come and go.
        let page = self.try_page(head).filter(is_of_space)?;
        Some(Part { page, device: None, order, pages: run.pages.0 })
    }

    /// The first pages of a run that have one head, as the pages say. Meant for runs that were taken.
    #[inline(always)]
    pub(super) fn part_at(&self, run: PageRun) -> Option<Part<'y, P>> {
        let begins = |head: Pfn, order: Order| {
            let page = self.try_page(head)?;
            (page.is_counted() && page.tag().order() == order && is_of_space(&page)).then_some((page, order))
        };
        match begins(run.first, Order::ZERO).or_else(|| begins(run.first.align_down(HUGE), HUGE)) {
            Some((page, order)) => Some(Part { page, device: None, order, pages: pages_of(run, page.pfn(), order) }),
            None => self.part_of_device(run),
        }
    }

    /// The first pages of a run that have one head, where a device has them.
    #[inline]
    fn part_of_device(&self, run: PageRun) -> Option<Part<'y, P>> {
        let device = self.yard().device_page(run.first)?;
        let (head, order) = (device.head(), device.order());
        // SAFETY: what this page counts is changed while references are held that were got by `try_get`, here or by whoever
        // gives them back, and the words of pages of devices that this crate changes are their pins.
        let page = unsafe { device.page() };
        Some(Part { page, device: Some(device), order, pages: pages_of(run, head, order) })
    }
}

/// How many of a run's pages lie in the block that has its first one.
#[inline(always)]
fn pages_of(run: PageRun, head: Pfn, order: Order) -> u64 {
    run.pages.0.min(head.0 + order.pages().0 - run.first.0)
}

/// Whether a page is one that a space maps, as it says.
#[inline(always)]
fn is_of_space<P: Platform>(page: &CountedPage<'_, P>) -> bool {
    PageKind::of_word(page.owner()) == Some(PageKind::Anonymous)
}

impl<P: Platform> Part<'_, P> {
    /// How many references are nobody's to give back: the one that a device has of its own page.
    #[inline(always)]
    pub(super) const fn kept(&self) -> u32 {
        self.device.is_some() as u32
    }

    /// Whether it is a page of a device.
    #[inline(always)]
    pub(super) const fn is_of_device(&self) -> bool {
        self.device.is_some()
    }

    /// Tries to get references where there are some, whoever's page it is by now.
    #[inline(always)]
    pub(super) fn try_get_many(&self, references: u32) -> bool {
        match &self.device {
            None => self.page.try_get_many(references),
            Some(device) => device.try_get(references),
        }
    }

    /// Whether it is still what it was when it was found. The caller has a reference.
    pub(super) fn is_still_there(&self) -> bool {
        // A page of a device was asked when the reference was got.
        self.is_of_device() || self.page.tag().order() == self.order && is_of_space(&self.page)
    }

    /// How many references the request makes of so many pages; `None` beyond what can be counted.
    #[inline(always)]
    pub(super) fn references(&self, call: PinCall, pages: u64) -> Option<u32> {
        let pages = u32::try_from(pages).ok()?;
        match call {
            PinCall::Get => Some(pages),
            PinCall::Pin => references_of_pins(self.order, pages),
        }
    }

    /// Tries to get what a request makes of all pages, where there are references; whoever's page it is. Nothing has
    /// changed where that fails.
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

    /// Counts what was got as pins, if it is to be.
    #[inline(always)]
    pub(super) fn count_pins(&self, request: PinRequest) {
        if request.call == PinCall::Get || self.order == Order::ZERO {
            return;
        }
        match request.refs {
            RefHandling::Batched => self.page.pins_were_got(self.order, self.pages as u32),
            RefHandling::PerPage => (0..self.pages).for_each(|_| self.page.pins_were_got(self.order, 1)),
        }
    }

    /// Puts references one number at a time, where others are left.
    #[cold]
    fn put(&self, each: u32, times: u64) {
        for _ in 0..times {
            let left = self.page.put_many(each);
            debug_assert!(left.is_ok(), "what was got is put: {left:?}");
        }
    }
}
