//! A process forks while its threads allocate. The child goes on with a copy of the heap.

use std::alloc::{Layout, alloc, dealloc};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use frameyard_heap::jemalloc::sys;

use crate::alone;

const FORKS: usize = 20;
/// What a fork and its child may take, in seconds.
const LIMIT: u32 = 30;

/// Installs a handler of the program's own, after jemalloc's and before the yard's. So it runs while the forking thread holds the
/// locks of the yard.
#[used]
#[unsafe(link_section = ".init_array")]
static EARLY: extern "C" fn() = install_handler;

extern "C" fn install_handler() {
    // SAFETY: the first call sets up jemalloc. The handler never unwinds.
    unsafe {
        sys::free(sys::malloc(1));
        libc::pthread_atfork(Some(allocate_large), None, None);
    }
}

/// Allocates what no cache has.
extern "C" fn allocate_large() {
    let layout = Layout::from_size_align(3 << 20, 64 << 20).unwrap();
    // SAFETY: the block has the layout.
    unsafe {
        let block = black_box(alloc(layout));
        if block.is_null() || !block.addr().is_multiple_of(layout.align()) {
            libc::abort();
        }
        dealloc(block, layout);
    }
    let held: Vec<Vec<u8>> = (1..6).map(|mib| vec![1; mib << 20]).collect();
    drop(black_box(held));
}

/// Allocates and frees, so that extents come and go.
fn churn(seed: u64, is_done: impl Fn(u64) -> bool) -> bool {
    let mut random = seed;
    let mut held = Vec::new();
    let mut round = 0;
    while !is_done(round) {
        round += 1;
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let size = [40, 500, 20_000, 300_000, 3 << 20][(random >> 60) as usize % 5];
        held.push((random as u8, vec![random as u8; size]));
        if held.len() > 8 {
            let (fill, block) = held.swap_remove((random >> 33) as usize % 8);
            if block[0] != fill || block[size.min(block.len()) - 1] != fill {
                return false;
            }
        }
    }
    true
}

#[test]
fn a_forked_child_uses_its_copy_of_the_heap() {
    let alone = alone();
    let is_done = AtomicBool::new(false);
    thread::scope(|scope| {
        for seed in 1..4 {
            let is_done = &is_done;
            scope.spawn(move || assert!(churn(seed, |_| is_done.load(Ordering::Relaxed))));
        }
        let failed = (0..FORKS).map(|fork| (fork, status_of_child())).find(|(_, status)| *status != 0);
        is_done.store(true, Ordering::Relaxed);
        assert_eq!(failed, None, "a child and its status");
    });
    assert!(alone.heap.summary().in_use.0 > 0);
}

/// Forks. The child uses the heap and validates its yard.
fn status_of_child() -> i32 {
    // SAFETY: the child uses the heap, which its handlers make safe, and ends without running other code of the program.
    unsafe {
        libc::alarm(LIMIT);
        let process = libc::fork();
        if process == 0 {
            libc::alarm(LIMIT);
            let is_right = churn(99, |round| round == 64);
            // Not always in the yard: arenas also reuse what `allocate_large` got from the host.
            let large = vec![3_u8; 20 << 20];
            let is_filled = large.iter().all(|byte| *byte == 3);
            drop(large);
            let heap = frameyard_heap::jemalloc::installed();
            let is_sound = heap.is_some_and(|heap| heap.validate().is_ok());
            libc::_exit(match (is_right, is_filled, is_sound) {
                (true, true, true) => 0,
                (false, ..) => 1,
                (_, false, _) => 2,
                _ => 3,
            });
        }
        assert!(process > 0);
        let mut status = 0;
        assert_eq!(libc::waitpid(process, &raw mut status, 0), process);
        libc::alarm(0);
        status
    }
}
