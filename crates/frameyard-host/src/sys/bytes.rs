//! The bytes of a mapping as a slice.

use std::slice;

use super::mapping::Mapping;

/// All bytes of a private mapping that was backed as a whole.
///
/// # Panics
///
/// If the mapping was not backed as a whole.
pub(crate) fn bytes_mut(mapping: &mut Mapping) -> &mut [u8] {
    let len = mapping.words().len() * size_of::<u64>();
    // SAFETY: `words` has checked that the whole range is readable and writable. The range stays mapped while the
    // result borrows the mapping exclusively. Callers pass private mappings, so no other process writes to the memory.
    unsafe { slice::from_raw_parts_mut(mapping.base().as_ptr(), len) }
}
