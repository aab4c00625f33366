//! The two calls of `io_uring` that register memory: no ring is mapped, and nothing is submitted.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use super::check;

const REGISTER_BUFFERS: libc::c_uint = 0;
const UNREGISTER_BUFFERS: libc::c_uint = 1;

/// `struct io_uring_params`: 120 bytes, all zero for a ring without wishes. The kernel writes offsets there.
type Params = [u64; 15];

/// A ring with so many entries.
pub(crate) fn setup(entries: u32) -> io::Result<OwnedFd> {
    let mut params: Params = [0; 15];
    // SAFETY: the kernel reads and writes one `io_uring_params`, which `params` is as large as.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, entries, params.as_mut_ptr()) };
    check(fd)?;
    // SAFETY: the descriptor was just opened and belongs to nobody else. Descriptors are small.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Has the kernel pin ranges of addresses as buffers of a ring. It writes to them only when a request says so, which is unsafe
/// to submit.
pub(crate) fn register_buffers(ring: BorrowedFd<'_>, buffers: &[libc::iovec]) -> io::Result<()> {
    let (list, count) = (buffers.as_ptr(), buffers.len() as libc::c_uint);
    // SAFETY: the list lives through the call. Pages that the addresses lie in are pinned, not changed; where there are none,
    // the kernel refuses.
    check(unsafe { libc::syscall(libc::SYS_io_uring_register, ring.as_raw_fd(), REGISTER_BUFFERS, list, count) })
}

/// Has the kernel let go of the buffers of a ring, when no request uses them any more.
pub(crate) fn unregister_buffers(ring: BorrowedFd<'_>) -> io::Result<()> {
    let nothing = ptr::null::<libc::iovec>();
    let none: libc::c_uint = 0;
    // SAFETY: the call touches no memory of ours.
    check(unsafe { libc::syscall(libc::SYS_io_uring_register, ring.as_raw_fd(), UNREGISTER_BUFFERS, nothing, none) })
}
