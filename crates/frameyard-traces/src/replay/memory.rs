//! The memory that a yard's own structures lie in.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use frameyard::{ByteSize, RawRegion};

/// Alignment of the structures of a yard.
const ALIGN: usize = 4096;

/// Zeroed memory. The host provides pages of it as they are touched.
#[derive(Debug)]
pub(super) struct Zeroed {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the value owns its memory, which any thread may use and free.
unsafe impl Send for Zeroed {}
// SAFETY: a shared reference gives its address away only.
unsafe impl Sync for Zeroed {}

impl Zeroed {
    /// That many bytes; `None` if there are not as many.
    pub(super) fn new(size: ByteSize) -> Option<Self> {
        let layout = Layout::from_size_align(usize::try_from(size.0).ok()?.max(ALIGN), ALIGN).ok()?;
        // SAFETY: the layout has a size above 0.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Self { base, layout })
    }

    pub(super) fn region(&self) -> RawRegion {
        RawRegion { base: self.base, size: ByteSize(self.layout.size() as u64) }
    }
}

impl Drop for Zeroed {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, and freed only here.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}
