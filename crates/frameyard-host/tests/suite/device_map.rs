//! Devices in a private yard: the host memory behind their page structures, and their bytes.

use std::sync::Arc;

use frameyard::devices::{DeviceError, DeviceRequest, MapLayout, MapPlacement, Removal};
use frameyard::{ByteSize, MemoryTable, NodeId, Order, PageCount, Pfn, PfnRange, Platform, YardConfig};
use frameyard_host::{
    AddDeviceError, Backing, DeviceAlignment, DeviceBacking, DeviceMapProblem, DeviceMemory, HostDeviceError,
    HostTopology, HostYard, HostYardError, HugePages, MemoryUse, Region, page_table_bytes,
};

/// 64 MiB from 4 GiB on.
const MEMORY: [(PfnRange, NodeId); 1] = [(PfnRange { start: Pfn(0x10_0000), end: Pfn(0x10_4000) }, NodeId(0))];
/// 65 GiB from 8 GiB on. Their page structures take 1 GiB of addresses.
const SPACE: PfnRange = PfnRange { start: Pfn(0x20_0000), end: Pfn(0x20_0000 + (65 << 18)) };

fn yard(backing: Backing) -> HostYard {
    yard_for_devices(backing, SPACE)
}

fn yard_for_devices(backing: Backing, space: PfnRange) -> HostYard {
    let config = YardConfig { device_space: Some(space), ..YardConfig::new(&[NodeId(0); 2]) };
    let memory = MemoryTable { memory: &MEMORY, ..MemoryTable::default() };
    HostYard::builder().backing(backing).machine(&memory, &config).build().unwrap()
}

fn request(gib: u64, order: Order, layout: MapLayout) -> DeviceRequest {
    let range = PfnRange::new(SPACE.start, PageCount(gib << 18));
    DeviceRequest { range, node: NodeId(0), order, layout, placement: MapPlacement::Memory }
}

/// The cost of the page structures of a range.
fn map_use(yard: &HostYard, range: PfnRange) -> MemoryUse {
    let offset = yard.core().map_offset(range.start).unwrap();
    yard.map_region().memory_use(offset, ByteSize(range.count().0 * 64)).unwrap()
}

/// Looks up frames of a range in steps.
fn read_all(yard: &HostYard, range: PfnRange, step: usize) {
    for pfn in (range.start.0..range.end.0).step_by(step).map(Pfn) {
        assert!(yard.devices().page(pfn).is_some(), "{pfn} is a device's");
    }
}

#[test]
fn a_tebibyte_in_gigantic_pages_takes_a_page_each_or_a_few_in_all() {
    if crate::test_addresses::are_too_few(ByteSize::gib(17)) {
        return;
    }
    let yard = yard_for_devices(Backing::Anonymous, PfnRange::new(SPACE.start, PageCount(1025 << 18)));
    for (layout, most) in [
        (MapLayout::Deduplicated, ByteSize::kib(4 << 10 | 200)),
        (MapLayout::DeduplicatedTwo, ByteSize::kib(8 << 10 | 200)),
        (MapLayout::Folded, ByteSize::kib(65)),
    ] {
        let asked = request(1024, Order(18), layout);
        let id = yard.map_device(asked).unwrap();
        read_all(&yard, asked.range, 1 << 12);
        let found = map_use(&yard, asked.range);
        assert!(found.proportional > ByteSize(0) && found.proportional <= most, "{layout}: {found:?}");
        assert!(found.mappings <= 3, "{layout}: {found:?}");
        yard.devices().unmap(id, Removal::Refuse).unwrap();
        assert_eq!(map_use(&yard, asked.range).proportional, ByteSize(0), "{layout}");
    }
    yard.validate().unwrap();
}

#[test]
fn reading_every_tail_takes_page_tables_and_no_memory() {
    if !crate::own_process::is_own_process(module_path!(), "reading_every_tail_takes_page_tables_and_no_memory") {
        return;
    }
    let yard = yard(Backing::Phantom);
    let asked = request(64, Order(18), MapLayout::Deduplicated);
    yard.map_device(asked).unwrap();
    let before = page_table_bytes().unwrap();
    let words = yard.core().map_offset(asked.range.start).unwrap().0 as usize / 8..;
    // SAFETY: the words are only read, as atomics.
    let words = &unsafe { yard.map_region().words() }[words][..asked.range.count().0 as usize * 8];
    let heads = words.iter().step_by(64).filter(|word| word.load(std::sync::atomic::Ordering::Relaxed) != 0).count();
    assert_eq!(heads, 64);
    assert_eq!(map_use(&yard, asked.range).proportional, ByteSize(64 * 4096));
    // An entry of 8 bytes for each 4 KiB of 1 GiB.
    assert!(page_table_bytes().unwrap() > before, "page tables grow");
}

#[test]
fn splitting_a_page_allocates_its_tails_and_joining_frees_them() {
    let yard = yard(Backing::Phantom);
    for (layout, kept) in [(MapLayout::Deduplicated, 1), (MapLayout::DeduplicatedTwo, 2)] {
        let asked = request(4, Order(18), layout);
        let id = yard.map_device(asked).unwrap();
        let second = SPACE.start + PageCount(1 << 18);
        let page = |count: u64| ByteSize(count * 4096);
        assert_eq!(map_use(&yard, asked.range).proportional, page(4 * kept));
        yard.split_device_page(second).unwrap();
        assert_eq!(map_use(&yard, asked.range).proportional, page(3 * kept + 4096));
        assert_eq!(yard.devices().page(second + PageCount(77)).unwrap().head(), second + PageCount(77));
        yard.devices().join(second).unwrap();
        assert_eq!(map_use(&yard, asked.range).proportional, page(4 * kept));
        let error = yard.split_device_page(second + PageCount(1)).unwrap_err();
        assert!(matches!(error, HostDeviceError::Yard(DeviceError::NotHead { .. })), "{error}");
        yard.validate().unwrap();
        yard.devices().unmap(id, Removal::Refuse).unwrap();
    }
}

#[test]
fn a_device_can_be_removed_only_while_it_is_not_mapped() {
    let yard = yard(Backing::Anonymous);
    let asked = DeviceRequest {
        range: PfnRange::new(SPACE.start, PageCount(2048)),
        order: Order(9),
        ..request(1, Order(9), MapLayout::Full)
    };
    let device = DeviceMemory::builder(ByteSize::mib(8), DeviceAlignment::Huge).build(yard.platform().host()).unwrap();
    let device = Arc::new(device);
    yard.platform().add_device(asked.range, Arc::clone(&device)).unwrap();
    let id = yard.map_device(asked).unwrap();
    assert_eq!(yard.platform().frame_bytes(asked.range.start), device.base());
    let refused = yard.remove_device(asked.range).unwrap_err();
    assert_eq!(refused, AddDeviceError::Mapped { range: asked.range });
    assert_eq!(yard.platform().frame_bytes(asked.range.start), device.base());
    yard.devices().unmap(id, Removal::Refuse).unwrap();
    yard.remove_device(asked.range).unwrap();
    assert_eq!(yard.platform().frame_bytes(asked.range.start), None);
}

#[test]
fn a_new_yard_has_the_devices_of_its_builder() {
    let host = HostTopology::current().unwrap();
    let config = YardConfig { device_space: Some(SPACE), ..YardConfig::new(&[NodeId(0); 2]) };
    let memory = MemoryTable { memory: &MEMORY, ..MemoryTable::default() };
    let device = Arc::new(DeviceMemory::builder(ByteSize::mib(2), DeviceAlignment::Huge).build(&host).unwrap());
    let builder = |start| HostYard::builder().device(PfnRange::new(start, PageCount(512)), Arc::clone(&device));
    let yard = builder(SPACE.start).machine(&memory, &config).host(&host).build().unwrap();
    assert_eq!(yard.platform().frame_bytes(SPACE.start), device.base());
    let error = builder(MEMORY[0].0.start).machine(&memory, &config).host(&host).build().unwrap_err();
    assert!(matches!(error, HostYardError::AddDevice(AddDeviceError::Taken { .. })), "{error}");
}

#[test]
fn a_written_map_region_is_zeroed_where_devices_are() {
    let space = PfnRange::new(SPACE.start, PageCount(1 << 18));
    let mut config = YardConfig { device_space: Some(space), ..YardConfig::new(&[NodeId(0); 2]) };
    config.map_init.initialiser = frameyard::boot::Initialiser::Stream;
    let memory = MemoryTable { memory: &MEMORY, ..MemoryTable::default() };
    let size = frameyard::Layout::plan(&memory, &config).unwrap().map_bytes();
    let mut region = Region::zeroed(size, HugePages::Never).unwrap();
    region.bytes_mut().unwrap().fill(0xa5);
    let yard = HostYard::builder().map_region(region).machine(&memory, &config).build().unwrap();
    assert_eq!(map_use(&yard, space).proportional, ByteSize(0));
    let id = yard.map_device(request(1, Order(9), MapLayout::Deduplicated)).unwrap();
    yard.split_device_page(space.start).unwrap();
    yard.validate().unwrap();
    yard.devices().join(space.start).unwrap();
    yard.devices().unmap(id, Removal::Refuse).unwrap();
}

#[test]
fn page_structures_in_the_device_take_no_memory_of_the_yard() {
    let yard = yard(Backing::Anonymous);
    let range = PfnRange::new(SPACE.start, PageCount(2 << 18));
    for layout in MapLayout::ALL {
        let asked = DeviceRequest { placement: MapPlacement::Device, ..request(2, Order(9), layout) };
        let none = yard.map_device(asked).unwrap_err();
        assert!(matches!(none, HostDeviceError::Map { problem: DeviceMapProblem::NoDevice, .. }), "{none}");
        let device = DeviceMemory::builder(ByteSize::gib(2), DeviceAlignment::Huge).backing(DeviceBacking::Memfd);
        let device = Arc::new(device.build(yard.platform().host()).unwrap());
        yard.platform().add_device(range, Arc::clone(&device)).unwrap();
        let id = yard.map_device(asked).unwrap();
        let info = yard.devices().list().next().unwrap();
        read_all(&yard, info.data, 512);
        assert!(device.resident().unwrap() >= info.map_bytes, "{layout}: {} {info:?}", device.resident().unwrap());
        assert_eq!((yard.stats().free_pages(), info.data.start > range.start), (PageCount(0x4000), true));
        yard.validate().unwrap();
        yard.devices().unmap(id, Removal::Refuse).unwrap();
        assert_eq!(map_use(&yard, range).proportional, ByteSize(0), "{layout}");
        yard.remove_device(range).unwrap();
    }
}
