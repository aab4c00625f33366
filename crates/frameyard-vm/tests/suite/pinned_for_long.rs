//! Long-term pins move pages out of the Movable zone, or fail.

use crate::fixture::{HUGE, PAGE, TestMachine, TestSpace, TestVm, anonymous, at, expect, fill, in_yard, range};
use frameyard::page::Counts;
use frameyard::units::ZoneKind;
use frameyard::{ByteSize, Gfp, Order, Pfn};
use frameyard_vm::{
    Dirty, HugeAdvice, MemoryAccess, MemoryRegion, PageLevel, PinError, PinFlags, PinPath, PinRequest, Protection,
    RefHandling, VirtAddr, VirtRange, VmConfig, VmError,
};

fn machine() -> TestMachine {
    TestMachine { movable: ByteSize::mib(32), ..TestMachine::default() }
}

fn for_long(path: PinPath) -> PinRequest {
    PinRequest::PIN.by(path).with(PinFlags::LONGTERM)
}

fn zone_of(vm: &TestVm<'_>, pfn: Pfn) -> ZoneKind {
    let head = vm.yard().stats().frame(pfn).unwrap().head;
    // SAFETY: only reads.
    unsafe { vm.yard().counted().page(head) }.unwrap().tag().zone().kind()
}

fn counts(vm: &TestVm<'_>, pfn: Pfn) -> Counts {
    // SAFETY: only reads.
    unsafe { vm.yard().counted().page(pfn) }.unwrap().counts()
}

fn frames(space: &TestSpace<'_>, range: VirtRange) -> Vec<Pfn> {
    let addrs = (range.start.0..range.end.0).step_by(PAGE as usize);
    addrs.map(|addr| space.translate(VirtAddr(addr)).unwrap().pfn).collect()
}

/// Two huge pages and forty small ones, all in the Movable zone, with distinct bytes.
fn in_movable_zone(vm: &TestVm<'_>, space: &TestSpace<'_>) -> VirtRange {
    space.map(anonymous(range(0, 2 * HUGE)).advised(HugeAdvice::Huge)).unwrap();
    space.map(anonymous(range(2 * HUGE, 40 * PAGE)).advised(HugeAdvice::Never)).unwrap();
    let all = range(0, 2 * HUGE + 40 * PAGE);
    fill(space, all, 7);
    vm.lru_drain_all();
    assert_eq!(space.translate(at(HUGE)).unwrap().level, PageLevel::Huge);
    assert!(
        frames(space, all).iter().all(|pfn| zone_of(vm, *pfn) == ZoneKind::Movable),
        "a page is not in the Movable zone"
    );
    all
}

#[test]
fn long_term_pins_leave_the_movable_zone() {
    in_yard(machine(), VmConfig::default(), |vm| {
        for path in [PinPath::FastThenSlow, PinPath::SlowOnly] {
            let space = vm.create_space().unwrap();
            let all = in_movable_zone(&vm, &space);
            let before = frames(&space, all);
            let mut taken = vec![Pfn(0); before.len()];
            let fast = for_long(PinPath::FastOnly);
            assert_eq!(space.take_pages(all.start, fast, &mut taken), Err(PinError::NotFast(all.start)));
            assert_eq!(space.take_pages(all.start, PinRequest::GET, &mut taken).unwrap().0 as usize, before.len());
            assert_eq!(taken, before, "a page moved without need");
            vm.put_pages(&taken, RefHandling::Batched).unwrap();
            assert_eq!(space.take_pages(all.start, for_long(path), &mut taken).unwrap().0 as usize, before.len());
            assert_eq!(taken, frames(&space, all));
            assert!(taken.iter().all(|pfn| zone_of(&vm, *pfn) != ZoneKind::Movable), "{path}");
            expect(&space, all, 7);
            vm.validate().unwrap();
            assert!(space.take_pages(all.start, fast, &mut [Pfn(0)]).is_ok(), "the fast path failed after the move");
            vm.unpin_pages(&taken[..1], RefHandling::Batched, Dirty::Keep).unwrap();
            vm.unpin_pages(&taken, RefHandling::Batched, Dirty::Keep).unwrap();
        }
    });
}

#[test]
fn region_moves_out_of_the_movable_zone_and_keeps_protection() {
    in_yard(machine(), VmConfig::default(), |vm| {
        let space = vm.create_space().unwrap();
        let all = range(0, HUGE + 8 * PAGE);
        space.map(anonymous(range(0, HUGE)).advised(HugeAdvice::Huge).protected(Protection::ReadOnly)).unwrap();
        space.map(anonymous(range(HUGE, 8 * PAGE)).protected(Protection::ReadOnly)).unwrap();
        for page in 0..520 {
            space.touch(at(page * PAGE), MemoryAccess::Read).unwrap();
        }
        vm.lru_drain_all();
        assert_eq!(zone_of(&vm, frames(&space, all)[0]), ZoneKind::Movable);
        let region = MemoryRegion::register(&space, all, MemoryAccess::Read).unwrap();
        for run in region.runs() {
            assert!((run.first.0..run.end().0).all(|pfn| zone_of(&vm, Pfn(pfn)) != ZoneKind::Movable), "{run}");
        }
        for page in 0..520 {
            assert!(!space.translate(at(page * PAGE)).unwrap().flags.is_writable(), "page {page}");
        }
        region.deregister().unwrap();
    });
}

#[test]
fn long_term_pin_fails_without_room_outside_the_movable_zone() {
    in_yard(machine(), VmConfig::default(), |vm| {
        let space = vm.create_space().unwrap();
        let all = in_movable_zone(&vm, &space);
        let before = frames(&space, all);
        let hoard: Vec<Pfn> =
            std::iter::from_fn(|| vm.yard().alloc(Order::ZERO, Gfp::KERNEL.union(Gfp::NOWARN)).ok()).collect();
        assert!(hoard.len() > 1000, "only {} frames outside the Movable zone", hoard.len());
        let free = vm.yard().stats().free_pages();
        for offset in [0, HUGE, 2 * HUGE, 2 * HUGE + 39 * PAGE] {
            let (addr, pfn) = (at(offset), before[(offset / PAGE) as usize]);
            let counted = counts(&vm, pfn);
            for path in [PinPath::FastThenSlow, PinPath::SlowOnly] {
                let refused = space.take_pages(addr, for_long(path), &mut [Pfn(0)]);
                let is_right =
                    matches!(refused, Err(PinError::NotMoved { addr: a, pfn: p, .. }) if (a, p) == (addr, pfn));
                assert!(is_right, "{addr}, {pfn}: {refused:?}");
                vm.lru_drain_all();
                assert_eq!(counts(&vm, pfn), counted, "the failed call left a reference");
            }
        }
        let region = MemoryRegion::register(&space, all, MemoryAccess::Write);
        assert!(
            matches!(region, Err(PinError::Vm(VmError::OutOfMemory(_)))),
            "there is no room for a list: {region:?}"
        );
        assert_eq!(frames(&space, all), before, "a page moved");
        assert_eq!(vm.yard().stats().free_pages(), free);
        expect(&space, all, 7);
        vm.validate().unwrap();
        hoard.into_iter().for_each(|pfn| vm.yard().free(pfn, Order::ZERO).unwrap());
    });
}
