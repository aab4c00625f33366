//! The control region of a model: loom's atomics are not plain words, so each table is a separate vector.

use std::any::Any;
use std::boxed::Box;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::vec::Vec;

/// A control region in a model: its tables, by the offsets they would have.
#[repr(C, align(128))]
#[derive(Default, Debug)]
pub struct ModelledRegion {
    tables: RefCell<BTreeMap<usize, Box<dyn Any>>>,
}

impl ModelledRegion {
    /// The table of `count` values at `offset`. The first call creates it from default values.
    ///
    /// # Panics
    ///
    /// If the offset was used with another type or count before.
    ///
    /// # Safety
    ///
    /// No table is used after the region is dropped.
    pub unsafe fn table<T: Default + 'static>(&self, offset: usize, count: usize) -> &'static [T] {
        if count == 0 {
            // An empty table shares its offset with the next one.
            return &[];
        }
        let mut tables = self.tables.borrow_mut();
        let table = tables.entry(offset).or_insert_with(|| {
            let table: Vec<T> = (0..count).map(|_| T::default()).collect();
            Box::new(table)
        });
        let table = table.downcast_ref::<Vec<T>>().expect("an offset has one type");
        assert_eq!(table.len(), count, "an offset has one length");
        // SAFETY: the vector is never changed, and its memory stays where it is until the region is dropped;
        // no table is used after that (the caller's contract).
        unsafe { core::slice::from_raw_parts(table.as_ptr(), table.len()) }
    }
}
