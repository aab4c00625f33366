//! Names for locks.

use core::fmt;

use crate::units::{CpuId, NodeId, Order, Pfn, ZoneId, named};

/// Declares [`LockId`], and [`LockKind`] with the same variants and a name for each.
macro_rules! locks {
    ($($(#[$doc:meta])+ $variant:ident $(($($part:ty),+))? => $name:literal),+ $(,)?) => {
        /// The identity of a lock, by what it guards rather than by address.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[non_exhaustive]
        pub enum LockId {
            $($(#[$doc])+ $variant $(($($part),+))?,)+
        }

        /// The kind of a lock: what it guards, without saying which instance.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[non_exhaustive]
        pub enum LockKind {
            $(#[doc = concat!("[`LockId::", stringify!($variant), "`].")] $variant,)+
        }

        named!(LockKind: $($variant => $name),+);

        impl LockId {
            /// The kind of the lock.
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
    /// The policy of transfers, while it changes.
    Policy => "policy",
    /// The pool of huge pages of that order in a zone.
    HugePages(ZoneId, Order) => "huge-pages",
}

impl fmt::Display for LockId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Zone(zone) => write!(f, "{zone}"),
            Self::PerCpu(zone, cpu) => write!(f, "the lists of {cpu} in {zone}"),
            Self::LruShard(node, shard) => write!(f, "shard {shard} of the LRU lists of {node}"),
            Self::LruBatch(cpu) => write!(f, "the LRU batch of {cpu}"),
            Self::AddressSpace(space) => write!(f, "address space {space}"),
            Self::PageTable(pfn) => write!(f, "the page table at {pfn}"),
            Self::ObjectTable(kind) => write!(f, "object table {kind}"),
            Self::File(file) => write!(f, "file {file}"),
            Self::Devices => f.write_str("the table of devices"),
            Self::Policy => f.write_str("the policy"),
            Self::HugePages(zone, order) => write!(f, "the pool of huge pages of {order} in {zone}"),
        }
    }
}

impl LockId {
    /// Encodes the lock as one word, for memory that processes share.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        let (high, low) = match self {
            Self::Zone(zone) => (0, zone.0 as u64),
            Self::PerCpu(zone, cpu) => (zone.0 as u64, cpu.0 as u64),
            Self::LruShard(node, shard) => (node.0 as u64, shard as u64),
            Self::LruBatch(CpuId(number))
            | Self::AddressSpace(number)
            | Self::ObjectTable(number)
            | Self::File(number) => (0, number as u64),
            Self::PageTable(pfn) => (pfn.0 >> 32, pfn.0 & 0xffff_ffff),
            Self::HugePages(zone, order) => (zone.0 as u64, order.0 as u64),
            Self::Devices | Self::Policy => (0, 0),
        };
        (self.kind() as u64) << 56 | (high & 0xff_ffff) << 32 | low
    }

    /// Decodes a word made by [`to_bits`](Self::to_bits); [`Devices`](Self::Devices) if the word is invalid.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        const KINDS: [LockKind; 11] = LockKind::ALL;
        let (high, low) = (bits >> 32 & 0xff_ffff, bits as u32);
        let kind = (bits >> 56) as usize;
        match KINDS[if kind < KINDS.len() { kind } else { LockKind::Devices as usize }] {
            LockKind::Zone => Self::Zone(ZoneId(low as u16)),
            LockKind::PerCpu => Self::PerCpu(ZoneId(high as u16), CpuId(low)),
            LockKind::LruShard => Self::LruShard(NodeId(high as u16), low as u16),
            LockKind::LruBatch => Self::LruBatch(CpuId(low)),
            LockKind::AddressSpace => Self::AddressSpace(low),
            LockKind::PageTable => Self::PageTable(Pfn(high << 32 | low as u64)),
            LockKind::ObjectTable => Self::ObjectTable(low),
            LockKind::File => Self::File(low),
            LockKind::Devices => Self::Devices,
            LockKind::Policy => Self::Policy,
            LockKind::HugePages => Self::HugePages(ZoneId(high as u16), Order(low as u8)),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_lock_survives_the_way_through_a_word() {
        let (zone, cpu, node) = (ZoneId(700), CpuId(0xffff_fffe), NodeId(255));
        let locks = [
            LockId::Zone(zone),
            LockId::PerCpu(zone, cpu),
            LockId::LruShard(node, 9),
            LockId::LruBatch(cpu),
            LockId::AddressSpace(7),
            LockId::PageTable(Pfn((1 << 40) + 3)),
            LockId::ObjectTable(2),
            LockId::File(u32::MAX),
            LockId::Devices,
            LockId::Policy,
            LockId::HugePages(zone, Order(18)),
        ];
        for lock in locks {
            assert_eq!(LockId::from_bits(lock.to_bits()), lock);
        }
        assert_eq!(LockId::from_bits(u64::MAX), LockId::Devices);
    }
}
