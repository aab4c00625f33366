use super::*;

fn request(count: u64) -> EarlyRequest {
    EarlyRequest::new(mib(count), mib(1))
}

fn out_of_memory(result: Result<PhysAddr, MemblockError>) -> bool {
    matches!(result, Err(MemblockError::OutOfMemory { .. }))
}

#[test]
fn top_down_takes_the_highest_and_bottom_up_the_lowest_address_that_fits() {
    let mut map = map_of(16, 64);
    map.reserve(at(60), mib(3)).unwrap();
    map.reserve(at(20), mib(1)).unwrap();
    assert_eq!(map.phys_alloc(request(2)), Ok(at(58)));
    assert_eq!(map.phys_alloc(request(1)), Ok(at(63)));
    map.set_direction(AllocDirection::BottomUp);
    assert_eq!(map.phys_alloc(request(5)), Ok(at(21)));
    assert_eq!(map.phys_alloc(request(4)), Ok(at(16)));
    assert_eq!(map.reserved(), [plain(16, 26), plain(58, 64)]);
}

#[test]
fn both_directions_align() {
    let mut map = map_of(17, 63);
    assert_eq!(map.find(EarlyRequest::new(mib(1), mib(16))), Ok(at(48)));
    assert_eq!(map.find(EarlyRequest::new(ByteSize(5), ByteSize(1))), Ok(PhysAddr(63 * MIB - 5)));
    map.set_direction(AllocDirection::BottomUp);
    assert_eq!(map.find(EarlyRequest::new(mib(1), mib(16))), Ok(at(32)));
    assert!(out_of_memory(map.find(EarlyRequest::new(mib(1), mib(64)))));
}

#[test]
fn limits_are_kept_in_both_directions() {
    let mut map = map_of(16, 64);
    let within = request(4).at_or_above(at(20)).below(at(30));
    assert_eq!(map.find(within), Ok(at(26)));
    assert_eq!(map.find(request(10).at_or_above(at(20)).below(at(30))), Ok(at(20)));
    assert!(out_of_memory(map.find(request(11).at_or_above(at(20)).below(at(30)))));
    assert!(out_of_memory(map.find(request(1).at_or_above(at(30)).below(at(20)))));
    map.set_direction(AllocDirection::BottomUp);
    assert_eq!(map.find(within), Ok(at(20)));
}

#[test]
fn the_current_limit_binds_requests_without_a_maximum() {
    let mut map = map_of(16, 64);
    map.set_current_limit(at(32));
    assert_eq!(map.find(request(1)), Ok(at(31)));
    assert_eq!(map.find(request(1).below(PhysAddr(u64::MAX))), Ok(at(63)));
}

#[test]
fn an_unzeroed_allocation_keeps_the_bytes_and_drops_a_minimum_that_nothing_meets() {
    let memory = TestMemory::new(at(16), mib(16));
    let mut map: Memblock<_> = Memblock::new(memory);
    map.add(at(16), mib(16)).unwrap();
    let block = map.alloc(request(1)).unwrap();
    // SAFETY: the block is this test's.
    unsafe { block.pointer.write(7) };
    map.free(block).unwrap();
    let again = map.alloc_raw(request(1).at_or_above(at(32))).unwrap();
    assert_eq!(again, block, "no memory is above the minimum");
    // SAFETY: as above.
    assert_eq!(unsafe { again.pointer.read() }, 7);
    assert_eq!(map.reserved(), [plain(31, 32)]);
    assert!(map.alloc_raw(request(1).on(NodeChoice::Exact(NodeId(0)))).is_err(), "the memory has no node");
}

#[test]
fn the_first_page_is_never_allocated() {
    let mut map = Map::new(NothingMapped);
    map.add(PhysAddr(0), ByteSize(0x3000)).unwrap();
    map.set_direction(AllocDirection::BottomUp);
    assert_eq!(map.phys_alloc(EarlyRequest::new(ByteSize(0x1000), ByteSize(0x1000))), Ok(PhysAddr(0x1000)));
    assert!(out_of_memory(map.phys_alloc(EarlyRequest::new(ByteSize(0x2000), ByteSize(1)))));
}

#[test]
fn a_preferred_node_falls_back_and_an_exact_one_does_not() {
    let mut map = two_nodes();
    let zero = NodeId(0);
    assert_eq!(map.phys_alloc(request(12).on(NodeChoice::Exact(zero))), Ok(at(20)));
    assert!(out_of_memory(map.phys_alloc(request(12).on(NodeChoice::Exact(zero)))));
    assert_eq!(map.phys_alloc(request(4).on(NodeChoice::Prefer(zero))), Ok(at(16)));
    assert_eq!(map.phys_alloc(request(4).on(NodeChoice::Prefer(zero))), Ok(at(60)));
}

#[test]
fn an_allocation_stays_on_one_node() {
    let map = two_nodes();
    assert_eq!(map.find(request(32)), Ok(at(32)));
    assert!(out_of_memory(map.find(request(33))));
}

#[test]
fn memory_of_a_driver_or_not_to_be_mapped_is_never_allocated() {
    let mut map = Map::new(NothingMapped);
    map.add_node(at(16), mib(4), NodeId(0), RegionFlags::DRIVER_MANAGED).unwrap();
    map.add_node(at(20), mib(8), NodeId(0), RegionFlags::NONE).unwrap();
    map.mark_nomap(at(24), mib(4)).unwrap();
    assert_eq!(map.find(request(1)), Ok(at(23)));
    assert!(out_of_memory(map.find(request(5))));
}

#[test]
fn hotpluggable_memory_is_left_alone_when_nodes_are_movable() {
    let mut map = map_of(16, 64);
    map.mark_hotplug(at(32), mib(32)).unwrap();
    assert_eq!(map.find(request(1)), Ok(at(63)));
    map.set_movable_nodes(MovableNodes::Enabled);
    assert_eq!(map.find(request(1)), Ok(at(31)));
    assert!(out_of_memory(map.find(request(17))));
}

#[test]
fn mirrored_memory_comes_first_and_other_memory_after_it() {
    let mut map = two_nodes();
    map.mark_mirror(at(16), mib(4)).unwrap();
    assert!(map.has_mirror());
    let on_one = request(3).on(NodeChoice::Prefer(NodeId(1)));
    assert_eq!(map.phys_alloc(on_one), Ok(at(17)), "a mirrored page elsewhere before an ordinary one at home");
    assert_eq!(map.phys_alloc(on_one), Ok(at(61)));
    assert_eq!(map.phys_alloc(request(3).on(NodeChoice::Exact(NodeId(0)))), Ok(at(29)));
}

#[test]
fn a_request_that_makes_no_sense_is_refused() {
    let mut map = map_of(16, 64);
    assert_eq!(map.phys_alloc(request(0)), Err(MemblockError::EmptyRequest));
    let odd = ByteSize(3);
    assert_eq!(map.phys_alloc(EarlyRequest::new(mib(1), odd)), Err(MemblockError::Alignment(odd)));
    assert_eq!(map.phys_alloc(EarlyRequest::new(mib(1), ByteSize(0))), Err(MemblockError::Alignment(ByteSize(0))));
    assert!(out_of_memory(map.phys_alloc(EarlyRequest::new(ByteSize(u64::MAX), ByteSize(1 << 63)))));
    assert_eq!(map.reserved(), []);
}

#[test]
fn an_allocated_block_is_zeroed_and_can_be_freed() {
    let mut map: Memblock<_> = Memblock::new(TestMemory::new(at(1), mib(1)));
    map.add(at(1), mib(1)).unwrap();
    let page = EarlyRequest::new(ByteSize::kib(4), ByteSize::kib(4));
    let block = map.alloc(page).unwrap();
    // SAFETY: the block has 4096 bytes and is ours until it is freed.
    let bytes = unsafe { core::slice::from_raw_parts_mut(block.pointer.as_ptr(), 4096) };
    bytes.fill(0xa5);
    map.free(block).unwrap();
    assert_eq!(map.reserved(), []);
    let again = map.alloc(page).unwrap();
    assert_eq!(again, block);
    // SAFETY: as above.
    let bytes = unsafe { core::slice::from_raw_parts(again.pointer.as_ptr(), 4096) };
    assert!(bytes.iter().all(|byte| *byte == 0));
}

#[test]
fn a_mapped_allocation_gives_up_its_minimum_and_keeps_the_current_limit() {
    let mut map: Memblock<_> = Memblock::new(TestMemory::new(at(16), mib(2)));
    map.add(at(16), mib(48)).unwrap();
    map.set_current_limit(at(18));
    let above_all = request(1).at_or_above(at(40)).below(at(64));
    assert_eq!(map.alloc(above_all).unwrap().address, at(17));
    assert!(matches!(map.alloc(request(2)), Err(MemblockError::OutOfMemory { .. })));
}

#[test]
fn memory_that_is_not_mapped_is_an_error_that_reserves_nothing() {
    let mut map = map_of(16, 64);
    assert_eq!(map.alloc(request(1)), Err(MemblockError::Unmapped { base: at(63), size: mib(1) }));
    assert_eq!(map.reserved(), []);
}
