//! Page maps of devices: what is mapped can be looked up, used and removed, in every layout.

mod fixture;

use fixture::{Fixture, Frames};
use frameyard::{
    DeviceError, DeviceRequest, FrameState, MapLayout, MapPlacement, MemoryTable, NodeId, Order, PageCount, Pfn,
    PfnRange, Removal, YardConfig, ZoneLimits,
};

const SECTION: u64 = 32 << 10;
/// Where devices may be: behind 16 MiB of memory, from the next section on.
const SPACE: PfnRange = PfnRange { start: Pfn(SECTION), end: Pfn(9 * SECTION) };
const HUGE: Order = Order(9);

fn yard() -> Fixture {
    let memory = [(PfnRange::new(Pfn(0x1000), PageCount(4096)), NodeId(0))];
    let cpus = [NodeId(0); 2];
    let config = YardConfig { zone_limits: ZoneLimits::NONE, device_space: Some(SPACE), ..YardConfig::new(&cpus) };
    Fixture::new(&MemoryTable { memory: &memory, ..MemoryTable::default() }, &config, Frames::Phantom)
}

fn frames(first: u64, count: u64) -> PfnRange {
    PfnRange::new(SPACE.start + PageCount(first), PageCount(count))
}

fn request(range: PfnRange, order: Order, layout: MapLayout) -> DeviceRequest {
    DeviceRequest { range, node: NodeId(0), order, layout, placement: MapPlacement::Memory }
}

#[test]
fn every_frame_of_a_device_leads_to_the_head_of_its_page() {
    let yard = yard();
    for layout in MapLayout::ALL {
        for order in [Order::ZERO, HUGE] {
            let range = frames(512, 3 * SECTION);
            let device = yard.map_device(request(range, order, layout)).unwrap();
            yard.validate().unwrap();
            for pfn in (range.start.0..range.end.0).step_by(37).map(Pfn) {
                let page = yard.device_page(pfn).unwrap();
                assert_eq!((page.head(), page.order()), (pfn.align_down(order), order), "{layout}");
                assert_eq!(page.counts().references, 1);
                assert!(page.tag().is(FrameState::Device));
                assert!(page.try_get(3));
                assert_eq!(page.counts().references, 4);
                // SAFETY: got above.
                assert_eq!(unsafe { page.put(3) }, Ok(1));
            }
            for pfn in [Pfn(range.start.0 - 1), range.end, Pfn(0), Pfn(u64::MAX)] {
                assert!(yard.device_page(pfn).is_none(), "{pfn}");
            }
            yard.unmap_device(device, Removal::Refuse).unwrap();
            assert!(yard.device_page(range.start).is_none());
            assert!((0..range.count().0).all(|at| yard.page_words(range.start + PageCount(at)) == [0; 8]));
            yard.validate().unwrap();
        }
    }
}

#[test]
fn a_device_in_use_is_not_removed() {
    let yard = yard();
    let device = yard.map_device(request(frames(0, 4096), HUGE, MapLayout::SharedTails)).unwrap();
    let page = yard.device_page(frames(700, 1).start).unwrap();
    assert!(page.try_get(7));
    let in_use = DeviceError::InUse { references: 7, pages: 1, first: frames(512, 1).start };
    assert_eq!(yard.unmap_device(device, Removal::Refuse), Err(in_use));
    // SAFETY: got above.
    unsafe { page.put(7) }.unwrap();
    assert_eq!(yard.unmap_device(device, Removal::Refuse), Ok(()));
    assert_eq!(yard.unmap_device(device, Removal::Refuse), Err(DeviceError::NoSuchDevice(device)));
}

#[test]
fn a_split_page_is_counted_frame_by_frame_until_it_is_joined() {
    let yard = yard();
    for layout in [MapLayout::Full, MapLayout::SharedTails] {
        let device = yard.map_device(request(frames(0, 4096), HUGE, layout)).unwrap();
        let head = frames(512, 1).start;
        yard.split_device_page(head).unwrap();
        let part = yard.device_page(head + PageCount(99)).unwrap();
        assert_eq!((part.head(), part.order()), (head + PageCount(99), Order::ZERO));
        assert!(part.try_get(1));
        let in_use = DeviceError::InUse { references: 1, pages: 1, first: part.head() };
        assert_eq!(yard.join_device_page(head), Err(in_use));
        assert_eq!(yard.unmap_device(device, Removal::Refuse), Err(in_use));
        // SAFETY: got above.
        unsafe { part.put(1) }.unwrap();
        yard.join_device_page(head).unwrap();
        assert!(!part.try_get(1), "it is a tail now");
        assert_eq!(yard.page_words(part.head()), [0; 8]);
        assert_eq!(yard.device_page(part.head()).unwrap().head(), head);
        yard.split_device_page(head).unwrap();
        yard.unmap_device(device, Removal::Refuse).unwrap();
    }
}
