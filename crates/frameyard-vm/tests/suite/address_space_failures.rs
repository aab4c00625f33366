//! Address spaces with a failure at each step in turn.

use std::num::NonZeroUsize;

use crate::fixture::{FailAt, HUGE, PAGE, TestMachine, TestSpace, TestVm, Then, anonymous, at, bytes, in_yard, range};
use crate::fixture::{expect, fill, is_injected_failure, pattern};
use frameyard::units::PhysAddr;
use frameyard::{ByteSize, Gfp, Order};
use frameyard_vm::{
    AddressSpace, ExitOutcome, ExitProblem, FaultError, HugeAdvice, MapError, MapRequest, MemoryAccess, PageLevel,
    VirtRange, VmConfig, VmError,
};

const SMALL: TestMachine = TestMachine { memory: ByteSize::mib(32), ..TestMachine::PLAIN };

/// Runs an operation that may fail by injection. A failure changes nothing, and a retry without injection succeeds.
fn try_twice<T>(space: &TestSpace<'_>, fail: &FailAt, mut act: impl FnMut() -> Result<T, MapError>) -> T {
    let before = space.statistics();
    match act() {
        Ok(done) => done,
        failed => {
            assert!(is_injected_failure(&failed), "{:?}", failed.err());
            assert_eq!(space.statistics(), before, "the failed operation changed the space");
            fail.disarm();
            act().unwrap_or_else(|problem| panic!("{problem}, without injection"))
        }
    }
}

fn write_twice(space: &TestSpace<'_>, fail: &FailAt, range: VirtRange, seed: u64) {
    for page in 0..range.size().0 / PAGE {
        let addr = frameyard_vm::VirtAddr(range.start.0 + page * PAGE);
        let before = space.statistics().resident;
        if let Err(problem) = space.write(addr, &pattern(seed + page)) {
            assert_eq!(problem, FaultError::Vm(VmError::Injected));
            assert_eq!(space.statistics().resident, before);
            fail.disarm();
            space.write(addr, &pattern(seed + page)).unwrap();
        }
    }
}

/// Runs all operations of address spaces, any of which may fail.
fn live_through(vm: TestVm<'_>, fail: &FailAt) {
    let vm = vm.with_injector(fail);
    let space: AddressSpace<'_, _> = match vm.create_space() {
        Ok(space) => space,
        Err(problem) => {
            assert_eq!(problem, VmError::Injected);
            vm.validate().expect("the state is valid after a failed creation");
            fail.disarm();
            vm.create_space().unwrap()
        }
    };
    let whole = range(0, 64 * PAGE);
    try_twice(&space, fail, || space.map(anonymous(whole)));
    write_twice(&space, fail, range(0, 8 * PAGE), 0);
    let huge = range(HUGE, 2 * HUGE);
    try_twice(&space, fail, || space.map(anonymous(huge).advised(HugeAdvice::Huge)));
    write_twice(&space, fail, range(HUGE, 4 * PAGE), 100);
    let device = range(1 << 30, 1 << 22);
    let request = MapRequest::device(PhysAddr(1 << 44), device.size(), PageLevel::Huge).at(device.start);
    try_twice(&space, fail, || space.map(request));
    if space.touch(device.start, MemoryAccess::Read) == Err(FaultError::Vm(VmError::Injected)) {
        fail.disarm();
        space.touch(device.start, MemoryAccess::Read).unwrap();
    }
    vm.validate().expect("the state is valid while a space is in use");
    let hole = range(4 * PAGE, 30 * PAGE);
    try_twice(&space, fail, || space.unmap(hole));
    expect(&space, range(0, 4 * PAGE), 0);
    try_twice(&space, fail, || space.unmap(range(HUGE + 2 * PAGE, PAGE)));
    expect(&space, range(HUGE, 2 * PAGE), 100);
    vm.validate().expect("the state is valid after unmapping");
    let two = NonZeroUsize::new(2).unwrap();
    let mut outcome = space.exit(two);
    if let Err(stalled) = outcome {
        assert_eq!(stalled.problem, ExitProblem::Visited);
        vm.validate().expect("the state is valid after an incomplete exit");
        fail.disarm();
        outcome = stalled.space.exit(two);
    }
    assert!(matches!(outcome, Ok(ExitOutcome::Gone(_))), "{outcome:?}");
}

/// Fails each step that can fail, one in each run.
fn fail_each_in_turn(then: Then) {
    for step in 0.. {
        let fail = FailAt::new(step, then);
        in_yard(SMALL, VmConfig::default(), |vm| live_through(vm, &fail));
        if !fail.has_failed() {
            assert!(step > 15, "only {step} steps could fail");
            return;
        }
    }
}

#[test]
fn survives_one_failure_of_each_step() {
    fail_each_in_turn(Then::Succeed);
}

#[test]
fn survives_permanent_failure_from_each_step() {
    fail_each_in_turn(Then::Fail);
}

#[test]
fn out_of_memory_is_an_error_and_leaks_nothing() {
    in_yard(SMALL, VmConfig::default(), |vm| {
        let space = vm.create_space().unwrap();
        let mapped = space.map(MapRequest::anonymous(ByteSize::mib(64))).unwrap();
        let pages = mapped.size().0 / PAGE;
        let addr = |page: u64| frameyard_vm::VirtAddr(mapped.start.0 + page * PAGE);
        let (failed, problem) = (0..pages)
            .find_map(|page| space.write(addr(page), &pattern(page)).err().map(|problem| (page, problem)))
            .expect("64 MiB exceed the memory of the yard");
        assert!(matches!(problem, FaultError::Vm(VmError::OutOfMemory(_))), "{problem}");
        assert!(failed > pages / 4, "memory ran out too early");
        expect(&space, VirtRange { start: mapped.start, end: addr(failed) }, 0);
        vm.validate().unwrap();
        let half = VirtRange { start: mapped.start, end: addr(failed / 2) };
        space.unmap(half).unwrap();
        space.write(addr(failed), &pattern(failed)).unwrap();
        expect(&space, VirtRange { start: half.end, end: addr(failed + 1) }, failed / 2);
    });
}

#[test]
fn map_and_unmap_without_objects_change_nothing() {
    in_yard(SMALL, VmConfig::default(), |vm| {
        let space = vm.create_space().unwrap();
        // Enough separate areas to fill the frame of their objects.
        for slot in 0..32 {
            space.map(anonymous(range(slot * 8 * PAGE, 3 * PAGE))).unwrap();
        }
        fill(&space, range(0, 2 * PAGE), 4);
        let mut held = Vec::new();
        while let Ok(pfn) = vm.yard().alloc(Order::ZERO, Gfp::KERNEL) {
            held.push(pfn);
        }
        let before = space.statistics();
        let out = |problem: MapError| matches!(problem, MapError::Vm(VmError::OutOfMemory(_)));
        assert!(out(space.map(MapRequest::anonymous(bytes(PAGE))).unwrap_err()));
        assert!(out(space.unmap(range(PAGE, PAGE)).unwrap_err()), "splitting an area needs an object");
        expect(&space, range(0, 2 * PAGE), 4);
        assert_eq!(space.statistics(), before);
        assert!(matches!(vm.create_space(), Err(VmError::OutOfMemory(_))));
        assert!(matches!(space.touch(at(2 * PAGE), MemoryAccess::Write), Err(FaultError::Vm(VmError::OutOfMemory(_)))));
        space.unmap(range(2 * PAGE, PAGE)).expect("shrinking an area needs no object");
        space.map(anonymous(range(2 * PAGE, PAGE))).expect("growing an area needs no object");
        assert_eq!(space.statistics(), before);
        held.into_iter().for_each(|pfn| vm.yard().free(pfn, Order::ZERO).unwrap());
        space.unmap(range(PAGE, PAGE)).unwrap();
    });
}

#[test]
fn phantom_yard_rejects_address_spaces() {
    let yard = crate::fixture::TestYard::of(TestMachine { phantom: true, ..SMALL });
    let problem = frameyard_vm::Vm::create(&yard, &VmConfig::default()).unwrap_err();
    assert!(matches!(problem, VmError::NoFrameBytes(_)), "{problem}");
}
