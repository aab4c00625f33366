//! Registering memory with the host's kernel as buffers of an `io_uring`.
//!
//! The kernel pins the pages of a registered buffer once instead of at each request. A yard does the same for a memory
//! region that it registers.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use frameyard::ByteSize;

use crate::sys::io_ring;

/// The largest buffer that the kernel accepts. A larger one is registered as several.
const LARGEST: usize = 1 << 30;

/// The number of buffers that a ring accepts (the kernel's `IORING_MAX_REG_BUFFERS`).
const MOST: usize = 1 << 14;

/// A range of addresses of this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IoBuffer {
    /// The first byte.
    pub start: NonNull<u8>,
    /// The number of bytes.
    pub size: ByteSize,
}

/// Why memory cannot be registered. When this is returned, nothing is registered.
#[derive(Debug)]
#[non_exhaustive]
pub enum IoRingError {
    /// The kernel has no `io_uring`, or does not allow this process to use it.
    NotAllowed(io::Error),
    /// The list has no buffers.
    NoBuffers,
    /// A buffer has no bytes.
    EmptyBuffer {
        /// Its index in the list.
        index: usize,
    },
    /// There are more buffers than a ring accepts.
    TooMany {
        /// The number of buffers, of at most 1 GiB each.
        buffers: usize,
        /// The number that a ring accepts.
        max: usize,
    },
    /// The process may not pin that much memory.
    LockedMemory {
        /// The size of all buffers.
        size: ByteSize,
    },
    /// Some of the addresses have no memory, or memory that cannot be written and pinned.
    NotMemory {
        /// The system's error.
        source: io::Error,
    },
    /// The ring already has registered buffers.
    Busy,
    /// The descriptor is not that of an `io_uring`.
    NotARing,
    /// The system refused a step.
    System {
        /// The step.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl fmt::Display for IoRingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAllowed(source) => write!(
                f,
                "io_uring is not available ({source}): the sysctl kernel.io_uring_disabled must be 0, and no filter may forbid the calls"
            ),
            Self::NoBuffers => f.write_str("no buffers to register: at least one is needed"),
            Self::EmptyBuffer { index } => write!(f, "buffer {index} is empty: each needs at least one byte"),
            Self::TooMany { buffers, max } => {
                write!(
                    f,
                    "{buffers} buffers of at most 1G each, and a ring accepts {max}: register fewer or larger ones"
                )
            }
            Self::LockedMemory { size } => write!(
                f,
                "this process may not pin {size}, or the host lacks the memory: raise the limit of locked memory (RLIMIT_MEMLOCK)"
            ),
            Self::NotMemory { source } => {
                write!(f, "some addresses have no memory that can be written and pinned: {source}")
            }
            Self::Busy => f.write_str("the ring already has registered buffers: unregister them first"),
            Self::NotARing => f.write_str("the descriptor is not that of an io_uring: make one with io_uring_setup"),
            Self::System { action, source } => write!(f, "cannot {action}: {source}"),
        }
    }
}

impl std::error::Error for IoRingError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NotAllowed(source) | Self::NotMemory { source } | Self::System { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// An `io_uring` to register memory with.
///
/// If your program submits requests, with whatever crate, pass the descriptor of its own ring (`IoRing::from`).
#[derive(Debug)]
pub struct IoRing {
    fd: OwnedFd,
}

impl IoRing {
    /// Makes a new ring, to which nothing is submitted.
    ///
    /// # Errors
    ///
    /// [`IoRingError::NotAllowed`] if the kernel has no `io_uring` or does not allow this process to use it.
    pub fn new() -> Result<Self, IoRingError> {
        io_ring::setup(1).map(|fd| Self { fd }).map_err(|source| match source.raw_os_error() {
            Some(libc::ENOSYS | libc::EPERM | libc::EACCES) => IoRingError::NotAllowed(source),
            _ => IoRingError::System { action: "make an io_uring", source },
        })
    }

    /// Pins the pages of the buffers until the result is dropped. A buffer of more than 1 GiB is registered as several,
    /// all of 1 GiB except the last.
    ///
    /// The kernel pins the host pages that are there now, whatever state their frames have in a yard. If a yard returns
    /// memory to the host in the meantime, other pages take its place, and the ring keeps the old ones.
    ///
    /// # Errors
    ///
    /// [`IoRingError`] says what is wrong with the list, or why the kernel refuses.
    pub fn register(&mut self, buffers: &[IoBuffer]) -> Result<RegisteredBuffers<'_>, IoRingError> {
        let vectors = vectors_of(buffers)?;
        let size = ByteSize(buffers.iter().map(|buffer| buffer.size.0).sum());
        io_ring::register_buffers(self.fd.as_fd(), &vectors).map_err(|source| match source.raw_os_error() {
            Some(libc::ENOMEM) => IoRingError::LockedMemory { size },
            Some(libc::EOPNOTSUPP) if self.is_not_a_ring() => IoRingError::NotARing,
            Some(libc::EFAULT | libc::EOPNOTSUPP) => IoRingError::NotMemory { source },
            Some(libc::EBUSY) => IoRingError::Busy,
            _ => IoRingError::System { action: "register buffers", source },
        })?;
        Ok(RegisteredBuffers { ring: self, buffers: vectors.len(), size })
    }

    /// Whether the descriptor is not a ring's. A ring without buffers returns another error.
    fn is_not_a_ring(&self) -> bool {
        let error = io_ring::unregister_buffers(self.fd.as_fd()).err();
        error.is_some_and(|error| error.raw_os_error() == Some(libc::EOPNOTSUPP))
    }
}

impl From<OwnedFd> for IoRing {
    /// Uses a ring that other code has made and submits to. Its buffers are numbered in the order of registration.
    fn from(fd: OwnedFd) -> Self {
        Self { fd }
    }
}

impl AsFd for IoRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Registered buffers of an [`IoRing`], unregistered on drop.
#[derive(Debug)]
pub struct RegisteredBuffers<'a> {
    ring: &'a IoRing,
    buffers: usize,
    size: ByteSize,
}

impl RegisteredBuffers<'_> {
    /// The number of buffers of the ring.
    #[must_use]
    pub fn buffers(&self) -> usize {
        self.buffers
    }

    /// Their total size.
    #[must_use]
    pub fn size(&self) -> ByteSize {
        self.size
    }

    /// The ring.
    #[must_use]
    pub fn ring(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}

impl Drop for RegisteredBuffers<'_> {
    fn drop(&mut self) {
        // Fails only if other code has unregistered them already.
        let _ = io_ring::unregister_buffers(self.ring.as_fd());
    }
}

/// The list of buffers in the kernel's format.
fn vectors_of(buffers: &[IoBuffer]) -> Result<Vec<io_ring::iovec>, IoRingError> {
    if buffers.is_empty() {
        return Err(IoRingError::NoBuffers);
    }
    if let Some(index) = buffers.iter().position(|buffer| buffer.size.0 == 0) {
        return Err(IoRingError::EmptyBuffer { index });
    }
    let parts = |buffer: &IoBuffer| buffer.size.0.div_ceil(LARGEST as u64);
    let count = buffers.iter().map(parts).fold(0u64, u64::saturating_add);
    if count > MOST as u64 {
        return Err(IoRingError::TooMany { buffers: count as usize, max: MOST });
    }
    let cut = |buffer: &IoBuffer| {
        let (start, size) = (buffer.start.as_ptr(), buffer.size.0 as usize);
        (0..size).step_by(LARGEST).map(move |offset| io_ring::iovec {
            iov_base: start.wrapping_add(offset).cast(),
            iov_len: LARGEST.min(size - offset),
        })
    };
    Ok(buffers.iter().flat_map(cut).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::HugePages;
    use crate::region::Region;

    fn buffer(region: &Region, offset: usize, size: ByteSize) -> IoBuffer {
        IoBuffer { start: region.base().map_addr(|base| base.checked_add(offset).unwrap()), size }
    }

    /// A ring, if the host permits one.
    fn ring() -> Option<IoRing> {
        match IoRing::new() {
            Ok(ring) => Some(ring),
            Err(IoRingError::NotAllowed(error)) => {
                println!("skipped: io_uring is not allowed here ({error})");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn buffers_can_be_registered_again_after_a_drop() {
        let Some(mut ring) = ring() else { return };
        let region = Region::zeroed(ByteSize::mib(4), HugePages::Never).unwrap();
        for _ in 0..3 {
            let list = [buffer(&region, 0, ByteSize::kib(64)), buffer(&region, 1 << 20, ByteSize::kib(4))];
            let registered = ring.register(&list).unwrap();
            assert_eq!((registered.buffers(), registered.size()), (2, ByteSize::kib(68)));
            // Pinning makes pages present.
            assert!(region.resident().unwrap() >= ByteSize::kib(68));
        }
    }

    #[test]
    fn a_ring_has_one_set_of_buffers_at_a_time() {
        let Some(mut ring) = ring() else { return };
        let region = Region::zeroed(ByteSize::mib(2), HugePages::Never).unwrap();
        let list = [buffer(&region, 0, ByteSize::kib(4))];
        let mut same = IoRing::from(ring.as_fd().try_clone_to_owned().unwrap());
        let registered = ring.register(&list).unwrap();
        assert!(matches!(same.register(&list), Err(IoRingError::Busy)));
        drop(registered);
        same.register(&list).unwrap();
    }

    #[test]
    fn addresses_without_memory_are_refused() {
        let Some(mut ring) = ring() else { return };
        let region = Region::zeroed(ByteSize::mib(2), HugePages::Never).unwrap();
        let nowhere = IoBuffer { start: NonNull::dangling(), size: ByteSize::kib(4) };
        let error = ring.register(&[buffer(&region, 0, ByteSize::kib(4)), nowhere]).unwrap_err();
        assert!(matches!(error, IoRingError::NotMemory { .. }), "{error}");
        assert!(error.to_string().starts_with("some addresses have no memory"), "{error}");
    }

    #[test]
    fn a_descriptor_of_another_kind_is_refused() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let region = Region::zeroed(ByteSize::mib(2), HugePages::Never).unwrap();
        let error = IoRing::from(OwnedFd::from(file)).register(&[buffer(&region, 0, ByteSize::kib(4))]).unwrap_err();
        match error {
            IoRingError::NotARing => {}
            IoRingError::System { source, .. } if source.raw_os_error() == Some(libc::ENOSYS) => {
                println!("skipped: the kernel has no io_uring");
            }
            error => panic!("{error}"),
        }
    }

    #[test]
    fn lists_that_no_ring_accepts_are_refused_early() {
        let region = Region::zeroed(ByteSize::mib(2), HugePages::Never).unwrap();
        assert!(matches!(vectors_of(&[]), Err(IoRingError::NoBuffers)));
        let list = [buffer(&region, 0, ByteSize(1)), buffer(&region, 0, ByteSize(0))];
        assert!(matches!(vectors_of(&list), Err(IoRingError::EmptyBuffer { index: 1 })));
        let error = vectors_of(&vec![list[0]; MOST + 1]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "16385 buffers of at most 1G each, and a ring accepts 16384: register fewer or larger ones"
        );
        assert!(matches!(
            vectors_of(&[buffer(&region, 0, ByteSize(u64::MAX)); 2]),
            Err(IoRingError::TooMany { max: MOST, .. })
        ));
    }

    #[test]
    fn a_buffer_above_the_kernels_limit_becomes_several() {
        let region = Region::zeroed(ByteSize::mib(2), HugePages::Never).unwrap();
        let vectors = vectors_of(&[buffer(&region, 4096, ByteSize((5 << 29) + 1))]).unwrap();
        let starts: Vec<usize> =
            vectors.iter().map(|vector| vector.iov_base as usize - region.base().as_ptr() as usize).collect();
        let sizes: Vec<usize> = vectors.iter().map(|vector| vector.iov_len).collect();
        assert_eq!(
            (starts, sizes),
            (vec![4096, 4096 + LARGEST, 4096 + 2 * LARGEST], vec![LARGEST, LARGEST, (1 << 29) + 1])
        );
    }
}
