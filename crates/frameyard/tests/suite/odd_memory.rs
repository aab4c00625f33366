//! Yards on memory with awkward borders.

use crate::fixture::{Fixture, Frames, HeapRegion, order};
use frameyard::boot::{BootError, ZoneLimits};
use frameyard::watermarks::WatermarkOptions;
use frameyard::{
    ByteSize, Geometry, Gfp, Layout, MemoryTable, NodeId, Order, PageCount, Pfn, PfnRange, Yard, YardConfig,
};

fn frames(start: u64, count: u64) -> PfnRange {
    PfnRange::new(Pfn(start), PageCount(count))
}

#[test]
fn adjacent_ranges_of_a_zone_join() {
    let memory = [(frames(0x1000, 0x123), NodeId(0)), (frames(0x1123, 0xedd), NodeId(0))];
    let cpus = [NodeId(0)];
    let config = YardConfig { zone_limits: ZoneLimits::NONE, ..YardConfig::new(&cpus) };
    let yard = Fixture::new(&MemoryTable { memory: &memory, ..MemoryTable::default() }, &config, Frames::Phantom);
    assert_eq!(yard.memory_ranges().map(|(range, _)| range).collect::<Vec<_>>(), [frames(0x1000, 0x1000)]);
    let across = yard.request(frames(0x1100, 0x40), Gfp::KERNEL).range().unwrap();
    yard.free_range(across).unwrap();
}

#[test]
fn a_pageblock_that_zones_share_keeps_its_type() {
    let geometry = Geometry::new(ByteSize::kib(4), ByteSize::mib(2), Order(6), Order(8)).unwrap();
    // Node 0 reaches over both ends of node 1, within one pageblock.
    let memory =
        [(frames(0x1000, 0x20), NodeId(0)), (frames(0x1020, 0x10), NodeId(1)), (frames(0x1030, 0x10), NodeId(0))];
    let cpus = [NodeId(0), NodeId(1)];
    let watermarks = WatermarkOptions { min_free_kbytes: Some(0), ..WatermarkOptions::default() };
    let config = YardConfig { geometry, zone_limits: ZoneLimits::NONE, watermarks, ..YardConfig::new(&cpus) };
    let yard = Fixture::new(&MemoryTable { memory: &memory, ..MemoryTable::default() }, &config, Frames::Phantom);
    crate::fixture::run_on(0);
    let unmovable = yard.alloc(order(4), Gfp::KERNEL | Gfp::THISNODE).unwrap();
    yard.validate().unwrap();
    yard.free(unmovable, order(4)).unwrap();
}

#[test]
fn maximum_order_blocks_drain_at_map_ends() {
    let geometry = Geometry::new(ByteSize::kib(4), ByteSize::mib(4), Order(10), Order(10)).unwrap();
    // Three blocks: the first and the last have no buddy in the map.
    let memory = [(frames(0x1400, 0xc00), NodeId(0))];
    let cpus = [NodeId(0)];
    let watermarks = WatermarkOptions { min_free_kbytes: Some(0), ..WatermarkOptions::default() };
    let config = YardConfig { geometry, zone_limits: ZoneLimits::NONE, watermarks, ..YardConfig::new(&cpus) };
    let yard = Fixture::new(&MemoryTable { memory: &memory, ..MemoryTable::default() }, &config, Frames::Phantom);
    let blocks: Vec<Pfn> = std::iter::from_fn(|| yard.alloc(order(10), Gfp::KERNEL).ok()).collect();
    assert!(blocks.contains(&Pfn(0x1400)));
    for pfn in blocks {
        yard.free(pfn, order(10)).unwrap();
    }
    yard.drain_all();
}

#[test]
fn unordered_ranges_are_refused() {
    let memory = [(frames(0x1000, 0x1000), NodeId(0))];
    let cpus = [NodeId(0)];
    let config = YardConfig { zone_limits: ZoneLimits::NONE, ..YardConfig::new(&cpus) };
    let reserved = [frames(0x1800, 8), frames(0x1100, 8)];
    let table = MemoryTable { memory: &memory, reserved: &reserved, cma: &[] };
    let refused = Layout::plan(&table, &config).unwrap_err();
    assert_eq!(refused, BootError::UnorderedReserved(reserved[0], reserved[1]));

    let cma = [frames(0x1800, 0x400), frames(0x1800, 0x400)];
    let table = MemoryTable { memory: &memory, reserved: &[], cma: &cma };
    let layout = Layout::plan(&table, &config).unwrap();
    let (map, control) = (HeapRegion::new(layout.map_bytes()), HeapRegion::new(layout.control_bytes()));
    let platform = Fixture::small(1, 0x1000).platform().clone();
    // SAFETY: the regions are fresh, zeroed and as large as planned.
    let refused = unsafe { Yard::create(&table, &config, &layout, map.raw(), control.raw(), platform) }.unwrap_err();
    assert_eq!(refused, BootError::BadCma(cma[1]));
}

#[test]
fn memory_of_more_frames_than_links_can_name_is_refused() {
    let cpus = [NodeId(0)];
    let plan = |memory: &[(PfnRange, NodeId)]| {
        let config = YardConfig { zone_limits: ZoneLimits::NONE, ..YardConfig::new(&cpus) };
        Layout::plan(&MemoryTable { memory, ..MemoryTable::default() }, &config).map(|layout| layout.frames())
    };
    let section = Geometry::X86_64.section_pages().0;
    let most = (1 << 32) - section;
    assert_eq!(plan(&[(frames(0, most), NodeId(0))]), Ok(frames(0, most)));
    // Frames 0 and 2^32 would share a link.
    for count in [(1 << 32) - 1, 1 << 32, (1 << 32) + 1, u64::MAX] {
        let refused = plan(&[(frames(0, count), NodeId(0))]).unwrap_err();
        assert_eq!(refused, BootError::TooMuchMemory(PageCount(count)));
        assert!(refused.to_string().contains("a yard has at most 2^32 - 2 frames, 16 TiB of 4 KiB each"), "{refused}");
    }
    let halves = [(frames(0, 1 << 31), NodeId(0)), (frames(1 << 40, 1 << 31), NodeId(0))];
    assert_eq!(plan(&halves), Err(BootError::TooMuchMemory(PageCount(1 << 32))));
    // Rounded up to whole sections, the last of these would be too many.
    assert_eq!(plan(&[(frames(1, most), NodeId(0))]), Err(BootError::TooMuchMemory(PageCount(1 << 32))));
    let apart = [(frames(0, 1 << 31), NodeId(0)), (frames((1 << 40) + 1, (1 << 31) - section), NodeId(0))];
    assert_eq!(plan(&apart), Err(BootError::TooMuchMemory(PageCount(1 << 32))));
    // Holes do not count: as much memory as links can name, in two halves.
    let halves = [(frames(0, 1 << 31), NodeId(0)), (frames(1 << 50, (1 << 31) - section), NodeId(0))];
    assert_eq!(plan(&halves), Ok(frames(0, (1 << 50) + (1 << 31) - section)));
    // Room for devices counts.
    let device_space = Some(frames(1 << 40, most));
    let config = YardConfig { zone_limits: ZoneLimits::NONE, device_space, ..YardConfig::new(&cpus) };
    let memory = [(frames(0, 1), NodeId(0))];
    let refused = Layout::plan(&MemoryTable { memory: &memory, ..MemoryTable::default() }, &config).unwrap_err();
    assert_eq!(refused, BootError::TooMuchMemory(PageCount(1 << 32)));
}
