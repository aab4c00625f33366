//! Huge pages of a pool mapped into spaces: faults of each size, pins, bytes, and pages that outlive their handle.

use crate::fixture::{PAGE, TestMachine, TestVm, at, in_yard};
use frameyard::huge_pages::HugePageSize::{self, Gigantic, Huge};
use frameyard::owners::Owners;
use frameyard::page::FrameState;
use frameyard::units::PhysAddr;
use frameyard::{ByteSize, PageCount, Pfn};
use frameyard_vm::{
    Dirty, FaultError, MapRequest, MemoryAccess, MemoryRegion, PageLevel, PinCall, PinFlags, PinPath, PinRequest,
    RefHandling, VirtAddr, VirtRange, VmConfig, VmError,
};

/// 2 GiB from 256 MiB on: one gigantic page fits.
fn large() -> TestMachine {
    TestMachine { memory: ByteSize::gib(2), ..TestMachine::default() }
}

fn reserve(vm: &TestVm<'_>, size: HugePageSize, pages: u64) {
    assert_eq!(vm.yard().huge_pages().reserve(size, pages, &Owners::NONE).unwrap().pages, pages);
}

fn shrink(vm: &TestVm<'_>, size: HugePageSize, pages: u64) {
    assert_eq!(vm.yard().huge_pages().shrink(size, u64::MAX), Ok(pages));
}

fn shows(head: Pfn, size: HugePageSize, page: PageLevel) -> MapRequest {
    let bytes = ByteSize(size.order().pages().0 * PAGE);
    MapRequest::pooled(PhysAddr(head.0 * PAGE), bytes, page).at(VirtAddr(at(0).0))
}

fn free_pages(vm: &TestVm<'_>, size: HugePageSize) -> u64 {
    vm.yard().huge_pages().statistics(size).free
}

#[test]
fn takes_pages_of_pools_for_all_sizes() {
    for (machine, size, levels) in [
        (TestMachine::default(), Huge, &[PageLevel::Small, PageLevel::Huge, PageLevel::Gigantic][..2]),
        (large(), Gigantic, &[PageLevel::Small, PageLevel::Huge, PageLevel::Gigantic]),
    ] {
        in_yard(machine, VmConfig::default(), |vm| {
            reserve(&vm, size, 1);
            let page = vm.yard().huge_pages().alloc(size).unwrap();
            for level in levels.iter().copied() {
                let space = vm.create_space().unwrap();
                space.map(shows(page.pfn(), size, level)).unwrap();
                let first = PageCount(500);
                let start = at(first.0 * PAGE);
                let wanted = [0, 1, 2].map(|page_of| page.pfn() + first + PageCount(page_of));
                for call in [PinRequest::GET, PinRequest::PIN] {
                    for path in [PinPath::SlowOnly, PinPath::FastOnly, PinPath::FastThenSlow] {
                        for refs in RefHandling::ALL {
                            let request = call.by(path).counted(refs).with(PinFlags::WRITE | PinFlags::LONGTERM);
                            let mut taken = [Pfn(0); 3];
                            assert_eq!(space.take_pages(start, request, &mut taken), Ok(PageCount(3)), "{request:?}");
                            assert_eq!(taken, wanted);
                            let entries = if level == PageLevel::Small { 3 } else { 1 };
                            assert_eq!((page.users().mappings, page.users().references), (1 + entries, 4 + entries));
                            match request.call {
                                PinCall::Get => vm.put_pages(&taken, refs).unwrap(),
                                PinCall::Pin => vm.unpin_pages(&taken, refs, Dirty::Mark).unwrap(),
                            }
                            assert_eq!(page.users().references, 1 + entries);
                            assert!(vm.unpin_pages(&taken, refs, Dirty::Keep).is_err(), "the page has no pins");
                            assert!(vm.put_pages(&taken, refs).is_err(), "the handle's reference was put");
                        }
                    }
                }
                vm.validate().unwrap();
                vm.yard().validate().unwrap();
                let found = space.translate(start).unwrap();
                assert_eq!((found.level, found.pfn), (level, wanted[0]));
                drop(space);
                assert_eq!((page.users().mappings, page.users().references), (1, 1));
            }
            drop(page);
            assert_eq!(free_pages(&vm, size), 1);
            shrink(&vm, size, 1);
        });
    }
}

#[test]
fn a_page_returns_to_its_pool_when_its_last_user_is_gone() {
    in_yard(TestMachine::default(), VmConfig::default(), |vm| {
        reserve(&vm, Huge, 1);
        let space = vm.create_space().unwrap();
        let page = vm.yard().huge_pages().alloc(Huge).unwrap();
        let head = page.pfn();
        let range = space.map(shows(head, Huge, PageLevel::Huge)).unwrap();
        space.touch(range.start, MemoryAccess::Write).unwrap();
        let region = MemoryRegion::register(&space, range, MemoryAccess::Write).unwrap();
        let pinned = space.pin(range.start).unwrap();
        let is_in_use = |left: &str| {
            assert_eq!(free_pages(&vm, Huge), 0, "{left} is left");
            assert_eq!(vm.yard().huge_pages().shrink(Huge, 1), Ok(0), "{left} is left");
            vm.validate().unwrap();
        };
        is_in_use("everything");
        vm.yard().huge_pages().free(page.into_pfn(), Huge).unwrap();
        is_in_use("a mapping");
        let _ = space.unmap(range).unwrap();
        is_in_use("a memory region");
        region.deregister().unwrap();
        is_in_use("a pin");
        assert_eq!(vm.yard().stats().frame(head).unwrap().state, FrameState::Pooled);
        drop(pinned);
        assert_eq!(free_pages(&vm, Huge), 1);
        assert!(matches!(vm.unpin(head), Err(VmError::Underflow(_))));
        shrink(&vm, Huge, 1);
    });
}

#[test]
fn exits_of_spaces_unmap_pages_of_pools() {
    in_yard(TestMachine::default(), VmConfig::default(), |vm| {
        reserve(&vm, Huge, 2);
        for level in [PageLevel::Small, PageLevel::Huge] {
            let space = vm.create_space().unwrap();
            let page = vm.yard().huge_pages().alloc(Huge).unwrap();
            let range = space.map(shows(page.pfn(), Huge, level)).unwrap();
            drop(page);
            let refused = space.touch(range.start, MemoryAccess::Read).unwrap_err();
            assert!(matches!(refused, FaultError::Vm(VmError::NotPooled(_))), "it is free: {refused}");
            let page = vm.yard().huge_pages().alloc(Huge).unwrap();
            for part in [0, 7, 511] {
                space.touch(VirtAddr(range.start.0 + part * PAGE), MemoryAccess::Write).unwrap();
            }
            drop(page);
            vm.validate().unwrap();
            vm.yard().validate().unwrap();
            assert_eq!(free_pages(&vm, Huge), 1, "the other one");
            drop(space);
            assert_eq!(free_pages(&vm, Huge), 2);
        }
        shrink(&vm, Huge, 2);
    });
}

#[test]
fn bytes_are_those_of_the_page() {
    in_yard(TestMachine::default(), VmConfig::default(), |vm| {
        reserve(&vm, Huge, 1);
        let page = vm.yard().huge_pages().alloc(Huge).unwrap();
        let (one, other) = (vm.create_space().unwrap(), vm.create_space().unwrap());
        one.map(shows(page.pfn(), Huge, PageLevel::Huge)).unwrap();
        other.map(shows(page.pfn(), Huge, PageLevel::Small)).unwrap();
        let place = at(300 * PAGE + 17);
        one.write(place, b"shared").unwrap();
        let mut bytes = [0; 6];
        other.read(place, &mut bytes).unwrap();
        assert_eq!(&bytes, b"shared");
        let first = page.as_ptr().unwrap();
        // SAFETY: inside the page, which no thread writes meanwhile.
        let seen = unsafe { std::slice::from_raw_parts(first.as_ptr().add((300 * PAGE + 17) as usize), 6) };
        assert_eq!(seen, b"shared");
        drop((one, other, page));
        shrink(&vm, Huge, 1);
    });
}

#[test]
fn frames_outside_pools_are_no_pages_of_pools() {
    in_yard(TestMachine::default(), VmConfig::default(), |vm| {
        let block = vm.yard().alloc(Huge.order(), frameyard::Gfp::KERNEL).unwrap();
        for head in [block, Pfn(1 << 30)] {
            let space = vm.create_space().unwrap();
            let range: VirtRange = space.map(shows(head, Huge, PageLevel::Huge)).unwrap();
            let refused = space.touch(range.start, MemoryAccess::Read).unwrap_err();
            assert!(matches!(refused, FaultError::Vm(VmError::NotPooled(pfn)) if pfn == head), "{refused}");
            assert!(space.pin(range.start).is_err());
            vm.validate().unwrap();
        }
        vm.yard().free(block, Huge.order()).unwrap();
    });
}
