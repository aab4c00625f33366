use frameyard::platform::MemoryBacking;
use std::sync::atomic::Ordering;

use frameyard::NodeId;

use super::*;
use crate::device::{DeviceAlignment, DeviceBacking, DeviceMemory};
use crate::mapped::yard::test_window;
use crate::memory::{HostMemory, NodeFrames};
use crate::platform::HostPlatform;
use crate::region::Region;
use crate::topology::HostTopology;

fn frames(start: u64, end: u64) -> PfnRange {
    PfnRange { start: Pfn(start), end: Pfn(end) }
}

/// A map of 128 MiB: 8 GiB of frames, of which the last 7 GiB are for devices; 4 MiB of memory.
struct Fixture {
    // Dropped in this order.
    platform: HostPlatform,
    region: Region,
}

const SPACE: PfnRange = PfnRange { start: Pfn(0x4_0000), end: Pfn(0x20_0000) };

impl Fixture {
    fn new(dense: HugePages) -> Self {
        let host = HostTopology::current().unwrap();
        let memory = [NodeFrames { range: frames(0, 1024), node: NodeId(0) }];
        let memory = HostMemory::builder(frameyard::Geometry::X86_64, &memory).build(&host).unwrap();
        let region = Region::zeroed(ByteSize::mib(128), HugePages::Default).unwrap();
        let part = DevicePart::of(SPACE, ByteSize(64 * SPACE.start.0)).unwrap();
        let map = DeviceMap::private(test_window(&region, part.piece), part, Fresh::No, dense).unwrap();
        Self { platform: HostPlatform::new(memory, &host).with_device_map(Some(map)), region }
    }

    fn structure(&self, pfn: u64) -> NonNull<u8> {
        self.region.base().map_addr(|base| base.checked_add(pfn as usize * 64).unwrap())
    }

    fn word(&self, pfn: u64) -> &std::sync::atomic::AtomicU64 {
        &self.region.atomics()[pfn as usize * 8]
    }

    fn memory_use(&self, range: PfnRange) -> crate::memory_use::MemoryUse {
        self.region.memory_use(ByteSize(range.start.0 * 64), ByteSize(range.count().0 * 64)).unwrap()
    }

    fn back(&self, range: PfnRange) {
        let bytes = range.count().0 as usize * 64;
        self.platform.back_map(range, self.structure(range.start.0), bytes).unwrap();
    }

    fn release(&self, range: PfnRange) {
        self.platform.return_map(range, self.structure(range.start.0), range.count().0 as usize * 64);
    }

    /// 1 GiB pages.
    fn share(&self, range: PfnRange) {
        let bytes = range.count().0 as usize * 64;
        self.platform.share_tails(range, frameyard::Order(18), self.structure(range.start.0), bytes).unwrap();
    }

    fn device(&self, range: PfnRange, backing: DeviceBacking) -> std::sync::Arc<DeviceMemory> {
        let size = ByteSize(range.count().0 << 12);
        let device = DeviceMemory::builder(size, DeviceAlignment::Huge).backing(backing);
        let device = std::sync::Arc::new(device.build(self.platform.host()).unwrap());
        self.platform.add_device(range, std::sync::Arc::clone(&device)).unwrap();
        device
    }
}

#[test]
fn heads_take_a_page_each_and_tails_none_even_after_a_read() {
    let fixture = Fixture::new(HugePages::Advise);
    let range = frames(0x4_0000, 0x14_0000);
    fixture.share(range);
    for head in (range.start.0..range.end.0).step_by(1 << 18) {
        fixture.back(frames(head, head + 64));
        fixture.word(head).store(1, Ordering::Relaxed);
    }
    let sum: u64 = (range.start.0..range.end.0).map(|pfn| fixture.word(pfn).load(Ordering::Relaxed)).sum();
    let found = fixture.memory_use(range);
    assert_eq!((sum, found.proportional, found.mappings), (4, ByteSize(4 * host_page_size() as u64), 1));
    fixture.release(range);
    assert_eq!(fixture.memory_use(range).resident, ByteSize(0));
    assert_eq!(fixture.word(range.start.0).load(Ordering::Relaxed), 0);
}

#[test]
fn dense_parts_are_populated_before_a_write_and_freed_as_a_whole() {
    for dense in [HugePages::Advise, HugePages::Never] {
        let fixture = Fixture::new(dense);
        for _ in 0..5 {
            // 4 MiB of structures that start and end inside huge pages.
            let range = frames(0x4_4000, 0x5_4000);
            fixture.back(range);
            let found = fixture.memory_use(range);
            assert_eq!(found.resident, ByteSize::mib(4));
            if dense == HugePages::Never {
                assert_eq!(found.huge, ByteSize(0));
            }
            // The neighbours have no memory.
            assert_eq!(fixture.memory_use(SPACE).resident, ByteSize::mib(4));
            fixture.word(0x4_5000).store(7, Ordering::Relaxed);
            fixture.release(range);
            assert_eq!(fixture.word(0x4_5000).load(Ordering::Relaxed), 0);
            let left = fixture.memory_use(SPACE);
            assert_eq!(left.resident, ByteSize(0));
            // Mappings that once differed may stay separate, but their number is bounded.
            assert!(left.mappings <= 3, "{left:?}");
        }
    }
}

#[test]
fn joining_a_page_frees_its_tails_and_keeps_its_head() {
    let fixture = Fixture::new(HugePages::Advise);
    let range = frames(0x4_0000, 0x8_0000);
    fixture.share(range);
    fixture.word(range.start.0).store(1, Ordering::Relaxed);
    let tails = frames(range.start.0 + 64, range.end.0);
    fixture.back(tails);
    fixture.word(tails.start.0).store(2, Ordering::Relaxed);
    assert_eq!(fixture.memory_use(range).resident, ByteSize::mib(16));
    fixture.release(tails);
    assert_eq!(fixture.memory_use(range).resident, ByteSize(host_page_size() as u64));
    assert_eq!(fixture.word(range.start.0).load(Ordering::Relaxed), 1);
    assert_eq!(fixture.word(tails.start.0).load(Ordering::Relaxed), 0);
}

#[test]
fn a_device_holds_its_own_page_structures_until_they_are_freed() {
    let fixture = Fixture::new(HugePages::Advise);
    let range = frames(0x4_0000, 0x4_0400);
    let device = fixture.device(range, DeviceBacking::Memfd);
    // The earlier contents are no page structures.
    let bytes = device.file().unwrap();
    std::os::unix::fs::FileExt::write_all_at(bytes, &[9; 8192], 4096).unwrap();
    let place = |holding| fixture.platform.place_map(holding, fixture.structure(range.start.0), 0x400 * 64);
    place(frames(0x4_0001, 0x4_0011)).unwrap();
    assert_eq!(fixture.word(range.start.0).load(Ordering::Relaxed), 0);
    fixture.word(range.start.0 + 64).store(0x1234, Ordering::Relaxed);
    let mut found = [0; 8];
    std::os::unix::fs::FileExt::read_exact_at(bytes, &mut found, 2 * 4096).unwrap();
    assert_eq!(u64::from_le_bytes(found), 0x1234);
    fixture.release(range);
    assert_eq!(fixture.word(range.start.0 + 64).load(Ordering::Relaxed), 0);
    fixture.word(range.start.0 + 64).store(1, Ordering::Relaxed);
    std::os::unix::fs::FileExt::read_exact_at(bytes, &mut found, 2 * 4096).unwrap();
    assert_eq!(u64::from_le_bytes(found), 0x1234);
    assert_eq!(fixture.memory_use(SPACE).mappings, 1);
}

#[test]
fn structures_are_placed_only_in_devices_with_bytes() {
    let fixture = Fixture::new(HugePages::Advise);
    let range = frames(0x4_0000, 0x4_0400);
    let place = |holding, bytes| fixture.platform.place_map(holding, fixture.structure(range.start.0), bytes);
    let problem = || fixture.platform.take_map_problem().unwrap();
    place(frames(0x4_0000, 0x4_0010), 65536).unwrap_err();
    assert!(matches!(problem(), DeviceMapProblem::NoDevice));
    fixture.device(range, DeviceBacking::Phantom);
    place(frames(0x4_0000, 0x4_0010), 65536).unwrap_err();
    assert!(matches!(problem(), DeviceMapProblem::NoDevice));
    fixture.device(frames(0x4_0400, 0x4_0800), DeviceBacking::Memfd);
    place(frames(0x4_07f8, 0x4_0808), 65536).unwrap_err();
    assert!(matches!(problem(), DeviceMapProblem::NoDevice));
    fixture.platform.place_map(frames(0x4_0400, 0x4_0401), fixture.structure(range.start.0 + 1), 64).unwrap_err();
    assert!(matches!(problem(), DeviceMapProblem::NotWholePages { size: ByteSize(64) }));
    assert!(fixture.platform.take_map_problem().is_none());
    place(frames(0x4_0400, 0x4_0410), 65472).unwrap();
}

#[test]
fn other_page_structures_and_addresses_are_left_alone() {
    let fixture = Fixture::new(HugePages::Advise);
    fixture.word(5).store(5, Ordering::Relaxed);
    fixture.release(frames(0, 1024));
    let outside = NonNull::from(&fixture).cast::<u8>();
    fixture.platform.return_map(frames(0, 64), outside, 4096);
    fixture.platform.return_map(frames(0, 64), fixture.structure(0x20_0000 - 64), 8192);
    assert!(fixture.platform.place_map(frames(0, 64), outside, 4096).is_err());
    assert_eq!(fixture.word(5).load(Ordering::Relaxed), 5);
}
