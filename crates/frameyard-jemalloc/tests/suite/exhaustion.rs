//! Requests beyond the size of the yard fail, and the heap works afterwards.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc};
use std::hint::{black_box, spin_loop};
use std::iter::repeat_with;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use frameyard_jemalloc::{jemalloc, purge};

use crate::alone;

#[test]
fn a_block_larger_than_the_yard_is_refused() {
    let alone = alone();
    let failures = alone.heap.summary().failures;
    assert!(Vec::<u8>::new().try_reserve(1 << 30).is_err());
    assert!(alone.heap.summary().failures > failures);
    let mut fits = Vec::<u8>::new();
    fits.try_reserve(64 << 20).expect("a quarter of the yard");
    assert!(alone.heap.contains(fits.as_ptr()));
}

#[test]
fn a_full_yard_gives_null_and_serves_again_after_a_free() {
    let alone = alone();
    for size in [3 << 20, 200_000] {
        let layout = Layout::from_size_align(size, 8).unwrap();
        let most = (256 << 20) / size;
        let mut held = Vec::with_capacity(most + 1);
        // SAFETY: the size is not zero.
        let full = (0..=most).any(|_| match unsafe { alloc(layout) } {
            block if block.is_null() => true,
            block => {
                held.push(block);
                false
            }
        });
        let (count, outside) = (held.len(), held.iter().filter(|block| !alone.heap.contains(**block)).count());
        for block in held {
            // SAFETY: a block of that layout, which the test owns.
            unsafe { dealloc(block, layout) };
        }
        // Only now: a message about a failed assertion needs memory.
        assert!(full && count > most / 2, "{count} blocks of {size} bytes");
        assert_eq!(outside, 0, "of {count} blocks of {size} bytes");
        let mut again = Vec::<u8>::new();
        again.try_reserve_exact(64 << 20).expect("the memory is free again");
    }
}

/// Has the calling thread use an arena.
fn use_arena(mut arena: u32) {
    // SAFETY: the value is of the type that the name requires.
    let status = unsafe {
        let value = (&raw mut arena).cast();
        jemalloc::mallctl(c"thread.arena".as_ptr(), ptr::null_mut(), ptr::null_mut(), value, size_of_val(&arena))
    };
    assert_eq!(status, 0);
}

#[test]
fn memory_that_another_arena_keeps_is_found() {
    let _alone = alone();
    // What is left has room for one of the blocks below.
    let most = vec![1_u8; 150 << 20];
    for arena in [0, 1, 0] {
        use_arena(arena);
        let mut large = Vec::<u8>::new();
        large.try_reserve_exact(60 << 20).expect("the other arena's block is free");
        black_box(large);
    }
    drop(black_box(most));
}

/// The order of what two threads do.
struct Step(AtomicU32);

impl Step {
    fn reach(&self, step: u32) {
        self.0.store(step, Ordering::Release);
    }

    fn wait(&self, step: u32) {
        while self.0.load(Ordering::Acquire) < step {
            spin_loop();
        }
    }
}

#[test]
fn memory_that_another_thread_is_purging_is_waited_for() {
    let _alone = alone();
    let layout = Layout::from_size_align(1 << 20, 8).unwrap();
    let mut held = Vec::with_capacity(256);
    for _ in 0..10 {
        let step = Step(AtomicU32::new(0));
        let found = thread::scope(|scope| {
            scope.spawn(|| {
                use_arena(1);
                // Written: the host takes some time to take it back.
                let large = black_box(vec![1_u8; 100 << 20]);
                step.reach(1);
                step.wait(2);
                drop(large);
                step.reach(3);
                purge();
            });
            step.wait(1);
            use_arena(0);
            // SAFETY: the size is not zero.
            let filled = repeat_with(|| unsafe { alloc(layout) }).take_while(|block| !block.is_null());
            held.extend(filled);
            step.reach(2);
            step.wait(3);
            // SAFETY: the size is not zero.
            let block = unsafe { black_box(alloc(layout)) };
            held.push(block);
            !block.is_null()
        });
        for block in held.drain(..).filter(|block| !block.is_null()) {
            // SAFETY: a block of that layout, which the test owns.
            unsafe { dealloc(block, layout) };
        }
        assert!(found);
    }
}

#[test]
fn hooks_keep_the_error_number() {
    let _alone = alone();
    // SAFETY: the calling thread's own number.
    let number = unsafe { libc::__errno_location() };
    let layout = Layout::from_size_align(30 << 20, 8).unwrap();
    // SAFETY: the block has the layout. Locked memory cannot be returned to the host, which sets a number.
    unsafe {
        let block = black_box(alloc(layout));
        let is_locked = libc::mlock(block.cast(), 1 << 16) == 0;
        number.write(77);
        dealloc(block, layout);
        purge();
        assert_eq!(number.read(), 77);
        if !is_locked {
            println!("skipped: locked memory, which this user must not have");
        }
        let block = alloc_zeroed(layout);
        block.write_bytes(1, 1 << 20);
        assert_eq!(number.read(), 77);
        dealloc(block, layout);
    }
}

#[test]
fn locked_memory_is_zero_when_it_is_used_again() {
    let alone = alone();
    let layout = Layout::from_size_align(30 << 20, 8).unwrap();
    // SAFETY: the blocks have the layout.
    unsafe {
        let block = black_box(alloc(layout));
        if libc::mlock(block.cast(), 1 << 16) != 0 {
            println!("skipped: locked memory, which this user must not have");
        }
        block.write_bytes(0xFF, layout.size());
        let before = alone.heap.summary().in_use;
        dealloc(block, layout);
        purge();
        assert!(alone.heap.summary().in_use < before, "the frames are free again");
        let blocks = [(); 7].map(|()| alloc_zeroed(layout));
        for block in blocks.into_iter().filter(|block| !block.is_null()) {
            assert!(std::slice::from_raw_parts(block, layout.size()).iter().all(|byte| *byte == 0));
            libc::munlock(block.cast(), layout.size());
            dealloc(block, layout);
        }
    }
}
