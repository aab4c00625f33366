//! Batches: pages that a CPU collects before it takes the lock of a shard.

use frameyard::page::{CountedPage, Counts};
use frameyard::platform::{Access, LineKind, LockId, Probe, SharedLine};
use frameyard::sync::Ordering;
use frameyard::{CpuId, Order, PageCount, Pfn, Platform};

use super::shard::{End, LockedShard, ShardKey};
use crate::counters::VmCounter;
use crate::error::Damage;
use crate::frame_vec::Gathered;
use crate::inject::Step;
use crate::lock::Held;
use crate::page::Flags;
use crate::root::{BATCH_RECORD, VmConfig};
use crate::vm::Vm;

/// The destination of a batch's pages.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(usize)]
pub(super) enum BatchKind {
    /// A list, as new pages.
    Add = 0,
    /// The active list.
    Activate = 1,
    /// The end of the inactive list, to be dropped next.
    Deactivate = 2,
}

impl BatchKind {
    pub(super) const ALL: [Self; 3] = [Self::Add, Self::Activate, Self::Deactivate];
}

const MOST: usize = Gathered::CAPACITY;

const _: () = assert!(VmConfig::MAX_BATCH as usize + 1 == MOST, "a batch and a page more fit");

/// Words of a CPU's batches: the lock, the lengths and the CPU's shard on one cache line, then the frames of each
/// batch.
const LOCK: usize = 0;
const LENGTHS: usize = 1;
const SHARD: usize = LENGTHS + BatchKind::ALL.len();
const FRAMES: usize = 8;

const _: () = assert!(SHARD < FRAMES, "a CPU's shard has its word");
const _: () = assert!(FRAMES + BatchKind::ALL.len() * MOST <= BATCH_RECORD, "the batches fit into their record");

impl<'y, P: Platform> Vm<'y, P> {
    /// Adds a page to a batch, which takes over a reference. Drains the batch if it is full or gets a large block. If
    /// the batch is busy (the caller changed CPUs, or another CPU drains it), processes the page on its own.
    #[inline]
    pub(super) fn batch_push(&self, kind: BatchKind, page: CountedPage<'y, P>) {
        let cpu = self.cpu();
        let record = self.root().batches(cpu);
        let platform = self.yard().platform();
        let lock = || Held::try_lock(platform, LockId::LruBatch(cpu), record.lock_word(LOCK));
        let Some(held) = self.may_fail(Step::AddToBatch).ok().and_then(|()| lock()) else {
            return self.settle(kind, cpu, &[page.pfn()]);
        };
        let length = record.at(LENGTHS + kind as usize);
        let len = length.load(Ordering::Relaxed) as usize;
        if len >= MOST {
            // The frames of the batch are lost.
            length.store(0, Ordering::Relaxed);
            self.damaged(Damage::Batch);
            return;
        }
        let place = record.at(FRAMES + kind as usize * MOST + len);
        platform.probe().touch_line(SharedLine::of(LineKind::LruLists, place), Access::Write);
        place.store(page.pfn().0, Ordering::Relaxed);
        length.store(len as u64 + 1, Ordering::Relaxed);
        if len + 1 < self.lru_batch() && page.tag().order() == Order::ZERO {
            return;
        }
        let taken = self.take_batch(kind, cpu);
        drop(held);
        self.settle(kind, cpu, taken.frames());
    }

    /// The CPU's shard on each node with [`LruPolicy::Sharded`].
    #[inline(always)]
    pub(super) fn own_shard(&self, cpu: CpuId) -> u16 {
        self.root().batches(cpu).at(SHARD).load(Ordering::Relaxed) as u16
    }

    pub(super) fn set_own_shard(&self, cpu: CpuId, shard: u16) {
        self.root().batches(cpu).at(SHARD).store(shard.into(), Ordering::Relaxed);
    }

    /// Empties a batch. The caller holds its lock.
    fn take_batch(&self, kind: BatchKind, cpu: CpuId) -> Gathered {
        let record = self.root().batches(cpu);
        let length = record.at(LENGTHS + kind as usize);
        let mut taken = Gathered::new();
        for at in 0..(length.load(Ordering::Relaxed) as usize).min(MOST) {
            // The number of a frame without a page is damaged. Its frame is lost.
            let pfn = Pfn(record.at(FRAMES + kind as usize * MOST + at).load(Ordering::Relaxed));
            match self.found_page(pfn) {
                Ok(_) => taken.push(pfn),
                Err(_) => _ = self.damaged(Damage::Batch),
            }
        }
        length.store(0, Ordering::Relaxed);
        taken
    }

    /// The frames of a batch. Requires quiescence.
    pub(super) fn batch_racy(&self, kind: BatchKind, cpu: CpuId) -> impl Iterator<Item = Pfn> {
        let record = self.root().batches(cpu);
        let len = record.at(LENGTHS + kind as usize).load(Ordering::Relaxed) as usize;
        (0..len.min(MOST)).map(move |at| Pfn(record.at(FRAMES + kind as usize * MOST + at).load(Ordering::Relaxed)))
    }

    pub(super) fn drain_batches(&self, cpu: CpuId) {
        let record = self.root().batches(cpu);
        for kind in BatchKind::ALL {
            if record.at(LENGTHS + kind as usize).load(Ordering::Relaxed) == 0 {
                continue;
            }
            // A batch whose lock cannot be taken stays as it is.
            let held = Held::lock(self.yard().platform(), LockId::LruBatch(cpu), record.lock_word(LOCK));
            let Ok(held) = held else { continue };
            let taken = self.take_batch(kind, cpu);
            drop(held);
            self.settle(kind, cpu, taken.frames());
        }
    }

    /// Processes the pages of a batch and releases a reference of each.
    fn settle(&self, kind: BatchKind, cpu: CpuId, frames: &[Pfn]) {
        let mut unused = Gathered::new();
        match kind {
            BatchKind::Add => self.settle_new(cpu, frames, &mut unused),
            BatchKind::Activate | BatchKind::Deactivate => self.settle_listed(kind, frames, &mut unused),
        }
        if !unused.frames().is_empty() {
            self.free_unused(unused.frames());
        }
    }

    /// Links new pages to their list. Collects pages without other references in `unused`, to be freed.
    fn settle_new(&self, cpu: CpuId, frames: &[Pfn], unused: &mut Gathered) {
        const ONLY: Counts = Counts { references: 1, mappings: 0 };
        let shard = self.shard_of_cpu(cpu);
        let mut listed = Gathered::new();
        // No prefetch: the caller has just written to these pages.
        let key = |pfn| {
            let page = self.page(pfn);
            if page.counts() == ONLY && page.freeze(ONLY) {
                unused.push(pfn);
                return None;
            }
            listed.push(pfn);
            Some(ShardKey { node: page.tag().zone().node(), shard })
        };
        self.by_shard(frames, key, |lists, page| lists.link(page));
        self.put_all(listed.frames(), unused);
    }

    fn settle_listed(&self, kind: BatchKind, frames: &[Pfn], unused: &mut Gathered) {
        let wanted = if kind == BatchKind::Activate { Flags::ACTIVE } else { 0 };
        let key = |pfn| {
            let page = self.page(pfn);
            let word = page.owner();
            (word & Flags::LRU != 0).then(|| ShardKey::of(page, word))
        };
        let mut moved = PageCount(0);
        self.by_shard(frames, key, |lists, page| {
            let word = page.owner();
            // It may have been isolated since, or be on another shard.
            if !lists.has(page, word) {
                return;
            }
            if word & Flags::ACTIVE != wanted {
                let end = if kind == BatchKind::Activate { End::First } else { End::Last };
                lists.relist(page, wanted, end);
                moved += self.pages_of(page);
            } else if kind == BatchKind::Deactivate {
                lists.rotate(page, End::Last);
            }
        });
        if moved.0 > 0 {
            let counter = if kind == BatchKind::Activate { VmCounter::Pgactivate } else { VmCounter::Pgdeactivate };
            self.count(counter, moved.0);
        }
        self.put_all(frames, unused);
    }

    /// Releases a reference of each page; collects pages without references in `unused`.
    pub(super) fn put_all(&self, frames: &[Pfn], unused: &mut Gathered) {
        for pfn in frames.iter().copied() {
            match self.page(pfn).put() {
                Ok(0) => unused.push(pfn),
                Ok(_) => {}
                Err(_) => _ = self.damaged(Damage::Frame),
            }
        }
    }

    /// Runs `work` on pages under the locks of their shards, with one acquisition each. Skips pages without a key, and pages
    /// of a shard whose lock cannot be taken. Returns a bit for each of the latter. At most [`MOST`] pages.
    #[inline]
    pub(super) fn by_shard(
        &self,
        frames: &[Pfn],
        mut key_of: impl FnMut(Pfn) -> Option<ShardKey>,
        mut work: impl FnMut(&mut LockedShard<'y, P>, CountedPage<'y, P>),
    ) -> u32 {
        const { assert!(MOST <= u32::BITS as usize) };
        let (mut keys, mut skipped) = ([None; MOST], 0);
        for (key, pfn) in keys.iter_mut().zip(frames) {
            *key = key_of(*pfn);
        }
        let mut from = 0;
        while let Some(first) = (from..frames.len()).find(|at| keys[*at].is_some()) {
            from = first + 1;
            let Some(key) = keys[first] else { break };
            let Some(mut lists) = self.lock_shard(key) else {
                skipped |= 1 << first;
                continue;
            };
            for (slot, pfn) in keys.iter_mut().zip(frames).skip(first) {
                if *slot == Some(key) {
                    *slot = None;
                    work(&mut lists, self.page(*pfn));
                }
            }
        }
        skipped
    }
}
