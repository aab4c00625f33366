//! The types whose values may lie in memory that other CPUs and processes change.

use crate::sync::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// Types that consist of atomic integers alone.
///
/// # Safety
///
/// Every byte of the type that is not padding belongs to an atomic integer, so all bytes are valid and a shared reference
/// allows concurrent changes. Structs implement it with [`all_atomic!`], which checks each field.
pub(crate) unsafe trait AllAtomic: 'static {}

macro_rules! atomic_integers {
    ($($integer:ty),+) => {$(
        // SAFETY: an atomic integer is valid for all bytes.
        unsafe impl AllAtomic for $integer {}
    )+};
}

atomic_integers!(AtomicU8, AtomicU16, AtomicU32, AtomicU64);

// SAFETY: an array is its elements.
unsafe impl<T: AllAtomic, const COUNT: usize> AllAtomic for [T; COUNT] {}

/// Implements [`AllAtomic`] for a struct: `all_atomic!(Name { field, … })` names all fields. Does not compile if a field is
/// missing or is not `AllAtomic`.
macro_rules! all_atomic {
    ($name:ident { $($(#[$cfg:meta])* $field:ident),+ $(,)? }) => {
        all_atomic!(@of $name $([$(#[$cfg])*] $field)+);
    };
    ($name:ident { $($field:tt),+ $(,)? }) => {
        all_atomic!(@of $name $([] $field)+);
    };
    (@of $name:ident $([$(#[$cfg:meta])*] $field:tt)+) => {
        const _: fn(&$name) = |value| {
            fn is_all_atomic<T: $crate::sync::AllAtomic>(_: &T) {}
            let $name { $($(#[$cfg])* $field: _),+ } = value;
            $($(#[$cfg])* is_all_atomic(&value.$field);)+
        };

        // SAFETY: the pattern above names all fields, and each is `AllAtomic`.
        unsafe impl $crate::sync::AllAtomic for $name {}
    };
}

pub(crate) use all_atomic;
