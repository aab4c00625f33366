//! The logging callback of a yard.

use std::ffi::{CString, c_char, c_void};
use std::fmt;

/// A function that gets one line of text, without a line feed. `level` is one of `FY_LOG_*`. The text lives until the function
/// returns.
///
/// Any thread that calls the library may call it, several at once. It must return: no `longjmp`, no C++ exception. It must not use
/// the yard that the message is about.
pub type fy_log_fn = Option<unsafe extern "C" fn(context: *mut c_void, level: u32, text: *const c_char)>;

/// Where the messages of a yard go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Log {
    function: fy_log_fn,
    context: *mut c_void,
}

// SAFETY: the pointer is only passed to the function, which the caller has declared fit for any thread.
unsafe impl Send for Log {}
// SAFETY: as above.
unsafe impl Sync for Log {}

impl Log {
    /// Nowhere.
    pub(crate) const NONE: Self = Self { function: None, context: std::ptr::null_mut() };

    /// To a function of the caller.
    ///
    /// # Safety
    ///
    /// The function may be called with `context`, by any thread, as long as the value or a copy is used.
    pub(crate) unsafe fn to(function: fy_log_fn, context: *mut c_void) -> Self {
        Self { function, context }
    }

    /// Writes one line.
    pub(crate) fn write(self, level: u32, text: fmt::Arguments<'_>) {
        let Some(function) = self.function else { return };
        let bytes = text.to_string().into_bytes().into_iter().filter(|byte| *byte != 0).collect::<Vec<u8>>();
        let text = CString::new(bytes).unwrap_or_default();
        // SAFETY: `to` requires it.
        unsafe { function(self.context, level, text.as_ptr()) }
    }
}
