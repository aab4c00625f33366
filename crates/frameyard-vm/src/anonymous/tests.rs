use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use frameyard::owners::FrameOwner;
use frameyard::{ByteSize, CpuId, Gfp, PageCount};

use super::*;
use crate::address::{PageLevel, VirtAddr, VirtRange};
use crate::area::HugeAdvice;
use crate::counters::VmCounter;
use crate::inject::FaultInjector;
use crate::map::MapRequest;
use crate::root::{ThpMode, VmConfig};
use crate::space::{AddressSpace, FaultError, MemoryAccess};
use crate::test_yard::{TestPlatform, TestYard, run_on};

const PAGE: u64 = 4096;
const HUGE_BYTES: u64 = PageLevel::Huge.size().0;

/// Moves the page of an address like compaction; `None` if it could not be isolated.
fn move_page<P: Platform>(
    vm: &Vm<'_, P>,
    space: &AddressSpace<'_, P>,
    addr: VirtAddr,
    mode: MigrateMode,
) -> Option<Result<(), MigrateProblem>> {
    let found = space.translate(addr)?;
    let order = found.level.order();
    let from = Block { pfn: found.pfn.align_down(order), order };
    move_block(vm, from, mode)
}

/// Moves a block like compaction; `None` if it could not be isolated.
fn move_block<P: Platform>(vm: &Vm<'_, P>, from: Block, mode: MigrateMode) -> Option<Result<(), MigrateProblem>> {
    vm.isolate(from, mode).ok()?;
    let Ok(to) = vm.yard().alloc(from.order, Gfp::HIGHUSER_MOVABLE) else {
        vm.put_back(from);
        return None;
    };
    let moved = vm.migrate(from, to, mode);
    if moved.is_ok() {
        vm.yard().free(from.pfn, from.order).unwrap();
    } else {
        vm.yard().free(to, from.order).unwrap();
        vm.put_back(from);
    }
    Some(moved)
}

fn pattern(addr: u64) -> [u8; 16] {
    core::array::from_fn(|at| (addr >> 12) as u8 ^ (at as u8).wrapping_mul(31) ^ (addr >> 20) as u8)
}

fn fill(space: &AddressSpace<'_, TestPlatform>, range: VirtRange) {
    for addr in (range.start.0..range.end.0).step_by(PAGE as usize) {
        space.write(VirtAddr(addr + 100), &pattern(addr)).unwrap();
    }
}

fn check(space: &AddressSpace<'_, TestPlatform>, range: VirtRange) {
    for addr in (range.start.0..range.end.0).step_by(PAGE as usize) {
        let mut found = [0; 16];
        space.read(VirtAddr(addr + 100), &mut found).unwrap();
        assert_eq!(found, pattern(addr), "at {addr:#x}");
    }
}

/// A space of `bytes` bytes filled with a pattern, in small or huge pages.
fn filled<'y>(vm: &Vm<'y, TestPlatform>, bytes: u64, huge: HugeAdvice) -> (AddressSpace<'y, TestPlatform>, VirtRange) {
    let space = vm.create_space().unwrap();
    let range = space.map(MapRequest::anonymous(ByteSize(bytes)).advised(huge)).unwrap();
    fill(&space, range);
    vm.lru_drain_all();
    (space, range)
}

#[test]
fn migration_keeps_bytes_and_flags() {
    let yard = TestYard::new();
    let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
    for (huge, size) in [(HugeAdvice::Never, PAGE), (HugeAdvice::Huge, HUGE_BYTES)] {
        let (space, range) = filled(&vm, 8 << 20, huge);
        for addr in (range.start.0..range.end.0).step_by(size as usize).map(VirtAddr) {
            let before = space.translate(addr).unwrap();
            assert_eq!(move_page(&vm, &space, addr, MigrateMode::Async), Some(Ok(())));
            let after = space.translate(addr).unwrap();
            assert_ne!(before.pfn, after.pfn);
            assert!(after.level == before.level && after.flags.is_dirty());
        }
        vm.validate().unwrap();
        check(&space, range);
        vm.lru_drain_all();
        vm.validate().unwrap();
        drop(space);
    }
    assert_eq!(vm.counted(VmCounter::PgmigrateSuccess), 2 * (8 << 20) / PAGE);
    vm.finish();
}

/// Always fails one kind of step.
struct Fails(Step);

impl FaultInjector for Fails {
    fn fails(&self, step: Step) -> bool {
        step == self.0
    }
}

#[test]
fn failed_migration_leaves_the_page_in_place() {
    let yard = TestYard::new();
    let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
    for huge in [HugeAdvice::Never, HugeAdvice::Huge] {
        let (space, range) = filled(&vm, HUGE_BYTES, huge);
        for step in [Step::Freeze, Step::Copy, Step::Unfreeze] {
            let injector = Fails(step);
            let failing = vm.with_injector(&injector);
            let before = space.translate(range.start);
            let moved = move_page(&failing, &space, range.start, MigrateMode::Sync);
            assert_eq!(moved, Some(Err(MigrateProblem::Failed)), "{step:?}");
            assert_eq!(space.translate(range.start), before);
            check(&space, range);
            vm.validate().unwrap();
        }
        assert_eq!(move_page(&vm, &space, range.start, MigrateMode::Sync), Some(Ok(())));
    }
    vm.finish();
}

#[test]
fn pinned_page_is_not_moved() {
    let yard = TestYard::new();
    let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
    for huge in [HugeAdvice::Never, HugeAdvice::Huge] {
        let (space, range) = filled(&vm, HUGE_BYTES, huge);
        let found = space.translate(range.start).unwrap();
        let from = Block { pfn: found.pfn, order: found.level.order() };
        let to = yard.alloc(from.order, Gfp::HIGHUSER_MOVABLE).unwrap();
        vm.isolate(from, MigrateMode::Async).unwrap();
        let pinned = space.pin(range.start).unwrap();
        for mode in MigrateMode::ALL {
            assert_eq!(vm.migrate(from, to, mode), Err(MigrateProblem::Pinned));
        }
        vm.put_back(from);
        assert_eq!(vm.isolate(from, MigrateMode::Sync), Err(MigrateProblem::Pinned));
        assert_eq!(space.translate(range.start).map(|found| found.pfn), Some(pinned.pfn()));
        vm.validate().unwrap();
        drop(pinned);
        yard.free(to, from.order).unwrap();
        assert_eq!(move_page(&vm, &space, range.start, MigrateMode::Async), Some(Ok(())));
        check(&space, range);
    }
    vm.finish();
}

#[test]
fn migration_rejects_extra_references_and_dead_spaces() {
    let yard = TestYard::new();
    let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
    let (space, range) = filled(&vm, 2 * PAGE, HugeAdvice::Never);
    let from = Block { pfn: space.translate(range.start).unwrap().pfn, order: Order::ZERO };
    let to = yard.alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE).unwrap();
    vm.isolate(from, MigrateMode::Async).unwrap();
    vm.page(from.pfn).get();
    assert_eq!(vm.migrate(from, to, MigrateMode::Sync), Err(MigrateProblem::Busy));
    vm.put_page(vm.page(from.pfn));
    // A migration does not start while a writer holds the map lock.
    let writing = space.space().map_lock().write().unwrap();
    for mode in MigrateMode::ALL {
        assert_eq!(vm.migrate(from, to, mode), Err(MigrateProblem::Busy));
    }
    drop(writing);
    // Unmapped while isolated: in a space that stays, then in one that ends.
    let half = VirtRange { start: range.start, end: VirtAddr(range.start.0 + PAGE) };
    assert_eq!(space.unmap(half).unwrap().pages, PageCount(1));
    assert_eq!(vm.migrate(from, to, MigrateMode::Sync), Err(MigrateProblem::Gone));
    drop(space);
    assert_eq!(vm.migrate(from, to, MigrateMode::Sync), Err(MigrateProblem::Gone));
    let free = yard.stats().free_pages();
    vm.put_back(from);
    vm.lru_drain_all();
    assert_eq!(yard.stats().free_pages(), free + PageCount(1), "the isolator had the last reference");
    yard.free(to, Order::ZERO).unwrap();
    vm.finish();
}

#[test]
fn fault_on_a_moving_page_waits_with_a_bound() {
    let yard = TestYard::new();
    let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
    let (space, range) = filled(&vm, PAGE, HugeAdvice::Never);
    let pfn = space.translate(range.start).unwrap().pfn;
    let inner = space.space();
    let moving = inner.begin_move(vm.page(pfn), Level::SMALL).unwrap();
    assert_eq!(space.translate(range.start), None);
    assert_eq!(space.touch(range.start, MemoryAccess::Write), Err(FaultError::Moving(range.start)));
    assert_eq!(space.read(range.start, &mut [0]), Err(FaultError::Moving(range.start)));
    assert_eq!(vm.counted(VmCounter::MigrationWait), 2);
    thread::scope(|scope| {
        let reader = scope.spawn(|| check(&space, range));
        while vm.counted(VmCounter::MigrationWait) < 3 {
            thread::yield_now();
        }
        moving.end(pfn);
        reader.join().unwrap();
    });
    vm.validate().unwrap();
    drop(space);
    vm.finish();
}

/// One thread's writes to its own bytes of every page: increasing numbers, each read back.
fn keep_writing(space: &AddressSpace<'_, TestPlatform>, range: VirtRange, thread: u64, stop: &AtomicBool) -> u64 {
    let mut round = 0_u64;
    // At least once, since all migrations may precede this thread's first run.
    loop {
        for addr in (range.start.0..range.end.0).step_by(PAGE as usize) {
            let at = VirtAddr(addr + 8 * thread);
            let mut found = [0; 8];
            space.read(at, &mut found).unwrap();
            assert_eq!(u64::from_le_bytes(found), round, "no write of thread {thread} is lost at {at}");
            space.write(at, &(round + 1).to_le_bytes()).unwrap();
        }
        round += 1;
        if stop.load(Ordering::Relaxed) {
            return round;
        }
    }
}

#[test]
fn repeated_migration_loses_no_write() {
    const WRITERS: u64 = 3;
    let yard = TestYard::new();
    let vm = Vm::create(&yard, &VmConfig { thp: ThpMode::Madvise, ..VmConfig::default() }).unwrap();
    for (huge, moves) in [(HugeAdvice::Never, 20_000), (HugeAdvice::Huge, 60)] {
        let space = vm.create_space().unwrap();
        let range = space.map(MapRequest::anonymous(ByteSize(2 * HUGE_BYTES)).advised(huge)).unwrap();
        let (stop, moved) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            let (space, vm, stop) = (&space, &vm, &stop);
            for thread in 0..WRITERS {
                scope.spawn(move || {
                    run_on(thread as u32);
                    assert!(keep_writing(space, range, thread, stop) > 0);
                });
            }
            run_on(WRITERS as u32);
            let size = if huge == HugeAdvice::Huge { HUGE_BYTES } else { PAGE };
            let pages = (range.start.0..range.end.0).step_by(size as usize).collect::<Vec<_>>();
            let stop_at_end = StopAtEnd(stop);
            for addr in pages.iter().cycle() {
                let mode = if addr / size % 2 == 0 { MigrateMode::Async } else { MigrateMode::Sync };
                match move_page(vm, space, VirtAddr(*addr), mode) {
                    Some(Ok(())) => _ = moved.fetch_add(1, Ordering::Relaxed),
                    Some(Err(problem)) => assert_eq!(problem, MigrateProblem::Busy),
                    None => vm.lru_drain_all(),
                }
                if moved.load(Ordering::Relaxed) >= moves {
                    break;
                }
            }
            drop(stop_at_end);
        });
        vm.validate().unwrap();
        drop(space);
    }
    vm.finish();
}

/// Stops the writers even if the mover panics.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn migration_races_creation_and_exit_of_spaces() {
    let yard = TestYard::new();
    let vm = Vm::create(&yard, &VmConfig { thp: ThpMode::Always, ..VmConfig::default() }).unwrap();
    let stop = AtomicBool::new(false);
    let moved = thread::scope(|scope| {
        let mover = scope.spawn(|| {
            run_on(1);
            let frames = yard.frame_range();
            let (mut moved, mut at) = (0, frames.start);
            while !stop.load(Ordering::Relaxed) {
                if let Some(page) = vm.try_page(at) {
                    let block = Block { pfn: at, order: page.tag().order() };
                    moved += u64::from(move_block(&vm, block, MigrateMode::Async) == Some(Ok(())));
                }
                at = if at + PageCount(1) < frames.end { at + PageCount(1) } else { frames.start };
            }
            moved
        });
        let stop_at_end = StopAtEnd(&stop);
        for round in 0..60 {
            let huge = if round % 2 == 0 { HugeAdvice::Never } else { HugeAdvice::Huge };
            let (space, range) = filled(&vm, 3 * HUGE_BYTES, huge);
            let end = VirtAddr(range.start.0 + HUGE_BYTES + 7 * PAGE);
            let _ = space.unmap(VirtRange { start: range.start, end }).unwrap();
            check(&space, VirtRange { start: end, end: range.end });
        }
        drop(stop_at_end);
        mover.join().unwrap()
    });
    assert!(moved > 0, "some pages were moved meanwhile");
    vm.lru_drain_all();
    vm.finish();
}

#[test]
fn parts_of_a_pinned_block_are_busy() {
    let yard = TestYard::new();
    let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
    let (space, range) = filled(&vm, HUGE_BYTES, HugeAdvice::Huge);
    let pinned = space.pin(range.start).unwrap();
    let first = VirtRange { start: range.start, end: VirtAddr(range.start.0 + PAGE) };
    let _ = space.unmap(first).unwrap();
    let head = pinned.pfn();
    drop(pinned);
    let from = Block { pfn: head, order: HUGE };
    vm.isolate(from, MigrateMode::Sync).unwrap();
    let to = yard.alloc(HUGE, Gfp::HIGHUSER_MOVABLE).unwrap();
    let moved = vm.migrate(from, to, MigrateMode::Sync);
    assert_eq!(moved, Err(MigrateProblem::Busy));
    yard.free(to, HUGE).unwrap();
    vm.put_back(from);
    check(&space, VirtRange { start: first.end, end: range.end });
    vm.validate().unwrap();
    drop(space);
    assert_eq!(yard.platform().current_cpu(), CpuId(0));
    vm.finish();
}
