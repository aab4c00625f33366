//! Processor time and page faults that the kernel has counted for this process.

/// The counters of all threads of this process.
pub(crate) fn of_this_process() -> libc::rusage {
    // SAFETY: all-zero bytes are a valid `rusage`, which consists of integers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a `rusage` that lives through the call. The call cannot fail for the calling process.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    usage
}
