//! Extents: contiguous blocks of a yard, by address.
//!
//! Free frames of the yard contain zeroes: fresh private memory does, and [`Extents::free`] returns memory to the host before it frees the
//! frames. So every extent is zeroed, at no cost until it is touched.
//!
//! jemalloc splits an extent and returns the parts one by one. An extent consists of the largest aligned blocks, and
//! [`Extents::split`] divides the block on the boundary while one thread still owns the whole extent. Two parts of one block are never
//! freed by two threads.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use frameyard::{Geometry, Gfp, Order, PageCount, Pfn, PfnRange};
use frameyard_host::HostYard;

use crate::summary::HeapSummary;

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
    allocations: AtomicU64,
    failures: AtomicU64,
    in_use: AtomicU64,
    peak: AtomicU64,
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
        Some(Self { yard, first, start, end, aligned, allocations, failures, in_use, peak })
    }

    pub(crate) fn yard(&self) -> &HostYard {
        &self.yard
    }

    /// Whether an address lies in the yard.
    pub(crate) fn contains(&self, address: usize) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// Allocates a zeroed extent. `size` and `align` are multiples of the page size, `align` a power of two. `None` if the yard has no such
    /// extent.
    pub(crate) fn allocate(&self, size: usize, align: usize) -> Option<NonNull<u8>> {
        let (count, align) = (self.pages(size)?, self.pages(align)?);
        let align = Order(align.0.trailing_zeros() as u8);
        let range = self.take(count, align).or_else(|| {
            // Free frames may lie on the lists of other CPUs, which a request that does not wait leaves alone.
            self.yard.drain_all();
            self.take(count, align)
        });
        self.count(range)
    }

    /// Allocates the extent at an address, if all of its frames are free.
    pub(crate) fn allocate_at(&self, address: usize, size: usize) -> Option<NonNull<u8>> {
        let range = self.range(address, size)?;
        self.count(self.yard.request_range(range, FLAGS).range().ok())
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
    fn take(&self, count: PageCount, align: Order) -> Option<PfnRange> {
        let max = self.yard.geometry().max_order();
        let order = Order::covering(count)?;
        if order <= max && align <= order.min(self.aligned) {
            return self.yard.request_pages(count, FLAGS).range().ok();
        }
        if order.max(align) <= max && align <= self.aligned {
            let block = self.yard.request(align, FLAGS).range().ok()?;
            return self.trim(block, PfnRange::new(block.start, count));
        }
        // An alignment that frame numbers do not ensure: the extent lies in a longer one.
        let slack = if align <= self.aligned { PageCount(0) } else { align.pages() };
        let step = align.min(self.aligned).max(HUGE_PAGE);
        let longer = self.yard.request_pages(count + slack, FLAGS).aligned(step).range().ok()?;
        let address = self.address(longer.start);
        let skipped = address.next_multiple_of(self.bytes(align.pages())) - address;
        let start = longer.start + PageCount((skipped >> self.page_shift()) as u64);
        self.trim(longer, PfnRange::new(start, count))
    }

    /// Frees what lies around `wanted` in an allocated range.
    fn trim(&self, whole: PfnRange, wanted: PfnRange) -> Option<PfnRange> {
        let before = PfnRange { start: whole.start, end: wanted.start };
        let after = PfnRange { start: wanted.end, end: whole.end };
        for (part, cut) in [(before, wanted.start), (after, wanted.end)] {
            if part.is_empty() {
                continue;
            }
            let is_cut = self.yard.split_at(cut);
            is_cut.and_then(|()| self.yard.free_range(part)).ok()?;
        }
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
        // SAFETY: passed on to the caller. Locked memory (`mlock`) cannot be returned; zeroes do as well.
        unsafe {
            if !discard(address, size, libc::MADV_DONTNEED) {
                std::ptr::with_exposed_provenance_mut::<u8>(address).write_bytes(0, size);
            }
        }
        // Before the frames are free: another thread may allocate them at once.
        self.in_use.fetch_sub(range.count().0, Ordering::Relaxed);
        let is_free = self.yard.free_range(range).is_ok();
        if !is_free {
            self.in_use.fetch_add(range.count().0, Ordering::Relaxed);
        }
        is_free
    }

    /// Makes the parts of an extent before and after an address extents of their own.
    pub(crate) fn split(&self, at: usize) -> bool {
        self.pfn(at).is_some_and(|at| self.yard.split_at(at).is_ok())
    }

    pub(crate) fn summary(&self) -> HeapSummary {
        HeapSummary {
            policy: self.yard.policy(),
            size: self.size_of(self.yard.stats().managed_pages()),
            allocations: self.allocations.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
            zone_locks: self.yard.stats().zones().map(|zone| zone.lock.acquisitions).sum(),
            free_huge_pages: self.free_huge_pages(),
            free: self.size_of(self.yard.stats().free_pages()),
            in_use: self.size_of(PageCount(self.in_use.load(Ordering::Relaxed))),
            peak: self.size_of(PageCount(self.peak.load(Ordering::Relaxed))),
        }
    }

    /// Free blocks of 2 MiB; a larger block counts as several.
    fn free_huge_pages(&self) -> u64 {
        let orders = HUGE_PAGE.0..=self.yard.geometry().max_order().0;
        let blocks = |zone, order: u8| {
            let of_type = |kind| self.yard.zone(zone).free_blocks(Order(order), kind);
            frameyard::MigrateType::ALL.into_iter().map(of_type).sum::<u64>() << (order - HUGE_PAGE.0)
        };
        self.yard.stats().zones().flat_map(|zone| orders.clone().map(move |order| blocks(zone.id, order))).sum()
    }

    fn page_shift(&self) -> u32 {
        page_shift(&self.yard)
    }

    fn bytes(&self, count: PageCount) -> usize {
        (count.0 as usize) << self.page_shift()
    }

    fn size_of(&self, count: PageCount) -> frameyard_host::ByteSize {
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
    use super::*;

    const PAGE: usize = 4096;
    const HUGE: usize = 2 << 20;

    /// The extents of a yard of its own, and its free memory.
    fn made() -> (Extents, PageCount) {
        let yard = HostYard::with_memory(frameyard_host::ByteSize::mib(64)).unwrap();
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
            let held: Vec<(usize, usize)> =
                sizes.iter().filter_map(|size| Some((extents.allocate(*size, align)?.addr().get(), *size))).collect();
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
            let address = extents.allocate(count * HUGE, PAGE).unwrap().addr().get();
            assert_eq!(address % HUGE, 0);
            assert!(free(&extents, address, count * HUGE));
        }
        check(&extents, all);
    }

    #[test]
    fn parts_of_an_extent_are_freed_one_by_one() {
        let (extents, all) = made();
        for cuts in [&[1][..], &[256], &[511], &[3, 300], &[300, 3], &[1, 2, 3, 4]] {
            let address = extents.allocate(HUGE, PAGE).unwrap().addr().get();
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
    fn part_of_an_extent_that_was_not_split_stays() {
        let (extents, all) = made();
        let address = extents.allocate(HUGE, PAGE).unwrap().addr().get();
        assert!(!free(&extents, address, HUGE / 2));
        assert_eq!(extents.summary().in_use.0, HUGE as u64);
        assert!(free(&extents, address, HUGE));
        assert!(!free(&extents, address, HUGE), "it is free already");
        check(&extents, all);
    }

    #[test]
    fn extents_are_zeroed() {
        let (extents, all) = made();
        for size in [PAGE, 5 * PAGE, HUGE, 3 * HUGE] {
            for _ in 0..3 {
                let extent = extents.allocate(size, PAGE).unwrap();
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
        let address = extents.allocate(HUGE, HUGE).unwrap().addr().get();
        assert_eq!(extents.allocate_at(address, PAGE), None);
        assert!(extents.split(address + HUGE / 2));
        assert!(free(&extents, address + HUGE / 2, HUGE / 2));
        let second = extents.allocate_at(address + HUGE / 2, PAGE).map(|extent| extent.addr().get());
        assert_eq!(second, Some(address + HUGE / 2));
        assert!(free(&extents, address, HUGE / 2 + PAGE), "both as one");
        check(&extents, all);
    }

    #[test]
    fn a_full_yard_refuses_extents_and_counts_them() {
        let (extents, all) = made();
        let mut held = Vec::new();
        while let Some(extent) = extents.allocate(HUGE, PAGE) {
            held.push(extent.addr().get());
        }
        let summary = extents.summary();
        assert_eq!((summary.failures, summary.allocations), (1, held.len() as u64));
        assert_eq!(summary.peak.0, (held.len() * HUGE) as u64);
        assert_eq!(extents.allocate(1 << 40, PAGE), None);
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
            std::iter::from_fn(|| extents.allocate(HUGE, PAGE)).map(|extent| extent.addr().get()).collect();
        if !run_on(1) {
            println!("skipped: lists of another CPU, of which this machine has none");
            return;
        }
        assert!(held.iter().all(|address| free(&extents, *address, HUGE)));
        assert!(run_on(0));
        let size = held.len() * HUGE;
        let whole = extents.allocate(size, PAGE).unwrap_or_else(|| panic!("{}", extents.summary()));
        assert!(free(&extents, whole.addr().get(), size));
        check(&extents, all);
    }

    #[test]
    fn a_search_passes_over_extents_in_use() {
        let (extents, all) = made();
        let held: Vec<usize> =
            std::iter::from_fn(|| extents.allocate(HUGE, PAGE)).map(|extent| extent.addr().get()).collect();
        // Every other huge page at first, and then enough for the extent.
        let (first, rest) = held.split_at(held.len() / 2);
        assert!(first.iter().skip(1).step_by(2).chain(rest).all(|address| free(&extents, *address, HUGE)));
        let before = extents.summary().zone_locks;
        let size = (rest.len() - 1) * HUGE;
        let address = extents.allocate(size, PAGE).expect("the second half is free").addr().get();
        let locks = extents.summary().zone_locks - before;
        // Two for each pageblock of the extent, and a few.
        assert!(locks < 8 * rest.len() as u64, "{locks} acquisitions");
        assert!(free(&extents, address, size));
        assert!(first.iter().step_by(2).all(|address| free(&extents, *address, HUGE)));
        check(&extents, all);
    }
}
