//! Requests beyond the size of the yard fail, and the heap works afterwards.
//!
//! jemalloc keeps small extents for itself anywhere in the yard. So no test counts on more than 32 MiB of contiguous memory.

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc};
use std::hint::{black_box, spin_loop};
use std::iter::repeat_with;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use frameyard_heap::jemalloc::{purge, sys};

use crate::alone;

const MIB: Layout = match Layout::from_size_align(1 << 20, 8) {
    Ok(layout) => layout,
    Err(_) => panic!(),
};

#[test]
fn a_block_larger_than_the_yard_is_refused() {
    let alone = alone();
    let failures = alone.heap.summary().failures;
    assert!(Vec::<u8>::new().try_reserve(1 << 30).is_err());
    assert!(alone.heap.summary().failures > failures);
    let mut fits = Vec::<u8>::new();
    fits.try_reserve(16 << 20).expect("a sixteenth of the yard");
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
        again.try_reserve_exact(16 << 20).expect("the memory is free again");
    }
}

/// Has the calling thread use an arena.
fn use_arena(mut arena: u32) {
    // SAFETY: the value is of the type that the name requires.
    let status = unsafe {
        let value = (&raw mut arena).cast();
        sys::mallctl(c"thread.arena".as_ptr(), ptr::null_mut(), ptr::null_mut(), value, size_of_val(&arena))
    };
    assert_eq!(status, 0);
}

/// Allocates blocks of 1 MiB until there is no room for another one.
fn fill(held: &mut Vec<*mut u8>) {
    // SAFETY: the size is not zero.
    let blocks = repeat_with(|| unsafe { alloc(MIB) });
    held.extend(blocks.take_while(|block| !block.is_null()).take(held.capacity() - held.len()));
}

fn free_all(held: Vec<*mut u8>) {
    for block in held {
        // SAFETY: a block of that layout, which the test owns.
        unsafe { dealloc(block, MIB) };
    }
}

#[test]
fn memory_that_another_arena_keeps_is_found() {
    let _alone = alone();
    for (keeps, asks) in [(0, 1), (1, 0)] {
        let mut held = Vec::with_capacity(257);
        use_arena(keeps);
        let kept = black_box(Vec::<u8>::with_capacity(32 << 20));
        fill(&mut held);
        drop(kept);
        use_arena(asks);
        // Less than was freed: jemalloc may need some of it for itself.
        let found = Vec::<u8>::new().try_reserve_exact(4 << 20);
        free_all(held);
        // Only now: a message needs memory.
        assert_eq!(found, Ok(()), "arena {keeps} has freed 32 MiB");
    }
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
    for _ in 0..10 {
        let mut held = Vec::with_capacity(257);
        let step = Step(AtomicU32::new(0));
        let found = thread::scope(|scope| {
            scope.spawn(|| {
                use_arena(1);
                // Written: the host takes some time to take it back.
                let large = black_box([(); 25].map(|()| vec![1_u8; 4 << 20]));
                step.reach(1);
                step.wait(2);
                drop(large);
                step.reach(3);
                purge();
            });
            step.wait(1);
            use_arena(0);
            fill(&mut held);
            step.reach(2);
            step.wait(3);
            // SAFETY: the size is not zero.
            let block = unsafe { black_box(alloc(MIB)) };
            held.extend(Some(block).filter(|block| !block.is_null()));
            !block.is_null()
        });
        free_all(held);
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
