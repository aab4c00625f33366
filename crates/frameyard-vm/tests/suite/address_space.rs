//! Address spaces, from mapping to exit, on real memory.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::fixture::{
    BASE, HUGE, PAGE, TestMachine, TestYard, anonymous, at, bytes, expect, fill, in_small_yard, in_yard, range,
};
use frameyard::page::FrameState;
use frameyard::units::PhysAddr;
use frameyard::{ByteSize, Gfp, Order, PageCount, Pfn, Platform};
use frameyard_vm::{
    ExitOutcome, FaultError, HugeAdvice, MapError, MapRequest, MemoryAccess, PageLevel, SpaceId, SpaceStatistics,
    ThpMode, VirtAddr, VirtRange, Vm, VmConfig, VmCounter, VmError,
};

const ONE: NonZeroUsize = NonZeroUsize::MIN;
/// A physical address far from the yard.
const DEVICE: PhysAddr = PhysAddr(1 << 44);

#[test]
fn reads_back_written_bytes() {
    in_small_yard(|vm| {
        let space = vm.create_space().unwrap();
        let mapped = space.map(MapRequest::anonymous(ByteSize::mib(1))).unwrap();
        let mut bytes = vec![1; 3 * PAGE as usize];
        space.read(VirtAddr(mapped.start.0 + 100), &mut bytes).unwrap();
        assert!(bytes.iter().all(|byte| *byte == 0), "fresh memory is not zero");
        fill(&space, mapped, 7);
        expect(&space, mapped, 7);
        let across = VirtAddr(mapped.start.0 + PAGE - 3);
        space.write(across, b"across").unwrap();
        let mut back = [0; 6];
        space.read(across, &mut back).unwrap();
        assert_eq!(&back, b"across");
        assert_eq!(space.statistics().resident, PageCount(256));
    });
}

#[test]
fn remapped_memory_is_zero() {
    in_small_yard(|vm| {
        let space = vm.create_space().unwrap();
        let request = anonymous(range(0, 16 * PAGE));
        for seed in 0..3 {
            let mapped = space.map(request).unwrap();
            let mut byte = [1];
            space.read(mapped.start, &mut byte).unwrap();
            assert_eq!(byte, [0]);
            fill(&space, mapped, seed);
            assert_eq!(space.unmap(mapped).unwrap().pages, PageCount(16));
        }
        let page_tables = PageCount(1);
        assert_eq!(space.statistics(), SpaceStatistics { page_tables, ..SpaceStatistics::default() });
    });
}

#[test]
fn partial_unmap_keeps_the_rest() {
    in_small_yard(|vm| {
        let space = vm.create_space().unwrap();
        let mapped = space.map(anonymous(range(0, 64 * PAGE))).unwrap();
        fill(&space, mapped, 0);
        let hole = range(10 * PAGE, 20 * PAGE);
        assert_eq!(space.unmap(hole).unwrap().pages, PageCount(20));
        assert_eq!(space.statistics().areas, 2);
        expect(&space, range(0, 10 * PAGE), 0);
        expect(&space, range(30 * PAGE, 34 * PAGE), 30);
        for page in [10, 29] {
            let addr = at(page * PAGE);
            assert_eq!(space.touch(addr, MemoryAccess::Read), Err(FaultError::NotMapped(addr)));
            assert_eq!(space.translate(addr), None);
        }
        space.map(anonymous(hole)).unwrap();
        assert_eq!(space.statistics().areas, 1, "adjacent areas with the same properties did not merge");
        assert_eq!(space.statistics().mapped, mapped.size());
        vm.validate().unwrap();
    });
}

#[test]
fn chooses_highest_gap_and_aligns_for_huge_pages() {
    in_small_yard(|vm| {
        let space = vm.create_space().unwrap();
        let small = space.map(MapRequest::anonymous(bytes(PAGE))).unwrap();
        assert_eq!(small.end, VirtAddr::END);
        let next = space.map(MapRequest::anonymous(bytes(3 * PAGE))).unwrap();
        assert_eq!(next.end, small.start);
        let large = space.map(MapRequest::anonymous(bytes(HUGE + PAGE))).unwrap();
        assert!(large.start.is_aligned(PageLevel::Huge.size()) && large.end <= next.start);
        let unaligned = space.map(MapRequest::anonymous(bytes(HUGE + PAGE)).advised(HugeAdvice::Never)).unwrap();
        assert!(
            unaligned.end == large.start || unaligned.start == large.end,
            "a mapping without huge pages was aligned"
        );
        let device = space.map(MapRequest::device(DEVICE, ByteSize::gib(1), PageLevel::Gigantic)).unwrap();
        assert!(device.start.is_aligned(PageLevel::Gigantic.size()));
    });
}

#[test]
fn rejects_invalid_requests_without_changes() {
    in_small_yard(|vm| {
        let space = vm.create_space().unwrap();
        space.map(anonymous(range(16 * PAGE, 16 * PAGE))).unwrap();
        let before = space.statistics();
        let refuse = |request: MapRequest, expected: MapError, line: &str| {
            let problem = space.map(request).unwrap_err();
            assert_eq!(problem, expected);
            assert_eq!(problem.to_string(), line);
            assert_eq!(space.statistics(), before);
        };
        refuse(
            anonymous(range(20 * PAGE, 20 * PAGE)),
            MapError::Overlap(range(20 * PAGE, 12 * PAGE)),
            "addresses [0x10000014000, 0x10000020000) are mapped already: unmap them first, or map elsewhere",
        );
        refuse(anonymous(range(0, 0)), MapError::Empty, "a range of 0 bytes: must be at least one page");
        refuse(
            anonymous(range(1, PAGE)),
            MapError::Misaligned { what: "the address", value: BASE.0 + 1, align: bytes(PAGE) },
            "the address 0x10000000001 is not a multiple of 4K",
        );
        refuse(
            MapRequest::anonymous(bytes(100)),
            MapError::Misaligned { what: "the length", value: 100, align: bytes(PAGE) },
            "the length 0x64 is not a multiple of 4K",
        );
        let gib = ByteSize::gib(1);
        refuse(
            MapRequest::device(PhysAddr(DEVICE.0 + HUGE), gib, PageLevel::Gigantic),
            MapError::Misaligned { what: "the physical address", value: DEVICE.0 + HUGE, align: gib },
            "the physical address 0x100000200000 is not a multiple of 1G",
        );
        refuse(
            MapRequest::device(DEVICE, gib, PageLevel::Gigantic).at(at(HUGE)),
            MapError::Misaligned { what: "the address", value: BASE.0 + HUGE, align: gib },
            "the address 0x10000200000 is not a multiple of 1G",
        );
        refuse(
            MapRequest::device(PhysAddr((1 << 52) - PAGE), bytes(2 * PAGE), PageLevel::Small),
            MapError::BeyondPhysicalAddresses { first: PhysAddr((1 << 52) - PAGE), bytes: bytes(2 * PAGE) },
            "8K bytes from physical address 0xffffffffff000: physical addresses must be below 2^52",
        );
    });
}

#[test]
fn rejects_ranges_outside_the_address_space() {
    in_small_yard(|vm| {
        let space = vm.create_space().unwrap();
        let last = VirtAddr(VirtAddr::END.0 - PAGE);
        let wrapping = VirtAddr(u64::MAX - PAGE + 1);
        for (start, len) in [(last, 2 * PAGE), (wrapping, PAGE), (VirtAddr(0), PAGE), (VirtAddr::END, PAGE)] {
            let beyond = MapError::BeyondAddressSpace { start, bytes: bytes(len) };
            assert_eq!(space.map(MapRequest::anonymous(bytes(len)).at(start)), Err(beyond));
        }
        let all = VirtAddr::END.0 - VirtAddr::LOWEST.0;
        assert_eq!(
            space.map(MapRequest::anonymous(bytes(all + PAGE))),
            Err(MapError::NoRoom(bytes(all + PAGE))),
            "more than the address space"
        );
        let problem = space.map(MapRequest::anonymous(bytes(u64::MAX - PAGE + 1))).unwrap_err();
        let line = "no gap of 18014398509481980K bytes is left: unmap something first, or map less";
        assert_eq!(problem.to_string(), line);
        let whole = space.map(MapRequest::anonymous(bytes(all)).advised(HugeAdvice::Never)).unwrap();
        assert_eq!(whole, VirtRange { start: VirtAddr::LOWEST, end: VirtAddr::END });
        assert_eq!(space.map(MapRequest::anonymous(bytes(PAGE))), Err(MapError::NoRoom(bytes(PAGE))));
        space.touch(last, MemoryAccess::Write).unwrap();
        assert_eq!(
            space.touch(VirtAddr::END, MemoryAccess::Read),
            Err(FaultError::NotMapped(VirtAddr::END)),
            "an address beyond the end"
        );
    });
}

#[test]
fn unmap_reports_the_first_hole() {
    in_small_yard(|vm| {
        let space = vm.create_space().unwrap();
        let low = space.map(anonymous(range(0, 4 * PAGE))).unwrap();
        let high = space.map(anonymous(range(8 * PAGE, 4 * PAGE))).unwrap();
        fill(&space, low, 1);
        fill(&space, high, 9);
        let before = space.statistics();
        for (asked, hole) in [
            (range(0, 12 * PAGE), range(4 * PAGE, 4 * PAGE)),
            (range(2 * PAGE, 4 * PAGE), range(4 * PAGE, 2 * PAGE)),
            (range(8 * PAGE, 8 * PAGE), range(12 * PAGE, 4 * PAGE)),
            (range(20 * PAGE, PAGE), range(20 * PAGE, PAGE)),
        ] {
            assert_eq!(space.unmap(asked), Err(MapError::NotMapped(hole)));
            assert_eq!(space.statistics(), before);
        }
        expect(&space, low, 1);
        expect(&space, high, 9);
        space.unmap(low).unwrap();
        assert_eq!(space.unmap(low), Err(MapError::NotMapped(low)), "the second unmap");
        assert_eq!(space.unmap(range(8 * PAGE, 0)), Err(MapError::Empty));
        let misaligned = MapError::Misaligned { what: "the end", value: at(9 * PAGE + 1).0, align: bytes(PAGE) };
        assert_eq!(space.unmap(range(8 * PAGE, PAGE + 1)), Err(misaligned));
        let beyond = VirtRange { start: VirtAddr(VirtAddr::END.0 - PAGE), end: VirtAddr(VirtAddr::END.0 + PAGE) };
        assert!(matches!(space.unmap(beyond), Err(MapError::BeyondAddressSpace { .. })));
        expect(&space, high, 9);
    });
}

#[test]
fn touch_of_an_unmapped_address_fails() {
    in_small_yard(|vm| {
        let space = vm.create_space().unwrap();
        space.map(anonymous(range(0, PAGE))).unwrap();
        for addr in [VirtAddr(0), at(PAGE), VirtAddr(u64::MAX)] {
            assert_eq!(space.touch(addr, MemoryAccess::Write), Err(FaultError::NotMapped(addr)));
            assert_eq!(space.pin(addr).err(), Some(FaultError::NotMapped(addr)));
        }
        let mut two = vec![0; 2 * PAGE as usize];
        assert_eq!(space.read(at(0), &mut two), Err(FaultError::NotMapped(at(PAGE))), "the first unmapped address");
        assert_eq!(space.write(VirtAddr(u64::MAX - 3), &[1; 8]), Err(FaultError::NotMapped(VirtAddr(u64::MAX - 3))));
    });
}

fn huge_pages(mode: ThpMode, advice: HugeAdvice) -> (u64, u64) {
    let mut seen = (0, 0);
    in_yard(TestMachine::default(), VmConfig { thp: mode, ..VmConfig::default() }, |vm| {
        let space = vm.create_space().unwrap();
        let mapped = space.map(MapRequest::anonymous(bytes(2 * HUGE)).advised(advice)).unwrap();
        if mapped.start.is_aligned(PageLevel::Huge.size()) {
            fill(&space, mapped, 3);
            expect(&space, mapped, 3);
        } else {
            space.touch(mapped.start, MemoryAccess::Write).unwrap();
        }
        seen = (space.statistics().huge, vm.counted(VmCounter::ThpFaultFallback));
        vm.validate().unwrap();
    });
    seen
}

#[test]
fn mode_and_advice_select_areas_for_huge_pages() {
    for (mode, advice, huge) in [
        (ThpMode::Always, HugeAdvice::Default, 2),
        (ThpMode::Always, HugeAdvice::Huge, 2),
        (ThpMode::Always, HugeAdvice::Never, 0),
        (ThpMode::Madvise, HugeAdvice::Default, 0),
        (ThpMode::Madvise, HugeAdvice::Huge, 2),
        (ThpMode::Never, HugeAdvice::Huge, 0),
    ] {
        assert_eq!(huge_pages(mode, advice), (huge, 0), "{mode}, {advice}");
    }
}

#[test]
fn huge_fault_falls_back_to_a_small_page() {
    in_small_yard(|vm| {
        let space = vm.create_space().unwrap();
        // Allocate all 2 MiB blocks, then free all pages of one block but the first: no 2 MiB block is free.
        let mut held: Vec<Pfn> = Vec::new();
        while let Ok(pfn) = vm.yard().alloc(PageLevel::Huge.order(), frameyard::Gfp::HIGHUSER_MOVABLE) {
            held.push(pfn);
        }
        let given = held.pop().unwrap();
        vm.yard().split(given, PageLevel::Huge.order()).unwrap();
        (1..512).for_each(|page| vm.yard().free(Pfn(given.0 + page), frameyard::Order::ZERO).unwrap());
        space.map(anonymous(range(0, HUGE)).advised(HugeAdvice::Huge)).unwrap();
        space.touch(at(0), MemoryAccess::Write).unwrap();
        assert_eq!(space.translate(at(0)).unwrap().level, PageLevel::Small);
        assert_eq!(vm.counted(VmCounter::ThpFaultFallback), 1);
        assert_eq!(vm.counted(VmCounter::ThpFaultAlloc), 0);
        vm.yard().free(given, frameyard::Order::ZERO).unwrap();
        held.into_iter().for_each(|pfn| vm.yard().free(pfn, PageLevel::Huge.order()).unwrap());
    });
}

#[test]
fn partial_unmap_splits_a_huge_page() {
    in_small_yard(|vm| {
        let space = vm.create_space().unwrap();
        let mapped = space.map(anonymous(range(0, 2 * HUGE)).advised(HugeAdvice::Huge)).unwrap();
        fill(&space, mapped, 0);
        assert_eq!(space.statistics().huge, 2);
        let hole = range(HUGE - 8 * PAGE, 16 * PAGE);
        space.unmap(hole).unwrap();
        assert_eq!(space.statistics().huge, 0);
        assert_eq!(space.statistics().resident, PageCount(1024 - 16));
        assert_eq!(vm.counted(VmCounter::ThpSplitPmd), 2);
        expect(&space, range(0, HUGE - 8 * PAGE), 0);
        expect(&space, range(HUGE + 8 * PAGE, HUGE - 8 * PAGE), 512 + 8);
        vm.validate().unwrap();
    });
}

#[test]
fn devices_are_mapped_at_three_levels() {
    in_small_yard(|vm| {
        for (page, pages) in [(PageLevel::Small, 4), (PageLevel::Huge, 4), (PageLevel::Gigantic, 2)] {
            let space = vm.create_space().unwrap();
            let size = page.size().0;
            let mapped = space.map(MapRequest::device(DEVICE, bytes(pages * size), page)).unwrap();
            let offset = size + PAGE / 2;
            let addr = VirtAddr(mapped.start.0 + offset);
            space.touch(addr, MemoryAccess::Write).unwrap();
            let seen = space.translate(addr).unwrap();
            assert_eq!((seen.level, seen.pfn), (page, Pfn((DEVICE.0 + offset) >> 12)));
            assert!(seen.flags.is_device() && seen.flags.is_dirty());
            assert_eq!(space.read(addr, &mut [0]), Err(FaultError::NoFrameBytes(addr)));
            assert!(space.pin(addr).is_err(), "a device without page structures was pinned");
            assert_eq!(space.statistics().resident, PageCount(0), "device pages count as resident");
            if page != PageLevel::Small {
                let inside = VirtRange { start: mapped.start, end: VirtAddr(mapped.start.0 + PAGE) };
                let misaligned = MapError::Misaligned { what: "the end", value: inside.end.0, align: page.size() };
                assert_eq!(space.unmap(inside), Err(misaligned), "a large device entry cannot be split");
            }
            space.unmap(VirtRange { start: mapped.start, end: VirtAddr(mapped.start.0 + size) }).unwrap();
            assert_eq!(
                space.translate(addr).unwrap().pfn,
                Pfn((DEVICE.0 + offset) >> 12),
                "the rest of the mapping is gone"
            );
            vm.validate().unwrap();
        }
    });
}

#[test]
fn pinned_page_outlives_its_mapping() {
    in_small_yard(|vm| {
        let space = vm.create_space().unwrap();
        let mapped = space.map(anonymous(range(0, 4 * PAGE))).unwrap();
        fill(&space, mapped, 5);
        let pin = space.pin(at(PAGE + 8)).unwrap();
        let again = space.pin(at(PAGE)).unwrap();
        assert_eq!(pin.pfn(), space.translate(at(PAGE)).unwrap().pfn);
        let pfn = pin.pfn();
        let state = || vm.yard().stats().frame(pfn).unwrap().state;
        space.unmap(mapped).unwrap();
        assert_eq!(state(), FrameState::Counted);
        drop(again);
        assert_eq!(state(), FrameState::Counted);
        drop(pin);
        vm.lru_drain_all();
        assert_ne!(state(), FrameState::Counted, "the last unpin frees the page");
    });
}

#[test]
fn rejects_excess_unpins() {
    in_small_yard(|vm| {
        let space = vm.create_space().unwrap();
        space.map(anonymous(range(0, PAGE))).unwrap();
        let pin = space.pin(at(0)).unwrap();
        let pfn = pin.pfn();
        std::mem::forget(pin);
        vm.unpin(pfn).unwrap();
        assert!(matches!(vm.unpin(pfn), Err(VmError::Underflow(_))));
        let free = vm.yard().alloc(frameyard::Order::ZERO, frameyard::Gfp::KERNEL).unwrap();
        assert!(matches!(vm.unpin(free), Err(VmError::Underflow(_))), "the frame is not a page of an address space");
        vm.yard().free(free, frameyard::Order::ZERO).unwrap();
        assert!(matches!(vm.unpin(Pfn(1)), Err(VmError::Underflow(_))), "the frame has no page");
        space.touch(at(0), MemoryAccess::Write).unwrap();
        vm.validate().unwrap();
    });
}

#[test]
fn exit_returns_all_memory_with_one_or_several_workers() {
    for workers in [1, 2, 4] {
        in_small_yard(|vm| {
            let free = vm.yard().stats().free_pages();
            let space = vm.create_space().unwrap();
            let small = space.map(MapRequest::anonymous(ByteSize::mib(10)).advised(HugeAdvice::Never)).unwrap();
            fill(&space, small, 0);
            let huge = space.map(MapRequest::anonymous(ByteSize::mib(20)).advised(HugeAdvice::Huge)).unwrap();
            fill(&space, huge, 0);
            space.map(MapRequest::device(DEVICE, ByteSize::gib(2), PageLevel::Huge)).unwrap();
            let before = space.statistics();
            assert_eq!((before.huge, before.resident), (10, PageCount(30 << 8)));
            let ExitOutcome::Gone(unmapped) = space.exit(NonZeroUsize::new(workers).unwrap()).unwrap() else {
                panic!("the space has another user")
            };
            assert_eq!((unmapped.huge, unmapped.pages), (10, PageCount(30 << 8)));
            assert_eq!(unmapped.tables, before.page_tables);
            vm.lru_drain_all();
            let reserved_for_objects = vm.object_frames();
            assert_eq!(vm.yard().stats().free_pages() + reserved_for_objects, free, "{workers} workers");
        });
    }
}

#[test]
fn space_lives_until_its_last_handle() {
    in_small_yard(|vm| {
        let space = vm.create_space().unwrap();
        let id = space.id();
        space.map(anonymous(range(0, PAGE))).unwrap();
        let other = vm.space(SpaceId::from_bits(id.to_bits())).expect("the space exists");
        let third = other.clone();
        assert_eq!(space.exit(ONE).unwrap(), ExitOutcome::StillUsed);
        third.write(at(0), b"still there").unwrap();
        drop(third);
        let mut bytes = [0; 11];
        other.read(at(0), &mut bytes).unwrap();
        assert_eq!(&bytes, b"still there");
        assert!(matches!(other.exit(ONE).unwrap(), ExitOutcome::Gone(_)));
        assert!(vm.space(id).is_none());
        let next = vm.create_space().unwrap();
        assert_ne!(next.id(), id, "an identifier was reused");
        assert!(vm.space(id).is_none());
        for bits in [0, u64::MAX, 1 << 63, id.to_bits() ^ 1, 0xffff_ff00] {
            assert!(vm.space(SpaceId::from_bits(bits)).is_none(), "{bits:#x} is no space");
        }
    });
}

#[test]
fn destroy_fails_with_spaces() {
    in_small_yard(|vm| {
        let space = vm.create_space().unwrap();
        // SAFETY: a space remains, so the call fails.
        assert!(matches!(unsafe { vm.destroy() }, Err(VmError::InUse(_))));
        space.map(anonymous(range(0, PAGE))).unwrap();
        space.touch(at(0), MemoryAccess::Write).unwrap();
    });
}

#[test]
fn destroy_fails_with_pinned_pages() {
    in_small_yard(|vm| {
        let space = vm.create_space().unwrap();
        space.map(anonymous(range(0, PAGE))).unwrap();
        let pin = space.pin(at(0)).unwrap();
        drop(space);
        // SAFETY: a pin remains, so the call fails.
        assert!(matches!(unsafe { vm.destroy() }, Err(VmError::InUse(_))), "a pinned page is still on a list");
        vm.validate().unwrap();
        drop(pin);
    });
}

#[test]
fn frames_that_do_not_fit_an_entry_are_refused() {
    let memory = TestMachine::default().memory;
    let last = Pfn((1 << 40) - memory.0 / PAGE);
    in_yard(TestMachine { first: last, ..TestMachine::default() }, VmConfig::default(), |vm| {
        let space = vm.create_space().unwrap();
        let all = range(0, 4 * HUGE);
        space.map(anonymous(all).advised(HugeAdvice::Huge)).unwrap();
        fill(&space, all, 3);
        expect(&space, all, 3);
        assert!(space.translate(BASE).unwrap().pfn >= last);
    });
    for first in [Pfn(last.0 + 512), Pfn(1 << 40), Pfn(1 << 50)] {
        let yard = TestYard::of(TestMachine { first, ..TestMachine::default() });
        let Err(refused) = Vm::create(&yard, &VmConfig::default()) else { panic!("{first}: address spaces") };
        assert_eq!(refused, VmError::BeyondEntries(yard.frame_range()));
        assert!(refused.to_string().contains("must be below 2^40"), "{refused}");
        assert_eq!(yard.stats().free_pages(), yard.stats().managed_pages());
    }
}

#[test]
fn attach_refuses_forged_roots() {
    in_small_yard(|vm| {
        let yard = vm.yard();
        let pfn = yard.counted().anchor().unwrap();
        let word = |at: usize| {
            let bytes = yard.platform().frame_bytes(pfn).unwrap().cast::<AtomicU64>();
            // SAFETY: a word of the root's first frame, which is accessed only as words.
            unsafe { bytes.add(at).as_ref() }
        };
        // Magic, version, shards, batch, order.
        for at in [0, 1, 2, 3, 6] {
            let sound = word(at).load(Ordering::Relaxed);
            let forged = [sound ^ 1 << 63, sound + 128, 1 << 32, u64::MAX];
            for forged in forged.into_iter().chain((at < 4).then_some(0)) {
                word(at).store(forged, Ordering::Relaxed);
                assert_eq!(Vm::attach(yard).map(|_| ()), Err(VmError::NotThere), "word {at}: {forged:#x}");
            }
            word(at).store(sound, Ordering::Relaxed);
            Vm::attach(yard).unwrap();
        }
        // A copy of the root in a frame that is only allocated.
        let copy = yard.alloc(Order(4), Gfp::KERNEL | Gfp::ZERO).unwrap();
        let (from, to) = [pfn, copy].map(|pfn| yard.platform().frame_bytes(pfn).unwrap()).into();
        // SAFETY: both frames have bytes; nothing else uses the copy, and nothing changes the root meanwhile.
        unsafe { from.copy_to_nonoverlapping(to, PAGE as usize) };
        let anchor = |from, to| {
            // SAFETY: nothing but the attach below looks for the anchor, which it refuses.
            unsafe { yard.counted().set_anchor(Some(from), Some(to)) }.unwrap();
        };
        for forged in [copy, Pfn(0), Pfn(1 << 39)] {
            anchor(pfn, forged);
            assert_eq!(Vm::attach(yard).map(|_| ()), Err(VmError::NotThere), "{forged}");
            anchor(forged, pfn);
        }
        yard.free(copy, Order(4)).unwrap();
    });
}
