//! The choices of a platform.

use std::fmt;

use frameyard::CpuId;

/// How the platform finds out the CPU of a thread.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CpuIdentity {
    /// From the `cpu_id` of the thread's `rseq` area: one load. If the kernel leaves it negative for a thread, that
    /// thread uses [`Getcpu`](CpuIdentity::Getcpu).
    Rseq,
    /// From `sched_getcpu`.
    Getcpu,
    /// Fixed: every thread is on this CPU of the yard.
    Fixed(CpuId),
}

impl CpuIdentity {
    /// The name of the path, such as `rseq`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rseq => "rseq",
            Self::Getcpu => "getcpu",
            Self::Fixed(_) => "fixed",
        }
    }
}

/// The C library registers no `rseq` area for the calling thread, or the kernel does not maintain it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RseqUnavailable;

impl fmt::Display for RseqUnavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no rseq area registered: needs x86-64, glibc 2.35 or later, and a kernel with rseq")
    }
}

impl std::error::Error for RseqUnavailable {}

/// Whether the host provides the memory of a part of a memory map before that part is written.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum PopulateMap {
    /// It does not: the host provides each page at its first write. If it has none then (a full file system behind the
    /// map, an exhausted pool of huge pages, a damaged page), it kills the process with a signal.
    #[default]
    No,
    /// It does. A map without memory is an error ([`MapNotBacked`](frameyard::platform::MapNotBacked)), and the yard goes on without those frames. One
    /// system call (`MADV_POPULATE_WRITE`) replaces the page faults of a whole part at a lower cost. But all of the
    /// part becomes resident, including pages that would not be written. Kernels before 5.14 lack the call and behave
    /// as with [`No`](PopulateMap::No).
    ///
    /// If the limit of a control group is reached, the kernel kills a process in either case.
    Yes,
}

/// Whether locks are timed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum LockTiming {
    /// They are not. Taking a lock costs one load of this switch more.
    #[default]
    Off,
    /// They are. Waiting and holding times are counted, with three readings of the clock per acquisition.
    On,
}

/// How a CPU uses its own per-CPU lists.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum ListAccess {
    /// In restartable sequences, without a locked operation, where that is possible: in a private yard with a list for each online
    /// CPU of the host, on x86-64, with glibc 2.35 or later and Linux 5.10 or later. Otherwise as [`Locked`](ListAccess::Locked).
    /// Threads without an `rseq` area then free to the zone and allocate from it.
    #[default]
    Sequences,
    /// Under the lock of the lists.
    Locked,
}
