//! The boost: watermarks rise for a while when pageblocks come to hold frames of several types.
//!
//! A request that takes part of another type's pageblock does so because too little memory is free. So the background
//! reclaimer should keep more memory free for a while, and the background compactor should make whole blocks of it (the
//! kernel's `boost_watermark`, `kswapd` and `kcompactd`).
//!
//! The boost raises the levels of the background reclaimer, and the low watermark, below which requests search other
//! zones first. It never raises the minimum, so no request fails because of it. Without a reclaimer there is no boost,
//! because nothing would end it.

use crate::platform::Platform;
use crate::sync::Ordering;
use crate::units::PageCount;
use crate::zone::state::Zone;
use crate::zone::view::LockedZone;
use crate::zone::watermark::WatermarkLevel;

/// A zone with fewer pageblocks is never boosted.
const LEAST_PAGEBLOCKS: u64 = 4;

/// The boost after one more pageblock came to hold frames of several types.
fn boosted(boost: PageCount, high: PageCount, factor: u32, pageblock: PageCount) -> PageCount {
    let most = u128::from(high.0) * u128::from(factor) / 10_000;
    match u64::try_from(most).unwrap_or(u64::MAX) {
        0 => boost,
        most => PageCount(boost.0.saturating_add(pageblock.0).min(most.max(pageblock.0))),
    }
}

impl Zone {
    /// Records that the zone has a background reclaimer.
    pub(crate) fn is_reclaimed_from_now_on(&self) {
        if self.facts.is_reclaimed.load(Ordering::Relaxed) == 0 {
            self.facts.is_reclaimed.store(1, Ordering::Relaxed);
        }
    }

    fn is_reclaimed(&self) -> bool {
        self.facts.is_reclaimed.load(Ordering::Relaxed) != 0
    }
}

impl<P: Platform> LockedZone<'_, P> {
    /// Lifts the watermarks by a pageblock, up to a part of the high one and by one pageblock at least
    /// (`boost_watermark`). Zones of fewer than four pageblocks are never boosted.
    pub(crate) fn boost_watermarks(&mut self) {
        let (zone, pageblock) = (self.zone, self.blocks.pages());
        if !zone.is_reclaimed() || zone.managed().0 < LEAST_PAGEBLOCKS * pageblock.0 {
            return;
        }
        let factor = zone.facts.boost_factor.load(Ordering::Relaxed);
        let raised = boosted(zone.boost(), zone.watermark(WatermarkLevel::High), factor, pageblock);
        zone.facts.boost.store(raised.0, Ordering::Relaxed);
    }

    /// Lowers the watermarks again, by at most `amount`.
    pub(crate) fn take_boost_back(&mut self, amount: PageCount) {
        let left = self.zone.boost().0.saturating_sub(amount.0);
        self.zone.facts.boost.store(left, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const PAGEBLOCK: PageCount = PageCount(512);

    fn of(boost: u64, high: u64, factor: u32) -> u64 {
        boosted(PageCount(boost), PageCount(high), factor, PAGEBLOCK).0
    }

    #[test]
    fn a_boost_grows_by_a_pageblock_up_to_its_part_of_the_high_watermark() {
        assert_eq!(of(0, 2000, 15_000), 512);
        assert_eq!(of(512, 2000, 15_000), 1024);
        assert_eq!(of(2560, 2000, 15_000), 3000);
        assert_eq!(of(3000, 2000, 15_000), 3000);
    }

    #[test]
    fn a_boost_is_at_least_a_pageblock() {
        assert_eq!(of(0, 100, 15_000), 512);
        assert_eq!(of(512, 100, 15_000), 512);
    }

    #[test]
    fn there_is_no_boost_without_a_factor_or_a_watermark() {
        assert_eq!(of(0, 2000, 0), 0);
        assert_eq!(of(0, 0, 15_000), 0);
    }

    #[test]
    fn extreme_watermarks_saturate() {
        assert_eq!(of(u64::MAX - 1024, u64::MAX, u32::MAX), u64::MAX - 512);
    }
}
