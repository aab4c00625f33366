use std::ffi::{CStr, c_char, c_void};
use std::sync::Mutex;

use frameyard_c_calls::fy_status::FY_PANICKED;
use frameyard_c_calls::{FY_GFP_KERNEL, FY_LOG_ERROR, FY_NO_FRAME, call};
use frameyard_host::ByteSize;

use super::*;
use crate::functions::fy_alloc;

static LOGGED: Mutex<Vec<(u32, String)>> = Mutex::new(Vec::new());

unsafe extern "C" fn note(_context: *mut c_void, level: u32, text: *const c_char) {
    // SAFETY: the library passes a text.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned();
    LOGGED.lock().unwrap().push((level, text));
}

fn message(error: &fy_error) -> String {
    let bytes = error.message.map(|byte| byte as u8);
    CStr::from_bytes_until_nul(&bytes).unwrap().to_str().unwrap().to_owned()
}

#[test]
fn a_panic_is_an_error_and_ends_the_use_of_the_yard() {
    // SAFETY: the function suits any thread and context.
    let log = unsafe { Log::to(Some(note), std::ptr::null_mut()) };
    let yard = fy_yard::new(HostYard::with_memory(ByteSize::mib(4)).unwrap(), None, log);
    let (mut error, mut frame) = (fy_error::new(), 0);
    // SAFETY: a handle and an error of this test.
    let status = unsafe { call(&raw const yard, &raw mut error, |_| panic!("a planted failure")) };
    assert_eq!(status, FY_PANICKED);
    assert_eq!(error.status, FY_PANICKED as i32);
    assert_eq!(message(&error), "the library failed: a planted failure");
    assert_eq!(*LOGGED.lock().unwrap(), [(FY_LOG_ERROR, "the library failed: a planted failure".to_owned())]);
    // SAFETY: as above.
    let status = unsafe { fy_alloc(&raw const yard, 0, FY_GFP_KERNEL, &raw mut frame, &raw mut error) };
    assert_eq!(status, FY_PANICKED);
    assert_eq!(message(&error), "an earlier call failed inside the library: destroy the yard");
    assert_eq!((frame, error.frame), (0, FY_NO_FRAME));
}

#[test]
fn a_panic_without_a_yard_is_an_error() {
    let mut error = fy_error::new();
    // SAFETY: an error of this test.
    let status = unsafe { call_without_yard(&raw mut error, || panic!("{} failure", "another")) };
    assert_eq!(status, FY_PANICKED);
    assert_eq!(message(&error), "the library failed: another failure");
}

#[test]
fn a_null_handle_is_an_error() {
    let mut error = fy_error::new();
    // SAFETY: null is allowed.
    let status = unsafe { call(std::ptr::null::<fy_yard>(), &raw mut error, |_| Ok(())) };
    assert_eq!(status, fy_status::FY_NULL_POINTER);
    assert_eq!(message(&error), "yard is null");
}
