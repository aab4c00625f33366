//! Zeroed memory for a memory map and a control region.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use frameyard::{ByteSize, RawRegion};

/// How regions are aligned: to a page of the host.
const ALIGN: usize = 4096;

/// Zeroed memory; the host backs what is touched.
#[derive(Debug)]
pub(crate) struct ZeroedRegion {
    base: NonNull<u8>,
    layout: Layout,
}

impl ZeroedRegion {
    /// So many bytes; `None` where there are not as many.
    pub(crate) fn new(size: ByteSize) -> Option<Self> {
        let layout = Layout::from_size_align(usize::try_from(size.0).ok()?.max(1), ALIGN).ok()?;
        // SAFETY: the layout has a size.
        NonNull::new(unsafe { alloc_zeroed(layout) }).map(|base| Self { base, layout })
    }

    pub(crate) fn raw(&self) -> RawRegion {
        RawRegion { base: self.base, size: ByteSize(self.layout.size() as u64) }
    }
}

impl Drop for ZeroedRegion {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `new`.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}
