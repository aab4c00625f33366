//! The kernel's /proc formats and Prometheus text, in a caller's buffer.

use std::ffi::c_char;

use frameyard_formats::{
    KernelFormat, Series, write_buddyinfo, write_metrics, write_pagetypeinfo, write_prometheus, write_vmstat,
    write_zoneinfo,
};

use crate::error::fy_error;
use crate::failure::Failure;
use crate::handle::{call, fy_yard, place};
use crate::status::fy_status;
use crate::status::fy_status::FY_BAD_ARGUMENT;
use crate::text_buffer::TextBuffer;

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

/// Writes a text about the yard into `buffer`, with a byte 0 at its end, and sets `*length` to the length of the whole text without that
/// byte. A buffer that is too small gets the beginning of the text, as with `snprintf`: compare `*length` with `capacity`. `buffer` may be
/// null if `capacity` is 0. The text may be longer in the next call.
///
/// Errors: `FY_BAD_ARGUMENT` for a text that does not exist, `FY_NULL_POINTER`, `FY_PANICKED`.
///
/// Thread safety: any thread; no other may use `buffer` meanwhile. Cost: takes no lock; reads the counters of each CPU in each zone.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fy_yard_text(
    yard: *const fy_yard,
    text: u32,
    buffer: *mut c_char,
    capacity: usize,
    length: *mut usize,
    error: *mut fy_error,
) -> fy_status {
    let work = |yard: &fy_yard| {
        let length = place(length, "length")?;
        if capacity > 0 {
            place(buffer, "buffer")?;
        }
        // SAFETY: passed on to the caller.
        let mut out = unsafe { TextBuffer::at(buffer, capacity) };
        let format = if text & FY_TEXT_LINUX_6_1 != 0 { KernelFormat::V6_1 } else { KernelFormat::V6_12 };
        let core: &frameyard::Yard<_> = yard;
        let written = match text & !FY_TEXT_LINUX_6_1 {
            FY_TEXT_BUDDYINFO => write_buddyinfo(core, &mut out),
            FY_TEXT_PAGETYPEINFO => write_pagetypeinfo(core, &mut out),
            FY_TEXT_ZONEINFO => write_zoneinfo(core, format, &mut out),
            FY_TEXT_VMSTAT => write_vmstat(core, format, &mut out),
            FY_TEXT_METRICS => write_metrics(core, &mut out),
            FY_TEXT_PROMETHEUS => write_prometheus(core, Series::NonZero, &mut out),
            other => {
                return Err(Failure::other(
                    FY_BAD_ARGUMENT,
                    format_args!("text {other} does not exist: use FY_TEXT_*"),
                ));
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
