//! The formulas for watermarks, lowmem reserves and the statistics threshold. They are pure functions over one record
//! per zone.
//!
//! All functions work on a slice of [`ZoneSizing`] records of all zones of all nodes, and start from the managed pages.
//! [`size_zones`] does what the kernel does at boot, in the same order. The single steps are public for callers that
//! change one value later. Nothing allocates or locks, and each function reads each zone a constant number of times.

use core::fmt;

use crate::units::{ByteSize, Geometry, MigrateType, PageCount, ZoneId, ZoneKind};

/// One of the four watermarks: levels of free pages that decide what an allocation may do.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum WatermarkLevel {
    /// Below it, only allocations with access to the reserves succeed.
    Min,
    /// Below it, background reclaim is woken.
    Low,
    /// When it is reached, background reclaim goes back to sleep.
    High,
    /// On nodes that pages are promoted to, reclaim continues up to it.
    Promo,
}

/// The watermarks of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Watermarks {
    /// [`WatermarkLevel::Min`], without the boost.
    pub min: PageCount,
    /// [`WatermarkLevel::Low`], without the boost.
    pub low: PageCount,
    /// [`WatermarkLevel::High`], without the boost.
    pub high: PageCount,
    /// [`WatermarkLevel::Promo`], without the boost.
    pub promo: PageCount,
    /// What is added to each level for a while after pageblocks came to hold frames of several types.
    pub boost: PageCount,
}

impl Watermarks {
    /// The level in force, boost included.
    ///
    /// The kernel's `wmark_pages` (and `min_wmark_pages` and so on).
    #[inline]
    #[must_use]
    pub const fn level(&self, level: WatermarkLevel) -> PageCount {
        let base = match level {
            WatermarkLevel::Min => self.min,
            WatermarkLevel::Low => self.low,
            WatermarkLevel::High => self.high,
            WatermarkLevel::Promo => self.promo,
        };
        PageCount(base.0.saturating_add(self.boost.0))
    }
}

/// The input of the formulas for one zone, and their results.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ZoneSizing {
    /// The zone.
    pub id: ZoneId,
    /// In: pages that exist, managed or not. A zone without any is unpopulated.
    pub present: PageCount,
    /// In: pages that the allocator manages.
    pub managed: PageCount,
    /// Out: the watermarks.
    pub watermarks: Watermarks,
    /// Out: by [`ZoneKind`], the number of pages of this zone that are kept from allocations that could use the zone of
    /// that kind.
    pub protection: [PageCount; ZoneKind::COUNT],
}

impl ZoneSizing {
    /// A zone before any sizing: watermarks and reserves are 0.
    #[must_use]
    pub const fn new(id: ZoneId, present: PageCount, managed: PageCount) -> Self {
        const NONE: PageCount = PageCount(0);
        let watermarks = Watermarks { min: NONE, low: NONE, high: NONE, promo: NONE, boost: NONE };
        Self { id, present, managed, watermarks, protection: [NONE; ZoneKind::COUNT] }
    }

    /// Whether an ordinary allocation may come from this zone (the kernel's `gfp_zone(GFP_USER)`).
    const fn is_lowmem(&self) -> bool {
        matches!(self.id.kind(), ZoneKind::Dma | ZoneKind::Dma32 | ZoneKind::Normal)
    }
}

/// Whether the huge-page daemon raises the minimum of free memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum HugePageMinimum {
    /// The daemon is off: the minimum is what the kernel computes from the size of memory.
    #[default]
    KernelDefault,
    /// The daemon runs: it raises the minimum so that pageblocks of different types need not mix.
    Recommended,
}

/// How a zone of kind Movable gets its minimum.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum MovableMinimum {
    /// Like high memory: managed pages / 1024, but at least 32 and at most 128, and not part of the shared minimum. So
    /// even an empty Movable zone has watermarks of 32. Kernel 6.12 does this.
    #[default]
    Clamped,
    /// A share of the minimum in proportion to its size, as for every other zone. Kernel 6.1 does this.
    Proportional,
}

/// The settings of watermarks and reserves, named after the kernel's files under `/proc/sys/vm`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WatermarkOptions {
    /// The minimum of free memory in KiB, over all zones; `None` computes it from the size of memory.
    ///
    /// It is used as given, as with a write to the kernel's file: a value near the size of memory leaves nothing to
    /// allocate. [`HugePageMinimum::Recommended`] may still raise it.
    pub min_free_kbytes: Option<u64>,
    /// Whether the huge-page daemon raises the minimum.
    pub huge_page_minimum: HugePageMinimum,
    /// The smallest distance between two watermarks, in 1/10000 of the zone: 1 to 3000.
    pub watermark_scale_factor: u32,
    /// By [`ZoneKind`]: a zone of this kind keeps one page back for every so many pages of the zones above it on its
    /// node. 0 keeps none back.
    pub lowmem_reserve_ratio: [u32; ZoneKind::COUNT],
    /// How the Movable zone gets its minimum.
    pub movable_minimum: MovableMinimum,
    /// How far the watermarks of a zone may rise for a while when its pageblocks come to hold frames of several types,
    /// in 1/10000 of the high watermark. With 0 they do not rise. They rise only if there is a background reclaimer.
    pub watermark_boost_factor: u32,
}

impl Default for WatermarkOptions {
    fn default() -> Self {
        Self {
            min_free_kbytes: None,
            huge_page_minimum: HugePageMinimum::default(),
            watermark_scale_factor: 10,
            lowmem_reserve_ratio: [256, 256, 32, 0, 0],
            movable_minimum: MovableMinimum::default(),
            watermark_boost_factor: 15_000,
        }
    }
}

impl WatermarkOptions {
    /// Checks that the values are in range.
    ///
    /// # Errors
    ///
    /// [`WatermarkOptionsError`] names the value that is out of range.
    pub const fn check(&self) -> Result<(), WatermarkOptionsError> {
        match self.watermark_scale_factor {
            1..=3000 => Ok(()),
            factor => Err(WatermarkOptionsError::ScaleFactor(factor)),
        }
    }
}

/// Which setting is out of range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum WatermarkOptionsError {
    /// [`WatermarkOptions::watermark_scale_factor`].
    ScaleFactor(u32),
}

impl fmt::Display for WatermarkOptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ScaleFactor(factor) => {
                write!(f, "watermark scale factor {factor}: must be 1 to 3000, in 1/10000 of a zone")
            }
        }
    }
}

impl core::error::Error for WatermarkOptionsError {}

/// The managed pages above the high watermark, summed over all zones that an ordinary allocation may use.
///
/// The kernel's `nr_free_buffer_pages`. A zone whose high watermark is not set yet counts in full.
#[must_use]
pub fn free_buffer_pages(zones: &[ZoneSizing]) -> PageCount {
    free_above_high(zones.iter().copied())
}

fn free_above_high(zones: impl Iterator<Item = ZoneSizing>) -> PageCount {
    let lowmem = zones.filter(ZoneSizing::is_lowmem);
    let above = |zone: ZoneSizing| zone.managed.0.saturating_sub(zone.watermarks.level(WatermarkLevel::High).0);
    PageCount(lowmem.map(above).fold(0, u64::saturating_add))
}

/// The minimum of free memory, in KiB, computed from the size of memory. It grows with the square root, and is between
/// 128 KiB and 256 MiB.
///
/// The kernel's `calculate_min_free_kbytes`, which `init_per_zone_wmark_min` calls. Depends on the high watermarks that
/// are currently set, as [`free_buffer_pages`] does.
#[must_use]
pub fn default_min_free_kbytes(geometry: Geometry, zones: &[ZoneSizing]) -> u64 {
    default_minimum(geometry, free_buffer_pages(zones))
}

fn default_minimum(geometry: Geometry, buffer: PageCount) -> u64 {
    let lowmem_kbytes = kbytes(geometry, buffer);
    lowmem_kbytes.saturating_mul(16).isqrt().clamp(128, 262_144)
}

/// The minimum of free memory, in KiB, that the huge-page daemon recommends.
///
/// Two pageblocks for each populated zone that ordinary allocations use, and one more for each pair of a type that
/// falls back and a type it falls back to; at most 5 % of [`free_buffer_pages`]. The kernel's
/// `set_recommended_min_free_kbytes`, which never lowers the minimum: use the larger of this value and the minimum in
/// force.
#[must_use]
pub fn recommended_min_free_kbytes(geometry: Geometry, zones: &[ZoneSizing]) -> u64 {
    recommended_minimum(geometry, || zones.iter().copied())
}

fn recommended_minimum<Zones: Iterator<Item = ZoneSizing>>(geometry: Geometry, zones: impl Fn() -> Zones) -> u64 {
    const BLOCKS_PER_ZONE: u64 = 2 + (MigrateType::PER_CPU * MigrateType::PER_CPU) as u64;
    let populated = zones().filter(|zone| zone.is_lowmem() && zone.present.0 > 0).count() as u64;
    let pages = populated * BLOCKS_PER_ZONE * geometry.pageblock_order().pages().0;
    kbytes(geometry, PageCount(pages.min(free_above_high(zones()).0 / 20)))
}

/// What the watermarks of each zone follow from, beside the zone itself. For machines whose zones are not one slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedMinimum {
    options: WatermarkOptions,
    /// The minimum of free memory, in KiB.
    kbytes: u64,
    /// The minimum in pages.
    pages: u64,
    /// Managed pages of all zones that share it.
    sharing: u64,
}

impl SharedMinimum {
    /// The minimum of a machine whose zones `zones` gives, as [`size_zones`] computes it. Calls `zones` up to four times.
    pub(crate) fn of<Zones: Iterator<Item = ZoneSizing>>(
        geometry: Geometry,
        options: &WatermarkOptions,
        zones: impl Fn() -> Zones,
    ) -> Result<Self, WatermarkOptionsError> {
        options.check()?;
        let fresh = || zones().map(|zone| ZoneSizing { watermarks: Watermarks::default(), ..zone });
        let first = options.min_free_kbytes.unwrap_or_else(|| default_minimum(geometry, free_above_high(fresh())));
        let shared = Self::given(geometry, options, first, zones());
        if options.huge_page_minimum != HugePageMinimum::Recommended {
            return Ok(shared);
        }
        let marked = || zones().map(|zone| ZoneSizing { watermarks: shared.watermarks(&zone), ..zone });
        let kbytes = first.max(recommended_minimum(geometry, marked));
        Ok(Self { kbytes, pages: pages_of(geometry, kbytes), ..shared })
    }

    /// A given minimum, in KiB.
    fn given(
        geometry: Geometry,
        options: &WatermarkOptions,
        kbytes: u64,
        zones: impl Iterator<Item = ZoneSizing>,
    ) -> Self {
        let sharing = zones.filter(|zone| !is_clamped(options, zone)).map(|zone| zone.managed.0);
        let sharing = sharing.fold(0, u64::saturating_add);
        Self { options: *options, kbytes, pages: pages_of(geometry, kbytes), sharing }
    }

    /// The watermarks of one of the zones.
    pub(crate) fn watermarks(&self, zone: &ZoneSizing) -> Watermarks {
        // Nothing is managed anywhere where `sharing` is 0, so each share is 0 then.
        let share = scale(zone.managed.0, self.pages, self.sharing.max(1));
        let clamped = is_clamped(&self.options, zone);
        let min = if clamped { (zone.managed.0 / 1024).clamp(32, 128) } else { share };
        // The Movable zone's step comes from the share that it would have had.
        let step = (share / 4).max(scale(zone.managed.0, self.options.watermark_scale_factor.into(), 10_000));
        let above = |steps: u64| PageCount(min.saturating_add(step.saturating_mul(steps)));
        Watermarks { min: above(0), low: above(1), high: above(2), promo: above(3), boost: PageCount(0) }
    }
}

fn is_clamped(options: &WatermarkOptions, zone: &ZoneSizing) -> bool {
    zone.id.kind() == ZoneKind::Movable && options.movable_minimum == MovableMinimum::Clamped
}

/// Sets the watermarks of all zones from the minimum of free memory, and ends all boosts.
///
/// The minimum is divided among zones in proportion to their managed pages. The levels above it are a quarter of the
/// zone's minimum apart, or `watermark_scale_factor` of the zone if that is more. The kernel's
/// `__setup_per_zone_wmarks`.
pub fn set_watermarks(geometry: Geometry, options: &WatermarkOptions, min_free_kbytes: u64, zones: &mut [ZoneSizing]) {
    let shared = SharedMinimum::given(geometry, options, min_free_kbytes, zones.iter().copied());
    for zone in zones {
        zone.watermarks = shared.watermarks(zone);
    }
}

/// Sets how much of each zone is kept back from allocations that could use a zone above it.
///
/// The reserve against a zone kind is the number of managed pages in the zones above this one, up to that kind and on
/// the same node, divided by the ratio. The kernel's `setup_per_zone_lowmem_reserve`.
pub fn set_lowmem_reserves(ratios: &[u32; ZoneKind::COUNT], zones: &mut [ZoneSizing]) {
    for index in 0..zones.len() {
        let managed = |id: ZoneId| zones.iter().find(|zone| zone.id == id).map_or(PageCount(0), |zone| zone.managed);
        let protection = lowmem_reserve(ratios, zones[index].id, managed);
        zones[index].protection = protection;
    }
}

/// The reserve of one zone, from the managed pages of the zones of its node.
pub(crate) fn lowmem_reserve(
    ratios: &[u32; ZoneKind::COUNT],
    id: ZoneId,
    managed: impl Fn(ZoneId) -> PageCount,
) -> [PageCount; ZoneKind::COUNT] {
    let ratio = u64::from(ratios[id.kind() as usize]);
    let mut protection = [PageCount(0); ZoneKind::COUNT];
    if ratio != 0 && managed(id).0 != 0 {
        let mut above = 0u64;
        for kind in ZoneKind::ALL.into_iter().filter(|kind| *kind > id.kind()) {
            above = above.saturating_add(managed(ZoneId::new(id.node(), kind)).0);
            protection[kind as usize] = PageCount(above / ratio);
        }
    }
    protection
}

/// Sets watermarks and reserves of all zones from their managed pages; returns the resulting minimum of free memory in
/// KiB.
///
/// The order is the kernel's at boot: first `init_per_zone_wmark_min`, and then the huge-page daemon, whose cap of 5 %
/// is a share of the memory above the high watermarks that were just set. The old results in the records have no
/// influence, so a second call changes nothing.
///
/// # Errors
///
/// [`WatermarkOptionsError`] if an option is out of range; nothing has changed then.
pub fn size_zones(
    geometry: Geometry,
    options: &WatermarkOptions,
    zones: &mut [ZoneSizing],
) -> Result<u64, WatermarkOptionsError> {
    let shared = SharedMinimum::of(geometry, options, || zones.iter().copied())?;
    for zone in zones.iter_mut() {
        zone.watermarks = shared.watermarks(zone);
    }
    set_lowmem_reserves(&options.lowmem_reserve_ratio, zones);
    Ok(shared.kbytes)
}

/// How far one CPU's part of a zone counter may drift before it is added to the zone's.
///
/// Grows with the logarithms of the number of CPUs and of the zone's size, up to 125. The kernel's
/// `calculate_normal_threshold`.
#[must_use]
pub fn stat_threshold(geometry: Geometry, managed: PageCount, online_cpus: u32) -> u32 {
    let chunks = geometry.size_of(managed).0 / ByteSize::mib(128).0;
    let bits = |value: u64| u64::BITS - value.leading_zeros();
    (2 * bits(online_cpus.into()) * (1 + bits(chunks))).min(125)
}

/// `value × numerator ÷ denominator`, rounded down; saturates.
fn scale(value: u64, numerator: u64, denominator: u64) -> u64 {
    let scaled = u128::from(value) * u128::from(numerator) / u128::from(denominator);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

fn pages_of(geometry: Geometry, kbytes: u64) -> u64 {
    kbytes / (geometry.page_size().0 >> 10)
}

fn kbytes(geometry: Geometry, count: PageCount) -> u64 {
    count.0.saturating_mul(geometry.page_size().0 >> 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{NodeId, Order};

    fn zone(kind: ZoneKind, managed: u64) -> ZoneSizing {
        ZoneSizing::new(ZoneId::new(NodeId(0), kind), PageCount(managed), PageCount(managed))
    }

    fn levels(zone: &ZoneSizing) -> [u64; 4] {
        let marks = zone.watermarks;
        [marks.min.0, marks.low.0, marks.high.0, marks.promo.0]
    }

    #[test]
    fn the_default_minimum_is_the_root_of_sixteen_times_memory_within_its_bounds() {
        let of = |pages| default_min_free_kbytes(Geometry::X86_64, &[zone(ZoneKind::Normal, pages)]);
        assert_eq!(of(0), 128);
        assert_eq!(of(4096), 512);
        assert_eq!(of(1 << 20), 8192);
        assert_eq!(of(1 << 40), 262_144);
        assert_eq!(of(u64::MAX), 262_144);
    }

    #[test]
    fn movable_and_device_memory_do_not_count_as_lowmem() {
        let zones = [zone(ZoneKind::Dma, 10), zone(ZoneKind::Movable, 1000), zone(ZoneKind::Device, 1000)];
        assert_eq!(free_buffer_pages(&zones), PageCount(10));
    }

    #[test]
    fn memory_below_the_high_watermark_is_no_buffer_memory() {
        let mut zones = [zone(ZoneKind::Dma32, 100), zone(ZoneKind::Normal, 1000)];
        zones[0].watermarks.high = PageCount(200);
        zones[1].watermarks.high = PageCount(300);
        zones[1].watermarks.boost = PageCount(50);
        assert_eq!(free_buffer_pages(&zones), PageCount(650));
    }

    #[test]
    fn a_small_zone_keeps_its_levels_apart_by_the_scale_factor() {
        let mut zones = [zone(ZoneKind::Normal, 1_000_000)];
        let options = WatermarkOptions { min_free_kbytes: Some(400), ..WatermarkOptions::default() };
        assert_eq!(size_zones(Geometry::X86_64, &options, &mut zones), Ok(400));
        assert_eq!(levels(&zones[0]), [100, 1100, 2100, 3100]);
    }

    #[test]
    fn a_movable_zone_is_clamped_or_takes_its_share() {
        let fresh = [zone(ZoneKind::Normal, 100_000), zone(ZoneKind::Movable, 300_000)];
        let mut options = WatermarkOptions { min_free_kbytes: Some(16_000), ..WatermarkOptions::default() };
        let mut zones = fresh;
        set_watermarks(Geometry::X86_64, &options, 16_000, &mut zones);
        assert_eq!(levels(&zones[0]), [4000, 5000, 6000, 7000]);
        assert_eq!(levels(&zones[1]), [128, 3128, 6128, 9128]);
        options.movable_minimum = MovableMinimum::Proportional;
        set_watermarks(Geometry::X86_64, &options, 16_000, &mut zones);
        assert_eq!(levels(&zones[0]), [1000, 1250, 1500, 1750]);
        assert_eq!(levels(&zones[1]), [3000, 3750, 4500, 5250]);
    }

    #[test]
    fn the_huge_page_daemon_raises_the_minimum_and_never_lowers_it() {
        let fresh = [zone(ZoneKind::Dma32, 500_000), zone(ZoneKind::Normal, 1_500_000)];
        let mut options =
            WatermarkOptions { huge_page_minimum: HugePageMinimum::Recommended, ..WatermarkOptions::default() };
        let mut zones = fresh;
        // Two zones of 2 + 3 × 3 pageblocks of 2 MiB.
        assert_eq!(size_zones(Geometry::X86_64, &options, &mut zones), Ok(2 * 11 * 2048));
        options.min_free_kbytes = Some(1 << 20);
        assert_eq!(size_zones(Geometry::X86_64, &options, &mut zones), Ok(1 << 20));
    }

    #[test]
    fn the_huge_page_daemon_takes_at_most_a_twentieth_of_lowmem() {
        let mut zones = [zone(ZoneKind::Normal, 20_000)];
        zones[0].watermarks.high = PageCount(4_000);
        assert_eq!(recommended_min_free_kbytes(Geometry::X86_64, &zones), 800 * 4);
    }

    #[test]
    fn the_minimum_is_in_pages_of_the_geometry() {
        let geometry = Geometry::new(ByteSize::kib(64), ByteSize::mib(512), Order(9), Order(10)).unwrap();
        let mut zones = [zone(ZoneKind::Normal, 1000)];
        let options = WatermarkOptions { min_free_kbytes: Some(64 * 40), ..WatermarkOptions::default() };
        assert_eq!(size_zones(geometry, &options, &mut zones), Ok(64 * 40));
        assert_eq!(levels(&zones[0]), [40, 50, 60, 70]);
    }

    #[test]
    fn sizing_again_changes_nothing() {
        let options =
            WatermarkOptions { huge_page_minimum: HugePageMinimum::Recommended, ..WatermarkOptions::default() };
        let mut zones = [zone(ZoneKind::Dma, 3840), zone(ZoneKind::Normal, 30_000), zone(ZoneKind::Movable, 0)];
        size_zones(Geometry::X86_64, &options, &mut zones).unwrap();
        let once = zones;
        size_zones(Geometry::X86_64, &options, &mut zones).unwrap();
        assert_eq!(zones, once);
    }

    #[test]
    fn reserves_count_the_zones_above_on_the_same_node_only() {
        let mut zones = [
            zone(ZoneKind::Dma, 100),
            zone(ZoneKind::Dma32, 0),
            zone(ZoneKind::Normal, 2560),
            zone(ZoneKind::Movable, 5120),
            ZoneSizing::new(ZoneId::new(NodeId(1), ZoneKind::Normal), PageCount(9999), PageCount(9999)),
        ];
        set_lowmem_reserves(&WatermarkOptions::default().lowmem_reserve_ratio, &mut zones);
        assert_eq!(zones[0].protection.map(|count| count.0), [0, 0, 10, 30, 30]);
        assert_eq!(zones[1].protection.map(|count| count.0), [0; 5]);
        assert_eq!(zones[2].protection.map(|count| count.0), [0, 0, 0, 160, 160]);
        assert_eq!(zones[3].protection.map(|count| count.0), [0; 5]);
        assert_eq!(zones[4].protection.map(|count| count.0), [0; 5]);
    }

    #[test]
    fn extreme_counts_saturate() {
        let mut zones = [zone(ZoneKind::Dma32, u64::MAX), zone(ZoneKind::Normal, u64::MAX)];
        let options = WatermarkOptions { min_free_kbytes: Some(u64::MAX), ..WatermarkOptions::default() };
        assert_eq!(size_zones(Geometry::X86_64, &options, &mut zones), Ok(u64::MAX));
        assert_eq!(zones[0].watermarks.min, PageCount(u64::MAX / 4));
    }

    #[test]
    fn a_scale_factor_out_of_range_is_refused_and_changes_nothing() {
        let mut zones = [zone(ZoneKind::Normal, 1000)];
        for factor in [0, 3001] {
            let options = WatermarkOptions { watermark_scale_factor: factor, ..WatermarkOptions::default() };
            let refused = size_zones(Geometry::X86_64, &options, &mut zones);
            assert_eq!(refused, Err(WatermarkOptionsError::ScaleFactor(factor)));
            assert_eq!(zones[0], zone(ZoneKind::Normal, 1000));
        }
    }

    #[test]
    fn a_boost_raises_every_level() {
        let marks = Watermarks { min: PageCount(1), low: PageCount(2), boost: PageCount(10), ..Watermarks::default() };
        assert_eq!(marks.level(WatermarkLevel::Min), PageCount(11));
        assert_eq!(marks.level(WatermarkLevel::Low), PageCount(12));
        assert_eq!(marks.level(WatermarkLevel::Promo), PageCount(10));
    }

    #[test]
    fn the_statistics_threshold_grows_with_cpus_and_memory_up_to_125() {
        let of = |managed, cpus| stat_threshold(Geometry::X86_64, PageCount(managed), cpus);
        assert_eq!(of(3840, 1), 2);
        assert_eq!(of(3840, 4), 6);
        assert_eq!(of(1 << 15, 4), 12);
        assert_eq!(of(1 << 28, 256), 125);
        // A frame may be larger than what the threshold grows by.
        for (size, managed) in [(ByteSize::mib(2), 1 << 9), (ByteSize::gib(1), 1)] {
            let geometry = Geometry::of_frames(size).unwrap();
            assert_eq!(stat_threshold(geometry, PageCount(managed), 4), of(1 << 18, 4), "1 GiB");
        }
    }
}
