//! Read-only areas: faults, bytes, pins and regions, in pages of each size.

use crate::fixture::{HUGE, PAGE, TestMachine, TestSpace, TestVm, anonymous, at, in_small_yard, in_yard, range};
use frameyard::devices::{DeviceRequest, MapLayout, MapPlacement, Removal};
use frameyard::units::PhysAddr;
use frameyard::{ByteSize, NodeId, Order, PageCount, Pfn, PfnRange, Platform};
use frameyard_vm::{
    Dirty, FaultError, HugeAdvice, MapRequest, MemoryAccess, MemoryRegion, PageLevel, PinError, PinFlags, PinPath,
    PinRequest, Protection, RefHandling, VirtAddr, VirtRange, VmConfig,
};

const READ_ONLY: Protection = Protection::ReadOnly;

fn read_only(range: VirtRange, advice: HugeAdvice) -> MapRequest {
    anonymous(range).advised(advice).protected(READ_ONLY)
}

fn refused(addr: VirtAddr) -> PinError {
    PinError::Fault(FaultError::ReadOnly(addr))
}

/// Pins and releases one page.
fn pin(vm: &TestVm<'_>, space: &TestSpace<'_>, addr: VirtAddr, request: PinRequest) -> Result<Pfn, PinError> {
    let mut frames = [Pfn(0)];
    space.take_pages(addr, request, &mut frames)?;
    vm.unpin_pages(&frames, RefHandling::Batched, Dirty::Keep).unwrap();
    Ok(frames[0])
}

#[test]
fn read_only_area_rejects_writes_before_and_after_a_fault() {
    for (advice, level) in [(HugeAdvice::Never, PageLevel::Small), (HugeAdvice::Huge, PageLevel::Huge)] {
        in_small_yard(|vm| {
            let space = vm.create_space().unwrap();
            space.map(read_only(range(0, HUGE), advice)).unwrap();
            let addr = at(5 * PAGE + 7);
            for is_there in [false, true] {
                assert_eq!(space.translate(addr).is_some(), is_there);
                assert_eq!(space.touch(addr, MemoryAccess::Write), Err(FaultError::ReadOnly(addr)));
                assert_eq!(space.write(addr, &[1]), Err(FaultError::ReadOnly(addr)));
                assert_eq!(space.pin(addr).map(drop), Err(FaultError::ReadOnly(addr)));
                assert_eq!(space.translate(addr).is_some(), is_there, "a rejected request maps nothing");
                let mut read = [9; 3];
                space.read(addr, &mut read).unwrap();
                space.touch(addr, MemoryAccess::Read).unwrap();
                assert_eq!(read, [0; 3]);
            }
            let found = space.translate(addr).unwrap();
            assert_eq!(found.level, level);
            assert!(!found.flags.is_writable() && !found.flags.is_dirty() && found.flags.is_accessed());
            let says = FaultError::ReadOnly(addr).to_string();
            assert!(says.contains(&addr.to_string()) && says.contains("map it read-write"), "{says}");
        });
    }
}

#[test]
fn read_only_area_allows_read_pins_only() {
    for advice in [HugeAdvice::Never, HugeAdvice::Huge] {
        in_small_yard(|vm| {
            let space = vm.create_space().unwrap();
            // Two writable ones first.
            space.map(anonymous(range(HUGE - 2 * PAGE, 2 * PAGE)).advised(HugeAdvice::Never)).unwrap();
            space.map(read_only(range(HUGE, HUGE), advice)).unwrap();
            let first = at(HUGE);
            let write = PinRequest::PIN.with(PinFlags::WRITE);
            assert_eq!(pin(&vm, &space, first, write), Err(refused(first)), "before the page is mapped");
            assert_eq!(pin(&vm, &space, first, PinRequest::PIN), Ok(space.translate(first).unwrap().pfn));
            for path in PinPath::ALL {
                let expected = if path == PinPath::FastOnly { PinError::NotFast(first) } else { refused(first) };
                assert_eq!(pin(&vm, &space, first, write.by(path)), Err(expected), "{path}");
                assert!(pin(&vm, &space, first, PinRequest::PIN.by(path)).is_ok(), "{path}");
            }
            let mut frames = [Pfn(0); 4];
            let taken = space.take_pages(at(HUGE - 2 * PAGE), write, &mut frames);
            assert_eq!(taken, Ok(PageCount(2)), "the writable pages");
            vm.unpin_pages(&frames[..2], RefHandling::Batched, Dirty::Keep).unwrap();
            let region = MemoryRegion::register(&space, range(HUGE, HUGE), MemoryAccess::Write);
            assert_eq!(region.map(drop), Err(refused(first)));
            MemoryRegion::register(&space, range(HUGE, HUGE), MemoryAccess::Read).unwrap().deregister().unwrap();
        });
    }
}

#[test]
fn force_pins_read_only_anonymous_memory() {
    for advice in [HugeAdvice::Never, HugeAdvice::Huge] {
        for path in [PinPath::FastThenSlow, PinPath::SlowOnly] {
            in_small_yard(|vm| {
                let space = vm.create_space().unwrap();
                space.map(read_only(range(0, HUGE), advice)).unwrap();
                let forced = PinRequest::PIN.by(path).with(PinFlags::WRITE | PinFlags::FORCE);
                for is_there in [false, true] {
                    assert_eq!(space.translate(at(PAGE)).is_some(), is_there);
                    let mut frames = [Pfn(0)];
                    assert_eq!(space.take_pages(at(PAGE), forced, &mut frames), Ok(PageCount(1)));
                    let bytes = vm.yard().platform().frame_bytes(frames[0]).unwrap();
                    // SAFETY: the frame is pinned and has no other user.
                    unsafe { bytes.write(42) };
                    vm.unpin_pages(&frames, RefHandling::Batched, Dirty::Mark).unwrap();
                }
                let mut read = [0];
                space.read(at(PAGE), &mut read).unwrap();
                assert_eq!(read, [42]);
                let flags = space.translate(at(PAGE)).unwrap().flags;
                assert!(flags.is_dirty() && !flags.is_writable(), "the page is not dirty, or is writable");
                assert_eq!(space.write(at(PAGE), &[1]), Err(FaultError::ReadOnly(at(PAGE))));
                assert_eq!(space.touch(at(PAGE), MemoryAccess::Write), Err(FaultError::ReadOnly(at(PAGE))));
                let fast = forced.by(PinPath::FastOnly);
                assert_eq!(
                    pin(&vm, &space, at(PAGE), fast),
                    Err(PinError::NotFast(at(PAGE))),
                    "the fast path does not force"
                );
            });
        }
    }
}

#[test]
fn force_does_not_pin_read_only_devices() {
    let machine = TestMachine { devices: ByteSize::gib(1), ..TestMachine::default() };
    in_yard(machine, VmConfig::default(), |vm| {
        let frames = PfnRange::new(machine.first_device(), PageCount(1024));
        let request = DeviceRequest {
            range: frames,
            node: NodeId(0),
            order: Order(9),
            layout: MapLayout::Full,
            placement: MapPlacement::Memory,
        };
        let device = vm.yard().devices().map(request).unwrap();
        let space = vm.create_space().unwrap();
        for level in [PageLevel::Small, PageLevel::Huge] {
            let shows = MapRequest::device(PhysAddr(frames.start.0 * PAGE), ByteSize(2 * HUGE), level);
            let shown = space.map(shows.at(at(0)).protected(READ_ONLY)).unwrap();
            for flags in [PinFlags::WRITE, PinFlags::WRITE | PinFlags::FORCE] {
                assert_eq!(
                    pin(&vm, &space, at(PAGE), PinRequest::PIN.with(flags)),
                    Err(refused(at(PAGE))),
                    "other mappings would see the write"
                );
            }
            assert_eq!(space.write(at(PAGE), &[1]), Err(FaultError::ReadOnly(at(PAGE))));
            assert_eq!(pin(&vm, &space, at(PAGE), PinRequest::PIN), Ok(Pfn(frames.start.0 + 1)));
            space.read(at(PAGE), &mut [0]).unwrap();
            assert!(!space.translate(at(PAGE)).unwrap().flags.is_writable());
            vm.validate().unwrap();
            space.unmap(shown).unwrap();
        }
        drop(space);
        vm.yard().devices().unmap(device, Removal::Refuse).unwrap();
    });
}

#[test]
fn split_areas_keep_protection_and_do_not_merge_across_it() {
    in_small_yard(|vm| {
        let space = vm.create_space().unwrap();
        space.map(read_only(range(0, HUGE), HugeAdvice::Huge)).unwrap();
        space.touch(at(0), MemoryAccess::Read).unwrap();
        let areas = space.statistics().areas;
        space.map(read_only(range(HUGE, PAGE), HugeAdvice::Huge)).unwrap();
        assert_eq!(space.statistics().areas, areas, "areas with the same properties did not merge");
        space.map(anonymous(range(HUGE + PAGE, PAGE)).advised(HugeAdvice::Huge)).unwrap();
        assert_eq!(space.statistics().areas, areas + 1);
        // The huge page and the area are split.
        space.unmap(range(3 * PAGE, PAGE)).unwrap();
        assert_eq!(space.statistics().areas, areas + 2);
        for page in [2, 4, 512] {
            assert_eq!(space.write(at(page * PAGE), &[1]), Err(FaultError::ReadOnly(at(page * PAGE))), "page {page}");
            space.read(at(page * PAGE), &mut [0]).unwrap();
        }
        space.write(at(HUGE + PAGE), &[1]).unwrap();
        vm.validate().unwrap();
        // Previously read-only addresses are writable after a new map.
        space.unmap(range(0, PAGE)).unwrap();
        space.map(anonymous(range(0, PAGE))).unwrap();
        space.write(at(0), &[1]).unwrap();
    });
}
