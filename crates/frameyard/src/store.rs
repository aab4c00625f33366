//! Stores: where free frames rest.

pub(crate) mod bits;
