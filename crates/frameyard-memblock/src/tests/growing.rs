use super::*;

const PAGE: ByteSize = ByteSize(4096);

/// A map over 16 MiB of real bytes from 16 MiB on, with lists of `INLINE` regions.
fn backed<const INLINE: usize>() -> Memblock<TestMemory, INLINE> {
    let mut map = Memblock::with_geometry(TestMemory::new(at(16), mib(16)), Geometry::X86_64);
    map.add(at(16), mib(16)).unwrap();
    map
}

fn page(number: u64) -> PhysAddr {
    PhysAddr(at(16).0 + number * PAGE.0)
}

#[test]
fn thousands_of_reservations_grow_the_list_into_memory_of_the_map() {
    let mut map: Memblock<_> = backed::<128>();
    map.allow_resize();
    let reserved = |count: u64| (0..count).map(|index| page(2 * index));
    for base in reserved(1600) {
        map.reserve(base, PAGE).unwrap();
    }
    let (base, size) = map.array_of(RegionList::Reserved).expect("the list has left the struct");
    assert!(map.is_memory(base) && map.is_reserved(base));
    assert!(size.0 >= 1600 * size_of::<Region>() as u64);
    assert_eq!(map.array_of(RegionList::Memory), None);
    assert!(reserved(1600).all(|base| map.reserved_at(base).is_some_and(|region| region.size == PAGE)));
    assert_eq!(map.reserved_size(), ByteSize(1600 * PAGE.0 + size.0), "the arrays on the way were all given back");
}

#[test]
fn thousands_of_memory_regions_grow_the_list_into_memory_that_is_mapped() {
    let mut map: Memblock<_> = backed::<128>();
    map.set_current_limit(at(32));
    map.allow_resize();
    for index in 0..3000 {
        map.add_node(at(64 + 2 * index), mib(1), NodeId((index % 7) as u16), RegionFlags::NONE).unwrap();
    }
    assert_eq!(map.memory().len(), 3001);
    let (base, _) = map.array_of(RegionList::Memory).expect("the list has left the struct");
    assert_eq!(map.node_of(base), map.memory()[0].node.id());
    assert!(map.is_reserved(base));
    assert!(map.memory().is_sorted_by_key(|region| region.base));
    assert_eq!(map.reserved().len(), 1, "all arrays but the last were given back");
}

#[test]
fn a_full_list_that_may_not_grow_refuses_and_stays_as_it_is() {
    let mut map = backed::<4>();
    for index in 0..4 {
        map.reserve(page(2 * index), PAGE).unwrap();
    }
    let before = map.reserved().to_vec();
    let full = MemblockError::ListFull { list: RegionList::Reserved, capacity: 4 };
    assert_eq!(map.reserve(page(100), PAGE), Err(full));
    assert_eq!(map.reserve(page(1), PAGE), Err(full), "a range that fills a gap needs a slot before it merges");
    assert_eq!(map.phys_free(PhysAddr(page(2).0 + 16), ByteSize(16)), Err(full), "a cut takes a slot");
    assert_eq!(map.reserved(), before);
}

#[test]
fn freeing_whole_regions_needs_no_slot() {
    let mut map = backed::<4>();
    for index in 0..4 {
        map.reserve(page(2 * index), PAGE).unwrap();
    }
    map.phys_free(page(2), ByteSize(3 * PAGE.0)).unwrap();
    assert_eq!(map.reserved().len(), 2);
}

#[test]
fn a_list_that_finds_no_room_refuses_and_stays_as_it_is() {
    let mut map = backed::<4>();
    map.allow_resize();
    map.set_current_limit(at(16));
    for index in 0..4 {
        map.reserve(page(2 * index), PAGE).unwrap();
    }
    let before = map.reserved().to_vec();
    let no_room = MemblockError::NoRoomToGrow { list: RegionList::Reserved, size: PAGE };
    assert_eq!(map.reserve(page(100), PAGE), Err(no_room));
    assert_eq!(map.reserved(), before);
    map.set_current_limit(at(32));
    map.reserve(page(100), PAGE).unwrap();
}

#[test]
fn a_list_does_not_grow_into_memory_that_is_not_mapped() {
    let mut map: Memblock<_, 4> = Memblock::with_geometry(NothingMapped, Geometry::X86_64);
    map.add(at(16), mib(16)).unwrap();
    map.allow_resize();
    for index in 0..4 {
        map.reserve(page(2 * index), PAGE).unwrap();
    }
    let last = PhysAddr(at(32).0 - PAGE.0);
    assert_eq!(map.reserve(page(100), PAGE), Err(MemblockError::Unmapped { base: last, size: PAGE }));
    assert_eq!(map.reserved().len(), 4);
}

#[test]
fn the_new_array_avoids_the_range_that_is_being_reserved() {
    let mut map = backed::<4>();
    map.allow_resize();
    for index in 0..4 {
        map.reserve(page(2 * index), PAGE).unwrap();
    }
    // All that is free above page 100 is about to be reserved: the array must go below.
    map.reserve(page(100), mib(16)).unwrap();
    assert_eq!(map.array_of(RegionList::Reserved), Some((page(99), PAGE)));
}

#[test]
fn the_new_array_avoids_memory_that_is_being_removed_or_cut_off() {
    let mut map = backed::<4>();
    map.allow_resize();
    for index in 1..4 {
        map.add(at(64 * index), mib(1)).unwrap();
    }
    map.set_current_limit(at(32));
    map.remove(at(24), mib(7)).unwrap();
    let (base, _) = map.array_of(RegionList::Memory).unwrap();
    assert!(map.is_memory(base));

    let mut map = backed::<4>();
    map.allow_resize();
    for index in 0..4 {
        map.reserve(page(2 * index), ByteSize(PAGE.0 / 2)).unwrap();
    }
    map.cap(PhysAddr(page(0).0 + 16), mib(1)).unwrap();
    let (base, _) = map.array_of(RegionList::Reserved).unwrap();
    assert!(map.is_memory(base) && map.is_reserved(base));
}

#[test]
fn the_array_of_a_list_cannot_be_freed_from_under_it() {
    let mut map = backed::<4>();
    map.allow_resize();
    for index in 0..5 {
        map.reserve(page(2 * index), PAGE).unwrap();
    }
    let list = RegionList::Reserved;
    let (base, size) = map.array_of(list).unwrap();
    let before = map.reserved().to_vec();
    let held = Err(MemblockError::HoldsRegionArray { list, base, size });
    assert_eq!(map.phys_free(PhysAddr(base.0 + 8), ByteSize(1)), held);
    assert_eq!(map.cap(at(16), mib(4)), held);
    assert_eq!(map.enforce_memory_limit(mib(4)), held);
    assert_eq!(map.phys_free(PhysAddr(base.0 + 8), ByteSize(0)), Ok(()), "no bytes are freed");
    assert_eq!(map.reserved(), before);
    assert_eq!(map.phys_mem_size(), mib(16));
}

#[test]
fn a_map_with_grown_lists_can_be_moved_to_another_thread() {
    let mut map = backed::<4>();
    map.allow_resize();
    for index in 0..50 {
        map.reserve(page(2 * index), PAGE).unwrap();
    }
    let regions = map.reserved().to_vec();
    let moved = std::thread::spawn(move || map.reserved().to_vec()).join().unwrap();
    assert_eq!(moved, regions);
}

#[test]
fn kernel_rules_demand_two_free_slots_for_a_cut() {
    let mut map = backed::<4>();
    for index in 0..3 {
        map.reserve(page(2 * index), PAGE).unwrap();
    }
    map.phys_free(page(4), PAGE).unwrap();
    map.reserve(page(4), PAGE).unwrap();
    map.growth_rules = GrowthRules::Kernel;
    let full = MemblockError::ListFull { list: RegionList::Reserved, capacity: 4 };
    assert_eq!(map.phys_free(page(4), PAGE), Err(full), "one slot is free");
    map.allow_resize();
    map.phys_free(page(4), PAGE).unwrap();
    assert_eq!(map.reserved().len(), 3, "two reservations and the new array");
}

/// Memory at 16 MiB and three far regions, which fill the memory list: a cap must grow it, below 32 MiB.
fn kernel_map_with_full_memory_list() -> Memblock<TestMemory, 4> {
    let mut map = backed();
    map.growth_rules = GrowthRules::Kernel;
    for index in 1..4 {
        map.add(at(64 * index), mib(1)).unwrap();
    }
    map.set_current_limit(at(32));
    map.allow_resize();
    map
}

#[test]
fn under_kernel_rules_a_memory_list_that_grows_for_a_cap_stays_in_the_memory_that_is_kept() {
    type Cap = fn(&mut Memblock<TestMemory, 4>) -> Result<(), MemblockError>;
    let caps: [Cap; 3] =
        [|map| map.cap(at(16), mib(4)), |map| map.enforce_memory_limit(mib(4)), |map| map.mem_limit_remove_map(mib(4))];
    for cap in caps {
        let mut map = kernel_map_with_full_memory_list();
        cap(&mut map).unwrap();
        let (base, size) = map.array_of(RegionList::Memory).expect("two free slots are demanded");
        assert!(map.is_region_memory(base, size), "the array lies in memory that was dropped: {base}");
        assert!(map.is_region_reserved(base, size));
        assert_eq!(map.memory(), [plain(16, 20)]);
        // Nothing that is allocated from now on lies in the array.
        map.add(at(20), mib(12)).unwrap();
        while let Ok(block) = map.phys_alloc(EarlyRequest::new(PAGE, PAGE)) {
            assert!(block.0 + PAGE.0 <= base.0 || block.0 >= base.0 + size.0, "{block} lies in the array");
        }
        assert_eq!(map.memory().len(), 1);
    }
}

#[test]
fn a_cap_that_leaves_no_room_for_the_array_of_the_memory_list_changes_nothing() {
    let mut map = kernel_map_with_full_memory_list();
    map.reserve(at(16), mib(4)).unwrap();
    let before = (map.memory().to_vec(), map.reserved().to_vec());
    let no_room = MemblockError::NoRoomToGrow { list: RegionList::Memory, size: PAGE };
    assert_eq!(map.cap(at(16), mib(4)), Err(no_room));
    assert_eq!((map.memory().to_vec(), map.reserved().to_vec()), before);
}
