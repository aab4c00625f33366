//! Typed tables in the control region, which together with the memory map contains all state of a yard.
//!
//! The region consists of atomics whose values are frame numbers, indices and counts, never addresses, and all zero is
//! a valid initial state. So several processes can share it, each at its own address.

use core::ptr::NonNull;

use crate::sync::AllAtomic;

#[cfg(loom)]
#[doc(hidden)]
pub use crate::sync::models::ModelledRegion;

/// Alignment of the region and of every table.
pub(crate) const TABLE_ALIGN: usize = 128;

/// The place of a table in the control region.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct TableSpan {
    pub(crate) offset: usize,
    pub(crate) count: usize,
}

/// Lays tables out one behind the other.
#[derive(Debug)]
pub(crate) struct TablePlanner {
    end: usize,
}

impl TablePlanner {
    pub(crate) const fn new() -> Self {
        Self { end: 0 }
    }

    /// Adds room for `count` values of `T`; `None` if the region would not fit an address space.
    pub(crate) const fn table<T: AllAtomic>(&mut self, count: usize) -> Option<TableSpan> {
        const { assert!(align_of::<T>() <= TABLE_ALIGN) };
        let offset = self.end;
        let Some(bytes) = size_of::<T>().checked_mul(count) else { return None };
        let Some(end) = offset.checked_add(bytes) else { return None };
        let Some(end) = end.checked_next_multiple_of(TABLE_ALIGN) else { return None };
        self.end = end;
        Some(TableSpan { offset, count })
    }

    /// Bytes of all tables so far.
    pub(crate) const fn bytes(&self) -> usize {
        self.end
    }
}

/// The control region of a yard, as mapped here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ControlRegion {
    base: NonNull<u8>,
    bytes: usize,
}

impl ControlRegion {
    /// # Safety
    ///
    /// `base` points to `bytes` bytes, aligned to [`TABLE_ALIGN`], that were zero when the region was first used, are written
    /// only through tables of regions, and stay mapped as long as any table is used.
    pub(crate) unsafe fn new(base: NonNull<u8>, bytes: usize) -> Self {
        Self { base, bytes }
    }

    /// The table at a span; `None` if the span does not lie in the region.
    ///
    /// # Safety
    ///
    /// No other span that overlaps this one is used with another type.
    pub(crate) unsafe fn table<T: AllAtomic + Default>(&self, span: TableSpan) -> Option<&'static [T]> {
        const { assert!(align_of::<T>() <= TABLE_ALIGN) };
        let bytes = size_of::<T>().checked_mul(span.count)?;
        let end = span.offset.checked_add(bytes)?;
        if end > self.bytes || !span.offset.is_multiple_of(TABLE_ALIGN) {
            return None;
        }
        #[cfg(loom)]
        // SAFETY: in a model the base of every control region is a `ModelledRegion`, which outlives its tables (`new`).
        return Some(unsafe { self.base.cast::<ModelledRegion>().as_ref().table(span.offset, span.count) });
        #[cfg(not(loom))]
        // SAFETY: the span lies in the region, which is mapped for as long as the table is used (`new`), is
        // aligned, holds valid bytes whatever they are (`AllAtomic`), and has one type only (caller).
        unsafe {
            let first = self.base.add(span.offset).cast::<T>();
            Some(core::slice::from_raw_parts(first.as_ptr(), span.count))
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::{AtomicU8, AtomicU64};

    #[test]
    fn tables_do_not_overlap_and_are_aligned() {
        let mut planner = TablePlanner::new();
        let bytes = planner.table::<AtomicU8>(3).unwrap();
        let words = planner.table::<AtomicU64>(5).unwrap();
        assert_eq!(bytes, TableSpan { offset: 0, count: 3 });
        assert_eq!(words, TableSpan { offset: TABLE_ALIGN, count: 5 });
        assert_eq!(planner.bytes(), 2 * TABLE_ALIGN);
        assert_eq!(planner.table::<AtomicU64>(usize::MAX), None);
    }

    #[test]
    fn a_span_outside_the_region_is_refused() {
        let memory = std::vec![0u128; 64];
        let base = NonNull::new(memory.as_ptr().cast_mut().cast::<u8>()).unwrap();
        // SAFETY: the memory lives to the end of the test; no table of it is used.
        let region = unsafe { ControlRegion::new(base, 1024) };
        // SAFETY: nothing else uses the region.
        unsafe {
            assert!(region.table::<AtomicU64>(TableSpan { offset: 0, count: 129 }).is_none());
            assert!(region.table::<AtomicU64>(TableSpan { offset: 8, count: 1 }).is_none());
            assert!(region.table::<AtomicU64>(TableSpan { offset: usize::MAX, count: 2 }).is_none());
        }
    }
}
