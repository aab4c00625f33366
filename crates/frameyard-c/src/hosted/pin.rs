//! Pins: the frames behind addresses, kept in place until they are released.

use std::ptr::NonNull;

use crate::shared::fy_status::FY_BAD_FLAGS;
use crate::shared::{Failure, call_with, fy_error, fy_range, fy_status, place};
use frameyard_host::{HostPlatform, Pfn};
use frameyard_vm::{AddressSpace, Dirty, PageLevel, PageRun, PinCall, PinFlags, PinRequest, RefHandling, VirtAddr, Vm};

use crate::hosted::handle::fy_yard;
use crate::hosted::space::{call_space, fy_space, range_of};
use crate::hosted::space_failure::SpaceFailure;

/// Pin: the bytes will be read.
pub const FY_PIN_READ: u32 = 0;
/// Pin: the bytes will be written.
pub const FY_PIN_WRITE: u32 = 0x1;
/// Pin: for long. Pages are first moved out of memory that must stay movable (`FOLL_LONGTERM`).
pub const FY_PIN_LONGTERM: u32 = 0x2;
/// Pin: allows writes to read-only anonymous memory (`FOLL_FORCE`, for debuggers).
pub const FY_PIN_FORCE: u32 = 0x4;
/// Pin and release: references in place of pins. Pages are not freed, but may move.
pub const FY_PIN_REFERENCE: u32 = 0x8;
/// Pin and release: one operation for each page, in place of one for all that share a head. The counts are the same.
pub const FY_PIN_PER_PAGE: u32 = 0x10;
/// Release: the bytes were written.
pub const FY_PIN_DIRTY: u32 = 0x20;

const TO_PIN: u32 = FY_PIN_WRITE | FY_PIN_LONGTERM | FY_PIN_FORCE | FY_PIN_REFERENCE | FY_PIN_PER_PAGE;
const TO_RELEASE: u32 = FY_PIN_REFERENCE | FY_PIN_PER_PAGE | FY_PIN_DIRTY;

// The arrays of the caller are used as they are.
const _: () = assert!(size_of::<PageRun>() == size_of::<fy_range>() && align_of::<PageRun>() == align_of::<fy_range>());
const _: () = assert!(std::mem::offset_of!(PageRun, first) == std::mem::offset_of!(fy_range, start));
const _: () = assert!(std::mem::offset_of!(PageRun, pages) == std::mem::offset_of!(fy_range, count));
const _: () = assert!(size_of::<Pfn>() == size_of::<u64>() && align_of::<Pfn>() == align_of::<u64>());

fn checked(flags: u32, known: u32) -> Result<RefHandling, Failure> {
    if flags & !known != 0 {
        return Err(Failure::Other(FY_BAD_FLAGS, "flags that this call does not know: use FY_PIN_*"));
    }
    Ok(if flags & FY_PIN_PER_PAGE != 0 { RefHandling::PerPage } else { RefHandling::Batched })
}

fn request_of(flags: u32) -> Result<PinRequest, Failure> {
    let refs = checked(flags, TO_PIN)?;
    let call = if flags & FY_PIN_REFERENCE != 0 { PinCall::Get } else { PinCall::Pin };
    let options =
        [(FY_PIN_WRITE, PinFlags::WRITE), (FY_PIN_LONGTERM, PinFlags::LONGTERM), (FY_PIN_FORCE, PinFlags::FORCE)];
    let request = PinRequest { call, refs, ..PinRequest::default() };
    Ok(options.into_iter().filter(|(bit, _)| flags & bit != 0).fold(request, |request, (_, flag)| request.with(flag)))
}

/// The caller's array of `count` values.
fn array<T>(at: *mut T, count: usize, name: &'static str) -> Result<NonNull<T>, Failure> {
    let at = place(at, name)?;
    if count > isize::MAX as usize / size_of::<T>() { Err(Failure::Array(count)) } else { Ok(at) }
}

/// Pins the pages from `address` on, one for each element of `frames`, writes the frames there, and sets `*pinned` to their number, at
/// least 1 and less than `count` if a page cannot be pinned: the next call says why. Pages that are missing are allocated.
///
/// A pinned frame is neither moved nor freed until `fy_unpin`, even if its address is unmapped and its space destroyed.
///
/// Errors: `FY_BAD_ADDRESS` if nothing is mapped there or the mapping forbids the access, `FY_BAD_ARGUMENT` for an address that is not
/// aligned to 4096 bytes and for no page, `FY_BAD_FLAGS`, `FY_BAD_FRAME` for a device that is not mapped in the yard, `FY_BUSY` if a page
/// cannot be moved for a long pin, `FY_OUT_OF_MEMORY`, `FY_DAMAGED`, `FY_NULL_POINTER`, `FY_PANICKED`. `*pinned` is 0 then.
///
/// Thread safety: any thread. Cost: without a lock where pages are present: a locked operation for each entry of page tables.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fy_pin(
    space: *const fy_space,
    address: u64,
    flags: u32,
    frames: *mut u64,
    count: usize,
    pinned: *mut usize,
    error: *mut fy_error,
) -> fy_status {
    let work = |space: &AddressSpace<'_, HostPlatform>| {
        let pinned = place(pinned, "pinned")?;
        // SAFETY: writable, as the caller says.
        unsafe { pinned.write(0) };
        let frames = array(frames.cast::<Pfn>(), count, "frames")?;
        let request = request_of(flags)?;
        // SAFETY: the caller says that `count` numbers can be written there. They get values first.
        let frames = unsafe {
            frames.write_bytes(0, count);
            std::slice::from_raw_parts_mut(frames.as_ptr(), count)
        };
        let taken = space.take_pages(VirtAddr(address), request, frames)?;
        // SAFETY: as above.
        unsafe { pinned.write(taken.0 as usize) };
        Ok(())
    };
    // SAFETY: passed on to the caller.
    unsafe { call_space(space, error, work) }
}

/// As `fy_pin`, for a range of addresses and with runs of consecutive frames as the result: sets `*filled` to the number of runs, and
/// `*bytes_pinned` to the bytes in them, less than `bytes` if `runs` is full or a page cannot be pinned. Runs are merged where frames
/// continue, whatever blocks they are in. `fy_unpin_runs` releases them.
///
/// Errors: as `fy_pin`; `*filled` and `*bytes_pinned` are 0 then. Thread safety: any thread. Cost: as `fy_pin`, with 16 bytes written for
/// each run.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fy_pin_runs(
    space: *const fy_space,
    address: u64,
    bytes: u64,
    flags: u32,
    runs: *mut fy_range,
    capacity: usize,
    filled: *mut usize,
    bytes_pinned: *mut u64,
    error: *mut fy_error,
) -> fy_status {
    let work = |space: &AddressSpace<'_, HostPlatform>| {
        let (filled, pinned) = (place(filled, "filled")?, place(bytes_pinned, "bytes_pinned")?);
        // SAFETY: writable, as the caller says.
        unsafe {
            filled.write(0);
            pinned.write(0);
        }
        let runs = array(runs.cast::<PageRun>(), capacity, "runs")?;
        let (range, request) = (range_of(address, bytes)?, request_of(flags)?);
        // SAFETY: the caller says that as many ranges can be written there. They get values first, and have the form of a run.
        let runs = unsafe {
            runs.write_bytes(0, capacity);
            std::slice::from_raw_parts_mut(runs.as_ptr(), capacity)
        };
        let taken = space.take_runs(range, request, runs)?;
        // SAFETY: as above.
        unsafe {
            filled.write(taken.runs);
            pinned.write(taken.pages.0 * PageLevel::Small.size().0);
        }
        Ok(())
    };
    // SAFETY: passed on to the caller.
    unsafe { call_space(space, error, work) }
}

/// Releases one pin of each frame, or one reference with `FY_PIN_REFERENCE`. Release only what you have taken.
///
/// Errors: `FY_BAD_FRAME` for a frame that is no page of a space, `FY_NOT_COUNTED` for one with fewer pins; the error names the first.
/// All frames are checked first, and nothing is released then. `FY_BAD_FLAGS`, `FY_BAD_ARGUMENT`, `FY_DAMAGED`, `FY_NULL_POINTER`,
/// `FY_PANICKED`.
///
/// Thread safety: any thread. Cost: a locked operation for all neighbours in the array that share a block.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fy_unpin(
    yard: *const fy_yard,
    frames: *const u64,
    count: usize,
    flags: u32,
    error: *mut fy_error,
) -> fy_status {
    let work = |yard: &fy_yard| {
        let frames = array(frames.cast::<Pfn>().cast_mut(), count, "frames")?;
        // SAFETY: the caller says that `count` numbers can be read there.
        let frames = unsafe { std::slice::from_raw_parts(frames.as_ptr().cast_const(), count) };
        let (refs, vm) = (checked(flags, TO_RELEASE)?, Vm::attach(yard.core())?);
        match flags & FY_PIN_REFERENCE {
            0 => vm.unpin_pages(frames, refs, dirty(flags))?,
            _ => vm.put_pages(frames, refs)?,
        }
        Ok::<(), SpaceFailure>(())
    };
    // SAFETY: passed on to the caller.
    unsafe { call_with(yard, error, work) }
}

/// As `fy_unpin`, for runs from `fy_pin_runs`.
///
/// Errors: as `fy_unpin`. Thread safety: any thread. Cost: a locked operation for each block in a run.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fy_unpin_runs(
    yard: *const fy_yard,
    runs: *const fy_range,
    count: usize,
    flags: u32,
    error: *mut fy_error,
) -> fy_status {
    let work = |yard: &fy_yard| {
        let runs = array(runs.cast_mut(), count, "runs")?;
        // SAFETY: the caller says that `count` ranges can be read there.
        let runs = unsafe { std::slice::from_raw_parts(runs.as_ptr().cast_const(), count) };
        if let Some(bad) = runs.iter().find(|run| run.start.checked_add(run.count).is_none()) {
            return Err(Failure::Range(bad.start, bad.count).into());
        }
        // SAFETY: ranges have the form of runs, as checked above.
        let runs = unsafe { std::slice::from_raw_parts(runs.as_ptr().cast::<PageRun>(), count) };
        let (refs, vm) = (checked(flags, TO_RELEASE)?, Vm::attach(yard.core())?);
        match flags & FY_PIN_REFERENCE {
            0 => vm.unpin_runs(runs, refs, dirty(flags))?,
            _ => vm.put_runs(runs, refs)?,
        }
        Ok::<(), SpaceFailure>(())
    };
    // SAFETY: passed on to the caller.
    unsafe { call_with(yard, error, work) }
}

fn dirty(flags: u32) -> Dirty {
    if flags & FY_PIN_DIRTY != 0 { Dirty::Mark } else { Dirty::Keep }
}
