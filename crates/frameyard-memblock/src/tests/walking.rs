use super::*;

fn free(map: &Map) -> Vec<Region> {
    map.free_ranges(NodeFilter::Any, RegionFlags::NONE).collect()
}

#[test]
fn free_ranges_are_memory_less_reservations_within_each_region() {
    let mut map = two_nodes();
    for (start, size) in [(0, 17), (20, 1), (30, 4), (62, 10)] {
        map.reserve(at(start), mib(size)).unwrap();
    }
    let expected = [of_node(17, 20, N0), of_node(21, 30, N0), of_node(34, 62, N1)];
    assert_eq!(free(&map), expected);
    assert!(map.free_ranges(NodeFilter::Any, RegionFlags::NONE).rev().eq(expected.into_iter().rev()));
    let of_one = map.free_ranges(NodeFilter::Only(NodeId(1)), RegionFlags::NONE);
    assert!(of_one.eq([of_node(34, 62, N1)]));
}

#[test]
fn free_ranges_are_met_once_from_both_ends() {
    let mut map = two_nodes();
    map.reserve(at(20), mib(2)).unwrap();
    map.reserve(at(40), mib(2)).unwrap();
    let mut ranges = map.free_ranges(NodeFilter::Any, RegionFlags::NONE);
    assert_eq!(ranges.next(), Some(of_node(16, 20, N0)));
    assert_eq!(ranges.next_back(), Some(of_node(42, 64, N1)));
    assert_eq!(ranges.next(), Some(of_node(22, 32, N0)));
    assert_eq!(ranges.next_back(), Some(of_node(32, 40, N1)));
    assert_eq!((ranges.next(), ranges.next_back(), ranges.next()), (None, None, None));
}

#[test]
fn adjacent_reservations_with_different_flags_leave_no_free_range_between_them() {
    let mut map = map_of(16, 32);
    map.reserve(at(16), mib(8)).unwrap();
    map.reserved_mark_noinit(at(20), mib(4)).unwrap();
    assert_eq!(free(&map), [plain(24, 32)]);
}

#[test]
fn special_memory_is_walked_only_on_request() {
    let mut map = map_of(16, 64);
    map.mark_nomap(at(16), mib(8)).unwrap();
    map.mark_mirror(at(24), mib(8)).unwrap();
    map.mark_hotplug(at(32), mib(8)).unwrap();
    map.add_node(at(80), mib(8), NodeId(1), RegionFlags::DRIVER_MANAGED).unwrap();
    let ranges = |map: &Map, flags| map.free_ranges(NodeFilter::Any, flags).map(|r| r.base).collect::<Vec<_>>();
    assert_eq!(ranges(&map, RegionFlags::NONE), [at(24), at(32), at(40)]);
    assert_eq!(ranges(&map, RegionFlags::MIRROR), [at(24)]);
    assert_eq!(ranges(&map, RegionFlags::NOMAP), [at(16), at(24), at(32), at(40)]);
    assert_eq!(ranges(&map, RegionFlags::DRIVER_MANAGED), [at(24), at(32), at(40), at(80)]);
    map.set_movable_nodes(MovableNodes::Enabled);
    assert_eq!(ranges(&map, RegionFlags::NONE), [at(24), at(40)]);
    assert_eq!(ranges(&map, RegionFlags::HOTPLUG), [at(24), at(32), at(40)]);
    let mapped: Vec<_> = map.memory_ranges(NodeFilter::Any).map(|region| region.base).collect();
    assert_eq!(mapped, [at(24), at(32), at(40), at(80)], "all but what is not mapped");
}

#[test]
fn memory_and_reservations_are_walked_by_node() {
    let mut map = two_nodes();
    map.reserve(at(30), mib(4)).unwrap();
    assert_eq!(map.reserved_ranges(NodeFilter::Only(NodeId(1))).next(), None, "reservations begin without a node");
    map.set_node(RegionList::Reserved, at(32), mib(32), N1).unwrap();
    assert!(map.reserved_ranges(NodeFilter::Only(NodeId(1))).eq([of_node(32, 34, N1)]));
    assert!(map.reserved_ranges(NodeFilter::Any).eq([plain(30, 32), of_node(32, 34, N1)]));
    assert!(map.memory_ranges(NodeFilter::Only(NodeId(0))).eq([of_node(16, 32, N0)]));
}

#[test]
fn only_whole_page_frames_are_walked() {
    let mut map = Map::new(NothingMapped);
    map.add_node(PhysAddr(0x1800), ByteSize(0x2000), NodeId(1), RegionFlags::NONE).unwrap();
    map.add_node(PhysAddr(0x5001), ByteSize(0x1ffe), NodeId(1), RegionFlags::NONE).unwrap();
    map.add(PhysAddr(0x8000), ByteSize(0x1000)).unwrap();
    let frames = |start, end| PfnRange { start: Pfn(start), end: Pfn(end) };
    assert!(map.pfn_ranges(NodeFilter::Any).eq([(frames(2, 3), NodeId(1)), (frames(8, 9), NodeId(0))]));
    assert!(map.pfn_ranges(NodeFilter::Only(NodeId(1))).eq([(frames(2, 3), NodeId(1))]));
}

#[test]
fn questions_about_addresses_are_answered() {
    let mut map = two_nodes();
    map.mark_nomap(at(40), mib(8)).unwrap();
    map.reserve(at(20), mib(4)).unwrap();
    assert_eq!((map.start_of_dram(), map.end_of_dram()), (Some(at(16)), Some(at(64))));
    assert!(map.is_memory(at(16)) && map.is_memory(PhysAddr(64 * MIB - 1)));
    assert!(!map.is_memory(at(15)) && !map.is_memory(at(64)));
    assert!(map.is_map_memory(at(39)) && !map.is_map_memory(at(40)) && !map.is_map_memory(at(0)));
    assert!(map.is_reserved(at(23)) && !map.is_reserved(at(24)));
    assert_eq!((map.node_of(at(31)), map.node_of(at(32)), map.node_of(at(70))), (N0, N1, None));
    assert!(map.is_region_memory(at(16), mib(16)) && !map.is_region_memory(at(16), mib(17)));
    assert!(map.is_region_reserved(at(0), mib(21)) && !map.is_region_reserved(at(0), mib(20)));
    assert!(map.overlaps(RegionList::Memory, at(63), mib(9)) && !map.overlaps(RegionList::Memory, at(64), mib(9)));
    let frames = PfnRange { start: Pfn(0x2000), end: Pfn(0x2800) };
    assert_eq!(map.search_pfn(Pfn(0x2010)), Some((frames, N1)));
    assert_eq!(map.search_pfn(Pfn(0)), None);
    assert_eq!(map.search_pfn(Pfn(u64::MAX)), None);
}

#[test]
fn an_empty_map_has_no_start_and_no_end() {
    let map = Map::new(NothingMapped);
    assert_eq!((map.start_of_dram(), map.end_of_dram()), (None, None));
    assert_eq!((free(&map), map.phys_mem_size()), (vec![], ByteSize(0)));
}

/// The map of a QEMU guest with 4 GiB; the kernel it booted printed the ranges and the total expected here.
#[test]
fn the_firmware_map_of_a_guest_gives_the_node_ranges_its_kernel_printed() {
    let mut map = Map::new(NothingMapped);
    for (first, last) in [(0, 0x9_fbff), (0x10_0000, 0xbffd_ffff), (0x1_0000_0000, 0x1_3fff_ffff)] {
        map.add(PhysAddr(first), ByteSize(last + 1 - first)).unwrap();
    }
    map.remove(PhysAddr(0), ByteSize(0x1000)).unwrap();
    map.trim(ByteSize(0x1000)).unwrap();
    map.set_node(RegionList::Memory, PhysAddr(0), ByteSize(u64::MAX), N0).unwrap();
    let printed = [(0x1000, 0x9_efff), (0x10_0000, 0xbffd_ffff), (0x1_0000_0000_u64, 0x1_3fff_ffff)];
    let frames = |(first, last): (u64, u64)| PfnRange { start: Pfn(first >> 12), end: Pfn((last + 1) >> 12) };
    assert!(map.pfn_ranges(NodeFilter::Only(NodeId(0))).eq(printed.map(|range| (frames(range), NodeId(0)))));
    assert_eq!(map.phys_mem_size(), ByteSize::kib(4_193_784));
}

#[test]
fn the_dump_reads_as_the_kernel_prints_it() {
    let mut map = two_nodes();
    map.mark_nomap(at(63), mib(1)).unwrap();
    map.reserve(at(0), mib(1)).unwrap();
    let expected = "\
MEMBLOCK configuration:
 memory size = 0x0000000003000000 reserved size = 0x0000000000100000
 memory.cnt  = 0x3
 memory[0x0]\t[0x0000000001000000-0x0000000001ffffff], 0x0000000001000000 bytes on node 0 flags: 0x0
 memory[0x1]\t[0x0000000002000000-0x0000000003efffff], 0x0000000001f00000 bytes on node 1 flags: 0x0
 memory[0x2]\t[0x0000000003f00000-0x0000000003ffffff], 0x0000000000100000 bytes on node 1 flags: 0x4
 reserved.cnt  = 0x1
 reserved[0x0]\t[0x0000000000000000-0x00000000000fffff], 0x0000000000100000 bytes flags: 0x0
";
    assert_eq!(map.to_string(), expected);
}

#[test]
fn flags_print_their_names() {
    assert_eq!(format!("{:?}", RegionFlags::NONE), "NONE");
    assert_eq!(format!("{:?}", RegionFlags::NOMAP | RegionFlags::HOTPLUG), "HOTPLUG|NOMAP");
}

#[test]
fn errors_name_the_fault_and_the_remedy() {
    let said = MemblockError::ListFull { list: RegionList::Reserved, capacity: 128 }.to_string();
    assert_eq!(said, "the reserved list is full with 128 regions: allow it to grow first");
    let said = MemblockError::Unmapped { base: at(1), size: mib(2) }.to_string();
    assert_eq!(said, "2M bytes at 0x100000 are not mapped: set the current limit to the end of what is mapped");
}
