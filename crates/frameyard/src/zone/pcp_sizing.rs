//! The kernel's formulas, old and new, for how many frames a per-CPU list may have (`high`) and how many move between
//! it and the zone at once (`batch`).

use core::fmt;
use core::str::FromStr;

use crate::units::{ByteSize, Geometry, PageCount};

/// The two sizes of a per-CPU list.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PcpSizes {
    /// A list with more frames than this gives a batch back to the zone. With 0, lists keep nothing.
    pub high: PageCount,
    /// The number of frames that one refill or drain moves; at least 1.
    pub batch: PageCount,
}

impl PcpSizes {
    /// The sizes before anything is known about the zone: frames move one at a time, and none stays on a list.
    ///
    /// The kernel's `BOOT_PAGESET_HIGH` and `BOOT_PAGESET_BATCH`.
    pub const BOOT: Self = Self { high: PageCount(0), batch: PageCount(1) };
}

impl Default for PcpSizes {
    fn default() -> Self {
        Self::BOOT
    }
}

/// The facts about a zone that the sizes of its per-CPU lists depend on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PcpZone {
    /// Pages that the allocator manages.
    pub managed: PageCount,
    /// The low watermark, without a boost.
    pub low: PageCount,
    /// Online CPUs of the zone's node; 0 for a node that has only memory.
    pub local_cpus: u32,
    /// Online CPUs of the whole machine.
    pub online_cpus: u32,
}

/// The divisor that gives the part of a zone that all per-CPU lists together may hold: 8 or more.
///
/// The bound is the kernel's `MIN_PERCPU_PAGELIST_HIGH_FRACTION`: no more than an eighth of a zone may
/// sit on per-CPU lists.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HighFraction(u32);

impl HighFraction {
    /// The largest part: one eighth.
    pub const LARGEST_SHARE: Self = Self(8);

    /// The fraction 1/`divisor`.
    ///
    /// # Errors
    ///
    /// [`PcpSizingError::FractionTooSmall`] if `divisor` is below 8.
    pub const fn new(divisor: u32) -> Result<Self, PcpSizingError> {
        if divisor < Self::LARGEST_SHARE.0 {
            return Err(PcpSizingError::FractionTooSmall(divisor));
        }
        Ok(Self(divisor))
    }

    /// The divisor.
    #[must_use]
    pub const fn divisor(self) -> u32 {
        self.0
    }
}

/// The formula for `high` and `batch`. As text: `scaled`, `classic`, `early`, `fraction:N` or `fixed:N`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub enum PcpSizing {
    /// Kernels from 5.14 on: `high` is the low watermark divided among the CPUs of the node (all CPUs if it has none),
    /// and at least 4 batches (`zone_batchsize`, `zone_highsize`).
    #[default]
    Scaled,
    /// Kernels up to 5.13: `high` is six times the raw batch, so it is 0 in a zone so small that its raw batch is 0
    /// (`zone_batchsize`, `pageset_set_batch`).
    Classic,
    /// Kernels up to 4.18: as [`Classic`](Self::Classic), but the largest batch is half as large, 31 frames of 4 KiB
    /// (the `zone_batchsize` of that time).
    Early,
    /// `high` is a fraction of the zone, divided among the CPUs as in [`Scaled`](Self::Scaled), and at least 4 batches
    /// (`percpu_pagelist_high_fraction`).
    Fraction(HighFraction),
    /// `high` is this many frames on every CPU, whatever the zone. `batch` is a quarter of it, at least 1 and at most 8
    /// times the page shift (96 with pages of 4 KiB). With 0, nothing stays on the lists. This is `pageset_set_high` of
    /// kernels up to 5.13.
    Fixed(u32),
}

impl PcpSizing {
    /// Computes the sizes of the per-CPU lists of a zone. Neither exceeds 2³¹ − 1, the largest `int` of the kernel.
    #[must_use]
    pub fn sizes(self, geometry: Geometry, zone: PcpZone) -> PcpSizes {
        let largest = if self == Self::Early { ByteSize::kib(512) } else { ByteSize::mib(1) };
        let raw = raw_batch(geometry, zone.managed, largest);
        let batch = raw.max(1);
        let (high, batch) = match self {
            Self::Scaled => (share(zone.low.0, zone).max(4 * batch), batch),
            Self::Classic | Self::Early => (6 * raw, batch),
            Self::Fraction(fraction) => {
                (share(zone.managed.0 / u64::from(fraction.divisor()), zone).max(4 * batch), batch)
            }
            Self::Fixed(high) => {
                let high = u64::from(high);
                (high, (high / 4).clamp(1, u64::from(geometry.page_shift()) * 8))
            }
        };
        PcpSizes { high: PageCount(high.min(i32::MAX as u64)), batch: PageCount(batch) }
    }
}

/// What each of the zone's CPUs gets of `total` pages.
fn share(total: u64, zone: PcpZone) -> u64 {
    let cpus = if zone.local_cpus == 0 { zone.online_cpus } else { zone.local_cpus };
    total / u64::from(cpus.max(1))
}

/// A quarter of about 0.1 % of the zone, or of `largest` if that is less, to the next power of two, less 1.
///
/// After the kernel's `zone_batchsize`; 0 for zones below 8192 pages. The subtracted 1 keeps batches out of
/// step with caches, which favour powers of two.
fn raw_batch(geometry: Geometry, managed: PageCount, largest: ByteSize) -> u64 {
    let quarter = ((managed.0 / 1024).min(geometry.pages_in(largest).0) / 4).max(1);
    let grown = quarter + quarter / 2;
    (1 << grown.ilog2()) - 1
}

/// Why a text is not a valid sizing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum PcpSizingError {
    /// Not one of the five names, or a number after a name that takes none.
    Unknown,
    /// `fraction:` or `fixed:` is not followed by a number that fits in 32 bits.
    NotANumber,
    /// The divisor of a fraction is below 8.
    FractionTooSmall(u32),
}

impl fmt::Display for PcpSizingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => {
                f.write_str("unknown per-CPU list sizing: write scaled, classic, early, fraction:N or fixed:N")
            }
            Self::NotANumber => {
                f.write_str("the N of fraction:N and fixed:N must be a whole number of at most 4294967295")
            }
            Self::FractionTooSmall(divisor) => {
                write!(f, "fraction:{divisor} would put too much of a zone on per-CPU lists: write fraction:8 or more")
            }
        }
    }
}

impl core::error::Error for PcpSizingError {}

impl FromStr for PcpSizing {
    type Err = PcpSizingError;

    fn from_str(text: &str) -> Result<Self, PcpSizingError> {
        let number = |digits: &str| match digits.bytes().all(|byte| byte.is_ascii_digit()) {
            true => digits.parse().map_err(|_| PcpSizingError::NotANumber),
            false => Err(PcpSizingError::NotANumber),
        };
        match text.split_once(':') {
            None if text == "scaled" => Ok(Self::Scaled),
            None if text == "classic" => Ok(Self::Classic),
            None if text == "early" => Ok(Self::Early),
            Some(("fraction", digits)) => HighFraction::new(number(digits)?).map(Self::Fraction),
            Some(("fixed", digits)) => number(digits).map(Self::Fixed),
            None if text == "fraction" || text == "fixed" => Err(PcpSizingError::NotANumber),
            _ => Err(PcpSizingError::Unknown),
        }
    }
}

impl fmt::Display for PcpSizing {
    /// The form that parses to the same sizing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scaled => f.pad("scaled"),
            Self::Classic => f.pad("classic"),
            Self::Early => f.pad("early"),
            Self::Fraction(fraction) => write!(f, "fraction:{}", fraction.divisor()),
            Self::Fixed(high) => write!(f, "fixed:{high}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Order;

    fn zone(managed: u64, low: u64) -> PcpZone {
        PcpZone { managed: PageCount(managed), low: PageCount(low), local_cpus: 4, online_cpus: 8 }
    }

    fn sizes(sizing: PcpSizing, zone: PcpZone) -> (u64, u64) {
        let sizes = sizing.sizes(Geometry::X86_64, zone);
        (sizes.high.0, sizes.batch.0)
    }

    /// The pairs of high and batch that `pcp-epyc2-256cpu.csv` names: 378 and 63, 42 and 7, 0 and 1.
    #[test]
    fn classic_sizes_are_the_published_ones() {
        assert_eq!(sizes(PcpSizing::Classic, zone(1 << 25, 0)), (378, 63));
        assert_eq!(sizes(PcpSizing::Classic, zone(36 << 10, 0)), (42, 7));
        assert_eq!(sizes(PcpSizing::Classic, zone(3840, 0)), (0, 1));
    }

    #[test]
    fn raw_batches_are_a_power_of_two_less_one_and_stop_at_63() {
        let raw = |managed| raw_batch(Geometry::X86_64, PageCount(managed), ByteSize::mib(1));
        assert_eq!([raw(0), raw(8191), raw(8192), raw(12 << 10), raw(1 << 17)], [0, 0, 1, 3, 31]);
        assert_eq!([raw((1 << 18) - 1), raw(1 << 18), raw(u64::MAX)], [63, 63, 63]);
    }

    #[test]
    fn early_batches_stop_at_31() {
        assert_eq!(sizes(PcpSizing::Early, zone(1 << 25, 0)), (186, 31));
        assert_eq!(sizes(PcpSizing::Early, zone(36 << 10, 0)), (42, 7));
    }

    #[test]
    fn large_pages_make_small_batches() {
        let geometry = Geometry::new(ByteSize::kib(64), ByteSize::mib(512), Order(9), Order(10)).unwrap();
        let sizes = PcpSizing::Classic.sizes(geometry, zone(1 << 25, 0));
        assert_eq!(sizes, PcpSizes { high: PageCount(18), batch: PageCount(3) });
    }

    #[test]
    fn scaled_high_is_the_low_watermark_shared_by_the_local_cpus() {
        assert_eq!(sizes(PcpSizing::Scaled, zone(1 << 20, 15_898)), (3974, 63));
        let memory_only = PcpZone { local_cpus: 0, ..zone(1 << 20, 15_898) };
        assert_eq!(sizes(PcpSizing::Scaled, memory_only), (1987, 63));
    }

    #[test]
    fn scaled_and_fraction_highs_hold_at_least_four_batches() {
        assert_eq!(sizes(PcpSizing::Scaled, zone(1 << 20, 100)), (252, 63));
        assert_eq!(sizes(PcpSizing::Scaled, zone(100, 0)), (4, 1));
        let thousandth = PcpSizing::Fraction(HighFraction::new(10_000).unwrap());
        assert_eq!(sizes(thousandth, zone(1 << 19, 0)), (252, 63));
    }

    #[test]
    fn a_fraction_of_the_zone_is_shared_by_the_local_cpus() {
        assert_eq!(sizes(PcpSizing::Fraction(HighFraction::LARGEST_SHARE), zone(1 << 20, 0)), (1 << 15, 63));
    }

    #[test]
    fn a_fixed_high_has_a_quarter_as_batch_within_bounds() {
        assert_eq!(sizes(PcpSizing::Fixed(100), zone(1 << 20, 0)), (100, 25));
        assert_eq!(sizes(PcpSizing::Fixed(3), zone(1 << 20, 0)), (3, 1));
        assert_eq!(sizes(PcpSizing::Fixed(0), zone(1 << 20, 0)), (0, 1));
        assert_eq!(sizes(PcpSizing::Fixed(u32::MAX), zone(1 << 20, 0)), (i32::MAX as u64, 96));
    }

    #[test]
    fn a_zone_without_any_cpu_is_not_divided() {
        let without_cpus = PcpZone { local_cpus: 0, online_cpus: 0, ..zone(1 << 20, 5000) };
        assert_eq!(sizes(PcpSizing::Scaled, without_cpus), (5000, 63));
    }

    #[test]
    fn sizings_print_what_they_parse_from() {
        for text in ["scaled", "classic", "early", "fraction:8", "fraction:4294967295", "fixed:0", "fixed:378"] {
            let sizing: PcpSizing = text.parse().unwrap();
            assert_eq!(std::format!("{sizing}"), text);
        }
    }

    #[test]
    fn each_kind_of_wrong_text_is_told_apart() {
        let wrong = |text: &str| text.parse::<PcpSizing>().unwrap_err();
        for text in ["", "Scaled", "scaled:4", "classic:", "fractions:9", ":8"] {
            assert_eq!(wrong(text), PcpSizingError::Unknown, "{text}");
        }
        for text in ["fixed", "fixed:", "fixed:-1", "fixed:+1", "fraction", "fraction:1.5", "fixed:4294967296"] {
            assert_eq!(wrong(text), PcpSizingError::NotANumber, "{text}");
        }
        assert_eq!(wrong("fraction:7"), PcpSizingError::FractionTooSmall(7));
        assert_eq!(wrong("fraction:0"), PcpSizingError::FractionTooSmall(0));
    }
}
