//! Poisoning: free frames are filled with a pattern, and a changed byte reveals a write after free.

use core::ptr::NonNull;

use crate::platform::{MemoryBacking, Offload, Platform};
use crate::units::{Geometry, Order, PageCount, Pfn, PfnRange};

/// The pattern: the kernel's `PAGE_POISON`.
pub(crate) const PATTERN: u8 = 0xaa;

/// Fills a block's bytes with the pattern. Does nothing if the block has no bytes.
///
/// # Safety
///
/// The block lies in the yard's memory and is the caller's: no list has it, and no other code accesses its bytes.
pub(crate) unsafe fn fill<P: Platform>(platform: &P, geometry: Geometry, pfn: Pfn, order: Order) {
    // SAFETY: as the caller promises.
    unsafe { write_block(platform, geometry, pfn, order, PATTERN) };
}

/// Zeroes a block's bytes. Returns false if it has none.
///
/// # Safety
///
/// As for [`fill`].
pub(crate) unsafe fn zero<P: Platform>(platform: &P, geometry: Geometry, pfn: Pfn, order: Order) -> bool {
    if platform.backing().zero_frames(PfnRange::new(pfn, order.pages())) == Offload::Done {
        return true;
    }
    // SAFETY: as the caller promises.
    unsafe { write_block(platform, geometry, pfn, order, 0) }
}

/// Where the bytes of a range begin; `None` if the platform does not map all of them one behind the other. The range may be
/// anything: it may come from a corrupt list.
pub(crate) fn bytes_of<P: Platform>(platform: &P, geometry: Geometry, range: PfnRange) -> Option<NonNull<u8>> {
    let behind_first = geometry.size_of(PageCount((range.end.0 - range.start.0).checked_sub(1)?)).0 as usize;
    let first = platform.frame_bytes(range.start)?;
    let last = platform.frame_bytes(Pfn(range.end.0 - 1))?;
    (last.addr().get().wrapping_sub(first.addr().get()) == behind_first).then_some(first)
}

/// # Safety
///
/// As for [`fill`].
unsafe fn write_block<P: Platform>(platform: &P, geometry: Geometry, pfn: Pfn, order: Order, value: u8) -> bool {
    let Some(first) = bytes_of(platform, geometry, PfnRange::new(pfn, order.pages())) else { return false };
    let bytes = geometry.size_of(order.pages()).0 as usize;
    // SAFETY: the platform maps all frames of the block behind its first, and the caller owns the block.
    unsafe { first.write_bytes(value, bytes) };
    true
}

/// The first frame of a block that no longer holds the pattern.
///
/// # Safety
///
/// As for [`fill`]. A stray write by a former owner while this runs is the bug that poisoning looks for, and undefined
/// behaviour of that owner.
pub(crate) unsafe fn damaged<P: Platform>(platform: &P, geometry: Geometry, pfn: Pfn, order: Order) -> Option<Pfn> {
    let first = bytes_of(platform, geometry, PfnRange::new(pfn, order.pages()))?;
    let bytes = geometry.size_of(order.pages()).0 as usize;
    // SAFETY: as in `write_block`.
    let bytes = unsafe { core::slice::from_raw_parts(first.as_ptr().cast_const(), bytes) };
    let at = bytes.iter().position(|byte| *byte != PATTERN)?;
    Some(pfn + PageCount(at as u64 >> geometry.page_shift()))
}
