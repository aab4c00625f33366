//! Lists of used pages.

use frameyard::{CountedPage, Pfn, Platform};

use crate::vm::Vm;

impl<'y, P: Platform> Vm<'y, P> {
    pub(crate) fn lru_add(&self, page: CountedPage<'y, P>) {
        page.set_owner_bits(crate::page::Flags::LRU);
        self.put_page(page);
    }
    pub(crate) fn lru_isolate(&self, page: CountedPage<'y, P>) -> bool {
        page.clear_owner_bits(crate::page::Flags::LRU) & crate::page::Flags::LRU != 0
    }
    pub(crate) fn lru_put_back(&self, page: CountedPage<'y, P>) {
        page.set_owner_bits(crate::page::Flags::LRU);
    }
    pub(crate) fn put_page(&self, page: CountedPage<'y, P>) {
        if page.put() == Ok(0) {
            self.free_unused(&[page.pfn()]);
        }
    }
    pub(crate) fn free_unused(&self, frames: &[Pfn]) {
        for pfn in frames {
            self.yard().free_counted(*pfn, self.page(*pfn).tag().order()).unwrap();
        }
    }
    pub fn lru_drain(&self) {}
    pub fn lru_drain_all(&self) {}
}
