//! Tables of unit tests.

use core::any::Any;
use std::boxed::Box;
use std::sync::Mutex;
use std::vec::Vec;

/// A table that lives as long as the program, where the leak check finds it.
pub(crate) fn kept<T: Send + Sync + 'static>(table: Vec<T>) -> &'static [T] {
    static KEPT: Mutex<Vec<&'static (dyn Any + Send + Sync)>> = Mutex::new(Vec::new());
    let table: &'static Vec<T> = Box::leak(Box::new(table));
    KEPT.lock().unwrap().push(table);
    table
}
