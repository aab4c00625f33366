//! Memory for tests: a buffer that stands for a range of physical addresses.

use core::ptr::NonNull;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};

use super::EarlyMemory;
use frameyard_units::{ByteSize, PhysAddr};

/// A page-aligned buffer behind the physical addresses from `base` on.
#[derive(Debug)]
pub(super) struct TestMemory {
    base: u64,
    layout: Layout,
    bytes: NonNull<u8>,
}

impl TestMemory {
    pub(super) fn new(base: PhysAddr, size: ByteSize) -> Self {
        assert!(size.0 > 0);
        let layout = Layout::from_size_align(size.0 as usize, 4096).unwrap();
        // SAFETY: the layout has a size that is not zero.
        let bytes = unsafe { alloc_zeroed(layout) };
        let bytes = NonNull::new(bytes).unwrap_or_else(|| handle_alloc_error(layout));
        Self { base: base.0, layout, bytes }
    }
}

// SAFETY: the value owns its buffer, as a box would.
unsafe impl Send for TestMemory {}

// SAFETY: the buffer lives and stays where it is until the value is dropped, and the value is its only owner.
unsafe impl EarlyMemory for TestMemory {
    fn map(&self, start: PhysAddr, size: ByteSize) -> Option<NonNull<u8>> {
        let offset = start.0.checked_sub(self.base)?;
        let end = offset.checked_add(size.0)?;
        // SAFETY: the offset is within the buffer.
        (end <= self.layout.size() as u64).then(|| unsafe { self.bytes.add(offset as usize) })
    }
}

impl Drop for TestMemory {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.bytes.as_ptr(), self.layout) };
    }
}
