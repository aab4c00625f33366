//! A block whose bytes this crate accesses cannot be freed by code that knows only its number.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex};
use std::thread;

use crate::fixture::{
    HUGE, PAGE, TestMachine, TestYard, anonymous, at, bytes, expect, fill, in_small_yard, range, run_on,
};
use crate::test_yard::{free_all_blocks_in_use, pause_before_accesses};
use frameyard::compaction::CompactRequest;
use frameyard::units::ZoneKind;
use frameyard::{NodeId, Order, Pfn, ZoneId};
use frameyard_vm::{HugeAdvice, MemoryAccess, MemoryRegion, Vm, VmConfig, VmCounter};

#[test]
fn blocks_cannot_be_freed_by_number_while_they_are_zeroed_or_copied() {
    static YARD: LazyLock<TestYard> = LazyLock::new(|| TestYard::of(TestMachine::default()));
    let yard = &*YARD;
    free_all_blocks_in_use(yard);
    let vm = Vm::create(yard, &VmConfig::default()).unwrap();
    let space = vm.create_space().unwrap();
    let all = range(0, 8 * HUGE);
    space.map(anonymous(range(0, 2 * HUGE)).advised(HugeAdvice::Huge)).unwrap();
    space.map(anonymous(range(2 * HUGE, 6 * HUGE)).advised(HugeAdvice::Never)).unwrap();
    fill(&space, all, 5);
    let file = vm.create_file(1, bytes(64 * PAGE)).unwrap();
    file.read(0, &mut [0; 64 * PAGE as usize]).unwrap();
    // Leave holes, so that compaction moves pages.
    for page in (2 * 512..8 * 512).step_by(2) {
        space.unmap(range(page * PAGE, PAGE)).unwrap();
    }
    vm.lru_drain_all();
    let owners = vm.owners();
    let zone = ZoneId::new(NodeId(0), ZoneKind::Normal);
    yard.compaction().zone(zone, CompactRequest::WHOLE_ZONE, &owners);
    assert!(vm.counted(VmCounter::PgmigrateSuccess) > 100, "few pages moved");
    expect(&space, range(0, 2 * HUGE), 5);
    for page in (2 * 512 + 1..8 * 512).step_by(2) {
        expect(&space, range(page * PAGE, PAGE), 5 + page);
    }
    vm.validate().unwrap();
}

#[test]
fn no_frame_of_this_crate_is_merely_allocated() {
    in_small_yard(|vm| {
        let space = vm.create_space().unwrap();
        let all = range(0, HUGE + 300 * PAGE);
        space.map(anonymous(all).advised(HugeAdvice::Huge)).unwrap();
        for page in (0..812).rev() {
            space.touch(at(page * PAGE), MemoryAccess::Write).unwrap();
        }
        let region = MemoryRegion::register(&space, all, MemoryAccess::Write).unwrap();
        let frames = vm.yard().frame_range();
        let freed = |pfn: &u64| (0..10).any(|order| vm.yard().free(Pfn(*pfn), Order(order)).is_ok());
        assert_eq!((frames.start.0..frames.end.0).find(freed), None, "freed by number");
        assert_eq!(region.runs().map(|run| run.pages.0).sum::<u64>(), 812);
        region.deregister().unwrap();
    });
}

/// Sets a flag when it is dropped, also if the test fails.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn frames_of_a_split_cannot_be_freed_by_number() {
    in_small_yard(|vm| {
        let (yard, done, target) = (vm.yard(), AtomicBool::new(false), Mutex::new(None));
        thread::scope(|scope| {
            let thief = scope.spawn(|| {
                run_on(1);
                let mut freed = 0;
                while !done.load(Ordering::Relaxed) {
                    let target = target.lock().unwrap();
                    let frames = target.map(|first: Pfn| first.0..first.0 + 512).unwrap_or_default();
                    freed += frames.filter(|pfn| yard.free(Pfn(*pfn), Order::ZERO).is_ok()).count();
                }
                freed
            });
            // Ends the thief.
            let end = SetOnDrop(&done);
            for round in 0..20 {
                let space = vm.create_space().unwrap();
                space.map(anonymous(range(0, HUGE)).advised(HugeAdvice::Huge)).unwrap();
                fill(&space, range(0, 4 * PAGE), round);
                vm.lru_drain_all();
                *target.lock().unwrap() = Some(space.translate(at(0)).unwrap().pfn);
                // A partial unmap splits the page.
                pause_before_accesses(200);
                space.unmap(range(HUGE - PAGE, PAGE)).unwrap();
                pause_before_accesses(0);
                *target.lock().unwrap() = None;
                expect(&space, range(0, 4 * PAGE), round);
            }
            drop(end);
            assert_eq!(thief.join().unwrap(), 0, "frames were freed by number");
        });
    });
}
