//! What a task spends CPU time on besides using memory.

/// A kind of CPU time other than memory accesses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CpuWork {
    /// A program computes.
    Compute = 0,
    /// The kernel works on the program's behalf.
    KernelWork = 1,
}

impl CpuWork {
    /// The names of the costs on simulated machines, in the order of the kinds.
    pub const COSTS: &'static [&'static str] = &["compute", "kernel-work"];
}
