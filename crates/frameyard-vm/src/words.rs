//! The only door to the bytes of frames: as words that are atomics, or copied and zeroed by whoever may.

#[cfg(not(loom))]
mod mapped;
#[cfg(loom)]
mod modelled;

#[cfg(not(loom))]
pub(crate) use mapped::{Words, copy, read_bytes, with_bytes, write_bytes, zero};
#[cfg(loom)]
pub(crate) use modelled::{Words, copy, read_bytes, with_bytes, write_bytes, zero};
#[cfg(all(test, loom))]
pub(crate) use modelled::{forget_all, learn_all};
