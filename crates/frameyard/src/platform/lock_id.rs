//! Names for locks.

use crate::units::{CpuId, NodeId, Pfn, ZoneId, named};

/// The identity of a lock: what it guards, not its address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LockId {
    /// The free lists of a zone.
    Zone(ZoneId),
    /// One CPU's lists in one zone.
    PerCpu(ZoneId, CpuId),
    /// The pageblocks that one CPU owns in one zone.
    Mechanism(ZoneId, CpuId),
    /// A shard of a node's LRU lists.
    LruShard(NodeId, u16),
    /// One CPU's batch of pages that are to be put on LRU lists.
    LruBatch(CpuId),
    /// The map of an address space: a readers-writer lock.
    AddressSpace(u32),
    /// One page of page tables.
    PageTable(Pfn),
    /// A table of `frameyard-vm`'s small objects, by object kind.
    ObjectTable(u32),
    /// A cached file.
    File(u32),
    /// The table of devices.
    Devices,
}

/// What a lock guards, without the instance.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LockKind {
    /// [`LockId::Zone`].
    Zone,
    /// [`LockId::PerCpu`].
    PerCpu,
    /// [`LockId::Mechanism`].
    Mechanism,
    /// [`LockId::LruShard`].
    LruShard,
    /// [`LockId::LruBatch`].
    LruBatch,
    /// [`LockId::AddressSpace`].
    AddressSpace,
    /// [`LockId::PageTable`].
    PageTable,
    /// [`LockId::ObjectTable`].
    ObjectTable,
    /// [`LockId::File`].
    File,
    /// [`LockId::Devices`].
    Devices,
}

named!(LockKind: Zone => "zone", PerCpu => "per-cpu", Mechanism => "mechanism", LruShard => "lru", LruBatch => "lru-batch",
    AddressSpace => "address-space", PageTable => "page-table", ObjectTable => "object-table", File => "file",
    Devices => "devices");

impl LockId {
    /// What the lock guards.
    #[must_use]
    pub const fn kind(self) -> LockKind {
        match self {
            Self::Zone(_) => LockKind::Zone,
            Self::PerCpu(..) => LockKind::PerCpu,
            Self::Mechanism(..) => LockKind::Mechanism,
            Self::LruShard(..) => LockKind::LruShard,
            Self::LruBatch(_) => LockKind::LruBatch,
            Self::AddressSpace(_) => LockKind::AddressSpace,
            Self::PageTable(_) => LockKind::PageTable,
            Self::ObjectTable(_) => LockKind::ObjectTable,
            Self::File(_) => LockKind::File,
            Self::Devices => LockKind::Devices,
        }
    }
}
