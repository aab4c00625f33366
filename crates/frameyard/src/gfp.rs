//! What an allocation asks for and may do: [`Gfp`], modelled on the kernel's `gfp_t`.

use core::fmt;
use core::ops::{BitOr, BitOrAssign};

use crate::units::{MigrateType, ZoneKind};

/// Allocation flags: which zones may serve the request, whether the frames can be moved, what the allocator may do to
/// find them, and how they are prepared.
///
/// Flags are combined with `|`, as in `Gfp::KERNEL | Gfp::ZERO`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Gfp(u32);

impl Gfp {
    /// No flags: unmovable frames of the Normal zone or below, without waiting and without the reserves.
    pub const NOWAIT: Self = Self(0);
    /// From the DMA zone (`__GFP_DMA`). Wins over the other zone modifiers.
    pub const DMA: Self = Self(1 << 0);
    /// From any zone, but from the Movable zone only together with [`MOVABLE`](Self::MOVABLE) (`__GFP_HIGHMEM`).
    pub const HIGHMEM: Self = Self(1 << 1);
    /// From the DMA32 zone or below (`__GFP_DMA32`).
    pub const DMA32: Self = Self(1 << 2);
    /// The frames can be moved (`__GFP_MOVABLE`).
    pub const MOVABLE: Self = Self(1 << 3);
    /// The frames can be reclaimed: their contents can be dropped (`__GFP_RECLAIMABLE`). Combining this with `MOVABLE`
    /// is an error.
    pub const RECLAIMABLE: Self = Self(1 << 4);
    /// May dip into the reserves (`__GFP_HIGH`): half of the `min` watermark.
    pub const HIGH: Self = Self(1 << 5);
    /// The request may wait (`__GFP_DIRECT_RECLAIM`): for other CPUs' lists, for memory that another CPU initialises,
    /// and for owners and a reclaimer that the request names. Without this flag, a request that finds no free block
    /// fails without draining other CPUs' lists. [`alloc`](crate::alloc#waiting) lists the bounds.
    pub const DIRECT_RECLAIM: Self = Self(1 << 6);
    /// Fail rather than try hard (`__GFP_NORETRY`).
    pub const NORETRY: Self = Self(1 << 7);
    /// Zero the frames' bytes (`__GFP_ZERO`).
    pub const ZERO: Self = Self(1 << 8);
    /// The block is used as one compound page (`__GFP_COMP`).
    pub const COMP: Self = Self(1 << 9);
    /// From the preferred node only (`__GFP_THISNODE`).
    pub const THISNODE: Self = Self(1 << 10);
    /// The caller expects failures, so they are not counted as allocation failures (`__GFP_NOWARN`).
    pub const NOWARN: Self = Self(1 << 11);
    /// Fail rather than take part of another type's pageblock (the kernel's `ALLOC_NOFRAGMENT`). The request may still
    /// take whole free pageblocks, and frames that are on the caller's per-CPU lists already. Movable requests ignore
    /// the flag while the zone is above its low watermark. A request with [owners](crate::AllocRequest::owners) sets it
    /// for its first attempts, unless it must not wait.
    pub const NOFRAGMENT: Self = Self(1 << 12);

    /// Ordinary kernel memory.
    pub const KERNEL: Self = Self::DIRECT_RECLAIM;
    /// Kernel memory for callers that must not wait, with access to the reserves.
    pub const ATOMIC: Self = Self::HIGH;
    /// Memory for user pages that can be moved.
    pub const HIGHUSER_MOVABLE: Self = Self(Self::DIRECT_RECLAIM.0 | Self::HIGHMEM.0 | Self::MOVABLE.0);

    /// Each flag with its name, for printing and parsing.
    pub const NAMES: [(&'static str, Self); 13] = [
        ("DMA", Self::DMA),
        ("HIGHMEM", Self::HIGHMEM),
        ("DMA32", Self::DMA32),
        ("MOVABLE", Self::MOVABLE),
        ("RECLAIMABLE", Self::RECLAIMABLE),
        ("HIGH", Self::HIGH),
        ("DIRECT_RECLAIM", Self::DIRECT_RECLAIM),
        ("NORETRY", Self::NORETRY),
        ("ZERO", Self::ZERO),
        ("COMP", Self::COMP),
        ("THISNODE", Self::THISNODE),
        ("NOWARN", Self::NOWARN),
        ("NOFRAGMENT", Self::NOFRAGMENT),
    ];

    /// The kernel's names of common combinations, the largest first, for printing.
    const GROUPS: [(&'static str, Self); 2] =
        [("GFP_HIGHUSER_MOVABLE", Self::HIGHUSER_MOVABLE), ("GFP_KERNEL", Self::KERNEL)];

    /// The bits.
    #[must_use]
    #[inline(always)]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The flags with these bits; unknown bits are dropped.
    #[must_use]
    #[inline(always)]
    pub const fn from_bits_truncate(bits: u32) -> Self {
        Self(bits & 0x1fff)
    }

    /// Whether all flags of `other` are set.
    #[inline(always)]
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any flag of `other` is set.
    #[inline(always)]
    #[must_use]
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// The flags of both: `|`, usable in constants.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These flags without those of `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// The highest zone that may serve the request (the kernel's `gfp_zone`).
    #[inline(always)]
    #[must_use]
    pub const fn highest_zone(self) -> ZoneKind {
        ZoneKind::ALL[self.highest_zone_number()]
    }

    /// The number of [`highest_zone`](Self::highest_zone), without a look at a table in memory.
    #[inline(always)]
    pub(crate) const fn highest_zone_number(self) -> usize {
        // Two bits for each combination of DMA, HIGHMEM, DMA32 and MOVABLE: the lowest zone asked for wins.
        const TABLE: u32 = {
            let mut table = 0;
            let mut bits = 0;
            while bits < 16 {
                let kind = if bits & Gfp::DMA.0 != 0 {
                    ZoneKind::Dma
                } else if bits & Gfp::DMA32.0 != 0 {
                    ZoneKind::Dma32
                } else if bits & Gfp::HIGHMEM.0 != 0 && bits & Gfp::MOVABLE.0 != 0 {
                    ZoneKind::Movable
                } else {
                    ZoneKind::Normal
                };
                table |= (kind as u32) << (2 * bits);
                bits += 1;
            }
            table
        };
        (TABLE >> (2 * (self.0 & 15)) & 3) as usize
    }

    /// The migration type that the request asks for (the kernel's `gfp_migratetype`); `None` for `MOVABLE` with
    /// `RECLAIMABLE`.
    #[inline(always)]
    #[must_use]
    pub const fn migrate_type(self) -> Option<MigrateType> {
        match (self.0 >> 3 & 3) as u8 {
            3 => None,
            bits => MigrateType::from_bits(bits),
        }
    }
}

impl BitOr for Gfp {
    type Output = Self;
    #[inline(always)]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitOrAssign for Gfp {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl fmt::Debug for Gfp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("NOWAIT");
        }
        let mut rest = *self;
        let mut first = true;
        for (name, flags) in Self::GROUPS {
            if first && self.contains(flags) {
                f.write_str(name)?;
                (rest, first) = (rest.without(flags), false);
            }
        }
        for (name, flag) in Self::NAMES {
            if rest.contains(flag) {
                write!(f, "{}{name}", if first { "" } else { "|" })?;
                first = false;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Gfp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zone_modifiers_choose_the_highest_zone() {
        assert_eq!(Gfp::KERNEL.highest_zone(), ZoneKind::Normal);
        assert_eq!((Gfp::KERNEL | Gfp::DMA).highest_zone(), ZoneKind::Dma);
        assert_eq!((Gfp::KERNEL | Gfp::DMA32).highest_zone(), ZoneKind::Dma32);
        assert_eq!(Gfp::HIGHUSER_MOVABLE.highest_zone(), ZoneKind::Movable);
        assert_eq!((Gfp::KERNEL | Gfp::MOVABLE).highest_zone(), ZoneKind::Normal);
        assert_eq!((Gfp::HIGHUSER_MOVABLE | Gfp::DMA32).highest_zone(), ZoneKind::Dma32);
    }

    #[test]
    fn mobility_flags_choose_the_type() {
        assert_eq!(Gfp::KERNEL.migrate_type(), Some(MigrateType::Unmovable));
        assert_eq!(Gfp::HIGHUSER_MOVABLE.migrate_type(), Some(MigrateType::Movable));
        assert_eq!((Gfp::KERNEL | Gfp::RECLAIMABLE).migrate_type(), Some(MigrateType::Reclaimable));
        assert_eq!((Gfp::MOVABLE | Gfp::RECLAIMABLE).migrate_type(), None);
    }

    #[test]
    fn flags_print_by_name() {
        assert_eq!(std::format!("{}", Gfp::KERNEL | Gfp::ZERO), "GFP_KERNEL|ZERO");
        assert_eq!(std::format!("{}", Gfp::NOWAIT), "NOWAIT");
    }
}
