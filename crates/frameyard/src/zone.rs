//! Zones: how much of their memory they keep back, and how large their per-CPU lists are.

mod pcp_sizing;
mod watermark;

pub use pcp_sizing::{HighFraction, PcpSizes, PcpSizing, PcpSizingError, PcpZone};
pub use watermark::{
    HugePageMinimum, MovableMinimum, WatermarkLevel, WatermarkOptions, WatermarkOptionsError, Watermarks, ZoneSizing,
    default_min_free_kbytes, free_buffer_pages, recommended_min_free_kbytes, set_lowmem_reserves, set_watermarks,
    size_zones, stat_threshold,
};
