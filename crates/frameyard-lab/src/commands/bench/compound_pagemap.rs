//! What was published of compound page maps for device memory: figures of kernels, before and after the series.

use crate::commands::published_table::cells;

/// The table: its header says what its columns are.
const TABLE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/published/compound-pagemap.csv"));

/// What rows say of where their values come from.
pub(super) const MEASURED: &str = "measured";
/// As [`MEASURED`].
pub(super) const PUBLISHED: &str = "published";

/// What a published figure is of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Series {
    /// The kernel before it: base pages.
    Before,
    /// Compound pages of 2 MiB.
    Huge,
    /// Compound pages of 1 GiB.
    Gigantic,
    /// Compound pages, of a size that is not said.
    After,
}

impl Series {
    /// In the order of the table's columns.
    const ALL: [Self; 4] = [Self::Before, Self::Huge, Self::Gigantic, Self::After];

    /// The geometry of the map.
    pub(super) const fn geometry(self) -> Option<&'static str> {
        match self {
            Self::Before => Some("4K"),
            Self::Huge => Some("2M"),
            Self::Gigantic => Some("1G"),
            Self::After => None,
        }
    }
}

/// One published figure.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Figure {
    pub(super) metric: String,
    pub(super) unit: String,
    pub(super) series: Series,
    pub(super) value: f64,
    pub(super) note: Option<String>,
}

/// The figures of those metrics whose names begin with one of these.
pub(super) fn figures(metrics: &[&str]) -> Vec<Figure> {
    TABLE.lines().skip(1).filter(|line| metrics.iter().any(|metric| line.starts_with(metric))).flat_map(line).collect()
}

fn line(line: &str) -> Vec<Figure> {
    let Some([metric, unit, before, huge, gigantic, after, note]) = cells(line) else { return Vec::new() };
    let note = (!note.is_empty()).then_some(note);
    let values = [before, huge, gigantic, after];
    let figure = |(series, value): (Series, String)| {
        let value = value.parse().ok()?;
        Some(Figure { metric: metric.clone(), unit: unit.clone(), series, value, note: note.clone() })
    };
    Series::ALL.into_iter().zip(values).filter_map(figure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_has_a_figure_from_before_and_one_from_after() {
        for text in TABLE.lines().skip(1) {
            let found: Vec<Series> = line(text).iter().map(|figure| figure.series).collect();
            assert!(found.len() >= 2 && found[0] == Series::Before, "{text}: {found:?}");
        }
    }

    #[test]
    fn figures_are_found_by_their_metric() {
        let found = figures(&["namespace_bootstrap"]);
        let values: Vec<(Option<&str>, f64)> =
            found.iter().map(|figure| (figure.series.geometry(), figure.value)).collect();
        assert_eq!(values, [(Some("4K"), 750.0), (Some("2M"), 190.0), (Some("1G"), 1.0)]);
        assert!(figures(&["mr_register_rounds_hugetlb"])[1].series == Series::After);
        assert!(figures(&["nothing"]).is_empty());
    }
}
