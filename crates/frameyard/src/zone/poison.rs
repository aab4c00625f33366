//! Filling the bytes of free frames with a pattern, and finding out who wrote to them.

use crate::platform::{Offload, Platform};
use crate::units::{Geometry, Order, PageCount, Pfn, PfnRange};

/// The pattern: the kernel's `PAGE_POISON`.
pub(crate) const PATTERN: u8 = 0xaa;

/// Fills a block's bytes with the pattern. Does nothing where there are none.
pub(crate) fn fill<P: Platform>(platform: &P, geometry: Geometry, pfn: Pfn, order: Order) {
    write_block(platform, geometry, pfn, order, PATTERN);
}

/// Zeroes a block's bytes; `false` where there are none.
pub(crate) fn zero<P: Platform>(platform: &P, geometry: Geometry, pfn: Pfn, order: Order) -> bool {
    if platform.zero_frames(PfnRange::new(pfn, order.pages())) == Offload::Done {
        return true;
    }
    write_block(platform, geometry, pfn, order, 0)
}

fn write_block<P: Platform>(platform: &P, geometry: Geometry, pfn: Pfn, order: Order, value: u8) -> bool {
    let Some(first) = platform.frame_bytes(pfn) else { return false };
    let bytes = geometry.size_of(order.pages()).0 as usize;
    // SAFETY: the platform maps all frames of a block behind its first, and the caller owns the block.
    unsafe { first.write_bytes(value, bytes) };
    true
}

/// The first frame of a block that no longer holds the pattern.
pub(crate) fn damaged<P: Platform>(platform: &P, geometry: Geometry, pfn: Pfn, order: Order) -> Option<Pfn> {
    let first = platform.frame_bytes(pfn)?;
    let bytes = geometry.size_of(order.pages()).0 as usize;
    // SAFETY: as in `write_block`; nobody else may write to a block that was free and is now the caller's.
    let bytes = unsafe { core::slice::from_raw_parts(first.as_ptr().cast_const(), bytes) };
    let at = bytes.iter().position(|byte| *byte != PATTERN)?;
    Some(pfn + PageCount(at as u64 >> geometry.page_shift()))
}
