//! Frames and addresses, and what a yard knows of a frame.

use core::ffi::c_void;

use frameyard::page::FrameState;
use frameyard::{Order, Pfn};

use crate::shared::error::{FY_NO_FRAME, fy_error, state_number};
use crate::shared::fault::Failure;
use crate::shared::handle::{Handle, call, call_for, place};
use crate::shared::sized::{self, SizedStruct};
use crate::shared::status::fy_status;

/// State of a frame: inside a block that begins elsewhere, or a hole.
pub const FY_STATE_INTERIOR: u32 = 0;
/// State of a block: never given to the allocator.
pub const FY_STATE_RESERVED: u32 = 1;
/// State of a block: on a free list of its zone.
pub const FY_STATE_FREE: u32 = 2;
/// State of a block: on a CPU's list, free.
pub const FY_STATE_PER_CPU: u32 = 3;
/// State of a block: between two lists.
pub const FY_STATE_IN_TRANSIT: u32 = 4;
/// State of a block: allocated.
pub const FY_STATE_ALLOCATED: u32 = 5;
/// State of a block: taken off the free lists for a range operation.
pub const FY_STATE_ISOLATED: u32 = 6;
/// State of a block: memory of a device.
pub const FY_STATE_DEVICE: u32 = 7;
/// State of a block: found damaged while it was free, out of use.
pub const FY_STATE_POISONED: u32 = 8;
/// State of a block: taken out of use.
pub const FY_STATE_OFFLINE: u32 = 9;
/// State of a block: allocated, and a guard of a Rust program frees it.
pub const FY_STATE_OWNED: u32 = 10;
/// State of a frame: its page structure is not initialised yet.
pub const FY_STATE_UNINITIALISED: u32 = 11;
/// State of a block: allocated, and its owner counts its users.
pub const FY_STATE_COUNTED: u32 = 12;
/// State of a block: in a pool of huge pages.
pub const FY_STATE_POOLED: u32 = 13;

const _: () = {
    assert!(
        FY_STATE_INTERIOR == state_number(FrameState::Interior) && FY_STATE_FREE == state_number(FrameState::BuddyFree)
    );
    assert!(
        FY_STATE_RESERVED == state_number(FrameState::Reserved) && FY_STATE_PER_CPU == state_number(FrameState::PerCpu)
    );
    assert!(FY_STATE_IN_TRANSIT == state_number(FrameState::InTransit));
    assert!(FY_STATE_ALLOCATED == state_number(FrameState::Allocated));
    assert!(
        FY_STATE_ISOLATED == state_number(FrameState::Isolated) && FY_STATE_DEVICE == state_number(FrameState::Device)
    );
    assert!(
        FY_STATE_POISONED == state_number(FrameState::Poisoned)
            && FY_STATE_OFFLINE == state_number(FrameState::Offline)
    );
    assert!(FY_STATE_OWNED == state_number(FrameState::Owned) && FY_STATE_COUNTED == state_number(FrameState::Counted));
    assert!(FY_STATE_UNINITIALISED == state_number(FrameState::Uninitialised));
    assert!(FY_STATE_POOLED == state_number(FrameState::Pooled));
    assert!(FrameState::ALL.len() == 14);
};

/// What a yard knows of a frame.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct fy_frame {
    /// `sizeof(fy_frame)`.
    pub size: usize,
    /// The first frame of its block.
    pub head: u64,
    /// The order of the block.
    pub order: u32,
    /// The state of the block, one of `FY_STATE_*`.
    pub state: u32,
    /// The migration type of the block: 0 unmovable, 1 movable, 2 reclaimable; higher numbers as in the kernel.
    pub migrate_type: u32,
    /// The node of the frame.
    pub node: u32,
}

// SAFETY: numbers alone, the size first.
unsafe impl SizedStruct for fy_frame {
    const NAME: &'static str = "fy_frame";
}

/// The sizes of a yard.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct fy_geometry {
    /// `sizeof(fy_geometry)`.
    pub size: usize,
    /// The size of a frame in bytes.
    pub frame_size: u64,
    /// The first frame of the yard.
    pub first_frame: u64,
    /// The number behind the last frame. Frames between the two may be missing.
    pub end_frame: u64,
    /// The largest order of a block.
    pub max_order: u32,
    /// The order of a pageblock, the unit of migration types.
    pub pageblock_order: u32,
    /// The number of nodes.
    pub nodes: u32,
    /// The number of CPUs with lists of their own.
    pub cpus: u32,
    /// The first frame of the device space, where devices can be mapped.
    pub device_start: u64,
    /// The number of frames of the device space; 0: no devices can be mapped.
    pub device_count: u64,
    /// Devices begin and end at multiples of 2^`device_unit` frames, at least.
    pub device_unit: u32,
    /// Always 0.
    pub reserved: u32,
}

// SAFETY: numbers alone, the size first.
unsafe impl SizedStruct for fy_geometry {
    const NAME: &'static str = "fy_geometry";
}

/// `fy_address`.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[inline(always)]
pub unsafe fn address<Y: Handle>(
    yard: *const Y,
    frame: u64,
    address: *mut *mut c_void,
    error: *mut fy_error,
) -> fy_status {
    let work = |yard: &Y| {
        let missing = || match yard.yard().zone_of(Pfn(frame)) {
            Some(_) => Failure::NoBytes(Pfn(frame)),
            None => Failure::NoFrame(Pfn(frame)),
        };
        let bytes = yard.address_of(Pfn(frame)).ok_or_else(missing)?;
        Ok(bytes.as_ptr().cast())
    };
    // SAFETY: passed on to the caller.
    unsafe { call_for(yard, (address, "address"), error, work) }
}

/// `fy_frame_at`.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[inline(always)]
pub unsafe fn frame_at<Y: Handle>(
    yard: *const Y,
    address: *const c_void,
    frame: *mut u64,
    error: *mut fy_error,
) -> fy_status {
    let work = |yard: &Y| {
        let address = place(address.cast_mut(), "address")?;
        let at = address.addr().get();
        Ok(yard.frame_at(at).ok_or(Failure::NoFrameAt(at))?.0)
    };
    // SAFETY: passed on to the caller.
    unsafe { call_for(yard, (frame, "frame"), error, work) }
}

/// `fy_frame_info`.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[inline(always)]
pub unsafe fn frame_info<Y: Handle>(
    yard: *const Y,
    frame: u64,
    info: *mut fy_frame,
    error: *mut fy_error,
) -> fy_status {
    let work = |yard: &Y| {
        let yard = yard.yard();
        let found = yard.stats().frame(Pfn(frame)).zip(yard.zone_of(Pfn(frame)));
        let (found, zone) = found.ok_or(Failure::NoFrame(Pfn(frame)))?;
        let value = fy_frame {
            size: 0,
            head: found.head.0,
            order: u32::from(found.order.0),
            state: state_number(found.state),
            migrate_type: found.migrate_type as u32,
            node: u32::from(zone.node().0),
        };
        // SAFETY: passed on to the caller.
        unsafe { sized::write(info, &value)? };
        Ok(())
    };
    // SAFETY: passed on to the caller.
    unsafe { call(yard, error, work) }
}

/// `fy_yard_geometry`.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[inline(always)]
pub unsafe fn yard_geometry<Y: Handle>(yard: *const Y, geometry: *mut fy_geometry, error: *mut fy_error) -> fy_status {
    let work = |yard: &Y| {
        let yard = yard.yard();
        let (sizes, devices, none) = (yard.geometry(), yard.devices(), Pfn(FY_NO_FRAME));
        let ranges = || yard.memory_ranges().map(|(range, _)| range);
        let value = fy_geometry {
            size: 0,
            frame_size: sizes.page_size().0,
            first_frame: ranges().next().map_or(none, |range| range.start).0,
            end_frame: ranges().last().map_or(none, |range| range.end).0,
            max_order: u32::from(sizes.max_order().0),
            pageblock_order: u32::from(sizes.pageblock_order().0),
            nodes: u32::from(yard.nodes()),
            cpus: yard.cpus(),
            device_start: devices.space().start.0,
            device_count: devices.space().count().0,
            device_unit: u32::from(devices.unit(Order::ZERO).0),
            reserved: 0,
        };
        // SAFETY: passed on to the caller.
        unsafe { sized::write(geometry, &value)? };
        Ok(())
    };
    // SAFETY: passed on to the caller.
    unsafe { call(yard, error, work) }
}
