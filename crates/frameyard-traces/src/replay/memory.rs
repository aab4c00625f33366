//! The memory that a yard's own structures lie in.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::ptr::NonNull;

use frameyard::{ByteSize, Geometry, NodeId, PfnRange, RawRegion};

/// What the structures of a replay's yard take.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct YardParts {
    /// The geometry of the yard.
    pub geometry: Geometry,
    /// The memory of the yard, ascending.
    pub memory: Vec<(PfnRange, NodeId)>,
    /// The size of the memory map.
    pub map: ByteSize,
    /// The size of the control region.
    pub control: ByteSize,
}

/// The memory map and the control region of a yard. Dropping it frees them.
///
/// # Safety
///
/// The regions are as large as [`YardParts`] asked and begin at multiples of 4096. Their bytes are zero when the yard is created. As long as
/// the value lives, they stay mapped, and nothing but the yard writes to them.
pub unsafe trait YardMemory: fmt::Debug + Send + Sync {
    /// The memory map.
    fn map(&self) -> RawRegion;
    /// The control region.
    fn control(&self) -> RawRegion;
}

/// Makes the memory of a yard; `None` if there is not as much.
pub type MakeMemory<'m> = &'m dyn Fn(&YardParts) -> Option<Box<dyn YardMemory>>;

/// Memory of this process.
#[derive(Debug)]
struct OwnMemory {
    map: Zeroed,
    control: Zeroed,
}

// SAFETY: `Zeroed` aligns and zeroes its memory, and frees it when it is dropped. Nothing else has its address.
unsafe impl YardMemory for OwnMemory {
    fn map(&self) -> RawRegion {
        self.map.region()
    }

    fn control(&self) -> RawRegion {
        self.control.region()
    }
}

/// Memory of this process, which no other one reads; `None` if there is not as much.
#[must_use]
pub fn own_memory(parts: &YardParts) -> Option<Box<dyn YardMemory>> {
    Some(Box::new(OwnMemory { map: Zeroed::new(parts.map)?, control: Zeroed::new(parts.control)? }))
}

/// Alignment of the structures of a yard.
const ALIGN: usize = 4096;

/// Zeroed memory. The host provides pages of it as they are touched.
#[derive(Debug)]
struct Zeroed {
    base: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the value owns its memory, which any thread may use and free.
unsafe impl Send for Zeroed {}
// SAFETY: a shared reference gives its address away only.
unsafe impl Sync for Zeroed {}

impl Zeroed {
    /// That many bytes; `None` if there are not as many.
    fn new(size: ByteSize) -> Option<Self> {
        let layout = Layout::from_size_align(usize::try_from(size.0).ok()?.max(ALIGN), ALIGN).ok()?;
        // SAFETY: the layout has a size above 0.
        let base = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Self { base, layout })
    }

    fn region(&self) -> RawRegion {
        RawRegion { base: self.base, size: ByteSize(self.layout.size() as u64) }
    }
}

impl Drop for Zeroed {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout, and freed only here.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}
