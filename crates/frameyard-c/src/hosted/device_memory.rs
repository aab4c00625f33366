//! The bytes of devices: files, DAX devices of the host, memory files.

use std::ffi::{CStr, OsStr, c_char};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use crate::shared::fy_status::FY_BAD_ARGUMENT;
use crate::shared::sized::{self, SizedStruct};
use crate::shared::{Failure, call_with, fy_error, fy_status, place, range_of};
use frameyard_host::{ByteSize, DeviceAlignment, DeviceBacking, DeviceMemory, DeviceSharing, FileGrowth};

use crate::hosted::failure::HostFailure;
use crate::hosted::handle::fy_yard;

/// Bytes of a device: a memory file of this process.
pub const FY_DEVICE_MEMFD: u32 = 0;
/// Bytes of a device: a file, which must be large enough.
pub const FY_DEVICE_FILE: u32 = 1;
/// Bytes of a device: a file, which grows to the size, and is created if it does not exist.
pub const FY_DEVICE_GROWING_FILE: u32 = 2;
/// Bytes of a device: a DAX device of the host, as in `/dev/dax0.0`.
pub const FY_DEVICE_DAX: u32 = 3;

/// The bytes of a device. `fy_device_memory_default()` sets `size`, and all other members to 0.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct fy_device_memory {
    /// `sizeof(fy_device_memory)`.
    pub size: usize,
    /// The number of bytes, a multiple of `alignment`. 0 with `FY_DEVICE_DAX`: all of it.
    pub bytes: u64,
    /// What addresses and sizes are multiples of: 4096, 2^21 or 2^30. 0: 2^21.
    pub alignment: u64,
    /// One of `FY_DEVICE_MEMFD`, `FY_DEVICE_FILE`, `FY_DEVICE_GROWING_FILE`, `FY_DEVICE_DAX`.
    pub backing: u32,
    /// 1: other processes of a shared yard may open the file, too. Else 0: it is locked.
    pub shared: u32,
    /// The path of the file or the device. Not used by `FY_DEVICE_MEMFD`.
    pub path: *const c_char,
}

// SAFETY: numbers and pointers, the size first; all of them may be zero.
unsafe impl SizedStruct for fy_device_memory {
    const NAME: &'static str = "fy_device_memory";
}

/// Gives bytes to the frames of a device, from `start` on: `fy_address` and page tables find them then. `fy_device_map` maps the device,
/// before or later; a device without bytes can be mapped, too. In a shared yard each process adds the bytes for itself.
///
/// Errors: `FY_BAD_FRAME` if frames have bytes, `FY_BAD_ARGUMENT` for sizes and alignments that do not fit together, `FY_NO_HOST_MEMORY`,
/// `FY_SYSTEM`, `FY_BAD_SIZE`, `FY_NULL_POINTER`, `FY_PANICKED`. Nothing has changed then.
///
/// Thread safety: any thread. Cost: opens and maps the file, and touches none of its bytes.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fy_device_add_memory(
    yard: *const fy_yard,
    start: u64,
    memory: *const fy_device_memory,
    error: *mut fy_error,
) -> fy_status {
    let work = |yard: &fy_yard| {
        // SAFETY: passed on to the caller.
        let memory = unsafe { open(yard, memory)? };
        let frames = memory.frames(yard.geometry());
        let range = range_of(start, frames.0)?;
        Ok::<(), HostFailure>(yard.platform().add_device(range, Arc::new(memory))?)
    };
    // SAFETY: passed on to the caller.
    unsafe { call_with(yard, error, work) }
}

/// Removes the bytes that `fy_device_add_memory` gave to exactly these frames. Their addresses are invalid afterwards.
///
/// Errors: `FY_IN_USE` if a device is mapped there, `FY_BAD_FRAME` if nothing was added for exactly these frames, `FY_BAD_ARGUMENT`,
/// `FY_NULL_POINTER`, `FY_PANICKED`. Nothing has changed then.
///
/// Thread safety: no other thread may use the bytes during the call or later. Cost: unmaps and closes the file.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fy_device_remove_memory(
    yard: *const fy_yard,
    start: u64,
    count: u64,
    error: *mut fy_error,
) -> fy_status {
    let work = |yard: &fy_yard| {
        drop(yard.remove_device(range_of(start, count)?)?);
        Ok::<(), HostFailure>(())
    };
    // SAFETY: passed on to the caller.
    unsafe { call_with(yard, error, work) }
}

/// Opens and maps the bytes.
///
/// # Safety
///
/// `memory` is null or points to as many readable bytes as the size there says. Its path is null or a string.
unsafe fn open(yard: &fy_yard, memory: *const fy_device_memory) -> Result<DeviceMemory, HostFailure> {
    place(memory.cast_mut(), "memory")?;
    // SAFETY: passed on to the caller.
    let wanted = unsafe { sized::read(memory).map_err(Failure::from)? };
    let bad = |what, value: u64, use_instead| {
        HostFailure::other(
            FY_BAD_ARGUMENT,
            format_args!("{what} {value} of a device does not exist: use {use_instead}"),
        )
    };
    let alignment = match wanted.alignment {
        0 => DeviceAlignment::default(),
        bytes => {
            let known = DeviceAlignment::ALL.into_iter().find(|alignment| alignment.size().0 == bytes);
            known.ok_or_else(|| bad("alignment", bytes, "4096, 2^21 or 2^30"))?
        }
    };
    let sharing = match wanted.shared {
        0 => DeviceSharing::Alone,
        1 => DeviceSharing::Shared,
        other => return Err(bad("sharing", other.into(), "0 or 1")),
    };
    let path = || {
        place(wanted.path.cast_mut(), "memory->path")?;
        // SAFETY: passed on to the caller.
        let path = unsafe { CStr::from_ptr(wanted.path) };
        Ok::<_, HostFailure>(Path::new(OsStr::from_bytes(path.to_bytes())).to_owned())
    };
    let host = yard.platform().host();
    let backing = match wanted.backing {
        FY_DEVICE_MEMFD => DeviceBacking::Memfd,
        FY_DEVICE_FILE => DeviceBacking::File { path: path()?, growth: FileGrowth::Refuse },
        FY_DEVICE_GROWING_FILE => DeviceBacking::File { path: path()?, growth: FileGrowth::Grow },
        FY_DEVICE_DAX if wanted.bytes == 0 => return Ok(DeviceMemory::dax(&path()?, sharing, host)?),
        FY_DEVICE_DAX => DeviceBacking::Dax { path: path()? },
        other => return Err(bad("backing", other.into(), "FY_DEVICE_MEMFD to FY_DEVICE_DAX")),
    };
    let builder = DeviceMemory::builder(ByteSize(wanted.bytes), alignment).backing(backing).sharing(sharing);
    Ok(builder.build(host)?)
}
