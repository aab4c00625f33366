//! The only door to the bytes of frames: as words that are atomics, or copied and zeroed by whoever may.

#[cfg(not(loom))]
mod mapped;
#[cfg(loom)]
mod modelled;

#[cfg(not(loom))]
pub(crate) use mapped::{Words, copy, read_bytes, read_shared, with_bytes, write_bytes, write_shared, zero};
#[cfg(loom)]
pub(crate) use modelled::{Words, copy, read_bytes, read_shared, with_bytes, write_bytes, write_shared, zero};
#[cfg(all(test, loom))]
pub(crate) use modelled::{forget_all, learn_all};
