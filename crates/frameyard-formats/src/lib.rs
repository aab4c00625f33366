// Links of the README, which come first so that they replace its own links to docs.rs.
//! [`write_buddyinfo`]: write_buddyinfo
//! [`write_pagetypeinfo`]: write_pagetypeinfo
//! [`write_zoneinfo`]: write_zoneinfo
//! [`write_vmstat`]: write_vmstat
//! [`write_metrics`]: write_metrics
//! [`write_prometheus`]: write_prometheus
//! [`ReportSource`]: ReportSource
//! [`MetricsSource`]: MetricsSource
//! [`KernelFormat`]: KernelFormat
//! [`TraceLine`]: TraceLine
//!
#![doc = include_str!("../README.md")]
#![cfg_attr(not(test), no_std)]

use core::fmt;
use core::str::FromStr;

mod buddyinfo;
mod gfp_flags;
mod items;
mod metrics;
mod pagetypeinfo;
mod snapshot;
mod trace;
mod vmstat;
mod yard_source;
mod zoneinfo;

pub use buddyinfo::write_buddyinfo;
pub use gfp_flags::GfpFlags;
pub use items::{GlobalStat, NodeStat, NumaEvent, VmEvent, ZoneStat};
pub use metrics::{
    Metric, MetricHistogram, MetricsRow, MetricsSource, RegionNumbers, Series, WholePageblocks, write_metrics,
    write_prometheus,
};
pub use pagetypeinfo::write_pagetypeinfo;
pub use snapshot::{PcpSnapshot, ReportSource, ZoneSnapshot};
pub use trace::{BadTraceLine, ExtFrag, PAGE_TRACEPOINTS, PageEvent, RawTraceLine, TraceEvent, TraceLine, TracedBlock};
pub use vmstat::write_vmstat;
pub use zoneinfo::write_zoneinfo;

/// The kernel version whose formats are written, as configured by Debian.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum KernelFormat {
    /// Linux 6.1; written `6.1`.
    V6_1,
    /// Linux 6.12; written `6.12`.
    #[default]
    V6_12,
}

impl fmt::Display for KernelFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
        })
    }
}

impl FromStr for KernelFormat {
    type Err = UnknownKernelFormat;

    fn from_str(text: &str) -> Result<Self, UnknownKernelFormat> {
        match text {
            "6.1" => Ok(Self::V6_1),
            "6.12" => Ok(Self::V6_12),
            _ => Err(UnknownKernelFormat),
        }
    }
}

/// Error of parsing a [`KernelFormat`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnknownKernelFormat;

impl fmt::Display for UnknownKernelFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown kernel format: write 6.1 or 6.12")
    }
}

impl core::error::Error for UnknownKernelFormat {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_only_what_it_prints() {
        for format in [KernelFormat::V6_1, KernelFormat::V6_12] {
            assert_eq!(std::format!("{format}").parse(), Ok(format));
        }
        for text in ["", "6", "6.2", "6.1 ", "v6.12"] {
            assert_eq!(text.parse::<KernelFormat>(), Err(UnknownKernelFormat), "{text}");
        }
    }
}
