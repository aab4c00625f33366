//! Regions with a node and flags, and the types that select a list or filter it.

use core::fmt;
use core::ops::BitOr;

use frameyard_units::{ByteSize, Geometry, NodeId, PfnRange, PhysAddr};

/// A range of physical memory with one node and one set of flags.
///
/// The end of a region in a list never wraps, because the last byte of the address space belongs to no region. The
/// layout is that of the kernel's `struct memblock_region`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(C)]
pub struct Region {
    /// The first byte.
    pub base: PhysAddr,
    /// Size in bytes.
    pub size: ByteSize,
    /// The flags of all bytes.
    pub flags: RegionFlags,
    /// The memory node.
    pub node: RegionNode,
}

impl Region {
    pub(super) const EMPTY: Self =
        Self { base: PhysAddr(0), size: ByteSize(0), flags: RegionFlags::NONE, node: RegionNode(0) };

    pub(super) const fn new(span: Span, node: RegionNode, flags: RegionFlags) -> Self {
        Self { base: PhysAddr(span.start), size: ByteSize(span.end - span.start), node, flags }
    }

    /// The address one past the last byte; saturates at the end of the address space.
    #[must_use]
    pub const fn end(&self) -> PhysAddr {
        PhysAddr(self.base.0.saturating_add(self.size.0))
    }

    /// Whether the region contains the address.
    #[must_use]
    pub const fn contains(&self, address: PhysAddr) -> bool {
        self.base.0 <= address.0 && address.0 < self.end().0
    }

    /// The page frames that are completely inside the region; may be empty.
    #[must_use]
    pub const fn whole_frames(&self, geometry: Geometry) -> PfnRange {
        PfnRange { start: geometry.frame_at_or_above(self.base), end: geometry.frame_of(self.end()) }
    }

    pub(super) const fn span(&self) -> Span {
        Span { start: self.base.0, end: self.end().0 }
    }

    pub(super) fn merges_with(&self, next: &Self) -> bool {
        self.end() == next.base && self.node == next.node && self.flags == next.flags
    }
}

/// The node of a region, or none: the kernel's `nid`.
///
/// Regions merge only if their numbers are equal, so even numbers that cannot be a node are kept as they are.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct RegionNode(pub i32);

impl RegionNode {
    /// No known node: the kernel's `NUMA_NO_NODE`.
    pub const NONE: Self = Self(-1);

    /// The node; `None` for a number that no node can have.
    #[must_use]
    pub const fn id(self) -> Option<NodeId> {
        if 0 <= self.0 && self.0 <= u16::MAX as i32 { Some(NodeId(self.0 as u16)) } else { None }
    }
}

impl From<NodeId> for RegionNode {
    fn from(node: NodeId) -> Self {
        Self(i32::from(node.0))
    }
}

impl From<Option<NodeId>> for RegionNode {
    fn from(node: Option<NodeId>) -> Self {
        node.map_or(Self::NONE, Self::from)
    }
}

impl fmt::Debug for RegionNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.id(), f)
    }
}

/// Flags of a region: the kernel's `enum memblock_flags`, with its values.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct RegionFlags(u32);

impl RegionFlags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// Hotpluggable: may be removed later.
    pub const HOTPLUG: Self = Self(0x1);
    /// Mirrored by the hardware.
    pub const MIRROR: Self = Self(0x2);
    /// Must not be mapped, so it is never allocated.
    pub const NOMAP: Self = Self(0x4);
    /// Added and managed by a driver, so it is never allocated here.
    pub const DRIVER_MANAGED: Self = Self(0x8);
    /// Reserved memory whose page structures must not be initialised.
    pub const RSRV_NOINIT: Self = Self(0x10);

    const NAMES: [(Self, &'static str); 5] = [
        (Self::HOTPLUG, "HOTPLUG"),
        (Self::MIRROR, "MIRROR"),
        (Self::NOMAP, "NOMAP"),
        (Self::DRIVER_MANAGED, "DRIVER_MANAGED"),
        (Self::RSRV_NOINIT, "RSRV_NOINIT"),
    ];

    /// The kernel's number for these flags.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The flags with the kernel's number. Unnamed bits are kept.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// Whether all of `other` is set here.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The union of these flags and `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These flags without `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl BitOr for RegionFlags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        self.with(other)
    }
}

impl fmt::Debug for RegionFlags {
    /// Writes the names joined by `|`, or `NONE`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names = Self::NAMES.iter().filter(|(flag, _)| self.contains(*flag)).map(|(_, name)| name);
        f.write_str(names.next().unwrap_or(&"NONE"))?;
        names.try_for_each(|name| write!(f, "|{name}"))
    }
}

/// One of the map's two lists.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RegionList {
    /// All existing memory.
    Memory,
    /// Ranges in use, in memory or elsewhere.
    Reserved,
}

impl fmt::Display for RegionList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Memory => "memory",
            Self::Reserved => "reserved",
        })
    }
}

/// The nodes that an iteration visits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum NodeFilter {
    /// All nodes, and memory without a node.
    Any,
    /// One node.
    Only(NodeId),
}

impl NodeFilter {
    pub(super) fn admits(self, node: Option<NodeId>) -> bool {
        match self {
            Self::Any => true,
            Self::Only(only) => node == Some(only),
        }
    }
}

/// The half-open range of addresses from `start` to `end`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span {
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Span {
    /// Cut off at the end of the address space: the kernel's `memblock_cap_size`.
    pub(super) const fn capped(base: PhysAddr, size: ByteSize) -> Self {
        Self { start: base.0, end: base.0.saturating_add(size.0) }
    }

    pub(super) const fn from(start: u64) -> Self {
        Self { start, end: u64::MAX }
    }

    pub(super) const fn is_empty(self) -> bool {
        self.end <= self.start
    }

    /// Whether both contain a common byte; false if one is empty.
    pub(super) const fn intersects(self, other: Self) -> bool {
        let start = if self.start > other.start { self.start } else { other.start };
        let end = if self.end < other.end { self.end } else { other.end };
        start < end
    }

    pub(super) const fn base(self) -> PhysAddr {
        PhysAddr(self.start)
    }

    pub(super) const fn size(self) -> ByteSize {
        ByteSize(self.end.saturating_sub(self.start))
    }
}
