//! Where the tables of a yard lie: in memory that the caller gives apart, or in frames of the yard's own memory.

use core::ptr::NonNull;

use crate::shared::Failure;
use crate::shared::fy_status::{FY_BAD_ARGUMENT, FY_OUT_OF_MEMORY};
use frameyard::boot::{BootError, Layout};
use frameyard::{ByteSize, PageCount, Pfn, PfnRange, Platform, RawRegion, YardConfig};

use crate::kernel::handle::fy_yard;
use crate::kernel::platform::Kernel;
use crate::kernel::source::Source;

/// What each table is aligned to.
const ALIGN: u64 = 128;

const _: () = assert!(align_of::<fy_yard>() as u64 <= ALIGN);

/// The sizes of the tables, which lie one behind the other: the handle, the control region, the memory map.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) layout: Layout,
    control_at: u64,
    map_at: u64,
    pub(crate) bytes: u64,
}

impl Tables {
    /// The tables of a yard.
    ///
    /// # Errors
    ///
    /// [`Failure::Boot`] where memory and configuration make no yard.
    pub(crate) fn plan(source: &Source<'_>, config: &YardConfig<'_>) -> Result<Self, Failure> {
        let layout = Layout::plan(source, config)?;
        let too_large = || Failure::Boot(BootError::TooLarge);
        let rounded = |bytes: u64| bytes.checked_next_multiple_of(ALIGN).ok_or_else(too_large);
        let control_at = rounded(size_of::<fy_yard>() as u64)?;
        let map_at = control_at.checked_add(rounded(layout.control_bytes().0)?).ok_or_else(too_large)?;
        let bytes = map_at.checked_add(rounded(layout.map_bytes().0)?).ok_or_else(too_large)?;
        if bytes > isize::MAX as u64 {
            return Err(too_large());
        }
        Ok(Self { layout, control_at, map_at, bytes })
    }

    /// Zeroes the tables, and returns the places of the handle, the control region and the map.
    ///
    /// # Safety
    ///
    /// `base` is aligned, points to as many writable bytes as the tables have, and nothing else uses them.
    pub(crate) unsafe fn clear_at(&self, base: NonNull<u8>) -> (NonNull<fy_yard>, RawRegion, RawRegion) {
        // SAFETY: passed on to the caller. The places are inside the tables.
        unsafe {
            base.write_bytes(0, self.bytes as usize);
            let region = |at: u64, size| RawRegion { base: base.add(at as usize), size };
            let control = region(self.control_at, self.layout.control_bytes());
            (base.cast(), control, region(self.map_at, self.layout.map_bytes()))
        }
    }
}

/// Whether an address suits tables.
///
/// # Errors
///
/// [`BootError::Misaligned`].
pub(crate) fn check_aligned(base: NonNull<u8>) -> Result<(), Failure> {
    if (base.addr().get() as u64).is_multiple_of(ALIGN) { Ok(()) } else { Err(BootError::Misaligned.into()) }
}

/// Checks that the bytes of each range of memory are where the kernel says.
///
/// # Errors
///
/// `FY_BAD_ARGUMENT` for frames that are not aligned to their size, or not one behind the other.
pub(crate) fn check_bytes(source: &Source<'_>, kernel: &Kernel, frame_size: ByteSize) -> Result<(), Failure> {
    for range in source.memory().filter(|range| !range.is_empty()) {
        let first = kernel.frame_bytes(range.start);
        if first.is_some_and(|bytes| !(bytes.addr().get() as u64).is_multiple_of(frame_size.0)) {
            return Err(Failure::Other(
                FY_BAD_ARGUMENT,
                "frame_bytes returns an address that is not aligned to a frame",
            ));
        }
        if first.is_some() && bytes_of(kernel, range, frame_size).is_none() {
            return Err(Failure::Other(FY_BAD_ARGUMENT, "the frames of a range are not mapped one behind the other"));
        }
    }
    Ok(())
}

/// The address of the bytes of frames that lie one behind the other.
fn bytes_of(kernel: &Kernel, frames: PfnRange, frame_size: ByteSize) -> Option<NonNull<u8>> {
    let first = kernel.frame_bytes(frames.start)?;
    let last = kernel.frame_bytes(Pfn(frames.end.0 - 1))?;
    let expected = (frames.count().0 - 1).checked_mul(frame_size.0)?;
    let distance = (last.addr().get() as u64).checked_sub(first.addr().get() as u64)?;
    (distance == expected).then_some(first)
}

/// Finds frames of the memory for tables of that size: the first that are not reserved.
///
/// # Errors
///
/// `FY_OUT_OF_MEMORY` if there are none.
pub(crate) fn find(
    source: &Source<'_>,
    kernel: &Kernel,
    bytes: u64,
    frame_size: ByteSize,
) -> Result<(PfnRange, NonNull<u8>), Failure> {
    let needed = bytes.div_ceil(frame_size.0);
    for range in source.memory() {
        let mut start = range.start.0;
        // Reserved ranges ascend by their starts.
        let ends = source.reserved().chain([PfnRange::new(range.end, PageCount(0))]);
        for reserved in ends.filter(|reserved| reserved.end > range.start && reserved.start <= range.end) {
            let found = PfnRange::new(Pfn(start), PageCount(needed));
            if start.saturating_add(needed) <= reserved.start.0
                && let Some(base) = bytes_of(kernel, found, frame_size)
            {
                return Ok((found, base));
            }
            start = start.max(reserved.end.0);
        }
    }
    Err(Failure::Other(FY_OUT_OF_MEMORY, "no range of memory has room for the tables of the yard"))
}

/// Checks that tables which the caller gives are not in frames that the allocator would use.
///
/// # Errors
///
/// `FY_BAD_ARGUMENT`.
pub(crate) fn check_apart(
    source: &Source<'_>,
    kernel: &Kernel,
    (base, bytes): (NonNull<u8>, u64),
    frame_size: ByteSize,
) -> Result<(), Failure> {
    let (from, to) = (base.addr().get() as u64, (base.addr().get() as u64).saturating_add(bytes));
    for range in source.memory() {
        let Some(first) = kernel.frame_bytes(range.start).map(|bytes| bytes.addr().get() as u64) else { continue };
        let end = first.saturating_add(range.count().0.saturating_mul(frame_size.0));
        if from >= end || to <= first {
            continue;
        }
        let frame_of = |address: u64| range.start.0 + (address - first) / frame_size.0;
        let (mut at, last) = (frame_of(from.max(first)), frame_of(to.min(end) - 1));
        for reserved in source.reserved() {
            if reserved.contains(Pfn(at)) {
                at = reserved.end.0;
            }
        }
        if at <= last {
            return Err(Failure::Other(
                FY_BAD_ARGUMENT,
                "the tables lie in frames of the memory: reserve these frames",
            ));
        }
    }
    Ok(())
}
