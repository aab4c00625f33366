use super::*;

#[test]
fn trimming_keeps_whole_multiples_and_the_right_total() {
    let mut map = Map::new(NothingMapped);
    map.add(PhysAddr(0x800), ByteSize(0x1800)).unwrap(); // [0x800, 0x2000): one page left
    map.add(PhysAddr(0x3001), ByteSize(0xffe)).unwrap(); // within one page: nothing left
    map.add(PhysAddr(0x5000), ByteSize(0x1000)).unwrap(); // whole: as it is
    map.add(PhysAddr(0x8000), ByteSize(0x1fff)).unwrap(); // [0x8000, 0x9fff): one page left
    map.trim(ByteSize(0x1000)).unwrap();
    let kept: Vec<_> = map.memory().iter().map(|region| (region.base.0, region.size.0)).collect();
    assert_eq!(kept, [(0x1000, 0x1000), (0x5000, 0x1000), (0x8000, 0x1000)]);
    assert_eq!(map.phys_mem_size(), ByteSize(0x3000));
}

#[test]
fn trimming_refuses_alignments_that_are_no_power_of_two() {
    let mut map = map_of(0, 1);
    for align in [0, 0x1800] {
        assert_eq!(map.trim(ByteSize(align)), Err(MemblockError::Alignment(ByteSize(align))));
    }
    assert_eq!(map.memory(), [plain(0, 1)]);
}

#[test]
fn a_cap_drops_memory_and_reservations_outside_it_except_unmapped_ones() {
    let mut map = map_of(0, 64);
    map.mark_nomap(at(0), mib(4)).unwrap();
    map.mark_nomap(at(44), mib(8)).unwrap();
    for start in [2, 14, 30, 46, 60] {
        map.reserve(at(start), mib(4)).unwrap();
    }
    map.cap(at(16), mib(32)).unwrap();
    let nomap = |start, end| flagged(start, end, RegionFlags::NOMAP);
    assert_eq!(map.memory(), [nomap(0, 4), plain(16, 44), nomap(44, 52)]);
    assert_eq!(map.reserved(), [plain(16, 18), plain(30, 34), plain(46, 48)]);
}

#[test]
fn a_cap_before_there_is_memory_leaves_reservations_alone() {
    let mut map = Map::new(NothingMapped);
    map.reserve(at(2), mib(4)).unwrap();
    map.cap(at(16), mib(32)).unwrap();
    assert_eq!(map.reserved(), [plain(2, 6)]);
}

#[test]
fn a_memory_limit_counts_memory_and_not_addresses() {
    let mut map = map_of(16, 32);
    map.add(at(64), mib(16)).unwrap();
    map.mark_nomap(at(76), mib(4)).unwrap();
    map.reserve(at(60), mib(8)).unwrap();
    map.enforce_memory_limit(mib(100)).unwrap();
    assert_eq!(map.phys_mem_size(), mib(32));
    map.enforce_memory_limit(mib(18)).unwrap();
    assert_eq!(map.memory(), [plain(16, 32), plain(64, 66)]);
    assert_eq!(map.reserved(), [plain(60, 66)]);
}

#[test]
fn the_limit_of_mapped_memory_ignores_unmapped_regions() {
    let mut map = map_of(0, 64);
    map.mark_nomap(at(60), mib(4)).unwrap();
    map.mem_limit_remove_map(mib(32)).unwrap();
    assert_eq!(map.memory(), [plain(0, 32), flagged(60, 64, RegionFlags::NOMAP)]);
}
