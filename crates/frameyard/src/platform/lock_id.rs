//! Names for locks.

use crate::units::{CpuId, NodeId, Pfn, ZoneId, named};

/// Declares [`LockId`], and [`LockKind`] with the same variants and a name for each.
macro_rules! locks {
    ($($(#[$doc:meta])+ $variant:ident $(($($part:ty),+))? => $name:literal),+ $(,)?) => {
        /// The identity of a lock: what it guards, not its address.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum LockId {
            $($(#[$doc])+ $variant $(($($part),+))?,)+
        }

        /// What a lock guards, without the instance.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        pub enum LockKind {
            $(#[doc = concat!("[`LockId::", stringify!($variant), "`].")] $variant,)+
        }

        named!(LockKind: $($variant => $name),+);

        impl LockId {
            /// What the lock guards.
            #[must_use]
            pub const fn kind(self) -> LockKind {
                match self {
                    $(Self::$variant { .. } => LockKind::$variant,)+
                }
            }
        }
    };
}

locks! {
    /// The free lists of a zone.
    Zone(ZoneId) => "zone",
    /// One CPU's lists in one zone.
    PerCpu(ZoneId, CpuId) => "per-cpu",
    /// The pageblocks that one CPU owns in one zone.
    Mechanism(ZoneId, CpuId) => "mechanism",
    /// A shard of a node's LRU lists.
    LruShard(NodeId, u16) => "lru",
    /// One CPU's batch of pages that are to be put on LRU lists.
    LruBatch(CpuId) => "lru-batch",
    /// The map of an address space: a readers-writer lock.
    AddressSpace(u32) => "address-space",
    /// One page of page tables.
    PageTable(Pfn) => "page-table",
    /// A table of `frameyard-vm`'s small objects, by object kind.
    ObjectTable(u32) => "object-table",
    /// A cached file.
    File(u32) => "file",
    /// The table of devices.
    Devices => "devices",
}
