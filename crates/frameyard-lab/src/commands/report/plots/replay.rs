//! Replays of recordings: free blocks on the way, and contention of copies on a simulated machine.

use super::super::chart::{Bars, Chart, Scale};
use super::super::jobs::group;
use super::super::results::{JobRow, Results, number, text};
use super::super::stored::Stored;
use super::Plot;
use super::map::by_policy;

/// A plot of free 2 MiB blocks for each replay.
pub(super) fn replays(results: &Results) -> Vec<Plot> {
    let stored = results.group(group::REPLAY);
    let title = "Free 2 MiB blocks during a replay";
    let sentence = "The allocations and frees of a recorded kernel, replayed under each policy from the recorded state of memory. Free \
        blocks are counted on free lists and in bits.";
    if stored.is_empty() {
        let why = "no recording was replayed: name one with --trace".to_owned();
        return vec![Plot::of_chart("replay", title, sentence, vec![group::REPLAY], Err(why))];
    }
    let plot = |stored: &&Stored| {
        let result = &stored.result;
        let samples = result.totals.get("samples").and_then(serde_json::Value::as_array);
        let rows: Vec<&JobRow> = samples.into_iter().flatten().filter_map(serde_json::Value::as_object).collect();
        let chart = match &result.error {
            Some(error) => Err(format!("job {} failed: {error}", result.job)),
            None => Ok(Chart {
                x: "operations",
                y: "free blocks of order 9 and more",
                scale: Scale::Linear,
                series: by_policy(&rows, "operations", "free_order9_blocks"),
            }),
        };
        let recording = recording(stored);
        let title = format!("{title} of {recording}");
        Plot::of_chart(&format!("replay-{recording}"), &title, sentence, vec![group::REPLAY], chart)
    };
    stored.iter().map(plot).collect()
}

/// Contention for the zone lock among copies of each recording.
pub(super) fn simulated(results: &Results) -> Plot {
    let bars = results.rows(group::SIM_REPLAY).map(|_| {
        let rows = || {
            let stored = results.group(group::SIM_REPLAY).into_iter();
            stored.flat_map(|stored| stored.result.rows.iter().map(|row| (recording(stored), row)))
        };
        let name = |(recording, row): (&str, &JobRow)| {
            let copies = number(row, "copies").unwrap_or_default();
            format!("{copies} × {recording}, {}", text(row, "policy"))
        };
        let percent = |key| rows().map(|(_, row)| number(row, key).unwrap_or_default() * 100.0).collect();
        Bars {
            x: "% of the acquisitions of zone locks",
            names: rows().map(name).collect(),
            parts: vec![("found the lock held".to_owned(), percent("zone_lock_contended_share"))],
            marks: None,
        }
    });
    Plot::of_bars(
        "replay-simulated",
        "Contention for zone locks: copies of a recording at once on a simulated machine",
        "Each copy has memory and CPUs of its own, and copies on a socket share its free lists. CPUs do their operations one right after the \
        other, so contention is that of a system that does nothing but allocate and free.",
        vec![group::SIM_REPLAY],
        bars,
    )
}

/// The recording of a job.
fn recording(stored: &Stored) -> &str {
    stored.result.job.split_once('.').map_or("", |(_, recording)| recording)
}
