//! The sections of the memory map: the zone of each, and whether all of its frames are memory of that zone.

use crate::sync::{AtomicU32, Ordering};
use crate::units::{Geometry, NodeId, ZoneId};

/// A section of the memory map: its zone, and whether it has memory.
///
/// | bits | meaning |
/// |---|---|
/// | 0–15 | [`ZoneId`] of the memory found first |
/// | 16 | has memory |
/// | 17 | mixed: several zones meet in it |
/// | 18 | uniform: all its frames are memory of one zone |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SectionEntry(u32);

impl SectionEntry {
    const PRESENT: u32 = 1 << 16;
    const MIXED: u32 = 1 << 17;
    const UNIFORM: u32 = 1 << 18;

    pub(crate) const ABSENT: Self = Self(0);

    pub(crate) const fn of_zone(zone: ZoneId) -> Self {
        Self(Self::PRESENT | zone.0 as u32)
    }

    #[inline(always)]
    pub(crate) const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    pub(crate) const fn bits(self) -> u32 {
        self.0
    }

    /// Whether the section has memory in it, so that its part of the map may be touched.
    #[inline(always)]
    pub(crate) const fn is_present(self) -> bool {
        self.0 & Self::PRESENT != 0
    }

    /// The zone of all its memory; `None` where several zones meet in it.
    #[inline(always)]
    pub(crate) const fn zone(self) -> Option<ZoneId> {
        if self.0 & Self::MIXED == 0 { Some(ZoneId(self.0 as u16)) } else { None }
    }

    /// The zone of all its frames; `None` where several zones meet in it, or it has a hole.
    #[inline(always)]
    pub(crate) const fn uniform_zone(self) -> Option<ZoneId> {
        if self.0 & (Self::MIXED | Self::UNIFORM) == Self::UNIFORM { Some(ZoneId(self.0 as u16)) } else { None }
    }

    /// The node of its memory; of the memory found first where several meet.
    pub(crate) fn node(self) -> Option<NodeId> {
        self.is_present().then(|| ZoneId(self.0 as u16).node())
    }

    /// This section once memory of that zone is added.
    pub(crate) const fn with(self, zone: ZoneId) -> Self {
        if !self.is_present() {
            Self::of_zone(zone)
        } else if self.0 as u16 == zone.0 {
            self
        } else {
            Self(self.0 | Self::MIXED)
        }
    }

    /// This section once the memory that was added last covers all of it.
    pub(crate) const fn covered(self) -> Self {
        Self(self.0 | Self::UNIFORM)
    }
}

/// The sections of the map, by place. Written when the yard is created.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SectionTable<'a> {
    entries: &'a [AtomicU32],
    shift: u8,
}

impl<'a> SectionTable<'a> {
    pub(crate) fn new(entries: &'a [AtomicU32], geometry: Geometry) -> Self {
        Self { entries, shift: geometry.section_pages_shift() }
    }

    /// The section that a place lies in.
    #[inline(always)]
    pub(crate) fn at(&self, place: usize) -> SectionEntry {
        let entry = self.entries.get(place >> self.shift);
        entry.map_or(SectionEntry::ABSENT, |entry| SectionEntry::from_bits(entry.load(Ordering::Relaxed)))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::units::{NodeId, ZoneKind};

    #[test]
    fn a_section_is_uniform_if_one_zone_has_all_of_its_frames() {
        let [normal, movable] = [ZoneKind::Normal, ZoneKind::Movable].map(|kind| ZoneId::new(NodeId(1), kind));
        let part = SectionEntry::ABSENT.with(normal);
        assert_eq!((part.zone(), part.uniform_zone()), (Some(normal), None), "it has a hole");
        let whole = part.covered();
        assert_eq!((whole.zone(), whole.uniform_zone()), (Some(normal), Some(normal)));
        let mixed = part.with(movable);
        assert_eq!((mixed.zone(), mixed.uniform_zone()), (None, None));
        assert_eq!(
            whole.with(movable).uniform_zone(),
            None,
            "an entry that another process may have written is not trusted"
        );
        assert_eq!(SectionEntry::ABSENT.uniform_zone(), None);
    }
}
