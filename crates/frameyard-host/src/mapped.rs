//! A yard and guards of its frames, together with the memory that they use. The second module with `unsafe` code: it
//! upholds the contracts of the core's constructors.

pub(crate) mod frames;
pub(crate) mod yard;
