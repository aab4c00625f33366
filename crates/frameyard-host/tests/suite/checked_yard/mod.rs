//! A yard on memory of the host, validated on drop.

use std::ops::Deref;

use frameyard::{MemoryTable, NodeId, PageCount, Pfn, PfnRange, YardConfig};
use frameyard_host::{HostYard, HostYardBuilder};

/// A range of frames and its node.
pub(crate) const fn range(start: u64, pages: u64, node: u16) -> (PfnRange, NodeId) {
    (PfnRange { start: Pfn(start), end: Pfn(start + pages) }, NodeId(node))
}

/// A yard whose frames must all be free again on drop.
pub(crate) struct CheckedYard {
    yard: HostYard,
    free_at_start: PageCount,
    /// Frames that a test has damaged and the yard has isolated.
    pub(crate) isolated: PageCount,
}

impl CheckedYard {
    /// A yard of these ranges.
    pub(crate) fn new(builder: HostYardBuilder, memory: &[(PfnRange, NodeId)], config: &YardConfig<'_>) -> Self {
        let table = MemoryTable { memory, ..MemoryTable::default() };
        let yard = builder.machine(&table, config).build().unwrap();
        yard.validate().expect("a fresh yard is valid");
        let free_at_start = yard.stats().free_pages();
        Self { yard, free_at_start, isolated: PageCount(0) }
    }
}

impl Deref for CheckedYard {
    type Target = HostYard;

    fn deref(&self) -> &HostYard {
        &self.yard
    }
}

impl Drop for CheckedYard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        self.yard.validate().expect("the yard is valid at the end");
        assert_eq!(self.yard.stats().free_pages() + self.isolated, self.free_at_start, "every frame is free again");
        self.yard.drain_all();
        self.yard.validate().expect("the yard is valid after a drain");
        assert_eq!(
            self.yard.stats().zones().map(|zone| zone.per_cpu).sum::<PageCount>(),
            PageCount(0),
            "drained lists are empty"
        );
    }
}
