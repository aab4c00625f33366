//! The only access to the bytes of frames: as atomic words, or copied and zeroed under exclusive access.

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
