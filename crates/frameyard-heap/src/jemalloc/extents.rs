//! Extents: contiguous blocks of a yard, by address.
//!
//! Free frames of the yard contain zeroes: fresh private memory does, and [`Extents::free`] returns memory to the host before it frees the
//! frames. So every extent is zeroed, at no cost until it is touched.
//!
//! jemalloc splits an extent and returns the parts one by one. An extent consists of the largest aligned blocks, and
//! [`Extents::split`] divides the block on the boundary while one thread still owns the whole extent. Two parts of one block are never
//! freed by two threads.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use frameyard::{CpuId, Geometry, Gfp, MigrateType, NodeId, Order, PageCount, Pfn, PfnRange, ZoneId};
use frameyard_host::{BudgetShare, ByteSize, HostRequest, HostYard};

use crate::jemalloc::nodes::NodeArenas;
use crate::jemalloc::summary::HeapSummary;

/// Never waits for reclaim, of which there is none. All extents are of one migration type, so none fragments the others' pageblocks. They
/// are unmovable: a search for a long extent passes them over at once, where it would wait for a movable block to be moved or freed.
const FLAGS: Gfp = Gfp::HIGHMEM.union(Gfp::NOWARN);

/// A yard that serves extents, and where its frames lie.
#[derive(Debug)]
pub(crate) struct Extents {
    yard: HostYard,
    first: Pfn,
    /// The address of `first`, and the address after the last frame.
    start: usize,
    end: usize,
    /// Up to this order, a block that is aligned by frame number is aligned by address.
    aligned: Order,
    /// The process in a budget, if the heap has one.
    share: Option<BudgetShare>,
    nodes: NodeArenas,
    allocations: AtomicU64,
    failures: AtomicU64,
    in_use: AtomicU64,
    peak: AtomicU64,
    /// Threads in [`free`](Self::free), and extents freed.
    returning: AtomicU32,
    returned: AtomicU32,
}

/// Extents on their way back to the yard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Returned {
    /// Whether a thread is returning one.
    pub(crate) is_returning: bool,
    /// Extents that have returned, modulo 2^32.
    pub(crate) count: u32,
}

impl Extents {
    /// Takes a yard whose frames have bytes. `None` if they have none.
    pub(crate) fn new(yard: HostYard) -> Option<Self> {
        let (first, last) = (yard.memory().ranges().first()?.range.start, yard.memory().ranges().last()?.range.end);
        let start = yard.memory().frame(first)?.addr().get();
        let end = start + ((last.0 - first.0) << page_shift(&yard)) as usize;
        let offset = start.wrapping_sub((first.0 << page_shift(&yard)) as usize);
        let aligned = Order(offset.trailing_zeros().min(63).saturating_sub(page_shift(&yard)) as u8);
        let zero = || AtomicU64::new(0);
        let (allocations, failures, in_use, peak) = (zero(), zero(), zero(), zero());
        let (returning, returned) = (AtomicU32::new(0), AtomicU32::new(0));
        let (share, nodes) = (None, NodeArenas::of(&yard));
        Some(Self {
            yard,
            first,
            start,
            end,
            aligned,
            share,
            nodes,
            allocations,
            failures,
            in_use,
            peak,
            returning,
            returned,
        })
    }

    /// Charges all extents to a budget.
    pub(crate) fn in_budget(self, share: Option<BudgetShare>) -> Self {
        Self { share, ..self }
    }

    /// The process's part of the budget.
    pub(crate) fn share(&self) -> Option<&BudgetShare> {
        self.share.as_ref()
    }

    /// The arenas of the yard's nodes.
    pub(crate) fn nodes(&self) -> &NodeArenas {
        &self.nodes
    }

    pub(crate) fn yard(&self) -> &HostYard {
        &self.yard
    }

    /// Whether an address lies in the yard.
    pub(crate) fn contains(&self, address: usize) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// Allocates a zeroed extent, from the frames of one node alone if there is a `node`. `size` and `align` are multiples of the page size,
    /// `align` a power of two. `None` if the yard has no such extent.
    pub(crate) fn allocate(&self, size: usize, align: usize, node: Option<NodeId>) -> Option<NonNull<u8>> {
        let (count, align) = (self.pages(size)?, self.pages(align)?);
        let align = Order(align.0.trailing_zeros() as u8);
        self.charged(count, || {
            self.take(count, align, node).or_else(|| {
                // Free frames may lie on the lists of other CPUs, which a request that does not wait leaves alone.
                self.yard.drain_all();
                self.take(count, align, node)
            })
        })
    }

    /// Allocates the extent at an address, if all of its frames are free, and of the node if there is one.
    pub(crate) fn allocate_at(&self, address: usize, size: usize, node: Option<NodeId>) -> Option<NonNull<u8>> {
        let range = self.range(address, size).filter(|range| node.is_none_or(|node| self.is_on(*range, node)))?;
        self.charged(range.count(), || self.yard.request(range, FLAGS).range().ok())
    }

    fn is_on(&self, range: PfnRange, node: NodeId) -> bool {
        let parts = self.yard.memory().ranges();
        parts.iter().any(|part| part.node == node && part.range.start <= range.start && range.end <= part.range.end)
    }

    /// Takes frames if the budget allows them, and counts them.
    fn charged(&self, count: PageCount, take: impl FnOnce() -> Option<PfnRange>) -> Option<NonNull<u8>> {
        let size = self.size_of(count);
        if self.share.as_ref().is_some_and(|share| !share.charge(size)) {
            return self.count(None);
        }
        let range = take();
        if range.is_none() {
            self.refund(size);
        }
        self.count(range)
    }

    fn refund(&self, size: ByteSize) {
        if let Some(share) = &self.share {
            share.refund(size);
        }
    }

    fn count(&self, range: Option<PfnRange>) -> Option<NonNull<u8>> {
        let Some(range) = range else {
            self.failures.fetch_add(1, Ordering::Relaxed);
            return None;
        };
        self.allocations.fetch_add(1, Ordering::Relaxed);
        let in_use = self.in_use.fetch_add(range.count().0, Ordering::Relaxed) + range.count().0;
        self.peak.fetch_max(in_use, Ordering::Relaxed);
        self.yard.memory().frame(range.start)
    }

    /// The smallest aligned block that contains the extent, or a place in order of addresses for an extent beyond the largest block.
    fn take(&self, count: PageCount, align: Order, node: Option<NodeId>) -> Option<PfnRange> {
        let of_node = |request: HostRequest<'_, '_>| match node {
            Some(node) => request.exact_node(node).range().ok(),
            None => request.range().ok(),
        };
        let max = self.yard.geometry().max_order();
        let order = Order::covering(count)?;
        if order <= max && align <= order.min(self.aligned) {
            return of_node(self.yard.request(count, FLAGS));
        }
        if order.max(align) <= max && align <= self.aligned {
            let block = of_node(self.yard.request(align, FLAGS))?;
            return self.trim(block, PfnRange::new(block.start, count));
        }
        // An alignment that frame numbers do not ensure: the extent lies in a longer one.
        let slack = if align <= self.aligned { PageCount(0) } else { align.pages() };
        let step = align.min(self.aligned).max(HUGE_PAGE);
        let longer = of_node(self.yard.request(count + slack, FLAGS).aligned(step))?;
        let address = self.address(longer.start);
        let skipped = address.next_multiple_of(self.bytes(align.pages())) - address;
        let start = longer.start + PageCount((skipped >> self.page_shift()) as u64);
        self.trim(longer, PfnRange::new(start, count))
    }

    /// Frees what lies around `wanted` in an allocated range.
    fn trim(&self, whole: PfnRange, wanted: PfnRange) -> Option<PfnRange> {
        let before = PfnRange { start: whole.start, end: wanted.start };
        let after = PfnRange { start: wanted.end, end: whole.end };
        [before, after].into_iter().try_for_each(|part| self.yard.free_range(part)).ok()?;
        Some(wanted)
    }

    /// Returns an extent's memory to the host, and its frames to the yard. `false`, and the extent stays allocated, if it cannot be freed.
    /// Its contents are gone in either case.
    ///
    /// # Safety
    ///
    /// The caller owns the extent, and no code uses its memory any more.
    pub(crate) unsafe fn free(&self, address: usize, size: usize) -> bool {
        let Some(range) = self.range(address, size) else { return false };
        self.returning.fetch_add(1, Ordering::Relaxed);
        // SAFETY: passed on to the caller. Locked memory (`mlock`) cannot be returned; zeroes do as well.
        unsafe {
            if !discard(address, size, libc::MADV_DONTNEED) {
                std::ptr::with_exposed_provenance_mut::<u8>(address).write_bytes(0, size);
            }
        }
        // Before the frames are free: another thread may allocate them at once.
        self.in_use.fetch_sub(range.count().0, Ordering::Relaxed);
        let is_free = self.yard.free_range(range).is_ok();
        if is_free {
            self.refund(self.size_of(range.count()));
        } else {
            self.in_use.fetch_add(range.count().0, Ordering::Relaxed);
        }
        self.returned.fetch_add(1, Ordering::Relaxed);
        self.returning.fetch_sub(1, Ordering::Relaxed);
        is_free
    }

    pub(crate) fn returned(&self) -> Returned {
        Returned {
            is_returning: self.returning.load(Ordering::Relaxed) > 0,
            count: self.returned.load(Ordering::Relaxed),
        }
    }

    /// In a forked child no other thread exists.
    pub(crate) fn forget_other_threads(&self) {
        self.returning.store(0, Ordering::Relaxed);
    }

    /// Makes the parts of an extent before and after an address extents of their own.
    pub(crate) fn split(&self, at: usize) -> bool {
        self.pfn(at).is_some_and(|at| self.yard.core().split_at(at).is_ok())
    }

    pub(crate) fn summary(&self) -> HeapSummary {
        HeapSummary {
            policy: self.yard.core().policy(),
            size: self.size_of(self.yard.stats().managed_pages()),
            allocations: self.allocations.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
            zone_locks: self.yard.stats().zones().map(|zone| zone.lock.acquisitions).sum(),
            free_pageblocks: self.free_pageblocks(),
            free: self.size_of(self.yard.stats().free_pages()),
            in_use: self.size_of(PageCount(self.in_use.load(Ordering::Relaxed))),
            peak: self.size_of(PageCount(self.peak.load(Ordering::Relaxed))),
        }
    }

    /// Whole free pageblocks: on the free lists, in bits and on the lists of CPUs.
    fn free_pageblocks(&self) -> u64 {
        self.yard.stats().zones().map(|zone| self.free_pageblocks_of(zone.id)).sum()
    }

    fn free_pageblocks_of(&self, zone: ZoneId) -> u64 {
        let (view, pageblock) = (self.yard.zone(zone), self.yard.geometry().pageblock_order());
        let blocks = |order: u8| {
            let of_type = |kind| view.free_blocks(Order(order), kind) + view.blocks_in_bits(Order(order), kind);
            MigrateType::ALL.into_iter().map(of_type).sum::<u64>() << (order - pageblock.0)
        };
        let listed = |cpu| view.pcp(CpuId(cpu)).map_or(0, |lists| lists.pages.0.saturating_sub(lists.count.0));
        let on_lists: u64 = (0..self.yard.core().cpus()).map(listed).sum();
        (pageblock.0..=self.yard.geometry().max_order().0).map(blocks).sum::<u64>() + (on_lists >> pageblock.0)
    }

    fn page_shift(&self) -> u32 {
        page_shift(&self.yard)
    }

    fn bytes(&self, count: PageCount) -> usize {
        (count.0 as usize) << self.page_shift()
    }

    fn size_of(&self, count: PageCount) -> ByteSize {
        self.yard.geometry().size_of(count)
    }

    fn address(&self, pfn: Pfn) -> usize {
        self.start + self.bytes(PageCount(pfn.0 - self.first.0))
    }

    /// The frame at an address that is a multiple of the page size and lies in the yard or at its end.
    fn pfn(&self, address: usize) -> Option<Pfn> {
        let offset = address.checked_sub(self.start).filter(|_| address <= self.end)?;
        Some(self.first + self.pages(offset)?)
    }

    /// The number of pages in `bytes`, if they are whole pages.
    fn pages(&self, bytes: usize) -> Option<PageCount> {
        let shift = self.page_shift();
        (bytes & ((1 << shift) - 1) == 0).then_some(PageCount(bytes as u64 >> shift))
    }

    fn range(&self, address: usize, size: usize) -> Option<PfnRange> {
        let end = self.pfn(address.checked_add(size)?)?;
        Some(PfnRange { start: self.pfn(address)?, end })
    }
}

/// The order of 2 MiB in frames of 4 KiB.
const HUGE_PAGE: Order = Geometry::X86_64.pageblock_order();

fn page_shift(yard: &HostYard) -> u32 {
    yard.geometry().page_size().0.trailing_zeros()
}

/// Advises the host on memory; whether it did.
///
/// # Safety
///
/// The caller owns the memory, and no code needs its contents.
pub(crate) unsafe fn discard(address: usize, size: usize, advice: libc::c_int) -> bool {
    let memory = std::ptr::with_exposed_provenance_mut(address);
    // SAFETY: `madvise` checks the addresses. The caller needs none of the contents.
    unsafe { libc::madvise(memory, size, advice) == 0 }
}

#[cfg(test)]
mod tests {
    use frameyard::policy::ZonePolicy;

    use super::*;

    const PAGE: usize = 4096;
    const HUGE: usize = 2 << 20;

    /// The extents of a yard of its own, and its free memory.
    fn made() -> (Extents, PageCount) {
        made_with(ZonePolicy::default())
    }

    fn made_with(policy: ZonePolicy) -> (Extents, PageCount) {
        let yard = HostYard::builder().policy(policy).size(ByteSize::mib(64)).build().unwrap();
        yard.drain_all();
        let free = yard.stats().free_pages();
        (Extents::new(yard).unwrap(), free)
    }

    /// Everything is free again, and the yard is sound.
    fn check(extents: &Extents, free: PageCount) {
        extents.yard.drain_all();
        extents.yard.validate().unwrap();
        assert_eq!(extents.yard.stats().free_pages(), free);
        assert_eq!(extents.summary().in_use.0, 0);
    }

    fn free(extents: &Extents, address: usize, size: usize) -> bool {
        // SAFETY: the tests own their extents.
        unsafe { extents.free(address, size) }
    }

    #[test]
    fn extents_have_any_size_and_alignment() {
        let (extents, all) = made();
        let sizes = [1, 2, 3, 5, 8, 511, 512, 513, 1024, 1025, 2048, 3000].map(|pages| pages * PAGE);
        for align in [PAGE, 4 * PAGE, 128 * PAGE, HUGE, 2 * HUGE, 4 * HUGE, 8 * HUGE] {
            let held: Vec<(usize, usize)> = sizes
                .iter()
                .filter_map(|size| Some((extents.allocate(*size, align, None)?.addr().get(), *size)))
                .collect();
            let least = (48 << 20 >> align.trailing_zeros()).min(8);
            assert!(held.len() >= least, "{} of {} extents with alignment {align}", held.len(), sizes.len());
            for (address, size) in held {
                assert_eq!(address % align, 0);
                assert!(extents.contains(address) && extents.contains(address + size - 1));
                assert!(free(&extents, address, size));
            }
            check(&extents, all);
        }
    }

    #[test]
    fn whole_huge_pages_are_aligned_to_huge_pages() {
        let (extents, all) = made();
        for count in 1..8 {
            let address = extents.allocate(count * HUGE, PAGE, None).unwrap().addr().get();
            assert_eq!(address % HUGE, 0);
            assert!(free(&extents, address, count * HUGE));
        }
        check(&extents, all);
    }

    #[test]
    fn parts_of_an_extent_are_freed_one_by_one() {
        let (extents, all) = made();
        for cuts in [&[1][..], &[256], &[511], &[3, 300], &[300, 3], &[1, 2, 3, 4]] {
            let address = extents.allocate(HUGE, PAGE, None).unwrap().addr().get();
            for cut in cuts {
                assert!(extents.split(address + cut * PAGE));
            }
            let mut edges: Vec<usize> = [0, 512].iter().chain(cuts).copied().collect();
            edges.sort_unstable();
            for part in edges.windows(2).rev() {
                assert!(free(&extents, address + part[0] * PAGE, (part[1] - part[0]) * PAGE), "{part:?}");
            }
            check(&extents, all);
        }
    }

    #[test]
    fn part_of_an_extent_is_freed_alone() {
        let (extents, all) = made();
        let address = extents.allocate(HUGE, PAGE, None).unwrap().addr().get();
        assert!(free(&extents, address, HUGE / 2));
        assert_eq!(extents.summary().in_use.0, HUGE as u64 / 2);
        assert!(!free(&extents, address, HUGE), "a part is free already");
        assert_eq!(extents.summary().in_use.0, HUGE as u64 / 2);
        assert!(free(&extents, address + HUGE / 2, HUGE / 2));
        check(&extents, all);
    }

    #[test]
    fn extents_are_zeroed() {
        let (extents, all) = made();
        for size in [PAGE, 5 * PAGE, HUGE, 3 * HUGE] {
            for _ in 0..3 {
                let extent = extents.allocate(size, PAGE, None).unwrap();
                // SAFETY: the test owns the extent.
                let bytes = unsafe { std::slice::from_raw_parts_mut(extent.as_ptr(), size) };
                assert!(bytes.iter().all(|byte| *byte == 0));
                bytes.fill(0xA5);
                assert!(free(&extents, extent.addr().get(), size));
            }
        }
        check(&extents, all);
    }

    #[test]
    fn an_address_is_served_only_if_its_frames_are_free() {
        let (extents, all) = made();
        let address = extents.allocate(HUGE, HUGE, None).unwrap().addr().get();
        assert_eq!(extents.allocate_at(address, PAGE, None), None);
        assert!(extents.split(address + HUGE / 2));
        assert!(free(&extents, address + HUGE / 2, HUGE / 2));
        let second = extents.allocate_at(address + HUGE / 2, PAGE, None).map(|extent| extent.addr().get());
        assert_eq!(second, Some(address + HUGE / 2));
        assert!(free(&extents, address, HUGE / 2 + PAGE), "both as one");
        check(&extents, all);
    }

    #[test]
    fn a_full_yard_refuses_extents_and_counts_them() {
        let (extents, all) = made();
        let mut held = Vec::new();
        while let Some(extent) = extents.allocate(HUGE, PAGE, None) {
            held.push(extent.addr().get());
        }
        let summary = extents.summary();
        assert_eq!((summary.failures, summary.allocations), (1, held.len() as u64));
        assert_eq!(summary.peak.0, (held.len() * HUGE) as u64);
        assert_eq!(extents.allocate(1 << 40, PAGE, None), None);
        assert!(held.into_iter().all(|address| free(&extents, address, HUGE)));
        check(&extents, all);
    }

    /// Has the calling thread run on one CPU, if there are two.
    fn run_on(cpu: usize) -> bool {
        // SAFETY: a set of CPUs that is valid when it is zero, and of the size given.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::CPU_SET(cpu, &mut set);
            libc::sched_setaffinity(0, size_of_val(&set), &raw const set) == 0
        }
    }

    #[test]
    fn frames_on_the_lists_of_another_cpu_are_found() {
        let (extents, all) = made();
        let held: Vec<usize> =
            std::iter::from_fn(|| extents.allocate(HUGE, PAGE, None)).map(|extent| extent.addr().get()).collect();
        if !run_on(1) {
            println!("skipped: lists of another CPU, of which this machine has none");
            return;
        }
        assert!(held.iter().all(|address| free(&extents, *address, HUGE)));
        assert!(run_on(0));
        let size = held.len() * HUGE;
        let whole = extents.allocate(size, PAGE, None).unwrap_or_else(|| panic!("{}", extents.summary()));
        assert!(free(&extents, whole.addr().get(), size));
        check(&extents, all);
    }

    #[test]
    fn small_frames_on_the_lists_of_another_cpu_are_found() {
        let (extents, all) = made();
        let mut held: Vec<usize> =
            std::iter::from_fn(|| extents.allocate(PAGE, PAGE, None)).map(|extent| extent.addr().get()).collect();
        held.sort_unstable();
        if !run_on(1) {
            println!("skipped: lists of another CPU, of which this machine has none");
            return;
        }
        // Whole blocks of 64 KiB of the other CPU's single frames, too few for its lists to drain by themselves.
        let at = held.iter().position(|address| address.is_multiple_of(16 * PAGE)).unwrap();
        let freed: Vec<usize> = held.drain(at..at + 32).collect();
        assert!(freed.iter().all(|address| free(&extents, *address, PAGE)));
        assert!(run_on(0));
        let block = extents.allocate(16 * PAGE, PAGE, None).unwrap_or_else(|| panic!("{}", extents.summary()));
        assert!(free(&extents, block.addr().get(), 16 * PAGE));
        assert!(held.iter().all(|address| free(&extents, *address, PAGE)));
        check(&extents, all);
    }

    #[test]
    fn the_summary_counts_whole_free_pageblocks_wherever_they_are() {
        for policy in ZonePolicy::ALL {
            let (extents, all) = made_with(policy);
            assert_eq!(extents.summary().policy, policy);
            let before = extents.summary().free_pageblocks;
            assert!(before.abs_diff(all.0 >> HUGE_PAGE.0) <= 2, "{before} in {} free frames", all.0);
            let held: Vec<usize> = (0..7).map(|_| extents.allocate(HUGE, PAGE, None).unwrap().addr().get()).collect();
            assert_eq!(extents.summary().free_pageblocks, before - 7, "{policy}");
            let page = extents.allocate(PAGE, PAGE, None).unwrap().addr().get();
            // More than one may be cut to fill the CPU's list.
            let cut = before - 7 - extents.summary().free_pageblocks;
            assert!(cut > 0, "{policy}");
            assert!(held.into_iter().all(|address| free(&extents, address, HUGE)));
            assert_eq!(extents.summary().free_pageblocks, before - cut, "{policy}");
            assert!(free(&extents, page, PAGE));
            check(&extents, all);
        }
    }

    #[test]
    fn extents_are_unmovable() {
        let (extents, all) = made();
        for size in [PAGE, 5 * PAGE, HUGE, 9 * HUGE] {
            let extent = extents.allocate(size, PAGE, None).unwrap().addr().get();
            for address in (extent..extent + size).step_by(PAGE) {
                let frame = extents.yard.stats().frame(extents.pfn(address).unwrap()).unwrap();
                assert_eq!(frame.migrate_type, MigrateType::Unmovable, "{size} bytes");
            }
            assert!(free(&extents, extent, size));
        }
        check(&extents, all);
    }

    #[test]
    fn a_search_passes_over_extents_in_use() {
        let (extents, all) = made();
        let held: Vec<usize> =
            std::iter::from_fn(|| extents.allocate(HUGE, PAGE, None)).map(|extent| extent.addr().get()).collect();
        // Every other huge page at first, and then enough for the extent.
        let (first, rest) = held.split_at(held.len() / 2);
        assert!(first.iter().skip(1).step_by(2).chain(rest).all(|address| free(&extents, *address, HUGE)));
        let before = extents.summary().zone_locks;
        let size = (rest.len() - 1) * HUGE;
        let address = extents.allocate(size, PAGE, None).expect("the second half is free").addr().get();
        let locks = extents.summary().zone_locks - before;
        // Two for each pageblock of the extent, and a few.
        assert!(locks < 8 * rest.len() as u64, "{locks} acquisitions");
        assert!(free(&extents, address, size));
        assert!(first.iter().step_by(2).all(|address| free(&extents, *address, HUGE)));
        check(&extents, all);
    }
}
