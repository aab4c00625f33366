//! [`fy_error`]: what a failed call tells.

use core::ffi::c_char;
use core::fmt::Write;

use frameyard::page::FrameState;

use crate::shared::sized::{self, SizedStruct};
use crate::shared::status::fy_status;
use crate::shared::text_buffer::TextBuffer;

/// No frame: what `frame` is in an error that is about none.
pub const FY_NO_FRAME: u64 = 0xffff_ffff_ffff_ffff;
/// No order: what `order` is in an error that is about none.
pub const FY_NO_ORDER: u32 = 0xffff_ffff;
/// No state: what `state` is in an error that is about none.
pub const FY_NO_STATE: u32 = 0xffff_ffff;
/// No node: what `node` is in an error that is about none, and in a request that prefers none.
pub const FY_NO_NODE: u32 = 0xffff_ffff;
/// The bytes of a message, with the byte 0 at its end. Longer messages are cut.
pub const FY_MESSAGE_BYTES: usize = 256;

/// What a failed call tells. The caller provides it, with `size` set: `fy_error_default()` does that.
///
/// A call that succeeds leaves it alone, and so does a call that gets one with an impossible size.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct fy_error {
    /// `sizeof(fy_error)`.
    pub size: usize,
    /// The status that the call returned.
    pub status: i32,
    /// The order of the request or of the block, or `FY_NO_ORDER`.
    pub order: u32,
    /// The frame that the error is about, or `FY_NO_FRAME`.
    pub frame: u64,
    /// Its state, one of `FY_STATE_*`, or `FY_NO_STATE`.
    pub state: u32,
    /// The node of the request, or `FY_NO_NODE`.
    pub node: u32,
    /// The process that holds a lock of a shared yard, or 0.
    pub process: u32,
    /// The error number of the operating system (`errno`), or 0.
    pub system: i32,
    /// One line in English, with a byte 0 at its end.
    pub message: [c_char; FY_MESSAGE_BYTES],
}

// SAFETY: numbers alone, the size first.
unsafe impl SizedStruct for fy_error {
    const NAME: &'static str = "fy_error";
}

/// The number of a state in the interface. It is the core's.
pub(crate) const fn state_number(state: FrameState) -> u32 {
    state as u32
}

impl fy_error {
    /// An error without content.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            size: size_of::<Self>(),
            status: 0,
            order: FY_NO_ORDER,
            frame: FY_NO_FRAME,
            state: FY_NO_STATE,
            node: FY_NO_NODE,
            process: 0,
            system: 0,
            message: [0; FY_MESSAGE_BYTES],
        }
    }
}

impl Default for fy_error {
    fn default() -> Self {
        Self::new()
    }
}

/// Writes the message of an error, with its status in front, and a byte 0, as `snprintf` does. Returns the length of the whole
/// message without that byte. If the result is not less than `capacity`, the text was cut. `buffer` may be null if `capacity` is 0. The
/// result is 0 if `error` is null or has an impossible size.
///
/// Thread safety: any thread; no other thread may write to `error` or `buffer` meanwhile.
///
/// # Safety
///
/// See the crate's documentation, "Pointers".
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fy_error_message(error: *const fy_error, buffer: *mut c_char, capacity: usize) -> usize {
    // SAFETY: passed on to the caller.
    let Ok(value) = (unsafe { sized::read(error) }) else { return 0 };
    // SAFETY: passed on to the caller.
    let mut text = unsafe { TextBuffer::at(buffer, capacity) };
    let known = fy_status::ALL.into_iter().find(|status| *status as i32 == value.status);
    let bytes = value.message.map(|byte| byte as u8);
    let length = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let _ = match known {
        Some(status) => write!(text, "{status:?}: "),
        None => write!(text, "status {}: ", value.status),
    };
    match known.filter(|_| length == 0) {
        Some(status) => text.write_bytes(status.text().to_bytes()),
        None => text.write_bytes(&bytes[..length]),
    }
    text.finish()
}
