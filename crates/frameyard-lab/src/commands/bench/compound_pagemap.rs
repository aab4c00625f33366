//! Published figures of compound page maps for device memory: of kernels before and after the series.

use serde::Deserialize;

use crate::commands::published_table::records;
use crate::output::Row;

const TABLE: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/published/compound-pagemap.csv"));

/// The kernel of a published figure.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Series {
    /// Before the series: base pages.
    Before,
    /// Compound pages of 2 MiB.
    Huge,
    /// Compound pages of 1 GiB.
    Gigantic,
    /// Compound pages of an unpublished size.
    After,
}

impl Series {
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

/// A published figure.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Figure {
    pub(super) metric: String,
    pub(super) unit: String,
    pub(super) series: Series,
    pub(super) value: f64,
    pub(super) note: Option<String>,
}

impl Figure {
    /// The columns of rows with published figures.
    pub(super) fn columns(figure: Option<&Self>) -> Row {
        Row::new()
            .data("published_metric", figure.map(|figure| figure.metric.clone()))
            .data("published_unit", figure.map(|figure| figure.unit.clone()))
            .data("published_value", figure.map(|figure| figure.value))
            .data("published_note", figure.and_then(|figure| figure.note.clone()))
    }

    /// The row of a table of published figures.
    pub(super) fn table_row(&self) -> Row {
        Row::new()
            .column("metric", "published", self.metric.clone())
            .column("geometry", "map", self.series.geometry())
            .remark("value", crate::output::Format::Plain, self.value.to_string())
            .column("unit", "unit", self.unit.clone())
            .column("note", "note", self.note.clone())
    }
}

/// A line of the table.
#[derive(Deserialize)]
struct Record {
    metric: String,
    unit: String,
    before: Option<f64>,
    after_2m: Option<f64>,
    after_1g: Option<f64>,
    after_unspecified: Option<f64>,
    note: Option<String>,
}

impl Record {
    fn figures(self) -> impl Iterator<Item = Figure> {
        let Self { metric, unit, note, .. } = self;
        let values = [
            (Series::Before, self.before),
            (Series::Huge, self.after_2m),
            (Series::Gigantic, self.after_1g),
            (Series::After, self.after_unspecified),
        ];
        values.into_iter().filter_map(move |(series, value)| {
            Some(Figure { metric: metric.clone(), unit: unit.clone(), series, value: value?, note: note.clone() })
        })
    }
}

/// The figures of metrics whose names begin with one of these.
pub(super) fn figures(metrics: &[&str]) -> Vec<Figure> {
    let is_wanted = |record: &Record| metrics.iter().any(|metric| record.metric.starts_with(metric));
    records(TABLE).filter(is_wanted).flat_map(Record::figures).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_table_has_a_figure_from_before_and_one_from_after() {
        let records: Vec<Record> = records(TABLE).collect();
        assert_eq!(records.len(), TABLE.lines().count() - 1);
        for record in records {
            let found: Vec<Series> = record.figures().map(|figure| figure.series).collect();
            assert!(found.len() >= 2 && found[0] == Series::Before, "{found:?}");
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
