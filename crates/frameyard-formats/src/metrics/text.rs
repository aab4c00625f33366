//! Plain text in the form of `/proc/vmstat`: one name and value per line.

use core::fmt::{self, Write};

use super::{Metric, MetricHistogram, MetricsRow, MetricsSource};
use frameyard::locks::HistogramCounts;
use frameyard::stats::ZoneLockTelemetry;

/// Writes all metrics, one name and value per line: first the sums over the whole yard, then each zone and CPU that has
/// a value other than zero, indented under a heading as in `/proc/zoneinfo`. Values counted per zone are in the block
/// `direct`.
///
/// Of a histogram, it prints the sum, the count, and the number of values up to each bound. Empty histograms are left
/// out.
///
/// # Errors
///
/// Errors of `out`.
pub fn write_metrics<S: MetricsSource + ?Sized, W: Write + ?Sized>(source: &S, out: &mut W) -> fmt::Result {
    writeln!(out, "policy {}", source.policy().name())?;
    let mut sum = Numbers::NONE;
    let mut lock = ZoneLockTelemetry::default();
    source.for_each_row(&mut |row| {
        sum.add(&Numbers::of(row));
        lock = lock.and(&row.lock);
        Ok(())
    })?;
    sum.write("", out)?;
    write_histograms(&lock, "", out)?;
    source.for_each_row(&mut |row| {
        let numbers = Numbers::of(row);
        if numbers.are_zeros() {
            return Ok(());
        }
        write!(out, "Node {}, zone {:>8}, ", row.zone.node().0, row.zone.kind())?;
        match row.cpu {
            Some(cpu) => writeln!(out, "cpu {}", cpu.0)?,
            None => writeln!(out, "direct")?,
        }
        numbers.write("      ", out)?;
        write_histograms(&row.lock, "      ", out)
    })
}

/// The values of all metrics; `None` for metrics without a value.
struct Numbers([Option<u64>; Metric::COUNT]);

impl Numbers {
    const NONE: Self = Self([None; Metric::COUNT]);

    fn of(row: &MetricsRow) -> Self {
        let mut values = Metric::all().map(|metric| metric.value(row));
        Self(core::array::from_fn(|_| values.next().flatten()))
    }

    fn add(&mut self, other: &Self) {
        for (sum, value) in self.0.iter_mut().zip(other.0) {
            if let Some(value) = value {
                *sum = Some(sum.unwrap_or(0).wrapping_add(value));
            }
        }
    }

    fn are_zeros(&self) -> bool {
        self.0.iter().all(|value| value.unwrap_or(0) == 0)
    }

    fn write<W: Write + ?Sized>(&self, indent: &str, out: &mut W) -> fmt::Result {
        for (metric, value) in Metric::all().zip(self.0) {
            if let Some(value) = value {
                writeln!(out, "{indent}{} {value}", metric.info.name)?;
            }
        }
        Ok(())
    }
}

fn write_histograms<W: Write + ?Sized>(lock: &ZoneLockTelemetry, indent: &str, out: &mut W) -> fmt::Result {
    for histogram in MetricHistogram::ALL {
        let (counts, sum) = histogram.counts_of(lock);
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
