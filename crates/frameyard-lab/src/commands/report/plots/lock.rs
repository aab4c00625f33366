//! Histograms of the times at the zone lock.

use std::collections::BTreeMap;

use super::super::chart::{Chart, Scale, Series, Style};
use super::super::jobs::group;
use super::super::results::{JobRow, Results, number, text};
use super::Plot;

/// Hold times and wait times.
pub(super) fn histograms(results: &Results) -> [Plot; 2] {
    [("hold", "Times that the zone lock is held"), ("wait", "Times spent waiting for the zone lock")].map(
        |(what, title)| {
            let chart = results.rows(group::LOCK_TIMES).and_then(|rows| chart(&rows, what));
            let sentence =
                "A workload of mixed orders and types on this machine, under two policies. Buckets are powers of two.";
            Plot::of_chart(&format!("lock-{what}-times"), title, sentence, vec![group::LOCK_TIMES], chart)
        },
    )
}

fn chart(rows: &[&JobRow], what: &str) -> Result<Chart, String> {
    let mut series = Vec::new();
    for (colour, policy) in ["vanilla", "", "bits"].into_iter().enumerate() {
        let of_policy: Vec<&JobRow> = rows.iter().filter(|row| text(row, "policy") == policy).copied().collect();
        let points = outline(&buckets(&of_policy, &format!("zone_lock_{what}_ns_le_")));
        if !points.is_empty() {
            series.push(Series { label: policy.to_owned(), style: Style::Outline, points, colour });
        }
    }
    if series.is_empty() {
        let why = if what == "wait" {
            "no acquisition of the zone lock had to wait in this workload"
        } else {
            "no acquisition of the zone lock was timed"
        };
        return Err(why.to_owned());
    }
    Ok(Chart { x: "ns, at most", y: "acquisitions", scale: Scale::Log, series })
}

/// Counts by upper bound, summed over the rows. The columns are cumulative.
fn buckets(rows: &[&JobRow], prefix: &str) -> BTreeMap<u64, f64> {
    let mut below: BTreeMap<u64, f64> = BTreeMap::new();
    for row in rows {
        let bounds = row.keys().filter_map(|key| Some((key, key.strip_prefix(prefix)?.parse().ok()?)));
        for (key, bound) in bounds {
            *below.entry(bound).or_default() += number(row, key).unwrap_or_default();
        }
    }
    let mut before = 0.0;
    below.iter().map(|(bound, count)| (*bound, count - std::mem::replace(&mut before, *count))).collect()
}

/// The steps of a histogram, from the first bucket with a count to the last.
fn outline(buckets: &BTreeMap<u64, f64>) -> Vec<(f64, f64)> {
    let used: Vec<(f64, f64)> = buckets.iter().map(|(bound, count)| (*bound as f64, *count)).collect();
    let first = used.iter().position(|(_, count)| *count > 0.0);
    let last = used.iter().rposition(|(_, count)| *count > 0.0);
    let (Some(first), Some(last)) = (first, last) else { return Vec::new() };
    let mut steps = vec![(used[first].0 / 2.0, 0.0)];
    steps.extend(used[first..=last].iter().flat_map(|(bound, count)| [(bound / 2.0, *count), (*bound, *count)]));
    steps.push((used[last].0, 0.0));
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn cumulative_columns_become_steps() {
        let row = json!({"x_le_1": 0, "x_le_2": 3, "x_le_4": 3, "x_le_8": 5, "x_le_16": 5, "x_le_inf": 5});
        let row = row.as_object().unwrap();
        let counts = buckets(&[row, row], "x_le_");
        assert_eq!(counts.values().copied().collect::<Vec<_>>(), [0.0, 6.0, 0.0, 4.0, 0.0]);
        let expected = [(1.0, 0.0), (1.0, 6.0), (2.0, 6.0), (2.0, 0.0), (4.0, 0.0), (4.0, 4.0), (8.0, 4.0), (8.0, 0.0)];
        assert_eq!(outline(&counts), expected);
        assert!(outline(&BTreeMap::new()).is_empty());
    }
}
