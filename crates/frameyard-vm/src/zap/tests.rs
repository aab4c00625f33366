use std::num::NonZeroUsize;

use frameyard::units::PhysAddr;
use frameyard::{ByteSize, PageCount};

use crate::address::{PageLevel, VirtAddr, VirtRange};
use crate::area::HugeAdvice;
use crate::map::MapRequest;
use crate::root::{ThpMode, VmConfig};
use crate::space::{AddressSpace, ExitOutcome, ExitProblem, MapError, MemoryAccess};
use crate::table::Entry;
use crate::test_yard::{TestMachine, TestPlatform, TestYard};
use crate::vm::Vm;

const PAGE: u64 = 4096;
const HUGE_BYTES: u64 = PageLevel::Huge.size().0;

fn touch(space: &AddressSpace<'_, TestPlatform>, range: VirtRange, step: u64) {
    for addr in (range.start.0..range.end.0).step_by(step as usize) {
        space.touch(VirtAddr(addr), MemoryAccess::Write).unwrap();
    }
}

fn range(start: u64, bytes: u64) -> VirtRange {
    VirtRange { start: VirtAddr(start), end: VirtAddr(start + bytes) }
}

#[test]
fn unmap_frees_pages_and_tables_but_not_those_of_neighbours() {
    let yard = TestYard::new();
    let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
    let space = vm.create_space().unwrap();
    // Both in the 2 MiB of one table, and one a GiB above.
    let (below, above, other_table) =
        (range(1 << 30, 64 * PAGE), range((1 << 30) + 100 * PAGE, 1000 * PAGE), range(3 << 30, PAGE));
    for area in [below, above, other_table] {
        space.map(MapRequest::anonymous(area.size()).at(area.start)).unwrap();
        touch(&space, area, PAGE);
    }
    vm.validate().unwrap();
    assert_eq!(
        space.statistics().page_tables.0,
        1 + 1 + 2 + 4,
        "three tables below the first GiB's, one below the other's"
    );
    let unmapped = space.unmap(below).unwrap();
    assert_eq!((unmapped.pages, unmapped.tables), (PageCount(64), PageCount(0)), "the table is needed further on");
    vm.validate().unwrap();
    let unmapped = space.unmap(above).unwrap();
    assert_eq!((unmapped.pages, unmapped.tables), (PageCount(1000), PageCount(4)), "three, and the one above them");
    vm.validate().unwrap();
    assert_eq!((space.statistics().resident.0, space.statistics().page_tables.0), (1, 4));
    assert!(space.unmap(above).is_err(), "the range was unmapped twice");
    // The table cache is cleared.
    space.map(MapRequest::anonymous(below.size()).at(below.start)).unwrap();
    touch(&space, below, PAGE);
    vm.validate().unwrap();
    drop(space);
    vm.finish();
}

#[test]
fn memory_is_zero_after_remap() {
    let yard = TestYard::new();
    let vm = Vm::create(&yard, &VmConfig { thp: ThpMode::Always, ..VmConfig::default() }).unwrap();
    let space = vm.create_space().unwrap();
    let area = range(1 << 30, 2 * HUGE_BYTES);
    for _ in 0..2 {
        space.map(MapRequest::anonymous(area.size()).at(area.start)).unwrap();
        for addr in (area.start.0..area.end.0).step_by(PAGE as usize) {
            let mut found = [0xff; 8];
            space.read(VirtAddr(addr), &mut found).unwrap();
            assert_eq!(found, [0; 8]);
            space.write(VirtAddr(addr), &[0xff; 8]).unwrap();
        }
        assert_eq!(space.unmap(area).unwrap().huge, 2);
    }
    drop(space);
    vm.finish();
}

#[test]
fn exit_frees_everything_with_any_number_of_workers() {
    for workers in [1, 2, 5] {
        let yard =
            TestYard::of(TestMachine { memory: ByteSize::mib(128), cpus: 4, nodes: 2, ..TestMachine::default() });
        let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
        let before = yard.stats().free_pages();
        let space = vm.create_space().unwrap();
        let dense = range(1 << 30, 16 << 20);
        let sparse = range((5 << 30) + HUGE_BYTES, 8 << 30);
        let huge = range(1 << 40, 10 * HUGE_BYTES);
        let pages = dense.size().0 / PAGE;
        for (area, advice, step) in [
            (dense, HugeAdvice::Never, PAGE),
            (sparse, HugeAdvice::Never, 7 * HUGE_BYTES + 3 * PAGE),
            (huge, HugeAdvice::Huge, HUGE_BYTES),
        ] {
            space.map(MapRequest::anonymous(area.size()).at(area.start).advised(advice)).unwrap();
            touch(&space, area, step);
        }
        let sparse_pages = sparse.size().0.div_ceil(7 * HUGE_BYTES + 3 * PAGE);
        let device = MapRequest::device(PhysAddr(1 << 45), PageLevel::Gigantic.size(), PageLevel::Gigantic);
        let device = space.map(device).unwrap();
        space.touch(device.start, MemoryAccess::Read).unwrap();
        vm.validate().unwrap();
        let tables = space.statistics().page_tables;
        match space.exit(NonZeroUsize::new(workers).unwrap()).unwrap() {
            ExitOutcome::Gone(unmapped) => {
                assert_eq!(unmapped.pages.0, pages + sparse_pages + 10 * 512);
                assert_eq!((unmapped.huge, unmapped.tables), (10, tables));
            }
            ExitOutcome::StillUsed => panic!("there was one handle"),
        }
        vm.lru_drain_all();
        vm.validate().unwrap();
        // The frame of the space objects stays with the root.
        assert_eq!(yard.stats().free_pages() + PageCount(1), before);
        vm.finish();
    }
}

#[test]
fn table_with_a_stray_reference_is_freed_on_release() {
    let yard = TestYard::new();
    let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
    let space = vm.create_space().unwrap();
    let mapped = space.map(MapRequest::anonymous(ByteSize(PAGE))).unwrap();
    touch(&space, mapped, PAGE);
    let tables = [space.space().walk(mapped.start.0).unwrap().table.pfn, space.space().root_of_tables().unwrap().pfn]
        .map(|pfn| vm.page(pfn));
    // Like the transient reference of an isolation or unpin by number.
    assert!(tables.iter().all(|table| table.try_get()));
    space.unmap(mapped).unwrap();
    drop(space);
    vm.lru_drain_all();
    let free = yard.stats().free_pages();
    tables.into_iter().for_each(|table| vm.put_page(table));
    assert_eq!(yard.stats().free_pages() - free, PageCount(2));
    vm.finish();
}

/// Changes the entry of an address like a migration.
fn change_entry(space: &AddressSpace<'_, TestPlatform>, addr: VirtAddr, change: impl FnOnce(Entry) -> Entry) {
    let spot = space.space().walk(addr.0).unwrap();
    let table = space.space().lock_table(spot.table).unwrap();
    table.set(spot.index, change(table.entry(spot.index)));
}

fn not_moving(entry: Entry) -> Entry {
    entry.moved(entry.pfn())
}

/// Spaces with one small area and one huge page, in a yard each; and an address in it.
fn with_a_mapped_page(test: impl Fn(&Vm<'_, TestPlatform>, AddressSpace<'_, TestPlatform>, VirtRange, VirtAddr)) {
    for (advice, page) in [(HugeAdvice::Never, 7), (HugeAdvice::Huge, 0)] {
        let yard = TestYard::new();
        let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
        let space = vm.create_space().unwrap();
        let area = range(1 << 30, HUGE_BYTES);
        space.map(MapRequest::anonymous(area.size()).at(area.start).advised(advice)).unwrap();
        touch(&space, area, PAGE);
        test(&vm, space, area, VirtAddr(area.start.0 + page * PAGE));
        vm.lru_drain_all();
        vm.finish();
    }
}

#[test]
fn unmap_reports_a_stuck_migration_and_can_be_repeated() {
    with_a_mapped_page(|vm, space, area, addr| {
        let is_huge = addr == area.start;
        // A part of it, too: of a small area in two.
        for part in [range(addr.0, PAGE), area] {
            change_entry(&space, addr, Entry::moving);
            let problem = space.unmap(part).unwrap_err();
            assert_eq!(problem, MapError::Moving(addr));
            assert!(problem.to_string().ends_with("is still in migration: unmap again"), "{problem}");
            let left = if is_huge || part != area { 512 } else { 1 };
            assert_eq!((space.statistics().areas, space.statistics().resident), (1, PageCount(left)));
            change_entry(&space, addr, not_moving);
            vm.validate().unwrap();
        }
        space.unmap(area).unwrap();
        assert_eq!(space.statistics().resident, PageCount(0));
    });
}

#[test]
fn exit_reports_a_stuck_migration_and_can_be_repeated() {
    for workers in [1, 2] {
        let workers = NonZeroUsize::new(workers).unwrap();
        with_a_mapped_page(|vm, space, _, addr| {
            change_entry(&space, addr, Entry::moving);
            let stalled = space.exit(workers).unwrap_err();
            assert_eq!(stalled.problem, ExitProblem::Moving(addr));
            change_entry(&stalled.space, addr, not_moving);
            vm.validate().unwrap();
            assert!(matches!(stalled.space.exit(workers), Ok(ExitOutcome::Gone(_))));
        });
    }
}
