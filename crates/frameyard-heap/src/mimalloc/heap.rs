//! [`Heap`]: the global allocator.

use std::alloc::{GlobalAlloc, Layout};
use std::fmt::Display;
use std::io::{self, Write};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use frameyard::policy::ZonePolicy;
use frameyard_host::ByteSize;
use libmimalloc_sys as sys;

use crate::mimalloc::arena::ArenaHeap;

/// A global allocator: mimalloc with its arena in a yard of its own.
///
/// The first allocation makes the yard. What is allocated meanwhile, and everything if that fails, comes from memory of the host; one line on
/// standard error says why it has failed.
#[derive(Debug)]
pub struct Heap {
    memory: ByteSize,
    is_tried: AtomicBool,
    arena: AtomicPtr<ArenaHeap>,
}

impl Heap {
    /// A heap in an arena of that size, rounded up to a multiple of 32 MiB.
    #[must_use]
    pub const fn with_memory(memory: ByteSize) -> Self {
        Self { memory, is_tried: AtomicBool::new(false), arena: AtomicPtr::new(ptr::null_mut()) }
    }

    /// The arena, once it exists.
    #[inline]
    #[must_use]
    pub fn arena(&self) -> Option<&ArenaHeap> {
        // Acquire: pairs with the Release in `make`.
        let arena = self.arena.load(Ordering::Acquire);
        // SAFETY: `make` has stored a pointer that is never freed, or it is null.
        unsafe { arena.as_ref() }
    }

    /// The arena. The first call makes it.
    #[inline]
    fn prepared(&self) -> Option<&ArenaHeap> {
        let arena = self.arena();
        if arena.is_none() && !self.is_tried.load(Ordering::Relaxed) {
            self.make();
        }
        arena
    }

    /// Allocates from the host meanwhile: it notes first that it was called.
    #[cold]
    #[inline(never)]
    fn make(&self) {
        if self.is_tried.swap(true, Ordering::Relaxed) {
            return;
        }
        let refuse = |problem: &dyn Display| {
            // Not `eprintln!`, which panics if the line cannot be written.
            let _ = writeln!(io::stderr(), "frameyard: {problem}; the heap uses memory of the host");
        };
        let least = ArenaHeap::least_size().0;
        let Some(size) = self.memory.0.max(1).checked_next_multiple_of(least) else {
            return refuse(&"the heap is too large");
        };
        match ArenaHeap::in_own_yard(ByteSize(size), ZonePolicy::default(), None) {
            Err(error) => refuse(&error),
            // Release: pairs with the Acquire in `arena`.
            Ok(arena) => self.arena.store(Box::leak(Box::new(arena)), Ordering::Release),
        }
    }
}

fn address(block: Option<NonNull<u8>>) -> *mut u8 {
    block.map_or(ptr::null_mut(), NonNull::as_ptr)
}

// SAFETY: mimalloc's functions do what the trait asks for. They do not unwind.
unsafe impl GlobalAlloc for Heap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match self.prepared() {
            Some(arena) => address(arena.allocate(layout)),
            // SAFETY: any size, and an alignment that is a power of two.
            None => unsafe { sys::mi_malloc_aligned(layout.size(), layout.align()) }.cast(),
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match self.prepared() {
            Some(arena) => address(arena.allocate_zeroed(layout)),
            // SAFETY: as in `alloc`.
            None => unsafe { sys::mi_zalloc_aligned(layout.size(), layout.align()) }.cast(),
        }
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _layout: Layout) {
        // SAFETY: mimalloc has allocated the block, in the arena or before it existed.
        unsafe { sys::mi_free(block.cast()) };
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        match (self.arena(), NonNull::new(block)) {
            // SAFETY: mimalloc has allocated the block with that alignment, in the arena or before it existed.
            (Some(arena), Some(block)) => address(unsafe { arena.resize(block, size, layout.align()) }),
            // SAFETY: as above.
            _ => unsafe { sys::mi_realloc_aligned(block.cast(), size, layout.align()) }.cast(),
        }
    }
}
