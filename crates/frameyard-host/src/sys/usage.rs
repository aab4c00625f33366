//! What the kernel has counted for this process.

use std::time::Duration;

use crate::processor_use::ProcessorUse;

/// Time and page faults of all threads of this process.
pub(crate) fn of_this_process() -> ProcessorUse {
    // SAFETY: all-zero bytes are a valid `rusage`, which is made of integers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a `rusage` that lives through the call. It cannot fail for the calling process.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    ProcessorUse {
        user: duration(usage.ru_utime),
        system: duration(usage.ru_stime),
        faults: usage.ru_minflt.unsigned_abs(),
    }
}

fn duration(time: libc::timeval) -> Duration {
    Duration::from_secs(time.tv_sec.unsigned_abs()) + Duration::from_micros(time.tv_usec.unsigned_abs())
}
