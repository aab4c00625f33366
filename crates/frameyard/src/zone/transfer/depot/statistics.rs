//! Statistics of the depot.

/// The depot of one zone: its batches, and what happened to them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DepotStatistics {
    /// Batches in the depot.
    pub batches: u64,
    /// Batches pushed on a stack, from lists and from carved blocks.
    pub pushed: u64,
    /// Batches popped for lists.
    pub popped: u64,
    /// The part of them that a CPU of another group popped.
    pub stolen: u64,
    /// Batches pushed on the common stack because a group's stack was full.
    pub overflowed: u64,
    /// Batches returned to the free lists.
    pub collected: u64,
    /// Failed compare-exchanges, each retried.
    pub retries: u64,
}
