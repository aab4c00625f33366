use frameyard::{ByteSize, PageCount};

use super::*;
use crate::address::{PageLevel, VirtAddr, VirtRange};
use crate::area::HugeAdvice;
use crate::map::MapRequest;
use crate::root::VmConfig;
use crate::space::{AddressSpace, MemoryAccess};
use crate::table::HUGE;
use crate::test_yard::{TestPlatform, TestYard, run_on};
use crate::vm::TestVm;

const PAGE: u64 = 4096;

type TestSpace<'y> = AddressSpace<'y, TestPlatform>;

fn in_yard(test: impl FnOnce(TestVm<'_>)) {
    run_on(0);
    let yard = TestYard::new();
    let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
    test(vm);
    vm.finish();
}

/// A space with 2 MiB, in small pages or one huge page, all written and on their lists.
fn written<'y>(vm: &TestVm<'y>, huge: HugeAdvice) -> (TestSpace<'y>, VirtAddr) {
    let space = vm.create_space().unwrap();
    let request = MapRequest::anonymous(PageLevel::Huge.size()).at(VirtAddr(1 << 40)).advised(huge);
    let range = space.map(request).unwrap();
    for addr in (range.start.0..range.end.0).step_by(PAGE as usize) {
        space.write(VirtAddr(addr), &addr.to_le_bytes()).unwrap();
    }
    vm.lru_drain_all();
    (space, range.start)
}

/// Tests a page like ageing.
fn look(vm: &TestVm<'_>, page: CountedPage<'_, TestPlatform>) -> Use {
    let page = vm.page(page.pfn());
    page.get();
    assert!(vm.lru_isolate(page), "the page is not on a list");
    let found = vm.take_use(page);
    vm.put_back_all(&[page.pfn()]);
    found
}

fn page_at<'y>(vm: &TestVm<'y>, space: &TestSpace<'y>, addr: VirtAddr) -> CountedPage<'y, TestPlatform> {
    let found = space.translate(addr).expect("the page is mapped");
    vm.page(found.pfn.align_down(found.level.order()))
}

fn check_bytes(space: &TestSpace<'_>, addr: VirtAddr) {
    let mut found = [0; 8];
    space.read(addr, &mut found).unwrap();
    assert_eq!(u64::from_le_bytes(found), addr.0);
}

#[test]
fn take_use_reports_each_use_once_and_keeps_other_bits() {
    in_yard(|vm| {
        for huge in [HugeAdvice::Never, HugeAdvice::Huge] {
            let (space, start) = written(&vm, huge);
            for at in [start, VirtAddr(start.0 + 7 * PAGE)] {
                let page = page_at(&vm, &space, at);
                let _ = look(&vm, page);
                let flags = space.translate(at).unwrap().flags;
                assert!(!flags.is_accessed() && flags.is_dirty() && flags.is_writable(), "{flags:?}");
                assert_eq!(look(&vm, page), Use::Unused, "{huge:?}");
                space.touch(at, MemoryAccess::Read).unwrap();
                assert_eq!((look(&vm, page), look(&vm, page)), (Use::Used, Use::Unused), "{huge:?}");
                check_bytes(&space, at);
                assert_eq!((look(&vm, page), look(&vm, page)), (Use::Used, Use::Unused), "{huge:?}");
            }
            let neighbour = space.translate(VirtAddr(start.0 + 8 * PAGE)).unwrap().flags;
            assert_eq!(neighbour.is_accessed(), huge == HugeAdvice::Never, "other pages are unchanged");
        }
    });
}

#[test]
fn access_to_a_part_marks_the_huge_page_used() {
    in_yard(|vm| {
        let (space, start) = written(&vm, HugeAdvice::Huge);
        let pin = space.pin(start).unwrap();
        let hole = VirtRange::new(VirtAddr(start.0 + 9 * PAGE), ByteSize(PAGE)).unwrap();
        let _ = space.unmap(hole).unwrap();
        let page = page_at(&vm, &space, start);
        assert_eq!((page.tag().order(), page.counts().mappings), (HUGE, 511), "it stays one block while it is pinned");
        assert_eq!((look(&vm, page), look(&vm, page)), (Use::Used, Use::Unused));
        space.touch(VirtAddr(start.0 + 400 * PAGE), MemoryAccess::Read).unwrap();
        assert_eq!((look(&vm, page), look(&vm, page)), (Use::Used, Use::Unused));
        drop(pin);
        check_bytes(&space, VirtAddr(start.0 + 400 * PAGE));
    });
}

#[test]
fn take_use_returns_busy_instead_of_waiting() {
    in_yard(|vm| {
        let (space, start) = written(&vm, HugeAdvice::Never);
        let page = page_at(&vm, &space, start);
        let writing = space.space().map_lock().write().unwrap();
        assert_eq!(look(&vm, page), Use::Busy);
        drop(writing);
        let table = space.space().lock_table(space.space().walk(start.0).unwrap().table).unwrap();
        assert_eq!(look(&vm, page), Use::Busy);
        drop(table);
        assert!(space.translate(start).unwrap().flags.is_accessed());
        assert_eq!((look(&vm, page), look(&vm, page)), (Use::Used, Use::Unused));
    });
}

#[test]
fn take_use_reports_unmapped_pages() {
    in_yard(|vm| {
        let (space, start) = written(&vm, HugeAdvice::Never);
        let pins = [start, VirtAddr(start.0 + PAGE)].map(|at| space.pin(at).unwrap());
        let pages = [&pins[0], &pins[1]].map(|pin| vm.page(pin.pfn()));
        let first = VirtRange::new(start, ByteSize(PAGE)).unwrap();
        let unmapped = space.unmap(first).unwrap();
        assert_eq!(unmapped.pages, PageCount(1));
        assert_eq!(look(&vm, pages[0]), Use::Unmapped);
        space.map(MapRequest::anonymous(ByteSize(PAGE)).at(start)).unwrap();
        space.touch(start, MemoryAccess::Write).unwrap();
        assert_eq!(look(&vm, pages[0]), Use::Unmapped, "another page is mapped there");
        assert!(space.translate(start).unwrap().flags.is_accessed());
        assert_eq!(look(&vm, pages[1]), Use::Used);
        drop(space);
        assert_eq!(look(&vm, pages[1]), Use::Unmapped, "the space is gone");
        drop(pins);
    });
}

#[test]
fn page_under_ageing_is_busy_for_migration() {
    use frameyard::owners::{Block, FrameOwner, MigrateMode, MigrateProblem};
    in_yard(|vm| {
        let (space, start) = written(&vm, HugeAdvice::Never);
        let page = page_at(&vm, &space, start);
        let block = Block { pfn: page.pfn(), order: Order::ZERO };
        page.get();
        assert!(vm.lru_isolate(page));
        for mode in [MigrateMode::Async, MigrateMode::Sync] {
            assert_eq!(vm.isolate(block, mode), Err(MigrateProblem::Busy));
            let pin = space.pin(start).unwrap();
            assert_eq!(vm.isolate(block, mode), Err(MigrateProblem::Pinned));
            drop(pin);
        }
        assert_eq!(vm.take_use(page), Use::Used);
        vm.put_back_all(&[page.pfn()]);
        assert_eq!(vm.isolate(block, MigrateMode::Async), Ok(()));
        vm.put_back(block);
    });
}
