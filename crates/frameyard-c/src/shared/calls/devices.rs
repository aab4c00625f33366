//! Devices: page structures for ranges of frames beside the memory of a yard, and references to their pages.

use frameyard::devices::{
    DeviceError, DeviceId, DeviceInfo, DevicePage, DeviceRequest, MapLayout, MapPlacement, Removal,
};
use frameyard::{Pfn, Platform, Yard};

use super::alloc::{fy_range, node_of, order_of, range_of};
use crate::shared::error::fy_error;
use crate::shared::fault::Failure;
use crate::shared::handle::{Handle, call, call_for, call_with, place};
use crate::shared::sized::{self, SizedStruct};
use crate::shared::status::fy_status;
use crate::shared::status::fy_status::{FY_BAD_ARGUMENT, FY_BUSY};

/// Page structures of a device: one for each frame, all of them written.
pub const FY_DEVICE_FULL: u32 = 0;
/// Page structures of a device: one for each frame, of which those behind the head of a compound page share memory.
pub const FY_DEVICE_DEDUPLICATED: u32 = 1;
/// As `FY_DEVICE_DEDUPLICATED`, with two pages of structures for each compound page, as in Linux.
pub const FY_DEVICE_DEDUPLICATED_TWO: u32 = 2;
/// Page structures of a device: one for each compound page.
pub const FY_DEVICE_FOLDED: u32 = 3;

/// Page structures of a device lie in ordinary memory.
pub const FY_DEVICE_MAP_IN_MEMORY: u32 = 0;
/// Page structures of a device lie in its first frames.
pub const FY_DEVICE_MAP_IN_DEVICE: u32 = 1;

/// A device that is in use is not unmapped.
pub const FY_DEVICE_REFUSE: u32 = 0;
/// An unmap waits, for a bounded time, until the device is not in use. Page tables cannot map it meanwhile.
pub const FY_DEVICE_WAIT: u32 = 1;

/// A range of frames that is to become a device. `fy_device_request_default()` sets `size`, and all other members to 0.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct fy_device_request {
    /// `sizeof(fy_device_request)`.
    pub size: usize,
    /// The first frame, inside the device space of the yard: see `fy_geometry`.
    pub start: u64,
    /// The number of frames. It and `start` are multiples of the frames of a compound page, and of 2^`device_unit` (`fy_geometry`).
    pub count: u64,
    /// The node of the device.
    pub node: u32,
    /// The order of its compound pages; 0: it has single pages.
    pub order: u32,
    /// One of `FY_DEVICE_FULL` to `FY_DEVICE_FOLDED`.
    pub layout: u32,
    /// One of `FY_DEVICE_MAP_*`.
    pub placement: u32,
}

// SAFETY: numbers alone, the size first.
unsafe impl SizedStruct for fy_device_request {
    const NAME: &'static str = "fy_device_request";
}

/// A mapped device.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct fy_device {
    /// `sizeof(fy_device)`.
    pub size: usize,
    /// The name of the device in other calls. It names no later device in the same place.
    pub device: u64,
    /// Its frames.
    pub frames: fy_range,
    /// The frames that hold data: all but those with its page structures.
    pub data: fy_range,
    /// The node of the device.
    pub node: u32,
    /// The order of its compound pages.
    pub order: u32,
    /// One of `FY_DEVICE_FULL` to `FY_DEVICE_FOLDED`.
    pub layout: u32,
    /// One of `FY_DEVICE_MAP_*`.
    pub placement: u32,
    /// The bytes that its page structures take, in whole pages.
    pub map_bytes: u64,
    /// Entries of page tables that map it. Possibly out of date.
    pub mappings: u64,
}

// SAFETY: numbers alone, the size first.
unsafe impl SizedStruct for fy_device {
    const NAME: &'static str = "fy_device";
}

fn request_of(request: &fy_device_request) -> Result<DeviceRequest, Failure> {
    let layout = match request.layout {
        FY_DEVICE_FULL => MapLayout::Full,
        FY_DEVICE_DEDUPLICATED => MapLayout::Deduplicated,
        FY_DEVICE_DEDUPLICATED_TWO => MapLayout::DeduplicatedTwo,
        FY_DEVICE_FOLDED => MapLayout::Folded,
        _ => return Err(Failure::Other(FY_BAD_ARGUMENT, "no such layout: use FY_DEVICE_FULL to FY_DEVICE_FOLDED")),
    };
    let placement = match request.placement {
        FY_DEVICE_MAP_IN_MEMORY => MapPlacement::Memory,
        FY_DEVICE_MAP_IN_DEVICE => MapPlacement::Device,
        _ => return Err(Failure::Other(FY_BAD_ARGUMENT, "no such placement: use FY_DEVICE_MAP_*")),
    };
    let (range, node) = (range_of(request.start, request.count)?, node_of(request.node)?);
    Ok(DeviceRequest { range, node, order: order_of(request.order), layout, placement })
}

fn facts_of(info: &DeviceInfo) -> fy_device {
    let range = |range: frameyard::PfnRange| fy_range { start: range.start.0, count: range.count().0 };
    fy_device {
        size: 0,
        device: info.id.bits(),
        frames: range(info.range),
        data: range(info.data),
        node: u32::from(info.node.0),
        order: u32::from(info.order.0),
        layout: match info.layout {
            MapLayout::Full => FY_DEVICE_FULL,
            MapLayout::Deduplicated => FY_DEVICE_DEDUPLICATED,
            MapLayout::DeduplicatedTwo => FY_DEVICE_DEDUPLICATED_TWO,
            MapLayout::Folded => FY_DEVICE_FOLDED,
        },
        placement: match info.placement {
            MapPlacement::Memory => FY_DEVICE_MAP_IN_MEMORY,
            MapPlacement::Device => FY_DEVICE_MAP_IN_DEVICE,
        },
        map_bytes: info.map_bytes.0,
        mappings: info.mappings,
    }
}

/// `fy_device_map`.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[inline(always)]
pub unsafe fn device_map<Y: Handle>(
    yard: *const Y,
    request: *const fy_device_request,
    device: *mut u64,
    error: *mut fy_error,
) -> fy_status {
    let work = |yard: &Y| -> Result<(), Y::Fault> {
        let place = place(device, "device")?;
        // SAFETY: passed on to the caller.
        let request = request_of(&unsafe { sized::read(request) }.map_err(Failure::from)?)?;
        let device = yard.map_device(request)?;
        // SAFETY: writable, as the caller says.
        unsafe { place.write(device.bits()) };
        Ok(())
    };
    // SAFETY: passed on to the caller.
    unsafe { call_with(yard, error, work) }
}

/// `fy_device_unmap`.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[inline(always)]
pub unsafe fn device_unmap<Y: Handle>(yard: *const Y, device: u64, removal: u32, error: *mut fy_error) -> fy_status {
    let work = |yard: &Y| {
        let removal = match removal {
            FY_DEVICE_REFUSE => Removal::Refuse,
            FY_DEVICE_WAIT => Removal::Wait,
            _ => return Err(Failure::Other(FY_BAD_ARGUMENT, "removal is FY_DEVICE_REFUSE or FY_DEVICE_WAIT")),
        };
        Ok(yard.yard().devices().unmap(device_of(device)?, removal)?)
    };
    // SAFETY: passed on to the caller.
    unsafe { call(yard, error, work) }
}

/// The device of a name. There need be none.
fn device_of(device: u64) -> Result<DeviceId, Failure> {
    let id = DeviceId::from_bits(device);
    // A number with more bits than a name has is no device's.
    if id.bits() == device { Ok(id) } else { Err(DeviceError::NoSuchDevice(id).into()) }
}

/// `fy_device_list`.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[inline(always)]
pub unsafe fn device_list<Y: Handle>(
    yard: *const Y,
    devices: *mut u64,
    capacity: usize,
    count: *mut usize,
    error: *mut fy_error,
) -> fy_status {
    let work = |yard: &Y| {
        if capacity > 0 {
            place(devices, "devices")?;
        }
        let mut found = 0;
        for info in yard.yard().devices().list() {
            if found < capacity {
                // SAFETY: the caller says that `capacity` numbers can be written there.
                unsafe { devices.add(found).write(info.id.bits()) };
            }
            found += 1;
        }
        Ok(found)
    };
    // SAFETY: passed on to the caller.
    unsafe { call_for(yard, (count, "count"), error, work) }
}

/// `fy_device_info`.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[inline(always)]
pub unsafe fn device_info<Y: Handle>(
    yard: *const Y,
    device: u64,
    info: *mut fy_device,
    error: *mut fy_error,
) -> fy_status {
    let work = |yard: &Y| {
        let id = device_of(device)?;
        let found = yard.yard().devices().list().find(|found| found.id == id).ok_or(DeviceError::NoSuchDevice(id))?;
        // SAFETY: passed on to the caller.
        unsafe { sized::write(info, &facts_of(&found))? };
        Ok(())
    };
    // SAFETY: passed on to the caller.
    unsafe { call(yard, error, work) }
}

/// `fy_device_at`.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[inline(always)]
pub unsafe fn device_at<Y: Handle>(
    yard: *const Y,
    frame: u64,
    info: *mut fy_device,
    error: *mut fy_error,
) -> fy_status {
    let work = |yard: &Y| {
        let found = yard.yard().devices().at(Pfn(frame)).ok_or(DeviceError::NotDevice(Pfn(frame)))?;
        // SAFETY: passed on to the caller.
        unsafe { sized::write(info, &facts_of(&found))? };
        Ok(())
    };
    // SAFETY: passed on to the caller.
    unsafe { call(yard, error, work) }
}

/// `fy_device_split`.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[inline(always)]
pub unsafe fn device_split<Y: Handle>(yard: *const Y, head: u64, error: *mut fy_error) -> fy_status {
    // SAFETY: passed on to the caller.
    unsafe { call_with(yard, error, |yard: &Y| yard.split_device_page(Pfn(head))) }
}

/// `fy_device_join`.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[inline(always)]
pub unsafe fn device_join<Y: Handle>(yard: *const Y, head: u64, error: *mut fy_error) -> fy_status {
    // SAFETY: passed on to the caller.
    unsafe { call(yard, error, |yard| Ok(yard.yard().devices().join(Pfn(head))?)) }
}

/// The page of a frame of a device.
fn page_of<P: Platform>(yard: &Yard<P>, frame: u64) -> Result<DevicePage<'_, P>, Failure> {
    yard.devices().page(Pfn(frame)).ok_or(DeviceError::NotDevice(Pfn(frame)).into())
}

/// `fy_device_get`.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[inline(always)]
pub unsafe fn device_get<Y: Handle>(yard: *const Y, frame: u64, count: u32, error: *mut fy_error) -> fy_status {
    let work = |yard: &Y| {
        if page_of(yard.yard(), frame)?.try_get(count) {
            return Ok(());
        }
        let text = "another CPU changes the page, or its references would overflow: repeat the call";
        Err(Failure::Other(FY_BUSY, text))
    };
    // SAFETY: passed on to the caller.
    unsafe { call(yard, error, work) }
}

/// `fy_device_put`.
///
/// # Safety
///
/// See the crate's documentation, "Pointers"; and the caller has as many references of its own.
#[inline(always)]
pub unsafe fn device_put<Y: Handle>(yard: *const Y, frame: u64, count: u32, error: *mut fy_error) -> fy_status {
    let work = |yard: &Y| {
        // SAFETY: passed on to the caller. While it has a reference, the page stays the one of the frame.
        unsafe { page_of(yard.yard(), frame)?.put(count)? };
        Ok(())
    };
    // SAFETY: passed on to the caller.
    unsafe { call(yard, error, work) }
}

/// `fy_device_add_entry`.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[inline(always)]
pub unsafe fn device_add_entry<Y: Handle>(yard: *const Y, frame: u64, error: *mut fy_error) -> fy_status {
    // SAFETY: passed on to the caller.
    unsafe { call(yard, error, |yard| Ok(yard.yard().devices().add_mapping(Pfn(frame))?)) }
}

/// `fy_device_remove_entry`.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[inline(always)]
pub unsafe fn device_remove_entry<Y: Handle>(yard: *const Y, frame: u64, error: *mut fy_error) -> fy_status {
    // SAFETY: passed on to the caller.
    unsafe { call(yard, error, |yard| Ok(yard.yard().devices().remove_mapping(Pfn(frame))?)) }
}
