//! The three `io_uring` calls that register memory. No ring is mapped and nothing is submitted.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr;

pub(crate) use rustix::io_uring::iovec;
use rustix::io_uring::{IoringRegisterOp, io_uring_params, io_uring_register, io_uring_setup};

/// Makes a ring with room for `entries` requests.
pub(crate) fn setup(entries: u32) -> io::Result<OwnedFd> {
    let mut params = io_uring_params::default();
    // SAFETY: the parameters name no work queue to attach to.
    Ok(unsafe { io_uring_setup(entries, &mut params) }?)
}

/// Pins ranges of addresses as buffers of a ring.
///
/// The kernel writes to them only for a submitted request, and submitting one is unsafe.
pub(crate) fn register_buffers(ring: BorrowedFd<'_>, buffers: &[iovec]) -> io::Result<()> {
    let (list, count) = (buffers.as_ptr().cast(), buffers.len() as u32);
    // SAFETY: the list lives through the call. The kernel pins the pages and does not change them. It refuses
    // addresses that have no memory.
    unsafe { io_uring_register(ring, IoringRegisterOp::RegisterBuffers, list, count) }?;
    Ok(())
}

/// Unpins the buffers of a ring as soon as no request uses them.
pub(crate) fn unregister_buffers(ring: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: the call reads and writes no memory of this process.
    unsafe { io_uring_register(ring, IoringRegisterOp::UnregisterBuffers, ptr::null(), 0) }?;
    Ok(())
}
