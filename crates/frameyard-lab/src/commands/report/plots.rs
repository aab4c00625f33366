//! The plots of a report.

mod lock;
mod map;
mod replay;
mod throughput;

use super::chart::{Bars, Chart};
use super::results::Results;

/// A plot of the page.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Plot {
    pub(super) name: String,
    pub(super) title: String,
    /// What it shows.
    pub(super) sentence: String,
    pub(super) groups: Vec<&'static str>,
    /// Labels with the numbers of their colours.
    pub(super) legend: Vec<(String, usize)>,
    /// The drawing, or why there is none.
    pub(super) svg: Result<String, String>,
}

impl Plot {
    fn of_chart(
        name: &str,
        title: &str,
        sentence: &str,
        groups: Vec<&'static str>,
        chart: Result<Chart, String>,
    ) -> Self {
        let mut legend: Vec<(String, usize)> = Vec::new();
        for series in chart.iter().flat_map(|chart| &chart.series) {
            legend.push((series.label.clone(), series.colour));
        }
        let svg = chart.and_then(|chart| chart.svg());
        Self { name: name.to_owned(), title: title.to_owned(), sentence: sentence.to_owned(), groups, legend, svg }
    }

    fn of_bars(name: &str, title: &str, sentence: &str, groups: Vec<&'static str>, bars: Result<Bars, String>) -> Self {
        let parts = bars.iter().flat_map(|bars| &bars.parts).enumerate();
        let legend = parts.map(|(number, (label, _))| (label.clone(), number)).collect();
        let svg = bars.and_then(|bars| bars.svg());
        Self { name: name.to_owned(), title: title.to_owned(), sentence: sentence.to_owned(), groups, legend, svg }
    }
}

/// Every plot.
pub(super) fn all(results: &Results) -> Vec<Plot> {
    let mut plots = vec![
        throughput::broadwell(results),
        throughput::skylake(results),
        throughput::lock_shares(results),
        map::bandwidth(results),
        map::fragmentation_here(results),
        map::fragmentation_simulated(results),
    ];
    plots.extend(replay::replays(results));
    plots.push(replay::simulated(results));
    plots.extend(lock::histograms(results));
    plots
}
