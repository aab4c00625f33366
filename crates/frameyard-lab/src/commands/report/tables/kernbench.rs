//! A kernel build on 256 CPUs.

use serde_json::json;

use super::super::jobs::group;
use super::super::results::{Results, number};
use super::published;
use super::{ComparedRow, ComparedTable};

/// User, system and elapsed time with per-CPU lists of early and of final size.
pub(super) fn table(results: &Results) -> ComparedTable {
    let mut table = ComparedTable::new(
        "kernbench-epyc2-256cpu",
        "A kernel build on 256 CPUs, with early and final sizes of per-CPU lists",
        vec![group::CHECK_KERNBENCH],
        results,
    );
    for line in published::lines(published::KERNBENCH) {
        for (column, lists) in [("vanilla", "early"), ("reset_pcp", "final")] {
            let Some(published) = line.number(column) else { continue };
            let metric = line.text("metric");
            let mean = metric.strip_suffix("_256_amean_s");
            let name =
                mean.map(|mean| if (mean, lists) == ("elapsed", "early") { "elapsed, idle as long" } else { mean });
            let keys = [("metric", json!(name)), ("lists", json!(lists)), ("zone_policy", json!("vanilla-4.17"))];
            let found = name.and_then(|_| results.row(group::CHECK_KERNBENCH, &keys).ok());
            table.rows.push(ComparedRow {
                what: format!("{metric}, {lists} lists"),
                unit: if metric.ends_with("_s") { "s" } else { "" },
                machine: "epyc2-256".to_owned(),
                published,
                simulated: found.and_then(|row| number(row, "predicted_s")),
                is_fitted: found.is_some_and(|row| row.get("fitted") == Some(&json!(true))),
                ..ComparedRow::default()
            });
        }
    }
    table.missing.push("measured here: not comparable, the build needs 256 CPUs".to_owned());
    table
        .missing
        .push("deviations and durations were published of whole runs; only the means are simulated".to_owned());
    table.saying(
        "Setting the sizes of per-CPU lists again after boot took 70 % of the system time away in the published runs.",
    )
}
