use super::*;

#[test]
fn disjoint_ranges_are_sorted_whatever_the_order_they_come_in() {
    let mut map = map_of(32, 48);
    map.add(at(96), mib(16)).unwrap();
    map.add(at(0), mib(16)).unwrap();
    map.add(at(64), mib(16)).unwrap();
    assert_eq!(map.memory(), [plain(0, 16), plain(32, 48), plain(64, 80), plain(96, 112)]);
    assert_eq!(map.phys_mem_size(), mib(64));
}

#[test]
fn overlaps_from_below_above_within_and_around_add_no_memory_twice() {
    let mut map = map_of(16, 32);
    map.add(at(8), mib(16)).unwrap();
    assert_eq!(map.memory(), [plain(8, 32)]);
    map.add(at(24), mib(16)).unwrap();
    assert_eq!(map.memory(), [plain(8, 40)]);
    map.add(at(16), mib(4)).unwrap();
    assert_eq!(map.memory(), [plain(8, 40)]);
    map.add(at(0), mib(64)).unwrap();
    assert_eq!(map.memory(), [plain(0, 64)]);
}

#[test]
fn a_range_between_two_neighbours_makes_one_region_of_three() {
    let mut map = map_of(0, 16);
    map.add(at(32), mib(16)).unwrap();
    map.add(at(16), mib(16)).unwrap();
    assert_eq!(map.memory(), [plain(0, 48)]);
}

#[test]
fn neighbours_of_other_nodes_or_flags_stay_apart() {
    let mut map = two_nodes();
    map.add_node(at(64), mib(1), NodeId(1), RegionFlags::HOTPLUG).unwrap();
    let hotplug = Region { flags: RegionFlags::HOTPLUG, ..of_node(64, 65, N1) };
    assert_eq!(map.memory(), [of_node(16, 32, N0), of_node(32, 64, N1), hotplug]);
}

#[test]
fn an_overlapping_add_fills_the_gaps_and_changes_nothing_else() {
    let mut map = two_nodes();
    map.add_node(at(80), mib(8), NodeId(0), RegionFlags::NOMAP).unwrap();
    map.add_node(at(0), mib(96), NodeId(2), RegionFlags::MIRROR).unwrap();
    let filled = |start, end| Region { flags: RegionFlags::MIRROR, ..of_node(start, end, Some(NodeId(2))) };
    let nomap = Region { flags: RegionFlags::NOMAP, ..of_node(80, 88, N0) };
    assert_eq!(
        map.memory(),
        [filled(0, 16), of_node(16, 32, N0), of_node(32, 64, N1), filled(64, 80), nomap, filled(88, 96)]
    );
}

#[test]
fn removing_from_below_above_within_and_around_splits_and_drops() {
    let mut map = map_of(16, 80);
    map.remove(at(0), mib(24)).unwrap();
    assert_eq!(map.memory(), [plain(24, 80)]);
    map.remove(at(72), mib(100)).unwrap();
    assert_eq!(map.memory(), [plain(24, 72)]);
    map.remove(at(40), mib(8)).unwrap();
    assert_eq!(map.memory(), [plain(24, 40), plain(48, 72)]);
    map.remove(at(40), mib(8)).unwrap();
    assert_eq!(map.memory(), [plain(24, 40), plain(48, 72)]);
    map.remove(at(32), mib(20)).unwrap();
    assert_eq!(map.memory(), [plain(24, 32), plain(52, 72)]);
    map.remove(at(0), mib(100)).unwrap();
    assert_eq!(map.memory(), []);
}

#[test]
fn reservations_need_no_memory_and_are_freed_in_any_part() {
    let mut map = map_of(0, 16);
    map.reserve(at(8), mib(16)).unwrap();
    map.reserve(at(12), mib(16)).unwrap();
    assert_eq!(map.reserved(), [plain(8, 28)]);
    map.phys_free(at(10), mib(2)).unwrap();
    map.phys_free(at(10), mib(2)).unwrap();
    map.phys_free(at(27), mib(9)).unwrap();
    assert_eq!(map.reserved(), [plain(8, 10), plain(12, 27)]);
    assert_eq!(map.reserved_size(), mib(17));
    assert_eq!(map.memory(), [plain(0, 16)]);
}

#[test]
fn removing_memory_leaves_its_reservations() {
    let mut map = map_of(0, 16);
    map.reserve(at(4), mib(8)).unwrap();
    map.remove(at(0), mib(8)).unwrap();
    assert_eq!(map.reserved(), [plain(4, 12)]);
}

#[test]
fn a_range_past_the_end_of_the_address_space_is_cut_off_there() {
    let mut map = Map::new(NothingMapped);
    let base = PhysAddr(u64::MAX - MIB);
    map.add(base, mib(2)).unwrap();
    map.reserve(base, ByteSize(u64::MAX)).unwrap();
    assert_eq!(map.end_of_dram(), Some(PhysAddr(u64::MAX)));
    assert_eq!(map.phys_mem_size(), mib(1));
    assert_eq!(map.reserved_size(), mib(1));
    map.mark_nomap(base, ByteSize(u64::MAX)).unwrap();
    assert!(map.memory()[0].flags.contains(RegionFlags::NOMAP));
    map.phys_free(base, mib(2)).unwrap();
    map.remove(base, mib(2)).unwrap();
    assert_eq!((map.memory(), map.reserved()), (&[][..], &[][..]));
    map.add(PhysAddr(u64::MAX), mib(1)).unwrap();
    assert_eq!(map.memory(), [], "the last byte of the address space is no memory");
}

#[test]
fn a_range_of_no_bytes_changes_nothing() {
    let mut map = map_of(0, 16);
    map.reserve(at(4), mib(4)).unwrap();
    let none = ByteSize(0);
    map.add(at(20), none).unwrap();
    map.add_node(at(20), none, NodeId(1), RegionFlags::MIRROR).unwrap();
    map.reserve(at(12), none).unwrap();
    map.remove(at(8), none).unwrap();
    map.phys_free(at(6), none).unwrap();
    map.mark_nomap(at(8), none).unwrap();
    map.mark_mirror(at(8), none).unwrap();
    map.set_node(RegionList::Memory, at(8), none, N1).unwrap();
    map.cap(at(8), none).unwrap();
    map.enforce_memory_limit(none).unwrap();
    assert_eq!(map.isolate(RegionList::Memory, at(8), none), Ok(0..0));
    assert_eq!(map.memory(), [plain(0, 16)]);
    assert_eq!(map.reserved(), [plain(4, 8)]);
    assert!(!map.has_mirror());
}

#[test]
fn an_empty_range_overlaps_the_region_around_it() {
    let mut map = map_of(0, 16);
    map.reserve(at(4), mib(4)).unwrap();
    let overlaps = |start| map.overlaps(RegionList::Reserved, at(start), mib(0));
    assert!(overlaps(5) && map.is_region_reserved(at(5), mib(0)));
    assert!(!overlaps(3) && !overlaps(4) && !overlaps(8) && !overlaps(9));
}

#[test]
fn marking_splits_and_unmarking_merges_again() {
    let mut map = map_of(0, 64);
    map.mark_nomap(at(16), mib(16)).unwrap();
    map.mark_hotplug(at(24), mib(16)).unwrap();
    assert_eq!(
        map.memory(),
        [
            plain(0, 16),
            flagged(16, 24, RegionFlags::NOMAP),
            flagged(24, 32, RegionFlags::NOMAP | RegionFlags::HOTPLUG),
            flagged(32, 40, RegionFlags::HOTPLUG),
            plain(40, 64),
        ]
    );
    map.clear_hotplug(at(0), mib(64)).unwrap();
    map.clear_nomap(at(0), mib(64)).unwrap();
    assert_eq!(map.memory(), [plain(0, 64)]);
    map.reserve(at(0), mib(8)).unwrap();
    map.reserved_mark_noinit(at(2), mib(2)).unwrap();
    assert_eq!(map.reserved(), [plain(0, 2), flagged(2, 4, RegionFlags::RSRV_NOINIT), plain(4, 8)]);
}

#[test]
fn setting_a_node_changes_existing_regions_and_merges_neighbours() {
    let mut map = map_of(0, 64);
    map.set_node(RegionList::Memory, at(0), mib(32), N0).unwrap();
    map.set_node(RegionList::Memory, at(48), mib(100), N1).unwrap();
    assert_eq!(map.memory(), [of_node(0, 32, N0), plain(32, 48), of_node(48, 64, N1)]);
    map.set_node(RegionList::Memory, at(32), mib(16), N1).unwrap();
    assert_eq!(map.memory(), [of_node(0, 32, N0), of_node(32, 64, N1)]);
    map.reserve(at(1), mib(2)).unwrap();
    map.set_node(RegionList::Reserved, at(0), mib(2), N0).unwrap();
    assert_eq!(map.reserved(), [of_node(1, 2, N0), plain(2, 3)]);
}

#[test]
fn isolated_regions_are_named_and_stay_cut_until_merged() {
    let mut map = map_of(0, 64);
    assert_eq!(map.isolate(RegionList::Memory, at(16), mib(16)), Ok(1..2));
    assert_eq!(map.memory(), [plain(0, 16), plain(16, 32), plain(32, 64)]);
    assert_eq!(map.isolate(RegionList::Memory, at(100), mib(16)), Ok(3..3));
    let whole = EarlyRequest::new(mib(40), mib(1));
    assert!(matches!(map.find(whole), Err(MemblockError::OutOfMemory { .. })), "an allocation spans a cut");
    map.merge(RegionList::Memory);
    assert_eq!(map.memory(), [plain(0, 64)]);
    assert_eq!(map.find(whole), Ok(at(24)));
}
