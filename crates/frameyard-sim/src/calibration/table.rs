//! A published table of operations per second.

use std::fmt;

use frameyard::policy::ZonePolicy;

use crate::page_fault::Mode;

use super::Point;

/// A published value: the mean of several runs, and their spread.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Measured {
    /// The mean operations per second.
    pub mean: f64,
    /// The standard deviation of the runs; 0 if it was not published.
    pub stdev: f64,
}

/// Operations per second by number of tasks, policy and mode.
#[derive(Clone, PartialEq, Debug)]
pub struct RateTable {
    values: Vec<(Point, Measured)>,
}

/// Why a text is not such a table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TableError {
    /// The header differs.
    Header(String),
    /// A line with a wrong cell; lines count from 1.
    Line(usize),
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Header(found) => write!(f, "the table begins with '{found}': the columns must be {HEADER}"),
            Self::Line(line) => write!(f, "line {line} of the table does not match the header: {HEADER}"),
        }
    }
}

impl std::error::Error for TableError {}

const HEADER: &str = "tasks,kernel,policy,processes_pgf_per_s,processes_stdev,threads_pgf_per_s,threads_stdev";

impl RateTable {
    /// Reads comma-separated values with the columns tasks, kernel, policy, and mean and standard deviation of page
    /// faults per second for processes, then for threads. The kernel's name is informative.
    ///
    /// # Errors
    ///
    /// [`TableError`] if the header or a line differs.
    pub fn parse(text: &str) -> Result<Self, TableError> {
        let mut lines = text.lines();
        let header = lines.next().unwrap_or_default();
        if header != HEADER {
            return Err(TableError::Header(header.to_owned()));
        }
        let rows = lines.enumerate().map(|(at, line)| row(line).ok_or(TableError::Line(at + 2)));
        let rows: Vec<[(Point, Measured); 2]> = rows.collect::<Result<_, _>>()?;
        Ok(Self { values: rows.concat() })
    }

    /// A table of values whose standard deviation was not published.
    #[must_use]
    pub fn of(rates: impl IntoIterator<Item = (Point, f64)>) -> Self {
        let value = |(point, mean)| (point, Measured { mean, stdev: 0.0 });
        Self { values: rates.into_iter().map(value).collect() }
    }

    /// All values in the order of the table; in each line processes come before threads.
    #[must_use]
    pub fn values(&self) -> &[(Point, Measured)] {
        &self.values
    }

    /// The value at a point.
    #[must_use]
    pub fn at(&self, point: &Point) -> Option<Measured> {
        self.values.iter().find(|(known, _)| known == point).map(|(_, measured)| *measured)
    }
}

/// A line of the table.
fn row(line: &str) -> Option<[(Point, Measured); 2]> {
    let cells: Vec<&str> = line.split(',').collect();
    let [tasks, _kernel, policy, processes, processes_stdev, threads, threads_stdev] = cells[..] else { return None };
    let (policy, tasks): (ZonePolicy, u32) = (policy.parse().ok()?, tasks.parse().ok()?);
    let positive = |cell: &str| cell.parse().ok().filter(|value: &f64| value.is_finite() && *value > 0.0);
    let value = |mode, mean, stdev| {
        Some((Point { policy, mode, tasks }, Measured { mean: positive(mean)?, stdev: positive(stdev)? }))
    };
    Some([value(Mode::Processes, processes, processes_stdev)?, value(Mode::Threads, threads, threads_stdev)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_two_values() {
        let text = format!("{HEADER}\n1,4.16-rc5,vanilla-4.16,586305,747,587731,1766\n");
        let table = RateTable::parse(&text).unwrap();
        assert_eq!(table.values().len(), 2);
        let point = |mode| Point { policy: ZonePolicy::Vanilla416, mode, tasks: 1 };
        assert_eq!(table.at(&point(Mode::Processes)), Some(Measured { mean: 586_305.0, stdev: 747.0 }));
        assert_eq!(table.at(&point(Mode::Threads)), Some(Measured { mean: 587_731.0, stdev: 1766.0 }));
        assert_eq!(table.at(&Point { tasks: 2, ..point(Mode::Threads) }), None);
    }

    #[test]
    fn malformed_tables_are_refused_with_the_line() {
        assert_eq!(RateTable::parse("a,b"), Err(TableError::Header("a,b".to_owned())));
        for line in ["1,k,vanilla,2,3,4", "1,k,no-policy,2,3,4,5", "one,k,vanilla,2,3,4,5", "1,k,vanilla,0,3,4,5"] {
            assert_eq!(RateTable::parse(&format!("{HEADER}\n{line}\n")), Err(TableError::Line(2)), "{line}");
        }
    }
}
