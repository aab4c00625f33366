//! Watermarks and list sizes: the thresholds that a yard derives from the sizes of its zones.
//!
//! A zone has four watermarks (min, low, high, promo). A request must leave the zone above the watermark that its
//! flags choose; below low, background reclaim starts. [`size_zones`] computes them as the kernel's
//! `setup_per_zone_wmarks` does, with `min_free_kbytes` and `lowmem_reserve_ratio` as options. [`PcpSizing`] computes
//! `batch` and `high` of the per-CPU lists (`zone_batchsize`, `zone_highsize`). The functions are pure, so a tool can
//! compute the thresholds of a machine without creating a yard.

pub use crate::zone::{
    HighFraction, HugePageMinimum, MovableMinimum, PcpSizes, PcpSizing, PcpSizingError, PcpZone, WatermarkLevel,
    WatermarkOptions, WatermarkOptionsError, Watermarks, ZoneSizing, default_min_free_kbytes, free_buffer_pages,
    recommended_min_free_kbytes, set_lowmem_reserves, set_watermarks, size_zones, stat_threshold,
};
