//! The version of the interface.

use core::ffi::{CStr, c_char};

use crate::shared::fault::Failure;

/// The major version.
pub const FY_VERSION_MAJOR: u32 = 0;
/// The minor version. Before version 1.0 it changes whenever the interface does.
pub const FY_VERSION_MINOR: u32 = 1;
/// The patch version.
pub const FY_VERSION_PATCH: u32 = 0;
/// The version in one number: the bytes of major, minor and patch.
pub const FY_VERSION: u32 = 0x000100;

const TEXT: &CStr = match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
    Ok(text) => text,
    Err(_) => panic!("a version has no byte 0"),
};

/// The version of the library, in the form of `FY_VERSION`. It may be later than the header's.
///
/// Thread safety: any thread, at any time.
#[unsafe(no_mangle)]
pub extern "C" fn fy_version() -> u32 {
    FY_VERSION
}

/// The version of the library as text. It lives as long as the program.
///
/// Thread safety: any thread, at any time.
#[unsafe(no_mangle)]
pub extern "C" fn fy_version_text() -> *const c_char {
    TEXT.as_ptr()
}

/// Whether a program with the header of that version may use this library.
///
/// # Errors
///
/// [`Failure::Version`]. Before version 1.0 a minor version may change the interface.
pub fn check_version(version: u32) -> Result<(), Failure> {
    if version >> 8 == FY_VERSION >> 8 { Ok(()) } else { Err(Failure::Version(version)) }
}

#[cfg(test)]
mod tests {
    use std::format;

    use super::*;

    #[test]
    fn the_version_is_that_of_the_package() {
        let text = format!("{FY_VERSION_MAJOR}.{FY_VERSION_MINOR}.{FY_VERSION_PATCH}");
        assert_eq!(text, env!("CARGO_PKG_VERSION"));
        assert_eq!(FY_VERSION, FY_VERSION_MAJOR << 16 | FY_VERSION_MINOR << 8 | FY_VERSION_PATCH);
    }
}
