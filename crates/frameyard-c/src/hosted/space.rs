//! Address spaces: creating, mapping, using addresses.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

use crate::shared::fy_status::FY_BAD_ARGUMENT;
use crate::shared::sized::{self, SizedStruct};
use crate::shared::{Failure, call_with, fy_error, fy_status, place};
use frameyard::units::PhysAddr;
use frameyard_host::{ByteSize, HostPlatform, Yard};
use frameyard_vm::{
    AddressSpace, FaultError, HugeAdvice, MapRequest, MemoryAccess, PageLevel, Protection, SpaceId, VirtAddr,
    VirtRange, Vm, VmConfig, VmError,
};

use crate::hosted::create::{FY_HUGE_PAGES_ADVISE, FY_HUGE_PAGES_DEFAULT, FY_HUGE_PAGES_NEVER};
use crate::hosted::handle::fy_yard;
use crate::hosted::space_failure::SpaceFailure;

/// A mapping of anonymous memory: zeroed frames, allocated when an address is first used.
pub const FY_MAP_ANONYMOUS: u32 = 0;
/// A mapping of consecutive frames of a device.
pub const FY_MAP_DEVICE: u32 = 1;

/// An access that reads.
pub const FY_ACCESS_READ: u32 = 0;
/// An access that writes.
pub const FY_ACCESS_WRITE: u32 = 1;

/// An address space: ranges of addresses, and page tables in frames of the yard that map them to frames. Opaque: calls create and
/// destroy it. It is not the address space of the process: `fy_space_read` and `fy_space_write` use its addresses, and
/// `fy_pin` has the frames behind them.
///
/// All threads may use one space at once. Its yard must outlive it.
#[derive(Debug)]
pub struct fy_space {
    space: ManuallyDrop<AddressSpace<'static, HostPlatform>>,
    yard: *const fy_yard,
}

/// What to map. `fy_mapping_default()` sets `size`, and all other members to 0.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct fy_mapping {
    /// `sizeof(fy_mapping)`.
    pub size: usize,
    /// The first address, from 65536 on; 0: the space chooses.
    pub address: u64,
    /// The number of bytes, a multiple of 4096, or of the size of an entry for a device.
    pub bytes: u64,
    /// One of `FY_MAP_*`.
    pub kind: u32,
    /// One of `FY_HUGE_PAGES_*`, for anonymous memory.
    pub huge_pages: u32,
    /// The first frame of a device.
    pub frame: u64,
    /// What each entry of page tables maps of a device, as an order: 0, 9 or 18.
    pub page_order: u32,
    /// 1: addresses can only be read. Else 0.
    pub read_only: u32,
}

// SAFETY: numbers alone, the size first.
unsafe impl SizedStruct for fy_mapping {
    const NAME: &'static str = "fy_mapping";
}

/// The spaces of a yard, which the first call creates.
pub(crate) fn spaces_of(yard: &Yard<HostPlatform>) -> Result<Vm<'_, HostPlatform>, VmError> {
    match Vm::attach(yard) {
        Err(VmError::NotThere) => match Vm::create(yard, &VmConfig::default()) {
            // Another thread or process was faster.
            Err(VmError::AlreadyThere(_)) => Vm::attach(yard),
            made => made,
        },
        found => found,
    }
}

/// Carries out a call on a space.
///
/// # Safety
///
/// `space` is null or a handle that no call destroys meanwhile, and its yard lives. `error` is null or points to as many writable
/// bytes as the size there says.
pub(crate) unsafe fn call_space(
    space: *const fy_space,
    error: *mut fy_error,
    work: impl FnOnce(&AddressSpace<'static, HostPlatform>) -> Result<(), SpaceFailure>,
) -> fy_status {
    // SAFETY: passed on to the caller.
    let Some(found) = (unsafe { space.as_ref() }) else {
        // SAFETY: passed on to the caller.
        return unsafe { crate::shared::report(error, &Failure::Null("space")) };
    };
    // SAFETY: passed on to the caller.
    unsafe { call_with(found.yard, error, |_| work(&found.space)) }
}

/// Creates an address space. `fy_space_destroy` destroys it.
///
/// The first one also creates what all spaces of the yard share, which takes frames until the yard ends.
///
/// Errors: `FY_OUT_OF_MEMORY`, `FY_NO_FRAME_BYTES` (a phantom yard), `FY_NOT_SUPPORTED` for frames that are not of 4096 bytes, `FY_BUSY`,
/// `FY_DAMAGED`, `FY_NULL_POINTER`, `FY_PANICKED`. `*space` is null then.
///
/// Thread safety: any thread. Cost: allocates two frames.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fy_space_create(
    yard: *const fy_yard,
    space: *mut *mut fy_space,
    error: *mut fy_error,
) -> fy_status {
    // SAFETY: passed on to the caller.
    unsafe { new_handle(yard, space, error, |vm| Ok(vm.create_space()?)) }
}

/// Makes another handle of an address space that a process of a shared yard has, by the name from `fy_space_id`. The space lives
/// until its last handle is destroyed.
///
/// Errors: `FY_BAD_ARGUMENT` if there is no such space, and as `fy_space_create`. `*space` is null then.
///
/// Thread safety: any thread. Cost: a search among the spaces of the yard.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fy_space_open(
    yard: *const fy_yard,
    id: u64,
    space: *mut *mut fy_space,
    error: *mut fy_error,
) -> fy_status {
    let open = |vm: Vm<'static, HostPlatform>| {
        let none = Failure::Other(FY_BAD_ARGUMENT, "the yard has no address space of this name");
        Ok(vm.space(SpaceId::from_bits(id)).ok_or(none)?)
    };
    // SAFETY: passed on to the caller.
    unsafe { new_handle(yard, space, error, open) }
}

/// # Safety
///
/// As for [`call_with`]; and `space` is null or writable, and the yard outlives the handle.
unsafe fn new_handle(
    yard: *const fy_yard,
    space: *mut *mut fy_space,
    error: *mut fy_error,
    make: impl FnOnce(Vm<'static, HostPlatform>) -> Result<AddressSpace<'static, HostPlatform>, SpaceFailure>,
) -> fy_status {
    let work = |found: &fy_yard| {
        let place = place(space, "space")?;
        // SAFETY: writable, as the caller says.
        unsafe { place.write(std::ptr::null_mut()) };
        // SAFETY: the yard is boxed, so it stays where it is, and the header demands that it outlives the space.
        let lasting: &'static Yard<HostPlatform> = unsafe { NonNull::from(found.core()).as_ref() };
        let made = make(spaces_of(lasting)?)?;
        // SAFETY: as above.
        unsafe { place.write(Box::into_raw(Box::new(fy_space { space: ManuallyDrop::new(made), yard }))) };
        Ok::<(), SpaceFailure>(())
    };
    // SAFETY: passed on to the caller.
    unsafe { call_with(yard, error, work) }
}

/// Sets `*id` to the name of a space, by which other processes of a shared yard open it.
///
/// Errors: `FY_NULL_POINTER`, `FY_PANICKED`. Thread safety: any thread. Cost: a load.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fy_space_id(space: *const fy_space, id: *mut u64, error: *mut fy_error) -> fy_status {
    let work = |space: &AddressSpace<'_, HostPlatform>| {
        let place = place(id, "id")?;
        // SAFETY: writable, as the caller says.
        unsafe { place.write(space.id().to_bits()) };
        Ok(())
    };
    // SAFETY: passed on to the caller.
    unsafe { call_space(space, error, work) }
}

/// Destroys a handle of a space, and with the last one the space: its frames return to the yard, those that are pinned when they are
/// released. Does nothing with null.
///
/// Errors: `FY_BUSY` if a page is being moved, `FY_DAMAGED`, `FY_PANICKED`. The handle can be used and destroyed after `FY_BUSY` and
/// `FY_DAMAGED`, and is gone after all other results.
///
/// Thread safety: no other thread may use the handle during the call or later. Cost: one operation for each page.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fy_space_destroy(space: *mut fy_space, error: *mut fy_error) -> fy_status {
    if space.is_null() {
        return fy_status::FY_OK;
    }
    // SAFETY: the caller passes a handle of a space, and its yard lives.
    let yard = unsafe { (*space).yard };
    let work = |_: &fy_yard| {
        // SAFETY: a handle of a space, which no other thread uses. Its space is there: it is put back where it was not destroyed.
        let taken = unsafe { ManuallyDrop::take(&mut (*space).space) };
        match taken.exit(NonZeroUsize::MIN) {
            Ok(_) => {
                // SAFETY: a handle is a box.
                drop(unsafe { Box::from_raw(space) });
                Ok(())
            }
            Err(stalled) => {
                // SAFETY: as above.
                unsafe { (*space).space = ManuallyDrop::new(stalled.space) };
                Err(SpaceFailure::from(stalled.problem))
            }
        }
    };
    // SAFETY: passed on to the caller.
    unsafe { call_with(yard, error, work) }
}

/// Maps a range of addresses, and sets `*address` to the first one, which may be null if `mapping` names it.
///
/// Errors: `FY_IN_USE` if addresses are mapped already, `FY_BAD_ARGUMENT` for sizes, addresses and kinds that do not fit together,
/// `FY_OUT_OF_MEMORY`, `FY_BAD_SIZE`, `FY_BUSY`, `FY_DAMAGED`, `FY_NULL_POINTER`, `FY_PANICKED`. Nothing has changed then.
///
/// Thread safety: any thread. Cost: takes the map lock of the space; logarithmic in its number of mappings.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fy_space_map(
    space: *const fy_space,
    mapping: *const fy_mapping,
    address: *mut u64,
    error: *mut fy_error,
) -> fy_status {
    let work = |space: &AddressSpace<'_, HostPlatform>| {
        // SAFETY: passed on to the caller.
        let mapping = unsafe { sized::read(mapping).map_err(Failure::from)? };
        if mapping.address == 0 {
            place(address, "address")?;
        }
        let mapped = space.map(request_of(&mapping)?)?;
        if let Some(address) = NonNull::new(address) {
            // SAFETY: writable, as the caller says.
            unsafe { address.write(mapped.start.0) };
        }
        Ok(())
    };
    // SAFETY: passed on to the caller.
    unsafe { call_space(space, error, work) }
}

fn request_of(mapping: &fy_mapping) -> Result<MapRequest, Failure> {
    let bad = |text| Err(Failure::Other(FY_BAD_ARGUMENT, text));
    let bytes = ByteSize(mapping.bytes);
    let request = match mapping.kind {
        FY_MAP_ANONYMOUS => MapRequest::anonymous(bytes).advised(match mapping.huge_pages {
            FY_HUGE_PAGES_DEFAULT => HugeAdvice::Default,
            FY_HUGE_PAGES_ADVISE => HugeAdvice::Huge,
            FY_HUGE_PAGES_NEVER => HugeAdvice::Never,
            _ => return bad("no such advice on huge pages: use one of FY_HUGE_PAGES_*"),
        }),
        FY_MAP_DEVICE => {
            let page = match mapping.page_order {
                0 => PageLevel::Small,
                9 => PageLevel::Huge,
                18 => PageLevel::Gigantic,
                _ => return bad("an entry of page tables has order 0, 9 or 18"),
            };
            let first = mapping.frame.checked_mul(PageLevel::Small.size().0).ok_or(Failure::Range(mapping.frame, 1))?;
            MapRequest::device(PhysAddr(first), bytes, page)
        }
        _ => return bad("no such kind of mapping: use one of FY_MAP_*"),
    };
    let request = match mapping.read_only {
        0 => request,
        1 => request.protected(Protection::ReadOnly),
        _ => return bad("read_only is 0 or 1"),
    };
    Ok(if mapping.address == 0 { request } else { request.at(VirtAddr(mapping.address)) })
}

/// Unmaps a range of addresses, all of which are mapped: it may be a part of a mapping. Frames that nothing else uses return to the yard.
///
/// Errors: `FY_BAD_ADDRESS` if a part is not mapped, `FY_BAD_ARGUMENT` for a range that is not aligned, `FY_BUSY` if a page is being moved
/// (further pages may be gone then), `FY_DAMAGED`, `FY_OUT_OF_MEMORY`, `FY_NULL_POINTER`, `FY_PANICKED`.
///
/// Thread safety: any thread. Cost: takes the map lock of the space; one operation for each page.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fy_space_unmap(
    space: *const fy_space,
    address: u64,
    bytes: u64,
    error: *mut fy_error,
) -> fy_status {
    let work = |space: &AddressSpace<'_, HostPlatform>| {
        space.unmap(range_of(address, bytes)?)?;
        Ok(())
    };
    // SAFETY: passed on to the caller.
    unsafe { call_space(space, error, work) }
}

/// The addresses of the caller.
pub(crate) fn range_of(address: u64, bytes: u64) -> Result<VirtRange, Failure> {
    let none = Failure::Other(FY_BAD_ARGUMENT, "the range of addresses ends behind the last address");
    VirtRange::new(VirtAddr(address), ByteSize(bytes)).ok_or(none)
}

/// Uses an address as a processor would: allocates and maps the page if there is none. `access` is one of `FY_ACCESS_*`.
///
/// Errors: `FY_BAD_ADDRESS` if nothing is mapped there or the mapping forbids the access, `FY_OUT_OF_MEMORY`, `FY_BUSY` if the page is being
/// moved, `FY_BAD_ARGUMENT`, `FY_DAMAGED`, `FY_NULL_POINTER`, `FY_PANICKED`.
///
/// Thread safety: any thread. Cost: a walk of the page tables; with a fault, a zeroed frame.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fy_space_touch(
    space: *const fy_space,
    address: u64,
    access: u32,
    error: *mut fy_error,
) -> fy_status {
    let work = |space: &AddressSpace<'_, HostPlatform>| {
        let access = match access {
            FY_ACCESS_READ => MemoryAccess::Read,
            FY_ACCESS_WRITE => MemoryAccess::Write,
            _ => return Err(Failure::Other(FY_BAD_ARGUMENT, "no such access: use one of FY_ACCESS_*").into()),
        };
        Ok(space.touch(VirtAddr(address), access)?)
    };
    // SAFETY: passed on to the caller.
    unsafe { call_space(space, error, work) }
}

/// Copies `count` bytes from an address of the space into `buffer`. Pages that are missing are allocated.
///
/// Errors: as `fy_space_touch`, and `FY_NO_FRAME_BYTES` for a device without bytes. Bytes in front of the address at fault are copied.
///
/// Thread safety: any thread; no other may use `buffer` meanwhile. Cost: a walk of the page tables for each page.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fy_space_read(
    space: *const fy_space,
    address: u64,
    buffer: *mut c_void,
    count: usize,
    error: *mut fy_error,
) -> fy_status {
    let work = |space: &AddressSpace<'_, HostPlatform>| {
        let buffer = bytes_at(buffer, count)?;
        // SAFETY: the caller says that `count` bytes can be written there. They get values first.
        let bytes = unsafe {
            buffer.write_bytes(0, count);
            std::slice::from_raw_parts_mut(buffer.as_ptr(), count)
        };
        Ok(space.read(VirtAddr(address), bytes)?)
    };
    // SAFETY: passed on to the caller.
    unsafe { call_space(space, error, work) }
}

/// Copies `count` bytes from `buffer` to an address of the space.
///
/// Errors: as `fy_space_read`. Thread safety: any thread; no other may write to `buffer` meanwhile. Cost: as `fy_space_read`.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fy_space_write(
    space: *const fy_space,
    address: u64,
    buffer: *const c_void,
    count: usize,
    error: *mut fy_error,
) -> fy_status {
    let work = |space: &AddressSpace<'_, HostPlatform>| {
        let buffer = bytes_at(buffer.cast_mut(), count)?;
        // SAFETY: the caller says that `count` bytes can be read there.
        let bytes = unsafe { std::slice::from_raw_parts(buffer.as_ptr().cast_const(), count) };
        Ok(space.write(VirtAddr(address), bytes)?)
    };
    // SAFETY: passed on to the caller.
    unsafe { call_space(space, error, work) }
}

fn bytes_at(buffer: *mut c_void, count: usize) -> Result<NonNull<u8>, Failure> {
    let buffer = place(buffer.cast::<u8>(), "buffer")?;
    if count > isize::MAX as usize { Err(Failure::Array(count)) } else { Ok(buffer) }
}

/// Sets `*frame` to the frame that an address maps now. It may change at once, unless it is pinned.
///
/// Errors: `FY_BAD_ADDRESS` if no page is there, or it is being moved, `FY_NULL_POINTER`, `FY_PANICKED`. `*frame` is unchanged then.
///
/// Thread safety: any thread. Cost: a walk of the page tables.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fy_space_frame(
    space: *const fy_space,
    address: u64,
    frame: *mut u64,
    error: *mut fy_error,
) -> fy_status {
    let work = |space: &AddressSpace<'_, HostPlatform>| {
        let place = place(frame, "frame")?;
        let address = VirtAddr(address);
        let found = space.translate(address).ok_or(FaultError::NotMapped(address))?;
        // SAFETY: writable, as the caller says.
        unsafe { place.write(found.pfn.0) };
        Ok(())
    };
    // SAFETY: passed on to the caller.
    unsafe { call_space(space, error, work) }
}
