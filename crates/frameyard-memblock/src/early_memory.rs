//! Access to the bytes behind a physical address: the one place of the early memory map that is not safe Rust.

use core::fmt;
use core::mem::{align_of, size_of};
use core::ptr::NonNull;
use core::slice;

use super::Region;
use frameyard_units::{ByteSize, PhysAddr};

/// Where the bytes behind physical addresses can be reached, early at boot.
///
/// The map asks for memory that it has in its lists and that nobody has reserved, and keeps it reserved
/// for as long as it uses the pointer.
///
/// # Safety
///
/// A pointer that [`map`](Self::map) returns must be valid for reads and writes of `size` bytes for as
/// long as the value that returned it lives, wherever that value is moved. Ranges that do not overlap must be
/// mapped to bytes that do not overlap. Until the range is given back by whoever asked, no reference to those
/// bytes may exist but the asker's; so two values that reach the same bytes must not come about in safe code,
/// and a type that reaches memory is not `Clone`.
///
/// The pointer should be aligned as `start` is, up to the page size: the map refuses for its own arrays what
/// is not aligned enough, but hands out allocations as they come.
pub unsafe trait EarlyMemory {
    /// The pointer through which `size` bytes from `start` on can be written; `None` if they are not mapped.
    fn map(&self, start: PhysAddr, size: ByteSize) -> Option<NonNull<u8>>;
}

// SAFETY: the contract is that of the value referred to, which outlives the reference and has no other user.
unsafe impl<M: EarlyMemory + ?Sized> EarlyMemory for &mut M {
    fn map(&self, start: PhysAddr, size: ByteSize) -> Option<NonNull<u8>> {
        M::map(self, start, size)
    }
}

/// No memory can be written: lists keep to their built-in size, and only physical addresses are allocated.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct NothingMapped;

// SAFETY: never returns a pointer.
unsafe impl EarlyMemory for NothingMapped {
    fn map(&self, _: PhysAddr, _: ByteSize) -> Option<NonNull<u8>> {
        None
    }
}

/// An array of regions in mapped memory that is reserved for it.
pub(super) struct MappedRegions {
    first: NonNull<Region>,
    capacity: usize,
}

// SAFETY: the value owns the bytes behind its pointer, as a box would, and hands them out by its own borrow.
unsafe impl Send for MappedRegions {}
// SAFETY: a shared reference allows reads only.
unsafe impl Sync for MappedRegions {}

impl fmt::Debug for MappedRegions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} slots at {:p}", self.capacity, self.first)
    }
}

impl MappedRegions {
    /// How many bytes an array for `capacity` regions takes.
    pub(super) const fn bytes_for(capacity: usize) -> ByteSize {
        ByteSize((capacity * size_of::<Region>()) as u64)
    }

    /// Maps and empties an array; `None` if the memory is not mapped or not aligned.
    ///
    /// # Safety
    ///
    /// From now until the array is dropped, the range must be reserved for it, and `memory` must live.
    pub(super) unsafe fn new<M: EarlyMemory>(memory: &M, base: PhysAddr, capacity: usize) -> Option<Self> {
        let first = memory.map(base, Self::bytes_for(capacity))?.cast::<Region>();
        if !first.as_ptr().addr().is_multiple_of(align_of::<Region>()) {
            return None;
        }
        for slot in 0..capacity {
            // SAFETY: the slot is within the bytes mapped, which are writable and ours, and it is aligned.
            unsafe { first.add(slot).write(Region::EMPTY) };
        }
        Some(Self { first, capacity })
    }

    pub(super) const fn slots(&self) -> &[Region] {
        // SAFETY: `new` has written every slot; the memory stays mapped and ours for as long as `self` lives.
        unsafe { slice::from_raw_parts(self.first.as_ptr(), self.capacity) }
    }

    pub(super) const fn slots_mut(&mut self) -> &mut [Region] {
        // SAFETY: as in `slots`; the exclusive borrow of `self` makes this the only access.
        unsafe { slice::from_raw_parts_mut(self.first.as_ptr(), self.capacity) }
    }
}

/// Clears `size` bytes.
///
/// # Safety
///
/// The pointer must come from [`EarlyMemory::map`] for as many bytes, and the range must be reserved for the caller.
pub(super) unsafe fn clear(pointer: NonNull<u8>, size: ByteSize) {
    // SAFETY: writable for that many bytes by the contract of `map`, and nobody else accesses them.
    unsafe { pointer.write_bytes(0, size.0 as usize) };
}
