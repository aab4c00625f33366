//! The system calls: the only module of this crate with `unsafe` code.
//!
//! What it hands out is safe to use: [`mapping::Mapping`] owns its address range and gives it back when
//! dropped, and never reads or writes what is mapped; it gives back what its user has alone. It knows nothing of frames or
//! nodes of a yard.

pub(crate) mod bytes;
pub(crate) mod counter;
pub(crate) mod cpu;
pub(crate) mod descriptor;
pub(crate) mod futex;
pub(crate) mod io_ring;
pub(crate) mod map_rates;
pub(crate) mod mapping;
pub(crate) mod membarrier;
pub(crate) mod usage;
pub(crate) mod window;
pub(crate) mod yard;

/// The page size of the host in bytes.
pub(crate) fn host_page_size() -> usize {
    // SAFETY: sysconf reads a constant of the system and touches no memory of ours.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).expect("the system states its page size")
}

/// The `-1` convention of system calls as a result.
fn check(result: impl Into<i64>) -> std::io::Result<()> {
    if result.into() == -1 { Err(std::io::Error::last_os_error()) } else { Ok(()) }
}
