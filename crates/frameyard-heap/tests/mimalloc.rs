//! The global allocator, which this program runs on, and heaps in yards that it makes.

use std::alloc::Layout;
use std::sync::mpsc;
use std::{iter, slice, thread};

use frameyard::{Gfp, Order};
use frameyard_heap::mimalloc::{ArenaError, ArenaHeap, ByteSize, Heap, HostYard};

#[global_allocator]
static HEAP: Heap = Heap::with_memory(ByteSize::mib(256));

const MIB: usize = 1 << 20;

fn yard(size: ByteSize) -> &'static HostYard {
    Box::leak(Box::new(HostYard::with_memory(size).unwrap()))
}

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).unwrap()
}

#[test]
fn the_global_allocator_uses_the_arena_and_ends_there() {
    let arena = HEAP.arena().expect("an arena");
    for size in [1, 100, 5000, 300_000, 40 * MIB] {
        let block = vec![7_u8; size];
        assert!(arena.contains(block.as_ptr()), "{size} bytes");
    }
    assert!(Vec::<u8>::new().try_reserve_exact(300 * MIB).is_err());
    let mut large = Vec::<u8>::new();
    large.try_reserve_exact(100 * MIB).expect("the arena has room");
    assert!(arena.contains(large.as_ptr()));
}

#[test]
fn threads_free_what_others_have_allocated() {
    let (sender, receiver) = mpsc::channel::<(u8, Vec<u8>)>();
    thread::scope(|scope| {
        for seed in 0..3_u8 {
            let sender = sender.clone();
            scope.spawn(move || {
                for round in 0..2000_usize {
                    sender.send((seed, vec![seed; 1 + round * 37 % 9000])).unwrap();
                }
            });
        }
        drop(sender);
        assert!(receiver.iter().all(|(seed, block)| block.iter().all(|byte| *byte == seed)));
    });
}

#[test]
fn a_heap_stands_beside_other_frames_of_a_yard() {
    let yard = yard(ByteSize::mib(128));
    let frame = yard.alloc(Order(3), Gfp::KERNEL).unwrap();
    let heap = ArenaHeap::new(yard, ByteSize::mib(64)).unwrap();
    assert_eq!(heap.size(), ByteSize::mib(64));
    let held: Vec<_> = iter::from_fn(|| heap.allocate(layout(MIB, 4096))).collect();
    // Metadata of mimalloc's takes the rest.
    assert!(held.len() > 48 && held.len() <= 64, "{} blocks", held.len());
    for block in &held {
        assert!(heap.contains(block.as_ptr()) && block.addr().get().is_multiple_of(4096));
        // SAFETY: the test owns the block.
        unsafe { block.write_bytes(0xA5, MIB) };
    }
    yard.validate().unwrap();
    for block in held {
        // SAFETY: as above.
        unsafe { heap.free(block) };
    }
    let zeroed = heap.allocate_zeroed(layout(20 * MIB, 64)).expect("the memory is free again");
    // SAFETY: the block has that size, and is initialised.
    assert!(unsafe { slice::from_raw_parts(zeroed.as_ptr(), 20 * MIB) }.iter().all(|byte| *byte == 0));
    // SAFETY: the block is in use, with that alignment.
    let grown = unsafe { heap.resize(zeroed, 30 * MIB, 64) }.expect("room for both");
    // SAFETY: as above.
    let refused = unsafe { heap.resize(grown, 100 * MIB, 64) };
    assert_eq!(refused, None);
    // SAFETY: the block is as before.
    unsafe { heap.free(grown) };
    yard.free(frame, Order(3)).unwrap();
    yard.validate().unwrap();
}

#[test]
fn large_alignments_stay_in_the_arena() {
    let heap = ArenaHeap::new(yard(ByteSize::mib(128)), ByteSize::mib(64)).unwrap();
    for shift in 12..=21 {
        for size in [1, 100_000, 3 * MIB] {
            let wanted = layout(size, 1 << shift);
            let block = heap.allocate_zeroed(wanted).unwrap_or_else(|| panic!("{wanted:?}"));
            assert!(heap.contains(block.as_ptr()) && block.addr().get().is_multiple_of(1 << shift), "{wanted:?}");
            // SAFETY: the block is the test's, with that size.
            unsafe {
                assert!(heap.usable_size(block) >= size);
                assert!(slice::from_raw_parts(block.as_ptr(), size).iter().all(|byte| *byte == 0));
                block.write_bytes(0x5A, size);
                let grown = heap.resize(block, 2 * size, 1 << shift).expect("room for both");
                assert!(grown.addr().get().is_multiple_of(1 << shift));
                assert!(slice::from_raw_parts(grown.as_ptr(), size).iter().all(|byte| *byte == 0x5A));
                heap.free(grown);
            }
        }
    }
    assert_eq!(heap.allocate(layout(1, 2 * ArenaHeap::MOST_ALIGN)), None);
}

#[test]
fn an_arena_counts_what_it_uses() {
    let heap = ArenaHeap::new(yard(ByteSize::mib(128)), ByteSize::mib(64)).unwrap();
    let block = heap.allocate(layout(20 * MIB, 16)).expect("room");
    let usage = heap.usage();
    assert_eq!(usage.size, ByteSize::mib(64));
    assert!(usage.in_use >= ByteSize::mib(20) && usage.peak >= usage.in_use && usage.ranges > 1, "{usage:?}");
    assert!(usage.free_pageblocks > 10 && usage.free_pageblocks < 22, "{usage:?}");
    // SAFETY: the test owns the block.
    unsafe { heap.free(block) };
}

#[test]
fn memory_that_is_no_arena_is_refused_and_stays_free() {
    let yard = yard(ByteSize::mib(64));
    let free = yard.stats().free_pages();
    let least = ArenaHeap::least_size();
    let small = ArenaHeap::new(yard, ByteSize(least.0 - 1)).unwrap_err();
    assert_eq!(small, ArenaError::TooSmall { size: ByteSize(least.0 - 1), least });
    assert!(small.to_string().contains("too small"), "{small}");
    let large = ArenaHeap::new(yard, ByteSize::gib(1)).unwrap_err();
    assert!(matches!(large, ArenaError::Yard(_)), "{large}");
    yard.drain_all();
    assert_eq!(yard.stats().free_pages(), free);
}
