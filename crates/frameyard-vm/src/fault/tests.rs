use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use frameyard::ByteSize;
use frameyard::units::PhysAddr;

use super::*;
use crate::inject::FaultInjector;
use crate::map::MapRequest;
use crate::root::VmConfig;
use crate::test_yard::{TestYard, run_on};
use crate::vm::Vm;

const PAGE: u64 = 4096;
const HUGE_BYTES: ByteSize = PageLevel::Huge.size();

/// Fails one occurrence of a kind of step.
struct FailsOnce {
    step: Step,
    after: AtomicU64,
}

impl FaultInjector for FailsOnce {
    fn fails(&self, step: Step) -> bool {
        step == self.step && self.after.fetch_sub(1, Ordering::Relaxed) == 0
    }
}

#[test]
fn touched_page_is_zeroed_and_counted() {
    let yard = TestYard::new();
    let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
    let space = vm.create_space().unwrap();
    let range = space.map(MapRequest::anonymous(ByteSize::mib(4))).unwrap();
    assert_eq!(space.translate(range.start), None, "the address is mapped before the first access");
    space.touch(range.start, MemoryAccess::Read).unwrap();
    let found = space.translate(range.start).unwrap();
    assert!(found.flags.is_accessed() && !found.flags.is_dirty() && found.flags.is_writable());
    space.touch(range.start, MemoryAccess::Write).unwrap();
    assert!(space.translate(range.start).unwrap().flags.is_dirty());
    assert_eq!(vm.counted(VmCounter::Pgfault), 1, "the second touch finds the page");
    // Across three pages, the last two not resident.
    let at = VirtAddr(range.start.0 + PAGE - 5);
    let written: Vec<u8> = (0..2 * PAGE).map(|at| at as u8 ^ 0x5a).collect();
    space.write(at, &written).unwrap();
    let mut read = vec![0xff; written.len() + 10];
    space.read(VirtAddr(at.0 - 5), &mut read).unwrap();
    assert_eq!(read[..5], [0; 5]);
    assert_eq!(read[5..written.len() + 5], written);
    assert_eq!(read[written.len() + 5..], [0; 5]);
    let statistics = space.statistics();
    assert_eq!((statistics.resident.0, statistics.huge, statistics.page_tables.0), (3, 0, 4));
    vm.validate().unwrap();
    drop(space);
    vm.finish();
}

#[test]
fn rejects_accesses_outside_areas() {
    let yard = TestYard::new();
    let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
    let space = vm.create_space().unwrap();
    let range = space.map(MapRequest::anonymous(ByteSize(PAGE))).unwrap();
    let beyond_root = VirtAddr(range.start.0 | 1 << 48);
    for addr in [VirtAddr(0), range.end, VirtAddr::END, beyond_root, VirtAddr(u64::MAX)] {
        assert_eq!(space.touch(addr, MemoryAccess::Write), Err(FaultError::NotMapped(addr)));
        assert_eq!(space.translate(addr), None);
        assert_eq!(space.pin(addr).map(|_| ()), Err(FaultError::NotMapped(addr)));
    }
    // The previous page is written, and the error names the first byte that is not.
    assert_eq!(space.write(VirtAddr(range.end.0 - 1), &[7, 8]), Err(FaultError::NotMapped(range.end)));
    let mut byte = [0];
    space.read(VirtAddr(range.end.0 - 1), &mut byte).unwrap();
    assert_eq!(byte, [7]);
    drop(space);
    vm.finish();
}

#[test]
fn maps_huge_pages_if_mode_advice_and_area_allow() {
    let yard = TestYard::new();
    for (mode, advice, expected) in [
        (ThpMode::Always, HugeAdvice::Default, 1),
        (ThpMode::Always, HugeAdvice::Never, 0),
        (ThpMode::Madvise, HugeAdvice::Huge, 1),
        (ThpMode::Madvise, HugeAdvice::Default, 0),
        (ThpMode::Never, HugeAdvice::Huge, 0),
    ] {
        let vm = Vm::create(&yard, &VmConfig { thp: mode, ..VmConfig::default() }).unwrap();
        let space = vm.create_space().unwrap();
        let at = VirtAddr(1 << 30);
        let request = MapRequest::anonymous(ByteSize(2 * HUGE_BYTES.0 - PAGE)).advised(advice);
        let range = space.map(request.at(at)).unwrap();
        let inside = VirtAddr(range.start.0 + 5 * PAGE + 3);
        space.write(inside, &[1, 2, 3]).unwrap();
        // The area does not contain all of the second 2 MiB.
        let rest = VirtAddr(at.0 + HUGE_BYTES.0);
        space.touch(rest, MemoryAccess::Write).unwrap();
        let statistics = space.statistics();
        let resident = if expected == 1 { 513 } else { 2 };
        assert_eq!((statistics.huge, statistics.resident.0), (expected, resident), "{mode} {advice}");
        assert_eq!(vm.counted(VmCounter::ThpFaultAlloc), expected);
        let (first, found) = (space.translate(at), space.translate(inside).unwrap());
        let level = if expected == 1 { PageLevel::Huge } else { PageLevel::Small };
        assert_eq!(found.level, level);
        if let Some(first) = first {
            assert_eq!(found.pfn.0, first.pfn.0 + 5);
        }
        vm.validate().unwrap();
        drop(space);
        vm.finish();
    }
}

#[test]
fn counts_fallback_to_a_small_page() {
    let yard = TestYard::new();
    let injector = FailsOnce { step: Step::AllocateHugePage, after: AtomicU64::new(0) };
    let vm = Vm::create(&yard, &VmConfig { thp: ThpMode::Always, ..VmConfig::default() }).unwrap();
    let failing = vm.with_injector(&injector);
    let space = failing.create_space().unwrap();
    let range = space.map(MapRequest::anonymous(HUGE_BYTES)).unwrap();
    space.touch(range.start, MemoryAccess::Write).unwrap();
    assert_eq!((space.statistics().huge, space.statistics().resident.0), (0, 1));
    assert_eq!(vm.counted(VmCounter::ThpFaultFallback), 1);
    vm.validate().unwrap();
    drop(space);
    vm.finish();
}

#[test]
fn fault_survives_failure_of_each_allocation() {
    let yard = TestYard::new();
    let vm = Vm::create(&yard, &VmConfig { thp: ThpMode::Always, ..VmConfig::default() }).unwrap();
    let mut failed = 0;
    for (step, after) in [
        (Step::AllocatePage, 0),
        (Step::AllocatePageTable, 0),
        (Step::AllocatePageTable, 1),
        (Step::AllocatePageTable, 2),
        (Step::AllocatePageTable, 3),
    ] {
        let space = vm.create_space().unwrap();
        let range = space.map(MapRequest::anonymous(ByteSize::mib(1))).unwrap();
        let injector = FailsOnce { step, after: AtomicU64::new(after) };
        let failing = vm.with_injector(&injector);
        let view = failing.space(space.id()).unwrap();
        let touched = view.touch(range.start, MemoryAccess::Write);
        failed += u32::from(touched == Err(FaultError::Vm(VmError::Injected)));
        vm.validate().unwrap();
        space.touch(range.start, MemoryAccess::Write).unwrap();
        assert_eq!(space.statistics().resident.0, 1);
        vm.validate().unwrap();
    }
    assert_eq!(failed, 4, "a page and three tables below the root");
    vm.finish();
}

#[test]
fn fault_reports_out_of_memory() {
    let yard = TestYard::new();
    let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
    let space = vm.create_space().unwrap();
    let range = space.map(MapRequest::anonymous(ByteSize::mib(128))).unwrap();
    let touch = |page: u64| space.touch(VirtAddr(range.start.0 + page * PAGE), MemoryAccess::Write);
    let first_failed = (0..).find(|page| touch(*page).is_err()).unwrap();
    assert!(matches!(touch(first_failed), Err(FaultError::Vm(VmError::OutOfMemory(_)))));
    assert!(first_failed > 8000, "most of the memory was used: {first_failed} pages");
    assert_eq!(space.statistics().resident.0, first_failed);
    vm.validate().unwrap();
    let freed = space.unmap(range).unwrap();
    assert_eq!(freed.pages.0, first_failed);
    vm.validate().unwrap();
    drop(space);
    vm.finish();
}

#[test]
fn maps_devices_with_entries_of_their_size() {
    let yard = TestYard::new();
    let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
    let space = vm.create_space().unwrap();
    let before = yard.stats().free_pages();
    for (page, tables) in [(PageLevel::Small, 3), (PageLevel::Huge, 2), (PageLevel::Gigantic, 1)] {
        let first = PhysAddr(1 << 40);
        let bytes = ByteSize(page.size().0 * 4);
        let range = space.map(MapRequest::device(first, bytes, page)).unwrap();
        let at = VirtAddr(range.start.0 + page.size().0 * 3 + 0x123);
        space.touch(at, MemoryAccess::Write).unwrap();
        let found = space.translate(at).unwrap();
        assert_eq!((found.level, found.flags.is_device()), (page, true));
        assert_eq!(found.pfn.0, (first.0 + page.size().0 * 3) >> 12);
        assert_eq!(space.read(at, &mut [0]), Err(FaultError::NoFrameBytes(at)));
        assert_eq!(space.pin(at).map(|_| ()), Err(FaultError::NoFrameBytes(at)));
        assert_eq!(space.statistics().page_tables.0, tables + 1, "the root, and those below");
        assert_eq!(space.statistics().resident.0, 0);
        vm.validate().unwrap();
        let unmapped = space.unmap(range).unwrap();
        assert_eq!((unmapped.pages.0, unmapped.tables.0), (0, tables));
    }
    // The frame of temporary area objects is freed, too.
    assert_eq!(yard.stats().free_pages(), before);
    drop(space);
    vm.finish();
}

#[test]
fn concurrent_touches_agree_on_one_frame() {
    const THREADS: usize = 4;
    const PAGES: u64 = 1500;
    let yard = TestYard::new();
    let vm = Vm::create(&yard, &VmConfig { thp: ThpMode::Madvise, ..VmConfig::default() }).unwrap();
    let space = vm.create_space().unwrap();
    for advice in [HugeAdvice::Never, HugeAdvice::Huge] {
        let range = space.map(MapRequest::anonymous(ByteSize(PAGES * PAGE)).advised(advice)).unwrap();
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let space = &space;
                scope.spawn(move || {
                    run_on(thread as u32);
                    for page in 0..PAGES {
                        let at = VirtAddr(range.start.0 + page * PAGE + thread as u64);
                        space.write(at, &[thread as u8 + 1]).unwrap();
                    }
                });
            }
        });
        for page in 0..PAGES {
            let mut bytes = [0; THREADS];
            space.read(VirtAddr(range.start.0 + page * PAGE), &mut bytes).unwrap();
            assert_eq!(bytes, [1, 2, 3, 4], "no write is lost");
        }
        vm.validate().unwrap();
    }
    drop(space);
    vm.finish();
}

#[test]
fn unpin_after_unmap_succeeds_once() {
    let yard = TestYard::new();
    let vm = Vm::create(&yard, &VmConfig::default()).unwrap();
    let space = vm.create_space().unwrap();
    let range = space.map(MapRequest::anonymous(ByteSize(PAGE))).unwrap();
    let pinned = space.pin(range.start).unwrap();
    let again = space.pin(range.start).unwrap();
    assert_eq!(Some(pinned.pfn()), space.translate(range.start).map(|found| found.pfn));
    vm.validate().unwrap();
    let free = yard.stats().free_pages();
    let _ = space.unmap(range).unwrap();
    let pfn = pinned.pfn();
    core::mem::forget(again);
    vm.unpin(pfn).unwrap();
    drop(pinned);
    assert!(yard.stats().free_pages() > free);
    assert!(matches!(vm.unpin(pfn), Err(VmError::Underflow(_))), "the page is gone");
    let range = space.map(MapRequest::anonymous(ByteSize(PAGE))).unwrap();
    space.touch(range.start, MemoryAccess::Write).unwrap();
    let pfn = space.translate(range.start).unwrap().pfn;
    assert!(matches!(vm.unpin(pfn), Err(VmError::Underflow(_))), "the page was not pinned");
    vm.validate().unwrap();
    drop(space);
    vm.finish();
}
