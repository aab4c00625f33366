//! Zones and migration types.

use core::fmt;

use crate::NodeId;

/// The kinds of zones, from the most to the least constrained.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum ZoneKind {
    /// Below 16 MiB: reachable by ISA devices.
    Dma = 0,
    /// Below 4 GiB: reachable by 32-bit devices.
    Dma32 = 1,
    /// All other memory.
    Normal = 2,
    /// Memory for movable allocations only.
    Movable = 3,
    /// Device memory, which has page structures but no free lists.
    Device = 4,
}

impl ZoneKind {
    /// All kinds, lowest first.
    pub const ALL: [Self; 5] = [Self::Dma, Self::Dma32, Self::Normal, Self::Movable, Self::Device];

    /// The number of kinds.
    pub const COUNT: usize = Self::ALL.len();

    /// The kernel's name for the zone.
    #[inline]
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dma => "DMA",
            Self::Dma32 => "DMA32",
            Self::Normal => "Normal",
            Self::Movable => "Movable",
            Self::Device => "Device",
        }
    }
}

impl fmt::Display for ZoneKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A zone of a node: `node × 5 + kind`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ZoneId(pub u16);

impl ZoneId {
    /// The zone of `kind` on `node`.
    #[inline]
    #[must_use]
    pub const fn new(node: NodeId, kind: ZoneKind) -> Self {
        Self(node.0 * ZoneKind::COUNT as u16 + kind as u16)
    }

    /// The node that the zone belongs to.
    #[inline]
    #[must_use]
    pub const fn node(self) -> NodeId {
        NodeId(self.0 / ZoneKind::COUNT as u16)
    }

    /// The kind of the zone.
    #[inline]
    #[must_use]
    pub const fn kind(self) -> ZoneKind {
        ZoneKind::ALL[self.0 as usize % ZoneKind::COUNT]
    }

    /// Index of this zone in a table with one entry per zone.
    #[inline(always)]
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Debug for ZoneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} zone {}", self.node().0, self.kind())
    }
}

impl fmt::Display for ZoneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The migration type of a pageblock, a free list or an allocation. It groups frames by mobility.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum MigrateType {
    /// Cannot be moved.
    Unmovable = 0,
    /// Can be moved to another frame.
    Movable = 1,
    /// Cannot be moved, but can be dropped.
    Reclaimable = 2,
    /// Reserved for atomic high-order allocations.
    HighAtomic = 3,
    /// A contiguous memory area, which movable allocations use until a request claims it.
    Cma = 4,
    /// Isolated: nothing is allocated from it.
    Isolate = 5,
}

impl MigrateType {
    /// All types, in the order of the kernel's tables.
    pub const ALL: [Self; 6] =
        [Self::Unmovable, Self::Movable, Self::Reclaimable, Self::HighAtomic, Self::Cma, Self::Isolate];

    /// The number of types.
    pub const COUNT: usize = Self::ALL.len();

    /// The number of types that have per-CPU lists: types 0 to `PER_CPU - 1`.
    pub const PER_CPU: usize = 3;

    /// The kernel's name for the type.
    #[inline]
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unmovable => "Unmovable",
            Self::Movable => "Movable",
            Self::Reclaimable => "Reclaimable",
            Self::HighAtomic => "HighAtomic",
            Self::Cma => "CMA",
            Self::Isolate => "Isolate",
        }
    }

    /// The type with that number; `None` if there is none.
    #[inline(always)]
    #[must_use]
    pub const fn from_bits(bits: u8) -> Option<Self> {
        match bits {
            0 => Some(Self::Unmovable),
            1 => Some(Self::Movable),
            2 => Some(Self::Reclaimable),
            3 => Some(Self::HighAtomic),
            4 => Some(Self::Cma),
            5 => Some(Self::Isolate),
            _ => None,
        }
    }

    /// Index of this type in a table with one entry per type.
    #[inline(always)]
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for MigrateType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zone_id_encodes_node_and_kind() {
        let id = ZoneId::new(NodeId(3), ZoneKind::Movable);
        assert_eq!((id.node(), id.kind()), (NodeId(3), ZoneKind::Movable));
    }
}
