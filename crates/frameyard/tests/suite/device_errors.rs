//! What is wrong with a request for a device is named, and changes nothing.

use crate::devices::{HUGE, MEMORY, SECTION, SPACE, frames, kernel_yard, request, yard, yard_with};
use crate::fixture::{Fixture, MapCall, panic_if};
use frameyard::boot::MapInit;
use frameyard::devices::{DeviceError, DeviceId, DeviceRequest, MapLayout, MapPlacement, Removal};
use frameyard::page::MapContent;
use frameyard::platform::MapNotBacked;
use frameyard::{ByteSize, NodeId, Order, PageCount, Pfn, PfnRange};

/// The refusal of a request; the yard is as it was before.
#[track_caller]
fn refused(yard: &Fixture, request: DeviceRequest) -> DeviceError {
    let before: Vec<_> = yard.devices().list().collect();
    let problem = yard.devices().map(request).unwrap_err();
    assert_eq!(yard.devices().list().collect::<Vec<_>>(), before);
    yard.validate().unwrap();
    problem
}

/// The first device that a yard maps.
const FIRST: DeviceId = DeviceId::from_bits(1 << 16);

#[test]
fn misaligned_ranges_are_refused_with_nearest() {
    let yard = yard();
    let full = |range, order| request(range, order, MapLayout::Full);
    assert_eq!(refused(&yard, full(frames(512, 0), Order::ZERO)), DeviceError::Empty);
    let backwards = PfnRange { start: frames(512, 0).start, end: frames(0, 0).start };
    assert_eq!(refused(&yard, full(backwards, Order::ZERO)), DeviceError::Empty);
    let unaligned = |range, unit, nearest| DeviceError::Unaligned { range, unit: PageCount(unit), nearest };
    // Inside, where there is room.
    let range = frames(1, 1535);
    let problem = refused(&yard, full(range, Order::ZERO));
    assert_eq!(problem, unaligned(range, 512, frames(512, 1024)));
    assert!(
        problem.to_string().contains("multiples of 512 frames") && problem.to_string().contains("nearest"),
        "{problem}"
    );
    // Around, where there is not.
    let range = frames(1, 100);
    assert_eq!(refused(&yard, full(range, HUGE)), unaligned(range, 512, frames(0, 512)));
    // By the compound page.
    let range = PfnRange { start: Pfn(9 * SECTION), end: Pfn(17 * SECTION) };
    let nearest = PfnRange { start: Pfn(8 * SECTION), end: Pfn(24 * SECTION) };
    assert_eq!(refused(&yard, full(range, Order(18))), unaligned(range, 1 << 18, nearest));
    assert_eq!(yard.devices().unit(Order(18)), Order(18));
    assert_eq!(yard.devices().unit(Order(3)), HUGE);
    let huge = PfnRange { start: Pfn(u64::MAX - 5), end: Pfn(u64::MAX) };
    assert!(matches!(refused(&yard, full(huge, HUGE)), DeviceError::Unaligned { .. }));
    let too_large = DeviceError::OrderTooLarge { order: Order(19), max: Order(18) };
    assert_eq!(refused(&yard, full(frames(0, 512), Order(19))), too_large);
    assert_eq!(
        refused(&yard, full(frames(0, 512), Order(255))),
        DeviceError::OrderTooLarge { order: Order(255), max: Order(18) }
    );
}

#[test]
fn ranges_that_lie_elsewhere_are_refused() {
    let yard = yard();
    let full = |range| request(range, HUGE, MapLayout::Full);
    for range in [
        PfnRange { start: Pfn(SPACE.start.0 - 512), end: Pfn(SPACE.start.0 + 512) },
        PfnRange { start: Pfn(SPACE.end.0 - 512), end: Pfn(SPACE.end.0 + 512) },
        PfnRange { start: Pfn(0), end: Pfn(!511) },
        PfnRange { start: Pfn(1 << 40), end: Pfn((1 << 40) + 512) },
    ] {
        assert_eq!(refused(&yard, full(range)), DeviceError::OutsideDeviceSpace { range, space: SPACE }, "{range}");
    }
    let memory = MEMORY[1].0;
    for range in [memory, PfnRange { start: Pfn(memory.start.0 - 512), end: Pfn(memory.end.0 + 512) }] {
        assert_eq!(refused(&yard, full(range)), DeviceError::IsMemory { range, memory });
    }
    let beside = PfnRange { start: memory.end, end: memory.end + PageCount(512) };
    let device = yard.devices().map(full(beside)).expect("beside memory, in its section");
    yard.validate().unwrap();
    yard.devices().unmap(device, Removal::Refuse).unwrap();
    let node = NodeId(2);
    assert_eq!(refused(&yard, DeviceRequest { node, ..full(frames(0, 512)) }), DeviceError::NoSuchNode(node));
    let node = NodeId(u16::MAX);
    assert_eq!(refused(&yard, DeviceRequest { node, ..full(frames(0, 512)) }), DeviceError::NoSuchNode(node));
    let none = yard_with(MapInit::default(), None);
    let range = PfnRange { start: Pfn(2 * SECTION), end: Pfn(3 * SECTION) };
    let space = PfnRange::default();
    let problem = refused(&none, full(range));
    assert_eq!(problem, DeviceError::OutsideDeviceSpace { range, space });
    assert!(problem.to_string().contains("no frames for devices"), "{problem}");
    assert_eq!(none.devices().list().count(), 0);
    assert!(none.devices().page(range.start).is_none() && none.devices().at(range.start).is_none());
    assert_eq!(none.devices().unmap(FIRST, Removal::Refuse), Err(DeviceError::NoSuchDevice(FIRST)));
}

#[test]
fn devices_share_sections_only_with_equal_layout() {
    let yard = yard();
    let range = frames(512, 512);
    let device = yard.devices().map(request(range, HUGE, MapLayout::Deduplicated)).unwrap();
    for other in [range, frames(0, 1024), frames(512, 1024), frames(0, SECTION)] {
        let overlaps = DeviceError::Overlaps { range: other, device, with: range };
        assert_eq!(refused(&yard, request(other, HUGE, MapLayout::Full)), overlaps);
    }
    let beside = frames(1024, 512);
    let mixed = DeviceError::MixedSection { range: beside, device, order: HUGE, layout: MapLayout::Deduplicated };
    assert_eq!(refused(&yard, request(beside, Order::ZERO, MapLayout::Full)), mixed);
    let problem = refused(&yard, request(beside, HUGE, MapLayout::Folded));
    assert_eq!(problem, mixed);
    assert!(problem.to_string().contains("shares a section with device 0"), "{problem}");
    let alike = yard.devices().map(request(beside, HUGE, MapLayout::Full)).unwrap();
    let elsewhere = yard.devices().map(request(frames(SECTION, 512), HUGE, MapLayout::Folded)).unwrap();
    yard.validate().unwrap();
    [device, alike, elsewhere].into_iter().for_each(|device| yard.devices().unmap(device, Removal::Refuse).unwrap());
}

#[test]
fn a_yard_has_so_many_devices_and_no_more() {
    let yard = yard();
    let devices: Vec<DeviceId> = (0..64)
        .map(|at| yard.devices().map(request(frames(512 * at, 512), HUGE, MapLayout::Deduplicated)).unwrap())
        .collect();
    let one_more = request(frames(512 * 64, 512), HUGE, MapLayout::Deduplicated);
    assert_eq!(refused(&yard, one_more), DeviceError::TooManyDevices(64));
    yard.devices().unmap(devices[17], Removal::Refuse).unwrap();
    let number = yard.devices().map(one_more).map(DeviceId::number);
    assert_eq!(number, Ok(devices[17].number()), "it is used again");
    yard.devices().unmap(devices[0], Removal::Refuse).unwrap();
    assert_eq!(yard.devices().list().count(), 63);
}

#[test]
fn missing_map_memory_leaves_nothing_behind() {
    let yard = yard();
    let range = frames(0, 16 * SECTION);
    for layout in MapLayout::ALL {
        for order in [Order::ZERO, HUGE] {
            // Structures that are folded are few, and all in one part.
            let folded = layout == MapLayout::Folded && order == HUGE;
            let limit = range.start + PageCount(if folded { 512 } else { 8 * SECTION });
            yard.watch().answer_with(move |call| match call {
                MapCall::Back(places) if places.end > limit => Err(MapNotBacked),
                _ => Ok(()),
            });
            let problem = refused(&yard, request(range, order, layout));
            assert!(matches!(problem, DeviceError::NoMapMemory(places) if places.end > limit), "{problem}");
            yard.watch().calm();
            assert!((0..range.count().0).all(|at| yard.page_words(range.start + PageCount(at)) == [0; 8]), "{layout}");
        }
    }
    yard.watch().answer_with(|call| if matches!(call, MapCall::Share(..)) { Err(MapNotBacked) } else { Ok(()) });
    assert_eq!(refused(&yard, request(range, HUGE, MapLayout::Deduplicated)), DeviceError::NoMapMemory(range));
    let tails = frames(64, 448);
    yard.watch().answer_with(move |call| if call == MapCall::Back(tails) { Err(MapNotBacked) } else { Ok(()) });
    let device = yard.devices().map(request(range, HUGE, MapLayout::Deduplicated)).unwrap();
    assert_eq!(yard.devices().split(range.start), Err(DeviceError::NoMapMemory(tails)));
    assert_eq!(yard.devices().join(range.start), Err(DeviceError::NotSplit(range.start)));
    yard.validate().unwrap();
    yard.devices().unmap(device, Removal::Refuse).unwrap();
    yard.watch().calm();
}

#[test]
fn maps_in_devices_need_platform_support_and_room() {
    let yard = yard();
    let in_device =
        |range, order, layout| DeviceRequest { placement: MapPlacement::Device, ..request(range, order, layout) };
    let range = frames(0, 1024);
    assert_eq!(refused(&yard, in_device(range, HUGE, MapLayout::Folded)), DeviceError::NoMapInDevice(range));
    yard.watch().answer_with(|_| Ok(()));
    let small = frames(0, 512);
    let no_room = DeviceError::NoRoom { range: small, map: ByteSize::kib(32) };
    assert_eq!(refused(&yard, in_device(small, HUGE, MapLayout::Full)), no_room);
    assert_eq!(
        refused(&yard, in_device(small, HUGE, MapLayout::Folded)),
        DeviceError::NoRoom { range: small, map: ByteSize::kib(4) }
    );
    yard.watch().calm();
}

#[test]
fn kernel_content_requires_full_layout() {
    let yard = kernel_yard();
    for layout in [MapLayout::Deduplicated, MapLayout::Folded] {
        let content = MapContent::Kernel;
        let problem = refused(&yard, request(frames(0, 512), HUGE, layout));
        assert_eq!(problem, DeviceError::ContentNotZero { layout, content });
        assert!(problem.to_string().contains("take full"), "{problem}");
    }
}

#[test]
fn worker_panic_is_an_error_and_leaves_nothing_behind() {
    let yard = yard();
    let range = frames(0, 16 * SECTION);
    let last = frames(16 * SECTION - 1, 1);
    yard.watch().answer_with(move |call| match call {
        MapCall::Back(places) => {
            panic_if(places.contains(last.start));
            Ok(())
        }
        _ => Ok(()),
    });
    assert_eq!(refused(&yard, request(range, Order::ZERO, MapLayout::Full)), DeviceError::WorkerPanicked);
    yard.watch().calm();
    assert!((0..range.count().0).all(|at| yard.page_words(range.start + PageCount(at)) == [0; 8]));
}

#[test]
fn unsplittable_pages_are_refused() {
    let yard = yard();
    let [base, huge, folded] =
        [(Order::ZERO, MapLayout::Full), (HUGE, MapLayout::Deduplicated), (HUGE, MapLayout::Folded)];
    let map = |at: u64, (order, layout)| {
        let range = frames(at * SECTION, 1024);
        (yard.devices().map(request(range, order, layout)).unwrap(), range.start)
    };
    let [base, huge, folded] = [map(0, base), map(1, huge), map(2, folded)];
    let nowhere = frames(4 * SECTION, 1).start;
    for change in [fixture_split, fixture_join] {
        assert_eq!(change(&yard, nowhere), Err(DeviceError::NotDevice(nowhere)));
        assert_eq!(change(&yard, Pfn(u64::MAX)), Err(DeviceError::NotDevice(Pfn(u64::MAX))));
        assert_eq!(change(&yard, base.1), Err(DeviceError::BasePages(base.1)));
        assert_eq!(change(&yard, folded.1), Err(DeviceError::LayoutCannotSplit(folded.1)));
        let inside = huge.1 + PageCount(5);
        assert_eq!(change(&yard, inside), Err(DeviceError::NotHead { pfn: inside, head: huge.1 }));
    }
    assert_eq!(yard.devices().join(huge.1), Err(DeviceError::NotSplit(huge.1)));
    yard.devices().split(huge.1).unwrap();
    assert_eq!(yard.devices().split(huge.1), Err(DeviceError::IsSplit(huge.1)));
    // The head of a split page counts for itself alone.
    let head = yard.devices().page(huge.1).unwrap();
    assert!(head.try_get(2));
    let in_use = DeviceError::InUse { references: 2, pages: 1, first: huge.1 };
    assert_eq!(yard.devices().join(huge.1), Err(in_use));
    assert_eq!(yard.devices().unmap(huge.0, Removal::Refuse), Err(in_use));
    // SAFETY: got above.
    unsafe { head.put(2) }.unwrap();
    [base, huge, folded].into_iter().for_each(|(device, _)| yard.devices().unmap(device, Removal::Refuse).unwrap());
}

fn fixture_split(yard: &Fixture, pfn: Pfn) -> Result<(), DeviceError> {
    yard.devices().split(pfn)
}

fn fixture_join(yard: &Fixture, pfn: Pfn) -> Result<(), DeviceError> {
    yard.devices().join(pfn)
}

#[test]
fn users_of_a_device_are_counted_and_keep_it() {
    let yard = yard();
    let range = frames(0, 4096);
    let device = yard.devices().map(request(range, HUGE, MapLayout::Deduplicated)).unwrap();
    let nowhere = range.end;
    assert_eq!(yard.devices().add_mapping(nowhere), Err(DeviceError::NotDevice(nowhere)));
    assert_eq!(yard.devices().remove_mapping(nowhere), Err(DeviceError::NotDevice(nowhere)));
    assert_eq!(yard.devices().remove_mapping(range.start), Err(DeviceError::NotMapped(device)));
    yard.devices().add_mapping(range.start).unwrap();
    yard.devices().add_mapping(Pfn(range.end.0 - 1)).unwrap();
    assert_eq!(yard.devices().at(range.start).unwrap().mappings, 2);
    assert_eq!(yard.devices().unmap(device, Removal::Refuse), Err(DeviceError::Mapped { device, mappings: 2 }));
    (0..2).for_each(|_| yard.devices().remove_mapping(range.start).unwrap());
    let pages = [3, 1, 6].map(|page| yard.devices().page(range.start + PageCount(512 * page + 9)).unwrap());
    assert!(pages.iter().all(|page| page.try_get(4)));
    let in_use = DeviceError::InUse { references: 12, pages: 3, first: pages[1].head() };
    assert_eq!(yard.devices().unmap(device, Removal::Refuse), Err(in_use));
    assert!(in_use.to_string().starts_with("12 references to 3 pages"), "{in_use}");
    for page in pages {
        // SAFETY: got above; the second one is refused.
        unsafe {
            assert!(page.put(5).is_err(), "the device's own stays");
            assert_eq!(page.put(4), Ok(1));
            let underflow = page.put(1).unwrap_err();
            assert_eq!((underflow.pfn, underflow.counts.references), (page.head(), 1));
        }
    }
    let page = pages[0];
    // As of any counted page; one is the device's own.
    let most = i32::MAX as u32 - 1;
    assert!(!page.try_get(most + 1) && !page.try_get(u32::MAX), "more than there can be");
    assert_eq!(page.counts().references, 1, "a refused request changed the counts");
    assert!(page.try_get(most) && !page.try_get(1), "as many as there can be");
    // SAFETY: got above.
    unsafe { page.put(most) }.unwrap();
    yard.devices().unmap(device, Removal::Refuse).unwrap();
    for removal in Removal::ALL {
        assert_eq!(yard.devices().unmap(device, removal), Err(DeviceError::NoSuchDevice(device)));
        let beyond = DeviceId::from_bits(64 | 1 << 16);
        assert_eq!(yard.devices().unmap(beyond, removal), Err(DeviceError::NoSuchDevice(beyond)));
    }
}

#[test]
fn a_stale_identity_names_no_later_device() {
    let yard = yard();
    let [here, there] = [frames(0, 1024), frames(1024, 1024)];
    let removed = yard.devices().map(request(here, HUGE, MapLayout::Full)).unwrap();
    yard.devices().unmap(removed, Removal::Refuse).unwrap();
    let later = yard.devices().map(request(there, HUGE, MapLayout::Full)).unwrap();
    assert_eq!((later.number(), removed.number()), (0, 0), "the row is reused");
    assert_ne!(later, removed);
    assert_eq!(DeviceId::from_bits(later.bits()), later);
    assert_eq!(yard.devices().unmap(removed, Removal::Refuse), Err(DeviceError::NoSuchDevice(removed)));
    assert!(yard.devices().page(there.start).is_some(), "the later device stays");
    yard.devices().unmap(later, Removal::Refuse).unwrap();
}

#[test]
fn a_device_that_is_being_mapped_is_busy() {
    let yard = yard();
    let range = frames(0, 1024);
    let view = yard.attach();
    let (asked, answered) = std::sync::mpsc::channel();
    yard.watch().answer_with(move |call| {
        if matches!(call, MapCall::Back(_)) {
            asked
                .send((
                    view.devices().unmap(FIRST, Removal::Refuse),
                    view.devices().add_mapping(range.start),
                    view.devices().page(range.start).is_some(),
                    view.devices().list().count(),
                    view.devices().map(request(range, HUGE, MapLayout::Full)),
                ))
                .unwrap();
        }
        Ok(())
    });
    let device = yard.devices().map(request(range, HUGE, MapLayout::Folded)).unwrap();
    yard.watch().calm();
    let busy = DeviceError::Busy(device);
    let overlaps = DeviceError::Overlaps { range, device, with: range };
    assert_eq!(answered.recv().unwrap(), (Err(busy), Err(busy), false, 0, Err(overlaps)));
    yard.devices().unmap(device, Removal::Refuse).unwrap();
}
