use frameyard::{ByteSize, Gfp, PageCount};

use crate::address::{PageLevel, VirtAddr, VirtRange};
use crate::area::HugeAdvice;
use crate::counters::VmCounter;
use crate::lru::LruList;
use crate::map::MapRequest;
use crate::page::Flags;
use crate::root::VmConfig;
use crate::space::AddressSpace;
use crate::table::HUGE;
use crate::test_yard::{TestPlatform, TestYard, run_on};
use crate::vm::Vm;

const PAGE: u64 = 4096;
const HUGE_BYTES: u64 = PageLevel::Huge.size().0;

fn huge_space<'y>(vm: &Vm<'y, TestPlatform>) -> (AddressSpace<'y, TestPlatform>, VirtRange) {
    let space = vm.create_space().unwrap();
    let request = MapRequest::anonymous(ByteSize(2 * HUGE_BYTES)).advised(HugeAdvice::Huge);
    let range = space.map(request).unwrap();
    for addr in (range.start.0..range.end.0).step_by(PAGE as usize) {
        space.write(VirtAddr(addr + 8), &addr.to_le_bytes()).unwrap();
    }
    assert_eq!(space.statistics().huge, 2);
    (space, range)
}

fn check(space: &AddressSpace<'_, TestPlatform>, start: u64, end: u64) {
    for addr in (start..end).step_by(PAGE as usize) {
        let mut found = [0; 8];
        space.read(VirtAddr(addr + 8), &mut found).unwrap();
        assert_eq!(u64::from_le_bytes(found), addr);
    }
}

#[test]
fn partial_unmap_splits_a_huge_mapping_and_keeps_bytes() {
    let yard = TestYard::new();
    let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
    let (space, range) = huge_space(&vm);
    // The last pages of the first block, the first ones of the second.
    let (start, end) = (range.start.0 + HUGE_BYTES - 10 * PAGE, range.start.0 + HUGE_BYTES + 20 * PAGE);
    let free = yard.stats().free_pages();
    let tables = space.statistics().page_tables;
    let unmapped = space.unmap(VirtRange { start: VirtAddr(start), end: VirtAddr(end) }).unwrap();
    assert_eq!((unmapped.pages, unmapped.huge, unmapped.tables.0), (PageCount(30), 0, 0));
    assert_eq!((space.statistics().huge, space.statistics().resident.0), (0, 1024 - 30));
    assert_eq!(space.statistics().page_tables, tables, "both tables were deposited");
    vm.lru_drain_all();
    assert_eq!(yard.stats().free_pages(), free + PageCount(30), "single pages are freed at once");
    vm.validate().unwrap();
    check(&space, range.start.0, start);
    check(&space, end, range.end.0);
    assert_eq!((vm.counted(VmCounter::ThpSplitPmd), vm.counted(VmCounter::ThpSplitPage)), (2, 2));
    assert_eq!(vm.counted(VmCounter::ThpSplitPageFailed), 0);
    drop(space);
    vm.finish();
}

#[test]
fn pinned_huge_page_is_freed_whole_by_its_last_user() {
    let yard = TestYard::new();
    let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
    let (space, range) = huge_space(&vm);
    let pinned = space.pin(VirtAddr(range.start.0 + 3 * PAGE)).unwrap();
    let free = yard.stats().free_pages();
    let first = VirtRange { start: range.start, end: VirtAddr(range.start.0 + 100 * PAGE) };
    assert_eq!(space.unmap(first).unwrap().pages, PageCount(100));
    vm.lru_drain_all();
    assert_eq!(yard.stats().free_pages(), free, "the block is in use, so all of it stays");
    assert_eq!((vm.counted(VmCounter::ThpSplitPmd), vm.counted(VmCounter::ThpSplitPageFailed)), (1, 1));
    vm.validate().unwrap();
    check(&space, first.end.0, range.end.0);
    // Parts can be pinned.
    let part = space.pin(VirtAddr(first.end.0 + PAGE)).unwrap();
    assert_eq!(part.pfn().0, pinned.pfn().0 - 3 + 101);
    vm.validate().unwrap();
    assert_eq!(space.unmap(VirtRange { start: first.end, end: range.end }).unwrap().huge, 1);
    drop(part);
    assert_eq!(yard.stats().free_pages().0 - free.0, 512 + 4 + 1, "the other block, the tables, and a frame of areas");
    drop(pinned);
    assert_eq!(yard.stats().free_pages().0 - free.0, 1024 + 4 + 1);
    vm.validate().unwrap();
    drop(space);
    vm.finish();
}

#[test]
fn splits_a_huge_page_in_another_cpus_batch() {
    let yard = TestYard::new();
    let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
    let (space, range) = huge_space(&vm);
    run_on(1);
    let half = VirtRange { start: range.start, end: VirtAddr(range.start.0 + HUGE_BYTES / 2) };
    assert_eq!(space.unmap(half).unwrap().pages, PageCount(256));
    assert_eq!(vm.counted(VmCounter::ThpSplitPage), 1);
    vm.validate().unwrap();
    check(&space, half.end.0, range.end.0);
    drop(space);
    run_on(0);
    vm.finish();
}

#[test]
fn split_pages_inherit_activity() {
    use frameyard::owners::{Block, FrameOwner, MigrateMode, MigrateProblem};
    run_on(0);
    let yard = TestYard::new();
    let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
    let (space, range) = huge_space(&vm);
    vm.lru_drain_all();
    let node = yard.stats().zones().next().unwrap().id.node();
    let active = || vm.lru_statistics(node).on(LruList::ActiveAnon).0;
    for at in [range.start, VirtAddr(range.start.0 + HUGE_BYTES)] {
        let page = vm.page(space.translate(at).unwrap().pfn);
        page.get();
        assert!(vm.lru_isolate(page));
        page.set_owner_bits(Flags::ACTIVE);
        vm.put_back_all(&[page.pfn()]);
    }
    assert_eq!(active(), 1024);
    // One is split at once; the other is pinned and split by a later migration.
    let pinned = space.pin(range.start).unwrap();
    let last = |end: u64| VirtRange { start: VirtAddr(end - PAGE), end: VirtAddr(end) };
    let _ = space.unmap(last(range.start.0 + HUGE_BYTES)).unwrap();
    let _ = space.unmap(last(range.end.0)).unwrap();
    vm.lru_drain_all();
    assert_eq!((vm.counted(VmCounter::ThpSplitPage), active()), (1, 512 + 511));
    let block = Block { pfn: pinned.pfn(), order: HUGE };
    drop(pinned);
    vm.isolate(block, MigrateMode::Sync).unwrap();
    let to = yard.alloc(HUGE, Gfp::HIGHUSER_MOVABLE).unwrap();
    assert_eq!(vm.migrate(block, to, MigrateMode::Sync), Err(MigrateProblem::Busy));
    vm.put_back(block);
    yard.free(to, HUGE).unwrap();
    vm.lru_drain_all();
    assert_eq!((vm.counted(VmCounter::ThpSplitPage), active()), (2, 2 * 511));
    check(&space, range.start.0, range.start.0 + HUGE_BYTES - PAGE);
    drop(space);
    vm.finish();
}
