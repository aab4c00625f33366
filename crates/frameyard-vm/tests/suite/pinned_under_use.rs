//! Threads take pages with and without locks while other threads map, unmap, split, move and end them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::fixture::{HUGE, PAGE, TestMachine, TestSpace, TestVm, at, in_yard, range, run_on};
use frameyard::compaction::CompactRequest;
use frameyard::devices::{DeviceRequest, MapLayout, MapPlacement, Removal};
use frameyard::units::PhysAddr;
use frameyard::{ByteSize, Gfp, NodeId, Order, PageCount, Pfn, PfnRange};
use frameyard_vm::{
    Dirty, HugeAdvice, MapRequest, MemoryAccess, MemoryRegion, PageLevel, PageRun, PinCall, PinFlags, PinPath,
    PinRequest, RefHandling, VmConfig,
};

/// Rounds of each taking thread.
const ROUNDS: u64 = 400;
/// The shared range: four huge pages of anonymous memory, then two of a device.
const SHARED: u64 = 4 * HUGE;
const OF_DEVICE: u64 = 2 * HUGE;

struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % most
    }
}

fn a_request(dice: &mut Dice) -> PinRequest {
    let call = if dice.below(2) == 0 { PinRequest::GET } else { PinRequest::PIN };
    let path = PinPath::ALL[dice.below(3) as usize];
    let flags = if dice.below(2) == 0 { PinFlags::WRITE } else { PinFlags::NONE };
    call.by(path).counted(RefHandling::ALL[dice.below(2) as usize]).with(flags)
}

/// Takes pages anywhere, holds them briefly and releases them; returns the number taken.
fn pin_and_release(vm: &TestVm<'_>, space: &TestSpace<'_>, seed: u64) -> u64 {
    let mut dice = Dice(seed);
    let (mut taken_in_all, mut successes) = (0, 0);
    while successes < ROUNDS {
        let first = dice.below((SHARED + OF_DEVICE) / PAGE);
        let pages = 1 + dice.below(700);
        let request = a_request(&mut dice);
        let refs = RefHandling::ALL[dice.below(2) as usize];
        if dice.below(2) == 0 {
            let mut frames = vec![Pfn(0); pages as usize];
            let Ok(taken) = space.take_pages(at(first * PAGE), request, &mut frames) else { continue };
            (taken_in_all, successes) = (taken_in_all + taken.0, successes + 1);
            if dice.below(3) == 0 {
                thread::yield_now();
            }
            let taken = &frames[..taken.0 as usize];
            match request.call {
                PinCall::Get => vm.put_pages(taken, refs),
                PinCall::Pin => vm.unpin_pages(taken, refs, Dirty::Mark),
            }
            .expect("the pages are pinned");
        } else {
            let mut runs = [PageRun::default(); 16];
            let Ok(taken) = space.take_runs(range(first * PAGE, pages * PAGE), request, &mut runs) else { continue };
            (taken_in_all, successes) = (taken_in_all + taken.pages.0, successes + 1);
            match request.call {
                PinCall::Get => vm.put_runs(&runs[..taken.runs], refs),
                PinCall::Pin => vm.unpin_runs(&runs[..taken.runs], refs, Dirty::Keep),
            }
            .expect("the pages are pinned");
        }
    }
    taken_in_all
}

/// Maps, accesses and unmaps whole huge pages and parts, so that they are split.
fn map_and_unmap(space: &TestSpace<'_>, stop: &AtomicBool, seed: u64) {
    let mut dice = Dice(seed);
    while !stop.load(Ordering::Relaxed) {
        let first = dice.below(4) * HUGE;
        let whole = range(first, HUGE);
        let advice = if dice.below(3) == 0 { HugeAdvice::Never } else { HugeAdvice::Huge };
        let _ = space.map(MapRequest::anonymous(whole.size()).at(whole.start).advised(advice));
        for _ in 0..20 {
            let _ = space.touch(at(first + dice.below(512) * PAGE), MemoryAccess::Write);
        }
        let part = range(first + dice.below(500) * PAGE, (1 + dice.below(12)) * PAGE);
        if dice.below(2) == 0 {
            let _ = space.unmap(part);
            let _ = space.map(MapRequest::anonymous(part.size()).at(part.start).advised(advice));
        }
        if dice.below(3) == 0 {
            let _ = space.unmap(whole);
        }
    }
}

fn move_about(vm: &TestVm<'_>, stop: &AtomicBool) {
    let zone = vm.yard().stats().zones().next().unwrap().id;
    let memory = vm.yard().memory_ranges().next().unwrap().0;
    let mut dice = Dice(77);
    while !stop.load(Ordering::Relaxed) {
        vm.yard().compaction().zone(zone, CompactRequest::WHOLE_ZONE, &vm.owners());
        let start = Pfn((memory.start.0 + dice.below(memory.count().0 - 1024)) & !511);
        let wanted = PfnRange::new(start, PageCount(1 + dice.below(1024)));
        if let Ok(range) = vm.yard().request(wanted, Gfp::HIGHUSER_MOVABLE).owners(&vm.owners()).range() {
            vm.yard().free_range(range).expect("the range is allocated");
        }
        vm.lru_drain_all();
    }
}

/// Creates, registers and exits spaces while the region still has their pages.
fn create_and_drop_spaces(vm: &TestVm<'_>) {
    for round in 0..40 {
        let space = vm.create_space().unwrap();
        let bytes = ByteSize(HUGE + 37 * PAGE);
        let mapped = space.map(MapRequest::anonymous(bytes).at(at(round * PAGE)).advised(HugeAdvice::Huge)).unwrap();
        let region = MemoryRegion::register(&space, mapped, MemoryAccess::Write);
        drop(space);
        if let Ok(region) = region {
            region.deregister().expect("the region's pages are pinned");
        }
    }
}

/// Maps and removes a device in the shared space.
fn plug_and_unplug(vm: &TestVm<'_>, space: &TestSpace<'_>, first: Pfn, stop: &AtomicBool) {
    let range_of = PfnRange::new(first, PageCount(OF_DEVICE / PAGE));
    let mut dice = Dice(5);
    while !stop.load(Ordering::Relaxed) {
        let order = if dice.below(2) == 0 { Order(9) } else { Order::ZERO };
        let layout = MapLayout::ALL[dice.below(3) as usize];
        let layout = if order == Order::ZERO { MapLayout::Full } else { layout };
        let request =
            DeviceRequest { range: range_of, node: NodeId(0), order, layout, placement: MapPlacement::Memory };
        let Ok(device) = vm.yard().devices().map(request) else { continue };
        let level = if dice.below(2) == 0 { PageLevel::Huge } else { PageLevel::Small };
        let shows = MapRequest::device(PhysAddr(first.0 * PAGE), ByteSize(OF_DEVICE), level).at(at(SHARED));
        space.map(shows).expect("the range is unmapped");
        for page in (0..OF_DEVICE / PAGE).step_by(3) {
            let _ = space.touch(at(SHARED + page * PAGE), MemoryAccess::Write);
        }
        if layout != MapLayout::Folded && order != Order::ZERO && vm.yard().devices().split(first).is_ok() {
            thread::yield_now();
            let _ = vm.yard().devices().join(first);
        }
        space.unmap(range(SHARED, OF_DEVICE)).expect("the range is mapped");
        while vm.yard().devices().unmap(device, Removal::Wait).is_err() {
            thread::yield_now();
        }
    }
}

#[test]
fn references_survive_concurrent_changes() {
    run_on(0);
    let machine = TestMachine { cpus: 4, devices: ByteSize::mib(128), ..TestMachine::default() };
    let first_device = machine.first_device();
    in_yard(machine, VmConfig::default(), |vm| {
        let (stop, taken) = (AtomicBool::new(false), AtomicU64::new(0));
        let shared = vm.create_space().unwrap();
        thread::scope(|scope| {
            let (vm, stop, shared, taken) = (&vm, &stop, &shared, &taken);
            let takers = [0, 1, 2].map(|cpu: u32| {
                scope.spawn(move || {
                    run_on(cpu);
                    taken.fetch_add(pin_and_release(vm, shared, 11 + u64::from(cpu)), Ordering::Relaxed);
                })
            });
            let comers = scope.spawn(move || {
                run_on(2);
                create_and_drop_spaces(vm);
            });
            scope.spawn(move || {
                run_on(3);
                map_and_unmap(shared, stop, 23);
            });
            scope.spawn(move || {
                run_on(1);
                move_about(vm, stop);
            });
            scope.spawn(move || {
                run_on(3);
                plug_and_unplug(vm, shared, first_device, stop);
            });
            let ended: Vec<_> = takers.into_iter().chain([comers]).map(thread::ScopedJoinHandle::join).collect();
            stop.store(true, Ordering::Relaxed);
            ended.into_iter().for_each(|end| end.expect("no thread fails"));
        });
        assert!(taken.into_inner() >= 3 * ROUNDS);
        assert_eq!(vm.yard().devices().list().count(), 0);
        drop(shared);
        vm.lru_drain_all();
        vm.validate().unwrap();
    });
}
