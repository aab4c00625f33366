//! Ageing: the pages that count as used, and the number scanned.

use frameyard::owners::{ReclaimRequest, Reclaimer};
use frameyard::units::ZoneKind;
use frameyard::{ByteSize, Gfp, NodeId, Order, Pfn};

use super::*;
use crate::address::{PageLevel, VirtAddr, VirtRange};
use crate::area::HugeAdvice;
use crate::cache::File;
use crate::map::MapRequest;
use crate::reclaim::ReclaimStep;
use crate::root::{LruPolicy, VmConfig};
use crate::space::{AddressSpace, MemoryAccess};
use crate::test_yard::{TestMachine, TestPlatform, TestYard, run_on};
use crate::vm::TestVm;

type TestSpace<'y> = AddressSpace<'y, TestPlatform>;

const NODE: NodeId = NodeId(0);
const PAGE: u64 = 4096;

/// Runs a test with each policy, in a yard of four CPUs.
fn under_each_policy(test: impl Fn(TestVm<'_>)) {
    for lru in LruPolicy::ALL {
        run_on(0);
        let yard = TestYard::of(TestMachine { cpus: 4, memory: ByteSize::mib(32), ..TestMachine::default() });
        let vm = Vm::create(&yard, &VmConfig { lru, shards: 2, ..VmConfig::default() }).unwrap();
        test(vm);
        vm.finish();
    }
}

fn on(vm: &TestVm<'_>, list: LruList) -> u64 {
    vm.lru_statistics(NODE).on(list).0
}

/// Allocated frames that leave the node short of memory, so that background reclaim works.
fn shortage(vm: &TestVm<'_>) -> Vec<Pfn> {
    let zone = || vm.yard().stats().zones().next().expect("a zone");
    let mut frames = Vec::new();
    while zone().free > zone().watermarks.min {
        frames.push(vm.yard().alloc(Order::ZERO, Gfp::KERNEL).expect("memory above the watermark"));
    }
    frames
}

fn free_all(vm: &TestVm<'_>, frames: Vec<Pfn>) {
    frames.into_iter().for_each(|pfn| vm.yard().free(pfn, Order::ZERO).unwrap());
}

/// A space of `bytes` bytes, written by all CPUs in turn.
fn written<'y>(vm: &TestVm<'y>, bytes: ByteSize, huge: HugeAdvice) -> (TestSpace<'y>, VirtRange) {
    let space = vm.create_space().unwrap();
    let range = space.map(MapRequest::anonymous(bytes).at(VirtAddr(1 << 40)).advised(huge)).unwrap();
    for (page, addr) in pages(range).enumerate() {
        run_on((page / 16 % 4) as u32);
        space.write(addr, &addr.0.to_le_bytes()).unwrap();
    }
    run_on(0);
    vm.lru_drain_all();
    (space, range)
}

fn pages(range: VirtRange) -> impl Iterator<Item = VirtAddr> {
    (range.start.0..range.end.0).step_by(PAGE as usize).map(VirtAddr)
}

fn touch_all(space: &TestSpace<'_>, range: VirtRange) {
    pages(range).for_each(|addr| space.touch(addr, MemoryAccess::Read).unwrap());
}

fn check(space: &TestSpace<'_>, range: VirtRange) {
    for addr in pages(range) {
        let mut found = [0; 8];
        space.read(addr, &mut found).unwrap();
        assert_eq!(u64::from_le_bytes(found), addr.0);
    }
}

/// The number of active pages of a range.
fn active_in(vm: &TestVm<'_>, space: &TestSpace<'_>, range: VirtRange) -> u64 {
    let is_active = |addr: &VirtAddr| {
        let found = space.translate(*addr).expect("the page is mapped");
        vm.page(found.pfn.align_down(found.level.order())).owner() & Flags::ACTIVE != 0
    };
    pages(range).filter(is_active).count() as u64
}

/// Runs steps of background reclaim until they have scanned `pages` pages of spaces. Calls `meanwhile` after each step.
fn age(vm: &TestVm<'_>, wanted: u64, meanwhile: impl Fn()) {
    let scanned = || vm.counted(VmCounter::PgscanAnon) + vm.counted(VmCounter::Pgrefill);
    let end = scanned() + wanted;
    let mut steps = 0;
    while scanned() < end {
        assert_ne!(vm.reclaim_step(NODE), ReclaimStep::Idle, "the node is short of memory");
        meanwhile();
        steps += 1;
        assert!(steps < 100_000, "{} of {end} pages", scanned());
    }
}

#[test]
fn pages_used_between_scans_become_active() {
    under_each_policy(|vm| {
        let (space, all) = written(&vm, ByteSize::mib(2), HugeAdvice::Never);
        let (used, rest) = all.split_at_page(64);
        let held = shortage(&vm);
        // Pages start used, and each later scan reports use since the previous one.
        age(&vm, 512 * 6, || touch_all(&space, used));
        assert_eq!((active_in(&vm, &space, used), active_in(&vm, &space, rest)), (64, 0), "{:?}", vm.lru_policy());
        assert_eq!((on(&vm, LruList::ActiveAnon), on(&vm, LruList::InactiveAnon)), (64, 448));
        assert_eq!(vm.counted(VmCounter::Pgactivate), 64);
        assert!(
            vm.counted(VmCounter::ReclaimAnonymous) >= 448,
            "unused anonymous pages were not counted as reclaimable"
        );
        check(&space, all);
        free_all(&vm, held);
    });
}

#[test]
fn unused_active_pages_become_inactive() {
    under_each_policy(|vm| {
        let (space, all) = written(&vm, ByteSize::mib(2), HugeAdvice::Never);
        let held = shortage(&vm);
        age(&vm, 512 * 6, || touch_all(&space, all));
        let active = on(&vm, LruList::ActiveAnon);
        assert!(active >= 256 && vm.counted(VmCounter::Pgactivate) >= active, "{active} pages");
        let (used, rest) = all.split_at_page(64);
        age(&vm, 512 * 12, || touch_all(&space, used));
        let left = active_in(&vm, &space, rest);
        assert!(left <= active - 100 && left <= 256, "{left} of {active} pages are still active");
        assert_eq!(active_in(&vm, &space, used), 64, "used pages stay active");
        assert!(vm.counted(VmCounter::Pgdeactivate) >= active - 64 - left);
        assert!(vm.counted(VmCounter::Pgrefill) >= vm.counted(VmCounter::Pgdeactivate));
        check(&space, all);
        free_all(&vm, held);
    });
}

#[test]
fn huge_pages_age_as_one_page() {
    under_each_policy(|vm| {
        let (space, all) = written(&vm, ByteSize::mib(8), HugeAdvice::Huge);
        assert_eq!(space.statistics().huge, 4);
        let used = VirtRange::new(VirtAddr(all.start.0 + (5 << 20)), ByteSize(PAGE)).unwrap();
        let held = shortage(&vm);
        age(&vm, 2048 * 6, || touch_all(&space, used));
        let whole = |at: u64| VirtRange::new(VirtAddr(all.start.0 + at), PageLevel::Huge.size()).unwrap();
        let active = [0, 2, 4, 6].map(|mib| active_in(&vm, &space, whole(mib << 20)));
        assert_eq!(active, [0, 0, 512, 0], "{:?}", vm.lru_policy());
        assert_eq!((on(&vm, LruList::ActiveAnon), on(&vm, LruList::InactiveAnon)), (512, 3 * 512));
        assert_eq!(vm.counted(VmCounter::Pgactivate), 512);
        check(&space, all);
        free_all(&vm, held);
    });
}

#[test]
fn ages_at_most_the_number_of_scanned_file_pages() {
    under_each_policy(|vm| {
        let (space, _) = written(&vm, ByteSize::mib(8), HugeAdvice::Never);
        let file = vm.create_file(1, ByteSize::mib(8)).unwrap();
        // None of them is dropped.
        (0..2048).for_each(|page| file.write(page * PAGE, &[1; PAGE as usize]).unwrap());
        vm.lru_drain_all();
        let held = shortage(&vm);
        let counted = || [VmCounter::PgscanFile, VmCounter::PgscanAnon].map(|counter| vm.counted(counter));
        let (mut most, mut before) = (0, counted());
        for _ in 0..100 {
            let _ = vm.reclaim_step(NODE);
            let [files, anonymous] = counted();
            let step = (files - before[0], anonymous - before[1]);
            assert!(step.1 <= step.0.max(CLUSTER) + 1, "{} pages of spaces after {} of files", step.1, step.0);
            most = most.max(step.1);
            before = [files, anonymous];
        }
        assert!(most > CLUSTER, "as the need grows");
        let sum = vm.counted(VmCounter::PgscanKswapd) + vm.counted(VmCounter::PgscanDirect);
        assert_eq!(before[0] + before[1], sum, "each look is at a page of either");
        free_all(&vm, held);
        drop((space, file));
    });
}

#[test]
fn direct_reclaim_scans_no_pages_of_spaces() {
    under_each_policy(|vm| {
        let (space, all) = written(&vm, ByteSize::mib(2), HugeAdvice::Never);
        let (highest_zone, order) = (ZoneKind::Movable, Order::ZERO);
        let freed = vm.reclaim(ReclaimRequest { node: NODE, highest_zone, order, wanted: PageCount(100) });
        assert_eq!((freed, vm.counted(VmCounter::PgscanAnon)), (PageCount(0), 0));
        assert!(vm.counted(VmCounter::ReclaimAnonymous) > 0, "they are counted");
        assert!(pages(all).all(|addr| space.translate(addr).unwrap().flags.is_accessed()));
        drop(space);
    });
}

/// Reads a page of a file.
fn read_page(file: &File<'_, TestPlatform>, page: u64) {
    let mut bytes = [0; PAGE as usize];
    assert_eq!(file.read(page * PAGE, &mut bytes), Ok(PAGE as usize));
}

#[test]
fn frequently_read_file_pages_survive_reclaim() {
    under_each_policy(|vm| {
        let file = vm.create_file(3, ByteSize(3000 * PAGE)).unwrap();
        (0..3000).for_each(|page| read_page(&file, page));
        vm.lru_drain_all();
        let read_again = || (0..64).for_each(|page| read_page(&file, page * 7));
        read_again();
        let misses = vm.counted(VmCounter::PgcacheMiss);
        let mut held = Vec::new();
        let mut steps = 0;
        while vm.counted(VmCounter::PgstealKswapd) < 1000 {
            held.append(&mut shortage(&vm));
            let _ = vm.reclaim_step(NODE);
            read_again();
            steps += 1;
            assert!(steps < 10_000, "other pages of the file are dropped");
        }
        assert_eq!(vm.counted(VmCounter::PgcacheMiss), misses, "{:?}", vm.lru_policy());
        free_all(&vm, held);
        drop(file);
    });
}

impl VirtRange {
    /// The first `count` pages, and the rest.
    fn split_at_page(self, pages: u64) -> (Self, Self) {
        let at = VirtAddr(self.start.0 + pages * PAGE);
        (Self { end: at, ..self }, Self { start: at, ..self })
    }
}
