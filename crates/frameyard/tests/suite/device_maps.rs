//! Page maps of devices: what is mapped can be looked up, used and removed, in every layout.

use std::sync::{Arc, Mutex};

use crate::devices::{GIGANTIC, HUGE, MEMORY, SECTION, frames, kernel_yard, request, yard};
use crate::fixture::{MapCall, Moment};
use frameyard::AllocError;
use frameyard::alloc::FreeProblem;
use frameyard::contig::BlockedBy;
use frameyard::devices::{DeviceError, DeviceRequest, MapLayout, MapPlacement, Removal};
use frameyard::owners::Owners;
use frameyard::page::FrameState;
use frameyard::platform::{Access, MapNotBacked};
use frameyard::units::ZoneKind;
use frameyard::{ByteSize, Gfp, NodeId, Order, PageCount, Pfn, PfnRange, ZoneId};

#[test]
fn frames_lead_to_their_head() {
    let yard = yard();
    for layout in MapLayout::ALL {
        for order in [Order::ZERO, HUGE] {
            let range = frames(512, 3 * SECTION);
            let device = yard.devices().map(request(range, order, layout)).unwrap();
            yard.validate().unwrap();
            for pfn in (range.start.0..range.end.0).step_by(37).map(Pfn) {
                let page = yard.devices().page(pfn).unwrap();
                assert_eq!((page.head(), page.order()), (pfn.align_down(order), order), "{layout}");
                assert_eq!(page.counts().references, 1);
                assert!(page.tag().is(FrameState::Device));
                assert!(page.try_get(3));
                assert_eq!(page.counts().references, 4);
                // SAFETY: got above.
                assert_eq!(unsafe { page.put(3) }, Ok(1));
            }
            for pfn in [Pfn(range.start.0 - 1), range.end, Pfn(0), Pfn(u64::MAX)] {
                assert!(yard.devices().page(pfn).is_none(), "{pfn}");
            }
            yard.devices().unmap(device, Removal::Refuse).unwrap();
            assert!(yard.devices().page(range.start).is_none());
            assert!((0..range.count().0).all(|at| yard.page_words(range.start + PageCount(at)) == [0; 8]));
            yard.validate().unwrap();
        }
    }
}

#[test]
fn a_device_in_use_is_not_removed() {
    let yard = yard();
    let device = yard.devices().map(request(frames(0, 4096), HUGE, MapLayout::Deduplicated)).unwrap();
    let page = yard.devices().page(frames(700, 1).start).unwrap();
    assert!(page.try_get(7));
    let in_use = DeviceError::InUse { references: 7, pages: 1, first: frames(512, 1).start };
    assert_eq!(yard.devices().unmap(device, Removal::Refuse), Err(in_use));
    // SAFETY: got above.
    unsafe { page.put(7) }.unwrap();
    assert_eq!(yard.devices().unmap(device, Removal::Refuse), Ok(()));
    assert_eq!(yard.devices().unmap(device, Removal::Refuse), Err(DeviceError::NoSuchDevice(device)));
}

#[test]
fn split_pages_count_per_frame() {
    let yard = yard();
    for layout in [MapLayout::Full, MapLayout::Deduplicated, MapLayout::DeduplicatedTwo] {
        let device = yard.devices().map(request(frames(0, 4096), HUGE, layout)).unwrap();
        let head = frames(512, 1).start;
        yard.devices().split(head).unwrap();
        let part = yard.devices().page(head + PageCount(99)).unwrap();
        assert_eq!((part.head(), part.order()), (head + PageCount(99), Order::ZERO));
        assert!(part.try_get(1));
        let in_use = DeviceError::InUse { references: 1, pages: 1, first: part.head() };
        assert_eq!(yard.devices().join(head), Err(in_use));
        assert_eq!(yard.devices().unmap(device, Removal::Refuse), Err(in_use));
        // SAFETY: got above.
        unsafe { part.put(1) }.unwrap();
        yard.devices().join(head).unwrap();
        assert!(!part.try_get(1), "a tail gave a reference");
        assert_eq!(yard.page_words(part.head()), [0; 8]);
        assert_eq!(yard.devices().page(part.head()).unwrap().head(), head);
        yard.devices().split(head).unwrap();
        yard.devices().unmap(device, Removal::Refuse).unwrap();
    }
}

#[test]
fn gigantic_pages_are_found_from_every_section() {
    let yard = yard();
    // Aligned to 1 GiB: eight sections from the eighth on.
    let range = PfnRange::new(Pfn(8 * SECTION), PageCount(16 * SECTION));
    let short = PfnRange { start: range.start, end: Pfn(16 * SECTION) };
    for layout in MapLayout::ALL {
        let device = yard.devices().map(request(short, GIGANTIC, layout)).unwrap();
        for pfn in (short.start.0..short.end.0).step_by(997).map(Pfn) {
            let page = yard.devices().page(pfn).unwrap();
            assert_eq!((page.head(), page.order()), (short.start, GIGANTIC));
        }
        let info = yard.devices().at(short.start).unwrap();
        let (structures, bytes) = match layout {
            MapLayout::Full => (1 << 18, ByteSize::mib(16)),
            MapLayout::Deduplicated | MapLayout::Folded => (1, ByteSize::kib(4)),
            MapLayout::DeduplicatedTwo => (128, ByteSize::kib(8)),
        };
        assert_eq!((info.structures, info.map_bytes), (structures, bytes), "{layout}");
        yard.devices().unmap(device, Removal::Refuse).unwrap();
    }
    let memory = MEMORY[1].0;
    let is_memory = DeviceError::IsMemory { range, memory };
    assert_eq!(yard.devices().map(request(range, GIGANTIC, MapLayout::Full)), Err(is_memory));
}

#[test]
fn equal_devices_share_a_section() {
    let yard = yard();
    for layout in [MapLayout::Full, MapLayout::Deduplicated, MapLayout::DeduplicatedTwo] {
        let [first, second] = [frames(0, 512), frames(2048, 512)];
        let [first_device, second_device] =
            [first, second].map(|range| yard.devices().map(request(range, HUGE, layout)).unwrap());
        yard.validate().unwrap();
        let between = frames(1024, 512);
        assert!(yard.devices().page(between.start).is_none());
        yard.devices().unmap(first_device, Removal::Refuse).unwrap();
        assert!(yard.devices().page(first.start).is_none());
        assert_eq!(yard.devices().page(Pfn(second.end.0 - 1)).unwrap().head(), second.start);
        yard.devices().unmap(second_device, Removal::Refuse).unwrap();
    }
}

#[test]
fn devices_are_no_memory() {
    let yard = yard();
    let range = frames(512, 1024);
    yard.devices().map(request(range, HUGE, MapLayout::Deduplicated)).unwrap();
    let pfn = range.start + PageCount(700);
    let head = range.start + PageCount(512);
    let not_allocated = FreeProblem::NotAllocated(FrameState::Device);
    assert_eq!(yard.free(pfn, Order::ZERO).unwrap_err().problem, not_allocated);
    assert_eq!(yard.free(head, HUGE).unwrap_err().problem, not_allocated);
    assert_eq!(yard.request(range, Gfp::MOVABLE).range(), Err(AllocError::NotOneZone(range)));
    match yard.request(PfnRange::new(pfn, PageCount(4)), Gfp::MOVABLE).owners(&Owners::NONE).range() {
        Err(AllocError::Blocked(blocker)) => {
            assert_eq!((blocker.pfn, blocker.order, blocker.state), (head, HUGE, FrameState::Device));
            assert_eq!(blocker.why, BlockedBy::Device);
        }
        other => panic!("{other:?}"),
    }
    let info = yard.stats().frame(pfn).unwrap();
    assert_eq!((info.head, info.state, info.order), (head, FrameState::Device, HUGE));
    assert!(!yard.stats().is_allocated(head, HUGE));
    assert!(yard.zone_of(pfn).is_none());
    yard.devices().unmap(yard.devices().at(pfn).unwrap().id, Removal::Refuse).unwrap();
}

#[test]
fn device_zones_are_present_and_unmanaged() {
    let yard = yard();
    let device_zone = |node| ZoneId::new(NodeId(node), ZoneKind::Device);
    let before = (yard.stats().free_pages(), yard.stats().managed_pages(), yard.stats().zones().count());
    let request = request(frames(0, 1024), HUGE, MapLayout::Folded);
    let first = yard.devices().map(DeviceRequest { node: NodeId(1), ..request }).unwrap();
    let range = frames(3 * SECTION, 512);
    let second = yard.devices().map(DeviceRequest { node: NodeId(1), range, ..request }).unwrap();
    let zone = yard.stats().zones().find(|zone| zone.id == device_zone(1)).expect("the zone is listed");
    assert_eq!((zone.present, zone.managed, zone.free), (PageCount(1536), PageCount(0), PageCount(0)));
    assert_eq!(zone.span, PfnRange { start: frames(0, 1).start, end: range.end });
    assert_eq!(zone.watermarks.min, PageCount(0));
    assert_eq!(
        (yard.stats().free_pages(), yard.stats().managed_pages(), yard.stats().zones().count()),
        (before.0, before.1, before.2 + 1)
    );
    yard.devices().unmap(first, Removal::Refuse).unwrap();
    assert_eq!(yard.zone(device_zone(1)).statistics().span, range);
    yard.devices().unmap(second, Removal::Refuse).unwrap();
    assert_eq!(yard.stats().zones().count(), before.2);
    // Allocations, drains and tuning pass the zone by while it has frames, and after.
    yard.drain_all();
}

#[test]
fn kernel_content_pages_carry_identity() {
    let yard = kernel_yard();
    for order in [Order::ZERO, HUGE] {
        let range = frames(SECTION - 512, 1024);
        let device = yard.devices().map(request(range, order, MapLayout::Full)).unwrap();
        yard.validate().unwrap();
        for pfn in (range.start.0..range.end.0).map(Pfn) {
            let page = yard.devices().page(pfn).unwrap();
            assert_eq!((page.counts().references, page.counts().mappings), (1, 0));
            assert_eq!(yard.page_words(pfn)[2] >> 32, pfn.0 / SECTION, "the section of {pfn}");
        }
        if order == HUGE {
            yard.devices().split(range.start).unwrap();
            yard.validate().unwrap();
            yard.devices().join(range.start).unwrap();
            yard.validate().unwrap();
        }
        yard.devices().unmap(device, Removal::Refuse).unwrap();
        assert!((range.start.0..range.end.0).all(|pfn| yard.page_words(Pfn(pfn)) == [0; 8]));
    }
}

/// The accesses to page structures of frames that are no multiples of an order, while `work` is done.
fn tails_touched(yard: &crate::fixture::Fixture, order: Order, work: impl FnOnce()) -> Vec<(Pfn, Access)> {
    let touched = Arc::new(Mutex::new(Vec::new()));
    yard.watch().spy_with({
        let touched = Arc::clone(&touched);
        move |moment| {
            if let Moment::Touch(pfn, access) = moment
                && !pfn.is_aligned(order)
            {
                touched.lock().unwrap().push((pfn, access));
            }
        }
    });
    work();
    yard.watch().calm();
    std::mem::take(&mut *touched.lock().unwrap())
}

#[test]
fn unsplit_tails_are_never_touched() {
    let yard = yard();
    let range = frames(0, 8 * 512);
    for layout in [MapLayout::Deduplicated, MapLayout::Folded] {
        let touched = tails_touched(&yard, HUGE, || {
            let device = yard.devices().map(request(range, HUGE, layout)).unwrap();
            for pfn in (range.start.0..range.end.0).map(Pfn) {
                let page = yard.devices().page(pfn).unwrap();
                assert!(page.try_get(2));
                // SAFETY: got above.
                unsafe { page.put(2) }.unwrap();
                yard.stats().frame(pfn).unwrap();
                assert!(yard.free(pfn, Order::ZERO).is_err());
            }
            yard.devices().unmap(device, Removal::Refuse).unwrap();
        });
        assert_eq!(touched, [], "{layout}");
    }
}

#[test]
fn late_get_does_not_write_to_a_tail() {
    let yard = yard();
    let range = frames(0, 8 * 512);
    let device = yard.devices().map(request(range, HUGE, MapLayout::Deduplicated)).unwrap();
    yard.devices().split(range.start).unwrap();
    let late = yard.devices().page(range.start + PageCount(300)).unwrap();
    yard.devices().join(range.start).unwrap();
    let whole = yard.devices().page(range.start + PageCount(300)).unwrap();
    let touched = tails_touched(&yard, HUGE, || assert!(!late.try_get(1)));
    assert!(touched.iter().all(|(_, access)| *access == Access::Read), "{touched:?}");
    assert_eq!(whole.counts().references, 1, "a speculative reference was kept");
    yard.devices().unmap(device, Removal::Refuse).unwrap();
    let touched = tails_touched(&yard, Order(20), || assert!(!whole.try_get(1) && !late.try_get(1)));
    assert!(touched.iter().all(|(_, access)| *access == Access::Read), "{touched:?}");
}

/// Logs requests for parts of the memory map, and refuses those that `refused` names.
fn log_calls(yard: &crate::fixture::Fixture, refused: fn(MapCall) -> bool) -> Arc<Mutex<Vec<MapCall>>> {
    let calls = Arc::new(Mutex::new(Vec::new()));
    yard.watch().answer_with({
        let calls = Arc::clone(&calls);
        move |call| {
            calls.lock().unwrap().push(call);
            if refused(call) { Err(MapNotBacked) } else { Ok(()) }
        }
    });
    calls
}

fn taken(calls: &Mutex<Vec<MapCall>>) -> Vec<MapCall> {
    std::mem::take(&mut calls.lock().unwrap())
}

#[test]
fn map_memory_is_backed_and_returned() {
    let yard = yard();
    let calls = log_calls(&yard, |_| false);
    let range = frames(0, 1024);
    let device = yard.devices().map(request(range, HUGE, MapLayout::Deduplicated)).unwrap();
    // A map page holds 64 structures.
    let heads = [frames(0, 64), frames(512, 64)].map(MapCall::Back);
    assert_eq!(taken(&calls), [MapCall::Share(range, HUGE), heads[0], heads[1]]);
    yard.devices().split(range.start).unwrap();
    assert_eq!(taken(&calls), [MapCall::Back(frames(64, 448))]);
    yard.devices().join(range.start).unwrap();
    assert_eq!(taken(&calls), [MapCall::Return(frames(64, 448))]);
    yard.devices().unmap(device, Removal::Refuse).unwrap();
    assert_eq!(taken(&calls), [MapCall::Return(range)]);
    let device = yard.devices().map(request(range, HUGE, MapLayout::Folded)).unwrap();
    assert_eq!(taken(&calls), [MapCall::Back(frames(0, 2))], "two structures, one behind the other");
    yard.devices().unmap(device, Removal::Refuse).unwrap();
    let device = yard.devices().map(request(range, HUGE, MapLayout::Full)).unwrap();
    assert_eq!(taken(&calls), [MapCall::Return(range), MapCall::Back(range)]);
    yard.devices().unmap(device, Removal::Refuse).unwrap();
    yard.watch().calm();
}

#[test]
fn map_in_device_reduces_data() {
    let yard = yard();
    let calls = log_calls(&yard, |call| matches!(call, MapCall::Back(_)));
    let range = frames(0, 4 * SECTION);
    for (layout, order, taken_frames) in [
        // 64 bytes of 4096 for each frame: one in 64.
        (MapLayout::Full, Order::ZERO, 4 * SECTION / 64),
        // A page each of 256 compound pages, in whole compound pages.
        (MapLayout::Deduplicated, HUGE, 512),
        (MapLayout::Folded, HUGE, 512),
    ] {
        let request = DeviceRequest { placement: MapPlacement::Device, ..request(range, order, layout) };
        let device = yard.devices().map(request).unwrap();
        let info = yard.devices().at(range.start).unwrap();
        assert_eq!(info.data, PfnRange { start: range.start + PageCount(taken_frames), end: range.end }, "{layout}");
        assert!(yard.devices().page(range.start).is_none(), "the map's frames are no data");
        assert_eq!(yard.devices().page(info.data.start).unwrap().head(), info.data.start);
        let mut held: Vec<PfnRange> = taken(&calls)
            .into_iter()
            .filter_map(|call| match call {
                MapCall::Place(holding, bytes) => {
                    assert!(holding.count().0 * 4096 >= bytes as u64);
                    Some(holding)
                }
                _ => None,
            })
            .collect();
        held.sort_unstable_by_key(|holding| holding.start);
        assert!(held.windows(2).all(|pair| pair[0].end <= pair[1].start), "no frame holds two parts: {held:?}");
        assert!(!held.is_empty() && held[0].start == range.start && held.last().unwrap().end <= info.data.start);
        yard.validate().unwrap();
        yard.devices().unmap(device, Removal::Refuse).unwrap();
        taken(&calls);
    }
    yard.watch().calm();
}

#[test]
fn large_devices_use_several_workers() {
    let yard = yard();
    let range = frames(0, 16 * SECTION);
    for layout in MapLayout::ALL {
        for order in [Order::ZERO, HUGE] {
            let device = yard.devices().map(request(range, order, layout)).unwrap();
            yard.validate().unwrap();
            let held = yard.devices().page(Pfn(range.end.0 - 1)).unwrap();
            assert!(held.try_get(9));
            let problem = yard.devices().unmap(device, Removal::Refuse).unwrap_err();
            assert_eq!(problem, DeviceError::InUse { references: 9, pages: 1, first: held.head() });
            yard.validate().unwrap();
            // SAFETY: got above.
            unsafe { held.put(9) }.unwrap();
            yard.devices().unmap(device, Removal::Refuse).unwrap();
        }
    }
}

#[test]
fn waiting_removal_waits_for_users() {
    let yard = yard();
    let range = frames(0, 1024);
    let device = yard.devices().map(request(range, HUGE, MapLayout::Deduplicated)).unwrap();
    let page = yard.devices().page(range.start).unwrap();
    assert!(page.try_get(1));
    yard.devices().add_mapping(range.start).unwrap();
    let rounds = Arc::new(Mutex::new(0));
    std::thread::scope(|scope| {
        let waiting = Arc::new(std::sync::Barrier::new(2));
        yard.watch().spy_with({
            let (rounds, waiting) = (Arc::clone(&rounds), Arc::clone(&waiting));
            move |moment| {
                if moment == Moment::Wait {
                    let round = {
                        let mut rounds = rounds.lock().unwrap();
                        *rounds += 1;
                        *rounds
                    };
                    // In the first round the mapping goes, in the tenth the reference.
                    if round == 1 || round == 10 {
                        waiting.wait();
                        waiting.wait();
                    }
                }
            }
        });
        let remover = scope.spawn(|| yard.devices().unmap(device, Removal::Wait));
        waiting.wait();
        assert_eq!(yard.devices().add_mapping(range.start), Err(DeviceError::Busy(device)), "no new ones meanwhile");
        assert_eq!(yard.devices().split(range.start), Err(DeviceError::Busy(device)));
        yard.devices().remove_mapping(range.start).unwrap();
        waiting.wait();
        waiting.wait();
        // SAFETY: got above.
        unsafe { page.put(1) }.unwrap();
        waiting.wait();
        assert_eq!(remover.join().unwrap(), Ok(()));
    });
    yard.watch().calm();
    assert!(*rounds.lock().unwrap() >= 10);
}

#[test]
fn a_removal_waits_for_so_long_and_no_longer() {
    let yard = yard();
    let range = frames(0, 1024);
    let device = yard.devices().map(request(range, HUGE, MapLayout::Folded)).unwrap();
    let page = yard.devices().page(range.start).unwrap();
    assert!(page.try_get(1));
    let in_use = DeviceError::InUse { references: 1, pages: 1, first: range.start };
    assert_eq!(yard.devices().unmap(device, Removal::Wait), Err(in_use));
    yard.devices().add_mapping(range.start).expect("the device is as it was");
    let mapped = DeviceError::Mapped { device, mappings: 1 };
    assert_eq!(yard.devices().unmap(device, Removal::Wait), Err(mapped));
    yard.devices().remove_mapping(range.start).unwrap();
    // SAFETY: got above.
    unsafe { page.put(1) }.unwrap();
    yard.devices().unmap(device, Removal::Wait).unwrap();
}
