//! The choices of a platform.

use std::fmt;

use frameyard::CpuId;

/// How the platform finds out which CPU a thread runs on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum CpuIdentity {
    /// From `cpu_id` in the thread's `rseq` area: one load. A thread for which the kernel leaves it negative uses
    /// [`Getcpu`](CpuIdentity::Getcpu).
    Rseq,
    /// From `sched_getcpu`.
    Getcpu,
    /// Fixed: every thread counts as running on this CPU of the yard.
    Fixed(CpuId),
}

impl CpuIdentity {
    /// The name of the choice, such as `rseq`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rseq => "rseq",
            Self::Getcpu => "getcpu",
            Self::Fixed(_) => "fixed",
        }
    }
}

/// The C library has registered no `rseq` area for the calling thread, or the kernel does not maintain it.
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
    /// No: the host provides each page when it is first written. If it has none to give (the file system of the map is
    /// full, a pool of huge pages is exhausted, a page is damaged), it kills the process with a signal.
    #[default]
    No,
    /// Yes. If the map gets no memory, that is an error ([`MapNotBacked`](frameyard::platform::MapNotBacked)), and the
    /// yard continues without those frames. One system call (`MADV_POPULATE_WRITE`) replaces the page faults of a whole
    /// part and costs less. But all of the part becomes resident, even pages that would never be written. Kernels
    /// before 5.14 lack the call, and there `Yes` behaves like [`No`](PopulateMap::No).
    ///
    /// If a control group has reached its limit, the kernel kills a process in either case.
    Yes,
}

/// Whether locks are timed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum LockTiming {
    /// No. Taking a lock costs one more load, of this switch.
    #[default]
    Off,
    /// Yes. The times that locks are waited for and held are counted; each acquisition reads the clock three times.
    On,
}

/// How a CPU uses its own per-CPU lists.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum ListAccess {
    /// In restartable sequences, without a locked operation, where that is possible: in a private yard with a list for
    /// each online CPU of the host, on x86-64, with glibc 2.35 or later and Linux 5.10 or later. Elsewhere as
    /// [`Locked`](ListAccess::Locked). With sequences, a thread without an `rseq` area bypasses the lists: it allocates
    /// from the zone and frees to it.
    #[default]
    Sequences,
    /// With a lock on the lists.
    Locked,
}
