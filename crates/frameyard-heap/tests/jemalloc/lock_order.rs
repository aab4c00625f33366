//! The order of jemalloc's locks and the yard's: a thread that waits for the yard in a hook holds no lock that a fork takes.

use std::alloc::{Layout, alloc, dealloc, realloc};
use std::hint::black_box;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::Duration;

use frameyard_heap::jemalloc::purge;

use crate::alone;

unsafe extern "C" {
    /// jemalloc's handlers for forks: one takes all of its locks, the other releases them.
    #[link_name = "_rjem_je_jemalloc_prefork"]
    fn lock_jemalloc();
    #[link_name = "_rjem_je_jemalloc_postfork_parent"]
    fn unlock_jemalloc();
}

/// What the locks of a fork may take, in seconds.
const LIMIT: u32 = 30;

/// The state of a thread of this process, such as `S` for one that sleeps. Allocates nothing.
fn state(thread: i32) -> Option<u8> {
    let mut path = [0_u8; 64];
    let mut text = [0_u8; 256];
    // SAFETY: a path that ends with 0, and buffers of the lengths given.
    let read = unsafe {
        libc::snprintf(path.as_mut_ptr().cast(), path.len(), c"/proc/self/task/%d/stat".as_ptr(), thread);
        let file = libc::open(path.as_ptr().cast(), libc::O_RDONLY);
        let read = libc::read(file, text.as_mut_ptr().cast(), text.len());
        libc::close(file);
        read
    };
    let text = &text[..usize::try_from(read).ok()?];
    let name_end = text.iter().rposition(|byte| *byte == b')')?;
    text.get(name_end + 2).copied()
}

/// Locks the yard as a fork does, has a thread do `work`, which needs the yard, and takes the locks of jemalloc while it waits.
fn fork_during(name: &str, prepare: impl FnOnce() + Send, work: impl FnOnce() + Send) {
    let alone = alone();
    // SAFETY: nothing is freed to the yard but by the heap.
    let yard = unsafe { alone.heap.yard() };
    let (worker, is_locked) = (AtomicI32::new(0), AtomicI32::new(0));
    let mut waits = false;
    thread::scope(|scope| {
        scope.spawn(|| {
            prepare();
            // SAFETY: returns the calling thread's number.
            worker.store(unsafe { libc::gettid() }, Ordering::SeqCst);
            while is_locked.load(Ordering::SeqCst) == 0 {
                std::hint::spin_loop();
            }
            work();
        });
        while worker.load(Ordering::SeqCst) == 0 {
            thread::yield_now();
        }
        yard.core().lock_all().unwrap();
        is_locked.store(1, Ordering::SeqCst);
        // The thread spins at first. It sleeps nowhere else.
        // On a busy host it may not run for a while.
        for _ in 0..60_000 {
            thread::sleep(Duration::from_millis(1));
            waits = state(worker.load(Ordering::SeqCst)) == Some(b'S');
            if waits {
                break;
            }
        }
        // SAFETY: the locks are released in the same thread, and `lock_all` has succeeded.
        unsafe {
            libc::alarm(LIMIT);
            lock_jemalloc();
            unlock_jemalloc();
            libc::alarm(0);
            yard.core().unlock_all();
        }
    });
    assert!(waits, "{name}: the thread did not wait for the yard");
}

#[test]
fn a_large_block_waits_without_a_lock_of_jemalloc() {
    fork_during("a large block", || assert!(purge()), || drop(black_box(Vec::<u8>::with_capacity(20 << 20))));
}

#[test]
fn a_slab_waits_without_a_lock_of_jemalloc() {
    let many = || {
        let layout = Layout::from_size_align(14 << 10, 8).unwrap();
        let mut blocks = [std::ptr::null_mut(); 1000];
        // SAFETY: the size is not zero, and each block is freed once.
        unsafe {
            blocks.fill_with(|| alloc(layout));
            black_box(blocks).into_iter().for_each(|block| dealloc(block, layout));
        }
    };
    fork_during("slabs", || assert!(purge()), many);
}

#[test]
fn a_block_that_grows_waits_without_a_lock_of_jemalloc() {
    let grow = || {
        let layout = |mib: usize| Layout::from_size_align(mib << 20, 8).unwrap();
        // SAFETY: the block has the layout in each call.
        unsafe {
            let block = realloc(black_box(alloc(layout(4))), layout(4), 24 << 20);
            dealloc(black_box(block), layout(24));
        }
    };
    fork_during("growth", || assert!(purge()), grow);
}
