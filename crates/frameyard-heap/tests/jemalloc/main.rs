//! The integration tests, in one program that runs on the heap that they test.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use frameyard_heap::jemalloc::{ByteSize, Heap, HeapYard, installed, is_in_hook};

mod exhaustion;
mod fork;
mod lock_order;
mod work;

/// The heap. Ends the process if a hook allocates.
struct Checked(Heap);

#[global_allocator]
static HEAP: Checked = Checked(Heap::with_memory(ByteSize::mib(256)));

fn check_hook() {
    if is_in_hook() {
        let text = b"an extent hook has called the global allocator\n";
        // SAFETY: the bytes of the text. `abort` allocates nothing.
        unsafe {
            libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len());
            libc::abort();
        }
    }
}

// SAFETY: passes everything on.
unsafe impl GlobalAlloc for Checked {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        check_hook();
        // SAFETY: passed on.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        check_hook();
        // SAFETY: passed on.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        check_hook();
        // SAFETY: passed on.
        unsafe { self.0.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        check_hook();
        // SAFETY: passed on.
        unsafe { self.0.realloc(pointer, layout, size) }
    }
}

/// The heap's yard, for one test at a time. Validates it when the test ends.
struct Alone {
    heap: HeapYard,
    _turn: MutexGuard<'static, ()>,
}

fn alone() -> Alone {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    Alone { heap: installed().expect("the heap has a yard"), _turn: turn }
}

impl Drop for Alone {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        // Threads of the harness and of the test may be ending: they return what their caches hold.
        let is_sound = || {
            std::thread::sleep(Duration::from_millis(10));
            self.heap.validate().is_ok()
        };
        if !(0..6000).any(|_| is_sound()) {
            self.heap.validate().expect("the yard is sound");
        }
    }
}
