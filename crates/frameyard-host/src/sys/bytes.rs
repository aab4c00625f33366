//! The bytes of a mapping as a slice.

use std::slice;

use super::mapping::Mapping;

/// All bytes of a private mapping that was backed as a whole.
pub(crate) fn bytes_mut(mapping: &mut Mapping) -> &mut [u8] {
    // Asserts that every byte is backed.
    let len = mapping.words().len() * size_of::<u64>();
    // SAFETY: all of the range is readable and writable for as long as the mapping lives, which the result borrows
    // for itself alone. No other process has the memory, as the caller says.
    unsafe { slice::from_raw_parts_mut(mapping.base().as_ptr(), len) }
}
