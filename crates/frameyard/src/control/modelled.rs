//! The control region of a model: loom's atomics are not plain words, so each table is a separate vector.

use std::any::Any;
use std::boxed::Box;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::vec::Vec;

use super::TableSpan;
use crate::sync::AllAtomic;

/// A control region in a model: its tables, by the offsets they would have.
#[repr(C, align(128))]
#[derive(Default, Debug)]
pub struct ModelledRegion {
    tables: RefCell<BTreeMap<usize, Box<dyn Any>>>,
}

impl ModelledRegion {
    /// The table at a span. The first call creates it, all zero.
    ///
    /// # Panics
    ///
    /// If the span was used with another type or length before.
    pub(super) fn table<T: AllAtomic + Default>(&self, span: TableSpan) -> &'static [T] {
        if span.count == 0 {
            // An empty table shares its offset with the next one.
            return &[];
        }
        let mut tables = self.tables.borrow_mut();
        let table = tables.entry(span.offset).or_insert_with(|| {
            let table: Vec<T> = (0..span.count).map(|_| T::default()).collect();
            Box::new(table)
        });
        let table = table.downcast_ref::<Vec<T>>().expect("a span has one type");
        assert_eq!(table.len(), span.count, "a span has one length");
        // SAFETY: the vector is never changed, and its memory stays where it is until the region is dropped;
        // no table is used after that, by the contract of `ControlRegion::new`.
        unsafe { core::slice::from_raw_parts(table.as_ptr(), table.len()) }
    }
}
