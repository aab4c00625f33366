//! Ordinary work on the heap.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, realloc};
use std::collections::BTreeMap;
use std::slice;
use std::sync::mpsc;
use std::thread;

use crate::alone;

/// Whether all bytes of a block have a value.
///
/// # Safety
///
/// The block is allocated and initialised.
unsafe fn is_filled(block: *const u8, size: usize, value: u8) -> bool {
    // SAFETY: passed on to the caller.
    unsafe { slice::from_raw_parts(block, size) }.iter().all(|byte| *byte == value)
}

#[test]
fn memory_comes_from_the_yard() {
    let alone = alone();
    let before = alone.heap.summary();
    let large = vec![1_u8; 40 << 20];
    assert!(alone.heap.contains(large.as_ptr()));
    let during = alone.heap.summary();
    assert!(during.in_use.0 >= 40 << 20, "{during}");
    assert!(during.allocations > before.allocations && during.peak >= during.in_use);
    assert!(during.zone_locks > 0);
}

#[test]
fn blocks_keep_their_contents_when_they_grow_and_shrink() {
    let _alone = alone();
    for align in [1, 8, 64, 4096, 1 << 16, 2 << 20] {
        let mut layout = Layout::from_size_align(24, align).unwrap();
        // SAFETY: the block has the layout in every call, and its first bytes are initialised.
        unsafe {
            let mut block = alloc(layout);
            block.write_bytes(7, 24);
            for size in [100, 5000, 70_000, 3 << 20, 9 << 20, 5 << 20, 4096, 24] {
                block = realloc(block, layout, size);
                assert!(!block.is_null());
                layout = Layout::from_size_align(size, align).unwrap();
                assert_eq!(block.addr() % align, 0);
                assert!(is_filled(block, 24, 7));
                block.write_bytes(7, size);
                assert!(is_filled(block, size, 7));
            }
            dealloc(block, layout);
        }
    }
}

#[test]
fn zeroed_memory_is_zero_when_it_was_used_before() {
    let _alone = alone();
    for round in 0..3 {
        for size in [64, 4096, 200_000, 3 << 20, 17 << 20] {
            let layout = Layout::from_size_align(size, 16).unwrap();
            // SAFETY: the block has the layout, and is initialised.
            unsafe {
                let block = alloc_zeroed(layout);
                assert!(is_filled(block, size, 0), "{size} bytes in round {round}");
                block.write_bytes(0xFF, size);
                dealloc(block, layout);
            }
        }
    }
}

#[test]
fn threads_free_what_others_have_allocated() {
    let alone = alone();
    const THREADS: u64 = 4;
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| mpsc::sync_channel::<(u8, Vec<u8>)>(64)).unzip();
    thread::scope(|scope| {
        for (thread, receiver) in (0..THREADS).zip(receivers) {
            let senders = senders.clone();
            scope.spawn(move || {
                let mut random = thread + 1;
                let mut kept = BTreeMap::new();
                for step in 0..4000 {
                    random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                    let size = 1 << (random >> 60);
                    let size = size << (random >> 56 & 7) | 1;
                    let fill = (random >> 40) as u8;
                    let block = vec![fill; size as usize];
                    if random >> 33 & 1 == 0 {
                        kept.insert(step % 64, (fill, block));
                    } else {
                        // A thread that is done receives nothing, and one that waits for a CPU only a part.
                        let _ = senders[(random >> 34 & 3) as usize].try_send((fill, block));
                    }
                    for (fill, block) in receiver.try_iter().take(4) {
                        assert!(block.iter().all(|byte| *byte == fill));
                    }
                }
                assert!(kept.values().all(|(fill, block)| block.iter().all(|byte| byte == fill)));
            });
        }
    });
    drop(senders);
    assert!(alone.heap.summary().allocations > 0);
}
