//! Tears down a whole space with several workers (*parallel free*).
//!
//! Workers claim stretches of addresses in order from one shared position, and skip addresses without a table of level
//! 1. Tables above level 0 stay until all workers finish, so that claims can walk them.

use core::num::NonZeroUsize;

use frameyard::sync::{AtomicU64, Ordering};
use frameyard::{NodeId, Platform};

use super::{Zapped, Zapper};
use crate::address::{VirtAddr, VirtRange};
use crate::error::VmError;
use crate::space::SpaceRef;
use crate::table::Level;

/// Bytes per claim: 32 tables of level 0, enough for a full batch of frames.
const STRETCH: u64 = 32 << Level::HUGE.shift();

/// The sum over all workers.
#[derive(Default)]
struct Sum {
    pages: AtomicU64,
    huge: AtomicU64,
    device: AtomicU64,
    file: AtomicU64,
    tables: AtomicU64,
}

impl Sum {
    fn add(&self, zapped: Zapped) {
        // The final pass visits all remaining entries.
        let Zapped { pages, huge, device, file, tables, moving: _ } = zapped;
        let counts = [
            (&self.pages, pages),
            (&self.huge, huge),
            (&self.device, device),
            (&self.file, file),
            (&self.tables, tables),
        ];
        for (sum, count) in counts {
            sum.fetch_add(count, Ordering::Relaxed);
        }
    }

    fn read(&self) -> Zapped {
        let of = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
        let all = [&self.pages, &self.huge, &self.device, &self.file, &self.tables];
        let [pages, huge, device, file, tables] = all.map(of);
        Zapped { pages, huge, device, file, tables, moving: None }
    }
}

impl<P: Platform> SpaceRef<'_, P> {
    /// Unmaps everything with up to `workers` workers. Frees page tables of level 0 and keeps higher ones. The caller
    /// has exclusive access to a space without users.
    ///
    /// Workers are distributed round-robin over the nodes. If fewer run, they do all the work; the caller does the
    /// rest.
    ///
    /// # Errors
    ///
    /// As [`zap`](Self::zap).
    pub(crate) fn zap_parallel(&self, workers: NonZeroUsize) -> Result<Zapped, VmError> {
        let yard = self.vm().yard();
        let (position, sum) = (AtomicU64::new(0), Sum::default());
        self.clear_table_cache();
        if workers > NonZeroUsize::MIN {
            let work = |_worker: usize| self.zap_stretches(&position, &sum);
            let node_of = |worker: usize| NodeId((worker % usize::from(yard.nodes())) as u16);
            // The pass below handles the claims of a worker that panicked.
            let _ = yard.platform().run_workers(workers.get(), &node_of, &work);
        }
        Ok(sum.read().and(self.zap(VirtRange { start: VirtAddr(0), end: VirtAddr::END })?))
    }

    fn zap_stretches(&self, position: &AtomicU64, sum: &Sum) {
        self.vm().lru_drain();
        let mut zapper = Zapper::new(self);
        while let (Some((start, end)), Ok(root)) = (self.claim(position), self.root_of_tables()) {
            zapper.zap(root, Level::ROOT, start, end);
            zapper.free_tables(root, Level::ROOT, (start, end), (start, end));
        }
        // The final pass meets the same error.
        if let Ok(zapped) = zapper.finish() {
            sum.add(zapped);
        }
    }

    /// The next unclaimed stretch, below one entry of a table of level 2.
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

    /// The first address at or above `at` that an entry of a table of level 2 covers, and the end of the stretch: a
    /// page of that level is claimed whole.
    fn next_used(&self, mut at: u64) -> Option<(u64, u64)> {
        let root = self.root_of_tables().ok()?;
        while at < VirtAddr::END.0 {
            let mut level = Level::ROOT;
            let mut entry = root.entry(level.index(at));
            if entry.is_table(level) {
                let table = self.table_below(entry, level, at).ok()?;
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
