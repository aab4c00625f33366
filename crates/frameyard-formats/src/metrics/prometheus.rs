//! The text-based exposition format of Prometheus, version 0.0.4.

use core::fmt::{self, Write};

use super::{Metric, MetricHistogram, MetricsRow, MetricsSource};
use frameyard::policy::ZonePolicy;
use frameyard::stats::{CounterInfo, CounterKind, CounterScope};

/// Which series to write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Series {
    /// Every series, so that a scraper sees counters from 0 on.
    #[default]
    All,
    /// Only series whose value is not 0, and only families that have one. On a large machine, most series are 0.
    NonZero,
}

/// Writes all metrics in the text format of Prometheus.
///
/// | label | value |
/// |---|---|
/// | `node`, `zone` | the zone |
/// | `cpu` | the CPU, or `direct` for transfers that bypassed the per-CPU lists; absent for values counted per zone |
/// | `policy` | the current policy; counters continue when it changes |
/// | `type` | the migration type, for metrics that have one |
///
/// Times are in seconds. Empty histograms are left out, since locks are timed only on request.
///
/// # Errors
///
/// Errors of `out`.
pub fn write_prometheus<S: MetricsSource + ?Sized, W: Write + ?Sized>(
    source: &S,
    series: Series,
    out: &mut W,
) -> fmt::Result {
    let policy = source.policy();
    let mut family = "";
    let mut is_headed = false;
    for metric in Metric::all() {
        let info = metric.info;
        let suffix = match info.kind {
            CounterKind::Counter => "_total",
            CounterKind::Gauge => "",
        };
        if info.family != family {
            family = info.family;
            is_headed = false;
        }
        source.for_each_row(
            &mut |row| match metric.value(row).filter(|value| *value > 0 || series == Series::All) {
                Some(value) => {
                    if !is_headed {
                        write_heading(info, suffix, out)?;
                        is_headed = true;
                    }
                    let labels = Labels { row, policy, scope: info.scope, migrate_type: info.migrate_type };
                    writeln!(out, "frameyard_{family}{suffix}{{{labels}}} {value}")
                }
                None => Ok(()),
            },
        )?;
    }
    for histogram in MetricHistogram::ALL {
        let name = name_of(histogram);
        let mut is_empty = series == Series::NonZero;
        source.for_each_row(&mut |row| {
            is_empty &= histogram.counts(row).0.count() == 0;
            Ok(())
        })?;
        if is_empty {
            continue;
        }
        writeln!(out, "# HELP {name} {}\n# TYPE {name} histogram", histogram.help())?;
        source.for_each_row(&mut |row| write_histogram(histogram, row, policy, out))?;
    }
    Ok(())
}

fn write_heading<W: Write + ?Sized>(info: &CounterInfo, suffix: &str, out: &mut W) -> fmt::Result {
    let CounterInfo { family, help, .. } = info;
    let kind = match info.kind {
        CounterKind::Counter => "counter",
        CounterKind::Gauge => "gauge",
    };
    writeln!(out, "# HELP frameyard_{family}{suffix} {help}\n# TYPE frameyard_{family}{suffix} {kind}")
}

/// The name, in base units.
const fn name_of(histogram: MetricHistogram) -> &'static str {
    match histogram {
        MetricHistogram::Wait => "frameyard_zone_lock_wait_seconds",
        MetricHistogram::Hold => "frameyard_zone_lock_hold_seconds",
        MetricHistogram::Pages => "frameyard_zone_lock_pages_per_acquisition",
    }
}

fn write_histogram<W: Write + ?Sized>(
    histogram: MetricHistogram,
    row: &MetricsRow,
    policy: ZonePolicy,
    out: &mut W,
) -> fmt::Result {
    let (counts, sum) = histogram.counts(row);
    let count = counts.count();
    if count == 0 {
        return Ok(());
    }
    let name = name_of(histogram);
    let labels = Labels { row, policy, scope: CounterScope::Cpu, migrate_type: None };
    let amount = |value| match histogram {
        MetricHistogram::Wait | MetricHistogram::Hold => Amount::Nanoseconds(value),
        MetricHistogram::Pages => Amount::Pages(value),
    };
    for (bound, below) in counts.cumulative() {
        match bound {
            Some(bound) => writeln!(out, "{name}_bucket{{{labels},le=\"{}\"}} {below}", amount(bound))?,
            None => writeln!(out, "{name}_bucket{{{labels},le=\"+Inf\"}} {below}")?,
        }
    }
    writeln!(out, "{name}_sum{{{labels}}} {}", amount(sum))?;
    writeln!(out, "{name}_count{{{labels}}} {count}")
}

/// The labels of a series.
struct Labels<'a> {
    row: &'a MetricsRow,
    policy: ZonePolicy,
    scope: CounterScope,
    migrate_type: Option<&'static str>,
}

impl fmt::Display for Labels<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { row, policy, scope, migrate_type } = self;
        write!(f, "node=\"{}\",zone=\"{}\"", row.zone.node().0, row.zone.kind().name())?;
        match (scope, row.cpu) {
            (CounterScope::Zone, _) => {}
            (CounterScope::Cpu, Some(cpu)) => write!(f, ",cpu=\"{}\"", cpu.0)?,
            (CounterScope::Cpu, None) => f.write_str(",cpu=\"direct\"")?,
        }
        if let Some(of) = migrate_type {
            write!(f, ",type=\"{of}\"")?;
        }
        write!(f, ",policy=\"{}\"", policy.name())
    }
}

/// A value of a histogram.
enum Amount {
    /// Printed in seconds, exactly.
    Nanoseconds(u64),
    Pages(u64),
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const PER_SECOND: u64 = 1_000_000_000;
        match *self {
            Self::Pages(pages) => write!(f, "{pages}"),
            Self::Nanoseconds(ns) if ns % PER_SECOND == 0 => write!(f, "{}", ns / PER_SECOND),
            Self::Nanoseconds(ns) => {
                let (mut fraction, mut digits) = (ns % PER_SECOND, 9);
                while fraction % 10 == 0 {
                    fraction /= 10;
                    digits -= 1;
                }
                write!(f, "{}.{fraction:0digits$}", ns / PER_SECOND)
            }
        }
    }
}
