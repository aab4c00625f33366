//! From how many threads on more threads gain little.

use crate::output::{Format, Row};

/// The line above the rows.
pub(super) const TITLE: &str =
    "The fewest threads per node that take at most 5 % longer than the fastest number of threads";

/// A time counts as the fastest up to this factor.
const NEARLY: f64 = 1.05;

/// A row for each machine and initialiser of which `rows` have at least three numbers of threads.
pub(super) fn rows(rows: &[Row]) -> Vec<Row> {
    let is_alike = |a: &Row, b: &Row| ["machine", "initialiser"].iter().all(|key| a.value(key) == b.value(key));
    rows.chunk_by(is_alike).filter(|curve| curve.len() > 2).filter_map(row).collect()
}

fn row(curve: &[Row]) -> Option<Row> {
    let time = |row: &Row| row.number("predicted_ns");
    let threads = |row: &Row| row.number("threads_per_node").map(|threads| threads as u64);
    let fastest = curve.iter().min_by(|a, b| time(a).partial_cmp(&time(b)).unwrap_or(std::cmp::Ordering::Equal))?;
    let limit = time(fastest)? * NEARLY;
    let enough =
        curve.iter().filter(|row| time(row).is_some_and(|time| time <= limit)).min_by_key(|row| threads(row))?;
    Some(
        Row::new()
            .column("machine", "machine", curve[0].text("machine")?)
            .column("initialiser", "initialiser", curve[0].text("initialiser")?)
            .column("threads_per_node", "threads per node", threads(enough)?)
            .column_as("predicted_ns", "ms", Format::millions(1), time(enough)?)
            .column("fastest_threads_per_node", "fastest with", threads(fastest)?)
            .column_as("fastest_ns", "ms", Format::millions(1), time(fastest)?),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn curve(machine: &str, times: &[u64]) -> Vec<Row> {
        let of = |(at, time): (usize, &u64)| {
            let row = Row::new().data("machine", machine.to_owned()).data("initialiser", "stream");
            row.data("threads_per_node", at + 1).data("predicted_ns", *time)
        };
        times.iter().enumerate().map(of).collect()
    }

    #[test]
    fn the_fewest_threads_within_five_percent_of_the_fastest_suffice() {
        let all =
            [curve("a", &[1000, 500, 106, 105, 100, 104]), curve("b", &[70, 50]), curve("c", &[9, 8, 7])].concat();
        let found: Vec<_> = rows(&all)
            .iter()
            .map(|row| {
                (row.text("machine").unwrap().to_owned(), row.number("threads_per_node"), row.number("fastest_ns"))
            })
            .collect();
        assert_eq!(found, [("a".to_owned(), Some(4.0), Some(100.0)), ("c".to_owned(), Some(3.0), Some(7.0))]);
    }
}
