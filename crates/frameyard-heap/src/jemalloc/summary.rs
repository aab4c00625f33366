//! What a heap has taken from its yard.

use std::fmt;

use frameyard::policy::ZonePolicy;
use frameyard_host::ByteSize;

/// Counts of a heap and its yard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HeapSummary {
    /// The policy of the yard.
    pub policy: ZonePolicy,
    /// The memory that the yard manages.
    pub size: ByteSize,
    /// Extents allocated.
    pub allocations: u64,
    /// Requests for extents that the yard could not serve, tries to extend an extent in place included.
    pub failures: u64,
    /// Acquisitions of zone locks.
    pub zone_locks: u64,
    /// Whole free pageblocks, of 2 MiB each: the memory that a huge page can have at once.
    pub free_pageblocks: u64,
    /// Free memory.
    pub free: ByteSize,
    /// Memory in extents.
    pub in_use: ByteSize,
    /// The largest value of it.
    pub peak: ByteSize,
}

/// One line of `name=value` pairs; sizes in bytes.
impl fmt::Display for HeapSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { policy, size, allocations, failures, zone_locks, free_pageblocks, free, in_use, peak } = self;
        write!(f, "policy={policy} size={} allocations={allocations} failures={failures} ", size.0)?;
        write!(f, "zone_locks={zone_locks} free_pageblocks={free_pageblocks} ",)?;
        write!(f, "free={} in_use={} peak={}", free.0, in_use.0, peak.0)
    }
}
