//! Lists of used pages.

use frameyard::{CountedPage, Order, Pfn, Platform};

use crate::vm::Vm;

impl<'y, P: Platform> Vm<'y, P> {
    pub(crate) fn lru_add(&self, page: CountedPage<'y, P>) {
        self.put_page(page);
    }

    pub(crate) fn lru_mark_accessed(&self, page: CountedPage<'y, P>) {
        page.set_owner_bits(crate::page::Flags::REFERENCED);
    }

    pub(crate) fn lru_put_back(&self, page: CountedPage<'y, P>) {
        let _ = (self, page);
    }

    pub(crate) fn put_page(&self, page: CountedPage<'y, P>) {
        if page.put() == Ok(0) {
            self.free_unused(&[page.pfn()]);
        }
    }

    pub(crate) fn free_unused(&self, frames: &[Pfn]) {
        for pfn in frames {
            let _ = self.yard().free_counted(*pfn, Order::ZERO);
        }
    }

    /// Nothing yet.
    pub fn lru_drain_all(&self) {}
}
