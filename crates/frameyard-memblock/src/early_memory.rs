//! Access to the bytes at a physical address: the only unsafe code of the early memory map.

use core::fmt;
use core::mem::{align_of, size_of};
use core::ptr::NonNull;
use core::slice;

use super::Region;
use frameyard_units::{ByteSize, PhysAddr};

/// Maps physical addresses to pointers, early at boot.
///
/// The early memory map asks only for memory that is in its memory list and not reserved. It keeps that memory reserved
/// while it uses the pointer.
///
/// # Safety
///
/// A pointer that [`map`](Self::map) returns must be valid for reads and writes of `size` bytes while
/// the value that returned it lives, even if that value moves. Disjoint ranges must map to disjoint bytes. Until the
/// caller of `map` frees the range, only references that the caller derives may point to its bytes. Safe code must
/// therefore not be able to create two values that reach the same bytes, so an implementing type that reaches memory is
/// not `Clone`.
///
/// The pointer should have the alignment of `start`, up to the page size. The map rejects insufficient alignment for its
/// own arrays and passes on allocations as they are.
pub unsafe trait EarlyMemory {
    /// A pointer to `size` writable bytes at `start`; `None` if they are not mapped.
    fn map(&self, start: PhysAddr, size: ByteSize) -> Option<NonNull<u8>>;
}

// SAFETY: the referent fulfils the contract. It outlives the reference and has no other user.
unsafe impl<M: EarlyMemory + ?Sized> EarlyMemory for &mut M {
    fn map(&self, start: PhysAddr, size: ByteSize) -> Option<NonNull<u8>> {
        M::map(self, start, size)
    }
}

/// Maps nothing: the lists keep their built-in size, and only physical addresses can be allocated.
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

// SAFETY: the value owns the bytes at its pointer, like a box, and lends them through its own borrow.
unsafe impl Send for MappedRegions {}
// SAFETY: a shared reference allows reads only.
unsafe impl Sync for MappedRegions {}

impl fmt::Debug for MappedRegions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} slots at {:p}", self.capacity, self.first)
    }
}

impl MappedRegions {
    /// The size of an array of `capacity` regions.
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
            // SAFETY: the slot is aligned and inside the mapped bytes, which are writable and reserved for this array.
            unsafe { first.add(slot).write(Region::EMPTY) };
        }
        Some(Self { first, capacity })
    }

    /// Takes an array that is already written.
    ///
    /// # Safety
    ///
    /// `capacity` regions at `first` are initialised. Until the value is dropped, all accesses to them go through it.
    pub(super) const unsafe fn lent(first: NonNull<Region>, capacity: usize) -> Self {
        Self { first, capacity }
    }

    pub(super) const fn slots(&self) -> &[Region] {
        // SAFETY: every slot is initialised; the memory stays mapped and reserved while `self` lives.
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
/// The pointer must come from [`EarlyMemory::map`] for `size` bytes, and the range must be reserved for the caller.
pub(super) unsafe fn clear(pointer: NonNull<u8>, size: ByteSize) {
    // SAFETY: writable for `size` bytes by the contract of `map`, and only the caller accesses them.
    unsafe { pointer.write_bytes(0, size.0 as usize) };
}
