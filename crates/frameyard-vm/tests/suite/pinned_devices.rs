//! Devices of the yard mapped into spaces: faults of each size, pins, bytes, and removal; and long-term pins that must
//! move pages.

use crate::fixture::{HUGE, PAGE, TestMachine, TestVm, anonymous, at, in_yard, range};
use frameyard::devices::{DeviceError, DeviceRequest, MapLayout, MapPlacement, Removal};
use frameyard::units::PhysAddr;
use frameyard::{ByteSize, NodeId, Order, PageCount, Pfn, PfnRange};
use frameyard_vm::{
    Dirty, FaultError, HugeAdvice, MapRequest, MemoryAccess, MemoryRegion, PageLevel, PageRun, PinCall, PinError,
    PinFlags, PinPath, PinRequest, RefHandling, VirtAddr, VmConfig, VmError,
};

const GIB: u64 = 1 << 30;

fn machine() -> TestMachine {
    TestMachine { devices: ByteSize(2 * GIB), ..TestMachine::default() }
}

fn frames(first: u64, count: u64) -> PfnRange {
    PfnRange::new(machine().first_device() + PageCount(first), PageCount(count))
}

fn request(range: PfnRange, order: u8, layout: MapLayout) -> DeviceRequest {
    DeviceRequest { range, node: NodeId(0), order: Order(order), layout, placement: MapPlacement::Memory }
}

fn shows(range: PfnRange, page: PageLevel) -> MapRequest {
    let bytes = ByteSize(range.count().0 * PAGE);
    MapRequest::device(PhysAddr(range.start.0 * PAGE), bytes, page).at(VirtAddr(at(0).0))
}

fn release(vm: &TestVm<'_>, request: PinRequest, frames: &[Pfn]) {
    match request.call {
        PinCall::Get => vm.put_pages(frames, request.refs).unwrap(),
        PinCall::Pin => vm.unpin_pages(frames, request.refs, Dirty::Mark).unwrap(),
    }
}

#[test]
fn takes_device_pages_for_all_sizes_and_layouts() {
    in_yard(machine(), VmConfig::default(), |vm| {
        for (order, level, layout) in [
            (0, PageLevel::Small, MapLayout::Full),
            (0, PageLevel::Huge, MapLayout::Full),
            (0, PageLevel::Gigantic, MapLayout::Full),
            (9, PageLevel::Small, MapLayout::Deduplicated),
            (9, PageLevel::Huge, MapLayout::Deduplicated),
            (9, PageLevel::Gigantic, MapLayout::Folded),
            (18, PageLevel::Small, MapLayout::Folded),
            (18, PageLevel::Huge, MapLayout::Deduplicated),
            (18, PageLevel::Gigantic, MapLayout::Folded),
        ] {
            let all = frames(0, 1 << 18);
            let device = vm.yard().devices().map(request(all, order, layout)).unwrap();
            let space = vm.create_space().unwrap();
            space.map(shows(all, level)).unwrap();
            // Across a 2 MiB boundary.
            let (first, pages) = (511, 3);
            let start = at(first * PAGE);
            for call in [PinRequest::GET, PinRequest::PIN] {
                for path in [PinPath::SlowOnly, PinPath::FastOnly, PinPath::FastThenSlow] {
                    for refs in RefHandling::ALL {
                        let request = call.by(path).counted(refs).with(PinFlags::WRITE | PinFlags::LONGTERM);
                        let mut taken = [Pfn(0); 3];
                        assert_eq!(space.take_pages(start, request, &mut taken), Ok(PageCount(pages)), "{request:?}");
                        assert_eq!(taken, [0, 1, 2].map(|page| all.start + PageCount(first + page)));
                        let page = vm.yard().devices().page(taken[0]).unwrap();
                        let of_head = match order {
                            0 | 9 => 1,
                            _ => 3,
                        };
                        let bias = if order == 0 && request.call == PinCall::Pin { 1024 } else { 1 };
                        assert_eq!(page.counts().references, 1 + of_head * bias, "{order} {level} {request:?}");
                        let refused = vm.yard().devices().unmap(device, Removal::Refuse);
                        assert!(matches!(refused, Err(DeviceError::Mapped { .. })), "{refused:?}");
                        release(&vm, request, &taken);
                        assert_eq!(page.counts().references, 1);
                        assert!(vm.unpin_pages(&taken, refs, Dirty::Keep).is_err(), "the pages have no pins");
                        assert!(vm.put_pages(&taken, refs).is_err(), "the device's own reference was put");
                    }
                }
            }
            vm.validate().unwrap();
            let mut runs = [PageRun::default(); 2];
            let part = range(0, 1024 * PAGE);
            let taken = space.take_runs(part, PinRequest::PIN, &mut runs).unwrap();
            assert_eq!((taken.runs, taken.pages, runs[0].first), (1, PageCount(1024), all.start));
            drop(space);
            let in_use = vm.yard().devices().unmap(device, Removal::Refuse);
            assert!(matches!(in_use, Err(DeviceError::InUse { first, .. }) if first == all.start), "{in_use:?}");
            vm.unpin_runs(&runs[..1], RefHandling::Batched, Dirty::Keep).unwrap();
            vm.yard().devices().unmap(device, Removal::Refuse).unwrap();
        }
    });
}

#[test]
fn mappings_of_a_device_share_its_bytes() {
    in_yard(machine(), VmConfig::default(), |vm| {
        let all = frames(512, 1024);
        let device = vm.yard().devices().map(request(all, 9, MapLayout::Deduplicated)).unwrap();
        let spaces = [PageLevel::Huge, PageLevel::Small].map(|level| {
            let space = vm.create_space().unwrap();
            space.map(shows(all, level)).unwrap();
            space
        });
        let written = crate::fixture::pattern(3);
        spaces[0].write(at(HUGE - 100), &written).unwrap();
        let mut read = vec![0; written.len()];
        spaces[1].read(at(HUGE - 100), &mut read).unwrap();
        assert_eq!(read, written);
        let info = vm.yard().devices().at(all.start).unwrap();
        assert_eq!(info.mappings, 2 + 2, "two huge pages, and two pages at the boundary");
        let region = MemoryRegion::register(&spaces[0], range(0, 2 * HUGE), MemoryAccess::Write).unwrap();
        assert_eq!(region.runs().collect::<Vec<_>>(), [PageRun { first: all.start, pages: PageCount(1024) }]);
        region.deregister().unwrap();
        drop(spaces);
        assert_eq!(vm.yard().devices().at(all.start).unwrap().mappings, 0);
        vm.yard().devices().unmap(device, Removal::Refuse).unwrap();
    });
}

#[test]
fn entry_size_is_limited_by_the_device() {
    in_yard(machine(), VmConfig::default(), |vm| {
        // The device is in the second half of a GiB, and the mapping covers all of it.
        let device = vm.yard().devices().map(request(frames(1 << 17, 1 << 17), 9, MapLayout::Full)).unwrap();
        let space = vm.create_space().unwrap();
        space.map(shows(frames(0, 1 << 18), PageLevel::Gigantic)).unwrap();
        let inside = at(GIB / 2 + 5 * HUGE);
        space.touch(inside, MemoryAccess::Write).unwrap();
        assert_eq!(space.translate(inside).unwrap().level, PageLevel::Huge);
        space.write(inside, b"bytes").unwrap();
        let outside = at(5 * PAGE);
        space.touch(outside, MemoryAccess::Read).unwrap();
        assert_eq!(
            space.read(outside, &mut [0]),
            Err(FaultError::NoFrameBytes(outside)),
            "the yard has no such device"
        );
        let mut taken = [Pfn(0)];
        let refused = space.take_pages(outside, PinRequest::GET, &mut taken);
        assert!(matches!(refused, Err(PinError::NoPage { addr, .. }) if addr == outside), "{refused:?}");
        vm.validate().unwrap();
        space.unmap(range(0, GIB)).unwrap();
        vm.yard().devices().unmap(device, Removal::Refuse).unwrap();
        space.map(shows(frames(1 << 17, 512), PageLevel::Huge)).unwrap();
        space.touch(at(0), MemoryAccess::Read).unwrap();
        drop(space);
    });
}

#[test]
fn long_term_pins_leave_contiguous_memory_areas() {
    let machine = TestMachine { cma: ByteSize::mib(32), ..TestMachine::default() };
    in_yard(machine, VmConfig::default(), |vm| {
        let area = vm.yard().cma().ranges().next().unwrap();
        let space = vm.create_space().unwrap();
        let all = range(0, 40 << 20);
        space.map(anonymous(all).advised(HugeAdvice::Never)).unwrap();
        for page in 0..all.size().0 / PAGE {
            space.write(at(page * PAGE), &page.to_le_bytes()).unwrap();
        }
        let in_area = |page: u64| area.contains(space.translate(at(page * PAGE)).unwrap().pfn);
        let there = (0..all.size().0 / PAGE).filter(|page| in_area(*page)).collect::<Vec<_>>();
        assert!(there.len() > 8, "the area has too few movable pages");
        let start = at(there[0] * PAGE);
        let mut taken = [Pfn(0); 4];
        let fast = PinRequest::PIN.by(PinPath::FastOnly);
        assert_eq!(space.take_pages(start, fast.with(PinFlags::LONGTERM), &mut taken), Err(PinError::NotFast(start)));
        assert!(
            space.take_pages(start, fast, &mut taken[..1]).is_ok() && area.contains(taken[0]),
            "a short-term pin needs no move"
        );
        let pinned = space.take_pages(start, PinRequest::PIN.with(PinFlags::LONGTERM), &mut taken[..1]);
        assert!(matches!(pinned, Err(PinError::NotMoved { pfn, .. }) if pfn == taken[0]), "{pinned:?}");
        vm.unpin_pages(&taken[..1], RefHandling::Batched, Dirty::Keep).unwrap();
        let pinned = space.take_pages(start, PinRequest::PIN.with(PinFlags::LONGTERM), &mut taken).unwrap();
        assert_eq!(pinned, PageCount(4));
        assert!(taken.iter().all(|pfn| !area.contains(*pfn)));
        for page in there[0]..there[0] + 4 {
            let mut read = [0; 8];
            space.read(at(page * PAGE), &mut read).unwrap();
            assert_eq!(u64::from_le_bytes(read), page, "page {page} lost its bytes");
        }
        space.unmap(range(there[0] * PAGE + 4 * PAGE, all.size().0 - there[0] * PAGE - 4 * PAGE)).unwrap();
        vm.unpin_pages(&taken, RefHandling::Batched, Dirty::Keep).unwrap();
    });
}

#[test]
fn faults_fail_during_removal_of_a_device() {
    in_yard(machine(), VmConfig::default(), |vm| {
        let all = frames(0, 512);
        let device = vm.yard().devices().map(request(all, 9, MapLayout::Full)).unwrap();
        let space = vm.create_space().unwrap();
        space.map(shows(all, PageLevel::Huge)).unwrap();
        let pin = space.pin(at(PAGE)).unwrap();
        assert_eq!(pin.pfn(), all.start + PageCount(1));
        space.unmap(range(0, HUGE)).unwrap();
        space.map(shows(all, PageLevel::Huge)).unwrap();
        let refused = std::thread::scope(|scope| {
            // Until the removal has started.
            let removal = scope.spawn(|| vm.yard().devices().unmap(device, Removal::Wait));
            let mut refused = space.touch(at(0), MemoryAccess::Read);
            while refused.is_ok() {
                if space.unmap(range(0, HUGE)).is_ok() {
                    space.map(shows(all, PageLevel::Huge)).unwrap();
                }
                refused = space.touch(at(0), MemoryAccess::Read);
                if removal.is_finished() {
                    break;
                }
            }
            drop(pin);
            let _ = space.unmap(range(0, HUGE));
            assert_eq!(removal.join().unwrap(), Ok(()));
            refused
        });
        assert!(matches!(refused, Ok(()) | Err(FaultError::Vm(VmError::Device(DeviceError::Busy(_))))), "{refused:?}");
        drop(space);
    });
}
