//! [`Heap`]: the global allocator.

use std::alloc::{GlobalAlloc, Layout};
use std::ffi::c_int;
use std::io::{self, Write};

use frameyard::policy::ZonePolicy;
use frameyard_host::ByteSize;
use tikv_jemalloc_sys as sys;

use crate::jemalloc::install::{install, was_tried};
use crate::jemalloc::purge::or_purge;
use crate::jemalloc::settings::Settings;

/// jemalloc aligns allocations of at least this size to it.
const QUANTUM: usize = 16;

/// A global allocator: jemalloc with its extents in a yard.
///
/// The first allocation makes the yard. If that fails, one line on standard error says why, and the heap works on mappings of the host.
/// A process has one yard, however many values of this type there are: the first one used decides.
///
/// An allocation that the yard cannot serve fails: with `AllocError` or `TryReserveError` where the caller asks for it.
#[derive(Debug)]
pub struct Heap {
    memory: ByteSize,
    policy: Option<ZonePolicy>,
}

impl Heap {
    /// The size of a yard that neither the program nor the environment sets.
    pub const DEFAULT_MEMORY: ByteSize = ByteSize::gib(4);

    /// A heap in a yard of [`DEFAULT_MEMORY`](Self::DEFAULT_MEMORY).
    #[must_use]
    pub const fn new() -> Self {
        Self::with_memory(Self::DEFAULT_MEMORY)
    }

    /// A heap in a yard of that size. The environment variable `FRAMEYARD_MEMORY` has precedence.
    #[must_use]
    pub const fn with_memory(memory: ByteSize) -> Self {
        Self { memory, policy: None }
    }

    /// Sets the policy of the yard. The environment variable `FRAMEYARD_POLICY` has precedence.
    #[must_use]
    pub const fn policy(self, policy: ZonePolicy) -> Self {
        Self { policy: Some(policy), ..self }
    }

    #[inline]
    fn prepare(&self) {
        if !was_tried() {
            self.install();
        }
    }

    /// Allocates from jemalloc meanwhile: `install` notes first that it was called.
    #[cold]
    #[inline(never)]
    fn install(&self) {
        let settings = Settings::new(self.memory);
        let settings = Settings { policy: self.policy.unwrap_or(settings.policy), ..settings };
        let problem = match settings.from_environment() {
            Ok(settings) => install(&settings).err().map(|error| error.to_string()),
            Err(error) => Some(error.to_string()),
        };
        if let Some(problem) = problem {
            // Not `eprintln!`, which panics if the line cannot be written.
            let _ = writeln!(io::stderr(), "frameyard: {problem}; the heap uses memory of the host");
        }
    }
}

impl Default for Heap {
    fn default() -> Self {
        Self::new()
    }
}

/// The flags for an alignment, or 0 where jemalloc aligns by itself.
#[inline]
fn flags(layout: Layout) -> c_int {
    if layout.align() <= QUANTUM && layout.align() <= layout.size() { 0 } else { sys::MALLOCX_ALIGN(layout.align()) }
}

// SAFETY: jemalloc's functions do what the trait asks for. They do not unwind.
unsafe impl GlobalAlloc for Heap {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.prepare();
        // SAFETY: the size is not zero.
        or_purge(|| unsafe { sys::mallocx(layout.size(), flags(layout)).cast() })
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        self.prepare();
        // SAFETY: the size is not zero.
        or_purge(|| unsafe { sys::mallocx(layout.size(), flags(layout) | sys::MALLOCX_ZERO).cast() })
    }

    #[inline]
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the block was allocated with this size and alignment.
        unsafe { sys::sdallocx(pointer.cast(), layout.size(), flags(layout)) };
    }

    #[inline]
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller passes on what `Layout` requires.
        let new = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        // SAFETY: the block is one of jemalloc's, and the new size is not zero.
        or_purge(|| unsafe { sys::rallocx(pointer.cast(), size, flags(new)).cast() })
    }
}
