//! A page-frame allocator for big machines: the `no_std`, heap-free core of Frameyard.
#![cfg_attr(not(test), no_std)]

mod platform;
mod report;
pub mod sync;
mod units;
mod zone;

pub use platform::{Access, Contention, LockId, Platform, WorkerPanicked};
pub use report::{
    GlobalStat, KernelFormat, NodeStat, NumaEvent, PcpSnapshot, ReportSource, UnknownKernelFormat, VmEvent,
    ZoneSnapshot, ZoneStat, write_buddyinfo, write_pagetypeinfo, write_vmstat, write_zoneinfo,
};
pub use units::{
    ByteSize, CpuId, Geometry, GeometryError, MigrateType, NodeId, ORDER_SLOTS, Order, PageCount, ParseSizeError, Pfn,
    PfnRange, PhysAddr, ZoneId, ZoneKind,
};
pub use zone::{
    HighFraction, HugePageMinimum, MovableMinimum, PcpSizes, PcpSizing, PcpSizingError, PcpZone, WatermarkLevel,
    WatermarkOptions, WatermarkOptionsError, Watermarks, ZoneSizing, default_min_free_kbytes, free_buffer_pages,
    recommended_min_free_kbytes, set_lowmem_reserves, set_watermarks, size_zones, stat_threshold,
};
