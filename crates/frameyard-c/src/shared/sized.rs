//! Structures that carry their size, so that programs compiled with an older or newer header work.
//!
//! The first member of such a structure is `size_t size`, which the caller sets. The library reads and writes no byte behind it.

use core::fmt;
use core::mem::MaybeUninit;

/// No structure is larger: a larger size was never set.
const LARGEST: usize = 1 << 12;

/// Why a structure was not read or written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SizeError {
    /// The pointer is null: the name of the structure.
    Null(&'static str),
    /// The size in the structure is impossible.
    Size {
        /// The structure.
        name: &'static str,
        /// The size there.
        size: usize,
        /// The smallest that is possible.
        least: usize,
    },
    /// A header that is newer than the library has set a member that the library does not know.
    NewerHeader {
        /// The structure.
        name: &'static str,
        /// The size there.
        size: usize,
        /// The bytes that the library knows.
        known: usize,
    },
}

impl fmt::Display for SizeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null(name) => write!(f, "{name} is null"),
            Self::Size { name, size, least } => {
                write!(f, "the size in {name} is {size}: set it to sizeof({name}), at least {least}")
            }
            Self::NewerHeader { name, size, known } => write!(
                f,
                "{name} has {size} bytes, this library knows {known} of them, and others are set: the header is newer than the library"
            ),
        }
    }
}

/// A structure of the interface that begins with its size.
///
/// # Safety
///
/// The type is `repr(C)`, its first member is `size: usize`, all its bytes may be zero, and padding apart each pattern of bytes that C
/// code can store is a value.
pub unsafe trait SizedStruct: Copy {
    /// The name in C, for errors.
    const NAME: &'static str;
    /// The size in the first version that had the structure.
    const FIRST_SIZE: usize = size_of::<Self>();
}

/// Reads a structure. Members that the caller does not know are zero.
///
/// # Errors
///
/// [`SizeError::Null`], and [`SizeError::Size`] where the size is impossible or a member behind the library's last is not zero.
///
/// # Safety
///
/// `from` is null or points to as many readable bytes as the size there says.
pub unsafe fn read<T: SizedStruct>(from: *const T) -> Result<T, SizeError> {
    // SAFETY: passed on to the caller.
    let size = unsafe { size_of_caller(from)? };
    let known = size.min(size_of::<T>());
    // SAFETY: `size` bytes are readable.
    let tail = unsafe { core::slice::from_raw_parts(from.cast::<u8>().wrapping_add(known), size - known) };
    if tail.iter().any(|byte| *byte != 0) {
        return Err(SizeError::NewerHeader { name: T::NAME, size, known });
    }
    let mut value = MaybeUninit::<T>::zeroed();
    // SAFETY: `known` bytes are readable there and lie inside `value`. All other bytes of it are zero, which the trait allows.
    unsafe {
        core::ptr::copy_nonoverlapping(from.cast::<u8>(), value.as_mut_ptr().cast::<u8>(), known);
        Ok(value.assume_init())
    }
}

/// Writes a structure, except its size. Members that the library does not know become zero.
///
/// # Errors
///
/// [`SizeError::Null`], and [`SizeError::Size`] where the size is impossible.
///
/// # Safety
///
/// `to` is null or points to as many writable bytes as the size there says.
pub unsafe fn write<T: SizedStruct>(to: *mut T, value: &T) -> Result<(), SizeError> {
    // SAFETY: passed on to the caller.
    let size = unsafe { size_of_caller(to)? };
    let (known, first) = (size.min(size_of::<T>()), size_of::<usize>());
    // SAFETY: `size` bytes are writable, and `known` of them are inside `value`. Neither part includes the size.
    unsafe {
        let bytes = to.cast::<u8>();
        core::ptr::copy_nonoverlapping(
            core::ptr::from_ref(value).cast::<u8>().add(first),
            bytes.add(first),
            known - first,
        );
        core::ptr::write_bytes(bytes.add(known), 0, size - known);
    }
    Ok(())
}

/// The size that the caller has set.
///
/// # Safety
///
/// `at` is null or points to a readable size.
unsafe fn size_of_caller<T: SizedStruct>(at: *const T) -> Result<usize, SizeError> {
    if at.is_null() {
        return Err(SizeError::Null(T::NAME));
    }
    // SAFETY: passed on to the caller. The structure need not be aligned.
    let size = unsafe { at.cast::<usize>().read_unaligned() };
    if (T::FIRST_SIZE..=LARGEST).contains(&size) {
        Ok(size)
    } else {
        Err(SizeError::Size { name: T::NAME, size, least: T::FIRST_SIZE })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Copy)]
    #[repr(C)]
    struct Newer {
        size: usize,
        one: u64,
        two: u64,
    }

    #[derive(Clone, Copy)]
    #[repr(C)]
    struct Older {
        size: usize,
        one: u64,
    }

    // SAFETY: numbers alone, the size first.
    unsafe impl SizedStruct for Newer {
        const NAME: &'static str = "newer";
        const FIRST_SIZE: usize = size_of::<Older>();
    }

    // SAFETY: numbers alone, the size first.
    unsafe impl SizedStruct for Older {
        const NAME: &'static str = "older";
    }

    #[test]
    fn members_that_an_older_program_does_not_know_read_as_zero() {
        let older = Older { size: size_of::<Older>(), one: 7 };
        // SAFETY: the size is that of the value.
        let read = unsafe { read(core::ptr::from_ref(&older).cast::<Newer>()) };
        assert!(matches!(read, Ok(Newer { one: 7, two: 0, .. })));
    }

    #[test]
    fn members_of_a_newer_program_must_be_zero() {
        let mut newer = Newer { size: size_of::<Newer>(), one: 7, two: 0 };
        let read_older = |newer: &Newer| {
            // SAFETY: the size is that of the value.
            unsafe { read(core::ptr::from_ref(newer).cast::<Older>()) }.map(|older| older.one)
        };
        assert!(matches!(read_older(&newer), Ok(7)));
        newer.two = 1;
        assert!(matches!(read_older(&newer), Err(SizeError::NewerHeader { size: 24, known: 16, .. })));
    }

    #[test]
    fn impossible_sizes_are_refused() {
        for size in [0, size_of::<Older>() - 1, LARGEST + 1, usize::MAX] {
            let mut value = Older { size, one: 7 };
            // SAFETY: the call refuses the sizes and reads nothing else.
            assert!(matches!(unsafe { read(&raw const value) }, Err(SizeError::Size { .. })), "{size}");
            // SAFETY: as above.
            let written = unsafe { write(&raw mut value, &Older { size: 0, one: 1 }) };
            assert!(matches!(written, Err(SizeError::Size { .. })), "{size}");
            assert_eq!((value.size, value.one), (size, 7));
        }
        // SAFETY: null is allowed.
        assert!(matches!(unsafe { read::<Older>(core::ptr::null()) }, Err(SizeError::Null("older"))));
    }

    #[test]
    fn a_write_fills_what_both_know_and_zeroes_the_rest() {
        let mut newer = Newer { size: size_of::<Newer>(), one: 1, two: 2 };
        // SAFETY: the size is that of the value.
        let written = unsafe { write((&raw mut newer).cast::<Older>(), &Older { size: 0, one: 7 }) };
        assert!(written.is_ok());
        assert_eq!((newer.size, newer.one, newer.two), (24, 7, 0));
        let mut older = Older { size: size_of::<Older>(), one: 1 };
        // SAFETY: the size is that of the value.
        let written = unsafe { write((&raw mut older).cast::<Newer>(), &Newer { size: 0, one: 8, two: 9 }) };
        assert!(written.is_ok());
        assert_eq!((older.size, older.one), (16, 8));
    }
}
