//! The only access to the bytes of frames.
//!
//! Each type states on its constructor what the caller must ensure. Its other functions are safe.
//!
//! | type | access |
//! |---|---|
//! | [`Words`] | a block with state of this crate, as atomic words |
//! | [`FrameBytes`] | a block whose content belongs to a user, exclusively, as bytes |
//! | [`DeviceBytes`] | a frame of a device, shared, as atomic bytes |

#[cfg(not(loom))]
mod mapped;
#[cfg(loom)]
mod modelled;

#[cfg(not(loom))]
pub(crate) use mapped::{DeviceBytes, FrameBytes, Words};
#[cfg(loom)]
pub(crate) use modelled::{DeviceBytes, FrameBytes, Words};
#[cfg(all(test, loom))]
pub(crate) use modelled::{forget_all, learn_all};
