//! The kernel's /proc formats and Prometheus text, in a caller's buffer.

use core::ffi::c_char;

use frameyard_formats::{
    KernelFormat, Series, write_buddyinfo, write_metrics, write_pagetypeinfo, write_prometheus, write_vmstat,
    write_zoneinfo,
};

use crate::shared::error::fy_error;
use crate::shared::fault::Failure;
use crate::shared::handle::{Handle, call, place};
use crate::shared::status::fy_status;
use crate::shared::text_buffer::TextBuffer;

/// The kernel's `/proc/buddyinfo`.
pub const FY_TEXT_BUDDYINFO: u32 = 0;
/// The kernel's `/proc/pagetypeinfo`.
pub const FY_TEXT_PAGETYPEINFO: u32 = 1;
/// The kernel's `/proc/zoneinfo`.
pub const FY_TEXT_ZONEINFO: u32 = 2;
/// The kernel's `/proc/vmstat`.
pub const FY_TEXT_VMSTAT: u32 = 3;
/// All counters of zones and CPUs, one in each line.
pub const FY_TEXT_METRICS: u32 = 4;
/// The same in the text format of Prometheus, without series that are 0.
pub const FY_TEXT_PROMETHEUS: u32 = 5;
/// Added to a text: in the form of Linux 6.1, where it differs from that of 6.12.
pub const FY_TEXT_LINUX_6_1: u32 = 0x100;

/// `fy_yard_text`.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[inline(always)]
pub unsafe fn yard_text<Y: Handle>(
    yard: *const Y,
    text: u32,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
    error: *mut fy_error,
) -> fy_status {
    let work = |yard: &Y| {
        let length = place(length, "length")?;
        if capacity > 0 {
            place(buffer, "buffer")?;
        }
        // SAFETY: passed on to the caller.
        let mut out = unsafe { TextBuffer::at(buffer, capacity) };
        let format = if text & FY_TEXT_LINUX_6_1 != 0 { KernelFormat::V6_1 } else { KernelFormat::V6_12 };
        let core = yard.yard();
        let written = match text & !FY_TEXT_LINUX_6_1 {
            FY_TEXT_BUDDYINFO => write_buddyinfo(core, &mut out),
            FY_TEXT_PAGETYPEINFO => write_pagetypeinfo(core, &mut out),
            FY_TEXT_ZONEINFO => write_zoneinfo(core, format, &mut out),
            FY_TEXT_VMSTAT => write_vmstat(core, format, &mut out),
            FY_TEXT_METRICS => write_metrics(core, &mut out),
            FY_TEXT_PROMETHEUS => write_prometheus(core, Series::NonZero, &mut out),
            other => {
                return Err(Failure::NoText(other));
            }
        };
        debug_assert!(written.is_ok(), "a buffer takes everything");
        // SAFETY: writable, as the caller says.
        unsafe { length.write(out.finish()) };
        Ok(())
    };
    // SAFETY: passed on to the caller.
    unsafe { call(yard, error, work) }
}
