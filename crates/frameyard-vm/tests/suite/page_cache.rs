//! The page cache: contents against a model, readahead, failures at each step, and concurrency.

mod at_once;
mod contents;
mod failures;
pub(crate) mod stores;
mod windows;

use frameyard::owners::{Block, FrameOwner, MigrateMode};
use frameyard::{Gfp, Order, Pfn};
use frameyard_vm::{Vm, VmConfig};

use crate::test_yard::{TestPlatform, TestYard};

const PAGE: u64 = 4096;

/// Runs a test on files of a yard of 64 MiB. Afterwards both validators pass, and every frame is free.
fn with_vm(test: impl FnOnce(Vm<'_, TestPlatform>)) {
    with_vm_on(&TestYard::new(), test);
}

fn with_vm_on(yard: &TestYard, test: impl FnOnce(Vm<'_, TestPlatform>)) {
    let vm = Vm::create(yard, &VmConfig::default()).unwrap();
    test(vm);
    vm.lru_drain_all();
    vm.validate().unwrap();
    // SAFETY: no other view is used afterwards.
    unsafe { vm.destroy() }.unwrap();
}

/// Moves the file page of a frame, if there is one, like compaction; returns whether it moved.
pub(crate) fn try_to_move(vm: Vm<'_, TestPlatform>, pfn: Pfn, mode: MigrateMode) -> bool {
    let from = Block { pfn, order: Order::ZERO };
    if vm.isolate(from, mode).is_err() {
        return false;
    }
    let Ok(to) = vm.yard().alloc(Order::ZERO, Gfp::HIGHUSER_MOVABLE.without(Gfp::DIRECT_RECLAIM)) else {
        vm.put_back(from);
        return false;
    };
    let moved = vm.migrate(from, to, mode).is_ok();
    let free = if moved {
        pfn
    } else {
        vm.put_back(from);
        to
    };
    vm.yard().free(free, Order::ZERO).unwrap();
    moved
}

/// Moves all file pages among the yard's frames; returns the number moved.
fn move_all(vm: Vm<'_, TestPlatform>, mode: MigrateMode) -> u64 {
    vm.lru_drain_all();
    let range = vm.yard().memory_ranges().next().unwrap().0;
    (range.start.0..range.end.0).filter(|pfn| try_to_move(vm, Pfn(*pfn), mode)).count() as u64
}
