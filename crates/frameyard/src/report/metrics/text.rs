//! As `/proc/vmstat`: a name and a number a line.

use core::fmt::{self, Write};

use super::{ListMetrics, Metric, MetricHistogram, MetricsRow, MetricsSource};
use crate::lock::HistogramCounts;
use crate::units::ZoneId;
use crate::zone::{CrossingStatistics, ZoneLockTelemetry};

/// Writes all metrics as lines of a name and a number: first those of the whole yard, then, indented under a heading as in
/// `/proc/zoneinfo`, those of each zone and CPU that has anything but zeros.
///
/// A histogram that has counted nothing is left out. Of others there is the sum, the count, and how many values were at
/// most so large.
///
/// # Errors
///
/// Those of `out`.
pub fn write_metrics<S: MetricsSource + ?Sized, W: Write + ?Sized>(source: &S, out: &mut W) -> fmt::Result {
    writeln!(out, "policy {}", source.policy().name())?;
    let mut sum = none();
    source.for_each_row(&mut |row| {
        add(&mut sum, row);
        Ok(())
    })?;
    write_row(&sum, "", out)?;
    source.for_each_row(&mut |row| {
        if Metric::ALL.iter().all(|metric| metric.value(row).unwrap_or(0) == 0) {
            return Ok(());
        }
        write!(out, "Node {}, zone {:>8}, ", row.zone.node().0, row.zone.kind())?;
        match row.cpu {
            Some(cpu) => writeln!(out, "cpu {}", cpu.0)?,
            None => writeln!(out, "direct")?,
        }
        write_row(row, "      ", out)
    })
}

fn none() -> MetricsRow {
    MetricsRow {
        zone: ZoneId(0),
        cpu: None,
        lock: ZoneLockTelemetry::default(),
        crossing: CrossingStatistics::default(),
        lists: Some(ListMetrics::default()),
    }
}

fn add(sum: &mut MetricsRow, row: &MetricsRow) {
    sum.lock = sum.lock.and(&row.lock);
    sum.crossing = sum.crossing.and(&row.crossing);
    if let Some((sum, lists)) = sum.lists.as_mut().zip(row.lists) {
        sum.pages += lists.pages;
        sum.traffic.refills = sum.traffic.refills.wrapping_add(lists.traffic.refills);
        sum.traffic.drains = sum.traffic.drains.wrapping_add(lists.traffic.drains);
    }
}

fn write_row<W: Write + ?Sized>(row: &MetricsRow, indent: &str, out: &mut W) -> fmt::Result {
    for metric in Metric::ALL {
        if let Some(value) = metric.value(row) {
            writeln!(out, "{indent}{} {value}", metric.name())?;
        }
    }
    for histogram in MetricHistogram::ALL {
        let (counts, sum) = histogram.counts(row);
        if counts.count() > 0 {
            write_histogram(histogram.name(), &counts, sum, indent, out)?;
        }
    }
    Ok(())
}

fn write_histogram<W: Write + ?Sized>(
    name: &str,
    counts: &HistogramCounts,
    sum: u64,
    indent: &str,
    out: &mut W,
) -> fmt::Result {
    writeln!(out, "{indent}{name}_sum {sum}\n{indent}{name}_count {}", counts.count())?;
    for (bound, below) in counts.cumulative() {
        match bound {
            Some(bound) => writeln!(out, "{indent}{name}_le_{bound} {below}")?,
            None => writeln!(out, "{indent}{name}_le_inf {below}")?,
        }
    }
    Ok(())
}
