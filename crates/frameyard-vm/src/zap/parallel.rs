//! Taking a whole space down, by several workers (*parallel free*).
//!
//! Workers claim stretches of addresses one after the other, from one shared position, and skip what no table of level 1
//! has behind it. Tables above level 0 stay until all workers are done, so that the claims can walk them.

use core::num::NonZeroUsize;

use frameyard::sync::{AtomicU64, Ordering};
use frameyard::{NodeId, Platform};

use super::{Zapped, Zapper};
use crate::address::{VirtAddr, VirtRange};
use crate::space::SpaceRef;
use crate::table::Level;

/// How many bytes a worker claims at once: 32 tables of level 0, so that what is gathered is worth a batch.
const STRETCH: u64 = 32 << Level::HUGE.shift();

/// What workers have unmapped.
#[derive(Default)]
struct Sum {
    pages: AtomicU64,
    huge: AtomicU64,
    device: AtomicU64,
    tables: AtomicU64,
}

impl Sum {
    fn add(&self, zapped: Zapped) {
        // Who comes last looks at all entries that were left.
        let Zapped { pages, huge, device, tables, moving: _ } = zapped;
        let counts = [(&self.pages, pages), (&self.huge, huge), (&self.device, device), (&self.tables, tables)];
        for (sum, count) in counts {
            sum.fetch_add(count, Ordering::Relaxed);
        }
    }

    fn read(&self) -> Zapped {
        let of = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
        let [pages, huge, device, tables] = [&self.pages, &self.huge, &self.device, &self.tables].map(of);
        Zapped { pages, huge, device, tables, moving: None }
    }
}

impl<P: Platform> SpaceRef<'_, P> {
    /// Takes away all that is mapped, by up to so many workers; page tables of level 0 go with it, the others stay. The
    /// caller has the space alone, without users.
    ///
    /// Workers run on the nodes in turn. Where fewer can be had, those do it, and the caller what is left.
    pub(crate) fn zap_parallel(&self, workers: NonZeroUsize) -> Zapped {
        let yard = self.vm().yard();
        let (position, sum) = (AtomicU64::new(0), Sum::default());
        self.forget_leaves();
        if workers > NonZeroUsize::MIN {
            let work = |_worker: usize| self.zap_stretches(&position, &sum);
            let node_of = |worker: usize| NodeId((worker % usize::from(yard.nodes())) as u16);
            // A worker that panicked leaves what it had claimed to the pass below.
            let _ = yard.platform().run_workers(workers.get(), &node_of, &work);
        }
        sum.read().and(self.zap(VirtRange { start: VirtAddr(0), end: VirtAddr::END }))
    }

    fn zap_stretches(&self, position: &AtomicU64, sum: &Sum) {
        self.vm().lru_drain();
        let mut zapper = Zapper::new(self);
        while let Some((start, end)) = self.claim(position) {
            zapper.zap(self.topmost(), Level::ROOT, start, end);
            zapper.free_tables(self.topmost(), Level::ROOT, (start, end), (start, end));
        }
        sum.add(zapper.finish());
    }

    /// The next stretch that nobody has claimed, below one entry of a table of level 2.
    fn claim(&self, position: &AtomicU64) -> Option<(u64, u64)> {
        let mut at = position.load(Ordering::Relaxed);
        loop {
            let (start, behind) = self.next_used(at)?;
            let end = behind.min(start + STRETCH - start % STRETCH);
            match position.compare_exchange_weak(at, end, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Some((start, end)),
                Err(other) => at = other,
            }
        }
    }

    /// The first address at or behind `at` that an entry of a table of level 2 has behind it, and where a stretch has to
    /// end: with a page of that level, as a whole.
    fn next_used(&self, mut at: u64) -> Option<(u64, u64)> {
        let root = self.topmost();
        while at < VirtAddr::END.0 {
            let mut level = Level::ROOT;
            let mut entry = root.entry(level.index(at));
            if entry.is_table(level) {
                let table = self.table(entry.pfn());
                level = level.below();
                entry = table.entry(level.index(at));
                if entry.is_table(level) {
                    return Some((at, level.align_down(at) + level.span()));
                }
            }
            at = level.align_down(at) + level.span();
        }
        None
    }
}
